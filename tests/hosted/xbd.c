/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xbd on a model of its back end: what it makes of the back end's nodes, what it publishes itself, its
 * requests in the rings, what it makes of the answers, and its life with one back end after another.
 * The disk above it is pv_blk's own, the rings and what reads xenstore are the suite's.
 *
 * The back end goes by Xen's own headers (io/blkif.h, io/ring.h): it looks for rings where the protocol
 * has them, and maps what was granted to it.  Nothing runs by itself: the test is the back end, xenbus,
 * GEOM, the taskqueue and the clock.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bio.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/smp.h>

#include <dev/xen/blkfront/blkfront.c>

#include "device_if.h"
#include "xbd.h"

/* Of io/ring.h. */
#define	xen_mb()	atomic_thread_fence_seq_cst()
#define	xen_wmb()	atomic_thread_fence_rel()

struct back be;
struct front fr;

static struct thread thread;

/* The back end. */

static void *
be_map(grant_ref_t ref)
{
	void *va;

	CHECK(ref < nitems(be.kept), "reference %u", ref);
	if (be.kept[ref] != NULL)
		return (be.kept[ref]);
	va = (void *)(uintptr_t)gnt_map(ref, BACK_DOM, true);
	be.nmapped++;
	if (be.keeps)
		be.kept[ref] = va;
	return (va);
}

static void
be_unmap(grant_ref_t ref)
{

	if (be.kept[ref] == NULL)
		gnt_unmap(ref);
}

/* What the front end has published; NULL: it has not. */
const char *
published(const char *name)
{

	return (xsn_node(FRONT, name, false));
}

u_int
number(const char *name)
{
	const char *value = published(name);

	CHECK(value != NULL && value[0] >= '0' && value[0] <= '9', "%s: %s", name, value);
	return (strtoul(value, NULL, 10));
}

void
offer(const char *name, uint64_t value)
{

	xsn_set(BACK, name, "%ju", (uintmax_t)value);
}

/* The pages of a ring, which are at "ring-ref", or at "ring-ref0" and so on: note 6. */
static void
be_find_ring(u_int i, const char *where)
{
	char name[48];
	void *first = NULL;
	u_int j, port;

	snprintf(name, sizeof(name), "%sring-ref", where);
	CHECK((published(name) != NULL) == (be.npages == 1), "%s", name);
	for (j = 0; j < be.npages; j++) {
		if (be.npages > 1)
			snprintf(name, sizeof(name), "%sring-ref%u", where, j);
		be.rings[i].refs[j] = number(name);
		if (j == 0)
			first = (void *)(uintptr_t)gnt_map(be.rings[i].refs[j], BACK_DOM, true);
		else
			CHECK(gnt_map(be.rings[i].refs[j], BACK_DOM, true) == (uintptr_t)first +
			    ptoa(j), "page %u", j);
	}
	BACK_RING_INIT(&be.rings[i].ring, (blkif_sring_t *)first, ptoa(be.npages));
	snprintf(name, sizeof(name), "%sevent-channel", where);
	port = number(name);
	be.rings[i].channel = channels_bound(port, BACK_DOM);
	be.rings[i].port = port;
	be.rings[i].event = false;
}

void
be_connects(void)
{
	char where[16] = "";
	u_int i, nrings = 1;

	CHECK(be.nrings == 0, "connected twice");
	CHECK(strcmp(published("protocol"), "x86_64-abi") == 0, "%s", published("protocol"));
	/* Note 3: in both units, or in none. */
	be.npages = 1;
	CHECK((published("ring-page-order") == NULL) == (published("num-ring-pages") == NULL),
	    "half of a ring's size");
	if (published("ring-page-order") != NULL) {
		be.npages = 1 << number("ring-page-order");
		CHECK(number("num-ring-pages") == be.npages, "%u pages", be.npages);
	}
	if (published("multi-queue-num-queues") != NULL) {
		nrings = number("multi-queue-num-queues");
		CHECK(nrings >= 2 && nrings <= strtoul(xsn_node(BACK, "multi-queue-max-queues",
		    false), NULL, 10), "%u queues", nrings);
		/* Those of several are below "queue-N". */
		CHECK(published("ring-ref") == NULL && published("event-channel") == NULL,
		    "keys of one queue");
	}
	for (i = 0; i < nrings; i++) {
		if (nrings > 1)
			snprintf(where, sizeof(where), "queue-%u/", i);
		be_find_ring(i, where);
	}
	be.nrings = nrings;
}

static void
be_disconnects(void)
{
	u_int i, j;

	for (i = 0; i < be.nrings; i++)
		for (j = 0; j < be.npages; j++)
			gnt_unmap(be.rings[i].refs[j]);
	be.nrings = 0;
	for (i = 0; i < nitems(be.kept); i++)
		if (be.kept[i] != NULL) {
			gnt_unmap(i);
			be.kept[i] = NULL;
		}
}

/* The segments of a read or a write, which are in its slot, or in a page that it names. */
static void
be_segments(struct wire *w)
{
	const blkif_request_indirect_t *ind = (const void *)&w->req;
	const char *most = xsn_node(BACK, "feature-max-indirect-segments", false);
	void *list;

	if (w->req.operation != BLKIF_OP_INDIRECT) {
		w->nsegs = w->req.nr_segments;
		CHECK(w->nsegs <= BLKIF_MAX_SEGMENTS_PER_REQUEST, "%u segments", w->nsegs);
		memcpy(w->segs, w->req.seg, w->nsegs * sizeof(w->segs[0]));
		return;
	}
	w->op = ind->indirect_op;
	w->nsegs = ind->nr_segments;
	CHECK(most != NULL && w->nsegs <= strtoul(most, NULL, 10) && w->nsegs <= MAX_SEGS,
	    "%u segments", w->nsegs);
	list = be_map(ind->indirect_grefs[0]);
	memcpy(w->segs, list, w->nsegs * sizeof(w->segs[0]));
	/* It may write there as well. */
	memset(list, 0xff, w->nsegs * sizeof(w->segs[0]));
	be_unmap(ind->indirect_grefs[0]);
}

static size_t
be_length(const struct wire *w)
{
	size_t len = 0;
	u_int i;

	for (i = 0; i < w->nsegs; i++)
		len += (w->segs[i].last_sect - w->segs[i].first_sect + 1) * SECTOR;
	return (len);
}

/* Where an indirect request has its sector is not where others have it. */
uint64_t
be_sector(const struct wire *w)
{

	return (w->req.operation != BLKIF_OP_INDIRECT ? w->req.sector_number :
	    ((const blkif_request_indirect_t *)(const void *)&w->req)->sector_number);
}

