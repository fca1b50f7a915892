#
# SPDX-License-Identifier: BSD-2-Clause
#
# Build a kernel module, from a makefile that FreeBSD's bsd.kmod.mk takes as well:
#
#   KMOD   name of the module, without .ko
#   SRCS   .c files, found by .PATH; and the interface headers and sources that kobj(9) needs
#          (device_if.h, virtio_if.c ...), made from the .m file of that name in sys/
#

.include "kern.mk"

# Options' headers come from the kernel's build folder; interface headers are made here.
_OPTS=		${SRCS:Mopt_*.h}
_IFHDRS=	${SRCS:M*_if.h}
_IFSRCS=	${SRCS:M*_if.c}
_CSRCS=		${SRCS:M*.c:N*_if.c}
OBJS=		${_CSRCS:R:@_o@${_o}.o@} ${_IFSRCS:R:@_o@${_o}.o@}

KMOD_CFLAGS=	${KERN_CFLAGS} -DKLD_MODULE -DKLD_TIED -I${.OBJDIR} ${CFLAGS}

_MPATHS=	kern dev/pci dev/virtio dev/xen dev/pv
.for _if in ${_IFHDRS} ${_IFSRCS}
.if !defined(_mfile_${_if:R})
.for _dir in ${_MPATHS}
.if exists(${SYSDIR}/${_dir}/${_if:R}.m)
_mfile_${_if:R}= ${SYSDIR}/${_dir}/${_if:R}.m
.endif
.endfor
.endif
${_if}: ${_mfile_${_if:R}} ${MAKEOBJOPS}
	@${MAKEOBJOPS} -${_if:E} -d . ${_mfile_${_if:R}}
.endfor

all: ${KMOD}.ko

.for _src in ${_CSRCS} ${_IFSRCS}
${_src:T:R}.o: ${_src} ${KERNBUILDDIR}/opt_global.h ${KERNBUILDDIR}/offset.inc
	@echo "  CC      ${KMOD}/${.TARGET}"
	@${CC} ${KMOD_CFLAGS} -MD -MF ${.TARGET}.d -MT ${.TARGET} -c ${.ALLSRC:M*.c:[1]} -o ${.TARGET}
.dinclude "${.OBJDIR}/${_src:T:R}.o.d"
.endfor
.if !empty(_IFHDRS)
${OBJS}: ${_IFHDRS}
.endif

${KMOD}.ko: ${OBJS}
	@echo "  LD      ${.TARGET}"
	@${LD} -m elf_x86_64_fbsd -r -o ${.TARGET}.full ${OBJS}
	@${OBJCOPY} --strip-debug ${.TARGET}.full ${.TARGET}
