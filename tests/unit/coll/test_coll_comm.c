/* A communicator at one rank, as the application's and the control thread see it. */
#include <pthread.h>
#include <sched.h>

#include "base/r2_time.h"
#include "tests/unit/coll_comm_rig.h"

#define SECOND R2_NS_PER_S

static bool msg(enum place_kind kind, uint32_t attempt, uint32_t to, uint64_t at)
{
    return takes((struct place_note){
        .kind = PLACE_NOTE_MSG,
        .msg = {.kind = (uint8_t)kind, .attempt = attempt, .to = to, .at = at}});
}

static void hears(void)
{
    takes((struct place_note){.kind = PLACE_NOTE_HEARD, .heard = facts().seq});
}

static void begins_on(void *comm)
{
    void *got;
    int slot;

    ck_assert(coll_comm_begin(&c, &got, &slot));
    ck_assert_ptr_eq(got, comm);
    coll_comm_return(&c, slot);
}

/* Communicator @comm, in slot 0, is made. */
static void to_ready(uint32_t comm)
{
    to_making(comm);
    ck_assert(msg(PLACE_PREPARE, 1000 + comm, comm, 100));
    ck_assert_int_eq(reply.msg.answer, PLACE_NOT_READY);
    coll_comm_done(&c, 0, &shadow);
    is_held(0, PLACE_HELD_READY);
}

/* ... and used from the next operation on. */
static void to_switched(uint32_t comm)
{
    to_ready(comm);
    ck_assert(msg(PLACE_PREPARE, 2000 + comm, comm, facts().begun));
    ck_assert_int_eq(reply.msg.answer, PLACE_YES);
    ck_assert_uint_eq(reply.key, 42);
    ck_assert_uint_eq(reply.rank, 1);
    ck_assert(msg(PLACE_COMMIT, 2000 + comm, comm, facts().begun));
    ck_assert_int_eq(reply.msg.kind, PLACE_DONE);
    begins_on(&shadow);
}

START_TEST(facts_until_they_are_heard)
{
    struct place_note n;

    ck_assert(coll_comm_facts(&c, &n));
    ck_assert_int_eq(n.kind, PLACE_NOTE_FACTS);
    ck_assert_uint_eq(n.key, 42);
    ck_assert_uint_eq(n.facts.rank, 1);
    ck_assert_uint_eq(n.facts.ranks, 4);
    ck_assert_uint_eq(n.facts.host, 7);
    ck_assert_int_eq(n.facts.can, PLACE_CAN);
    ck_assert(coll_comm_facts(&c, &n));
    takes((struct place_note){.kind = PLACE_NOTE_HEARD, .heard = n.facts.seq + 1});
    ck_assert(coll_comm_facts(&c, &n)); /* nobody has said that yet */
    hears();
    ck_assert(!coll_comm_facts(&c, &n));
    coll_comm_nics(&c, 8, 7, 2, 50000);
    ck_assert(coll_comm_facts(&c, &n));
    ck_assert_uint_eq(n.facts.nics, 8);
    ck_assert_uint_eq(n.facts.usable, 7);
    ck_assert_uint_eq(n.facts.used, 2);
    ck_assert_uint_eq(n.facts.mbps, 50000);
    hears();
    coll_comm_nics(&c, 8, 7, 2, 50000);
    ck_assert(!coll_comm_facts(&c, &n));
}
END_TEST

START_TEST(a_shadow_comes_and_goes)
{
    void *comms[PLACE_HELD];
    int held[PLACE_HELD], slot = -1;
    struct place_note n;

    begins_on(&user);
    to_switched(1);
    ck_assert_int_eq(coll_comm_hold(&c, comms, held), 1);
    ck_assert_ptr_eq(comms[0], &shadow);
    takes_comm(PLACE_NOTE_DROP, 1); /* it is in use */
    hears();
    takes_comm(PLACE_NOTE_DROP, 1);
    ck_assert(!coll_comm_facts(&c, &n)); /* no news */
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_NONE);
    ck_assert(msg(PLACE_PREPARE, 3000, 0, facts().begun));
    ck_assert(msg(PLACE_COMMIT, 3000, 0, facts().begun));
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_NONE); /* until the operation */
    begins_on(&user);
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_NONE); /* it is held */
    coll_comm_return(&c, held[0]);
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_FREE);
    ck_assert_int_eq(coll_comm_hold(&c, comms, held), 0);
    coll_comm_done(&c, slot, NULL);
    is_held(0, PLACE_HELD_NOT);
}
END_TEST

