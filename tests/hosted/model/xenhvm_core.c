/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A model of FreeBSD's own Xen core (xenhvm_core.h).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/malloc.h>

#include <machine/stdarg.h>

#include <xen/xen-os.h>
#include <xen/gnttab.h>
#include <xen/hypervisor.h>
#include <xen/xen_intr.h>
#include <xen/xenstore/xenstorevar.h>
#include <xen/xenstore/xenstore_internal.h>

#include "../host/host.h"
#include "../kpi/kpi.h"
#include "../kpi/threads.h"
#include "xenhvm_core.h"

#define	HC_NODES	64
#define	HC_WATCHES	64
#define	HC_EVENTS	256
#define	HC_TXS		16

MALLOC_DEFINE(M_XENSTORE, "xenstore", "xenstore");

bool hc_silent, hc_endless, hc_pathless;
u_int hc_asked, hc_watches;
int hc_asked_at;
char hc_log[512];
int hc_failure, hc_refuse_nth, hc_conflicts, hc_transactions, hc_no_watch;
uint32_t hc_type;
const char *hc_refuse, *hc_id, *hc_generation;
size_t hc_room, hc_part, hc_cut;
void (*hc_parted)(void);

static struct hc_node {
	char	path[64], value[272];
} hc_nodes[HC_NODES], hc_before[HC_NODES];
static bool hc_txs[HC_TXS];
static u_int hc_next_tx;

static struct xs_watch *hc_table[HC_WATCHES], *hc_running;
static struct {
	struct xs_watch	*watch;		/* NULL: it is there no more */
	char		 path[64];
} hc_events[HC_EVENTS];
static u_int hc_first, hc_end;

static struct hc_node *
hc_node(const char *path)
{
	struct hc_node *node;

	for (node = hc_nodes; node < hc_nodes + HC_NODES; node++)
		if (strcmp(node->path, path) == 0)
			return (node);
	return (NULL);
}

const char *
hc_get(const char *path)
{
	struct hc_node *node = hc_node(path);

	return (node != NULL ? node->value : NULL);
}

static void
hc_store(const char *path, const char *value)
{
	struct hc_node *node = hc_node(path);

	if (value == NULL) {
		if (node != NULL)
			memset(node, 0, sizeof(*node));
		return;
	}
	if (node == NULL)
		node = hc_node("");
	CHECK(node != NULL, "too many nodes");
	strlcpy(node->path, path, sizeof(node->path));
	strlcpy(node->value, value, sizeof(node->value));
}

static void
hc_queue(struct xs_watch *xw, const char *path)
{

	/* As the core does. */
	if (xw->max_pending != 0 && xw->pending >= xw->max_pending)
		return;
	xw->pending++;
	CHECK(hc_end - hc_first < HC_EVENTS, "too many events");
	hc_events[hc_end % HC_EVENTS].watch = xw;
	strlcpy(hc_events[hc_end++ % HC_EVENTS].path, path, sizeof(hc_events[0].path));
	wakeup(&hc_end);
}

void
hc_burst(const char *path, u_int n)
{
	u_int i;
	size_t len;

	while (n-- > 0)
		for (i = 0; i < HC_WATCHES; i++) {
			if (hc_table[i] == NULL)
				continue;
			len = strlen(hc_table[i]->node);
			if (strncmp(path, hc_table[i]->node, len) == 0 &&
			    (path[len] == '\0' || path[len] == '/'))
				hc_queue(hc_table[i], path);
		}
}

void
hc_set(const char *path, const char *value)
{

	hc_store(path, value);
	hc_burst(path, 1);
}

static void
hc_thread(void *arg __unused)
{
	struct xs_watch *xw;
	const char *vec[2];
	u_int i;

	for (;;) {
		while (hc_first == hc_end)
			(void)tsleep(&hc_end, 0, "xenwatch", 0);
		i = hc_first++ % HC_EVENTS;
		xw = hc_events[i].watch;
		if (xw == NULL)
			continue;
		xw->pending--;
		hc_running = xw;
		vec[XS_WATCH_PATH] = hc_events[i].path;
		vec[XS_WATCH_TOKEN] = "core";
		xw->callback(xw, hc_pathless ? NULL : vec, hc_pathless ? 0 : 2);
		hc_running = NULL;
		wakeup(&hc_running);
	}
}

void
hc_begin(void)
{

	hc_room = 4096;
	hc_part = 16;
	hc_generation = "1";
	hc_next_tx = 1;
	hc_refs_left = HC_REFS - 8;
	hc_query_frames = 2;
	kpi_thread_start(hc_thread, NULL);
}

static void
hc_note(const char *fmt, ...)
{
	size_t at = strlen(hc_log);
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(hc_log + at, sizeof(hc_log) - at, fmt, ap);
	va_end(ap);
}

