/*
 * Who holds the job up, with connections: what each end says when the other one posts nothing, is
 * stopped, or has no path; and that nothing is said, asked or looked at where nobody waits.
 */
#include "tests/unit/suite.h"
#include "tests/unit/watch_rig.h"

#include <unistd.h>

#include "plugin/core/r2_registry.h"
#include "plugin/probe/diagnosis/r2_hang.h"

#define S_COMM (rig->side[0].comm)
#define R_COMM (rig->side[1].comm)

static struct {
    unsigned said[2], over[2];
    char how[2][40];
    int severity[2];
} heard;

static void on_cause(struct r2_inst *inst, const struct r2_cause *v)
{
    int side = inst == rig->side[1].inst;

    if (strcmp(v->code, "R2-H01") != 0) {
        return;
    }
    if (strcmp(v->how, "goes-on") == 0) {
        heard.over[side]++;
        return;
    }
    heard.said[side]++;
    heard.severity[side] = v->severity;
    snprintf(heard.how[side], sizeof(heard.how[side]), "%s", v->how);
}

static void begin(const char *const *options)
{
    static const struct r2_subscriber test = {.on_cause = on_cause};

    memset(&heard, 0, sizeof(heard));
    start(2, options);
    subscribe(&test);
    wait_probes();
    messages(3, BIG);
    rig_run(rig, RIG_S); /* they have said who they are */
}

static void said(int side, const char *host, const char *how)
{
    char who[80];

    snprintf(who, sizeof(who), "R2-H01 host=%s nic=", host);
    ck_assert_msg(heard.said[side] == 1, "side %d has said it %u times; last warning: %s", side,
                  heard.said[side], rig->last_warn[side]);
    ck_assert_str_eq(heard.how[side], how);
    ck_assert_msg(strstr(rig->last_warn[side], who) && strstr(rig->last_warn[side], how), "%s",
                  rig->last_warn[side]);
}

static void nothing_said(void)
{
    ck_assert_uint_eq(heard.said[0] + heard.said[1], 0);
}

static int both_rest(struct rig *r)
{
    return r2_comms_awake(r->side[0].inst) == NULL && r2_comms_awake(r->side[1].inst) == NULL;
}

/* --- who waits --- */

START_TEST(sender_posts_nothing)
{
    uint64_t from;

    begin((const char *[]){QUIET_RC, NULL});
    from = rig_now(rig);
    recv_post(0, BIG);
    ck_assert(rig_until(rig, both_rest, 4 * RIG_S)); /* it waits, and is not looked at each tick */
    ck_assert_ptr_eq(r2_comms_expecting(rig->side[1].inst), R_COMM);
    rig_run(rig, 4500 * RIG_MS - (rig_now(rig) - from));
    nothing_said();
    rig_run(rig, 3500 * RIG_MS);
    said(0, "host0", "posted-nothing");
    said(1, "host0", "posted-nothing");
    ck_assert_msg(strstr(rig->last_warn[1], "waiting:1,over:1 ") != NULL, "%s", rig->last_warn[1]);
    ck_assert(both_rest(rig));
    rig_run(rig, 100 * RIG_S);
    said(1, "host0", "posted-nothing");
    ck_assert_uint_eq(heard.over[0] + heard.over[1], 0);
    send_post(0, BIG);
    finish(1, BIG, RIG_S);
    rig_run(rig, 10 * RIG_S);
    ck_assert_uint_eq(heard.over[0], 1);
    ck_assert_uint_eq(heard.over[1], 1);
    ck_assert_ptr_null(r2_comms_expecting(rig->side[1].inst));
    ck_assert(both_rest(rig));
    nothing_moved();
    stop();
}
END_TEST

/* NCCL tries again and again. */
static void send_tried(uint64_t ns)
{
    for (uint64_t end = rig_now(rig) + ns; rig_now(rig) < end;) {
        ck_assert_int_lt(rig_isend(rig, out[0], BIG, 0, s_mr), 0);
        rig_run(rig, 10 * RIG_MS);
    }
}

