/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Whose a virtio device is, the suite's or the kernel's: virtio_driver.c.
 */

#include "virtio_owner.h"

#include <sys/errno.h>
#include <sys/kernel.h>
#include <sys/linker_set.h>
#include <sys/module.h>
#include <sys/sysctl.h>

#include <machine/bus.h>

#define	RANDOM	0
#define	DISK	1
#define	CONSOLE	2
#define	OTHER	3

/* So many lines were said, of which this is the last. */
#define	SAID(n, text)							\
	CHECK(owner_lines == (n) && strcmp(owner_line, (text)) == 0, "%d lines: %s", owner_lines, \
	    owner_line)

static char report[1024];
static int report_error;

static int
report_out(struct sysctl_req *req, const void *value, size_t len)
{

	CHECK(req->oldidx + len <= sizeof(report), "%zu bytes", len);
	if (report_error != 0)
		return (report_error);
	memcpy(report + req->oldidx, value, len);
	req->oldidx += len;
	return (0);
}

SET_DECLARE(sysctl_set, struct sysctl_oid);

/* hw.pv.devices, of one line for each device. */
static void
reports(const char *text)
{
	struct sysctl_req req = { .oldfunc = report_out };
	struct sysctl_oid **oid, *found = NULL;

	SET_FOREACH(oid, sysctl_set)
		if (strcmp((*oid)->oid_name, "devices") == 0)
			found = *oid;
	CHECK(found != NULL, "no report");
	report_error = EFAULT;
	CHECK(found->oid_handler(found, NULL, 0, &req) == EFAULT, "its reader is not told");
	report_error = 0;
	CHECK(found->oid_handler(found, NULL, 0, &req) == 0, "no report");
	CHECK(strcmp(report, text) == 0 && req.oldidx == strlen(text) + 1, "%s", report);
}

static void
disables(const char *value)
{

	kpi_tunable = "hw.pv.disable";
	kpi_tunable_value = value;
}

/* A device has its driver of the suite as long as that, the transport and the bus are loaded. */
static void
driver_takes_its_devices(void)
{

	OWNS(RANDOM, "stock");
	OWNS(DISK, "stock");
	owner_load("pv_virtio");
	reports("");
	owner_load("vbus/vtpci");
	OWNS(RANDOM, "stock");
	reports("\npci0:0:3:0 entropy: stock0: virtio_random(4) is not loaded"
	    "\npci0:0:4:0 block: stock1: virtio_blk(4) is not loaded"
	    "\npci0:0:5:0 console: stock2: no driver for this type");
	owner_load("virtio/virtio_random");
	OWNS(RANDOM, "vtrnd on vtpci");
	OWNS(DISK, "stock");
	CHECK(strcmp(device_get_desc(cards[RANDOM].ca_dev), "VirtIO PCI (entropy)") == 0, "%s",
	    device_get_desc(cards[RANDOM].ca_dev));
	owner_load("virtio/virtio_blk");
	OWNS(RANDOM, "vtrnd on vtpci");
	OWNS(DISK, "vtblk on vtpci");
	OWNS(CONSOLE, "stock");
	OWNS(OTHER, "stock");
	reports("\npci0:0:3:0 entropy: vtrnd0 on vtpci0\npci0:0:4:0 block: vtblk0 on vtpci1"
	    "\npci0:0:5:0 console: stock2: no driver for this type");
	CHECK(owner_driver.od_attaches == 1, "%d attachments", owner_driver.od_attaches);
	/* One goes, and the other stays. */
	owner_unload("virtio/virtio_random");
	OWNS(RANDOM, "stock");
	OWNS(DISK, "vtblk on vtpci");
	owner_unload("vbus/vtpci");
	OWNS(RANDOM, "stock");
	OWNS(DISK, "stock");
	reports("");
	owner_load("vbus/vtpci");
	owner_load("virtio/virtio_random");
	OWNS(RANDOM, "vtrnd on vtpci");
	OWNS(DISK, "vtblk on vtpci");
	CHECK(owner_root_holds == 0, "the root file system is waited for");
}

