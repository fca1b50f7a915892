/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * IPv6 group membership: the groups that each interface is in, and their reports to the link
 * (MLDv2, RFC 3810), so that switches pass them and the interface's filter does too.
 *
 * Every group is wanted from any source, so a report has one kind of record in each direction:
 * "exclude no source" for a group that we are in, "include no source" for one that we left.  A change
 * is reported twice, a second apart (RFC 3810, 6.1).
 *
 * Locking: mld_mtx protects the list of groups.
 *
 * Gaps: queries are answered at once, not after a random part of their delay; no MLDv1.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>

#define	MLD_V2REPORT	143	/* RFC 3810, 5.2 */
#define	MLD_EXCLUDE	2	/* MODE_IS_EXCLUDE */
#define	MLD_TO_INCLUDE	3	/* CHANGE_TO_INCLUDE_MODE */
#define	MLD_TO_EXCLUDE	4	/* CHANGE_TO_EXCLUDE_MODE */
#define	MLD_RECORDLEN	20
#define	MLD_BATCH	16	/* groups in one report */
#define	MLD_MAXGROUPS	256

struct mld_group {
	LIST_ENTRY(mld_group) g_link;
	if_t		g_ifp;
	struct in6_addr	g_addr;
	u_int		g_refs;
	u_int		g_reports;	/* still to be made, one a second */
};

static struct mtx mld_mtx;
MTX_SYSINIT(inet_mld, &mld_mtx, "mld6", MTX_DEF);
static LIST_HEAD(, mld_group) mld_groups = LIST_HEAD_INITIALIZER(mld_groups);
static u_int mld_count;

static struct mld_group *
mld_find(if_t ifp, const struct in6_addr *group)
{
	struct mld_group *g;

	mtx_assert(&mld_mtx, MA_OWNED);
	LIST_FOREACH(g, &mld_groups, g_link) {
		if (g->g_ifp == ifp && inet_same(&g->g_addr, group))
			return (g);
	}
	return (NULL);
}

/* RFC 3810, 6: nothing is ever said about all nodes, nor about what stays inside. */
static bool
mld_silent(const struct in6_addr *group)
{
	static const struct in6_addr allnodes = IN6ADDR_LINKLOCAL_ALLNODES_INIT;

	return (inet_same(group, &allnodes) || IN6_IS_ADDR_MC_NODELOCAL(group) ||
	    (group->s6_addr[1] & 0xf) == 0);
}

/* Report n groups, all with the same record type.  In the network epoch. */
static void
mld_report(if_t ifp, uint8_t type, const struct in6_addr *groups, u_int n)
{
	static const struct in6_addr routers = { .s6_addr = { 0xff, 2, [15] = 0x16 } };
	struct inet_out o = {
		.o_dst = routers,
		.o_ifp = ifp,
		.o_proto = IPPROTO_ICMPV6,
		.o_ttl = 1,
		.o_flags = INETO_ALERT,
	};
	size_t len = 8 + n * MLD_RECORDLEN, room = max_linkhdr + sizeof(struct ip6_hdr) + 8;
	struct mbuf *m;
	uint8_t *p;
	u_int i;

	if (if_gettype(ifp) != IFT_ETHER || (m = m_get2(room + len, M_NOWAIT, MT_DATA,
	    M_PKTHDR)) == NULL)
		return;
	m->m_data += room;
	m->m_len = m->m_pkthdr.len = len;
	p = mtod(m, uint8_t *);
	memset(p, 0, len);
	p[0] = MLD_V2REPORT;
	p[7] = n;
	for (i = 0, p += 8; i < n; i++, p += MLD_RECORDLEN) {
		p[0] = type;
		memcpy(p + 4, &groups[i], sizeof(groups[i]));
	}
	/* The source is a link-local address or none (RFC 3810, 5.2.13). */
	if (!inet_addr_linklocal(ifp, &o.o_src))
		o.o_flags |= INETO_UNSPEC;
	INSTAT_INC(icmp6.icp6s_outhist[MLD_V2REPORT]);
	(void)inet_output(m, &o);
}

/*
 * Enter a group on an interface; joined more than once it has to be left as often.  ENOBUFS.
 */
