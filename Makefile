#
# SPDX-License-Identifier: BSD-2-Clause
#
# pv-kmod.  `make help` lists the targets; with GNU make too (GNUmakefile).
#

.if ${.CURDIR:[#]} != 1
.error the path of this checkout has a blank, which make takes for the end of a name: move it
.endif
.MAIN: all
.MAKE.MODE=	meta=no
MK=		${.CURDIR}/share/mk
.if !defined(SRCTOP)
.include "share/mk/sys.mk"
.endif
SUBMAKE=	${MAKE} -m ${MK} BEGUN=${BEGUN}

# bmake would go to obj/ by itself.
.OBJDIR: ${.CURDIR}

KERNDIR=	${OBJTOP}/${KERNCONF}
INSTRUMENTS=	${.CURDIR}/tests/sys/cmd

# When it began: what is edited meanwhile is newer than what is built (tools/pvguest/tree.py, tools/begin).
.if empty(BEGUN)
BEGUN!=		${.CURDIR}/tools/begin ${OBJTOP}
.endif
# bmake has these done after all else, or after an error.
ENDED=		[ ! -d ${OBJTOP} ] || touch ${OBJTOP}/.ended
.END:
	@${ENDED}
.INTERRUPT:
	@${ENDED}
.ERROR:
	@${ENDED}
	@df -Pm ${OBJTOP} | awk 'NR == 2 && $$4 < 64 { \
	    print "make: " $$4 " MB are free for ${OBJTOP}: make room, and then make again" }' >&2

all: kernel modules archive .PHONY

help: .PHONY
	@echo 'make all                 kernel, modules and boot archive for KERNCONF (${KERNCONF})'
	@echo 'make run                 boot GENERIC in QEMU and watch the drivers at work'
	@echo 'make check               the quick tests, in two minutes: hosted ones, a boot of each kernel, each driver at work'
	@echo 'make test                build, and run every test, those of make check first'
	@echo 'make test-freebsd        the tests that FreeBSD can run, in its debug kernel; FREEBSD=DIR imports its sets'
	@echo 'make test-freebsd-quick  the part of them that .ci/run runs'
	@echo 'make test-freebsd-sanitized  a part of them, in the kernels with KASAN and KCSAN'
	@echo 'make soak                the tests in FreeBSD, all with all repetitions, then with random preemption: HOURS=1 SEED=1, or so many SEEDS=50'
	@echo 'make bench               measure: the tables of tests/bench/BASELINE.md (tools/bench --help)'
	@echo 'make conformance         which rules of the specifications the tests show to be kept (tools/conformance --help)'
	@echo 'make mutants             how many deliberate bugs the tests notice: N=200 SEED=1 GUESTS=5 FILE=sys/dev/... (tools/mutants --help)'
	@echo 'make coverage            which lines and branches of the drivers the tests execute: TESTS=sys/dev/... (tools/coverage --help)'
	@echo 'make fuzz                each fuzz target for FUZZ_SECONDS=60 (tools/fuzz --help)'
	@echo 'make dist                the tarball of the FreeBSD port (ports/emulators/pv-kmod)'
	@echo 'make lint                manual pages, shell, Python and its types, layers, rules of CONTRIBUTING.md'
	@echo 'make lint-changed        of that what a change can have made wrong, in seconds'
	@echo 'make clean               remove what was built; the downloaded headers stay'
	@echo 'make help                this list'
	@echo
	@echo 'Parts of these:'
	@echo
	@echo 'make bootstrap           install what is missing (tools/bootstrap --help)'
	@echo 'make config              the build folder for KERNCONF, a file of sys/amd64/conf'
	@echo 'make headers             the headers that are generated'
	@echo 'make kernel              the kernel'
	@echo 'make modules             the modules'
	@echo 'make arm64               the modules but those for Xen, compiled for arm64'
	@echo 'make test-arm64          hosted tests, compiled for arm64, in QEMU (a part of make soak)'
	@echo 'make instruments         the console commands of tests/sys/cmd, as modules'
	@echo 'make archive             the boot archive, which has the modules'
	@echo 'make generic             all for GENERIC'
	@echo 'make testkernels         all for GENERIC, GENERIC-NODEBUG and XEN'
	@echo 'make ktest               the modules that tests load, and ktest-NAME one of them'
	@echo 'make ktest-nodebug       of these, what GENERIC-NODEBUG has'
	@echo 'make tests               all that make test needs'
	@echo 'make hosted              the tests that are programs of this machine, or those in HOSTED'

bootstrap: .PHONY
	@${.CURDIR}/tools/bootstrap

config: .PHONY bootstrap
	@mkdir -p ${KERNDIR}
	@${.CURDIR}/tools/config --sys ${SYSDIR} --out ${KERNDIR} ${KERNCONF}

headers: .PHONY config
	@cd ${KERNDIR} && ${SUBMAKE} -f ${MK}/bsd.kernel.mk headers

kernel: .PHONY headers
	@cd ${KERNDIR} && ${SUBMAKE} -f ${MK}/bsd.kernel.mk kernel

modules: .PHONY headers
	@mkdir -p ${KERNDIR}/modules
	@${SUBMAKE} -C ${SYSDIR}/modules PV_XEN=both MAKEOBJDIR=${KERNDIR}/modules all
	@# What an older tree had is not for the archive.
	@for d in ${KERNDIR}/modules/*; do [ -d ${SYSDIR}/modules/$${d##*/} ] || rm -r $$d; done

