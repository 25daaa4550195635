/* What the operator reads of a verdict: mostly of cases with facts that are made up, under two
 * connections of the rig. */
#include "plugin/base/r2_log.h"
#include "plugin/probe/diagnosis/r2_verdict.h"
#include "probe/probe_verdict.h"
#include "probe/diagnosis/r2_locate.h"
#include "probe/diagnosis/r2_locate_probe.h"
#include "probe/diagnosis/r2_gossip.h"
#include "probe/diagnosis/r2_verdict_evidence.h"
#include "tests/unit/suite.h"
#include "tests/unit/watch_rig.h"

#define FAST QUIET_RC, "NCCL_R2_LOOK=60000"

static struct r2_comm *first[2];

static void begin(const char *scope)
{
    start(2, (const char *[]){FAST, scope, NULL});
    for (int s = 0; s < 2; s++) {
        first[s] = rig->side[s].comm;
        rig_dereg(rig, s, s ? r_mr : s_mr);
        rig->side[s].comm = NULL;
    }
    rig_enter(&rig->side[1]);
    r2_net_close_listen(rig->listen);
    rig_connect(rig, 0, 0);
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
    wait_probes();
}

static void end(void)
{
    for (int s = 0; s < 2; s++) {
        rig_enter(&rig->side[s]);
        r2_net_close(first[s]);
    }
    stop();
}

/* The line of side 0 about its NIC 0 and the peer's NIC @peer_nic, in a case of @since. */
static const char *line_since(int peer_nic, struct probe_facts facts, uint64_t since)
{
    struct r2_inst *inst = rig->side[0].inst;
    struct r2_case k = {.peer = rig->side[0].comm->peer,
                        .peer_nic = (uint8_t)peer_nic,
                        .since = since,
                        .facts = facts};
    struct r2_pair *pair = r2_pair_find(inst, k.peer, 0, peer_nic);

    k.peer_guid = pair ? pair->far.guid : 0;
    k.peer_port = pair ? pair->far.port : 0;
    r2_log_flush();
    rig->last_warn[0][0] = '\0';
    rig_enter(&rig->side[0]);
    r2_verdict_announce(inst, &k);
    r2_log_flush();
    return rig->last_warn[0];
}

static const char *line_of(int peer_nic, struct probe_facts facts)
{
    return line_since(peer_nic, facts, r2_now(rig->side[0].inst));
}

static void has(const char *line, const char *text)
{
    ck_assert_msg(strstr(line, text) != NULL, "no '%s' in '%s'", text, line);
}

static void has_not(const char *line, const char *text)
{
    ck_assert_msg(strstr(line, text) == NULL, "'%s' in '%s'", text, line);
}

/* Both connections lose the path between the first NICs. */
static void both_down(void)
{
    struct r2_comm *c[2] = {first[0], rig->side[0].comm};

    rig_enter(&rig->side[0]);
    for (int i = 0; i < 2; i++) {
        struct ib_fault_info info = {.fault = IB_FAULT_PEER_NIC};

        r2_gate_visit(&c[i]->gate);
        fo_fault(&c[i]->fo, 0, &info);
        r2_gate_unvisit(&c[i]->gate);
        ck_assert(!ib_conn_up(&c[i]->conn, 0));
    }
}

/* The outcome in the line of the evidence that begins with @what and has a time if @timed. */
static void evidence_has(const struct r2_evidence *e, const char *what, int timed,
                         const char *outcome)
{
    for (int i = 0; i < e->n; i++) {
        const char *rest = e->line[i] + strlen(what);
        const char *at = strstr(e->line[i], " at +");

        if (strncmp(e->line[i], what, strlen(what)) == 0) {
            ck_assert_msg(strstr(rest, outcome) != NULL && (at != NULL) == timed, "%s", e->line[i]);
            ck_assert_msg(!timed || (atof(at + 5) >= 0 && atof(at + 5) < 2000), "%s", e->line[i]);
            return;
        }
    }
    ck_abort_msg("no '%s' in the evidence", what);
}

