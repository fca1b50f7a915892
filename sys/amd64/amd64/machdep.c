/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * From the first C function to mi_startup(): hammer_time(), the descriptor tables, start-up
 * messages.
 *
 * The order in hammer_time() is: %gs and curthread, as everything asserts something about them;
 * the loader's data, before it can be overwritten; the console, so that the rest can print errors;
 * memory; the tables; then what the machine-independent part requires before mi_startup().
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/cons.h>
#include <sys/eventhandler.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/msgbuf.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/reboot.h>
#include <sys/smp.h>
#include <sys/sysctl.h>
#include <sys/vmmeter.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/vm_extern.h>
#include <vm/vm_phys.h>
#include <vm/pmap.h>

#include <machine/clock.h>
#include <machine/cpu.h>
#include <machine/intr_machdep.h>
#include <machine/md_var.h>
#include <machine/pcb.h>
#include <machine/proc.h>
#include <machine/psl.h>
#include <machine/smp.h>
#include <machine/specialreg.h>
#include <machine/tss.h>

#include <x86/apicvar.h>
#include <x86/xen/xen_kernel_tree.h>

#include <amd64/amd64/boot_tree.h>

u_int64_t	hammer_time(vm_paddr_t loader_data, u_int loader_magic);

int	cold = 1;

/*
 * One page of per-processor data each, in an array, as counter(9) and UMA_ZONE_PCPU compute the
 * place of a processor's copy from the distance of its struct pcpu to the first (machine/pcpu.h).
 */
static struct pcpu pcpu_array[MAXCPU] __aligned(PAGE_SIZE);
struct pcpu *__pcpu = pcpu_array;

static char kstack0[KSTACK_PAGES * PAGE_SIZE] __aligned(PAGE_SIZE);
static char bsp_ist[IST_STACKS * IST_STACK_SIZE] __aligned(PAGE_SIZE);
static char msgbuf_mem[MSGBUF_SIZE];

static struct gate_descriptor idt0[NIDT];
struct gate_descriptor *idt = idt0;
struct region_descriptor r_idt;

#define	IST_DF	1
#define	IST_NMI	2
#define	IST_MC	3

/* Stubs of 16 bytes each, one a vector: exception.S. */
extern char idt_stubs[];

void
setidt(int idx, alias_for_inthand_t *func, int typ, int dpl, int ist)
{
	struct gate_descriptor *gd = &idt[idx];
	struct gate_descriptor new = {
		.gd_looffset = (uintptr_t)func,
		.gd_hioffset = (uintptr_t)func >> 16,
		.gd_selector = GSEL(GCODE_SEL, SEL_KPL),
		.gd_ist = ist,
		.gd_type = typ,
		.gd_dpl = dpl,
		.gd_p = 1,
	};

	*gd = new;
}

static void
idt_init(void)
{
	int i, ist;

	for (i = 0; i < NIDT; i++) {
		ist = i == IDT_DF ? IST_DF : i == IDT_NMI ? IST_NMI : i == IDT_MC ? IST_MC : 0;
		setidt(i, (alias_for_inthand_t *)(idt_stubs + i * 16), SDT_SYSIGT, SEL_KPL, ist);
	}
	r_idt.rd_limit = sizeof(idt0) - 1;
	r_idt.rd_base = (uintptr_t)idt;
}

/* Fill a processor's GDT: code, data, and its TSS in the two slots from GPROC0_SEL on. */
static void
gdt_init(struct pcpu *pc)
{
	struct user_segment_descriptor *gdt = pc->pc_gdt;
	struct system_segment_descriptor *tss;

	memset(gdt, 0, sizeof(pc->pc_gdt));
	gdt[GCODE_SEL].sd_type = SDT_MEMERA;
	gdt[GCODE_SEL].sd_p = 1;
	gdt[GCODE_SEL].sd_long = 1;
	gdt[GDATA_SEL].sd_type = SDT_MEMRWA;
	gdt[GDATA_SEL].sd_p = 1;
	gdt[GDATA_SEL].sd_lolimit = 0xffff;
	gdt[GDATA_SEL].sd_hilimit = 0xf;
	gdt[GDATA_SEL].sd_gran = 1;
	gdt[GDATA_SEL].sd_def32 = 1;

	tss = (struct system_segment_descriptor *)&gdt[GPROC0_SEL];
	tss->sd_lolimit = sizeof(struct amd64tss) - 1;
	tss->sd_lobase = (uintptr_t)&pc->pc_common_tss;
	tss->sd_hibase = (uintptr_t)&pc->pc_common_tss >> 24;
	tss->sd_type = SDT_SYSTSS;
	tss->sd_p = 1;
	pc->pc_tss = tss;
}

void
cpu_reload_tables(struct pcpu *pc)
{
	struct region_descriptor gdt_reg;

	/* ltr accepts no TSS that is marked busy, and marks it. */
	pc->pc_tss->sd_type = SDT_SYSTSS;
	gdt_reg.rd_limit = sizeof(pc->pc_gdt) - 1;
	gdt_reg.rd_base = (uintptr_t)pc->pc_gdt;
	lgdt(&gdt_reg);
	wrmsr(MSR_GSBASE, (uintptr_t)pc);
	wrmsr(MSR_KGSBASE, 0);
	lidt(&r_idt);
	ltr(GSEL(GPROC0_SEL, SEL_KPL));
}

