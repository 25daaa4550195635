/* A communicator at one rank: breaking off what is being made, between the thread that makes it and
 * the one that breaks it off. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/coll_comm_rig.h"

/* --- the pauses of the one that looks for NCCL's store --- */

static void (*at_nap)(int n); /* in the n-th, from 1 on */
static int naps;

int nanosleep(const struct timespec *time, struct timespec *left)
{
    if (at_nap != NULL) {
        at_nap(++naps);
        return 0;
    }
    return clock_nanosleep(CLOCK_MONOTONIC, 0, time, left);
}

static void break_setup(void)
{
    setup();
    at_nap = NULL;
    naps = 0;
}

static void drops(void)
{
    takes_comm(PLACE_NOTE_DROP, 1);
}

static void stores(void *comm)
{
    atomic_store(&c.shadow[0].early, comm);
}

/* --- the two threads --- */

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

/* A thread is to break it off, once. */
static void to_break(void)
{
    int again;

    memset(&b, 0, sizeof(b));
    ck_assert_int_eq(coll_comm_work(&c, &b.slot), COLL_WORK_BREAK);
    ck_assert_int_eq(b.slot, 0);
    ck_assert_int_eq(coll_comm_work(&c, &again), COLL_WORK_NONE);
}

/* The init returns because it is broken off: its thread has nothing any more. */
static void is_broken_off(void)
{
    int slot;

    to_break();
    pthread_create(&b.thread, NULL, break_run, NULL);
    stores(&shadow); /* NCCL's init has begun */
    while (!b.aborted) {
        sched_yield();
    }
    ck_assert_ptr_eq(b.comm, &shadow);
    usleep(20000); /* one that did not wait would be through: no event tells that one does */
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
    to_making(1);
    drops();
    is_broken_off();
}
END_TEST

START_TEST(broken_off_when_the_hub_is_lost)
{
    to_making(1);
    coll_comm_lost(&c);
    is_broken_off();
}
END_TEST

START_TEST(broken_off_when_the_user_ends)
{
    to_making(1);
    ck_assert(!coll_comm_end(&c, false, 1));
    is_broken_off();
}
END_TEST

/* The slot has nothing of the one before. */
START_TEST(the_next_one_is_made)
{
    int slot;

    to_making(1);
    drops();
    is_broken_off();
    to_making(2);
    ck_assert_ptr_null(c.shadow[0].early);
    ck_assert(coll_comm_made(&c, 0));
    coll_comm_done(&c, 0, &shadow);
    is_held(0, PLACE_HELD_READY);
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_NONE);
}
END_TEST

/* Nobody else will say that they are to be freed: one that has failed, one that nobody uses. */
static void freed_when_lost(void *comm)
{
    int slot;

    to_making(1);
    ck_assert(coll_comm_made(&c, 0));
    coll_comm_done(&c, 0, comm);
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_NONE);
    coll_comm_lost(&c);
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_FREE);
    coll_comm_done(&c, 0, NULL);
    is_held(0, PLACE_HELD_NOT);
}

START_TEST(freed_when_the_hub_is_lost)
{
    freed_when_lost(NULL);
    coll_comm_close(&c);
    setup();
    freed_when_lost(&shadow);
}
END_TEST

/* NCCL's store is there for one look, and is what it was at the next. */
static void stores_at(int n)
{
    if (n == 3 || n == 4) {
        ck_assert(!c.shadow[0].broken);
        stores(&shadow);
    }
}

START_TEST(a_store_is_to_stand)
{
    to_making(1);
    drops();
    to_break();
    at_nap = stores_at;
    ck_assert_ptr_eq(coll_comm_break(&c, 0), &shadow);
    ck_assert_int_eq(naps, 4);
    ck_assert(c.shadow[0].broken);
}
END_TEST

/* ... or NCCL takes it back, has freed it, and fails. */
static void takes_back_at(int n)
{
    stores(n == 2 ? &shadow : NULL);
    c.shadow[0].made = n == 4; /* one thread plays both */
}

START_TEST(what_is_taken_back_is_none)
{
    to_making(1);
    drops();
    to_break();
    at_nap = takes_back_at;
    ck_assert_ptr_null(coll_comm_break(&c, 0));
    ck_assert_int_eq(naps, 4);
    ck_assert(!c.shadow[0].broken);
}
END_TEST

/* It stands, and the init has returned. */
static void made_at(int n)
{
    stores(&shadow);
    c.shadow[0].made = n == 2;
}

START_TEST(what_has_returned_is_left)
{
    to_making(1);
    drops();
    to_break();
    at_nap = made_at;
    ck_assert_ptr_null(coll_comm_break(&c, 0));
    ck_assert_int_eq(naps, 2);
    ck_assert(!c.shadow[0].broken);
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

    to_making(1);
    drops();
    to_break();
    stores(&shadow);
    pthread_create(&maker, NULL, made_run, &is_ours);
    coll_comm_break_wait(&c, 0); /* it is made */
    ck_assert_ptr_null(coll_comm_break(&c, 0));
    coll_comm_broken(&c, 0);
    pthread_join(maker, NULL);
    ck_assert(is_ours);
    coll_comm_done(&c, 0, &shadow);
    is_held(0, PLACE_HELD_READY);
    ck_assert_int_eq(coll_comm_work(&c, &slot), COLL_WORK_FREE);
    ck_assert_ptr_eq(c.shadow[slot].comm, &shadow);
}
END_TEST

START_TEST(what_is_made_is_not_broken_off)
{
    int slot;

    to_making(1);
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
    tcase_add_test(t, broken_off_when_the_user_ends);
    tcase_add_test(t, the_next_one_is_made);
    tcase_add_test(t, freed_when_the_hub_is_lost);
    tcase_add_test(t, a_store_is_to_stand);
    tcase_add_test(t, what_is_taken_back_is_none);
    tcase_add_test(t, what_has_returned_is_left);
    tcase_add_test(t, too_late_to_be_broken_off);
    tcase_add_test(t, what_is_made_is_not_broken_off);
}

int main(void)
{
    return suite_run("coll_break", 120, break_setup, teardown, add);
}
