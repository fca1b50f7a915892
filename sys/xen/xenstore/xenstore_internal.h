/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * FreeBSD's own Xen core: what xenstore's device has of it.
 */

#ifndef _XEN_XENSTORE_XENSTORE_INTERNAL_H
#define	_XEN_XENSTORE_XENSTORE_INTERNAL_H

#include <xen/io/xs_wire.h>

/*
 * Send a message, whose payload follows its header, and wait for the answer: its type and length are
 * written to the header, its payload is *result, memory of M_XENSTORE.
 */
int	xs_dev_request_and_reply(struct xsd_sockmsg *msg, void **result);

#endif /* !_XEN_XENSTORE_XENSTORE_INTERNAL_H */
