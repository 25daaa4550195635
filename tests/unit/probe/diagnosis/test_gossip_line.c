/* What the operator is told of a failure, and what an end is explained by (docs/diagnosis.md):
 * two processes, one connection. */
#include "tests/unit/gossip_world.h"

/* What is said in short of NIC 0 of @host: at the other end with the host's name. Returns at which
 * ends, as bits. */
static int briefs(const char *code, int host)
{
    char want[R2_VERDICT_BRIEF], at_host[16];
    int said = 0;

    snprintf(at_host, sizeof(at_host), "host%d:", host);
    for (int s = 0; s < 2; s++) {
        struct r2_found f =
            r2_verdict_latest(inst_of(s), (uint64_t)inst_of(s)->cfg.t_give_up_ms * 1000000);
        const char *brief = f.brief;

        snprintf(want, sizeof(want), "%s %sfab0 ", code, s == host ? "" : at_host);
        ck_assert_msg(brief[0] == '\0' || strncmp(brief, want, strlen(want)) == 0, "'%s', not '%s'",
                      brief, want);
        ck_assert_uint_le(strlen(brief), 80);
        said |= (brief[0] != '\0') << s;
    }
    return said;
}

/* One message over NIC 0 after @fault; then the verdict. */
static void verdict_after(const char *fault, int nics, int crossrail)
{
    rig = rig_create(nics, crossrail, (const char *[]){FAST, "NCCL_R2_BACKUP_SCOPE=any", NULL});
    connect_ends();
    wait_probes();
    messages(3, BIG);
    fire(fault);
    recv_post(0, BIG);
    send_post(0, BIG);
    finish(1, BIG, 10 * RIG_S);
    ck_assert(rig_until(rig, line_is_there, 10 * RIG_S));
}

/* What an end of the connection would be explained by, at both ends: @text, without @other. */
static void found_says(const char *text, const char *other)
{
    for (int s = 0; s < 2; s++) {
        char found[R2_VERDICT_FOUND];

        r2_verdict_found(rig->side[s].comm, found);
        ck_assert_msg(found[0] == '\0' || (strstr(found, text) && !strstr(found, other)),
                      "side %d: '%s'", s, found);
        ck_assert_msg(s == 0 || found[0] != '\0', "side %d has found nothing", s);
    }
}

/* What an end is explained by when the port is back: it is told that it is. */
START_TEST(a_port_says_so_itself)
{
    verdict_after("h1:n0 down", 2, 0);
    line_has("R2-L01 host=host1 nic=fab0");
    ck_assert(rig_until(rig, told_all, RIG_S));
    ck_assert(knows(0, 1, 0, PROBE_BLAME_LOCAL_LINK));
    found_says("R2-L01", "good again");
    fire("h1:n0 up");
    rig_run(rig, 5 * RIG_S);
    ck_assert(knows(0, 1, 0, PROBE_BLAME_NONE) && knows(1, 1, 0, PROBE_BLAME_NONE));
    found_says("; good again since", "process");
    stop();
}
END_TEST

/* The loop tells a NIC from its cable. */
START_TEST(a_hung_nic)
{
    verdict_after("h0:n0 hang", 2, 1);
    line_has("R2-N02 host=host0 nic=fab0");
    stop();
}
END_TEST

