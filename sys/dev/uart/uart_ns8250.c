/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The serial port of a PC: ns8250 and successors at I/O port 0x3f8, IRQ 4, as
 * the console.
 *
 * Output is polled and uses the transmit FIFO: when the line status register
 * says that the FIFO is empty, 16 characters are written before it is read
 * again, since each access to a port costs a trip to the emulator.  Input is
 * taken by the interrupt into a queue; the threaded handler then wakes the
 * reader.  Before interrupts work, and during a panic, cn_getc() asks the
 * device itself.
 *
 * Locking.  uart_mtx (spin) protects the queue and the receive side of the
 * device.  Output needs no lock of its own: cnputs_mtx is held.
 *
 * Gaps: one port, 115200 8n1, no flow control, no transmit interrupt.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/cons.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>

#include <machine/cpu.h>
#include <machine/cpufunc.h>
#include <machine/intr_machdep.h>

#include <dev/ic/ns16550.h>
#include <kern/cons_input_tree.h>

#define	UART_BASE	0x3f8
#define	UART_IRQ	4
#define	UART_CLOCK	1843200
#define	UART_SPEED	115200
#define	TX_FIFO_SIZE	16
#define	RX_QUEUE_SIZE	1024		/* a power of two */

/*
 * How often to look at a busy transmitter before giving up: a host that is slow
 * to read stalls it for a while, which must not lose output; one that never
 * reads must not hang the kernel.
 */
#define	TX_PATIENCE	20000000

static u_int tx_room;		/* characters that surely fit into the FIFO */
static bool tx_stuck;	/* timed out, until the transmitter is seen ready */

static struct mtx uart_mtx;
MTX_SYSINIT(uart, &uart_mtx, "uart", MTX_SPIN | MTX_NOWITNESS);
static uint8_t rx_queue[RX_QUEUE_SIZE];
static u_int rx_head, rx_tail;	/* free-running: put at head, take at tail */
static uint8_t uart_ier;		/* interrupts that are wanted */

static uint8_t
uart_get(u_int reg)
{
	return (inb(UART_BASE + reg));
}

static void
uart_set(u_int reg, uint8_t value)
{
	outb(UART_BASE + reg, value);
}

static void
uart_cnprobe(struct consdev *cp)
{
	uart_set(com_scr, 0x5a);
	cp->cn_pri = uart_get(com_scr) == 0x5a ? CN_REMOTE : CN_DEAD;
	strlcpy(cp->cn_name, "ttyu0", sizeof(cp->cn_name));
}

static void
uart_cninit(struct consdev *cp __unused)
{
	u_int divisor = UART_CLOCK / 16 / UART_SPEED;

	uart_set(com_ier, 0);
	uart_set(com_lcr, LCR_DLAB | LCR_8BITS);
	uart_set(com_dll, divisor & 0xff);
	uart_set(com_dlm, divisor >> 8);
	uart_set(com_lcr, LCR_8BITS);
	uart_set(com_fcr, FCR_ENABLE | FCR_RX_LOW);
	uart_set(com_mcr, MCR_DTR | MCR_RTS | MCR_IE);
	uart_set(com_ier, uart_ier);
}

static void
uart_cnterm(struct consdev *cp __unused)
{
}

static void
uart_cngrab(struct consdev *cp __unused)
{
}

static void
uart_cnungrab(struct consdev *cp __unused)
{
}

/* Wait until the FIFO is empty; false: drop the character. */
static bool
uart_tx_ready(void)
{
	u_int tries;

	for (tries = 0; (uart_get(com_lsr) & LSR_THRE) == 0; tries++) {
		if (tx_stuck || tries == TX_PATIENCE) {
			tx_stuck = true;
			return (false);
		}
		cpu_spinwait();
	}
	tx_stuck = false;
	tx_room = TX_FIFO_SIZE;
	return (true);
}

static void
uart_cnputc(struct consdev *cp __unused, int c)
{
	if (tx_room == 0 && !uart_tx_ready())
		return;
	tx_room--;
	uart_set(com_data, c);
}

/* Move what the device has received into the queue; a full queue drops. */
static void
uart_drain(void)
{
	uint8_t c;

	while (uart_get(com_lsr) & LSR_RXRDY) {
		c = uart_get(com_data);
		if (rx_head - rx_tail < RX_QUEUE_SIZE)
			rx_queue[rx_head++ % RX_QUEUE_SIZE] = c;
	}
}

static int
uart_cngetc(struct consdev *cp __unused)
{
	bool lock = mtx_initialized(&uart_mtx) && !KERNEL_PANICKED();
	int c = -1;

	if (lock)
		mtx_lock_spin(&uart_mtx);
	if (rx_head == rx_tail)
		uart_drain();
	if (rx_head != rx_tail)
		c = rx_queue[rx_tail++ % RX_QUEUE_SIZE];
	if (lock)
		mtx_unlock_spin(&uart_mtx);
	return (c);
}

/*
 * After a sleep; what came meanwhile would be lost when the FIFO is switched
 * on.
 */
static void
uart_cnresume(struct consdev *cp)
{
	uart_drain();
	uart_cninit(cp);
	tx_room = 0;
}

CONSOLE_DRIVER(uart, .cn_resume = uart_cnresume);

static void
uart_intr(void *arg __unused)
{
	mtx_lock_spin(&uart_mtx);
	(void)uart_get(com_iir);
	uart_drain();
	mtx_unlock_spin(&uart_mtx);
	cons_input_ready();
}

static void
uart_attach(void *dummy __unused)
{
	struct intsrc *isrc = intr_lookup_source(UART_IRQ);
	void *cookie;
	int error;

	if (uart_consdev.cn_pri == CN_DEAD)
		return;
	if (isrc == NULL) {
		printf(
		    "uart0: no interrupt source for IRQ %d: no console input\n",
		    UART_IRQ);
		return;
	}
	error = intr_add_handler(isrc, "uart0", NULL, uart_intr, NULL,
	    INTR_TYPE_TTY | INTR_MPSAFE, &cookie, 0);
	if (error != 0) {
		printf(
		    "uart0: IRQ %d can't be used (error %d): no console input\n",
		    UART_IRQ, error);
		return;
	}
	uart_ier = IER_ERXRDY;
	uart_set(com_ier, uart_ier);
}
SYSINIT(uart_attach, SI_SUB_CONFIGURE, SI_ORDER_SECOND, uart_attach, NULL);