static void
be_moves(const struct wire *w)
{
	const struct blkif_request_segment *seg = w->segs;
	u_char *at = disk_bytes + be_sector(w) * SECTOR, *page;
	size_t len;

	CHECK(w->nsegs > 0 && be_sector(w) * SECTOR + be_length(w) <= sizeof(disk_bytes),
	    "%u segments at %ju", w->nsegs, (uintmax_t)be_sector(w));
	for (; seg < &w->segs[w->nsegs]; seg++, at += len) {
		CHECK(seg->first_sect <= seg->last_sect && seg->last_sect < PAGE_SIZE / SECTOR,
		    "%u to %u", seg->first_sect, seg->last_sect);
		len = (seg->last_sect - seg->first_sect + 1) * SECTOR;
		page = (u_char *)be_map(seg->gref) + seg->first_sect * SECTOR;
		if (w->op == BLKIF_OP_READ)
			memcpy(page, at, len);
		else
			memcpy(at, page, len);
		be_unmap(seg->gref);
	}
}

static bool
be_offers(const char *feature)
{
	const char *value = xsn_node(BACK, feature, false);

	return (value != NULL && strcmp(value, "1") == 0);
}

static void
be_does(const struct wire *w)
{
	const blkif_request_discard_t *discard = (const void *)&w->req;

	switch (w->op) {
	case BLKIF_OP_READ:
	case BLKIF_OP_WRITE:
		be_moves(w);
		break;
	case BLKIF_OP_DISCARD:
		CHECK(be_offers("feature-discard"), "a discard");
		memset(disk_bytes + discard->sector_number * SECTOR, 0, discard->nr_sectors * SECTOR);
		break;
	case BLKIF_OP_WRITE_BARRIER:
		CHECK(be_offers("feature-barrier") && w->req.nr_segments == 0, "a barrier");
		break;
	default:
		CHECK(w->op == BLKIF_OP_FLUSH_DISKCACHE && be_offers("feature-flush-cache") &&
		    w->req.nr_segments == 0, "operation %u", w->op);
		break;
	}
}

/* The next request of a ring; false: there is none. */
bool
be_takes(u_int i, struct wire *w)
{
	blkif_back_ring_t *ring = &be.rings[i].ring;
	uint16_t handle;
	int more;

	if (i >= be.nrings)
		return (false);
	CHECK(!RING_REQUEST_PROD_OVERFLOW(ring, ring->sring->req_prod), "too many requests");
	RING_FINAL_CHECK_FOR_REQUESTS(ring, more);
	if (!more)
		return (false);
	RING_COPY_REQUEST(ring, ring->req_cons++, &w->req);
	w->op = w->req.operation;
	w->nsegs = 0;
	handle = w->req.handle;
	if (w->op == BLKIF_OP_INDIRECT)
		handle = ((const blkif_request_indirect_t *)(const void *)&w->req)->handle;
	CHECK(handle == HANDLE, "handle %u", handle);
	if (w->op == BLKIF_OP_READ || w->op == BLKIF_OP_WRITE || w->op == BLKIF_OP_INDIRECT)
		be_segments(w);
	be.longest = MAX(be.longest, w->nsegs);
	return (true);
}

void
be_responds(u_int i, uint64_t id, uint8_t op, int16_t status)
{
	blkif_back_ring_t *ring = &be.rings[i].ring;
	blkif_response_t *rsp = RING_GET_RESPONSE(ring, ring->rsp_prod_pvt++);
	int notify;

	*rsp = (blkif_response_t){ .id = id, .operation = op, .status = status };
	RING_PUSH_RESPONSES_AND_CHECK_NOTIFY(ring, notify);
	be.rings[i].event |= notify;
	be.nserved++;
}

void
be_answers(u_int i, const struct wire *w, int16_t status)
{

	if (status == BLKIF_RSP_OKAY)
		be_does(w);
	be_responds(i, w->req.id, be.op >= 0 ? be.op : be.says_indirect ? w->req.operation : w->op,
	    status);
}

static u_int
be_works(u_int i)
{
	u_int n;

	for (n = 0; be_takes(i, &be.last); n++)
		be_answers(i, &be.last, be.status);
	return (n);
}

static void
be_notified(struct xen_evtchn *ec)
{
	u_int i;

	for (i = 0; be.answers && i < be.nrings; i++)
		if (be.rings[i].channel == ec)
			(void)be_works(i);
}

/* The event of a ring, if it is due. */
bool
be_event(u_int i)
{

	if (i >= be.nrings || !be.rings[i].event || !channels_has(be.rings[i].port))
		return (false);
	be.rings[i].event = false;
	channels_event(be.rings[i].channel);
	return (true);
}

void
settle(void)
{
	u_int i, n = 0, tasks;
	bool more;

	do {
		/* A task that is to look for more each second queues itself again. */
		tasks = kpi_run_tasks();
		more = tasks > 0 && n++ < 8;
		for (i = 0; i < be.nrings; i++)
			more = (be.answers && be_works(i) > 0) || be_event(i) || more;
	} while (more);
}

/* xenbus. */

void
xenbus_recheck(device_t dev)
{

	CHECK(dev == front.dev && kpi_mutexes == 0, "another device");
	fr.rechecks++;
}

int
set_up(void)
{
	enum xenbus_state next = XenbusStateInitialised;
	int error;

	CHECK(!fr.is_set_up, "set up twice");
	front.xb.xb_tries = 0;
	error = XENFRONT_SETUP(front.dev, &next);
	CHECK(next == XenbusStateInitialised, "state %d", next);
	fr.is_set_up = error == 0;
	/* Such that failed has undone everything. */
	CHECK(error == 0 || (channels_open() == 0 && gnt_in_use() == 0), "error %d: left are %u, %u",
	    error, channels_open(), gnt_in_use());
	return (error);
}

void
released(void)
{

	be_disconnects();
	XENFRONT_RELEASE(front.dev);
	xenbus_return_queues(&front.xb);
	fr.is_set_up = false;
	CHECK(channels_open() == 0 && gnt_in_use() == 0, "left are %u, %u", channels_open(),
	    gnt_in_use());
}

/* The back end is gone. */
void
disconnect(void)
{

	CHECK(XENFRONT_STOP(front.dev, true) == 0, "an error that nobody wants");
	released();
}

/* There is another one. */
int
fr_connect(void)
{
	int error = set_up();

	if (error != 0)
		return (error);
	be_connects();
	error = XENFRONT_LIVE(front.dev);
	if (error != 0)
		disconnect();
	settle();
	return (error);
}

void
connect_ok(void)
{
	int error = fr_connect();

	CHECK(error == 0, "not connected: error %d", error);
}

/* What xenbus does when the front end asked for it. */
void
reconnect(void)
{

	disconnect();
	connect_ok();
	seconds(1);
}

