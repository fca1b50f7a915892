/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * vtnet(4): which features are negotiated with a device (VirtIO 1.3, 5.1.3):
 * those of a table, without those that tunables disable, and without those that
 * are of no use since another is missing.
 *
 * Gaps.  No HASH_TUNNEL, HOST_USO (the stack has no such packets), RSC_EXT,
 * STANDBY.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/endian.h>
#include <sys/sysctl.h>
#include <net/ethernet.h>
#include <machine/bus.h>

#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/virtio/virtio.h>
#include <dev/virtio/network/virtio_net.h>
#include <dev/virtio/network/if_vtnetvar.h>

/* What this driver uses (5.1.3). */
static const struct virtio_feature vtnet_features[] = {
	{ VIRTIO_F_ANY_LAYOUT, "ANY_LAYOUT", 0 },
	{ VIRTIO_NET_F_CSUM, "CSUM", 0 },
	{ VIRTIO_NET_F_GUEST_CSUM, "GUEST_CSUM", 0 },
	{ VIRTIO_NET_F_CTRL_GUEST_OFFLOADS, "CTRL_GUEST_OFFLOADS", 0 },
	{ VIRTIO_NET_F_MTU, "MTU", 0 },
	{ VIRTIO_NET_F_MAC, "MAC", 0 },
	{ VIRTIO_NET_F_GUEST_TSO4, "GUEST_TSO4", 0 },
	{ VIRTIO_NET_F_GUEST_TSO6, "GUEST_TSO6", 0 },
	{ VIRTIO_NET_F_GUEST_ECN, "GUEST_ECN", 0 },
	{ VIRTIO_NET_F_GUEST_USO4, "GUEST_USO4", 0 },
	{ VIRTIO_NET_F_GUEST_USO6, "GUEST_USO6", 0 },
	{ VIRTIO_NET_F_HOST_TSO4, "HOST_TSO4", 0 },
	{ VIRTIO_NET_F_HOST_TSO6, "HOST_TSO6", 0 },
	{ VIRTIO_NET_F_HOST_ECN, "HOST_ECN", 0 },
	{ VIRTIO_NET_F_MRG_RXBUF, "MRG_RXBUF", 0 },
	{ VIRTIO_NET_F_STATUS, "STATUS", 0 },
	{ VIRTIO_NET_F_CTRL_VQ, "CTRL_VQ", 0 },
	{ VIRTIO_NET_F_CTRL_RX, "CTRL_RX", 0 },
	{ VIRTIO_NET_F_CTRL_MAC_ADDR, "CTRL_MAC_ADDR", 0 },
	{ VIRTIO_NET_F_CTRL_VLAN, "CTRL_VLAN", 0 },
	{ VIRTIO_NET_F_CTRL_RX_EXTRA, "CTRL_RX_EXTRA", 0 },
	{ VIRTIO_NET_F_GUEST_ANNOUNCE, "GUEST_ANNOUNCE", 0 },
	{ VIRTIO_NET_F_MQ, "MQ", 0 },
	{ VIRTIO_NET_F_VQ_NOTF_COAL, "VQ_NOTF_COAL", 0 },
	{ VIRTIO_NET_F_NOTF_COAL, "NOTF_COAL", 0 },
	{ VIRTIO_NET_F_HASH_REPORT, "HASH_REPORT", 0 },
	{ VIRTIO_NET_F_RSS, "RSS", 0 },
	{ VIRTIO_NET_F_SPEED_DUPLEX, "SPEED_DUPLEX", 0 },
	{ VIRTIO_NET_F_GUEST_HDRLEN, "GUEST_HDRLEN", 0 },
	{ VIRTIO_F_RING_RESET, "RING_RESET", 0 },
	{ 0, NULL, 0 }
};

/* Fewer buffers that hold a GSO packet are worse than none. */
#define	VTNET_WHOLE_BUFFERS	8

#define	VTNET_GUEST_GSO	(VIRTIO_NET_F_GUEST_TSO4 | VIRTIO_NET_F_GUEST_TSO6 | \
	VIRTIO_NET_F_GUEST_ECN | VIRTIO_NET_F_GUEST_USO4 |		\
	    VIRTIO_NET_F_GUEST_USO6)
#define	VTNET_HOST_GSO	(VIRTIO_NET_F_HOST_TSO4 | VIRTIO_NET_F_HOST_TSO6 | \
	VIRTIO_NET_F_HOST_ECN)

/* What is not used with a tunable set, of all devices or of one. */
static const struct {
	u_int		tunable;
	uint64_t	features;
} vtnet_switches[] = {
	{ VTNET_CSUM_DISABLE, VIRTIO_NET_F_CSUM | VIRTIO_NET_F_GUEST_CSUM |
	    VTNET_HOST_GSO | VTNET_GUEST_GSO },
	{ VTNET_TSO_DISABLE, VTNET_HOST_GSO },
	{ VTNET_LRO_DISABLE, VTNET_GUEST_GSO },
	{ VTNET_MQ_DISABLE, VIRTIO_NET_F_MQ | VIRTIO_NET_F_RSS },
};

