/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A disk of pv_blk whose device is a test: it completes requests when a case calls for it, and logs the
 * order in which they were put.
 *
 *	sysctl debug.qdisk.run=1	runs all cases, of the files qdisk_*.c, and prints
 *					"qdisk: NAME: ok" for each
 *
 * Bios go to the personality at once, by d_strategy, from a CPU that the case chooses.
 *
 * Locking.  qd_mtx protects the log and the ends of bios.  All of a queue is under pv_blk's lock for
 * it: the tick of a deep queue collects completions at any time.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/module.h>
#include <sys/proc.h>
#include <sys/sched.h>
#include <sys/smp.h>
#include <sys/sysctl.h>

#include "qdisk.h"

static device_t qd_device;

static int
qq_prepare(const struct pvq *q, const struct pvq_chain *pc __unused)
{
	struct qd_softc *sc = device_get_softc(q->q_dev);

	return (sc->qd_no_fit ? 0 : 1);
}

static void
qq_put(struct pvq *q, const struct pvq_chain *pc, int n __unused)
{
	struct qd_queue *qq = (struct qd_queue *)q;
	struct qd_softc *sc = device_get_softc(q->q_dev);
	struct pv_blk_req *rq = pc->pc_cookie;
	struct qd_entry *qe;

	/* A dump, which resets the device itself, has the queues stopped for all others. */
	QD_TRUE(sc, (sc->qd_blk.blk_queues[qq - sc->qd_queues].bq_flags &
	    (PVB_STOPPED | PVB_DUMPING)) != PVB_STOPPED && !pvq_broken(q));
	memcpy(qq->qq_segs[qq->qq_nheld], rq->rq_segs + 1, rq->rq_nsegs * sizeof(*rq->rq_segs));
	qq->qq_held[qq->qq_nheld++] = rq;
	q->q_taken++;
	mtx_lock(&sc->qd_mtx);
	if (sc->qd_nlog < QD_LOG) {
		qe = &sc->qd_log[sc->qd_nlog++];
		qe->qe_queue = qq - sc->qd_queues;
		qe->qe_cmd = rq->rq_cmd;
		qe->qe_sector = rq->rq_offset / QD_SECTOR;
		qe->qe_sectors = rq->rq_length / QD_SECTOR;
		qe->qe_ranges = rq->rq_cmd == PV_BLK_DELETE ? rq->rq_nmore + 1 : 0;
	}
	mtx_unlock(&sc->qd_mtx);
}

static void
qq_commit(struct pvq *q)
{
	struct qd_queue *qq = (struct qd_queue *)q;

	q->q_committed = q->q_taken;
	if (!qq->qq_eager)
		return;
	memcpy(qq->qq_done + qq->qq_ndone, qq->qq_held, qq->qq_nheld * sizeof(qq->qq_held[0]));
	qq->qq_ndone += qq->qq_nheld;
	qq->qq_nheld = 0;
}

static bool
qq_kick(struct pvq *q)
{
	struct qd_queue *qq = (struct qd_queue *)q;

	qq->qq_kicks++;
	return (true);
}

static int
qq_get(struct pvq *q, struct pvq_done *done, int max)
{
	struct qd_queue *qq = (struct qd_queue *)q;
	int n;

	for (n = 0; n < max && qq->qq_ndone > 0; n++) {
		done[n].pd_cookie = qq->qq_done[0];
		qq->qq_ndone--;
		memmove(qq->qq_done, qq->qq_done + 1, qq->qq_ndone * sizeof(qq->qq_done[0]));
		q->q_given++;
		q->q_completed++;
		q->q_stats.qs_done++;
	}
	return (n);
}

static bool
qq_intr_enable(struct pvq *q, unsigned int after)
{
	struct qd_queue *qq = (struct qd_queue *)q;

	qq->qq_after = after;
	return (qq->qq_ndone > 0);
}

static void
qq_intr_disable(struct pvq *q __unused)
{
}

static void *
qq_drain(struct pvq *q)
{
	struct qd_queue *qq = (struct qd_queue *)q;
	void *cookie;

	if (qq->qq_nheld == 0)
		return (NULL);
	cookie = qq->qq_held[0];
	qq->qq_nheld--;
	memmove(qq->qq_held, qq->qq_held + 1, qq->qq_nheld * sizeof(qq->qq_held[0]));
	q->q_given++;
	q->q_completed++;
	return (cookie);
}