/* A call that has not returned holds the communicator that it is for. */
START_TEST(not_under_a_call)
{
    void *got;
    int slot = -1, work = -1;

    to_switched(1);
    ck_assert(coll_comm_begin(&c, &got, &slot));
    ck_assert_ptr_eq(got, &shadow);
    ck_assert(msg(PLACE_PREPARE, 3000, 0, facts().begun));
    ck_assert(msg(PLACE_COMMIT, 3000, 0, facts().begun));
    begins_on(&user);
    takes_comm(PLACE_NOTE_DROP, 1);
    ck_assert_int_eq(coll_comm_work(&c, &work), COLL_WORK_NONE);
    kicks = 0;
    coll_comm_return(&c, slot);
    ck_assert_int_eq(kicks, 1);
    ck_assert_int_eq(coll_comm_work(&c, &work), COLL_WORK_FREE);
}
END_TEST

/* It goes on by it, and the control thread is not woken for each operation. */
START_TEST(used_when_the_hub_is_lost)
{
    int slot, before;

    to_switched(1);
    coll_comm_lost(&c);
    before = kicks;
    begins_on(&shadow);
    ck_assert_int_eq(kicks, before);
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_NONE);
}
END_TEST

START_TEST(what_nccl_refuses_is_not_counted)
{
    void *got;
    int slot;

    begins_on(&user);
    ck_assert(coll_comm_begin(&c, &got, &slot));
    ck_assert(coll_comm_take_back(&c, 1));
    ck_assert_uint_eq(facts().begun, 1);
    ck_assert_int_eq(facts().can, PLACE_CAN);
    ck_assert(!coll_comm_take_back(&c, 2));
    ck_assert_int_eq(facts().can, PLACE_CAN_NOT);
    ck_assert(!coll_comm_begin(&c, &got, &slot));
}
END_TEST

START_TEST(one_that_fails)
{
    int slot = -1;

    takes_comm(PLACE_NOTE_ASK, 1);
    takes_make(1, 0);
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_MAKE);
    coll_comm_done(&c, slot, NULL);
    is_held(0, PLACE_HELD_FAILED);
    takes_comm(PLACE_NOTE_DROP, 1);
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_FREE);
    coll_comm_done(&c, slot, NULL);
    is_held(0, PLACE_HELD_NOT);
}
END_TEST

START_TEST(one_that_only_advises)
{
    c.only_advises = true;
    ck_assert_int_eq(facts().can, PLACE_CAN);
    takes_comm(PLACE_NOTE_ASK, 1);
    ck_assert_int_eq(facts().can, PLACE_CAN_NOT);
    is_held(0, PLACE_HELD_NOT);
}
END_TEST

/* One of them is being freed, and hangs: the other one is aborted all the same. */
START_TEST(all_that_can_be_is_aborted)
{
    int slot = -1;

    to_switched(1);
    takes_comm(PLACE_NOTE_ASK, 2);
    takes_make(2, 0);
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_MAKE);
    ck_assert_int_eq(slot, 1);
    coll_comm_done(&c, slot, &user);
    ck_assert(msg(PLACE_PREPARE, 4000, 2, facts().begun));
    ck_assert(msg(PLACE_COMMIT, 4000, 2, facts().begun));
    begins_on(&user);
    takes_comm(PLACE_NOTE_DROP, 1);
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_FREE);
    ck_assert_int_eq(slot, 0);
    ck_assert(!coll_comm_end(&c, true, 1));
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_FREE);
    ck_assert_int_eq(slot, 1);
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_NONE);
}
END_TEST

/* An error of one that was made, and that nobody has used, is none of the user's. */
START_TEST(only_what_was_used_is_held)
{
    void *comms[PLACE_HELD];
    int held[PLACE_HELD];

    to_ready(1);
    ck_assert_int_eq(coll_comm_hold(&c, comms, held), 0);
}
END_TEST

/* --- who waits --- */

struct waiter {
    pthread_t thread;
    void *got;
    int slot;
    bool begins;
    _Atomic bool through;
};

static void *wait_run(void *arg)
{
    struct waiter *w = arg;

    w->begins = coll_comm_begin(&c, &w->got, &w->slot);
    w->through = true;
    return NULL;
}

static void waiter_start(struct waiter *w)
{
    memset(w, 0, sizeof(*w));
    to_ready(1);
    ck_assert(msg(PLACE_PREPARE, 2000, 1, 0));
    ck_assert_int_eq(reply.msg.answer, PLACE_YES);
    ck_assert(coll_comm_is_prepared(&c));
    pthread_create(&w->thread, NULL, wait_run, w);
}

