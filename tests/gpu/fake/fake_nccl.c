/*
 * libnccl.so.2 without NCCL: ranks copy through a shared mapping. Enough to run gpu_coll's own
 * logic, its checks above all, where there is no GPU (run.sh --dry-run). It loads no plugin, and
 * says so.
 *
 * FAKE_NCCL_FAULT, in the environment of all ranks, makes rank 1 wrong: "flip N" one element of the
 * Nth operation, "stale N" that operation writes nothing, "over N" it writes behind its buffer,
 * "fail N" it returns an error. Operations count from 0.
 */
#include "tests/gpu/fake/fake_cuda.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT     __attribute__((visibility("default")))
#define RANKS_MAX  8
#define SLOT_BYTES (16u << 20)

struct id {
    char internal[128];
};

/* All ranks: the barrier is a count that only grows. A slot is written by its rank before a barrier
 * and read by all after it. */
struct world {
    atomic_ulong arrived;
    char slot[RANKS_MAX][SLOT_BYTES];
};

struct comm {
    struct world *w;
    int rank, n;
    unsigned long rounds;
};

enum op { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST };

EXPORT int ncclGetVersion(int *version);
EXPORT int ncclGetUniqueId(struct id *id);
EXPORT int ncclCommInitRank(struct comm **comm, int nranks, struct id id, int rank);
EXPORT int ncclCommDestroy(struct comm *c);
EXPORT int ncclCommGetAsyncError(struct comm *c, int *error);
EXPORT const char *ncclGetErrorString(int error);
EXPORT int ncclAllReduce(const void *s, void *r, size_t n, int type, int op, struct comm *c,
                         void *stream);
EXPORT int ncclAllGather(const void *s, void *r, size_t n, int type, struct comm *c, void *stream);
EXPORT int ncclReduceScatter(const void *s, void *r, size_t n, int type, int op, struct comm *c,
                             void *stream);
EXPORT int ncclBroadcast(const void *s, void *r, size_t n, int type, int root, struct comm *c,
                         void *stream);
EXPORT int ncclSend(const void *s, size_t n, int type, int peer, struct comm *c, void *stream);
EXPORT int ncclRecv(void *r, size_t n, int type, int peer, struct comm *c, void *stream);
EXPORT int ncclGroupStart(void);
EXPORT int ncclGroupEnd(void);

#define UNHANDLED 1
#define INTERNAL  3
#define INVALID   4

static unsigned long operations;

int ncclGetVersion(int *version)
{
    *version = 0;
    return 0;
}

const char *ncclGetErrorString(int error)
{
    return error == INVALID ? "invalid argument (fake)" : "failed (fake)";
}

int ncclGetUniqueId(struct id *id)
{
    int fd;

    memset(id, 0, sizeof(*id));
    snprintf(id->internal, sizeof(id->internal), "/dev/shm/r2-fake-nccl-XXXXXX");
    fd = mkstemp(id->internal);
    if (fd < 0) {
        return UNHANDLED;
    }
    if (ftruncate(fd, sizeof(struct world)) != 0) {
        return UNHANDLED;
    }
    close(fd);
    return 0;
}

/* Where the bytes of "GPU" memory are; the stand-in for CUDA knows. */
static void *bytes_of(const void *ptr)
{
    void *(*host)(const void *) = NULL;
    void *f = dlsym(RTLD_DEFAULT, "fake_cuda_host");

    memcpy(&host, &f, sizeof(f));
    return host ? host(ptr) : NULL;
}

static void meet(struct comm *c)
{
    atomic_fetch_add(&c->w->arrived, 1);
    c->rounds++;
    while (atomic_load(&c->w->arrived) < c->rounds * (unsigned long)c->n) {
        sched_yield();
    }
}

