/* Every option has an effect where it is used. The table below names, row by row, the test that
 * shows it; options that no test of another suite is about have theirs here. How values are read
 * and refused: test_config.c. */
#include "tests/unit/watch_rig.h"

#include "plugin/nccl/r2_init.h"
#include "plugin/base/r2_log.h"

/* Row, and the test that fails when its value does not arrive. No suite: in this file. */
static const char *const shown[][2] = {
    {"NCCL_R2_FAILOVER", "test_protocol_end: failover_off_ends_with_the_first_failure"},
    {"NCCL_R2_BACKUP_SCOPE",
     "test_protocol_end: backup_scope_any_goes_across_rails, backup_scope_rail_does_not"},
    {"NCCL_R2_BACKUP_NICS", "backup_nics_choose_and_order"},
    {"NCCL_R2_LAST_RESORT", "e2e/last_resort.sh: all NICs of a host"},
    {"NCCL_R2_LAST_RESORT_RATE", "test_tcpdev: rate_is_kept, e2e/last_resort.sh: rate"},
    {"NCCL_R2_MIN_NICS", "test_protocol_end: min_nics_ends_below_it"},
    {"NCCL_R2_FAILBACK",
     "test_options_times: return_after_its_time_or_never, test_failback_manual: out_until_it_is_said_and_each_time_again, e2e/failback.sh: manual"},
    {"NCCL_R2_BALANCE", "test_protocol_end: balance_spreads_over_survivors_and_off_does_not"},
    {"NCCL_R2_SPREAD", "test_protocol_end: spread_uses_all_paths_from_the_start"},
    {"NCCL_R2_SLOW", "test_slow: switched_off"},
    {"NCCL_R2_SLOW_PERCENT", "test_slow: the_limit"},
    {"NCCL_R2_ACK",
     "test_protocol_end: ack_cqe_needs_no_receiver, test_ack_flush: counts_when_it_has_been_read"},
    {"NCCL_R2_T_ACK", "test_options_times: ack_waits_t_ack"},
    {"NCCL_R2_T_REPEAT", "test_options_times: unanswered_words_are_repeated_after_t_repeat"},
    {"NCCL_R2_T_FENCE", "test_options_times: a_fence_turns_soft_after_t_fence"},
    {"NCCL_R2_T_PCIE", "test_options_times: gpu_memory_is_held_for_t_pcie"},
    {"NCCL_R2_T_PACKET",
     "test_protocol_quarantine: hard_at_the_sender_ends_the_hold_after_t_packet"},
    {"NCCL_R2_T_DEAD", "test_protocol_quarantine: both_soft_the_time_counts_from_the_senders_stop"},
    {"NCCL_R2_GIVE_UP", "test_protocol_end: one_by_one_to_the_last_path"},
    {"NCCL_R2_LINGER", "test_options_times: a_closed_receiver_stays_for_linger"},
    {"NCCL_R2_EXIT", "test_options_times: last_words_wait_for_exit"},
    {"NCCL_R2_WATCHDOG", "test_watch_none: no_verdict_where_nothing_could_take_over"},
    {"NCCL_R2_T_SUSPECT", "test_options_times: silence_is_a_verdict_after_t_suspect_and_t_probe"},
    {"NCCL_R2_T_PROBE", "test_options_times: silence_is_a_verdict_after_t_suspect_and_t_probe"},
    {"NCCL_R2_T_STUCK", "test_watch: stuck_queue_pair_on_a_pair_that_answers"},
    {"NCCL_R2_T_RETURN", "test_options_times: return_after_its_time_or_never"},
    {"NCCL_R2_LOOK", "test_options_times: ports_are_read_every_look"},
    {"NCCL_R2_HANG_AFTER", "test_hang: sooner, off_at_one_end"},
    {"NCCL_R2_CONNECT", "test_options_times: set_up_ends_after_connect"},
    {"NCCL_R2_RELAY",
     "test_relay: carries_by_way_of_a_bounce_buffer, off_costs_nothing, e2e/relay.sh: off, host, gpu"},
    {"NCCL_R2_PROFILER_EVENTS", "test_prof: says_nothing_unasked, tells_what_is_on_its_way"},
    {"NCCL_R2_RELAY_MEMORY", "test_relay: carries_by_way_of_a_bounce_buffer, e2e/relay.sh: memory"},
    {"NCCL_R2_CUT_MIN", "messages_below_cut_min_are_not_cut"},
    {"NCCL_R2_RQ_DEPTH", "test_protocol_data: more_parts_than_receive_slots"},
    {"NCCL_R2_FLUSH", "test_flush: always_flushes_host_memory, host_memory_is_left_alone"},
    {"NCCL_R2_DRAIN", "test_drain: drained_from_the_start, e2e/drain.sh: start"},
    {"NCCL_R2_RUN_DIR", "e2e/drain.sh: registry"},
    {"NCCL_R2_TOPO", "e2e/balance.sh: unequal, no topology"},
    {"NCCL_R2_INBAND", "test_inband: off, settled_without_the_channel"},
    {"NCCL_R2_BOARD", "e2e/drain.sh: registry"},
    {"NCCL_R2_STATS", "e2e/stat.sh: off, test_report: switched_off"},
    {"NCCL_R2_EVENT_FILE", "e2e/stat.sh: off, test_report: switched_off"},
    {"NCCL_R2_ON_EVENT", "e2e/hang.sh: late rank, NIC fails"},
    {"NCCL_R2_OOB", "e2e/oob_mpi.sh: without the module"},
    {"NCCL_R2_OOB_IFNAME", "e2e/r2_config.sh: interfaces"},
    {"NCCL_R2_PLACE", "nccl/place.sh: off, advise, a host loses a NIC"},
    {"NCCL_R2_LOG", "log_level_reaches_the_log"},
    {"NCCL_R2_LOCK_CONFLICT", "test_config_lock: lock_conflict_may_end_the_job"},
    {"NCCL_R2_PROFILE", "test_config_lock: profile_is_weakest"},
    {"NCCL_SOCKET_IFNAME", "e2e/r2_config.sh: interfaces"},
    {"NCCL_HOSTID", "e2e/stat.sh: json"},
    {"NCCL_SOCKET_FAMILY", "test_oob_wire: interface_pick_table, e2e/r2_config.sh: interfaces"},
    {"NCCL_IB_DISABLE", "log_level_reaches_the_log, test_ib_device: disabled"},
    {"NCCL_IB_HCA", "test_ib_device: rails, ports_of_a_device"},
    {"NCCL_IB_GID_INDEX", "test_ib_gid: gid_given"},
    {"NCCL_IB_IS_GLOBAL", "test_ib_subnet: every_queue_pair_reaches_its_peer"},
    {"NCCL_IB_ROUTABLE_FLID_GID_INDEX", "test_ib_subnet: flid_is_where_the_option_says"},
    {"NCCL_IB_ADDR_FAMILY", "test_ib_gid: gid_family_and_range, e2e/r2_config.sh: fabric"},
    {"NCCL_IB_ADDR_RANGE", "test_ib_gid: gid_family_and_range, e2e/r2_config.sh: fabric"},
    {"NCCL_IB_ROCE_VERSION_NUM", "test_ib_gid: gid_family_and_range"},
    {"NCCL_IB_TIMEOUT", "queue_pairs_get_what_nccl_sets"},
    {"NCCL_IB_RETRY_CNT", "queue_pairs_get_what_nccl_sets"},
    {"NCCL_IB_QPS_PER_CONNECTION",
     "test_qps: whole_messages_go_over_the_primarys_queue_pairs_in_turn, e2e/failover.sh: queue pairs"},
    {"NCCL_IB_SPLIT_DATA_ON_QPS",
     "test_qps: split_messages_go_over_all_of_them, e2e/failover.sh: queue pairs"},
    {"NCCL_IB_PKEY", "queue_pairs_get_what_nccl_sets"},
    {"NCCL_R2_WAYS",
     "test_ways: one_way_is_the_drivers, test_ways_file: both_ends_take_its_ports, e2e/ways.sh: silent port"},
    {"NCCL_IB_SL", "queue_pairs_get_what_nccl_sets, test_class: infiniband_has_service_levels"},
    {"NCCL_IB_TC", "queue_pairs_get_what_nccl_sets, test_class: the_environment_goes_before"},
    {"NCCL_IB_ECE_ENABLE", "test_ece: switched_off"},
    {"NCCL_IB_ADAPTIVE_ROUTING",
     "test_race_ar: parts_above_the_threshold_are_two_writes, on_by_default_on_infiniband"},
    {"NCCL_IB_AR_THRESHOLD", "test_race_ar: parts_above_the_threshold_are_two_writes"},
    {"NCCL_IB_PCI_RELAXED_ORDERING", "test_ib_mr: relaxed_ordering"},
    {"NCCL_GDR_FLUSH_DISABLE", "test_flush: switched_off_as_in_nccl"},
};
#define SHOWN (int)(sizeof(shown) / sizeof(shown[0]))

