/* Registered buffers, job cycles of one process, memory behind the driver. */
#include "tests/nccl/rank/nccl_life.h"

#include <string.h>

#define SMALL (64u << 10) /* int32 elements */
#define BIG   (2u << 20)
#define BYTES ((size_t)BIG * 4)

static void buffers_make(struct life *l, struct life_comm *c)
{
    life_buf_make(l, &c->send, BYTES, true);
    life_buf_make(l, &c->recv, BYTES, true);
    life_buf_register(l, c, &c->send);
    life_buf_register(l, c, &c->recv);
}

static void buffers_free(struct life *l, struct life_comm *c)
{
    life_buf_deregister(l, c, &c->recv);
    life_buf_deregister(l, c, &c->send);
    life_buf_free(l, &c->recv);
    life_buf_free(l, &c->send);
}

static void faulty_run(struct life *l, struct life_comm *c, enum life_op op, const char *fault)
{
    life_arm(l, "fault %s", fault);
    life_run(l, c, op, op == LIFE_ALL_GATHER ? BIG / 2 : BIG);
    life_noticed(l);
}

void life_registered(struct life *l)
{
    /* On a rail each: one that is back for less than T_RETURN carries nothing that could be missed.
     */
    static const char *const faults[] = {"h0:n0 down", "h1:n1 blackhole", "h0:n2 down"};
    struct life_comm c;
    uint64_t before;

    life_comm_make(l, &c, 0);
    for (int i = 0; i < 3; i++) {
        before = life_log_count(l, "NET register userbuff");
        buffers_make(l, &c);
        life_run(l, &c, (enum life_op)i, SMALL);
        faulty_run(l, &c, (enum life_op)i, faults[i]);
        before = life_log_count(l, "NET register userbuff") - before;
        life_say(l, "%s: NCCL registered %llu buffers with the plugin", faults[i],
                 (unsigned long long)before);
        LIFE_WANT(l, i == 0 || before > 0, "NCCL has not registered any buffer with the plugin");
        buffers_free(l, &c); /* while a NIC is away */
        buffers_make(l, &c); /* registered without it */
        life_ask_all(l, "fault *:* up");
        for (int k = 0; k < 3; k++) {
            life_run(l, &c, (enum life_op)k, BIG / 4);
        }
        buffers_free(l, &c);
    }
    life_destroy(l, &c);
    life_comm_free(l, &c);
}

void life_cycles(struct life *l)
{
    struct life_comm c;

    for (int i = 0; i < 4; i++) {
        life_comm_make(l, &c, BYTES);
        life_run(l, &c, LIFE_ALL_REDUCE, SMALL);
        if (i == 1) {
            faulty_run(l, &c, LIFE_ALL_REDUCE, "h0:n1 down");
        } else if (i == 3) {
            faulty_run(l, &c, LIFE_ALL_GATHER, "h1:n0 blackhole");
        }
        life_destroy(l, &c);
        life_comm_free(l, &c);
        if (i == 2) { /* one cycle began without that NIC */
            life_ask_all(l, "fault h0:n1 up");
        }
    }
}

void life_forgotten(struct life *l)
{
    struct life_comm c;
    ncclResult_t rc;

    life_comm_make(l, &c, BYTES);
    life_run(l, &c, LIFE_ALL_REDUCE, SMALL);
    life_destroy(l, &c);
    life_comm_free(l, &c);
    rc = life_comm_try(l, &c);
    if (nccl_lib.version < 22800 || nccl_lib.version >= 23000) {
        LIFE_WANT(l, rc == ncclSuccess, "the second ncclCommInitRank: %s", l->said);
        life_destroy(l, &c);
    } else {
        LIFE_WANT(l, rc == ncclInvalidUsage && life_log_count(l, "initialize any NET plugin") > 0,
                  "the second ncclCommInitRank: %s", rc ? l->said : "went well");
        life_say(l, "the second ncclCommInitRank: %s", l->said);
    }
    life_comm_free(l, &c);
}

void life_gpu(struct life *l)
{
    struct life_comm c;
    uint64_t flushed;

    life_comm_make(l, &c, BYTES);
    life_run(l, &c, LIFE_ALL_REDUCE, SMALL);
    faulty_run(l, &c, LIFE_ALL_REDUCE, "h0:n0 down");
    faulty_run(l, &c, LIFE_ALL_GATHER, "h1:n1 blackhole");
    life_ask_all(l, "fault *:* up");
    faulty_run(l, &c, LIFE_SENDRECV, "h1:n0 down");
    life_destroy(l, &c);
    life_comm_free(l, &c);
    flushed = life_log_count(l, "flush");
    life_say(l, "%llu connections have flushed what they received", (unsigned long long)flushed);
    LIFE_WANT(l, flushed > 0, "nothing has been flushed");
}
