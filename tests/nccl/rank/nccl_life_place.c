/* Communicators with libr2coll.so in front of NCCL (docs/collectives.md): two at once, one aborted
 * while it uses a shadow, one while its shadow is made; one with a CUDA graph beside one without.
 */
#include "tests/nccl/rank/nccl_life.h"

#include <stdio.h>

#define COUNT  (1u << 20) /* int32 elements: below 1 MiB operations stay where they are */
#define BYTES  ((size_t)COUNT * 4)
#define ROUNDS 2000 /* a guard, as LIFE_LIMIT_S */

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

/* Operations until some rank has entered NCCL to make a shadow, and an abort of all then. */
static double abort_while_made(struct life *l, struct life_comm *c)
{
    uint64_t before = life_log_count(l, "Init START"), begun = 0;

    for (int round = 0; round < ROUNDS && begun == 0; round++) {
        LIFE_WANT(l, !runs_on_a_shadow(l, c), "it is on a shadow, and nothing was seen of that");
        begun = life_all(l, life_log_count(l, "Init START") > before);
    }
    LIFE_WANT(l, begun > 0, "%d operations, and no shadow is made", ROUNDS);
    return life_abort(l, c);
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
    ms = abort_while_made(l, &c);
    life_comm_free(l, &c);
    LIFE_WANT(l, runs_on_a_shadow(l, &b), "the abort of one has moved the other");
    life_say(l, "ncclCommAbort while a shadow is made %.0f ms", ms);
    life_ask_all(l, "fault h1:n1 up");
    until(l, second, 1, false);
    life_destroy(l, &b);
    life_comm_free(l, &b);
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
    struct life_graph g;
    struct life_captures captures;

    life_comm_make(l, &kept, BYTES);
    life_comm_make(l, &live, BYTES);
    life_run(l, &kept, LIFE_ALL_REDUCE, COUNT);
    life_capture(l, &kept, LIFE_ALL_REDUCE, COUNT, &g);
    life_captures_begin(l, &captures);
    life_ask_all(l, "fault h1:n1 down");
    until_beside_graph(l, &live, &kept, &g, true);
    LIFE_WANT(l, !runs_on_a_shadow(l, &kept), "a communicator with a graph has switched");
    life_say(l, "one communicator is on a shadow; the one with a graph is not");
    life_ask_all(l, "fault h1:n1 up");
    until_beside_graph(l, &live, &kept, &g, false);
    life_destroy(l, &live); /* behind the end of the shadow */
    life_captures_end(l, &captures);
    life_graph_free(l, &g);
    life_destroy(l, &kept);
    life_comm_free(l, &kept);
    life_comm_free(l, &live);
}