/* A row that is added needs a test, and a line here. */
START_TEST(every_row_is_shown)
{
    int n;
    const struct r2_opt_row *rows = r2_config_rows(&n);

    for (int i = 0; i < n; i++) {
        int found = 0;

        for (int k = 0; k < SHOWN; k++) {
            found += strcmp(shown[k][0], rows[i].name) == 0;
        }
        ck_assert_msg(found == 1, "%s has %d lines in this file's table", rows[i].name, found);
    }
    ck_assert_int_eq(n, SHOWN);
}
END_TEST

/* --- values that cannot be taken end the job at listen --- */

static struct {
    const char *name, *value;
} bad;

static const char *bad_get(void *arg, const char *name)
{
    return strcmp(name, bad.name) == 0 ? bad.value : NULL;
}

/* The plugin's own loader over an environment of this one value. */
static void bad_load(const struct r2_opt_row *row, const char *value, struct r2_config *cfg)
{
    struct r2_config_sources src = {.get_env = bad_get, .lock_path = "/nonexistent/lock.conf"};

    bad.name = row->name;
    bad.value = value;
    r2_config_load(cfg, &src);
    r2_log_flush();
}

static void refused_at_listen(const struct r2_opt_row *row, const char *value, const char *allowed)
{
    struct rig_side *s = &rig->side[1];
    struct r2_config cfg;
    struct r2_listen *l;
    char want[96];

    bad_load(row, value, &cfg);
    snprintf(want, sizeof(want), "%s=%.64s (environment)", row->name, value);
    ck_assert_msg(strstr(cfg.error, want) && strstr(cfg.error, allowed), "%s=%.20s: '%s'",
                  row->name, value, cfg.error);
    s->inst->cfg = cfg;
    rig_enter(s);
    rig->last_warn[1][0] = '\0';
    ck_assert_int_eq(r2_net_listen(s->inst, 0, rig->handle, &l), R2_ERR_CONFIG);
    ck_assert_ptr_null(l);
    ck_assert_msg(strstr(rig->last_warn[1], want) != NULL, "listen says '%s'", rig->last_warn[1]);
}

