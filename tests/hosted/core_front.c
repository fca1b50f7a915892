/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Front ends on FreeBSD's own Xen core (core_front.c): whose they are, and what moves them.
 *
 * Newbus and taskqueue(9) are the tree kernel's, and their threads are real (kpi/threads.c).  The
 * core's bus and the kernel's drivers are those of the module xenhvm; xenstore is a few nodes.  A test
 * is the toolstack, the back ends, devctl(8), and what has the devices of those front ends that are
 * ours.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/eventhandler.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/mutex.h>
#include <sys/sx.h>
#include <sys/sysctl.h>
#include <sys/taskqueue.h>

#include <machine/bus.h>

#include <xen/xen-os.h>
#include <xen/xenstore/xenstore_internal.h>
#include <xen/xenbus/xenbusvar.h>

#include <dev/xen/xen_front.h>
#include <dev/xen/xen_var.h>
#include <dev/xen/xenstore_var.h>
#include <dev/xen/core/core.h>

#include <kern/bus_tree.h>

#include "host/host.h"
#include "kpi/kpi.h"
#include "kpi/sched.h"
#include "kpi/threads.h"
#include "model/xenhvm_store.h"
#include "model/xenstore_nodes.h"
#include "core_front.h"

#define	DISK	"device/vbd/51712"	/* xvda */
#define	DISK_B	"device/vbd/51728"
#define	CARD	"device/vif/0"
#define	LOG(text) do {							\
	CHECK(strcmp(users.log, (text)) == 0, "was called for: %s", users.log); \
	users.log[0] = '\0';						\
} while (0)
#define	CORE_WROTE(text) do {						\
	CHECK(strcmp(xhs_wrote, (text)) == 0, "the core wrote: %s", xhs_wrote); \
	xhs_wrote[0] = '\0';						\
} while (0)
#define	HAS(node, driver) do {						\
	CHECK(strcmp(driver_of(node), (driver)) == 0, "%s: %s", (node), driver_of(node)); \
} while (0)

MALLOC_DEFINE(M_XEN, "xen", "Xen");

/* The core's. */
bool xen_suspend_cancelled;
enum xen_domain_type xen_domain_type = XEN_PV_DOMAIN;
int xen_disable_pv_disks, xen_disable_pv_nics;
volatile u_int xen_life;

/* Who has the devices of our front ends, of which all are in the same state. */
static struct {
	char	log[256];	/* c: changed, d: drop */
	enum xen_core_child state;
	const char *drop_waits;	/* that of this node */
	bool	changed_waits;
} users;

/* Modules of the suite. */
static bool has_xbd, has_xn;
static device_t bus;

/* What devctl(8) said in another thread; -1: nothing yet. */
static volatile int moved;
static volatile bool suspended;
/* What was said to the module, which is to go. */
static int returned;

/* What no test here calls, as xenstore is nodes: the core's messages. */
int
xs_dev_request_and_reply(struct xsd_sockmsg *msg, void **result __unused)
{

	CHECK(false, "type %u", msg->type);
	return (EIO);
}

module_t
module_lookupbyname(const char *name)
{

	sx_assert(&modules_sx, SA_XLOCKED);
	if (strcmp(name, "xenbus/xbd") == 0)
		return (has_xbd ? (module_t)&has_xbd : NULL);
	CHECK(strcmp(name, "xenbus/xn") == 0, "%s", name);
	return (has_xn ? (module_t)&has_xn : NULL);
}

static void
users_changed(void)
{

	CHECK(kpi_mutex_is_mine(&Giant) && kpi_mutexes == 0, "the topology lock, and no other");
	strlcat(users.log, "c", sizeof(users.log));
	while (users.changed_waits)
		(void)pause("changed", 1);
}

static void
users_drop(const char *node)
{

	CHECK(kpi_mutex_is_mine(&Giant) && Giant.mtx_recurse == 0 && kpi_mutexes == 0, "locks");
	strlcat(users.log, "d", sizeof(users.log));
	strlcat(users.log, node, sizeof(users.log));
	while (users.drop_waits != NULL && strcmp(node, users.drop_waits) == 0)
		(void)pause("drop", 1);
	users.state = XEN_CORE_NONE;
}

static enum xen_core_child
users_state(const char *node __unused)
{

	CHECK(kpi_mutex_is_mine(&Giant) && Giant.mtx_recurse == 0 && kpi_mutexes == 0, "locks");
	return (users.state);
}

static const struct xen_core_fronts fronts = {
	.xcf_changed = users_changed,
	.xcf_drop = users_drop,
	.xcf_state = users_state,
};

static void
load(const char *name)
{

	CHECK(kpi_module_event(name, MOD_LOAD) == 0, "%s", name);
	kpi_settle();
}

/* The toolstack adds a front end, whose back end waits for it; type: of the device, NULL: not told. */
static void
add_typed(const char *node, const char *type)
{
	const char *name = strrchr(node, '/') + 1;
	char back[XSN_VALUE];

	snprintf(back, sizeof(back), "/backend/%s", name);
	xsn_set(back, "state", "%d", XenbusStateInitWait);
	xsn_set(node, "backend", "%s", back);
	xsn_set(node, "backend-id", "0");
	if (type != NULL)
		xsn_set(node, "device-type", "%s", type);
	xsn_set(node, "state", "%d", XenbusStateInitialising);
	kpi_settle();
}

static void
add(const char *node)
{

	add_typed(node, "disk");
}

/* The core's device of a node; NULL: there is none. */
static device_t
device_of(const char *node)
{
	device_t *children, dev = NULL;
	int i, n;

	CHECK(device_get_children(bus, &children, &n) == 0, "no bus");
	for (i = 0; i < n; i++)
		if (strcmp(xenbus_get_node(children[i]), node) == 0)
			dev = children[i];
	free(children, M_TEMP);
	return (dev);
}

static const char *
driver_of(const char *node)
{
	device_t dev = device_of(node);

	if (dev == NULL)
		return ("no device");
	return (device_is_attached(dev) ? device_get_name(dev) : "none");
}

/* The toolstack removes one. */
static void
gone(const char *node)
{
	const char *name = strrchr(node, '/');
	char dir[32];

	snprintf(dir, sizeof(dir), "%.*s", (int)(name - node), node);
	xsn_clear(dir, name + 1);
	kpi_sleep(10);
	HAS(node, "no device");
}

