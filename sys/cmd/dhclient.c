/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * dhclient: the DHCP client (RFC 2131, 4.4).
 *
 * The command gets a lease and configures the interface; a thread then renews it: at T1 by asking
 * its server, at T2 by asking anyone, and when the lease ends it takes the address away and
 * starts again.
 *
 *	         offer          ack           T1             T2
 *	SELECT --------> REQUEST ----> BOUND ----> RENEWING ----> REBINDING
 *	   ^                |  nak       ^  ack        |               |  lease over, or nak
 *	   +----------------+            +-------------+---------------+----> SELECT
 *
 * A client has its interface by name, never by reference, so that an interface can go away at any
 * time: the next look finds that it is gone.
 *
 * Locking: dhc_mtx protects the list of clients and their c_stop.
 *
 * Gaps: no lease database, no ARP probe of the offered address, no DHCPDECLINE or DHCPRELEASE.
 */

#include <netinet/inet_stack_tree.h>
#include <sys/eventhandler.h>
#include <sys/proc.h>
#include <sys/kthread.h>
#include <kern/console_tree.h>
#include <net/if_tree.h>
#include <cmd/dhcp_msg.h>

#define	DHC_DISCOVERS	6	/* with waits of 1, 2, 4, 8, 8, 8 seconds */
#define	DHC_REQUESTS	4
#define	DHC_LINKWAIT	10	/* seconds */
#define	DHC_MINRENEW	60	/* RFC 2131, 4.4.5 */
#define	DHC_MAXSLEEP	86400	/* a lease may be for ever */

struct dhclient {
	LIST_ENTRY(dhclient) c_link;
	char		c_name[IFNAMSIZ];
	bool		c_stop;		/* replaced by a newer one */
	bool		c_quiet;	/* in the background */
	uint8_t		c_mac[6];
	struct insock	*c_sock;
	uint32_t	c_xid;
	time_t		c_start;
	struct dhcp_reply c_lease;
	time_t		c_bound;	/* uptime when the lease was given */
};

static struct mtx dhc_mtx;
MTX_SYSINIT(inet_dhclient, &dhc_mtx, "dhclient", MTX_DEF);
static LIST_HEAD(, dhclient) dhc_list = LIST_HEAD_INITIALIZER(dhc_list);

static struct in_addr
dhc_any(void)
{
	return ((struct in_addr){ .s_addr = INADDR_ANY });
}

static int
dhc_plen(const struct dhcp_reply *l)
{
	uint32_t mask = ntohl(l->r_mask.s_addr);
	int plen = 0;

	for (; (mask & 0x80000000) != 0; mask <<= 1)
		plen++;
	return (plen != 0 ? plen : 24);
}

/* The socket for this client's exchange; with an address (renewing) or without. */
static int
dhc_open(struct dhclient *c, if_t ifp, bool bound)
{
	int error;

	error = insock_open(IPPROTO_UDP, &c->c_sock);
	if (error != 0)
		return (error);
	insock_setif(c->c_sock, ifp, bound ? 0 : INETO_UNSPEC);
	error = insock_bind(c->c_sock, NULL, DHCP_CLIENT_PORT);
	if (error != 0)
		insock_close(c->c_sock);
	return (error);
}

static int
dhc_send(struct dhclient *c, enum dhcp_type type, struct in_addr to)
{
	struct dhcp_request q = {
		.q_type = type,
		.q_xid = c->c_xid,
		.q_secs = time_uptime - c->c_start,
	};
	struct in6_addr dst = inet_map4(to);
	struct dhcp_msg *msg;
	int error;

	memcpy(q.q_mac, c->c_mac, sizeof(q.q_mac));
	if (c->c_bound != 0)
		q.q_ciaddr = c->c_lease.r_addr;
	else {
		q.q_broadcast = true;
		q.q_want = c->c_lease.r_addr;
		q.q_server = c->c_lease.r_server;
	}
	msg = malloc(sizeof(*msg), M_INET, M_WAITOK);
	dhcp_build(msg, &q);
	error = insock_sendto(c->c_sock, msg, sizeof(*msg), &dst, DHCP_SERVER_PORT);
	free(msg, M_INET);
	return (error);
}