static void taken_as_default(const struct r2_opt_row *row, int index)
{
    struct r2_config cfg, defaults;
    char text[2][R2_OPT_STRING_MAX];

    bad_load(row, "many", &cfg);
    r2_config_defaults(&defaults);
    r2_config_text(&cfg, index, text[0], sizeof(text[0]));
    r2_config_text(&defaults, index, text[1], sizeof(text[1]));
    ck_assert_str_eq(cfg.error, "");
    ck_assert_str_eq(text[0], text[1]);
}

START_TEST(bad_values_fail_at_listen)
{
    int n;
    const struct r2_opt_row *row = &r2_config_rows(&n)[_i];
    char below[32], above[32], range[64], big[R2_OPT_STRING_MAX + 1];

    if (strncmp(row->name, "NCCL_R2_", 8) != 0 && row->type != R2_OPT_STRING) {
        taken_as_default(row, _i); /* NCCL's own variables: NCCL's habit */
        return;
    }
    rig = rig_create(1, 0, NULL);
    switch (row->type) {
    case R2_OPT_INT:
        snprintf(below, sizeof(below), "%lld", (long long)row->min - 1);
        snprintf(above, sizeof(above), "%lld", (long long)row->max + 1);
        snprintf(range, sizeof(range), "from %lld to %lld", (long long)row->min,
                 (long long)row->max);
        refused_at_listen(row, below, range);
        refused_at_listen(row, above, range);
        refused_at_listen(row, "many", range);
        refused_at_listen(row, "5ms", range);
        refused_at_listen(row, "1.5", range);
        refused_at_listen(row, "0x", range);
        break;
    case R2_OPT_BOOL:
        refused_at_listen(row, "perhaps", "on or off");
        refused_at_listen(row, "2", "on or off");
        break;
    case R2_OPT_ENUM:
        refused_at_listen(row, "none-of-these", row->choices);
        refused_at_listen(row, "0", row->choices);
        break;
    case R2_OPT_STRING:
        memset(big, 'x', R2_OPT_STRING_MAX);
        big[R2_OPT_STRING_MAX] = '\0';
        refused_at_listen(row, big, "at most 255 bytes");
        break;
    }
    r2_config_defaults(&rig->side[1].inst->cfg);
}
END_TEST

