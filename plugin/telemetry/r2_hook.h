/*
 * The program of NCCL_R2_ON_EVENT: what a user wants done when the job may not last, as a rule to
 * save a checkpoint (docs/events.md). It runs as an orphan, beside the job: nothing waits for it,
 * the job gets no SIGCHLD of it and has no child that it does not know, and no memory is copied for
 * it, since a fork of a process with registered memory would be slow, and before Linux 5.12 unsafe.
 */
#ifndef R2_HOOK_H
#define R2_HOOK_H

#include <stddef.h>
#include <stdint.h>

#define R2_HOOK_PAUSE_NS                                                                           \
    (600 * 1000000000ull) /* shortest time between two runs for one reason, of                     \
                             all processes of a job on a host */
#define R2_HOOK_TOLD 4096 /* bytes: longest text of r2_hook_told */

/*
 * Who has been told what, by the processes of a user on a host: lines "TIME KEY", TIME in ns of
 * CLOCK_MONOTONIC. Whether @key is to be told at @now; then @out is the new text, without the lines
 * that are older than R2_HOOK_PAUSE_NS or of a time to come (another boot). What is no such line
 * is left out; where there is no room the oldest are. @key: no spaces, at most 96 bytes. @len is
 * that of the text before, and after. Pure.
 */
int r2_hook_told(const char *text, size_t *len, uint64_t now, const char *key,
                 char out[R2_HOOK_TOLD]);

/*
 * The environment of this process as it is now, less LD_PRELOAD. At init, as all reading of it: the
 * job may change it later, on another thread. NULL: no memory. The caller frees it.
 */
struct r2_hook_env;
struct r2_hook_env *r2_hook_env_copy(void);

/* What is run, for what, and what it reads. Texts hold for the call. */
struct r2_hook_run {
    const char *program, *reason; /* PROGRAM REASON */
    const char *line;             /* on its standard input */
    size_t len;                   /* bytes, at most R2_HOOK_LINE */
    const char *dir; /* of the file by which the processes of a host agree on one of them
                        (r2_hook_path); "": no file, each runs it */
    const char *key; /* as above */
    const struct r2_hook_env *env; /* NULL: none */
};
#define R2_HOOK_LINE                                                                               \
    4096 /* an empty pipe takes that at once, whatever its user's limits: a page                   \
          */

/*
 * On a thread of its own, which ends when the program has begun; why it has not is a WARN. Its
 * output is the process's. 0, or errno: no thread, no memory, too long a text. Any thread; does not
 * block, but for the making of a thread.
 */
int r2_hook_start(const struct r2_hook_run *what);

/* The file of r2_hook_start. 0, or -1 when it does not fit. */
int r2_hook_path(const char *dir, char *out, size_t len);

#endif
