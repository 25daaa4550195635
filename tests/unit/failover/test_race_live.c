/* What of a dead incarnation may still reach R, as S says it (P35): R holds back the done of that,
 * and of nothing else. */
#include "tests/unit/race_rig.h"

#define TIMES "NCCL_R2_T_PACKET=500", "NCCL_R2_T_DEAD=1000"

static const struct ib_rmsg *message(uint64_t seq)
{
    return &comm(1)->rx->msg[seq % R2_LEDGER_WINDOW];
}

static int soft_path;

static int is_soft(struct rig *r)
{
    return path_at(1, soft_path)->soft;
}

static void wait_soft(int p)
{
    soft_path = p;
    ck_assert_msg(rig_until(rig, is_soft, 100 * RIG_MS), "path %d is not closed softly", p);
}

static int told_path;

static int is_told(struct rig *r)
{
    return path_at(1, told_path)->live_known;
}

static void wait_told(int p, uint64_t limit)
{
    told_path = p;
    ck_assert_msg(rig_until(rig, is_told, limit), "S does not say what path %d carries", p);
}

/*
 * Path 1 carries nothing. Its NIC dies, at R or at both ends, and R cannot fence it. Neither what
 * is open then nor what is opened before S is heard waits for anything.
 */
START_TEST(nothing_waits_for_a_path_that_carried_nothing)
{
    static const char *const fault[] = {"h1:n1 fatal", "*:n1 fatal", "h1:n1 hang", "*:n1 hang"};

    start(2, (const char *[]){TIMES, NULL});
    messages(4, 1000);
    recv_burst(2, 5000);
    fire(fault[_i]);
    if (_i >= 2) {
        give_up_path(1, 1);
    }
    wait_soft(1);
    recv_post(2, 5000);
    send_burst(3);
    finish(3, 5 * RIG_MS);
    ck_assert(path_at(1, 1)->soft); /* the time of its hold goes on */
    stop();
}
END_TEST

/* Of two open messages the incarnation carries one: the other one is not held, before its CTS is
 * answered or after. */
START_TEST(only_what_the_incarnation_carries_is_held)
{
    start(2, (const char *[]){TIMES, NULL});
    messages(4, 1000);
    recv_burst(2, 5000);
    hold_completions(1, 0);
    send_post(0);
    rig_run(rig, 100 * RIG_US);
    give_up_path(1, 0);
    wait_soft(0);
    wait_told(0, RIG_MS);
    ck_assert_uint_eq(message(4)->quarantined_by, 1);
    ck_assert_uint_eq(message(5)->quarantined_by, 0);
    send_post(1);
    wait_acked(6, 100 * RIG_MS);
    ck_assert(!rig_done(rig, 1, slot[0].r_op));
    show_completions();
    finish(2, 600 * RIG_MS);
    stop();
}
END_TEST

/* S is the first to give the path up: what it says is known when R closes the incarnation, and
 * nothing is ever held. */
START_TEST(said_before_the_close)
{
    start(2, (const char *[]){TIMES, NULL});
    messages(4, 1000);
    recv_burst(2, 5000);
    hold_completions(1, _i ? 0 : 1);
    send_post(0);
    rig_run(rig, 100 * RIG_US);
    give_up_path(0, _i ? 0 : 1);
    wait_told(_i ? 0 : 1, 5 * RIG_MS);
    ck_assert_int_eq(path_at(1, _i ? 0 : 1)->state, FO_DOWN);
    wait_soft(_i ? 0 : 1);
    ck_assert_uint_eq(message(4)->quarantined_by, _i ? 1 : 0);
    ck_assert_uint_eq(message(5)->quarantined_by, 0);
    send_post(1);
    wait_acked(6, 100 * RIG_MS);
    ck_assert_int_eq(rig_done(rig, 1, slot[1].r_op), !_i);
    show_completions();
    finish(2, 600 * RIG_MS);
    stop();
}
END_TEST

/* S's words are lost, and its own fence does not end: each FENCED that R repeats is answered, and
 * not with a question. */
static unsigned lost, lose;

static int lose_words(struct rig *r, int from, int type, union fo_body *body)
{
    if (from == 0 && (type == FO_MSG_DOWN || type == FO_MSG_SETTLED) && lost < lose) {
        lost++;
        return 0;
    }
    return 1;
}

