/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/* DHCP messages (RFC 2131, RFC 2132): built and parsed without knowing who sends them. */

#ifndef _CMD_DHCP_MSG_H_
#define	_CMD_DHCP_MSG_H_

#define	DHCP_SERVER_PORT	67
#define	DHCP_CLIENT_PORT	68
#define	DHCP_NDNS		3
#define	DHCP_OPTLEN		308	/* makes the least message, 576 bytes with headers */

enum dhcp_type {
	DHCP_NONE = 0, DHCP_DISCOVER = 1, DHCP_OFFER = 2, DHCP_REQUEST = 3, DHCP_DECLINE = 4,
	DHCP_ACK = 5, DHCP_NAK = 6, DHCP_RELEASE = 7
};

/* RFC 2131, figure 1. */
struct dhcp_msg {
	uint8_t		dm_op;
	uint8_t		dm_htype;
	uint8_t		dm_hlen;
	uint8_t		dm_hops;
	uint32_t	dm_xid;
	uint16_t	dm_secs;
	uint16_t	dm_flags;
	struct in_addr	dm_ciaddr;
	struct in_addr	dm_yiaddr;
	struct in_addr	dm_siaddr;
	struct in_addr	dm_giaddr;
	uint8_t		dm_chaddr[16];
	uint8_t		dm_sname[64];
	uint8_t		dm_file[128];
	uint32_t	dm_cookie;
	uint8_t		dm_options[DHCP_OPTLEN];
} __packed;

/* What a request says; an address of 0 is not said. */
struct dhcp_request {
	enum dhcp_type	q_type;
	uint32_t	q_xid;
	uint16_t	q_secs;
	uint8_t		q_mac[6];
	bool		q_broadcast;	/* answer by broadcast: we have no address yet */
	struct in_addr	q_ciaddr;	/* the address that we have */
	struct in_addr	q_want;		/* the address that we would like */
	struct in_addr	q_server;
};

/* What an answer said; 0 where it said nothing. */
struct dhcp_reply {
	enum dhcp_type	r_type;
	struct in_addr	r_addr;
	struct in_addr	r_server;
	struct in_addr	r_mask;
	struct in_addr	r_router;
	struct in_addr	r_dns[DHCP_NDNS];
	u_int		r_ndns;
	uint32_t	r_lease;	/* seconds */
	uint32_t	r_t1;
	uint32_t	r_t2;
	u_int		r_mtu;
};

void	dhcp_build(struct dhcp_msg *msg, const struct dhcp_request *q);
int	dhcp_parse(const void *buf, size_t len, uint32_t xid, const uint8_t *mac,
	    struct dhcp_reply *r);

#endif /* !_CMD_DHCP_MSG_H_ */