/* Two hosts, rails that reach each other: the other NIC of the peer's host is the third point. */
START_TEST(a_silent_cable)
{
    const char *line;

    verdict_after(_i ? "h0:n0 blackhole" : "h1:n0 blackhole", 2, 1);
    line_has(_i ? "R2-L02 host=host0 nic=fab0" : "R2-L02 host=host1 nic=fab0");
    ck_assert_int_eq(briefs("R2-L02", !_i) & 2, 2); /* whose cable it is, and whose it is not */
    line = rig->last_warn[1];
    if (_i) { /* what it says of NICs is of the host that it names */
        ck_assert_msg(strstr(line, " peer=host1:fab0 rail=0 ") == NULL &&
                          strstr(line, " peer=host1:fab0 blame=") != NULL,
                      "%s", line);
        ck_assert_msg(!strstr(line, " to=") && !strstr(line, " capacity=") &&
                          strstr(line, " seen_by=7/7 moved=1 fate=continues "),
                      "%s", line);
    } else {
        ck_assert_msg(strstr(line, " peer=host0:fab0 rail=0 ") &&
                          strstr(line, " seen_by=7/7 moved=1 to=fab1 capacity=1/2 fate=continues "),
                      "%s", line);
    }
    ck_assert(rig_until(rig, told_all, RIG_S));
    ck_assert(knows(0, !_i, 0, PROBE_BLAME_LOCAL_LINK) && knows(1, !_i, 0, PROBE_BLAME_LOCAL_LINK));
    stop();
}
END_TEST

/* Two hosts, rails apart: nothing can tell the two cables and the way between them apart, and
 * nobody pretends to. */
START_TEST(nothing_to_tell_it_by)
{
    verdict_after("h1:n0 blackhole", 2, 0);
    line_has("R2-F03");
    ck_assert_ptr_null(known(0, 1, 0));
    ck_assert_ptr_null(known(0, 0, 0));
    stop();
}
END_TEST

/* The same while the loop of a NIC is asked for the first time, and may not be one: that it does
 * not answer accuses nobody. */
START_TEST(a_loop_that_was_never_there)
{
    struct r2_loopback *l;

    start(2, (const char *[]){FAST, NULL});
    wait_probes();
    messages(3, BIG);
    fire("h1:n0 blackhole");
    l = &inst_of(0)->diagnosis.loop[0];
    l->works = 0;
    l->asking = 1;
    l->deadline = inst_of(0)->watch.clock + 250 * RIG_MS;
    recv_post(0, BIG);
    send_post(0, BIG);
    finish(1, BIG, 10 * RIG_S);
    ck_assert(rig_until(rig, line_is_there, 10 * RIG_S));
    line_has("R2-F03");
    ck_assert_uint_eq(inst_of(0)->diagnosis.cases[0].facts.local.loop, PROBE_NA);
    stop();
}
END_TEST

/* A queue pair alone is nobody's fault: said, but no warning, and no health report. */
START_TEST(a_queue_pair_alone)
{
    verdict_after("h0:n1 down", 2, 0); /* a line to compare with */
    rig->last_warn[0][0] = rig->last_warn[1][0] = '\0';
    fire("h0:n1 up");
    rig_run(rig, 5 * RIG_S);
    fire("h0:n0 qp-error");
    messages(1, BIG);
    rig_run(rig, 5 * RIG_S);
    ck_assert(!line_is_there(rig));
    ck_assert_ptr_null(known(0, 0, 0));
    stop();
}
END_TEST

/* It reads nothing and says nothing, while its NIC acknowledges everything. */
START_TEST(a_stopped_process)
{
    struct r2_inst *inst;

    start(2, (const char *[]){FAST, "NCCL_R2_HANG_AFTER=0",
                              NULL}); /* who waits for it is another line */
    wait_probes();
    recv_post(0, 100);
    rig_run(rig, 100 * RIG_MS);
    inst = process_stop(1);
    send_post(0, 100);
    ck_assert(rig_until(rig, line_is_there, 30 * RIG_S));
    line_has("R2-P02 host=host1");
    process_go(1, inst);
    finish(1, 100, 10 * RIG_S);
    nothing_moved();
    stop();
}
END_TEST

