#include <check.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ib_transport/verbs/ib_worker.h"
#include "plugin/base/r2_time.h"

#define JOBS 200

struct test_job {
    struct ib_job job; /* first */
    int number;
    sem_t *hold;   /* run() waits for it */
    sem_t *inside; /* run() says so */
    pthread_t ran_on, done_on;
    int runs, dones, signals_open;
};

static struct r2_env env;
static struct ib_workers *workers;
static sem_t woken;
static atomic_int wakes;
static int order[4][JOBS],
    ordered[4]; /* per device: numbers in the order of run(); its worker writes */
static int kicks[4];

static void wake(void *arg)
{
    ck_assert_ptr_eq(arg, &wakes);
    atomic_fetch_add(&wakes, 1);
    sem_post(&woken);
}

static void kick_worker(void *arg, int device)
{
    kicks[device]++;
}

static void run(struct ib_job *job)
{
    struct test_job *t = (struct test_job *)job;
    sigset_t mask;

    if (t->inside) {
        sem_post(t->inside);
    }
    if (t->hold) {
        sem_wait(t->hold);
    }
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    t->signals_open = !sigismember(&mask, SIGTERM) || !sigismember(&mask, SIGUSR1);
    t->ran_on = pthread_self();
    t->runs++;
    order[job->device][ordered[job->device]++] = t->number;
}

static void done(struct ib_job *job)
{
    struct test_job *t = (struct test_job *)job;

    ck_assert_int_eq(job->busy, 0);
    t->done_on = pthread_self();
    t->dones++;
}

static void job_init(struct test_job *t, int number)
{
    memset(t, 0, sizeof(*t));
    t->job.run = run;
    t->job.done = done;
    t->number = number;
}

static void begin(int threads, int devices)
{
    r2_env_default(&env);
    env.threads = threads;
    env.kick_worker = kick_worker;
    memset(ordered, 0, sizeof(ordered));
    sem_init(&woken, 0, 0);
    workers = ib_workers_create(&env, devices, wake, &wakes);
    ck_assert_ptr_nonnull(workers);
}

/* How many locks this thread holds, and with how many it woke another one, at most. */
static _Thread_local int held, held_signaling;

int __real_pthread_mutex_lock(pthread_mutex_t *m);
int __real_pthread_mutex_unlock(pthread_mutex_t *m);
int __real_pthread_cond_signal(pthread_cond_t *c);
int __wrap_pthread_mutex_lock(pthread_mutex_t *m);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *m);
int __wrap_pthread_cond_signal(pthread_cond_t *c);

int __wrap_pthread_mutex_lock(pthread_mutex_t *m)
{
    held++;
    return __real_pthread_mutex_lock(m);
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *m)
{
    held--;
    return __real_pthread_mutex_unlock(m);
}

int __wrap_pthread_cond_signal(pthread_cond_t *c)
{
    held_signaling = held > held_signaling ? held : held_signaling;
    return __real_pthread_cond_signal(c);
}

/* Reaps until @n jobs were reaped. */
static void reap(int n)
{
    while (n > 0) {
        sem_wait(&woken);
        n -= ib_workers_reap(workers);
    }
    ck_assert_int_eq(n, 0);
}

/* A worker that is woken for a job finds its lock free, and sleeps once per job. */
START_TEST(no_lock_is_held_over_a_wake)
{
    static struct test_job job;

    begin(1, 1);
    job_init(&job, 0);
    held = 0;
    held_signaling = -1;
    ib_workers_submit(workers, 0, &job.job);
    ck_assert_int_eq(held, 0);
    ck_assert_int_eq(held_signaling, 0);
    reap(1);
    ck_assert_uint_eq(ib_workers_destroy(workers, R2_NS_PER_S), 0);
}
END_TEST

