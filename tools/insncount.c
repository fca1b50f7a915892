/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A plugin for QEMU's TCG that counts the guest's instructions.
 *
 * usage: qemu-system-x86_64 -plugin insncount.so,out=FILE ...
 *
 * When QEMU ends, FILE holds one decimal number: instructions executed by all CPUs.  A halted CPU
 * executes none, so that idle time does not count.  The interface is that of QEMU 7.2's plugin API
 * version 1, of which the few functions used are declared here.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define	EXPORT	__attribute__((visibility("default")))

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_info;

void	qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
void	qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);
size_t	qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
void	qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *, int op, void *, uint64_t);

#define	PLUGIN_INLINE_ADD_U64	0

EXPORT int qemu_plugin_version = 1;

static uint64_t instructions;
static char out_path[4096];

/* Each translated instruction adds one when it is executed. */
static void
translated(plugin_id id, struct qemu_plugin_tb *tb)
{
	size_t n = qemu_plugin_tb_n_insns(tb);

	(void)id;
	for (size_t i = 0; i < n; i++) {
		qemu_plugin_register_vcpu_insn_exec_inline(qemu_plugin_tb_get_insn(tb, i),
		    PLUGIN_INLINE_ADD_U64, &instructions, 1);
	}
}

static void
at_exit(plugin_id id, void *arg)
{
	FILE *out;

	(void)id;
	(void)arg;
	out = fopen(out_path, "w");
	if (out != NULL) {
		fprintf(out, "%ju\n", (uintmax_t)instructions);
		fclose(out);
	}
}

EXPORT int	qemu_plugin_install(plugin_id, const struct qemu_info *, int, char **);

EXPORT int
qemu_plugin_install(plugin_id id, const struct qemu_info *info, int argc, char **argv)
{

	(void)info;
	for (int i = 0; i < argc; i++) {
		if (strncmp(argv[i], "out=", 4) == 0)
			snprintf(out_path, sizeof(out_path), "%s", argv[i] + 4);
	}
	if (out_path[0] == '\0') {
		fprintf(stderr, "insncount: out=FILE is missing\n");
		return (1);
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, at_exit, NULL);
	return (0);
}
