/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A plugin for QEMU's TCG that counts the guest's instructions.
 *
 * usage: qemu-system-x86_64 -plugin insncount.so[,out=FILE][,live=FILE][,profile=FILE] ...
 *
 * out: when QEMU ends, FILE holds one decimal number, the instructions executed by all CPUs.
 * live: FILE holds the number at any time, as eight bytes of the host's order.
 * profile: at any time, FILE holds how often each instruction was executed: pairs of its address and
 * the number, of eight bytes each in the host's order, unsorted; those of number 0 are to be ignored.
 *
 * A halted CPU executes none, so that idle time does not count.  A repeated string instruction counts
 * once for each repetition.  The interface is that of QEMU 7.2's plugin API version 1, of which the few
 * functions used are declared here.
 */

#include <sys/mman.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define	EXPORT	__attribute__((visibility("default")))

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_info;

void	qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
void	qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);
size_t	qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
void	qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *, int op, void *, uint64_t);

#define	PLUGIN_INLINE_ADD_U64	0

EXPORT int qemu_plugin_version = 1;

#define	PLACES	(1u << 20)

/* An instruction of the profile. */
struct place {
	uint64_t	address;
	uint64_t	count;
};

static uint64_t counted;
static uint64_t *instructions = &counted;
static struct place *places;
static char out_path[4096];

/* The counter of an instruction; all those without room share one. */
static struct place *
place_of(uint64_t address)
{
	uint32_t at = (uint32_t)((address * 0x9e3779b97f4a7c15) >> 44);
	unsigned i;

	for (i = 0; i < 64; i++, at++) {
		struct place *p = &places[at % PLACES];

		if (p->address == 0)
			p->address = address;
		if (p->address == address)
			return (p);
	}
	return (&places[PLACES]);
}

/* Each translated instruction adds one when it is executed.  Translation is serial. */
static void
translated(plugin_id id, struct qemu_plugin_tb *tb)
{
	size_t n = qemu_plugin_tb_n_insns(tb);

	(void)id;
	for (size_t i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

		qemu_plugin_register_vcpu_insn_exec_inline(insn, PLUGIN_INLINE_ADD_U64,
		    instructions, 1);
		if (places != NULL)
			qemu_plugin_register_vcpu_insn_exec_inline(insn, PLUGIN_INLINE_ADD_U64,
			    &place_of(qemu_plugin_insn_vaddr(insn))->count, 1);
	}
}

static void
at_exit(plugin_id id, void *arg)
{
	FILE *out;

	(void)id;
	(void)arg;
	if (out_path[0] != '\0' && (out = fopen(out_path, "w")) != NULL) {
		fprintf(out, "%ju\n", (uintmax_t)*instructions);
		fclose(out);
	}
}

/* Map a new file of zeros, which other processes can read; NULL on failure. */
static void *
live_file(const char *path, size_t size)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	void *p = MAP_FAILED;

	if (fd != -1 && ftruncate(fd, size) == 0)
		p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd != -1)
		close(fd);
	return (p == MAP_FAILED ? NULL : p);
}

EXPORT int	qemu_plugin_install(plugin_id, const struct qemu_info *, int, char **);

EXPORT int
qemu_plugin_install(plugin_id id, const struct qemu_info *info, int argc, char **argv)
{
	bool good = argc > 0;

	(void)info;
	for (int i = 0; i < argc; i++) {
		if (strncmp(argv[i], "out=", 4) == 0)
			snprintf(out_path, sizeof(out_path), "%s", argv[i] + 4);
		else if (strncmp(argv[i], "live=", 5) == 0)
			instructions = live_file(argv[i] + 5, sizeof(counted));
		else if (strncmp(argv[i], "profile=", 8) == 0) {
			places = live_file(argv[i] + 8, (PLACES + 1) * sizeof(*places));
			good = good && places != NULL;
		} else
			good = false;
		good = good && instructions != NULL;
	}
	if (!good) {
		fprintf(stderr, "insncount: out=FILE, live=FILE or profile=FILE is wrong\n");
		return (1);
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, at_exit, NULL);
	return (0);
}
