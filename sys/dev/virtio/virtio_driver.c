/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Which devices the suite drives, and which it leaves to the kernel.
 *
 * A kernel may have virtio drivers of its own, for more types of devices than
 * the suite has.  A transport of the suite (vtpci, vtmmio) therefore takes a
 * device only if a driver of the suite for its type is loaded:
 *
 *	                    virtio_bus_probe()
 *	no driver --------------------------------------> left to the kernel
 *	hw.pv.disable ----------------------------------> left to the kernel
 *	refused by the driver before -------------------> left to the kernel
 *	else: BUS_PROBE_VENDOR, more than the kernel's own driver returns
 *
 * newbus offers a device to its drivers when the device or a driver is added,
 * and not when one has refused it or was unloaded.  virtio_offer_all() offers
 * devices anew then: when a driver was loaded (for what no driver has, or a
 * bus driver of the kernel that has no driver for it), when one was unloaded
 * (its devices return to the kernel), and when a driver refused a device.  A
 * refusal is kept as a property of the device until the driver is loaded the
 * next time, so that a device is refused once.
 *
 * An attach that fails must have returned before its device can be offered
 * again: a task does that, and the root file system is not mounted before.
 * One that failed for something that may pass, such as a lack of memory, may
 * succeed later: if no driver of the kernel has the device until then, ours is
 * asked again, after 1 s to 17 minutes.
 *
 * Locking.  The topology lock, for all that is here.
 *
 * Gaps.  devctl(8) detaches a device from its driver before another is asked,
 * so that a device without a driver of the suite, which is to be moved to a
 * transport of the suite, is detached before it returns to the kernel.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/ctype.h>
#include <sys/libkern.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/queue.h>
#include <sys/sbuf.h>
#include <sys/sysctl.h>
#include <sys/taskqueue.h>

#include <machine/bus.h>
#include <machine/stdarg.h>

#include <dev/pv/dev/pv_dev.h>
#include <dev/pv/pv_tunable.h>
#include <dev/virtio/virtio_bus.h>

/* The property of a refused device, until its driver has attached. */
#define	VIRTIO_REFUSED		"virtio_refused"
struct virtio_refusal {
	bool		vr_passes;	/* for something that may pass */
	bool		vr_again;	/* its driver is asked again:
					 * it is not refused */
	u_int		vr_times;	/* that it was for something
					 * that may pass */
	char		vr_why[VIRTIO_WHY_LEN];
};

/*
 * Before an attachment is tried again: how often a second is doubled at most.
 */
#define	VIRTIO_AGAIN_TRIES	10

static MALLOC_DEFINE(M_VIRTIO_REFUSED, "virtio_refused",
    "virtio devices that drivers refused");

static const char *const virtio_type_names[] = {
	[VIRTIO_ID_NETWORK] = "network", [VIRTIO_ID_BLOCK] = "block",
	[VIRTIO_ID_CONSOLE] = "console", [VIRTIO_ID_ENTROPY] = "entropy",
	[VIRTIO_ID_BALLOON] = "balloon", [VIRTIO_ID_SCSI] = "SCSI host",
	[VIRTIO_ID_9P] = "9P transport", [VIRTIO_ID_GPU] = "GPU",
	[VIRTIO_ID_INPUT] = "input", [VIRTIO_ID_SOCKET] = "socket",
	[VIRTIO_ID_CRYPTO] = "crypto", [VIRTIO_ID_MEMORY] = "memory",
	[VIRTIO_ID_SOUND] = "sound", [VIRTIO_ID_FS] = "file system",
};

/* The drivers that there are: what hw.pv.disable may name. */
static const struct {
	uint32_t	 type;
	const char	*name;
	const char	*page;
} virtio_known[] = {
	{ VIRTIO_ID_NETWORK, "vtnet", "vtnet(4)" },
	{ VIRTIO_ID_BLOCK, "vtblk", "virtio_blk(4)" },
	{ VIRTIO_ID_BALLOON, "vtballoon", "virtio_balloon(4)" },
	{ VIRTIO_ID_ENTROPY, "vtrnd", "virtio_random(4)" },
};

