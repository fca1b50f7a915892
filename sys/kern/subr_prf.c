/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * printf(9): the kernel's formats, the console, the message buffer.
 *
 * A line is formatted into a buffer on the stack and given to the console under one spin lock, so
 * that lines of different threads and interrupts do not mix.  Longer output goes out in pieces.
 * After a panic the lock is not waited for.  What a command of the console prints goes out by lines,
 * in however many pieces it makes them, as a program's does (kern/prf_tree.h).
 *
 * Besides ISO C's conversions (no floating point, no %n): %b (number and names of its bits), %D
 * (bytes in hexadecimal), %r (number in the base that follows), %y (signed %x), and the length
 * modifiers t, z, j, q.
 *
 * Locking.  cons_lock: the console and the message buffer.  A leaf.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/conf.h>
#include <sys/cons.h>
#include <sys/ctype.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/msgbuf.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sbuf.h>
#include <sys/syslog.h>

#include <machine/stdarg.h>

#include <kern/prf_tree.h>

#define	PRF_BUFSIZE	160
#define	PRF_LINESIZE	512
/* A 64-bit number in base 2, its sign and its end. */
#define	NUM_BUFSIZE	(sizeof(uintmax_t) * NBBY + 2)

static struct mtx cons_lock = {
	.lock_object = {
		.lo_name = "console",
		.lo_flags = LO_INITIALIZED | LO_RECURSABLE | (0 << LO_CLASSSHIFT),
	},
	.mtx_lock = MTX_UNOWNED,
};

/*
 * One conversion: what was asked for.
 */
struct prf_spec {
	bool	left, zero, alt, plus, space;
	int	width;
	int	prec;			/* -1: not given */
	int	size;			/* bytes of the integer argument */
};

struct prf_out {
	void	(*po_func)(int, void *);
	void	*po_arg;
	char	*po_buf;		/* where to put it when there is no function */
	int	po_len;			/* characters so far */
};

static void
prf_putc(struct prf_out *po, int c)
{
	if (po->po_func != NULL)
		po->po_func(c, po->po_arg);
	else
		po->po_buf[po->po_len] = c;
	po->po_len++;
}

static void
prf_pad(struct prf_out *po, int c, int n)
{
	while (n-- > 0)
		prf_putc(po, c);
}

static void
prf_bytes(struct prf_out *po, const char *s, int len, const struct prf_spec *sp)
{
	int pad = sp->width - len;

	if (!sp->left)
		prf_pad(po, sp->zero ? '0' : ' ', pad);
	while (len-- > 0)
		prf_putc(po, *s++);
	if (sp->left)
		prf_pad(po, ' ', pad);
}

static void
prf_string(struct prf_out *po, const char *s, const struct prf_spec *sp)
{
	if (s == NULL)
		s = "(null)";
	prf_bytes(po, s, sp->prec < 0 ? (int)strlen(s) : (int)strnlen(s, sp->prec), sp);
}

/* num in base, with its sign and prefix, padded. */
static void
prf_number(struct prf_out *po, uintmax_t num, bool negative, int base, bool upper,
    const struct prf_spec *sp)
{
	char digits[NUM_BUFSIZE], *d = digits;
	const char *prefix = "";
	int sign, n, zeros, len;

	if (sp->alt && num != 0 && (base == 16 || base == 8))
		prefix = base == 8 ? "0" : upper ? "0X" : "0x";
	sign = negative ? '-' : sp->plus ? '+' : sp->space ? ' ' : 0;
	do {
		int c = hex2ascii(num % base);

		*d++ = upper ? toupper(c) : c;
		num /= base;
	} while (num != 0);
	n = d - digits;
	if (sp->prec == 0 && n == 1 && digits[0] == '0')
		n = 0;
	zeros = MAX(sp->prec - n, 0);
	len = zeros + n + strlen(prefix) + (sign != 0);
	if (sp->zero && !sp->left && sp->prec < 0)
		zeros += MAX(sp->width - len, 0);
	else if (!sp->left)
		prf_pad(po, ' ', sp->width - len);
	if (sign != 0)
		prf_putc(po, sign);
	while (*prefix != '\0')
		prf_putc(po, *prefix++);
	prf_pad(po, '0', zeros);
	while (n > 0)
		prf_putc(po, digits[--n]);
	if (sp->left)
		prf_pad(po, ' ', sp->width - len);
}