int
xs_register_watch(struct xs_watch *watch)
{
	u_int i;

	CHECK(kpi_mutexes == 0, "a mutex is held");
	CHECK(watch->max_pending > 0 && watch->pending == 0, "any number of events");
	hc_asked++;
	hc_asked_at = ticks;
	hc_note("w%s ", watch->node);
	while (hc_silent)
		(void)pause("xsreq", 1);
	if (hc_no_watch != 0)
		return (hc_no_watch);
	for (i = 0; i < HC_WATCHES && hc_table[i] != NULL; i++)
		CHECK(hc_table[i] != watch, "twice");
	CHECK(i < HC_WATCHES, "too many watches");
	hc_table[i] = watch;
	hc_watches++;
	hc_queue(watch, watch->node);
	return (0);
}

void
xs_unregister_watch(struct xs_watch *watch)
{
	u_int i;

	CHECK(kpi_mutexes == 0, "a mutex is held");
	hc_note("u%s ", watch->node);
	while (hc_silent)
		(void)pause("xsreq", 1);
	for (i = 0; i < HC_WATCHES && hc_table[i] != watch; i++)
		continue;
	/* One that was not set, which the core ignores. */
	if (i == HC_WATCHES)
		return;
	hc_table[i] = NULL;
	hc_watches--;
	for (i = hc_first; i != hc_end; i++)
		if (hc_events[i % HC_EVENTS].watch == watch)
			hc_events[i % HC_EVENTS].watch = NULL;
	while (hc_running == watch)
		(void)tsleep(&hc_running, 0, "xsunwatch", 0);
}

/* Names of the children of a directory, each with its NUL, from offset `from'.  Returns their bytes. */
static size_t
hc_names(const char *dir, char *to, size_t size)
{
	size_t at = 0, n = strlen(dir);
	const char *name;
	u_int i;

	for (i = 0; i < HC_NODES; i++) {
		if (strncmp(hc_nodes[i].path, dir, n) != 0 || hc_nodes[i].path[n] != '/')
			continue;
		name = hc_nodes[i].path + n + 1;
		CHECK(at + strlen(name) + 1 <= size, "too many names");
		strlcpy(to + at, name, size - at);
		at += strlen(name) + 1;
	}
	return (at);
}

static const char *
hc_end_tx(uint32_t id, bool commit)
{

	CHECK(id > 0 && (id < HC_TXS || hc_id != NULL), "transaction %u", id);
	if (id >= HC_TXS || !hc_txs[id])
		return ("ENOENT");
	hc_txs[id] = false;
	hc_transactions--;
	if (commit && hc_conflicts == 0)
		return (NULL);
	memcpy(hc_nodes, hc_before, sizeof(hc_nodes));
	if (!commit)
		return (NULL);
	hc_conflicts--;
	return ("EAGAIN");
}

static u_int
hc_begin_tx(void)
{
	u_int id = hc_next_tx++ % HC_TXS;

	if (id == 0)
		id = hc_next_tx++ % HC_TXS;
	CHECK(!hc_txs[id], "too many transactions");
	hc_txs[id] = true;
	hc_transactions++;
	memcpy(hc_before, hc_nodes, sizeof(hc_nodes));
	return (id);
}

/* xenstored: the answer, of *len bytes; or returns the name of an error. */
static const char *
hc_answer(struct xsd_sockmsg *msg, char *answer, size_t size, size_t *len)
{
	const char *body = (const char *)(msg + 1), *more = body + strlen(body) + 1;
	char names[4200];
	size_t n, off;

	switch (msg->type) {
	case XS_READ:
	case XS_RM:
		CHECK(msg->len == strlen(body) + 1, "%u bytes", msg->len);
		if (hc_get(body) == NULL)
			return ("ENOENT");
		*len = strlcpy(answer, msg->type == XS_READ ? hc_get(body) : "OK", size);
		if (msg->type == XS_RM)
			hc_store(body, NULL);
		else if (strcmp(body, "nul") == 0)
			(*len)++;
		return (NULL);
	case XS_WRITE:
		/* The value has no NUL. */
		n = msg->len - (more - body);
		CHECK(n < sizeof(names), "%zu bytes", n);
		memcpy(names, more, n);
		names[n] = '\0';
		hc_store(body, names);
		*len = strlcpy(answer, "OK", size) + 1;
		return (NULL);
	case XS_DIRECTORY:
		*len = hc_names(body, answer, size);
		return (*len == 0 ? "ENOENT" : *len > hc_room ? "E2BIG" : NULL);
	case XS_DIRECTORY_PART:
		CHECK(msg->len == strlen(body) + 1 + strlen(more) + 1, "%u bytes", msg->len);
		if (hc_parted != NULL)
			hc_parted();
		off = strtoul(more, NULL, 10);
		if (hc_endless) {
			*len = strlcpy(answer, hc_generation, size) + 1;
			memset(answer + *len, 'n', 1000);
			*len += 1000;
			answer[*len - 1] = '\0';
			return (NULL);
		}
		n = hc_names(body, names, sizeof(names));
		CHECK(off <= n, "%zu of %zu bytes", off, n);
		*len = strlcpy(answer, hc_generation, size) + 1;
		/* Whole names. */
		while (n - off > hc_part && names[off + hc_part - 1] != '\0')
			hc_part++;
		memcpy(answer + *len, names + off, MIN(n - off, hc_part));
		*len += MIN(n - off, hc_part);
		if (n - off <= hc_part)
			answer[(*len)++] = '\0';
		return (NULL);
	case XS_TRANSACTION_START:
		CHECK(msg->tx_id == 0 && msg->len == 1, "in a transaction");
		if (hc_id != NULL)
			*len = strlcpy(answer, hc_id, size) + 1;
		else
			*len = snprintf(answer, size, "%u", hc_begin_tx()) + 1;
		return (NULL);
	case XS_TRANSACTION_END:
		CHECK(msg->len == 2 && (strcmp(body, "T") == 0 || strcmp(body, "F") == 0), "%s", body);
		*len = strlcpy(answer, "OK", size) + 1;
		return (hc_end_tx(msg->tx_id, body[0] == 'T'));
	default:
		CHECK(false, "type %u", msg->type);
		return ("ENOSYS");
	}
}

