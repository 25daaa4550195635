/* Communicators that end because something broke, and what comes after them in the same process. */
#include "tests/nccl/rank/nccl_life.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SMALL (64u << 10) /* int32 elements */
#define BIG   (2u << 20)
#define BYTES ((size_t)BIG * 4)

/* An error that the plugin explains: NCCL's last text is its sentence. */
static void explained_check(struct life *l, ncclResult_t rc, const char *who)
{
    LIFE_WANT(l, rc != ncclSuccess, "%s: the collective ended well, no error came", who);
    LIFE_WANT(l, rc == ncclRemoteError || rc == ncclSystemError, "%s: code %d: %s", who, (int)rc,
              l->said);
    LIFE_WANT(l, strstr(l->said, "NET/R2"), "%s: not the plugin's sentence: %s", who, l->said);
}

/* What an aborted communicator leaves: memory that its peers wrote to, which the next one receives
 * into again, and memory that nobody may write to any more. */
struct left {
    struct life_buf again, kept;
    CUdeviceptr freed; /* was registered, and is no more: what is allocated next may lie there */
};

/* A registered communicator with one buffer more than it uses. */
static void registered_make(struct life *l, struct life_comm *c, struct life_buf *more)
{
    life_comm_make(l, c, BYTES);
    life_buf_make(l, more, BYTES, false);
    life_buf_register(l, c, more);
    life_buf_register(l, c, &c->send);
    life_buf_register(l, c, &c->recv);
    life_run(l, c, LIFE_ALL_REDUCE, SMALL);
}

/* A new communicator with memory that an aborted one had; the values of both differ in every
 * element. */
static void again(struct life *l, struct left *left)
{
    struct life_comm c;

    life_comm_make(l, &c, 0);
    c.recv = left->again;
    life_buf_make(l, &c.send, BYTES, false);
    life_say(l, "a new communicator receives where the aborted one did, sends from %s",
             c.send.at == left->freed ? "where that had memory" : "elsewhere");
    life_buf_register(l, &c, &c.send);
    life_buf_register(l, &c, &c.recv);
    for (int i = 0; i < 3; i++) {
        life_run(l, &c, (enum life_op)i, BIG / 4);
        life_buf_poisoned_check(l, &left->kept, "memory of the aborted communicator");
    }
    life_buf_deregister(l, &c, &c.send);
    life_buf_deregister(l, &c, &c.recv);
    life_destroy(l, &c);
    life_comm_free(l, &c);
    life_buf_poisoned_check(l, &left->kept, "memory of the aborted communicator");
    life_buf_free(l, &left->kept);
}

static double abort_and_free(struct life *l, struct life_comm *c, struct life_buf *more,
                             struct left *left)
{
    double ms = life_abort(l, c);

    *left = (struct left){c->recv, c->send, more->at};
    life_buf_poison(l, &left->kept);
    life_buf_poison(l, &left->again);
    life_buf_free(l, more);
    c->send = c->recv = (struct life_buf){0};
    life_comm_free(l, c);
    return ms;
}

void life_lost(struct life *l)
{
    struct life_comm c;
    struct life_buf more;
    struct left left;
    ncclResult_t rc;
    double ms;

    registered_make(l, &c, &more);
    life_arm(l, "fault h0:* down");
    rc = life_start(l, &c, LIFE_ALL_REDUCE, BIG);
    rc = rc == ncclSuccess ? life_wait(l, &c) : rc;
    life_fired_wait(l);
    explained_check(l, rc, "all NICs lost");
    if (l->rank == 0) { /* one rank tidies up without a NIC, the other leaves it to the abort */
        life_buf_deregister(l, &c, &more);
    }
    ms = abort_and_free(l, &c, &more, &left);
    life_say(l, "error %s; ncclCommAbort %.0f ms", l->said, ms);
    life_ask_all(l, "fault h0:* up");
    again(l, &left);
}

/* The rank @first aborts in the middle of a collective while @fault holds, the other one when it
 * hears of it. */
