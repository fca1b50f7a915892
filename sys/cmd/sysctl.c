/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * sysctl(8) at the console: the values of the tree as text.
 *
 * Gaps.  Structures are shown only as a dump (-o); there are no formats for temperatures and the
 * like.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/ctype.h>
#include <sys/limits.h>
#include <sys/malloc.h>
#include <sys/sysctl.h>

#include <kern/console_tree.h>
#include <kern/sysctl_tree.h>

static MALLOC_DEFINE(M_CMDSYSCTL, "cmdsysctl", "sysctl command");

#define	SYSCTL_BUFSIZE	65536

struct sysctl_opts {
	bool	all, descr, name, value, opaque, tunables, writable, ignore, types;
	char	sep;
};

static const char *const sysctl_typenames[CTLTYPE + 1] = {
	[CTLTYPE_NODE] = "node",
	[CTLTYPE_INT] = "integer",
	[CTLTYPE_UINT] = "unsigned integer",
	[CTLTYPE_LONG] = "long integer",
	[CTLTYPE_ULONG] = "unsigned long",
	[CTLTYPE_STRING] = "string",
	[CTLTYPE_OPAQUE] = "opaque",
	[CTLTYPE_S64] = "int64_t",
	[CTLTYPE_U64] = "uint64_t",
	[CTLTYPE_S32] = "int32_t",
	[CTLTYPE_U32] = "uint32_t",
	[CTLTYPE_S16] = "int16_t",
	[CTLTYPE_U16] = "uint16_t",
	[CTLTYPE_S8] = "int8_t",
	[CTLTYPE_U8] = "uint8_t",
};

static void
sysctl_print_numbers(int type, const char *fmt, const char *p, size_t len)
{
	u_int size = sysctl_numbers[type].size;
	bool hex = fmt != NULL && strchr(fmt, 'X') != NULL;
	const char *sep = "";
	uint64_t n;

	for (; len >= size; len -= size, p += size) {
		n = 0;
		memcpy(&n, p, size);
		if (sysctl_numbers[type].is_signed && !hex) {
			n = (int64_t)(n << (64 - size * NBBY)) >> (64 - size * NBBY);
			printf("%s%jd", sep, (intmax_t)n);
		} else if (hex)
			printf("%s%#jx", sep, (uintmax_t)n);
		else
			printf("%s%ju", sep, (uintmax_t)n);
		sep = " ";
	}
}

static void
sysctl_print_text(const char *buf, size_t len)
{
	size_t off, n;

	/* printf(9)'s precision is an int and a message may be long: line by line. */
	for (off = 0; off < len && buf[off] != '\0'; off += n) {
		n = strcspn(buf + off, "\n");
		if (buf[off + n] == '\n')
			n++;
		printf("%.*s", (int)n, buf + off);
	}
}

static void
sysctl_print_opaque(const struct sysctl_oid *oidp, const u_char *p, size_t len)
{
	size_t i;

	printf("Format:%s Length:%zu Dump:0x", oidp->oid_fmt, len);
	for (i = 0; i < len && i < 16; i++)
		printf("%02x", p[i]);
	if (len > 16)
		printf("...");
}

/* One value, without its name and without the end of the line. */
static void
sysctl_print_value(struct sysctl_oid *oidp, const char *buf, size_t len)
{
	int type = oidp->oid_kind & CTLTYPE;

	if (sysctl_numbers[type].size != 0)
		sysctl_print_numbers(type, oidp->oid_fmt, buf, len);
	else if (type == CTLTYPE_STRING)
		sysctl_print_text(buf, len);
	else
		sysctl_print_opaque(oidp, (const u_char *)buf, len);
}

static int
sysctl_show(struct sysctl_oid *oidp, const struct sysctl_opts *o, char *buf)
{
	char name[256];
	size_t len = SYSCTL_BUFSIZE - 1;
	int error;

	if ((o->tunables && (oidp->oid_kind & CTLFLAG_TUN) == 0) ||
	    (o->writable && (oidp->oid_kind & CTLFLAG_WR) == 0))
		return (0);
	sysctl_fullname(oidp, name, sizeof(name));
	if (o->name) {
		printf("%s\n", name);
		return (0);
	}
	if (o->descr || o->types) {
		if (!o->value)
			printf("%s%s", name, o->sep == '=' ? "=" : ": ");
		printf("%s\n", o->types ? sysctl_typenames[oidp->oid_kind & CTLTYPE] :
		    oidp->oid_descr != NULL ? oidp->oid_descr : "");
		return (0);
	}
	if ((oidp->oid_kind & CTLTYPE) == CTLTYPE_OPAQUE && !o->opaque)
		return (0);
	error = sysctl_io(oidp, buf, &len, NULL, 0);
	if (error != 0 && error != ENOMEM)
		return (error == ENOENT || error == ENXIO ? 0 :
		    cmd_err("sysctl", error, "%s", name));
	buf[len] = '\0';
	if (!o->value)
		printf("%s%s", name, o->sep == '=' ? "=" : ": ");
	sysctl_print_value(oidp, buf, len);
	printf("\n");
	return (0);
}

