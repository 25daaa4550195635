/* Making, breaking off and freeing a shadow, over a NCCL that writes down what it is told and whose
 * init waits for others. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "base/r2_thread.h"
#include "coll/coll_make.h"
#include "tests/unit/suite.h"

static struct coll_user u;
static int shadow; /* stands for an ncclComm_t */
static bool defers;
static enum { WORKS, FAILS_EARLY, FAILS, WAITS } init;
static _Atomic bool stopped; /* what an abort sets, and NCCL's init looks at */
static _Atomic int told_n;
static char told[64]; /* a letter each, in the order of told_n */

static void tell(char what)
{
    told[told_n++] = what;
}

/* --- NCCL and CUDA --- */

static coll_status init_rank(void **comm, int ranks, struct coll_id id, int rank,
                             struct coll_config *config)
{
    ck_assert_int_eq(config->blocking, 1);
    ck_assert(coll_make_is_shadow());
    tell('i');
    if (init == FAILS_EARLY) {
        return COLL_SYSTEM_ERROR;
    }
    __atomic_store_n(comm, &shadow, __ATOMIC_RELEASE);
    while (init == WAITS && !stopped) {
        sched_yield();
    }
    tell(init == WORKS ? '+' : '-');
    return init == WORKS ? COLL_SUCCESS : COLL_SYSTEM_ERROR;
}

static coll_status abort_comm(void *comm)
{
    ck_assert_ptr_eq(comm, &shadow);
    tell('!');
    stopped = true;
    return COLL_SUCCESS;
}

static coll_status free_comm(void *comm)
{
    ck_assert_ptr_eq(comm, &shadow);
    tell('f');
    return COLL_SUCCESS;
}

static coll_status group_start(void)
{
    tell('[');
    return COLL_SUCCESS;
}

static coll_status group_end(void)
{
    tell(']');
    return COLL_SUCCESS;
}

static coll_status simulate_end(struct coll_sim *sim)
{
    tell('?');
    return COLL_SUCCESS;
}

static coll_status all_reduce(const void *send, void *recv, size_t count, int type, int op,
                              void *comm, void *stream)
{
    return COLL_SUCCESS;
}

const struct coll_real *coll_real_get(void)
{
    static const struct coll_real real = {.init_rank_config = init_rank,
                                          .abort = abort_comm,
                                          .finalize = free_comm,
                                          .destroy = free_comm,
                                          .group_start = group_start,
                                          .group_end = group_end,
                                          .group_simulate_end = simulate_end,
                                          .all_reduce = all_reduce};

    return &real;
}

bool coll_real_defers_aborts(void)
{
    return defers;
}

static int set_current(void *context)
{
    return 0;
}

static int capture_mode(int *mode)
{
    ck_assert_int_eq(*mode, COLL_CUDA_CAPTURE_RELAXED);
    return 0;
}

static int left(size_t *free, size_t *all)
{
    *free = *all = (size_t)1 << 30;
    return 0;
}

static int stream_create(void **stream, unsigned flags)
{
    *stream = &shadow;
    return 0;
}

static int stream_destroy(void *stream)
{
    return 0;
}

const struct coll_cuda *coll_cuda_get(void)
{
    static const struct coll_cuda cuda = {.ctx_set_current = set_current,
                                          .capture_mode = capture_mode,
                                          .mem_get_info = left,
                                          .stream_create = stream_create,
                                          .stream_destroy = stream_destroy};

    return &cuda;
}

/* --- threads, of which there may be no more --- */

static bool no_thread;

int r2_thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
    return no_thread ? EAGAIN : pthread_create(thread, NULL, run, arg);
}

/* --- what the control thread does --- */

static void kick(void)
{
}

static void setup(void)
{
    static const struct place_meet meet = {.key = 42};

    memset(&u, 0, sizeof(u));
    coll_comm_init(&u.comm, &u, &meet, 1, 4, 7, kick);
    memset(told, 0, sizeof(told));
    told_n = 0;
    stopped = no_thread = false;
    defers = true;
}

static void teardown(void)
{
    coll_comm_close(&u.comm);
}

static void takes(struct place_note note)
{
    struct place_note reply;

    coll_comm_take(&u.comm, &note, &reply);
}