static void
back_is(const char *node, enum xenbus_state state)
{

	xsn_set(xenbus_get_otherend_path(device_of(node)), "state", "%d", state);
	kpi_settle();
}

/* A kernel that boots with our module, or gets it later, and what the toolstack gave it before. */
static void
boot(bool early)
{

	kpi_quiet = true;
	kpi_sysinits();
	load("rootbus");
	if (early)
		load("xenbusb_front/xenfront");
	load("xenbusb_front/xbd");
	load("xenbusb_front/xe");
	load("xenstore/xenbusb_front");
	load("root/xenstore");
	root_bus_configure();
	bus = devclass_get_device(devclass_find("xenbusb_front"), 0);
	CHECK(bus != NULL && device_is_attached(bus), "no bus");
	if (!early)
		load("xenbusb_front/xenfront");
}

/* xen0 attaches. */
static void
begin(void)
{

	CHECK(xenstore_ring_init(bus, NULL) == 0, "no store");
	bus_topo_lock();
	CHECK(xen_core_front_init(&fronts) == 0, "not begun");
	bus_topo_unlock();
	users.state = XEN_CORE_ATTACHED;
}

static void
threads_of(const void *arg)
{

	kpi_type = M_XEN;
	xhs_begin();
	((void (*)(void))(uintptr_t)arg)();
	core_front_end(bus);
}

static void
run(const void *arg)
{

	kpi_threads(threads_of, arg);
}

/* One of each type, ours from the beginning. */
static void
begin_ours(void)
{

	has_xbd = has_xn = true;
	add(DISK);
	add(CARD);
	boot(true);
	begin();
	HAS(DISK, "xenfront");
	HAS(CARD, "xenfront");
	xhs_wrote[0] = '\0';
}

static void
early_module_has_front_ends_from_the_beginning(void)
{

	has_xbd = true;
	add(DISK);
	add(CARD);
	boot(true);
	HAS(DISK, "xenfront");
	HAS(CARD, "xn");
	CHECK(strcmp(device_get_desc(device_of(DISK)), "Xen front end (vbd)") == 0, "%s",
	    device_get_desc(device_of(DISK)));
	begin();
	LOG("");
	CHECK(xen_front_is_ours("vbd", DISK) && !xen_front_is_ours("vif", CARD), "whose");
	add(DISK_B);
	HAS(DISK_B, "xenfront");
	LOG("c");
}

/* Those whose driver is not loaded, and those that hw.pv.disable has. */
static void
some_are_left_to_the_kernel(void)
{
	static const struct {
		const char	*disabled, *disk, *disk_b, *card;
	} table[] = {
		{ "all", "xbd", "xbd", "xn" }, { "xbd", "xbd", "xbd", "xenfront" },
		{ "xbd0", "xbd", "xenfront", "xenfront" }, { "xbd1", "xenfront", "xbd", "xenfront" },
		{ "xn", "xenfront", "xenfront", "xn" }, { "xn0", "xenfront", "xenfront", "xn" },
		{ "xn1", "xenfront", "xenfront", "xenfront" },
		{ "xb", "xenfront", "xenfront", "xenfront" },
	};
	char value[8];
	u_int i;

	boot(true);
	begin();
	kpi_tunable = "hw.pv.disable";
	kpi_tunable_value = value;
	for (i = 0; i < nitems(table); i++) {
		strlcpy(value, table[i].disabled, sizeof(value));
		has_xbd = has_xn = true;
		add(DISK);
		add(DISK_B);
		add(CARD);
		HAS(DISK, table[i].disk);
		HAS(DISK_B, table[i].disk_b);
		HAS(CARD, table[i].card);
		gone(DISK);
		gone(DISK_B);
		gone(CARD);
	}
	kpi_tunable = NULL;
	has_xn = false;
	add(DISK);
	add(CARD);
	add("device/9pfs/0");
	HAS(DISK, "xenfront");
	HAS(CARD, "xn");
	HAS("device/9pfs/0", "no device");
}

/* What the hypervisor emulates is not driven as well. */
static void
emulated_devices_are_left_alone(void)
{

	has_xbd = has_xn = true;
	boot(true);
	begin();
	xen_disable_pv_disks = xen_disable_pv_nics = 1;
	add(DISK);
	HAS(DISK, "xenfront");
	gone(DISK);
	xen_domain_type = XEN_HVM_DOMAIN;
	add(DISK);
	add(CARD);
	HAS(DISK, "xbd");
	HAS(CARD, "xn");
	gone(DISK);
	gone(CARD);
	xen_disable_pv_disks = 0;
	add(DISK);
	add(CARD);
	HAS(DISK, "xenfront");
	HAS(CARD, "xn");
	gone(CARD);
	xen_disable_pv_disks = 1;
	xen_disable_pv_nics = 0;
	add(CARD);
	HAS(CARD, "xenfront");
	gone(DISK);
	/* One of unknown type, and a CD-ROM. */
	xen_disable_pv_disks = 0;
	add_typed(DISK, NULL);
	HAS(DISK, "xbd");
	add_typed(DISK_B, "cdrom");
	HAS(DISK_B, "xbd");
}

static void
numbers_of_disks(void)
{
	static const struct {
		const char	*node;
		int		 unit;
	} table[] = {
		{ DISK, 0 }, { DISK_B, 1 }, { "device/vbd/51952", 15 }, { "device/vbd/51713", 0 },
		{ "device/vbd/268439552", 16 }, { "device/vbd/268435456", 0 },
		{ "device/vbd/268435711", 0 }, { "device/vbd/51967", 15 },
		{ "device/vbd/268435712", 1 }, { "device/vbd/402653184", 524288 },
		{ "device/vbd/768", -1 }, { "device/vbd/2048", -1 },
		{ "device/vbd/51968", -1 }, { "device/vbd/51711", -1 }, { CARD, -1 },
		{ "device/vif/51712", -1 },
	};
	u_int i;

	for (i = 0; i < nitems(table); i++)
		CHECK(xen_front_unit(table[i].node) == table[i].unit, "%s: %d", table[i].node,
		    xen_front_unit(table[i].node));
}

