/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * ifconfig: show and configure interfaces, with FreeBSD's words and output.
 *
 * The words after the interface's name are worked off from left to right by a table; an address and
 * what qualifies it (netmask, prefixlen, alias, -alias) are collected and applied at the end.
 *
 * Gaps: media selection, groups.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet6/in6_var.h>
#include <net/if_bridgevar.h>
#include <net/if_clone.h>
#include <net/if_media.h>
#include <net/if_vlan_var.h>
#include <net/if_tree.h>
#include <kern/console_tree.h>

#define	IFC_MAXIFS	64

#define	IFC_FLAGBITS							\
	"\020\1UP\2BROADCAST\3DEBUG\4LOOPBACK\5POINTOPOINT\7RUNNING\10NOARP"	\
	"\11PROMISC\12ALLMULTI\13OACTIVE\14SIMPLEX\15LINK0\16LINK1\17LINK2"	\
	"\20MULTICAST\22PPROMISC\23MONITOR\24STATICARP\25STICKYARP\30PALLMULTI"
#define	IFC_CAPBITS							\
	"\020\1RXCSUM\2TXCSUM\3NETCONS\4VLAN_MTU\5VLAN_HWTAGGING\6JUMBO_MTU\7POLLING" \
	"\10VLAN_HWCSUM\11TSO4\12TSO6\13LRO\14WOL_UCAST\15WOL_MCAST\16WOL_MAGIC"	\
	"\17TOE4\20TOE6\21VLAN_HWFILTER\23VLAN_HWTSO\24LINKSTATE\25NETMAP"		\
	"\26RXCSUM_IPV6\27TXCSUM_IPV6\30HWSTATS\31TXRTLMT\32HWRXTSTMP\33MEXTPG"

/* What a run of the command has collected. */
struct ifc {
	if_t		i_ifp;
	bool		i_inet6;	/* the family that the next address is of */
	bool		i_have;		/* an address was given */
	bool		i_alias;
	bool		i_delete;
	struct in6_addr	i_addr;
	int		i_plen;		/* -1: not given */
	struct vlanreq	i_vlan;		/* what was given of it */
};

static const struct ifmedia_description ifc_media_names[] = IFM_SUBTYPE_ETHERNET_DESCRIPTIONS;
static const struct ifmedia_description ifc_media_shared[] = IFM_SUBTYPE_SHARED_DESCRIPTIONS;

/* ---- Showing ---------------------------------------------------------------------------- */

static const char *
ifc_media_name(int word)
{
	const struct ifmedia_description *d;

	for (d = ifc_media_shared; d->ifmt_string != NULL; d++) {
		if (d->ifmt_word == IFM_SUBTYPE(word))
			return (d->ifmt_string);
	}
	for (d = ifc_media_names; d->ifmt_string != NULL; d++) {
		if (d->ifmt_word == IFM_SUBTYPE(word))
			return (d->ifmt_string);
	}
	return ("<unknown subtype>");
}

static const char *
ifc_media_duplex(int word)
{
	return ((word & IFM_FDX) != 0 ? " <full-duplex>" :
	    (word & IFM_HDX) != 0 ? " <half-duplex>" : "");
}

static void
ifc_show_media(if_t ifp)
{
	struct ifmediareq ifmr = { 0 };

	strlcpy(ifmr.ifm_name, if_name(ifp), sizeof(ifmr.ifm_name));
	if (if_ioctl_kernel(ifp, SIOCGIFXMEDIA, (caddr_t)&ifmr) != 0 &&
	    if_ioctl_kernel(ifp, SIOCGIFMEDIA, (caddr_t)&ifmr) != 0)
		return;
	if (IFM_TYPE(ifmr.ifm_current) != IFM_ETHER)
		return;
	printf("\tmedia: Ethernet %s%s", ifc_media_name(ifmr.ifm_current),
	    ifc_media_duplex(ifmr.ifm_current));
	if (ifmr.ifm_active != ifmr.ifm_current)
		printf(" (%s%s)", ifc_media_name(ifmr.ifm_active),
		    ifc_media_duplex(ifmr.ifm_active));
	printf("\n");
	if ((ifmr.ifm_status & IFM_AVALID) != 0)
		printf("\tstatus: %s\n",
		    (ifmr.ifm_status & IFM_ACTIVE) != 0 ? "active" : "no carrier");
}

