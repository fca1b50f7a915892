/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pktgen: send frames as fast as an interface takes them.
 *
 * The frames go straight to if_transmit(), so that what is measured is the driver.  They carry the
 * Ethernet type that IEEE 802 sets aside for local experiments, and after it their number, so that
 * a receiver can detect missing and duplicate frames.
 *
 * A driver may notify its device of each frame that an ordinary thread sends, but only at the end of a
 * pass of an interrupt thread.  With -i frames are sent at the priority of network interrupts, as by
 * a card's interrupt thread that forwards what it receives.
 *
 * With -n frames go in bursts (-b) with a pause after each; the priority of -i ends with the burst.
 * What is printed is how long after the last frame of each burst was sent the device had been notified
 * of it: minimum, median and maximum in cycles of the time-stamp counter, which under QEMU's
 * `-icount shift=0` are instructions.  The node is that of the queue's sysctls (dev.vtnet.0.txq0), of
 * which kicks and nokicks are read.
 *
 * With -l the interface's device is detached, and a frame is sent as by a thread that was about to: it
 * has the driver's function from before, in the network epoch, and calls it after if_detach(9) has put
 * another in its place.  A driver must wait for such a thread before it forgets the interface.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/endian.h>
#include <sys/kernel.h>
#include <sys/kthread.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/proc.h>
#include <sys/priority.h>
#include <sys/sched.h>
#include <sys/socket.h>
#include <sys/sysctl.h>
#include <sys/time.h>
#include <net/if.h>
#include <net/if_dl.h>
#include <net/if_types.h>
#include <net/if_var.h>
#include <net/ethernet.h>
#include <machine/cpufunc.h>

#include <kern/console_tree.h>

#define	PKTGEN_LOOK		64	/* frames from one look for ^C to the next */
#define	ETHERTYPE_EXPERIMENT	0x88b5	/* IEEE 802, Local Experimental Ethertype 1 */
#define	PKTGEN_MAX_BURSTS	100000
#define	PKTGEN_LATE		1000000000	/* cycles after which no notification is expected */
/* For -l, in microseconds and more: a moment in the epoch, how many, and after if_detach(9). */
#define	PKTGEN_MOMENT		100
#define	PKTGEN_TRIES		50000
#define	PKTGEN_FORGET		50000

struct pktgen {
	if_t		pg_ifp;
	uint64_t	pg_count;	/* frames to send */
	uint64_t	pg_size;	/* bytes a frame, without the check sequence */
	uint64_t	pg_burst;	/* frames from one pause to the next */
	bool		pg_intr;	/* at the priority of network interrupts */
	bool		pg_late;	/* one frame, while the device is detached */
	device_t	pg_dev;		/* it */
	volatile u_int	pg_detached;	/* it was, or was tried */
	int		pg_error;	/* of that */
	char		*pg_node;	/* sysctl node of the transmit queue; NULL: nothing is timed */
	uint64_t	pg_full;	/* times the interface had no room */
	u_char		pg_src[ETHER_ADDR_LEN];
	u_char		pg_dst[ETHER_ADDR_LEN];
};

static u_int
pktgen_copy_address(void *arg, struct sockaddr_dl *sdl, u_int count __unused)
{

	memcpy(arg, LLADDR(sdl), ETHER_ADDR_LEN);
	return (1);
}

/* The interface's own address; false if it has none any more, because it is being detached. */
static bool
pktgen_source(struct pktgen *pg)
{

	return (if_foreach_lladdr(pg->pg_ifp, pktgen_copy_address, pg->pg_src) > 0);
}

/* A frame, in as many clusters as it takes, with room for what a driver puts before it. */
static struct mbuf *
pktgen_frame(const struct pktgen *pg, uint32_t number)
{
	struct ether_header *eh;
	struct mbuf *m;

	if (max_linkhdr + pg->pg_size <= MCLBYTES)
		m = m_get2(max_linkhdr + pg->pg_size, M_WAITOK, MT_DATA, M_PKTHDR);
	else
		m = m_getm2(NULL, max_linkhdr + pg->pg_size, M_WAITOK, MT_DATA, M_PKTHDR);
	m->m_data += max_linkhdr;
	m->m_pkthdr.len = 0;
	for (struct mbuf *n = m; n != NULL; n = n->m_next) {
		n->m_len = MIN(M_TRAILINGSPACE(n), pg->pg_size - m->m_pkthdr.len);
		m->m_pkthdr.len += n->m_len;
	}
	/* The first mbuf has room for all headers. */
	eh = mtod(m, struct ether_header *);
	memcpy(eh->ether_dhost, pg->pg_dst, ETHER_ADDR_LEN);
	memcpy(eh->ether_shost, pg->pg_src, ETHER_ADDR_LEN);
	eh->ether_type = htons(ETHERTYPE_EXPERIMENT);
	be32enc(eh + 1, number);
	return (m);
}