SYSCTL_NODE(_hw, OID_AUTO, pv, CTLFLAG_RD | CTLFLAG_MPSAFE, NULL,
    "Paravirtual devices");

static SLIST_HEAD(, virtio_driver) virtio_drivers =
    SLIST_HEAD_INITIALIZER(virtio_drivers);
static SLIST_HEAD(, virtio_transport) virtio_transports =
    SLIST_HEAD_INITIALIZER(virtio_transports);

static struct root_hold_token *virtio_hold;
static bool virtio_offering;
static bool virtio_offer_again;

static struct timeout_task virtio_offer_later, virtio_try_later;
static u_int virtio_tries;
static bool virtio_tries_again;
TASKQUEUE_DECLARE(thread);

const char *
virtio_type_name(uint32_t type)
{

	if (type < nitems(virtio_type_names) && virtio_type_names[type] != NULL)
		return (virtio_type_names[type]);
	return ("unknown");
}

static struct virtio_driver *
virtio_driver_for(uint32_t type)
{
	struct virtio_driver *vd;

	SLIST_FOREACH(vd, &virtio_drivers, vdr_link) {
		if (vd->vdr_type == type)
			return (vd);
	}
	return (NULL);
}

int
virtio_probe(device_t dev)
{
	uint32_t type = virtio_get_device_type(dev);
	const struct virtio_driver *vd;

	SLIST_FOREACH(vd, &virtio_drivers, vdr_link) {
		if (vd->vdr_type == type && vd->vdr_buses[0].dmd_driver ==
		    (kobj_class_t)device_get_driver(dev)) {
			device_set_desc(dev, vd->vdr_descr);
			return (BUS_PROBE_DEFAULT);
		}
	}
	return (ENXIO);
}

/* The manual page of the driver that the suite has for a type, NULL: none. */
static const char *
virtio_page_for(uint32_t type)
{
	u_int i;

	for (i = 0; i < nitems(virtio_known); i++) {
		if (virtio_known[i].type == type)
			return (virtio_known[i].page);
	}
	return (NULL);
}

static bool
virtio_disabled(const char *name)
{

	return (pv_is_listed("hw.pv.disable", name));
}

/* pciD:B:S:F or mmio:0xADDRESS. */
static bool
virtio_is_address(const char *word)
{
	int colons = 0;

	if (strncmp(word, "mmio:0x", 7) == 0) {
		for (word += 7; isxdigit((u_char)*word); word++)
			colons = 3;
		return (*word == '\0' && colons == 3);
	}
	if (strncmp(word, "pci", 3) != 0)
		return (false);
	for (word += 3; *word != '\0'; word++) {
		if (*word == ':')
			colons++;
		if (!isdigit((u_char)*word) && (*word != ':' ||
		    !isdigit((u_char)word[-1]) || !isdigit((u_char)word[1])))
			return (false);
	}
	return (colons == 3);
}

/* xn, xbd and their devices, which are xen_core's. */
static bool
virtio_is_xen(const char *word)
{
	const char *rest;

	if (strncmp(word, "xn", 2) == 0)
		rest = word + 2;
	else if (strncmp(word, "xbd", 3) == 0)
		rest = word + 3;
	else
		return (false);
	return (strspn(rest, "0123456789") == strlen(rest));
}

static void
virtio_check_disabled(void)
{
	char *list, *next, *word;
	u_int i;

	list = next = kern_getenv("hw.pv.disable");
	while ((word = strsep(&next, " ,")) != NULL) {
		for (i = 0; i < nitems(virtio_known); i++) {
			if (strcmp(word, virtio_known[i].name) == 0)
				break;
		}
		if (i == nitems(virtio_known) && *word != '\0' &&
		    strcmp(word, "all") != 0 && !virtio_is_address(word) &&
		    !virtio_is_xen(word))
			printf("hw.pv.disable: %s is ignored: neither all, "
			    "a driver (vtnet, vtblk, vtballoon, vtrnd) nor an address "
			    "(pci0:0:3:0, mmio:0xfeb00e00)\n", word);
	}
	freeenv(list);
}