/* clang-format off */
#define OUR_CABLE   {PROBE_TIMEOUT, PROBE_OK, PROBE_OK, 2, {PROBE_PORT_UP, PROBE_OK, PROBE_TIMEOUT, 2}, {PROBE_PORT_UP, PROBE_OK, PROBE_OK, 2}}
#define ITS_CABLE   {PROBE_TIMEOUT, PROBE_OK, PROBE_OK, 2, {PROBE_PORT_UP, PROBE_OK, PROBE_OK, 2}, {PROBE_PORT_UP, PROBE_OK, PROBE_TIMEOUT, 2}}
#define PATH_CUT    {PROBE_TIMEOUT, PROBE_OK, PROBE_OK, 2, {PROBE_PORT_UP, PROBE_OK, PROBE_OK, 2}, {PROBE_PORT_UP, PROBE_OK, PROBE_OK, 2}}
#define HOST_DEAD   {PROBE_TIMEOUT, PROBE_TIMEOUT, PROBE_TIMEOUT, 3, {PROBE_PORT_UP, PROBE_OK, PROBE_OK, 2}, {0}}
#define STOPPED     {PROBE_OK, PROBE_TIMEOUT, PROBE_OK, 2, {PROBE_PORT_UP, PROBE_OK, PROBE_OK, 2}, {0}}
#define NOBODY_ELSE {PROBE_TIMEOUT, PROBE_OK, PROBE_OK, 2, {PROBE_PORT_UP, PROBE_OK, PROBE_NA, 0}, {PROBE_PORT_UP, PROBE_OK, PROBE_NA, 0}}
#define ENDED       {PROBE_TIMEOUT, PROBE_ERROR, PROBE_OK, 2, {PROBE_PORT_UP, PROBE_OK, PROBE_OK, 2}, {0}}
/* clang-format on */

/* Of a cable all connections over it are counted, also those of other pairs; of a path those of the
 * pair. */
START_TEST(our_cable)
{
    const char *line;

    begin(NULL);
    both_down();
    line = line_of(1, (struct probe_facts)OUR_CABLE);
    has(line, "R2-L02 host=host0 nic=fab0 peer=host1:fab1 rail=0 ");
    has(line, " moved=2 to=fab1 capacity=1/2 fate=continues ");
    end();
}
END_TEST

START_TEST(a_path)
{
    const char *line;

    begin(NULL);
    both_down();
    line = line_of(0, (struct probe_facts)PATH_CUT);
    has(line, "R2-F01 host=host0 nic=fab0 peer=host1:fab0 rail=0 ");
    has(line, " moved=2 to=fab1 capacity=1/2 fate=continues ");
    line = line_of(1, (struct probe_facts)PATH_CUT);
    has(line, "R2-F01 host=host0 nic=fab0 ");
    has_not(line, " moved=");
    has_not(line, " to=");
    end();
}
END_TEST

/* What is said of NICs is of the host that is named; the pair's other end is ours. */
START_TEST(its_cable)
{
    const char *line;

    begin(_i ? "NCCL_R2_BACKUP_SCOPE=any" : NULL);
    both_down();
    line = line_of(0, (struct probe_facts)ITS_CABLE);
    has(line, "R2-L02 host=host1 nic=fab0 peer=host0:fab0 ");
    has(line, " moved=2 fate=continues ");
    has_not(line, " to=");
    has_not(line, " capacity=");
    has_not(line, " pci=");
    ck_assert_int_eq(strstr(line, " rail=0 ") != NULL, !_i); /* any rail of ours may reach it */
    end();
}
END_TEST

/* Its NIC has not said its name: ours is not taken for it. */
START_TEST(its_cable_without_a_name)
{
    begin(NULL);
    has(line_of(9, (struct probe_facts)ITS_CABLE), "R2-L02 host=host1 nic=- peer=host0:fab0 ");
    end();
}
END_TEST

/* It broke before the pair to it was announced: connections have its name from their set-up. */
START_TEST(its_cable_named_at_set_up)
{
    struct r2_evidence e;
    struct r2_case k = {.facts = ITS_CABLE, .theirs.in_facts = 1};
    struct r2_pair *pair;

    begin(NULL);
    pair = r2_pair_find(rig->side[0].inst, rig->side[0].comm->peer, 0, 0);
    ck_assert_ptr_nonnull(pair);
    memset(&pair->far, 0, sizeof(pair->far));
    has(line_of(0, (struct probe_facts)ITS_CABLE), "R2-L02 host=host1 nic=fab0 peer=host0:fab0 ");
    k.peer = k.probes.direct.peer = rig->side[0].comm->peer;
    r2_evidence_gather(rig->side[0].inst, &k, &e);
    evidence_has(&e, "host0 fab0 to host1 fab0:", 0, "not probed");
    evidence_has(&e, "host1 fab0, its own report", 0, "port up, loop ok");
    evidence_has(&e, "host1 fab0 to host0 fab0:", 0, "not probed");
    end();
}
END_TEST

