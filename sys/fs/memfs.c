/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Files in memory.
 *
 * The boot loader leaves one archive in memory: a ustar file (POSIX.1-1988), which holds modules
 * and whatever else the one who started the guest put there.  Those files are read-only and used
 * where they lie.  Commands can create others, which live in malloc(9) memory.
 *
 * Locking.  memfs_lock (sx) protects the list, the names and the contents; a file that is open is
 * not freed (mf_refs).  Nothing is called up with it held.
 *
 * Gaps.  No folders: a name is a whole path.  No links, no times, no owners.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/queue.h>
#include <sys/sx.h>

#include <amd64/amd64/boot_tree.h>
#include <fs/memfs_tree.h>

#define	MEMFS_NAMELEN	128

struct memfs_file {
	TAILQ_ENTRY(memfs_file) mf_link;
	char		 mf_name[MEMFS_NAMELEN];
	char		*mf_data;
	size_t		 mf_size;	/* bytes of the file */
	size_t		 mf_room;	/* bytes allocated; 0: the archive's, read-only */
	u_int		 mf_refs;	/* openers */
	bool		 mf_unlinked;	/* no longer on the list */
};

/* Header of a file in a ustar archive; numbers are octal text. */
struct ustar_header {
	char	name[100];
	char	mode[8];
	char	uid[8];
	char	gid[8];
	char	size[12];
	char	mtime[12];
	char	checksum[8];
	char	type;
	char	linkname[100];
	char	magic[6];
	char	version[2];
	char	uname[32];
	char	gname[32];
	char	devmajor[8];
	char	devminor[8];
	char	prefix[155];
	char	pad[12];
};
CTASSERT(sizeof(struct ustar_header) == 512);

static MALLOC_DEFINE(M_MEMFS, "memfs", "files in memory");

static TAILQ_HEAD(, memfs_file) memfs_files = TAILQ_HEAD_INITIALIZER(memfs_files);
static struct sx memfs_lock;
SX_SYSINIT(memfs_lock, &memfs_lock, "memfs");

static struct memfs_file *
memfs_lookup(const char *path)
{
	struct memfs_file *f;

	sx_assert(&memfs_lock, SA_LOCKED);
	TAILQ_FOREACH(f, &memfs_files, mf_link) {
		if (strcmp(f->mf_name, path) == 0)
			return (f);
	}
	return (NULL);
}

int
memfs_open(const char *path, struct memfs_file **fp)
{
	struct memfs_file *f;

	sx_xlock(&memfs_lock);
	f = memfs_lookup(path);
	if (f != NULL)
		f->mf_refs++;
	sx_xunlock(&memfs_lock);
	*fp = f;
	return (f == NULL ? ENOENT : 0);
}

int
memfs_create(const char *path, struct memfs_file **fp)
{
	struct memfs_file *f;
	int error = 0;

	*fp = NULL;
	if (path[0] != '/' || strlen(path) >= MEMFS_NAMELEN)
		return (EINVAL);
	sx_xlock(&memfs_lock);
	f = memfs_lookup(path);
	if (f != NULL && f->mf_room == 0 && f->mf_data != NULL)
		error = EROFS;
	else if (f != NULL)
		f->mf_size = 0;
	else {
		f = malloc(sizeof(*f), M_MEMFS, M_WAITOK | M_ZERO);
		strlcpy(f->mf_name, path, sizeof(f->mf_name));
		TAILQ_INSERT_TAIL(&memfs_files, f, mf_link);
	}
	if (error == 0) {
		f->mf_refs++;
		*fp = f;
	}
	sx_xunlock(&memfs_lock);
	return (error);
}

static void
memfs_release(struct memfs_file *f)
{

	sx_assert(&memfs_lock, SA_XLOCKED);
	if (f->mf_refs == 0 && f->mf_unlinked) {
		free(f->mf_data, M_MEMFS);
		free(f, M_MEMFS);
	}
}

void
memfs_close(struct memfs_file *f)
{

	sx_xlock(&memfs_lock);
	KASSERT(f->mf_refs > 0, ("memfs_close: %s is not open", f->mf_name));
	f->mf_refs--;
	memfs_release(f);
	sx_xunlock(&memfs_lock);
}

int
memfs_unlink(const char *path)
{
	struct memfs_file *f;
	int error = 0;

	sx_xlock(&memfs_lock);
	f = memfs_lookup(path);
	if (f == NULL)
		error = ENOENT;
	else if (f->mf_room == 0 && f->mf_data != NULL)
		error = EROFS;
	else {
		TAILQ_REMOVE(&memfs_files, f, mf_link);
		f->mf_unlinked = true;
		memfs_release(f);
	}
	sx_xunlock(&memfs_lock);
	return (error);
}

size_t
memfs_size(struct memfs_file *f)
{

	return (f->mf_size);
}