START_TEST(receiver_posts_nothing)
{
    begin((const char *[]){QUIET_RC, NULL});
    send_tried(4500 * RIG_MS);
    nothing_said();
    send_tried(4 * RIG_S);
    said(0, "host1", "posted-nothing");
    said(1, "host1", "posted-nothing");
    recv_post(0, BIG);
    send_post(0, BIG);
    finish(1, BIG, RIG_S);
    rig_run(rig, 10 * RIG_S);
    ck_assert_uint_eq(heard.over[0] + heard.over[1], 2);
    nothing_moved();
    stop();
}
END_TEST

/* Of a group of two receives one is sent: the other one its own process has not begun, however much
 * R has posted, and whatever else is wanted. */
static void half_of_group(int first, int tries)
{
    void *data[2] = {in[0], in[1]};
    size_t size[2] = {BIG, BIG};
    int tag[2] = {5, 6};

    begin((const char *[]){QUIET_RC, NULL});
    ck_assert_int_ge(rig_irecv(rig, 2, data, size, tag, r_mr), 0);
    memset(out[first], 7, BIG);
    rig_send_wait(rig, out[first], BIG, tag[first], s_mr);
    for (int i = 0; i < 1000; i++) {
        if (tries) {
            ck_assert_int_lt(rig_isend(rig, out[first], BIG, tag[first], s_mr), 0);
        }
        rig_run(rig, 10 * RIG_MS);
    }
    said(0, "host0", "posted-nothing");
    said(1, "host0", "posted-nothing");
    memset(out[!first], 8, BIG);
    rig_send_wait(rig, out[!first], BIG, tag[!first], s_mr);
    finish(2, BIG, RIG_S);
    rig_run(rig, 10 * RIG_S);
    ck_assert_uint_eq(heard.over[0] + heard.over[1], 2);
    nothing_moved();
    stop();
}

START_TEST(half_of_a_group)
{
    half_of_group(_i & 1, _i >> 1);
}
END_TEST

/* --- who is stopped --- */

START_TEST(sender_stopped)
{
    struct r2_inst *inst;
    char pid[40];

    begin((const char *[]){QUIET_RC, NULL});
    recv_post(0, BIG);
    inst = process_stop(0);
    rig_run(rig, 10 * RIG_S);
    said(1, "host0", "process-silent");
    snprintf(pid, sizeof(pid), ",pid:%d,", (int)getpid()); /* as it has said before */
    ck_assert_msg(strstr(rig->last_warn[1], pid) != NULL, "%s", rig->last_warn[1]);
    process_go(0, inst);
    send_post(0, BIG);
    finish(1, BIG, RIG_S);
    rig_run(rig, 10 * RIG_S);
    ck_assert_uint_eq(heard.over[1], 1);
    ck_assert_uint_eq(heard.said[0], 0); /* its clock stood, too */
    nothing_moved();
    stop();
}
END_TEST

/* Its NIC has the message, and its process acknowledges nothing. */
static void receiver_stops(void)
{
    struct r2_inst *inst;

    recv_post(0, BIG);
    rig_run(rig, 10 * RIG_MS);
    inst = process_stop(1);
    send_post(0, BIG);
    rig_run(rig, 10 * RIG_S);
    ck_assert_uint_eq(heard.said[0], 1);
    ck_assert_str_eq(heard.how[0], "process-silent");
    process_go(1, inst);
    finish(1, BIG, RIG_S);
}

START_TEST(receiver_stopped)
{
    begin((const char *[]){QUIET_RC, NULL});
    receiver_stops();
    rig_run(rig, 10 * RIG_S);
    ck_assert_uint_eq(heard.over[0], 1);
    ck_assert_uint_eq(heard.said[1], 0);
    nothing_moved();
    stop();
}
END_TEST