static void abort_round(struct life *l, int first, const char *fault, const char *undo)
{
    struct life_comm c;
    struct life_buf more;
    struct left left;
    ncclResult_t rc;
    double ms;

    registered_make(l, &c, &more);
    life_arm(l, "fault %s", fault);
    rc = life_start(l, &c, LIFE_ALL_REDUCE, BIG);
    LIFE_WANT(l, rc == ncclSuccess, "ncclAllReduce: %s", l->said);
    if (l->rank == first) {
        life_fired_wait(l);
        LIFE_WANT(l, life_is_busy(l, &c), "%s: the collective is over before the abort", fault);
        snprintf(l->said, sizeof(l->said), "none, the first to abort");
    } else {
        explained_check(l, life_wait(l, &c), fault);
    }
    ms = abort_and_free(l, &c, &more, &left);
    life_say(l, "%s: error %s; ncclCommAbort %.0f ms", fault, l->said, ms);
    life_fired_wait(l);
    life_ask_all(l, "fault %s", undo);
    again(l, &left);
    life_barrier(l);
}

void life_aborts(struct life *l)
{
    abort_round(l, 0, "h0:* hang", "h0:* unhang");
    abort_round(l, 1, "h0:n0 hang", "h0:n0 unhang");
    abort_round(l, 1, "*:n1 blackhole", "*:n1 up");
}

/* Both ranks abort while what is left of a collective goes over TCP; the new communicator goes over
 * TCP, too, or finds the NICs up again. */
static void resort_round(struct life *l, int first, bool mended)
{
    struct life_comm c;
    struct life_buf more;
    struct left left;
    uint64_t before;
    ncclResult_t rc;
    double ms;

    registered_make(l, &c, &more);
    before = life_log_count(l, LIFE_OVER_TCP);
    life_arm(l, "fault h0:* down");
    rc = life_start(l, &c, LIFE_ALL_REDUCE, BIG);
    LIFE_WANT(l, rc == ncclSuccess, "ncclAllReduce: %s", l->said);
    life_fired_wait(l);
    life_phase(l, "the plugin's word of the last resort");
    while (life_log_count(l, LIFE_OVER_TCP) == before) {
        usleep(2000);
    }
    life_phase(l, NULL);
    life_barrier(l);
    if (l->rank == first) {
        LIFE_WANT(l, life_is_busy(l, &c), "the collective is over before the abort");
        snprintf(l->said, sizeof(l->said), "none, the first to abort");
    } else {
        explained_check(l, life_wait(l, &c), "over TCP");
    }
    ms = abort_and_free(l, &c, &more, &left);
    life_say(l, "over TCP: error %s; ncclCommAbort %.0f ms", l->said, ms);
    if (mended) {
        life_ask_all(l, "fault h0:* up");
    }
    before = life_log_count(l, LIFE_OVER_TCP);
    again(l, &left);
    life_barrier(l);
    LIFE_WANT(l, mended || life_log_count(l, LIFE_OVER_TCP) > before,
              "the new communicator did not go over TCP");
    life_ask_all(l, "fault h0:* up");
}

void life_resort(struct life *l)
{
    resort_round(l, 0, false);
    resort_round(l, 1, true);
}

/* Without rank 2, by NCCL_SHRINK_ABORT. */
static ncclResult_t shrink(struct life *l, struct life_comm *c, ncclComm_t *nccl)
{
    int out[] = {2};
    uint64_t from = util_now_ns();
    ncclResult_t rc;

    life_phase(l, "ncclCommShrink");
    rc = life_calls.shrink(c->nccl, out, 1, nccl, NULL, 1 /* NCCL_SHRINK_ABORT */);
    life_phase(l, NULL);
    life_say(l, "ncclCommShrink with NCCL_SHRINK_ABORT: %d, %.2f s", (int)rc,
             (double)(util_now_ns() - from) / 1e9);
    return rc;
}

static void rank_2_lost(struct life *l, struct life_comm *c, const char *how)
{
    ncclResult_t rc;

    life_comm_make(l, c, BYTES);
    life_run(l, c, LIFE_ALL_REDUCE, SMALL);
    life_arm(l, "%s 2", how);
    rc = life_start(l, c, LIFE_ALL_REDUCE, BIG);
    LIFE_WANT(l, rc == ncclSuccess, "ncclAllReduce: %s", l->said);
    if (l->rank == 2) {
        life_wait(l, c); /* does not return */
        life_fail(l, PERF_NET, "the collective is over before this rank is lost");
    }
}

