/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * netstat: connections, interfaces, routes, protocol statistics and network buffers, with FreeBSD's
 * options and output.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>
#include <netinet/tcp_conn_tree.h>
#include <kern/console_tree.h>
#include <kern/mbuf_tree.h>

/*
 * ---- Statistics: a table and a loop -----------------------------------------------------------
 */

struct stat_line {
	size_t		l_off;		/* in struct inet_stats */
	const char	*l_text;
};

struct stat_proto {
	const char	*p_name;
	const struct stat_line *p_lines;
	u_int		p_n;
};

#define	L(field, text)	{ offsetof(struct inet_stats, field), text }

static const struct stat_line arp_lines[] = {
	L(arp.txrequests, "ARP requests sent"),
	L(arp.txerrors, "ARP requests failed to send"),
	L(arp.txreplies, "ARP replies sent"),
	L(arp.rxrequests, "ARP requests received"),
	L(arp.rxreplies, "ARP replies received"),
	L(arp.received, "ARP packets received"),
	L(arp.dropped, "total packets dropped due to no ARP entry"),
	L(arp.timeouts, "ARP entrys timed out"),
	L(arp.dupips, "Duplicate IPs seen"),
};

static const struct stat_line ip_lines[] = {
	L(ip.ips_total, "total packets received"),
	L(ip.ips_badsum, "bad header checksums"),
	L(ip.ips_toosmall, "with size smaller than minimum"),
	L(ip.ips_tooshort, "with data size < data length"),
	L(ip.ips_toolong, "with ip length > max ip packet size"),
	L(ip.ips_badhlen, "with header length < data size"),
	L(ip.ips_badlen, "with data length < header length"),
	L(ip.ips_badvers, "with incorrect version number"),
	L(ip.ips_badaddr, "with bad source address"),
	L(ip.ips_fragments, "fragments received"),
	L(ip.ips_fragdropped, "fragments dropped (dup or out of space)"),
	L(ip.ips_fragtimeout, "fragments dropped after timeout"),
	L(ip.ips_reassembled, "packets reassembled ok"),
	L(ip.ips_delivered, "packets for this host"),
	L(ip.ips_noproto, "packets for unknown/unsupported protocol"),
	L(ip.ips_forward, "packets forwarded"),
	L(ip.ips_cantforward, "packets not forwardable"),
	L(ip.ips_localout, "packets sent from this host"),
	L(ip.ips_odropped, "output packets dropped due to no bufs, etc."),
	L(ip.ips_noroute, "output packets discarded due to no route"),
	L(ip.ips_fragmented, "output datagrams fragmented"),
	L(ip.ips_ofragments, "fragments created"),
	L(ip.ips_cantfrag, "datagrams that can't be fragmented"),
};

static const struct stat_line ip6_lines[] = {
	L(ip6.ip6s_total, "total packets received"),
	L(ip6.ip6s_toosmall, "with size smaller than minimum"),
	L(ip6.ip6s_tooshort, "with data size < data length"),
	L(ip6.ip6s_badoptions, "with bad options"),
	L(ip6.ip6s_badvers, "with incorrect version number"),
	L(ip6.ip6s_fragments, "fragments received"),
	L(ip6.ip6s_fragdropped, "fragments dropped (dup or out of space)"),
	L(ip6.ip6s_fragtimeout, "fragments dropped after timeout"),
	L(ip6.ip6s_atomicfrags, "atomic fragments"),
	L(ip6.ip6s_reassembled, "packets reassembled ok"),
	L(ip6.ip6s_delivered, "packets for this host"),
	L(ip6.ip6s_forward, "packets forwarded"),
	L(ip6.ip6s_cantforward, "packets not forwardable"),
	L(ip6.ip6s_localout, "packets sent from this host"),
	L(ip6.ip6s_odropped, "output packets dropped due to no bufs, etc."),
	L(ip6.ip6s_noroute, "output packets discarded due to no route"),
	L(ip6.ip6s_fragmented, "output datagrams fragmented"),
	L(ip6.ip6s_ofragments, "fragments created"),
	L(ip6.ip6s_cantfrag, "datagrams that can't be fragmented"),
	L(ip6.ip6s_badscope, "packets that violated scope rules"),
	L(ip6.ip6s_notmember, "multicast packets which we don't join"),
	L(ip6.ip6s_toomanyhdr, "packets discarded because of too many headers"),
};