static const char *const hc_letters[] = {
	[XS_DIRECTORY] = "D",
	[XS_DIRECTORY_PART] = "P",
	[XS_READ] = "R",
	[XS_RM] = "M",
	[XS_TRANSACTION_END] = "E",
	[XS_TRANSACTION_START] = "S",
	[XS_WRITE] = "W",
};

int
xs_dev_request_and_reply(struct xsd_sockmsg *msg, void **result)
{
	char answer[1024] = "";
	const char *error;
	size_t len = 0;

	CHECK(kpi_mutexes == 0 && *result == NULL, "a mutex is held");
	CHECK(msg->tx_id < HC_TXS || hc_id != NULL, "transaction %u", msg->tx_id);
	hc_asked++;
	hc_asked_at = ticks;
	hc_note("%s%.*s ", hc_letters[msg->type], (int)msg->len, (char *)(msg + 1));
	while (hc_silent)
		(void)pause("xsreq", 1);
	if (hc_failure != 0)
		return (hc_failure);
	if (hc_refuse_nth > 0 && --hc_refuse_nth == 0) {
		error = hc_refuse;
		if (msg->type == XS_TRANSACTION_END)
			(void)hc_end_tx(msg->tx_id, false);
	} else
		error = hc_answer(msg, answer, sizeof(answer), &len);
	if (error != NULL) {
		msg->type = XS_ERROR;
		len = strlcpy(answer, error, sizeof(answer)) + 1;
	}
	if (hc_type != 0)
		msg->type = hc_type;
	if (error == NULL)
		len -= MIN(len, hc_cut);
	msg->len = len;
	*result = malloc(len + 1, M_XENSTORE, M_WAITOK);
	memcpy(*result, answer, len);
	((char *)*result)[len] = '\0';
	return (0);
}

/* The grant table. */

struct hc_ref hc_refs[HC_REFS];
u_int hc_refs_left, hc_refs_asked;
int hc_query_error, hc_query_status;
u_int hc_query_frames;
static grant_ref_t hc_links[HC_REFS];

int
HYPERVISOR_grant_table_op(unsigned int cmd, void *args, unsigned int count)
{
	struct gnttab_query_size *query = args;

	CHECK(cmd == GNTTABOP_query_size && count == 1, "operation %u", cmd);
	CHECK(query->dom == DOMID_SELF, "domain %u", query->dom);
	query->status = hc_query_status;
	query->max_nr_frames = hc_query_frames;
	return (hc_query_error);
}

int
gnttab_alloc_grant_references(uint16_t count, grant_ref_t *head)
{
	u_int i;

	hc_refs_asked++;
	if (count > hc_refs_left)
		return (ENOSPC);
	hc_refs_left -= count;
	*head = GNTTAB_LIST_END;
	for (i = 8; count > 0; i++) {
		CHECK(i < HC_REFS, "none is left");
		if (hc_refs[i].hr_out)
			continue;
		hc_refs[i].hr_out = true;
		hc_links[i] = *head;
		*head = i;
		count--;
	}
	return (0);
}

static struct hc_ref *
hc_ref(grant_ref_t ref)
{

	CHECK(ref >= 8 && ref < HC_REFS && hc_refs[ref].hr_out, "reference %u is not ours", ref);
	return (&hc_refs[ref]);
}

