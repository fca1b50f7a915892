/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The console: characters out to every console device, in from any of them.
 *
 * Output is polled and works from cninit() on, in any context.  Input is polled too (cncheckc()),
 * but a driver that has an interrupt calls cons_input_ready(), so that a thread can sleep for it.
 *
 * Locking.  cnputs_mtx keeps strings of different processors apart; a panic goes without it.
 * cons_input_mtx orders the check for input against going to sleep.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/cons.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/proc.h>

#include <machine/cpu.h>

#include <kern/cons_input_tree.h>

#define	CNDEVTAB_SIZE	4

SET_DECLARE(cons_set, struct consdev);

int	cn_mute;

static struct consdev *cn_devtab[CNDEVTAB_SIZE];
static int cn_count;

static struct mtx cnputs_mtx;
MTX_SYSINIT(cnputs, &cnputs_mtx, "cnputs", MTX_SPIN | MTX_NOWITNESS);

static struct mtx cons_input_mtx;
MTX_SYSINIT(cons_input, &cons_input_mtx, "console input", MTX_DEF);

/* Start using a console device.  ENOMEM: there are too many. */
int
cnadd(struct consdev *cn)
{
	if (cn_count == CNDEVTAB_SIZE)
		return (ENOMEM);
	cn_devtab[cn_count++] = cn;
	return (0);
}

void
cnremove(struct consdev *cn)
{
	int i, j = 0;

	for (i = 0; i < cn_count; i++) {
		if (cn_devtab[i] != cn)
			cn_devtab[j++] = cn_devtab[i];
	}
	cn_count = j;
}

void
cnavailable(struct consdev *cn, int available)
{
	if (available)
		cn->cn_flags &= ~CN_FLAG_NOAVAIL;
	else
		cn->cn_flags |= CN_FLAG_NOAVAIL;
}

int
cnunavailable(void)
{
	return (cn_count == 0);
}

/* Find the console devices that the machine has. */
void
cninit(void)
{
	struct consdev **list, *cn;

	SET_FOREACH(list, cons_set) {
		cn = *list;
		cn->cn_ops->cn_probe(cn);
		if (cn->cn_pri == CN_DEAD || cnadd(cn) != 0)
			continue;
		cn->cn_ops->cn_init(cn);
	}
}

void
cninit_finish(void)
{
}

/* The machine was suspended, and the devices have lost their settings. */
void
cnresume(void)
{
	int i;

	for (i = 0; i < cn_count; i++) {
		if (cn_devtab[i]->cn_ops->cn_resume != NULL)
			cn_devtab[i]->cn_ops->cn_resume(cn_devtab[i]);
	}
}

void
cngrab(void)
{
	int i;

	for (i = 0; i < cn_count; i++)
		cn_devtab[i]->cn_ops->cn_grab(cn_devtab[i]);
}

void
cnungrab(void)
{
	int i;

	for (i = 0; i < cn_count; i++)
		cn_devtab[i]->cn_ops->cn_ungrab(cn_devtab[i]);
}

/* A character that has been typed, or -1. */
int
cncheckc(void)
{
	int i, c;

	for (i = 0; i < cn_count; i++) {
		if (cn_devtab[i]->cn_flags & CN_FLAG_NOAVAIL)
			continue;
		c = cn_devtab[i]->cn_ops->cn_getc(cn_devtab[i]);
		if (c != -1)
			return (c);
	}
	return (-1);
}

/* Poll until a character is typed; -1 if there is no console. */
int
cngetc(void)
{
	int c;

	if (cn_count == 0)
		return (-1);
	while ((c = cncheckc()) == -1)
		cpu_spinwait();
	return (c == '\r' ? '\n' : c);
}

int
cons_getc_wait(void)
{
	int c;

	mtx_lock(&cons_input_mtx);
	while ((c = cncheckc()) == -1)
		mtx_sleep(&cons_input_mtx, &cons_input_mtx, 0, "ttyin", 0);
	mtx_unlock(&cons_input_mtx);
	return (c);
}

void
cons_input_ready(void)
{
	mtx_lock(&cons_input_mtx);
	wakeup(&cons_input_mtx);
	mtx_unlock(&cons_input_mtx);
}

/* Read a line with simple editing into cp, without the newline. */
void
cngets(char *cp, size_t size, int visible)
{
	char *lp = cp, *end = cp + size - 1;
	int c;

	cngrab();
	while ((c = cngetc()) != -1 && c != '\n') {
		if (c == '\b' || c == '\177') {
			if (lp > cp) {
				lp--;
				if (visible != GETS_NOECHO)
					cnputs("\b \b");
			}
			continue;
		}
		if (c < ' ' || lp == end)
			continue;
		*lp++ = c;
		if (visible == GETS_ECHO)
			cnputc(c);
		else if (visible == GETS_ECHOPASS)
			cnputc('*');
	}
	*lp = '\0';
	cnungrab();
	cnputc('\n');
}

void
cnputc(int c)
{
	int i;

	if (cn_mute || c == '\0')
		return;
	for (i = 0; i < cn_count; i++) {
		if (cn_devtab[i]->cn_flags & CN_FLAG_NOAVAIL)
			continue;
		if (c == '\n')
			cn_devtab[i]->cn_ops->cn_putc(cn_devtab[i], '\r');
		cn_devtab[i]->cn_ops->cn_putc(cn_devtab[i], c);
	}
}

void
cnputsn(const char *p, size_t n)
{
	bool locked = false;
	size_t i;

	if (mtx_initialized(&cnputs_mtx) && !KERNEL_PANICKED() && !mtx_owned(&cnputs_mtx)) {
		mtx_lock_spin(&cnputs_mtx);
		locked = true;
	}
	for (i = 0; i < n; i++)
		cnputc(p[i]);
	if (locked)
		mtx_unlock_spin(&cnputs_mtx);
}

void
cnputs(const char *p)
{
	cnputsn(p, strlen(p));
}
