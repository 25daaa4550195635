/* What the processes of a job tell each other about its NICs, and the operator's line (docs/design-probe.md): two processes, one connection. */
#include "probe/probe_news.h"
#include "probe/probe_verdict.h"
#include "r2_locate.h"
#include "r2_news.h"
#include "tests/unit/suite.h"
#include "tests/unit/watch_rig.h"

#define FAST QUIET_RC, "NCCL_R2_LOOK=60000"

static struct r2_inst *inst_of(int side)
{
    return rig->side[side].inst;
}

static const struct probe_word *known(int side, int of, int nic)
{
    struct probe_subject s = r2_subject_nic(inst_of(of), nic);

    return probe_news_find(inst_of(side)->news, &s);
}

static int knows(int side, int of, int nic, enum probe_blame blame)
{
    const struct probe_word *w = known(side, of, nic);

    return w && w->blame == blame;
}

static void blame(int side, int of, int nic, enum probe_blame what)
{
    struct probe_word w = {.subject = r2_subject_nic(inst_of(of), nic), .blame = (uint8_t)what, .confidence = 80, .host = "elsewhere", .nic = "nic"};

    rig_enter(&rig->side[side]);
    r2_news_tell(inst_of(side), &w);
    rig_kick(&rig->side[side]);
}

static int told_all(struct rig *r)
{
    for (int s = 0; s < 2; s++) {
        int i = 0;

        if (r->side[s].comm->peer->news_no >= 0 && probe_news_untold(r->side[s].inst->news, r->side[s].comm->peer->news_no, &i)) {
            return 0;
        }
    }
    return 1;
}

static int lose_first(struct rig *r, int from, int type, union fo_body *body)
{
    (void)from;
    (void)body;
    return !((type == FO_MSG_NEWS || type == FO_MSG_NEWS_OK) && r->filter_count++ < 5);
}

START_TEST(a_word_reaches_the_peer_once)
{
    unsigned sent;

    start(2, (const char *[]){FAST, NULL});
    wait_probes();
    blame(0, 0, 1, PROBE_BLAME_LOCAL_LINK);
    ck_assert(rig_until(rig, told_all, RIG_S));
    ck_assert(knows(1, 0, 1, PROBE_BLAME_LOCAL_LINK));
    sent = rig_count(rig, 0, FO_MSG_NEWS) + rig_count(rig, 1, FO_MSG_NEWS);
    ck_assert_uint_eq(sent, 1);
    blame(1, 0, 1, PROBE_BLAME_LOCAL_LINK); /* nothing new */
    rig_run(rig, 5 * RIG_S);
    ck_assert_uint_eq(rig_count(rig, 0, FO_MSG_NEWS) + rig_count(rig, 1, FO_MSG_NEWS), sent);
    stop();
}
END_TEST

START_TEST(lost_words_are_repeated)
{
    start(2, (const char *[]){FAST, NULL});
    wait_probes();
    rig->filter = lose_first;
    blame(1, 0, 0, PROBE_BLAME_LOCAL_NIC);
    ck_assert(rig_until(rig, told_all, 5 * RIG_S));
    ck_assert(knows(0, 0, 0, PROBE_BLAME_LOCAL_NIC));
    ck_assert_int_ge(rig->filter_count, 5);
    stop();
}
END_TEST

/* The NIC is in order as far as these two can tell: nothing moves, and connections that begin use it once it has answered. */
START_TEST(a_wrong_word_moves_nothing)
{
    unsigned before;

    start(2, (const char *[]){FAST, NULL});
    wait_probes();
    before = pair_of(0, 0)->answers;
    blame(1, 0, 0, PROBE_BLAME_LOCAL_NIC);
    rig_run(rig, 500 * RIG_MS);
    ck_assert_uint_gt(pair_of(0, 0)->answers, before); /* it was asked */
    ck_assert_uint_eq(rig->side[0].comm->link.drained, 0);
    messages(3, BIG);
    nothing_moved();
    stop();
}
END_TEST

/* The first message of a new connection does not have to find out what the job knows: its primary is silent, and blamed. */
START_TEST(a_new_connection_avoids_what_is_blamed)
{
    rig = rig_create(2, 0, (const char *[]){FAST, NULL});
    fire("h0:n0 blackhole");
    blame(0, 0, 0, PROBE_BLAME_LOCAL_LINK);
    rig_connect(rig, 0, 0);
    memset(in, 0, sizeof(in));
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
    ck_assert_uint_eq(rig->side[0].comm->link.drained, 1);
    recv_post(0, 100);
    send_post(0, 100);
    ck_assert_uint_lt(finish(1, 100, RIG_S), 5 * RIG_MS);
    ck_assert_uint_eq(rig->side[0].comm->link.path[0].cqes, 0);
    rig_run(rig, RIG_S);
    ck_assert(!ib_link_up(&rig->side[0].comm->link, 0)); /* asked, and found silent */
    stop();
}
END_TEST