/* A device that the kernel uses stays, and one that can't be detached does. */
static void
device_in_use_stays(void)
{

	cards[DISK].ca_stock_has_child = true;
	CHECK(owner_set_driver(&cards[DISK], "stock") == 0, "not attached");
	OWNS(DISK, "disk on stock");
	cards[RANDOM].ca_stock_busy = EBUSY;
	owner_load_all();
	OWNS(DISK, "disk on stock");
	OWNS(RANDOM, "stock");
	reports("\npci0:0:3:0 entropy: stock0: stays until devctl(8) moves it"
	    "\npci0:0:4:0 block: disk0 on stock1: stays until devctl(8) moves it"
	    "\npci0:0:5:0 console: stock2: no driver for this type");
	cards[RANDOM].ca_stock_busy = 0;
	CHECK(owner_set_driver(&cards[DISK], "vtpci") == 0, "not moved");
	OWNS(DISK, "vtblk on vtpci");
}

/* What has no driver is offered to the kernel's when a module comes, unless it is no virtio device. */
static void
others_are_offered(void)
{

	cards[CONSOLE].ca_type = VIRTIO_ID_NETWORK;
	owner_load("pv_virtio");
	owner_load("vbus/vtpci");
	bus_topo_lock();
	CHECK(device_detach(cards[CONSOLE].ca_dev) == 0 && device_detach(cards[OTHER].ca_dev) == 0,
	    "attached");
	bus_topo_unlock();
	owner_load("virtio/virtio_random");
	OWNS(CONSOLE, "stock");
	OWNS(OTHER, "none");
	owner_load("virtio/virtio_blk");
	OWNS(OTHER, "none");
	bus_topo_lock();
	CHECK(device_probe_and_attach(cards[OTHER].ca_dev) == 0, "not attached");
	bus_topo_unlock();
}

/* A driver that does not go stays on all of its buses. */
static void
driver_that_does_not_go(void)
{

	owner_load_all();
	owner_driver.od_detach_error = EBUSY;
	CHECK(kpi_module_event("virtio/virtio_blk", MOD_UNLOAD) == EBUSY, "it went");
	OWNS(DISK, "vtblk on vtpci");
	CHECK(kpi_module_event("virtio/virtio_blk", MOD_QUIESCE) == 0, "it does not wait");
	owner_driver.od_detach_error = 0;
	CHECK(owner_set_driver(&cards[DISK], "stock") == 0, "not moved");
	CHECK(owner_set_driver(&cards[DISK], "vtpci") == 0, "not moved");
	OWNS(DISK, "vtblk on vtpci");
	CHECK(owner_driver.od_attaches == 2, "%d attachments", owner_driver.od_attaches);
}

/* hw.pv.disable: all, a driver, a device. */
static void
some_are_left_to_the_kernel(void)
{

	disables("vtrnd pci0:0:4:0");
	owner_load_all();
	OWNS(RANDOM, "stock");
	OWNS(DISK, "stock");
	reports("\npci0:0:3:0 entropy: stock0: hw.pv.disable has vtrnd"
	    "\npci0:0:4:0 block: stock1: hw.pv.disable has pci0:0:4:0"
	    "\npci0:0:5:0 console: stock2: no driver for this type");
	/* Who is asked for it explicitly takes it. */
	CHECK(owner_set_driver(&cards[RANDOM], "vtpci") == 0, "not moved");
	OWNS(RANDOM, "vtrnd on vtpci");
	owner_unload("vbus/vtpci");
	disables("all");
	owner_load("vbus/vtpci");
	OWNS(RANDOM, "stock");
	reports("\npci0:0:3:0 entropy: stock0: hw.pv.disable has all"
	    "\npci0:0:4:0 block: stock1: hw.pv.disable has all"
	    "\npci0:0:5:0 console: stock2: no driver for this type");
	CHECK(owner_set_driver(&cards[RANDOM], "vtpci") == ENXIO, "taken");
	OWNS(RANDOM, "none");
}