/* Wait for an answer to our transaction.  EWOULDBLOCK, EINTR. */
static int
dhc_receive(struct dhclient *c, int seconds, struct dhcp_reply *r)
{
	sbintime_t deadline = sbinuptime() + seconds * SBT_1S;
	size_t len, size = 1500;
	uint8_t *buf;
	int error;

	buf = malloc(size, M_INET, M_WAITOK);
	do {
		len = size;
		error = insock_recv(c->c_sock, buf, &len, NULL, deadline - sbinuptime());
		if (error == EHOSTUNREACH || error == ECONNREFUSED)
			error = 0;
		else if (error == 0 && dhcp_parse(buf, len, c->c_xid, c->c_mac, r) == 0)
			break;
	} while (error == 0);
	free(buf, M_INET);
	return (error);
}

static void
dhc_say(const struct dhclient *c, const char *what, struct in_addr a)
{
	char buf[INET_ADDRSTRLEN];

	if (!c->c_quiet)
		printf("%s from %s\n", what, inet_ntoa_r(a, buf));
}

/* DISCOVER until an offer comes; it is kept in c_lease. */
static int
dhc_select(struct dhclient *c)
{
	struct in_addr all = { .s_addr = INADDR_BROADCAST };
	struct dhcp_reply r;
	int error = EWOULDBLOCK, i, wait;

	memset(&c->c_lease, 0, sizeof(c->c_lease));
	c->c_bound = 0;
	c->c_xid = arc4random();
	c->c_start = time_uptime;
	for (i = 0; i < DHC_DISCOVERS && error == EWOULDBLOCK; i++) {
		wait = MIN(1 << i, 8);
		if (!c->c_quiet)
			printf("DHCPDISCOVER on %s to 255.255.255.255 port %d interval %d\n",
			    c->c_name, DHCP_SERVER_PORT, wait);
		error = dhc_send(c, DHCP_DISCOVER, all);
		if (error != 0 && error != ENOBUFS)
			break;
		error = dhc_receive(c, wait, &r);
		if (error == 0 && (r.r_type != DHCP_OFFER || r.r_addr.s_addr == INADDR_ANY ||
		    r.r_server.s_addr == INADDR_ANY))
			error = EWOULDBLOCK;
	}
	if (error == 0) {
		c->c_lease = r;
		dhc_say(c, "DHCPOFFER", r.r_server);
	}
	return (error);
}

/*
 * REQUEST what is in c_lease, of all or of one server, `tries' times.  0; EACCES for a refusal;
 * EWOULDBLOCK.
 */
static int
dhc_request(struct dhclient *c, struct in_addr to, int tries, int wait)
{
	struct dhcp_reply r;
	char buf[INET_ADDRSTRLEN];
	int error = EWOULDBLOCK;

	for (; tries > 0 && error == EWOULDBLOCK && !c->c_stop; tries--) {
		if (!c->c_quiet)
			printf("DHCPREQUEST on %s to %s port %d\n", c->c_name, inet_ntoa_r(to, buf),
			    DHCP_SERVER_PORT);
		error = dhc_send(c, DHCP_REQUEST, to);
		if (error != 0)
			return (error);
		error = dhc_receive(c, wait, &r);
		if (error == 0 && r.r_type == DHCP_NAK)
			return (EACCES);
		if (error == 0 && (r.r_type != DHCP_ACK || r.r_addr.s_addr == INADDR_ANY))
			error = EWOULDBLOCK;
	}
	if (error != 0)
		return (error);
	if (r.r_server.s_addr == INADDR_ANY)
		r.r_server = c->c_lease.r_server;
	dhc_say(c, "DHCPACK", r.r_server);
	c->c_lease = r;
	c->c_bound = time_uptime;
	return (0);
}

/* The times of RFC 2131, 4.4.5, where the server gave none or senseless ones. */
static void
dhc_times(struct dhcp_reply *l)
{
	if (l->r_lease == 0)
		l->r_lease = 3600;
	if (l->r_t2 == 0 || l->r_t2 >= l->r_lease)
		l->r_t2 = l->r_lease / 8 * 7;
	if (l->r_t1 == 0 || l->r_t1 >= l->r_t2)
		l->r_t1 = l->r_lease / 2;
}

static void
dhc_set_mtu(if_t ifp, u_int mtu)
{
	struct ifreq ifr = { 0 };

	/* RFC 2132, 5.1: less than 68 is not legal; less than 576 is a mistake or an attack. */
	if (mtu < 576 || (int)mtu == if_getmtu(ifp))
		return;
	strlcpy(ifr.ifr_name, if_name(ifp), sizeof(ifr.ifr_name));
	ifr.ifr_mtu = mtu;
	(void)if_ioctl_kernel(ifp, SIOCSIFMTU, (caddr_t)&ifr);
}

