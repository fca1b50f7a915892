#
# SPDX-License-Identifier: BSD-2-Clause
#
# Build a kernel in the folder that tools/config filled.
#

.MAIN: kernel

.include "${KERNBUILDDIR}/kernel.mk"
.include "kern.mk"

KERN_IFHDRS=	${KERN_MFILES:T:R:@_f@${_f}.h@}
KERN_IFSRCS=	${KERN_MFILES:T:R:@_f@${_f}.c@}
KERN_OBJS=	${KERN_SRCS:S,/,_,g:R:@_f@${_f}.o@} ${KERN_IFSRCS:R:@_f@${_f}.o@} vers.o
LDSCRIPT=	${SYSDIR}/conf/ldscript.amd64

.for _m in ${KERN_MFILES}
${_m:T:R}.h: ${SYSDIR}/${_m} ${MAKEOBJOPS}
	@${MAKEOBJOPS} -h -d . ${SYSDIR}/${_m}
${_m:T:R}.c: ${SYSDIR}/${_m} ${MAKEOBJOPS}
	@${MAKEOBJOPS} -c -d . ${SYSDIR}/${_m}
.endfor

# Offsets of struct thread that FreeBSD's inlines want before the structure is declared.
offset.inc: ${SYSDIR}/kern/genoffset.c ${SRCTOP}/tools/genoffset opt_global.h
	@${CC} ${KERN_CFLAGS} -DGENOFFSET -c ${SYSDIR}/kern/genoffset.c -o genoffset.o
	@${SRCTOP}/tools/genoffset genoffset.o >${.TARGET}.new && mv ${.TARGET}.new ${.TARGET}

.for _src in ${KERN_SRCS}
_obj:=		${_src:S,/,_,g:R}.o
.if ${_src:E} == "S"
${_obj}: ${SYSDIR}/${_src} offset.inc
	@echo "  AS      ${_src}"
	@${CC} ${KERN_ASFLAGS} -MD -MF ${.TARGET}.d -MT ${.TARGET} -c ${SYSDIR}/${_src} -o ${.TARGET}
.else
${_obj}: ${SYSDIR}/${_src} offset.inc ${KERN_IFHDRS}
	@echo "  CC      ${_src}"
	@${CC} ${KERN_CFLAGS} -MD -MF ${.TARGET}.d -MT ${.TARGET} -c ${SYSDIR}/${_src} -o ${.TARGET}
.endif
.dinclude "${KERNBUILDDIR}/${_obj}.d"
.endfor
.for _src in ${KERN_IFSRCS}
${_src:R}.o: ${_src} offset.inc ${KERN_IFHDRS}
	@${CC} ${KERN_CFLAGS} -c ${_src} -o ${.TARGET}
.endfor

# The version's line names no date and no machine, so that the same sources give the same kernel.
vers.c: kernel.mk ${SRCTOP}/share/mk/bsd.kernel.mk
	@printf '#include <sys/param.h>\n#include <sys/systm.h>\n#include <sys/kernel.h>\n#include <sys/sysctl.h>\n\n' >${.TARGET}
	@printf 'const char version[] = "pv-kmod 15.0 ${KERN_IDENT} amd64\\n";\n' >>${.TARGET}
	@printf 'const char kern_ident[] = "${KERN_IDENT}";\n' >>${.TARGET}
	@printf 'const char compiler_version[] = "clang 19";\n' >>${.TARGET}
	@printf 'const char osrelease[] = "15.0";\nconst char ostype[] = "FreeBSD";\n' >>${.TARGET}
vers.o: vers.c offset.inc
	@${CC} ${KERN_CFLAGS} -c vers.c -o ${.TARGET}

headers: .PHONY offset.inc ${KERN_IFHDRS}
kernel: .PHONY kernel.elf

# The kernel carries its own symbol table, for the module linker and for backtraces: linked once to
# read the symbols, then again with the table of them behind everything else (tools/ksyms).
KERN_LDFLAGS=	-m elf_x86_64_fbsd -nostdlib -static --no-gc-sections -z max-page-size=0x1000 \
		--build-id=none -T ${LDSCRIPT}

kernel.tmp: ${KERN_OBJS} ${LDSCRIPT}
	@echo "  LD      kernel"
	@${LD} ${KERN_LDFLAGS} -o ${.TARGET} ${KERN_OBJS}
kernel.debug: kernel.tmp ${SRCTOP}/tools/ksyms
	@${SRCTOP}/tools/ksyms -o ksyms.S kernel.tmp
	@${CC} ${KERN_TARGET} -c ksyms.S -o ksyms.o
	@${LD} ${KERN_LDFLAGS} -o ${.TARGET} ${KERN_OBJS} ksyms.o
	@${SRCTOP}/tools/ksyms --check kernel.tmp ${.TARGET}
kernel.elf: kernel.debug
	@${OBJCOPY} --strip-debug kernel.debug kernel
	@touch ${.TARGET}
