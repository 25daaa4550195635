/* The queue pairs of a probe, each on a way of its own: one that is silent is left for another,
 * one alone is enough, and none is made anew for ever (docs/health.md, "Ways"). */
#include "tests/unit/suite.h"
#include "tests/unit/ways_rig.h"

#include "plugin/probe/health/r2_inband.h"

#include <errno.h>

/* The pair's probe takes other ways when one of its own is silent. */
START_TEST(the_probe_leaves_a_silent_way)
{
    int k;

    fabric(2, FAB_HASH_PORTS, quiet);
    join(0);
    wait_probes();
    k = fab_inproc_way(rig->f, fab_ibv_qp(pair_of(0, 0)->qp.lane[_i].qp));
    spine(k, "blackhole");
    for (int i = 0; i < 24; i++) { /* somebody asks */
        rig_enter(&rig->side[0]);
        r2_pair_send_probe(pair_of(0, 0), rig->side[0].inst->watch.clock, 0);
        rig_run(rig, 100 * RIG_MS);
    }
    for (int s = 0; s < 2; s++) { /* both ends alike */
        ck_assert_uint_ne(pair_of(s, 0)->qp.lane[_i].way, _i ? 5 : 1);
        ck_assert_uint_eq(pair_of(s, 0)->qp.lane[!_i].way, _i ? 1 : 5);
        ck_assert_uint_eq(pair_of(s, 0)->qp.lane[_i].way, pair_of(!s, 0)->qp.lane[_i].way);
    }
    ck_assert(probe_ways_avoids(&pair_of(0, 0)->ways.known, (unsigned)(_i ? 5 : 1),
                                rig->side[0].inst->watch.clock) ||
              probe_ways_avoids(&pair_of(1, 0)->ways.known, (unsigned)(_i ? 5 : 1),
                                rig->side[1].inst->watch.clock));
    wait_probes();
    ck_assert_uint_gt(dropped(k), 0);
    for (int i = 0; i < PROBE_QP_LANES; i++) {
        ck_assert_int_ne(fab_inproc_way(rig->f, fab_ibv_qp(pair_of(0, 0)->qp.lane[i].qp)), k);
    }
    no_pair_moved();
    stop();
}
END_TEST

static unsigned sport(struct ibv_qp *qp)
{
    return fab_ibv_qp(qp)->sport;
}

static int is_new(struct rig *r)
{
    (void)r;
    return pair_of(0, 0)->inband.up && pair_of(1, 0)->inband.up &&
           sport(pair_of(0, 0)->inband.qp) == sport(pair_of(1, 0)->inband.qp) &&
           probe_ways_is_silent(&pair_of(0, 0)->ways.known, 1) +
               probe_ways_is_silent(&pair_of(1, 0)->ways.known, 1);
}

/* Messages over NICs take the way of the probe's first queue pair. Where it is silent, and data
 * takes others, what becomes of a message tells, though nobody waits for it: the channel is there.
 */
START_TEST(messages_tell_of_a_silent_way)
{
    static const uint8_t lost[FO_RECORD_HEAD]; /* it does not arrive */
    int k;

    fabric(1, FAB_HASH_PORTS, (const char *[]){QUIET_RC, "NCCL_R2_INBAND=on", NULL});
    join(2);
    wait_probes();
    for (int s = 0; s < 2; s++) {
        struct r2_pair *pair = pair_of(s, 0);

        ck_assert_ptr_nonnull(pair->inband.qp);
        ck_assert_uint_eq(pair->qp.lane[0].way, 1);
        ck_assert_uint_eq(sport(pair->inband.qp), sport(pair->qp.lane[0].qp));
    }
    k = fab_inproc_way(rig->f, fab_ibv_qp(pair_of(0, 0)->inband.qp));
    ck_assert_int_ne(spine_of(0, 0), k);
    spine(k, "blackhole");
    rig_run(rig, 2 * RIG_S);
    ck_assert_uint_eq(dropped(k), 0); /* nobody asks */
    rig_enter(&rig->side[0]);
    r2_inband_send(rig->side[0].inst, pair_of(0, 0)->peer, lost, sizeof(lost));
    ck_assert(rig_until(rig, is_new, 10 * RIG_S));
    ck_assert_uint_gt(dropped(k), 0);
    for (int s = 0; s < 2; s++) {
        ck_assert_uint_ne(pair_of(s, 0)->qp.lane[0].way, 1);
        ck_assert_uint_eq(sport(pair_of(s, 0)->inband.qp), sport(pair_of(s, 0)->qp.lane[0].qp));
    }
    no_pair_moved();
    stop();
}
END_TEST