static int
qq_forget(struct pvq *q)
{
	struct qd_queue *qq = (struct qd_queue *)q;

	qq->qq_nheld = qq->qq_ndone = 0;
	q->q_taken = q->q_committed = q->q_completed = 0;
	q->q_given = QD_SLOTS;
	return (0);
}

static const struct pvq_ops qq_ops = {
	.qo_name = "test",
	.qo_prepare = qq_prepare,
	.qo_put = qq_put,
	.qo_commit = qq_commit,
	.qo_kick = qq_kick,
	.qo_get = qq_get,
	.qo_intr_enable = qq_intr_enable,
	.qo_intr_disable = qq_intr_disable,
	.qo_drain = qq_drain,
	.qo_forget = qq_forget,
};

static void
qd_encode(struct pv_blk *blk __unused, struct pv_blk_req *rq __unused,
    struct pvq_chain *pc __unused)
{
}

static int
qd_status(struct pv_blk *blk, const struct pv_blk_req *rq, const struct pvq_done *pd __unused,
    uintmax_t *seen __unused)
{
	struct qd_softc *sc = __containerof(blk, struct qd_softc, qd_blk);

	if (rq->rq_cmd == PV_BLK_IDENT)
		memcpy(blk->blk_bounce, sc->qd_ident, QD_IDENT);
	if ((int)rq->rq_cmd == sc->qd_fail)
		return (EIO);
	return (sc->qd_one_range && rq->rq_cmd == PV_BLK_DELETE && rq->rq_nmore > 0 ? EIO : 0);
}

static void
qd_task_run(void *arg, int pending __unused)
{
	struct qd_softc *sc = arg;

	atomic_store_rel_int(&sc->qd_task_ran, 1);
}

/* The queue that was broken stays so for a while, in which nothing must be put into it. */
static void
qd_stop_slowly(struct qd_softc *sc)
{
	if (sc->qd_break)
		pause("qdisk", MAX(hz / 20, 1));
}

static int
qd_stop(struct pv_blk *blk)
{
	struct qd_softc *sc = __containerof(blk, struct qd_softc, qd_blk);
	int i;

	if (sc->qd_stop_waits) {
		taskqueue_enqueue(taskqueue_thread, &sc->qd_task);
		for (i = 0; i < 10 * hz && atomic_load_acq_int(&sc->qd_task_ran) == 0; i++)
			pause("qdisk", 1);
		/* A later run does not count: the device was stopped without it. */
		sc->qd_stop_waits = false;
		QD_EQ(sc, sc->qd_task_ran, 1);
	}
	qd_stop_slowly(sc);
	sc->qd_stops++;
	if (sc->qd_one_timeout)
		blk->blk_timeout_reset = 0;
	return (sc->qd_stop_error);
}

static int
qd_restart(struct pv_blk *blk)
{
	struct qd_softc *sc = __containerof(blk, struct qd_softc, qd_blk);
	u_int i;

	for (i = 0; i < QD_QUEUES; i++)
		sc->qd_pvqs[i]->q_fault = PVQ_OK;

	if (sc->qd_reset_restarts > 0) {
		sc->qd_reset_restarts--;
		qd_need_reset(sc);
	}
	return (sc->qd_restart_error);
}

static int
qd_stop_queue(struct pv_blk *blk, u_int index __unused)
{
	struct qd_softc *sc = __containerof(blk, struct qd_softc, qd_blk);
	u_int i;

	qd_stop_slowly(sc);
	sc->qd_queue_stops++;
	if (sc->qd_one_timeout)
		blk->blk_timeout_reset = 0;
	for (i = 0; i < 10 * (u_int)hz && sc->qd_await_detach && (blk->blk_flags & PVB_DETACHING) == 0;
	    i++)
		pause("qdisk", 1);
	return (sc->qd_stop_queue_error);
}

static int
qd_restart_queue(struct pv_blk *blk, u_int index)
{
	struct qd_softc *sc = __containerof(blk, struct qd_softc, qd_blk);

	sc->qd_pvqs[index]->q_fault = PVQ_OK;
	return (sc->qd_restart_queue_error);
}

static const struct pv_blk_ops qd_ops = {
	.bo_encode = qd_encode,
	.bo_status = qd_status,
	.bo_stop = qd_stop,
	.bo_restart = qd_restart,
	.bo_stop_queue = qd_stop_queue,
	.bo_restart_queue = qd_restart_queue,
};

static struct pv_tunable qd_tunables[] = { PV_BLK_TUNABLES };

