/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What all queues have in common: being broken, and being counted.
 *
 * The module pv, which the personalities are linked into as well, is declared here.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/module.h>
#include <sys/bus.h>
#include <sys/sysctl.h>

#include <dev/pv/queue/pvq.h>

/*
 * A hostile device can break its queue after each reset, and must not fill the log by that.  The
 * counter goes on.
 */
#define	PVQ_FAULTS_LOGGED	10

static const char *const pvq_fault_words[PVQ_NFAULTS] = {
	[PVQ_OK] = "nothing",
	[PVQ_FAULT_INDEX] = "producer index ahead of what was posted",
	[PVQ_FAULT_ID] = "id not in flight",
	[PVQ_FAULT_LEN] = "length over what was posted",
	[PVQ_FAULT_FLAGS] = "flags of another turn of the ring",
	[PVQ_FAULT_ORDER] = "completed out of order",
	[PVQ_FAULT_OWNER] = "payload not as the protocol has it",
	[PVQ_FAULT_SKIP] = "a place of the ring was skipped",
};

static const struct pvq_stat {
	size_t		 offset;
	const char	*name;
	const char	*descr;
} pvq_stat_table[] = {
#define	PVQ_STAT(name, descr)						\
	{ offsetof(struct pvq_stats, qs_ ## name), #name, descr }
	PVQ_STAT(chains, "Chains given to the device"),
	PVQ_STAT(segs, "Segments in those chains"),
	PVQ_STAT(indirect, "Chains that went by an indirect table"),
	PVQ_STAT(full, "Times that the ring had no room"),
	PVQ_STAT(done, "Chains that came back"),
	PVQ_STAT(kicks, "Notifications sent to the device"),
	PVQ_STAT(nokicks, "Notifications that the device did not ask for"),
	PVQ_STAT(intrs, "Interrupts taken for this queue"),
	PVQ_STAT(lengths, "Used lengths that can't be right, and were not used"),
	PVQ_STAT(faults, "Times that the device broke the queue's rules"),
#undef PVQ_STAT
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

void
pvq_break(struct pvq *q, enum pvq_fault fault, uintmax_t value)
{

	KASSERT(fault > PVQ_OK && fault < PVQ_NFAULTS, ("%s: fault %d", __func__, fault));

	/* Both sides, and the owner, may find a fault at the same time; the first one counts. */
	if (atomic_cmpset_32(&q->q_fault, PVQ_OK, fault) == 0)
		return;
	if (++q->q_stats.qs_faults > PVQ_FAULTS_LOGGED)
		return;
	device_printf(q->q_dev, "queue %s broken by the device: %s (%ju); resetting it\n",
	    q->q_name, pvq_fault_words[fault], value);
}

void
pvq_sysctl(struct pvq *q, struct sysctl_ctx_list *ctx, struct sysctl_oid_list *parent)
{
	const struct pvq_stat *st;

	SYSCTL_ADD_U16(ctx, parent, OID_AUTO, "size", CTLFLAG_RD, &q->q_size, 0,
	    "Slots in the ring");
	for (st = pvq_stat_table; st < pvq_stat_table + nitems(pvq_stat_table); st++)
		SYSCTL_ADD_U64(ctx, parent, OID_AUTO, st->name, CTLFLAG_RD,
		    (uint64_t *)((char *)&q->q_stats + st->offset), 0, st->descr);
}

int
pvq_phys_add_pages(bus_dma_segment_t *segs, int n, int max, bus_size_t seg_max, vm_offset_t at,
    size_t len)
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