void
xenbus_leave(device_t dev)
{

	CHECK(dev == front.dev && kpi_mutexes == 0, "another device");
	if (fr.is_set_up)
		disconnect();
}

/* A back end that offers a disk and nothing else, and its front end. */
void
device_new(void)
{

	memset(&be, 0, sizeof(be));
	memset(&fr, 0, sizeof(fr));
	disk_new(settle);
	xsn_begin();
	PCPU_SET(curthread, &thread);
	PCPU_SET(cpuid, 0);
	mp_ncpus = 3;
	mp_maxid = 2;
	CPU_SET(1, &all_cpus);
	CPU_SET(2, &all_cpus);
	channels_begin();
	channels_most = MOST_CHANNELS;
	channels_eager = true;
	channels_notified = be_notified;
	be.answers = true;
	be.op = -1;
	offer("sectors", SECTORS);
	offer("sector-size", SECTOR);
	front_begin((kobj_class_t)&xbd_driver, &fr.sc, "xbd3", "vbd", FRONT, BACK_DOM, BACK);
	CHECK(DEVICE_PROBE(front.dev) == BUS_PROBE_DEFAULT &&
	    strcmp(front.desc, "Xen block front end") == 0, "not for it: %s", front.desc);
	CHECK(DEVICE_ATTACH(front.dev) == 0, "no attach");
}

void
device_begin(void)
{

	device_new();
	connect_ok();
}

void
device_end(void)
{

	CHECK(DEVICE_DETACH(front.dev) == 0, "it does not detach");
	CHECK(!fr.is_set_up && channels_open() == 0 && gnt_in_use() == 0, "left are %u, %u",
	    channels_open(), gnt_in_use());
	front_end();
	CHECK(kpi_callouts == 0 && kpi_run_tasks() == 0 && kpi_locks == 0 && kpi_disk == NULL &&
	    kpi_taskqueues == 0, "%d callouts, %d locks", kpi_callouts, kpi_locks);
	CHECK(kpi_devices == 0 && kpi_mallocs == 0 && kpi_dma_maps == 0 && kpi_dma_tags == 0,
	    "left: %d devices, %d, %d, %d", kpi_devices, kpi_mallocs, kpi_dma_maps, kpi_dma_tags);
	CHECK(kpi_sysctl_set("ring_order", 0) == ENOENT, "sysctls are left");
}

/* A tunable has another value from here on. */
static void
tune(u_int which, int value)
{

	xbd_tunables[which].pt_value = value;
}

void
tune_ring_order(int order)
{

	tune(XBD_RING_ORDER, order);
}

void
tunables_as_before(void)
{

	tune(XBD_RING_ORDER, 0);
	tune(XBD_NUM_QUEUES, 0);
	tune(XBD_MAX_SEGS, XBD_SEGS_DEFAULT);
	tune(XBD_PERSISTENT, 1);
	tune(XBD_SECURE_DELETE, 0);
	tune(PV_BLK_TIMEOUT, 30);
}

/* A back end of no features: one ring of one page, and a disk of what it says. */
static void
plain_back_end(const void *arg __unused)
{
	const struct xen_evtchn *ec;
	int lines;

	device_new();
	lines = kpi_lines;
	connect_ok();
	ec = be.rings[0].channel;
	/* Its size is all that is said. */
	CHECK(kpi_lines == lines + 1 && strstr(kpi_line, "1 MB (2048 sectors of 512 bytes)") != NULL,
	    "%d lines: %s", kpi_lines - lines, kpi_line);
	CHECK(published("multi-queue-num-queues") == NULL && published("ring-page-order") == NULL &&
	    published("ring-ref0") == NULL && published("queue-0/ring-ref") == NULL, "more");
	CHECK(number("feature-persistent") == 1, "%s", published("feature-persistent"));
	CHECK(be.nrings == 1 && RING_SIZE(&be.rings[0].ring) == 32, "%u rings", be.nrings);
	CHECK(strcmp(ec->ec_name, "xbd3:req0") == 0 && ec->ec_params.xep_type == INTR_TYPE_BIO &&
	    ec->ec_params.xep_cpu == -1 && ec->ec_params.xep_brake && ec->ec_params.xep_filter == NULL,
	    "channel %s", ec->ec_name);
	CHECK(strcmp(fr.sc.xbd_queues[0]->q_name, "ring0") == 0, "%s", fr.sc.xbd_queues[0]->q_name);
	CHECK(kpi_disk->d_mediasize == SECTORS * SECTOR && kpi_disk->d_sectorsize == SECTOR &&
	    kpi_disk->d_stripesize == 0 && strcmp(kpi_disk->d_descr, "Xen block device") == 0,
	    "the disk");
	/* Another back end may have a flush. */
	CHECK((kpi_disk->d_flags & (DISKFLAG_CANFLUSHCACHE | DISKFLAG_CANDELETE |
	    DISKFLAG_WRITE_PROTECT)) == DISKFLAG_CANFLUSHCACHE, "flags 0x%x", kpi_disk->d_flags);
	CHECK(kpi_sysctl_value("ring_order") == 0 && kpi_sysctl_value("max_segs") == 11 &&
	    kpi_sysctl_value("persistent") == 0 && kpi_sysctl_value("shortened") == 0 &&
	    kpi_sysctl_value("queues") == 1 && kpi_sysctl_value("delete_size") == 0 &&
	    kpi_sysctl_value("batch") == 1 && kpi_sysctl_value("timeout") == 30, "sysctls");
	io(BIO_WRITE, 5, 4 * KB, 0);
	io(BIO_READ, 5, 4 * KB, 0);
	CHECK(kpi_sysctl_value("interrupts") > 0 && ec->ec_worked > 0 && ec->ec_notified == 2,
	    "%u notifications", ec->ec_notified);
	device_end();
}

/* Of another kind of device, nothing is done. */
static void
other_devices(const void *arg __unused)
{

	kpi_quiet = true;
	device_new();
	front.type = "vif";
	CHECK(DEVICE_PROBE(front.dev) == ENXIO, "a card");
	device_end();
	/* A CD-ROM drive, by either end; not by another string. */
	device_new();
	xsn_set(FRONT, "device-type", "cdrom");
	CHECK(set_up() == ENODEV && strstr(kpi_line, "CD-ROM drive") != NULL, "%s", kpi_line);
	xsn_set(FRONT, "device-type", "a type that is longer than any");
	CHECK(set_up() == EMSGSIZE, "a type without an end");
	xsn_no_answer = ETIMEDOUT;
	CHECK(set_up() == ETIMEDOUT, "without an answer");
	xsn_no_answer = 0;
	xsn_set(FRONT, "device-type", "no-cdrom-either");
	offer("info", VDISK_CDROM);
	CHECK(fr_connect() == ENODEV && strstr(kpi_line, "CD-ROM drive") != NULL && kpi_disk == NULL,
	    "%s", kpi_line);
	offer("info", VDISK_REMOVABLE);
	CHECK(fr_connect() == 0 && (kpi_disk->d_flags & DISKFLAG_WRITE_PROTECT) == 0, "a disk");
	device_end();
}