void
cpu_load_tables(struct pcpu *pc, char *ist_stacks)
{
	struct amd64tss *tss = &pc->pc_common_tss;

	gdt_init(pc);
	memset(tss, 0, sizeof(*tss));
	tss->tss_ist1 = (uintptr_t)ist_stacks + IST_DF * IST_STACK_SIZE;
	tss->tss_ist2 = (uintptr_t)ist_stacks + IST_NMI * IST_STACK_SIZE;
	tss->tss_ist3 = (uintptr_t)ist_stacks + IST_MC * IST_STACK_SIZE;
	tss->tss_iobase = sizeof(*tss);		/* no I/O bitmap */
	pc->pc_tssp = tss;
	cpu_reload_tables(pc);
}

/* Machine-dependent part of pcpu_init(9). */
void
cpu_pcpu_init(struct pcpu *pcpu, int cpuid __unused, size_t size __unused)
{
	pcpu->pc_prvspace = pcpu;
	pcpu->pc_curpmap = kernel_pmap;
	pcpu->pc_acpi_id = 0xffffffff;
	pcpu->pc_apic_id = 0xffffffff;
}

/* CR0 and CR4 as the kernel requires them; on each processor. */
void
initializecpu(void)
{
	load_cr0((rcr0() & ~(CR0_EM | CR0_NW | CR0_CD)) | CR0_MP | CR0_NE | CR0_WP | CR0_AM);
	load_cr4((rcr4() & ~CR4_PGE) | CR4_MCE);
}

static void
thread0_init(struct pcpu *pc)
{
	thread0.td_kstack = (vm_offset_t)kstack0;
	thread0.td_kstack_pages = KSTACK_PAGES;
	cpu_thread_alloc(&thread0);
	thread0.td_pcb->pcb_cr3 = KPML4phys;
	pc->pc_curpcb = thread0.td_pcb;
	thread0.td_critnest = 0;
}

/*
 * The first C function, on a temporary stack with interrupts off.  Returns the stack pointer on
 * which locore.S calls mi_startup().
 */
u_int64_t
hammer_time(vm_paddr_t loader_data, u_int loader_magic)
{
	struct pcpu *pc = &__pcpu[0];
	char *dpcpu;

	pc->pc_prvspace = pc;
	pc->pc_curthread = &thread0;
	wrmsr(MSR_GSBASE, (uintptr_t)pc);
	idt_init();
	bootinfo_save(loader_data, loader_magic);
	proc_linkup0(&proc0, &thread0);
	bootinfo_kenv();
	identify_cpu1();
	identify_cpu2();
	identify_hypervisor();
	xen_kernel_init();

	pcpu_init(pc, 0, sizeof(struct pcpu));
	PCPU_SET(curthread, &thread0);
	cpu_load_tables(pc, bsp_ist);
	initializecpu();
	thread0_init(pc);
	mutex_init();
	init_param1();
	cninit();

	bootinfo_memory();
	pmap_bootstrap(NULL);
	thread0.td_pcb->pcb_cr3 = KPML4phys;
	dpcpu = (char *)PHYS_TO_DMAP(bootinfo_steal(atop(DPCPU_SIZE)));
	dpcpu_init(dpcpu, 0);
	msgbufinit(msgbuf_mem, sizeof(msgbuf_mem));
	init_param2(physmem);
	if (boothowto & RB_VERBOSE)
		bootverbose++;
	tsc_init();
	return ((u_int64_t)thread0.td_md.md_stack_base);
}

static void
cpu_startup(void *dummy __unused)
{
	int i;

	printcpuinfo();
	printf("real memory  = %ju (%ju MB)\n", ptoa((uintmax_t)realmem),
	    ptoa((uintmax_t)realmem) / 1048576);
	if (bootverbose) {
		printf("Physical memory chunk(s):\n");
		for (i = 0; phys_avail[i + 1] != 0; i += 2)
			printf("0x%016jx - 0x%016jx, %ju bytes\n", (uintmax_t)phys_avail[i],
			    (uintmax_t)phys_avail[i + 1] - 1,
			    (uintmax_t)(phys_avail[i + 1] - phys_avail[i]));
	}
	printf("avail memory = %ju (%ju MB)\n", ptoa((uintmax_t)vm_free_count()),
	    ptoa((uintmax_t)vm_free_count()) / 1048576);
}
SYSINIT(cpu, SI_SUB_CPU, SI_ORDER_FIRST, cpu_startup, NULL);

/* Everything that can interrupt is set up: let it. */
static void
interrupts_on(void *dummy __unused)
{
	enable_intr();
}
SYSINIT(interrupts_on, SI_SUB_CONFIGURE, SI_ORDER_FIRST, interrupts_on, NULL);
