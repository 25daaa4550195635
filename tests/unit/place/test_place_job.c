/* What the hub of a communicator does, step by step; test_place_job_runs has thousands of jobs. */
#include "tests/unit/place_job_rig.h"

START_TEST(it_waits_for_all)
{
    says(0);
    after(10 * conf.settle_ns);
    is(PLACE_JOB_GATHERING);
    ck_assert_int_eq(due(1), 0);
    all_say();
    is(PLACE_JOB_RESTING);
    ck_assert(place_job_plan(j) == NULL);
    after(conf.settle_ns);
    ck_assert_int_eq(place_job_plan(j)->verdict, PLACE_PLAN_STAY);
    is(PLACE_JOB_RESTING);
}
END_TEST

START_TEST(facts_are_confirmed)
{
    struct place_note n;

    says(2);
    ck_assert(place_job_due(j, 2, now, &n));
    ck_assert_int_eq(n.kind, PLACE_NOTE_HEARD);
    ck_assert_uint_eq(n.heard, 1);
    ck_assert(!place_job_due(j, 2, now, &n));
    facts[2].seq = 3;
    says(2);
    facts[2].seq = 2; /* late */
    facts[2].can = PLACE_CAN_NOT;
    says(2);
    ck_assert(place_job_due(j, 2, now, &n));
    ck_assert_uint_eq(n.heard, 3);
    facts[2].seq = 3;
    facts[2].can = PLACE_CAN;
    all_say();
    is(PLACE_JOB_RESTING);
}
END_TEST

START_TEST(what_no_rank_sends)
{
    struct place_note n = {.kind = PLACE_NOTE_FACTS};

    all_say();
    n.facts = facts[1];
    ck_assert_str_eq(place_job_take(j, 2, &n, now), "facts of another communicator");
    n.facts.ranks = 5;
    ck_assert_str_eq(place_job_take(j, 1, &n, now), "facts of another communicator");
    ck_assert_str_eq(place_job_take(j, RANKS, &n, now), "a rank that is none of this communicator");
    ck_assert_str_eq(place_job_take(j, -1, &n, now), "a rank that is none of this communicator");
    n.facts = facts[1];
    n.facts.host++;
    ck_assert_str_eq(place_job_take(j, 1, &n, now), "a rank that has moved to another host");
    n.kind = PLACE_NOTE_MAKE;
    ck_assert_str_eq(place_job_take(j, 1, &n, now), "a note that no rank sends");
    ck_assert(!place_job_due(j, RANKS, now, &n) && !place_job_due(j, -1, now, &n));
    place_job_lost(j, RANKS);
    place_job_lost(j, -1);
    after(conf.settle_ns);
    is(PLACE_JOB_RESTING);
}
END_TEST

START_TEST(it_makes_one_and_switches)
{
    all_say();
    to_making();
    ck_assert(place_job_wants_id(j));
    ck_assert_int_eq(due(0), 0);
    place_job_id(j, id, now);
    ck_assert(!place_job_wants_id(j));
    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_eq(due(r), 1);
        ck_assert_int_eq(sent.kind, PLACE_NOTE_MAKE);
        ck_assert_uint_eq(sent.make.comm, 1);
        ck_assert_mem_eq(sent.make.id, id, sizeof(id));
        ck_assert(sent.make.rank < RANKS);
        ck_assert(r != 1 || sent.make.rank == 0 || sent.make.rank == RANKS - 1);
        ck_assert_int_eq(due(r), 0);
    }
    now += conf.repeat_ns;
    ck_assert_int_eq(due(0), 1);
    ck_assert_int_eq(sent.kind, PLACE_NOTE_MAKE);
    has(0, 0, 1, PLACE_HELD_MAKING);
    now += conf.repeat_ns;
    ck_assert_int_eq(due(0), 0);
    for (int r = 0; r < RANKS; r++) {
        is(PLACE_JOB_MAKING);
        has(r, 0, 1, PLACE_HELD_READY);
    }
    is(PLACE_JOB_SWITCHING);
    ck_assert_uint_eq(place_job_now(j), 0);
    answers(PLACE_ANSWER, PLACE_YES);
    ck_assert_uint_eq(place_job_now(j), 1);
    is(PLACE_JOB_SWITCHING);
    answers(PLACE_DONE, PLACE_NONE);
    is(PLACE_JOB_RESTING);
    after(conf.settle_ns);
    ck_assert_int_eq(place_job_plan(j)->verdict, PLACE_PLAN_STAY);
    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_eq(due(r), 0);
    }
}
END_TEST

