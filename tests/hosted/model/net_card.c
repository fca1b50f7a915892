/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The least of a pv_net (net_card.h).
 */

#include "model/net_card.h"

#include "host/host.h"
#include "kpi/kpi.h"

struct pv_net card;
struct pv_net *net;
const char *net_card_setting;
bool net_card_binds;

/* What a command's completion has in place of a packet. */
static char card_command;

static void
card_intr(void *arg)
{

	++*(u_int *)arg;
}

static int
card_stop(void *arg, u_int queue)
{
	struct pv_net *pn = arg;

	if (queue != PV_DEV_ALL)
		return (pn->pn_ops->pno_stop_queue == NULL ? EOPNOTSUPP :
		    pn->pn_ops->pno_stop_queue(pn->pn_softc, queue / 2, queue % 2 == 1));
	return (pn->pn_ops->pno_stop != NULL ? pn->pn_ops->pno_stop(pn->pn_softc) : 0);
}

static int
card_restart(void *arg, u_int queue)
{
	struct pv_net *pn = arg;

	if (queue != PV_DEV_ALL)
		return (pn->pn_ops->pno_restart_queue(pn->pn_softc, queue / 2, queue % 2 == 1));
	return (pn->pn_ops->pno_restart != NULL ? pn->pn_ops->pno_restart(pn->pn_softc) : 0);
}

static void
card_reconnect(void *arg)
{
	struct pv_net *pn = arg;

	pn->pn_ops->pno_reset(pn->pn_softc);
}

static bool
card_has_more(void *arg)
{
	struct pv_net *pn = arg;

	return (pn->pn_ops->pno_has_more != NULL && pn->pn_ops->pno_has_more(pn->pn_softc));
}

static void
card_quiesce(void *arg __unused, u_int queue __unused, int error __unused)
{
}

void
card_reclaim(void *arg, u_int queue, int error __unused)
{
	struct pv_net *pn = arg;

	while (pn->pn_pvqs[queue] != NULL && pvq_drain(pn->pn_pvqs[queue]) != NULL)
		continue;
}

static void
card_resume(void *arg __unused, u_int queue __unused)
{
}

static void
card_lost(void *arg __unused, bool leaked __unused)
{
}

static const struct pv_dev_ops card_dev_ops = {
	.pdo_quiesce = card_quiesce,
	.pdo_reclaim = card_reclaim,
	.pdo_resume = card_resume,
	.pdo_lost = card_lost,
	.pdo_stop = card_stop,
	.pdo_restart = card_restart,
	.pdo_has_more = card_has_more,
	.pdo_counted = "pairs of queues",
};

int
pv_net_alloc(device_t dev, const struct pv_net_ops *ops, void *softc,
    const struct pv_net_params *params, struct pv_net **pnp)
{
	int error;

	CHECK(net == NULL, "two cards");
	*pnp = NULL;
	memset(&card, 0, sizeof(card));
	card.pn_dev = dev;
	card.pn_ops = ops;
	card.pn_softc = softc;
	card.pn_params = *params;
	card.pn_pairs = card.pn_most = params->pnp_npairs;
	CHECK(card.pn_pairs >= 1 && card.pn_pairs <= NET_CARD_PAIRS, "%d pairs", card.pn_pairs);
	card.pn_dev_ops = card_dev_ops;
	if (ops->pno_reset != NULL)
		card.pn_dev_ops.pdo_reconnect = card_reconnect;
	if (kpi_fail_now())
		return (ENOMEM);
	error = pv_dev_init(&card.pn_pvdev, dev, &card.pn_dev_ops, &card, 2 * NET_CARD_PAIRS);
	if (error != 0)
		return (error);
	card.pn_pvqs = host_alloc(2 * NET_CARD_PAIRS * sizeof(*card.pn_pvqs), sizeof(void *));
	memset(card.pn_pvqs, 0, 2 * NET_CARD_PAIRS * sizeof(*card.pn_pvqs));
	*pnp = net = &card;
	return (0);
}

void
pv_net_free(struct pv_net *pn)
{
	u_int i;

	if (pn == NULL)
		return;
	CHECK(pn == net && !pn->pn_attached, "another card, or one that is attached");
	for (i = 0; i < 2 * NET_CARD_PAIRS; i++)
		CHECK(pn->pn_pvqs[i] == NULL, "queue %u is left", i);
	pv_dev_fini(&pn->pn_pvdev);
	host_free(pn->pn_pvqs);
	pn->pn_pvqs = NULL;
	net = NULL;
}

void
pv_net_queue(struct pv_net *pn, int pair, bool tx, struct pvq_spec *out)
{

	CHECK(pn == net && pair >= 0 && pair < pn->pn_most, "pair %d of %d", pair, pn->pn_most);
	memset(out, 0, sizeof(*out));
	out->pqs_pvq = &pn->pn_pvqs[2 * pair + tx];
	out->pqs_intr = card_intr;
	out->pqs_arg = &pn->pn_intrs[2 * pair + tx];
	out->pqs_max_segs = tx ? 8 : 2;
	out->pqs_cpu = net_card_binds ? pair : -1;
	snprintf(out->pqs_name, sizeof(out->pqs_name), "%s%d", tx ? "txq" : "rxq", pair);
}