/* The handle in each request is the number of the device's node. */
static void
handles(const void *arg __unused)
{
	static const struct {
		const char *node;
		u_int	number;
	} table[] = { { "device/vbd/51712", 51712 }, { "device/vbd/768", 768 }, { "vbd", 0 } };
	size_t i;

	for (i = 0; i < nitems(table); i++) {
		device_new();
		front.node = table[i].node;
		CHECK(DEVICE_ATTACH(front.dev) == 0 && fr.sc.xbd_handle == table[i].number, "%s: %u",
		    front.node, fr.sc.xbd_handle);
		device_end();
	}
}

/* What both ends can have, and what becomes of it: pages of a ring, rings, segments of a request. */
static void
limits(const void *arg __unused)
{
	static const struct {
		int	order, queues, segs;	/* that are offered; -1: none */
		int	my_order, my_queues, my_segs, cpus;
		u_int	has_order, has_queues, has_segs;
	} table[] = {
		{ -1, -1, -1, 4, 0, 32, 3, 0, 1, 11 }, { 1, -1, -1, 4, 0, 32, 3, 1, 1, 11 },
		{ 4, -1, -1, 2, 0, 32, 3, 2, 1, 11 }, { 9, -1, -1, 4, 0, 32, 3, 4, 1, 11 },
		{ 3, -1, -1, 0, 0, 32, 3, 0, 1, 11 },
		{ -1, 2, -1, 0, 0, 32, 3, 0, 2, 11 }, { -1, 8, -1, 0, 0, 32, 3, 0, 3, 11 },
		{ -1, 8, -1, 0, 2, 32, 3, 0, 2, 11 }, { -1, 0, -1, 0, 0, 32, 3, 0, 1, 11 },
		{ -1, 99, -1, 0, 0, 32, 40, 0, 16, 11 }, { 2, 3, 64, 1, 0, 32, 3, 1, 3, 32 },
		{ -1, -1, 256, 0, 0, 32, 3, 0, 1, 32 }, { -1, -1, 31, 0, 0, 32, 3, 0, 1, 31 },
		{ -1, -1, 12, 0, 0, 32, 3, 0, 1, 12 }, { -1, -1, 11, 0, 0, 32, 3, 0, 1, 11 },
		{ -1, -1, 3, 0, 0, 32, 3, 0, 1, 11 }, { -1, -1, 0, 0, 0, 32, 3, 0, 1, 11 },
		{ -1, -1, 4096, 0, 0, 256, 3, 0, 1, 256 }, { -1, -1, 256, 0, 0, 5, 3, 0, 1, 5 },
		{ -1, -1, 256, 0, 0, 1, 3, 0, 1, 1 }, { -1, -1, -1, 0, 0, 7, 3, 0, 1, 7 },
	};
	struct bio *bios[300];
	u_int n, taken, reqs;
	size_t i;

	for (i = 0; i < nitems(table); i++) {
		device_new();
		if (table[i].order >= 0)
			offer("max-ring-page-order", table[i].order);
		if (table[i].queues >= 0)
			offer("multi-queue-max-queues", table[i].queues);
		if (table[i].segs >= 0)
			offer("feature-max-indirect-segments", table[i].segs);
		mp_ncpus = table[i].cpus;
		tune(XBD_RING_ORDER, table[i].my_order);
		tune(XBD_NUM_QUEUES, table[i].my_queues);
		tune(XBD_MAX_SEGS, table[i].my_segs);
		connect_ok();
		tunables_as_before();
		CHECK(be.npages == 1U << table[i].has_order && be.nrings == table[i].has_queues,
		    "%zu: %u rings of %u pages", i, be.nrings, be.npages);
		CHECK(kpi_sysctl_value("ring_order") == table[i].has_order &&
		    kpi_sysctl_value("max_segs") == table[i].has_segs &&
		    kpi_sysctl_value("queues") == table[i].has_queues, "%zu: sysctls", i);
		io(BIO_WRITE, 0, 1024 * KB, 0);
		CHECK(be.longest == table[i].has_segs, "%zu: %u segments", i, be.longest);
		io(BIO_READ, 0, 1024 * KB, 0);
		CHECK(kpi_sysctl_value("shortened") == 0, "%zu: shortened", i);
		/* As many in a queue as the ring has room for, and no more than 128. */
		reqs = MIN(32U << table[i].has_order, 128);
		be.answers = false;
		for (n = 0; n < nitems(bios); n++)
			bios[n] = submit(BIO_READ, n, SECTOR);
		for (taken = 0; be_takes(0, &be.last); taken++)
			be_answers(0, &be.last, BLKIF_RSP_OKAY);
		CHECK(taken == reqs, "%zu: %u requests", i, taken);
		be.answers = true;
		settle();
		for (n = 0; n < nitems(bios); n++)
			ended(bios[n], 0);
		device_end();
	}
}

/* Each CPU's requests go to its ring, whose event is that CPU's. */
static void
queues(const void *arg __unused)
{
	struct bio *bp;
	char name[16];
	u_int i, j;

	device_new();
	offer("multi-queue-max-queues", 3);
	connect_ok();
	be.answers = false;
	for (i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "xbd3:req%u", i);
		CHECK(strcmp(be.rings[i].channel->ec_name, name) == 0 &&
		    be.rings[i].channel->ec_params.xep_cpu == (int)i, "%s",
		    be.rings[i].channel->ec_name);
		PCPU_SET(cpuid, i);
		bp = submit(BIO_WRITE, 10 + i, SECTOR);
		for (j = 0; j < 3; j++)
			CHECK(be_takes(j, &be.last) == (j == i), "queue %u", j);
		be_answers(i, &be.last, BLKIF_RSP_OKAY);
		snprintf(name, sizeof(name), "ring%u", i);
		CHECK(strcmp(fr.sc.xbd_queues[i]->q_name, name) == 0, "%s", name);
		/* An event of another ring is none of this one. */
		be.rings[(i + 1) % 3].event = true;
		CHECK(be_event((i + 1) % 3) && !has_ended(bp), "by another's event");
		settle();
		ended(bp, 0);
		CHECK(fr.sc.xbd_queues[i]->q_stats.qs_intrs == 1 + (i > 0), "%ju events",
		    (uintmax_t)fr.sc.xbd_queues[i]->q_stats.qs_intrs);
	}
	PCPU_SET(cpuid, 0);
	device_end();
}

