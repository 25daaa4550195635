/* A silent way that another process has found: paths leave it before they stand still
 * (docs/health.md, "Ways"). */
#include "tests/unit/suite.h"
#include "tests/unit/ways_rig.h"

#include <sys/stat.h>

#include "plugin/admin/r2_host_share.h"
#include "plugin/probe/health/r2_way_notified.h"

static struct {
    unsigned found, told;
    unsigned way;
    enum r2_report_from from;
} said[2];

static int end_of(const struct r2_inst *inst)
{
    return inst == rig->side[1].inst;
}

static void on_way(struct r2_pair *pair, unsigned way, unsigned good, uint64_t ns)
{
    said[end_of(pair->inst)].found++;
}

static void on_way_notified(struct r2_pair *pair, unsigned way, uint64_t ns,
                            enum r2_report_from from, const char *who)
{
    int s = end_of(pair->inst);

    said[s].told++;
    said[s].way = way;
    said[s].from = from;
}

static void listen(void)
{
    static const struct r2_subscriber test = {.on_way = on_way, .on_way_notified = on_way_notified};

    memset(said, 0, sizeof(said));
    subscribe(&test);
}

static const struct ib_path *path(int s)
{
    return &rig->side[s].comm->conn.path[0];
}

/* Process @s hears from its host that way @way between the first NICs is silent, for @ns. */
static void hear(int s, unsigned way, uint64_t ns)
{
    struct r2_inst *inst = rig->side[s].inst;
    struct ib_addr here, there;

    ib_nic_addr_get(&inst->nics, 0, &here);
    ib_nic_addr_get(&rig->side[!s].inst->nics, 0, &there);
    rig_enter(&rig->side[s]);
    r2_way_notified_heard(inst, 0, there.gid,
                          ib_way_label(inst->nics.ways, way, here.gid, there.gid), ns,
                          "a neighbour");
    rig_kick(&rig->side[s]);
}

static void begin(int nics, enum fab_hash hash)
{
    fabric(nics, hash, quiet);
    join(2);
    wait_probes();
    rate_known();
    rig_run(rig, RIG_S);
    listen();
}

static int is_back(struct rig *r)
{
    return path(0)->inc == 2 && path(1)->inc == 2 && r->side[0].comm->conn.up & 1 &&
           r->side[1].comm->conn.up & 1;
}

/* Either end hears of it; the path was idle, and what comes next does not wait. */
START_TEST(an_idle_path_leaves)
{
    int s = _i % 2, k;
    uint64_t took;

    begin(1 + _i / 2, FAB_HASH_PORTS);
    k = spine_of(0, 0);
    spine(k, "blackhole");
    hear(s, path(s)->way, 100 * RIG_MS);
    ck_assert_uint_eq(said[s].told, 1);
    ck_assert_uint_eq(said[s].way, 3);
    ck_assert_int_eq(said[s].from, R2_REPORT_HOST);
    ck_assert_msg(rig_until(rig, is_back, 300 * RIG_MS), "not back");
    ck_assert_int_eq(fault_at(s, 0), IB_FAULT_NONE); /* of the new one */
    ck_assert_uint_ne(path(0)->way, 3);
    ck_assert_int_ne(spine_of(0, 0), k);
    took = burst(8);
    ck_assert_msg(took < 20 * RIG_MS, "%.3f ms", (double)took / 1e6);
    hear(s, 3, 100 * RIG_MS); /* known */
    ck_assert_uint_eq(said[s].told, 1);
    stop();
}
END_TEST

/* The way has answered here since, or the path over it moves, as where a switch hashes queue pair
 * numbers: nothing moves. */
