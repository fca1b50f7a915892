/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * GEOM, for tests of a disk's driver: bios, and what the disk has.
 */

#ifndef _DISK_USER_H_
#define	_DISK_USER_H_

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bio.h>

#define	SECTOR		512
#define	SECTORS		2048

/* The model device's memory, with which what was read and written is compared. */
extern u_char disk_bytes[SECTORS * SECTOR];

/* Let the device answer, and all tasks run, until nothing is left to do. */
extern void (*disk_settles)(void);

/* A disk of zeros. */
void	disk_new(void (*settles)(void));

/* Submit a bio of so many bytes from a sector on; those of a write are as the sector makes them. */
struct bio *submit(int cmd, u_int sector, size_t len);

/* It has ended, with this error, and its data is the disk's.  It is freed. */
void	ended(struct bio *bp, int error);

/* Has it? */
bool	has_ended(const struct bio *bp);

/* Both, with all that happens between. */
void	io(int cmd, u_int sector, size_t len, int error);

/* Time passes. */
void	seconds(u_int n);

#endif /* !_DISK_USER_H_ */