/* %b: bits is the base as a character, then a bit's number from 1 on and its name, and so on. */
static void
prf_bitnames(struct prf_out *po, u_int num, const char *bits, const struct prf_spec *sp)
{
	bool any = false, set;
	int bit;

	prf_number(po, num, false, *bits++, false, sp);
	if (num == 0)
		return;
	while ((bit = *bits++) != '\0') {
		set = (num & (1u << (bit - 1))) != 0;
		if (set) {
			prf_putc(po, any ? ',' : '<');
			any = true;
		}
		for (; *bits > ' '; bits++)
			if (set)
				prf_putc(po, *bits);
	}
	if (any)
		prf_putc(po, '>');
}

/* %D: width bytes, with sep between them. */
static void
prf_hexbytes(struct prf_out *po, const u_char *p, const char *sep, int width)
{
	const char *s;

	if (width == 0)
		width = 16;
	while (width-- > 0) {
		prf_putc(po, hex2ascii(*p >> 4));
		prf_putc(po, hex2ascii(*p++ & 15));
		if (width > 0)
			for (s = sep; *s != '\0'; s++)
				prf_putc(po, *s);
	}
}

static const char *
prf_flags(const char *fmt, struct prf_spec *sp)
{
	for (;; fmt++) {
		switch (*fmt) {
		case '-':
			sp->left = true;
			break;
		case '0':
			sp->zero = true;
			break;
		case '#':
			sp->alt = true;
			break;
		case '+':
			sp->plus = true;
			break;
		case ' ':
			sp->space = true;
			break;
		default:
			return (fmt);
		}
	}
}

static const char *
prf_length(const char *fmt, struct prf_spec *sp)
{
	for (;; fmt++) {
		switch (*fmt) {
		case 'h':
			sp->size = sp->size == sizeof(short) ? sizeof(char) : sizeof(short);
			break;
		case 'l':
		case 'j':
		case 'q':
		case 't':
		case 'z':
			sp->size = sizeof(intmax_t);
			break;
		default:
			return (fmt);
		}
	}
}

/* A number of the format: digits, or * for an argument.  The list is passed by reference. */
struct prf_args {
	va_list	ap;
};

static const char *
prf_count(const char *fmt, struct prf_args *pa, int *count)
{
	if (*fmt == '*') {
		*count = va_arg(pa->ap, int);
		return (fmt + 1);
	}
	for (*count = 0; isdigit(*fmt); fmt++)
		*count = *count * 10 + (*fmt - '0');
	return (fmt);
}

static uintmax_t
prf_unsigned(struct prf_args *pa, const struct prf_spec *sp)
{
	switch (sp->size) {
	case sizeof(char):
		return ((u_char)va_arg(pa->ap, int));
	case sizeof(short):
		return ((u_short)va_arg(pa->ap, int));
	case sizeof(int):
		return (va_arg(pa->ap, u_int));
	default:
		return (va_arg(pa->ap, uintmax_t));
	}
}

static intmax_t
prf_signed(struct prf_args *pa, const struct prf_spec *sp)
{
	switch (sp->size) {
	case sizeof(char):
		return ((signed char)va_arg(pa->ap, int));
	case sizeof(short):
		return ((short)va_arg(pa->ap, int));
	case sizeof(int):
		return (va_arg(pa->ap, int));
	default:
		return (va_arg(pa->ap, intmax_t));
	}
}

/* A signed number in base. */
static void
prf_int(struct prf_out *po, struct prf_args *pa, int base, const struct prf_spec *sp)
{
	intmax_t n = prf_signed(pa, sp);

	prf_number(po, n < 0 ? -(uintmax_t)n : (uintmax_t)n, n < 0, base, false, sp);
}

/* The conversion that conv names; false when there is none of that name. */
static bool
prf_convert(struct prf_out *po, int conv, struct prf_args *pa, struct prf_spec *sp, int radix)
{
	const char *s;
	u_int num;
	char c;

	switch (conv) {
	case '%':
		prf_putc(po, '%');
		break;
	case 'c':
		c = va_arg(pa->ap, int);
		prf_bytes(po, &c, 1, sp);
		break;
	case 's':
		prf_string(po, va_arg(pa->ap, const char *), sp);
		break;
	case 'd':
	case 'i':
		prf_int(po, pa, 10, sp);
		break;
	case 'y':
		prf_int(po, pa, 16, sp);
		break;
	case 'r':
		if (sp->plus) {
			sp->plus = false;
			prf_int(po, pa, radix, sp);
			break;
		}
		prf_number(po, prf_unsigned(pa, sp), false, radix, false, sp);
		break;
	case 'u':
		prf_number(po, prf_unsigned(pa, sp), false, 10, false, sp);
		break;
	case 'o':
		prf_number(po, prf_unsigned(pa, sp), false, 8, false, sp);
		break;
	case 'x':
	case 'X':
		prf_number(po, prf_unsigned(pa, sp), false, 16, conv == 'X', sp);
		break;
	case 'p':
		sp->alt = true;
		prf_number(po, (uintptr_t)va_arg(pa->ap, void *), false, 16, false, sp);
		break;
	case 'b':
		num = va_arg(pa->ap, u_int);
		s = va_arg(pa->ap, const char *);
		prf_bitnames(po, num, s, sp);
		break;
	case 'D':
		s = va_arg(pa->ap, const char *);
		prf_hexbytes(po, (const u_char *)s, va_arg(pa->ap, const char *), sp->width);
		break;
	default:
		return (false);
	}
	return (true);
}