/* Was this driver named to devctl(8)?  That is more than a tunable says. */
static bool
virtio_is_explicit(const struct virtio_transport *vt, device_t dev)
{

	return (!vt->vt_adds && device_is_devclass_fixed(dev) &&
	    device_get_name(dev) != NULL &&
	    strcmp(device_get_name(dev), vt->vt_module.dmd_driver->name) == 0);
}

static bool
virtio_is_ours(const struct virtio_transport *vt, device_t dev)
{

	return (device_get_driver(dev) == vt->vt_module.dmd_driver);
}

/* What is kept of a device that was refused, NULL: nothing. */
static struct virtio_refusal *
virtio_record(device_t dev)
{
	void *record;

	return (device_get_prop(dev, VIRTIO_REFUSED, &record) == 0 ? record :
	    NULL);
}

/* The refusal of a device, NULL: it is not refused. */
static struct virtio_refusal *
virtio_refusal(device_t dev)
{
	struct virtio_refusal *vr = virtio_record(dev);

	return (vr == NULL || vr->vr_again ? NULL : vr);
}

/*
 * Why is a device not to be taken?  Returns true, and the reason in why, of
 * VIRTIO_WHY_LEN bytes; false if it is to be taken.
 */
static bool
virtio_unwanted(const struct virtio_transport *vt, device_t dev, uint32_t type,
    char *why)
{
	const char *page = virtio_page_for(type);
	const struct virtio_refusal *vr;
	const struct virtio_driver *vd;
	char name[VIRTIO_NAME_LEN];

	vt->vt_name(dev, name, sizeof(name));
	vd = virtio_driver_for(type);
	if (vd == NULL && page == NULL)
		snprintf(why, VIRTIO_WHY_LEN, "no driver for this type");
	else if (vt->vt_off)
		snprintf(why, VIRTIO_WHY_LEN, "hw.pv.disable has all");
	else if (vd == NULL)
		snprintf(why, VIRTIO_WHY_LEN, "%s is not loaded", page);
	else if ((vr = virtio_refusal(dev)) != NULL)
		strlcpy(why, vr->vr_why, VIRTIO_WHY_LEN);
	else if (virtio_is_explicit(vt, dev))
		return (false);
	else if (virtio_disabled(vd->vdr_name))
		snprintf(why, VIRTIO_WHY_LEN, "hw.pv.disable has %s",
		    vd->vdr_name);
	else if (virtio_disabled(name))
		snprintf(why, VIRTIO_WHY_LEN, "hw.pv.disable has %s", name);
	else
		return (false);
	return (true);
}

/* The type of a device that may be another driver's. */
static uint32_t
virtio_type_of(const struct virtio_transport *vt, device_t dev)
{

	if (device_is_attached(dev) && virtio_is_ours(vt, dev))
		return (((struct virtio_bus *)device_get_softc(dev))->vb_type);
	return (vt->vt_type(dev));
}

static device_t
virtio_attached_child(device_t dev)
{
	device_t *children, found = NULL;
	int i, n;

	if (device_get_children(dev, &children, &n) != 0)
		return (NULL);
	for (i = 0; i < n && found == NULL; i++) {
		if (device_is_attached(children[i]))
			found = children[i];
	}
	free(children, M_TEMP);
	return (found);
}

/* Is a device with a driver to be taken from it? */
static bool
virtio_is_misplaced(const struct virtio_transport *vt, device_t dev,
    uint32_t type)
{
	char why[VIRTIO_WHY_LEN];

	if (virtio_attached_child(dev) != NULL)
		return (false);
	if (virtio_is_ours(vt, dev))
		return (virtio_driver_for(type) == NULL);
	return (!virtio_unwanted(vt, dev, type, why));
}

/*
 * Offer a device to all drivers of its bus, if no driver does anything with it.
 */
