#
# SPDX-License-Identifier: BSD-2-Clause
#
# What a port's Makefile includes, in the place of the ports collection's: as much as port_test needs.
# Variables and targets have the names of the Porter's Handbook; WRKDIR is given, with the tarball in
# it and options in WITH.
#

.for _needed in PORTNAME DISTVERSION CATEGORIES MAINTAINER COMMENT LICENSE LICENSE_FILE USES
.if !defined(${_needed}) || empty(${_needed})
.error ${_needed} is missing
.endif
.endfor
.if ${COMMENT:C/^(An?|The) .*/bad/} == "bad" || !empty(COMMENT:M*.)
.error COMMENT: begins with an article, or ends with a full stop
.endif
.if ${USES:Mkmod} == ""
.error USES has no kmod
.endif

PREFIX?=	/usr/local
PKGNAME=	${PORTNAME}${PKGNAMESUFFIX}-${DISTVERSION}
DISTNAME?=	${PORTNAME}-${DISTVERSION}
DISTFILE=	${DISTNAME}.tar.gz
WRKSRC?=	${WRKDIR}/${DISTNAME}
BUILD_WRKSRC?=	${WRKSRC}
INSTALL_WRKSRC?=	${WRKSRC}
STAGEDIR=	${WRKDIR}/stage
KMODDIR=	/boot/modules
MKDIR=		mkdir -p
INSTALL_MAN=	install -m 444
MAKE_ENV=	KMODDIR=${KMODDIR} NO_XREF=yes NO_PIE=yes MK_DEBUG_FILES=no MK_KERNEL_SYMBOLS=no

PLIST_SUB=	-e 's,%%KMODDIR%%,${KMODDIR:C,^/,,},'
.for _option in ${OPTIONS_DEFINE}
.if !defined(${_option}_DESC)
.error ${_option}_DESC is missing
.endif
.if ${WITH:M${_option}}
MAKE_ARGS+=	${${_option}_MAKE_ARGS}
PLIST_SUB+=	-e 's,%%${_option}%%,,'
_after=		post-install-${_option}-on
.else
MAKE_ARGS+=	${${_option}_MAKE_ARGS_OFF}
PLIST_SUB+=	-e '/%%${_option}%%/d'
.endif
.endfor

extract:
	tar -xf ${DISTDIR}/${DISTFILE} -C ${WRKDIR}
	test -f ${LICENSE_FILE}

build: extract
	cd ${BUILD_WRKSRC} && env ${MAKE_ENV} ${MAKE} -j2 ${MAKE_ARGS} all

pre-install: build
	${MKDIR} ${STAGEDIR}${KMODDIR}

do-install: pre-install
	cd ${INSTALL_WRKSRC} && env ${MAKE_ENV} ${MAKE} ${MAKE_ARGS} install DESTDIR=${STAGEDIR}

post-install ${_after}: do-install

# Manual pages are compressed when they are staged.
stage: post-install ${_after}
	find ${STAGEDIR}${PREFIX}/share/man -type f -exec gzip {} +

plist:
	@sed ${PLIST_SUB} pkg-plist | sed -e 's,^[^/],${PREFIX}/&,' | LC_ALL=C sort