/* --- which NICs --- */

static char said[4096];

static void line_keep(enum r2_log_level level, const char *file, int line, const char *msg)
{
    size_t used = strlen(said);

    snprintf(said + used, sizeof(said) - used, "%d %s\n", (int)level, msg);
}

START_TEST(backup_nics_choose_and_order)
{
    static const struct {
        const char *option;
        int npaths, nic[4];
    } cases[] = {
        {"NCCL_R2_BACKUP_NICS=", 4, {0, 1, 2, 3}},
        {"NCCL_R2_BACKUP_NICS==fab2,fab1", 3, {0, 2, 1}},
        {"NCCL_R2_BACKUP_NICS=^fab1", 3, {0, 2, 3}},
        {"NCCL_R2_BACKUP_NICS==fab3", 2, {0, 3}},
        {"1:NCCL_R2_BACKUP_NICS==fab3", 2, {0, 3}}, /* of either end */
        {"NCCL_R2_BACKUP_NICS==elsewhere", 1, {0}},
    };
    const struct ib_conn *l;

    rig = rig_create(4, 0, (const char *[]){cases[_i].option, NULL});
    said[0] = '\0';
    r2_log_sink_set(line_keep);
    connect_ends();
    r2_log_flush();
    r2_log_sink_set(NULL);
    ck_assert_int_eq(strstr(said, "NCCL_R2_BACKUP_NICS==elsewhere names no NIC that") != NULL,
                     strstr(cases[_i].option, "elsewhere") != NULL);
    l = &rig->side[0].comm->conn;
    ck_assert_int_eq(l->npaths, cases[_i].npaths);
    for (int p = 0; p < l->npaths; p++) {
        ck_assert_int_eq(l->path[p].nic, cases[_i].nic[p]);
    }
    stop();
}
END_TEST

/* Which of four NICs of 400, 400, 100 and 25 Gb/s, the second one not of Ethernet, a connection
 * over the first may use. */
static uint64_t rate_of_nic[] = {50000000000, 50000000000, 12500000000, 3125000000};
static int (*query_port_real)(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);

static int query_port_second_is_ib(struct ibv_context *ctx, uint8_t port,
                                   struct ibv_port_attr *attr)
{
    int rc = query_port_real(ctx, port, attr);