static const struct stat_line icmp_lines[] = {
	L(icmp.icps_error, "calls to icmp_error"),
	L(icmp.icps_oldicmp, "errors not generated in response to an icmp message"),
	L(icmp.icps_tooshort, "messages less than the minimum length"),
	L(icmp.icps_checksum, "messages with bad checksum"),
	L(icmp.icps_badlen, "messages with bad length"),
	L(icmp.icps_bmcastecho, "multicast echo requests ignored"),
	L(icmp.icps_reflect, "message responses generated"),
};

static const struct stat_line icmp6_lines[] = {
	L(icmp6.icp6s_error, "calls to icmp6_error"),
	L(icmp6.icp6s_canterror, "errors not generated because of rate limitation or rule"),
	L(icmp6.icp6s_tooshort, "messages < minimum length"),
	L(icmp6.icp6s_checksum, "bad checksums"),
	L(icmp6.icp6s_badlen, "messages with bad length"),
	L(icmp6.icp6s_reflect, "message responses generated"),
};

static const struct stat_line udp_lines[] = {
	L(udp.udps_ipackets, "datagrams received"),
	L(udp.udps_hdrops, "with incomplete header"),
	L(udp.udps_badlen, "with bad data length field"),
	L(udp.udps_badsum, "with bad checksum"),
	L(udp.udps_nosum, "with no checksum"),
	L(udp.udps_noport, "dropped due to no socket"),
	L(udp.udps_noportbcast, "broadcast/multicast datagrams undelivered"),
	L(udp.udps_fullsock, "dropped due to full socket buffers"),
	L(udp.udps_opackets, "datagrams output"),
};

static const struct stat_line tcp_lines[] = {
	L(tcp.tcps_sndtotal, "packets sent"),
	L(tcp.tcps_sndpack, "data packets"),
	L(tcp.tcps_sndbyte, "data bytes sent"),
	L(tcp.tcps_sndrexmitpack, "data packets retransmitted"),
	L(tcp.tcps_sndrexmitbyte, "data bytes retransmitted"),
	L(tcp.tcps_mturesent, "resends initiated by MTU discovery"),
	L(tcp.tcps_sndacks, "ack-only packets"),
	L(tcp.tcps_delack, "acks delayed"),
	L(tcp.tcps_sndprobe, "window probe packets"),
	L(tcp.tcps_sndctrl, "control packets"),
	L(tcp.tcps_rcvtotal, "packets received"),
	L(tcp.tcps_rcvackpack, "acks"),
	L(tcp.tcps_rcvdupack, "duplicate acks"),
	L(tcp.tcps_rcvacktoomuch, "acks for unsent data"),
	L(tcp.tcps_rcvpack, "packets received in-sequence"),
	L(tcp.tcps_rcvbyte, "bytes received in-sequence"),
	L(tcp.tcps_rcvduppack, "completely duplicate packets"),
	L(tcp.tcps_pawsdrop, "old duplicate packets"),
	L(tcp.tcps_rcvoopack, "out-of-order packets"),
	L(tcp.tcps_rcvpackafterwin, "packets of data after window"),
	L(tcp.tcps_rcvbadsum, "discarded for bad checksums"),
	L(tcp.tcps_rcvbadoff, "discarded for bad header offset fields"),
	L(tcp.tcps_rcvshort, "discarded because packet too short"),
	L(tcp.tcps_rcvreassfull, "discarded due to full reassembly queue"),
	L(tcp.tcps_connattempt, "connection requests"),
	L(tcp.tcps_accepts, "connection accepts"),
	L(tcp.tcps_listendrop, "listen queue overflows"),
	L(tcp.tcps_badrst, "ignored RSTs in the windows"),
	L(tcp.tcps_connects, "connections established (including accepts)"),
	L(tcp.tcps_closed, "connections closed (including drops)"),
	L(tcp.tcps_rexmttimeo, "retransmit timeouts"),
	L(tcp.tcps_sack_recovery_episode, "SACK recovery episodes"),
	L(tcp.tcps_sack_rexmits, "segment rexmits in SACK recovery episodes"),
	L(tcp.tcps_sack_rexmit_bytes, "byte rexmits in SACK recovery episodes"),
	L(tcp.tcps_sack_rcv_blocks, "SACK options (SACK blocks) received"),
	L(tcp.tcps_sack_send_blocks, "SACK options (SACK blocks) sent"),
	L(tcp.tcps_sack_sboverflow, "SACK scoreboard overflow"),
	L(tcp.tcps_timeoutdrop, "connections dropped by rexmit timeout"),
	L(tcp.tcps_persisttimeo, "persist timeouts"),
};
#undef L

