#
# SPDX-License-Identifier: BSD-2-Clause
#
# Build a kernel module, from a makefile that FreeBSD's bsd.kmod.mk takes as well:
#
#   KMOD   name of the module, without .ko
#   EXPORT_SYMS   the symbols that other modules may use; without it there are none
#   CFLAGS, CFLAGS.FILE.c   options for all sources, and for that one
#   SRCS   .c files, found by .PATH; and the interface headers and sources that kobj(9) needs
#          (device_if.h, virtio_if.c ...), made from the .m file of that name in sys/
#

.include "kern.mk"

# An interface's header or source is one that has a .m file; it is made here.
_MPATHS=	kern dev/pci dev/virtio dev/xen dev/pv xen/xenbus
.for _src in ${SRCS:M*_if.[ch]}
.for _dir in ${_MPATHS}
.if exists(${SYSDIR}/${_dir}/${_src:R}.m)
_IFS+=		${_src}
${_src}: ${SYSDIR}/${_dir}/${_src:R}.m ${MAKEOBJOPS}
	@${MAKEOBJOPS} -${_src:E} -d . ${SYSDIR}/${_dir}/${_src:R}.m
.endif
.endfor
.endfor
_IFHDRS=	${_IFS:M*.h}
_IFSRCS=	${_IFS:M*.c}
_CSRCS=		${SRCS:M*.c}
.for _src in ${_IFSRCS}
_CSRCS:=	${_CSRCS:N${_src}}
.endfor
OBJS=		${_CSRCS:R:@_o@${_o}.o@} ${_IFSRCS:R:@_o@${_o}.o@}

# What has the options of the compiler.
_OPTIONS=	${.CURDIR}/Makefile ${.PARSEDIR}/bsd.kmod.mk ${.PARSEDIR}/kern.mk
KMOD_CFLAGS=	${KERN_CFLAGS} -DKLD_MODULE -DKLD_TIED -I${.OBJDIR} ${CFLAGS}

all: ${KMOD}.ko

.for _src in ${_CSRCS} ${_IFSRCS}
${_src:T:R}.o: ${_src} ${KERNBUILDDIR}/opt_global.h ${KERNBUILDDIR}/offset.inc ${_OPTIONS}
	@echo "  CC      ${KMOD}/${.TARGET}"
	@${CC} ${KMOD_CFLAGS} ${CFLAGS.${_src:T}} -MD -MF ${.TARGET}.d -MT ${.TARGET} -c ${.ALLSRC:M*.c:[1]} -o ${.TARGET}
.dinclude "${.OBJDIR}/${_src:T:R}.o.d"
.endfor
.if !empty(_IFHDRS)
${OBJS}: ${_IFHDRS}
.endif

# COVERAGE=yes: for tools/coverage.  An object before all others and one behind them bound the counters.
.if defined(COVERAGE) && !empty(.CURDIR:M*/sys/modules/*)
KMOD_CFLAGS+=	-fprofile-instr-generate -fcoverage-mapping
_COUNTERS=	${SRCTOP}/tests/sys/coverage/coverage.c
_FIRST=		coverage_begin.o
_LAST=		coverage_end.o
coverage_begin.o coverage_end.o: ${_COUNTERS} ${_OPTIONS}
	@${CC} ${KERN_CFLAGS} -DKLD_MODULE -DKLD_TIED -DCOVERAGE_MODULE='"${KMOD}"' \
	    ${.TARGET:Mcoverage_end.o:S/coverage_end.o/-DCOVERAGE_END/} -c ${_COUNTERS} -o ${.TARGET}
.endif

${KMOD}.ko: ${_FIRST} ${OBJS} ${_LAST} ${.CURDIR}/Makefile
	@echo "  LD      ${.TARGET}"
	@${LD} -m ${KERN_EMULATION} -r ${_FIRST:D--force-group-allocation} -o ${.TARGET}.full ${_FIRST} ${OBJS} ${_LAST}
	@printf '%s\n' ${EXPORT_SYMS} >exported
	@${OBJCOPY} --strip-debug --keep-global-symbols=exported ${.TARGET}.full ${.TARGET}