/* The core's copy follows our state; a device that has none of ours is none of it. */
static void
core_is_told_of_states(void)
{

	begin_ours();
	xen_front_told(DISK, XenbusStateInitialised);
	CORE_WROTE(DISK "=3 ");
	CHECK(xenbus_get_state(device_of(DISK)) == XenbusStateInitialised, "not told");
	xen_front_told(DISK, XenbusStateConnected);
	CORE_WROTE(DISK "=4 ");
	xen_front_told(DISK, XenbusStateConnected);
	xen_front_told(DISK_B, XenbusStateConnected);
	CORE_WROTE("");
}

/* Nothing waits for those that have not connected when the kernel goes on. */
static void
root_is_not_waited_for(void)
{

	begin_ours();
	add(DISK_B);
	xen_front_told(DISK_B, XenbusStateClosed);
	xen_front_told(CARD, XenbusStateConnected);
	xen_front_told(CARD, XenbusStateInitialising);
	xen_front_told(DISK, XenbusStateInitialised);
	xhs_wrote[0] = '\0';
	xen_core_front_release();
	CORE_WROTE(DISK "=6 " DISK "=3 ");
	CHECK(strcmp(kpi_line, "xenfront0: " DISK
	    " has not connected: nothing waits for it any more\n") == 0, "%s", kpi_line);
	xen_core_front_release();
	CORE_WROTE("");
}

/* One that nothing was heard of yet is Initialising. */
static void
nothing_was_told(void)
{

	begin_ours();
	xen_core_front_release();
	CHECK(strstr(xhs_wrote, DISK "=6 " DISK "=1 ") != NULL &&
	    strstr(xhs_wrote, CARD "=6 " CARD "=1 ") != NULL, "%s", xhs_wrote);
}

/* The driver of ours for a type is unloaded, and has detached its device. */
static void
unload_xbd(void)
{

	has_xbd = false;
	users.state = XEN_CORE_NONE;
	bus_topo_lock();
	returned = xen_core_front_return();
	bus_topo_unlock();
	kpi_settle();
}

/* devctl(8) gives a device to a driver. */
static int
set_driver(const char *node, const char *driver)
{

	return (kpi_set_driver(device_of(node), driver));
}

/* The kernel's driver begins with nothing of ours, and what others wrote stays. */
static void
device_returns_with_its_driver(void)
{
	static const char *const ours[] = { "event-channel", "event-channel-rx", "feature-persistent",
	    "multi-queue-num-queues", "num-ring-pages", "queue-0", "request-rx-copy", "ring-page-order",
	    "ring-ref", "ring-ref0", "rx-ring-ref", "tx-ring-ref" };
	static const char *const others[] = { "mac", "handle", "virtual-device", "ring", "backend-id",
	    "xfeature-sg", "state" };
	u_int i;

	xsn_set(DISK, ours[0], "1");
	begin_ours();
	for (i = 0; i < nitems(ours); i++)
		xsn_set(DISK, ours[i], "1");
	for (i = 0; i < nitems(others); i++)
		xsn_set(DISK, others[i], "1");
	xsn_set(CARD, "tx-ring-ref", "1");
	unload_xbd();
	LOG("d" DISK);
	HAS(DISK, "xbd");
	HAS(CARD, "xenfront");
	for (i = 0; i < nitems(ours); i++)
		CHECK(!xsn_exists(DISK, ours[i]), "%s", ours[i]);
	for (i = 0; i < nitems(others); i++)
		CHECK(xsn_exists(DISK, others[i]), "%s", others[i]);
	CHECK(xsn_exists(CARD, "tx-ring-ref"), "another's");
	CHECK(!xen_front_is_ours("vbd", DISK) && xen_front_is_ours("vif", CARD), "whose");
	CHECK(xhs_watches == 1 + 2, "%d watches", xhs_watches);
}

/* Its back end has disconnected before. */
static void
back_end_disconnects_before_a_device_returns(void)
{
	int began;

	begin_ours();
	xen_front_told(DISK, XenbusStateConnected);
	back_is(DISK, XenbusStateConnected);
	xhs_wrote[0] = '\0';
	/* One that does not is waited for, and no longer than two seconds. */
	began = ticks;
	unload_xbd();
	HAS(DISK, "xbd");
	CORE_WROTE(DISK "=5 " DISK "=6 " DISK "=1 ");
	CHECK(ticks - began >= 2 * hz && ticks - began < 2 * hz + 5, "%d ticks", ticks - began);
}

static void
disk_closes(void *arg)
{

	(void)pause("closes", hz / 2);
	back_is(DISK, *(enum xenbus_state *)arg);
}

/* And when it has, that is enough; ours had ended properly, or not. */
static void
back_end_that_disconnects_is_waited_for(void)
{
	static enum xenbus_state ends = XenbusStateInitWait;
	int began;

	begin_ours();
	xen_front_told(DISK, XenbusStateConnected);
	back_is(DISK, XenbusStateClosing);
	kpi_thread_start(disk_closes, &ends);
	began = ticks;
	unload_xbd();
	HAS(DISK, "xbd");
	CHECK(ticks - began >= hz / 2 && ticks - began < hz, "%d ticks", ticks - began);
	has_xbd = true;
	users.state = XEN_CORE_ATTACHED;
	CHECK(set_driver(DISK, "xenfront") == 0, "not moved");
	HAS(DISK, "xenfront");
	xen_front_told(DISK, XenbusStateConnected);
	xen_front_told(DISK, XenbusStateClosed);
	back_is(DISK, XenbusStateConnected);
	xhs_wrote[0] = '\0';
	began = ticks;
	CHECK(set_driver(DISK, "xbd") == 0, "not moved");
	HAS(DISK, "xbd");
	CHECK(ticks - began < hz / 4, "%d ticks", ticks - began);
	kpi_settle();
	CORE_WROTE(DISK "=1 ");
}