START_TEST(what_is_seen_here_counts_more)
{
    int s = _i % 2;

    begin(2, FAB_HASH_PORTS);
    if (_i < 2) {
        const struct probe_lane *l = pair_of(s, 0)->qp.lane;

        rig_enter(&rig->side[s]);
        r2_pair_send_probe(pair_of(s, 0), rig->side[s].inst->watch.clock, 0);
        rig_run(rig, 20 * RIG_MS);
        hear(s, l[0].way, 100 * RIG_MS);
        hear(s, l[1].way, 100 * RIG_MS);
        ck_assert_uint_eq(said[s].told, 0);
        ck_assert(!probe_ways_avoids(&pair_of(s, 0)->ways.known, l[0].way,
                                     rig->side[s].inst->watch.clock));
    } else {
        for (int i = 0; i < 40; i++) {
            recv_post(0, BIG);
            send_post(0, BIG);
            if (i == 39) {
                hear(s, path(s)->way, 100 * RIG_MS);
            }
            finish(1, BIG, RIG_S);
            rig_run(rig, 4 * RIG_MS);
        }
        ck_assert_uint_eq(said[s].told, 1);
    }
    rig_run(rig, 300 * RIG_MS);
    nothing_moved();
    stop();
}
END_TEST

static int one_found(struct rig *r)
{
    return said[0].found || said[1].found;
}

/* Who finds it tells the process at the other end. */
START_TEST(the_peer_is_told)
{
    int by;

    begin(2, FAB_HASH_PORTS);
    spine(spine_of(0, 0), "blackhole");
    burst(16);
    ck_assert(rig_until(rig, one_found, 5 * RIG_S));
    by = said[1].found != 0;
    rig_run(rig, 50 * RIG_MS);
    ck_assert_uint_eq(rig_count(rig, by, FO_MSG_WAY), 1);
    ck_assert_uint_eq(rig_count(rig, !by, FO_MSG_WAY), 0); /* it does not go round */
    ck_assert_uint_eq(said[!by].told, 1);
    ck_assert_uint_eq(said[!by].way, 3);
    ck_assert_int_eq(said[!by].from, R2_REPORT_PEER);
    ck_assert(probe_ways_is_silent(&pair_of(!by, 0)->ways.known, 3));
    no_pair_moved();
    stop();
}
END_TEST

/* It is heard before there is any connection: its path leaves the way as soon as it is known to be
 * on it. */
START_TEST(a_connection_that_comes_later)
{
    uint64_t took;

    fabric(1, FAB_HASH_PORTS, quiet);
    hear(1, 3, 100 * RIG_MS);
    for (int k = 0; k < SPINES; k++) {
        hear(1, 9, 100 * RIG_MS); /* one that is none here */
    }
    join(2);
    ck_assert_msg(rig_until(rig, is_back, RIG_S), "not back");
    ck_assert_uint_ne(path(0)->way, 3);
    took = burst(8);
    ck_assert_msg(took < 20 * RIG_MS, "%.3f ms", (double)took / 1e6);
    stop();
}
END_TEST

/* What cannot be is passed over. */
START_TEST(words_that_make_no_sense)
{
    static const struct fo_way lie[] = {
        {.nic = 0, .peer_nic = 7, .way = 3},
        {.nic = 7, .peer_nic = 0, .way = 3},
        {.nic = 0, .peer_nic = 0, .way = SPINES + 1},
        {.nic = 0, .peer_nic = 0, .way = IB_WAYS_MAX, .age_ms = UINT32_MAX},
    };
    union fo_body b = {.way = {.way = 0}};
    uint8_t out_of_range[FO_MAX_RECORD];

    begin(1, FAB_HASH_PORTS);
    for (size_t i = 0; i < sizeof(lie) / sizeof(lie[0]); i++) {
        rig_inject(rig, 0, FO_MSG_WAY, &(union fo_body){.way = lie[i]});
    }
    rig_run(rig, 100 * RIG_MS);
    ck_assert_uint_eq(said[0].told, 0);
    ck_assert_uint_eq(rig->side[0].inst->refused.bad_messages, 0);
    for (int i = 0; i < 4; i++) {
        size_t n;
        struct r2_reader r;
        const char *why = NULL;

        b.way = (struct fo_way){.nic = i == 0 ? IB_MAX_NICS : 0,
                                .peer_nic = i == 1 ? IB_MAX_NICS : 0,
                                .way = (uint8_t)(i == 2   ? 0
                                                 : i == 3 ? IB_WAYS_MAX + 1
                                                          : 3)};
        n = fo_pack(FO_MSG_WAY, &b, out_of_range, sizeof(out_of_range));
        r = (struct r2_reader){.p = out_of_range, .end = out_of_range + n};
        ck_assert_int_eq(fo_unpack(&r, &b, &why), -1);
    }
    nothing_moved();
    stop();
}
END_TEST

