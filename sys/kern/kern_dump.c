/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Kernel dumps: the dump device (dumpon(8)) and the dump that is written to it after a panic.
 *
 * A dump is at the end of its device, where savecore(8) looks for it:
 *
 *	... | header (1 block) | data | header (1 block) |   end of the device
 *
 * The headers are written last, so that an incomplete dump is not recognised as one.  Everything is
 * written through the disk's d_dump, which polls: no interrupt and no other thread runs.
 *
 * The data has the format of a minidump, reduced to its header and the message buffer, the kernel's
 * last messages.  Its page tables and its page bitmap are empty.
 *
 * Gaps: one dump device, no compression, no encryption, no memory pages.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/conf.h>
#include <sys/disk.h>
#include <sys/kerneldump.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/msgbuf.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/time.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>

#include <machine/minidump.h>
#include <machine/vmparam.h>

#include <kern/devfs_tree.h>

static MALLOC_DEFINE(M_DUMPER, "dumper", "dumper block buffer");

/* savecore(8) skips the first 64 KB of a device: a boot block or a label may be there. */
#define	DUMP_METADATA	(64 * 1024)

int dumping;
bool dumped_core;

static struct mtx dumpconf_mtx;
MTX_SYSINIT(dumpconf, &dumpconf_mtx, "dumper config", MTX_DEF);
static struct dumperinfo *dumpdev;

void
dumper_destroy(struct dumperinfo *di)
{
	if (di == NULL)
		return;
	free(di->blockbuf, M_DUMPER);
	free(di, M_DUMPER);
}

/* Makes a configured dumper from a disk's template.  EOPNOTSUPP: compression or encryption. */
int
dumper_create(const struct dumperinfo *template, const char *devname,
    const struct diocskerneldump_arg *kda, struct dumperinfo **dip)
{
	struct dumperinfo *di;

	if (kda != NULL && (kda->kda_compression != KERNELDUMP_COMP_NONE ||
	    kda->kda_encryption != KERNELDUMP_ENC_NONE))
		return (EOPNOTSUPP);
	di = malloc(sizeof(*di) + strlen(devname) + 1, M_DUMPER, M_WAITOK | M_ZERO);
	bcopy(template, di, sizeof(*di));
	strcpy(di->di_devname, devname);
	di->blockbuf = malloc(MAX(di->blocksize, PAGE_SIZE), M_DUMPER, M_WAITOK | M_ZERO);
	*dip = di;
	return (0);
}

int
dumper_insert(const struct dumperinfo *template, const char *devname,
    const struct diocskerneldump_arg *kda)
{
	struct dumperinfo *di, *old;
	int error;

	error = dumper_create(template, devname, kda, &di);
	if (error != 0)
		return (error);
	mtx_lock(&dumpconf_mtx);
	old = dumpdev;
	dumpdev = di;
	mtx_unlock(&dumpconf_mtx);
	dumper_destroy(old);
	return (0);
}

/* Forgets the dump device if it is devname; ENXIO when it is another or there is none. */
int
dumper_remove(const char *devname, const struct diocskerneldump_arg *kda __unused)
{
	struct dumperinfo *old = NULL;

	mtx_lock(&dumpconf_mtx);
	if (dumpdev != NULL && strcmp(dumpdev->di_devname, devname) == 0) {
		old = dumpdev;
		dumpdev = NULL;
	}
	mtx_unlock(&dumpconf_mtx);
	dumper_destroy(old);
	return (old != NULL ? 0 : ENXIO);
}

bool
dumpdev_name(char *buf, size_t len)
{
	bool set;

	mtx_lock(&dumpconf_mtx);
	set = dumpdev != NULL;
	if (set)
		strlcpy(buf, dumpdev->di_devname, len);
	mtx_unlock(&dumpconf_mtx);
	return (set);
}

void
dump_init_header(const struct dumperinfo *di, struct kerneldumpheader *kdh, const char *magic,
    uint32_t archver, uint64_t dumplen)
{
	bzero(kdh, sizeof(*kdh));
	strlcpy(kdh->magic, magic, sizeof(kdh->magic));
	strlcpy(kdh->architecture, MACHINE_ARCH, sizeof(kdh->architecture));
	kdh->version = htod32(KERNELDUMPVERSION);
	kdh->architectureversion = htod32(archver);
	kdh->dumplength = htod64(dumplen);
	kdh->dumpextent = kdh->dumplength;
	kdh->dumptime = htod64(time_second);
	kdh->blocksize = htod32(di->blocksize);
	strlcpy(kdh->hostname, "pv-kmod", sizeof(kdh->hostname));
	strlcpy(kdh->versionstring, version, sizeof(kdh->versionstring));
	if (panicstr != NULL)
		strlcpy(kdh->panicstring, panicstr, sizeof(kdh->panicstring));
	kdh->compression = KERNELDUMP_COMP_NONE;
	kdh->parity = kerneldump_parity(kdh);
}