/* A word that names nothing is said when the bus is loaded, each. */
static void
unknown_names_are_said(void)
{
	static const struct {
		const char	*value;
		int		lines;
		const char	*last;
	} table[] = {
		{ "all", 0, "" }, { "vtnet vtblk,vtballoon, vtrnd", 0, "" }, { "", 0, "" },
		{ "pci0:0:3:0", 0, "" }, { "pci10:255:31:7", 0, "" }, { "mmio:0xfeb00e00", 0, "" },
		{ "xn", 0, "" }, { "xn0 xbd12 xbd", 0, "" },
		{ "vtnet0", 1, "vtnet0" }, { "pci0:0:3", 1, "pci0:0:3" },
		{ "pci0:0:3:0:0", 1, "pci0:0:3:0:0" }, { "pci0::3:0", 1, "pci0::3:0" },
		{ "pci:0:3:0", 1, "pci:0:3:0" }, { "pci0:0:3:", 1, "pci0:0:3:" },
		{ "pci0:0:a:0", 1, "pci0:0:a:0" }, { "pci", 1, "pci" }, { "mmio:0x", 1, "mmio:0x" },
		{ "mmio:0xfeg", 1, "mmio:0xfeg" }, { "mmio:feb0", 1, "mmio:feb0" },
		{ "mmio:0y12", 1, "mmio:0y12" },
		{ "xn0a", 1, "xn0a" },
		{ "xb", 1, "xb" }, { "one vtblk two", 2, "two" },
	};
	char line[160];
	u_int i;

	for (i = 0; i < nitems(table); i++) {
		disables(table[i].value);
		owner_lines = 0;
		owner_load("pv_virtio");
		snprintf(line, sizeof(line), "hw.pv.disable: %s is ignored: ", table[i].last);
		CHECK(owner_lines == table[i].lines && (owner_lines == 0 ||
		    strncmp(owner_line, line, strlen(line)) == 0), "%s: %d lines, %s", table[i].value,
		    owner_lines, owner_line);
		owner_unload("pv_virtio");
	}
	kpi_tunable = NULL;
	owner_load_all();
}

/* A driver refuses a device once: the kernel has it, until the driver is loaded anew. */
static void
refused_device_returns(void)
{

	owner_driver.od_attach_error = ENXIO;
	owner_driver.od_why = "the disk is green";
	owner_lines = 0;
	owner_load_all();
	kpi_sleep(2);
	OWNS(DISK, "stock");
	CHECK(owner_driver.od_attaches == 1, "%d attachments", owner_driver.od_attaches);
	reports("\npci0:0:3:0 entropy: vtrnd0 on vtpci0"
	    "\npci0:0:4:0 block: stock0: refused: the disk is green"
	    "\npci0:0:5:0 console: stock2: no driver for this type");
	CHECK(owner_root_holds == 0, "the root file system is waited for");
	/* Nor is it asked again, though time passes and another module comes. */
	owner_unload("virtio/virtio_random");
	owner_load("virtio/virtio_random");
	kpi_sleep(30 * hz);
	CHECK(owner_driver.od_attaches == 1 && kpi_mallocs_of_type == 1, "%d attachments",
	    owner_driver.od_attaches);
	owner_driver.od_why = NULL;
	owner_unload("virtio/virtio_blk");
	owner_load("virtio/virtio_blk");
	kpi_sleep(2);
	CHECK(owner_driver.od_attaches == 2, "%d attachments", owner_driver.od_attaches);
	reports("\npci0:0:3:0 entropy: vtrnd0 on vtpci0"
	    "\npci0:0:4:0 block: stock0: refused by vtblk, error 6"
	    "\npci0:0:5:0 console: stock2: no driver for this type");
	owner_driver.od_attach_error = 0;
	owner_unload("virtio/virtio_blk");
	owner_load("virtio/virtio_blk");
	OWNS(DISK, "vtblk on vtpci");
	CHECK(kpi_mallocs_of_type == 0, "the refusal is kept");
}

