/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * tcpdump: capture what passes an interface to a file, in the format that tcpdump(8) and all others
 * read.
 *
 *	tcpdump -i interface -w file [-c count] [-s snaplen] [-G seconds] [-B KiB]
 *	tcpdump -k	end those that run in the background, and wait for their files
 *
 * It ends after so many packets or seconds, by ^C or by -k, and the file is written then; until
 * then the packets are in a buffer, and what does not fit it is counted.  `nc -i file host port'
 * takes the file to another host.
 *
 * Packets on their way through this host may have checksums that are yet to be finished.  In the
 * capture they are, as they will be on the wire.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/endian.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/mutex.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <net/dlt.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_var.h>

#include <fs/memfs_tree.h>
#include <kern/console_tree.h>
#include <net/bpf_tree.h>
#include <net/if_tree.h>

#define	PCAP_MAGIC	0xa1b2c3d4	/* times in microseconds */
#define	PCAP_MAJOR	2
#define	PCAP_MINOR	4

#define	DUMP_SNAPLEN	262144
#define	DUMP_BUFFER	(16 * 1024)	/* KiB */
#define	DUMP_MAXBUFFER	(64 * 1024)

static MALLOC_DEFINE(M_TCPDUMP, "tcpdump", "captured packets");

struct pcap_file {
	uint32_t	pf_magic;
	uint16_t	pf_major, pf_minor;
	uint32_t	pf_zone, pf_accuracy;
	uint32_t	pf_snaplen;
	uint32_t	pf_dlt;
};

struct pcap_packet {
	uint32_t	pp_sec, pp_usec;
	uint32_t	pp_caplen;
	uint32_t	pp_len;
};

struct dump {
	uint64_t	d_count;	/* 0: no end */
	uint64_t	d_seconds;
	uint64_t	d_snaplen;
	uint64_t	d_size;		/* of the buffer: KiB */
	const char	*d_path;
	struct mtx	d_mtx;		/* for what follows */
	uint8_t		*d_buf;
	size_t		d_used;
	uint64_t	d_packets;
	uint64_t	d_dropped;
};

static struct mtx dump_mtx;
MTX_SYSINIT(tcpdump, &dump_mtx, "tcpdump", MTX_DEF);
static u_int dump_running;	/* captures */
static volatile u_int dump_ends;	/* times that they were to end */

/* Append a packet; a tag in its header goes where it will be on the wire. */
static void
dump_append(struct dump *d, const struct mbuf *m)
{
	bool tag = (m->m_flags & M_VLANTAG) != 0 && m->m_pkthdr.len >= ETHER_HDR_LEN;
	u_int shift = tag ? ETHER_VLAN_ENCAP_LEN : 0, len = m->m_pkthdr.len + shift;
	u_int caplen = MIN(len, d->d_snaplen);
	struct pcap_packet pp;
	struct timeval tv;
	uint8_t *p;

	mtx_assert(&d->d_mtx, MA_OWNED);
	if (d->d_used + sizeof(pp) + len > d->d_size << 10) {
		d->d_dropped++;
		return;
	}
	microtime(&tv);
	pp = (struct pcap_packet){ tv.tv_sec, tv.tv_usec, caplen, len };
	memcpy(d->d_buf + d->d_used, &pp, sizeof(pp));
	p = d->d_buf + d->d_used + sizeof(pp);
	m_copydata(m, 0, m->m_pkthdr.len, (caddr_t)p + shift);
	if (tag) {
		memmove(p, p + shift, 2 * ETHER_ADDR_LEN);
		be16enc(p + 2 * ETHER_ADDR_LEN, ETHERTYPE_VLAN);
		be16enc(p + 2 * ETHER_ADDR_LEN + sizeof(uint16_t), m->m_pkthdr.ether_vtag);
	}
	d->d_used += sizeof(pp) + caplen;
	d->d_packets++;
}

/* Where the network header is: behind the tags that are in the frame already. */
static u_int
dump_l3(const struct mbuf *m)
{
	u_int l3 = ETHER_HDR_LEN;
	uint16_t type;

	while (l3 <= (u_int)m->m_pkthdr.len) {
		m_copydata(m, l3 - sizeof(type), sizeof(type), (caddr_t)&type);
		if (type != htons(ETHERTYPE_VLAN))
			break;
		l3 += ETHER_VLAN_ENCAP_LEN;
	}
	return (l3);
}

static void
dump_packet(void *arg, const struct mbuf *m)
{
	struct dump *d = arg;
	struct mbuf *copy = NULL;

	if ((m->m_pkthdr.csum_flags & IF_OFFLOAD_ALL) != 0) {
		copy = m_dup(m, M_NOWAIT);
		if (copy != NULL)
			if_offload_finish_sums(copy, dump_l3(copy));
		m = copy;
	}
	mtx_lock(&d->d_mtx);
	if (m == NULL)
		d->d_dropped++;
	else if (d->d_count == 0 || d->d_packets < d->d_count)
		dump_append(d, m);
	if (d->d_packets == d->d_count)
		wakeup(d);
	mtx_unlock(&d->d_mtx);
	m_freem(copy);
}

static void
dump_wait(struct dump *d)
{
	sbintime_t end = sbinuptime() + d->d_seconds * SBT_1S;
	u_int ends = dump_ends;

	mtx_lock(&d->d_mtx);
	while ((d->d_count == 0 || d->d_packets < d->d_count) &&
	    (d->d_seconds == 0 || sbinuptime() < end) && ends == dump_ends &&
	    !cmd_interrupted())
		(void)msleep_sbt(d, &d->d_mtx, 0, "tcpdump", SBT_1S / 10, 0, 0);
	mtx_unlock(&d->d_mtx);
}

static int
dump_write(const struct dump *d, struct memfs_file *f)
{
	struct pcap_file pf = {
		.pf_magic = PCAP_MAGIC,
		.pf_major = PCAP_MAJOR,
		.pf_minor = PCAP_MINOR,
		.pf_snaplen = d->d_snaplen,
		.pf_dlt = DLT_EN10MB,
	};
	int error;

	error = memfs_write(f, 0, &pf, sizeof(pf));
	return (error != 0 ? error : memfs_write(f, sizeof(pf), d->d_buf, d->d_used));
}

static int
dump_run(struct dump *d, if_t ifp)
{
	struct memfs_file *f;
	struct bpf_d *listener;
	int error;

	error = memfs_create(d->d_path, &f);
	if (error != 0)
		return (cmd_err("tcpdump", error, "%s", d->d_path));
	mtx_init(&d->d_mtx, "tcpdump", NULL, MTX_DEF);
	d->d_buf = malloc(d->d_size << 10, M_TCPDUMP, M_WAITOK);
	error = bpf_listen(ifp, DLT_EN10MB, dump_packet, d, &listener);
	if (error != 0)
		(void)cmd_err("tcpdump", error, "%s", if_name(ifp));
	else {
		printf("tcpdump: listening on %s\n", if_name(ifp));
		dump_wait(d);
		bpf_unlisten(listener);
		error = dump_write(d, f);
		if (error != 0)
			(void)cmd_err("tcpdump", error, "%s", d->d_path);
		printf("%ju packets captured\n%ju packets dropped by kernel\n",
		    (uintmax_t)d->d_packets, (uintmax_t)d->d_dropped);
	}
	free(d->d_buf, M_TCPDUMP);
	mtx_destroy(&d->d_mtx);
	memfs_close(f);
	return (error != 0);
}

/* One more capture, or one less. */
static void
dump_count(int change)
{
	mtx_lock(&dump_mtx);
	dump_running += change;
	wakeup(&dump_running);
	mtx_unlock(&dump_mtx);
}

static int
dump_end_all(void)
{
	mtx_lock(&dump_mtx);
	dump_ends++;
	while (dump_running > 0 && !cmd_interrupted())
		(void)msleep_sbt(&dump_running, &dump_mtx, 0, "tcpdump", SBT_1S / 10, 0, 0);
	mtx_unlock(&dump_mtx);
	return (0);
}

static int
cmd_tcpdump(int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	struct dump d = { .d_snaplen = DUMP_SNAPLEN, .d_size = DUMP_BUFFER };
	const char *name = NULL;
	uint64_t *value;
	int ch, status;
	if_t ifp;

	while ((ch = cmd_getopt(&g, argc, argv, "B:c:G:i:ks:w:")) != -1) {
		value = ch == 'B' ? &d.d_size : ch == 'c' ? &d.d_count :
		    ch == 'G' ? &d.d_seconds : &d.d_snaplen;
		if (ch == 'i')
			name = g.optarg;
		else if (ch == 'k')
			return (dump_end_all());
		else if (ch == 'w')
			d.d_path = g.optarg;
		else if (ch == '?' || cmd_expand_number(g.optarg, value) != 0)
			return (cmd_usage("tcpdump"));
	}
	if (name == NULL || d.d_path == NULL || g.optind != argc || d.d_size == 0 ||
	    d.d_size > DUMP_MAXBUFFER)
		return (cmd_usage("tcpdump"));
	ifp = ifunit_ref(name);
	if (ifp == NULL)
		return (cmd_err("tcpdump", ENXIO, "%s", name));
	dump_count(1);
	status = dump_run(&d, ifp);
	dump_count(-1);
	if_rele(ifp);
	return (status);
}
CONSOLE_NET_CMD(tcpdump, cmd_tcpdump, "capture packets to a file",
    "tcpdump -i interface -w file [-c count] [-s snaplen] [-G seconds] [-B KiB] | "
    "tcpdump -k");
