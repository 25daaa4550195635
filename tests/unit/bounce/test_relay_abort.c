/* An abort under copies to a bounce buffer: NCCL frees the buffer when its registration has been
 * released, so that the release waits for them. */
#include "tests/unit/relay_rig.h"
#include "tests/unit/second_conn.h"

static unsigned waits, end_at; /* the copies end with this one; 0: never */
static uint64_t waited_ns;

static void wait_ns(void *arg, uint64_t ns)
{
    waits++;
    waited_ns += ns;
    ck_assert(second[0] || comm(0)->held == NULL);
    fab_inproc_run_until(rig->f, rig_now(rig) + ns); /* the service thread goes on meanwhile */
    rig_enter(&rig->side[0]);
    if (waits == end_at) {
        copies_end();
    }
}

static void two_copies_run(void)
{
    relay_start(2, 1, 0, (const char *[]){"NCCL_R2_RELAY=host", "NCCL_R2_T_DEAD=300", NULL});
    rig->side[0].inst->env.wait = wait_ns;
    engine.hold = 1;
    waits = 0;
    waited_ns = 0;
    recv_burst(2, 5000);
    send_burst(2);
    ck_assert_uint_eq(engine.begun, 2);
    ck_assert_uint_eq(engine.ended, 0);
}

/* The buffer has other contents behind the release, as what is freed: no copy reads them. */
START_TEST(released_when_the_copies_have_ended)
{
    two_copies_run();
    end_at = 7;
    rig_dereg(rig, 0, s_mr);
    ck_assert_uint_eq(engine.ended, 2);
    ck_assert_uint_eq(waits, 7);
    ck_assert_int_eq(comm(0)->fo.error, R2_ERR_ARG);
    memset(out, POISON, sizeof(out));
    rig_run(rig, 100 * RIG_MS);
    ck_assert_uint_eq(slot[0].landed + slot[1].landed, 0);
    relay_stop(0);
}
END_TEST

/* An engine that hangs keeps NCCL's thread for T_dead, and no longer. */
START_TEST(copies_that_do_not_end)
{
    two_copies_run();
    end_at = 0;
    rig_dereg(rig, 0, s_mr);
    ck_assert_uint_ge(waited_ns, 300 * RIG_MS);
    ck_assert_uint_lt(waited_ns, 310 * RIG_MS);
    ck_assert_ptr_nonnull(strstr(rig->last_warn[0], "a copy to a bounce buffer reads"));
    rig_close(rig, 0);
    rig_close(rig, 1);
    rig_run(rig, RIG_S);
    relay_stop(1);
}
END_TEST

/* Nobody waits where nothing reads the buffer: one of two handles is released; what is copied is
 * another one. */
START_TEST(nothing_to_wait_for)
{
    static uint8_t elsewhere[3 * 4096];
    struct ib_mr *again, *other;

    two_copies_run();
    end_at = 1;
    again = register_as(IB_PTR_CUDA);
    ck_assert_ptr_eq(again, s_mr);
    rig_enter(&rig->side[0]);
    ck_assert_int_eq(r2_net_reg(comm(0), elsewhere + 4096, 8, IB_PTR_CUDA, 0, -1, &other), R2_OK);
    rig_dereg(rig, 0, other);
    rig_dereg(rig, 0, again);
    ck_assert_uint_eq(waits, 0);
    ck_assert_int_eq(comm(0)->fo.error, R2_OK);
    engine.hold = 0;
    finish(2, RIG_S);
    rig_dereg(rig, 0, s_mr);
    ck_assert_uint_eq(waits, 0);
    relay_stop(0);
}
END_TEST

/* --- a queue pair that cannot be stopped --- */

static struct {
    int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
    int (*destroy_qp)(struct ibv_qp *qp);
    struct ibv_qp *qp; /* the driver refuses to do anything with it */
} refusing;

static int modify_refuses(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    return qp == refusing.qp ? ETIMEDOUT : refusing.modify_qp(qp, attr, mask);
}

static int destroy_refuses(struct ibv_qp *qp)
{
    return qp == refusing.qp ? EBUSY : refusing.destroy_qp(qp);
}

#define LEN 5000

/*
 * S aborts while RC repeats m0 out of the bounce ring, and the driver neither stops nor destroys
 * that queue pair. R, whose channel is lost, does not know. The ring must not be lent to another
 * connection: what its copies bring there would be sent as m0 (P27).
 */