/* Paths to a host that is dead sleep, and count as up: nothing goes on. */
START_TEST(a_peer)
{
    static const struct {
        struct probe_facts f;
        const char *code, *fate;
    } row[] = {
        {HOST_DEAD, "R2-P03", "waits"}, {STOPPED, "R2-P02", "waits"}, {ENDED, "R2-P01", "ends"}};
    char want[40];
    const char *line;

    begin(NULL);
    both_down();
    line = line_of(0, row[_i].f);
    snprintf(want, sizeof(want), "%s host=host1 nic=- blame=", row[_i].code);
    has(line, want);
    snprintf(want, sizeof(want), " fate=%s ", row[_i].fate);
    has(line, want);
    has_not(line, " moved=");
    has_not(line, " to=");
    has_not(line, " capacity=");
    end();
}
END_TEST

/* It speaks again: nobody blames it any more, and the next time is said, too. */
START_TEST(a_peer_that_speaks_again)
{
    static const struct probe_facts silent[] = {HOST_DEAD, STOPPED};

    begin(NULL);
    for (int again = 0; again < 2; again++) {
        struct r2_inst *inst = rig->side[0].inst;
        struct r2_peer *peer = rig->side[0].comm->peer;
        struct probe_subject s = r2_subject_process(inst, peer);

        has(line_of(0, silent[_i]), _i ? "R2-P02 host=host1 " : "R2-P03 host=host1 ");
        ck_assert(r2_gossip_peer_blamed(inst, peer));
        messages(4, 100);
        rig_run(rig, RIG_S); /* it confirms the gossip, if nothing else */
        ck_assert(!r2_gossip_peer_blamed(inst, peer));
        ck_assert_int_eq(probe_gossip_find(rig->side[1].inst->diagnosis.gossip, &s)->blame,
                         PROBE_BLAME_NONE);
    }
    end();
}
END_TEST

/* The silence of a host that stood still is no pair's, though the case is decided when all of it
 * speaks again; one that begins later is. */
START_TEST(a_pair_whose_host_stood_still)
{
    enum { BEFORE, MEANWHILE, AFTER, NEVER } opened = (unsigned)_i;
    struct r2_inst *inst;
    uint64_t since;
    const char *line;

    begin(NULL);
    inst = rig->side[0].inst;
    since = r2_now(inst);
    if (opened != NEVER) {
        rig_run(rig, RIG_MS);
        has(line_of(0, (struct probe_facts)HOST_DEAD), "R2-P03 host=host1 ");
        since = opened == MEANWHILE ? r2_now(inst) : since;
        messages(4, 100);
        rig_run(rig, RIG_S);
        ck_assert(!r2_gossip_peer_blamed(inst, rig->side[0].comm->peer));
    }
    since = opened == AFTER ? r2_now(inst) : since;
    line = line_since(0, (struct probe_facts)NOBODY_ELSE, since);
    if (opened == BEFORE || opened == MEANWHILE) {
        ck_assert_msg(strstr(line, "R2-") == NULL && !inst->diagnosis.verdicts->undecided.reported,
                      "%s", line);
    } else {
        has(line, "R2-F03 host=host0 nic=fab0 ");
        ck_assert(inst->diagnosis.verdicts->undecided.reported);
    }
    end();
}
END_TEST

/*
 * A process that is stopped with its two NICs, seen from a host that third ones answer: the one
 * other pair is silent, too. If it was alive when this one was, both have one cause, and that is
 * the process; if it has said nothing for longer, it may have been broken before, and nobody knows.
 */