/* Both in xenstore and in the core's copy the last state is Closed. */
static void
both_copies_are_closed_before_a_device_returns(void)
{

	begin_ours();
	xen_front_told(DISK, XenbusStateClosed);
	xsn_set(DISK, "state", "%d", XenbusStateConnected);
	xhs_wrote[0] = '\0';
	unload_xbd();
	CORE_WROTE(DISK "=5 " DISK "=6 " DISK "=1 ");
	has_xbd = true;
	users.state = XEN_CORE_ATTACHED;
	CHECK(set_driver(DISK, "xenfront") == 0, "not moved");
	xen_front_told(DISK, XenbusStateInitialised);
	xsn_set(DISK, "state", "%d", XenbusStateClosed);
	xhs_wrote[0] = '\0';
	unload_xbd();
	CORE_WROTE(DISK "=5 " DISK "=6 " DISK "=1 ");
}

/* A device stays ours while xenstore does not answer, and its return is tried again each second. */
static void
device_does_not_return_without_an_answer(void)
{
	int i;

	begin_ours();
	xsn_no_answer = ETIMEDOUT;
	unload_xbd();
	HAS(DISK, "xenfront");
	LOG("d" DISK);
	CHECK(xen_front_is_ours("vbd", DISK), "not ours any more");
	/* The module can't go: the kernel's driver would wait for a back end that is ours. */
	CHECK(returned == EBUSY, "%d", returned);
	kpi_sleep(2 * hz);
	LOG("");
	bus_topo_lock();
	xen_core_front_go_on();
	bus_topo_unlock();
	kpi_settle();
	LOG("d" DISK);
	for (i = 0; i < 100; i++) {
		kpi_sleep(hz - 3);
		LOG("");
		kpi_sleep(3);
		LOG("d" DISK);
	}
	xsn_no_answer = 0;
	kpi_sleep(hz + 3);
	HAS(DISK, "xbd");
	unload_xbd();
	CHECK(returned == 0, "%d", returned);
}

/* Our bus has detached a device. */
static void
one_leaves_xenbus(void)
{
	device_t xenbus, dev;

	bus_topo_lock();
	xenbus = device_add_child(bus, "xenbus", 0);
	dev = device_add_child(xenbus, "xbd", 7);
	EVENTHANDLER_INVOKE(device_detach, dev, EVHDEV_DETACH_BEGIN);
	EVENTHANDLER_INVOKE(device_detach, dev, EVHDEV_DETACH_COMPLETE);
	CHECK(device_delete_child(bus, xenbus) == 0, "not deleted");
	bus_topo_unlock();
	kpi_settle();
}

/* While its driver is there, or is going, a device is ours: five seconds at the most. */
static void
driver_that_goes_is_waited_for(void)
{
	int i;

	begin_ours();
	users.state = XEN_CORE_BUSY;
	has_xbd = has_xn = false;
	one_leaves_xenbus();
	kpi_sleep(hz);
	HAS(DISK, "xenfront");
	users.state = XEN_CORE_ATTACHED;
	kpi_sleep(hz);
	HAS(DISK, "xenfront");
	users.state = XEN_CORE_NONE;
	kpi_sleep(10 * hz);
	HAS(DISK, "xenfront");
	has_xbd = true;
	one_leaves_xenbus();
	kpi_sleep(5);
	HAS(DISK, "xenfront");
	HAS(CARD, "xn");
	/* Unloaded later. */
	kpi_sleep(2 * hz);
	has_xbd = false;
	kpi_sleep(hz / 10 + 1);
	HAS(DISK, "xbd");
	/* One that devctl(8) has detached, and whose driver stays. */
	has_xbd = true;
	users.state = XEN_CORE_ATTACHED;
	CHECK(set_driver(DISK, "xenfront") == 0, "not moved");
	users.state = XEN_CORE_NONE;
	one_leaves_xenbus();
	for (i = 0; i < 49; i++) {
		kpi_sleep(hz / 10);
		CHECK(kpi_callouts == 1, "%d: it is not looked at again", i);
	}
	kpi_sleep(hz / 5);
	CHECK(kpi_callouts == 0, "it is looked at for ever");
	HAS(DISK, "xenfront");
}

/* A module that is loaded later takes what arrives, and what devctl(8) gives it. */
static void
later_module_takes_what_arrives(void)
{

	has_xbd = true;
	add(DISK);
	add(CARD);
	boot(false);
	begin();
	HAS(DISK, "xbd");
	HAS(CARD, "xn");
	add(DISK_B);
	kpi_sleep(5);
	HAS(DISK_B, "xenfront");
	HAS(DISK, "xbd");
	LOG("c");
	CHECK(kpi_callouts == 0, "it is looked at once more");
	/* The kernel's driver was told, and has closed. */
	CORE_WROTE(DISK_B "=6 ");
	CHECK(set_driver(DISK, "xenfront") == 0, "not moved");
	HAS(DISK, "xenfront");
	LOG("c");
	CORE_WROTE(DISK "=6 ");
	/* One that has to be the kernel's is not taken, whatever it is. */
	CHECK(set_driver(DISK, "xbd") == 0, "not moved");
	kpi_sleep(5);
	HAS(DISK, "xbd");
	CHECK(set_driver(CARD, "xenfront") != 0, "there is no driver of ours");
	HAS(CARD, "none");
	xsn_set(CARD, "mac", "1");
	kpi_settle();
	HAS(CARD, "none");
}

/* devctl(8) is asked more than hw.pv.disable, or what is emulated. */
static void
devctl_is_obeyed(void)
{
	char value[] = "all";

	has_xbd = true;
	add(DISK);
	boot(true);
	begin();
	xen_disable_pv_disks = 1;
	kpi_tunable = "hw.pv.disable";
	kpi_tunable_value = value;
	CHECK(set_driver(DISK, "xbd") == 0, "not moved");
	HAS(DISK, "xbd");
	CHECK(set_driver(DISK, "xenfront") == 0, "not moved");
	HAS(DISK, "xenfront");
	CHECK(set_driver(DISK, "xbd") == 0, "not moved");
	xen_domain_type = XEN_HVM_DOMAIN;
	CHECK(set_driver(DISK, "xenfront") == 0, "not moved");
	HAS(DISK, "xenfront");
}