    if (rc == 0 && strcmp(ctx->device->name, "fab1") == 0) {
        attr->link_layer = IBV_LINK_LAYER_INFINIBAND;
    }
    return rc;
}

static void second_is_ib(struct ib_verbs *v)
{
    query_port_real = v->query_port;
    v->query_port = query_port_second_is_ib;
}

START_TEST(backups_are_of_the_primarys_class)
{
    static const struct {
        const char *option;
        int npaths, nic[4];
    } cases[] = {
        {NULL, 2, {0, 2}},
        {"NCCL_IB_HCA=^elsewhere", 2, {0, 2}}, /* names none of them */
        {"NCCL_IB_HCA=fab", 4, {0, 1, 2, 3}},
        {"NCCL_R2_BACKUP_NICS=fab3,fab1", 3, {0, 3, 1}},
        {"NCCL_R2_BACKUP_NICS=^fab2", 3, {0, 1, 3}},
    };
    struct fab_desc desc;
    const struct ib_conn *l;
    char why[200];

    ck_assert_int_eq(fab_desc_init(&desc, 2, 4, 0, RIG_US, why, sizeof(why)), 0);
    for (int n = 0; n < 8; n++) {
        desc.nic[n / 4][n % 4].rate = rate_of_nic[n % 4];
    }
    rig_relay.verbs = second_is_ib;
    rig =
        rig_create_desc(&desc, cases[_i].option ? (const char *[]){cases[_i].option, NULL} : NULL);
    rig_relay.verbs = NULL;
    ck_assert_int_eq(rig->side[0].inst->nics.nic[1].addr.link_layer, IBV_LINK_LAYER_INFINIBAND);
    ck_assert_int_eq(rig->side[0].inst->nics.nic[3].speed_mbps, 25000);
    rig_connect(rig, 0, 0);
    l = &rig->side[0].comm->conn;
    ck_assert_int_eq(l->npaths, cases[_i].npaths);
    for (int p = 0; p < l->npaths; p++) {
        ck_assert_int_eq(l->path[p].nic, cases[_i].nic[p]);
    }
}
END_TEST

/* The faster one is a backup of the slower one; nothing is left out that has no rate to compare. */
START_TEST(a_faster_nic_is_a_backup)
{
    struct fab_desc desc;
    char why[200];

    ck_assert_int_eq(fab_desc_init(&desc, 2, 2, 0, RIG_US, why, sizeof(why)), 0);
    for (int h = 0; h < 2; h++) {
        desc.nic[h][0].rate = rate_of_nic[3];
        desc.nic[h][1].rate = rate_of_nic[0];
    }
    rig = rig_create_desc(&desc, NULL);
    rig_connect(rig, 0, 0);
    ck_assert_int_eq(rig->side[0].comm->conn.npaths, 2);
}
END_TEST

/* --- data path --- */

static int paths_with_bytes(const struct ib_conn *l, const uint64_t *before)
{
    int n = 0;

    for (int p = 0; p < l->npaths; p++) {
        n += l->path[p].count.bytes > before[p];
    }
    return n;
}

START_TEST(messages_below_cut_min_are_not_cut)
{
    static const char *const options[] = {"NCCL_R2_CUT_MIN=1024", "NCCL_R2_CUT_MIN=16384"};
    static const size_t bytes[] = {1024, 16384};
    const struct ib_conn *l;
    uint64_t before[IB_MAX_PATHS];

    start(3, (const char *[]){"NCCL_R2_SPREAD=on", options[_i], NULL});
    l = &rig->side[0].comm->conn;
    for (int below = 0; below < 2; below++) {
        for (int p = 0; p < l->npaths; p++) {
            before[p] = l->path[p].count.bytes;
        }
        messages(1, bytes[_i] - (size_t)below);
        ck_assert_int_eq(paths_with_bytes(l, before), below ? 1 : 3);
    }
    stop();
}
END_TEST