static void
ifc_show_inet(if_t ifp, const struct inet_addr *ia)
{
	struct in_addr a = inet_unmap4(&ia->ad_addr), mask = inet_mask4(ia->ad_plen);
	char buf[INET_ADDRSTRLEN];

	printf("\tinet %s netmask 0x%08x", inet_ntoa_r(a, buf), ntohl(mask.s_addr));
	if ((if_getflags(ifp) & IFF_BROADCAST) != 0) {
		a.s_addr |= ~mask.s_addr;
		printf(" broadcast %s", inet_ntoa_r(a, buf));
	}
	printf("\n");
}

static void
ifc_show_inet6(if_t ifp, const struct inet_addr *ia)
{
	static const struct { int flag; const char *name; } flags[] = {
		{ IN6_IFF_TENTATIVE, "tentative" }, { IN6_IFF_DUPLICATED, "duplicated" },
		{ IN6_IFF_DETACHED, "detached" }, { IN6_IFF_DEPRECATED, "deprecated" },
		{ IN6_IFF_AUTOCONF, "autoconf" },
	};
	char buf[INET_ADDRSTRLEN_MAX];
	u_int i;

	printf("\tinet6 %s prefixlen %d", inet_addr_print(buf, sizeof(buf), &ia->ad_addr, ifp),
	    ia->ad_plen);
	for (i = 0; i < nitems(flags); i++) {
		if ((ia->ad_flags & flags[i].flag) != 0)
			printf(" %s", flags[i].name);
	}
	if (IN6_IS_ADDR_LINKLOCAL(&ia->ad_addr))
		printf(" scopeid 0x%x", if_getindex(ifp));
	printf("\n");
}

/* The members of a bridge; other interfaces don't know the request. */
static void
ifc_show_bridge(if_t ifp)
{
	struct ifbreq req[IFC_MAXIFS];
	struct ifbifconf list = { .ifbic_len = sizeof(req), .ifbic_req = req };
	struct ifdrv ifd = { .ifd_cmd = BRDGGIFS, .ifd_len = sizeof(list), .ifd_data = &list };
	u_int i;

	if (if_ioctl_kernel(ifp, SIOCGDRVSPEC, (caddr_t)&ifd) != 0)
		return;
	for (i = 0; i < list.ifbic_len / sizeof(req[0]); i++)
		printf("\tmember: %s addresses %u\n", req[i].ifbr_ifsname, req[i].ifbr_addrcnt);
}

static void
ifc_show_vlan(if_t ifp)
{
	struct vlanreq vlr = { 0 };
	struct ifreq ifr = { .ifr_ifru.ifru_data = (caddr_t)&vlr };

	if (if_ioctl_kernel(ifp, SIOCGETVLAN, (caddr_t)&ifr) == 0 && vlr.vlr_tag != 0)
		printf("\tvlan: %u vlanproto: 802.1q parent interface: %s\n", vlr.vlr_tag,
		    vlr.vlr_parent);
}

static void
ifc_show(if_t ifp)
{
	struct inet_addr ia;
	u_int n;

	printf("%s: flags=%b metric 0 mtu %d\n", if_name(ifp),
	    if_getflags(ifp) | if_getdrvflags(ifp), IFC_FLAGBITS, if_getmtu(ifp));
	if (if_getcapenable(ifp) != 0)
		printf("\toptions=%b\n", if_getcapenable(ifp), IFC_CAPBITS);
	if (if_gettype(ifp) == IFT_ETHER)
		printf("\tether %6D\n", if_getlladdr(ifp), ":");
	for (n = 0; inet_addr_nth(ifp, n, &ia); n++) {
		if (inet_is4(&ia.ad_addr))
			ifc_show_inet(ifp, &ia);
	}
	for (n = 0; inet_addr_nth(ifp, n, &ia); n++) {
		if (!inet_is4(&ia.ad_addr))
			ifc_show_inet6(ifp, &ia);
	}
	ifc_show_bridge(ifp);
	ifc_show_vlan(ifp);
	ifc_show_media(ifp);
}