/* The back end of the kernel's driver has closed before that ends its grants, or has had its time. */
static void
kernel_driver_closes_first(void)
{
	static enum xenbus_state ends = XenbusStateClosed;
	int began;

	has_xbd = true;
	add(DISK);
	boot(false);
	begin();
	back_is(DISK, XenbusStateConnected);
	kpi_thread_start(disk_closes, &ends);
	began = ticks;
	CHECK(set_driver(DISK, "xenfront") == 0, "not moved");
	CHECK(ticks - began >= hz / 2 && ticks - began < hz, "%d ticks", ticks - began);
	CORE_WROTE(DISK "=6 ");
	CHECK(set_driver(DISK, "xbd") == 0, "not moved");
	xhs_wrote[0] = '\0';
	back_is(DISK, XenbusStateClosing);
	began = ticks;
	CHECK(set_driver(DISK, "xenfront") == 0, "not moved");
	CHECK(ticks - began >= 2 * hz && ticks - began < 3 * hz, "%d ticks", ticks - began);
}

/* What the toolstack removes is the core's to delete, and ours is gone with the next scan. */
static void
toolstack_removes_a_device(void)
{

	begin_ours();
	gone(DISK);
	LOG("c");
	CHECK(!xen_front_is_ours("vbd", DISK), "ours");
	HAS(CARD, "xenfront");
	add(DISK);
	HAS(DISK, "xenfront");
	LOG("c");
	CHECK(set_driver(CARD, "xn") == 0, "not moved");
	LOG("d" CARD);
	gone(CARD);
	LOG("");
}

static void
move_disk(void *arg)
{
	const char *driver = arg;

	moved = -1;
	moved = set_driver(DISK, driver);
}

static void
removes_disk(void)
{

	xsn_clear("device/vbd", "51712");
	kpi_sleep(2 * hz);
}

/* And it waits for who is detaching one, who stops waiting for it. */
static void
device_is_removed_while_it_is_moved(void)
{
	int mallocs;

	begin_ours();
	mallocs = kpi_mallocs;
	users.drop_waits = DISK;
	kpi_thread_start(move_disk, __DECONST(char *, "xbd"));
	kpi_sleep(hz);
	CHECK(moved == -1, "%d", moved);
	HAS(DISK, "xenfront");
	CHECK(!xen_front_is_ours("vbd", DISK), "ours");
	removes_disk();
	CHECK(moved == ENXIO, "%d", moved);
	HAS(DISK, "no device");
	users.drop_waits = NULL;
	kpi_sleep(1);
	LOG("d" DISK "c");
	add(DISK);
	HAS(DISK, "xenfront");
	LOG("c");
	CHECK(kpi_mallocs == mallocs, "%d pieces of memory are left", kpi_mallocs - mallocs);
}

/* A state, which the thread that talks to xenstore writes. */
static void
tell(void *node)
{

	xen_front_told(node, XenbusStateConnected);
}

static void
suspend(void *arg __unused)
{

	xen_core_front_suspend();
	suspended = true;
}

/* While one state is being written and another one waits for that, the domain is suspended. */
static void
begin_suspended(void)
{

	begin_ours();
	xhs_hold = true;
	kpi_thread_start(tell, __DECONST(char *, CARD));
	kpi_thread_start(tell, __DECONST(char *, DISK));
	kpi_settle();
	CHECK(xhs_is_held() && kpi_threads_left() == 1 + 2, "%d threads", kpi_threads_left());
	xen_core_store_hurry(true);
	kpi_thread_start(suspend, NULL);
	kpi_sleep(2 * hz);
	CHECK(!suspended && kpi_threads_left() == 1 + 1, "%d threads", kpi_threads_left());
	xhs_hold = false;
	kpi_sleep(hz);
	CHECK(suspended, "it waits for more");
	CORE_WROTE(CARD "=4 ");
}

/* The core sets each to Initialising, which what is from before does not follow. */
static void
state_of_before_a_suspension_is_not_written(void)
{

	begin_suspended();
	CHECK(DEVICE_RESUME(bus) == 0, "not resumed");
	CORE_WROTE(CARD "=1 ");
	kpi_sleep(hz);
	atomic_add_int(&xen_life, 1);
	xen_core_store_hurry(false);
	xen_core_front_resume();
	kpi_settle();
	CORE_WROTE("");
	CHECK(kpi_threads_left() == 1, "%d threads", kpi_threads_left());
	xen_front_told(DISK, XenbusStateConnected);
	xen_front_told(CARD, XenbusStateConnected);
	CORE_WROTE(DISK "=4 " CARD "=4 ");
}

static void
cancelled_suspension_loses_no_state(void)
{

	begin_suspended();
	xen_core_store_hurry(false);
	xen_core_front_resume();
	kpi_settle();
	CORE_WROTE(DISK "=4 ");
}

/* A device that is detached meanwhile has nothing written. */
static void
held_state_is_not_written_for_another(void)
{

	begin_suspended();
	xsn_clear("device/vbd", "51712");
	kpi_sleep(hz);
	HAS(DISK, "no device");
	add(DISK);
	xen_core_store_hurry(false);
	xen_core_front_resume();
	kpi_settle();
	CORE_WROTE("");
}

/* Nobody waits longer for the core than for xenstore; when it has answered, as long as before. */
static void
core_that_waits_is_not_waited_for(void)
{
	int began, i, mallocs = 0;

	begin_ours();
	for (i = 0; i < 2; i++) {
		xhs_hold = true;
		began = ticks;
		xen_front_told(CARD, i == 0 ? XenbusStateConnected : XenbusStateClosing);
		CHECK(ticks - began == 30 * hz, "%d ticks", ticks - began);
		began = ticks;
		xen_front_told(DISK, i == 0 ? XenbusStateConnected : XenbusStateClosing);
		CHECK(ticks - began == hz, "%d ticks", ticks - began);
		core_store_stays_open();
		xhs_hold = false;
		kpi_sleep(2);
		CORE_WROTE(i == 0 ? CARD "=4 " DISK "=4 " : CARD "=5 " DISK "=5 ");
		CHECK(i == 0 || kpi_mallocs == mallocs, "%d pieces are left", kpi_mallocs - mallocs);
		mallocs = kpi_mallocs;
	}
}