/* Who stood still itself has not waited meanwhile. */
START_TEST(stopped_while_it_waits)
{
    struct r2_inst *inst;

    begin((const char *[]){QUIET_RC, NULL});
    recv_post(0, BIG);
    rig_run(rig, RIG_S);
    inst = process_stop(1);
    rig_run(rig, 20 * RIG_S);
    process_go(1, inst);
    rig_run(rig, 3 * RIG_S);
    nothing_said();
    send_post(0, BIG);
    finish(1, BIG, RIG_S);
    stop();
}
END_TEST

/* --- who has not said who it is --- */

/* Every word of process 0, or of 1, is lost. */
static int lose_words(struct rig *r, int from, int type, union fo_body *body)
{
    return type != FO_MSG_HANG || from != r->filter_count;
}

static void begin_unnamed(int side)
{
    static const struct r2_subscriber test = {.on_cause = on_cause};

    memset(&heard, 0, sizeof(heard));
    rig = rig_create(2, 0, (const char *[]){QUIET_RC, NULL});
    rig->filter = lose_words;
    rig->filter_count = side;
    connect_ends();
    subscribe(&test);
    wait_probes();
    messages(3, BIG);
    rig_run(rig, RIG_S);
    ck_assert(!rig->side[!side].comm->peer->hang.knows);
}

/* That it does not answer is all that is known of it. */
START_TEST(sender_stopped_unnamed)
{
    struct r2_inst *inst;

    begin_unnamed(0);
    recv_post(0, BIG);
    inst = process_stop(0);
    rig_run(rig, 10 * RIG_S);
    said(1, "host0", "process-silent");
    ck_assert_msg(strstr(rig->last_warn[1], "how=process-silent,waiting:1,over:1 ") != NULL, "%s",
                  rig->last_warn[1]);
    process_go(0, inst);
    send_post(0, BIG);
    finish(1, BIG, RIG_S);
    rig_run(rig, 10 * RIG_S);
    ck_assert_uint_eq(heard.over[1], 1);
    nothing_moved();
    stop();
}
END_TEST

/* No path's fault. */
START_TEST(receiver_stopped_unnamed)
{
    begin_unnamed(1);
    receiver_stops();
    stop();
}
END_TEST

/* It runs, and has posted nothing: that it will not say. */
START_TEST(idle_unnamed)
{
    begin_unnamed(_i);
    if (_i == 0) {
        recv_post(0, BIG);
        rig_run(rig, 30 * RIG_S);
    } else {
        send_tried(30 * RIG_S);
    }
    ck_assert_uint_eq(heard.said[!_i], 0);
    nothing_moved();
}
END_TEST

/* --- what is the fabric's matter --- */

START_TEST(path_silent)
{
    if (_i) {
        begin_unnamed(1); /* and it answers what is asked of its NICs */
    } else {
        begin((const char *[]){QUIET_RC, NULL});
    }
    recv_post(0, BIG);
    rig_run(rig, 10 * RIG_MS);
    fire("h1:* blackhole");
    send_post(0, BIG);
    rig_run(rig, 12 * RIG_S);
    ck_assert_uint_eq(heard.said[0], 1);
    ck_assert_str_eq(heard.how[0], "path-silent");
    /* a code of the part that broke has been said, and is what people are to look at */
    ck_assert_int_eq(heard.severity[0], 0);
    ck_assert_msg(strstr(rig->last_warn[0], "R2-H01") == NULL, "%s", rig->last_warn[0]);
    fire("h1:* clear");
    finish(1, BIG, 30 * RIG_S);
    rig_run(rig, 10 * RIG_S);
    ck_assert_uint_eq(heard.over[0], 1);
    stop();
}
END_TEST

/* What arrived never comes out of the receiver's completion queue, over the only path: both ends
 * wait for each other, and it is the path's doing. */
