/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * vtnet(4): what its files share.
 */

#ifndef _DEV_VIRTIO_NETWORK_IF_VTNETVAR_H_
#define	_DEV_VIRTIO_NETWORK_IF_VTNETVAR_H_

/* The control queue: one command at a time, in memory of its own. */
struct vtnet_ctrl {
	struct pvq	*vtc_pvq;
	bus_dma_tag_t	 vtc_tag;
	bus_dmamap_t	 vtc_map;
	uint8_t		*vtc_mem;	/* a page */
	bus_addr_t	 vtc_addr;
	bool		 vtc_dead;	/* a command never completed */
	bool		 vtc_hopeless;	/* none did since the reset that this brought */
	uint64_t	 vtc_commands;
	uint64_t	 vtc_errors;	/* refused by the device */
	uint64_t	 vtc_timeouts;
	uint64_t	 vtc_overflows;	/* groups that did not fit into the filter */
};

enum vtnet_level {	/* how far attach came */
	VTNET_NONE, VTNET_ALLOCATED, VTNET_QUEUES, VTNET_CTRL, VTNET_LIVE, VTNET_ATTACHED
};

struct vtnet_softc {
	device_t	 vtn_dev;
	enum vtnet_level vtn_level;
	uint64_t	 vtn_features;
	bool		 vtn_modern;
	u_int		 vtn_hdrlen;
	struct pv_net	*vtn_pn;
	struct pvq	**vtn_rxq;
	uint16_t	 vtn_rx_left;	/* buffers that the current frame still has */
	uint64_t	 vtn_config_changes;
	uint64_t	 vtn_needs_resets;
	struct vtnet_ctrl vtn_ctrl;
};

static inline bool
vtnet_has(const struct vtnet_softc *sc, uint64_t mask)
{
	return ((sc->vtn_features & mask) == mask);
}

/* Between our byte order and the device's (VirtIO 1.3, 2.4.3 and 5.1.4.2): its own inverse. */
static inline uint16_t
vtnet_16(const struct vtnet_softc *sc, uint16_t value)
{
	return (sc->vtn_modern ? htole16(value) : value);
}

static inline uint32_t
vtnet_32(const struct vtnet_softc *sc, uint32_t value)
{
	return (sc->vtn_modern ? htole32(value) : value);
}

static inline uint64_t
vtnet_64(const struct vtnet_softc *sc, uint64_t value)
{
	return (sc->vtn_modern ? htole64(value) : value);
}

SYSCTL_DECL(_hw_vtnet);

/* if_vtnet_features.c */
int	vtnet_negotiate(struct vtnet_softc *sc);
int	vtnet_read_mtu(struct vtnet_softc *sc, uint16_t *mtu);

/* if_vtnet_ctrl.c */
int	vtnet_ctrl_alloc(struct vtnet_softc *sc);
void	vtnet_ctrl_free(struct vtnet_softc *sc);
void	vtnet_ctrl_drain(struct vtnet_softc *sc);
void	vtnet_ctrl_sysctl(struct vtnet_softc *sc);
int	vtnet_set_filter(void *softc, const struct pv_net_filter *filter);
int	vtnet_set_lladdr(void *softc, const uint8_t *lladdr);
int	vtnet_set_offloads(void *softc, u_int offloads);

#endif /* !_DEV_VIRTIO_NETWORK_IF_VTNETVAR_H_ */