/* What has begun is waited for before a device can be freed; what has not is not written. */
static void
state_that_is_written_is_waited_for(void)
{
	int i;

	begin_ours();
	add(DISK_B);
	LOG("c");
	xhs_hold = true;
	kpi_thread_start(tell, __DECONST(char *, DISK));
	kpi_settle();
	kpi_thread_start(tell, __DECONST(char *, CARD));
	kpi_settle();
	for (i = 0; i < 2; i++) {
		moved = 0;
		kpi_thread_start(move_disk, __DECONST(char *, "xbd"));
		kpi_sleep(60 * hz);
		CHECK(moved == -1, "%d", moved);
		HAS(DISK, "xenfront");
		xhs_hold = false;
		kpi_sleep(2);
		HAS(DISK, "xenfront");
		CHECK(moved == ETIMEDOUT, "%d", moved);
		LOG("d" DISK "c");
		if (i == 0)
			CORE_WROTE(DISK "=4 " CARD "=4 ");
		CHECK(xen_front_is_ours("vbd", DISK), "not ours any more");
		xhs_hold = true;
		xen_front_told(DISK, XenbusStateInitialised);
	}
	/* Likewise in the core's own thread. */
	xsn_clear("device/vbd", "51712");
	kpi_sleep(60 * hz);
	HAS(DISK, "xenfront");
	CHECK(!xen_front_is_ours("vbd", DISK), "ours");
	xhs_hold = false;
	kpi_sleep(2);
	HAS(DISK, "no device");
	HAS(DISK_B, "xenfront");
}

/* devctl(8) gets the error, and the device stays. */
static void
devctl_has_the_error(void)
{

	begin_ours();
	xsn_no_answer = ETIMEDOUT;
	CHECK(set_driver(DISK, "xbd") == ETIMEDOUT, "moved");
	HAS(DISK, "xenfront");
	LOG("d" DISK "c");
	CHECK(xen_front_is_ours("vbd", DISK), "not ours any more");
	xsn_no_answer = 0;
	CHECK(set_driver(DISK, "xbd") == 0, "not moved");
	HAS(DISK, "xbd");
	LOG("d" DISK);
	CHECK(!xen_front_is_ours("vbd", DISK), "ours");
}

/* What the toolstack did before is seen before a device loses its driver, or two seconds are over. */
static void
core_looks_first(void)
{
	int began;

	begin_ours();
	xhs_silent = true;
	began = ticks;
	CHECK(set_driver(DISK, "xbd") == 0, "not moved");
	CHECK(ticks - began == 201, "%d ticks", ticks - began);
	began = ticks;
	CHECK(set_driver(DISK, "xenfront") == 0, "not moved");
	CHECK(ticks - began == 201, "%d ticks", ticks - began);
	/* It can't be asked. */
	xhs_no_watch = ENOSPC;
	began = ticks;
	CHECK(set_driver(DISK, "xbd") == 0, "not moved");
	CHECK(ticks == began, "%d ticks", ticks - began);
	xhs_no_watch = 0;
	/* The toolstack has removed it, which the core is to see later. */
	CHECK(set_driver(DISK, "xenfront") == 0, "not moved");
	xsn_clear(DISK, "state");
	began = ticks;
	CHECK(set_driver(DISK, "xbd") == 0, "not moved");
	CHECK(ticks == began, "%d ticks", ticks - began);
	xhs_silent = false;
	kpi_sleep(2);
	CHECK(xhs_watches == 1 + 1, "%d watches", xhs_watches);
}

static void
block(void *arg, int pending __unused)
{

	while (*(volatile bool *)arg)
		(void)pause("block", 1);
}

/* However long its thread has other things to do. */
static void
core_thread_is_waited_for(void)
{
	static bool busy = true;
	static struct task task;

	begin_ours();
	TASK_INIT(&task, 0, block, &busy);
	taskqueue_enqueue(taskqueue_thread, &task);
	kpi_thread_start(move_disk, __DECONST(char *, "xbd"));
	kpi_sleep(60 * hz);
	CHECK(moved == -1, "%d", moved);
	HAS(DISK, "xenfront");
	busy = false;
	kpi_sleep(5);
	CHECK(moved == 0, "%d", moved);
	HAS(DISK, "xbd");
	CHECK(xhs_watches == 1 + 2, "%d watches", xhs_watches);
}

static void
detach_disk(void *arg __unused)
{

	bus_topo_lock();
	moved = device_detach(device_of(DISK));
	bus_topo_unlock();
}

/* The kernel's driver is gone when the core comes to delete the device. */
static void
device_is_removed_while_it_leaves_the_kernel(void)
{

	has_xbd = true;
	add(DISK);
	boot(false);
	begin();
	back_is(DISK, XenbusStateConnected);
	moved = -1;
	kpi_thread_start(detach_disk, NULL);
	kpi_sleep(hz / 2);
	CHECK(moved == -1, "%d", moved);
	removes_disk();
	CHECK(moved == 0, "%d", moved);
	HAS(DISK, "no device");
	LOG("cc");
	/* Another one gets it in the meantime, which takes its time. */
	add(DISK);
	kpi_sleep(5);
	HAS(DISK, "xenfront");
	CHECK(set_driver(DISK, "xbd") == 0, "not moved");
	users.log[0] = '\0';
	back_is(DISK, XenbusStateConnected);
	users.changed_waits = true;
	kpi_thread_start(move_disk, __DECONST(char *, "xenfront"));
	kpi_sleep(hz / 2);
	removes_disk();
	CHECK(moved == -1, "%d", moved);
	CHECK(device_get_state(device_of(DISK)) == DS_ATTACHING, "state %u",
	    device_get_state(device_of(DISK)));
	users.changed_waits = false;
	kpi_sleep(5);
	HAS(DISK, "no device");
	LOG("cc");
}

/* Two threads that move a device do it one after the other, and who moves another one does not wait. */
static void
devices_are_moved_one_after_the_other(void)
{

	begin_ours();
	users.drop_waits = DISK;
	kpi_thread_start(move_disk, __DECONST(char *, "xbd"));
	kpi_settle();
	kpi_thread_start(move_disk, __DECONST(char *, "xbd"));
	kpi_sleep(hz);
	LOG("d" DISK);
	/* Nor does what leaves by itself. */
	users.state = XEN_CORE_NONE;
	has_xn = false;
	one_leaves_xenbus();
	kpi_sleep(5);
	HAS(CARD, "xn");
	LOG("d" CARD);
	gone(CARD);
	LOG("");
	CHECK(kpi_threads_left() == 1 + 2, "%d threads", kpi_threads_left());
	users.drop_waits = NULL;
	kpi_sleep(3 * hz);
	CHECK(kpi_threads_left() == 1, "%d threads", kpi_threads_left());
	HAS(DISK, "xbd");
	LOG("");
	CHECK(moved == 0, "%d", moved);
}