static const struct stat_proto stat_protos[] = {
	{ "tcp", tcp_lines, nitems(tcp_lines) },
	{ "udp", udp_lines, nitems(udp_lines) },
	{ "ip", ip_lines, nitems(ip_lines) },
	{ "icmp", icmp_lines, nitems(icmp_lines) },
	{ "arp", arp_lines, nitems(arp_lines) },
	{ "ip6", ip6_lines, nitems(ip6_lines) },
	{ "icmp6", icmp6_lines, nitems(icmp6_lines) },
};

static int
netstat_stats(const char *only)
{
	const struct stat_proto *p;
	const struct stat_line *l;
	bool hit = false;

	for (p = stat_protos; p < stat_protos + nitems(stat_protos); p++) {
		if (only != NULL && strcmp(only, p->p_name) != 0)
			continue;
		hit = true;
		printf("%s:\n", p->p_name);
		for (l = p->p_lines; l < p->p_lines + p->p_n; l++)
			printf("\t%ju %s\n", (uintmax_t)*(const uint64_t *)
			    ((const char *)&inet_stats + l->l_off), l->l_text);
	}
	return (hit ? 0 : cmd_err("netstat", 0, "%s: unknown or uninstrumented protocol", only));
}

/* ---- Interfaces ------------------------------------------------------------------------------ */

/* Counters of an interface, in columns; of bytes with -b. */
static const struct {
	const char	*name;
	int		 width;
	ift_counter	 counter;
	bool		 bytes;
} netstat_columns[] = {
	{ "Ipkts", 9, IFCOUNTER_IPACKETS }, { "Ierrs", 5, IFCOUNTER_IERRORS },
	{ "Idrop", 5, IFCOUNTER_IQDROPS }, { "Ibytes", 10, IFCOUNTER_IBYTES, true },
	{ "Opkts", 9, IFCOUNTER_OPACKETS }, { "Oerrs", 5, IFCOUNTER_OERRORS },
	{ "Obytes", 10, IFCOUNTER_OBYTES, true }, { "Coll", 5, IFCOUNTER_COLLISIONS },
};

static void
netstat_if_line(if_t ifp, const char *net, const char *addr, bool link, bool bytes)
{
	bool up = (if_getflags(ifp) & IFF_UP) != 0;
	u_int i;

	printf("%-7s%s %6d %-17s %-30s", if_name(ifp), up ? " " : "*", if_getmtu(ifp), net, addr);
	for (i = 0; i < nitems(netstat_columns); i++) {
		if (netstat_columns[i].bytes && !bytes)
			continue;
		if (link)
			printf(" %*ju", netstat_columns[i].width,
			    (uintmax_t)if_getcounter(ifp, netstat_columns[i].counter));
		else
			printf(" %*s", netstat_columns[i].width, "-");
	}
	printf("\n");
}

