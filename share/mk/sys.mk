#
# SPDX-License-Identifier: BSD-2-Clause
#
# What bmake reads before any makefile of this tree: tools and paths, by their names in FreeBSD.
# On FreeBSD this folder is not used; sys/modules is built with the system's own files there.
#

unix?=		We run FreeBSD, not UNIX.
.SUFFIXES:	.c .S .m .h .o
.LIBS:		.a

MACHINE=	amd64
MACHINE_ARCH=	amd64
MACHINE_CPUARCH= amd64

NM=		llvm-nm-19
PYTHON=		/usr/bin/python3
SHELL?=		/bin/sh

SRCTOP:=	${.PARSEDIR:H:H:tA}
OBJTOP?=	${SRCTOP}/obj

CC=		${SRCTOP}/tools/cc ccache clang-19
LD=		${SRCTOP}/tools/cc ld.lld-19
OBJCOPY=	${SRCTOP}/tools/cc llvm-objcopy-19

# Half a file, of a disk that is full, would be newer than its sources.
.DELETE_ON_ERROR:

# A source that several kernels compile in the same way is compiled once: paths below SRCTOP are
# relative for ccache, so that the folder of the kernel does not count; nor does the language, in which
# only the compiler's messages differ.
# All clones of a user share it; where the user has no folder that can be written, it is the clone's.
.if empty(CCACHE_DIR)
.if !empty(XDG_CACHE_HOME)
CCACHE_DIR:=	${XDG_CACHE_HOME}/pv-kmod/ccache
.elif !empty(HOME)
CCACHE_DIR:=	${HOME}/.cache/pv-kmod/ccache
.else
CCACHE_DIR:=	${OBJTOP}/ccache
.endif
_writable!=	mkdir -p ${CCACHE_DIR:Q} 2>/dev/null && test -w ${CCACHE_DIR:Q} && echo yes || echo no
.if ${_writable} == "no"
CCACHE_DIR:=	${OBJTOP}/ccache
.endif
.endif
CCACHE_BASEDIR=	${SRCTOP}
CCACHE_NOHASHDIR= yes
CCACHE_SLOPPINESS= locale
.export CCACHE_DIR CCACHE_BASEDIR CCACHE_NOHASHDIR CCACHE_SLOPPINESS

KERNCONF?=	GENERIC
.MAKE.JOB.PREFIX=
SYSDIR?=	${SRCTOP}/sys
KERNBUILDDIR?=	${OBJTOP}/${KERNCONF}