START_TEST(order_per_device)
{
    static struct test_job jobs[2][JOBS];

    begin(1, 2);
    for (int i = 0; i < JOBS; i++) {
        for (int d = 0; d < 2; d++) {
            job_init(&jobs[d][i], i);
            ib_workers_submit(workers, d, &jobs[d][i].job);
        }
    }
    reap(2 * JOBS);
    for (int d = 0; d < 2; d++) {
        ck_assert_int_eq(ordered[d], JOBS);
        for (int i = 0; i < JOBS; i++) {
            ck_assert_int_eq(order[d][i], i);
            ck_assert_int_eq(jobs[d][i].runs, 1);
            ck_assert_int_eq(jobs[d][i].dones, 1);
            ck_assert(pthread_equal(jobs[d][i].done_on, pthread_self()));
            ck_assert(!pthread_equal(jobs[d][i].ran_on, pthread_self()));
            ck_assert_int_eq(jobs[d][i].signals_open, 0);
        }
    }
    ck_assert(!pthread_equal(jobs[0][0].ran_on, jobs[1][0].ran_on));
    ck_assert_int_eq(ib_workers_pending(workers), 0);
    ck_assert_int_eq(ib_workers_reap(workers), 0);
    ib_workers_destroy(workers, R2_NS_PER_MS);
}
END_TEST

/* Whoever is waited for goes first; both kinds in order among themselves. */
START_TEST(urgent_jobs_go_first)
{
    static const int urgent[] = {0, 1, 0, 1, 1, 0}, expect[] = {1, 3, 4, 0, 2, 6, 5};
    struct test_job jobs[7];

    begin(0, 1);
    for (int i = 0; i < 6; i++) {
        job_init(&jobs[i], i);
        jobs[i].job.urgent = urgent[i];
        ib_workers_submit(workers, 0, &jobs[i].job);
    }
    for (int i = 0; i < 7; i++) {
        if (i == 5) { /* one comes late */
            job_init(&jobs[6], 6);
            jobs[6].job.urgent = 1;
            ib_workers_submit(workers, 0, &jobs[6].job);
        }
        ck_assert_int_eq(ib_worker_step(workers, 0), 1);
        ck_assert_int_eq(order[0][i], expect[i]);
    }
    ck_assert_int_eq(ib_worker_step(workers, 0), 0);
    ck_assert_int_eq(ib_workers_reap(workers), 7);
    ib_workers_destroy(workers, R2_NS_PER_MS);
}
END_TEST

static void run_quietly(struct ib_job *job)
{
    run(job);
    job->quiet = 1;
}

static void quiet_init(struct test_job *t, int number)
{
    job_init(t, number);
    t->job.run = run_quietly;
}

/* Who takes back what is behind it takes it as well. */
START_TEST(a_quiet_end_wakes_nobody)
{
    static struct test_job quiet[3], loud;
    int before = atomic_load(&wakes);

    begin(1, 1);
    for (int i = 0; i < 3; i++) {
        quiet_init(&quiet[i], i);
        ib_workers_submit(workers, 0, &quiet[i].job);
    }
    job_init(&loud, 3);
    ib_workers_submit(workers, 0, &loud.job);
    sem_wait(&woken);
    ck_assert_int_eq(ib_workers_reap(workers), 4);
    ck_assert_int_eq(atomic_load(&wakes) - before, 1);
    ck_assert_int_eq(quiet[0].dones + quiet[1].dones + quiet[2].dones + loud.dones, 4);
    ck_assert_uint_eq(ib_workers_reaped(workers, 0), 1);
    ck_assert_uint_eq(ib_workers_quiet_at(workers, 0), quiet[2].job.over_at);
    /* quiet once is not quiet for ever */
    quiet[0].job.run = run;
    ib_workers_submit(workers, 0, &quiet[0].job);
    reap(1);
    ib_workers_destroy(workers, R2_NS_PER_MS);
}
END_TEST

/* Before it ends, after that, and when it is not out: one wake, or none. */
START_TEST(a_quiet_end_that_is_wanted_wakes)
{
    static struct test_job t;
    int before = atomic_load(&wakes);

    begin(0, 1);
    quiet_init(&t, 0);
    ib_workers_want(workers, &t.job);
    ib_workers_submit(workers, 0, &t.job);
    ib_worker_step(workers, 0);
    ck_assert_int_eq(atomic_load(&wakes), before);
    ib_workers_want(workers, &t.job);
    ck_assert_int_eq(atomic_load(&wakes), before + 1);
    ib_workers_want(workers, &t.job);
    ck_assert_int_eq(atomic_load(&wakes), before + 1);
    ck_assert_int_eq(ib_workers_reap(workers), 1);
    ib_workers_want(workers, &t.job);
    ck_assert_int_eq(atomic_load(&wakes), before + 1);
    ib_workers_submit(workers, 0, &t.job);
    ib_workers_want(workers, &t.job);
    ck_assert_int_eq(atomic_load(&wakes), before + 1);
    ib_worker_step(workers, 0);
    ck_assert_int_eq(atomic_load(&wakes), before + 2);
    ck_assert_int_eq(ib_workers_reap(workers), 1);
    /* and the next one is quiet again */
    ib_workers_submit(workers, 0, &t.job);
    ib_worker_step(workers, 0);
    ck_assert_int_eq(atomic_load(&wakes), before + 2);
    ck_assert_int_eq(ib_workers_reap(workers), 1);
    ib_workers_destroy(workers, R2_NS_PER_MS);
}
END_TEST