static int
netstat_if(if_t ifp, void *arg)
{
	bool bytes = *(bool *)arg;
	char addr[INET_ADDRSTRLEN_MAX], net[32];
	struct inet_addr ia;
	u_int n;

	snprintf(net, sizeof(net), "<Link#%d>", if_getindex(ifp));
	if (if_gettype(ifp) == IFT_ETHER)
		snprintf(addr, sizeof(addr), "%6D", if_getlladdr(ifp), ":");
	else
		strlcpy(addr, if_name(ifp), sizeof(addr));
	netstat_if_line(ifp, net, addr, true, bytes);
	for (n = 0; inet_addr_nth(ifp, n, &ia); n++) {
		inet_addr_print(addr, sizeof(addr), &ia.ad_addr, ifp);
		snprintf(net, sizeof(net), "%s/%d", inet_is4(&ia.ad_addr) ? "inet" : "inet6",
		    ia.ad_plen);
		netstat_if_line(ifp, net, addr, false, bytes);
	}
	return (0);
}

static void
netstat_interfaces(bool bytes)
{
	struct epoch_tracker et;
	u_int i;

	printf("%-8s %6s %-17s %-30s", "Name", "Mtu", "Network", "Address");
	for (i = 0; i < nitems(netstat_columns); i++) {
		if (!netstat_columns[i].bytes || bytes)
			printf(" %*s", netstat_columns[i].width, netstat_columns[i].name);
	}
	printf("\n");
	NET_EPOCH_ENTER(et);
	(void)if_foreach(netstat_if, &bytes);
	NET_EPOCH_EXIT(et);
}

/* ---- Routes ---------------------------------------------------------------------------------- */

static void
netstat_route(const struct inet_route *r)
{
	static const struct { int flag; char letter; } letters[] = {
		{ RTF_UP, 'U' }, { RTF_GATEWAY, 'G' }, { RTF_HOST, 'H' }, { RTF_DYNAMIC, 'D' },
		{ RTF_STATIC, 'S' },
	};
	char dst[INET_ADDRSTRLEN_MAX], gw[INET_ADDRSTRLEN_MAX], flags[8], expire[16] = "";
	bool v4 = inet_is4(&r->r_dst) && r->r_plen >= INET_V4PLEN(0);
	int plen = v4 ? r->r_plen - INET_V4PLEN(0) : r->r_plen;
	u_int i, n = 0;
	size_t len;

	inet_addr_print(dst, sizeof(dst), &r->r_dst, r->r_ifp);
	len = strlen(dst);
	if (plen == 0)
		strlcpy(dst, "default", sizeof(dst));
	else if ((r->r_flags & RTF_HOST) == 0)
		snprintf(dst + len, sizeof(dst) - len, "/%d", plen);
	if ((r->r_flags & RTF_GATEWAY) != 0)
		inet_addr_print(gw, sizeof(gw), &r->r_gw, r->r_ifp);
	else
		snprintf(gw, sizeof(gw), "link#%d", if_getindex(r->r_ifp));
	for (i = 0; i < nitems(letters); i++) {
		if ((r->r_flags & letters[i].flag) != 0)
			flags[n++] = letters[i].letter;
	}
	flags[n] = '\0';
	if (r->r_expire != 0)
		snprintf(expire, sizeof(expire), "%jd",
		    (intmax_t)MAX(r->r_expire - time_uptime, 0));
	printf("%-*s %-*s %-8s %8s %6s\n", v4 ? 18 : 33, dst, v4 ? 18 : 29, gw, flags,
	    if_name(r->r_ifp), expire);
}

