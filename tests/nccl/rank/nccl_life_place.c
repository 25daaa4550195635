/* Communicators with libr2coll.so in front of NCCL (docs/collectives.md): two at once, one aborted
 * while it uses a shadow, one while its shadow is made; one with a CUDA graph beside one without; a
 * GPU that has no memory for a shadow.
 */
#include "tests/nccl/rank/nccl_life.h"

#include <stdio.h>

#define COUNT    (1u << 20) /* int32 elements: below 1 MiB operations stay where they are */
#define BYTES    ((size_t)COUNT * 4)
#define ROUNDS   2000  /* a guard, as LIFE_LIMIT_S */
#define FREED_MS 29000 /* below LEAVE_NS of coll_ctl.c, after which a shadow is given up */

/* An all_reduce of all ranks; whether NCCL was given another communicator than the user's. */
static bool runs_on_a_shadow(struct life *l, struct life_comm *c)
{
    char own[64];
    uint64_t before;

    snprintf(own, sizeof(own), "comm %p [nranks=", (void *)c->nccl);
    before = life_log_count(l, own);
    life_run(l, c, LIFE_ALL_REDUCE, COUNT);
    return life_log_count(l, own) == before;
}

/* Operations on each of them in turn until all use shadows, or none does, on all ranks. */
static void until(struct life *l, struct life_comm **c, int n, bool shadows)
{
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t right = 0;

        for (int i = 0; i < n; i++) {
            right += runs_on_a_shadow(l, c[i]) == shadows;
        }
        if (life_all(l, right) == (uint64_t)(n * l->ranks)) {
            return;
        }
    }
    life_fail(l, PERF_NET, "%d operations on each of %d communicators, and not all are %s", ROUNDS,
              n, shadows ? "on shadows" : "back");
}

/* Operations until some rank has entered NCCL to make a shadow. */
static void until_made(struct life *l, struct life_comm *c)
{
    uint64_t before = life_log_count(l, "Init START"), begun = 0;

    for (int round = 0; round < ROUNDS && begun == 0; round++) {
        LIFE_WANT(l, !runs_on_a_shadow(l, c), "it is on a shadow, and nothing was seen of that");
        begun = life_all(l, life_log_count(l, "Init START") > before);
    }
    LIFE_WANT(l, begun > 0, "%d operations, and no shadow is made", ROUNDS);
}

void life_placed(struct life *l)
{
    struct life_comm a, b, c, *both[] = {&a, &b}, *second[] = {&b};
    double ms;

    life_comm_make(l, &a, BYTES);
    life_comm_make(l, &b, BYTES);
    until(l, both, 2, false);
    life_ask_all(l, "fault h1:n1 down");
    until(l, both, 2, true);
    ms = life_abort(l, &a);
    life_comm_free(l, &a);
    LIFE_WANT(l, runs_on_a_shadow(l, &b), "the abort of one has moved the other");
    life_say(l, "two communicators on shadows; ncclCommAbort of one %.0f ms", ms);
    life_comm_make(l, &c, BYTES);
    until_made(l, &c);
    ms = life_abort(l, &c);
    life_comm_free(l, &c);
    LIFE_WANT(l, runs_on_a_shadow(l, &b), "the abort of one has moved the other");
    life_say(l, "ncclCommAbort while a shadow is made %.0f ms", ms);
    life_ask_all(l, "fault h1:n1 up");
    until(l, second, 1, false);
    life_destroy(l, &b);
    life_comm_free(l, &b);
}

/* What this rank's process has: memory of its GPU, and its own as the kernel counts it. */
struct memory {
    uint64_t gpu, own; /* MiB */
};

static struct memory memory_now(struct life *l)
{
    struct memory m = {0, 0};
    FILE *f = fopen("/proc/self/status", "r");
    unsigned long long kb;
    size_t left, all;
    char line[160];

