/* Requests of the two instances: posted, tested as NCCL does, and waited for. */
#include "tests/support/proto_rig.h"

#include <check.h>

struct ib_mr *rig_reg(struct rig *r, int side, void *mem, size_t len)
{
    struct ib_mr *mr;

    rig_enter(&r->side[side]);
    ck_assert_int_eq(r2_net_reg(r->side[side].comm, mem, len, IB_PTR_HOST, 0, -1, &mr), R2_OK);
    return mr;
}

void rig_dereg(struct rig *r, int side, struct ib_mr *mr)
{
    rig_enter(&r->side[side]);
    ck_assert_int_eq(r2_net_dereg(r->side[side].comm, mr), R2_OK);
}

static int started(struct rig_side *s, enum r2_status st, struct r2_req *req, int n)
{
    if (st != R2_OK && s->status == R2_OK) {
        s->status = st;
    }
    if (req == NULL) {
        return -1;
    }
    ck_assert_msg(s->tail - s->head < RIG_MAX_OPS, "the rig remembers no more than %d requests",
                  RIG_MAX_OPS);
    s->op[s->tail % RIG_MAX_OPS] = (struct rig_op){.req = req, .n = n};
    return (int)s->tail++;
}

int rig_isend(struct rig *r, void *data, size_t size, int tag, struct ib_mr *mr)
{
    struct rig_side *s = &r->side[0];
    struct r2_req *req;
    enum r2_status st;

    rig_enter(s);
    st = r2_net_isend(s->comm, data, size, tag, mr, &req);
    return started(s, st, req, 1);
}

int rig_irecv(struct rig *r, int n, void **data, const size_t *sizes, const int *tags,
              struct ib_mr *mr)
{
    struct rig_side *s = &r->side[1];
    struct ib_mr *mrs[R2_NET_MAX_RECVS] = {mr, mr, mr, mr, mr, mr, mr, mr};
    struct r2_req *req;
    enum r2_status st;

    rig_enter(s);
    st = r2_net_irecv(s->comm, n, data, sizes, tags, mrs, &req);
    return started(s, st, req, n);
}

/* NCCL tests its oldest request alone; here sends in any order, unless it is asked for. */
static int test_side(struct rig_side *s)
{
    int progress = 0;

    if (s->asleep || s->comm == NULL) {
        return 0;
    }
    rig_enter(s);
    for (unsigned i = s->head; i != s->tail; i++) {
        struct rig_op *op = &s->op[i % RIG_MAX_OPS];
        enum r2_status st;
        int done;

        if (op->req == NULL) {
            continue;
        }
        st = r2_net_test(op->req, &done, op->size);
        if (st != R2_OK && s->status == R2_OK) {
            s->status = st;
        }
        if (done) {
            op->req = NULL;
            progress = 1;
        } else if (s->index || s->oldest_alone) {
            break;
        }
    }
    while (s->head != s->tail && s->op[s->head % RIG_MAX_OPS].req == NULL) {
        s->head++;
    }
    return progress;
}

void rig_turn(struct rig *r, uint64_t ns)
{
    for (int i = 0; i < 2; i++) {
        test_side(&r->side[i]);
    }
    fab_inproc_run_until(r->f, rig_now(r) + ns);
}

int rig_until(struct rig *r, int (*cond)(struct rig *r), uint64_t limit_ns)
{
    uint64_t end = rig_now(r) + limit_ns, step = 200;

    while (!cond(r)) {
        unsigned before = r->side[0].head + r->side[1].head;

        if (rig_now(r) >= end) {
            return 0;
        }
        rig_turn(r, step);
        step = r->side[0].head + r->side[1].head != before ? 200
               : step < 50 * RIG_US                        ? step + step / 16
                                                           : step;
    }
    return 1;
}

static int never(struct rig *r)
{
    return 0;
}

void rig_run(struct rig *r, uint64_t ns)
{
    rig_until(r, never, ns);
}

int rig_all_done(struct rig *r)
{
    return r->side[0].head == r->side[0].tail && r->side[1].head == r->side[1].tail;
}

int rig_both_failed(struct rig *r)
{
    return r->side[0].status != R2_OK && r->side[1].status != R2_OK;
}

int rig_send_wait(struct rig *r, void *data, size_t size, int tag, struct ib_mr *mr)
{
    uint64_t end = rig_now(r) + 10 * RIG_S, step = 200;
    int op;

    while ((op = rig_isend(r, data, size, tag, mr)) < 0) {
        ck_assert_int_eq(r->side[0].status, R2_OK);
        ck_assert_msg(rig_now(r) < end, "no CTS for tag %d in 10 s", tag);
        rig_turn(r, step);
        step = step < 50 * RIG_US ? step + step / 16 : step;
    }
    return op;
}
