/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What a front end's driver reads from xenstore and writes to it; see xenbus.h.
 *
 * Trust.  What the back end's directory holds was written by another domain.  A
 * number is digits and nothing else, and in bounds; a string has a length and
 * no NUL inside.  Each is read once: a value that was checked is the value that
 * is used.
 *
 * A back end may write invalid values at any rate: messages about a front end
 * are limited to a few at a time (xenbus_say()), and those that were not
 * printed are counted.
 *
 * Locking.  None: strings of the ivars do not change while a method runs, and
 * these are called from methods.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/ctype.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>

#include <machine/atomic.h>
#include <machine/stdarg.h>

#include <dev/pv/dev/pv_dev.h>
#include <dev/xen/xenbus.h>
#include <dev/xen/xenbus_var.h>

#define	XENBUS_SHOWN	40	/* bytes of a strange value in a message */
#define	XENBUS_SAYLEN	256
#define	XENBUS_MORE_QUEUES 60	/* of all front ends,
				 * beside the first of each */
#define	XENBUS_SAY_BURST 32
#define	XENBUS_SAY_SECS	10

uint64_t xenbus_invalid, xenbus_unsaid;
static volatile u_int xenbus_more_queues;

static const char *const xenbus_state_names[] = {
	[XenbusStateUnknown] = "Unknown",
	[XenbusStateInitialising] = "Initialising",
	[XenbusStateInitWait] = "InitWait",
	[XenbusStateInitialised] = "Initialised",
	[XenbusStateConnected] = "Connected",
	[XenbusStateClosing] = "Closing",
	[XenbusStateClosed] = "Closed",
	[XenbusStateReconfiguring] = "Reconfiguring",
	[XenbusStateReconfigured] = "Reconfigured",
};

const char *const xenbus_phase_names[XB_NPHASES] = {
	[XB_IDLE] = "idle",
	[XB_WAIT] = "waiting",
	[XB_PUBLISHED] = "published",
	[XB_LIVE] = "live",
	[XB_CLOSING] = "closing",
	[XB_CLOSED] = "closed",
};

const char *
xenbus_state_name(enum xenbus_state state)
{

	if ((u_int)state >= nitems(xenbus_state_names))
		return ("Unknown");
	return (xenbus_state_names[state]);
}

bool
xenbus_allow(struct xenbus_limit *limit, u_int burst, u_int secs)
{
	u_int earned = (u_int)(ticks - limit->xlm_since) / (secs * hz);

	if (earned >= limit->xlm_used) {
		limit->xlm_used = 0;
		limit->xlm_since = ticks;
	} else {
		limit->xlm_used -= earned;
		limit->xlm_since += earned * secs * hz;
	}
	if (limit->xlm_used >= burst)
		return (false);
	limit->xlm_used++;
	return (true);
}

void
xenbus_say(struct xenbus_child *xb, const char *fmt, ...)
{
	char text[XENBUS_SAYLEN];
	va_list ap;
	u_int unsaid = 0;
	bool allowed;

	mtx_lock(&xb->xb_mtx);
	allowed = xenbus_allow(&xb->xb_says, XENBUS_SAY_BURST, XENBUS_SAY_SECS);
	if (allowed) {
		unsaid = xb->xb_unsaid;
		xb->xb_unsaid = 0;
	} else
		xb->xb_unsaid++;
	mtx_unlock(&xb->xb_mtx);
	if (!allowed) {
		atomic_add_64(&xenbus_unsaid, 1);
		return;
	}
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (unsaid != 0)
		device_printf(xb->xb_dev, "%u messages were left out\n",
		    unsaid);
	device_printf(xb->xb_dev, "%s\n", text);
}

void
xenbus_warn(device_t dev, int error, const char *fmt, ...)
{
	struct xenbus_child *xb = xenbus_child_of(dev);
	char text[XENBUS_SAYLEN];
	va_list ap;

	if (xb->xb_tries != 0 && pv_dev_may_pass(error))
		return;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	xenbus_say(xb, "%s", text);
}

