/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A program that uses an interface through netmap(4).
 *
 *	nmport send IFNAME COUNT SIZE      numbered frames, as pktgen's
 *	nmport receive IFNAME COUNT SIZE   datagrams to port 5000, as netpeer's: numbered from 0 on,
 *	                                   with so many bytes of data, and a right checksum
 *	nmport spoil IFNAME COUNT SIZE     the same, and of each batch of buffers the last that goes to
 *	                                   the device first has an invalid index
 *	nmport forward IFNAME OTHER        all frames that come, to the other interface, until a signal
 *	nmport hold IFNAME                 until a signal
 *
 * Exit status 0; 1 after a line that says what failed.
 */

#include <sys/types.h>
#include <sys/endian.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <net/if.h>
#include <net/netmap.h>

#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define	PORT_PATIENCE	60000	/* milliseconds without a frame */
#define	PORT_ETHER	14
#define	PORT_IP		20
#define	PORT_HEADERS	(PORT_ETHER + PORT_IP + 8)
#define	PORT_UDP	5000
#define	PORT_TEST_TYPE	0x88b5	/* for experiments */

struct port {
	int			 p_fd;
	uint16_t		 p_rings;
	struct netmap_if	*p_if;
};

static int
complain(const char *what)
{
	write(STDERR_FILENO, what, strlen(what));
	return (1);
}

/* netmap_user.h needs more of libc than there is here. */
static struct netmap_ring *
port_ring(struct port *p, u_int n)
{
	return ((struct netmap_ring *)((char *)p->p_if + p->p_if->ring_ofs[n]));
}

static struct netmap_ring *
port_tx(struct port *p, u_int n)
{
	return (port_ring(p, n));
}

static struct netmap_ring *
port_rx(struct port *p, u_int n)
{
	return (port_ring(p, p->p_if->ni_tx_rings + p->p_if->ni_host_tx_rings + n));
}

static uint8_t *
port_buffer(struct netmap_ring *ring, u_int slot)
{
	return ((uint8_t *)ring + ring->buf_ofs +
	    (size_t)ring->slot[slot].buf_idx * ring->nr_buf_size);
}

static u_int
port_next(const struct netmap_ring *ring, u_int slot)
{
	return (slot + 1 == ring->num_slots ? 0 : slot + 1);
}

/* All pairs of queues. */
static bool
port_open(struct port *p, const char *name)
{
	struct nmreq_register reg;
	struct nmreq_header hdr;
	void *mem;

	memset(&reg, 0, sizeof(reg));
	memset(&hdr, 0, sizeof(hdr));
	reg.nr_mode = NR_REG_ALL_NIC;
	hdr.nr_version = NETMAP_API;
	hdr.nr_reqtype = NETMAP_REQ_REGISTER;
	memcpy(hdr.nr_name, name, strlen(name));
	hdr.nr_body = (uintptr_t)&reg;
	p->p_fd = open("/dev/netmap", O_RDWR);
	if (p->p_fd < 0 || ioctl(p->p_fd, NIOCCTRL, &hdr) != 0)
		return (false);
	mem = mmap(NULL, reg.nr_memsize, PROT_READ | PROT_WRITE, MAP_SHARED, p->p_fd, 0);
	if (mem == MAP_FAILED)
		return (false);
	p->p_if = (struct netmap_if *)((char *)mem + reg.nr_offset);
	p->p_rings = reg.nr_rx_rings;
	return (true);
}

/* Wait for slots of a ring: false if it takes too long, or the interface was removed. */
static bool
port_wait(struct port *p, short events)
{
	struct pollfd poll_fd = { .fd = p->p_fd, .events = events };

	return (poll(&poll_fd, 1, PORT_PATIENCE) == 1 && (poll_fd.revents & POLLERR) == 0);
}

static int
port_send(struct port *p, u_long count, u_int size)
{
	struct netmap_ring *ring = port_tx(p, 0);
	static const uint8_t to[6] = { 2, 0, 0, 0, 0, 1 }, from[6] = { 2, 0, 0, 0, 0, 9 };
	u_long n = 0;
	uint8_t *frame;

	while (n < count) {
		if (!port_wait(p, POLLOUT))
			return (complain("nmport: nothing can be sent\n"));
		for (; n < count && ring->head != ring->tail; n++) {
			frame = port_buffer(ring, ring->head);
			memset(frame, 0, size);
			memcpy(frame, to, sizeof(to));
			memcpy(frame + 6, from, sizeof(from));
			be16enc(frame + 12, PORT_TEST_TYPE);
			be32enc(frame + PORT_ETHER, n);
			ring->slot[ring->head].len = size;
			ring->head = ring->cur = port_next(ring, ring->head);
		}
	}
	/* Until all were sent: one slot always stays unused. */
	while (port_next(ring, ring->tail) != ring->head) {
		if (ioctl(p->p_fd, NIOCTXSYNC, NULL) != 0)
			return (complain("nmport: not all was sent\n"));
	}
	return (0);
}

