/* The end of a process in the middle of everything (P28): its last words say what has landed, and
 * no more than that. */
#include "plugin/base/r2_time.h"
#include "tests/unit/race_rig.h"

#include <time.h>

#define LEN 20000

static int sender_over(struct rig *r)
{
    return r->side[0].head == r->side[0].tail || r->side[0].status != R2_OK;
}

static uint64_t real_ns(void)
{
    return r2_clock_ns(CLOCK_MONOTONIC);
}

static const struct fo_fenced *bye_of_receiver(void)
{
    for (unsigned i = rig->sent_count; i-- > 0;) {
        if (rig->sent[i % RIG_MAX_SENT].from == 1 &&
            rig->sent[i % RIG_MAX_SENT].type == FO_MSG_BYE) {
            return &rig->sent[i % RIG_MAX_SENT].body.fenced;
        }
    }
    ck_abort_msg("no BYE");
    return NULL;
}

/* R's process ends: one message is there and was not polled, another one is not (@missing). */
static void end_of_receiver(int missing)
{
    start(2, (const char *[]){"NCCL_R2_EXIT=200", NULL});
    messages(4, LEN);
    recv_post(0, LEN);
    recv_post(1, LEN);
    rig_run(rig, RIG_MS);
    rig->side[1].asleep = 1;
    send_post(0);
    rig_run(rig, RIG_MS);
    ck_assert_uint_eq(slot[0].landed, LEN);
    ck_assert_uint_eq(acked(), 4);
    if (missing) {
        rig_fault(rig, "h0:n0 blackhole-tx");
        send_post(1);
    }
    rig_enter(&rig->side[1]);
}

START_TEST(what_has_landed_is_in_the_last_words)
{
    end_of_receiver(_i);
    ck_assert_int_eq(r2_inst_exit_notify(rig->side[1].inst), 0);
    ck_assert_uint_eq(bye_of_receiver()->acked, 5);
    ck_assert(rig_until(rig, sender_over, 20 * RIG_MS));
    ck_assert_int_eq(rig_done(rig, 0, slot[0].s_op), 1);
    ck_assert_int_eq(rig->side[0].status, _i ? R2_ERR_PEER : R2_OK);
    ck_assert(!_i || !rig_done(rig, 0, slot[1].s_op));
    rig->side[1].asleep = 0;
}
END_TEST

/* NCCL's thread is inside and does not come out: the end waits for it no longer than it may, and
 * claims nothing of what it may be writing. */
START_TEST(nothing_is_claimed_of_what_somebody_writes)
{
    uint64_t from;

    end_of_receiver(0);
    r2_gate_setup(1);
    ck_assert_int_eq(r2_gate_enter(&comm(1)->gate), 1);
    from = real_ns();
    ck_assert_int_eq(r2_inst_exit_notify(rig->side[1].inst), 0);
    ck_assert_uint_lt(real_ns() - from, 5 * RIG_S);
    r2_gate_leave(&comm(1)->gate);
    r2_gate_setup(0);
    ck_assert_uint_eq(bye_of_receiver()->acked, 0);
    ck_assert_uint_eq(bye_of_receiver()->n, 0);
    ck_assert(bye_of_receiver()->flags & FO_FLAG_ABORT);
    ck_assert(rig_until(rig, sender_over, 20 * RIG_MS));
    ck_assert_int_eq(rig->side[0].status, R2_ERR_PEER);
    rig->side[1].asleep = 0;
}
END_TEST

/* ... nor where another visitor waits for it. */
START_TEST(another_visitor_waits_as_well)
{
    uint64_t from;

    end_of_receiver(0);
    r2_gate_setup(1);
    r2_gate_visit(&comm(1)->gate);
    from = real_ns();
    ck_assert_int_eq(r2_inst_exit_notify(rig->side[1].inst), 0);
    ck_assert_uint_lt(real_ns() - from, 5 * RIG_S);
    r2_gate_unvisit(&comm(1)->gate);
    r2_gate_setup(0);
    ck_assert_uint_eq(bye_of_receiver()->acked, 0);
    rig->side[1].asleep = 0;
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, what_has_landed_is_in_the_last_words, 0, 2);
    tcase_add_test(t, nothing_is_claimed_of_what_somebody_writes);
    tcase_add_test(t, another_visitor_waits_as_well);
}

int main(void)
{
    return run_suite("last words", add);
}
