/*
 * An independent driver of the net table, version by version: it knows NCCL's rules and nothing of
 * the plugin. One process, or two that talk over a socket pair ("sides" 0 and 1); each end of a
 * link sends and receives.
 *
 * A check that fails prints what and where and ends this side with status 1; so does a case that
 * takes longer than its limit.
 */
#ifndef DRV_H
#define DRV_H

#include <stddef.h>
#include <stdint.h>

#include "tools/r2_perf/abi_view.h"

struct drv {
    const struct abi_net *net; /* of the version in use, abi_view.version */
    void *lib;
    const char *plugin; /* path */
    int abi;            /* version of the table asked for; 0: the newest */
    int side;           /* 0, 1 */
    int peer;           /* socket to the other side, -1 when alone */
    int ndev;
    const char *name; /* of the case */
};
extern struct drv drv;

__attribute__((noreturn, format(printf, 3, 4))) void drv_fail(const char *file, int line,
                                                              const char *fmt, ...);
#define NEED(cond, ...)                                                                            \
    do {                                                                                           \
        if (!(cond))                                                                               \
            drv_fail(__FILE__, __LINE__, __VA_ARGS__);                                             \
    } while (0)
/* @call must succeed; what the plugin said last is shown otherwise. */
#define OK(call)                                                                                   \
    do {                                                                                           \
        int drv_rc = (call);                                                                       \
        if (drv_rc != ABI_SUCCESS)                                                                 \
            drv_fail(__FILE__, __LINE__, "%s returned %d: %s", #call, drv_rc, drv_last_warn());    \
    } while (0)

/* --- drv_core.c --- */
void drv_load(void);             /* dlopen and the table of the version drv.abi; no init */
void drv_table_use(int version); /* 0: the newest */
void drv_init(void);             /* init, devices */
const char *drv_last_warn(void);
/* NCCL's logger, for an init that is not drv_init's. */
void drv_logger(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
uint64_t drv_now_ms(void);
/* Pseudo-random, seeded by the case. */
uint32_t drv_random(uint32_t *state);

/* Exchanges @n bytes with the other side. */
void drv_swap(const void *mine, void *theirs, size_t n);
void drv_barrier(void);

/* --- drv_peer.c: the other side on another machine. Each returns a descriptor or -1 --- */
int drv_peer_listen(const char *address); /* "HOST:PORT"; an empty host means any */
int drv_peer_accept(int listener);        /* waits for at most half a minute, as the next one */
int drv_peer_connect(const char *address);

/* --- drv_link.c --- */
struct drv_link {
    void *send, *recv;
    int dev;
};
/* Both sides: a connection each way over device @dev, polled as NCCL's service thread does. Alone:
 * to itself. */
void drv_connect(struct drv_link *l, int dev);
void drv_connect_many(struct drv_link *l, int n);
void drv_close(struct drv_link *l);
/* One message to ourselves over a connection of its own. */
void drv_self_test(void);

void *drv_map(size_t len); /* page aligned, zero; not freed */
void *drv_reg(void *comm, void *data, size_t len);
/* Repeats until the plugin takes it. */
void *drv_isend(void *comm, void *data, int size, int tag, void *mh);
void *drv_irecv1(void *comm, void *data, int size, int tag, void *mh);
/* 1 when done; @sizes may be NULL. */
int drv_test(void *request, int *sizes);
/* Tests all of @req (entries may be NULL) until all are done. sizes[i], if given, gets the first
 * count of each. */
void drv_wait(void **req, int n, int *sizes);

/* A pattern that differs with @seed and place. */
void drv_fill(void *buf, size_t len, uint32_t seed);
void drv_check(const void *buf, size_t len, uint32_t seed, const char *what);
void drv_check_byte(const void *buf, size_t len, int value, const char *what);

/* --- cases --- */
struct drv_case {
    const char *name;
    int sides; /* 1: one process, 2: two */
    int limit_s;
    void (*run)(void);
    const char *env; /* NAME=value for the plugin, NULL */
    int from_abi;    /* earlier versions have nothing of the kind; 0: all have */
    int by_name;     /* needs what not every fabric has: runs if it is named */
};
/* One table per file, ended by an empty row. */
extern const struct drv_case drv_cases_data[], drv_cases_life[], drv_cases_init[],
    drv_cases_version[], drv_cases_gpu[];

#endif
