/*
 * InfiniBand's ways: the LIDs of ports that have several (docs/health.md, "Ways"). A switch goes by
 * the destination's, so that data and what answers it take spines that have nothing to do with each
 * other; a silent spine costs the ways that lead over it in either direction, and no NIC.
 */
#include "tests/unit/suite.h"
#include "tests/unit/ways_rig.h"

#include "plugin/probe/diagnosis/r2_way_report.h"

static struct {
    unsigned codes; /* R2-F04 */
    int by;         /* which end was the last */
    char line[2][128];
} said;

static void on_cause(struct r2_inst *inst, const struct r2_cause *cause)
{
    if (strcmp(cause->code, "R2-F04") == 0) {
        said.codes++;
        said.by = inst == rig->side[1].inst;
        for (int i = 0; i < 2 && i < cause->n_evidence; i++) {
            snprintf(said.line[i], sizeof(said.line[i]), "%s", cause->evidence[i]);
        }
    }
}

static void listen(void)
{
    static const struct r2_subscriber test = {.on_cause = on_cause};

    memset(&said, 0, sizeof(said));
    subscribe(&test);
}

static struct ibv_ah_attr ah_of(int side, struct ibv_qp *qp)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;

    ck_assert_int_eq(rig->side[side].inst->v.query_qp(qp, &attr, IBV_QP_AV, &init), 0);
    return attr.ah_attr;
}

static struct ibv_ah_attr path_ah(int side, int p)
{
    return ah_of(side, rig->side[side].comm->conn.path[p].qp);
}

static unsigned way_of(int side, int p)
{
    return rig->side[side].comm->conn.path[p].way;
}

static int all_up(struct rig *r)
{
    return r->side[0].comm->conn.up == 3 && r->side[1].comm->conn.up == 3;
}

static int is_said(struct rig *r)
{
    (void)r;
    return said.codes > 0;
}

static const struct {
    int lmc, peer_lmc;
    const char *option;
    unsigned ways;
    int to, from; /* of these, LIDs that four connections' first incarnations take */
} ports[] = {
    {0, 0, NULL, 1, 1, 1},
    {1, 1, NULL, 2, 2, 2},
    {2, 2, NULL, 4, 4, 4},
    {3, 3, NULL, 8, 4, 4},
    {7, 7, NULL, 8, 4, 4}, /* more than NCCL_R2_WAYS wants */
    {7, 7, "NCCL_R2_WAYS=16", 16, 4, 4},
    {3, 3, "NCCL_R2_WAYS=3", 3, 3, 3},
    {3, 3, "NCCL_R2_WAYS=off", 1, 1, 1},
    {0, 2, NULL, 4, 4, 1},
    {2, 0, NULL, 4, 1, 1}, /* R, which chooses, has one LID and does not know S's yet */
};

static void fabric_of(int i)
{
    fabric_lids(1, ports[i].lmc, ports[i].peer_lmc,
                (const char *[]){QUIET_RC, ports[i].option, NULL});
}

/* Each end sends from the LID that the other one sends to; all of it arrives. */
START_TEST(both_ends_take_the_same_lids)
{
    unsigned to = 0, from = 0;
    int two;

    for (unsigned first = 0; first < 4; first++) {
        fabric_of(_i);
        join(first);
        wait_probes();
        messages(4, BIG);
        for (int s = 0; s < 2; s++) {
            struct ibv_ah_attr here = path_ah(s, 0), there = path_ah(!s, 0);
            unsigned base = s ? 0x180 : 0x80, lmc = s ? ports[_i].peer_lmc : ports[_i].lmc;

            ck_assert_int_eq(here.is_global, 0);
            ck_assert_uint_lt(here.src_path_bits, 1u << lmc);
            ck_assert_uint_eq(there.dlid, base + here.src_path_bits);
            ck_assert_uint_eq(rig->side[!s].comm->conn.path[0].dlid,
                              way_of(!s, 0) ? there.dlid : 0);
            ck_assert_uint_eq(rig->side[s].comm->conn.path[0].udp_port, 0);
            ck_assert_uint_eq(pair_of(s, 0)->ways.n, ports[_i].ways);
            /* an end with one LID makes one, not knowing of the peer's */
            two = ports[_i].ways > 1 && ports[_i].lmc && ports[_i].peer_lmc;
            ck_assert_int_eq(pair_of(s, 0)->qp.lane[1].used, two);
            for (int l = 0; l < (two ? PROBE_QP_LANES : 1); l++) {
                struct ibv_ah_attr a = ah_of(s, pair_of(s, 0)->qp.lane[l].qp);
                struct ibv_ah_attr b = ah_of(!s, pair_of(!s, 0)->qp.lane[l].qp);

                ck_assert_uint_eq(b.dlid, base + a.src_path_bits);
            }
        }
        to |= 1u << (path_ah(0, 0).dlid - 0x180);
        from |= 1u << path_ah(0, 0).src_path_bits;
        ck_assert_uint_eq(way_of(0, 0), way_of(1, 0));
        stop();
        if (first < 3) {
            teardown();
        }
    }
    ck_assert_int_eq(__builtin_popcount(to), ports[_i].to);
    ck_assert_int_eq(__builtin_popcount(from), ports[_i].from);
}
END_TEST