/* All ways are said to be silent: one that is no worse than the others is kept. */
START_TEST(all_ways_are_said_to_be_silent)
{
    struct r2_comm *c;
    unsigned own;

    begin(1, FAB_HASH_PORTS);
    c = rig->side[0].comm;
    own = c->conn.path[0].way;
    rig_run(rig, 200 * RIG_MS);
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < SPINES; i++) { /* its own one last */
            hear((int)round & 1, (own + i) % SPINES + 1, 100 * RIG_MS);
            rig_run(rig, 30 * RIG_MS);
        }
    }
    ck_assert_uint_eq(c->fo.switches, 0);
    messages(20, BIG);
    stop();
}
END_TEST

/* A neighbour on each host, whose processes have a directory of their own. */
static void neighbours(const char *dir, struct r2_host_registry *b[2])
{
    struct r2_host_registry_who me = {.command = "neighbour", .host = "h", .pid = 1, .since = 1};
    char at[64], why[600];

    for (int s = 0; s < 2; s++) {
        rig_enter(&rig->side[s]);
        snprintf(at, sizeof(at), "%s/%d", dir, s);
        ck_assert_int_eq(mkdir(at, 0700), 0);
        r2_host_share_open(rig->side[s].inst, at);
        ck_assert_ptr_nonnull(rig->side[s].inst->share.registry);
        b[s] = r2_host_registry_open(at, &me, why, sizeof(why));
        ck_assert_msg(b[s] != NULL, "%s", why);
    }
}

/* The neighbour on host  has heard once that way 3 is silent. */
static void has_heard(int s, struct r2_host_registry *b, const struct ib_addr addr[2])
{
    struct r2_host_registry_event e;
    unsigned n = 0;

    while (r2_host_registry_next(b, &e, NULL)) {
        if (e.kind == R2_HOST_REGISTRY_WAY) {
            n++;
            ck_assert_uint_eq(e.data[0], ib_way_label(NULL, 3, addr[s].gid, addr[!s].gid));
            ck_assert_uint_eq(e.guid, rig->side[s].inst->nics.nic[0].guid);
            ck_assert_int_eq(memcmp(e.gid, addr[!s].gid, sizeof(e.gid)), 0);
        }
    }
    ck_assert_uint_eq(n, 1);
}

/* The processes of both hosts hear of it: the neighbour of the end that was told, as well as the
 * neighbour of the end that has found it. */