/* NCCL keeps the error that the plugin has reported, and gives it to ncclCommShrink, with
 * NCCL_SHRINK_ABORT too (2.27 to 2.30): what goes on is a new communicator of the survivors. */
void life_killed(struct life *l)
{
    ncclComm_t nccl = NULL;
    struct life_comm c, next;
    ncclResult_t rc;
    uint64_t from = util_now_ns();

    rank_2_lost(l, &c, "kill");
    rc = life_wait(l, &c);
    life_fired_wait(l);
    explained_check(l, rc, "a rank was killed");
    life_say(l, "error %s", l->said);
    LIFE_WANT(l, strstr(l->said, "process"), "the sentence does not name the process: %s", l->said);
    life_barrier(l);
    if (life_calls.shrink) {
        ncclResult_t kept = rc;

        rc = shrink(l, &c, &nccl);
        LIFE_WANT(l, rc == kept && nccl == NULL, "ncclCommShrink after an error of the network: %d",
                  (int)rc);
    }
    life_say(l, "ncclCommAbort %.0f ms", life_abort(l, &c));
    from = util_now_ns();
    life_comm_make(l, &next, BYTES);
    for (int i = 0; i < 3; i++) {
        life_run(l, &next, (enum life_op)i, BIG / 4);
    }
    life_say(l, "the survivors' communicator: made and used in %.2f s",
             (double)(util_now_ns() - from) / 1e9);
    life_destroy(l, &next);
    life_comm_free(l, &next);
    life_comm_free(l, &c);
}

/* A rank that stands still: whoever watches the job says so before the network does. */
void life_stopped(struct life *l)
{
    ncclComm_t nccl = NULL;
    struct life_comm c, left;
    ncclResult_t rc;

    rank_2_lost(l, &c, "stop");
    life_fired_wait(l);
    LIFE_WANT(l, life_is_busy(l, &c), "the collective is over, without one of its ranks");
    rc = shrink(l, &c, &nccl);
    LIFE_WANT(l, rc == ncclSuccess, "ncclCommShrink: %s", life_said(l, rc, NULL));
    life_comm_take(l, &left, nccl, l->rank, 2, BYTES);
    for (int i = 0; i < 3; i++) {
        life_run(l, &left, (enum life_op)i, BIG / 4);
    }
    life_ask_all(l, "kill 2");
    life_run(l, &left, LIFE_ALL_REDUCE, BIG / 4);
    life_say(l, "ncclCommAbort of the old one %.0f ms", life_abort(l, &c));
    life_run(l, &left, LIFE_ALL_GATHER, BIG / 4);
    life_destroy(l, &left);
    life_comm_free(l, &left);
    life_comm_free(l, &c);
}

void life_revoke(struct life *l)
{
    ncclComm_t nccl = NULL;
    struct life_comm c, next;
    ncclResult_t rc;
    uint64_t from;

    life_comm_make(l, &c, BYTES);
    life_run(l, &c, LIFE_ALL_REDUCE, SMALL);
    life_arm(l, "fault h0:n0 hang");
    rc = life_start(l, &c, LIFE_ALL_REDUCE, BIG);
    LIFE_WANT(l, rc == ncclSuccess, "ncclAllReduce: %s", l->said);
    life_fired_wait(l);
    LIFE_WANT(l, life_is_busy(l, &c), "the collective is over before it is revoked");
    from = util_now_ns();
    life_phase(l, "ncclCommRevoke");
    rc = life_calls.revoke(c.nccl, 0);
    LIFE_WANT(l, rc == ncclSuccess, "ncclCommRevoke: %s", life_said(l, rc, c.nccl));
    LIFE_CUDA(l, cuStreamSynchronize, c.stream);
    life_say(l, "ncclCommRevoke %.0f ms", (double)(util_now_ns() - from) / 1e6);
    life_barrier(l);
    LIFE_NCCL(l, ncclCommSplit, c.nccl, 0, l->rank, &nccl, NULL);
    life_comm_take(l, &next, nccl, l->rank, l->ranks, BYTES);
    life_run(l, &next, LIFE_ALL_GATHER, BIG / 4);
    life_ask_all(l, "fault h0:n0 unhang");
    life_run(l, &next, LIFE_ALL_REDUCE, BIG / 4);
    life_destroy(l, &next);
    life_destroy(l, &c);
    life_comm_free(l, &next);
    life_comm_free(l, &c);
}
