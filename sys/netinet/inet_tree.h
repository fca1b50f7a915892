/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The tree kernel's internet protocols: declarations shared by their files, and the interfaces to
 * the interface layer below (sys/net) and to the commands above.
 *
 * One representation of an address.  Every address is a struct in6_addr; an IPv4 address is its
 * v4-mapped form (::ffff:a.b.c.d).  Address lists, the routing table, the neighbour cache, sockets
 * and TCP are therefore written once for both families.  Mapped addresses never appear on the
 * wire: ip6_input() drops them.
 *
 * Layers, top to bottom; each calls only the one below it, and input comes up the same way:
 *
 *	commands, dhclient, resolver			sys/cmd
 *	insock (UDP and raw ICMP)      tcp
 *	inet_output() / struct inet_pkt			one interface for both IP versions
 *	ip_input, ip_output, icmp      ip6_input, ip6_output, icmp6, nd6
 *	in_fib (routes)  in.c (addresses)  in_llatbl (neighbours; ARP and ND speak its protocol)
 *	inet_link_output() -> ether_output_resolved()	sys/net
 *
 * Everything that handles a packet runs in the network epoch: an if_t found in a table stays valid
 * until the epoch is left.  No lock is held when a packet is handed to another layer, except a TCP
 * connection's own.
 *
 * Not FreeBSD's: the protocols are the tree kernel's own, with one representation of an address.
 */

#ifndef _NETINET_INET_TREE_H_
#define	_NETINET_INET_TREE_H_

struct mbuf;
struct mtx;
struct inet_pkt;
struct ip;
struct ip6_hdr;

/* ---- Addresses -------------------------------------------------------------------------- */

#define	INET_ADDRSTRLEN_MAX	64	/* IPv6 text, '%', interface name */
#define	INET_V4PLEN(plen)	((plen) + 96)	/* prefix length of a mapped address */

static inline struct in6_addr
inet_map4(struct in_addr a)
{
	struct in6_addr m = { .s6_addr[10] = 0xff, .s6_addr[11] = 0xff };

	m.s6_addr32[3] = a.s_addr;
	return (m);
}

static inline struct in_addr
inet_unmap4(const struct in6_addr *m)
{
	return ((struct in_addr){ .s_addr = m->s6_addr32[3] });
}

static inline bool
inet_is4(const struct in6_addr *a)
{
	return (IN6_IS_ADDR_V4MAPPED(a));
}

static inline bool
inet_same(const struct in6_addr *a, const struct in6_addr *b)
{
	return (memcmp(a, b, sizeof(*a)) == 0);
}

/* True for :: and 0.0.0.0. */
static inline bool
inet_unspecified(const struct in6_addr *a)
{
	return (IN6_IS_ADDR_UNSPECIFIED(a) || (inet_is4(a) && a->s6_addr32[3] == 0));
}

static inline bool
inet_multicast(const struct in6_addr *a)
{
	return (IN6_IS_ADDR_MULTICAST(a) ||
	    (inet_is4(a) && IN_MULTICAST(ntohl(a->s6_addr32[3]))));
}

/* An address of an interface; flags are IN6_IFF_* (netinet6/in6_var.h). */
struct inet_addr {
	TAILQ_ENTRY(inet_addr) ad_link;
	if_t		ad_ifp;
	struct in6_addr	ad_addr;
	int		ad_plen;	/* 0-32 for IPv4, 0-128 for IPv6 */
	int		ad_flags;
	int		ad_dad;		/* probes still to send while tentative */
	time_t		ad_preferred;	/* uptime when deprecated, 0: never */
	time_t		ad_valid;	/* uptime when removed, 0: never */
};

int	inet_addr_add(if_t ifp, const struct in6_addr *a, int plen, int flags, time_t preferred,
	    time_t valid);
