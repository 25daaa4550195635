/* Several communicators at once: shrunk, split, made side by side; and their orderly ends. */
#include "tests/nccl/rank/nccl_life.h"

#define SMALL (64u << 10) /* int32 elements */
#define BIG   (2u << 20)
#define BYTES ((size_t)BIG * 4)
#define MANY  4

static double seconds(uint64_t from)
{
    return (double)(util_now_ns() - from) / 1e9;
}

static void start(struct life *l, struct life_comm *c, enum life_op op, size_t count)
{
    ncclResult_t rc = life_start(l, c, op, count);

    LIFE_WANT(l, rc == ncclSuccess, "communicator %d: %s", c->serial, l->said);
}

static void finish(struct life *l, struct life_comm *c)
{
    ncclResult_t rc = life_wait(l, c);

    LIFE_WANT(l, rc == ncclSuccess, "communicator %d: %s", c->serial, l->said);
    life_check(l, c);
}

/* A communicator without rank 2 by the default flag; @share: with what the parent has. */
static void shrink(struct life *l, struct life_comm *parent, struct life_comm *c, int share)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t nccl = NULL;
    ncclResult_t rc;
    int out[] = {2};

    if (l->rank == 2) {
        l->comms++; /* the others make one */
        return;
    }
    config.shrinkShare = share;
    life_phase(l, "ncclCommShrink");
    rc = life_calls.shrink(parent->nccl, out, 1, &nccl, &config, 0 /* NCCL_SHRINK_DEFAULT */);
    life_phase(l, NULL);
    LIFE_WANT(l, rc == ncclSuccess, "ncclCommShrink: %s", life_said(l, rc, NULL));
    life_comm_take(l, c, nccl, l->rank, 2, BYTES);
}

void life_shrink(struct life *l)
{
    static const char *const faults[] = {"h0:n0 blackhole", "h1:n1 down"};
    struct life_comm all, some;

    life_comm_make(l, &all, BYTES);
    life_run(l, &all, LIFE_ALL_REDUCE, SMALL);
    for (int share = 0; share < 2; share++) {
        shrink(l, &all, &some, share);
        if (l->rank != 2) {
            life_run(l, &some, LIFE_SENDRECV, SMALL);
        }
        life_arm(l, "fault %s", faults[share]);
        if (l->rank != 2) {
            start(l, &some, LIFE_ALL_REDUCE, BIG);
        }
        start(l, &all, LIFE_ALL_GATHER, BIG / 4);
        if (l->rank != 2) {
            finish(l, &some);
        }
        finish(l, &all);
        life_noticed(l);
        life_ask_all(l, "fault *:* up");
        if (l->rank != 2) {
            life_run(l, &some, LIFE_ALL_REDUCE, BIG / 4);
            life_destroy(l, &some);
            life_comm_free(l, &some);
        }
        life_run(l, &all, LIFE_ALL_REDUCE, BIG / 4);
    }
    life_destroy(l, &all);
    life_comm_free(l, &all);
}

void life_split(struct life *l)
{
    ncclConfig_t shares = NCCL_CONFIG_INITIALIZER;
    ncclConfig_t *config[3] = {NULL, &shares, NULL};
    struct life_comm c[MANY];

    shares.splitShare = 1;
    life_comm_make(l, &c[0], BYTES);
    life_run(l, &c[0], LIFE_ALL_REDUCE, SMALL);
    for (int i = 1; i < MANY; i++) {
        int key = i == 3 ? l->ranks - 1 - l->rank : l->rank; /* the last one in reversed order */
        ncclComm_t nccl = NULL;

        LIFE_NCCL(l, ncclCommSplit, c[0].nccl, 0, key, &nccl, config[i - 1]);
        life_comm_take(l, &c[i], nccl, key, l->ranks, BYTES);
    }
    for (int round = 0; round < 2; round++) {
        life_arm(l, round ? "fault h0:n0 fatal" : "fault h1:n0 blackhole");
        for (int i = 0; i < MANY; i++) {
            start(l, &c[i], (enum life_op)(i % 3), BIG / 2);
        }
        for (int i = 0; i < MANY; i++) {
            finish(l, &c[i]);
        }
        life_noticed(l);
        life_ask_all(l, "fault *:* restore");
    }
    for (int i = 0; i < MANY; i++) {
        life_run(l, &c[i], LIFE_ALL_REDUCE, SMALL);
    }
    for (int i = MANY - 1; i >= 0; i--) {
        life_destroy(l, &c[i]);
        life_comm_free(l, &c[i]);
    }
}

void life_several(struct life *l)
{
    struct life_comm c[MANY];

    life_ask_all(l, "fault h0:n1 blackhole"); /* from the beginning */
    for (int i = 0; i < MANY; i++) {
        uint64_t from = util_now_ns();
        double made;

        if (i == 1) {
            life_arm(l, "fault h1:n2 blackhole");
        }
        life_comm_make(l, &c[i], BYTES);
        made = seconds(from);
        life_run(l, &c[i], LIFE_ALL_REDUCE, SMALL); /* NCCL connects in the first collective */
        life_say(l, "communicator %d: made in %.2f s, connected in %.2f s more", i + 1, made,
                 seconds(from) - made);
    }
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MANY; i++) {
            start(l, &c[i], (enum life_op)((i + round) % 3), BIG / 4);
        }
        for (int i = 0; i < MANY; i++) {
            finish(l, &c[i]);
        }
        life_noticed(l);
        life_ask_all(l, "fault *:* restore");
    }
    for (int i = 0; i < MANY; i++) {
        life_destroy(l, &c[i]);
        life_comm_free(l, &c[i]);
    }
}

/* The stream is done, whatever has become of the communicator. */
static void stream_finish(struct life *l, struct life_comm *c)
{
    life_phase(l, "a stream");
    LIFE_CUDA(l, cuStreamSynchronize, c->stream);
    life_phase(l, NULL);
    life_check(l, c);
}

void life_ends(struct life *l)
{
    static const char *const faults[] = {"h0:n0 blackhole", "h1:n1 down", "h0:* blackhole"};
    struct life_comm c;

    for (int i = 0; i < 3; i++) {
        uint64_t from;
        ncclResult_t rc;

        life_comm_make(l, &c, BYTES);
        life_run(l, &c, LIFE_ALL_REDUCE, SMALL);
        if (i < 2) {
            life_arm(l, "fault %s", faults[i]);
            start(l, &c, LIFE_ALL_REDUCE, BIG);
            life_fired_wait(l);
            LIFE_WANT(l, life_is_busy(l, &c), "the collective is over before the end");
        } else {
            life_ask_all(l, "fault %s", faults[i]); /* nothing is under way, nobody answers */
        }
        from = util_now_ns();
        if (i == 0) {
            life_phase(l, "ncclCommFinalize");
            rc = life_calls.finalize(c.nccl);
            life_phase(l, NULL);
            LIFE_WANT(l, rc == ncclSuccess, "ncclCommFinalize: %s", life_said(l, rc, c.nccl));
        } else {
            life_destroy(l, &c);
        }
        life_say(l, "%s: %s %.0f ms", faults[i], i ? "ncclCommDestroy" : "ncclCommFinalize",
                 seconds(from) * 1e3);
        stream_finish(l, &c);
        if (i == 0) {
            life_destroy(l, &c);
        }
        life_comm_free(l, &c);
        life_ask_all(l, "fault *:* up");
    }
}