int
pv_net_set_pairs(struct pv_net *pn, int n)
{

	pv_dev_assert(&pn->pn_pvdev);
	pn->pn_pairs = n;
	return (0);
}

void
pv_net_renegotiate(struct pv_net *pn, const struct pv_net_params *params)
{

	CHECK(pv_dev_state(&pn->pn_pvdev) == PV_DEV_FROZEN, "state %d", pv_dev_state(&pn->pn_pvdev));
	CHECK(params->pnp_npairs >= 1 && params->pnp_npairs <= pn->pn_most, "%d pairs of %d",
	    params->pnp_npairs, pn->pn_most);
	pn->pn_params.pnp_offloads = params->pnp_offloads;
	pn->pn_params.pnp_max_frame = params->pnp_max_frame;
	pn->pn_params.pnp_max_mtu = params->pnp_max_mtu;
	pn->pn_pairs = params->pnp_npairs;
}

void
pv_net_stage_queue(struct pv_net *pn, int pair, bool tx, const struct pv_net_page *pages)
{

	CHECK(pn->pn_pvqs[2 * pair + tx] != NULL && pages != NULL, "pair %d", pair);
	pn->pn_pages[2 * pair + tx] = pages;
}

int
pv_net_attach(struct pv_net *pn)
{
	int i;

	pn->pn_attached = true;
	if (pn->pn_attach_error != 0 || kpi_fail_now())
		return (ENOMEM);
	for (i = 0; i < 2 * NET_CARD_PAIRS; i++)
		pv_dev_adopt(&pn->pn_pvdev, i, pn->pn_pvqs[i]);
	pv_dev_start(&pn->pn_pvdev, true);
	pn->pn_there = true;
	pn->pn_link_up = pn->pn_ops->pno_link_up(pn->pn_softc);
	return (0);
}

void
pv_net_detach(struct pv_net *pn)
{

	CHECK(net_card_setting == NULL || kpi_sysctl_set(net_card_setting, 1) == ENOENT,
	    "a setting of a card that is gone");
	CHECK(pn->pn_attached, "detached without being attached");
	pn->pn_attached = pn->pn_there = false;
	pv_dev_leave(&pn->pn_pvdev);
}

void
pv_net_link_change(struct pv_net *pn)
{

	pn->pn_links++;
	pn->pn_link_up = pn->pn_ops->pno_link_up(pn->pn_softc);
}

void
pv_net_refilter(struct pv_net *pn)
{

	pn->pn_refilters++;
}

int
pv_net_set_mtu(struct pv_net *pn, int mtu)
{

	CHECK(pn->pn_there, "there is no interface");
	if (pn->pn_mtu_error != 0)
		return (pn->pn_mtu_error);
	if (mtu < ETHERMIN || (u_int)mtu > pn->pn_params.pnp_max_mtu)
		return (EINVAL);
	pn->pn_mtu = mtu;
	return (0);
}

bool
pv_net_announce(struct pv_net *pn)
{

	pn->pn_announced += pn->pn_there;
	return (pn->pn_there);
}

void
card_sent(struct pv_net *pn, int pair)
{
	struct pvq_done done;

	while (pvq_get(pn->pn_pvqs[2 * pair + 1], &done, 1) == 1)
		pn->pn_ops->pno_message->pmo_sent(pn->pn_softc, pair, &done, 1);
}

int
pv_net_command(struct pv_net *pn, int pair, void *arg)
{
	struct pvq *q = pn->pn_pvqs[2 * pair + 1];
	struct pvq_chain chain = { .pc_arg = arg, .pc_cookie = &card_command };
	int slots = pvq_prepare(q, &chain);

	if (slots == 0)
		return (EINVAL);
	card_sent(pn, pair);
	if (pvq_reserve(q, slots) != 0)
		return (ENOSPC);
	pvq_put(q, &chain, 1);
	pvq_commit(q);
	(void)pvq_kick(q);
	return (0);
}

bool
pv_net_is_command(const struct pvq_done *done)
{

	return (done->pd_cookie == &card_command);
}

struct pv_dev *
pv_net_dev(struct pv_net *pn)
{

	return (&pn->pn_pvdev);
}

int
pv_net_thaw(struct pv_net *pn)
{
	int error, i;

	for (i = 0; i < 2 * NET_CARD_PAIRS && pn->pn_ops->pno_reset != NULL; i++)
		pv_dev_adopt(&pn->pn_pvdev, i, pn->pn_pvqs[i]);
	error = pv_dev_thaw(&pn->pn_pvdev);
	if (error == 0)
		pv_net_link_change(pn);
	return (error);
}