int
mld6_join(if_t ifp, const struct in6_addr *group)
{
	struct epoch_tracker et;
	struct mld_group *g, *new;

	new = malloc(sizeof(*new), M_INET, M_NOWAIT | M_ZERO);
	mtx_lock(&mld_mtx);
	g = mld_find(ifp, group);
	if (g != NULL || new == NULL || mld_count >= MLD_MAXGROUPS) {
		if (g != NULL)
			g->g_refs++;
		mtx_unlock(&mld_mtx);
		free(new, M_INET);
		return (g != NULL ? 0 : ENOBUFS);
	}
	new->g_ifp = ifp;
	new->g_addr = *group;
	new->g_refs = 1;
	new->g_reports = mld_silent(group) ? 0 : 1;
	LIST_INSERT_HEAD(&mld_groups, new, g_link);
	mld_count++;
	mtx_unlock(&mld_mtx);
	(void)inet_link_join(ifp, group);
	if (!mld_silent(group)) {
		NET_EPOCH_ENTER(et);
		mld_report(ifp, MLD_TO_EXCLUDE, group, 1);
		NET_EPOCH_EXIT(et);
	}
	return (0);
}

void
mld6_leave(if_t ifp, const struct in6_addr *group)
{
	struct epoch_tracker et;
	struct mld_group *g;

	mtx_lock(&mld_mtx);
	g = mld_find(ifp, group);
	if (g == NULL || --g->g_refs > 0) {
		mtx_unlock(&mld_mtx);
		return;
	}
	LIST_REMOVE(g, g_link);
	mld_count--;
	mtx_unlock(&mld_mtx);
	free(g, M_INET);
	inet_link_leave(ifp, group);
	if (!mld_silent(group)) {
		NET_EPOCH_ENTER(et);
		mld_report(ifp, MLD_TO_INCLUDE, group, 1);
		NET_EPOCH_EXIT(et);
	}
}

bool
mld6_member(if_t ifp, const struct in6_addr *group)
{
	bool member;

	mtx_lock(&mld_mtx);
	member = mld_find(ifp, group) != NULL;
	mtx_unlock(&mld_mtx);
	return (member);
}

/* The next groups of an interface, from the skip-th; how many. */
static u_int
mld_collect(if_t ifp, u_int skip, struct in6_addr *groups)
{
	struct mld_group *g;
	u_int n = 0;

	mtx_lock(&mld_mtx);
	LIST_FOREACH(g, &mld_groups, g_link) {
		if (g->g_ifp != ifp || mld_silent(&g->g_addr))
			continue;
		if (skip > 0)
			skip--;
		else if (n < MLD_BATCH)
			groups[n++] = g->g_addr;
	}
	mtx_unlock(&mld_mtx);
	return (n);
}

/* Report all groups of an interface.  In the network epoch. */
static void
mld_report_all(if_t ifp, uint8_t type)
{
	struct in6_addr groups[MLD_BATCH];
	u_int n, done;

	for (done = 0; (n = mld_collect(ifp, done, groups)) > 0; done += n)
		mld_report(ifp, type, groups, n);
}

/* The link is (again) there. */
void
mld6_announce(if_t ifp)
{
	mld_report_all(ifp, MLD_TO_EXCLUDE);
}

/* A query (RFC 3810, 5.1): general, or about one group.  m is not consumed. */
void
mld6_input(struct mbuf *m, const struct inet_pkt *p)
{
	struct mld_hdr mld;

	if (p->ip_len < (int)sizeof(mld) || p->ip_ttl != 1 || !IN6_IS_ADDR_LINKLOCAL(&p->ip_src))
		return;
	m_copydata(m, p->ip_off, sizeof(mld), (caddr_t)&mld);
	if (IN6_IS_ADDR_UNSPECIFIED(&mld.mld_addr))
		mld_report_all(p->ip_ifp, MLD_EXCLUDE);
	else if (mld6_member(p->ip_ifp, &mld.mld_addr) && !mld_silent(&mld.mld_addr))
		mld_report(p->ip_ifp, MLD_EXCLUDE, &mld.mld_addr, 1);
}

/* Once a second, in the network epoch: the second report of a change. */
void
mld6_timer(void)
{
	struct mld_group *g;
	struct in6_addr group = in6addr_any;
	if_t ifp;

	do {
		ifp = NULL;
		mtx_lock(&mld_mtx);
		LIST_FOREACH(g, &mld_groups, g_link) {
			if (g->g_reports > 0) {
				g->g_reports--;
				ifp = g->g_ifp;
				group = g->g_addr;
				break;
			}
		}
		mtx_unlock(&mld_mtx);
		if (ifp != NULL)
			mld_report(ifp, MLD_TO_EXCLUDE, &group, 1);
	} while (ifp != NULL);
}

/* The interface goes away, and its filter with it. */
void
mld6_purge(if_t ifp)
{
	struct mld_group *g, *next;

	mtx_lock(&mld_mtx);
	LIST_FOREACH_SAFE(g, &mld_groups, g_link, next) {
		if (g->g_ifp == ifp) {
			LIST_REMOVE(g, g_link);
			mld_count--;
			free(g, M_INET);
		}
	}
	mtx_unlock(&mld_mtx);
}
