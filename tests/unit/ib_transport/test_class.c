/* What newer versions of NCCL's table hand down or ask for: the traffic class of a communicator,
 * and properties of a device beyond those of version 8. */
#include "tests/unit/watch_rig.h"
#include "plugin/ib_transport/ib_rc.h"

#include "plugin/base/r2_log.h"

static int (*true_modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
static int with_class, without; /* queue pairs on their way to RTR */
static uint8_t wanted;

static int modify_qp_seen(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    if (mask & IBV_QP_AV) {
        ck_assert_uint_eq(attr->ah_attr.sl, 0);
        ck_assert(attr->ah_attr.grh.traffic_class == wanted ||
                  attr->ah_attr.grh.traffic_class == 0);
        *(attr->ah_attr.grh.traffic_class == wanted ? &with_class : &without) += 1;
    }
    return true_modify_qp(qp, attr, mask);
}

static void begin(int nics, int class, uint8_t expect, const char *const *options)
{
    rig = rig_create(nics, 0, options);
    rig->traffic_class = class;
    wanted = expect;
    with_class = without = 0;
    for (int i = 0; i < 2; i++) {
        true_modify_qp = rig->side[i].inst->v.modify_qp;
        rig->side[i].inst->v.modify_qp = modify_qp_seen;
    }
}

static int path_0_up(struct rig *r)
{
    return ib_conn_up(&r->side[0].comm->conn, 0);
}

/* Without a watchdog there are no queue pairs that probe NICs: those serve all communicators. */
START_TEST(both_ends)
{
    static const uint8_t class[] = {106, 5};

    begin(
        2, class[_i], class [_i], (const char *[]) { "NCCL_R2_WATCHDOG=off", NULL });
    rig_connect(rig, 0, 0);
    rig_run(rig, RIG_S);
    ck_assert_int_ge(with_class, 4); /* two paths, two ends; and what flushes */
    ck_assert_int_eq(without, 0);
}
END_TEST

START_TEST(the_next_incarnation)
{
    int before;

    begin(2, 106, 106, (const char *[]){QUIET_RC, "NCCL_R2_T_RETURN=100", NULL});
    rig_connect(rig, 0, 0);
    wait_probes();
    fire("h0:n0 down");
    ck_assert(rig_until(rig, path_0_is_down, 10 * RIG_S));
    before = with_class;
    fire("h0:n0 up");
    ck_assert(rig_until(rig, path_0_up, 30 * RIG_S));
    ck_assert_int_ge(with_class, before + 2);
}
END_TEST

START_TEST(none_asked_for)
{
    static const int class[] = {R2_NET_NO_CLASS, 0};

    begin(2, class[_i], 0, NULL);
    rig_connect(rig, 0, 0);
    ck_assert_int_ge(with_class, 4);
    ck_assert_int_eq(without, 0);
}
END_TEST

/* A class that goes unused is not looked at either. */
START_TEST(the_environment_goes_before)
{
    static const int class[] = {106, 4711};

    begin(
        2, class [_i], 24, (const char *[]) { "NCCL_IB_TC=24", NULL });
    rig_connect(rig, 0, 0);
    ck_assert_int_ge(with_class, 4);
    ck_assert_int_eq(without, 0);
}
END_TEST

START_TEST(a_class_that_cannot_be)
{
    static const int class[] = {256, -2, INT32_MIN, 1 << 20};
    struct r2_comm *none = (struct r2_comm *)1;

    begin(2, class[_i], 0, NULL);
    rig_enter(&rig->side[1]);
    ck_assert_int_eq(r2_net_listen(rig->side[1].inst, 0, rig->handle, &rig->listen), R2_OK);
    rig_enter(&rig->side[0]);
    ck_assert_int_eq(r2_net_connect_class(rig->side[0].inst, 0, class[_i], rig -> handle, &none),
                     R2_ERR_CONFIG);
    ck_assert_ptr_null(none);
    r2_log_flush();
    ck_assert_msg(strstr(rig->last_warn[0], "trafficClass") &&
                      strstr(rig->last_warn[0], "expected 0 to 255"),
                  "%s", rig->last_warn[0]);
    ck_assert_int_eq(with_class + without, 0);
}
END_TEST

START_TEST(infiniband_has_service_levels)
{
    static const struct {
        int64_t sl, tc;
        uint8_t class, is_sl;
    } row[] = {{-1, -1, 5, 5},
               {-1, -1, 0, 0},
               {3, -1, 5, 3},
               {0, -1, 5, 0},
               {-1, 24, 5, 5},
               /* of a peer, whose numbers are not checked before */
               {-1, -1, 106, 0}};
    struct ib_addr at = {.link_layer = IBV_LINK_LAYER_INFINIBAND, .lid = 3}, to = {.lid = 7};
    struct r2_config cfg;
    struct ibv_ah_attr ah;

    r2_config_defaults(&cfg);
    for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        cfg.ib_sl = row[i].sl;
        cfg.ib_tc = row[i].tc;
        memset(&ah, 0, sizeof(ah));
        ib_rc_ah_fill(&cfg, row[i].class, &at, &to, &ah);
        ck_assert_msg(ah.sl == row[i].is_sl && ah.dlid == 7 && !ah.is_global, "row %u: sl %u", i,
                      ah.sl);
        to.lid = 0; /* through a router: with a GRH */
        ib_rc_ah_fill(&cfg, row[i].class, &at, &to, &ah);
        ck_assert_msg(ah.sl == row[i].is_sl && ah.is_global, "row %u: sl %u", i, ah.sl);
        ck_assert_uint_eq(ah.grh.traffic_class, row[i].tc < 0 ? 0 : row[i].tc);
        to.lid = 7;
    }
}
END_TEST

