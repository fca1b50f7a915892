/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * arp(8) and ndp(8): the neighbour cache, of which each shows one IP version, with FreeBSD's words and
 * output.
 */

#include <netinet/inet_stack_tree.h>
#include <kern/console_tree.h>

/* The interface on whose link an address is. */
static if_t
nbrcmd_ifp(const struct in6_addr *a, u_int scope)
{
	struct inet_nexthop nh;

	if (scope != 0)
		return (ifnet_byindex(scope));
	if (inet_route_lookup(a, NULL, &nh) != 0 || (nh.nh_flags & RTF_GATEWAY) != 0)
		return (NULL);
	return (nh.nh_ifp);
}

static void
nbrcmd_show_arp(const struct inet_nbr *n)
{
	char buf[INET_ADDRSTRLEN_MAX];

	printf("? (%s) at ", inet_addr_print(buf, sizeof(buf), &n->n_addr, NULL));
	if (n->n_state == NBR_INCOMPLETE)
		printf("(incomplete)");
	else
		printf("%6D", n->n_lladdr, ":");
	printf(" on %s", if_name(n->n_ifp));
	if (n->n_permanent)
		printf(" permanent");
	else if (n->n_state != NBR_INCOMPLETE)
		printf(" expires in %jd seconds", (intmax_t)MAX(n->n_expire - time_uptime, 0));
	printf(" [ethernet]\n");
}

static void
nbrcmd_show_ndp(const struct inet_nbr *n)
{
	static const char states[] = "IRSDP";
	char addr[INET_ADDRSTRLEN_MAX], ll[20];

	if (n->n_state == NBR_INCOMPLETE)
		strlcpy(ll, "(incomplete)", sizeof(ll));
	else
		snprintf(ll, sizeof(ll), "%6D", n->n_lladdr, ":");
	inet_addr_print(addr, sizeof(addr), &n->n_addr, n->n_ifp);
	printf("%-36s %-17s %6s ", addr, ll, if_name(n->n_ifp));
	if (n->n_permanent)
		printf("%-9s", "permanent");
	else
		printf("%-9jd", (intmax_t)MAX(n->n_expire - time_uptime, 0));
	printf(" %c%s\n", states[n->n_state], n->n_router ? " R" : "");
}

/* All entries of one IP version, or one address; how many. */
static u_int
nbrcmd_list(bool v4, const struct in6_addr *only)
{
	struct epoch_tracker et;
	struct inet_nbr nbr;
	u_int i, n = 0;

	NET_EPOCH_ENTER(et);
	for (i = 0; inet_nbr_nth(i, &nbr); i++) {
		if (inet_is4(&nbr.n_addr) != v4 || (only != NULL && !inet_same(only, &nbr.n_addr)))
			continue;
		if (v4)
			nbrcmd_show_arp(&nbr);
		else
			nbrcmd_show_ndp(&nbr);
		n++;
	}
	NET_EPOCH_EXIT(et);
	return (n);
}

static int
nbrcmd_set(const char *name, const char *text, const char *ether)
{
	struct epoch_tracker et;
	struct in6_addr a;
	uint8_t mac[ETHER_ADDR_LEN];
	u_int scope;
	if_t ifp;
	int error;

	if (inet_addr_parse(text, &a, &scope) != 0 || inet_ether_parse(ether, mac) != 0)
		return (cmd_err(name, 0, "%s %s: bad value", text, ether));
	NET_EPOCH_ENTER(et);
	ifp = nbrcmd_ifp(&a, scope);
	error = ifp == NULL ? ENETUNREACH : inet_nbr_set(ifp, &a, mac);
	NET_EPOCH_EXIT(et);
	return (error != 0 ? cmd_err(name, error, "set %s", text) : 0);
}

static int
nbrcmd_delete(const char *name, const char *text)
{
	struct inet_nbr nbr;
	struct in6_addr a;
	u_int scope, i;
	bool hit = false;
	char buf[INET_ADDRSTRLEN_MAX];

	if (inet_addr_parse(text, &a, &scope) != 0)
		return (cmd_err(name, 0, "%s: bad value", text));
	for (i = 0; inet_nbr_nth(i, &nbr); i++) {
		if (!inet_same(&nbr.n_addr, &a) ||
		    (scope != 0 && scope != (u_int)if_getindex(nbr.n_ifp)))
			continue;
		if (inet_nbr_delete(nbr.n_ifp, &a) == 0)
			hit = true;
		break;
	}
	inet_addr_print(buf, sizeof(buf), &a, NULL);
	if (!hit)
		return (cmd_err(name, 0, "delete %s: No such file or directory", buf));
	printf("%s (%s) deleted\n", buf, buf);
	return (0);
}

static void
nbrcmd_delete_all(bool v4)
{
	struct inet_nbr nbr;
	u_int i = 0;

	while (inet_nbr_nth(i, &nbr)) {
		if (inet_is4(&nbr.n_addr) != v4 || inet_nbr_delete(nbr.n_ifp, &nbr.n_addr) != 0)
			i++;
	}
}

/* The two commands differ in the IP version and in how an entry is printed. */
static int
nbrcmd(int argc, char **argv, bool v4)
{
	struct in6_addr a;
	u_int scope;

	if (argc == 2 && (strcmp(argv[1], "-a") == 0 || strcmp(argv[1], "-an") == 0 ||
	    strcmp(argv[1], "-na") == 0)) {
		if (!v4)
			printf("%-36s %-17s %6s %-9s S Flags\n", "Neighbor", "Linklayer Address",
			    "Netif", "Expire");
		(void)nbrcmd_list(v4, NULL);
		return (0);
	}
	if (argc == 4 && strcmp(argv[1], "-s") == 0)
		return (nbrcmd_set(argv[0], argv[2], argv[3]));
	if ((argc == 3 && strcmp(argv[1], "-d") == 0 && strcmp(argv[2], "-a") == 0) ||
	    (argc == 2 && (strcmp(argv[1], "-da") == 0 || strcmp(argv[1], "-ad") == 0))) {
		nbrcmd_delete_all(v4);
		return (0);
	}
	if (argc == 3 && strcmp(argv[1], "-d") == 0)
		return (nbrcmd_delete(argv[0], argv[2]));
	if (argc != 2 || argv[1][0] == '-' || inet_addr_parse(argv[1], &a, &scope) != 0)
		return (cmd_usage(argv[0]));
	if (nbrcmd_list(v4, &a) != 0)
		return (0);
	printf("%s (%s) -- no entry\n", argv[1], argv[1]);
	return (1);
}

static int
cmd_arp(int argc, char **argv)
{
	return (nbrcmd(argc, argv, true));
}
CONSOLE_NET_CMD(arp, cmd_arp, "show or change IPv4's neighbours",
    "arp host | -a | -d host | -d -a | -s host ether_addr");

static int
cmd_ndp(int argc, char **argv)
{
	return (nbrcmd(argc, argv, false));
}
CONSOLE_NET_CMD(ndp, cmd_ndp, "show or change IPv6's neighbours",
    "ndp host | -a | -d host | -d -a | -s host ether_addr");
