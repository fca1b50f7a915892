/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Requests of the administrator (docs/misc/xenstore-paths of Xen): a word that
 * the toolstack writes to control/shutdown, a letter to control/sysrq.
 *
 * A request is acknowledged by emptying the node, in the transaction that read
 * it: then the toolstack can distinguish a domain that has read it from one
 * that has not, and a request is acted on once.  One to suspend is acknowledged
 * when nothing holds it up any more (xen_suspend.c).  What we can do is
 * announced in control/feature-*.
 *
 * Locking.  None: requests are handled in xenstore's thread for watches, one at
 * a time.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/ctype.h>
#include <sys/eventhandler.h>
#include <sys/kernel.h>
#include <sys/reboot.h>

#include <dev/xen/xen_var.h>
#include <dev/xen/xenstore.h>

#define	CONTROL_DIR	"control"
#define	CONTROL_WORDLEN	16

static device_t control_dev;

static const struct control_word {
	const char	*word;		/* in control/shutdown */
	const char	*feature;	/* that announces it */
	int		 howto;		/* shutdown_nice(9) */
} control_words[] = {
	{ "poweroff", "feature-poweroff", RB_POWEROFF },
	{ "reboot", "feature-reboot", RB_AUTOBOOT },
	{ "halt", "feature-halt", RB_HALT },
};

/*
 * The same letters as those of Linux's sysrq, which the toolstack's users know.
 */
static const struct control_letter {
	char		 letter;
	const char	*what;
	int		 howto;		/* kern_reboot(9), at once; -1: panic */
} control_letters[] = {
	{ 'b', "reboot at once", RB_AUTOBOOT | RB_NOSYNC },
	{ 'o', "power off at once", RB_POWEROFF | RB_NOSYNC },
	{ 'c', "panic", -1 },
};

/* Take the request out of a node: read it, and leave the node empty. */
struct control_take {
	const char	*node;
	char		 word[CONTROL_WORDLEN];
	bool		 suspension;	/* take a request to suspend only;
					 * else, all others */
};

static int
control_take_tx(struct xenstore_tx *tx, void *arg)
{
	struct control_take *take = arg;
	char *value;
	int error;

	take->word[0] = '\0';
	error = xenstore_read(tx, CONTROL_DIR, take->node, &value, NULL);
	if (error != 0)
		return (error);
	strlcpy(take->word, value, sizeof(take->word));
	xenstore_free(value);
	/* Empty, as this driver left it: no request. */
	if (take->word[0] == '\0' ||
	    (strcmp(take->word, "suspend") == 0) != take->suspension)
		return (ENOENT);
	return (xenstore_write(tx, CONTROL_DIR, take->node, ""));
}

/* Is there a request to suspend? */
static bool
control_wants_suspension(void)
{
	char *value;
	bool wanted;

	if (xenstore_read(NULL, CONTROL_DIR, "shutdown", &value, NULL) != 0)
		return (false);
	wanted = strcmp(value, "suspend") == 0;
	xenstore_free(value);
	return (wanted);
}

static bool
control_take(struct control_take *take, const char *node)
{
	char *c;
	int error;

	take->node = node;
	error = xenstore_transaction(control_take_tx, take);
	if (error != 0 && error != ENOENT)
		device_printf(control_dev,
		    "%s/%s can't be read and emptied (error %d)\n", CONTROL_DIR,
		    node, error);
	for (c = take->word; *c != '\0'; c++) {
		if (!isprint((u_char)*c))
			*c = '?';
	}
	return (error == 0);
}

/* Announce to the toolstack what is supported. */
static void
control_announce(void)
{
	u_int i;

	/* A toolstack that does not permit that does not read them either. */
	for (i = 0; i < nitems(control_words); i++)
		(void)xenstore_write(NULL, CONTROL_DIR,
		    control_words[i].feature, "1");
	(void)xenstore_write(NULL, CONTROL_DIR, "feature-suspend", "1");
	(void)xenstore_write(NULL, CONTROL_DIR, "feature-sysrq", "1");
}

static void
control_suspended(bool cancelled)
{

	if (!cancelled)
		control_announce();
}

/* Unless the toolstack has given up, or wants something else by now. */
static bool
control_take_suspension(void)
{
	struct control_take take = { .suspension = true };

	return (control_take(&take, "shutdown"));
}

static const struct xen_suspend_ops control_suspend_ops = {
	.xso_is_wanted = control_wants_suspension,
	.xso_take = control_take_suspension,
	.xso_done = control_suspended,
};

static void
control_shutdown_watch(struct xenstore_watch *w __unused,
    const char *path __unused)
{
	struct control_take take = { .suspension = false };
	u_int i;

	if (control_wants_suspension()) {
		xen_suspend_soon(&control_suspend_ops);
		return;
	}
	if (!control_take(&take, "shutdown"))
		return;
	for (i = 0; i < nitems(control_words); i++) {
		if (strcmp(take.word, control_words[i].word) != 0)
			continue;
		device_printf(control_dev, "the toolstack requests %s\n",
		    take.word);
		shutdown_nice(control_words[i].howto);
		return;
	}
	device_printf(control_dev,
	    "the toolstack requests \"%s\", which is not supported\n",
	    take.word);
}

static void
control_sysrq_watch(struct xenstore_watch *w __unused,
    const char *path __unused)
{
	struct control_take take = { .suspension = false };
	u_int i;

	if (!control_take(&take, "sysrq"))
		return;
	for (i = 0; i < nitems(control_letters); i++) {
		if (take.word[0] != control_letters[i].letter ||
		    take.word[1] != '\0')
			continue;
		device_printf(control_dev,
		    "sysrq: %s\n", control_letters[i].what);
		if (control_letters[i].howto < 0)
			panic("requested by the toolstack");
		kern_reboot(control_letters[i].howto);
		return;
	}
	device_printf(control_dev, "sysrq \"%s\": there are", take.word);
	for (i = 0; i < nitems(control_letters); i++)
		printf("%s %c (%s)", i == 0 ? "" : ",",
		    control_letters[i].letter, control_letters[i].what);
	printf("\n");
}

static struct xenstore_watch control_watches[] = {
	{ .xw_changed = control_shutdown_watch },
	{ .xw_changed = control_sysrq_watch },
};

static const char *const control_nodes[nitems(control_watches)] = { "shutdown",
    "sysrq" };

int
xen_control_init(device_t dev)
{
	u_int i;
	int error;

	control_dev = dev;
	for (i = 0; i < nitems(control_watches); i++) {
		error = xenstore_watch_add(&control_watches[i], CONTROL_DIR,
		    control_nodes[i]);
		if (error != 0) {
			device_printf(dev,
			    "%s/%s can't be watched (error %d)\n", CONTROL_DIR,
			    control_nodes[i], error);
			return (error);
		}
	}
	control_announce();
	return (0);
}

void
xen_control_fini(device_t dev __unused)
{
	u_int i;

	for (i = 0; i < nitems(control_watches); i++)
		xenstore_watch_remove(&control_watches[i]);
}