START_TEST(it_waits_for_the_decision)
{
    struct waiter w;

    waiter_start(&w);
    ck_assert(!w.through);
    ck_assert(msg(PLACE_COMMIT, 2000, 1, 0));
    pthread_join(w.thread, NULL);
    ck_assert(w.begins);
    ck_assert_ptr_eq(w.got, &shadow);
    ck_assert(!coll_comm_is_prepared(&c));
}
END_TEST

START_TEST(the_hub_is_lost_meanwhile)
{
    struct waiter w;

    waiter_start(&w);
    coll_comm_lost(&c);
    pthread_join(w.thread, NULL);
    ck_assert(!w.begins);
}
END_TEST

START_TEST(the_user_aborts_meanwhile)
{
    struct waiter w;

    waiter_start(&w);
    ck_assert(!coll_comm_end(&c, true, 1)); /* the shadow is not freed yet */
    pthread_join(w.thread, NULL);
    ck_assert(!w.begins);
}
END_TEST

/* --- the end --- */

static void *serve(void *arg)
{
    int slot;
    enum coll_work *seen = arg, work;

    while (facts().can != PLACE_HAS_LEFT) {
        sched_yield();
    }
    while ((work = coll_comm_work(&c, &slot)) == COLL_WORK_NONE) {
        sched_yield();
    }
    *seen = work;
    coll_comm_done(&c, slot, NULL);
    hears();
    return NULL;
}

static enum coll_work ended(bool abort)
{
    enum coll_work seen = COLL_WORK_NONE;
    pthread_t thread;

    pthread_create(&thread, NULL, serve, &seen);
    ck_assert(coll_comm_end(&c, abort, 60 * SECOND));
    pthread_join(thread, NULL);
    return seen;
}

START_TEST(it_ends_when_shadows_are_freed)
{
    to_switched(1);
    ck_assert_int_eq(ended(false), COLL_WORK_FREE);
}
END_TEST

/* Whatever runs on them. */
START_TEST(and_when_they_are_aborted)
{
    void *got;
    int slot;

    to_switched(1);
    ck_assert(coll_comm_begin(&c, &got, &slot));
    ck_assert(!coll_comm_is_aborted(&c));
    ck_assert_int_eq(ended(true), COLL_WORK_FREE);
    ck_assert(coll_comm_is_aborted(&c));
    coll_comm_return(&c, slot); /* the call returns with an error of NCCL's */
}
END_TEST

/* Whoever has entered waits for this rank, too, until the hub hears that it fails. */
START_TEST(it_fails_its_promise)
{
    int slot = -1;

    takes_comm(PLACE_NOTE_ASK, 1);
    ck_assert(!coll_comm_end(&c, false, 1));
    is_held(0, PLACE_HELD_PROMISED);
    takes_make(1, 0);
    is_held(0, PLACE_HELD_FAILED);
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_FREE); /* whoever leads, or nobody */
    coll_comm_done(&c, slot, NULL);
    takes_comm(PLACE_NOTE_ASK, 2);
    is_held(0, PLACE_HELD_NOT);
    hears();
}
END_TEST

/* A thread that makes a shadow finds out that there can be none, and the hub learns that the rank
 * has left all the same. */
START_TEST(never_after_it_has_left)
{
    ck_assert(!coll_comm_end(&c, false, 1));
    ck_assert_int_eq(facts().can, PLACE_HAS_LEFT);
    coll_comm_never(&c);
    takes_comm(PLACE_NOTE_ASK, 1);
    ck_assert_int_eq(facts().can, PLACE_HAS_LEFT);
}
END_TEST

START_TEST(nobody_is_left_to_be_told)
{
    coll_comm_lost(&c);
    ck_assert(coll_comm_end(&c, false, 60 * SECOND));
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, facts_until_they_are_heard);
    tcase_add_test(t, a_shadow_comes_and_goes);
    tcase_add_test(t, not_under_a_call);
    tcase_add_test(t, used_when_the_hub_is_lost);
    tcase_add_test(t, what_nccl_refuses_is_not_counted);
    tcase_add_test(t, one_that_fails);
    tcase_add_test(t, one_that_only_advises);
    tcase_add_test(t, all_that_can_be_is_aborted);
    tcase_add_test(t, only_what_was_used_is_held);
    tcase_add_test(t, it_waits_for_the_decision);
    tcase_add_test(t, the_hub_is_lost_meanwhile);
    tcase_add_test(t, the_user_aborts_meanwhile);
    tcase_add_test(t, it_ends_when_shadows_are_freed);
    tcase_add_test(t, and_when_they_are_aborted);
    tcase_add_test(t, it_fails_its_promise);
    tcase_add_test(t, never_after_it_has_left);
    tcase_add_test(t, nobody_is_left_to_be_told);
}

int main(void)
{
    return suite_run("coll_comm", 120, setup, teardown, add);
}