/*
 * Formats into func(character, arg), or into the string arg when func is NULL.  radix is the base
 * of %r.  Returns the number of characters.  An unknown conversion ends the interpretation: the
 * rest is copied, as the types of the arguments are unknown from then on.
 */
int
kvprintf(const char *fmt, void (*func)(int, void *), void *arg, int radix, va_list ap)
{
	struct prf_out po = { .po_func = func, .po_arg = arg, .po_buf = arg };
	struct prf_args pa;
	const char *start;
	bool bad = false;

	va_copy(pa.ap, ap);
	if (fmt == NULL)
		fmt = "(fmt null)\n";
	while (*fmt != '\0') {
		struct prf_spec sp = { .prec = -1, .size = sizeof(int) };

		if (*fmt != '%' || bad) {
			prf_putc(&po, *fmt++);
			continue;
		}
		start = fmt;
		fmt = prf_flags(fmt + 1, &sp);
		fmt = prf_count(fmt, &pa, &sp.width);
		if (sp.width < 0) {
			sp.left = true;
			sp.width = -sp.width;
		}
		if (*fmt == '.')
			fmt = prf_count(fmt + 1, &pa, &sp.prec);
		fmt = prf_length(fmt, &sp);
		if (*fmt != '\0' && prf_convert(&po, *fmt, &pa, &sp, radix)) {
			fmt++;
			continue;
		}
		bad = true;
		while (start < fmt)
			prf_putc(&po, *start++);
	}
	va_end(pa.ap);
	if (func == NULL)
		po.po_buf[po.po_len] = '\0';
	return (po.po_len);
}

/*
 * Strings.
 */
struct prf_string {
	char	*ps_buf;
	size_t	ps_size;
	size_t	ps_len;
};

static void
prf_string_putc(int c, void *arg)
{
	struct prf_string *ps = arg;

	if (ps->ps_len + 1 < ps->ps_size)
		ps->ps_buf[ps->ps_len] = c;
	ps->ps_len++;
}

int
vsnrprintf(char *buf, size_t size, int radix, const char *fmt, va_list ap)
{
	struct prf_string ps = { buf, size, 0 };
	int len;

	len = kvprintf(fmt, prf_string_putc, &ps, radix, ap);
	if (size != 0)
		buf[MIN(ps.ps_len, size - 1)] = '\0';
	return (len);
}

int
vsnprintf(char *buf, size_t size, const char *fmt, va_list ap)
{
	return (vsnrprintf(buf, size, 10, fmt, ap));
}

int
snprintf(char *buf, size_t size, const char *fmt, ...)
{
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vsnprintf(buf, size, fmt, ap);
	va_end(ap);
	return (len);
}

int
vsprintf(char *buf, const char *fmt, va_list ap)
{
	return (kvprintf(fmt, NULL, buf, 10, ap));
}

int
sprintf(char *buf, const char *fmt, ...)
{
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vsprintf(buf, fmt, ap);
	va_end(ap);
	return (len);
}

int
vasprintf(char **ret, struct malloc_type *mtp, const char *fmt, va_list ap)
{
	va_list again;
	char probe[1];
	int len;

	va_copy(again, ap);
	len = vsnprintf(probe, sizeof(probe), fmt, again);
	va_end(again);
	*ret = malloc(len + 1, mtp, M_NOWAIT);
	if (*ret == NULL)
		return (-1);
	return (vsnprintf(*ret, len + 1, fmt, ap));
}

int
asprintf(char **ret, struct malloc_type *mtp, const char *fmt, ...)
{
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vasprintf(ret, mtp, fmt, ap);
	va_end(ap);
	return (len);
}

/*
 * The console.
 */