int ncclCommInitRank(struct comm **comm, int nranks, struct id id, int rank)
{
    struct comm *c = calloc(1, sizeof(*c));
    int fd = open(id.internal, O_RDWR | O_CLOEXEC);

    if (c == NULL || fd < 0 || nranks > RANKS_MAX || rank >= nranks) {
        return INVALID;
    }
    c->w = mmap(NULL, sizeof(*c->w), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (c->w == MAP_FAILED) {
        return UNHANDLED;
    }
    c->rank = rank;
    c->n = nranks;
    meet(c);
    if (rank == 0) {
        unlink(id.internal);
        printf("# fake NCCL: no plugin, no network\n");
    }
    *comm = c;
    return 0;
}

int ncclCommDestroy(struct comm *c)
{
    munmap(c->w, sizeof(*c->w));
    free(c);
    return 0;
}

int ncclCommGetAsyncError(struct comm *c, int *error)
{
    *error = 0;
    return 0;
}

/* Whether this operation of rank 1 is to go wrong as @how. */
static int wrong(const struct comm *c, const char *how)
{
    const char *text = getenv("FAKE_NCCL_FAULT");
    size_t len = strlen(how);

    return c->rank == 1 && text != NULL && strncmp(text, how, len) == 0 && text[len] == ' ' &&
           strtoul(text + len, NULL, 10) == operations;
}

/* The end of an operation whose result of @n elements is in @r, @before what was there. */
static int spoil(const struct comm *c, float *r, size_t n, const float *before)
{
    int rc = wrong(c, "fail") ? INTERNAL : 0;

    if (wrong(c, "flip")) {
        r[n / 2] += 1;
    }
    if (wrong(c, "over")) {
        r[n] = 0;
    }
    if (wrong(c, "stale")) {
        memcpy(r, before, n * sizeof(float));
    }
    operations++;
    return rc;
}

static void copy_out(const struct comm *c, enum op op, float *r, size_t n)
{
    const struct world *w = c->w;
    size_t at = op == REDUCE_SCATTER ? (size_t)c->rank * n : 0;

    if (op == BROADCAST) {
        memcpy(r, w->slot[0], n * sizeof(float));
    }
    if (op == ALL_GATHER) {
        for (int k = 0; k < c->n; k++) {
            memcpy(r + (size_t)k * n, w->slot[k], n * sizeof(float));
        }
    }
    if (op == ALL_REDUCE || op == REDUCE_SCATTER) {
        for (size_t i = 0; i < n; i++) {
            r[i] = 0;
            for (int k = 0; k < c->n; k++) {
                r[i] += ((const float *)w->slot[k])[at + i];
            }
        }
    }
}

static int run(enum op op, const void *send, void *recv, size_t n, struct comm *c)
{
    const float *s = bytes_of(send);
    float *r = bytes_of(recv);
    size_t in = (op == REDUCE_SCATTER ? (size_t)c->n : 1) * n,
           out = (op == ALL_GATHER ? (size_t)c->n : 1) * n;
    float *before;
    int rc;

    if (s == NULL || r == NULL || in * sizeof(float) > SLOT_BYTES ||
        (before = malloc(out * sizeof(float))) == NULL) {
        return INVALID;
    }
    memcpy(before, r, out * sizeof(float));
    memcpy(c->w->slot[c->rank], s, in * sizeof(float));
    meet(c);
    copy_out(c, op, r, n);
    meet(c);
    rc = spoil(c, r, out, before);
    free(before);
    return rc;
}

int ncclAllReduce(const void *s, void *r, size_t n, int type, int op, struct comm *c, void *stream)
{
    return run(ALL_REDUCE, s, r, n, c);
}

int ncclAllGather(const void *s, void *r, size_t n, int type, struct comm *c, void *stream)
{
    return run(ALL_GATHER, s, r, n, c);
}

int ncclReduceScatter(const void *s, void *r, size_t n, int type, int op, struct comm *c,
                      void *stream)
{
    return run(REDUCE_SCATTER, s, r, n, c);
}

int ncclBroadcast(const void *s, void *r, size_t n, int type, int root, struct comm *c,
                  void *stream)
{
    return root == 0 ? run(BROADCAST, s, r, n, c) : INVALID;
}

/* A group of sends and receives, at most one to and one from each rank. */
static struct {
    const void *s[RANKS_MAX];
    void *r[RANKS_MAX];
    size_t n;
    struct comm *c;
} group;

int ncclGroupStart(void)
{
    memset(&group, 0, sizeof(group));
    return 0;
}

static int group_add(int peer, size_t n, struct comm *c)
{
    if (peer >= c->n || (group.n != 0 && group.n != n) ||
        n * sizeof(float) * (size_t)c->n > SLOT_BYTES) {
        return INVALID;
    }
    group.n = n;
    group.c = c;
    return 0;
}

int ncclSend(const void *s, size_t n, int type, int peer, struct comm *c, void *stream)
{
    int rc = group_add(peer, n, c);

    if (rc == 0) {
        group.s[peer] = bytes_of(s);
    }
    return rc;
}

int ncclRecv(void *r, size_t n, int type, int peer, struct comm *c, void *stream)
{
    int rc = group_add(peer, n, c);

    if (rc == 0) {
        group.r[peer] = bytes_of(r);
    }
    return rc;
}

int ncclGroupEnd(void)
{
    struct comm *c = group.c;
    size_t bytes = group.n * sizeof(float);
    float *last = NULL, *before;
    int rc;

    for (int k = 0; k < c->n; k++) {
        if (group.s[k] != NULL) {
            memcpy(c->w->slot[c->rank] + (size_t)k * bytes, group.s[k], bytes);
        }
        last = group.r[k] != NULL ? group.r[k] : last;
    }
    if (last == NULL || (before = malloc(bytes)) == NULL) {
        return INVALID;
    }
    memcpy(before, last, bytes);
    meet(c);
    for (int k = 0; k < c->n; k++) {
        if (group.r[k] != NULL) {
            memcpy(group.r[k], c->w->slot[k] + (size_t)c->rank * bytes, bytes);
        }
    }
    meet(c);
    rc = spoil(c, last, group.n, before);
    free(before);
    return rc;
}