/* The core deletes one while its return to the kernel waits. */
static void
device_is_removed_while_it_returns(void)
{
	int i;

	begin_ours();
	for (i = 0; i < 2; i++) {
		users.drop_waits = DISK;
		users.state = XEN_CORE_NONE;
		has_xbd = has_xn = false;
		one_leaves_xenbus();
		CHECK(!xen_front_is_ours("vbd", DISK) || !xen_front_is_ours("vif", CARD), "ours");
		removes_disk();
		HAS(DISK, "no device");
		has_xbd = true;
		if (i == 0)
			add(DISK);
		users.drop_waits = NULL;
		kpi_sleep(hz);
		HAS(CARD, "xn");
		HAS(DISK, i == 0 ? "xenfront" : "no device");
		users.state = XEN_CORE_ATTACHED;
		has_xn = true;
		CHECK(set_driver(CARD, "xenfront") == 0, "not moved");
	}
}

static char report[512];

/* Whose each is, and why. */
static void
reports(const char *text)
{
	size_t len = sizeof(report);

	CHECK(kpi_sysctl("fronts", report, &len, NULL, 0) == 0, "no report");
	CHECK(strcmp(report, text) == 0 && len == strlen(text) + 1, "%s", report);
}

static void
report_of_each_device(void)
{
	static struct sysctl_ctx_list ctx;
	static struct sysctl_oid tree;
	char value[] = "xbd1";

	has_xbd = true;
	kpi_tunable = "hw.pv.disable";
	kpi_tunable_value = value;
	add(DISK);
	add(CARD);
	boot(true);
	begin();
	(void)sysctl_ctx_init(&ctx);
	xen_core_front_sysctl(&ctx, &tree);
	reports("\n" DISK ": xenfront0\n" CARD ": xn0: its driver is not loaded");
	add(DISK_B);
	has_xn = true;
	reports("\n" DISK ": xenfront0\n" CARD ": xn0: stays until devctl(8) moves it\n"
	    DISK_B ": xbd0: hw.pv.disable has it");
	bus_topo_lock();
	CHECK(device_detach(device_of(CARD)) == 0, "attached");
	bus_topo_unlock();
	has_xn = false;
	reports("\n" DISK ": xenfront0\n" CARD ": no driver: its driver is not loaded\n"
	    DISK_B ": xbd0: hw.pv.disable has it");
	gone(DISK_B);
	xen_domain_type = XEN_HVM_DOMAIN;
	CHECK(set_driver(DISK, "xbd") == 0, "not moved");
	xsn_set(DISK, "device-type", "cdrom");
	kpi_settle();
	reports("\n" DISK ": xbd0: the device is emulated\n" CARD ": xn0: its driver is not loaded");
}

/* When the module goes, the kernel has what is left. */
static void
module_goes(void)
{
	int began, error;

	begin_ours();
	bus_topo_lock();
	users.state = XEN_CORE_NONE;
	has_xbd = has_xn = false;
	xsn_no_answer = ETIMEDOUT;
	CHECK(xen_core_front_return() == EBUSY, "all are the kernel's");
	xen_core_front_go_on();
	bus_topo_unlock();
	kpi_settle();
	HAS(DISK, "xenfront");
	CHECK(kpi_callouts == 1, "it is not looked at again");
	users.log[0] = '\0';
	bus_topo_lock();
	xen_core_front_fini();
	CHECK(kpi_callouts == 0, "it is looked at again");
	/* Twice is once. */
	xen_core_front_fini();
	CHECK(xen_core_front_return() == 0, "there are some left");
	xen_core_front_go_on();
	bus_topo_unlock();
	error = kpi_module_event("xenbusb_front/xenfront", MOD_QUIESCE);
	CHECK(error == 0, "error %d", error);
	error = kpi_module_event("xenbusb_front/xenfront", MOD_UNLOAD);
	CHECK(error == 0, "error %d", error);
	HAS(DISK, "xbd");
	HAS(CARD, "xn");
	LOG("");
	add(DISK_B);
	HAS(DISK_B, "xbd");
	CHECK(!xen_front_is_ours("vbd", DISK), "ours");
	/* Nobody waits for a device's back end any more. */
	back_is(DISK, XenbusStateConnected);
	began = ticks;
	CHECK(set_driver(DISK, "xbd") == 0 && ticks == began, "%d ticks", ticks - began);
	CHECK(xen_core_store_fini() == 0, "a request is left");
}

/* A module without threads has nothing to end. */
static void
no_threads(void)
{

	has_xbd = true;
	add(DISK);
	boot(true);
	kpi_no_threads = true;
	bus_topo_lock();
	CHECK(xen_core_front_init(&fronts) == ENOMEM, "there are threads");
	kpi_no_threads = false;
	xen_core_front_fini();
	bus_topo_unlock();
	one_leaves_xenbus();
	gone(DISK);
	LOG("");
}

static void
xenstore_stops(void *arg __unused)
{

	(void)pause("stops", hz / 2);
	xsn_no_answer = ETIMEDOUT;
}

/* Nor if the answer is missing while its back end is waited for. */
static void
back_end_without_an_answer(void)
{

	begin_ours();
	xen_front_told(DISK, XenbusStateConnected);
	back_is(DISK, XenbusStateConnected);
	kpi_thread_start(xenstore_stops, NULL);
	CHECK(set_driver(DISK, "xbd") == ETIMEDOUT, "moved");
	HAS(DISK, "xenfront");
}

static void
back_end_goes(void *arg __unused)
{

	(void)pause("goes", hz / 2);
	xsn_clear("/backend", "51712");
}

/* A back end that is not there any more is not waited for. */
static void
back_end_that_disappears(void)
{
	int began;

	begin_ours();
	xen_front_told(DISK, XenbusStateConnected);
	back_is(DISK, XenbusStateConnected);
	kpi_thread_start(back_end_goes, NULL);
	began = ticks;
	CHECK(set_driver(DISK, "xbd") == 0, "not moved");
	CHECK(ticks - began >= hz / 2 && ticks - began < hz, "%d ticks", ticks - began);
}

