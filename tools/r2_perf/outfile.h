/*
 * A file that is there whole or not at all: written beside its place, and renamed. What exists is
 * replaced if it is a regular file; a link stays, and what it names is replaced.
 */
#ifndef R2_PERF_OUTFILE_H
#define R2_PERF_OUTFILE_H

#include <stdio.h>

struct outfile {
    FILE *f;
    char *path, *tmp;
};

/* Whether @path can be written, found out by doing so beside it. 0, or -1 with errno. Blocks on the
 * file system. */
int outfile_check(const char *path);
/* 0, or -1 with errno: then there is nothing to close. */
int outfile_open(struct outfile *o, const char *path);
/* Puts the file in its place. 0, or -1 with errno: then all is as before. Frees. */
int outfile_close(struct outfile *o);

#endif
