/* The rules of a switch, each by itself; test_place_runs has thousands of jobs. */
#include <check.h>
#include <string.h>

#include "place/place_leader.h"
#include "place/place_member.h"
#include "tests/unit/suite.h"

static struct place_member m;
static struct place_msg reply;
static struct place_leader l;
static struct place_rank rank[2];

static void setup(void)
{
    memset(&m, 0, sizeof(m));
    place_leader_init(&l, rank, 2, 100);
}

static bool take(enum place_kind kind, uint32_t attempt, uint32_t to, uint64_t at, bool ready)
{
    struct place_msg msg = {.kind = (uint8_t)kind, .attempt = attempt, .to = to, .at = at};

    memset(&reply, 0xa5, sizeof(reply));
    return place_member_take(&m, &msg, ready, &reply);
}

/* What it says to an attempt of operation @at. */
static enum place_answer answer_of(uint32_t attempt, uint32_t to, uint64_t at)
{
    ck_assert(take(PLACE_PREPARE, attempt, to, at, true));
    ck_assert_int_eq(reply.kind, PLACE_ANSWER);
    ck_assert_uint_eq(reply.attempt, attempt);
    ck_assert_uint_eq(reply.at, m.begun);
    return (enum place_answer)reply.answer;
}

static void begins_on(uint32_t comm)
{
    uint32_t use = 99;

    ck_assert_int_eq(place_member_begin(&m, &use), PLACE_USE);
    ck_assert_uint_eq(use, comm);
}

static void answers(int who, uint32_t attempt, enum place_answer answer, uint64_t begun)
{
    struct place_msg msg = {
        .kind = PLACE_ANSWER, .attempt = attempt, .answer = (uint8_t)answer, .at = begun};

    place_leader_take(&l, who, &msg);
}

static void confirms(int who, uint32_t attempt)
{
    struct place_msg msg = {.kind = PLACE_DONE, .attempt = attempt};

    place_leader_take(&l, who, &msg);
}

/* --- a member --- */

START_TEST(it_switches_at_the_operation)
{
    uint32_t use;

    begins_on(0);
    ck_assert_int_eq(answer_of(1, 7, 2), PLACE_YES);
    begins_on(0);
    ck_assert_int_eq(place_member_begin(&m, &use), PLACE_WAIT);
    ck_assert(!place_member_is_idle(&m, 0) && !place_member_is_idle(&m, 7));
    ck_assert(take(PLACE_COMMIT, 1, 7, 2, true));
    ck_assert_int_eq(reply.kind, PLACE_DONE);
    begins_on(7);
    begins_on(7);
    ck_assert(place_member_is_idle(&m, 0) && !place_member_is_idle(&m, 7));
}
END_TEST

START_TEST(or_not_at_all)
{
    uint32_t use;

    ck_assert_int_eq(answer_of(1, 7, 0), PLACE_YES);
    ck_assert_int_eq(place_member_begin(&m, &use), PLACE_WAIT);
    ck_assert(take(PLACE_ABORT, 1, 7, 0, true));
    begins_on(0);
    ck_assert(place_member_is_idle(&m, 7));
}
END_TEST

START_TEST(what_it_cannot_do)
{
    begins_on(0);
    begins_on(0);
    ck_assert_int_eq(answer_of(1, 7, 1), PLACE_LATE);
    ck_assert(take(PLACE_PREPARE, 2, 7, 9, false));
    ck_assert_int_eq(reply.answer, PLACE_NOT_READY);
    place_member_never(&m);
    ck_assert_int_eq(answer_of(3, 7, 9), PLACE_NEVER);
    ck_assert_int_eq(m.state, PLACE_FREE);
    begins_on(0);
}
END_TEST

/* It is repeated, whatever has become of the reason. */
START_TEST(an_answer_stands)
{
    begins_on(0);
    ck_assert_int_eq(answer_of(1, 7, 1), PLACE_YES);
    place_member_never(&m);
    ck_assert_int_eq(answer_of(1, 7, 1), PLACE_YES);
    ck_assert(take(PLACE_ABORT, 1, 7, 1, true));
    begins_on(0);
    ck_assert_int_eq(answer_of(2, 7, 9), PLACE_NEVER);
    ck_assert_int_eq(answer_of(2, 7, 9), PLACE_NEVER);
}
END_TEST

