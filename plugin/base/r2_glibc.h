/*
 * Included by the compiler in front of every source of the plugin. A container's glibc is often
 * older than the one that the plugin is built with; what glibc 2.32 to 2.34 moved into libc.so.6 is
 * asked for under its older version, which is the same code in both. So the library wants no more
 * than 2.28.
 */
#ifndef R2_GLIBC_H
#define R2_GLIBC_H

#include <features.h>
#include <sys/stat.h>

#if defined(__GLIBC__) && defined(__x86_64__)
#define GLIBC_FIRST    "GLIBC_2.2.5"
#define GLIBC_CLOCK    "GLIBC_2.3.3"
#define GLIBC_NAME     "GLIBC_2.12"
#define GLIBC_AT       "GLIBC_2.4"
#define GLIBC_STAT_VER 1
#elif defined(__GLIBC__) && defined(__aarch64__)
#define GLIBC_FIRST    "GLIBC_2.17"
#define GLIBC_CLOCK    "GLIBC_2.17"
#define GLIBC_NAME     "GLIBC_2.17"
#define GLIBC_AT       "GLIBC_2.17"
#define GLIBC_STAT_VER 0
#endif

#ifdef GLIBC_FIRST
#define GLIBC_AS(name, version) __asm__(".symver " #name "," #name "@" version)

GLIBC_AS(dladdr, GLIBC_FIRST);
GLIBC_AS(dlclose, GLIBC_FIRST);
GLIBC_AS(dlerror, GLIBC_FIRST);
GLIBC_AS(dlopen, GLIBC_FIRST);
GLIBC_AS(dlsym, GLIBC_FIRST);
GLIBC_AS(pthread_condattr_setclock, GLIBC_CLOCK);
GLIBC_AS(pthread_create, GLIBC_FIRST);
GLIBC_AS(pthread_detach, GLIBC_FIRST);
GLIBC_AS(pthread_join, GLIBC_FIRST);
GLIBC_AS(pthread_mutex_trylock, GLIBC_FIRST);
GLIBC_AS(pthread_once, GLIBC_FIRST);
GLIBC_AS(pthread_setname_np, GLIBC_NAME);
GLIBC_AS(pthread_sigmask, GLIBC_FIRST);
GLIBC_AS(pthread_timedjoin_np, GLIBC_CLOCK);
GLIBC_AS(__xstat, GLIBC_FIRST);
GLIBC_AS(__lxstat, GLIBC_FIRST);
GLIBC_AS(__fxstat, GLIBC_FIRST);
GLIBC_AS(__fxstatat, GLIBC_AT);

/* What stat() is in headers before 2.33. */
int __xstat(int version, const char *path, struct stat *st);
int __lxstat(int version, const char *path, struct stat *st);
int __fxstat(int version, int fd, struct stat *st);
int __fxstatat(int version, int dir, const char *path, struct stat *st, int flags);
#define stat(path, st)                __xstat(GLIBC_STAT_VER, path, st)
#define lstat(path, st)               __lxstat(GLIBC_STAT_VER, path, st)
#define fstat(fd, st)                 __fxstat(GLIBC_STAT_VER, fd, st)
#define fstatat(dir, path, st, flags) __fxstatat(GLIBC_STAT_VER, dir, path, st, flags)
#endif

#endif