static const char *
xenbus_dir(device_t dev, enum xenbus_side side)
{
	struct xenbus_child *xb = xenbus_child_of(dev);

	return (side == XENBUS_FRONT ? xb->xb_node : xb->xb_path);
}

/* Report an invalid value, in printable characters only. */
static void
xenbus_complain(device_t dev, enum xenbus_side side, const char *name,
    const char *value, const char *what)
{
	char shown[XENBUS_SHOWN + 1];
	u_int i;

	for (i = 0; i < XENBUS_SHOWN && value[i] != '\0'; i++)
		shown[i] = isprint((u_char)value[i]) ? value[i] : '?';
	shown[i] = '\0';
	atomic_add_64(&xenbus_invalid, 1);
	xenbus_say(xenbus_child_of(dev), "%s end's \"%s\" is \"%s\"%s, %s",
	    side == XENBUS_FRONT ? "front" : "back", name, shown,
	    value[i] != '\0' ? "..." : "", what);
}

/*
 * Read a value of a directory; xb_unread if xenstore did not answer whether
 * there is one.
 */
static int
xenbus_read_text(device_t dev, enum xenbus_side side, const char *name,
    char **text, size_t *len)
{
	int error;

	error = xenstore_read(NULL, xenbus_dir(dev, side), name, text, len);
	if (error != 0 && !xenstore_is_missing(error))
		xenbus_child_of(dev)->xb_unread = true;
	return (error);
}

/* Digits only.  Returns what is wrong, or NULL. */
static const char *
xenbus_parse_number(const char *text, size_t len, uint64_t *value)
{
	uint64_t n;
	size_t i;

	if (len == 0)
		return ("not a number");
	n = 0;
	for (i = 0; i < len; i++) {
		if (!isdigit((u_char)text[i]))
			return ("not a number");
		if (n > (UINT64_MAX - (text[i] - '0')) / 10)
			return ("more than a number can be");
		n = n * 10 + (text[i] - '0');
	}
	*value = n;
	return (NULL);
}

int
xenbus_read_number(device_t dev, enum xenbus_side side, const char *name,
    uint64_t min, uint64_t max, uint64_t *value)
{
	const char *wrong;
	char *text;
	uint64_t n;
	size_t len;
	int error;

	error = xenbus_read_text(dev, side, name, &text, &len);
	if (error != 0)
		return (error);
	wrong = xenbus_parse_number(text, len, &n);
	if (wrong == NULL && (n < min || n > max))
		wrong = n < min ? "too small" : "too large";
	if (wrong != NULL)
		xenbus_complain(dev, side, name, text, wrong);
	else
		*value = n;
	xenstore_free(text);
	return (wrong != NULL ? EINVAL : 0);
}

int
xenbus_read_setting(device_t dev, enum xenbus_side side, const char *name,
    uint64_t min, uint64_t max, uint64_t otherwise, uint64_t *value)
{
	int error;

	error = xenbus_read_number(dev, side, name, min, max, value);
	if (error == EINVAL || xenstore_is_missing(error)) {
		*value = otherwise;
		error = 0;
	}
	return (error);
}

uint64_t
xenbus_read_option(device_t dev, enum xenbus_side side, const char *name,
    uint64_t max, uint64_t otherwise)
{
	uint64_t value;

	if (xenbus_read_number(dev, side, name, 0, UINT64_MAX, &value) != 0)
		return (otherwise);
	return (MIN(value, max));
}

bool
xenbus_feature(device_t dev, const char *name)
{

	return (xenbus_read_option(dev, XENBUS_BACK, name, UINT64_MAX, 0) != 0);
}

int
xenbus_read_string(device_t dev, enum xenbus_side side, const char *name,
    char *buf, size_t size)
{
	char *text;
	size_t len;
	int error;

	buf[0] = '\0';
	error = xenbus_read_text(dev, side, name, &text, &len);
	if (error != 0)
		return (error);
	if (len >= size || strlen(text) != len) {
		xenbus_complain(dev, side, name, text, len >= size ? "too long"
		    : "cut short");
		error = EMSGSIZE;
	} else
		memcpy(buf, text, len + 1);
	xenstore_free(text);
	return (error);
}

