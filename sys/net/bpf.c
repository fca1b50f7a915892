/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Where packet capture hooks into the interfaces: drivers attach and tap, as with bpf(4), and
 * functions of this kernel listen (net/bpf_tree.h).  A tap without listeners returns after a few
 * instructions.
 *
 * Locking.  bpf_mtx covers the lists of listeners; taps go through them in the network epoch.
 *
 * Gaps.  Listeners get packets only, not memory or what is put before a packet (bpf_tap(),
 * bpf_mtap2()'s data).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/ck.h>
#include <sys/epoch.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/mutex.h>
#include <sys/socket.h>
#include <net/bpf.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_var.h>
#include <net/if_private.h>

#include <net/bpf_tree.h>
#include <net/if_subr_tree.h>

MALLOC_DEFINE(M_BPF, "BPF", "packet capture");

struct bpf_if {
	struct bpf_if_ext	 bif_ext;	/* first: seen by bpf_peers_present() */
	struct ifnet		*bif_ifp;
	u_int			 bif_dlt;	/* DLT_* of net/dlt.h */
	u_int			 bif_hdrlen;
	struct epoch_context	 bif_epoch_ctx;
};

struct bpf_d {
	CK_LIST_ENTRY(bpf_d) bd_next;
	bool		 bd_listed;	/* its interface is still there */
	bpf_listen_f	*bd_func;
	void		*bd_arg;
};

static struct mtx bpf_mtx;
MTX_SYSINIT(bpf, &bpf_mtx, "bpf", MTX_DEF);

/* What an interface has before it is attached and after it is detached. */
static struct bpf_if bpf_none = {
	.bif_ext = { .bif_dlist = CK_LIST_HEAD_INITIALIZER() }
};

void
bpf_attach_none(struct ifnet *ifp)
{
	ifp->if_bpf = &bpf_none;
}

void
bpfattach2(struct ifnet *ifp, u_int dlt, u_int hdrlen, struct bpf_if **driverp)
{
	struct bpf_if *bp;

	bp = malloc(sizeof(*bp), M_BPF, M_WAITOK | M_ZERO);
	CK_LIST_INIT(&bp->bif_ext.bif_dlist);
	bp->bif_ifp = ifp;
	bp->bif_dlt = dlt;
	bp->bif_hdrlen = hdrlen;
	*driverp = bp;
}

void
bpfattach(struct ifnet *ifp, u_int dlt, u_int hdrlen)
{
	bpfattach2(ifp, dlt, hdrlen, &ifp->if_bpf);
}

static void
bpf_if_free(epoch_context_t ctx)
{
	free(__containerof(ctx, struct bpf_if, bif_epoch_ctx), M_BPF);
}

void
bpfdetach(struct ifnet *ifp)
{
	struct bpf_if *bp = ifp->if_bpf;
	struct bpf_d *d;

	if (bp == &bpf_none)
		return;
	mtx_lock(&bpf_mtx);
	bpf_attach_none(ifp);
	while ((d = CK_LIST_FIRST(&bp->bif_ext.bif_dlist)) != NULL) {
		CK_LIST_REMOVE(d, bd_next);
		d->bd_listed = false;
	}
	mtx_unlock(&bpf_mtx);
	NET_EPOCH_CALL(bpf_if_free, &bp->bif_epoch_ctx);
}

int
bpf_listen(if_t ifp, u_int dlt, bpf_listen_f *func, void *arg, struct bpf_d **dp)
{
	struct bpf_d *d;
	int error = 0;

	d = malloc(sizeof(*d), M_BPF, M_WAITOK | M_ZERO);
	d->bd_func = func;
	d->bd_arg = arg;
	mtx_lock(&bpf_mtx);
	if (ifp->if_bpf == &bpf_none || ifp->if_bpf->bif_dlt != dlt)
		error = EPROTONOSUPPORT;
	else {
		CK_LIST_INSERT_HEAD(&ifp->if_bpf->bif_ext.bif_dlist, d, bd_next);
		d->bd_listed = true;
	}
	mtx_unlock(&bpf_mtx);
	if (error != 0) {
		free(d, M_BPF);
		return (error);
	}
	*dp = d;
	return (0);
}

void
bpf_unlisten(struct bpf_d *d)
{
	mtx_lock(&bpf_mtx);
	if (d->bd_listed)
		CK_LIST_REMOVE(d, bd_next);
	mtx_unlock(&bpf_mtx);
	NET_EPOCH_WAIT();
	free(d, M_BPF);
}

bool
bpf_peers_present_if(struct ifnet *ifp)
{
	return (bpf_peers_present(ifp->if_bpf));
}

void
bpf_tap(struct bpf_if *bp __unused, u_char *pkt __unused, u_int len __unused)
{
}

void
bpf_tap_if(struct ifnet *ifp, u_char *pkt, u_int len)
{
	bpf_tap(ifp->if_bpf, pkt, len);
}

void
bpf_mtap(struct bpf_if *bp, struct mbuf *m)
{
	struct epoch_tracker et;
	struct bpf_d *d;

	/* Drivers tap from their timers, too. */
	NET_EPOCH_ENTER(et);
	CK_LIST_FOREACH(d, &bp->bif_ext.bif_dlist, bd_next)
		d->bd_func(d->bd_arg, m);
	NET_EPOCH_EXIT(et);
}

void
bpf_mtap_if(struct ifnet *ifp, struct mbuf *m)
{
	bpf_mtap(ifp->if_bpf, m);
}

void
bpf_mtap2(struct bpf_if *bp, void *data __unused, u_int dlen __unused, struct mbuf *m)
{
	bpf_mtap(bp, m);
}

void
bpf_mtap2_if(struct ifnet *ifp, void *data, u_int dlen, struct mbuf *m)
{
	bpf_mtap2(ifp->if_bpf, data, dlen, m);
}

void
ether_bpf_mtap_if(struct ifnet *ifp, struct mbuf *m)
{
	bpf_mtap(ifp->if_bpf, m);
}