struct ifc_list {
	if_t		l_ifs[IFC_MAXIFS];
	u_int		l_n;
};

static int
ifc_collect(if_t ifp, void *arg)
{
	struct ifc_list *l = arg;

	if (l->l_n < IFC_MAXIFS && if_try_ref(ifp))
		l->l_ifs[l->l_n++] = ifp;
	return (0);
}

/* All interfaces: in full, or their names alone. */
static void
ifc_show_all(bool names)
{
	struct epoch_tracker et;
	struct ifc_list *l;
	u_int i;

	l = malloc(sizeof(*l), M_INET, M_WAITOK | M_ZERO);
	NET_EPOCH_ENTER(et);
	(void)if_foreach(ifc_collect, l);
	NET_EPOCH_EXIT(et);
	for (i = 0; i < l->l_n; i++) {
		if (names)
			printf("%s%s", i != 0 ? " " : "", if_name(l->l_ifs[i]));
		else
			ifc_show(l->l_ifs[i]);
		if_rele(l->l_ifs[i]);
	}
	if (names)
		printf("\n");
	free(l, M_INET);
}

/* ---- Setting ---------------------------------------------------------------------------- */

static int
ifc_set_flag(struct ifc *c, int set, int clear)
{
	return (inet_ifflags(c->i_ifp, set, clear));
}

static int
ifc_set_cap(struct ifc *c, int set, int clear)
{
	struct ifreq ifr = { 0 };

	strlcpy(ifr.ifr_name, if_name(c->i_ifp), sizeof(ifr.ifr_name));
	ifr.ifr_reqcap = (if_getcapenable(c->i_ifp) | set) & ~clear & if_getcapabilities(c->i_ifp);
	return (if_ioctl_kernel(c->i_ifp, SIOCSIFCAP, (caddr_t)&ifr));
}

static const struct ifc_word {
	const char	*w_name;
	int		(*w_func)(struct ifc *, int, int);
	int		w_set;
	int		w_clear;
} ifc_words[] = {
	{ "up", ifc_set_flag, IFF_UP, 0 },
	{ "down", ifc_set_flag, 0, IFF_UP },
	{ "promisc", ifc_set_flag, IFF_PPROMISC, 0 },
	{ "-promisc", ifc_set_flag, 0, IFF_PPROMISC },
	{ "allmulti", ifc_set_flag, IFF_PALLMULTI, 0 },
	{ "-allmulti", ifc_set_flag, 0, IFF_PALLMULTI },
	{ "debug", ifc_set_flag, IFF_DEBUG, 0 },
	{ "-debug", ifc_set_flag, 0, IFF_DEBUG },
	{ "arp", ifc_set_flag, 0, IFF_NOARP },
	{ "-arp", ifc_set_flag, IFF_NOARP, 0 },
};

static const struct { const char *name; int cap; } ifc_caps[] = {
	{ "rxcsum", IFCAP_RXCSUM }, { "txcsum", IFCAP_TXCSUM },
	{ "rxcsum6", IFCAP_RXCSUM_IPV6 }, { "txcsum6", IFCAP_TXCSUM_IPV6 },
	{ "tso", IFCAP_TSO }, { "tso4", IFCAP_TSO4 }, { "tso6", IFCAP_TSO6 },
	{ "lro", IFCAP_LRO }, { "vlanmtu", IFCAP_VLAN_MTU },
	{ "vlanhwtag", IFCAP_VLAN_HWTAGGING }, { "vlanhwcsum", IFCAP_VLAN_HWCSUM },
	{ "vlanhwtso", IFCAP_VLAN_HWTSO }, { "vlanhwfilter", IFCAP_VLAN_HWFILTER },
	{ "txrtlmt", IFCAP_TXRTLMT }, { "mextpg", IFCAP_MEXTPG },
};