/* The record is what it was where no class is asked for. */
START_TEST(the_record)
{
    union fo_body b = {.req = {.src = 1,
                               .listen = 2,
                               .nnics = 1,
                               .qps = 1,
                               .nic = {{.name = "a", .usable = 1}}}},
                  got;
    uint8_t plain[FO_MAX_RECORD], with[FO_MAX_RECORD];
    size_t n = fo_pack(FO_MSG_REQ, &b, plain, sizeof(plain));
    struct r2_reader r = {.p = plain, .end = plain + n};
    const char *why;

    ck_assert_uint_eq(n, 4 + 55 + 31);
    ck_assert_int_eq(fo_unpack(&r, &got, &why), FO_MSG_REQ);
    ck_assert_uint_eq(got.req.traffic_class, 0);
    b.req.traffic_class = 200;
    ck_assert_uint_eq(fo_pack(FO_MSG_REQ, &b, with, sizeof(with)), n + 1);
    r = (struct r2_reader){.p = with, .end = with + n + 1};
    ck_assert_int_eq(fo_unpack(&r, &got, &why), FO_MSG_REQ);
    ck_assert_uint_eq(got.req.traffic_class, 200);
    ck_assert_int_eq(memcmp(plain + 4, with + 4, n - 4), 0);
    with[2]++; /* the length: one byte more than there can be */
    r = (struct r2_reader){.p = with, .end = with + n + 2};
    ck_assert_int_eq(fo_unpack(&r, &got, &why), -1);
}
END_TEST

START_TEST(properties)
{
    static const char *const options[][2] = {
        {"NCCL_IB_HCA==fab0:1:7:2,fab1:1:8", "NCCL_R2_FLUSH=always"},
        {NULL, NULL},
        {"NCCL_IB_HCA=fab0::40000", NULL}};
    static const int want[][2][2] = {{{7, 2}, {8, -1}}, {{-1, -1}, {-1, -1}}, {{-1, -1}}};
    struct r2_net_props p;

    rig = rig_create(2, 0, (const char *[]){options[_i][0], options[_i][1], NULL});
    for (int dev = 0; dev < r2_net_devices(rig->side[0].inst); dev++) {
        ck_assert_int_eq(r2_net_props(rig->side[0].inst, dev, &p), R2_OK);
        ck_assert_int_eq(p.rail, want[_i][dev][0]);
        ck_assert_int_eq(p.plane, want[_i][dev][1]);
        ck_assert_int_eq(p.force_flush, _i == 0);
    }
}
END_TEST

static void rig_end(void)
{
    if (rig) {
        teardown();
    }
}

int main(void)
{
    Suite *s = suite_create("class");
    TCase *t = tcase_create("class");
    SRunner *r;
    int failed;

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, NULL, rig_end);
    tcase_add_loop_test(t, both_ends, 0, 2);
    tcase_add_test(t, the_next_incarnation);
    tcase_add_loop_test(t, none_asked_for, 0, 2);
    tcase_add_loop_test(t, the_environment_goes_before, 0, 2);
    tcase_add_loop_test(t, a_class_that_cannot_be, 0, 4);
    tcase_add_test(t, infiniband_has_service_levels);
    tcase_add_test(t, the_record);
    tcase_add_loop_test(t, properties, 0, 3);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
