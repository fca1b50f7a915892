#
# SPDX-License-Identifier: BSD-2-Clause
#
# pv-kmod.  `make help` lists the targets; with GNU make too (GNUmakefile).
#

.MAIN: all
.MAKE.MODE=	meta=no
MK=		${.CURDIR}/share/mk
.if !defined(SRCTOP)
.include "share/mk/sys.mk"
.endif
SUBMAKE=	${MAKE} -m ${MK}

# bmake would go to obj/ by itself.
.OBJDIR: ${.CURDIR}

KERNDIR=	${OBJTOP}/${KERNCONF}

all: kernel modules archive .PHONY

help: .PHONY
	@echo 'make run       boot GENERIC in QEMU and watch the drivers at work'
	@echo 'make test      build, then run every test'
	@echo 'make all       kernel, modules and boot archive for KERNCONF (${KERNCONF})'
	@echo 'make kernel    the kernel for KERNCONF: a file of sys/amd64/conf'
	@echo 'make modules   the modules'
	@echo 'make bench     measure, and print the table of tests/bench/BASELINE.md'
	@echo 'make lint      manual pages, shell, Python'
	@echo 'make clean     remove what was built; the downloaded headers stay'

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
	@${SUBMAKE} -C ${SYSDIR}/modules MAKEOBJDIR=${KERNDIR}/modules all

archive: .PHONY kernel modules
	@${.CURDIR}/tools/mkarchive ${KERNDIR}/boot.tar ${KERNDIR}/modules

.if ${KERNCONF} != "GENERIC"
generic: .PHONY
	@${SUBMAKE} KERNCONF=GENERIC all
.else
generic: .PHONY all
.endif

run: .PHONY generic
	@${.CURDIR}/tools/demo

# XEN and GENERIC-NODEBUG have to build; GENERIC is what most tests boot.
testkernels: .PHONY generic
	@${SUBMAKE} KERNCONF=XEN all
	@${SUBMAKE} KERNCONF=GENERIC-NODEBUG all

hosted: .PHONY headers
	@${SUBMAKE} -C ${.CURDIR}/tests/hosted all

# The modules that tests load: the kernel's own, Xen's, and the personalities'.
ktest: .PHONY testkernels
.for _module in dev/pv/qdisk xen/xpend xen/xtest
	@mkdir -p ${OBJTOP}/GENERIC/tests/${_module:T}
	@${SUBMAKE} -C ${.CURDIR}/tests/sys/${_module} KERNCONF=GENERIC \
	    MAKEOBJDIR=${OBJTOP}/GENERIC/tests/${_module:T} all
.endfor
.for _kernel in GENERIC GENERIC-NODEBUG
	@mkdir -p ${OBJTOP}/${_kernel}/tests/ktest
	@${SUBMAKE} -C ${.CURDIR}/tests/sys/kern/ktest KERNCONF=${_kernel} \
	    MAKEOBJDIR=${OBJTOP}/${_kernel}/tests/ktest all
.endfor

test: .PHONY testkernels ktest hosted
	@${.CURDIR}/tools/runtests

bench: .PHONY
	@${SUBMAKE} KERNCONF=GENERIC-NODEBUG all
	@status=0; for b in bench benchballoon benchmigrate benchnet benchxen benchxn \
	    benchsuspend; do ${.CURDIR}/tools/$$b || status=1; done; exit $$status

lint: .PHONY bootstrap
	@${.CURDIR}/tools/lint

clean: .PHONY
	@rm -rf ${OBJTOP}/GENERIC ${OBJTOP}/GENERIC-NODEBUG ${OBJTOP}/XEN ${OBJTOP}/tests