/* A word without an argument.  ENOENT if it is none. */
static int
ifc_simple_word(struct ifc *c, const char *word)
{
	bool off = word[0] == '-';
	u_int i;

	for (i = 0; i < nitems(ifc_words); i++) {
		if (strcmp(word, ifc_words[i].w_name) == 0)
			return (ifc_words[i].w_func(c, ifc_words[i].w_set, ifc_words[i].w_clear));
	}
	for (i = 0; i < nitems(ifc_caps); i++) {
		if (strcmp(word + off, ifc_caps[i].name) == 0)
			return (ifc_set_cap(c, off ? 0 : ifc_caps[i].cap,
			    off ? ifc_caps[i].cap : 0));
	}
	if (strcmp(word, "alias") == 0 || strcmp(word, "add") == 0)
		c->i_alias = true;
	else if (strcmp(word, "-alias") == 0 || strcmp(word, "delete") == 0 ||
	    strcmp(word, "remove") == 0)
		c->i_delete = true;
	else if (strcmp(word, "inet") == 0 || strcmp(word, "inet6") == 0)
		c->i_inet6 = word[4] == '6';
	else
		return (ENOENT);
	return (0);
}

static int
ifc_set_mtu(struct ifc *c, const char *arg)
{
	struct ifreq ifr = { 0 };
	char *end;

	strlcpy(ifr.ifr_name, if_name(c->i_ifp), sizeof(ifr.ifr_name));
	ifr.ifr_mtu = strtol(arg, &end, 10);
	if (*arg == '\0' || *end != '\0')
		return (EINVAL);
	return (if_ioctl_kernel(c->i_ifp, SIOCSIFMTU, (caddr_t)&ifr));
}

static int
ifc_set_ether(struct ifc *c, const char *arg)
{
	struct ifreq ifr = { 0 };

	strlcpy(ifr.ifr_name, if_name(c->i_ifp), sizeof(ifr.ifr_name));
	ifr.ifr_addr.sa_len = ETHER_ADDR_LEN;
	ifr.ifr_addr.sa_family = AF_LINK;
	if (inet_ether_parse(arg, (uint8_t *)ifr.ifr_addr.sa_data) != 0)
		return (EINVAL);
	return (if_ioctl_kernel(c->i_ifp, SIOCSIFLLADDR, (caddr_t)&ifr));
}

/* 255.255.255.0 or 0xffffff00; the ones have to be in front. */
static int
ifc_set_netmask(struct ifc *c, const char *arg)
{
	struct in_addr a;
	char *end;
	int plen;

	if (strncmp(arg, "0x", 2) == 0) {
		a.s_addr = htonl(strtoul(arg, &end, 16));
		if (*end != '\0')
			return (EINVAL);
	} else if (inet_pton(AF_INET, arg, &a) != 1)
		return (EINVAL);
	for (plen = 0; plen <= 32; plen++) {
		if (inet_mask4(plen).s_addr == a.s_addr) {
			c->i_plen = plen;
			return (0);
		}
	}
	return (EINVAL);
}

static int
ifc_set_prefixlen(struct ifc *c, const char *arg)
{
	char *end;

	c->i_plen = strtol(arg, &end, 10);
	return (*arg == '\0' || *end != '\0' || c->i_plen < 0 || c->i_plen > 128 ? EINVAL : 0);
}

static int
ifc_bridge(struct ifc *c, const char *name, u_long cmd)
{
	struct ifbreq req = { 0 };
	struct ifdrv ifd = { .ifd_cmd = cmd, .ifd_len = sizeof(req), .ifd_data = &req };

	strlcpy(req.ifbr_ifsname, name, sizeof(req.ifbr_ifsname));
	return (if_ioctl_kernel(c->i_ifp, SIOCSDRVSPEC, (caddr_t)&ifd));
}

