/* Ways by a file of ports that a fabric controller has written (docs/health.md, "A file of ports"):
 * queue pairs of data and of probes take its ports, and leave one that is silent for another. */
#include "tests/unit/suite.h"
#include "tests/unit/ways_rig.h"

#include <unistd.h>

#include "plugin/base/r2_log.h"

static char path[2][32];

/* Warnings since the rig was made, of both ends: of files, and of policies that differ. */
static struct {
    unsigned file, policy, policy_file; /* ... and names the file */
    char text[512];                     /* of a file, the latest */
} warned;

static void log_sink(enum r2_log_level level, const char *file, int line, const char *msg)
{
    unsigned policy = strstr(msg, "the policy at the other end differs") != NULL;

    (void)file;
    (void)line;
    if (level != R2_LOG_WARN) {
        return;
    }
    warned.policy += policy;
    warned.policy_file += policy && strstr(msg, "NCCL_R2_WAYS");
    if (strstr(msg, "NCCL_R2_WAYS: ")) {
        warned.file++;
        snprintf(warned.text, sizeof(warned.text), "%s", strstr(msg, "NCCL_R2_WAYS: "));
    }
}

/* The value of NCCL_R2_WAYS for each end, "0:..." and "1:...", of the texts of their files; NULL:
 * none. */
static const char *const *options_of(const char *const text[2])
{
    static char option[2][96];
    static const char *list[6];
    int n = 0;

    for (int s = 0; s < 2; s++) {
        int fd;

        if (text[s] == NULL) {
            continue;
        }
        snprintf(path[s], sizeof(path[s]), "/tmp/test_ways_file.XXXXXX");
        fd = mkstemp(path[s]);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(write(fd, text[s], strlen(text[s])), (ssize_t)strlen(text[s]));
        close(fd);
        snprintf(option[s], sizeof(option[s]), "%d:NCCL_R2_WAYS=%s", s, path[s]);
        list[n++] = option[s];
    }
    for (int i = 0; quiet[i]; i++) {
        list[n++] = quiet[i];
    }
    list[n] = NULL;
    return list;
}

/* It is read at init alone. */
static void fabric_by(int nics, const char *text0, const char *text1)
{
    memset(&warned, 0, sizeof(warned));
    fabric(nics, FAB_HASH_PORTS, options_of((const char *const[]){text0, text1}));
    r2_log_sink_set(log_sink);
    for (int s = 0; s < 2; s++) {
        unlink(path[s]);
    }
}

static unsigned sport_of(int side, int p)
{
    return fab_ibv_qp(rig->side[side].comm->conn.path[p].qp)->sport;
}

static unsigned probe_sport(int side, int lane)
{
    return fab_ibv_qp(pair_of(side, 0)->qp.lane[lane].qp)->sport;
}

#define FIRST 50000u

static const char *const ports[] = {"* * 50000", "* * 50000-50001", "* * 50000-50002",
                                    "* * 50000-50003", "* * 50000-50015"};
static const unsigned counts[] = {1, 2, 3, 4, 16};

/* Connections in turn take all of its ports, at both ends the same, and no other; so do the pair's
 * probes, two if there are two. */
START_TEST(both_ends_take_its_ports)
{
    unsigned n = counts[_i], seen = 0;

    for (unsigned i = 0; i < n + 2; i++) {
        fabric_by(1, ports[_i], ports[_i]);
        join(i);
        wait_probes();
        messages(2, BIG);
        for (int s = 0; s < 2; s++) {
            const struct ib_path *p = &rig->side[s].comm->conn.path[0];

            ck_assert_uint_ge(sport_of(s, 0), FIRST);
            ck_assert_uint_lt(sport_of(s, 0), FIRST + n);
            ck_assert_uint_eq(p->udp_port, sport_of(s, 0));
            ck_assert_uint_eq(p->way, p->udp_port - FIRST + 1);
            ck_assert_uint_eq(sport_of(!s, 0), sport_of(s, 0));
            ck_assert_uint_eq(pair_of(s, 0)->qp.lane[1].used, n > 1);
            for (int l = 0; l < (n > 1 ? 2 : 1); l++) {
                ck_assert_uint_ge(probe_sport(s, l), FIRST);
                ck_assert_uint_lt(probe_sport(s, l), FIRST + n);
                ck_assert_uint_eq(probe_sport(!s, l), probe_sport(s, l));
            }
            ck_assert(n == 1 || probe_sport(s, 0) != probe_sport(s, 1));
        }
        seen |= 1u << (sport_of(0, 0) - FIRST);
        ck_assert_uint_eq(rig->side[0].inst->self.digest, rig->side[1].inst->self.digest);
        ck_assert(!rig->side[0].inst->logged.policy && !rig->side[1].inst->logged.policy);
        stop();
        if (i + 1 < n + 2) {
            teardown();
        }
    }
    ck_assert_uint_eq(seen, (1u << n) - 1);
}
END_TEST

