/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The memory that a virtio balloon shares with its device, and the requests
 * made of it: a request is put into a queue, and waited for.
 *
 * Locking.  vtbn_mtx only for sleeping and waking.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sysctl.h>

#include <dev/virtio/balloon/virtio_balloon_var.h>

struct pv_tunable vtballoon_tunables[] = {
	[VTBALLOON_POISON] = PV_TUNABLE("poison", 0, 0, 4294967295, 0,
	    "Value that pages are filled with when the host returns them, 0: none"),
	[VTBALLOON_REPORT_RATE] = PV_TUNABLE("report_rate", 128, 0, 1048576,
	    PVT_RW,
	    "Free memory that is reported to the host in a second, at most, in MB; 0: none"),
	[VTBALLOON_TIMEOUT] = PV_TUNABLE("timeout", 10, 1, 3600, PVT_RW,
	    "Seconds without an answer after which the device is reset"),
};
PV_TUNABLES(vtballoon_tunables, hw, "vtballoon", vtballoon_tunables,
    "VirtIO balloons");

int
vtballoon_alloc_shared(struct vtballoon_softc *sc)
{
	int error;

	error = pv_dma_alloc(&sc->vtbn_dma, bus_get_dma_tag(sc->vtbn_dev),
	    sizeof(*sc->vtbn_shared), PAGE_SIZE);
	sc->vtbn_shared = sc->vtbn_dma.pdm_mem;
	return (error);
}

void
vtballoon_free_shared(struct vtballoon_softc *sc, bool leaked)
{
	if (leaked && sc->vtbn_shared != NULL)
		device_printf(sc->vtbn_dev,
		    "the device did not release its memory: leaking it\n");
	else
		pv_dma_free(&sc->vtbn_dma);
}

void
vtballoon_put(struct vtballoon_softc *sc, struct pvq *q, void *what, size_t len)
{
	bus_dma_segment_t seg = {
		.ds_addr = sc->vtbn_dma.pdm_addr + (vm_offset_t)what -
		    (vm_offset_t)sc->vtbn_shared,
		.ds_len = len,
	};
	struct pvq_chain pc = {
		.pc_segs = &seg,
		.pc_nread = 1,
		.pc_cookie = what,
	};

	pv_dma_sync(&sc->vtbn_dma, BUS_DMASYNC_PREWRITE);
	pvq_put(q, &pc, 1);
	pvq_commit(q);
	(void)pvq_kick(q);
}

/* The device gave a chain back; if it was one of pfns, that array is free. */
static void
vtballoon_done(struct vtballoon_softc *sc, const void *cookie)
{
	u_int i;

	for (i = 0; i < VTB_ARRAYS; i++) {
		if (cookie == sc->vtbn_shared->pfns[i])
			sc->vtbn_busy &= ~(1u << i);
	}
}

int
vtballoon_wait(struct vtballoon_softc *sc, struct pvq *q, int left)
{
	struct pvq_done done;
	int seconds = vtballoon_tunables[VTBALLOON_TIMEOUT].pt_value;
	int end = ticks + seconds * hz, error = 0;

	mtx_lock(&sc->vtbn_mtx);
	for (;;) {
		while (pvq_get(q, &done, 1) != 0) {
			vtballoon_done(sc, done.pd_cookie);
			sc->vtbn_complained = false;
			end = ticks + seconds * hz;
		}
		if (pvq_inflight(q) <= left)
			break;
		if (vtballoon_is_bad(sc))
			error = EIO;
		else if (ticks - end >= 0)
			error = ETIMEDOUT;
		if (error != 0)
			break;
		if (!pvq_intr_enable(q, pvq_inflight(q) - left))
			(void)msleep(sc, &sc->vtbn_mtx, 0, "vtball", hz);
	}
	mtx_unlock(&sc->vtbn_mtx);
	if (error == ETIMEDOUT && !sc->vtbn_complained) {
		sc->vtbn_complained = true;
		device_printf(sc->vtbn_dev,
		    "no answer on %s for %d seconds; resetting the device\n",
		    q->q_name, seconds);
	}
	if (error == ETIMEDOUT)
		pv_dev_need_reset(&sc->vtbn_balloon.pb_pvdev, PV_DEV_ALL,
		    ETIMEDOUT);
	return (error);
}