START_TEST(said_again_until_it_is_heard)
{
    unsigned fenced;

    start(2, (const char *[]){TIMES, "0:NCCL_R2_T_FENCE=400", NULL});
    messages(4, 1000);
    recv_burst(1, 5000);
    lost = 0;
    lose = 4;
    rig->filter = lose_words;
    fire("*:n1 hang");
    give_up_path(1, 1);
    wait_soft(1);
    ck_assert_uint_eq(message(4)->quarantined_by, 2);
    wait_told(1, 200 * RIG_MS);
    ck_assert_uint_eq(lost, 4);
    ck_assert_int_eq(path_at(0, 1)->state, FO_DOWN);
    ck_assert_uint_eq(message(4)->quarantined_by, 0);
    send_post(0);
    finish(1, 5 * RIG_MS);
    fenced = rig_count(rig, 1, FO_MSG_FENCED);
    rig_run(rig, 100 * RIG_MS);
    ck_assert_uint_le(rig_count(rig, 1, FO_MSG_FENCED) - fenced, 10);
    stop();
}
END_TEST

/*
 * S's word comes when what the incarnation carried has been posted again and has arrived: the first
 * copy may land all the same, so the word is of the moment at which S stopped, and R compares it
 * with its ledger of the close.
 */
START_TEST(what_is_posted_again_stays_held)
{
    uint64_t told;

    start(2, (const char *[]){TIMES, NULL});
    messages(4, 1000);
    recv_burst(1, 5000);
    hold_completions(1, 0);
    send_post(0);
    rig_run(rig, 100 * RIG_US);
    lost = 0;
    lose = UINT32_MAX;
    rig->filter = lose_words;
    give_up_path(1, 0);
    wait_acked(5, 200 * RIG_MS);
    ck_assert_uint_eq(retransmitted(), 1);
    ck_assert_uint_gt(lost, 0);
    ck_assert(!path_at(1, 0)->live_known);
    lose = 0;
    wait_told(0, 200 * RIG_MS);
    told = rig_now(rig);
    ck_assert_uint_eq(path_at(0, 0)->live.n, 1);
    ck_assert_uint_eq(message(4)->quarantined_by, 1);
    finish(1, 600 * RIG_MS);
    ck_assert_uint_ge(rig_now(rig) - told, 500 * RIG_MS);
    show_completions();
    stop();
}
END_TEST

/*
 * A message in two parts: that of the dead incarnation is there when R closes it, the other one is
 * slow. S cannot know which of them R has, and names the first one: it is not held for it, whether
 * S speaks before the close or after.
 */
START_TEST(what_has_arrived_is_not_held)
{
    start(2, (const char *[]){TIMES, "NCCL_R2_SPREAD=on", "NCCL_R2_CUT_MIN=128", NULL});
    messages(4, 1000);
    recv_burst(1, 5000);
    fire("h0:n1 delay 30ms");
    send_post(0);
    rig_run(rig, 100 * RIG_US);
    ck_assert_uint_eq(comm(0)->tx->msg[4].nparts, 2);
    ck_assert_uint_eq(comm(1)->rx->ledger.entry[4].mask,
                      1u << (comm(0)->tx->msg[4].part[0].path != 0));
    hold_completions(1, 0);
    give_up_path(_i, 0);
    wait_soft(0);
    wait_told(0, RIG_MS);
    ck_assert_uint_eq(path_at(0, 0)->live.n, 1);
    ck_assert_uint_eq(message(4)->quarantined_by, 0);
    ck_assert(!rig_done(rig, 1, slot[0].r_op));
    finish(1, 60 * RIG_MS);
    show_completions();
    stop();
}
END_TEST

static uint64_t deny_seq;

/* S's word as a sender would say it that does not know what it has posted. */
static int deny(struct rig *r, int from, int type, union fo_body *body)
{
    struct r2_parts *live = type == FO_MSG_DOWN ? &body->down.live : &body->settled.live;

    if (from == 0 && (type == FO_MSG_DOWN || type == FO_MSG_SETTLED) && live->n) {
        ck_assert_uint_eq(live->base, deny_seq);
        live->n = 0;
    }
    return 1;
}

static int r_failed(struct rig *r)
{
    return comm(1)->fo.error != R2_OK;
}