int	inet_addr_delete(if_t ifp, const struct in6_addr *a);
void	inet_addr_purge(if_t ifp);
bool	inet_addr_nth(if_t ifp, u_int n, struct inet_addr *out);
bool	inet_addr_find(if_t ifp, const struct in6_addr *a, struct inet_addr *out);
bool	inet_addr_islocal(const struct in6_addr *a);
bool	inet_addr_isbroadcast(if_t ifp, struct in_addr a);
bool	inet_addr_linklocal(if_t ifp, struct in6_addr *out);
int	inet_addr_source(if_t ifp, const struct in6_addr *dst, struct in6_addr *src);
void	inet_addr_duplicate(if_t ifp, const struct in6_addr *a, const uint8_t *lladdr);
void	inet_addr_timer(void);
int	inet_addr_parse(const char *text, struct in6_addr *a, u_int *scope);
/* An Ethernet address, six hexadecimal numbers with colons between them; EINVAL. */
int	inet_ether_parse(const char *text, uint8_t *mac);
char	*inet_addr_print(char *buf, size_t len, const struct in6_addr *a, if_t scope);
struct in_addr inet_mask4(int plen);
void	inet_addr_announce(if_t ifp);
int	inet_ifup(if_t ifp);
int	inet_ifflags(if_t ifp, int set, int clear);

/* ---- Routes (in_fib.c) ------------------------------------------------------------------- */

struct inet_route {
	TAILQ_ENTRY(inet_route) r_link;
	struct in6_addr	r_dst;
	int		r_plen;		/* of the mapped form: IPv4's default is 96 */
	int		r_flags;	/* RTF_* */
	struct in6_addr	r_gw;		/* meaningful with RTF_GATEWAY */
	if_t		r_ifp;
	time_t		r_expire;	/* uptime, 0: never */
	uint64_t	r_use;
};

struct inet_nexthop {
	if_t		nh_ifp;
	struct in6_addr	nh_addr;	/* whom to resolve: the gateway or the destination */
	int		nh_flags;	/* RTF_* */
	u_int		nh_mtu;		/* of the path, as far as known */
};

int	inet_route_add(const struct in6_addr *dst, int plen, const struct in6_addr *gw, if_t ifp,
	    int flags, time_t expire);
int	inet_route_delete(const struct in6_addr *dst, int plen, const struct in6_addr *gw,
	    if_t ifp);
int	inet_route_lookup(const struct in6_addr *dst, if_t oif, struct inet_nexthop *nh);
bool	inet_route_nth(u_int n, struct inet_route *out);
void	inet_route_purge(if_t ifp);
void	inet_route_timer(void);
void	inet_pmtu_update(const struct in6_addr *dst, u_int mtu);
bool	inet_prefix_match(const struct in6_addr *a, const struct in6_addr *b, int plen);

/* ---- Neighbours (in_llatbl.c) ------------------------------------------------------------ */

enum inet_nbr_state {
	NBR_INCOMPLETE, NBR_REACHABLE, NBR_STALE, NBR_DELAY, NBR_PROBE
};

struct inet_nbr {
	LIST_ENTRY(inet_nbr) n_link;
	if_t		n_ifp;
	struct in6_addr	n_addr;
	uint8_t		n_lladdr[6];
	enum inet_nbr_state n_state;
	bool		n_permanent;
	bool		n_router;
	u_int		n_asked;	/* solicitations sent without an answer */
	time_t		n_expire;	/* uptime of the state's next step */
	struct mbufq	n_hold;		/* waiting for the address */
};

#define	NBR_SOLICITED	0x01	/* answer to our question: reachable now */
#define	NBR_OVERRIDE	0x02	/* may replace another address */
#define	NBR_CREATE	0x04	/* make an entry if there is none */
#define	NBR_ROUTER	0x08	/* it says that it is a router */
#define	NBR_ISROUTER	0x10	/* the message says whether it is one: NBR_ROUTER counts */

int	inet_nbr_resolve(if_t ifp, const struct in6_addr *a, struct mbuf *m, uint8_t *lladdr);
void	inet_nbr_learn(if_t ifp, const struct in6_addr *a, const uint8_t *lladdr, int flags);
int	inet_nbr_set(if_t ifp, const struct in6_addr *a, const uint8_t *lladdr);
int	inet_nbr_delete(if_t ifp, const struct in6_addr *a);
void	inet_nbr_purge(if_t ifp);
bool	inet_nbr_nth(u_int n, struct inet_nbr *out);
void	inet_nbr_timer(void);