/* Writes whole blocks inside the device only: a wrong offset must not overwrite other data. */
int
dump_write(struct dumperinfo *di, void *virtual, off_t offset, size_t length)
{
	if (length % di->blocksize != 0 || offset < di->mediaoffset ||
	    offset + (off_t)length > di->mediaoffset + di->mediasize) {
		printf("dump: [%jd, +%zu) is outside of the dump device\n", (intmax_t)offset, length);
		return (ENOSPC);
	}
	return (di->dumper(di->priv, virtual, offset, length));
}

int
dump_start(struct dumperinfo *di, struct kerneldumpheader *kdh)
{
	uint64_t extent;

	extent = roundup(dtoh64(kdh->dumpextent), di->blocksize);
	if (di->mediasize < DUMP_METADATA + (off_t)extent + 2 * (off_t)di->blocksize)
		return (E2BIG);
	di->dumpoff = di->mediaoffset + di->mediasize - di->blocksize - extent;
	di->origdumpoff = di->dumpoff;
	return (di->dumper_start != NULL ? di->dumper_start(di, NULL, 0) : 0);
}

/* Writes the next length bytes; a partial block is padded. */
int
dump_append(struct dumperinfo *di, void *virtual, size_t length)
{
	size_t n, max;
	char *p = virtual;
	int error = 0;

	max = di->maxiosize != 0 ? rounddown(di->maxiosize, di->blocksize) : di->blocksize;
	while (error == 0 && length > 0) {
		n = MIN(rounddown(length, di->blocksize), max);
		if (n == 0) {
			bzero(di->blockbuf, di->blocksize);
			bcopy(p, di->blockbuf, length);
			p = di->blockbuf;
			n = length = di->blocksize;
		}
		error = dump_write(di, p, di->dumpoff, n);
		di->dumpoff += n;
		p += n;
		length -= n;
	}
	return (error);
}

/* Writes both headers around the appended data, then flushes the disk. */
int
dump_finish(struct dumperinfo *di, struct kerneldumpheader *kdh)
{
	off_t end;
	int error;

	end = di->mediaoffset + di->mediasize - di->blocksize;
	bzero(di->blockbuf, di->blocksize);
	bcopy(kdh, di->blockbuf, MIN(sizeof(*kdh), di->blocksize));
	error = dump_write(di, di->blockbuf, di->origdumpoff - di->blocksize, di->blocksize);
	if (error == 0)
		error = dump_write(di, di->blockbuf, end, di->blocksize);
	/* A length of 0 ends the dump for a dumper. */
	if (error == 0)
		error = di->dumper(di->priv, NULL, 0, 0);
	return (error);
}

/* The message buffer as one piece of memory, cut to whole pages. */
static int
dump_msgbuf(struct dumperinfo *di, size_t size)
{
	return (size == 0 ? 0 : dump_append(di, msgbufp->msg_ptr, size));
}

int
minidumpsys(struct dumperinfo *di, bool livedump __unused)
{
	static char page[PAGE_SIZE] __aligned(PAGE_SIZE);
	static struct kerneldumpheader kdh;
	struct minidumphdr *mdh = (struct minidumphdr *)page;
	size_t msgsize;
	int error;

	msgsize = msgbufp != NULL ? trunc_page(msgbufp->msg_size) : 0;
	bzero(page, sizeof(page));
	strlcpy(mdh->magic, MINIDUMP_MAGIC, sizeof(mdh->magic));
	mdh->version = MINIDUMP_VERSION;
	mdh->msgbufsize = msgsize;
	mdh->kernbase = VM_MIN_KERNEL_ADDRESS;
	mdh->dmapbase = kva_layout.dmap_low;
	mdh->dmapend = kva_layout.dmap_high;
	dump_init_header(di, &kdh, KERNELDUMPMAGIC, KERNELDUMP_AMD64_VERSION,
	    PAGE_SIZE + msgsize);
	printf("Dumping %zu KB to %s\n", (PAGE_SIZE + msgsize) / 1024, di->di_devname);
	error = dump_start(di, &kdh);
	if (error == 0)
		error = dump_append(di, page, PAGE_SIZE);
	if (error == 0)
		error = dump_msgbuf(di, msgsize);
	if (error == 0)
		error = dump_finish(di, &kdh);
	if (error == 0)
		printf("Dump complete\n");
	else if (error == E2BIG)
		printf("Dump failed. Partition too small (about %zu KB needed).\n",
		    (DUMP_METADATA + PAGE_SIZE + msgsize + 2 * di->blocksize) / 1024);
	else
		printf("** DUMP FAILED (ERROR %d) **\n", error);
	return (error);
}

/* Called by panic(9) with the other CPUs stopped.  EBUSY: the dump itself panicked. */
int
doadump(boolean_t textdump __unused)
{
	int error;

	if (dumping)
		return (EBUSY);
	if (dumpdev == NULL || dumpdev->dumper == NULL)
		return (ENXIO);
	dumping++;
	error = minidumpsys(dumpdev, false);
	dumping--;
	if (error == 0)
		dumped_core = true;
	return (error);
}