/* All values below parent (NULL: the root). */
static int
sysctl_show_tree(struct sysctl_oid *parent, const struct sysctl_opts *o, char *buf)
{
	struct sysctl_oid *next, *oidp = NULL;
	int status = 0;

	while (!cmd_interrupted()) {
		next = sysctl_hold_next(parent, oidp);
		if (oidp != NULL)
			sysctl_release(oidp);
		oidp = next;
		if (oidp == NULL)
			break;
		if (o->all && (oidp->oid_kind & CTLFLAG_SKIP) != 0)
			continue;
		if ((oidp->oid_kind & CTLTYPE) != CTLTYPE_NODE)
			status |= sysctl_show(oidp, o, buf);
		else if (oidp->oid_handler == NULL)
			status |= sysctl_show_tree(oidp, o, buf);
	}
	if (oidp != NULL)
		sysctl_release(oidp);
	return (status);
}

/* Sets the value and says so as the command does: name: old -> new. */
static int
sysctl_set(struct sysctl_oid *oidp, const char *value, const struct sysctl_opts *o, char *buf)
{
	char name[256], raw[sizeof(uint64_t)];
	const void *new = raw;
	size_t len = SYSCTL_BUFSIZE - 1, newlen;
	int error = 0;

	sysctl_fullname(oidp, name, sizeof(name));
	if ((oidp->oid_kind & CTLFLAG_WR) == 0) {
		if ((oidp->oid_kind & CTLFLAG_TUN) != 0)
			return (cmd_err("sysctl", 0, "oid '%s' is a read only tunable: tunable "
			    "values are set on the kernel's command line", name));
		return (cmd_err("sysctl", 0, "oid '%s' is read only", name));
	}
	if ((oidp->oid_kind & CTLTYPE) == CTLTYPE_STRING) {
		new = value;
		newlen = strlen(value);
	} else
		error = sysctl_parse(oidp, value, raw, &newlen);
	if (error != 0)
		return (cmd_err("sysctl", 0, "invalid %s '%s' for '%s'",
		    sysctl_typenames[oidp->oid_kind & CTLTYPE], value, name));
	if (sysctl_io(oidp, buf, &len, NULL, 0) != 0)
		len = 0;
	buf[len] = '\0';
	if (!o->value)
		printf("%s%s", name, o->sep == '=' ? "=" : ": ");
	sysctl_print_value(oidp, buf, len);
	printf("%s", o->value ? "" : " -> ");
	error = sysctl_io(oidp, NULL, NULL, new, newlen);
	if (error != 0) {
		printf("\n");
		return (cmd_err("sysctl", error, "%s=%s", name, value));
	}
	len = SYSCTL_BUFSIZE - 1;
	if (!o->value && sysctl_io(oidp, buf, &len, NULL, 0) == 0) {
		buf[len] = '\0';
		sysctl_print_value(oidp, buf, len);
	}
	printf("\n");
	return (0);
}

/* One operand: name, or name=value. */
static int
sysctl_operand(char *operand, const struct sysctl_opts *o, char *buf)
{
	struct sysctl_oid *oidp;
	char *value = strchr(operand, '=');
	int status;

	if (value != NULL)
		*value++ = '\0';
	oidp = sysctl_hold(operand);
	if (oidp == NULL)
		return (o->ignore ? 0 : cmd_err("sysctl", 0, "unknown oid '%s'", operand));
	if (value != NULL && (oidp->oid_kind & CTLTYPE) != CTLTYPE_NODE)
		status = sysctl_set(oidp, value, o, buf);
	else if (value != NULL)
		status = cmd_err("sysctl", 0, "oid '%s' isn't a leaf node", operand);
	else if ((oidp->oid_kind & CTLTYPE) == CTLTYPE_NODE) {
		status = o->descr ? sysctl_show(oidp, o, buf) : 0;
		status |= sysctl_show_tree(oidp, o, buf);
	} else
		status = sysctl_show(oidp, o, buf);
	sysctl_release(oidp);
	return (status);
}

static int
cmd_sysctl(int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	struct sysctl_opts o = { .sep = ':' };
	char *buf;
	int c, i, status = 0;

	while ((c = cmd_getopt(&g, argc, argv, "adeiNnoqtTWw")) != -1) {
		switch (c) {
		case 'a':
			o.all = true;
			break;
		case 'd':
			o.descr = true;
			break;
		case 'e':
			o.sep = '=';
			break;
		case 'i':
			o.ignore = true;
			break;
		case 'N':
			o.name = true;
			break;
		case 'n':
			o.value = true;
			break;
		case 'o':
			o.opaque = true;
			break;
		case 'q':
		case 'w':
			break;
		case 't':
			o.types = true;
			break;
		case 'T':
			o.tunables = true;
			break;
		case 'W':
			o.writable = true;
			break;
		default:
			return (cmd_usage("sysctl"));
		}
	}
	if (g.optind == argc && !o.all)
		return (cmd_usage("sysctl"));
	buf = malloc(SYSCTL_BUFSIZE, M_CMDSYSCTL, M_WAITOK);
	if (g.optind == argc)
		status = sysctl_show_tree(NULL, &o, buf);
	for (i = g.optind; i < argc; i++)
		status |= sysctl_operand(argv[i], &o, buf);
	free(buf, M_CMDSYSCTL);
	return (status);
}
CONSOLE_NET_CMD(sysctl, cmd_sysctl, "show or change kernel state",
    "sysctl [-adeiNnotTWw] [name[=value] ...]");