/*
 * A feature is of no use without one of others (5.1.3.1), in each line where it
 * stands.
 */
static const struct {
	uint64_t	feature, needs;
} vtnet_needs[] = {
	{ VIRTIO_NET_F_GUEST_TSO4, VIRTIO_NET_F_GUEST_CSUM },
	{ VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_GUEST_CSUM },
	{ VIRTIO_NET_F_GUEST_ECN,
	    VIRTIO_NET_F_GUEST_TSO4 | VIRTIO_NET_F_GUEST_TSO6 },
	/* The stack's capabilities know no difference between these two. */
	{ VIRTIO_NET_F_GUEST_USO4, VIRTIO_NET_F_GUEST_USO6 },
	{ VIRTIO_NET_F_GUEST_USO6, VIRTIO_NET_F_GUEST_USO4 },
	{ VIRTIO_NET_F_GUEST_USO4, VIRTIO_NET_F_GUEST_CSUM },
	{ VIRTIO_NET_F_CTRL_GUEST_OFFLOADS, VIRTIO_NET_F_CTRL_VQ },
	{ VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_CSUM },
	{ VIRTIO_NET_F_HOST_TSO6, VIRTIO_NET_F_CSUM },
	{ VIRTIO_NET_F_HOST_ECN,
	    VIRTIO_NET_F_HOST_TSO4 | VIRTIO_NET_F_HOST_TSO6 },
	{ VIRTIO_NET_F_GUEST_HDRLEN,
	    VIRTIO_NET_F_HOST_TSO4 | VIRTIO_NET_F_HOST_TSO6 },
	{ VIRTIO_NET_F_CTRL_RX, VIRTIO_NET_F_CTRL_VQ },
	{ VIRTIO_NET_F_CTRL_MAC_ADDR, VIRTIO_NET_F_CTRL_VQ },
	{ VIRTIO_NET_F_CTRL_VLAN, VIRTIO_NET_F_CTRL_VQ },
	{ VIRTIO_NET_F_CTRL_RX_EXTRA, VIRTIO_NET_F_CTRL_RX },
	{ VIRTIO_NET_F_GUEST_ANNOUNCE, VIRTIO_NET_F_CTRL_VQ },
	{ VIRTIO_NET_F_GUEST_ANNOUNCE, VIRTIO_NET_F_STATUS },
	{ VIRTIO_NET_F_MQ, VIRTIO_NET_F_CTRL_VQ },
	{ VIRTIO_NET_F_VQ_NOTF_COAL, VIRTIO_NET_F_CTRL_VQ },
	{ VIRTIO_NET_F_NOTF_COAL, VIRTIO_NET_F_CTRL_VQ },
	{ VIRTIO_NET_F_HASH_REPORT, VIRTIO_NET_F_CTRL_VQ },
	{ VIRTIO_NET_F_HASH_REPORT, VIRTIO_F_VERSION_1 },
	{ VIRTIO_NET_F_RSS, VIRTIO_NET_F_CTRL_VQ },
	{ VIRTIO_NET_F_RSS, VIRTIO_F_VERSION_1 },
};

/* Those of these features that lack what they require. */
static uint64_t
vtnet_useless(uint64_t features)
{
	uint64_t useless = 0;
	size_t i;

	for (i = 0; i < nitems(vtnet_needs); i++) {
		if ((features & vtnet_needs[i].feature) != 0 &&
		    (features & vtnet_needs[i].needs) == 0)
			useless |= vtnet_needs[i].feature;
	}
	return (useless);
}

static bool
vtnet_separator(char c)
{
	return (c == ',' || c == ' ');
}

/*
 * The features that a list names; the words that name none are reported in one
 * line.
 */
static uint64_t
vtnet_listed(const char *tunable, const char *list, bool quiet)
{
	const struct virtio_feature *vf;
	char unknown[256] = "";
	uint64_t listed = 0;
	size_t end = 0, word;

	for (; *list != '\0'; list += word + (list[word] != '\0')) {
		for (word = 0;
		    list[word] != '\0' && !vtnet_separator(list[word]); word++)
			;
		for (vf = vtnet_features; vf->vf_mask != 0; vf++) {
			if (strlen(vf->vf_name) == word &&
			    strncasecmp(list, vf->vf_name, word) == 0)
				break;
		}
		listed |= vf->vf_mask;
		if (vf->vf_mask == 0 && word > 0 && end < sizeof(unknown))
			end += snprintf(unknown + end, sizeof(unknown) - end,
			    " %.*s", (int)word, list);
	}
	if (end != 0 && !quiet)
		printf("%s names unknown features, which are ignored:%s\n",
		    tunable, unknown);
	return (listed);
}

/* Does tcp_lro(9) merge what is received? */
bool
vtnet_soft_lro(const struct vtnet_softc *sc)
{
	return (vtnet_tunable(sc, VTNET_LRO_DISABLE) == 0 &&
	    vtnet_has(sc, VIRTIO_NET_F_GUEST_CSUM));
}