void
qd_begin(struct qd_softc *sc, u_int n, u_int nreqs, u_int sectors)
{
	struct pv_blk_params params = {
		.bp_diskname = "qdisk",
		.bp_descr = "test",
		.bp_tunables = qd_tunables,
		.bp_mediasize = 1024 * QD_SECTOR,
		.bp_sectorsize = QD_SECTOR,
		.bp_nqueues = n,
		.bp_nreqs = nreqs,
		.bp_max_segs = QD_SEGS,
		.bp_seg_size = sc->qd_phys_seg != 0 ? sc->qd_phys_seg : PAGE_SIZE,
		.bp_phys = sc->qd_phys_seg != 0,
		.bp_max_size = sectors * QD_SECTOR,
		.bp_delete_size = 8 * QD_SECTOR,
		.bp_delete_ranges = sc->qd_delete_ranges != 0 ? sc->qd_delete_ranges : 4,
		.bp_delete_align = sc->qd_delete_align * QD_SECTOR,
		.bp_delete_first = sc->qd_delete_first * QD_SECTOR,
		.bp_msgsize = 64,
		.bp_ident_size = sc->qd_ident != NULL ? QD_IDENT : 0,
		.bp_flags = PV_BLK_CACHED | (sc->qd_no_queue_reset ? 0 : PV_BLK_QUEUE_RESET) |
		    sc->qd_flags,
	};
	struct pvq *q;
	u_int i;

	bzero(sc->qd_queues, sizeof(sc->qd_queues));
	for (i = 0; i < QD_QUEUES; i++) {
		q = sc->qd_pvqs[i] = &sc->qd_queues[i].qq_pvq;
		q->q_ops = &qq_ops;
		q->q_dev = sc->qd_dev;
		q->q_size = q->q_given = QD_SLOTS;
		q->q_max_segs = 8;
		snprintf(q->q_name, sizeof(q->q_name), "queue%u", i);
	}
	sc->qd_stop_error = sc->qd_restart_error = 0;
	sc->qd_stop_queue_error = sc->qd_restart_queue_error = 0;
	sc->qd_reset_restarts = 0;
	sc->qd_resubmit = 0;
	sc->qd_fail = -1;
	sc->qd_resubmitters = QD_BIOS;
	sc->qd_one_range = sc->qd_one_timeout = sc->qd_await_detach = sc->qd_stop_waits = false;
	sc->qd_no_fit = sc->qd_linger = false;
	sc->qd_task_ran = sc->qd_lingering = sc->qd_detached = sc->qd_released = 0;
	TASK_INIT(&sc->qd_task, 0, qd_task_run, sc);
	sc->qd_nlog = sc->qd_stops = sc->qd_queue_stops = sc->qd_nends = 0;
	for (i = 0; i < QD_BIOS; i++)
		sc->qd_ends[i] = -1;
	QD_EQ(sc, pv_blk_init(&sc->qd_blk, sc->qd_dev, &qd_ops, &params), 0);
	sc->qd_queues[0].qq_eager = sc->qd_ident != NULL;
	if (sc->qd_break)
		pvq_break(sc->qd_pvqs[0], PVQ_FAULT_ID, 0);
	QD_EQ(sc, pv_blk_attach(&sc->qd_blk, sc->qd_pvqs, n), 0);
	sc->qd_queues[0].qq_eager = false;
}

void
qd_end(struct qd_softc *sc)
{
	pv_blk_detach(&sc->qd_blk);
	atomic_store_rel_int(&sc->qd_detached, 1);
	pv_blk_fini(&sc->qd_blk);
}

/* Long enough for the disk to be detached, or until that is no use. */
static void
qd_linger(struct qd_softc *sc)
{
	int i;

	atomic_store_rel_int(&sc->qd_lingering, 1);
	for (i = 0; i < hz / 2 && atomic_load_acq_int(&sc->qd_detached) == 0 &&
	    atomic_load_acq_int(&sc->qd_released) == 0; i++)
		pause("qdisk", 1);
	QD_EQ(sc, sc->qd_detached, 0);
}

void
qd_done(struct bio *bp)
{
	struct qd_softc *sc = bp->bio_caller1;
	bool again;

	mtx_lock(&sc->qd_mtx);
	sc->qd_nends++;
	sc->qd_ends[bp - sc->qd_bios] = (bp->bio_flags & BIO_ERROR) != 0 ? bp->bio_error : 0;
	again = sc->qd_nends < sc->qd_resubmit && bp - sc->qd_bios < sc->qd_resubmitters;
	mtx_unlock(&sc->qd_mtx);
	if (sc->qd_linger)
		qd_linger(sc);
	if (again)
		bp->bio_disk->d_strategy(bp);
}