static void
virtio_offer(struct virtio_transport *vt, device_t dev, void *arg __unused)
{
	uint32_t type;

	if (device_get_state(dev) == DS_ATTACHING) {
		if (virtio_refusal(dev) != NULL)
			virtio_offer_again = true;
		return;
	}
	type = virtio_type_of(vt, dev);
	if (type == 0 || (device_is_attached(dev) &&
	    (!virtio_is_misplaced(vt, dev, type) || device_detach(dev) != 0)))
		return;
	if (device_get_state(dev) != DS_NOTPRESENT)
		return;
	/* Of all drivers, if the one that devctl(8) named does not take it. */
	if (virtio_is_explicit(vt, dev))
		(void)device_set_devclass(dev, NULL);
	if (vt->vt_offer != NULL)
		vt->vt_offer(dev);
	else
		(void)device_probe_and_attach(dev);
}

/*
 * Call func for each device below the buses that a transport is registered for.
 */
static void
virtio_each(struct virtio_transport *vt,
    void (*func)(struct virtio_transport *vt, device_t dev, void *arg),
    void *arg)
{
	device_t *buses, *children;
	int i, j, nbuses, nchildren;
	devclass_t dc;

	dc = devclass_find(vt->vt_module.dmd_busname);
	if (dc == NULL || devclass_get_devices(dc, &buses, &nbuses) != 0)
		return;
	for (i = 0; i < nbuses; i++) {
		if (!device_is_attached(buses[i]) ||
		    device_get_children(buses[i], &children, &nchildren) != 0)
			continue;
		for (j = 0; j < nchildren; j++)
			func(vt, children[j], arg);
		free(children, M_TEMP);
	}
	free(buses, M_TEMP);
}

/* A driver that is loaded anew may take what it refused before. */
static void
virtio_forget_refusal(struct virtio_transport *vt, device_t dev, void *arg)
{
	const struct virtio_driver *vd = arg;

	if (virtio_record(dev) != NULL &&
	    virtio_type_of(vt, dev) == vd->vdr_type)
		(void)device_clear_prop(dev, VIRTIO_REFUSED);
}

static void
virtio_offer_all(void)
{
	struct virtio_transport *vt;

	bus_topo_assert();
	virtio_offering = true;
	virtio_offer_again = false;
	SLIST_FOREACH(vt, &virtio_transports, vt_link)
		virtio_each(vt, virtio_offer, NULL);
	virtio_offering = false;
}

static void
virtio_offer_task(void *arg __unused, int pending __unused)
{
	bool again;

	bus_topo_lock();
	virtio_offer_all();
	again = virtio_offer_again;
	if (again)
		(void)taskqueue_enqueue_timeout(taskqueue_thread,
		    &virtio_offer_later, hz / 10);
	else {
		root_mount_rel(virtio_hold);
		virtio_hold = NULL;
	}
	bus_topo_unlock();
}

/* Offer devices when whatever is under way in newbus has returned. */
static void
virtio_schedule_offer(void)
{

	bus_topo_assert();
	if (virtio_hold == NULL)
		virtio_hold = root_mount_hold("virtio");
	(void)taskqueue_enqueue_timeout(taskqueue_thread, &virtio_offer_later,
	    0);
}

/*
 * What a driver refused for something that may have passed is not refused any
 * more.
 */
static void
virtio_forget_passing(struct virtio_transport *vt __unused, device_t dev,
    void *arg __unused)
{
	struct virtio_refusal *vr = virtio_record(dev);

	if (vr != NULL && vr->vr_passes)
		vr->vr_again = true;
}

static void
virtio_try_task(void *arg __unused, int pending __unused)
{
	struct virtio_transport *vt;

	bus_topo_lock();
	virtio_tries_again = false;
	virtio_tries++;
	SLIST_FOREACH(vt, &virtio_transports, vt_link)
		virtio_each(vt, virtio_forget_passing, NULL);
	virtio_offer_all();
	if (!virtio_tries_again)
		virtio_tries = 0;
	bus_topo_unlock();
}

int
virtio_bus_probe(struct virtio_transport *vt, device_t dev, uint32_t type)
{
	char desc[48], name[VIRTIO_NAME_LEN], why[VIRTIO_WHY_LEN];

	if (virtio_unwanted(vt, dev, type, why)) {
		if (virtio_is_explicit(vt, dev) && !virtio_offering) {
			vt->vt_name(dev, name, sizeof(name));
			printf("%s: not for %s: %s\n", name,
			    vt->vt_module.dmd_driver->name, why);
			virtio_schedule_offer();
		}
		return (ENXIO);
	}
	snprintf(desc, sizeof(desc), "VirtIO %s (%s)", vt->vt_kind,
	    virtio_type_name(type));
	device_set_desc_copy(dev, desc);
	return (BUS_PROBE_VENDOR);
}