START_TEST(and_back_again)
{
    to_switching();
    answers(PLACE_ANSWER, PLACE_YES);
    answers(PLACE_DONE, PLACE_NONE);
    facts[1].seq++;
    facts[1].usable = 8;
    says(1);
    after(conf.settle_ns - 1);
    is(PLACE_JOB_RESTING);
    after(1);
    is(PLACE_JOB_SWITCHING);
    ck_assert_uint_eq(place_job_to(j), 0);
    answers(PLACE_ANSWER, PLACE_YES);
    answers(PLACE_DONE, PLACE_NONE);
    is(PLACE_JOB_RESTING);
    ck_assert_int_eq(due(2), 1);
    ck_assert_int_eq(sent.kind, PLACE_NOTE_DROP);
    ck_assert_uint_eq(sent.comm, 1);
    /* Nothing is made while one is there that nobody needs. */
    host_loses(2);
    after(conf.settle_ns);
    is(PLACE_JOB_RESTING);
    for (int r = 0; r < RANKS; r++) {
        has(r, 0, 0, PLACE_HELD_NOT);
    }
    promises(0, 2);
}
END_TEST

/* The one in use stays until its successor is agreed on by all. */
START_TEST(what_is_in_use_is_not_dropped)
{
    to_switching();
    answers(PLACE_ANSWER, PLACE_YES);
    answers(PLACE_DONE, PLACE_NONE);
    host_loses(3);
    host_loses(2);
    facts[1].seq++;
    facts[1].usable = 8;
    says(1);
    after(conf.settle_ns);
    promises(1, 2);
    place_job_id(j, id, now);
    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_eq(due(r), 1);
        ck_assert_int_eq(sent.kind, PLACE_NOTE_MAKE);
        has(r, 1, 2, PLACE_HELD_READY);
    }
    answers(PLACE_ANSWER, PLACE_YES);
    for (int r = 0; r < RANKS; r++) {
        now += conf.repeat_ns;
        ck_assert_int_eq(due(r), 1);
        ck_assert_int_eq(sent.kind, PLACE_NOTE_MSG);
    }
    now += conf.repeat_ns;
    answers(PLACE_DONE, PLACE_NONE);
    ck_assert_int_eq(due(0), 1);
    ck_assert_int_eq(sent.kind, PLACE_NOTE_DROP);
    ck_assert_uint_eq(sent.comm, 1);
}
END_TEST

START_TEST(one_that_fails_is_given_up)
{
    all_say();
    to_making();
    place_job_id(j, id, now);
    has(0, 0, 1, PLACE_HELD_READY);
    has(1, 0, 1, PLACE_HELD_FAILED);
    has(2, 0, 1, PLACE_HELD_MAKING);
    is(PLACE_JOB_MAKING); /* the others wait in NCCL for the last one */
    has(3, 0, 1, PLACE_HELD_MAKING);
    is(PLACE_JOB_DROPPING);
    ck_assert_str_eq(place_job_why(j), "a rank could not make the communicator");
    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_eq(due(r), 1);
        ck_assert_int_eq(sent.kind, PLACE_NOTE_DROP);
        is(PLACE_JOB_DROPPING);
        has(r, 0, 0, PLACE_HELD_NOT);
    }
    is(PLACE_JOB_RESTING);
    ck_assert_int_eq(due(2), 0);
    /* Again, behind a pause that grows. */
    after(conf.pause_ns - 1);
    is(PLACE_JOB_RESTING);
    after(1);
    promises(0, 2);
    ck_assert_str_eq(place_job_why(j), ""); /* the attempt has failed for no reason so far */
    place_job_id(j, NULL, now);
    is(PLACE_JOB_DROPPING);
    ck_assert_str_eq(place_job_why(j), "ncclGetUniqueId has failed");
    for (int r = 0; r < RANKS; r++) {
        has(r, 0, 0, PLACE_HELD_NOT);
    }
    is(PLACE_JOB_RESTING);
    after(2 * conf.pause_ns - 1);
    is(PLACE_JOB_RESTING);
    after(1);
    is(PLACE_JOB_ASKING);
}
END_TEST

