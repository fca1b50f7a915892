/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What all queues have in common: being broken, and being counted.
 *
 * The module pv, which the personalities are linked into as well, is declared
 * here.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/module.h>
#include <sys/bus.h>
#include <sys/sysctl.h>

#include <dev/pv/pv_log.h>
#include <dev/pv/dev/pv_dev.h>
#include <dev/pv/queue/pvq.h>

static const char *const pvq_faults[PVQ_FAULT_TRANSPORT] = {
	[PVQ_OK] = "nothing",
	[PVQ_FAULT_INDEX] = "producer index ahead of what was posted",
	[PVQ_FAULT_ID] = "id not in flight",
	[PVQ_FAULT_OWNER] = "invalid payload",
	[PVQ_FAULT_SKIP] = "a place of the ring was skipped",
};

static const struct pvq_counter pvq_counters[] = {
	PVQ_COUNTER(qs_chains, "chains", "Chains submitted to the device"),
	PVQ_COUNTER(qs_segs, "segs", "Segments in those chains"),
	PVQ_COUNTER(qs_full, "full", "Times that the ring had no room"),
	PVQ_COUNTER(qs_done, "done", "Chains completed"),
	PVQ_COUNTER(qs_kicks, "kicks", "Notifications sent to the device"),
	PVQ_COUNTER(qs_nokicks, "nokicks",
	    "Notifications that the device did not request"),
	PVQ_COUNTER(qs_intrs, "intrs", "Interrupts taken for this queue"),
	PVQ_COUNTER(qs_faults, "faults",
	    "Times that the device violated the ring's protocol"),
	{ 0, NULL, NULL }
};

MODULE_VERSION(pv, 1);

static int
pv_modevent(module_t mod __unused, int what, void *arg __unused)
{

	switch (what) {
	case MOD_LOAD:
	case MOD_UNLOAD:
	case MOD_SHUTDOWN:
		return (0);
	default:
		return (EOPNOTSUPP);
	}
}

static moduledata_t pv_module = {
	"pv",
	pv_modevent,
	NULL
};

DECLARE_MODULE(pv, pv_module, SI_SUB_DRIVERS, SI_ORDER_FIRST);

/* The phrase for a fault in a message. */
static const char *
pvq_fault_phrase(const struct pvq *q, u_int fault)
{

	if (fault < PVQ_FAULT_TRANSPORT)
		return (pvq_faults[fault]);
	KASSERT(q->q_ops->qo_faults != NULL, ("%s: fault %u", __func__, fault));
	return (q->q_ops->qo_faults[fault - PVQ_FAULT_TRANSPORT]);
}

void
pvq_break(struct pvq *q, u_int fault, uintmax_t value)
{

	KASSERT(fault != PVQ_OK, ("%s: no fault", __func__));

	/*
	 * Both sides, and the owner, may find a fault at the same time; the
	 * first one counts.
	 */
	if (atomic_cmpset_32(&q->q_fault, PVQ_OK, fault) == 0)
		return;
	if (PV_LOGS(++q->q_stats.qs_faults))
		device_printf(q->q_dev,
		    "protocol violation in queue %s: %s (%ju); resetting\n",
		    q->q_name, pvq_fault_phrase(q, fault), value);
	if (q->q_pvdev != NULL)
		pv_dev_need_reset(q->q_pvdev, q->q_number, EIO);
}

static void
pvq_add_counters(struct pvq *q, const struct pvq_counter *pk,
    struct sysctl_ctx_list *ctx, struct sysctl_oid_list *parent)
{

	for (; pk->pk_name != NULL; pk++)
		SYSCTL_ADD_U64(ctx, parent, OID_AUTO, pk->pk_name, CTLFLAG_RD,
		    (uint64_t *)((char *)&q->q_stats + pk->pk_offset), 0,
		    pk->pk_descr);
}

void
pvq_sysctl(struct pvq *q, struct sysctl_ctx_list *ctx,
    struct sysctl_oid_list *parent)
{

	SYSCTL_ADD_U16(ctx, parent, OID_AUTO, "size", CTLFLAG_RD, &q->q_size, 0,
	    "Slots in the ring");
	pvq_add_counters(q, pvq_counters, ctx, parent);
	if (q->q_ops->qo_counters != NULL)
		pvq_add_counters(q, q->q_ops->qo_counters, ctx, parent);
}

int
pvq_phys_add_pages(bus_dma_segment_t *segs, int n, int max, bus_size_t seg_max,
    vm_offset_t at, size_t len)
{
	vm_paddr_t pa;
	size_t run;

	for (; len > 0 && n >= 0; at += run, len -= run) {
		pa = vtophys(at);
		run = PAGE_SIZE - (at & PAGE_MASK);
		while (run < len && vtophys(at + run) == pa + run)
			run += PAGE_SIZE;
		run = MIN(run, len);
		n = pvq_phys_add_run(segs, n, max, seg_max, pa, run);
	}
	return (n);
}
