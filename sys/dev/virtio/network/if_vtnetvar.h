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

#include <sys/malloc.h>
#include <sys/sysctl.h>

#include <dev/pv/pv_dma.h>

/* Where the pieces of a command are in its page. */
#define	VTNET_CTRL_HDR		0
#define	VTNET_CTRL_ACK		8
#define	VTNET_CTRL_DATA		16
#define	VTNET_CTRL_DATA_MAX	(PAGE_SIZE - VTNET_CTRL_DATA)
#define	VTNET_CTRL_SEGS		3	/* each in a segment of its own */

/* The control queue: one command at a time, in memory of its own. */
struct vtnet_ctrl {
	struct pvq	*vtc_pvq;
	struct pv_dma	 vtc_dma;	/* a page */
	uint8_t		*vtc_mem;
	bool		 vtc_dead;	/* a command never completed */
	bool		 vtc_leaked;	/* the device may still
					 * write to the page */
	bool		 vtc_short;	/* the ring can't hold a command */
	bool		 vtc_hopeless;	/* nor did any since
					 * the reset that followed */
	uint64_t	 vtc_commands;
	uint64_t	 vtc_errors;	/* refused by the device */
	uint64_t	 vtc_timeouts;
	uint64_t	 vtc_lengths;	/* answers with an invalid
					 * used length */
	uint64_t	 vtc_overflows;	/* times the filter was too small */
};

enum vtnet_level {	/* how far attach came */
	VTNET_NONE, VTNET_ALLOCATED, VTNET_CTRL, VTNET_QUEUES, VTNET_LIVE,
	    VTNET_ATTACHED
};

struct vtnet_rxq {
	struct pvq	*vtr_pvq;
	uint16_t	 vtr_left;	/* buffers that the current
					 * frame still has */
	struct pv_net_rxhdr vtr_first;	/* and its first one,
					 * if it has others */
};

/* Interrupt coalescing of a kind of queue, or of one queue. */
struct vtnet_coal {
	struct vtnet_softc *vtl_softc;
	uint8_t		 vtl_command;
	uint16_t	 vtl_vq;	/* VQ_SET: of this queue */
	uint32_t	 vtl_packets;
	uint32_t	 vtl_usecs;
};

struct vtnet_softc {
	device_t	 vtn_dev;
	struct sysctl_ctx_list vtn_sysctl;
	enum vtnet_level vtn_level;
	uint64_t	 vtn_features;
	bool		 vtn_modern;
	u_int		 vtn_hdrlen;
	struct pv_net	*vtn_pn;
	int		 vtn_wanted;	/* pairs to be used,
					 * if there is memory for all */
	int		 vtn_npairs;	/* pairs of queues that are used */
	int		 vtn_max_pairs;	/* that the device has */
	struct vtnet_rxq *vtn_rxqs;
	struct sysctl_ctx_list vtn_coal_sysctl;
	struct vtnet_coal *vtn_coals;
	int		 vtn_ncoals;
	uint64_t	 vtn_config_changes;
	uint64_t	 vtn_needs_resets;
	struct vtnet_ctrl vtn_ctrl;
};

static inline bool
vtnet_has(const struct vtnet_softc *sc, uint64_t mask)
{
	return ((sc->vtn_features & mask) == mask);
}

#define	vtnet_16(sc, v)	virtio_16((sc)->vtn_modern, (v))
#define	vtnet_32(sc, v)	virtio_32((sc)->vtn_modern, (v))
#define	vtnet_64(sc, v)	virtio_64((sc)->vtn_modern, (v))

MALLOC_DECLARE(M_VTNET);

/* if_vtnet_tunable.c */
enum {
	VTNET_CSUM_DISABLE = PV_NET_NTUNABLES,
	VTNET_TSO_DISABLE,
	VTNET_LRO_DISABLE,
	VTNET_MQ_DISABLE,
	VTNET_MQ_MAX_PAIRS,
	VTNET_QUEUE_RESET,
	VTNET_DEVICE_MTU,
	VTNET_DISABLE_FEATURES,
	VTNET_NTUNABLES
};
extern struct pv_tunable vtnet_tunables[VTNET_NTUNABLES];
int	vtnet_tunable(const struct vtnet_softc *sc, u_int which);

/* if_vtnet_features.c */
int	vtnet_negotiate(struct vtnet_softc *sc);
bool	vtnet_soft_lro(const struct vtnet_softc *sc);
int	vtnet_read_mtu(struct vtnet_softc *sc, uint16_t *mtu);

/* if_vtnet_ctrl.c */
int	vtnet_ctrl_alloc(struct vtnet_softc *sc);
void	vtnet_ctrl_free(struct vtnet_softc *sc);
void	vtnet_ctrl_drain(struct vtnet_softc *sc, bool stopped);
/* The queues are allocated: can the control queue hold a command? */
void	vtnet_ctrl_check(struct vtnet_softc *sc);
void	vtnet_ctrl_sysctl(struct vtnet_softc *sc);
void	*vtnet_ctrl_data(struct vtnet_softc *sc);
int	vtnet_ctrl_command(struct vtnet_softc *sc, uint8_t class,
    uint8_t command, size_t len);
int	vtnet_set_filter(void *softc, const struct pv_net_filter *filter);
int	vtnet_set_lladdr(void *softc, const uint8_t *lladdr);
int	vtnet_set_offloads(void *softc, u_int offloads);
int	vtnet_set_vlan(void *softc, uint16_t tag, bool on);
void	vtnet_announced(struct vtnet_softc *sc);

/* if_vtnet_mq.c */
uint64_t vtnet_mq_invalid(struct vtnet_softc *sc);
int	vtnet_mq_read(struct vtnet_softc *sc);
int	vtnet_set_pairs(void *softc, int n);

/* if_vtnet_coal.c */
void	vtnet_coal_attach(struct vtnet_softc *sc);
void	vtnet_coal_free(struct vtnet_softc *sc);
void	vtnet_set_coalescing(void *softc);
void	vtnet_coal_restore_queue(struct vtnet_softc *sc, uint16_t vq);

#endif /* !_DEV_VIRTIO_NETWORK_IF_VTNETVAR_H_ */
