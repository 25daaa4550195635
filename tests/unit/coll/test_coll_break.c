/* A communicator at one rank: breaking off what is being made, between the thread that makes it and
 * the one that breaks it off. */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "coll/coll_comm.h"
#include "tests/unit/suite.h"

static struct coll_comm c;
static int user, shadow; /* stand for ncclComm_t */

static void kick(void)
{
}

static void setup(void)
{
    static const struct place_meet meet = {.key = 42};

    memset(&c, 0, sizeof(c));
    coll_comm_init(&c, &user, &meet, 1, 4, 7, kick);
}

static void teardown(void)
{
    coll_comm_close(&c);
}

static void takes(struct place_note note)
{
    struct place_note reply;

    ck_assert(!coll_comm_take(&c, &note, &reply));
}

static void drops(void)
{
    takes((struct place_note){.kind = PLACE_NOTE_DROP, .comm = 1});
}

static void is_held(int slot, enum place_held_state state)
{
    struct place_note n;

    coll_comm_facts(&c, &n);
    ck_assert_int_eq(n.facts.held[slot].state, state);
}

static struct breaker {
    pthread_t thread;
    int slot;
    void *comm;
    _Atomic bool aborted, freed;
} b;

static void *break_run(void *arg)
{
    b.comm = coll_comm_break(&c, b.slot);
    if (b.comm != NULL) {
        b.aborted = true;
        coll_comm_break_wait(&c, b.slot);
        b.freed = true;
    }
    coll_comm_broken(&c, b.slot);
    return arg;
}

/* Slot 0 is being made. */
static void to_making(void)
{
    int slot = -1;

    takes((struct place_note){.kind = PLACE_NOTE_ASK, .comm = 1});
    takes((struct place_note){.kind = PLACE_NOTE_MAKE, .make = {.comm = 1}});
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_MAKE);
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_NONE);
}

/* A thread breaks it off, as it is told to, once. */
static void break_begin(void)
{
    int again;

    memset(&b, 0, sizeof(b));
    ck_assert_int_eq(coll_comm_work(&c, &b.slot), COLL_WORK_BREAK);
    ck_assert_int_eq(b.slot, 0);
    ck_assert_int_eq(coll_comm_work(&c, &again), COLL_WORK_NONE);
    pthread_create(&b.thread, NULL, break_run, NULL);
}

/* The init returns because it is broken off: its thread has nothing any more. */
static void is_broken_off(void)
{
    int slot;

    break_begin();
    atomic_store(&c.shadow[0].early, &shadow); /* NCCL's init has begun */
    while (!b.aborted) {
        sched_yield();
    }
    ck_assert_ptr_eq(b.comm, &shadow);
    usleep(20000); /* it would be through by then, if it did not wait */
    ck_assert(!b.freed);
    ck_assert(!coll_comm_made(&c, 0));
    ck_assert(b.freed);
    pthread_join(b.thread, NULL);
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_NONE);
    coll_comm_done(&c, 0, NULL);
    is_held(0, PLACE_HELD_FAILED);
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_FREE);
    coll_comm_done(&c, slot, NULL);
    is_held(0, PLACE_HELD_NOT);
}

START_TEST(broken_off_when_it_is_dropped)
{
    to_making();
    drops();
    is_broken_off();
}
END_TEST

START_TEST(broken_off_when_the_hub_is_lost)
{
    to_making();
    coll_comm_lost(&c);
    is_broken_off();
}
END_TEST

/* Nobody else will say that it is to be freed. */
START_TEST(freed_when_the_hub_is_lost)
{
    int slot;

    to_making();
    ck_assert(coll_comm_made(&c, 0));
    coll_comm_done(&c, 0, NULL);
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_NONE);
    coll_comm_lost(&c);
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_FREE);
    coll_comm_done(&c, 0, NULL);
    is_held(0, PLACE_HELD_NOT);
}
END_TEST

START_TEST(broken_off_when_the_user_ends)
{
    to_making();
    ck_assert(!coll_comm_end(&c, false, 1));
    is_broken_off();
}
END_TEST

static void *made_run(void *arg)
{
    *(bool *)arg = coll_comm_made(&c, 0);
    return NULL;
}

/* NCCL's init returns when a thread is to break it off, and before that has begun. */
START_TEST(too_late_to_be_broken_off)
{
    bool is_ours = false;
    pthread_t maker;
    int slot;

    to_making();
    drops();
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_BREAK);
    atomic_store(&c.shadow[0].early, &shadow);
    pthread_create(&maker, NULL, made_run, &is_ours);
    coll_comm_break_wait(&c, slot); /* it is made */
    ck_assert_ptr_null(coll_comm_break(&c, slot));
    coll_comm_broken(&c, slot);
    pthread_join(maker, NULL);
    ck_assert(is_ours);
    coll_comm_done(&c, 0, &shadow);
    is_held(0, PLACE_HELD_READY);
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_FREE);
    ck_assert_ptr_eq(c.shadow[slot].comm, &shadow);
}
END_TEST

/* NCCL takes back what it has stored, and fails. */
START_TEST(it_was_no_communicator)
{
    to_making();
    drops();
    atomic_store(&c.shadow[0].early, NULL);
    break_begin();
    ck_assert(coll_comm_made(&c, 0));
    pthread_join(b.thread, NULL);
    ck_assert_ptr_null(b.comm);
    coll_comm_done(&c, 0, NULL);
    is_held(0, PLACE_HELD_FAILED);
}
END_TEST

START_TEST(what_is_made_is_not_broken_off)
{
    int slot;

    to_making();
    ck_assert(coll_comm_made(&c, 0));
    drops();
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_NONE);
    coll_comm_done(&c, 0, &shadow);
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_FREE);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, broken_off_when_it_is_dropped);
    tcase_add_test(t, broken_off_when_the_hub_is_lost);
    tcase_add_test(t, freed_when_the_hub_is_lost);
    tcase_add_test(t, broken_off_when_the_user_ends);
    tcase_add_test(t, too_late_to_be_broken_off);
    tcase_add_test(t, it_was_no_communicator);
    tcase_add_test(t, what_is_made_is_not_broken_off);
}

int main(void)
{
    return suite_run("coll_break", 120, setup, teardown, add);
}
