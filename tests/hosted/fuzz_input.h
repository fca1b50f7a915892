/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The bytes of the fuzzer's input, one after the other; 0 when there are none left.
 */

#ifndef _FUZZ_INPUT_H_
#define	_FUZZ_INPUT_H_

#include <sys/param.h>
#include <sys/systm.h>

struct fuzz_input {
	const uint8_t	*fi_data;
	size_t		 fi_left;
};

int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline uint8_t
fuzz_byte(struct fuzz_input *fi)
{

	if (fi->fi_left == 0)
		return (0);
	fi->fi_left--;
	return (*fi->fi_data++);
}

static inline uint16_t
fuzz_word(struct fuzz_input *fi)
{
	uint16_t low = fuzz_byte(fi);

	return (low | fuzz_byte(fi) << 8);
}

static inline void
fuzz_fill(struct fuzz_input *fi, void *to, size_t len)
{
	size_t n = MIN(len, fi->fi_left);

	memcpy(to, fi->fi_data, n);
	memset((char *)to + n, 0, len - n);
	fi->fi_data += n;
	fi->fi_left -= n;
}

#endif /* !_FUZZ_INPUT_H_ */