# The modules but those for Xen, compiled for another machine; nothing here runs them.
ARM64=		MACHINE=arm64 MACHINE_ARCH=aarch64 MACHINE_CPUARCH=aarch64
arm64: .PHONY headers
	@mkdir -p ${OBJTOP}/arm64/modules
	@${SUBMAKE} -C ${SYSDIR}/modules ${ARM64} PV_XEN=no MAKEOBJDIR=${OBJTOP}/arm64/modules all

# The hosted tests of that machine, in QEMU: its headers, its compiler's order of loads and stores.
test-arm64: .PHONY headers
	@mkdir -p ${OBJTOP}/arm64/hosted
	@${SUBMAKE} -C ${.CURDIR}/tests/hosted ${ARM64} run-arm64

# Modules with a console command each, for tests and measurements.
instruments: .PHONY headers
	@mkdir -p ${KERNDIR}/instruments
	@${SUBMAKE} -C ${INSTRUMENTS} MAKEOBJDIR=${KERNDIR}/instruments all
	@for d in ${KERNDIR}/instruments/*; do [ -d ${INSTRUMENTS}/$${d##*/} ] || rm -r $$d; done

archive: .PHONY kernel modules instruments
	@${.CURDIR}/tools/mkarchive --instruments ${KERNDIR}/instruments ${KERNDIR}/boot.tar ${KERNDIR}/modules
	@touch -d @${BEGUN} ${KERNDIR}/.built

.if ${KERNCONF} != "GENERIC"
generic: .PHONY
	@${SUBMAKE} KERNCONF=GENERIC all
.else
generic: .PHONY all
.endif

run: .PHONY generic
	@${.CURDIR}/tools/demo

# XEN and GENERIC-NODEBUG have to build; GENERIC is what most tests boot.
testkernels: .PHONY kernel-XEN kernel-GENERIC-NODEBUG
.for _kernel in XEN GENERIC-NODEBUG
kernel-${_kernel}: .PHONY generic
	@${SUBMAKE} KERNCONF=${_kernel} all
.endfor

# HOSTED names some of them.
hosted: .PHONY headers
	@${SUBMAKE} -C ${.CURDIR}/tests/hosted all

# The modules that tests load: the kernel's own, Xen's, and the personalities'.
KTESTS=		dev/pv/air dev/pv/qdisk dev/pv/twin dev/virtio/network/arrival dev/virtio/refuse \
		dev/virtio/stock kern/badmod kern/faults kern/ktest xen/xenhvm xen/xfaults xen/xpend xen/xtest
