/* What the hub of a communicator does, step by step; test_place_job_runs has thousands of jobs. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "place/place_job.h"
#include "tests/unit/suite.h"

#define RANKS 4

static const struct place_job_conf conf = {.no_ring = true,
                                           .settle_ns = 100,
                                           .make_ns = 1000,
                                           .wait_ns = 50,
                                           .pause_ns = 200,
                                           .repeat_ns = 10};
static const uint8_t id[PLACE_ID_BYTES] = {7};

static void *memory;
static struct place_job *j;
static struct place_facts facts[RANKS];
static uint64_t now;
static struct place_note sent;

static void job_begin(const struct place_job_conf *c)
{
    free(memory);
    memory = malloc(place_job_size(RANKS));
    now = 1000;
    j = place_job_init(memory, RANKS, c, now);
    for (int r = 0; r < RANKS; r++) {
        facts[r] = (struct place_facts){.seq = 1,
                                        .rank = (uint32_t)r,
                                        .ranks = RANKS,
                                        .mbps = 50000,
                                        .host = 1 + (uint64_t)r,
                                        .nics = 8,
                                        .usable = 8,
                                        .used = 8,
                                        .can = PLACE_CAN};
    }
}

static void setup(void)
{
    job_begin(&conf);
}

static void teardown(void)
{
    free(memory);
    memory = NULL;
}

static const char *says(int rank)
{
    struct place_note n = {.kind = PLACE_NOTE_FACTS, .facts = facts[rank]};
    const char *wrong = place_job_take(j, rank, &n, now);

    place_job_tick(j, now);
    return wrong;
}

static void all_say(void)
{
    for (int r = 0; r < RANKS; r++) {
        ck_assert(says(r) == NULL);
    }
}

/* Sends all that is due to @rank; `sent` is the last of those that confirm nothing. How many. */
static int due(int rank)
{
    struct place_note n;
    int count = 0;

    memset(&n, 0, sizeof(n));
    while (place_job_due(j, rank, now, &n)) {
        if (n.kind != PLACE_NOTE_HEARD) {
            sent = n;
            count++;
        }
    }
    return count;
}

static void after(uint64_t ns)
{
    now += ns;
    place_job_tick(j, now);
}

static void is(enum place_job_state state)
{
    ck_assert_str_eq(place_job_state_name(place_job_state_get(j)), place_job_state_name(state));
}

static void has(int rank, int slot, uint32_t comm, enum place_held_state state)
{
    facts[rank].seq++;
    facts[rank].held[slot].comm = comm;
    facts[rank].held[slot].state = (uint8_t)state;
    ck_assert(says(rank) == NULL);
}

static void answers(enum place_kind kind, enum place_answer answer)
{
    for (int r = 0; r < RANKS; r++) {
        struct place_note n = {.kind = PLACE_NOTE_MSG};

        ck_assert_int_eq(due(r), 1);
        ck_assert_int_eq(sent.kind, PLACE_NOTE_MSG);
        n.msg = sent.msg;
        n.msg.kind = (uint8_t)kind;
        n.msg.answer = (uint8_t)answer;
        ck_assert(place_job_take(j, r, &n, now) == NULL);
    }
    place_job_tick(j, now);
}

static void host_loses(int rank)
{
    facts[rank].seq++;
    facts[rank].usable = 4;
    ck_assert(says(rank) == NULL);
}

/* All are asked for communicator @comm, and promise it. */
static void promises(int slot, uint32_t comm)
{
    is(PLACE_JOB_ASKING);
    ck_assert_uint_eq(place_job_to(j), comm);
    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_eq(due(r), 1);
        ck_assert_int_eq(sent.kind, PLACE_NOTE_ASK);
        ck_assert_uint_eq(sent.comm, comm);
        is(PLACE_JOB_ASKING);
        has(r, slot, comm, PLACE_HELD_PROMISED);
    }
    is(PLACE_JOB_MAKING);
}

/* Communicator 1 is being made. */
static void to_making(void)
{
    host_loses(1);
    after(conf.settle_ns);
    promises(0, 1);
}

static void to_switching(void)
{
    all_say();
    to_making();
    place_job_id(j, id, now);
    for (int r = 0; r < RANKS; r++) {
        has(r, 0, 1, PLACE_HELD_READY);
    }
    is(PLACE_JOB_SWITCHING);
}

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
    tcase_add_test(t, one_that_is_not_complete_in_time);
    tcase_add_test(t, an_attempt_is_made_again);
    tcase_add_test(t, a_rank_that_cannot);
    tcase_add_test(t, a_rank_that_leaves);
    tcase_add_test(t, a_rank_that_switches_no_more);
    tcase_add_test(t, a_rank_that_is_lost);
    tcase_add_test(t, lost_behind_the_decision);
    tcase_add_test(t, who_only_advises);
}

int main(void)
{
    return suite_run("place_job", 60, setup, teardown, add);
}
