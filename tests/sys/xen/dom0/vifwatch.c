/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What dom0's kernel records about the packets of an interface, to a guest and from it: run in dom0.
 *
 *	vifwatch INTERFACE		until SIGTERM
 *
 * Linux reports for each packet whether its checksum is partial, and the segment size of a GSO packet
 * (PACKET_VNET_HDR).  One line is printed for each kind of packet at the end:
 *
 *	from tcp4 packets 210 partial 200 gso 190 mss 1448 longest 65226
 *
 * Statically linked, as dom0 has no usable C library.
 */

#include <sys/ioctl.h>
#include <sys/socket.h>
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <netinet/in.h>
#include <err.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct kind {
	const char	*name;
	unsigned	 packets, partial, gso, mss, longest;
} kinds[2][5] = {
	{ { .name = "tcp4" }, { .name = "udp4" }, { .name = "tcp6" }, { .name = "udp6" },
	    { .name = "other" } },
	{ { .name = "tcp4" }, { .name = "udp4" }, { .name = "tcp6" }, { .name = "udp6" },
	    { .name = "other" } },
};

static volatile sig_atomic_t over;

static void
stop(int sig)
{
	(void)sig;
	over = 1;
}

static int
kind_of(const uint8_t *frame, size_t len)
{
	if (len >= 34 && frame[12] == 0x08 && frame[13] == 0x00)
		return (frame[23] == IPPROTO_TCP ? 0 : frame[23] == IPPROTO_UDP ? 1 : 4);
	if (len >= 54 && frame[12] == 0x86 && frame[13] == 0xdd)
		return (frame[20] == IPPROTO_TCP ? 2 : frame[20] == IPPROTO_UDP ? 3 : 4);
	return (4);
}

static void
count(bool outgoing, const uint8_t *buf, size_t len)
{
	struct virtio_net_hdr hdr;
	struct kind *k;

	if (len < sizeof(hdr))
		return;
	memcpy(&hdr, buf, sizeof(hdr));
	len -= sizeof(hdr);
	k = &kinds[outgoing][kind_of(buf + sizeof(hdr), len)];
	k->packets++;
	k->partial += (hdr.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) != 0;
	if (hdr.gso_type != VIRTIO_NET_HDR_GSO_NONE) {
		k->gso++;
		if (hdr.gso_size > k->mss)
			k->mss = hdr.gso_size;
	}
	if (len > k->longest)
		k->longest = len;
}

int
main(int argc, char **argv)
{
	static uint8_t buf[sizeof(struct virtio_net_hdr) + 65536 + 64];
	struct sigaction sa = { .sa_handler = stop };
	struct sockaddr_ll sll = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
	socklen_t sllen;
	int on = 1, room = 8 << 20, s;
	ssize_t n;

	if (argc != 2)
		errx(1, "usage: vifwatch interface");
	s = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
	if (s < 0)
		err(1, "socket");
	if (setsockopt(s, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on)) != 0)
		err(1, "PACKET_VNET_HDR");
	(void)setsockopt(s, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room));
	sll.sll_ifindex = if_nametoindex(argv[1]);
	if (sll.sll_ifindex == 0 || bind(s, (struct sockaddr *)&sll, sizeof(sll)) != 0)
		err(1, "%s", argv[1]);
	sigaction(SIGTERM, &sa, NULL);
	printf("ready\n");
	fflush(stdout);
	while (!over) {
		sllen = sizeof(sll);
		n = recvfrom(s, buf, sizeof(buf), 0, (struct sockaddr *)&sll, &sllen);
		if (n > 0)
			count(sll.sll_pkttype == PACKET_OUTGOING, buf, n);
		else if (n < 0 && errno != EINTR)
			err(1, "recvfrom");
	}
	for (int i = 0; i < 2; i++)
		for (int j = 0; j < 5; j++)
			printf("%s %s packets %u partial %u gso %u mss %u longest %u\n",
			    i == 0 ? "from" : "to", kinds[i][j].name, kinds[i][j].packets,
			    kinds[i][j].partial, kinds[i][j].gso, kinds[i][j].mss,
			    kinds[i][j].longest);
	return (0);
}
