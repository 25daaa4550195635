/* A limit on the size of files (RLIMIT_FSIZE) for one call. No ck_assert within it: libcheck writes
 * a file of its own, and SIGXFSZ has its default action, the end of the process. */
#ifndef TESTS_FSIZE_H
#define TESTS_FSIZE_H

#include <sys/resource.h>

static inline void fsize_limit(rlim_t bytes)
{
    struct rlimit l;

    getrlimit(RLIMIT_FSIZE, &l);
    l.rlim_cur = bytes < l.rlim_max ? bytes : l.rlim_max;
    setrlimit(RLIMIT_FSIZE, &l);
}

/* What @call returns, a number, with no file above @bytes. */
#define FSIZE_LIMITED(bytes, call)                                                                 \
    ({                                                                                             \
        fsize_limit(bytes);                                                                        \
        __typeof__(call) returned = (call);                                                        \
        fsize_limit(RLIM_INFINITY);                                                                \
        returned;                                                                                  \
    })

#endif