/* devctl(8) is told why, and the device returns. */
static void
devctl_is_told_why(void)
{

	owner_driver.od_attach_error = ENXIO;
	owner_driver.od_why = "the disk is green";
	owner_load_all();
	kpi_sleep(2);
	owner_lines = 0;
	CHECK(owner_set_driver(&cards[DISK], "vtpci") == ENXIO, "taken");
	SAID(1, "pci0:0:4:0: not for vtpci: refused: the disk is green\n");
	kpi_sleep(2);
	OWNS(DISK, "stock");
	CHECK(owner_driver.od_attaches == 1, "%d attachments", owner_driver.od_attaches);
	CHECK(owner_set_driver(&cards[CONSOLE], "vtpci") == ENXIO, "taken");
	SAID(2, "pci0:0:5:0: not for vtpci: no driver for this type\n");
	kpi_sleep(2);
	OWNS(CONSOLE, "stock");
}

/* One that lacked something is asked again after one second, two, four ..., and says so once. */
static void
attach_is_tried_again(void)
{
	int began, i;

	owner_driver.od_attach_error = ENOMEM;
	owner_lines = 0;
	began = ticks;
	owner_load_all();
	SAID(1, "vtpci1: its driver did not attach (error 12): it is tried again after 1 s to "
	    "17 minutes\n");
	for (i = 1; i <= 4; i++) {
		CHECK(owner_driver.od_attaches == i, "attempt %d of %d", owner_driver.od_attaches, i);
		kpi_sleep(2);
		OWNS(DISK, "stock");
		while (owner_driver.od_attaches == i && ticks - began < 100 * hz)
			kpi_sleep(1);
		CHECK(ticks - began >= hz << (i - 1) && ticks - began < (hz << (i - 1)) + hz / 10,
		    "attempt %d after %d ticks", i + 1, ticks - began);
		began = ticks;
	}
	CHECK(owner_lines == 1, "%d lines", owner_lines);
	owner_driver.od_attach_error = 0;
	kpi_sleep(20 * hz);
	OWNS(DISK, "vtblk on vtpci");
	SAID(2, "vtpci1: its driver attached at attempt 6\n");
	CHECK(kpi_mallocs_of_type == 0 && owner_driver.od_attaches == 6, "%d attachments",
	    owner_driver.od_attaches);
	/* The next time it begins with a second again. */
	owner_unload("virtio/virtio_blk");
	owner_driver.od_attach_error = ENOMEM;
	owner_load("virtio/virtio_blk");
	CHECK(owner_driver.od_attaches == 7, "%d attachments", owner_driver.od_attaches);
	kpi_sleep(hz + hz / 5);
	CHECK(owner_driver.od_attaches == 8, "%d attachments", owner_driver.od_attaches);
}

/* What passed is tried again only until the kernel uses the device. */
static void
kernel_keeps_what_it_uses(void)
{

	owner_driver.od_attach_error = ENOMEM;
	cards[DISK].ca_stock_has_child = true;
	CHECK(owner_set_driver(&cards[DISK], "stock") == 0, "not attached");
	owner_load_all();
	CHECK(owner_driver.od_attaches == 0, "taken from its disk");
	CHECK(owner_set_driver(&cards[DISK], "vtpci") == ENOMEM, "attached");
	kpi_sleep(hz / 2);
	OWNS(DISK, "disk on stock");
	kpi_sleep(30 * hz);
	CHECK(owner_driver.od_attaches == 1, "%d attachments", owner_driver.od_attaches);
}

/* A device that does not answer, and one that was removed. */
static void
device_that_is_not_reset(void)
{

	cards[DISK].ca_reset_error = ETIMEDOUT;
	owner_load("pv_virtio");
	owner_load("vbus/vtpci");
	owner_lines = 0;
	owner_load("virtio/virtio_blk");
	OWNS(DISK, "stock");
	SAID(1, "vtpci0: device does not answer a reset (error 60): it is tried again after 1 s to "
	    "17 minutes\n");
	CHECK(owner_driver.od_attaches == 0, "attached");
	owner_unload("virtio/virtio_blk");
	cards[DISK].ca_reset_error = ENXIO;
	owner_load("virtio/virtio_blk");
	CHECK(strcmp(owner_line, "vtpci0: device was removed\n") == 0, "%s", owner_line);
	reports("\npci0:0:3:0 entropy: stock0: virtio_random(4) is not loaded"
	    "\npci0:0:4:0 block: stock1: refused by vtblk, error 6"
	    "\npci0:0:5:0 console: stock2: no driver for this type");
	owner_unload("virtio/virtio_blk");
	cards[DISK].ca_reset_error = 0;
	owner_load("virtio/virtio_blk");
	OWNS(DISK, "vtblk on vtpci");
	owner_load("virtio/virtio_random");
}

