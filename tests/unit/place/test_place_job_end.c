/* Ranks that cannot, leave, or are lost, and what the hub gives up. */
#include "tests/unit/place_job_rig.h"

START_TEST(a_rank_that_cannot)
{
    all_say();
    facts[3].seq++;
    facts[3].can = PLACE_CAN_NOT;
    says(3);
    is(PLACE_JOB_OVER);
    ck_assert_str_eq(place_job_why(j), "a rank cannot switch");
    host_loses(1);
    after(conf.settle_ns);
    is(PLACE_JOB_OVER);
}
END_TEST

/* Nothing is owed to it once its last facts are confirmed. */
START_TEST(a_rank_that_leaves)
{
    struct place_note n;

    all_say();
    due(3);
    has(3, 0, 9, PLACE_HELD_READY);
    facts[3].seq++;
    facts[3].can = PLACE_HAS_LEFT;
    says(3);
    is(PLACE_JOB_OVER);
    ck_assert_str_eq(place_job_why(j), "a rank has left");
    due(3);
    ck_assert(!place_job_has_left(j, 3));
    has(3, 0, 0, PLACE_HELD_NOT);
    ck_assert(!place_job_has_left(j, 3));
    ck_assert(place_job_due(j, 3, now, &n));
    ck_assert_int_eq(n.kind, PLACE_NOTE_HEARD);
    ck_assert(place_job_has_left(j, 3) && !place_job_has_left(j, 2));
}
END_TEST

/* One that says so in an answer. */
START_TEST(a_rank_that_switches_no_more)
{
    to_switching();
    answers(PLACE_ANSWER, PLACE_NEVER); /* of the first one; what follows is stale */
    now += conf.repeat_ns;
    answers(PLACE_DONE, PLACE_NONE);
    is(PLACE_JOB_DROPPING);
    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_eq(due(r), 1);
        ck_assert_int_eq(sent.kind, PLACE_NOTE_DROP);
        has(r, 0, 0, PLACE_HELD_NOT);
    }
    is(PLACE_JOB_OVER);
    ck_assert_str_eq(place_job_why(j), "a rank switches no more");
}
END_TEST

START_TEST(a_rank_that_is_lost)
{
    all_say();
    to_making();
    place_job_id(j, id, now);
    place_job_lost(j, 2);
    place_job_tick(j, now);
    is(PLACE_JOB_DROPPING);
    ck_assert_str_eq(place_job_why(j), "a rank is lost");
    for (int r = 0; r < RANKS; r++) {
        is(PLACE_JOB_DROPPING);
        if (r != 2) { /* which still has it, as far as is known */
            has(r, 0, 0, PLACE_HELD_NOT);
        }
    }
    is(PLACE_JOB_OVER);
}
END_TEST

/* What is decided is told all the same. */
START_TEST(lost_behind_the_decision)
{
    to_switching();
    answers(PLACE_ANSWER, PLACE_YES);
    place_job_lost(j, 2);
    for (int r = 0; r < RANKS; r++) {
        struct place_note n = {.kind = PLACE_NOTE_MSG};

        now += conf.repeat_ns;
        ck_assert_int_eq(due(r), 1);
        ck_assert_int_eq(sent.msg.kind, PLACE_COMMIT);
        n.msg = sent.msg;
        n.msg.kind = PLACE_DONE;
        if (r != 2) {
            place_job_take(j, r, &n, now);
        }
    }
    after(0);
    after(0);
    is(PLACE_JOB_OVER);
    ck_assert_uint_eq(place_job_now(j), 1);
    now += conf.repeat_ns;
    ck_assert_int_eq(due(2), 1);
    ck_assert_int_eq(due(1), 0);
}
END_TEST

