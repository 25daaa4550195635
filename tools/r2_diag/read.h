/* Where figures come from. Errors are said on stderr. */
#ifndef R2_DIAG_READ_H
#define R2_DIAG_READ_H

#include "tools/r2_diag/figures.h"

/*
 * A run directory or a copy of one, a statistics file, or what r2_stat --json has printed. 0; -1:
 * it cannot be read, with the reason in @why. Blocks on the file system.
 */
int read_source(struct figures *f, const char *name, char *why, size_t room);

/* @text: what r2_stat --json has printed. 0; -1: it is something else. Pure. */
int read_json(struct figures *f, const char *text);

struct remote {
    const char *host;
    char why[300]; /* it did not answer; empty: it did */
};

/*
 * Runs r2_stat --json on @n hosts over ssh, several at once, each for at most @seconds. @dir: of
 * the option --run-dir there; NULL: none. What an answer has is in @f. Blocks until all have
 * answered, or not.
 */
void remote_read(struct figures *f, struct remote *r, int n, const char *dir, int seconds);

#endif
