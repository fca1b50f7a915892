/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * What the processor and the hypervisor are, from CPUID.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/sysctl.h>

#include <machine/clock.h>
#include <machine/cpufunc.h>
#include <machine/md_var.h>
#include <machine/specialreg.h>

u_int	cpu_high, cpu_id, cpu_procinfo, cpu_feature, cpu_feature2;
u_int	cpu_exthigh, amd_feature, amd_feature2, amd_pminfo;
u_int	cpu_stdext_feature, cpu_stdext_feature2, cpu_stdext_feature3;
u_int	cpu_clflush_line_size;
u_int	cpu_maxphyaddr;
u_int	cpu_vendor_id;
u_int	hv_base, hv_high;
char	hv_vendor[16];
char	cpu_vendor[20];
char	cpu_model[128];
int	tsc_is_invariant;
int	vm_guest = VM_GUEST_NO;

SYSCTL_STRING(_hw, HW_MODEL, model, CTLFLAG_RD | CTLFLAG_MPSAFE, cpu_model, 0,
    "Machine model");
SYSCTL_STRING(_hw, OID_AUTO, hv_vendor, CTLFLAG_RD | CTLFLAG_MPSAFE, hv_vendor, 0,
    "Hypervisor vendor");

#define	CPUID_HV_FIRST	0x40000000
#define	CPUID_HV_LAST	0x40010000
#define	CPUID_HV_STEP	0x100

static const struct {
	const char	*signature;
	int		guest;
} hypervisors[] = {
	{ "XenVMMXenVMM", VM_GUEST_XEN },
	{ "KVMKVMKVM\0\0\0", VM_GUEST_KVM },
	{ "TCGTCGTCGTCG", VM_GUEST_VM },
	{ "Microsoft Hv", VM_GUEST_HV },
	{ "VMwareVMware", VM_GUEST_VMWARE },
	{ "bhyve bhyve ", VM_GUEST_BHYVE },
	{ "VBoxVBoxVBox", VM_GUEST_VBOX },
};

/*
 * A hypervisor may offer the leaves of several at steps of 0x100: the one with the lowest place in
 * the table wins, as Xen may imitate others.
 */
static void
identify_hv_leaf(u_int leaf)
{
	static u_int best = nitems(hypervisors);
	u_int regs[4], i;
	char signature[13] = "";

	do_cpuid(leaf, regs);
	memcpy(signature, &regs[1], 12);
	for (i = 0; i < best; i++) {
		if (memcmp(signature, hypervisors[i].signature, 12) != 0)
			continue;
		best = i;
		vm_guest = hypervisors[i].guest;
		hv_base = leaf;
		hv_high = regs[0] >= leaf ? regs[0] : leaf;
		strlcpy(hv_vendor, signature, sizeof(hv_vendor));
	}
}

void
identify_hypervisor(void)
{
	u_int leaf;

	if ((cpu_feature2 & CPUID2_HV) == 0)
		return;
	vm_guest = VM_GUEST_VM;
	for (leaf = CPUID_HV_FIRST; leaf < CPUID_HV_LAST; leaf += CPUID_HV_STEP)
		identify_hv_leaf(leaf);
}

static void
identify_model(void)
{
	u_int i;

	if (cpu_exthigh < 0x80000004) {
		strlcpy(cpu_model, cpu_vendor, sizeof(cpu_model));
		return;
	}
	for (i = 0; i < 3; i++)
		do_cpuid(0x80000002 + i, (u_int *)&cpu_model[i * 16]);
	cpu_model[48] = '\0';
}

void
identify_cpu1(void)
{
	u_int regs[4];

	do_cpuid(0, regs);
	cpu_high = regs[0];
	memcpy(&cpu_vendor[0], &regs[1], 4);
	memcpy(&cpu_vendor[4], &regs[3], 4);
	memcpy(&cpu_vendor[8], &regs[2], 4);
	do_cpuid(1, regs);
	cpu_id = regs[0];
	cpu_procinfo = regs[1];
	cpu_feature = regs[3];
	cpu_feature2 = regs[2];
	if (cpu_feature & CPUID_CLFSH)
		cpu_clflush_line_size = ((cpu_procinfo >> 8) & 0xff) * 8;
}

void
identify_cpu2(void)
{
	u_int regs[4];

	if (cpu_high >= 7) {
		cpuid_count(7, 0, regs);
		cpu_stdext_feature = regs[1];
		cpu_stdext_feature2 = regs[2];
		cpu_stdext_feature3 = regs[3];
	}
	do_cpuid(0x80000000, regs);
	cpu_exthigh = regs[0];
	if (cpu_exthigh >= 0x80000001) {
		do_cpuid(0x80000001, regs);
		amd_feature = regs[3];
		amd_feature2 = regs[2];
	}
	if (cpu_exthigh >= 0x80000007) {
		do_cpuid(0x80000007, regs);
		amd_pminfo = regs[3];
		tsc_is_invariant = (amd_pminfo & AMDPM_TSC_INVARIANT) != 0;
	}
	cpu_maxphyaddr = 36;
	if (cpu_exthigh >= 0x80000008) {
		do_cpuid(0x80000008, regs);
		cpu_maxphyaddr = regs[0] & 0xff;
	}
	identify_model();
}

vm_paddr_t
cpu_getmaxphyaddr(void)
{
	return ((1ULL << cpu_maxphyaddr) - 1);
}

void
printcpuinfo(void)
{
	printf("CPU: %s (%ju.%02ju-MHz)\n", cpu_model, (uintmax_t)(tsc_freq / 1000000),
	    (uintmax_t)(tsc_freq / 10000 % 100));
	if (bootverbose)
		printf("  Origin=\"%s\"  Id=0x%x  Features=0x%x,0x%x  AMD Features=0x%x,0x%x\n",
		    cpu_vendor, cpu_id, cpu_feature, cpu_feature2, amd_feature, amd_feature2);
	if (hv_vendor[0] != '\0')
		printf("Hypervisor: Origin = \"%s\"\n", hv_vendor);
}