/* A graph that was captured uses the communicator of then, whatever is decided later. */
START_TEST(what_a_graph_may_use_stays)
{
    for (int decided = 0; decided < 2; decided++) {
        setup();
        begins_on(0);
        ck_assert_int_eq(answer_of(1, 7, 1), PLACE_YES);
        if (decided) {
            ck_assert(take(PLACE_COMMIT, 1, 7, 1, true));
        }
        ck_assert(place_member_never(&m)); /* open */
        ck_assert(take(PLACE_COMMIT, 1, 7, 1, true));
        begins_on(7);
        ck_assert(!place_member_is_idle(&m, 0) && !place_member_is_idle(&m, 7));
        ck_assert(!place_member_never(&m));
    }
    setup();
    ck_assert_int_eq(answer_of(1, 7, 0), PLACE_YES);
    ck_assert(take(PLACE_COMMIT, 1, 7, 0, true));
    begins_on(7);
    ck_assert(!place_member_never(&m));
    ck_assert(place_member_is_idle(&m, 0)); /* left before */
}
END_TEST

START_TEST(what_nccl_refuses_has_not_begun)
{
    begins_on(0);
    begins_on(0);
    begins_on(0);
    ck_assert(place_member_take_back(&m, 2));
    ck_assert_int_eq(answer_of(1, 7, 1), PLACE_YES);
    ck_assert(take(PLACE_COMMIT, 1, 7, 1, true));
    begins_on(7);
    ck_assert(place_member_take_back(&m, 1));
    begins_on(7);
    ck_assert_uint_eq(m.begun, 2);
}
END_TEST

/* What went to the communicator before cannot be given to it again: the next one would differ. */
START_TEST(not_across_a_switch)
{
    uint32_t use;

    begins_on(0);
    ck_assert_int_eq(answer_of(1, 7, 1), PLACE_YES);
    ck_assert(take(PLACE_COMMIT, 1, 7, 1, true));
    begins_on(7);
    ck_assert(!place_member_take_back(&m, 2));
    ck_assert_int_eq(m.state, PLACE_ENDED);
    ck_assert_int_eq(place_member_begin(&m, &use), PLACE_FAIL);
    setup();
    ck_assert(!place_member_take_back(&m, 1)); /* nothing has begun */
}
END_TEST

START_TEST(another_waits_for_the_one_before)
{
    ck_assert_int_eq(answer_of(1, 7, 1), PLACE_YES);
    ck_assert_int_eq(answer_of(2, 8, 5), PLACE_BEHIND);
    ck_assert(take(PLACE_COMMIT, 1, 7, 1, true));
    ck_assert_int_eq(answer_of(2, 8, 5), PLACE_BEHIND);
    place_member_never(&m); /* and that is for ever */
    ck_assert_int_eq(answer_of(2, 8, 5), PLACE_NEVER);
    m.never = false;
    begins_on(0);
    begins_on(7);
    ck_assert_int_eq(answer_of(2, 8, 5), PLACE_YES);
}
END_TEST

/* What comes late, twice, or before what it belongs to. */
START_TEST(order_of_messages)
{
    ck_assert(take(PLACE_ABORT, 3, 7, 9, true)); /* overtook the offer */
    ck_assert_int_ne(answer_of(3, 7, 9), PLACE_YES);
    ck_assert(!take(PLACE_PREPARE, 2, 7, 9, true));
    ck_assert_int_eq(answer_of(4, 7, 0), PLACE_YES);
    ck_assert(take(PLACE_ABORT, 3, 7, 9, true));
    ck_assert_int_eq(m.state, PLACE_PREPARED);
    ck_assert(take(PLACE_COMMIT, 4, 7, 0, true));
    ck_assert(take(PLACE_COMMIT, 4, 7, 0, true));
    begins_on(7);
    ck_assert(take(PLACE_COMMIT, 4, 7, 0, true));
    ck_assert_int_eq(m.state, PLACE_FREE);
    begins_on(7);
}
END_TEST