/* A pair that no line names, and one that another line names first. */
START_TEST(which_rule_counts)
{
    static const struct {
        const char *text;
        unsigned port; /* 0: as without a file */
    } rule[] = {{"192.0.2.0/24 * 50000", 0},
                {"192.0.2.0/24 * 50000\n* * 50001", 50001},
                {"* * 50002\n10.0.0.0/8 10.0.0.0/8 50003", 50002}};

    fabric_by(1, rule[_i].text, rule[_i].text);
    join(2);
    for (int s = 0; s < 2; s++) {
        const struct ib_path *p = &rig->side[s].comm->conn.path[0];

        ck_assert_uint_eq(p->way, rule[_i].port ? 1 : 3);
        ck_assert(rule[_i].port == 0 || sport_of(s, 0) == rule[_i].port);
        ck_assert(rule[_i].port || sport_of(s, 0) < 50000 || sport_of(s, 0) > 50015);
        ck_assert_uint_eq(sport_of(s, 0), sport_of(!s, 0));
    }
    messages(2, BIG);
    stop();
}
END_TEST

static char flow[2][128];

static void on_cause(struct r2_inst *inst, const struct r2_cause *cause)
{
    (void)inst;
    for (int i = 0; i < 2 && strcmp(cause->code, "R2-F04") == 0 && i < cause->n_evidence; i++) {
        snprintf(flow[i], sizeof(flow[i]), "%s", cause->evidence[i]);
    }
}

static int is_said(struct rig *r)
{
    (void)r;
    return flow[0][0] != '\0';
}

static int all_up(struct rig *r)
{
    return r->side[0].comm->conn.up == 3 && r->side[1].comm->conn.up == 3;
}

/* The next incarnation takes another port of the file, the NIC stays, and R2-F04 names the port
 * that is silent. */
START_TEST(a_silent_port_is_left)
{
    static const struct r2_subscriber test = {.on_cause = on_cause};
    unsigned bad;
    char want[16];
    uint64_t took;
    int k;

    memset(flow, 0, sizeof(flow));
    fabric_by(2, "* * 50000-50002,50005", "* * 50000-50002,50005"); /* four spines */
    join((unsigned)_i);
    wait_probes();
    rate_known();
    subscribe(&test);
    k = spine_of(0, 0);
    bad = sport_of(0, 0);
    spine(k, "blackhole");
    took = burst(16);
    ck_assert_msg(took < 150 * RIG_MS, "%.3f ms", (double)took / 1e6);
    ck_assert_uint_gt(fab_inproc_spine(rig->f, 0, k)->dropped, 0);
    ck_assert(rig_until(rig, all_up, RIG_S));
    for (int i = 0; i < 10; i++) {
        took = burst(2);
        ck_assert_msg(took < 150 * RIG_MS, "burst %d: %.3f ms", i, (double)took / 1e6);
        rig_run(rig, 50 * RIG_MS);
    }
    for (int s = 0; s < 2; s++) {
        ck_assert_int_ne(spine_of(s, 0), k);
        ck_assert_uint_ne(sport_of(s, 0), bad);
        ck_assert(sport_of(s, 0) >= FIRST && sport_of(s, 0) <= FIRST + 5);
        ck_assert_uint_eq(sport_of(s, 0), sport_of(!s, 0));
    }
    ck_assert(rig_until(rig, is_said, 5 * RIG_S));
    snprintf(want, sizeof(want), ":%u>", bad);
    ck_assert_msg(strstr(flow[0], want) && strstr(flow[1], want), "'%s', '%s', not %s", flow[0],
                  flow[1], want);
    no_pair_moved();
    stop();
}
END_TEST

static const struct {
    const char *text[2];
    int alone; /* S has one port: where that is silent, the NIC is */
} apart[] = {
    {{"* * 50000-50003", NULL}, 0},
    {{NULL, "* * 50000-50003"}, 0},
    {{"* * 50000-50002", "* * 51000-51007"}, 0},
    {{"* * 51000-51007", "* * 50000-50002"}, 0},
    {{"* * 50000", "* * 50000-50007"}, 1},
    {{"* * 50000-50007", "* * 50000"}, 0},
    {{"* * 50000-50007", "* * 50000-50006 50008"}, 0},
};
#define APART (int)(sizeof(apart) / sizeof(apart[0]))

/* Files that differ: data goes, is well when a way is silent, no NIC is given up, no queue pair is
 * made anew for ever, and it is said once. */