#define ROUNDS 50000

static void run_nothing(struct ib_job *job)
{
    job->quiet = 1;
}

/* Wanted at every moment of its end: the wake comes, or this waits for ever. */
START_TEST(no_wanted_end_is_lost)
{
    static struct test_job t;

    begin(1, 1);
    quiet_init(&t, 0);
    t.job.run = run_nothing;
    t.job.done = NULL;
    for (int i = 0; i < ROUNDS; i++) {
        ib_workers_submit(workers, 0, &t.job);
        for (int n = i % 512 * 8; n > 0; n--) {
            atomic_signal_fence(memory_order_seq_cst);
        }
        ib_workers_want(workers, &t.job);
        reap(1);
    }
    ib_workers_destroy(workers, R2_NS_PER_MS);
}
END_TEST

START_TEST(a_hung_device_blocks_no_other)
{
    static struct test_job hung, behind, other;
    sem_t hold, inside;

    begin(1, 2);
    sem_init(&hold, 0, 0);
    sem_init(&inside, 0, 0);
    job_init(&hung, 1);
    hung.hold = &hold;
    hung.inside = &inside;
    job_init(&behind, 2);
    job_init(&other, 3);
    ib_workers_submit(workers, 0, &hung.job);
    ib_workers_submit(workers, 0, &behind.job);
    sem_wait(&inside);
    ib_workers_submit(workers, 1, &other.job);
    reap(1);
    ck_assert_int_eq(other.dones, 1);
    ck_assert_int_eq(hung.dones + behind.runs, 0);
    ck_assert_int_eq(hung.job.busy, 1);
    ck_assert_int_eq(ib_workers_pending(workers), 2);
    sem_post(&hold);
    reap(2);
    ck_assert_int_eq(order[0][0], 1);
    ck_assert_int_eq(order[0][1], 2);
    ib_workers_destroy(workers, R2_NS_PER_MS);
}
END_TEST

static struct ib_job *again;
static int again_left;

static void done_again(struct ib_job *job)
{
    again = job;
    if (again_left-- > 0) {
        ib_workers_submit(workers, 0, job);
    }
}

START_TEST(a_job_may_be_submitted_from_done)
{
    static struct test_job j;

    begin(1, 1);
    job_init(&j, 1);
    j.job.done = done_again;
    again_left = 3;
    ib_workers_submit(workers, 0, &j.job);
    reap(4);
    ck_assert_int_eq(j.runs, 4);
    ib_workers_destroy(workers, R2_NS_PER_MS);
}
END_TEST

START_TEST(done_is_optional)
{
    static struct test_job j;

    begin(1, 1);
    job_init(&j, 1);
    j.job.done = NULL;
    ib_workers_submit(workers, 0, &j.job);
    reap(1);
    ck_assert_int_eq(j.job.busy, 0);
    ib_workers_destroy(workers, R2_NS_PER_MS);
}
END_TEST

START_TEST(destroy_lets_the_queue_run)
{
    static struct test_job jobs[JOBS];

    begin(1, 1);
    for (int i = 0; i < JOBS; i++) {
        job_init(&jobs[i], i);
        ib_workers_submit(workers, 0, &jobs[i].job);
    }
    ck_assert_uint_eq(ib_workers_destroy(workers, 10000 * R2_NS_PER_MS), 0);
    for (int i = 0; i < JOBS; i++) {
        ck_assert_int_eq(jobs[i].runs, 1);
        ck_assert_int_eq(jobs[i].dones, 0);
        ck_assert_int_eq(jobs[i].job.busy, 0);
    }
    ck_assert_uint_eq(ib_workers_destroy(NULL, 0), 0);
}
END_TEST

static uint64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* run() of an abandoned job: its memory is gone when the driver returns at last. */
static sem_t late_hold, late_inside, late_left;

static void run_late(struct ib_job *job)
{
    sem_post(&late_inside);
    sem_wait(&late_hold);
    sem_post(&late_left);
}