/* A peer that closed in order and ended is not missed. */
START_TEST(an_orderly_end_is_no_failure)
{
    start(2, (const char *[]){FAST, NULL});
    wait_probes();
    messages(3, 100);
    rig_run(rig, RIG_S); /* they have said who they are */
    rig->side[1].comm->fo.bye.peer = _i ? FO_BYE_NONE : FO_BYE_ORDERLY;
    rig_enter(&rig->side[1]);
    rig->side[1].comm->peer->refused_since = r2_now(inst_of(1));
    rig_kick(&rig->side[1]);
    rig_run(rig, 3 * RIG_S);
    ck_assert_int_eq(strstr(rig->last_warn[1], "R2-P01") != NULL ||
                         rig->side[1].inst->diagnosis.verdicts->found.at != 0,
                     _i);
}
END_TEST

static struct {
    int (*post)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
    int (*poll)(struct ibv_cq *cq, int n, struct ibv_wc *wc);
    int (*destroy)(struct ibv_qp *qp);
    struct ibv_context *dead;
    unsigned touched;
} device;

static int post_seen(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    device.touched++;
    return device.post(qp, wr, bad);
}

static int poll_seen(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
    device.touched++;
    return device.poll(cq, n, wc);
}

static int destroy_seen(struct ibv_qp *qp)
{
    device.touched += qp->context == device.dead;
    return device.destroy(qp);
}

/* Whatever is said of it, a device that is dead is left alone. */
START_TEST(a_dead_device_is_left_alone)
{
    struct r2_inst *inst;

    start(2, (const char *[]){FAST, NULL});
    inst = inst_of(1);
    wait_probes();
    messages(3, 100);
    fire("h1:n0 fatal");
    rig_run(rig, 15 * RIG_S);
    device.dead = inst->nics.nic[0].ctx;
    device.post = device.dead->ops.post_send;
    device.poll = device.dead->ops.poll_cq;
    device.destroy = inst->v.destroy_qp;
    device.touched = 0;
    device.dead->ops.post_send = post_seen;
    device.dead->ops.poll_cq = poll_seen;
    inst->v.destroy_qp = destroy_seen;
    blame(0, 1, 0, PROBE_BLAME_NONE);
    rig_run(rig, RIG_S);
    blame(0, 1, 0, PROBE_BLAME_LOCAL_LINK);
    rig_run(rig, 5 * RIG_S);
    device.dead->ops.post_send = device.post;
    device.dead->ops.poll_cq = device.poll;
    inst->v.destroy_qp = device.destroy;
    ck_assert_uint_eq(device.touched, 0);
    messages(3, 100);
    stop();
}
END_TEST

/* What arrived never comes out of the receiver's completion queue, over its only path: its process
 * is alive, and answers when it is asked. */
START_TEST(a_process_that_answers_is_not_accused)
{
    start(1, (const char *[]){FAST, "NCCL_R2_HANG_AFTER=0", NULL});
    wait_probes();
    messages(1, 100);
    recv_post(0, 100);
    rig_run(rig, 150 * RIG_MS);
    driver.hidden = driver_hook(1, 0)->cq;
    send_post(0, 100);
    rig_run(rig, 30 * RIG_S);
    ck_assert_uint_gt(driver.fired, 0);
    ck_assert_msg(!line_is_there(rig), "%s %s", rig->last_warn[0], rig->last_warn[1]);
    ck_assert_uint_eq(rig_count(rig, 0, FO_MSG_REPORT) + rig_count(rig, 1, FO_MSG_REPORT), 0);
}
END_TEST

/* Nothing heals with NCCL_R2_FAILBACK=never; a port that is up takes back what it said, and is
 * heard the next time. */
START_TEST(the_second_failure_is_said_too)
{
    start(2, (const char *[]){FAST, "NCCL_R2_FAILBACK=never", NULL});
    wait_probes();
    for (int i = 0; i < 2; i++) {
        rig->last_warn[1][0] = '\0';
        fire("h1:n1 down");
        rig_run(rig, 5 * RIG_S);
        line_has("R2-L01 host=host1 nic=fab1");
        ck_assert(knows(0, 1, 1, PROBE_BLAME_LOCAL_LINK));
        fire("h1:n1 up");
        rig_run(rig, 5 * RIG_S);
        ck_assert(knows(0, 1, 1, PROBE_BLAME_NONE));
    }
    stop();
}
END_TEST