START_TEST(both_hosts_hear_of_it)
{
    char dir[] = "/tmp/r2-told-XXXXXX", cmd[64];
    struct r2_host_registry_event e;
    struct r2_host_registry *b[2];
    struct ib_addr addr[2];

    ck_assert_ptr_nonnull(mkdtemp(dir));
    begin(2, FAB_HASH_PORTS);
    neighbours(dir, b);
    spine(spine_of(0, 0), "blackhole");
    burst(16);
    ck_assert(rig_until(rig, one_found, 5 * RIG_S));
    rig_run(rig, 50 * RIG_MS);
    for (int s = 0; s < 2; s++) {
        ib_nic_addr_get(&rig->side[s].inst->nics, 0, &addr[s]);
    }
    for (int s = 0; s < 2; s++) {
        has_heard(s, b[s], addr);
    }
    ck_assert_uint_eq(said[0].told + said[1].told, 1);
    e = (struct r2_host_registry_event){.kind = R2_HOST_REGISTRY_WAY,
                                        .guid = rig->side[1].inst->nics.nic[0].guid,
                                        .port = rig->side[1].inst->nics.nic[0].port,
                                        .when = rig_now(rig),
                                        .data = {ib_way_label(NULL, 8, addr[0].gid, addr[1].gid)}};
    memcpy(e.gid, addr[0].gid, sizeof(e.gid)); /* the neighbour has found another one */
    r2_host_registry_post(b[1], &e);
    rig_enter(&rig->side[1]);
    r2_host_share_rung(rig->side[1].inst);
    rig_kick(&rig->side[1]);
    rig_run(rig, RIG_MS);
    ck_assert_uint_eq(said[1].way, 8);
    ck_assert_int_eq(said[1].from, R2_REPORT_HOST);
    ck_assert_int_eq(r2_host_registry_next(b[1], &e, NULL), 0); /* which is not said again */
    r2_host_registry_close(b[0]);
    r2_host_registry_close(b[1]);
    stop();
    snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
    ck_assert_int_eq(system(cmd), 0);
}
END_TEST

/* A process that comes when it has been found out: the host registry says so. */
START_TEST(a_process_that_comes_later)
{
    struct r2_host_registry_who me = {.command = "one before", .host = "h1", .pid = 1, .since = 1};
    char dir[] = "/tmp/r2-told-XXXXXX", cmd[64], why[600];
    struct r2_host_registry_event e = {.kind = R2_HOST_REGISTRY_WAY};
    struct r2_host_registry *b;
    struct ib_addr addr[2];

    ck_assert_ptr_nonnull(mkdtemp(dir));
    fabric(1, FAB_HASH_PORTS, quiet);
    b = r2_host_registry_open(dir, &me, why, sizeof(why));
    ck_assert_msg(b != NULL, "%s", why);
    for (int s = 0; s < 2; s++) {
        ib_nic_addr_get(&rig->side[s].inst->nics, 0, &addr[s]);
    }
    rig_run(rig, 20 * RIG_S);
    e.guid = rig->side[1].inst->nics.nic[0].guid;
    e.port = rig->side[1].inst->nics.nic[0].port;
    e.when = rig_now(rig) - (_i ? 11 : 5) * RIG_S; /* what is long past does not count */
    e.data[0] = ib_way_label(NULL, 3, addr[0].gid, addr[1].gid);
    memcpy(e.gid, addr[0].gid, sizeof(e.gid));
    r2_host_registry_post(b, &e);
    rig_enter(&rig->side[1]);
    r2_host_share_open(rig->side[1].inst, dir);
    join(2);
    if (_i) {
        wait_probes();
        rig_run(rig, RIG_S);
        nothing_moved();
        ck_assert_uint_eq(path(0)->way, 3);
    } else {
        ck_assert_msg(rig_until(rig, is_back, RIG_S), "not back");
        ck_assert_uint_ne(path(0)->way, 3);
    }
    r2_host_registry_close(b);
    stop();
    snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
    ck_assert_int_eq(system(cmd), 0);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, an_idle_path_leaves, 0, 4);
    tcase_add_loop_test(t, what_is_seen_here_counts_more, 0, 4);
    tcase_add_test(t, the_peer_is_told);
    tcase_add_test(t, a_connection_that_comes_later);
    tcase_add_test(t, words_that_make_no_sense);
    tcase_add_test(t, all_ways_are_said_to_be_silent);
    tcase_add_test(t, both_hosts_hear_of_it);
    tcase_add_loop_test(t, a_process_that_comes_later, 0, 2);
}

int main(void)
{
    return suite_run("ways_notified", 60, NULL, teardown, add);
}