/* The request in the ring is this one, with another id; every other byte is zero. */
static void
wire_is(const void *expected)
{
	blkif_request_t want;
	u_int i;

	memcpy(&want, expected, sizeof(want));
	want.id = be.last.req.id;
	for (i = 0; i < sizeof(want); i++)
		CHECK(((u_char *)&want)[i] == ((u_char *)&be.last.req)[i], "byte %u: 0x%x, not 0x%x", i,
		    ((u_char *)&be.last.req)[i], ((u_char *)&want)[i]);
}

/* These are the segments of so many bytes. */
static void
segments_are(struct blkif_request_segment *segs, size_t len)
{
	u_int i;

	CHECK(be.last.nsegs == howmany(len, PAGE_SIZE), "%u segments", be.last.nsegs);
	for (i = 0; i < be.last.nsegs; i++) {
		memset(&segs[i], 0, sizeof(segs[i]));
		segs[i].gref = be.last.segs[i].gref;
		segs[i].last_sect = MIN(len - ptoa(i), PAGE_SIZE) / SECTOR - 1;
		CHECK(be.last.segs[i].first_sect == 0 && be.last.segs[i].last_sect ==
		    segs[i].last_sect, "segment %u: %u to %u", i, be.last.segs[i].first_sect,
		    be.last.segs[i].last_sect);
	}
}

/* A bio is on the wire as the protocol has it, and its data is moved. */
static void
wire_io(int cmd, u_int sector, size_t len)
{
	uint8_t op = cmd == BIO_READ ? BLKIF_OP_READ : BLKIF_OP_WRITE;
	struct blkif_request_segment segs[MAX_SEGS];
	union {
		blkif_request_t direct;
		blkif_request_indirect_t indirect;
	} want;

	memset(&want, 0, sizeof(want));
	io(cmd, sector, len, 0);
	segments_are(segs, len);
	if (be.last.nsegs <= BLKIF_MAX_SEGMENTS_PER_REQUEST) {
		want.direct = (blkif_request_t){ .operation = op, .nr_segments = be.last.nsegs,
		    .handle = HANDLE, .sector_number = sector };
		memcpy(want.direct.seg, segs, be.last.nsegs * sizeof(segs[0]));
	} else {
		want.indirect = (blkif_request_indirect_t){ .operation = BLKIF_OP_INDIRECT,
		    .indirect_op = op, .nr_segments = be.last.nsegs, .sector_number = sector,
		    .handle = HANDLE };
		/* One page lists all of them. */
		want.indirect.indirect_grefs[0] =
		    ((blkif_request_indirect_t *)(void *)&be.last.req)->indirect_grefs[0];
	}
	wire_is(&want);
}

/* Reads and writes byte for byte, as long as a slot's segments reach, and longer. */
static void
requests(const void *arg __unused)
{
	static const size_t lengths[] = { SECTOR, 3 * SECTOR, PAGE_SIZE, PAGE_SIZE + SECTOR,
	    4 * PAGE_SIZE, 5 * PAGE_SIZE, 11 * PAGE_SIZE - SECTOR, 11 * PAGE_SIZE, 11 * PAGE_SIZE +
	    SECTOR, 12 * PAGE_SIZE, 29 * PAGE_SIZE + SECTOR, 32 * PAGE_SIZE };
	u_int keeps, sector;
	size_t i;

	for (keeps = 0; keeps < 2; keeps++) {
		device_new();
		offer("feature-max-indirect-segments", 64);
		if (keeps)
			offer("feature-persistent", 1);
		connect_ok();
		be.keeps = keeps;
		CHECK(kpi_sysctl_value("persistent") == keeps, "persistent");
		for (i = 0; i < nitems(lengths); i++) {
			be.says_indirect = i % 2;
			sector = 7 + 100 * i;
			wire_io(BIO_WRITE, sector, lengths[i]);
			wire_io(BIO_READ, sector, lengths[i]);
			/* What is longer in the memory than on the disk stays as it was. */
			disk_bytes[sector * SECTOR] ^= 0xff;
			wire_io(BIO_READ, sector, lengths[i]);
		}
		/* The same pages are used again. */
		CHECK(!keeps || be.nmapped <= 2 * 32 + 1, "%u pages", be.nmapped);
		CHECK(gnt_in_use() <= 1 + FIRST_REFS + 2 * (32 + 1), "%u references", gnt_in_use());
		CHECK(be.rings[0].channel->ec_notified == be.nserved, "%u notifications of %u requests",
		    be.rings[0].channel->ec_notified, be.nserved);
		device_end();
	}
	/* Sectors on the wire have 512 bytes, also where the disk's have more. */
	device_new();
	offer("sector-size", 4096);
	connect_ok();
	CHECK(kpi_disk->d_sectorsize == 4096 && kpi_disk->d_mediasize == SECTORS * SECTOR, "the disk");
	wire_io(BIO_WRITE, 64, 4096);
	wire_io(BIO_READ, 72, 8192);
	device_end();
}

/* With our pages not kept mapped the back end is not asked to; if the tunable says so. */
static void
persistent(const void *arg __unused)
{

	device_new();
	offer("feature-persistent", 1);
	tune(XBD_PERSISTENT, 0);
	connect_ok();
	CHECK(number("feature-persistent") == 0 && kpi_sysctl_value("persistent") == 0, "persistent");
	tunables_as_before();
	reconnect();
	CHECK(number("feature-persistent") == 1 && kpi_sysctl_value("persistent") == 1, "not");
	xsn_clear(BACK, "feature-persistent");
	reconnect();
	CHECK(number("feature-persistent") == 1 && kpi_sysctl_value("persistent") == 0, "persistent");
	device_end();
}

/* Each status of a response, and such that is none. */
static void
statuses(const void *arg __unused)
{
	static const struct {
		int16_t	status;
		int	error;
		u_int	seen;	/* 0: it is a status */
	} table[] = {
		{ BLKIF_RSP_OKAY, 0, 0 }, { BLKIF_RSP_ERROR, EIO, 0 },
		{ BLKIF_RSP_EOPNOTSUPP, EOPNOTSUPP, 0 }, { 1, EIO, 1 }, { -3, EIO, 0xfffd },
		{ 0x7fff, EIO, 0x7fff },
	};
	blkif_response_t rsp = { .operation = BLKIF_OP_READ };
	struct pvq_done done = { .pd_result = (uintptr_t)&rsp };
	struct pv_blk_req rq = { .rq_cmd = PV_BLK_READ, .rq_length = SECTOR };
	u_int errors, resets;
	uintmax_t seen;
	size_t i;

	kpi_quiet = true;
	for (i = 0; i < nitems(table); i++) {
		device_new();
		offer("feature-flush-cache", 1);
		connect_ok();
		be.status = table[i].status;
		errors = kpi_sysctl_value("protocol_errors");
		resets = front.resets;
		io(BIO_READ, 3, SECTOR, table[i].error);
		CHECK((kpi_sysctl_value("protocol_errors") > errors) == (table[i].seen != 0) &&
		    (front.resets > resets) == (table[i].seen != 0), "%zu: status %d, %u resets", i,
		    table[i].status, front.resets);
		/* What is none is shown as it is. */
		seen = 0;
		rsp.status = table[i].status;
		CHECK(xbd_status(&fr.sc.xbd_blk, &rq, &done, &seen) == (table[i].seen != 0 ? -1 :
		    table[i].error) && seen == table[i].seen, "%zu: seen 0x%jx", i, seen);
		be.status = BLKIF_RSP_OKAY;
		if (table[i].seen != 0)
			reconnect();
		io(BIO_WRITE, 3, SECTOR, 0);
		io(BIO_FLUSH, 0, 0, 0);
		device_end();
	}
}