/* ---- Link ------------------------------------------------------------------------------- */

int	inet_link_output(const void *nexthop, struct mbuf *m);
void	inet_loop_output(if_t ifp, struct mbuf *m);
int	inet_link_join(if_t ifp, const struct in6_addr *group);
void	inet_link_leave(if_t ifp, const struct in6_addr *group);

void	arp_input(struct mbuf *m);
void	inet_arp_request(if_t ifp, struct in_addr src, struct in_addr target, const uint8_t *to);
void	inet_arp_announce(if_t ifp, struct in_addr a);
void	nd6_advertise(if_t ifp, const struct in6_addr *a, const struct in6_addr *dst,
	    uint32_t flags);
void	in6_eui64(if_t ifp, struct in6_addr *a);
void	nd6_solicit(if_t ifp, const struct in6_addr *target, const struct in6_addr *src,
	    const uint8_t *unicast);
void	nd6_announce(if_t ifp, const struct in6_addr *a);
struct mbuf *nd6_message(if_t ifp, u_int type, size_t len, const uint8_t *lladdr, u_int opt);
int	nd6_send(struct mbuf *m, if_t ifp, const struct in6_addr *src, const struct in6_addr *dst);
const uint8_t *nd6_option(const uint8_t *opts, size_t len, u_int type, const uint8_t *after);
bool	nd6_router_advert(const uint8_t *msg, size_t len, const struct inet_pkt *p);
void	nd6_router_solicit(if_t ifp);
void	nd6_router_timer(void);
void	nd6_purge(if_t ifp);
uint8_t	nd6_hoplimit(if_t ifp);
int	mld6_join(if_t ifp, const struct in6_addr *group);
void	mld6_leave(if_t ifp, const struct in6_addr *group);
bool	mld6_member(if_t ifp, const struct in6_addr *group);
void	mld6_announce(if_t ifp);
void	mld6_timer(void);
void	mld6_purge(if_t ifp);

/* ---- IP ---------------------------------------------------------------------------------- */

/*
 * A datagram on its way up: the mbuf still starts with the IP header (for ICMP errors), and this
 * says where the transport header is.
 */
struct inet_pkt {
	struct in6_addr	ip_src;
	struct in6_addr	ip_dst;
	if_t		ip_ifp;
	int		ip_off;		/* of the transport header in the mbuf */
	int		ip_len;		/* transport header and payload */
	uint8_t		ip_proto;
	uint8_t		ip_ttl;
	uint8_t		ip_tos;
	bool		ip_bmcast;	/* sent to a group or a broadcast address */
};

/* A transport message on its way down; the mbuf starts with the transport header. */
struct inet_out {
	struct in6_addr	o_src;		/* unspecified: chosen by the route */
	struct in6_addr	o_dst;
	if_t		o_ifp;		/* NULL: by the routing table */
	uint8_t		o_proto;
	uint8_t		o_ttl;		/* 0: the default */
	uint8_t		o_tos;
	int		o_flags;
};
#define	INETO_DF	0x01		/* never fragment: EMSGSIZE */
#define	INETO_UNSPEC	0x02		/* an unspecified source is meant */
#define	INETO_ALERT	0x04		/* IPv6 router alert option, for MLD */

/* What makes fragments belong together (RFC 791, 3.2; RFC 8200, 4.5). */
struct inet_fragkey {
	struct in6_addr	k_src;
	struct in6_addr	k_dst;
	uint32_t	k_id;
	uint32_t	k_proto;	/* for IPv6 the length of the headers in front */
};