.for _module in ${KTESTS}
ktest-${_module:T}: .PHONY generic
	@mkdir -p ${OBJTOP}/GENERIC/tests/${_module:T}
	@${SUBMAKE} -C ${.CURDIR}/tests/sys/${_module} KERNCONF=GENERIC \
	    MAKEOBJDIR=${OBJTOP}/GENERIC/tests/${_module:T} all
.endfor
ktest-nodebug: .PHONY kernel-GENERIC-NODEBUG
	@mkdir -p ${OBJTOP}/GENERIC-NODEBUG/tests/ktest
	@${SUBMAKE} -C ${.CURDIR}/tests/sys/kern/ktest KERNCONF=GENERIC-NODEBUG \
	    MAKEOBJDIR=${OBJTOP}/GENERIC-NODEBUG/tests/ktest all
ktest: .PHONY testkernels ktest-nodebug ${KTESTS:T:%=ktest-%}

VIRTIO_TESTS=	sys/dev/virtio

# What all tests need.  FreeBSD's tests run, too, where its sets have been imported: with modules of these sources.
tests: .PHONY ktest hosted
.for _kernel in debug generic
.if exists(${OBJTOP}/freebsd/src)
	@${.CURDIR}/tools/freebsd modules --if-imported --kernel ${_kernel}
.endif
.endfor

# For the edit loop: the hosted tests, a boot of each kernel and of each machine, each driver at work, with each of its
# transports and rings; two minutes of two processors at most.  `make test' begins with it.
CHECK=		hosted
CHECK+=		sys/kern/boot_test:q35_smp2 sys/kern/boot_test:pc_smp1 sys/kern/boot_test:microvm_smp2
CHECK+=		sys/xen/boot_test:xen_boots_under_qemu_too
CHECK+=		sys/kern/ktest_test:all_with_2_cpus sys/kern/ktest_test:without_invariants
CHECK+=		sys/kern/kld_test:dependencies_come_first sys/kern/kld_test:unload_frees_all
CHECK+=		${VIRTIO_TESTS}/block/matrix_test:modern_msix_smp2 ${VIRTIO_TESTS}/block/matrix_test:legacy_intx_smp1
CHECK+=		${VIRTIO_TESTS}/block/matrix_test:packed_on
CHECK+=		${VIRTIO_TESTS}/network/matrix_test:modern_msix_smp2 ${VIRTIO_TESTS}/network/matrix_test:legacy_intx_smp1
CHECK+=		${VIRTIO_TESTS}/network/matrix_test:packed_on
CHECK+=		${VIRTIO_TESTS}/network/vtnet_test:dhcp_and_ping_on_the_user_network
CHECK+=		${VIRTIO_TESTS}/network/vtnet_test:ipv6_goes_both_ways
CHECK+=		${VIRTIO_TESTS}/balloon/balloon_test:targets_are_reached_to_the_page
CHECK+=		${VIRTIO_TESTS}/mmio/mmio_test:version_1_copies_smp1 ${VIRTIO_TESTS}/mmio/mmio_test:version_2_talks_smp2
CHECK+=		sys/netinet/inet_test:fetch_gets_every_byte
# Where the lab has been built, which takes minutes.
CHECK_LAB=	sys/xen/xbd_test:settings sys/xen/xn_test:ping_both_ways sys/xen/balloon_test:down_and_up
.if exists(${OBJTOP}/xen/image/stamp)
CHECK+=		${CHECK_LAB}
.endif
check: .PHONY
	@${.CURDIR}/tools/runtests ${CHECK}

test: .PHONY
	@${.CURDIR}/tools/runtests ${CHECK:@_t@--first ${_t}@}