/* What arrives has to be of what S has said: else its word on everything else is worth nothing. */
START_TEST(an_arrival_that_was_denied)
{
    start(2, (const char *[]){TIMES, NULL});
    messages(4, 1000);
    rig_run(rig, RIG_MS);
    recv_burst(1, 5000);
    rig->side[1].asleep = 1;
    send_burst(1);
    rig_run(rig, 100 * RIG_US);
    ck_assert_uint_eq(slot[0].landed, 5000);
    ck_assert_uint_eq(acked(), 4); /* not polled */
    deny_seq = 4;
    rig->filter = _i ? deny : NULL;
    give_up_path(0, 0);
    if (!_i) {
        wait_acked(5, 100 * RIG_MS);
        rig->side[1].asleep = 0;
        finish(1, RIG_MS);
        stop();
        return;
    }
    ck_assert(rig_until(rig, r_failed, 100 * RIG_MS));
    ck_assert_uint_eq(comm(1)->rx->count.bad_arrivals, 1);
    ck_assert_uint_eq(acked(), 4);
    ck_assert_int_eq(comm(1)->fo.error, R2_ERR_PEER);
    ck_assert_msg(strstr(comm(1)->fo.why, "carries none of it") != NULL, "%s", comm(1)->fo.why);
    rig->hostile = 1;
}
END_TEST

/* Memory of a GPU and a hard fence: what was not carried need not cross PCIe (P17). */
START_TEST(gpu_memory_does_not_wait_for_an_idle_path)
{
    uint64_t closed;

    start(2, (const char *[]){TIMES, "NCCL_R2_FLUSH=always", "NCCL_R2_T_PCIE=200", NULL});
    messages(4, 1000);
    recv_burst(1, 5000);
    give_up_path(_i, 1);
    wait_settled(1);
    closed = rig_now(rig);
    ck_assert(!path_at(1, 1)->soft);
    ck_assert_uint_eq(message(4)->quarantined_by, 0);
    send_post(0);
    finish(1, 5 * RIG_MS);
    ck_assert_uint_le(rig_now(rig) - closed, 5 * RIG_MS);
    stop();
}
END_TEST

/* An OPEN of an incarnation comes again when it has stood, carried data and died: the answer has
 * S's word in it, too. */
START_TEST(refused_late_says_the_same)
{
    union fo_body open;

    start(2, (const char *[]){"NCCL_R2_T_PACKET=20", "NCCL_R2_T_DEAD=1000", "NCCL_R2_T_RETURN=20",
                              NULL});
    messages(4, 1000);
    give_up_path(0, 0);
    wait_returned(0, 2);
    messages(4, 1000);
    memset(&open, 0, sizeof(open));
    for (unsigned i = 0; i < rig->sent_count; i++) {
        open = rig->sent[i].type == FO_MSG_OPEN ? rig->sent[i].body : open;
    }
    ck_assert_uint_eq(open.open.inc, 2);
    recv_burst(1, 5000);
    hold_completions(1, 0);
    send_post(0);
    rig_run(rig, 100 * RIG_US);
    lost = 0;
    lose = UINT32_MAX;
    rig->filter = lose_words;
    give_up_path(1, 0);
    wait_acked(posted, 200 * RIG_MS); /* posted again: S's fence has ended */
    ck_assert_uint_eq(retransmitted(), 1);
    ck_assert(!path_at(1, 0)->live_known);
    lose = lost;
    rig_inject(rig, 0, FO_MSG_OPEN, &open);
    wait_told(0, RIG_MS);
    ck_assert_uint_eq(message(posted - 1)->quarantined_by, 1);
    show_completions();
    finish(1, RIG_S);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, nothing_waits_for_a_path_that_carried_nothing, 0, 4);
    tcase_add_test(t, only_what_the_incarnation_carries_is_held);
    tcase_add_loop_test(t, said_before_the_close, 0, 2);
    tcase_add_test(t, said_again_until_it_is_heard);
    tcase_add_test(t, what_is_posted_again_stays_held);
    tcase_add_loop_test(t, what_has_arrived_is_not_held, 0, 2);
    tcase_add_loop_test(t, an_arrival_that_was_denied, 0, 2);
    tcase_add_loop_test(t, gpu_memory_does_not_wait_for_an_idle_path, 0, 2);
    tcase_add_test(t, refused_late_says_the_same);
}

int main(void)
{
    return run_suite("races: what a dead incarnation may still bring", add);
}