/* The Internet checksum of a datagram with its pseudo header: 0 if it is right. */
static uint16_t
port_sum(const uint8_t *ip, u_int len)
{
	uint32_t sum = 17 + len;
	u_int i;

	for (i = 12; i < PORT_IP + len; i++)
		sum += i % 2 == 0 ? ip[i] << 8 : ip[i];
	while (sum >> 16 != 0)
		sum = (sum & 0xffff) + (sum >> 16);
	return (~sum & 0xffff);
}

/* Is this the datagram of this number?  -1: it is none. */
static int
port_check(const uint8_t *frame, u_int len, u_long number, u_int size)
{
	const uint8_t *data = frame + PORT_HEADERS;
	u_int i;

	if (len < PORT_HEADERS || be16dec(frame + 12) != 0x0800 || frame[PORT_ETHER + 9] != 17 ||
	    be16dec(frame + PORT_ETHER + PORT_IP + 2) != PORT_UDP)
		return (-1);
	if (len < PORT_HEADERS + size || port_sum(frame + PORT_ETHER, 8 + size) != 0)
		return (0);
	for (i = 0; i < size; i++) {
		if (data[i] != ((number * 31 + i * 7 + (i >> 8)) & 0xff))
			return (0);
	}
	return (1);
}

/*
 * Return the slots before the ring's head, with an invalid buffer in the last of those that the driver
 * then gives to the device: one slot stays unused.
 */
static void
port_spoil(struct port *p, struct netmap_ring *ring)
{
	struct netmap_slot *slot;
	uint32_t buf;

	slot = &ring->slot[(ring->head + ring->num_slots - 2) % ring->num_slots];
	buf = slot->buf_idx;
	slot->buf_idx = 0;
	(void)ioctl(p->p_fd, NIOCRXSYNC, NULL);
	slot->buf_idx = buf;
}

static int
port_receive(struct port *p, u_long count, u_int size, bool spoil)
{
	struct netmap_ring *ring;
	u_long n = 0;
	u_int i, first;
	int is;

	complain("nmport: ready\n");
	while (n < count) {
		if (!port_wait(p, POLLIN))
			return (complain("nmport: nothing is received\n"));
		for (i = 0; i < p->p_rings; i++) {
			ring = port_rx(p, i);
			first = ring->head;
			for (; ring->head != ring->tail;
			    ring->head = ring->cur = port_next(ring, ring->head)) {
				is = port_check(port_buffer(ring, ring->head),
				    ring->slot[ring->head].len, n, size);
				if (is == 0)
					return (complain("nmport: a wrong datagram\n"));
				n += is > 0;
			}
			if (spoil && ring->head != first)
				port_spoil(p, ring);
		}
	}
	complain("nmport: received all\n");
	return (0);
}

/* A frame, or a part of one, into a slot of the other port. */
static bool
port_copy(struct netmap_ring *from, u_int slot, struct port *other)
{
	struct netmap_ring *to = port_tx(other, 0);

	if (to->head == to->tail && !port_wait(other, POLLOUT))
		return (false);
	memcpy(port_buffer(to, to->head), port_buffer(from, slot),
	    from->slot[slot].len);
	to->slot[to->head].len = from->slot[slot].len;
	to->slot[to->head].flags = from->slot[slot].flags & NS_MOREFRAG;
	to->head = to->cur = port_next(to, to->head);
	return (true);
}

static int
port_forward(struct port *p, struct port *other)
{
	struct netmap_ring *ring;
	u_int i;

	complain("nmport: ready\n");
	while (port_wait(p, POLLIN)) {
		for (i = 0; i < p->p_rings; i++) {
			ring = port_rx(p, i);
			for (; ring->head != ring->tail;
			    ring->head = ring->cur = port_next(ring, ring->head)) {
				if (!port_copy(ring, ring->head, other))
					return (complain("nmport: nothing can be sent\n"));
			}
		}
		if (ioctl(other->p_fd, NIOCTXSYNC, NULL) != 0)
			return (complain("nmport: not all was sent\n"));
	}
	return (complain("nmport: nothing is received\n"));
}

int
main(int argc, char **argv)
{
	struct port p, other;
	u_long count;
	u_int size;

	if (argc != 5 && (argc != 4 || strcmp(argv[1], "forward") != 0) &&
	    (argc != 3 || strcmp(argv[1], "hold") != 0))
		return (complain("usage: nmport send|receive|spoil IFNAME COUNT SIZE\n"
		    "       nmport forward IFNAME OTHER\n"
		    "       nmport hold IFNAME\n"));
	if (!port_open(&p, argv[2]))
		return (complain("nmport: the interface can't be opened\n"));
	if (strcmp(argv[1], "forward") == 0) {
		if (!port_open(&other, argv[3]))
			return (complain("nmport: the other interface can't be opened\n"));
		return (port_forward(&p, &other));
	}
	if (strcmp(argv[1], "hold") == 0) {
		complain("nmport: ready\n");
		for (;;)
			(void)port_wait(&p, 0);
	}
	count = strtoul(argv[3], NULL, 10);
	size = strtoul(argv[4], NULL, 10);
	if (strcmp(argv[1], "send") == 0)
		return (port_send(&p, count, size));
	return (port_receive(&p, count, size, strcmp(argv[1], "spoil") == 0));
}