START_TEST(swallowed_behind_the_nic)
{
    begin((const char *[]){QUIET_RC, "NCCL_R2_BACKUP_SCOPE=rail", "NCCL_IB_HCA=fab0", NULL});
    recv_post(0, 100);
    rig_run(rig, 150 * RIG_MS);
    driver.hidden = driver_hook(1, 0)->cq;
    send_post(0, 100);
    rig_run(rig, 30 * RIG_S);
    ck_assert_uint_gt(driver.fired, 0);
    said(0, "host0", "path-silent");
    said(1, "host0", "path-silent");
    driver.hidden = NULL;
}
END_TEST

START_TEST(nic_fails)
{
    begin((const char *[]){QUIET_RC, NULL});
    recv_post(0, BIG);
    rig_run(rig, 10 * RIG_MS);
    fire("h1:n0 blackhole");
    send_post(0, BIG);
    finish(1, BIG, 4 * RIG_S);
    rig_run(rig, 20 * RIG_S);
    nothing_said();
    stop();
}
END_TEST

/* --- where nobody waits --- */

START_TEST(rest_and_traffic)
{
    unsigned n;

    begin((const char *[]){QUIET_RC, NULL});
    rig_run(rig, 100 * RIG_S);
    ck_assert(both_rest(rig));
    ck_assert_ptr_null(r2_comms_expecting(rig->side[1].inst));
    for (int i = 0; i < 20; i++) { /* a second of computing between any two */
        messages(1, BIG);
        rig_run(rig, RIG_S);
    }
    for (int i = 0; i < 5; i++) { /* longer ones, with a receive that waits for less than is said */
        recv_post(0, BIG);
        rig_run(rig, 2 * RIG_S);
        send_post(0, BIG);
        finish(1, BIG, RIG_S);
        rig_run(rig, 20 * RIG_S);
    }
    nothing_said();
    n = rig_count(rig, 0, FO_MSG_HANG) + rig_count(rig, 1, FO_MSG_HANG);
    ck_assert_uint_le(n, 4); /* who they are, and that they have heard it */
    ck_assert_uint_ge(n, 2);
    stop();
}
END_TEST

/* There is always a receive that waits, of which none waits for long. */
START_TEST(traffic_without_a_gap)
{
    begin((const char *[]){QUIET_RC, NULL});
    recv_post(0, BIG);
    for (int i = 0; i < 200; i++) {
        recv_post((i + 1) % 2, BIG);
        send_post(i % 2, BIG);
        rig_run(rig, 100 * RIG_MS);
    }
    rig_run(rig, 4 * RIG_S);
    nothing_said();
    send_post(0, BIG);
    finish(0, BIG, RIG_S);
    stop();
}
END_TEST

/* One end does not know of it, or is not to: nothing is said, and nothing asked. */
START_TEST(off_at_one_end)
{
    begin((const char *[]){QUIET_RC, "0:NCCL_R2_HANG_AFTER=0", NULL});
    recv_post(0, BIG);
    rig_run(rig, 30 * RIG_S);
    nothing_said();
    ck_assert_uint_eq(rig_count(rig, 0, FO_MSG_HANG), 0);
    ck_assert_uint_le(rig_count(rig, 1, FO_MSG_HANG), 6); /* who it is, with growing pauses */
    send_post(0, BIG);
    finish(1, BIG, RIG_S);
    stop();
}
END_TEST

/* The first three records get lost. */
static int lose_three(struct rig *r, int from, int type, union fo_body *body)
{
    return type != FO_MSG_HANG || r->filter_count++ >= 3;
}

START_TEST(first_words_lost)
{
    static const struct r2_subscriber test = {.on_cause = on_cause};

    memset(&heard, 0, sizeof(heard));
    rig = rig_create(2, 0, (const char *[]){QUIET_RC, NULL});
    rig->filter = lose_three;
    rig_connect(rig, 0, 0);
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
    subscribe(&test);
    wait_probes();
    messages(3, BIG);
    rig_run(rig, 10 * RIG_S);
    ck_assert_int_ge(rig->filter_count, 4);
    for (int s = 0; s < 2; s++) {
        ck_assert(rig->side[s].comm->peer->hang.knows && rig->side[s].comm->peer->hang.known);
    }
    stop();
}
END_TEST