/* With -i, have that of network interrupts from now on; returns the one before. */
static u_char
pktgen_priority(const struct pktgen *pg, u_char pri)
{
	u_char before = curthread->td_base_pri;

	if (pg->pg_intr) {
		thread_lock(curthread);
		sched_prio(curthread, pri);
		/* FreeBSD leaves the CPU to a thread of lower priority until its next tick. */
		curthread->td_owepreempt = 1;
		thread_unlock(curthread);
	}
	return (before);
}

/*
 * Send frames from the number `*sent' on, n of them.  When the interface has no room the frame is gone,
 * as with any sender; it is made again after a moment.
 */
static int
pktgen_send(struct pktgen *pg, uint64_t *sent, uint64_t n)
{
	uint64_t end = *sent + n;
	struct epoch_tracker et;
	struct mbuf *m;
	int error = 0;

	while (*sent < end && (*sent % PKTGEN_LOOK != 0 || !cmd_interrupted())) {
		m = pktgen_frame(pg, *sent);
		NET_EPOCH_ENTER(et);
		error = if_transmit(pg->pg_ifp, m);
		NET_EPOCH_EXIT(et);
		if (error == ENOBUFS) {
			pg->pg_full++;
			pause("pktgen", 1);
			if (cmd_interrupted())
				break;
		} else if (error != 0)
			break;
		else
			(*sent)++;
	}
	return (error);
}

static int
pktgen_run(struct pktgen *pg)
{
	u_char pri = pktgen_priority(pg, PI_NET);
	uint64_t sent = 0;
	int error;

	error = pktgen_send(pg, &sent, pg->pg_count);
	(void)pktgen_priority(pg, pri);
	if (error != 0 && error != ENOBUFS)
		return (cmd_err("pktgen", error, "%s", if_name(pg->pg_ifp)));
	printf("%ju frames of %ju bytes sent, %ju times no room\n", (uintmax_t)sent,
	    (uintmax_t)pg->pg_size, (uintmax_t)pg->pg_full);
	return (sent == pg->pg_count ? 0 : 1);
}

/* Notifications that there were, those included that the device did not ask for. */
static uint64_t
pktgen_notified(const struct pktgen *pg)
{
	static const char *const names[] = { "kicks", "nokicks" };
	uint64_t value, total = 0;
	char name[64];
	size_t len;
	u_int i;

	for (i = 0; i < nitems(names); i++) {
		snprintf(name, sizeof(name), "%s.%s", pg->pg_node, names[i]);
		len = sizeof(value);
		if (kernel_sysctlbyname(curthread, name, &value, &len, NULL, 0, NULL, 0) == 0)
			total += value;
	}
	return (total);
}

static int
pktgen_compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x < y ? -1 : x > y);
}

/* Send a burst: how long after its last frame was sent the device had been notified of it. */
static int
pktgen_time_burst(struct pktgen *pg, uint64_t *sent, uint64_t *delay)
{
	u_char pri = pktgen_priority(pg, PI_NET);
	uint64_t before, began;
	int error;

	error = pktgen_send(pg, sent, pg->pg_burst - 1);
	before = pktgen_notified(pg);
	began = rdtsc();
	if (error == 0)
		error = pktgen_send(pg, sent, 1);
	(void)pktgen_priority(pg, pri);
	while (pktgen_notified(pg) == before && rdtsc() - began < PKTGEN_LATE)
		cpu_spinwait();
	*delay = rdtsc() - began;
	return (error);
}

static int
pktgen_time(struct pktgen *pg)
{
	uint64_t n = pg->pg_count / pg->pg_burst, i, sent = 0, *delays;
	int error = n == 0 || n > PKTGEN_MAX_BURSTS ? EINVAL : 0;

	delays = malloc(MAX(n, 1) * sizeof(*delays), M_TEMP, M_WAITOK);
	for (i = 0; i < n && error == 0; i++) {
		error = cmd_interrupted() ? EINTR : pktgen_time_burst(pg, &sent, &delays[i]);
		pause("pktgen", 1);
	}
	if (error == 0) {
		qsort(delays, n, sizeof(delays[0]), pktgen_compare);
		printf("%ju bursts of %ju frames notified after %ju / %ju / %ju cycles\n",
		    (uintmax_t)n, (uintmax_t)pg->pg_burst, (uintmax_t)delays[0],
		    (uintmax_t)delays[n / 2], (uintmax_t)delays[n - 1]);
	}
	free(delays, M_TEMP);
	return (error == 0 ? 0 : cmd_err("pktgen", error, "%s", if_name(pg->pg_ifp)));
}

static u_char
pktgen_set_priority(u_char pri)
{
	u_char before = curthread->td_base_pri;

	thread_lock(curthread);
	sched_prio(curthread, pri);
	thread_unlock(curthread);
	return (before);
}

static void
pktgen_detach(void *arg)
{
	struct pktgen *pg = arg;

	(void)pktgen_set_priority(PWAIT);
	/* The sender has begun. */
	pause("pktgen", 2);
	bus_topo_lock();
	pg->pg_error = device_detach(pg->pg_dev);
	bus_topo_unlock();
	atomic_store_rel_int(&pg->pg_detached, 1);
	wakeup(pg);
	kthread_exit();
}