static int
ifc_bridge_add(struct ifc *c, const char *name)
{
	return (ifc_bridge(c, name, BRDGADD));
}

static int
ifc_bridge_delete(struct ifc *c, const char *name)
{
	return (ifc_bridge(c, name, BRDGDEL));
}

/* A VLAN's number and its parent, in any order. */
static int
ifc_set_vlan(struct ifc *c)
{
	struct ifreq ifr = { .ifr_ifru.ifru_data = (caddr_t)&c->i_vlan };

	if (c->i_vlan.vlr_tag == 0 || c->i_vlan.vlr_parent[0] == '\0')
		return (0);
	return (if_ioctl_kernel(c->i_ifp, SIOCSETVLAN, (caddr_t)&ifr));
}

static int
ifc_vlan_number(struct ifc *c, const char *arg)
{
	char *end;
	u_long n = strtoul(arg, &end, 10);

	if (*arg == '\0' || *end != '\0' || n == 0 || n > 4094)
		return (EINVAL);
	c->i_vlan.vlr_tag = n;
	return (ifc_set_vlan(c));
}

static int
ifc_vlan_parent(struct ifc *c, const char *name)
{
	strlcpy(c->i_vlan.vlr_parent, name, sizeof(c->i_vlan.vlr_parent));
	return (ifc_set_vlan(c));
}

static const struct {
	const char	*name;
	int		(*func)(struct ifc *, const char *);
} ifc_argwords[] = {
	{ "mtu", ifc_set_mtu }, { "ether", ifc_set_ether }, { "lladdr", ifc_set_ether },
	{ "link", ifc_set_ether }, { "netmask", ifc_set_netmask },
	{ "prefixlen", ifc_set_prefixlen }, { "addm", ifc_bridge_add },
	{ "deletem", ifc_bridge_delete }, { "vlan", ifc_vlan_number },
	{ "vlandev", ifc_vlan_parent },
};

/* A.B.C.D, A.B.C.D/len or an IPv6 address with or without a length. */
static int
ifc_set_address(struct ifc *c, const char *word)
{
	char buf[INET_ADDRSTRLEN_MAX], *slash;
	u_int scope;

	if (strlcpy(buf, word, sizeof(buf)) >= sizeof(buf))
		return (EINVAL);
	slash = strchr(buf, '/');
	if (slash != NULL) {
		*slash = '\0';
		if (ifc_set_prefixlen(c, slash + 1) != 0)
			return (EINVAL);
	}
	if (inet_addr_parse(buf, &c->i_addr, &scope) != 0)
		return (EINVAL);
	c->i_have = true;
	return (0);
}

/* The prefix length of an IPv4 address's class, when none was given. */
static int
ifc_class_plen(const struct in6_addr *a)
{
	uint8_t first = a->s6_addr[12];

	return (first < 128 ? 8 : first < 192 ? 16 : 24);
}

/* Without alias a new IPv4 address takes the place of those that are there. */
static void
ifc_remove_inet(struct ifc *c)
{
	struct inet_addr ia;
	u_int n = 0;

	while (inet_addr_nth(c->i_ifp, n, &ia)) {
		if (!inet_is4(&ia.ad_addr))
			n++;
		else if (inet_addr_delete(c->i_ifp, &ia.ad_addr) != 0)
			break;
	}
}