static void
netstat_routes(void)
{
	struct epoch_tracker et;
	struct inet_route r;
	u_int n, v;

	printf("Routing tables\n");
	NET_EPOCH_ENTER(et);
	for (v = 4; v <= 6; v += 2) {
		printf("\n%s:\n%-*s %-*s %-8s %8s %6s\n", v == 4 ? "Internet" : "Internet6",
		    v == 4 ? 18 : 33, "Destination", v == 4 ? 18 : 29, "Gateway", "Flags", "Netif",
		    "Expire");
		for (n = 0; inet_route_nth(n, &r); n++) {
			if ((inet_is4(&r.r_dst) && r.r_plen >= INET_V4PLEN(0)) == (v == 4))
				netstat_route(&r);
		}
	}
	NET_EPOCH_EXIT(et);
}

/*
 * ---- Connections and buffers -------------------------------------------------------------------
 */

static void
netstat_endpoint(char *buf, size_t len, const struct in6_addr *a, uint16_t port)
{
	size_t n;

	if (inet_unspecified(a))
		strlcpy(buf, "*", len);
	else
		inet_addr_print(buf, len, a, NULL);
	n = strlen(buf);
	if (port == 0)
		snprintf(buf + n, len - n, ".*");
	else
		snprintf(buf + n, len - n, ".%u", port);
}

static void
netstat_connections(void)
{
	static const char *const states[] = { "CLOSED", "LISTEN", "SYN_SENT", "SYN_RCVD",
	    "ESTABLISHED", "CLOSE_WAIT", "FIN_WAIT_1", "CLOSING", "LAST_ACK", "FIN_WAIT_2",
	    "TIME_WAIT" };
	char local[INET_ADDRSTRLEN_MAX + 8], foreign[INET_ADDRSTRLEN_MAX + 8];
	struct tcp_conn *t;
	u_int n;

	printf("Active Internet connections (including servers)\n");
	printf("%-5s %6s %6s  %-30s %-30s %s\n", "Proto", "Recv-Q", "Send-Q", "Local Address",
	    "Foreign Address", "(state)");
	t = malloc(sizeof(*t), M_INET, M_WAITOK);
	for (n = 0; tcpc_nth(n, t) && !cmd_interrupted(); n++) {
		netstat_endpoint(local, sizeof(local), &t->t_laddr, t->t_lport);
		netstat_endpoint(foreign, sizeof(foreign), &t->t_faddr, t->t_fport);
		printf("%-5s %6u %6u  %-30s %-30s %s\n", inet_is4(&t->t_laddr) ? "tcp4" : "tcp6",
		    t->t_rcv.b_len, t->t_snd.b_len, local, foreign,
		    t->t_state < (int)nitems(states) ? states[t->t_state] : "?");
	}
	free(t, M_INET);
}

static void
netstat_mbufs(void)
{
	struct mbuf_number numbers[MBUF_NUMBERS];
	u_int i;

	mbuf_get_numbers(numbers);
	for (i = 0; i < MBUF_NUMBERS; i++)
		printf("%ju/%ju %s in use (current/max), %u bytes each\n",
		    (uintmax_t)numbers[i].mn_current, (uintmax_t)numbers[i].mn_limit,
		    numbers[i].mn_name, numbers[i].mn_size);
}

static int
cmd_netstat(int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	const char *proto = NULL;
	bool bytes = false;
	int ch, what = 0;

	while ((ch = cmd_getopt(&g, argc, argv, "abimnp:rs")) != -1) {
		if (ch == '?')
			return (cmd_usage("netstat"));
		if (ch == 'p')
			proto = g.optarg;
		else if (ch == 'b')
			bytes = true;
		else if (ch != 'a' && ch != 'n')
			what = ch;
	}
	if (g.optind != argc)
		return (cmd_usage("netstat"));
	if (what == 's' || (what == 0 && proto != NULL))
		return (netstat_stats(proto));
	if (what == 'i')
		netstat_interfaces(bytes);
	else if (what == 'r')
		netstat_routes();
	else if (what == 'm')
		netstat_mbufs();
	else
		netstat_connections();
	return (0);
}
CONSOLE_NET_CMD(netstat, cmd_netstat, "show sockets, interfaces, buffers, routes and counters",
    "netstat [-an] | -i [-b] | -m | -r | -s [-p protocol]");