struct prf_console {
	char	*pc_buf;
	int	 pc_size;
	int	 pc_len;
	bool	 pc_tolog;		/* also to the message buffer */
	bool	 pc_tocons;
	bool	 pc_lines;		/* each line goes out when it ends */
};

static MALLOC_DEFINE(M_PRF, "prf", "lines of commands");

static void
prf_console_flush(struct prf_console *pc)
{
	bool locked;
	int i;

	if (pc->pc_len == 0)
		return;
	locked = !KERNEL_PANICKED() && !SCHEDULER_STOPPED();
	if (locked)
		mtx_lock_spin(&cons_lock);
	if (pc->pc_tolog && msgbufp != NULL)
		for (i = 0; i < pc->pc_len; i++)
			msgbuf_addchar(msgbufp, pc->pc_buf[i]);
	if (pc->pc_tocons)
		cnputsn(pc->pc_buf, pc->pc_len);
	if (locked)
		mtx_unlock_spin(&cons_lock);
	pc->pc_len = 0;
}

static void
prf_console_putc(int c, void *arg)
{
	struct prf_console *pc = arg;

	if (pc->pc_len == pc->pc_size)
		prf_console_flush(pc);
	pc->pc_buf[pc->pc_len++] = c;
	if (pc->pc_lines && c == '\n')
		prf_console_flush(pc);
}

void
prf_lines_begin(void)
{
	struct prf_console *pc;

	pc = malloc(sizeof(*pc) + PRF_LINESIZE, M_PRF, M_WAITOK | M_ZERO);
	pc->pc_buf = (char *)(pc + 1);
	pc->pc_size = PRF_LINESIZE;
	pc->pc_tolog = pc->pc_tocons = pc->pc_lines = true;
	curthread->td_emuldata = pc;
}

void
prf_lines_end(void)
{
	struct prf_console *pc = curthread->td_emuldata;

	curthread->td_emuldata = NULL;
	prf_console_flush(pc);
	free(pc, M_PRF);
}

/* The running command's line; NULL for an interrupt that it is interrupted by, and after a panic. */
static struct prf_console *
prf_lines(void)
{
	struct thread *td = curthread;

	if (KERNEL_PANICKED() || SCHEDULER_STOPPED() || td->td_intr_nesting_level != 0)
		return (NULL);
	return (td->td_emuldata);
}

static int
prf_console(bool tolog, bool tocons, const char *fmt, va_list ap)
{
	char buf[PRF_BUFSIZE];
	struct prf_console pc = {
		.pc_buf = buf,
		.pc_size = sizeof(buf),
		.pc_tolog = tolog,
		.pc_tocons = tocons,
	};
	struct prf_console *lines = tolog && tocons ? prf_lines() : NULL;
	int len;

	if (lines != NULL)
		return (kvprintf(fmt, prf_console_putc, lines, 10, ap));
	len = kvprintf(fmt, prf_console_putc, &pc, 10, ap);
	prf_console_flush(&pc);
	return (len);
}

int
vprintf(const char *fmt, va_list ap)
{
	return (prf_console(true, true, fmt, ap));
}

int
printf(const char *fmt, ...)
{
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vprintf(fmt, ap);
	va_end(ap);
	return (len);
}

int
uprintf(const char *fmt, ...)
{
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = prf_console(false, true, fmt, ap);
	va_end(ap);
	return (len);
}

/* There is no log reader here: messages of LOG_NOTICE and above go to the console as well. */
void
vlog(int level, const char *fmt, va_list ap)
{
	prf_console(true, LOG_PRI(level) <= LOG_NOTICE || bootverbose, fmt, ap);
}

void
log(int level, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vlog(level, fmt, ap);
	va_end(ap);
}

static void
prf_sbuf_putc(int c, void *arg)
{
	sbuf_putc(arg, c);
}

int
sbuf_vprintf(struct sbuf *s, const char *fmt, va_list ap)
{
	kvprintf(fmt, prf_sbuf_putc, s, 10, ap);
	return (sbuf_error(s) != 0 ? -1 : 0);
}

int
sbuf_printf_drain(void *arg, const char *data, int len)
{
	size_t *total = arg;

	if (total != NULL)
		*total += len;
	printf("%.*s", len, data);
	return (len);
}

void
sbuf_putbuf(struct sbuf *sb)
{
	printf("%s", sbuf_data(sb));
}

void
counted_warning(unsigned *counter, const char *msg)
{
	unsigned c = *counter;

	while (c != 0 && !atomic_fcmpset_int(counter, &c, c - 1))
		continue;
	if (c != 0)
		log(LOG_INFO, "%s%s\n", msg, c > 1 ? "" : " - not logging anymore");
}
