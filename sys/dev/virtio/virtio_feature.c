/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Features of rings and transports (VirtIO 1.3, 6): their table, and the
 * tunables that refuse some.
 *
 * Locking.  None: tunables are read only.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/sysctl.h>

#include <dev/virtio/virtio_bus.h>

struct pv_tunable virtio_tunables[] = {
	[VIRTIO_INDIRECT] = PV_TUNABLE("indirect", 1, 0, 1, 0,
	    "Use indirect descriptors where the device has them"),
	[VIRTIO_EVENT_IDX] = PV_TUNABLE("event_idx", 1, 0, 1, 0,
	    "Use event indices to suppress interrupts and notifications where the device has them"),
	[VIRTIO_PACKED] = PV_TUNABLE("packed", 1, 0, 1, 0,
	    "Use packed virtqueues where the device has them"),
	[VIRTIO_STRICT_LENGTHS] = PV_TUNABLE("strict_lengths", 0, 0, 1, 0,
	    "Reset devices that report invalid used lengths, instead of ignoring the lengths"),
};
PV_TUNABLES(virtio_tunables, hw, "virtio", virtio_tunables, "VirtIO devices");

/*
 * Features of the ring and the transport (VirtIO 1.3, 6), which drivers do not
 * see.
 */
static const struct virtio_feature virtio_ring_features[] = {
	{ VIRTIO_F_NOTIFY_ON_EMPTY, "NOTIFY_ON_EMPTY", VIRTIO_FEATURE_OFF },
	{ VIRTIO_F_ANY_LAYOUT, "ANY_LAYOUT", VIRTIO_FEATURE_OFF },
	{ VIRTIO_F_INDIRECT_DESC, "INDIRECT_DESC", 0 },
	{ VIRTIO_F_EVENT_IDX, "EVENT_IDX", 0 },
	{ VIRTIO_F_VERSION_1, "VERSION_1", 0 },
	/*
	 * Addresses come from bus_dma(9), and barriers from bus_dmamap_sync(9).
	 */
	{ VIRTIO_F_ACCESS_PLATFORM, "ACCESS_PLATFORM", 0 },
	{ VIRTIO_F_RING_PACKED, "RING_PACKED", 0 },
	{ VIRTIO_F_IN_ORDER, "IN_ORDER", 0 },
	{ VIRTIO_F_ORDER_PLATFORM, "ORDER_PLATFORM", 0 },
	{ VIRTIO_F_NOTIFICATION_DATA, "NOTIFICATION_DATA", 0 },
	{ VIRTIO_F_NOTIF_CONFIG_DATA, "NOTIF_CONFIG_DATA", 0 },
	/* Drivers that use it have it in their own tables. */
	{ VIRTIO_F_RING_RESET, "RING_RESET", VIRTIO_FEATURE_OFF },
	{ 0, NULL, 0 }
};

/* Add a word to a list of words in str. */
static void
virtio_add_word(char *str, const char *word)
{

	if (str[0] != '\0')
		strlcat(str, " ", VIRTIO_FEATURE_STRLEN);
	strlcat(str, word, VIRTIO_FEATURE_STRLEN);
}

static uint64_t
virtio_add_names(char *str, const struct virtio_feature *vf, uint64_t features)
{

	for (; vf->vf_mask != 0; vf++) {
		if ((features & vf->vf_mask) == 0)
			continue;
		virtio_add_word(str, vf->vf_name);
		features &= ~vf->vf_mask;
	}
	return (features);
}

void
virtio_feature_names(char *str, const struct virtio_feature *table,
    uint64_t features)
{
	char number[20];

	str[0] = '\0';
	features = virtio_add_names(str, table, features);
	features = virtio_add_names(str, virtio_ring_features, features);
	if (features != 0) {
		snprintf(number, sizeof(number), "0x%jx", (uintmax_t)features);
		virtio_add_word(str, number);
	}
}

uint64_t
virtio_ring_mask(void)
{
	const struct virtio_feature *vf;
	uint64_t mask;

	mask = 0;
	for (vf = virtio_ring_features; vf->vf_mask != 0; vf++) {
		if ((vf->vf_flags & VIRTIO_FEATURE_OFF) == 0)
			mask |= vf->vf_mask;
	}
	if (virtio_tunables[VIRTIO_INDIRECT].pt_value == 0)
		mask &= ~VIRTIO_F_INDIRECT_DESC;
	if (virtio_tunables[VIRTIO_EVENT_IDX].pt_value == 0)
		mask &= ~VIRTIO_F_EVENT_IDX;
	if (virtio_tunables[VIRTIO_PACKED].pt_value == 0)
		mask &= ~VIRTIO_F_RING_PACKED;
	return (mask);
}