static int crosses(struct ibv_qp *a, struct ibv_qp *b, int k)
{
    return fab_inproc_way(rig->f, fab_ibv_qp(a)) == k || fab_inproc_way(rig->f, fab_ibv_qp(b)) == k;
}

/*
 * Whichever spine it is, over whichever LIDs data goes: traffic goes on, and the NICs stay. But
 * where both ways of the probe lead over it and there is no witness the pair is given up, and is
 * back over its next ways.
 */
START_TEST(a_silent_spine)
{
    int k = _i % SPINES, hit, deaf = 1;
    uint64_t took;

    fabric_lids(2, 3, 3, quiet);
    join((unsigned)(_i / SPINES));
    wait_probes();
    rate_known();
    listen();
    hit = spine_of(0, 0) == k || spine_of(1, 0) == k;
    for (int l = 0; l < PROBE_QP_LANES; l++) {
        deaf &= crosses(pair_of(0, 0)->qp.lane[l].qp, pair_of(1, 0)->qp.lane[l].qp, k);
    }
    spine(k, "blackhole");
    took = burst(16);
    ck_assert_msg(took < 150 * RIG_MS, "%.3f ms", (double)took / 1e6);
    ck_assert(!hit || dropped(k) > 0);
    ck_assert(rig_until(rig, all_up, deaf ? 5 * RIG_S : 300 * RIG_MS));
    trickle();
    for (int s = 0; s < 2; s++) {
        ck_assert_uint_eq(rig->side[s].comm->conn.up, 3);
        ck_assert_int_ne(spine_of(s, 0), k);
        ck_assert(r2_pair_ready(pair_of(s, 0)));
    }
    if (!deaf) {
        ck_assert(!hit || rig_until(rig, is_said, 5 * RIG_S));
        no_pair_moved();
    }
    stop();
}
END_TEST

/* The operator's line names the LIDs, as switches' tables have them. */
START_TEST(the_lids_are_named)
{
    char lost_text[128], back[128];
    unsigned here, there;
    int lost;

    fabric_lids(2, 2, 2, quiet);
    join(2);
    wait_probes();
    rate_known();
    listen();
    ck_assert_uint_eq(way_of(0, 0), 3);
    lost = spine_of(0, 0);
    spine(lost, "blackhole");
    burst(16);
    ck_assert(rig_until(rig, is_said, 5 * RIG_S));
    ck_assert_uint_gt(dropped(lost), 0);
    here = said.by ? 0x182 : 0x82;
    there = said.by ? 0x82 : 0x182;
    snprintf(lost_text, sizeof(lost_text), "flow lid:%u>lid:%u does not arrive, or", here, there);
    snprintf(back, sizeof(back), "flow lid:%u>lid:%u back does not", there, here);
    ck_assert_str_eq(said.line[0], lost_text);
    ck_assert_str_eq(said.line[1], back);
    stop();
}
END_TEST

/* One LID is no choice: the NIC pair is what is silent, as without ways. */
START_TEST(one_lid_is_no_choice)
{
    fabric_lids(2, 0, 0, quiet);
    join(2);
    wait_probes();
    rate_known();
    ck_assert_uint_eq(way_of(0, 0), 0);
    ck_assert_uint_eq(path_ah(0, 0).dlid, 0x180);
    ck_assert_uint_eq(path_ah(0, 0).src_path_bits, 0);
    spine(spine_of(0, 0), "blackhole");
    burst(16);
    ck_assert_uint_gt(dropped(fab_inproc_way(rig->f, fab_ibv_qp(pair_of(0, 0)->qp.lane[0].qp))), 0);
    ck_assert_uint_eq(rig->side[0].comm->conn.up & 1, 0);
    stop();
}
END_TEST

/* Routers give packets their LIDs: what R chose before it knew S's port is no way, and nobody says
 * that it is. */
START_TEST(across_subnets)
{
    struct fab_desc desc;
    char err[128];

    ck_assert_int_eq(fab_desc_init(&desc, 2, 1, 0, RIG_US, err, sizeof(err)), 0);
    for (int h = 0; h < 2; h++) {
        desc.nic[h][0].ib = (struct fab_ib){
            .lid = 0x80, .lmc = 2, .subnet = (uint16_t)(1 + h), .flid = (uint16_t)(0xc001 + h)};
    }
    rig = rig_create_desc(&desc, quiet);
    join(2);
    wait_probes();
    messages(4, BIG);
    for (int s = 0; s < 2; s++) {
        ck_assert_uint_eq(path_ah(s, 0).dlid, s ? 0xc001 : 0xc002);
        ck_assert_uint_eq(path_ah(s, 0).src_path_bits, 0);
        ck_assert_uint_eq(way_of(s, 0), 0);
        ck_assert_uint_eq(rig->side[s].comm->conn.path[0].dlid, 0);
        ck_assert_uint_eq(pair_of(s, 0)->ways.n, 1);
        ck_assert(!pair_of(s, 0)->qp.lane[1].used);
    }
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, both_ends_take_the_same_lids, 0, sizeof(ports) / sizeof(ports[0]));
    tcase_add_loop_test(t, a_silent_spine, 0, 4 * SPINES);
    tcase_add_test(t, the_lids_are_named);
    tcase_add_test(t, one_lid_is_no_choice);
    tcase_add_test(t, across_subnets);
}

int main(void)
{
    return suite_run("ways_lids", 60, NULL, teardown, add);
}
