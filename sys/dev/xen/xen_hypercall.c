/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Hypercalls.
 *
 * How to call Xen depends on the processor: VMCALL or AMD's VMMCALL, with the
 * number in eax, arguments in rdi, rsi and rdx, and the result in rax
 * (arch-x86/xen-x86_64.h).  Xen would write these instructions to a page of the
 * guest's choice, but nothing protects its indirect calls and returns from
 * speculation (Xen's advisory XSA-466), so that there is none.  CPUID shows
 * whether Xen is there (arch-x86/cpuid.h).
 *
 * Locking.  None: everything is written once, in xen_hypercall_init().
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/counter.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/sx.h>
#include <sys/sysctl.h>

#include <machine/cpufunc.h>
#include <machine/md_var.h>
#include <machine/specialreg.h>

#include <dev/xen/xen_hypercall.h>
#include <xen/arch-x86/cpuid.h>
#include <xen/errno.h>
#include <xen/hvm/hvm_op.h>
#include <xen/memory.h>
#include <xen/sched.h>

#define	XEN_CPUID_STEP		0x100
#define	XEN_CPUID_LAST		0x40010000

static bool xen_vmmcall;	/* rather than VMCALL */

enum xen_call {
	XEN_CALL_EVTCHN_SEND,
	XEN_CALL_EVTCHN,
	XEN_CALL_GNTTAB,
	XEN_CALL_MEMORY,
	XEN_CALL_HVM,
	XEN_CALL_VCPU,
	XEN_CALL_OTHER,
	XEN_NCALLS
};

static const struct {
	const char	*name;
	const char	*descr;
} xen_call_words[XEN_NCALLS] = {
	[XEN_CALL_EVTCHN_SEND] = { "evtchn_send", "Events sent" },
	[XEN_CALL_EVTCHN] = { "evtchn", "Other calls about event channels" },
	[XEN_CALL_GNTTAB] = { "gnttab", "Calls about the grant table" },
	[XEN_CALL_MEMORY] = { "memory", "Calls about memory" },
	[XEN_CALL_HVM] = { "hvm", "Calls about parameters of the domain" },
	[XEN_CALL_VCPU] = { "vcpu", "Calls about CPUs: most set a timer" },
	[XEN_CALL_OTHER] = { "other", "Other calls" },
};

static counter_u64_t xen_calls[XEN_NCALLS];

/*
 * Xen's error numbers (xen/errno.h) that are not ours; the first 34 are, but
 * for EAGAIN.
 */
static const struct {
	int	theirs;
	int	ours;
} xen_errors[] = {
	{ XEN_EAGAIN, EAGAIN },
	{ XEN_EDEADLK, EDEADLK },
	{ XEN_ENAMETOOLONG, ENAMETOOLONG },
	{ XEN_ENOSYS, ENOSYS },
	{ XEN_ENOTEMPTY, ENOTEMPTY },
	{ XEN_ENODATA, ENOENT },
	{ XEN_ETIME, ETIMEDOUT },
	{ XEN_EOVERFLOW, EOVERFLOW },
	{ XEN_EMSGSIZE, EMSGSIZE },
	{ XEN_EOPNOTSUPP, EOPNOTSUPP },
	{ XEN_EADDRINUSE, EADDRINUSE },
	{ XEN_EADDRNOTAVAIL, EADDRNOTAVAIL },
	{ XEN_ENOBUFS, ENOBUFS },
	{ XEN_EISCONN, EISCONN },
	{ XEN_ENOTCONN, ENOTCONN },
	{ XEN_ETIMEDOUT, ETIMEDOUT },
	{ XEN_ECONNREFUSED, ECONNREFUSED },
};

static int
xen_errno(long result)
{
	u_int i;

	if (result >= 0)
		return (0);
	for (i = 0; i < nitems(xen_errors); i++) {
		if (-result == xen_errors[i].theirs)
			return (xen_errors[i].ours);
	}
	return (-result <= ERANGE ? (int)-result : EIO);
}

/* Memory is what the arguments point to. */
static long
xen_hypercall(u_int nr, u_long a1, u_long a2, u_long a3)
{
	long result = nr;

	if (xen_vmmcall)
		__asm__ __volatile__("vmmcall"
		    : "+a" (result), "+D" (a1), "+S" (a2), "+d" (a3)
		    : : "rcx", "r8", "r9", "r10", "r11", "cc", "memory");
	else
		__asm__ __volatile__("vmcall"
		    : "+a" (result), "+D" (a1), "+S" (a2), "+d" (a3)
		    : : "rcx", "r8", "r9", "r10", "r11", "cc", "memory");
	return (result);
}

uint32_t
xen_cpuid_base(void)
{
	uint32_t base;
	u_int regs[4];

	do_cpuid(1, regs);
	if ((regs[2] & CPUID2_HV) == 0)
		return (0);
	/* Another interface, which Xen can emulate, may come first. */
	for (base = XEN_CPUID_FIRST_LEAF; base < XEN_CPUID_LAST;
	    base += XEN_CPUID_STEP) {
		do_cpuid(base, regs);
		if (regs[1] == XEN_CPUID_SIGNATURE_EBX &&
		    regs[2] == XEN_CPUID_SIGNATURE_ECX &&
		    regs[3] == XEN_CPUID_SIGNATURE_EDX && regs[0] >= base + 2)
			return (base);
	}
	return (0);
}

bool
xen_is_taken(void)
{
	bool taken;

	MOD_SLOCK;
	taken = module_lookupbyname("nexus/xenpv") != NULL;
	MOD_SUNLOCK;
	return (taken);
}

void
xen_version(u_int *major, u_int *minor)
{
	u_int regs[4];

	do_cpuid(xen_cpuid_base() + 1, regs);
	*major = regs[0] >> 16;
	*minor = regs[0] & 0xffff;
}

int
xen_hypercall_init(device_t dev __unused)
{
	int i;

	if (xen_cpuid_base() == 0)
		return (ENXIO);
	xen_vmmcall = strcmp(cpu_vendor, AMD_VENDOR_ID) == 0 ||
	    strcmp(cpu_vendor, HYGON_VENDOR_ID) == 0;
	for (i = 0; i < XEN_NCALLS; i++)
		xen_calls[i] = counter_u64_alloc(M_WAITOK);
	return (0);
}

void
xen_hypercall_fini(device_t dev __unused)
{
	int i;

	for (i = 0; i < XEN_NCALLS; i++) {
		if (xen_calls[i] != NULL)
			counter_u64_free(xen_calls[i]);
		xen_calls[i] = NULL;
	}
}

int
xen_event_channel_op(u_int cmd, void *arg)
{

	counter_u64_add(xen_calls[cmd == EVTCHNOP_send ? XEN_CALL_EVTCHN_SEND :
	    XEN_CALL_EVTCHN], 1);
	return (xen_errno(xen_hypercall(__HYPERVISOR_event_channel_op, cmd,
	    (u_long)arg, 0)));
}

int
xen_grant_table_op(u_int cmd, void *args, u_int count)
{

	counter_u64_add(xen_calls[XEN_CALL_GNTTAB], 1);
	return (xen_errno(xen_hypercall(__HYPERVISOR_grant_table_op, cmd,
	    (u_long)args, count)));
}

int
xen_memory_op(u_int cmd, void *arg)
{

	counter_u64_add(xen_calls[XEN_CALL_MEMORY], 1);
	return (xen_errno(xen_hypercall(__HYPERVISOR_memory_op, cmd,
	    (u_long)arg, 0)));
}

int
xen_memory_reservation(u_int cmd, u_int order, xen_pfn_t *frames, u_int n,
    u_int *done)
{
	struct xen_memory_reservation r = {
		.nr_extents = n,
		.extent_order = order,
		.domid = DOMID_SELF,
	};
	long result;

	set_xen_guest_handle(r.extent_start, frames);
	counter_u64_add(xen_calls[XEN_CALL_MEMORY], 1);
	result = xen_hypercall(__HYPERVISOR_memory_op, cmd, (u_long)&r, 0);
	*done = result < 0 ? 0 : MIN((u_long)result, n);
	if (result < 0)
		return (xen_errno(result));
	return (*done == n ? 0 : ENOMEM);
}

int
xen_hvm_op(u_int cmd, void *arg)
{

	counter_u64_add(xen_calls[XEN_CALL_HVM], 1);
	return (xen_errno(xen_hypercall(__HYPERVISOR_hvm_op, cmd, (u_long)arg,
	    0)));
}

int
xen_vcpu_op(u_int cmd, u_int vcpu, void *arg)
{

	counter_u64_add(xen_calls[XEN_CALL_VCPU], 1);
	return (xen_errno(xen_hypercall(__HYPERVISOR_vcpu_op, cmd, vcpu,
	    (u_long)arg)));
}

int
xen_suspend(bool *cancelled)
{
	struct sched_shutdown arg = { .reason = SHUTDOWN_suspend };
	long result;

	result = xen_hypercall(__HYPERVISOR_sched_op, SCHEDOP_shutdown,
	    (u_long)&arg, 0);
	*cancelled = result > 0;
	return (xen_errno(result));
}

int
xen_set_param(uint32_t index, uint64_t value)
{
	struct xen_hvm_param param = {
		.domid = DOMID_SELF,
		.index = index,
		.value = value,
	};

	return (xen_hvm_op(HVMOP_set_param, &param));
}

int
xen_get_param(uint32_t index, uint64_t *value)
{
	struct xen_hvm_param param = {
		.domid = DOMID_SELF,
		.index = index,
	};
	int error;

	error = xen_hvm_op(HVMOP_get_param, &param);
	*value = param.value;
	return (error);
}

void
xen_hypercall_sysctl(struct sysctl_ctx_list *ctx, struct sysctl_oid *parent)
{
	struct sysctl_oid *node;
	int i;

	node = SYSCTL_ADD_NODE(ctx, SYSCTL_CHILDREN(parent), OID_AUTO,
	    "hypercalls", CTLFLAG_RD | CTLFLAG_MPSAFE, NULL,
	    "Hypercalls of this module");
	for (i = 0; i < XEN_NCALLS; i++)
		SYSCTL_ADD_COUNTER_U64(ctx, SYSCTL_CHILDREN(node), OID_AUTO,
		    xen_call_words[i].name, CTLFLAG_RD, &xen_calls[i],
		    xen_call_words[i].descr);
}