static int
ifc_apply(struct ifc *c)
{
	struct inet_addr ia;
	u_int n;
	int error;

	if (c->i_delete && !c->i_have) {
		for (n = 0; inet_addr_nth(c->i_ifp, n, &ia); n++) {
			if (inet_is4(&ia.ad_addr) != c->i_inet6)
				return (inet_addr_delete(c->i_ifp, &ia.ad_addr));
		}
		return (EADDRNOTAVAIL);
	}
	if (!c->i_have)
		return (0);
	if (c->i_delete)
		return (inet_addr_delete(c->i_ifp, &c->i_addr));
	if (c->i_plen < 0)
		c->i_plen = inet_is4(&c->i_addr) ? ifc_class_plen(&c->i_addr) : 64;
	if (inet_is4(&c->i_addr) && !c->i_alias)
		ifc_remove_inet(c);
	error = inet_addr_add(c->i_ifp, &c->i_addr, c->i_plen, 0, 0, 0);
	if (error == 0 || error == EEXIST)
		error = inet_ifup(c->i_ifp);
	return (error);
}

static int
ifc_configure(if_t ifp, int argc, char **argv)
{
	struct ifc c = { .i_ifp = ifp, .i_plen = -1 };
	int error = 0, i;
	u_int k;

	for (i = 0; i < argc && error == 0; i++) {
		error = ifc_simple_word(&c, argv[i]);
		if (error != ENOENT)
			continue;
		for (k = 0; k < nitems(ifc_argwords); k++) {
			if (strcmp(argv[i], ifc_argwords[k].name) == 0)
				break;
		}
		if (k < nitems(ifc_argwords)) {
			if (i + 1 == argc)
				return (cmd_err("ifconfig", 0, "'%s' requires argument", argv[i]));
			error = ifc_argwords[k].func(&c, argv[++i]);
		} else if (ifc_set_address(&c, argv[i]) != 0)
			return (cmd_err("ifconfig", 0, "%s: bad value", argv[i]));
		else
			error = 0;
	}
	if (error != 0)
		return (cmd_err("ifconfig", error, "%s: %s", if_name(ifp), argv[i - 1]));
	error = ifc_apply(&c);
	return (error != 0 ? cmd_err("ifconfig", error, "%s", if_name(ifp)) : 0);
}

/* `ifconfig NAME create' and `destroy': -1 if it is neither. */
static int
ifc_clone(const char *name, const char *word)
{
	char made[IFNAMSIZ];
	int error;

	strlcpy(made, name, sizeof(made));
	if (strcmp(word, "create") == 0) {
		error = if_clone_create(made, sizeof(made), NULL);
		if (error == 0 && strcmp(made, name) != 0)
			printf("%s\n", made);
	} else if (strcmp(word, "destroy") == 0)
		error = if_clone_destroy(made);
	else
		return (-1);
	return (error != 0 ? cmd_err("ifconfig", error, "%s %s", name, word) : 0);
}

static int
cmd_ifconfig(int argc, char **argv)
{
	int status = 0;
	if_t ifp;

	if (argc == 1 || (argc == 2 &&
	    (strcmp(argv[1], "-a") == 0 || strcmp(argv[1], "-l") == 0))) {
		ifc_show_all(argc == 2 && argv[1][1] == 'l');
		return (0);
	}
	if (argv[1][0] == '-')
		return (cmd_usage("ifconfig"));
	if (argc > 2 && (status = ifc_clone(argv[1], argv[2])) != -1) {
		if (status != 0 || argc == 3)
			return (status);
		argv[2] = argv[1];
		argv++;
		argc--;
	}
	ifp = ifunit_ref(argv[1]);
	if (ifp == NULL)
		return (cmd_err("ifconfig", 0, "interface %s does not exist", argv[1]));
	if (argc == 2)
		ifc_show(ifp);
	else
		status = ifc_configure(ifp, argc - 2, argv + 2);
	if_rele(ifp);
	return (status);
}
CONSOLE_NET_CMD(ifconfig, cmd_ifconfig, "show or configure network interfaces",
    "ifconfig [-a | -l | interface [[inet | inet6] address[/len]] "
    "[netmask mask] [prefixlen n] [alias | -alias] [up | down] [mtu n] [ether addr] "
    "[create | destroy] [addm if] [deletem if] [vlan n vlandev if] "
    "[-]promisc [-]rxcsum [-]txcsum [-]rxcsum6 [-]txcsum6 [-]tso [-]lro [-]vlanhwtag ...]");