# In FreeBSD's debug kernel, whose sets are in FREEBSD (or were imported before): tests/README.md.
# What takes three or four minutes of two CPUs: few kinds of guests, each of which boots once.
# tools/freebsd_test and sys/xen/freebsd_test are skipped by `make test' where no sets have been imported.
FREEBSD_QUICK+=	tools/freebsd_test
FREEBSD_QUICK+=	sys/xen/freebsd_test:drivers_are_suspended_at_work
FREEBSD_QUICK+=	${VIRTIO_TESTS}/block/vtbd_test:read_only_refuses_writes
FREEBSD_QUICK+=	${VIRTIO_TESTS}/block/vtbd_test:resize_is_seen_at_once
FREEBSD_QUICK+=	${VIRTIO_TESTS}/block/vtbd_test:ident_is_the_serial_number
FREEBSD_QUICK+=	${VIRTIO_TESTS}/block/vtbd_test:error_is_eio_and_the_next_request_works
FREEBSD_QUICK+=	${VIRTIO_TESTS}/network/vtnet_test:dhcp_and_ping_on_the_user_network
FREEBSD_QUICK+=	${VIRTIO_TESTS}/network/vtnet_test:mac_change_reaches_the_device
FREEBSD_QUICK+=	${VIRTIO_TESTS}/network/vtnet_test:link_changes_are_seen
FREEBSD_QUICK+=	${VIRTIO_TESTS}/network/vtnet_test:promiscuous_mode_reaches_the_device
FREEBSD_QUICK+=	${VIRTIO_TESTS}/network/vtnet_test:ipv6_goes_both_ways
FREEBSD_QUICK+=	${VIRTIO_TESTS}/network/vtnet_test:every_sysctl_has_a_description
FREEBSD_QUICK+=	${VIRTIO_TESTS}/network/vtnet_test:up_and_down_under_load
FREEBSD_QUICK+=	${VIRTIO_TESTS}/network/control_test:announces_when_the_host_asks
FREEBSD_QUICK+=	${VIRTIO_TESTS}/network/control_test:qemu_filters_vlan_tags
FREEBSD_QUICK+=	${VIRTIO_TESTS}/balloon/balloon_test:targets_are_reached_to_the_page
FREEBSD_QUICK+=	${VIRTIO_TESTS}/block/vtbd_test:reload_under_load
FREEBSD_QUICK+=	${VIRTIO_TESTS}/block/vtbd_test:hot_unplug_under_load
FREEBSD_QUICK+=	${VIRTIO_TESTS}/block/hostile_test:violations_all_the_time
FREEBSD_QUICK+=	${VIRTIO_TESTS}/network/vtnet_test:reload_under_load
FREEBSD_QUICK+=	${VIRTIO_TESTS}/network/hostile_test:violations_all_the_time
FREEBSD_QUICK+=	${VIRTIO_TESTS}/network/tap_test:files_are_sent_from_their_pages
FREEBSD_QUICK+=	${VIRTIO_TESTS}/balloon/balloon_test:memory_hog_with_full_balloon
FREEBSD_QUICK+=	sys/dev/pv/pv_blk_test:cpus_2
FREEBSD_QUICK+=	${VIRTIO_TESTS}/network/offload_test:congestion_marks_through_a_bridge
FREEBSD_QUICK+=	${VIRTIO_TESTS}/balloon/hostile_test:impossible_targets
# What there is in FreeBSD alone: netmap(4), and ALTQ in the kernel of that name.
FREEBSD_QUICK+=	${VIRTIO_TESTS}/network/netmap_test:frames_go_both_ways
FREEBSD_QUICK+=	${VIRTIO_TESTS}/network/vtnet_test:altq_decides_what_is_sent
# Every program of tests/sys/dev, and those of tools and Xen that are about FreeBSD.
FREEBSD_TESTS?=	tools/freebsd_test sys/xen/freebsd_test sys/dev/pv/pv_balloon_test \
		sys/dev/pv/pv_blk_test sys/dev/pv/tunable_test \
		${VIRTIO_TESTS}/block/vtbd_test ${VIRTIO_TESTS}/block/feature_test \
		${VIRTIO_TESTS}/block/hostile_test ${VIRTIO_TESTS}/block/matrix_test \
		${VIRTIO_TESTS}/block/queue_reset_test ${VIRTIO_TESTS}/block/integrity_test \
		${VIRTIO_TESTS}/block/backend_test ${VIRTIO_TESTS}/block/combinations_test \
		${VIRTIO_TESTS}/network/vtnet_test ${VIRTIO_TESTS}/network/hostile_test \
		${VIRTIO_TESTS}/network/control_test ${VIRTIO_TESTS}/network/offload_test \
		${VIRTIO_TESTS}/network/matrix_test ${VIRTIO_TESTS}/network/queue_reset_test \
		${VIRTIO_TESTS}/network/combinations_test ${VIRTIO_TESTS}/network/rx_buffers_test \
		${VIRTIO_TESTS}/network/tap_test \
		${VIRTIO_TESTS}/network/netmap_test ${VIRTIO_TESTS}/network/debugnet_test \
		${VIRTIO_TESTS}/network/testpmd_test ${VIRTIO_TESTS}/balloon/balloon_test \
		${VIRTIO_TESTS}/balloon/hostile_test ${VIRTIO_TESTS}/mmio/mmio_test \
		${VIRTIO_TESTS}/pci/pci_test ${VIRTIO_TESTS}/hotplug_test \
		${VIRTIO_TESTS}/driver_test ${VIRTIO_TESTS}/generic_test \
		${VIRTIO_TESTS}/migrate_test ${VIRTIO_TESTS}/suspend_test \
		${VIRTIO_TESTS}/stream_test ${VIRTIO_TESTS}/settings_test \
		${VIRTIO_TESTS}/faults_test ${VIRTIO_TESTS}/random/random_test