void
gnttab_free_grant_references(grant_ref_t head)
{

	for (; head != GNTTAB_LIST_END; head = hc_links[head]) {
		CHECK(!hc_ref(head)->hr_granted, "%u grants something", head);
		hc_refs[head].hr_out = false;
		hc_refs_left++;
	}
}

int
gnttab_claim_grant_reference(grant_ref_t *head)
{
	grant_ref_t ref = *head;

	if (ref != GNTTAB_LIST_END)
		*head = hc_links[ref];
	return (ref);
}

void
gnttab_release_grant_reference(grant_ref_t *head, grant_ref_t ref)
{

	(void)hc_ref(ref);
	hc_links[ref] = *head;
	*head = ref;
}

void
gnttab_grant_foreign_access_ref(grant_ref_t ref, domid_t domid, unsigned long frame, int flags)
{
	struct hc_ref *hr = hc_ref(ref);

	CHECK(!hr->hr_granted, "%u grants another page", ref);
	hr->hr_granted = true;
	hr->hr_readonly = flags != 0;
	hr->hr_domid = domid;
	hr->hr_frame = frame;
}

int
gnttab_query_foreign_access(grant_ref_t ref)
{

	return (hc_ref(ref)->hr_mapped);
}

int
gnttab_end_foreign_access_ref(grant_ref_t ref)
{

	CHECK(!hc_ref(ref)->hr_mapped, "%u is mapped: the core leaks it", ref);
	hc_refs[ref].hr_granted = false;
	return (1);
}

/* Event channels. */

static shared_info_t hc_shared;
shared_info_t *HYPERVISOR_shared_info = &hc_shared;
struct hc_channel *hc_last;
int hc_channels, hc_bind_error;
u_int hc_unmasked, hc_early;
static evtchn_port_t hc_next_port = 60;

int
HYPERVISOR_event_channel_op(int cmd, void *arg)
{
	evtchn_port_t port = ((evtchn_unmask_t *)arg)->port;

	CHECK(cmd == EVTCHNOP_unmask && port != 0 && port < EVTCHN_2L_NR_CHANNELS, "operation %d", cmd);
	hc_shared.evtchn_mask[port / 64] &= ~(1UL << port % 64);
	hc_unmasked++;
	return (0);
}

bool
hc_event(struct hc_channel *ch)
{
	evtchn_port_t port = ch->ch_port;

	if ((hc_shared.evtchn_mask[port / 64] >> port % 64 & 1) != 0)
		return (false);
	if (ch->ch_filter != NULL && ch->ch_filter(ch->ch_arg) != FILTER_SCHEDULE_THREAD)
		return (false);
	if (ch->ch_handler == NULL)
		return (false);
	ch->ch_handler(ch->ch_arg);
	return (true);
}

int
xen_intr_alloc_and_bind_local_port(device_t dev, u_int remote_domain, driver_filter_t filter,
    driver_intr_t handler, void *arg, enum intr_type irqflags, xen_intr_handle_t *handlep)
{
	struct hc_channel *ch;
	u_int i;

	CHECK(dev != NULL && kpi_mutexes == 0 && (filter != NULL || handler != NULL), "no device");
	if (hc_bind_error != 0)
		return (hc_bind_error);
	ch = host_alloc(sizeof(*ch), sizeof(void *));
	*ch = (struct hc_channel){ .ch_dev = dev, .ch_remote = remote_domain, .ch_filter = filter,
	    .ch_handler = handler, .ch_arg = arg, .ch_type = irqflags, .ch_port = hc_next_port++ };
	hc_last = ch;
	hc_channels++;
	for (i = 0; i < hc_early; i++)
		CHECK(hc_event(ch), "event %u was not handled", i);
	for (i = 0; i < nitems(hc_shared.evtchn_mask); i++)
		CHECK(hc_early == 0 || hc_shared.evtchn_mask[i] == 0, "a port of word %u is masked", i);
	*handlep = ch;
	return (0);
}

void
xen_intr_unbind(xen_intr_handle_t *handle)
{

	evtchn_port_t port = ((struct hc_channel *)*handle)->ch_port;

	CHECK(kpi_mutexes == 0, "a mutex is held");
	hc_shared.evtchn_mask[port / 64] &= ~(1UL << port % 64);
	host_free(*handle);
	*handle = NULL;
	hc_channels--;
}

int
xen_intr_describe(xen_intr_handle_t handle, const char *fmt, ...)
{
	struct hc_channel *ch = handle;
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(ch->ch_name, sizeof(ch->ch_name), fmt, ap);
	va_end(ap);
	return (0);
}

void
xen_intr_signal(xen_intr_handle_t handle)
{

	((struct hc_channel *)handle)->ch_signals++;
}

evtchn_port_t
xen_intr_port(xen_intr_handle_t handle)
{

	return (((struct hc_channel *)handle)->ch_port);
}