START_TEST(what_no_leader_sends)
{
    ck_assert(!take(PLACE_PREPARE, 0, 7, 9, true));
    ck_assert(!take(PLACE_COMMIT, 1, 7, 9, true)); /* never agreed to */
    begins_on(0);
    ck_assert_int_eq(answer_of(1, 7, 0), PLACE_LATE);
    ck_assert(!take(PLACE_COMMIT, 1, 7, 0, true));
    ck_assert_int_eq(answer_of(2, 7, 9), PLACE_YES);
    ck_assert(!take(PLACE_ABORT, 3, 7, 9, true));   /* 2 is not decided */
    ck_assert(!take(PLACE_PREPARE, 2, 8, 9, true)); /* agreed to for 7 */
    ck_assert(!take(PLACE_PREPARE, 2, 7, 8, true));
    ck_assert(!take(PLACE_COMMIT, 2, 8, 9, true));
    ck_assert(!take(PLACE_ANSWER, 2, 7, 9, true));
    ck_assert(!take((enum place_kind)99, 2, 7, 9, true));
    ck_assert_int_eq(m.state, PLACE_PREPARED);
    ck_assert(take(PLACE_ABORT, 2, 7, 9, true));
}
END_TEST

START_TEST(a_leader_that_is_lost)
{
    uint32_t use;

    place_member_lost(&m);
    begins_on(0); /* nothing was open */
    setup();
    ck_assert_int_eq(answer_of(1, 7, 1), PLACE_YES);
    place_member_lost(&m);
    begins_on(0);
    ck_assert_int_eq(place_member_begin(&m, &use), PLACE_FAIL);
    ck_assert_uint_eq(m.begun, 1);
    setup();
    ck_assert_int_eq(answer_of(1, 7, 1), PLACE_YES);
    ck_assert(take(PLACE_COMMIT, 1, 7, 1, true));
    place_member_lost(&m); /* decided is decided */
    begins_on(0);
    begins_on(7);
}
END_TEST

START_TEST(an_abort_at_the_gate)
{
    uint32_t use;

    ck_assert_int_eq(answer_of(1, 7, 0), PLACE_YES);
    ck_assert_int_eq(place_member_begin(&m, &use), PLACE_WAIT);
    place_member_end(&m);
    place_member_end(&m);
    ck_assert_int_eq(place_member_begin(&m, &use), PLACE_FAIL);
    ck_assert(place_member_is_idle(&m, 0) && place_member_is_idle(&m, 7));
    ck_assert_int_eq(answer_of(1, 7, 0), PLACE_YES); /* as it was said */
}
END_TEST

/* --- the leader --- */

START_TEST(all_or_none)
{
    struct place_msg msg;

    ck_assert(!place_leader_begin(&l, 0, 0, 0));
    ck_assert(!place_leader_due(&l, 0, &msg));
    ck_assert(place_leader_begin(&l, 3, 0, 0));
    ck_assert(!place_leader_begin(&l, 4, 0, 0));
    ck_assert(place_leader_due(&l, 0, &msg));
    ck_assert_int_eq(msg.kind, PLACE_PREPARE);
    ck_assert_uint_eq(msg.at, PLACE_MARGIN);
    answers(0, 1, PLACE_YES, 1);
    ck_assert(!place_leader_due(&l, 0, &msg));
    confirms(0, 1);
    confirms(1, 1); /* nothing is decided */
    ck_assert_int_eq(l.state, PLACE_PREPARING);
    answers(1, 1, PLACE_YES, 2);
    ck_assert_int_eq(l.state, PLACE_COMMITTING);
    place_leader_tick(&l, 1000);
    answers(1, 1, PLACE_LATE, 9);
    ck_assert_int_eq(l.state, PLACE_COMMITTING);
    confirms(0, 1);
    ck_assert(!place_leader_due(&l, 0, &msg) && place_leader_due(&l, 1, &msg));
    ck_assert_int_eq(msg.kind, PLACE_COMMIT);
    confirms(1, 1);
    ck_assert_int_eq(l.state, PLACE_IDLE);
    ck_assert_uint_eq(l.now, 3);
    ck_assert(!place_leader_begin(&l, 3, 0, 0));
}
END_TEST