u_int
qd_cpu(u_int i)
{
	return (i % mp_ncpus);
}

void
qd_all_ended(struct qd_softc *sc, u_int n, int how)
{
	u_int i;

	for (i = 0; i < n; i++)
		QD_EQ(sc, sc->qd_ends[i], how);
}

void
qd_submit(struct qd_softc *sc, u_int i, u_int cpu, int cmd, u_int sector, u_int sectors, int flags)
{
	static char data[64 * QD_SECTOR];
	struct bio *bp = &sc->qd_bios[i];

	bzero(bp, sizeof(*bp));
	bp->bio_cmd = cmd;
	bp->bio_flags = flags;
	bp->bio_disk = sc->qd_blk.blk_disk;
	bp->bio_offset = (off_t)sector * QD_SECTOR;
	bp->bio_length = bp->bio_bcount = sectors * QD_SECTOR;
	bp->bio_data = cmd == BIO_DELETE ? NULL : data;
	bp->bio_done = qd_done;
	bp->bio_caller1 = sc;
	thread_lock(curthread);
	sched_bind(curthread, cpu);
	thread_unlock(curthread);
	bp->bio_disk->d_strategy(bp);
	thread_lock(curthread);
	sched_unbind(curthread);
	thread_unlock(curthread);
}

void
qd_answer_silently(struct qd_softc *sc, u_int queue)
{
	struct pv_blk_queue *bq = &sc->qd_blk.blk_queues[queue];
	struct qd_queue *qq = &sc->qd_queues[queue];

	mtx_lock(&bq->bq_mtx);
	qq->qq_done[qq->qq_ndone++] = qq->qq_held[0];
	qq->qq_nheld--;
	memmove(qq->qq_held, qq->qq_held + 1, qq->qq_nheld * sizeof(qq->qq_held[0]));
	mtx_unlock(&bq->bq_mtx);
}

void
qd_answer(struct qd_softc *sc, u_int queue)
{
	if (sc->qd_queues[queue].qq_nheld == 0)
		return;
	qd_answer_silently(sc, queue);
	pv_blk_intr(&sc->qd_blk.blk_queues[queue]);
}

void
qd_answer_all_at_once(struct qd_softc *sc, u_int queue)
{
	struct pv_blk_queue *bq = &sc->qd_blk.blk_queues[queue];
	struct qd_queue *qq = &sc->qd_queues[queue];

	mtx_lock(&bq->bq_mtx);
	memcpy(qq->qq_done, qq->qq_held, sizeof(qq->qq_done));
	qq->qq_ndone = qq->qq_nheld;
	qq->qq_nheld = 0;
	mtx_unlock(&bq->bq_mtx);
	pv_blk_intr(bq);
}

void
qd_answer_all(struct qd_softc *sc)
{
	u_int i;

	while (qd_held(sc) != 0)
		for (i = 0; i < QD_QUEUES; i++)
			qd_answer(sc, i);
}

u_int
qd_held(struct qd_softc *sc)
{
	u_int i, n = 0;

	for (i = 0; i < QD_QUEUES; i++)
		n += sc->qd_queues[i].qq_nheld;
	return (n);
}

void
qd_logged(struct qd_softc *sc, u_int i, u_int queue, enum pv_blk_cmd cmd, u_int sector)
{
	QD_TRUE(sc, i < sc->qd_nlog);
	QD_EQ(sc, sc->qd_log[i].qe_queue, queue);
	QD_EQ(sc, sc->qd_log[i].qe_cmd, cmd);
	QD_EQ(sc, sc->qd_log[i].qe_sector, sector);
}

void
qd_need_reset(struct qd_softc *sc)
{
	pv_dev_need_reset(&sc->qd_blk.blk_pvdev, PV_DEV_ALL, ETIMEDOUT);
}

/* Wait until *stops has reached a number, that reset has finished, and so many requests are held. */
static void
qd_wait(struct qd_softc *sc, const u_int *stops, u_int number, u_int held)
{
	u_int i;

	for (i = 0; i < 10 * (u_int)hz && (*(const volatile u_int *)stops < number ||
	    qd_held(sc) != held); i++)
		pause("qdisk", 1);
	pv_dev_lock(&sc->qd_blk.blk_pvdev);
	pv_dev_unlock(&sc->qd_blk.blk_pvdev);
	QD_EQ(sc, *stops, number);
	QD_EQ(sc, qd_held(sc), held);
}