START_TEST(one_other_pair_that_is_silent_too)
{
    const int before = _i;
    struct r2_inst *inst;
    struct r2_pair *pair;
    struct r2_case k = {0};

    begin(NULL);
    messages(4, 100);
    inst = rig->side[0].inst;
    k.peer = rig->side[0].comm->peer;
    pair = r2_pair_find(inst, k.peer, 0, 0);
    ck_assert_uint_gt(pair->probe.answers, 0);
    ck_assert_uint_gt(r2_pair_find(inst, k.peer, 1, 1)->probe.answers, 0);
    pair->probe.last_ok = inst->watch.clock + (before ? 2 * RIG_S : 0);
    k.probes.direct =
        (struct r2_case_probe){.peer = k.peer, .outcome = PROBE_NA, .ended = 1, .alone = 1};
    k.probes.more[k.probes.n_more++] = (struct r2_case_probe){
        .peer = k.peer, .nic = 1, .peer_nic = 1, .outcome = PROBE_TIMEOUT, .ended = 1};
    for (int i = 0; i < R2_CASE_AUX; i++) { /* third hosts */
        k.probes.aux[k.probes.n_aux] = (struct r2_case_probe){.outcome = PROBE_OK, .ended = 1};
        snprintf(k.probes.aux[k.probes.n_aux++].host, FO_HOST_NAME, "third%d", i);
    }
    k.facts.peer = PROBE_TIMEOUT;
    k.facts.local.port = PROBE_PORT_UP;
    k.facts.local.loop = PROBE_OK;
    r2_locate_peer_silent(inst, &k);
    ck_assert_uint_eq(k.facts.direct, PROBE_TIMEOUT);
    ck_assert_uint_eq(k.facts.others, PROBE_TIMEOUT);
    ck_assert_int_eq(k.facts.others_n >= PROBE_SEVERAL, !before);
    ck_assert_int_eq(probe_verdict(&k.facts).blame,
                     before ? PROBE_BLAME_UNKNOWN : PROBE_BLAME_PEER);
    end();
}
END_TEST

/* What is found of its parts is said all the same. */
START_TEST(a_cable_whose_host_stood_still)
{
    uint64_t since;

    begin(NULL);
    since = r2_now(rig->side[0].inst);
    has(line_of(0, (struct probe_facts)HOST_DEAD), "R2-P03 host=host1 ");
    messages(4, 100);
    rig_run(rig, RIG_S);
    has(line_since(0, (struct probe_facts)OUR_CABLE, since), "R2-L02 host=host0 nic=fab0 ");
    end();
}
END_TEST

/* How long traffic stood is of this fault: what waited before it, or still does, is not told. */
START_TEST(stalls)
{
    enum { OVER, BEFORE, WAITS } how = (unsigned)_i;
    struct r2_inst *inst;
    struct timespec ts;
    const char *line;

    begin(NULL);
    inst = rig->side[0].inst;
    snprintf(inst->self.job, sizeof(inst->self.job), "slurm:81233");
    both_down();
    clock_gettime(CLOCK_REALTIME, &ts);
    first[0]->seen.stall_at = ((uint64_t)ts.tv_sec + (how == BEFORE ? -100 : 100)) * 1000000000;
    first[0]->seen.stall_ns = 1800000;
    rig->side[0].comm->seen.stall_from = how == WAITS;
    line = line_of(0, (struct probe_facts)OUR_CABLE);
    rig->side[0].comm->seen.stall_from = 0;
    ck_assert_msg((strstr(line, " stall=1.800ms ") != NULL) == (how == OVER), "%s", line);
    has(line, " job=slurm:81233 ");
    end();
}
END_TEST

/* --- cases that the two processes open themselves --- */

/* A directory that has what sysfs has of NIC 0 of host 1. */
static char tree[64];

