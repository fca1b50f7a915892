/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * vtnet(4): several pairs of queues, and hashes of flows (VirtIO 1.3, 5.1.6.5.5
 * and 5.1.6.5.6).
 *
 *	MQ            the device steers a flow to the pair that sends it
 *	RSS           the device steers by a hash of addresses and ports, and a
 *		      table that we set
 *	HASH_REPORT   each packet has its hash in its header
 *
 * The key makes the hash the same for both directions of a flow, as each 16
 * bits of it are the same; and what is sent with a hash that was reported, in
 * answer or forwarded, takes the pair that the table has for it.  A kernel with
 * options RSS has a key, a table and kinds of hashes of its own, by which it
 * finds the CPU of a connection: there the device gets those.
 *
 * Trust.  How many pairs there are, the sizes of table and key, and the kinds
 * of hashes are checked while features are negotiated: a device with invalid
 * ones is used without the feature.
 *
 * Locking.  pv_net's configuration lock, or attach.
 */

#include "opt_rss.h"

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/endian.h>
#include <sys/sysctl.h>
#include <net/ethernet.h>
#include <machine/bus.h>
#ifdef RSS
#include <net/rss_config.h>
#endif

#include <dev/pv/pv_cpu.h>
#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/virtio/virtio.h>
#include <dev/virtio/network/virtio_net.h>
#include <dev/virtio/network/if_vtnetvar.h>

/* Without options RSS: all kinds, and a key. */
#define	VTNET_HASH_TYPES	(VIRTIO_NET_RSS_HASH_TYPE_IPv4 |	\
	VIRTIO_NET_RSS_HASH_TYPE_TCPv4 | VIRTIO_NET_RSS_HASH_TYPE_UDPv4 | \
	VIRTIO_NET_RSS_HASH_TYPE_IPv6 | VIRTIO_NET_RSS_HASH_TYPE_TCPv6 | \
	VIRTIO_NET_RSS_HASH_TYPE_UDPv6)
#define	VTNET_RSS_KEY		0x6d5a	/* all of it */

#ifdef RSS
CTASSERT(RSS_KEYSIZE == VIRTIO_NET_RSS_KEY);

/* The kinds of hashes that the kernel uses. */
static uint32_t
vtnet_wanted_types(void)
{
	static const struct {
		u_int		kernel;
		uint32_t	device;
	} map[] = {
		{ RSS_HASHTYPE_RSS_IPV4, VIRTIO_NET_RSS_HASH_TYPE_IPv4 },
		{ RSS_HASHTYPE_RSS_TCP_IPV4, VIRTIO_NET_RSS_HASH_TYPE_TCPv4 },
		{ RSS_HASHTYPE_RSS_UDP_IPV4, VIRTIO_NET_RSS_HASH_TYPE_UDPv4 },
		{ RSS_HASHTYPE_RSS_IPV6, VIRTIO_NET_RSS_HASH_TYPE_IPv6 },
		{ RSS_HASHTYPE_RSS_TCP_IPV6, VIRTIO_NET_RSS_HASH_TYPE_TCPv6 },
		{ RSS_HASHTYPE_RSS_UDP_IPV6, VIRTIO_NET_RSS_HASH_TYPE_UDPv6 },
	};
	u_int config = rss_gethashconfig();
	uint32_t types = 0;
	size_t i;

	for (i = 0; i < nitems(map); i++) {
		if ((config & map[i].kernel) != 0)
			types |= map[i].device;
	}
	return (types);
}

static void
vtnet_key(uint8_t *key)
{
	rss_getkey(key);
}

/* The pair that an entry of the table names, of n. */
static u_int
vtnet_table_pair(u_int entry, u_int n)
{
	return (rss_get_indirection_to_bucket(entry) % n);
}
#else /* !RSS */
static uint32_t
vtnet_wanted_types(void)
{
	return (VTNET_HASH_TYPES);
}

static void
vtnet_key(uint8_t *key)
{
	int i;

	for (i = 0; i < VIRTIO_NET_RSS_KEY; i += sizeof(uint16_t))
		be16enc(key + i, VTNET_RSS_KEY);
}

static u_int
vtnet_table_pair(u_int entry, u_int n)
{
	return (entry % n);
}
#endif /* !RSS */

#define	VTNET_READ(sc, field, to)					\
	virtio_read_config((sc)->vtn_dev,				\
	    offsetof(struct virtio_net_config, field), to,		\
	    sizeof(*(to)))

/* The types of hashes; 0: none that is known here. */
static uint32_t
vtnet_hash_types(struct vtnet_softc *sc)
{
	uint32_t types;
	uint8_t key;

	if (VTNET_READ(sc, rss_max_key_size, &key) != 0 ||
	    key < VIRTIO_NET_RSS_KEY ||
	    VTNET_READ(sc, supported_hash_types, &types) != 0)
		return (0);
	return (types & vtnet_wanted_types());
}