FREEBSD_KERNEL?=	debug
# What runs with a release's own sets, whose kernel is GENERIC.
FREEBSD_RELEASE=	tools/freebsd_test tools/kpi_test tools/port_test

# What `make soak' runs where FreeBSD looks for bad accesses and for races: each driver at work, a card that violates
# the protocol, and a driver that is unloaded at work.  Loading a module takes twenty seconds there, so that other tests
# which do it over and over run out of time.
FREEBSD_SANITIZED?= \
		sys/dev/pv/pv_blk_test:cpus_2 \
		${VIRTIO_TESTS}/block/matrix_test:modern_msix_smp2 \
		${VIRTIO_TESTS}/block/matrix_test:packed_on \
		${VIRTIO_TESTS}/network/matrix_test:modern_msix_smp2 \
		${VIRTIO_TESTS}/network/matrix_test:packed_on \
		${VIRTIO_TESTS}/network/hostile_test:violations_all_the_time \
		${VIRTIO_TESTS}/network/vtnet_test:reload_under_load \
		${VIRTIO_TESTS}/balloon/balloon_test:targets_are_reached_to_the_page

test-freebsd: .PHONY hosted
	@FREEBSD=${FREEBSD:Q} ${.CURDIR}/tools/freebsd import
.for _kernel in ${FREEBSD_KERNEL} generic altq
	@${.CURDIR}/tools/freebsd modules --if-imported --kernel ${_kernel}
.endfor
	@if [ -d ${OBJTOP}/freebsd/${FREEBSD_KERNEL:S/^/kernel-/} ]; then \
	    GUEST_OS=freebsd=${FREEBSD_KERNEL} ${.CURDIR}/tools/runtests --no-build ${FREEBSD_TESTS}; \
	else \
	    echo 'make ${.TARGET}: the tests of the drivers are skipped, no kernel-${FREEBSD_KERNEL}.txz' && \
	    ${.CURDIR}/tools/runtests --no-build ${FREEBSD_RELEASE}; \
	fi

test-freebsd-quick: .PHONY
	@${SUBMAKE} FREEBSD_TESTS="${FREEBSD_QUICK}" test-freebsd