/* The peer of an auxiliary port may go while a case is open. */
START_TEST(an_auxiliary_peer_may_go)
{
    struct r2_case *k;
    struct r2_peer gone = {.host = "third"};

    start(2, (const char *[]){FAST, NULL});
    wait_probes();
    k = &inst_of(0)->diagnosis.cases[0];
    *k = (struct r2_case){
        .state = R2_CASE_PROBING, .peer = rig->side[0].comm->peer, .probes.n_aux = 2};
    for (int i = 0; i < 2; i++) {
        k->probes.aux[i] =
            (struct r2_case_probe){.peer = &gone, .outcome = PROBE_OK, .ended = 1, .host = "third"};
    }
    r2_locate_drop(inst_of(0), &gone);
    ck_assert(k->probes.aux[0].peer == NULL && k->probes.aux[1].peer == NULL &&
              k->state == R2_CASE_PROBING);
    memset(&gone, 0xa5, sizeof(gone));
    rig_run(rig, 5 * RIG_S);
    ck_assert_int_ne(k->state, R2_CASE_PROBING);
    ck_assert_uint_eq(k->facts.local.aux_n, 1); /* one host */
    stop();
}
END_TEST

static int cases_are(struct rig *r, enum r2_case_state state)
{
    return r->side[0].inst->diagnosis.cases[0].state == state &&
           r->side[1].inst->diagnosis.cases[0].state == state;
}

static int cases_are_open(struct rig *r)
{
    return cases_are(r, R2_CASE_PROBING);
}

static int cases_are_decided(struct rig *r)
{
    return cases_are(r, R2_CASE_DECIDED);
}

/* Two ends with an open case ask each other: at times that grow, whatever numbers the cases have,
 * and not once per round trip. */
START_TEST(two_cases_do_not_answer_each_other_for_ever)
{
    unsigned said;

    start(2, (const char *[]){FAST, NULL});
    wait_probes();
    fire("h0:n0 hang");
    fire("h1:n0 hang");
    recv_post(0, BIG);
    send_post(0, BIG);
    ck_assert(rig_until(rig, cases_are_open, 5 * RIG_S));
    for (int i = 0; _i && i < 2;
         i++) { /* a later case, as if there were one: neither takes what the other finds */
        union fo_body b = {.locate = {.flags = FO_LOCATE_REQUEST,
                                      .id = inst_of(i)->diagnosis.cases[0].theirs.id + 1000}};

        rig_inject(rig, i, FO_MSG_LOCATE, &b);
    }
    ck_assert(rig_until(rig, cases_are_decided, 10 * RIG_S));
    said = rig_count(rig, 0, FO_MSG_LOCATE) + rig_count(rig, 1, FO_MSG_LOCATE);
    ck_assert_uint_lt(said, 150);
    finish(1, BIG, 150 * RIG_S); /* both fences are soft: T_dead */
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, a_port_says_so_itself);
    tcase_add_test(t, a_hung_nic);
    tcase_add_loop_test(t, a_silent_cable, 0, 2);
    tcase_add_test(t, nothing_to_tell_it_by);
    tcase_add_test(t, a_loop_that_was_never_there);
    tcase_add_test(t, a_queue_pair_alone);
    tcase_add_test(t, a_stopped_process);
    tcase_add_loop_test(t, an_orderly_end_is_no_failure, 0, 2);
    tcase_add_test(t, a_dead_device_is_left_alone);
    tcase_add_test(t, a_process_that_answers_is_not_accused);
    tcase_add_test(t, the_second_failure_is_said_too);
    tcase_add_test(t, an_auxiliary_peer_may_go);
    tcase_add_loop_test(t, two_cases_do_not_answer_each_other_for_ever, 0, 2);
}

int main(void)
{
    return suite_run("gossip: line", 120, NULL, teardown, add);
}