void
qd_wait_for_resets(struct qd_softc *sc, u_int stops, u_int held)
{
	qd_wait(sc, &sc->qd_stops, stops, held);
}

void
qd_wait_for_queue_resets(struct qd_softc *sc, u_int stops, u_int held)
{
	qd_wait(sc, &sc->qd_queue_stops, stops, held);
}

void
qd_wait_for_ends(struct qd_softc *sc, u_int n)
{
	u_int ends, i;

	for (i = 0; i < 10 * (u_int)hz; i++) {
		mtx_lock(&sc->qd_mtx);
		ends = sc->qd_nends;
		mtx_unlock(&sc->qd_mtx);
		if (ends >= n)
			break;
		pause("qdisk", 1);
	}
	QD_EQ(sc, sc->qd_nends, n);
}

void
qd_freeze_and_requeue(struct qd_softc *sc)
{
	pv_dev_quiesce(&sc->qd_blk.blk_pvdev);
	pv_blk_requeue(&sc->qd_blk);
	pv_blk_set_queues(&sc->qd_blk, NULL, 0);
}

void
qd_thaw(struct qd_softc *sc, u_int n)
{
	u_int i;

	/* As the device is started. */
	for (i = 0; i < QD_QUEUES; i++)
		sc->qd_pvqs[i]->q_fault = PVQ_OK;
	pv_blk_set_queues(&sc->qd_blk, sc->qd_pvqs, n);
	(void)pv_dev_thaw(&sc->qd_blk.blk_pvdev);
}

static int
qd_sysctl_run(SYSCTL_HANDLER_ARGS)
{
	struct qd_softc *sc = device_get_softc(qd_device);
	static const struct qd_case *const lists[] = {
		qd_cases, qd_batch_cases, qd_disk_cases, qd_reset_cases
	};
	const struct qd_case *qc;
	u_int failed = 0, i;
	int error, value = 0;

	error = sysctl_handle_int(oidp, &value, 0, req);
	if (error != 0 || req->newptr == NULL)
		return (error);
	for (i = 0; i < nitems(lists); i++) {
		for (qc = lists[i]; qc->qc_name != NULL; qc++) {
			sc->qd_failures = 0;
			qc->qc_func(sc);
			printf("qdisk: %s: %s\n", qc->qc_name,
			    sc->qd_failures == 0 ? "ok" : "FAILED");
			failed += sc->qd_failures;
		}
	}
	return (failed == 0 ? 0 : EDOOFUS);
}

static SYSCTL_NODE(_debug, OID_AUTO, qdisk, CTLFLAG_RW | CTLFLAG_MPSAFE, NULL,
    "a disk whose device is a test");
SYSCTL_PROC(_debug_qdisk, OID_AUTO, run, CTLTYPE_INT | CTLFLAG_RW | CTLFLAG_MPSAFE, NULL, 0,
    qd_sysctl_run, "I", "Write 1 to run all cases");

static void
qd_identify(driver_t *driver, device_t parent)
{
	if (device_find_child(parent, driver->name, 0) == NULL)
		(void)BUS_ADD_CHILD(parent, 0, driver->name, 0);
}

static int
qd_probe(device_t dev)
{
	device_set_desc(dev, "disk whose device is a test");
	return (BUS_PROBE_NOWILDCARD);
}

static int
qd_attach(device_t dev)
{
	struct qd_softc *sc = device_get_softc(dev);

	sc->qd_dev = qd_device = dev;
	mtx_init(&sc->qd_mtx, "qdisk", NULL, MTX_DEF);
	return (0);
}

static int
qd_detach(device_t dev)
{
	struct qd_softc *sc = device_get_softc(dev);

	mtx_destroy(&sc->qd_mtx);
	return (0);
}

static device_method_t qd_methods[] = {
	DEVMETHOD(device_identify,	qd_identify),
	DEVMETHOD(device_probe,		qd_probe),
	DEVMETHOD(device_attach,	qd_attach),
	DEVMETHOD(device_detach,	qd_detach),
	DEVMETHOD_END
};

static driver_t qd_driver = {
	"qdisk",
	qd_methods,
	sizeof(struct qd_softc)
};

DRIVER_MODULE(qdisk, nexus, qd_driver, NULL, NULL);
MODULE_VERSION(qdisk, 1);
MODULE_DEPEND(qdisk, pv, 1, 1, 1);
MODULE_DEPEND(qdisk, pv_blk, 1, 1, 1);