/* Nobody has been told to enter. */
START_TEST(over_before_there_is_an_id)
{
    all_say();
    to_making();
    facts[1].seq++;
    facts[1].can = PLACE_CAN_NOT;
    says(1);
    is(PLACE_JOB_DROPPING);
    ck_assert(!place_job_wants_id(j));
    ck_assert_int_eq(due(0), 1);
    ck_assert_int_eq(sent.kind, PLACE_NOTE_DROP);
}
END_TEST

START_TEST(a_promise_does_not_come)
{
    all_say();
    host_loses(1);
    after(conf.settle_ns);
    has(0, 0, 1, PLACE_HELD_PROMISED);
    after(conf.make_ns - 1);
    is(PLACE_JOB_ASKING);
    after(1);
    is(PLACE_JOB_DROPPING);
    ck_assert_str_eq(place_job_why(j), "a rank has not promised to make the communicator");
}
END_TEST

/* The pause behind what was given up begins anew once something has worked. */
START_TEST(a_pause_is_forgotten)
{
    all_say();
    for (uint32_t comm = 1; comm <= 3; comm++) {
        if (comm == 1) {
            host_loses(1);
        }
        after(conf.settle_ns + conf.pause_ns * (1u << comm));
        promises(0, comm);
        place_job_id(j, id, now);
        for (int r = 0; r < RANKS; r++) {
            has(r, 0, comm, comm < 3 ? PLACE_HELD_FAILED : PLACE_HELD_READY);
        }
        for (int r = 0; comm < 3 && r < RANKS; r++) {
            has(r, 0, 0, PLACE_HELD_NOT);
        }
    }
    answers(PLACE_ANSWER, PLACE_YES);
    answers(PLACE_DONE, PLACE_NONE);
    facts[1].seq++;
    facts[1].usable = 8;
    says(1);
    host_loses(2);
    after(conf.settle_ns);
    promises(1, 4);
    place_job_id(j, NULL, now);
    for (int r = 0; r < RANKS; r++) {
        has(r, 1, 0, PLACE_HELD_NOT);
    }
    after(conf.pause_ns);
    is(PLACE_JOB_ASKING);
}
END_TEST

/* The pause of the @k-th that fails, at most 2^@most times the first. */
static void pauses(int k, int most)
{
    is(PLACE_JOB_RESTING);
    after((conf.pause_ns << (k < most ? k : most)) - 1);
    is(PLACE_JOB_RESTING);
    after(1);
    is(PLACE_JOB_ASKING);
}

/* Each leaks something in NCCL: they become rare. */
START_TEST(inits_that_fail_become_rare)
{
    all_say();
    host_loses(1);
    after(conf.settle_ns);
    for (int k = 0; k < 15; k++) {
        promises(0, 1 + (uint32_t)k);
        place_job_id(j, id, now);
        for (int r = 0; r < RANKS; r++) {
            has(r, 0, 1 + (uint32_t)k, PLACE_HELD_FAILED);
        }
        for (int r = 0; r < RANKS; r++) {
            has(r, 0, 0, PLACE_HELD_NOT);
        }
        pauses(k, 12);
    }
}
END_TEST

START_TEST(promises_that_fail_do_not)
{
    all_say();
    host_loses(1);
    after(conf.settle_ns);
    for (int k = 0; k < 10; k++) {
        after(conf.make_ns);
        is(PLACE_JOB_DROPPING);
        place_job_tick(j, now);
        pauses(k, 6);
    }
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, a_rank_that_cannot);
    tcase_add_test(t, a_rank_that_leaves);
    tcase_add_test(t, a_rank_that_switches_no_more);
    tcase_add_test(t, a_rank_that_is_lost);
    tcase_add_test(t, lost_behind_the_decision);
    tcase_add_test(t, over_before_there_is_an_id);
    tcase_add_test(t, a_promise_does_not_come);
    tcase_add_test(t, a_pause_is_forgotten);
    tcase_add_test(t, inits_that_fail_become_rare);
    tcase_add_test(t, promises_that_fail_do_not);
}

int main(void)
{
    return suite_run("place_job_end", 60, setup, teardown, add);
}
