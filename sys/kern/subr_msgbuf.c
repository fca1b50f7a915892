/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The message buffer: a ring of the last console output, which keeps what has scrolled away.
 *
 * msg_wseq and msg_rseq count characters modulo msg_seqmod, a multiple of the size, so that a full
 * and an empty ring differ.
 *
 * Locking.  The writer's: printf(9) writes under its console lock.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/msgbuf.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sysctl.h>

struct msgbuf *msgbufp;
int msgbufsize;

void
msgbuf_init(struct msgbuf *mbp, void *ptr, int size)
{
	mbp->msg_ptr = ptr;
	mbp->msg_size = size;
	mbp->msg_seqmod = 16 * size;
	mbp->msg_magic = MSG_MAGIC;
	msgbuf_clear(mbp);
}

void
msgbuf_clear(struct msgbuf *mbp)
{
	memset(mbp->msg_ptr, 0, mbp->msg_size);
	mbp->msg_wseq = mbp->msg_rseq = 0;
	mbp->msg_cksum = 0;
	mbp->msg_flags = 0;
}

void
msgbuf_addchar(struct msgbuf *mbp, int c)
{
	mbp->msg_ptr[MSGBUF_SEQ_TO_POS(mbp, mbp->msg_wseq)] = c;
	mbp->msg_wseq = MSGBUF_SEQNORM(mbp, mbp->msg_wseq + 1);
	if (MSGBUF_SEQSUB(mbp, mbp->msg_wseq, mbp->msg_rseq) > mbp->msg_size) {
		mbp->msg_rseq = MSGBUF_SEQNORM(mbp, mbp->msg_wseq - mbp->msg_size);
		mbp->msg_flags |= MSGBUF_WRAP;
	}
}

int
msgbuf_getcount(struct msgbuf *mbp)
{
	return (MIN(MSGBUF_SEQSUB(mbp, mbp->msg_wseq, mbp->msg_rseq), mbp->msg_size));
}

/* The next unread character, or -1. */
int
msgbuf_getchar(struct msgbuf *mbp)
{
	int c;

	if (mbp->msg_rseq == mbp->msg_wseq)
		return (-1);
	c = (u_char)mbp->msg_ptr[MSGBUF_SEQ_TO_POS(mbp, mbp->msg_rseq)];
	mbp->msg_rseq = MSGBUF_SEQNORM(mbp, mbp->msg_rseq + 1);
	return (c);
}

/* Called once; the buffer starts out with the header at the end of the memory. */
void
msgbufinit(void *ptr, int size)
{
	char *mem = ptr;

	size -= sizeof(struct msgbuf);
	msgbufsize = size;
	msgbufp = (struct msgbuf *)(mem + size);
	msgbuf_init(msgbufp, ptr, size);
}

static int
sysctl_kern_msgbuf(SYSCTL_HANDLER_ARGS)
{
	struct msgbuf *mbp = msgbufp;
	u_int seq, n;
	int error = 0;
	char c;

	n = MIN(MSGBUF_SEQSUB(mbp, mbp->msg_wseq, mbp->msg_rseq), mbp->msg_size);
	seq = MSGBUF_SEQSUB(mbp, mbp->msg_wseq, n);
	for (; n > 0 && error == 0; n--) {
		c = mbp->msg_ptr[MSGBUF_SEQ_TO_POS(mbp, seq)];
		seq = MSGBUF_SEQNORM(mbp, seq + 1);
		error = SYSCTL_OUT(req, &c, 1);
	}
	c = '\0';
	return (error != 0 ? error : SYSCTL_OUT(req, &c, 1));
}
SYSCTL_PROC(_kern, OID_AUTO, msgbuf, CTLTYPE_STRING | CTLFLAG_RD | CTLFLAG_MPSAFE | CTLFLAG_SKIP,
    NULL, 0, sysctl_kern_msgbuf, "A", "Contents of kernel message buffer");