/* An answer is of the operation that it is to, or the back end is no good. */
static void
answers_of_another_operation(const void *arg __unused)
{
	static const struct {
		int	cmd;
		size_t	len;
		int	op;
		bool	right;
	} table[] = {
		{ BIO_READ, SECTOR, BLKIF_OP_READ, true }, { BIO_READ, SECTOR, BLKIF_OP_WRITE, false },
		{ BIO_READ, SECTOR, BLKIF_OP_INDIRECT, false }, { BIO_READ, SECTOR, 0xff, false },
		{ BIO_WRITE, SECTOR, BLKIF_OP_WRITE, true },
		{ BIO_WRITE, SECTOR, BLKIF_OP_READ, false },
		{ BIO_WRITE, SECTOR, BLKIF_OP_WRITE_BARRIER, false },
		{ BIO_WRITE, 11 * PAGE_SIZE, BLKIF_OP_WRITE, true },
		{ BIO_WRITE, 11 * PAGE_SIZE, BLKIF_OP_INDIRECT, false },
		{ BIO_WRITE, 11 * PAGE_SIZE + SECTOR, BLKIF_OP_INDIRECT, true },
		{ BIO_WRITE, 12 * PAGE_SIZE, BLKIF_OP_WRITE, true },
		{ BIO_WRITE, 12 * PAGE_SIZE, BLKIF_OP_READ, false },
		{ BIO_READ, 12 * PAGE_SIZE, BLKIF_OP_INDIRECT, true },
		{ BIO_READ, 12 * PAGE_SIZE, BLKIF_OP_READ, true },
		{ BIO_READ, 12 * PAGE_SIZE, BLKIF_OP_DISCARD, false },
		{ BIO_FLUSH, 0, BLKIF_OP_FLUSH_DISKCACHE, true },
		{ BIO_FLUSH, 0, BLKIF_OP_WRITE_BARRIER, false },
		{ BIO_FLUSH, 0, BLKIF_OP_WRITE, false },
		{ BIO_FLUSH, 0, BLKIF_OP_READ, false }, { BIO_FLUSH, 0, BLKIF_OP_DISCARD, false },
		{ BIO_DELETE, SECTOR, BLKIF_OP_DISCARD, true },
		{ BIO_DELETE, SECTOR, BLKIF_OP_WRITE, false },
		{ BIO_DELETE, SECTOR, BLKIF_OP_READ, false },
		{ BIO_DELETE, 12 * PAGE_SIZE, BLKIF_OP_INDIRECT, false },
	};
	blkif_response_t rsp = { .status = BLKIF_RSP_OKAY };
	struct pvq_done done = { .pd_result = (uintptr_t)&rsp };
	uintmax_t seen = UINTMAX_MAX;
	size_t i;

	kpi_quiet = true;
	for (i = 0; i < nitems(table); i++) {
		device_new();
		offer("feature-flush-cache", 1);
		offer("feature-barrier", 1);
		offer("feature-discard", 1);
		offer("feature-max-indirect-segments", 32);
		connect_ok();
		be.op = table[i].op;
		io(table[i].cmd, 3, table[i].len, table[i].right ? 0 : EIO);
		CHECK((front.resets == 0) == table[i].right, "%zu: %u resets", i, front.resets);
		be.op = -1;
		/* What is wrong is shown. */
		rsp.operation = table[i].op;
		CHECK(table[i].right || (xbd_status(&fr.sc.xbd_blk, &fr.sc.xbd_blk.blk_reqs[0], &done,
		    &seen) == -1 && seen == rsp.operation), "%zu: seen 0x%jx", i, seen);
		if (!table[i].right)
			reconnect();
		io(BIO_READ, 3, SECTOR, 0);
		device_end();
	}
}

/* Responses that answer nothing: what is in flight fails, the disk comes back with another back end. */
static void
hostile_back_end(const void *arg __unused)
{
	struct bio *bp, *waits;
	u_int how;

	kpi_quiet = true;
	for (how = 0; how < 3; how++) {
		device_begin();
		be.answers = false;
		bp = submit(BIO_WRITE, 3, SECTOR);
		CHECK(be_takes(0, &be.last), "no request");
		switch (how) {
		case 0:
			be_responds(0, be.last.req.id + 1, BLKIF_OP_WRITE, BLKIF_RSP_OKAY);
			break;
		case 1:
			be_responds(0, UINT64_MAX, BLKIF_OP_WRITE, BLKIF_RSP_OKAY);
			break;
		default:
			be.rings[0].ring.rsp_prod_pvt += 100;
			RING_PUSH_RESPONSES(&be.rings[0].ring);
			be.rings[0].event = true;
			break;
		}
		settle();
		CHECK(front.resets > 0, "%u: no reset", how);
		waits = submit(BIO_WRITE, 4, SECTOR);
		settle();
		CHECK(!has_ended(waits), "%u: ended", how);
		be.answers = true;
		reconnect();
		ended(bp, EIO);
		ended(waits, 0);
		io(BIO_READ, 3, 2 * SECTOR, 0);
		device_end();
	}
}

