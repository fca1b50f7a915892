/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Of geli(8), which a base set of programs without libraries does not have, what `tools/bench field'
 * needs: a disk that is encrypted with a key that nobody knows, until it is detached.
 *
 *	geli onetime -e EALGO -l KEYLEN -s SECTORSIZE PROVIDER
 *	geli detach PROVIDER
 *
 * They are requests of geom(4)'s control device, as geom/geom_ctl.h lays them out, and what GEOM_ELI
 * asks of them.  Exit status: 0, or 1 with what the kernel said.
 */

#include <sys/types.h>
#include <sys/ioccom.h>
#include <sys/ioctl.h>

#include <geom/geom_ctl.h>

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define	MAX_ARGS	12

static struct gctl_req_arg args[MAX_ARGS];
static unsigned int nargs;
static char message[256];
static int one = 1, zero;
static uint32_t version = 7;	/* of GEOM_ELI's metadata, since FreeBSD 10 */
static intmax_t keylen, sectorsize;

static void
say(const char *text)
{
	(void)write(STDERR_FILENO, text, strlen(text));
}

static void
add(const char *name, const void *value, size_t len, int flag)
{
	struct gctl_req_arg *arg = &args[nargs++];

	arg->name = __DECONST(char *, name);
	arg->nlen = strlen(name) + 1;
	arg->value = __DECONST(void *, value);
	arg->len = len;
	arg->flag = GCTL_PARAM_RD | flag;
}

static void
add_text(const char *name, const char *value)
{
	add(name, value, strlen(value) + 1, GCTL_PARAM_ASCII);
}

static int
ask(void)
{
	struct gctl_req req = { .version = GCTL_VERSION, .narg = nargs, .arg = args,
	    .error = message, .lerror = sizeof(message) };
	int fd = open("/dev/" PATH_GEOM_CTL, O_RDONLY);

	if (fd == -1 || ioctl(fd, GEOM_CTL, &req) == -1 || message[0] != '\0') {
		say("geli: ");
		say(message[0] != '\0' ? message : "the request failed");
		say("\n");
		return (1);
	}
	return (0);
}

int
main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";

	if (argc == 9 && strcmp(verb, "onetime") == 0 && strcmp(argv[2], "-e") == 0 &&
	    strcmp(argv[4], "-l") == 0 && strcmp(argv[6], "-s") == 0) {
		keylen = strtoul(argv[5], NULL, 10);
		sectorsize = strtoul(argv[7], NULL, 10);
		add_text("ealgo", argv[3]);
		add_text("aalgo", "");
		add("keylen", &keylen, sizeof(keylen), 0);
		add("sectorsize", &sectorsize, sizeof(sectorsize), 0);
		add("detach", &zero, sizeof(zero), 0);
		add("noautoresize", &zero, sizeof(zero), 0);
		add("notrim", &zero, sizeof(zero), 0);
		add_text("arg0", argv[8]);
	} else if (argc == 3 && strcmp(verb, "detach") == 0) {
		add("force", &zero, sizeof(zero), 0);
		add("last", &zero, sizeof(zero), 0);
		add_text("arg0", argv[2]);
	} else {
		say("usage: geli onetime -e ealgo -l keylen -s sectorsize provider |\n"
		    "    detach provider\n");
		return (2);
	}
	add_text("class", "ELI");
	add_text("verb", verb);
	add("version", &version, sizeof(version), 0);
	add("nargs", &one, sizeof(one), 0);
	return (ask());
}
