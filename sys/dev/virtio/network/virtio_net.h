/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The network device on the wire: VirtIO 1.3, 5.1.  Values are little-endian on
 * a VERSION_1 device, and the guest's own on a legacy one.
 */

#ifndef _DEV_VIRTIO_NETWORK_VIRTIO_NET_H_
#define	_DEV_VIRTIO_NETWORK_VIRTIO_NET_H_

#include <sys/types.h>

/* Feature bits (5.1.3), masks. */
#define	VIRTIO_NET_F_CSUM		(1ULL << 0)
#define	VIRTIO_NET_F_GUEST_CSUM		(1ULL << 1)
#define	VIRTIO_NET_F_CTRL_GUEST_OFFLOADS (1ULL << 2)
#define	VIRTIO_NET_F_MTU		(1ULL << 3)
#define	VIRTIO_NET_F_MAC		(1ULL << 5)
#define	VIRTIO_NET_F_GSO		(1ULL << 6)	/* legacy (5.1.3.2) */
#define	VIRTIO_NET_F_GUEST_TSO4		(1ULL << 7)
#define	VIRTIO_NET_F_GUEST_TSO6		(1ULL << 8)
#define	VIRTIO_NET_F_GUEST_ECN		(1ULL << 9)
#define	VIRTIO_NET_F_GUEST_UFO		(1ULL << 10)
#define	VIRTIO_NET_F_HOST_TSO4		(1ULL << 11)
#define	VIRTIO_NET_F_HOST_TSO6		(1ULL << 12)
#define	VIRTIO_NET_F_HOST_ECN		(1ULL << 13)
#define	VIRTIO_NET_F_HOST_UFO		(1ULL << 14)
#define	VIRTIO_NET_F_MRG_RXBUF		(1ULL << 15)
#define	VIRTIO_NET_F_STATUS		(1ULL << 16)
#define	VIRTIO_NET_F_CTRL_VQ		(1ULL << 17)
#define	VIRTIO_NET_F_CTRL_RX		(1ULL << 18)
#define	VIRTIO_NET_F_CTRL_VLAN		(1ULL << 19)
#define	VIRTIO_NET_F_CTRL_RX_EXTRA	(1ULL << 20)
#define	VIRTIO_NET_F_GUEST_ANNOUNCE	(1ULL << 21)
#define	VIRTIO_NET_F_MQ			(1ULL << 22)
#define	VIRTIO_NET_F_CTRL_MAC_ADDR	(1ULL << 23)
#define	VIRTIO_NET_F_VQ_NOTF_COAL	(1ULL << 52)
#define	VIRTIO_NET_F_NOTF_COAL		(1ULL << 53)
#define	VIRTIO_NET_F_GUEST_USO4		(1ULL << 54)
#define	VIRTIO_NET_F_GUEST_USO6		(1ULL << 55)
#define	VIRTIO_NET_F_HOST_USO		(1ULL << 56)
#define	VIRTIO_NET_F_HASH_REPORT	(1ULL << 57)
#define	VIRTIO_NET_F_GUEST_HDRLEN	(1ULL << 59)
#define	VIRTIO_NET_F_RSS		(1ULL << 60)
#define	VIRTIO_NET_F_RSC_EXT		(1ULL << 61)
#define	VIRTIO_NET_F_STANDBY		(1ULL << 62)
#define	VIRTIO_NET_F_SPEED_DUPLEX	(1ULL << 63)

/* Configuration (5.1.4). */
struct virtio_net_config {
	uint8_t		mac[6];				/* F_MAC */
	uint16_t	status;				/* F_STATUS */
	uint16_t	max_virtqueue_pairs;		/* F_MQ or F_RSS */
	uint16_t	mtu;				/* F_MTU */
	uint32_t	speed;			/* F_SPEED_DUPLEX, in Mbit/s */
	uint8_t		duplex;				/* F_SPEED_DUPLEX */
	uint8_t		rss_max_key_size;	/* F_RSS or F_HASH_REPORT */
	uint16_t	rss_max_indirection_table_length; /* F_RSS */
	uint32_t	supported_hash_types;	/* F_RSS or F_HASH_REPORT */
} __packed;

#define	VIRTIO_NET_S_LINK_UP		1
#define	VIRTIO_NET_S_ANNOUNCE		2

#define	VIRTIO_NET_DUPLEX_HALF		0
#define	VIRTIO_NET_DUPLEX_FULL		1

/* A device may not offer less (5.1.4.1). */
#define	VIRTIO_NET_MIN_MTU		68

/*
 * Queues of the first pair; further pairs follow, then the control queue
 * (5.1.2).
 */
#define	VIRTIO_NET_Q_RX			0
#define	VIRTIO_NET_Q_TX			1
#define	VIRTIO_NET_Q_CTRL		2	/* behind one pair */

/* The header of each packet (5.1.6). */
struct virtio_net_hdr {
	uint8_t		flags;
	uint8_t		gso_type;
	uint16_t	hdr_len;
	uint16_t	gso_size;
	uint16_t	csum_start;
	uint16_t	csum_offset;
	uint16_t	num_buffers;	/* VERSION_1, or legacy
					 * with MRG_RXBUF */
} __packed;

#define	VIRTIO_NET_HDR_LEN		12
#define	VIRTIO_NET_HDR_LEN_LEGACY	10	/* without num_buffers
						 * (5.1.6.1) */

/* The same with HASH_REPORT (5.1.6.4.3). */
struct virtio_net_hdr_hash {
	struct virtio_net_hdr hdr;
	uint32_t	hash_value;
	uint16_t	hash_report;
	uint16_t	padding_reserved;
} __packed;