/* The same without anything wrong: it is used as soon as it has answered. */
START_TEST(a_new_connection_returns_to_what_answers)
{
    rig = rig_create(2, 0, (const char *[]){FAST, NULL});
    blame(0, 0, 0, PROBE_BLAME_LOCAL_LINK);
    rig_connect(rig, 0, 0);
    memset(in, 0, sizeof(in));
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
    wait_probes();
    rig_run(rig, 200 * RIG_MS);
    ck_assert_uint_eq(rig->side[0].comm->link.drained, 0);
    messages(3, 100);
    ck_assert_uint_gt(rig->side[0].comm->link.path[0].cqes, 0);
    nothing_moved();
    stop();
}
END_TEST

static int line_is_there(struct rig *r)
{
    return strstr(r->last_warn[0], "R2-") || strstr(r->last_warn[1], "R2-");
}

/* @text at either end, and not @other. */
static void line_has(const char *text)
{
    ck_assert_msg(strstr(rig->last_warn[0], text) || strstr(rig->last_warn[1], text), "no '%s' in '%s' nor '%s'", text, rig->last_warn[0],
                  rig->last_warn[1]);
}

/* One message over NIC 0 after @fault; then the verdict. */
static void verdict_after(const char *fault, int nics, int crossrail)
{
    rig = rig_create(nics, crossrail, (const char *[]){FAST, "NCCL_R2_BACKUP_SCOPE=any", NULL});
    rig_connect(rig, 0, 0);
    memset(in, 0, sizeof(in));
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
    wait_probes();
    messages(3, BIG);
    fire(fault);
    recv_post(0, BIG);
    send_post(0, BIG);
    finish(1, BIG, 10 * RIG_S);
    ck_assert(rig_until(rig, line_is_there, 10 * RIG_S));
}

START_TEST(a_port_says_so_itself)
{
    verdict_after("h1:n0 down", 2, 0);
    line_has("R2-L01 host=host1 nic=fab0");
    ck_assert(rig_until(rig, told_all, RIG_S));
    ck_assert(knows(0, 1, 0, PROBE_BLAME_LOCAL_LINK));
    fire("h1:n0 up");
    rig_run(rig, 5 * RIG_S);
    ck_assert(knows(0, 1, 0, PROBE_BLAME_NONE) && knows(1, 1, 0, PROBE_BLAME_NONE));
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
    verdict_after("h1:n0 blackhole", 2, 1);
    line_has("R2-L02 host=host1 nic=fab0");
    ck_assert(rig_until(rig, told_all, RIG_S));
    ck_assert(knows(0, 1, 0, PROBE_BLAME_LOCAL_LINK) && knows(1, 1, 0, PROBE_BLAME_LOCAL_LINK));
    stop();
}
END_TEST

/* Two hosts, rails apart: nothing can tell the two cables and the way between them apart, and nobody pretends to. */
START_TEST(nothing_to_tell_it_by)
{
    verdict_after("h1:n0 blackhole", 2, 0);
    line_has("R2-F03");
    ck_assert_ptr_null(known(0, 1, 0));
    ck_assert_ptr_null(known(0, 0, 0));
    stop();
}
END_TEST

/* A queue pair alone is nobody's fault: said, but no warning, and no news. */
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

    start(2, (const char *[]){FAST, NULL});
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

static void add(TCase *t)
{
    tcase_add_test(t, a_word_reaches_the_peer_once);
    tcase_add_test(t, lost_words_are_repeated);
    tcase_add_test(t, a_wrong_word_moves_nothing);
    tcase_add_test(t, a_new_connection_avoids_what_is_blamed);
    tcase_add_test(t, a_new_connection_returns_to_what_answers);
    tcase_add_test(t, a_port_says_so_itself);
    tcase_add_test(t, a_hung_nic);
    tcase_add_test(t, a_silent_cable);
    tcase_add_test(t, nothing_to_tell_it_by);
    tcase_add_test(t, a_queue_pair_alone);
    tcase_add_test(t, a_stopped_process);
}

int main(void)
{
    return suite_run("news", 120, NULL, teardown, add);
}