static void
virtio_refused_free(device_t dev __unused, const char *name __unused, void *val,
    void *arg __unused)
{

	free(val, M_VIRTIO_REFUSED);
}

/* Have the drivers asked again when what they lacked may be there. */
static void
virtio_schedule_try(void)
{

	if (virtio_tries_again)
		return;
	virtio_tries_again = true;
	(void)taskqueue_enqueue_timeout(taskqueue_thread, &virtio_try_later,
	    (1 << MIN(virtio_tries, VIRTIO_AGAIN_TRIES)) * hz);
}

void
virtio_bus_refused(struct virtio_bus *vb, int error)
{
	struct virtio_driver *vd = virtio_driver_for(vb->vb_type);
	struct virtio_refusal *vr = virtio_record(vb->vb_dev);

	if (vr == NULL) {
		vr = malloc(sizeof(*vr), M_VIRTIO_REFUSED, M_WAITOK | M_ZERO);
		(void)device_set_prop(vb->vb_dev, VIRTIO_REFUSED, vr,
		    virtio_refused_free, NULL);
	}
	vr->vr_again = false;
	vr->vr_passes = pv_dev_may_pass(error);
	if (vb->vb_why[0] != '\0')
		snprintf(vr->vr_why, sizeof(vr->vr_why),
		    "refused: %s", vb->vb_why);
	else
		snprintf(vr->vr_why, sizeof(vr->vr_why),
		    "refused by %s, error %d",
		    vd != NULL ? vd->vdr_name : "its driver", error);
	if (vr->vr_passes) {
		if (vr->vr_times++ == 0)
			device_printf(vb->vb_dev,
			    "%s (error %d): it is tried again after "
			    "1 s to 17 minutes\n", vb->vb_why[0] != '\0' ?
			    vb->vb_why : "its driver did not attach", error);
		virtio_schedule_try();
	}
	virtio_schedule_offer();
}

void
virtio_bus_accepted(struct virtio_bus *vb)
{
	const struct virtio_refusal *vr = virtio_record(vb->vb_dev);

	if (vr == NULL)
		return;
	device_printf(vb->vb_dev, "its driver attached at attempt %u\n",
	    vr->vr_times + 1);
	(void)device_clear_prop(vb->vb_dev, VIRTIO_REFUSED);
}

void
virtio_refuse(device_t dev, const char *fmt, ...)
{
	struct virtio_bus *vb = device_get_softc(device_get_parent(dev));
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(vb->vb_why, sizeof(vb->vb_why), fmt, ap);
	va_end(ap);
	device_printf(vb->vb_dev, "%s\n", vb->vb_why);
}

/* Both buses or none: returns the error of the first that failed. */
static int
virtio_driver_buses(module_t mod, int what, struct virtio_driver *vd)
{
	int error, i;

	for (i = 0; i < (int)nitems(vd->vdr_buses); i++) {
		error = driver_module_handler(mod, what, &vd->vdr_buses[i]);
		if (error == 0)
			continue;
		while (what == MOD_UNLOAD && --i >= 0)
			(void)driver_module_handler(mod, MOD_LOAD,
			    &vd->vdr_buses[i]);
		return (error);
	}
	return (0);
}

int
virtio_driver_modevent(module_t mod, int what, void *arg)
{
	struct virtio_driver *vd = arg;
	struct virtio_transport *vt;
	int error;

	bus_topo_lock();
	if (what == MOD_LOAD) {
		vd->vdr_name = vd->vdr_buses[0].dmd_driver->name;
		SLIST_INSERT_HEAD(&virtio_drivers, vd, vdr_link);
		SLIST_FOREACH(vt, &virtio_transports, vt_link)
			virtio_each(vt, virtio_forget_refusal, vd);
	}
	error = virtio_driver_buses(mod, what, vd);
	if (error == 0 && what == MOD_UNLOAD)
		SLIST_REMOVE(&virtio_drivers, vd, virtio_driver, vdr_link);
	if (error == 0 && what != MOD_QUIESCE)
		virtio_offer_all();
	bus_topo_unlock();
	return (error);
}