START_TEST(a_driver_that_never_returns)
{
    struct ib_job *hung = calloc(1, sizeof(*hung)), *behind = calloc(1, sizeof(*behind));
    struct test_job other;
    uint64_t before;
    int woke;

    begin(1, 2);
    sem_init(&late_hold, 0, 0);
    sem_init(&late_inside, 0, 0);
    sem_init(&late_left, 0, 0);
    hung->run = behind->run = run_late;
    job_init(&other, 1);
    ib_workers_submit(workers, 0, hung);
    ib_workers_submit(workers, 0, behind);
    sem_wait(&late_inside);
    ib_workers_submit(workers, 1, &other.job);
    reap(1);
    before = now_ms();
    ck_assert_uint_eq(ib_workers_destroy(workers, 50 * R2_NS_PER_MS),
                      1); /* device 0, and only that */
    ck_assert_uint_ge(now_ms() - before, 50);
    ck_assert_uint_lt(now_ms() - before, 5000);
    woke = atomic_load(&wakes);
    free(hung);
    free(behind);
    /* the driver comes back after all: nothing of ours may be touched, and the job behind must not
     * run */
    sem_post(&late_hold);
    sem_wait(&late_left);
    for (int i = 0; i < 20; i++) {
        struct timespec ts = {.tv_nsec = 1000000};
        nanosleep(&ts, NULL); /* time in which a wrong worker would go on; nothing to wait for in a
                                 right one */
    }
    ck_assert_int_ne(sem_trywait(&late_inside), 0);
    ck_assert_int_eq(atomic_load(&wakes), woke);
}
END_TEST

START_TEST(simulation_steps)
{
    static struct test_job a, b, c;

    begin(0, 2);
    memset(kicks, 0, sizeof(kicks));
    job_init(&a, 1);
    job_init(&b, 2);
    job_init(&c, 3);
    ck_assert_int_eq(ib_worker_step(workers, 0), 0);
    ib_workers_submit(workers, 0, &a.job);
    ib_workers_submit(workers, 0, &b.job);
    ib_workers_submit(workers, 1, &c.job);
    ck_assert_int_eq(kicks[0], 2);
    ck_assert_int_eq(kicks[1], 1);
    ck_assert_int_eq(a.runs, 0); /* nothing by itself */
    ck_assert_int_eq(ib_worker_step(workers, 0), 1);
    ck_assert_int_eq(a.runs, 1);
    ck_assert_int_eq(b.runs + c.runs, 0);
    ck_assert_int_eq(a.dones, 0);
    ck_assert_int_eq(ib_workers_reap(workers), 1);
    ck_assert_int_eq(a.dones, 1);
    ck_assert_int_eq(ib_worker_step(workers, 1), 1);
    ck_assert_int_eq(ib_worker_step(workers, 1), 0);
    ck_assert_int_eq(ib_worker_step(workers, 0), 1);
    ck_assert_int_eq(ib_workers_reap(workers), 2);
    ck_assert(pthread_equal(b.ran_on, pthread_self()));
    ib_workers_submit(workers, 0, &a.job);
    ib_workers_submit(workers, 1, &b.job);
    ck_assert_int_eq(ib_worker_step(workers, 0), 1);
    ck_assert(a.job.busy && b.job.busy);
    ib_workers_destroy(workers, 0); /* one is not reaped, one not begun: neither will be */
    ck_assert(!a.job.busy && !b.job.busy);
    ck_assert_int_eq(a.runs + b.runs, 3);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ib_worker");
    TCase *t = tcase_create("workers");
    SRunner *r;
    int failed;

    tcase_set_timeout(t, 60);
    tcase_add_test(t, order_per_device);
    tcase_add_test(t, no_lock_is_held_over_a_wake);
    tcase_add_test(t, urgent_jobs_go_first);
    tcase_add_test(t, a_quiet_end_wakes_nobody);
    tcase_add_test(t, a_quiet_end_that_is_wanted_wakes);
    tcase_add_test(t, no_wanted_end_is_lost);
    tcase_add_test(t, a_hung_device_blocks_no_other);
    tcase_add_test(t, a_job_may_be_submitted_from_done);
    tcase_add_test(t, done_is_optional);
    tcase_add_test(t, destroy_lets_the_queue_run);
    tcase_add_test(t, a_driver_that_never_returns);
    tcase_add_test(t, simulation_steps);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