/* The better flush that there is; without one there is nothing to flush. */
static void
flushes(const void *arg __unused)
{
	static const struct {
		const char *flush, *barrier;
		int	op;
	} table[] = {
		{ "1", NULL, BLKIF_OP_FLUSH_DISKCACHE }, { "1", "1", BLKIF_OP_FLUSH_DISKCACHE },
		{ NULL, "1", BLKIF_OP_WRITE_BARRIER }, { "0", "1", BLKIF_OP_WRITE_BARRIER },
		{ NULL, NULL, -1 }, { "0", "0", -1 }, { "x", NULL, -1 },
		{ "1", NULL, BLKIF_OP_FLUSH_DISKCACHE },
	};
	blkif_request_t want;
	u_int served;
	size_t i;

	kpi_quiet = true;
	device_begin();
	/* Of one back end after another. */
	for (i = 0; i < nitems(table); i++) {
		xsn_clear(BACK, "feature-flush-cache");
		xsn_clear(BACK, "feature-barrier");
		if (table[i].flush != NULL)
			xsn_set(BACK, "feature-flush-cache", "%s", table[i].flush);
		if (table[i].barrier != NULL)
			xsn_set(BACK, "feature-barrier", "%s", table[i].barrier);
		reconnect();
		served = be.nserved;
		io(BIO_FLUSH, 0, 0, 0);
		if (table[i].op < 0) {
			CHECK(be.nserved == served, "%zu: a flush of nothing", i);
			continue;
		}
		CHECK(be.nserved == served + 1, "%zu: no flush", i);
		memset(&want, 0, sizeof(want));
		want.operation = table[i].op;
		want.handle = HANDLE;
		wire_is(&want);
		CHECK((kpi_disk->d_flags & DISKFLAG_CANFLUSHCACHE) != 0, "flags");
	}
	device_end();
	/* So it is with the first one. */
	for (i = 0; i < nitems(table); i++) {
		device_new();
		if (table[i].flush != NULL)
			xsn_set(BACK, "feature-flush-cache", "%s", table[i].flush);
		if (table[i].barrier != NULL)
			xsn_set(BACK, "feature-barrier", "%s", table[i].barrier);
		connect_ok();
		io(BIO_FLUSH, 0, 0, 0);
		CHECK(be.nserved == (table[i].op >= 0) && (table[i].op < 0 || be.last.op ==
		    table[i].op), "%zu: %u, operation %u", i, be.nserved, be.last.op);
		device_end();
	}
}

static void
wire_is_discard(u_int sector, u_int n, uint8_t flag)
{
	union {
		blkif_request_t slot;
		blkif_request_discard_t discard;
	} want;

	memset(&want, 0, sizeof(want));
	want.discard.operation = BLKIF_OP_DISCARD;
	want.discard.flag = flag;
	want.discard.handle = HANDLE;
	want.discard.sector_number = sector;
	want.discard.nr_sectors = n;
	wire_is(&want);
}

/* What is deleted, in which units, and how securely. */
static void
deletes(const void *arg __unused)
{
	static const struct {
		bool	offered, secure, wanted;
		int	granularity, alignment;
		u_int	align, first, flag;
	} table[] = {
		{ true, false, false, -1, -1, SECTOR, 0, 0 },
		{ true, true, false, -1, -1, SECTOR, 0, 0 },
		{ true, true, true, -1, -1, SECTOR, 0, BLKIF_DISCARD_SECURE },
		{ true, false, true, -1, -1, SECTOR, 0, 0 },
		{ true, false, false, 4096, 1024, 4096, 1024, 0 },
		{ true, false, false, 4096, -1, 4096, 0, 0 },
		{ true, false, false, 700, 0, SECTOR, 0, 0 },
		{ false, true, true, 4096, 1024, 0, 0, 0 },
	};
	const struct pv_blk_params *bp = &fr.sc.xbd_blk.blk_params;
	size_t i;

	kpi_quiet = true;
	for (i = 0; i < nitems(table); i++) {
		device_new();
		if (table[i].offered)
			offer("feature-discard", 1);
		if (table[i].secure)
			offer("discard-secure", 1);
		if (table[i].granularity >= 0)
			offer("discard-granularity", table[i].granularity);
		if (table[i].alignment >= 0)
			offer("discard-alignment", table[i].alignment);
		tune(XBD_SECURE_DELETE, table[i].wanted);
		connect_ok();
		CHECK(((kpi_disk->d_flags & DISKFLAG_CANDELETE) != 0) == table[i].offered, "%zu: flags",
		    i);
		CHECK(bp->bp_delete_size == (table[i].offered ? 1024 * 1024 * KB : 0), "%zu: %ju bytes",
		    i, (uintmax_t)bp->bp_delete_size);
		if (!table[i].offered) {
			CHECK(kpi_disk->d_stripesize == 0, "a stripe");
			io(BIO_DELETE, 40, 8 * SECTOR, EOPNOTSUPP);
			tunables_as_before();
			device_end();
			continue;
		}
		CHECK(bp->bp_delete_align == table[i].align && bp->bp_delete_first == table[i].first,
		    "%zu: %ju, %ju", i, (uintmax_t)bp->bp_delete_align, (uintmax_t)bp->bp_delete_first);
		CHECK(kpi_disk->d_stripesize == (table[i].align > SECTOR ? table[i].align : 0) &&
		    kpi_disk->d_stripeoffset == (table[i].align - table[i].first) % table[i].align,
		    "%zu: %ju, %ju", i, (uintmax_t)kpi_disk->d_stripesize,
		    (uintmax_t)kpi_disk->d_stripeoffset);
		memset(disk_bytes, 0xff, sizeof(disk_bytes));
		io(BIO_DELETE, 42, 8 * SECTOR, 0);
		wire_is_discard(42, 8, table[i].flag);
		CHECK(disk_bytes[42 * SECTOR] == 0 && disk_bytes[50 * SECTOR - 1] == 0 &&
		    disk_bytes[50 * SECTOR] == 0xff, "%zu: deleted", i);
		/* The next back end deletes nothing, and the one after it does again. */
		xsn_clear(BACK, "feature-discard");
		reconnect();
		CHECK((kpi_disk->d_flags & DISKFLAG_CANDELETE) == 0, "%zu: flags", i);
		io(BIO_DELETE, 42, 8 * SECTOR, EOPNOTSUPP);
		offer("feature-discard", 1);
		xsn_clear(BACK, "discard-secure");
		offer("discard-granularity", 8192);
		reconnect();
		CHECK((kpi_disk->d_flags & DISKFLAG_CANDELETE) != 0 && bp->bp_delete_align == 8192,
		    "%zu: flags", i);
		io(BIO_DELETE, 48, 16 * SECTOR, 0);
		wire_is_discard(48, 16, 0);
		tunables_as_before();
		device_end();
	}
}

