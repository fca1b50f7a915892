/*
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * What becomes of the guest behind a console, asked of Xen and xenstored themselves: a shell would
 * start a dozen programs for it, of which each takes dom0 some hundredths of a second.
 *
 * usage: console ended ID NAME alone|shared paused|running
 *        console find NAME TTY once|wait
 *
 *   ended  Wait for the domain's end, and end the console: the group of processes that this is in,
 *          which are killed by SIGTERM, but for this one.  A guest that is alone in its lab is not
 *          waited for after its shutdown; the exit status is then REASONS and Xen's reason.  Any
 *          other is removed by its xl; or here, as xl stops watching a guest that was saved once
 *          (save -c, or a save that failed).  A paused PVH guest is made to run first, when the
 *          console may be expected to be joined.
 *   find   Print the number of the domain of that name as soon as it has the node TTY in xenstore.
 *          Exit status NONE if there is no such domain, which with wait is waited for; LOOK_AGAIN
 *          if meanwhile a domain has shut down or was removed.
 */

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xenctrl.h>
#include <xenstore.h>

/* Exit statuses. */
#define USAGE		2
#define NONE		3
#define LOOK_AGAIN	4
#define REASONS		64

/* A xenstored that was restarted tells nothing about what was watched before. */
#define LOOK_MS		5000
#define AGAIN_US	100000
#define US_PER_S	1000000

static struct xs_handle *xs;
static xc_interface *xc;

/* Whether there is a domain of that number: info is Xen's. */
static bool
is_there(uint32_t id, xc_dominfo_t *info)
{
	return (xc_domain_getinfo(xc, id, 1, info) == 1 && info->domid == id);
}

/* Wait for Xen's next shutdown or removal of a domain, or for LOOK_MS. */
static void
wait_for_release(void)
{
	struct pollfd fd = { .fd = xs_fileno(xs), .events = POLLIN };
	char **event = NULL;

	if (poll(&fd, 1, LOOK_MS) > 0)
		event = xs_check_watch(xs);
	/* That xenstored has ended is there to be read again and again. */
	if (event == NULL)
		usleep(AGAIN_US);
	free(event);
}

/* libxenctrl has a crash for no shutdown. */
static bool
has_shut_down(const xc_dominfo_t *info)
{
	return (info->crashed || (info->shutdown && info->shutdown_reason != SHUTDOWN_suspend));
}

/* Have a domain destroyed that has shut down, with the reason in its log, as by its xl. */
static void
destroy(const char *name, unsigned int reason)
{
	char command[512];

	snprintf(command, sizeof(command),
	    "echo has shut down, reason code %u >>/var/log/xen/xl-%s.log; xl destroy %s", reason,
	    name, name);
	if (system(command) != 0)
		perror("xl destroy");
}

static int
ended(uint32_t id, const char *name, bool alone, bool paused)
{
	xc_dominfo_t info;
	int status = 0;

	xs_watch(xs, "@releaseDomain", "");
	if (paused) {
		usleep(AGAIN_US);
		xc_domain_unpause(xc, id);
	}
	while (is_there(id, &info) && !has_shut_down(&info))
		wait_for_release();
	/* The console has still to print the end, and xl to remove the guest. */
	usleep(alone ? AGAIN_US : US_PER_S);
	if (!is_there(id, &info)) {
		if (alone)
			usleep(US_PER_S - AGAIN_US);
	} else if (alone)
		status = REASONS + info.shutdown_reason;
	else
		destroy(name, info.shutdown_reason);
	signal(SIGTERM, SIG_IGN);
	kill(0, SIGTERM);
	return (status);
}

/* The number of the domain of a name; 0: none. */
static unsigned int
number_of(const char *name)
{
	char path[64], *value, **ids;
	unsigned int count = 0, found = 0, i, length;

	ids = xs_directory(xs, XBT_NULL, "/local/domain", &count);
	for (i = 0; i < count && found == 0; i++) {
		snprintf(path, sizeof(path), "/local/domain/%s/name", ids[i]);
		value = xs_read(xs, XBT_NULL, path, &length);
		if (value != NULL && strcmp(value, name) == 0)
			found = strtoul(ids[i], NULL, 10);
		free(value);
	}
	free(ids);
	return (found);
}

static bool
has_node(unsigned int number, const char *node)
{
	char path[128], *value;
	unsigned int length;

	snprintf(path, sizeof(path), "/local/domain/%u/%s", number, node);
	value = xs_read(xs, XBT_NULL, path, &length);
	free(value);
	return (value != NULL);
}

static int
find(const char *name, const char *tty, bool wait)
{
	unsigned int number;
	char **event;

	/* The first event comes at once. */
	xs_watch(xs, "@releaseDomain", "");
	free(xs_read_watch(xs, &number));
	while ((number = number_of(name)) == 0 || !has_node(number, tty)) {
		if (number == 0 && !wait)
			return (NONE);
		event = xs_check_watch(xs);
		free(event);
		if (event != NULL)
			return (LOOK_AGAIN);
		usleep(AGAIN_US);
	}
	printf("%u\n", number);
	return (0);
}

int
main(int argc, char **argv)
{
	xs = xs_open(0);
	xc = xc_interface_open(NULL, NULL, 0);
	if (xs == NULL || xc == NULL)
		return (USAGE);
	if (argc == 6 && strcmp(argv[1], "ended") == 0)
		return (ended(strtoul(argv[2], NULL, 10), argv[3], strcmp(argv[4], "alone") == 0,
		    strcmp(argv[5], "paused") == 0));
	if (argc == 5 && strcmp(argv[1], "find") == 0)
		return (find(argv[2], argv[3], strcmp(argv[4], "wait") == 0));
	return (USAGE);
}
