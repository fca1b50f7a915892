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
 * whoever receives them can tell whether any is missing or twice.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/endian.h>
#include <sys/mbuf.h>
#include <sys/proc.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <net/if.h>
#include <net/if_dl.h>
#include <net/if_var.h>
#include <net/ethernet.h>
#include <netinet/in.h>

#include <kern/console.h>
#include <net/if_tree.h>

#define	PKTGEN_LOOK		64	/* frames from one look for ^C to the next */
#define	ETHERTYPE_EXPERIMENT	0x88b5	/* IEEE 802, Local Experimental Ethertype 1 */

struct pktgen {
	if_t		pg_ifp;
	uint64_t	pg_count;	/* frames to send */
	uint64_t	pg_size;	/* bytes a frame, without the check sequence */
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
	/* The first mbuf has room for both. */
	eh = mtod(m, struct ether_header *);
	memcpy(eh->ether_dhost, pg->pg_dst, ETHER_ADDR_LEN);
	memcpy(eh->ether_shost, pg->pg_src, ETHER_ADDR_LEN);
	eh->ether_type = htons(ETHERTYPE_EXPERIMENT);
	be32enc(eh + 1, number);
	return (m);
}

/*
 * Send them.  When the interface has no room the frame is gone, as with any sender; it is made again
 * after a moment.
 */
static int
pktgen_run(struct pktgen *pg)
{
	struct epoch_tracker et;
	struct mbuf *m;
	uint64_t sent = 0;
	int error;

	while (sent < pg->pg_count && (sent % PKTGEN_LOOK != 0 || !cmd_interrupted())) {
		m = pktgen_frame(pg, sent);
		NET_EPOCH_ENTER(et);
		error = if_transmit(pg->pg_ifp, m);
		NET_EPOCH_EXIT(et);
		if (error == ENOBUFS) {
			pg->pg_full++;
			pause("pktgen", 1);
			if (cmd_interrupted())
				break;
		} else if (error != 0)
			return (cmd_err("pktgen", error, "%s", if_name(pg->pg_ifp)));
		else
			sent++;
	}
	printf("%ju frames of %ju bytes sent, %ju times no room\n", (uintmax_t)sent,
	    (uintmax_t)pg->pg_size, (uintmax_t)pg->pg_full);
	return (sent == pg->pg_count ? 0 : 1);
}

static int
cmd_pktgen(int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	struct pktgen pg = { .pg_count = 1000, .pg_size = ETHER_MIN_LEN - ETHER_CRC_LEN };
	int c, status;

	memset(pg.pg_dst, 0xff, sizeof(pg.pg_dst));
	while ((c = cmd_getopt(&g, argc, argv, "c:s:")) != -1) {
		uint64_t *value = c == 'c' ? &pg.pg_count : &pg.pg_size;

		if (c == '?' || cmd_expand_number(g.optarg, value) != 0)
			return (cmd_usage(argv[0]));
	}
	if (argc - g.optind != 1 || pg.pg_size < ETHER_HDR_LEN + sizeof(uint32_t) ||
	    pg.pg_size > 65535)
		return (cmd_usage(argv[0]));
	pg.pg_ifp = ifunit_ref(argv[g.optind]);
	if (pg.pg_ifp == NULL)
		return (cmd_err(argv[0], ENXIO, "%s", argv[g.optind]));
	if ((if_getdrvflags(pg.pg_ifp) & IFF_DRV_RUNNING) == 0 || !pktgen_source(&pg))
		status = cmd_err(argv[0], ENETDOWN, "%s", argv[g.optind]);
	else
		status = pktgen_run(&pg);
	if_rele(pg.pg_ifp);
	return (status);
}
CONSOLE_CMD(pktgen, cmd_pktgen, "pktgen [-c count] [-s size] interface");