START_TEST(files_that_differ)
{
    uint32_t made[2];

    fabric_by(2, apart[_i].text[0], apart[_i].text[1]);
    join(1);
    wait_probes();
    rate_known();
    r2_log_flush();
    ck_assert_uint_ne(rig->side[0].inst->self.digest, rig->side[1].inst->self.digest);
    for (int s = 0; s < 2; s++) {
        ck_assert(rig->side[s].inst->logged.policy);
        made[s] = rig->side[s].inst->probing.inc;
    }
    ck_assert_uint_eq(warned.policy, 2);
    ck_assert_uint_eq(warned.policy_file,
                      (apart[_i].text[0] != NULL) + (apart[_i].text[1] != NULL));
    ck_assert_uint_eq(warned.file, 0);
    for (int i = 0; i < 20; i++) {
        messages(2, BIG);
        rig_run(rig, 500 * RIG_MS);
    }
    for (int s = 0; s < 2; s++) {
        ck_assert_uint_eq(rig->side[s].comm->conn.up, 3);
        ck_assert_uint_le(rig->side[s].inst->probing.inc - made[s], 2);
    }
    nothing_moved();
    spine(spine_of(0, 0), "blackhole");
    for (int i = 0; i < 40; i++) {
        burst(4);
        rig_run(rig, 500 * RIG_MS);
    }
    ck_assert(apart[_i].alone || rig_until(rig, all_up, 10 * RIG_S));
    r2_log_flush();
    ck_assert_uint_eq(warned.policy, 2);
    stop();
}
END_TEST

/* One that cannot be used is said, and the connections are as without it. */
START_TEST(a_file_that_is_wrong)
{
    static const char *const text[] = {"* * 4791\n", "", "nonsense"};
    char want[64];

    fabric_by(1, text[_i], NULL);
    r2_log_flush();
    snprintf(want, sizeof(want), "NCCL_R2_WAYS: %s:%s", path[0], _i == 1 ? " there is" : "1: ");
    ck_assert_msg(strstr(warned.text, want) != NULL, "'%s'", warned.text);
    ck_assert_uint_eq(warned.file, 1);
    ck_assert_uint_eq(rig->side[0].inst->self.digest, rig->side[1].inst->self.digest);
    join(4);
    ck_assert_uint_eq(warned.policy, 0);
    for (int s = 0; s < 2; s++) {
        ck_assert_uint_eq(rig->side[s].comm->conn.path[0].way, 5);
        ck_assert_uint_eq(sport_of(s, 0), sport_of(!s, 0));
    }
    messages(2, BIG);
    stop();
}
END_TEST

/* Off: as 1. */
START_TEST(off_is_the_drivers)
{
    fabric(1, FAB_HASH_PORTS, (const char *[]){"NCCL_R2_WAYS=off", NULL});
    join(3);
    wait_probes();
    ck_assert_uint_eq(rig->side[0].comm->conn.path[0].way, 0);
    ck_assert_uint_eq(rig->side[0].comm->conn.path[0].udp_port, 0);
    ck_assert_ptr_null(pair_of(0, 0)->qp.lane[1].qp);
    messages(4, BIG);
    stop();
}
END_TEST

static int (*query_port_real)(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);

static int query_port_ib(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)
{
    int rc = query_port_real(ctx, port, attr);

    attr->link_layer = IBV_LINK_LAYER_INFINIBAND;
    return rc;
}

/* It has no UDP port. */
START_TEST(infiniband_passes_over_it)
{
    fabric_by(1, "* * 50000-50003", "* * 50000-50003");
    for (int s = 0; s < 2; s++) {
        query_port_real = rig->side[s].inst->v.query_port;
        rig->side[s].inst->v.query_port = query_port_ib;
        rig_enter(&rig->side[s]);
        ib_nic_refresh(&rig->side[s].inst->nics, 0);
    }
    join(3);
    wait_probes();
    for (int s = 0; s < 2; s++) {
        ck_assert_uint_eq(rig->side[s].comm->conn.path[0].way, 0);
        ck_assert_uint_eq(rig->side[s].comm->conn.path[0].udp_port, 0);
        ck_assert_ptr_null(pair_of(s, 0)->qp.lane[1].qp);
        ck_assert(sport_of(s, 0) < FIRST || sport_of(s, 0) > FIRST + 3);
    }
    messages(4, BIG);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, both_ends_take_its_ports, 0, (int)(sizeof(counts) / sizeof(counts[0])));
    tcase_add_loop_test(t, which_rule_counts, 0, 3);
    tcase_add_loop_test(t, a_silent_port_is_left, 0, 8);
    tcase_add_loop_test(t, files_that_differ, 0, APART);
    tcase_add_loop_test(t, a_file_that_is_wrong, 0, 3);
    tcase_add_test(t, off_is_the_drivers);
    tcase_add_test(t, infiniband_passes_over_it);
}

int main(void)
{
    return suite_run("ways_file", 120, NULL, teardown, add);
}
