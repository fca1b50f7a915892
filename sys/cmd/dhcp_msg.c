/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * DHCP messages: building requests and parsing answers (RFC 2131, RFC 2132).
 *
 * An answer is untrusted: every option's length is checked against its field's end and against what
 * the option must have; options of a wrong length are skipped.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/socket.h>
#include <netinet/in.h>
#include <cmd/dhcp_msg.h>

#define	DHCP_COOKIE		0x63825363	/* RFC 2131, 3 */
#define	DHCP_FLAG_BROADCAST	0x8000
#define	BOOTREQUEST		1
#define	BOOTREPLY		2
#define	HTYPE_ETHER		1

/* RFC 2132's options that are used. */
enum {
	OPT_PAD = 0, OPT_MASK = 1, OPT_ROUTER = 3, OPT_DNS = 6, OPT_MTU = 26, OPT_WANT = 50,
	OPT_LEASE = 51, OPT_OVERLOAD = 52, OPT_TYPE = 53, OPT_SERVER = 54, OPT_PARAMS = 55,
	OPT_MAXSIZE = 57, OPT_T1 = 58, OPT_T2 = 59, OPT_CLIENTID = 61, OPT_END = 255
};

static uint8_t *
dhcp_put(uint8_t *p, uint8_t opt, const void *data, uint8_t len)
{
	*p++ = opt;
	*p++ = len;
	memcpy(p, data, len);
	return (p + len);
}

void
dhcp_build(struct dhcp_msg *msg, const struct dhcp_request *q)
{
	static const uint8_t params[] = {
		OPT_MASK, OPT_ROUTER, OPT_DNS, OPT_MTU, OPT_LEASE, OPT_SERVER, OPT_T1, OPT_T2
	};
	uint8_t type = q->q_type, id[7] = { HTYPE_ETHER }, *p = msg->dm_options;
	uint16_t maxsize = htons(1500);

	memset(msg, 0, sizeof(*msg));
	msg->dm_op = BOOTREQUEST;
	msg->dm_htype = HTYPE_ETHER;
	msg->dm_hlen = sizeof(q->q_mac);
	msg->dm_xid = htonl(q->q_xid);
	msg->dm_secs = htons(q->q_secs);
	msg->dm_flags = htons(q->q_broadcast ? DHCP_FLAG_BROADCAST : 0);
	msg->dm_ciaddr = q->q_ciaddr;
	memcpy(msg->dm_chaddr, q->q_mac, sizeof(q->q_mac));
	memcpy(id + 1, q->q_mac, sizeof(q->q_mac));
	msg->dm_cookie = htonl(DHCP_COOKIE);
	p = dhcp_put(p, OPT_TYPE, &type, sizeof(type));
	p = dhcp_put(p, OPT_CLIENTID, id, sizeof(id));
	p = dhcp_put(p, OPT_MAXSIZE, &maxsize, sizeof(maxsize));
	if (q->q_want.s_addr != 0)
		p = dhcp_put(p, OPT_WANT, &q->q_want, sizeof(q->q_want));
	if (q->q_server.s_addr != 0)
		p = dhcp_put(p, OPT_SERVER, &q->q_server, sizeof(q->q_server));
	p = dhcp_put(p, OPT_PARAMS, params, sizeof(params));
	*p = OPT_END;
}

static uint32_t
dhcp_get32(const uint8_t *p)
{
	return ((uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3]);
}

static void
dhcp_get_dns(struct dhcp_reply *r, const uint8_t *p, size_t len)
{
	for (; len >= 4 && r->r_ndns < DHCP_NDNS; p += 4, len -= 4)
		memcpy(&r->r_dns[r->r_ndns++], p, 4);
}

static void
dhcp_option(struct dhcp_reply *r, uint8_t opt, const uint8_t *p, size_t len, uint8_t *overload)
{
	if (opt == OPT_TYPE && len == 1)
		r->r_type = p[0];
	else if (opt == OPT_OVERLOAD && len == 1)
		*overload = p[0];
	else if (opt == OPT_MTU && len == 2)
		r->r_mtu = p[0] << 8 | p[1];
	else if (opt == OPT_DNS)
		dhcp_get_dns(r, p, len);
	if (len < 4)
		return;
	switch (opt) {
	case OPT_MASK:
		memcpy(&r->r_mask, p, 4);
		break;
	case OPT_ROUTER:
		memcpy(&r->r_router, p, 4);
		break;
	case OPT_SERVER:
		memcpy(&r->r_server, p, 4);
		break;
	case OPT_LEASE:
		r->r_lease = dhcp_get32(p);
		break;
	case OPT_T1:
		r->r_t1 = dhcp_get32(p);
		break;
	case OPT_T2:
		r->r_t2 = dhcp_get32(p);
		break;
	}
}

/* One field of options; gives what option 52 said about the other fields. */
static uint8_t
dhcp_options(struct dhcp_reply *r, const uint8_t *p, size_t left)
{
	uint8_t overload = 0;
	size_t len;

	while (left > 0 && *p != OPT_END) {
		if (*p == OPT_PAD) {
			p++;
			left--;
			continue;
		}
		if (left < 2 || (len = p[1]) > left - 2)
			break;
		dhcp_option(r, p[0], p + 2, len, &overload);
		p += len + 2;
		left -= len + 2;
	}
	return (overload);
}

/*
 * Parse an answer to the request xid of the station mac.  0; EINVAL if it is none, or not for us.
 */
int
dhcp_parse(const void *buf, size_t len, uint32_t xid, const uint8_t *mac, struct dhcp_reply *r)
{
	const struct dhcp_msg *msg = buf;
	size_t fixed = offsetof(struct dhcp_msg, dm_options);
	uint8_t overload;

	memset(r, 0, sizeof(*r));
	if (len < fixed || msg->dm_op != BOOTREPLY || msg->dm_cookie != htonl(DHCP_COOKIE) ||
	    msg->dm_xid != htonl(xid) || memcmp(msg->dm_chaddr, mac, 6) != 0)
		return (EINVAL);
	r->r_addr = msg->dm_yiaddr;
	overload = dhcp_options(r, msg->dm_options, len - fixed);
	/* RFC 2131, 4.1: first the file field, then the server name. */
	if ((overload & 1) != 0)
		(void)dhcp_options(r, msg->dm_file, sizeof(msg->dm_file));
	if ((overload & 2) != 0)
		(void)dhcp_options(r, msg->dm_sname, sizeof(msg->dm_sname));
	return (r->r_type == DHCP_NONE ? EINVAL : 0);
}