/* Put the lease into force.  The address of an earlier one goes if it is another. */
static int
dhc_configure(struct dhclient *c, if_t ifp, struct in_addr old)
{
	struct in6_addr any = inet_map4(dhc_any()), a, gw;
	struct dhcp_reply *l = &c->c_lease;
	u_int i;
	int error;

	dhc_times(l);
	a = inet_map4(old);
	if (old.s_addr != INADDR_ANY && old.s_addr != l->r_addr.s_addr)
		(void)inet_addr_delete(ifp, &a);
	dhc_set_mtu(ifp, l->r_mtu);
	a = inet_map4(l->r_addr);
	error = inet_addr_add(ifp, &a, dhc_plen(l), 0, 0, 0);
	if (error != 0 && error != EEXIST)
		return (error);
	if (l->r_router.s_addr != INADDR_ANY) {
		gw = inet_map4(l->r_router);
		(void)inet_route_delete(&any, INET_V4PLEN(0), NULL, ifp);
		(void)inet_route_add(&any, INET_V4PLEN(0), &gw, ifp, RTF_STATIC, 0);
	}
	for (i = 0; i < MIN(l->r_ndns, INET_NDNS); i++)
		inet_dns[i] = inet_map4(l->r_dns[i]);
	return (0);
}

static void
dhc_unconfigure(struct dhclient *c, if_t ifp)
{
	struct in6_addr any = inet_map4(dhc_any()), a = inet_map4(c->c_lease.r_addr);

	(void)inet_route_delete(&any, INET_V4PLEN(0), NULL, ifp);
	(void)inet_addr_delete(ifp, &a);
	c->c_bound = 0;
}

/* From nothing to a lease in force. */
static int
dhc_acquire(struct dhclient *c, if_t ifp, struct in_addr old)
{
	struct in_addr all = { .s_addr = INADDR_BROADCAST };
	int error, tries = 3;

	error = dhc_open(c, ifp, false);
	if (error != 0)
		return (error);
	do {
		error = dhc_select(c);
		if (error == 0)
			error = dhc_request(c, all, DHC_REQUESTS, 4);
	} while (error == EACCES && --tries > 0);
	insock_close(c->c_sock);
	return (error != 0 ? error : dhc_configure(c, ifp, old));
}

/* Extend the lease; true if it was. */
static bool
dhc_renew(struct dhclient *c, if_t ifp, bool rebind, int *errorp)
{
	struct in_addr all = { .s_addr = INADDR_BROADCAST }, old = c->c_lease.r_addr;

	*errorp = dhc_open(c, ifp, true);
	if (*errorp != 0)
		return (false);
	c->c_xid = arc4random();
	c->c_start = time_uptime;
	*errorp = dhc_request(c, rebind ? all : c->c_lease.r_server, 2, 4);
	insock_close(c->c_sock);
	return (*errorp == 0 && dhc_configure(c, ifp, old) == 0);
}

/* One step of a bound client whose time has come. */
static void
dhc_step(struct dhclient *c, if_t ifp)
{
	time_t age = time_uptime - c->c_bound;
	int error = 0;

	if (c->c_bound != 0 && age < c->c_lease.r_t1)
		return;
	if (c->c_bound != 0 && age < c->c_lease.r_lease &&
	    (dhc_renew(c, ifp, age >= c->c_lease.r_t2, &error) || error != EACCES))
		return;
	if (c->c_bound != 0) {
		if_printf(ifp, "DHCP lease %s\n",
		    error == EACCES ? "refused by the server" : "expired");
		dhc_unconfigure(c, ifp);
	}
	if (dhc_acquire(c, ifp, dhc_any()) == 0)
		if_printf(ifp, "new DHCP lease\n");
}

/* Seconds to the next step. */
static int
dhc_wait(const struct dhclient *c)
{
	time_t age = time_uptime - c->c_bound;
	const struct dhcp_reply *l = &c->c_lease;
	time_t next;

	if (c->c_bound == 0)
		return (DHC_MINRENEW);
	if (age < l->r_t1)
		next = l->r_t1;
	else if (age < l->r_t2)
		next = MIN(age + (l->r_t2 - age) / 2 + 1, l->r_t2);
	else
		next = age + MAX((time_t)l->r_lease - age, 0) / 2;
	next = MAX(next - age, age < l->r_t1 ? 1 : MIN(DHC_MINRENEW, l->r_lease / 8 + 1));
	return (MIN(next, DHC_MAXSLEEP));
}