/* A silent way of the probe that nothing better can replace: the queue pairs are not made anew for
 * ever, on a host where nothing goes on. */
START_TEST(where_no_way_is_better)
{
    static const char *const ways[] = {"NCCL_R2_WAYS=2", "NCCL_R2_WAYS=4", "NCCL_R2_WAYS=8"};
    uint32_t made[2];

    fabric(2, FAB_HASH_PORTS, (const char *[]){QUIET_RC, ways[_i], NULL});
    join(0);
    wait_probes();
    spine(fab_inproc_way(rig->f, fab_ibv_qp(pair_of(0, 0)->qp.lane[1].qp)), "blackhole");
    messages(4, BIG);
    for (int s = 0; s < 2; s++) {
        rig_enter(&rig->side[s]);
        r2_pair_send_probe(pair_of(s, 0), rig->side[s].inst->watch.clock, 0);
    }
    rig_run(rig, 5 * RIG_S);
    for (int s = 0; s < 2; s++) {
        made[s] = rig->side[s].inst->probing.inc;
    }
    rig_run(rig, 30 * RIG_S);
    for (int s = 0; s < 2; s++) {
        ck_assert_uint_le(rig->side[s].inst->probing.inc - made[s], 6);
    }
    stop();
}
END_TEST

/* Both ways of the probes of two of four NICs are silent: the pairs find the others. */
START_TEST(both_ways_of_a_probe)
{
    fabric(4, FAB_HASH_PORTS, quiet);
    join((unsigned)_i);
    wait_probes();
    rate_known();
    for (int nic = 0; nic < 2; nic++) {
        for (int l = 0; l < PROBE_QP_LANES; l++) {
            char text[64], err[128];

            snprintf(text, sizeof(text), "rail %d spine %d blackhole", nic,
                     fab_inproc_way(rig->f, fab_ibv_qp(pair_of(0, nic)->qp.lane[l].qp)));
            ck_assert_msg(fab_inproc_fault(rig->f, text, err, sizeof(err)) == 0, "%s", err);
        }
    }
    for (int i = 0; i < 60; i++) {
        burst(4);
        rig_run(rig, 500 * RIG_MS);
    }
    ck_assert_uint_eq(rig->side[0].comm->conn.up, 15);
    stop();
}
END_TEST

static struct {
    struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
    int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
    struct ibv_cq *first; /* of the queue pair made last */
    unsigned refused;
} device;

/* A second queue pair on the completion queue of a probe's first is one too many. */
static struct ibv_qp *no_second(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    int second = attr->cap.max_send_wr == PROBE_QP_DEPTH && attr->send_cq == device.first;

    device.first = attr->send_cq;
    if (second) {
        device.refused++;
        errno = ENOMEM;
        return NULL;
    }
    return device.create_qp(pd, attr);
}

static int second_stays(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    for (const struct r2_pair *p = rig->side[1].inst->index.pairs; p; p = p->next) {
        if (qp == p->qp.lane[1].qp && attr->qp_state == IBV_QPS_RTR) {
            device.refused++;
            return ETIMEDOUT;
        }
    }
    return device.modify_qp(qp, attr, mask);
}

/* The second queue pair of one end cannot be made, or not be connected: both do without, and
 * neither makes them anew for that again and again. */