/* What the disk is: its values, at their bounds and beyond them. */
static void
geometry(const void *arg __unused)
{
	static const struct {
		const char *size, *sectors, *info, *physical, *granularity;
		int	error;
		const char *says;
		off_t	media;
		u_int	stripe;
		bool	readonly;
	} table[] = {
		{ "512", "2000", NULL, NULL, NULL, 0, NULL, 2000 * SECTOR, 0, false },
		{ "512", "1", NULL, NULL, NULL, 0, NULL, SECTOR, 0, false },
		{ "512", "18014398509481983", NULL, NULL, NULL, 0, NULL, OFF_MAX - SECTOR + 1, 0,
		    false },
		{ "512", "18014398509481984", NULL, NULL, NULL, EINVAL, "sectors", 0, 0, false },
		{ "512", "0", NULL, NULL, NULL, EINVAL, "sectors", 0, 0, false },
		{ "512", "-1", NULL, NULL, NULL, EINVAL, "sectors", 0, 0, false },
		{ "512", NULL, NULL, NULL, NULL, ENOENT, "sectors", 0, 0, false },
		{ NULL, "2000", NULL, NULL, NULL, ENOENT, "sector-size", 0, 0, false },
		{ "256", "2000", NULL, NULL, NULL, EINVAL, "sector-size", 0, 0, false },
		{ "1000", "2000", NULL, NULL, NULL, EINVAL, "sector-size", 0, 0, false },
		{ "8192", "2000", NULL, NULL, NULL, EINVAL, "sector-size", 0, 0, false },
		{ "0", "2000", NULL, NULL, NULL, EINVAL, "sector-size", 0, 0, false },
		{ "1024", "2000", NULL, NULL, NULL, 0, NULL, 2000 * SECTOR, 0, false },
		{ "4096", "2047", NULL, NULL, NULL, 0, NULL, 2040 * SECTOR, 0, false },
		{ "4096", "8", NULL, NULL, NULL, 0, NULL, 4096, 0, false },
		{ "4096", "7", NULL, NULL, NULL, EINVAL, "sectors", 0, 0, false },
		{ "512", "2000", "0", "4096", NULL, 0, NULL, 2000 * SECTOR, 4096, false },
		{ "512", "2000", "4", "512", NULL, 0, NULL, 2000 * SECTOR, 0, true },
		{ "512", "2000", "5", NULL, NULL, ENODEV, "CD-ROM", 0, 0, false },
		{ "512", "2000", "1", NULL, NULL, ENODEV, "CD-ROM", 0, 0, false },
		{ "512", "2000", "2", "700", NULL, 0, NULL, 2000 * SECTOR, 0, false },
		{ "512", "2000", "8", "8192", "4096", 0, NULL, 2000 * SECTOR, 8192, false },
		{ "512", "2000", NULL, NULL, "4096", 0, NULL, 2000 * SECTOR, 4096, false },
		{ "512", "2000", "x", "x", "x", 0, NULL, 2000 * SECTOR, 0, false },
	};
	int error;
	size_t i;

	kpi_quiet = true;
	for (i = 0; i < nitems(table); i++) {
		device_new();
		xsn_clear(BACK, "sector-size");
		xsn_clear(BACK, "sectors");
		if (table[i].size != NULL)
			xsn_set(BACK, "sector-size", "%s", table[i].size);
		if (table[i].sectors != NULL)
			xsn_set(BACK, "sectors", "%s", table[i].sectors);
		if (table[i].info != NULL)
			xsn_set(BACK, "info", "%s", table[i].info);
		if (table[i].physical != NULL)
			xsn_set(BACK, "physical-sector-size", "%s", table[i].physical);
		if (table[i].granularity != NULL) {
			xsn_set(BACK, "discard-granularity", "%s", table[i].granularity);
			offer("feature-discard", 1);
		}
		kpi_line[0] = '\0';
		error = fr_connect();
		CHECK(error == table[i].error && (kpi_disk == NULL) == (error != 0), "%zu: error %d", i,
		    error);
		CHECK(error == 0 || strstr(kpi_line, table[i].says) != NULL, "%zu: %s", i, kpi_line);
		if (error == 0) {
			CHECK(kpi_disk->d_mediasize == table[i].media && kpi_disk->d_sectorsize ==
			    strtoul(table[i].size, NULL, 10), "%zu: %jd bytes", i,
			    (intmax_t)kpi_disk->d_mediasize);
			CHECK(kpi_disk->d_stripesize == table[i].stripe &&
			    kpi_disk->d_stripeoffset == 0, "%zu: stripes of %ju", i,
			    (uintmax_t)kpi_disk->d_stripesize);
			CHECK((kpi_disk->d_flags & (DISKFLAG_WRITE_PROTECT | DISKFLAG_CANFLUSHCACHE)) ==
			    (table[i].readonly ? DISKFLAG_WRITE_PROTECT : DISKFLAG_CANFLUSHCACHE),
			    "%zu: flags 0x%x", i, kpi_disk->d_flags);
			io(BIO_READ, 0, 4096 < table[i].media ? 4096 : SECTOR, 0);
		}
		device_end();
	}
	/* Without an answer nothing is known of it, and no default is taken. */
	device_new();
	CHECK(set_up() == 0, "not set up");
	be_connects();
	xsn_no_answer = ETIMEDOUT;
	CHECK(XENFRONT_LIVE(front.dev) == ETIMEDOUT && front.xb.xb_unread && kpi_disk == NULL, "live");
	xsn_no_answer = 0;
	CHECK(XENFRONT_LIVE(front.dev) == 0 && kpi_disk != NULL, "not live");
	device_end();
}

static const struct hosted_test tests[] = {
	{ "plain_back_end", "without features", plain_back_end, NULL },
	{ "other_devices", "are left to others", other_devices, NULL },
	{ "handles", "are nodes' numbers", handles, NULL },
	{ "limits", "of both ends", limits, NULL },
	{ "queues", "one for each CPU", queues, NULL },
	{ "requests", "byte for byte", requests, NULL },
	{ "persistent", "if both ends want it", persistent, NULL },
	{ "statuses", "are errors", statuses, NULL },
	{ "answers_of_another_operation", "are violations", answers_of_another_operation, NULL },
	{ "hostile_back_end", "is replaced", hostile_back_end, NULL },
	{ "flushes", "by the best way", flushes, NULL },
	{ "deletes", "in units", deletes, NULL },
	{ "geometry", "at its bounds", geometry, NULL },
	{ "changes", "of the size", life_changes, NULL },
	{ "another_back_end", "that offers less", life_another_back_end, NULL },
	{ "another_disk", "is refused", life_another_disk, NULL },
	{ "closing", "when nobody uses it", life_closing, NULL },
	{ "lost", "until there is another", life_lost, NULL },
	{ "suspended", "and nothing is put", life_suspended, NULL },
	{ "early_events", "do nothing", life_early_events, NULL },
	{ "detach_waits", "for some time", life_detach_waits, NULL },
	{ "set_up_fails", "and leaves nothing", life_set_up_fails, NULL },
	{ "published_twice", "is the same", life_published_twice, NULL },
	{ "fewer_queues", "than wanted", life_fewer_queues, NULL },
	{ "short_of_grants", "with shorter requests", life_short_of_grants, NULL },
	{ "dump", "without memory", life_dump, NULL },
	{ NULL, NULL, NULL, NULL }
};

const struct hosted_test *
hosted_tests(void)
{

	tunables_as_before();
	return (tests);
}
