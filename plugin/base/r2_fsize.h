/*
 * A file that would grow beyond the process's limit (RLIMIT_FSIZE): write(), ftruncate() and
 * posix_fallocate() refuse with EFBIG, and the kernel sends the calling thread SIGXFSZ, which ends
 * the process by default. The process is somebody else's, and what is written is not worth it:
 * between begin and end there is the error alone. Thread: any; one and the same for both.
 */
#ifndef R2_FSIZE_H
#define R2_FSIZE_H

#include <signal.h>

struct r2_fsize {
    sigset_t mask;   /* as it was */
    int was_pending; /* for the program to find */
};

/* The thread gets no SIGXFSZ from here on. */
void r2_fsize_begin(struct r2_fsize *g);
/* The one that came in between is gone; errno stays. */
void r2_fsize_end(const struct r2_fsize *g);

#endif