#define	VIRTIO_NET_HDR_LEN_HASH		20

#define	VIRTIO_NET_HASH_REPORT_NONE	0
#define	VIRTIO_NET_HASH_REPORT_IPv4	1
#define	VIRTIO_NET_HASH_REPORT_TCPv4	2
#define	VIRTIO_NET_HASH_REPORT_UDPv4	3
#define	VIRTIO_NET_HASH_REPORT_IPv6	4
#define	VIRTIO_NET_HASH_REPORT_TCPv6	5
#define	VIRTIO_NET_HASH_REPORT_UDPv6	6
#define	VIRTIO_NET_HASH_REPORT_IPv6_EX	7
#define	VIRTIO_NET_HASH_REPORT_TCPv6_EX	8
#define	VIRTIO_NET_HASH_REPORT_UDPv6_EX	9

#define	VIRTIO_NET_HDR_F_NEEDS_CSUM	1
#define	VIRTIO_NET_HDR_F_DATA_VALID	2
#define	VIRTIO_NET_HDR_F_RSC_INFO	4

#define	VIRTIO_NET_HDR_GSO_NONE		0
#define	VIRTIO_NET_HDR_GSO_TCPV4	1
#define	VIRTIO_NET_HDR_GSO_UDP		3
#define	VIRTIO_NET_HDR_GSO_TCPV6	4
#define	VIRTIO_NET_HDR_GSO_UDP_L4	5
#define	VIRTIO_NET_HDR_GSO_ECN		0x80

/* The control queue (5.1.6.5). */
struct virtio_net_ctrl {
	uint8_t		class;
	uint8_t		command;
} __packed;

#define	VIRTIO_NET_OK			0
#define	VIRTIO_NET_ERR			1

#define	VIRTIO_NET_CTRL_RX		0
#define	VIRTIO_NET_CTRL_RX_PROMISC	0
#define	VIRTIO_NET_CTRL_RX_ALLMULTI	1
#define	VIRTIO_NET_CTRL_RX_ALLUNI	2
#define	VIRTIO_NET_CTRL_RX_NOMULTI	3
#define	VIRTIO_NET_CTRL_RX_NOUNI	4
#define	VIRTIO_NET_CTRL_RX_NOBCAST	5

#define	VIRTIO_NET_CTRL_MAC		1
#define	VIRTIO_NET_CTRL_MAC_TABLE_SET	0
#define	VIRTIO_NET_CTRL_MAC_ADDR_SET	1

#define	VIRTIO_NET_CTRL_VLAN		2
#define	VIRTIO_NET_CTRL_VLAN_ADD	0
#define	VIRTIO_NET_CTRL_VLAN_DEL	1

#define	VIRTIO_NET_CTRL_ANNOUNCE	3
#define	VIRTIO_NET_CTRL_ANNOUNCE_ACK	0

#define	VIRTIO_NET_CTRL_MQ		4
#define	VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET	0
#define	VIRTIO_NET_CTRL_MQ_VQ_PAIRS_MIN	1
#define	VIRTIO_NET_CTRL_MQ_VQ_PAIRS_MAX	0x8000

#define	VIRTIO_NET_CTRL_MQ_RSS_CONFIG	1
#define	VIRTIO_NET_CTRL_MQ_HASH_CONFIG	2

/* Of what a hash is computed (5.1.6.5.6.4). */
#define	VIRTIO_NET_RSS_HASH_TYPE_IPv4	(1 << 0)
#define	VIRTIO_NET_RSS_HASH_TYPE_TCPv4	(1 << 1)
#define	VIRTIO_NET_RSS_HASH_TYPE_UDPv4	(1 << 2)
#define	VIRTIO_NET_RSS_HASH_TYPE_IPv6	(1 << 3)
#define	VIRTIO_NET_RSS_HASH_TYPE_TCPv6	(1 << 4)
#define	VIRTIO_NET_RSS_HASH_TYPE_UDPv6	(1 << 5)

/*
 * A command's data, which are variable in length: how hashes are computed, for
 * RSS_CONFIG where they go, then the greatest transmit queue (16 bits), then
 * the key, with its length in a byte before it.
 */
struct virtio_net_rss_head {
	uint32_t	hash_types;
	uint16_t	indirection_table_mask;	/* entries, a power
						 * of two, less one */
	uint16_t	unclassified_queue;	/* of what has no hash */
} __packed;

#define	VIRTIO_NET_RSS_KEY		40	/* at least: over IPv6
						 * addresses and ports */
#define	VIRTIO_NET_RSS_TABLE		128	/* entries that each device
						 * takes (5.1.4.1) */

struct virtio_net_hash_head {
	uint32_t	hash_types;
	uint16_t	reserved[4];
} __packed;

#define	VIRTIO_NET_CTRL_NOTF_COAL	6
#define	VIRTIO_NET_CTRL_NOTF_COAL_TX_SET 0
#define	VIRTIO_NET_CTRL_NOTF_COAL_RX_SET 1
#define	VIRTIO_NET_CTRL_NOTF_COAL_VQ_SET 2

struct virtio_net_ctrl_coal {
	uint32_t	max_packets;
	uint32_t	max_usecs;
} __packed;

struct virtio_net_ctrl_coal_vq {
	uint16_t	vq_index;
	uint16_t	reserved;
	struct virtio_net_ctrl_coal coal;
} __packed;

#define	VIRTIO_NET_CTRL_GUEST_OFFLOADS	5
#define	VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET 0

#endif /* !_DEV_VIRTIO_NETWORK_VIRTIO_NET_H_ */