/* Nobody enters what one rank may not enter. */
START_TEST(one_that_is_not_promised)
{
    all_say();
    host_loses(1);
    after(conf.settle_ns);
    is(PLACE_JOB_ASKING);
    has(0, 0, 1, PLACE_HELD_PROMISED);
    ck_assert(!place_job_wants_id(j));
    facts[2].seq++;
    facts[2].can = PLACE_CAN_NOT;
    says(2);
    is(PLACE_JOB_DROPPING);
    ck_assert_int_eq(due(0), 1);
    ck_assert_int_eq(sent.kind, PLACE_NOTE_DROP);
    ck_assert_int_eq(due(1), 0);
    has(0, 0, 0, PLACE_HELD_NOT);
    is(PLACE_JOB_OVER);
}
END_TEST

/* Who has entered would wait for ever for one that is told to stay out. */
START_TEST(what_is_promised_is_kept)
{
    all_say();
    to_making();
    place_job_id(j, id, now);
    has(0, 0, 1, PLACE_HELD_MAKING);
    facts[1].seq++;
    facts[1].can = PLACE_CAN_NOT;
    says(1);
    after(conf.make_ns);
    is(PLACE_JOB_MAKING);
    for (int r = 1; r < RANKS; r++) {
        ck_assert_int_eq(due(r), 1);
        ck_assert_int_eq(sent.kind, PLACE_NOTE_MAKE);
        has(r, 0, 1, PLACE_HELD_MAKING);
    }
    is(PLACE_JOB_DROPPING);
}
END_TEST

START_TEST(it_waits_until_nothing_changes)
{
    all_say();
    host_loses(1);
    after(conf.settle_ns - 1);
    host_loses(2);
    after(conf.settle_ns - 1);
    is(PLACE_JOB_RESTING);
    after(1);
    is(PLACE_JOB_ASKING);
}
END_TEST

/* A turn has the time of its beginning, and what has come since lies after it. */
START_TEST(what_comes_in_a_turn)
{
    all_say();
    now += 50;
    host_loses(1);
    place_job_tick(j, now - 1);
    is(PLACE_JOB_RESTING);
}
END_TEST

START_TEST(one_that_is_not_complete_in_time)
{
    all_say();
    to_making();
    place_job_id(j, id, now);
    for (int r = 0; r < RANKS; r++) {
        has(r, 0, 1, r < 3 ? PLACE_HELD_READY : PLACE_HELD_MAKING);
    }
    after(conf.make_ns - 1);
    is(PLACE_JOB_MAKING);
    after(1);
    is(PLACE_JOB_DROPPING);
    ck_assert_str_eq(place_job_why(j), "the communicator was not complete in time");
}
END_TEST

START_TEST(an_attempt_is_made_again)
{
    to_switching();
    for (int i = 1; i < PLACE_JOB_ATTEMPTS; i++) {
        after(conf.wait_ns);
        answers(PLACE_DONE, PLACE_NONE);
        is(PLACE_JOB_SWITCHING);
    }
    after(conf.wait_ns);
    answers(PLACE_DONE, PLACE_NONE);
    is(PLACE_JOB_DROPPING);
    ck_assert_str_eq(place_job_why(j), "ranks did not agree on an operation");
    ck_assert_uint_eq(place_job_now(j), 0);
}
END_TEST

START_TEST(who_only_advises)
{
    struct place_job_conf c = conf;

    c.only_advises = true;
    job_begin(&c);
    all_say();
    host_loses(1);
    after(conf.settle_ns);
    is(PLACE_JOB_RESTING);
    ck_assert_int_eq(place_job_plan(j)->verdict, PLACE_PLAN_OTHER);
    ck_assert(place_job_plan(j)->now_us > PLACE_PLAN_GAIN * place_job_plan(j)->best_us);
    ck_assert_uint_eq(place_job_to(j), 0);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, it_waits_for_all);
    tcase_add_test(t, facts_are_confirmed);
    tcase_add_test(t, what_no_rank_sends);
    tcase_add_test(t, it_makes_one_and_switches);
    tcase_add_test(t, and_back_again);
    tcase_add_test(t, what_is_in_use_is_not_dropped);
    tcase_add_test(t, one_that_fails_is_given_up);
    tcase_add_test(t, one_that_is_not_promised);
    tcase_add_test(t, what_is_promised_is_kept);
    tcase_add_test(t, it_waits_until_nothing_changes);
    tcase_add_test(t, what_comes_in_a_turn);
    tcase_add_test(t, one_that_is_not_complete_in_time);
    tcase_add_test(t, an_attempt_is_made_again);
    tcase_add_test(t, who_only_advises);
}

int main(void)
{
    return suite_run("place_job", 60, setup, teardown, add);
}