static int (*true_modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
static int seen_init, seen_rtr, seen_rts;

/* Queue pairs of probes have a retry count and time-out of their own; where they go, and as what,
 * is the data's. */
static int modify_qp_seen(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    struct ibv_qp_attr mine = *attr;

    if (mask & IBV_QP_PKEY_INDEX) {
        ck_assert_uint_eq(attr->pkey_index, 3);
        mine.pkey_index = 0; /* the fabric's tables have one entry */
        seen_init++;
    }
    if (mask & IBV_QP_AV) {
        ck_assert_uint_eq(attr->ah_attr.sl, 5);
        ck_assert_uint_eq(attr->ah_attr.grh.traffic_class, 106);
        seen_rtr++;
    }
    if ((mask & IBV_QP_TIMEOUT) && attr->timeout == 17 && attr->retry_cnt == 4) {
        seen_rts++;
    }
    return true_modify_qp(qp, &mine, mask);
}

START_TEST(queue_pairs_get_what_nccl_sets)
{
    rig = rig_create(2, 0,
                     (const char *[]){"NCCL_IB_TIMEOUT=17", "NCCL_IB_RETRY_CNT=4", "NCCL_IB_PKEY=3",
                                      "NCCL_IB_SL=5", "NCCL_IB_TC=106", NULL});
    seen_init = seen_rtr = seen_rts = 0;
    for (int i = 0; i < 2; i++) {
        true_modify_qp = rig->side[i].inst->v.modify_qp;
        rig->side[i].inst->v.modify_qp = modify_qp_seen;
    }
    rig_connect(rig, 0, 0);
    wait_probes();
    ck_assert_int_eq(seen_rts, 4); /* two paths, two ends */
    ck_assert_int_ge(seen_init, 8);
    ck_assert_int_ge(seen_rtr, 8); /* and the pairs that ask */
    for (int i = 0; i < 2; i++) {
        rig->side[i].inst->v.modify_qp = true_modify_qp;
    }
}
END_TEST

/* --- the process --- */

/* Through r2_init, which is where the environment is read. It ends at NCCL_IB_DISABLE, before any
 * device. */
START_TEST(log_level_reaches_the_log)
{
    static const char *const levels[] = {"warn", "info", "trace"};

    said[0] = '\0';
    setenv("NCCL_R2_LOG", levels[_i], 1);
    setenv("NCCL_IB_DISABLE", "1", 1);
    ck_assert_int_eq(r2_init(line_keep), R2_ERR_SYSTEM);
    R2_WARN("a warning");
    R2_TRACE("a trace");
    r2_log_flush();
    unsetenv("NCCL_R2_LOG");
    unsetenv("NCCL_IB_DISABLE");
    r2_log_level_set(R2_LOG_INFO);
    r2_log_sink_set(NULL);
    ck_assert_ptr_nonnull(strstr(said, "a warning"));
    ck_assert_int_eq(strstr(said, "NCCL_IB_DISABLE is set") != NULL, _i >= 1);
    ck_assert_int_eq(strstr(said, "a trace") != NULL, _i >= 2);
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
    Suite *s = suite_create("options");
    TCase *t = tcase_create("options");
    SRunner *r;
    int failed, rows;

    r2_config_rows(&rows);
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, NULL, rig_end);
    tcase_add_test(t, every_row_is_shown);
    tcase_add_loop_test(t, bad_values_fail_at_listen, 0, rows);
    tcase_add_loop_test(t, backup_nics_choose_and_order, 0, 6);
    tcase_add_loop_test(t, backups_are_of_the_primarys_class, 0, 5);
    tcase_add_test(t, a_faster_nic_is_a_backup);
    tcase_add_loop_test(t, messages_below_cut_min_are_not_cut, 0, 2);
    tcase_add_test(t, queue_pairs_get_what_nccl_sets);
    tcase_add_loop_test(t, log_level_reaches_the_log, 0, 3);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