int	inet_output(struct mbuf *m, const struct inet_out *o);
int	inet_output_way(struct inet_out *o, struct inet_nexthop *nh);
int	inet_output4(struct mbuf *m, const struct inet_out *o, const struct inet_nexthop *nh);
int	inet_output6(struct mbuf *m, const struct inet_out *o, const struct inet_nexthop *nh);
int	inet_send4(struct mbuf *m, const struct inet_nexthop *nh);
int	inet_send6(struct mbuf *m, const struct inet_nexthop *nh);
void	inet_forward4(struct mbuf *m);
void	inet_forward6(struct mbuf *m);
void	inet_wait_source(const struct in6_addr *dst, u_int scope);
bool	inet_pkt_cksum_ok(struct mbuf *m, const struct inet_pkt *p);
void	inet_pkt_deliver(struct mbuf *m, const struct inet_pkt *p);
void	inet_unreach(struct mbuf *m, const struct inet_pkt *p);
void	inet_ctlinput(const struct in6_addr *local, const struct in6_addr *remote, uint8_t proto,
	    const void *quoted, int error, u_int mtu);
bool	inet_icmp_ratelimit(void);
struct mbuf *inet_reass(struct mbuf *m, const struct inet_fragkey *key, int hlen, int off,
	    bool more);
void	inet_reass_timer(void);
void	inet_reass_purge(if_t ifp);

void	ip_input(struct mbuf *m);
void	ip6_input(struct mbuf *m);
void	inet_icmp_input(struct mbuf *m, const struct inet_pkt *p);
void	inet_icmp_error(struct mbuf *m, int type, int code, u_int mtu);
void	inet_icmp6_input(struct mbuf *m, const struct inet_pkt *p);
void	inet_icmp6_error(struct mbuf *m, int type, int code, uint32_t param);
bool	nd6_input(struct mbuf *m, const struct inet_pkt *p);
void	mld6_input(struct mbuf *m, const struct inet_pkt *p);
void	udp_inet_input(struct mbuf *m, const struct inet_pkt *p);
void	tcp_inet_input(struct mbuf *m, const struct inet_pkt *p);
void	tcpc_reap(void);
void	in6_delayed_cksum(struct mbuf *m, uint32_t plen, uint16_t offset);
uint64_t inet_cksum_add(uint64_t sum, const void *p, size_t len);
uint16_t inet_cksum_fold(uint64_t sum);
uint16_t inet_pseudo(const struct in6_addr *src, const struct in6_addr *dst, uint32_t len,
	    uint8_t proto);

/* ---- Datagram sockets (in_sock.c) --------------------------------------------------------- */

struct insock;

/* Where a datagram came from. */
struct insock_from {
	struct in6_addr	f_addr;
	struct in6_addr	f_dst;
	u_int		f_ifindex;
	uint16_t	f_port;		/* host order; 0 for ICMP */
	uint8_t		f_ttl;
};

int	insock_open(uint8_t proto, struct insock **sp);
void	insock_close(struct insock *s);
int	insock_bind(struct insock *s, const struct in6_addr *laddr, uint16_t lport);
void	insock_setif(struct insock *s, if_t ifp, int outflags);
void	insock_setopt(struct insock *s, uint8_t ttl, bool df);
int	insock_sendto(struct insock *s, const void *data, size_t len, const struct in6_addr *dst,
	    uint16_t dport);
int	insock_recv(struct insock *s, void *buf, size_t *lenp, struct insock_from *from,
	    sbintime_t timeout);
bool	insock_input(struct mbuf *m, const struct inet_pkt *p, uint16_t sport, uint16_t dport,
	    int off);
void	insock_ctlinput(const struct in6_addr *remote, uint16_t lport, uint16_t fport, int error);
void	tcp_inet_ctlinput(const struct in6_addr *local, const struct in6_addr *remote,
	    uint16_t lport, uint16_t fport, uint32_t seq, int error, u_int mtu);
int	inet_sleep(const void *chan, struct mtx *mtx, const char *wmesg, sbintime_t deadline);

/* ---- Names and configuration -------------------------------------------------------------- */

#define	INET_NDNS	3
extern struct in6_addr inet_dns[INET_NDNS];

#endif /* !_NETINET_INET_TREE_H_ */