/* The negotiated features for which the configuration has invalid values. */
uint64_t
vtnet_mq_invalid(struct vtnet_softc *sc)
{
	uint64_t bad = 0, multi = VIRTIO_NET_F_MQ | VIRTIO_NET_F_RSS;
	uint64_t hash = VIRTIO_NET_F_HASH_REPORT | VIRTIO_NET_F_RSS;
	uint16_t pairs, table;

	if ((sc->vtn_features & multi) != 0 &&
	    (VTNET_READ(sc, max_virtqueue_pairs, &pairs) != 0 ||
	    pairs < VIRTIO_NET_CTRL_MQ_VQ_PAIRS_MIN ||
	    pairs > VIRTIO_NET_CTRL_MQ_VQ_PAIRS_MAX))
		bad |= multi;
	if ((sc->vtn_features & hash) != 0 && vtnet_hash_types(sc) == 0)
		bad |= hash;
	if (vtnet_has(sc, VIRTIO_NET_F_RSS) &&
	    (VTNET_READ(sc, rss_max_indirection_table_length, &table) != 0 ||
	    table < VIRTIO_NET_RSS_TABLE))
		bad |= VIRTIO_NET_F_RSS;
	bad &= sc->vtn_features;
	if (bad != 0)
		device_printf(sc->vtn_dev,
		    "invalid numbers of queues or hashes: the device is "
		    "used without (features 0x%jx)\n", (uintmax_t)bad);
	return (bad);
}

/* How many pairs of queues the device has, and how many are used. */
int
vtnet_mq_read(struct vtnet_softc *sc)
{
	uint16_t pairs = 1;
	int error;

	if ((sc->vtn_features & (VIRTIO_NET_F_MQ | VIRTIO_NET_F_RSS)) != 0) {
		error = VTNET_READ(sc, max_virtqueue_pairs, &pairs);
		if (error != 0)
			return (error);
		/* Read again since vtnet_mq_invalid(). */
		if (pairs > VIRTIO_NET_CTRL_MQ_VQ_PAIRS_MAX)
			return (EINVAL);
	}
	sc->vtn_max_pairs = MAX(pairs, 1);
	sc->vtn_wanted = sc->vtn_npairs = pv_queue_count(pairs,
	    vtnet_tunable(sc, VTNET_MQ_MAX_PAIRS));
	return (0);
}

/*
 * A key behind the other `len' bytes of a command's data; returns how many
 * there are then.
 */
static size_t
vtnet_put_key(uint8_t *data, size_t len)
{
	data[len++] = VIRTIO_NET_RSS_KEY;
	vtnet_key(data + len);
	return (len + VIRTIO_NET_RSS_KEY);
}

static size_t
vtnet_put_16(uint8_t *data, size_t len, uint16_t value)
{
	value = htole16(value);
	memcpy(data + len, &value, sizeof(value));
	return (len + sizeof(value));
}

static int
vtnet_set_rss(struct vtnet_softc *sc, int n)
{
	struct virtio_net_rss_head head = {
		.hash_types = htole32(vtnet_hash_types(sc)),
		.indirection_table_mask = htole16(VIRTIO_NET_RSS_TABLE - 1),
	};
	uint8_t *data = vtnet_ctrl_data(sc);
	size_t len = sizeof(head);
	int i;

	memcpy(data, &head, sizeof(head));
	for (i = 0; i < VIRTIO_NET_RSS_TABLE; i++)
		len = vtnet_put_16(data, len, vtnet_table_pair(i, n));
	len = vtnet_put_16(data, len, n);
	return (vtnet_ctrl_command(sc, VIRTIO_NET_CTRL_MQ,
	    VIRTIO_NET_CTRL_MQ_RSS_CONFIG, vtnet_put_key(data, len)));
}

static int
vtnet_set_hash(struct vtnet_softc *sc)
{
	struct virtio_net_hash_head head =
	    { .hash_types = htole32(vtnet_hash_types(sc)) };

	memcpy(vtnet_ctrl_data(sc), &head, sizeof(head));
	return (vtnet_ctrl_command(sc, VIRTIO_NET_CTRL_MQ,
	    VIRTIO_NET_CTRL_MQ_HASH_CONFIG,
	    vtnet_put_key(vtnet_ctrl_data(sc), sizeof(head))));
}

int
vtnet_set_pairs(void *softc, int n)
{
	struct vtnet_softc *sc = softc;
	int error = 0;

	if (vtnet_has(sc, VIRTIO_NET_F_RSS))
		return (vtnet_set_rss(sc, n));
	if (vtnet_has(sc, VIRTIO_NET_F_MQ)) {
		(void)vtnet_put_16(vtnet_ctrl_data(sc), 0,
		    vtnet_16(sc, htole16(n)));
		error = vtnet_ctrl_command(sc, VIRTIO_NET_CTRL_MQ,
		    VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET, sizeof(uint16_t));
	}
	if (error == 0 && vtnet_has(sc, VIRTIO_NET_F_HASH_REPORT))
		error = vtnet_set_hash(sc);
	return (error);
}