    LIFE_CUDA(l, cuMemGetInfo, &left, &all);
    m.gpu = (all - left) >> 20;
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        if (sscanf(line, "RssAnon: %llu kB", &kb) == 1) {
            m.own = kb >> 10;
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    return m;
}

/* Operations on @live and replays on @kept until @live is on a shadow, or back. */
static void until_beside_graph(struct life *l, struct life_comm *live, struct life_comm *kept,
                               const struct life_graph *g, bool shadows)
{
    for (int round = 0; round < ROUNDS; round++) {
        bool right = runs_on_a_shadow(l, live) == shadows;

        life_replay(l, kept, g);
        if (life_all(l, right) == (uint64_t)l->ranks) {
            return;
        }
    }
    life_fail(l, PERF_NET, "%d operations, and not all are %s", ROUNDS,
              shadows ? "on a shadow" : "back");
}

void life_placed_graphs(struct life *l)
{
    struct life_comm kept, live;
    struct memory none, own, both, end;
    struct life_graph g;
    struct life_captures captures;

    life_comm_make(l, &kept, BYTES);
    life_run(l, &kept, LIFE_ALL_REDUCE, COUNT);
    life_capture(l, &kept, LIFE_ALL_REDUCE, COUNT, &g);
    none = memory_now(l);
    life_comm_make(l, &live, BYTES);
    life_run(l, &live, LIFE_ALL_REDUCE, COUNT);
    own = memory_now(l);
    life_captures_begin(l, &captures);
    life_ask_all(l, "fault h1:n1 down");
    until_beside_graph(l, &live, &kept, &g, true);
    LIFE_WANT(l, !runs_on_a_shadow(l, &kept), "a communicator with a graph has switched");
    both = memory_now(l);
    life_say(l, "one communicator is on a shadow; the one with a graph is not");
    life_say(l,
             "MiB of the GPU and of the process: a communicator %lld and %lld, its shadow %lld "
             "and %lld",
             (long long)(own.gpu - none.gpu), (long long)(own.own - none.own),
             (long long)(both.gpu - own.gpu), (long long)(both.own - own.own));
    life_ask_all(l, "fault h1:n1 up");
    until_beside_graph(l, &live, &kept, &g, false);
    life_destroy(l, &live); /* behind the end of the shadow */
    life_captures_end(l, &captures);
    life_comm_free(l, &live);
    end = memory_now(l);
    LIFE_WANT(l, end.gpu == none.gpu, "%llu MiB of the GPU are taken at the end, %llu before",
              (unsigned long long)end.gpu, (unsigned long long)none.gpu);
    life_graph_free(l, &g);
    life_destroy(l, &kept);
    life_comm_free(l, &kept);
}

/* Operations on @live, none of them on a shadow, until some rank's NCCL has begun to make one and
 * has not got its memory. */
static void until_refused(struct life *l, struct life_comm *live)
{
    uint64_t failures = life_log_count(l, "Cuda failure"), inits = life_log_count(l, "Init START");
    uint64_t refused = 0;

    for (int round = 0; round < ROUNDS && refused == 0; round++) {
        LIFE_WANT(l, !runs_on_a_shadow(l, live), "on a shadow that a rank had no memory for");
        refused = life_all(l, life_log_count(l, "Init START") > inits &&
                                  life_log_count(l, "Cuda failure") > failures);
    }
    LIFE_WANT(l, refused > 0, "%d operations, and no memory was refused", ROUNDS);
}

/* h2 has so many MiB left: nothing for the first of NCCL's arrays, all but the buffers. */
void life_placed_full(struct life *l)
{
    static const size_t has[] = {0, 16};
    struct life_comm live, *one[] = {&live};
    struct memory before = memory_now(l), after;

    life_comm_make(l, &live, BYTES);
    life_run(l, &live, LIFE_ALL_REDUCE, COUNT);
    for (size_t i = 0; i < sizeof(has) / sizeof(has[0]); i++) {
        CUdeviceptr filled = 0;
        size_t left, all;

        if (l->rank == 2) {
            LIFE_CUDA(l, cuMemGetInfo, &left, &all);
            LIFE_CUDA(l, cuMemAlloc, &filled, left - (has[i] << 20));
        }
        if (i == 0) {
            life_ask_all(l, "fault h1:n1 down");
        }
        until_refused(l, &live);
        life_say(l, "h2 has %zu MiB of its GPU left, and no shadow is made", has[i]);
        if (l->rank == 2) {
            LIFE_CUDA(l, cuMemFree, filled);
        }
    }
    until(l, one, 1, true); /* all inits that hung were broken off */
    life_destroy(l, &live);
    life_comm_free(l, &live);
    after = memory_now(l);
    LIFE_WANT(l, after.gpu == before.gpu, "%llu MiB of the GPU at the end, %llu before",
              (unsigned long long)after.gpu, (unsigned long long)before.gpu);
}

/* A rank is lost while others are in NCCL's init with it, or wait for it there. The abort of the
 * user's communicator frees them from that, and what they had of it. */
static void lost_while_made(struct life *l, const char *how, int victim)
{
    struct memory before = memory_now(l), after;
    struct life_comm c;
    double ms;

    life_comm_make(l, &c, BYTES);
    life_ask_all(l, "fault h1:n1 down");
    until_made(l, &c);
    life_ask_all(l, "%s %d", how, victim);
    LIFE_WANT(l, l->rank != victim, "%s, and alive", how);
    life_start(l, &c, LIFE_ALL_REDUCE, COUNT);
    LIFE_WANT(l, life_wait(l, &c) != ncclSuccess, "a collective without a rank");
    ms = life_abort(l, &c);
    life_comm_free(l, &c);
    after = memory_now(l);
    LIFE_WANT(l, after.gpu == before.gpu, "%llu MiB of the GPU behind the abort, %llu before",
              (unsigned long long)after.gpu, (unsigned long long)before.gpu);
    LIFE_WANT(l, ms < FREED_MS, "the abort took %.0f ms: as long as it waits for what hangs", ms);
    life_say(l, "rank %d: %s while a shadow is made; ncclCommAbort %.0f ms", victim, how, ms);
}

void life_placed_stopped(struct life *l)
{
    lost_while_made(l, "stop", 2);
    life_ask_all(l, "kill 2"); /* or nobody sees the end */
}

void life_placed_hub_killed(struct life *l)
{
    lost_while_made(l, "kill", 0);
}