/* A connection that has ended, and that NCCL has not closed yet, waits for nobody. */
START_TEST(peer_closed)
{
    begin((const char *[]){QUIET_RC, NULL});
    recv_post(0, BIG);
    rig_run(rig, 10 * RIG_MS);
    rig_dereg(rig, 0, s_mr);
    rig_close(rig, 0);
    rig_run(rig, 30 * RIG_S);
    nothing_said();
    ck_assert(R_COMM->fo.bye.peer || R_COMM->fo.error != R2_OK);
    rig_dereg(rig, 1, r_mr);
}
END_TEST

START_TEST(sooner)
{
    begin((const char *[]){QUIET_RC, "NCCL_R2_HANG_AFTER=500", NULL});
    recv_post(0, BIG);
    rig_run(rig, RIG_S);
    said(1, "host0", "posted-nothing");
    send_post(0, BIG);
    finish(1, BIG, RIG_S);
    stop();
}
END_TEST

/* --- who lies --- */

/* Words of somebody who is not waited for, and numbers out of range: nothing is believed. */
START_TEST(words_of_a_liar)
{
    union fo_body b;
    uint8_t msg[FO_MAX_RECORD];
    size_t n;

    begin((const char *[]){QUIET_RC, NULL});
    rig->hostile = 1;
    memset(&b, 0, sizeof(b));
    b.hang.flags = FO_HANG_WORD;
    b.hang.report.kind = PROBE_HANG_STOPPED;
    b.hang.report.root.id = 99;
    snprintf(b.hang.report.root.host, sizeof(b.hang.report.root.host), "innocent");
    for (int i = 0; i < 50; i++) {
        rig_inject(rig, 1, FO_MSG_HANG, &b);
        rig_run(rig, 200 * RIG_MS);
    }
    nothing_said();
    ck_assert_uint_eq(rig->side[1].inst->refused.bad_messages, 0);
    n = fo_pack(FO_MSG_HANG, &b, msg, sizeof(msg));
    ck_assert_uint_eq(n, FO_RECORD_HEAD + 118);
    msg[FO_RECORD_HEAD + 9] = PROBE_HANG_KINDS;
    rig_inject_bytes(rig, 1, msg, n);
    rig_run(rig, 10 * RIG_MS);
    ck_assert_uint_eq(rig->side[1].inst->refused.bad_messages, 1);
    b.hang.report.hops = PROBE_HANG_HOPS_MAX + 1;
    ck_assert_uint_eq(fo_pack(FO_MSG_HANG, &b, msg, sizeof(msg)), 0);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, sender_posts_nothing);
    tcase_add_test(t, receiver_posts_nothing);
    tcase_add_loop_test(t, half_of_a_group, 0, 4);
    tcase_add_test(t, sender_stopped);
    tcase_add_test(t, receiver_stopped);
    tcase_add_test(t, sender_stopped_unnamed);
    tcase_add_test(t, receiver_stopped_unnamed);
    tcase_add_loop_test(t, idle_unnamed, 0, 2);
    tcase_add_loop_test(t, path_silent, 0, 2);
    tcase_add_test(t, nic_fails);
    tcase_add_test(t, swallowed_behind_the_nic);
    tcase_add_test(t, rest_and_traffic);
    tcase_add_test(t, off_at_one_end);
    tcase_add_test(t, sooner);
    tcase_add_test(t, stopped_while_it_waits);
    tcase_add_test(t, traffic_without_a_gap);
    tcase_add_test(t, peer_closed);
    tcase_add_test(t, first_words_lost);
    tcase_add_test(t, words_of_a_liar);
}

int main(void)
{
    return suite_run("hang_conn", 120, NULL, teardown, add);
}