/* What the administrator has disabled, for all devices or for this one. */
static uint64_t
vtnet_unwanted(struct vtnet_softc *sc)
{
	struct pv_tunable *pt = &vtnet_tunables[VTNET_DISABLE_FEATURES];
	char list[256] = "", name[40];
	uint64_t unwanted;
	size_t i;

	unwanted = vtnet_listed("hw.vtnet.disable_features", pt->pt_text,
	    pt->pt_reported != 0);
	pt->pt_reported = 1;
	snprintf(name, sizeof(name), "hw.vtnet.%d.disable_features",
	    device_get_unit(sc->vtn_dev));
	TUNABLE_STR_FETCH(name, list, sizeof(list));
	unwanted |= vtnet_listed(name, list, false);
	for (i = 0; i < nitems(vtnet_switches); i++) {
		if (vtnet_tunable(sc, vtnet_switches[i].tunable) != 0)
			unwanted |= vtnet_switches[i].features;
	}
	return (unwanted);
}

/* Negotiate features without those in `unwanted'. */
static int
vtnet_negotiate_without(struct vtnet_softc *sc, uint64_t unwanted)
{
	struct virtio_feature table[nitems(vtnet_features)];
	size_t i;

	memcpy(table, vtnet_features, sizeof(table));
	for (i = 0; i < nitems(table); i++) {
		if ((table[i].vf_mask & unwanted) != 0)
			table[i].vf_flags |= VIRTIO_FEATURE_OFF;
	}
	return (virtio_negotiate(sc->vtn_dev, table, &sc->vtn_features));
}

/*
 * The device's limit for packets, 0 if it has none.  Less than IPv4 requires is
 * an invalid value (5.1.4.1).
 */
int
vtnet_read_mtu(struct vtnet_softc *sc, uint16_t *mtu)
{
	*mtu = 0;
	if (!vtnet_has(sc, VIRTIO_NET_F_MTU))
		return (0);
	return (virtio_read_config(sc->vtn_dev,
	    offsetof(struct virtio_net_config, mtu), mtu, sizeof(*mtu)));
}

/*
 * Without mergeable buffers, each buffer has to hold a GSO packet (5.1.6.3.1),
 * which makes it a chain of many segments.  Returns the features that let the
 * device send such packets, if a ring is too small: it would have fewer than
 * VTNET_WHOLE_BUFFERS, or not even one.
 */
static uint64_t
vtnet_small_rings(struct vtnet_softc *sc)
{
	uint64_t gso = sc->vtn_features & VTNET_GUEST_GSO;
	u_int need = PV_NET_RX_WHOLE_SEGS + 1;
	int i;

	if (gso == 0 || vtnet_has(sc, VIRTIO_NET_F_MRG_RXBUF))
		return (0);
	if (!virtio_has(sc->vtn_dev, VIRTIO_F_INDIRECT_DESC))
		need = MAX(need, VTNET_WHOLE_BUFFERS * PV_NET_RX_WHOLE_MIN);
	if (vtnet_mq_read(sc) != 0)
		return (gso);
	for (i = 0; i < sc->vtn_npairs; i++) {
		if (virtio_queue_places(sc->vtn_dev,
		    2 * i + VIRTIO_NET_Q_RX) < need)
			return (gso);
	}
	return (0);
}

/*
 * Features, in as many rounds as necessary: some turn out to be of no use only
 * when others are known.
 */
int
vtnet_negotiate(struct vtnet_softc *sc)
{
	uint64_t less, unwanted = vtnet_unwanted(sc);
	uint16_t mtu;
	int error;

	for (;;) {
		error = vtnet_negotiate_without(sc, unwanted);
		if (error == 0)
			error = vtnet_read_mtu(sc, &mtu);
		if (error != 0)
			return (error);
		less = vtnet_useless(sc->vtn_features) | vtnet_mq_invalid(sc);
		if (vtnet_has(sc, VIRTIO_NET_F_MTU) &&
		    mtu < VIRTIO_NET_MIN_MTU) {
			device_printf(sc->vtn_dev,
			    "the device's MTU of %u is invalid: it is "
			    "ignored\n", mtu);
			less |= VIRTIO_NET_F_MTU;
		}
		/*
		 * Last, as what else is negotiated decides what queues there
		 * are.
		 */
		if (less == 0)
			less = vtnet_small_rings(sc);
		if (less == 0)
			break;
		unwanted |= less;
	}
	sc->vtn_modern = vtnet_has(sc, VIRTIO_F_VERSION_1);
	if (vtnet_has(sc, VIRTIO_NET_F_HASH_REPORT)) {
		sc->vtn_hdrlen = VIRTIO_NET_HDR_LEN_HASH;
		return (0);
	}
	sc->vtn_hdrlen = sc->vtn_modern ||
	    vtnet_has(sc, VIRTIO_NET_F_MRG_RXBUF) ? VIRTIO_NET_HDR_LEN :
	    VIRTIO_NET_HDR_LEN_LEGACY;
	return (0);
}
