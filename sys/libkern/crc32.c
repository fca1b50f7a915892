/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The table of CRC-32 (IEEE 802.3, low bit first), and CRC-32C (Castagnoli).
 *
 * A CRC is linear: the entry of a byte is the sum of the entries of its bits.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/gsb_crc32.h>

#define	POLY_CASTAGNOLI	0x82f63b78u

#define	BIT(n, bit, crc)	(((n) & (bit)) != 0 ? (crc) : 0)
#define	ENTRY(n)							\
	(BIT(n, 0x01, 0x77073096) ^ BIT(n, 0x02, 0xee0e612c) ^		\
	BIT(n, 0x04, 0x076dc419) ^ BIT(n, 0x08, 0x0edb8832) ^		\
	BIT(n, 0x10, 0x1db71064) ^ BIT(n, 0x20, 0x3b6e20c8) ^		\
	BIT(n, 0x40, 0x76dc4190) ^ BIT(n, 0x80, 0xedb88320))
#define	ENTRY4(n)	ENTRY(n), ENTRY((n) + 1), ENTRY((n) + 2), ENTRY((n) + 3)
#define	ENTRY16(n)	ENTRY4(n), ENTRY4((n) + 4), ENTRY4((n) + 8), ENTRY4((n) + 12)
#define	ENTRY64(n)	ENTRY16(n), ENTRY16((n) + 16), ENTRY16((n) + 32), ENTRY16((n) + 48)

const uint32_t crc32_tab[256] = {
	ENTRY64(0), ENTRY64(64), ENTRY64(128), ENTRY64(192),
};

uint32_t
calculate_crc32c(uint32_t crc, const unsigned char *p, unsigned int len)
{
	int i;

	for (; len > 0; len--) {
		crc ^= *p++;
		for (i = 0; i < NBBY; i++)
			crc = (crc & 1) != 0 ? crc >> 1 ^ POLY_CASTAGNOLI : crc >> 1;
	}
	return (crc);
}