START_TEST(one_no_is_enough)
{
    struct place_msg msg;

    ck_assert(place_leader_begin(&l, 3, 0, 0));
    answers(0, 1, PLACE_YES, 5);
    answers(0, 1, PLACE_LATE, 5); /* it has said yes, and what was sent by then counts */
    ck_assert_int_eq(l.state, PLACE_PREPARING);
    answers(1, 1, PLACE_LATE, 40);
    ck_assert_int_eq(l.state, PLACE_ABORTING);
    ck_assert(place_leader_due(&l, 0, &msg));
    ck_assert_int_eq(msg.kind, PLACE_ABORT);
    confirms(0, 1);
    confirms(0, 1);
    ck_assert_int_eq(l.state, PLACE_ABORTING);
    confirms(1, 1);
    ck_assert_uint_eq(l.now, 0);
    ck_assert(place_leader_begin(&l, 3, 0, 0));
    ck_assert_uint_eq(l.at, 40 + 2 * PLACE_MARGIN);
}
END_TEST

/* What this process's own rank has begun counts, and the margin goes back. */
START_TEST(how_far_ahead)
{
    static const uint32_t margin[] = {1, 2, 4, 8, 8, 4, 2, 1};

    for (unsigned i = 0; i < sizeof(margin) / sizeof(margin[0]); i++) {
        ck_assert(place_leader_begin(&l, 1 + i, 1000 * (1 + i), 0));
        ck_assert_uint_eq(l.at, 1000 * (1 + i) + PLACE_MARGIN * margin[i]);
        answers(0, l.attempt, i < 4 ? PLACE_LATE : PLACE_YES, 7);
        answers(1, l.attempt, PLACE_YES, 7);
        confirms(0, l.attempt);
        confirms(1, l.attempt);
        l.margin = i == 3 ? PLACE_MARGIN * 8 : l.margin;
    }
}
END_TEST

START_TEST(answers_that_do_not_count)
{
    ck_assert(place_leader_begin(&l, 3, 0, 50));
    answers(-1, 1, PLACE_NEVER, 0);
    answers(2, 1, PLACE_NEVER, 0);
    answers(0, 2, PLACE_NEVER, 0);
    answers(0, 1, PLACE_NONE, 0);
    answers(0, 1, PLACE_ANSWERS, 0);
    ck_assert_int_eq(l.state, PLACE_PREPARING);
    place_leader_tick(&l, 0); /* a turn that began before the attempt did */
    ck_assert_int_eq(l.state, PLACE_PREPARING);
    place_leader_tick(&l, 149);
    ck_assert_int_eq(l.state, PLACE_PREPARING);
    place_leader_tick(&l, 150);
    ck_assert_int_eq(l.state, PLACE_ABORTING);
    ck_assert_int_eq(l.why, PLACE_NONE);
}
END_TEST

START_TEST(never_is_for_ever)
{
    ck_assert(place_leader_begin(&l, 3, 0, 0));
    answers(0, 1, PLACE_NEVER, 0);
    confirms(0, 1);
    confirms(1, 1);
    ck_assert_int_eq(l.state, PLACE_IDLE);
    ck_assert(!place_leader_begin(&l, 3, 0, 0));
}
END_TEST

