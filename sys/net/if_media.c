/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Media selection: the list of media that a driver supports, the one that is chosen, and the
 * two ioctls that ask and set.
 *
 * Locking.  None: the driver serialises, as for its other ioctls.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/socket.h>
#include <sys/sockio.h>
#include <net/if.h>
#include <net/if_media.h>
#include <net/if_var.h>

static MALLOC_DEFINE(M_IFMEDIA, "ifmedia", "media of network interfaces");

void
ifmedia_init(struct ifmedia *ifm, int dontcare_mask, ifm_change_cb_t change, ifm_stat_cb_t status)
{
	LIST_INIT(&ifm->ifm_list);
	ifm->ifm_cur = NULL;
	ifm->ifm_media = IFM_NONE;
	ifm->ifm_mask = dontcare_mask;
	ifm->ifm_change = change;
	ifm->ifm_status = status;
}

void
ifmedia_removeall(struct ifmedia *ifm)
{
	struct ifmedia_entry *entry;

	while ((entry = LIST_FIRST(&ifm->ifm_list)) != NULL) {
		LIST_REMOVE(entry, ifm_list);
		free(entry, M_IFMEDIA);
	}
	ifm->ifm_cur = NULL;
	ifm->ifm_media = IFM_NONE;
}

void
ifmedia_add(struct ifmedia *ifm, int mword, int data, void *aux)
{
	struct ifmedia_entry *entry;

	/* Called at attach time, sometimes under the driver's lock. */
	entry = malloc(sizeof(*entry), M_IFMEDIA, M_NOWAIT);
	if (entry == NULL)
		panic("%s: no memory for medium %#x", __func__, mword);
	entry->ifm_media = mword;
	entry->ifm_data = data;
	entry->ifm_aux = aux;
	LIST_INSERT_HEAD(&ifm->ifm_list, entry, ifm_list);
}

void
ifmedia_list_add(struct ifmedia *ifm, struct ifmedia_entry *list, int count)
{
	int i;

	for (i = 0; i < count; i++)
		ifmedia_add(ifm, list[i].ifm_media, list[i].ifm_data, list[i].ifm_aux);
}

static struct ifmedia_entry *
ifmedia_match(struct ifmedia *ifm, int mword)
{
	struct ifmedia_entry *entry;
	int care = ~ifm->ifm_mask;

	LIST_FOREACH(entry, &ifm->ifm_list, ifm_list) {
		if ((entry->ifm_media & care) == (mword & care))
			break;
	}
	return (entry);
}

void
ifmedia_set(struct ifmedia *ifm, int mword)
{
	struct ifmedia_entry *entry;

	entry = ifmedia_match(ifm, mword);
	if (entry == NULL) {
		/*
		 * The driver sets a medium that it never added.  It is shown as the driver
		 * set it, which does no harm.
		 */
		printf("%s: medium %#x is not one of the interface's\n", __func__, mword);
		ifmedia_add(ifm, IFM_NONE, 0, NULL);
		entry = ifmedia_match(ifm, IFM_NONE);
	}
	ifm->ifm_cur = entry;
	ifm->ifm_media = mword;
}

static int
ifmedia_change(struct ifnet *ifp, struct ifmedia *ifm, int mword)
{
	struct ifmedia_entry *entry, *old_entry = ifm->ifm_cur;
	int error, old = ifm->ifm_media;

	entry = ifmedia_match(ifm, mword);
	if (entry == NULL)
		return (ENXIO);
	if (entry == old_entry && mword == old && IFM_SUBTYPE(mword) != IFM_AUTO)
		return (0);
	ifm->ifm_cur = entry;
	ifm->ifm_media = mword;
	error = ifm->ifm_change(ifp);
	if (error == ENETRESET)
		error = 0;
	if (error != 0) {
		ifm->ifm_cur = old_entry;
		ifm->ifm_media = old;
	}
	return (error);
}

static int
ifmedia_report(struct ifnet *ifp, struct ifmedia *ifm, struct ifmediareq *ifmr)
{
	struct ifmedia_entry *entry;
	int count = 0, room = ifmr->ifm_count;

	if (room < 0)
		return (EINVAL);
	ifmr->ifm_active = ifmr->ifm_current = ifm->ifm_cur != NULL ?
	    ifm->ifm_cur->ifm_media : IFM_NONE;
	ifmr->ifm_mask = ifm->ifm_mask;
	ifmr->ifm_status = 0;
	ifm->ifm_status(ifp, ifmr);
	/* With no room given the caller only asks how much it needs. */
	LIST_FOREACH(entry, &ifm->ifm_list, ifm_list) {
		if (count < room)
			ifmr->ifm_ulist[count] = entry->ifm_media;
		count++;
	}
	ifmr->ifm_count = count;
	return (room != 0 && count > room ? E2BIG : 0);
}

int
ifmedia_ioctl(struct ifnet *ifp, struct ifreq *ifr, struct ifmedia *ifm, u_long cmd)
{
	if (ifp == NULL || ifr == NULL || ifm == NULL)
		return (EINVAL);
	switch (cmd) {
	case SIOCSIFMEDIA:
		return (ifmedia_change(ifp, ifm, ifr->ifr_media));
	case SIOCGIFMEDIA:
	case SIOCGIFXMEDIA:
		return (ifmedia_report(ifp, ifm, (struct ifmediareq *)ifr));
	default:
		return (EINVAL);
	}
}

uint64_t
ifmedia_baudrate(int mword)
{
	static const struct ifmedia_baudrate rates[] = IFM_BAUDRATE_DESCRIPTIONS;
	const struct ifmedia_baudrate *rate;

	for (rate = rates; rate->ifmb_word != 0; rate++) {
		if (IFM_TYPE_MATCH(mword, rate->ifmb_word))
			return (rate->ifmb_baudrate);
	}
	return (0);
}
