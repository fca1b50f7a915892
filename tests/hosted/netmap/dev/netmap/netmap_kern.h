/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What pv_net uses of netmap(4)'s interface to drivers, which is no part of the installed headers: the
 * test is netmap (pv_net_card_netmap.c).
 */

#ifndef _HOSTED_NETMAP_KERN_H_
#define	_HOSTED_NETMAP_KERN_H_

enum txrx { NR_RX, NR_TX };

#define	NKR_PENDINTR	0x1

struct netmap_kring {
	struct netmap_adapter *na;
	struct netmap_ring *ring;
	uint32_t	 nr_hwcur;
	uint32_t	 nr_hwtail;
	uint32_t	 nr_kflags;
	uint32_t	 rhead;
	uint32_t	 ring_id;
};

#define	NAF_BDG_MAYSLEEP	0x1

struct nm_config_info {
	u_int		 num_tx_rings, num_tx_descs;
	u_int		 num_rx_rings, num_rx_descs;
	u_int		 rx_buf_maxsize;
};

struct netmap_adapter {
	if_t		 ifp;
	uint32_t	 na_flags;
	u_int		 num_tx_rings, num_tx_desc;
	u_int		 num_rx_rings, num_rx_desc;
	u_int		 rx_buf_maxsize;
	int		(*nm_register)(struct netmap_adapter *na, int on);
	int		(*nm_txsync)(struct netmap_kring *kring, int flags);
	int		(*nm_rxsync)(struct netmap_kring *kring, int flags);
	int		(*nm_config)(struct netmap_adapter *na, struct nm_config_info *info);
};

struct netmap_adapter *card_netmap_adapter(if_t ifp);
void	*card_netmap_buf(struct netmap_slot *slot, uint64_t *paddr);
void	*card_netmap_no_buf(void);

#define	NA(ifp)			card_netmap_adapter(ifp)
#define	PNMB(na, slot, paddrp)	((void)(na), card_netmap_buf(slot, paddrp))
#define	NMB(na, slot)		((void)(na), card_netmap_buf(slot, NULL))
#define	NETMAP_BUF_BASE(na)	((void)(na), card_netmap_no_buf())
#define	NETMAP_BUF_SIZE(na)	((void)(na), 2048u)

static inline uint32_t
nm_next(uint32_t i, uint32_t last)
{
	return (i == last ? 0 : i + 1);
}

static inline uint32_t
nm_prev(uint32_t i, uint32_t last)
{
	return (i == 0 ? last : i - 1);
}

void	nm_set_native_flags(struct netmap_adapter *na);
void	nm_clear_native_flags(struct netmap_adapter *na);
bool	nm_native_on(struct netmap_adapter *na);
void	netmap_krings_mode_commit(struct netmap_adapter *na, int on);
int	netmap_attach(struct netmap_adapter *na);
void	netmap_detach(if_t ifp);
struct netmap_kring *netmap_kring_on(struct netmap_adapter *na, u_int q, enum txrx t);
int	netmap_ring_reinit(struct netmap_kring *kring);
int	netmap_rx_irq(if_t ifp, u_int q, u_int *work);
#define	netmap_tx_irq(ifp, q)	netmap_rx_irq(ifp, q, NULL)

#endif /* !_HOSTED_NETMAP_KERN_H_ */
