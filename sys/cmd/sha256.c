/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * sha256(1), of devices and files in memory.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/fcntl.h>
#include <sys/malloc.h>

#include <crypto/sha2/sha256.h>

#include <cmd/cmd_bytes.h>
#include <kern/console_tree.h>

#define	SHA256_BUFSIZE	(128 * 1024)

static int
sha256_path(const char *path, char hex[2 * SHA256_DIGEST_LENGTH + 1])
{
	unsigned char digest[SHA256_DIGEST_LENGTH];
	struct cmd_bytes b;
	SHA256_CTX ctx;
	size_t len;
	off_t off = 0;
	char *buf;
	int error, i;

	error = cmd_bytes_open(&b, path, FREAD, false);
	if (error != 0)
		return (error);
	buf = malloc(SHA256_BUFSIZE, M_TEMP, M_WAITOK);
	SHA256_Init(&ctx);
	do {
		len = SHA256_BUFSIZE;
		error = cmd_bytes_read(&b, off, buf, &len);
		SHA256_Update(&ctx, buf, len);
		off += len;
		if (cmd_interrupted())
			error = EINTR;
	} while (error == 0 && len > 0);
	SHA256_Final(digest, &ctx);
	free(buf, M_TEMP);
	cmd_bytes_close(&b);
	for (i = 0; i < SHA256_DIGEST_LENGTH; i++)
		snprintf(hex + 2 * i, 3, "%02x", digest[i]);
	return (error);
}

/* As sha256(1) prints it; check is a digest that it has to be, or NULL.  False if it is not. */
static bool
sha256_print(const char *path, const char *hex, const char *check, bool quiet, bool reverse)
{
	bool same = check == NULL || strcasecmp(hex, check) == 0;

	if (quiet)
		printf("%s", hex);
	else if (reverse)
		printf("%s %s", hex, path);
	else
		printf("SHA256 (%s) = %s", path, hex);
	printf("%s\n", same ? "" : " [ Failed ]");
	return (same);
}

static int
cmd_sha256(int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	char hex[2 * SHA256_DIGEST_LENGTH + 1];
	const char *check = NULL;
	bool quiet = false, reverse = false;
	int c, error, i, status = 0;

	while ((c = cmd_getopt(&g, argc, argv, "c:qr")) != -1) {
		if (c == 'c')
			check = g.optarg;
		else if (c == 'q')
			quiet = true;
		else if (c == 'r')
			reverse = true;
		else
			return (cmd_usage("sha256"));
	}
	if (g.optind == argc)
		return (cmd_usage("sha256"));
	for (i = g.optind; i < argc; i++) {
		error = sha256_path(argv[i], hex);
		if (error != 0)
			status = cmd_err("sha256", error, "%s", argv[i]);
		else if (!sha256_print(argv[i], hex, check, quiet, reverse))
			status = 2;
	}
	return (status);
}
CONSOLE_CMD(sha256, cmd_sha256, "print the SHA-256 digest of files and devices",
    "sha256 [-qr] [-c digest] file ...");
