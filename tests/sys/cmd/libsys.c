/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What a program needs of libc to run in FreeBSD, for a machine that has FreeBSD's headers and no
 * library of its: the start, the system calls (intro(2)) that the programs here use, and the functions
 * that compilers call.
 */

#include <sys/syscall.h>

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int	main(int argc, char **argv);
int	*__error(void);
void	start_program(long *args);

static int error_number;

/* errno(2) */
int *
__error(void)
{
	return (&error_number);
}

/* The kernel hands over the number of arguments and the arguments in %rdi, and on the stack. */
void
start_program(long *args)
{
	_exit(main(args[0], (char **)(args + 1)));
}

__asm__(".globl _start; _start: xorl %ebp, %ebp; andq $-16, %rsp; call start_program; hlt\n"
    "failed: movl %eax, error_number(%rip); movq $-1, %rax; ret");

/* A system call fails with the carry flag and the error in %eax. */
#define	NUMBER(n)	#n
#define	CALL(name, n)							\
	__asm__(".globl " #name "; " #name ": movl $" NUMBER(n) ", %eax;" \
	    "movq %rcx, %r10; syscall; jc failed; ret")

CALL(_exit, SYS_exit);
CALL(accept, SYS_accept);
CALL(aio_read, SYS_aio_read);
CALL(aio_waitcomplete, SYS_aio_waitcomplete);
CALL(aio_write, SYS_aio_write);
CALL(bind, SYS_bind);
CALL(clock_gettime, SYS_clock_gettime);
CALL(close, SYS_close);
CALL(connect, SYS_connect);
CALL(fsync, SYS_fsync);
CALL(ioctl, SYS_ioctl);
CALL(kldload, SYS_kldload);
CALL(listen, SYS_listen);
CALL(mmap, SYS_mmap);
CALL(nanosleep, SYS_nanosleep);
CALL(open, SYS_open);
CALL(poll, SYS_poll);
CALL(pread, SYS_pread);
CALL(pwrite, SYS_pwrite);
CALL(read, SYS_read);
CALL(recvfrom, SYS_recvfrom);
CALL(sendfile, SYS_sendfile);
CALL(sendto, SYS_sendto);
CALL(setsockopt, SYS_setsockopt);
CALL(shutdown, SYS_shutdown);
CALL(socket, SYS_socket);
CALL(write, SYS_write);

void *
memcpy(void *to, const void *from, size_t n)
{
	void *start = to;

	__asm__ volatile("rep movsb" : "+D" (to), "+S" (from), "+c" (n) : : "memory");
	return (start);
}

void *
memset(void *to, int value, size_t n)
{
	void *start = to;

	__asm__ volatile("rep stosb" : "+D" (to), "+c" (n) : "a" (value) : "memory");
	return (start);
}

size_t
strlen(const char *s)
{
	size_t n = 0;

	while (s[n] != '\0')
		n++;
	return (n);
}

int
strcmp(const char *a, const char *b)
{
	while (*a != '\0' && *a == *b)
		a++, b++;
	return ((unsigned char)*a - (unsigned char)*b);
}

/* Decimal only: all that is asked for. */
unsigned long
strtoul(const char *s, char **end, int base __unused)
{
	unsigned long value = 0;

	while (*s >= '0' && *s <= '9')
		value = 10 * value + (*s++ - '0');
	if (end != NULL)
		*end = __DECONST(char *, s);
	return (value);
}