int
virtio_transport_modevent(module_t mod, int what, void *arg)
{
	struct virtio_transport *vt = arg;
	int error = 0;

	bus_topo_lock();
	if (what == MOD_LOAD) {
		/* Not registered at all, devctl(8) refuses to set it. */
		vt->vt_off = virtio_disabled("all");
		SLIST_INSERT_HEAD(&virtio_transports, vt, vt_link);
	}
	if (!vt->vt_off)
		error = driver_module_handler(mod, what, &vt->vt_module);
	if (error == 0 && what == MOD_UNLOAD) {
		virtio_offer_all();
		SLIST_REMOVE(&virtio_transports, vt, virtio_transport, vt_link);
	}
	bus_topo_unlock();
	return (error);
}

/* One line for a device: its name and type, who has it, why not we. */
static void
virtio_report(struct virtio_transport *vt, device_t dev, void *arg)
{
	char name[VIRTIO_NAME_LEN], why[VIRTIO_WHY_LEN];
	struct sbuf *sb = arg;
	device_t child;
	uint32_t type;

	type = virtio_type_of(vt, dev);
	if (type == 0)
		return;
	vt->vt_name(dev, name, sizeof(name));
	sbuf_printf(sb, "\n%s %s: ", name, virtio_type_name(type));
	child = device_is_attached(dev) ? virtio_attached_child(dev) : NULL;
	if (child != NULL)
		sbuf_printf(sb, "%s on ", device_get_nameunit(child));
	if (device_is_attached(dev))
		sbuf_printf(sb, "%s", device_get_nameunit(dev));
	else
		sbuf_printf(sb, "no driver");
	if (device_is_attached(dev) && virtio_is_ours(vt, dev))
		return;
	if (type != UINT32_MAX && virtio_unwanted(vt, dev, type, why))
		sbuf_printf(sb, ": %s", why);
	else if (device_is_attached(dev))
		sbuf_printf(sb, ": stays until devctl(8) moves it");
}

static int
virtio_devices_sysctl(SYSCTL_HANDLER_ARGS)
{
	struct virtio_transport *vt;
	struct sbuf *sb;
	int error;

	sb = sbuf_new_auto();
	bus_topo_lock();
	SLIST_FOREACH(vt, &virtio_transports, vt_link)
		virtio_each(vt, virtio_report, sb);
	bus_topo_unlock();
	error = sbuf_finish(sb);
	if (error == 0)
		error = SYSCTL_OUT(req, sbuf_data(sb), sbuf_len(sb) + 1);
	sbuf_delete(sb);
	return (error);
}
SYSCTL_PROC(_hw_pv, OID_AUTO, devices,
    CTLTYPE_STRING | CTLFLAG_RD | CTLFLAG_MPSAFE, NULL, 0,
    virtio_devices_sysctl, "A",
    "Each virtio device, its driver, and why it is not one of the suite");

void
virtio_driver_init(void)
{

	TIMEOUT_TASK_INIT(taskqueue_thread, &virtio_offer_later, 0,
	    virtio_offer_task, NULL);
	TIMEOUT_TASK_INIT(taskqueue_thread, &virtio_try_later, 0,
	    virtio_try_task, NULL);
	virtio_check_disabled();
}

void
virtio_driver_fini(void)
{

	/* The former schedules the latter. */
	while (taskqueue_cancel_timeout(taskqueue_thread, &virtio_try_later,
	    NULL) != 0)
		taskqueue_drain_timeout(taskqueue_thread, &virtio_try_later);
	while (taskqueue_cancel_timeout(taskqueue_thread, &virtio_offer_later,
	    NULL) != 0)
		taskqueue_drain_timeout(taskqueue_thread, &virtio_offer_later);
	bus_topo_lock();
	device_clear_prop_alldev(VIRTIO_REFUSED);
	root_mount_rel(virtio_hold);
	virtio_hold = NULL;
	bus_topo_unlock();
}
