/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Where packet capture hooks into the interfaces: drivers attach and tap, as with bpf(4).
 *
 * Gaps.  Nothing listens yet: the lists of listeners stay empty, so that a tap finds in a few
 * instructions that there is nothing to do.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/epoch.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/socket.h>
#include <net/bpf.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_var.h>
#include <net/if_private.h>

#include <net/if_subr.h>

MALLOC_DEFINE(M_BPF, "BPF", "packet capture");

struct bpf_if {
	struct bpf_if_ext	 bif_ext;	/* first: seen by bpf_peers_present() */
	struct ifnet		*bif_ifp;
	u_int			 bif_dlt;	/* DLT_* of net/dlt.h */
	u_int			 bif_hdrlen;
	struct epoch_context	 bif_epoch_ctx;
};

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

	if (bp == &bpf_none)
		return;
	bpf_attach_none(ifp);
	NET_EPOCH_CALL(bpf_if_free, &bp->bif_epoch_ctx);
}

bool
bpf_peers_present_if(struct ifnet *ifp)
{
	return (bpf_peers_present(ifp->if_bpf));
}

void
bpf_tap(struct bpf_if *bp __diagused, u_char *pkt __unused, u_int len __unused)
{
	KASSERT(!bpf_peers_present(bp), ("%s: a listener that can't be there", __func__));
}

void
bpf_tap_if(struct ifnet *ifp, u_char *pkt, u_int len)
{
	bpf_tap(ifp->if_bpf, pkt, len);
}

void
bpf_mtap(struct bpf_if *bp __diagused, struct mbuf *m __unused)
{
	KASSERT(!bpf_peers_present(bp), ("%s: a listener that can't be there", __func__));
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