# In the kernels of FreeBSD that find bad accesses (kasan) and races (kcsan), if they were imported.
.for _kernel in kasan kcsan
test-freebsd-sanitized: .PHONY test-freebsd-${_kernel}
test-freebsd-${_kernel}: .PHONY hosted
.if exists(${OBJTOP}/freebsd/kernel-${_kernel})
	@${.CURDIR}/tools/freebsd modules --kernel ${_kernel}
	@GUEST_OS=freebsd=${_kernel} ${.CURDIR}/tools/runtests --no-build --jobs 2 ${FREEBSD_SANITIZED}
.else
	@echo 'make ${.TARGET}: skipped, no kernel-${_kernel}: tools/freebsd import'
.endif
.endfor
.ORDER: test-freebsd-kasan test-freebsd-kcsan

# With SEEDS so many passes over SOAK_TESTS, each with another seed; else all tests, for so many HOURS.
HOURS?=	1
SEED?=	1
# In the lab: those that a seed reaches, and that load drivers.
SOAK_XEN=	sys/xen/balloon_test sys/xen/core_test sys/xen/faults_test sys/xen/settings_test \
		sys/xen/suspend_test sys/xen/xbd_test sys/xen/xenbus_test sys/xen/xn_test
SOAK_TESTS?=	sys/dev sys/net ${SOAK_XEN}
SOAK_FREEBSD=	test-freebsd-kasan test-freebsd-kcsan
.if exists(${OBJTOP}/freebsd/kernel-${FREEBSD_KERNEL})
SOAK_FREEBSD+=	test-freebsd
.endif
soak: .PHONY ktest hosted
.if !empty(SEEDS)
	@${.CURDIR}/tools/runtests --no-build --seeds ${SEEDS} --seed ${SEED} ${SOAK_TESTS}
.else
.if empty(SOAK_FREEBSD:Mtest-freebsd)
	@echo 'make test-freebsd: skipped, no kernel-${FREEBSD_KERNEL}: tools/freebsd import'
.endif
	@status=0; \
	for target in ${SOAK_FREEBSD}; do ${SUBMAKE} $$target || status=1; done; \
	${.CURDIR}/tools/fuzz --seconds 120 || status=1; \
	${SUBMAKE} test-arm64 || status=1; \
	${.CURDIR}/tools/runtests --no-build --soak ${HOURS} --seed ${SEED} || status=1; \
	exit $$status
.endif

# Of the drivers' HEAD, with the results in tests/mutants/RESULTS.md.
N?=	200
mutants: .PHONY bootstrap
	@${.CURDIR}/tools/mutants -n ${N} --seed ${SEED} ${GUESTS:D--guests ${GUESTS}} ${FILE:D--file ${FILE}} ${FILE:U--write:M--write}

# The same of what was executed, in tests/coverage/RESULTS.md.
coverage: .PHONY bootstrap
	@${.CURDIR}/tools/coverage ${TESTS:U--write}

# Of tests/conformance: 'tools/conformance --ran' after 'make test' says whether these tests ran.
conformance: .PHONY
	@${.CURDIR}/tools/conformance

FUZZ_SECONDS?=	60
fuzz: .PHONY hosted
	@${.CURDIR}/tools/fuzz --seconds ${FUZZ_SECONDS}

bench: .PHONY
	@${SUBMAKE} KERNCONF=GENERIC-NODEBUG all
	@${.CURDIR}/tools/bench all

dist: .PHONY
	@${.CURDIR}/tools/dist

# Layers are read from GENERIC's objects.  A module that is compiled for one machine only is found here.
lint: .PHONY bootstrap
	@${SUBMAKE} KERNCONF=GENERIC modules arm64
	@${.CURDIR}/tools/lint

lint-changed: .PHONY bootstrap
	@${SUBMAKE} KERNCONF=GENERIC modules
	@${.CURDIR}/tools/lint --changed

# Of an older tree: the user's cache is not the clone's.
clean: .PHONY
	@rm -rf ${OBJTOP}/GENERIC ${OBJTOP}/GENERIC-NODEBUG ${OBJTOP}/XEN ${OBJTOP}/arm64 ${OBJTOP}/tests ${OBJTOP}/ccache