START_TEST(a_rank_that_is_gone)
{
    struct place_msg msg;

    ck_assert(place_leader_begin(&l, 3, 0, 0));
    answers(0, 1, PLACE_YES, 0);
    place_leader_lost(&l, 7); /* no such rank; but something is wrong */
    ck_assert(l.never);
    place_leader_lost(&l, 1);
    ck_assert_int_eq(l.state, PLACE_ABORTING);
    confirms(0, 1);
    ck_assert_int_eq(l.state, PLACE_IDLE);
    ck_assert(!place_leader_begin(&l, 3, 0, 0));
    ck_assert(!place_leader_due(&l, 0, &msg) && !place_leader_due(&l, 2, &msg));
    ck_assert(place_leader_due(&l, 1, &msg)); /* which may be there all the same, and wait */
    ck_assert_int_eq(msg.kind, PLACE_ABORT);
    confirms(1, 1);
    ck_assert(!place_leader_due(&l, 1, &msg));
}
END_TEST

START_TEST(no_other_moves)
{
    static const struct {
        uint8_t from, to;
    } member[] = {{PLACE_FREE, PLACE_COMMITTED},     {PLACE_FREE, PLACE_LOST},
                  {PLACE_COMMITTED, PLACE_PREPARED}, {PLACE_COMMITTED, PLACE_LOST},
                  {PLACE_LOST, PLACE_FREE},          {PLACE_ENDED, PLACE_FREE},
                  {PLACE_FREE, PLACE_FREE},          {PLACE_FREE, PLACE_MEMBER_STATES},
                  {PLACE_MEMBER_STATES, PLACE_FREE}},
      leader[] = {{PLACE_IDLE, PLACE_COMMITTING},     {PLACE_PREPARING, PLACE_IDLE},
                  {PLACE_COMMITTING, PLACE_ABORTING}, {PLACE_ABORTING, PLACE_COMMITTING},
                  {PLACE_IDLE, PLACE_LEADER_STATES},  {PLACE_LEADER_STATES, PLACE_IDLE}};

    for (size_t i = 0; i < sizeof(member) / sizeof(member[0]); i++) {
        m.state = member[i].from;
        ck_assert(!place_member_move(&m, (enum place_member_state)member[i].to));
        ck_assert_int_eq(m.state, member[i].from);
    }
    for (size_t i = 0; i < sizeof(leader) / sizeof(leader[0]); i++) {
        l.state = leader[i].from;
        ck_assert(!place_leader_move(&l, (enum place_leader_state)leader[i].to));
        ck_assert_int_eq(l.state, leader[i].from);
    }
}
END_TEST

START_TEST(names)
{
    ck_assert_str_eq(place_kind_name(PLACE_DONE), "done");
    ck_assert_str_eq(place_kind_name(PLACE_KINDS), "?");
    ck_assert_str_eq(place_answer_name(PLACE_NEVER), "never");
    ck_assert_str_eq(place_answer_name(PLACE_ANSWERS), "?");
    ck_assert_str_eq(place_member_state_name(PLACE_ENDED), "ended");
    ck_assert_str_eq(place_member_state_name(PLACE_MEMBER_STATES), "?");
    ck_assert_str_eq(place_leader_state_name(PLACE_ABORTING), "aborting");
    ck_assert_str_eq(place_leader_state_name(PLACE_LEADER_STATES), "?");
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, it_switches_at_the_operation);
    tcase_add_test(t, or_not_at_all);
    tcase_add_test(t, what_it_cannot_do);
    tcase_add_test(t, an_answer_stands);
    tcase_add_test(t, what_a_graph_may_use_stays);
    tcase_add_test(t, what_nccl_refuses_has_not_begun);
    tcase_add_test(t, not_across_a_switch);
    tcase_add_test(t, another_waits_for_the_one_before);
    tcase_add_test(t, order_of_messages);
    tcase_add_test(t, what_no_leader_sends);
    tcase_add_test(t, a_leader_that_is_lost);
    tcase_add_test(t, an_abort_at_the_gate);
    tcase_add_test(t, all_or_none);
    tcase_add_test(t, one_no_is_enough);
    tcase_add_test(t, how_far_ahead);
    tcase_add_test(t, answers_that_do_not_count);
    tcase_add_test(t, never_is_for_ever);
    tcase_add_test(t, a_rank_that_is_gone);
    tcase_add_test(t, no_other_moves);
    tcase_add_test(t, names);
}

int main(void)
{
    return suite_run("place", 60, setup, NULL, add);
}