/* What happens to other devices is nothing to us. */
static void
other_devices_are_ignored(void)
{
	device_t dev, nameless, top;

	begin_ours();
	has_xbd = false;
	users.state = XEN_CORE_NONE;
	top = device_get_parent(bus);
	bus_topo_lock();
	nameless = device_add_child(bus, NULL, DEVICE_UNIT_ANY);
	dev = device_add_child(nameless, "xbd", 7);
	EVENTHANDLER_INVOKE(device_detach, dev, EVHDEV_DETACH_COMPLETE);
	EVENTHANDLER_INVOKE(device_attach, dev);
	CHECK(device_delete_child(bus, nameless) == 0, "not deleted");
	EVENTHANDLER_INVOKE(device_detach, bus, EVHDEV_DETACH_COMPLETE);
	EVENTHANDLER_INVOKE(device_attach, bus);
	EVENTHANDLER_INVOKE(device_detach, root_bus, EVHDEV_DETACH_COMPLETE);
	EVENTHANDLER_INVOKE(device_attach, root_bus);
	dev = device_add_child(device_add_child(top, "xenbus", 0), "xbd", 7);
	EVENTHANDLER_INVOKE(device_detach, dev, EVHDEV_DETACH_BEGIN);
	EVENTHANDLER_INVOKE(device_detach, dev, EVHDEV_DETACH_FAILED);
	EVENTHANDLER_INVOKE(device_attach, dev);
	bus_topo_unlock();
	kpi_sleep(hz);
	HAS(DISK, "xenfront");
	LOG("");
}

/* The second of two that are looked at goes while the first is waited for. */
static void
other_device_is_removed_meanwhile(void)
{

	begin_ours();
	add(DISK_B);
	users.drop_waits = DISK;
	users.state = XEN_CORE_NONE;
	has_xbd = has_xn = false;
	one_leaves_xenbus();
	gone(CARD);
	gone(DISK_B);
	users.drop_waits = NULL;
	kpi_sleep(hz);
	HAS(DISK, "xbd");
	HAS(CARD, "no device");
}

/* The core's thread is busy with another device's state: what can't be closed is not waited for. */
static void
device_does_not_return_while_the_core_waits(void)
{
	int began;

	begin_ours();
	xhs_hold = true;
	xen_front_told(CARD, XenbusStateConnected);
	xhs_silent = true;
	began = ticks;
	unload_xbd();
	CHECK(ticks - began == hz, "%d ticks", ticks - began);
	CHECK(returned == EBUSY, "%d", returned);
	HAS(DISK, "xenfront");
	xhs_hold = xhs_silent = false;
	kpi_sleep(2);
	CORE_WROTE(CARD "=4 ");
}

/* Times are at least a tick each. */
static void
slow_clock(void)
{
	int began;

	begin_ours();
	xen_front_told(DISK, XenbusStateConnected);
	back_is(DISK, XenbusStateConnected);
	hz = 10;
	began = ticks;
	CHECK(set_driver(DISK, "xbd") == 0, "not moved");
	CHECK(ticks - began >= 20 && ticks - began < 30, "%d ticks", ticks - began);
}

#define	TEST(name, descr)	{ #name, descr, run, (const void *)name }

static const struct hosted_test tests[] = {
	TEST(early_module_has_front_ends_from_the_beginning, "Of drivers that are loaded"),
	TEST(some_are_left_to_the_kernel, "By their names, too"),
	TEST(emulated_devices_are_left_alone, "And CD-ROMs, in such a domain"),
	TEST(numbers_of_disks, "Among xvda, xvdb ..."),
	TEST(core_is_told_of_states, "So that its copy is right"),
	TEST(root_is_not_waited_for, "But until all have had their time"),
	TEST(nothing_was_told, "Of a front end that has not begun"),
	TEST(device_returns_with_its_driver, "Without what we published"),
	TEST(back_end_disconnects_before_a_device_returns, "Or has had its time"),
	TEST(back_end_that_disconnects_is_waited_for, "And no longer"),
	TEST(both_copies_are_closed_before_a_device_returns, "In xenstore, and the core's"),
	TEST(device_does_not_return_without_an_answer, "But later"),
	TEST(driver_that_goes_is_waited_for, "And one that stays is not, for ever"),
	TEST(later_module_takes_what_arrives, "And no more"),
	TEST(devctl_is_obeyed, "Whatever tunables say"),
	TEST(kernel_driver_closes_first, "Before it is detached"),
	TEST(toolstack_removes_a_device, "And adds another"),
	TEST(device_is_removed_while_it_is_moved, "By two threads"),
	TEST(state_of_before_a_suspension_is_not_written, "In the new domain"),
	TEST(cancelled_suspension_loses_no_state, "That was not written yet"),
	TEST(held_state_is_not_written_for_another, "Of the same number"),
	TEST(core_that_waits_is_not_waited_for, "For longer than it may take"),
	TEST(state_that_is_written_is_waited_for, "Before a device is freed"),
	TEST(devctl_has_the_error, "Of xenstore"),
	TEST(core_looks_first, "Or has had its time"),
	TEST(core_thread_is_waited_for, "However long it takes"),
	TEST(device_is_removed_while_it_leaves_the_kernel, "Or arrives with us"),
	TEST(devices_are_moved_one_after_the_other, "If it is the same one"),
	TEST(device_is_removed_while_it_returns, "And another one added"),
	TEST(report_of_each_device, "And why it is not ours"),
	TEST(module_goes, "And leaves nothing behind"),
	TEST(no_threads, "So nothing is begun"),
	TEST(back_end_without_an_answer, "Is not known to have closed"),
	TEST(back_end_that_disappears, "Has closed"),
	TEST(other_devices_are_ignored, "Wherever they are"),
	TEST(other_device_is_removed_meanwhile, "And is not looked at"),
	TEST(device_does_not_return_while_the_core_waits, "For another's answer"),
	TEST(slow_clock, "Of ten ticks a second"),
	{ NULL, NULL, NULL, NULL }
};

const struct hosted_test *
hosted_tests(void)
{

	return (tests);
}
