/* NICs that say nothing for a while, and no event when they are back: how soon they are found and
 * carry data again, what asking costs meanwhile, and how many are asked at a time. */
#include "tests/unit/failback_rig.h"

#include "plugin/probe/health/r2_pair.h"
#include "plugin/service/r2_reconnect.h"
#include "probe/health/r2_probation.h"
#include "core/r2_registry.h"

#define RETURN (1 * RIG_S) /* NCCL_R2_T_RETURN here, its default */
#define FOUND  (1 * RIG_S) /* what may pass beside it until data flows */

static int want_send;

/* Messages go on for @ns, or try to: nobody waits for one. */
static void traffic(uint64_t ns)
{
    for (uint64_t end = rig_now(rig) + ns; rig_now(rig) < end; rig_turn(rig, 200 * RIG_US)) {
        if (want_send) {
            want_send = rig_isend(rig, out[0], sizeof(out[0]), 0, s_mr) < 0;
        } else if (rig_all_done(rig)) {
            ck_assert_int_ge(rig_irecv1(rig, in[0], sizeof(in[0]), 0, r_mr), 0);
            want_send = 1;
        }
    }
}

static void begin(int nics)
{
    start(nics, (const char *[]){"NCCL_R2_T_RETURN=1000", "NCCL_R2_T_PACKET=2000", NULL});
    want_send = 0;
    traffic(300 * RIG_MS);
}

static void all_flow(void)
{
    uint64_t before[2][IB_MAX_PATHS];

    for (int s = 0; s < 2; s++) {
        ck_assert_msg(comm(s)->conn.up == (1u << comm(s)->conn.npaths) - 1,
                      "side %d: paths %x are up", s, comm(s)->conn.up);
        for (int p = 0; p < comm(s)->conn.npaths; p++) {
            before[s][p] = carried(s, p);
        }
    }
    traffic(50 * RIG_MS);
    for (int p = 0; p < comm(0)->conn.npaths; p++) {
        ck_assert_uint_gt(carried(0, p), before[0][p]);
        ck_assert_uint_gt(carried(1, p), before[1][p]);
    }
}

/* --- how soon --- */

static const struct {
    const char *fault, *end;
    unsigned ms;
} silence[] = {{"h1:* blackhole", "h1:* restore", 600},   {"h1:* blackhole", "h1:* restore", 1000},
               {"h0:* blackhole", "h0:* restore", 1000},  {"*:* blackhole", "*:* restore", 1300},
               {"h1:* blackhole", "h1:* restore", 3000},  {"h1:* blackhole", "h1:* restore", 20000},
               {"h0:* blackhole", "h0:* restore", 20000}, {"h1:* hang", "h1:* unhang", 600},
               {"h1:* hang", "h1:* unhang", 3000},        {"h0:* hang", "h0:* unhang", 1000},
               {"h0:* hang", "h0:* unhang", 20000}};

/* All at once, however long it lasted: full bandwidth soon. */
START_TEST(all_nics_are_silent_for_a_while)
{
    begin(4);
    rig_fault(rig, silence[_i].fault);
    traffic(silence[_i].ms * RIG_MS);
    ck_assert_int_le(__builtin_popcount(comm(0)->conn.up), 1);
    rig_fault(rig, silence[_i].end);
    traffic(RETURN + FOUND);
    all_flow();
}
END_TEST

/*
 * One of four, for ten minutes: what asking costs is bounded from above and from below, and its end
 * is found a sixty-fourth of that later.
 */
START_TEST(a_long_silence_costs_little)
{
    uint32_t made[2];

    begin(4);
    rig_fault(rig, _i ? "h1:n2 blackhole" : "h0:n2 blackhole");
    traffic(RIG_S);
    for (int s = 0; s < 2; s++) {
        made[s] = rig->side[s].inst->probing.inc;
    }
    rig_run(rig, 600 * RIG_S);
    for (int s = 0; s < 2; s++) {
        unsigned n = rig->side[s].inst->probing.inc - made[s];

        ck_assert_msg(n <= 200, "%u queue pairs made in 600 s at side %d", n, s);
        ck_assert_uint_ge(n, 100);
    }
    ck_assert(!is_up(0, 2) && !is_up(1, 2));
    rig_fault(rig, _i ? "h1:n2 restore" : "h0:n2 restore");
    traffic(RETURN + FOUND + 600 * RIG_S / 64 * 5 / 4);
    all_flow();
}
END_TEST

/* There is no end to asking, and no pause of more than ten seconds and a quarter. */
START_TEST(it_is_back_after_hours)
{
    uint32_t made;

    begin(4);
    rig_fault(rig, _i ? "h1:n2 blackhole" : "h0:n2 blackhole");
    traffic(RIG_S);
    rig_run(rig, 2 * 3600 * RIG_S);
    made = rig->side[0].inst->probing.inc;
    rig_run(rig, 500 * RIG_S);
    made = rig->side[0].inst->probing.inc - made;
    ck_assert_msg(made >= 40, "%u queue pairs made in 500 s", made);
    ck_assert(!is_up(0, 2) && !is_up(1, 2));
    rig_fault(rig, _i ? "h1:n2 restore" : "h0:n2 restore");
    traffic(RETURN + FOUND + 10 * RIG_S * 5 / 4);
    all_flow();
}
END_TEST