START_TEST(one_queue_pair_is_enough)
{
    struct ib_verbs *v;
    uint32_t made[2];

    fabric(2, FAB_HASH_PORTS, quiet);
    v = &rig->side[1].inst->v;
    memset(&device, 0, sizeof(device));
    device.create_qp = v->create_qp;
    device.modify_qp = v->modify_qp;
    if (_i) {
        v->modify_qp = second_stays;
    } else {
        v->create_qp = no_second;
    }
    join(0);
    wait_probes();
    for (int i = 0; i < 5; i++) {
        rig_enter(&rig->side[0]);
        r2_pair_send_probe(pair_of(0, 0), rig->side[0].inst->watch.clock, 0);
        rig_run(rig, 200 * RIG_MS);
    }
    ck_assert_uint_ge(device.refused, 1);
    for (int s = 0; s < 2; s++) {
        made[s] = rig->side[s].inst->probing.inc;
    }
    for (int i = 0; i < 20; i++) {
        for (int s = 0; s < 2; s++) {
            rig_enter(&rig->side[s]);
            r2_pair_send_probe(pair_of(s, 0), rig->side[s].inst->watch.clock, 0);
        }
        messages(2, BIG);
        rig_run(rig, 300 * RIG_MS);
    }
    for (int s = 0; s < 2; s++) {
        ck_assert(r2_pair_ready(pair_of(s, 0)) && pair_of(s, 0)->probe.answers > 2);
        ck_assert_uint_eq(pair_of(s, 0)->qp.lane[1].used, 0);
        ck_assert_uint_eq(rig->side[s].inst->probing.inc, made[s]);
        for (unsigned way = 1; way <= SPINES; way++) { /* nor is a way blamed for it */
            ck_assert(!probe_ways_avoids(&pair_of(s, 0)->ways.known, way,
                                         rig->side[s].inst->watch.clock));
        }
    }
    v->create_qp = device.create_qp;
    v->modify_qp = device.modify_qp;
    nothing_moved();
    stop();
}
END_TEST

/* One queue pair of a probe breaks, at either end: the other answers, no NIC is given up, and there
 * are two again. */
START_TEST(a_queue_pair_of_two_breaks)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    int side = _i / PROBE_QP_LANES, lane = _i % PROBE_QP_LANES;
    uint32_t inc;

    fabric(2, FAB_HASH_PORTS, quiet);
    join(0);
    wait_probes();
    inc = pair_of(0, 0)->inc;
    rig_enter(&rig->side[side]);
    ck_assert_int_eq(
        rig->side[side].inst->v.modify_qp(pair_of(side, 0)->qp.lane[lane].qp, &attr, IBV_QP_STATE),
        0);
    for (int i = 0; i < 20; i++) {
        rig_enter(&rig->side[0]);
        r2_pair_send_probe(pair_of(0, 0), rig->side[0].inst->watch.clock, 0);
        rig_run(rig, 200 * RIG_MS);
    }
    wait_probes();
    ck_assert_uint_ne(pair_of(0, 0)->inc, inc);
    for (int s = 0; s < 2; s++) {
        for (int i = 0; i < PROBE_QP_LANES; i++) {
            ck_assert(pair_of(s, 0)->qp.lane[i].used && !pair_of(s, 0)->qp.lane[i].failed);
        }
        ck_assert_uint_eq(pair_of(s, 0)->probe.silent_at, 0);
    }
    nothing_moved();
    messages(4, BIG);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, the_probe_leaves_a_silent_way, 0, PROBE_QP_LANES);
    tcase_add_test(t, messages_tell_of_a_silent_way);
    tcase_add_loop_test(t, where_no_way_is_better, 0, 3);
    tcase_add_loop_test(t, both_ways_of_a_probe, 0, 8);
    tcase_add_loop_test(t, one_queue_pair_is_enough, 0, 2);
    tcase_add_loop_test(t, a_queue_pair_of_two_breaks, 0, 2 * PROBE_QP_LANES);
}

int main(void)
{
    return suite_run("ways_probe", 60, NULL, teardown, add);
}
