/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * route(8): the routing table, with FreeBSD's words and output.
 *
 * Gaps: only add, delete and get; no networks by name.
 */

#include <netinet/inet_stack_tree.h>
#include <kern/console_tree.h>

/* "default", an address, or a prefix address/len; *plen is of the mapped form. */
static int
routecmd_dest(const char *text, bool inet6, struct in6_addr *a, int *plen)
{
	char buf[INET_ADDRSTRLEN_MAX], *slash, *end;
	u_int scope;

	if (strcmp(text, "default") == 0) {
		*a = inet6 ? in6addr_any : inet_map4((struct in_addr){ INADDR_ANY });
		*plen = inet6 ? 0 : INET_V4PLEN(0);
		return (0);
	}
	if (strlcpy(buf, text, sizeof(buf)) >= sizeof(buf))
		return (EINVAL);
	slash = strchr(buf, '/');
	if (slash != NULL)
		*slash++ = '\0';
	if (inet_addr_parse(buf, a, &scope) != 0)
		return (EINVAL);
	*plen = 128;
	if (slash == NULL)
		return (0);
	*plen = strtol(slash, &end, 10);
	if (*slash == '\0' || *end != '\0' || *plen < 0 || *plen > (inet_is4(a) ? 32 : 128))
		return (EINVAL);
	if (inet_is4(a))
		*plen = INET_V4PLEN(*plen);
	return (0);
}

static int
routecmd_get(const struct in6_addr *dst)
{
	char buf[INET_ADDRSTRLEN_MAX];
	struct epoch_tracker et;
	struct inet_nexthop nh;
	int error;

	NET_EPOCH_ENTER(et);
	error = inet_route_lookup(dst, NULL, &nh);
	if (error == 0) {
		printf("   route to: %s\n", inet_addr_print(buf, sizeof(buf), dst, NULL));
		if ((nh.nh_flags & RTF_GATEWAY) != 0)
			printf("    gateway: %s\n",
			    inet_addr_print(buf, sizeof(buf), &nh.nh_addr, nh.nh_ifp));
		printf("  interface: %s\n        mtu: %u\n", if_name(nh.nh_ifp), nh.nh_mtu);
	}
	NET_EPOCH_EXIT(et);
	if (error != 0)
		printf("route: route has not been found\n");
	return (error != 0);
}

/* add or delete; gw may be missing for delete. */
static int
routecmd_change(bool add, const char *text, const struct in6_addr *dst, int plen,
    const char *gwtext)
{
	struct in6_addr gw;
	struct epoch_tracker et;
	u_int scope = 0;
	int error;

	if (gwtext != NULL && inet_addr_parse(gwtext, &gw, &scope) != 0)
		return (cmd_err("route", 0, "bad address: %s", gwtext));
	NET_EPOCH_ENTER(et);
	if (add)
		error = inet_route_add(dst, plen, &gw, scope != 0 ? ifnet_byindex(scope) : NULL,
		    RTF_STATIC, 0);
	else
		error = inet_route_delete(dst, plen, gwtext != NULL ? &gw : NULL, NULL);
	NET_EPOCH_EXIT(et);
	printf("%s net %s%s%s", add ? "add" : "delete", text, gwtext != NULL ? ": gateway " : "",
	    gwtext != NULL ? gwtext : "");
	printf(error == EEXIST ? ": route already in table\n" :
	    error == ESRCH ? ": not in table\n" :
	    error != 0 ? ": Network is unreachable\n" : "\n");
	return (error != 0);
}

static int
cmd_route(int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	struct in6_addr dst;
	bool inet6 = false;
	const char *verb;
	int ch, i, plen;

	while ((ch = cmd_getopt(&g, argc, argv, "46n")) != -1) {
		if (ch == '?')
			return (cmd_usage("route"));
		inet6 |= ch == '6';
	}
	i = g.optind;
	if (argc - i < 2)
		return (cmd_usage("route"));
	verb = argv[i++];
	if (i < argc && (strcmp(argv[i], "-inet6") == 0 || strcmp(argv[i], "-6") == 0)) {
		inet6 = true;
		i++;
	}
	if (i < argc && (strcmp(argv[i], "-net") == 0 || strcmp(argv[i], "-host") == 0))
		i++;
	if (i == argc || routecmd_dest(argv[i], inet6, &dst, &plen) != 0)
		return (cmd_err("route", 0, "bad address: %s", i < argc ? argv[i] : ""));
	if (strcmp(verb, "get") == 0)
		return (routecmd_get(&dst));
	if (strcmp(verb, "add") == 0 && argc - i == 2)
		return (routecmd_change(true, argv[i], &dst, plen, argv[i + 1]));
	if (strcmp(verb, "delete") == 0 || strcmp(verb, "del") == 0)
		return (routecmd_change(false, argv[i], &dst, plen,
		    i + 1 < argc ? argv[i + 1] : NULL));
	return (cmd_usage("route"));
}
CONSOLE_NET_CMD(route, cmd_route, "show or change a route",
    "route [-6n] add | delete | get [-net | -host] "
    "default | address[/len] [gateway]");
