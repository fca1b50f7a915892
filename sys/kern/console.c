/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The command interpreter on the console.
 *
 * Two threads.  The reader takes characters as they arrive: ^C goes to the command in the
 * foreground at once, everything else into a queue.  The interpreter takes lines from that queue,
 * splits them into words, and runs each command in a thread of its own.
 *
 * A line is one or more commands, each ended by ';', '&' (runs in the background) or the end of the
 * line.  Words are divided by blanks; '...' and "..." hold a word together; '#' at the start of a
 * word begins a comment.  `!' before a command negates its status, as in sh(1).  `wait` waits for
 * commands in the background, and pkill(1) interrupts those, as ^C does the one in the foreground.
 *
 * A command is the kernel's or a module's, and may be loaded for the call (console_cmd.c).  The kernel
 * environment can hold commands as well: console.run="kldload if_vtnet; ifconfig"
 * runs before the first prompt.
 *
 * A program at the other end (tools/guest) sets kern.console.status=1.  Then nothing is echoed, no
 * prompt is printed, and the byte 0x1e, the exit status in decimal, and a newline follow each line;
 * one of these, with status 0, comes first of all.
 *
 * Locking.  console_mtx protects the queue of characters and the list of jobs.
 *
 * Gaps.  No history, no pipes, no redirection.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/condvar.h>
#include <sys/kernel.h>
#include <sys/kthread.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/queue.h>
#include <sys/sched.h>
#include <sys/sysctl.h>
#include <sys/unistd.h>

#include <net/vnet.h>

#include <fs/memfs_tree.h>
#include <kern/cons_input_tree.h>
#include <kern/console_cmd_tree.h>
#include <kern/mountroot_tree.h>
#include <kern/prf_tree.h>

#define	CONSOLE_LINE	1024	/* longest line, bytes */
#define	CONSOLE_WORDS	64	/* most words in a command */
#define	CONSOLE_MARK	0x1e	/* ASCII record separator, before an exit status */
#define	CTRL(c)		((c) & 0x1f)

struct job {
	TAILQ_ENTRY(job) j_link;
	struct console_ref j_ref;
	struct thread	*j_td;
	int		 j_argc;
	char		*j_argv[CONSOLE_WORDS + 1];
	char		 j_words[CONSOLE_LINE];
	int		 j_status;
	bool		 j_done;
	bool		 j_background;
	bool		 j_negated;
	volatile bool	 j_interrupted;
};

static MALLOC_DEFINE(M_CONSOLE, "console", "console commands");

static struct mtx console_mtx;
MTX_SYSINIT(console, &console_mtx, "console", MTX_DEF);
static struct cv console_input;		/* a character arrived */
static struct cv console_job;		/* a job ended */
static TAILQ_HEAD(, job) console_jobs = TAILQ_HEAD_INITIALIZER(console_jobs);
static struct job *console_foreground;

static char console_queue[4096];
static u_int console_head, console_tail;

SYSCTL_NODE(_kern, OID_AUTO, console, CTLFLAG_RW | CTLFLAG_MPSAFE, NULL, "command interpreter");
static int console_status_mode;
SYSCTL_INT(_kern_console, OID_AUTO, status, CTLFLAG_RWTUN, &console_status_mode, 0,
    "print a mark and the exit status after each line, for a program that reads them");

static int
job_run(struct job *j)
{
	const struct console_cmd *cc = j->j_ref.cr_cmd;
	int status;

	if (!cc->cc_vnet)
		return (cc->cc_func(j->j_argc, j->j_argv));
	CURVNET_SET(vnet0);
	status = cc->cc_func(j->j_argc, j->j_argv);
	CURVNET_RESTORE();
	return (status);
}

/* The status of a job, as its line has it. */
static int
console_status(const struct job *j, int status)
{
	return (j->j_negated ? status == 0 : status);
}

static void
job_main(void *arg)
{
	struct job *j = arg;

	prf_lines_begin();
	j->j_status = console_status(j, job_run(j));
	prf_lines_end();
	console_cmd_put(&j->j_ref);
	mtx_lock(&console_mtx);
	j->j_done = true;
	cv_broadcast(&console_job);
	mtx_unlock(&console_mtx);
	kthread_exit();
}

/* Start a job; it goes on the list of jobs. */
static int
job_start(struct job *j)
{
	int error;

	mtx_lock(&console_mtx);
	TAILQ_INSERT_TAIL(&console_jobs, j, j_link);
	if (!j->j_background)
		console_foreground = j;
	mtx_unlock(&console_mtx);
	error = kthread_add(job_main, j, NULL, &j->j_td, RFSTOPPED, 0, "%s", j->j_argv[0]);
	if (error != 0) {
		mtx_lock(&console_mtx);
		TAILQ_REMOVE(&console_jobs, j, j_link);
		console_foreground = NULL;
		mtx_unlock(&console_mtx);
		return (error);
	}
	thread_lock(j->j_td);
	/* A command is a user's program: it yields to the kernel's own threads. */
	sched_prio(j->j_td, PUSER);
	sched_add(j->j_td, SRQ_BORING);
	return (0);
}

/* Wait until a job has ended; returns its status and frees it. */
static int
job_wait(struct job *j)
{
	int status;

	mtx_lock(&console_mtx);
	while (!j->j_done)
		cv_wait(&console_job, &console_mtx);
	if (console_foreground == j)
		console_foreground = NULL;
	TAILQ_REMOVE(&console_jobs, j, j_link);
	mtx_unlock(&console_mtx);
	status = j->j_status;
	free(j, M_CONSOLE);
	return (status);
}

/* Wait for all commands in the background.  Returns the first status that is not 0. */
static int
console_wait(void)
{
	struct job *j;
	int status, worst = 0;

	for (;;) {
		mtx_lock(&console_mtx);
		TAILQ_FOREACH(j, &console_jobs, j_link) {
			if (j->j_background)
				break;
		}
		mtx_unlock(&console_mtx);
		if (j == NULL)
			return (worst);
		status = job_wait(j);
		if (worst == 0)
			worst = status;
	}
}

/*
 * Split the first command off a line: fills j's words, and sets *rest behind it.  Returns 0, or 1
 * after a message.
 */
static int
console_split(const char *line, const char **rest, struct job *j)
{
	char *out = j->j_words, quote = '\0';
	bool in_word = false;

	for (; *line != '\0'; line++) {
		if (quote == '\0' && (*line == ';' || *line == '&'))
			break;
		if (quote == '\0' && *line == '#' && !in_word) {
			line += strlen(line);
			break;
		}
		if (quote == '\0' && (*line == ' ' || *line == '\t')) {
			if (in_word)
				*out++ = '\0';
			in_word = false;
			continue;
		}
		if (!in_word) {
			if (j->j_argc == CONSOLE_WORDS) {
				printf("console: more than %d words\n", CONSOLE_WORDS);
				return (1);
			}
			j->j_argv[j->j_argc++] = out;
			in_word = true;
		}
		if (quote == *line)
			quote = '\0';
		else if (quote == '\0' && (*line == '"' || *line == '\''))
			quote = *line;
		else
			*out++ = *line;
	}
	*out = '\0';
	j->j_argv[j->j_argc] = NULL;
	if (quote != '\0') {
		printf("console: missing %c\n", quote);
		return (1);
	}
	j->j_background = *line == '&';
	if (j->j_argc > 1 && strcmp(j->j_argv[0], "!") == 0) {
		j->j_negated = true;
		memmove(j->j_argv, j->j_argv + 1, j->j_argc-- * sizeof(j->j_argv[0]));
	}
	*rest = *line == '\0' ? line : line + 1;
	return (0);
}

/* Find the command of a job, with a message if there is none.  Returns 0, 126 or 127, as sh(1). */
static int
console_find(struct job *j)
{
	int error;

	error = console_cmd_get(j->j_argv[0], &j->j_ref);
	if (error == ENOENT)
		printf("%s: Command not found.\n", j->j_argv[0]);
	return (error == 0 ? 0 : error == ENOENT ? 127 : 126);
}

/* Run a command that has been split.  Takes the job; returns the status (0 in the background). */
static int
console_run(struct job *j)
{
	int error, status;

	status = console_find(j);
	if (status != 0) {
		status = console_status(j, status);
		free(j, M_CONSOLE);
		return (status);
	}
	error = job_start(j);
	if (error != 0) {
		console_cmd_put(&j->j_ref);
		free(j, M_CONSOLE);
		printf("console: can't start a thread: error %d\n", error);
		return (1);
	}
	return (j->j_background ? 0 : job_wait(j));
}

/* The interpreter waits, in console_line(); a command that waited could wait for itself. */
static int
cmd_wait(int argc __unused, char **argv __unused)
{
	printf("wait: not within another command\n");
	return (1);
}
CONSOLE_CMD(wait, cmd_wait, "wait for all commands in the background", "wait");

/* Run a line.  Returns the first exit status that is not 0. */
static int
console_line(const char *line)
{
	struct job *j;
	int status, worst = 0;

	while (*line != '\0') {
		j = malloc(sizeof(*j), M_CONSOLE, M_WAITOK | M_ZERO);
		status = 2;
		if (console_split(line, &line, j) != 0) {
			free(j, M_CONSOLE);
			return (status);
		}
		if (j->j_argc == 0) {
			free(j, M_CONSOLE);
			continue;
		}
		if (strcmp(j->j_argv[0], "wait") == 0) {
			free(j, M_CONSOLE);
			status = console_wait();
		} else
			status = console_run(j);
		if (worst == 0)
			worst = status;
	}
	return (worst);
}

/* A line that is a part of a command: one command after the other, in this thread. */
static int
console_inner_line(const char *line)
{
	struct job *j;
	bool bad;
	int status, worst = 0;

	while (*line != '\0') {
		j = malloc(sizeof(*j), M_CONSOLE, M_WAITOK | M_ZERO);
		status = console_split(line, &line, j) != 0 ? 2 : 0;
		if (status == 0 && j->j_argc != 0)
			status = console_find(j);
		bad = status != 0;
		if (!bad && j->j_argc != 0) {
			status = console_status(j, job_run(j));
			console_cmd_put(&j->j_ref);
		}
		free(j, M_CONSOLE);
		if (bad)
			return (status);
		if (worst == 0)
			worst = status;
	}
	return (worst);
}

/* As in csh(1), but with a line.  Returns the first status that is not 0. */
static int
cmd_repeat(int argc, char **argv)
{
	u_long count;
	char *end;
	int status, worst = 0;

	if (argc != 3)
		return (cmd_usage(argv[0]));
	count = strtoul(argv[1], &end, 10);
	if (*end != '\0')
		return (cmd_usage(argv[0]));
	while (count-- > 0 && !cmd_interrupted()) {
		status = console_inner_line(argv[2]);
		if (worst == 0)
			worst = status;
	}
	return (worst);
}
CONSOLE_CMD(repeat, cmd_repeat, "run a line several times", "repeat count 'command; ...'");

/* The next character that is not ^C. */
static int
console_getc(void)
{
	int c;

	mtx_lock(&console_mtx);
	while (console_head == console_tail)
		cv_wait(&console_input, &console_mtx);
	c = console_queue[console_head++ % sizeof(console_queue)];
	mtx_unlock(&console_mtx);
	return (c & 0xff);
}

static void
console_echo(const char *s)
{

	if (console_status_mode == 0)
		printf("%s", s);
}

/* Read a line, with backspace and ^U.  Returns it without its end. */
static void
console_read(char *line, size_t size)
{
	size_t len = 0;
	int c;

	for (;;) {
		c = console_getc();
		if (c == '\r' || c == '\n')
			break;
		if (c == CTRL('c')) {
			console_echo("^C");
			len = 0;
			break;
		}
		if (c == '\b' || c == 0x7f || c == CTRL('u')) {
			while (len > 0) {
				len--;
				console_echo("\b \b");
				if (c != CTRL('u'))
					break;
			}
		} else if (c >= ' ' && len < size - 1) {
			line[len++] = c;
			console_echo((char [2]){ c, '\0' });
		}
	}
	line[len] = '\0';
	console_echo("\n");
}

/* Take characters as they arrive.  ^C ends the command in the foreground, if there is one. */
static void
console_reader(void *arg __unused)
{
	int c;

	for (;;) {
		c = cons_getc_wait();
		mtx_lock(&console_mtx);
		if (c == CTRL('c') && console_foreground != NULL)
			console_foreground->j_interrupted = true;
		else if (console_tail - console_head < sizeof(console_queue)) {
			console_queue[console_tail++ % sizeof(console_queue)] = c;
			cv_signal(&console_input);
		}
		mtx_unlock(&console_mtx);
	}
}

static void
console_mark(int status)
{

	if (console_status_mode != 0)
		printf("%c%d\n", CONSOLE_MARK, status);
}

static void
console_interpreter(void *arg __unused)
{
	char *line, *run;
	int status = 0;

	root_mount_wait();
	line = malloc(CONSOLE_LINE, M_CONSOLE, M_WAITOK);
	run = kern_getenv("console.run");
	if (run != NULL) {
		status = console_line(run);
		freeenv(run);
	}
	for (;;) {
		console_mark(status);
		if (console_status_mode == 0)
			printf(status == 0 ? "# " : "[%d] # ", status);
		console_read(line, CONSOLE_LINE);
		status = console_line(line);
	}
}

static void
console_start(void *arg __unused)
{

	cv_init(&console_input, "ttyin");
	cv_init(&console_job, "wait");
	if (kthread_add(console_reader, NULL, NULL, NULL, 0, 0, "console input") != 0 ||
	    kthread_add(console_interpreter, NULL, NULL, NULL, 0, 0, "console") != 0)
		panic("console: can't start the interpreter");
}
SYSINIT(console, SI_SUB_SMP, SI_ORDER_ANY, console_start, NULL);

bool
cmd_interrupted(void)
{
	struct job *j;
	bool interrupted = false;

	mtx_lock(&console_mtx);
	TAILQ_FOREACH(j, &console_jobs, j_link) {
		if (j->j_td == curthread)
			interrupted = j->j_interrupted;
	}
	mtx_unlock(&console_mtx);
	return (interrupted);
}

/* Interrupt the commands in the background with one of these names. */
static int
cmd_pkill(int argc, char **argv)
{
	struct job *j;
	int i, found = 0;

	if (argc < 2)
		return (cmd_usage("pkill"));
	mtx_lock(&console_mtx);
	TAILQ_FOREACH(j, &console_jobs, j_link) {
		for (i = 1; i < argc; i++) {
			if (j->j_background && !j->j_done &&
			    strcmp(j->j_argv[0], argv[i]) == 0) {
				j->j_interrupted = true;
				found++;
			}
		}
	}
	mtx_unlock(&console_mtx);
	return (found > 0 ? 0 : 1);
}
CONSOLE_CMD(pkill, cmd_pkill, "interrupt commands that run in the background", "pkill command ...");