static void counter_write(const char *where, const char *name, const char *text)
{
    char path[200];
    FILE *f;

    snprintf(path, sizeof(path), "%s/ports/1/%s/%s", tree, where, name);
    f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

static void tree_make(void)
{
    char path[200];

    snprintf(tree, sizeof(tree), "/tmp/r2-counters-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(tree));
    snprintf(path, sizeof(path), "mkdir -p %s/ports/1/counters %s/ports/1/hw_counters", tree, tree);
    ck_assert_int_eq(system(path), 0);
    counter_write("counters", "symbol_error", "5\n");
    counter_write("counters", "link_downed", "3\n");
    counter_write("hw_counters", "local_ack_timeout_err", "100\n");
}

static void tree_remove(void)
{
    char path[200];

    if (tree[0]) {
        snprintf(path, sizeof(path), "rm -r %s", tree);
        ck_assert_int_eq(system(path), 0);
        tree[0] = '\0';
    }
}

static int blames(struct rig *r)
{
    return strstr(r->last_warn[1], "R2-") != NULL;
}

/* A cable goes silent, and nothing is made up: two hosts whose rails reach each other. The line of
 * side 1. */
static const char *found_after(const char *fault)
{
    rig = rig_create(2, 1, (const char *[]){FAST, "NCCL_R2_BACKUP_SCOPE=any", NULL});
    if (tree[0]) {
        struct ibv_device *device = rig->side[1].inst->nics.nic[0].ctx->device;

        snprintf(device->ibdev_path, sizeof(device->ibdev_path), "%s", tree);
    }
    connect_ends();
    wait_probes();
    messages(3, BIG);
    if (tree[0]) {
        counter_write("counters", "symbol_error", "46\n");
        counter_write("hw_counters", "local_ack_timeout_err", "107\n");
    }
    fire(fault);
    recv_post(0, BIG);
    send_post(0, BIG);
    finish(1, BIG, 10 * RIG_S);
    ck_assert(rig_until(rig, blames, 10 * RIG_S));
    return rig->last_warn[1];
}

static const struct r2_case *case_of(int side)
{
    for (int i = 0; i < R2_CASES; i++) {
        if (rig->side[side].inst->diagnosis.cases[i].state == R2_CASE_DECIDED &&
            rig->side[side].inst->diagnosis.cases[i].nic == 0 &&
            rig->side[side].inst->diagnosis.cases[i].peer_nic == 0) {
            return &rig->side[side].inst->diagnosis.cases[i];
        }
    }
    return NULL;
}

/* Who asked whom, from both ends, with the outcome, and when it was seen. */
START_TEST(evidence_names_all_who_were_asked)
{
    struct r2_evidence e;

    found_after("h0:n0 blackhole");
    ck_assert(case_of(1) != NULL);
    r2_evidence_gather(rig->side[1].inst, case_of(1), &e);
    evidence_has(&e, "host1 fab0: port up, loop", 1, "ok");
    evidence_has(&e, "host1 fab0 to host0 fab0:", 1, "no answer");
    evidence_has(&e, "host1 fab0 to host0 fab1:", 1, "ok");
    evidence_has(&e, "host0 fab0, its own report", 1, "port up, loop ok");
    evidence_has(&e, "host0 fab0 to host1 fab0:", 0, "no answer");
    evidence_has(&e, "host0 fab0 to host1 fab1:", 0, "no answer");
    evidence_has(&e, "host1 fab1 to host0 fab1:", 1, "ok");
    evidence_has(&e, "process on host0:", 0, "ok");
    stop();
}
END_TEST

/* What the port has counted meanwhile is said of a NIC of one's own. */
START_TEST(a_link_with_errors)
{
    struct r2_evidence e;
    const char *line;

    tree_make();
    line = found_after(_i ? "h0:n0 blackhole" : "h1:n0 blackhole");
    ck_assert_msg((strstr(line, ",symbol_error:+41 ") != NULL) == !_i, "%s", line);
    has_not(line, "link_downed");
    ck_assert(case_of(1) != NULL);
    r2_evidence_gather(rig->side[1].inst, case_of(1), &e);
    evidence_has(&e, "host1 fab0, since its first connection:", 0,
                 " symbol_error +41, local_ack_timeout_err +7");
    stop();
}
END_TEST

static void end_of_test(void)
{
    teardown();
    tree_remove();
}

static void add(TCase *t)
{
    tcase_add_test(t, our_cable);
    tcase_add_test(t, a_path);
    tcase_add_loop_test(t, its_cable, 0, 2);
    tcase_add_test(t, its_cable_without_a_name);
    tcase_add_test(t, its_cable_named_at_set_up);
    tcase_add_loop_test(t, a_peer, 0, 3);
    tcase_add_loop_test(t, a_peer_that_speaks_again, 0, 2);
    tcase_add_loop_test(t, a_pair_whose_host_stood_still, 0, 4);
    tcase_add_loop_test(t, one_other_pair_that_is_silent_too, 0, 2);
    tcase_add_test(t, a_cable_whose_host_stood_still);
    tcase_add_loop_test(t, stalls, 0, 3);
    tcase_add_test(t, evidence_names_all_who_were_asked);
    tcase_add_loop_test(t, a_link_with_errors, 0, 2);
}

int main(void)
{
    return suite_run("verdict", 120, NULL, end_of_test, add);
}