int
memfs_read(struct memfs_file *f, off_t off, void *buf, size_t *lenp)
{
	size_t left;

	if (off < 0)
		return (EINVAL);
	sx_slock(&memfs_lock);
	left = (size_t)off >= f->mf_size ? 0 : f->mf_size - (size_t)off;
	*lenp = MIN(*lenp, left);
	if (*lenp > 0)
		memcpy(buf, f->mf_data + off, *lenp);
	sx_sunlock(&memfs_lock);
	return (0);
}

/* Make room for size bytes, doubling so that appending is linear. */
static int
memfs_grow(struct memfs_file *f, size_t size)
{
	char *data;
	size_t room;

	sx_assert(&memfs_lock, SA_XLOCKED);
	if (size <= f->mf_room)
		return (0);
	room = MAX(size, 2 * f->mf_room);
	room = MIN(MAX(room, PAGE_SIZE), MEMFS_MAXSIZE);
	data = realloc(f->mf_data, room, M_MEMFS, M_NOWAIT);
	if (data == NULL)
		return (ENOMEM);
	f->mf_data = data;
	f->mf_room = room;
	return (0);
}

int
memfs_write(struct memfs_file *f, off_t off, const void *buf, size_t len)
{
	size_t end;
	int error;

	if (off < 0)
		return (EINVAL);
	if ((size_t)off > MEMFS_MAXSIZE || len > MEMFS_MAXSIZE - (size_t)off)
		return (EFBIG);
	end = (size_t)off + len;
	sx_xlock(&memfs_lock);
	if (f->mf_room == 0 && f->mf_data != NULL)
		error = EROFS;
	else
		error = memfs_grow(f, end);
	if (error == 0 && len > 0) {
		if ((size_t)off > f->mf_size)
			memset(f->mf_data + f->mf_size, 0, (size_t)off - f->mf_size);
		memcpy(f->mf_data + off, buf, len);
		f->mf_size = MAX(f->mf_size, end);
	}
	sx_xunlock(&memfs_lock);
	return (error);
}

const void *
memfs_data(struct memfs_file *f)
{

	return (f->mf_data);
}

bool
memfs_next(const char *after, char *name, size_t len, size_t *sizep)
{
	struct memfs_file *f;

	sx_slock(&memfs_lock);
	if (after == NULL)
		f = TAILQ_FIRST(&memfs_files);
	else {
		f = memfs_lookup(after);
		if (f != NULL)
			f = TAILQ_NEXT(f, mf_link);
	}
	if (f != NULL) {
		strlcpy(name, f->mf_name, len);
		*sizep = f->mf_size;
	}
	sx_sunlock(&memfs_lock);
	return (f != NULL);
}

/* An octal field, ended by a blank, a NUL or its own length; -1 if it is something else. */
static int64_t
ustar_number(const char *field, size_t len)
{
	int64_t value = 0;
	size_t i;

	for (i = 0; i < len && field[i] != ' ' && field[i] != '\0'; i++) {
		if (field[i] < '0' || field[i] > '7')
			return (-1);
		value = value * 8 + (field[i] - '0');
	}
	return (value);
}

/* Add one file of the archive.  Names there have no leading slash, or "./". */
static void
memfs_add_archived(const struct ustar_header *h, const char *data, size_t size)
{
	struct memfs_file *f;
	const char *name = h->name;

	if (strncmp(name, "./", 2) == 0)
		name += 2;
	f = malloc(sizeof(*f), M_MEMFS, M_WAITOK | M_ZERO);
	snprintf(f->mf_name, sizeof(f->mf_name), "/%.*s",
	    (int)(sizeof(h->name) - (name - h->name)), name);
	f->mf_data = __DECONST(char *, data);
	f->mf_size = size;
	TAILQ_INSERT_TAIL(&memfs_files, f, mf_link);
}

/* List the boot archive's files.  What is damaged ends the list, with a message. */
static void
memfs_init(void *arg __unused)
{
	const struct ustar_header *h;
	const void *archive;
	const char *p;
	int64_t size;
	size_t left;

	boot_archive(&archive, &left);
	for (p = archive; left >= sizeof(*h); ) {
		h = (const void *)p;
		if (h->name[0] == '\0')
			break;
		size = ustar_number(h->size, sizeof(h->size));
		p += sizeof(*h);
		left -= sizeof(*h);
		if (strncmp(h->magic, "ustar", 5) != 0 || size < 0 || (uint64_t)size > left) {
			printf("memfs: the boot archive is damaged or truncated; "
			    "the files before the damage are there\n");
			break;
		}
		if (h->type == '0' || h->type == '\0')
			memfs_add_archived(h, p, size);
		size = MIN(roundup2((size_t)size, sizeof(*h)), left);
		p += size;
		left -= size;
	}
}
/* Before what is to be loaded from there (kern_preload.c). */
SYSINIT(memfs, SI_SUB_KLD, SI_ORDER_FIRST, memfs_init, NULL);