START_TEST(ring_of_a_queue_pair_that_goes_on)
{
    static uint8_t there[BIG];
    void *to = there;
    size_t size = LEN;
    int tag = 0;
    struct r2_req *r = NULL, *s = NULL;
    struct ib_mr *mr, *other;
    struct ib_verbs *v;
    unsigned wrong = 0;

    relay_start(2, 1, 0,
                (const char *[]){"NCCL_R2_RELAY=host", "NCCL_R2_LINGER=500", "NCCL_IB_TIMEOUT=18",
                                 "NCCL_R2_WATCHDOG=off", NULL});
    second_connect();
    rig_enter(&rig->side[1]);
    ck_assert_int_eq(r2_net_reg(second[1], there, sizeof(there), IB_PTR_HOST, 0, -1, &mr), R2_OK);
    ck_assert_int_eq(r2_net_irecv(second[1], 1, &to, &size, &tag, &mr, &r), R2_OK);
    rig_enter(&rig->side[0]);
    ck_assert_int_eq(r2_net_reg(second[0], out, sizeof(out), IB_PTR_CUDA, 0, -1, &other), R2_OK);
    recv_burst(1, LEN);
    fire("h0:* blackhole");
    send_burst(1); /* m0: copied and posted, RC repeats it */
    rig_run(rig, 100 * RIG_US);
    ck_assert_uint_eq(engine.ended, 1);
    ck_assert_uint_eq(slot[0].landed, 0);

    v = &rig->side[0].inst->v;
    refusing.modify_qp = v->modify_qp;
    refusing.destroy_qp = v->destroy_qp;
    refusing.qp = comm(0)->conn.path[0].qp;
    v->modify_qp = modify_refuses;
    v->destroy_qp = destroy_refuses;
    rig_oob_cut(rig, 1);
    rig_dereg(rig, 0, s_mr);
    rig_close(rig, 0);
    rig_run(rig, RIG_S); /* T_linger */
    ck_assert_int_eq(rig_comms(rig, 0), 1);

    /* another connection of that process sends something else */
    memset(out[1], 0x5a, BIG);
    rig_enter(&rig->side[0]);
    ck_assert_int_eq(r2_net_isend(second[0], out[1], LEN, 0, other, &s), R2_OK);
    ck_assert_ptr_nonnull(s);
    for (int i = 0, done = 0, n; i < 10 && !done; i++) {
        rig_enter(&rig->side[0]);
        ck_assert_int_eq(r2_net_test(s, &done, &n), R2_OK);
    }

    fire("h0:* up");
    rig_run(rig, 3 * RIG_S);
    for (size_t i = 0; i < LEN; i++) {
        wrong += in[0][i] != byte_of(0, i);
    }
    ck_assert_msg(!rig_done(rig, 1, slot[0].r_op) || rig->side[1].status != R2_OK || wrong == 0,
                  "R reports m0 done, status ok: %u of %d bytes are wrong, byte 0 is %02x", wrong,
                  LEN, in[0][0]);
    v->modify_qp = refusing.modify_qp;
    v->destroy_qp = refusing.destroy_qp;
    ck_assert_int_eq(v->destroy_qp(refusing.qp), 0); /* so that the fabric can be taken down */
}
END_TEST

/* The last handle is left at an aborting close (1), or not (0), and released on another connection:
 * the memory goes behind that as well. */
START_TEST(released_elsewhere_under_copies)
{
    relay_start(2, 1, 0, (const char *[]){"NCCL_R2_RELAY=host", "NCCL_R2_T_DEAD=300", NULL});
    second_connect();
    rig->side[0].inst->env.wait = wait_ns;
    engine.hold = 1;
    waits = 0;
    end_at = 7;
    recv_burst(2, 5000);
    send_burst(2);
    ck_assert_uint_eq(engine.begun, 2);
    if (_i) {
        rig_close(rig, 0);
    }
    rig_enter(&rig->side[0]);
    ck_assert_int_eq(r2_net_dereg(second[0], s_mr), R2_OK);
    ck_assert_msg(engine.ended == 2, "released, and %u copies read it still",
                  engine.begun - engine.ended);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, released_elsewhere_under_copies, 0, 2);
    tcase_add_test(t, ring_of_a_queue_pair_that_goes_on);
    tcase_add_test(t, released_when_the_copies_have_ended);
    tcase_add_test(t, copies_that_do_not_end);
    tcase_add_test(t, nothing_to_wait_for);
}

int main(void)
{
    return run_suite("bounce buffer: abort", add);
}
