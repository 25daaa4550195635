/* An abort under copies to staging memory: NCCL frees the buffer when its registration has been
 * released, so that the release waits for them. */
#include "tests/unit/relay_rig.h"

static unsigned waits, end_at; /* the copies end with this one; 0: never */
static uint64_t waited_ns;

static void wait_ns(void *arg, uint64_t ns)
{
    waits++;
    waited_ns += ns;
    ck_assert_ptr_null(comm(0)->held);
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
    ck_assert_ptr_nonnull(strstr(rig->last_warn[0], "a copy to staging memory reads"));
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

static void add(TCase *t)
{
    tcase_add_test(t, released_when_the_copies_have_ended);
    tcase_add_test(t, copies_that_do_not_end);
    tcase_add_test(t, nothing_to_wait_for);
}

int main(void)
{
    return run_suite("staging memory: abort", add);
}
