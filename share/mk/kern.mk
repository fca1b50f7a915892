#
# SPDX-License-Identifier: BSD-2-Clause
#
# How kernel code is compiled, for the kernel and the modules alike.
#

SYSROOT=	${OBJTOP}/sysroot

# What differs between machines.  The tree kernel is amd64's alone: `make arm64' compiles the suite's modules.
.if ${MACHINE} == "arm64"
KERN_TARGET=	-target aarch64-unknown-freebsd15.0
KERN_CPU=	-mgeneral-regs-only -ffixed-x18
KERN_EMULATION=	aarch64elf
.else
KERN_TARGET=	-target x86_64-unknown-freebsd15.0
KERN_CPU=	-mcmodel=kernel -mno-red-zone -mno-mmx -mno-sse -mno-avx -msoft-float
KERN_EMULATION=	elf_x86_64_fbsd
.endif

# FreeBSD 15's headers, as installed; nothing of the build machine's.
KERN_INCS=	-nostdinc -I${SYSDIR} -I${KERNBUILDDIR} \
		-isystem ${SYSROOT}/freebsd-${MACHINE} -isystem ${SYSROOT}/freebsd \
		-isystem ${SYSROOT}/ck -isystem ${SYSROOT}/xen

KERN_DEFS=	-D_KERNEL -D__FreeBSD_version=1500068 -D__printf__=__freebsd_kprintf__ \
		-include ${KERNBUILDDIR}/opt_global.h
# File names are those below SRCTOP; ccache(1) names them from the folder of a kernel or a module.
KERN_CODE=	-std=gnu17 -O2 -g -pipe -ffreestanding -fno-common -fno-strict-aliasing \
		-fno-omit-frame-pointer -fwrapv -ftrivial-auto-var-init=zero \
		-fno-asynchronous-unwind-tables ${KERN_CPU} \
		-ffile-prefix-map=../=obj/ -ffile-prefix-map=../../= -ffile-prefix-map=../../../=obj/ \
		-ffile-prefix-map=../../../../= -ffile-prefix-map=${SRCTOP}/=

# The one place where warnings are excepted: each is a habit of kernel interfaces.
#   unused-parameter            methods have the signature of their interface
#   sign-compare                FreeBSD's own inlines compare so
#   missing-field-initializers  method tables end with { 0 }
#   address-of-packed-member    protocol headers are packed and aligned by hand
#   format-zero-length          device_set_descf(dev, "")
#   pointer-sign                char and u_char in KPI prototypes
KERN_WARN=	-Wall -Wextra -Werror -Wmissing-prototypes -Wpointer-arith \
		-Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers \
		-Wno-address-of-packed-member -Wno-format-zero-length -Wno-pointer-sign

KERN_CFLAGS=	${KERN_TARGET} ${KERN_CODE} ${KERN_INCS} ${KERN_DEFS} ${KERN_WARN}
KERN_ASFLAGS=	${KERN_TARGET} ${KERN_INCS} ${KERN_DEFS} -DLOCORE -D_LOCORE -g \
		-x assembler-with-cpp -Wa,--fatal-warnings

MAKEOBJOPS=	${SRCTOP}/tools/makeobjops