/*
 * if_detach(9) waits for the threads that are in the network epoch, takes addresses and routes away,
 * and replaces the interface's functions; it does not wait for those that took one shortly before.  So
 * the epoch is entered for a moment, over and over, until it was replaced within one.  False if it was
 * between two, or not at all.
 */
static bool
pktgen_send_late(struct pktgen *pg)
{
	if_transmit_fn_t fn = if_gettransmitfn(pg->pg_ifp);
	struct epoch_tracker et;
	struct mbuf *m;
	bool late = false;
	int i, tries;

	m = pktgen_frame(pg, 0);
	for (tries = 0; tries < PKTGEN_TRIES && !late; tries++) {
		NET_EPOCH_ENTER(et);
		if (if_gettransmitfn(pg->pg_ifp) == fn) {
			for (i = 0; i < PKTGEN_MOMENT && if_gettransmitfn(pg->pg_ifp) == fn; i++)
				DELAY(1);
			late = if_gettransmitfn(pg->pg_ifp) != fn;
		} else
			tries = PKTGEN_TRIES;
		if (late) {
			/* A driver that does not wait has forgotten the interface by then. */
			for (i = 0; i < PKTGEN_FORGET && if_getsoftc(pg->pg_ifp) != NULL; i++)
				DELAY(1);
			(void)fn(pg->pg_ifp, m);
		}
		NET_EPOCH_EXIT(et);
	}
	if (!late)
		m_freem(m);
	return (late);
}

static int
pktgen_run_late(struct pktgen *pg)
{
	u_char pri;
	bool late;
	int error;

	pg->pg_dev = devclass_get_device(devclass_find(if_getdname(pg->pg_ifp)),
	    if_getdunit(pg->pg_ifp));
	if (pg->pg_dev == NULL)
		return (cmd_err("pktgen", ENXIO, "%s", if_name(pg->pg_ifp)));
	error = kthread_add(pktgen_detach, pg, NULL, NULL, 0, 0, "pktgen detach");
	if (error != 0)
		return (cmd_err("pktgen", error, "detach"));
	/* Whatever the detachment waits for preempts this thread, which mostly is in the epoch. */
	pri = pktgen_set_priority(PRI_MAX_IDLE);
	late = pktgen_send_late(pg);
	(void)pktgen_set_priority(pri);
	while (atomic_load_acq_int(&pg->pg_detached) == 0)
		tsleep(pg, 0, "pktgen", hz);
	if (pg->pg_error != 0)
		return (cmd_err("pktgen", pg->pg_error, "detach"));
	printf("%s was detached, and a frame sent %s\n", if_name(pg->pg_ifp), late ?
	    "meanwhile" : "too late");
	return (late ? 0 : 1);
}

static int
cmd_pktgen(int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	struct pktgen pg = { .pg_count = 1000, .pg_size = ETHER_MIN_LEN - ETHER_CRC_LEN,
	    .pg_burst = 1 };
	int c, status;

	memset(pg.pg_dst, 0xff, sizeof(pg.pg_dst));
	while ((c = cmd_getopt(&g, argc, argv, "b:c:iln:s:")) != -1) {
		uint64_t *value = c == 'b' ? &pg.pg_burst : c == 'c' ? &pg.pg_count :
		    &pg.pg_size;

		if (c == 'i')
			pg.pg_intr = true;
		else if (c == 'l')
			pg.pg_late = true;
		else if (c == 'n')
			pg.pg_node = g.optarg;
		else if (c == '?' || cmd_expand_number(g.optarg, value) != 0)
			return (cmd_usage(argv[0]));
	}
	if (argc - g.optind != 1 || pg.pg_size < ETHER_HDR_LEN + sizeof(uint32_t) ||
	    pg.pg_size > 65535 || pg.pg_burst == 0)
		return (cmd_usage(argv[0]));
	pg.pg_ifp = ifunit_ref(argv[g.optind]);
	if (pg.pg_ifp == NULL)
		return (cmd_err(argv[0], ENXIO, "%s", argv[g.optind]));
	if (if_gettype(pg.pg_ifp) != IFT_ETHER)
		status = cmd_err(argv[0], 0, "%s is no Ethernet interface", argv[g.optind]);
	else if ((if_getdrvflags(pg.pg_ifp) & IFF_DRV_RUNNING) == 0 || !pktgen_source(&pg))
		status = cmd_err(argv[0], ENETDOWN, "%s", argv[g.optind]);
	else
		status = pg.pg_late ? pktgen_run_late(&pg) : pg.pg_node != NULL ?
		    pktgen_time(&pg) : pktgen_run(&pg);
	if_rele(pg.pg_ifp);
	return (status);
}
CONSOLE_NET_CMD(pktgen, cmd_pktgen, "send frames as fast as possible",
    "pktgen [-il] [-n node] [-b burst] [-c count] [-s size] interface");