static enum place_held_state state(void)
{
    struct place_note n;

    coll_comm_facts(&u.comm, &n);
    return (enum place_held_state)n.facts.held[0].state;
}

static void becomes(enum place_held_state wanted)
{
    while (state() != wanted) {
        sched_yield();
    }
}

static void begins(enum coll_work wanted)
{
    int slot = -1;

    ck_assert_int_eq(coll_comm_work(&u.comm, &slot), wanted);
    ck_assert_int_eq(slot, 0);
    coll_make_begin(&u, slot, wanted);
}

static void to_making(void)
{
    takes((struct place_note){.kind = PLACE_NOTE_ASK, .comm = 1});
    takes((struct place_note){.kind = PLACE_NOTE_MAKE, .make = {.comm = 1}});
    begins(COLL_WORK_MAKE);
}

static void drops(void)
{
    takes((struct place_note){.kind = PLACE_NOTE_DROP, .comm = 1});
}

static void frees(const char *all)
{
    begins(COLL_WORK_FREE);
    becomes(PLACE_HELD_NOT);
    ck_assert_str_eq(told, all);
}

START_TEST(made_connected_and_freed)
{
    init = WORKS;
    to_making();
    becomes(PLACE_HELD_READY);
    ck_assert_ptr_eq(u.comm.shadow[0].comm, &shadow);
    drops();
    frees("i+[?ff");
}
END_TEST

/* The hub hears of it first: the abort may wait for ranks that only the hub can free. */
START_TEST(what_has_failed_is_aborted_when_it_is_freed)
{
    init = FAILS;
    to_making();
    becomes(PLACE_HELD_FAILED);
    ck_assert_str_eq(told, "i-");
    drops();
    frees("i-!");
}
END_TEST

START_TEST(nothing_was_made)
{
    init = FAILS_EARLY;
    to_making();
    becomes(PLACE_HELD_FAILED);
    drops();
    frees("i");
}
END_TEST

/* Aborted in a group that ends behind the init; not once more when it is freed. */
START_TEST(an_init_that_hangs_is_broken_off)
{
    init = WAITS;
    to_making();
    drops();
    begins(COLL_WORK_BREAK);
    becomes(PLACE_HELD_FAILED);
    ck_assert_ptr_nonnull(strstr(told, "!-]"));
    ck_assert_int_eq(told_n, 5);
    begins(COLL_WORK_FREE);
    becomes(PLACE_HELD_NOT);
    ck_assert_int_eq(told_n, 5);
}
END_TEST

/* A NCCL whose aborts may free under the init: it goes on as long as it wants. */
START_TEST(a_nccl_that_was_not_read)
{
    init = WAITS;
    defers = false;
    to_making();
    drops();
    begins(COLL_WORK_BREAK);
    while (u.comm.shadow[0].early == NULL) {
        sched_yield();
    }
    stopped = true;
    becomes(PLACE_HELD_FAILED);
    ck_assert_str_eq(told, "i-");
}
END_TEST

/* No thread makes it: it has failed, and there is nothing to free. */
START_TEST(no_thread_to_make_it)
{
    no_thread = true;
    to_making();
    ck_assert_int_eq(state(), PLACE_HELD_FAILED);
    no_thread = false;
    drops();
    frees("");
}
END_TEST

/* None breaks it off: whoever makes it does not wait for one. */
START_TEST(no_thread_to_break_it_off)
{
    int slot;

    init = WAITS;
    to_making();
    drops();
    no_thread = true;
    begins(COLL_WORK_BREAK);
    ck_assert_int_eq(coll_comm_work(&u.comm, &slot), COLL_WORK_NONE);
    stopped = true;
    becomes(PLACE_HELD_FAILED);
    no_thread = false;
    frees("i-!");
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, made_connected_and_freed);
    tcase_add_test(t, what_has_failed_is_aborted_when_it_is_freed);
    tcase_add_test(t, nothing_was_made);
    tcase_add_test(t, an_init_that_hangs_is_broken_off);
    tcase_add_test(t, a_nccl_that_was_not_read);
    tcase_add_test(t, no_thread_to_make_it);
    tcase_add_test(t, no_thread_to_break_it_off);
}

int main(void)
{
    return suite_run("coll_make", 120, setup, teardown, add);
}