/* The exchange is under way when the NIC falls silent again: what failed for that is no reason to
 * wait once it answers. */
START_TEST(an_attempt_that_a_silence_ended_is_followed_soon)
{
    begin(2);
    rig_fault(rig, "h1:n1 down");
    traffic(RIG_S);
    comm(1)->ret->path[1].not_before =
        rig_now(rig) + 1000 * RIG_S; /* as after many attempts that failed */
    comm(1)->ret->path[1].failed_at = rig_now(rig);
    rig_fault(rig, "h1:n1 up");
    traffic(3 * RIG_S);
    ck_assert(!is_up(1, 1)); /* it answers as it did then */
    comm(1)->ret->path[1].failed_at = rig_now(rig);
    rig_enter(&rig->side[1]);
    r2_comm_kick(comm(1));
    rig_fault(rig, "h1:n1 blackhole");
    traffic(3 * RIG_S);
    rig_fault(rig, "h1:n1 restore");
    traffic(RETURN + FOUND);
    all_flow();
}
END_TEST

/* --- how many, at what cost --- */

#define MANY 14 /* NICs of each host: pairs of one NIC, more than have a turn at once */

static struct r2_pair *all_pairs(int side, int nic, int j)
{
    struct r2_comm *c = comm(side);

    return r2_pair_meet(c->inst, c->peer, nic, j, 1);
}

static int trying(int side, int nic)
{
    int n = 0;

    for (const struct r2_pair *p = rig->side[side].inst->index.pairs; p; p = p->next) {
        n += p->nic == nic && p->probation.state != R2_PROBATION_REST &&
             p->probation.good_since == 0;
    }
    return n;
}

static int answering(void)
{
    int n = 0;

    for (int j = 0; j < MANY; j++) {
        n += all_pairs(1, 0, j)->probation.good_since != 0;
    }
    return n;
}

/* A NIC with many pairs: they take turns, and the first that answers brings the others at once. */
START_TEST(many_silent_pairs_take_turns)
{
    int most = 0;

    rig = rig_create(
        MANY, 1,
        (const char *[]){"NCCL_R2_T_RETURN=60000", NULL}); /* in a row of answers they stay */
    join();
    for (int j = 0; j < MANY; j++) {
        rig_enter(&rig->side[1]);
        all_pairs(1, 0, j);
    }
    rig_run(rig, RIG_S);
    for (int j = 0; j < MANY; j++) {
        ck_assert(r2_pair_ready(all_pairs(1, 0, j)) && all_pairs(1, 0, j)->probe.answers);
    }
    rig_fault(rig, "h1:n0 blackhole");
    rig_enter(&rig->side[1]);
    for (int j = 0; j < MANY; j++) {
        r2_probation_wanted(all_pairs(1, 0, j));
    }
    for (uint64_t end = rig_now(rig) + 20 * RIG_S; rig_now(rig) < end; rig_run(rig, 5 * RIG_MS)) {
        most = trying(1, 0) > most ? trying(1, 0) : most;
    }
    ck_assert_int_le(most, 8);
    ck_assert_int_ge(most, 4);
    for (int j = 0; j < MANY; j++) {
        ck_assert_uint_gt(all_pairs(1, 0, j)->probation.tried_at, rig_now(rig) - 4 * RIG_S);
    }
    ck_assert_int_eq(answering(), 0);
    rig_fault(rig, "h1:n0 restore");
    rig_run(rig, 500 * RIG_MS);
    ck_assert_int_eq(answering(), MANY);
}
END_TEST

static struct {
    int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
    unsigned calls;
} slow;

#define SLOW_CALL (500 * RIG_MS)

static int modify_slow(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    if (attr->qp_state == IBV_QPS_RTR) {
        slow.calls++;
        fab_inproc_skip(rig->f, SLOW_CALL);
    }
    return slow.modify_qp(qp, attr, mask);
}

/* A driver that takes half a second for what takes microseconds has less to do for NICs that do not
 * answer. */
START_TEST(a_driver_that_hangs_keeps_its_worker)
{
    struct ib_verbs *v;

    begin(2);
    v = &rig->side[1].inst->v;
    slow.modify_qp = v->modify_qp;
    slow.calls = 0;
    rig_fault(rig, "h0:n1 blackhole");
    traffic(RIG_S);
    v->modify_qp = modify_slow;
    rig_run(rig, 100 * RIG_S);
    ck_assert_msg(slow.calls * SLOW_CALL < 40 * RIG_S, "busy with %u calls in 100 s", slow.calls);
    ck_assert_uint_ge(slow.calls, 10);
    v->modify_qp = slow.modify_qp;
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, all_nics_are_silent_for_a_while, 0,
                        (int)(sizeof(silence) / sizeof(silence[0])));
    tcase_add_loop_test(t, a_long_silence_costs_little, 0, 2);
    tcase_add_loop_test(t, it_is_back_after_hours, 0, 2);
    tcase_add_test(t, an_attempt_that_a_silence_ended_is_followed_soon);
    tcase_add_test(t, many_silent_pairs_take_turns);
    tcase_add_test(t, a_driver_that_hangs_keeps_its_worker);
}

int main(void)
{
    return run_suite("fail-back: silence", add);
}