static void
dhc_thread(void *arg)
{
	struct dhclient *c = arg;
	if_t ifp;

	CURVNET_SET(vnet0);
	for (;;) {
		mtx_lock(&dhc_mtx);
		if (!c->c_stop)
			(void)msleep_sbt(c, &dhc_mtx, 0, "dhclient", dhc_wait(c) * SBT_1S, 0, 0);
		mtx_unlock(&dhc_mtx);
		ifp = c->c_stop ? NULL : ifunit_ref(c->c_name);
		if (ifp == NULL)
			break;
		dhc_step(c, ifp);
		if_rele(ifp);
	}
	CURVNET_RESTORE();
	mtx_lock(&dhc_mtx);
	LIST_REMOVE(c, c_link);
	mtx_unlock(&dhc_mtx);
	free(c, M_INET);
	kthread_exit();
}

/* End an earlier client of this interface; gives the address that it has. */
static struct in_addr
dhc_replace(const char *name)
{
	struct dhclient *c;
	struct in_addr old = dhc_any();

	mtx_lock(&dhc_mtx);
	LIST_FOREACH(c, &dhc_list, c_link) {
		if (strcmp(c->c_name, name) == 0 && !c->c_stop) {
			if (c->c_bound != 0)
				old = c->c_lease.r_addr;
			c->c_stop = true;
			wakeup(c);
		}
	}
	mtx_unlock(&dhc_mtx);
	return (old);
}

static void
dhc_departure(void *arg __unused, if_t ifp)
{
	(void)dhc_replace(if_name(ifp));
}
EVENTHANDLER_DEFINE(ifnet_departure_event, dhc_departure, NULL, EVENTHANDLER_PRI_ANY);

static int
dhc_wait_link(if_t ifp)
{
	int i;

	for (i = 0; i < DHC_LINKWAIT * 10 && if_getlinkstate(ifp) == LINK_STATE_DOWN; i++) {
		if (cmd_interrupted())
			return (EINTR);
		pause_sbt("dhclink", SBT_1S / 10, 0, 0);
	}
	return (if_getlinkstate(ifp) == LINK_STATE_DOWN ? ENETDOWN : 0);
}

static int
dhc_run(if_t ifp)
{
	struct dhclient *c;
	struct in_addr old;
	char buf[INET_ADDRSTRLEN];
	int error;

	error = inet_ifup(ifp);
	if (error == 0)
		error = dhc_wait_link(ifp);
	if (error != 0)
		return (cmd_err("dhclient", error, "%s", if_name(ifp)));
	old = dhc_replace(if_name(ifp));
	c = malloc(sizeof(*c), M_INET, M_WAITOK | M_ZERO);
	strlcpy(c->c_name, if_name(ifp), sizeof(c->c_name));
	memcpy(c->c_mac, if_getlladdr(ifp), sizeof(c->c_mac));
	error = dhc_acquire(c, ifp, old);
	if (error == 0) {
		printf("bound to %s -- renewal in %u seconds.\n",
		    inet_ntoa_r(c->c_lease.r_addr, buf), c->c_lease.r_t1);
		c->c_quiet = true;
		mtx_lock(&dhc_mtx);
		LIST_INSERT_HEAD(&dhc_list, c, c_link);
		mtx_unlock(&dhc_mtx);
		error = kthread_add(dhc_thread, c, NULL, NULL, 0, 0, "dhclient: %s", c->c_name);
		if (error == 0)
			return (0);
		mtx_lock(&dhc_mtx);
		LIST_REMOVE(c, c_link);
		mtx_unlock(&dhc_mtx);
	} else if (error == EWOULDBLOCK)
		printf("No DHCPOFFERS received.\n");
	free(c, M_INET);
	return (error == EWOULDBLOCK ? 1 : cmd_err("dhclient", error, "%s", if_name(ifp)));
}

static int
cmd_dhclient(int argc, char **argv)
{
	if_t ifp;
	int status;

	if (argc != 2)
		return (cmd_usage("dhclient"));
	ifp = ifunit_ref(argv[1]);
	if (ifp == NULL)
		return (cmd_err("dhclient", 0, "interface %s does not exist", argv[1]));
	if (if_gettype(ifp) != IFT_ETHER)
		status = cmd_err("dhclient", 0, "%s: not an Ethernet interface", argv[1]);
	else
		status = dhc_run(ifp);
	if_rele(ifp);
	return (status);
}
CONSOLE_NET_CMD(dhclient, cmd_dhclient, "configure an interface by DHCP",
    "dhclient interface");