static void
loads_slowly(void *arg __unused)
{

	owner_load("virtio/virtio_blk");
}

/* The root file system waits for what is refused, which waits for the attach that refuses it. */
static void
root_waits_for_what_is_refused(void)
{

	owner_load("pv_virtio");
	owner_load("vbus/vtpci");
	owner_driver.od_attach_error = ENXIO;
	owner_driver.od_waits = cards[DISK].ca_slow = true;
	kpi_thread_start(loads_slowly, NULL);
	kpi_sleep(2);
	CHECK(owner_driver.od_attaches == 1 && owner_root_held == 0, "%d attachments",
	    owner_driver.od_attaches);
	owner_driver.od_waits = false;
	kpi_sleep(3 * hz);
	CHECK(owner_root_holds == 1 && owner_root_held == 1, "%d holds of %d", owner_root_holds,
	    owner_root_held);
	OWNS(DISK, "none");
	cards[DISK].ca_slow = false;
	kpi_sleep(hz / 5);
	CHECK(owner_root_holds == 0 && owner_root_held == 1 && kpi_threads_left() == 0,
	    "%d holds of %d", owner_root_holds, owner_root_held);
	OWNS(DISK, "stock");
	owner_load("virtio/virtio_random");
}

/* For those who read the report: types by their names. */
static void
types_have_names(void)
{
	static const char *const names[] = { "unknown", "network", "block", "console", "entropy",
	    "balloon", "unknown", "unknown", "SCSI host", "9P transport", "unknown" };
	u_int i;

	for (i = 0; i < nitems(names); i++)
		CHECK(strcmp(virtio_type_name(i), names[i]) == 0, "%u: %s", i, virtio_type_name(i));
	CHECK(strcmp(virtio_type_name(VIRTIO_ID_FS), "file system") == 0 &&
	    strcmp(virtio_type_name(VIRTIO_ID_FS + 1), "unknown") == 0 &&
	    strcmp(virtio_type_name(UINT32_MAX), "unknown") == 0, "beyond the last one");
	/* One that can't be read, as another driver has the device. */
	cards[CONSOLE].ca_type = UINT32_MAX;
	owner_load_all();
	reports("\npci0:0:3:0 entropy: vtrnd0 on vtpci0\npci0:0:4:0 block: vtblk0 on vtpci1"
	    "\npci0:0:5:0 unknown: stock2: stays until devctl(8) moves it");
}

static const struct hosted_test tests[] = {
	TEST(driver_takes_its_devices, "As long as it is loaded"),
	TEST(device_in_use_stays, "Until devctl(8) moves it"),
	TEST(others_are_offered, "To the kernel's drivers"),
	TEST(driver_that_does_not_go, "Stays on all buses"),
	TEST(some_are_left_to_the_kernel, "By hw.pv.disable"),
	TEST(unknown_names_are_said, "In hw.pv.disable"),
	TEST(refused_device_returns, "And is not asked about again"),
	TEST(devctl_is_told_why, "When a device is not taken"),
	TEST(attach_is_tried_again, "If what lacked may come"),
	TEST(kernel_keeps_what_it_uses, "Also when it is tried again"),
	TEST(device_that_is_not_reset, "Is the kernel's"),
	TEST(root_waits_for_what_is_refused, "And no longer"),
	TEST(types_have_names, "In the report"),
	TEST(random_is_read_once, "Each byte that the device wrote"),
	TEST(random_of_a_broken_device, "After a reset"),
	TEST(random_of_one_device, "Of two"),
	TEST(random_without_memory, "Leaves nothing"),
	TEST(random_device_keeps_its_buffer, "If it is not reset"),
	{ NULL, NULL, NULL, NULL }
};

const struct hosted_test *
hosted_tests(void)
{

	return (tests);
}
