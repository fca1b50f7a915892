/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * How much of its life a disk has left: VIRTIO_BLK_F_LIFETIME, GET_LIFETIME
 * (VirtIO 1.3, 5.2.6), as sysctls.  The device is asked each time that one is
 * read, among the requests of all others, so that the values are never old and
 * cost nothing otherwise.
 *
 * A value that the specification reserves is reported once, counted each time,
 * and shown as 0, which is what the device should have answered: not known.
 *
 * Locking: pv_blk_query()'s; the counter is changed atomically.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/sysctl.h>

#include <machine/atomic.h>

#include <dev/virtio/block/virtio_blk_var.h>

#define	VTBLK_LIFETIME_SECS	1	/* a sysctl waits for the device */

static const struct vtblk_life {
	const char	*vl_name;
	const char	*vl_field;	/* as in the specification */
	uint16_t	vl_offset;
	uint16_t	vl_last;	/* the greatest value that is defined */
	u_int		vl_unit;
	const char	*vl_descr;
} vtblk_lives[] = {
	{ "pre_eol", "pre_eol_info", offsetof(struct virtio_blk_lifetime,
	    pre_eol_info), VIRTIO_BLK_PRE_EOL_INFO_URGENT, 1,
	    "Reserved blocks in use: 1 less than 80 %, 2 more, 3 more than 90 %, 0 not known"
	    },
	{ "slc_used", "device_lifetime_est_typ_a",
	    offsetof(struct virtio_blk_lifetime, device_lifetime_est_typ_a),
	    VIRTIO_BLK_LIFETIME_EXCEEDED, 10,
	    "Percent of the SLC cells' estimated life used at most, 110 more than all, 0 not known"
	    },
	{ "mlc_used", "device_lifetime_est_typ_b",
	    offsetof(struct virtio_blk_lifetime, device_lifetime_est_typ_b),
	    VIRTIO_BLK_LIFETIME_EXCEEDED, 10,
	    "Percent of the MLC cells' estimated life used at most, 110 more than all, 0 not known"
	    },
};

static int
vtblk_sysctl_life(SYSCTL_HANDLER_ARGS)
{
	struct vtblk_softc *sc = arg1;
	const struct vtblk_life *vl = &vtblk_lives[arg2];
	struct virtio_blk_lifetime answer;
	uint16_t value;
	u_int shown;
	int error;

	/* sysctl(8) asks for the length first. */
	if (req->oldptr == NULL)
		return (SYSCTL_OUT(req, NULL, sizeof(shown)));
	error = pv_blk_query(&sc->vtb_blk, &answer, sizeof(answer),
	    VTBLK_LIFETIME_SECS);
	if (error != 0)
		return (error);
	memcpy(&value, (const char *)&answer + vl->vl_offset, sizeof(value));
	value = vtblk_16(sc, value);
	shown = value * vl->vl_unit;
	if (value > vl->vl_last) {
		shown = 0;
		if (atomic_fetchadd_64(&sc->vtb_bad_lifetimes, 1) == 0)
			device_printf(sc->vtb_dev,
			    "invalid lifetime (%s %u, at most %u): shown as "
			    "not known\n", vl->vl_field, value, vl->vl_last);
	}
	return (sysctl_handle_int(oidp, &shown, 0, req));
}

void
vtblk_sysctl_lifetime(struct vtblk_softc *sc)
{
	struct sysctl_ctx_list *ctx = &sc->vtb_sysctl;
	struct sysctl_oid_list *list;
	struct sysctl_oid *node;
	u_int i;

	if ((sc->vtb_features & VIRTIO_BLK_F_LIFETIME) == 0)
		return;
	node = SYSCTL_ADD_NODE(ctx,
	    SYSCTL_CHILDREN(device_get_sysctl_tree(sc->vtb_dev)), OID_AUTO,
	    "lifetime", CTLFLAG_RD | CTLFLAG_MPSAFE, NULL,
	    "Wear that the device reports");
	list = SYSCTL_CHILDREN(node);
	for (i = 0; i < nitems(vtblk_lives); i++)
		SYSCTL_ADD_PROC(ctx, list, OID_AUTO, vtblk_lives[i].vl_name,
		    CTLTYPE_UINT | CTLFLAG_RD | CTLFLAG_MPSAFE, sc, i,
		    vtblk_sysctl_life, "IU", vtblk_lives[i].vl_descr);
	SYSCTL_ADD_U64(ctx, list, OID_AUTO,
	    "invalid", CTLFLAG_RD, &sc->vtb_bad_lifetimes, 0,
	    "Values that the specification reserves");
}