void
xenbus_return_queues(struct xenbus_child *xb)
{

	atomic_add_int(&xenbus_more_queues, -xb->xb_more_queues);
	xb->xb_more_queues = 0;
}

u_int
xenbus_queues(device_t dev, u_int wanted)
{
	struct xenbus_child *xb = xenbus_child_of(dev);
	u_int more = wanted - 1, others;

	xenbus_return_queues(xb);
	others = atomic_fetchadd_int(&xenbus_more_queues, more);
	xb->xb_more_queues = others >= XENBUS_MORE_QUEUES ? 0 :
	    MIN(more, XENBUS_MORE_QUEUES - others);
	atomic_add_int(&xenbus_more_queues, xb->xb_more_queues - more);
	return (1 + xb->xb_more_queues);
}

bool
xenbus_has_queues(void)
{

	return (atomic_load_int(&xenbus_more_queues) < XENBUS_MORE_QUEUES);
}

struct xenbus_publish {
	device_t	 dev;
	int		(*fn)(device_t, struct xenstore_tx *, void *);
	void		*arg;
};

static int
xenbus_publish_tx(struct xenstore_tx *tx, void *arg)
{
	struct xenbus_publish *p = arg;

	return (p->fn(p->dev, tx, p->arg));
}

int
xenbus_publish(device_t dev,
    int (*fn)(device_t dev, struct xenstore_tx *tx, void *arg), void *arg)
{
	struct xenbus_publish p = { dev, fn, arg };

	return (xenstore_transaction(xenbus_publish_tx, &p));
}

int
xenbus_write_number(device_t dev, struct xenstore_tx *tx, const char *name,
    uint64_t value)
{

	return (xenstore_printf(tx, xenbus_dir(dev, XENBUS_FRONT), name,
	    "%ju", (uintmax_t)value));
}

int
xenbus_write_string(device_t dev, struct xenstore_tx *tx, const char *name,
    const char *value)
{

	return (xenstore_write(tx, xenbus_dir(dev, XENBUS_FRONT), name, value));
}

int
xenbus_remove(device_t dev, struct xenstore_tx *tx, const char *name)
{

	return (xenstore_remove(tx, xenbus_dir(dev, XENBUS_FRONT), name));
}

/*
 * A number that may be missing, or invalid, without a message: *value is then
 * unchanged.  Returns 0, or an error if it is not known what there is.
 */
int
xenbus_peek(const char *dir, const char *name, uint64_t max, uint64_t *value)
{
	char *end, *text;
	u_long n;
	size_t len;
	int error;

	error = xenstore_read(NULL, dir, name, &text, &len);
	if (error != 0)
		return (xenstore_is_missing(error) ? 0 : error);
	n = strtoul(text, &end, 10);
	if (len > 0 && text[0] >= '0' && text[0] <= '9' && end == text + len &&
	    n <= max)
		*value = n;
	xenstore_free(text);
	return (0);
}

/*
 * Find the back end.  The toolstack writes it to our directory: a domain, and a
 * path in that domain's directory.  A path elsewhere is refused.
 */
int
xenbus_find_otherend(struct xenbus_child *xb, char *path, size_t size)
{
	char prefix[sizeof("/local/domain/65535/backend/")];
	uint64_t id;
	int error;

	error = xenbus_read_number(xb->xb_dev, XENBUS_FRONT, "backend-id", 0,
	    DOMID_FIRST_RESERVED - 1, &id);
	if (error == 0)
		error = xenbus_read_string(xb->xb_dev, XENBUS_FRONT,
		    "backend", path, size);
	if (error != 0)
		return (error);
	snprintf(prefix, sizeof(prefix), "/local/domain/%ju/backend/",
	    (uintmax_t)id);
	if (strncmp(path, prefix, strlen(prefix)) != 0) {
		xenbus_say(xb,
		    "back end \"%s\" is not in domain %ju's directory", path,
		    (uintmax_t)id);
		return (EINVAL);
	}
	xb->xb_otherend = id;
	return (0);
}
