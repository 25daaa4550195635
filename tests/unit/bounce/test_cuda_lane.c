/* Copies of the CUDA driver's copy engine: order, what is known when a call of the driver fails,
 * threads. */
#include "tests/unit/cuda_rig.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#define GPUS  3
#define SLOTS 4
#define BYTES 1000u

static struct ib_copy_mem from, to;
static void *lane;

/* A lane between memory of two places. */
static void lane_make(int src, int dst)
{
    ck_assert_int_eq(ops->mem_get(cuda, src, BYTES * SLOTS, &from), 0);
    ck_assert_int_eq(ops->mem_get(cuda, dst, BYTES * SLOTS, &to), 0);
    ck_assert_int_eq(ops->lane_open(cuda, src, dst, SLOTS, &lane), 0);
}

static void lane_end(void)
{
    ops->lane_close(cuda, lane);
    ops->mem_put(cuda, &from);
    ops->mem_put(cuda, &to);
}

/* Where this process finds the bytes of @mem for @slot. */
static unsigned char *bytes(const struct ib_copy_mem *mem, unsigned slot)
{
    void *p = mem->type == IB_PTR_CUDA ? app.bytes(mem->addr) : mem->addr;

    return (unsigned char *)p + slot * BYTES;
}

static int begin(unsigned slot)
{
    size_t at = slot * BYTES;

    return ops->begin(cuda, lane, slot, (char *)to.addr + at, (char *)from.addr + at, BYTES);
}

static int done(unsigned slot)
{
    return ops->done(cuda, lane, slot);
}

static int same(unsigned slot)
{
    return memcmp(bytes(&to, slot), bytes(&from, slot), BYTES) == 0;
}

START_TEST(arguments)
{
    static const struct {
        int from, to;
        unsigned slots;
    } wrong[] = {{IB_COPY_HOST, IB_COPY_HOST, 1},
                 {-2, 0, 1},
                 {0, -2, 1},
                 {GPUS, 0, 1},
                 {0, GPUS, 1},
                 {0, 1, 0},
                 {0, 1, R2_CUDA_SLOTS_MAX + 1}};
    void *const untouched = &lane;

    rig_open(GPUS);
    lane = untouched;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        ck_assert_int_eq(ops->lane_open(cuda, wrong[i].from, wrong[i].to, wrong[i].slots, &lane),
                         EINVAL);
    }
    ck_assert_ptr_eq(lane, untouched);
    ck_assert_int_eq(ops->lane_open(cuda, 0, 1, R2_CUDA_SLOTS_MAX, &lane), 0);
    ck_assert_int_eq(fake->live().events, (int)R2_CUDA_SLOTS_MAX);
    ops->lane_close(cuda, lane);
    lane_make(0, 1);
    ck_assert_int_eq(begin(SLOTS), EINVAL);
    ck_assert_int_eq(done(SLOTS), -1);
    ck_assert_int_eq(begin(0), 0); /* the lane is none the worse */
    ck_assert_int_eq(done(0), 1);
    lane_end();
    rig_close(0);
}
END_TEST

static const int ways[][2] = {{0, 1}, {1, 0}, {2, 2}, {1, IB_COPY_HOST}, {IB_COPY_HOST, 2}};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

/* Every way, with GPUs that reach each other's memory (even) and such that do not: the bytes, those
 * alone, and by whom.
 */
START_TEST(each_way)
{
    const int *way = ways[_i / 2];
    int peers = _i % 2 == 0, two = way[0] >= 0 && way[1] >= 0 && way[0] != way[1];

    rig_open(GPUS);
    fake->peers_set(peers);
    lane_make(way[0], way[1]);
    ck_assert_int_eq(fake->live().retained,
                     two || way[0] == IB_COPY_HOST ? 2 : 1); /* for the host, first: GPU 0's */
    memset(bytes(&from, 0), 0x5a, BYTES * SLOTS);
    memset(bytes(&to, 0), 0, BYTES * SLOTS);
    ck_assert_int_eq(begin(1), 0);
    ck_assert_int_eq(done(1), 1);
    ck_assert(same(1));
    ck_assert_int_eq(bytes(&to, 1)[-1] + bytes(&to, 2)[0], 0);
    ck_assert_uint_eq(fake->count().copies, 1);
    ck_assert_uint_eq(fake->count().staged, two && !peers);
    lane_end();
    lane_make(way[0], way[1]); /* access that is there already is right, too */
    lane_end();
    rig_close(0);
}
END_TEST

/* Slots are asked about in any order; a slot that is over is used again. */
START_TEST(order)
{
    rig_open(GPUS);
    lane_make(0, 1);
    fake->hold(1);
    for (unsigned i = 0; i < SLOTS; i++) {
        memset(bytes(&from, i), (int)i + 1, BYTES);
        ck_assert_int_eq(begin(i), 0);
    }
    for (unsigned ended = 0; ended <= SLOTS; ended++) {
        for (unsigned i = SLOTS; i-- > 0;) {
            ck_assert_int_eq(done(i), i < ended);
            ck_assert_int_eq(same(i), i < ended);
        }
        ck_assert_uint_eq(fake->release(-1, 1), ended < SLOTS);
    }
    memset(bytes(&from, 2), 9, BYTES);
    ck_assert_int_eq(begin(2), 0);
    ck_assert_int_eq(done(2), 0); /* not what it was before */
    ck_assert_int_eq(done(3), 1);
    ck_assert_uint_eq(fake->release(-1, 9), 1);
    ck_assert_int_eq(done(2), 1);
    ck_assert(same(2));
    lane_end();
    rig_close(0);
}
END_TEST

/* Lanes of several GPUs, and of one, end independently. */
START_TEST(lanes_wait_for_none)
{
    struct ib_copy_mem host;
    void *other;

    rig_open(GPUS);
    lane_make(0, 1);
    ck_assert_int_eq(ops->mem_get(cuda, IB_COPY_HOST, BYTES, &host), 0);
    ck_assert_int_eq(ops->lane_open(cuda, 1, IB_COPY_HOST, 1, &other), 0);
    fake->hold(1);
    ck_assert_int_eq(begin(0), 0);
    ck_assert_int_eq(ops->begin(cuda, other, 0, host.addr, to.addr, BYTES), 0);
    ck_assert_uint_eq(fake->release(1, 9), 1); /* the second alone */
    ck_assert_int_eq(ops->done(cuda, other, 0), 1);
    ck_assert_int_eq(done(0), 0);
    ck_assert_uint_eq(fake->release(0, 9), 1);
    ck_assert_int_eq(done(0), 1);
    ops->lane_close(cuda, other);
    ops->mem_put(cuda, &host);
    lane_end();
    rig_close(0);
}
END_TEST

/* The driver will not copy, and says so before it has begun anything: nothing runs, the lane goes
 * on, the log has one line. */
START_TEST(a_copy_that_is_refused)
{
    static const struct {
        int error, is;
    } refused[] = {{1, EINVAL},  {3, ENODEV},       {4, ENODEV}, {201, EINVAL}, {400, EINVAL},
                   {800, EPERM}, {801, EOPNOTSUPP}, {900, EIO},  {908, EIO}};

    rig_open(GPUS);
    lane_make(0, 1);
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        fake->fail_at("cuMemcpyAsync", 0, refused[i].error);
        ck_assert_int_eq(begin(0), refused[i].is);
        ck_assert_ptr_nonnull(fake->failed());
    }
    ck_assert_int_eq(rig_logged(), 1);
    ck_assert_str_eq(rig_line, "NET/R2 : CUDA: GPU 0: cuMemcpyAsync: invalid argument (1)");
    ck_assert_uint_eq(fake->count().copies, 0);
    ck_assert_int_eq(begin(0), 0);
    ck_assert_int_eq(done(0), 1);
    lane_end();
    rig_close(0);
}
END_TEST

/* One slot's copy waits, another's fails as @call with @error: what runs is not known, so that no
 * slot's end is, ever. Memory is not given back. */
static void lane_breaks(const char *call, int error)
{
    struct rig_thread before = rig_thread();

    fake->hold(1);
    ck_assert_int_eq(begin(0), 0);
    fake->fail_at(call, 0, error);
    ck_assert_int_eq(begin(1), 0); /* not "nothing runs" */
    ck_assert_str_eq(fake->failed(), call);
    ck_assert_int_eq(done(1), -1);
    ck_assert_int_eq(done(0), -1);
    fake->hold(0);
    ck_assert_int_eq(done(1), -1);
    ck_assert_int_eq(done(0), -1);
    ck_assert_int_eq(begin(2), EIO);
    ck_assert_int_eq(done(2), -1);
    rig_thread_is(before);
    ck_assert_int_eq(rig_logged(), 1);
    ck_assert_msg(strstr(rig_line, call) != NULL, "%s", rig_line);
}

START_TEST(an_event_that_is_not_recorded)
{
    rig_open(GPUS);
    lane_make(0, 1);
    memset(bytes(&from, 1), 0x5a, BYTES);
    lane_breaks("cuEventRecord", 1);
    ck_assert_uint_eq(fake->count().copies, 2); /* indeed */
    ck_assert(same(1));
    lane_end();
    rig_close(2);
}
END_TEST

/* Errors that may be those of earlier work, or come half way through. */
START_TEST(a_copy_of_which_nothing_is_known)
{
    static const int errors[] = {2, 214, 304, 700, 719, 899, 909, RIG_UNKNOWN};

    rig_open(GPUS);
    lane_make(0, 1);
    lane_breaks("cuMemcpyAsync", errors[_i]);
    lane_end();
    rig_close(2);
}
END_TEST

/* A lane that is broken is closed while its copies run. */
START_TEST(a_broken_lane_is_closed)
{
    rig_open(GPUS);
    lane_make(0, 1);
    fake->hold(1);
    ck_assert_int_eq(begin(0), 0);
    fake->fail_at("cuEventQuery", 0, 700);
    ck_assert_int_eq(done(0), -1);
    ck_assert_int_eq(done(0), -1);
    ck_assert_int_eq(rig_logged(), 1);
    ck_assert_str_eq(rig_line, "NET/R2 : CUDA: GPU 0: cuEventQuery: fake (700)");
    lane_end();
    rig_close(2);
}
END_TEST

/* begin and done, whose driver's calls fail one after the other, each in a lane of its own. */
START_TEST(each_call_fails)
{
    struct rig_thread before;
    int all = 0, refused = 0, broken = 0;

    rig_open(GPUS);
    rig_thread_busy(2);
    before = rig_thread();
    for (;; all++) {
        int began, ended, seen;

        lane_make(0, 1);
        fake->fail_at(NULL, (unsigned)all, RIG_UNKNOWN);
        began = begin(0);
        ended = began == 0 ? done(0) : 1;
        seen = rig_fault_seen(before);
        if (!seen) {
            break;
        }
        ck_assert(began == 0 || began == EIO);
        ck_assert(ended == 1 || ended == -1);
        refused += began == EIO;
        broken += ended == -1;
        /* pushing fails: there was no copy, the lane goes on; all else: it is over */
        ck_assert_int_eq(begin(1), began == 0 ? EIO : 0);
        rig_thread_is(before);
        ck_assert_int_eq(rig_logged(), 1);
        lane_end();
    }
    lane_end();
    /* begin: relax, push, copy, record, pop, restore; done: five of these */
    ck_assert_int_eq(all, 11);
    ck_assert_int_eq(refused, 2);
    ck_assert_int_eq(broken, 7); /* but for what fails behind the query */
    rig_close(3);
}
END_TEST

/* The caller's context is another one, or none, and somebody captures a graph. */
START_TEST(the_thread_is_left_as_it_was)
{
    struct rig_thread before;

    rig_open(GPUS);
    if (_i) {
        rig_thread_busy(2);
    }
    before = rig_thread();
    ck_assert_int_eq(before.current, _i ? 2 : -1);
    lane_make(0, 1);
    fake->capture_set(1);
    rig_thread_is(before);
    fake->hold(1);
    ck_assert_int_eq(begin(0), 0);
    rig_thread_is(before);
    ck_assert_int_eq(done(0), 0);
    rig_thread_is(before);
    fake->hold(0);
    ck_assert_int_eq(done(0), 1);
    rig_thread_is(before);
    lane_end();
    rig_thread_is(before);
    ck_assert_uint_eq(fake->count().spoiled, 0);
    rig_close(_i ? 1 : 0);
}
END_TEST

/* GPUs that do not reach each other, whatever the reason: the driver copies all the same. */
START_TEST(peers_fail)
{
    static const struct {
        const char *call;
        int error, lines;
    } faults[] = {{"cuDeviceCanAccessPeer", 999, 1},
                  {"cuCtxEnablePeerAccess", 217, 1},
                  {"cuCtxEnablePeerAccess", 711, 1},
                  {"cuCtxEnablePeerAccess", 704, 0}};

    rig_open(GPUS);
    fake->fail_at(faults[_i].call, 0, faults[_i].error);
    lane_make(0, 1);
    ck_assert_str_eq(fake->failed(), faults[_i].call);
    r2_log_flush();
    ck_assert_int_eq(rig_warns, 0);
    ck_assert_int_eq(rig_logged(), faults[_i].lines);
    ck_assert_int_eq(begin(0), 0);
    ck_assert_int_eq(done(0), 1);
    ck_assert(same(0));
    lane_end();
    rig_close(0);
}
END_TEST

/* Threads with a lane each, which they open at once: the first use of the contexts, too. */
enum { THREADS = 2, ROUNDS = 300 };
static struct worker {
    pthread_t thread;
    int from, to;
    unsigned ended, wrong;
} workers[THREADS];
static atomic_int running;

static void worker_copies(struct worker *w, void *l, const struct ib_copy_mem *src,
                          const struct ib_copy_mem *dst)
{
    unsigned next = 0, oldest = 0;

    while (oldest < ROUNDS) {
        if (next < ROUNDS && next - oldest < SLOTS) {
            unsigned slot = next % SLOTS;

            memset(bytes(src, slot), (int)next, BYTES);
            w->wrong += ops->begin(cuda, l, slot, (char *)dst->addr + slot * BYTES,
                                   (char *)src->addr + slot * BYTES, BYTES) != 0;
            next++;
        } else {
            unsigned slot = oldest % SLOTS;
            int rc = ops->done(cuda, l, slot);

            if (rc == 0) {
                sched_yield();
                continue;
            }
            w->wrong += rc != 1 || bytes(dst, slot)[BYTES - 1] != (unsigned char)oldest;
            oldest++;
            w->ended++;
        }
    }
}

static void *worker_run(void *arg)
{
    struct worker *w = arg;
    struct ib_copy_mem src, dst;
    void *l;

    w->wrong += ops->lane_open(cuda, w->from, w->to, SLOTS, &l) != 0;
    w->wrong += ops->mem_get(cuda, w->from, BYTES * SLOTS, &src) != 0;
    w->wrong += ops->mem_get(cuda, w->to, BYTES * SLOTS, &dst) != 0;
    if (w->wrong == 0) {
        worker_copies(w, l, &src, &dst);
        ops->lane_close(cuda, l);
        ops->mem_put(cuda, &src);
        ops->mem_put(cuda, &dst);
    }
    w->wrong += fake->depth() != 0 || fake->capture_mode() != 0;
    atomic_fetch_sub(&running, 1);
    return NULL;
}

static struct {
    pthread_t thread;
    atomic_int tid;
    void *lane;
    int rc;
} second;

static void *second_run(void *arg)
{
    atomic_store(&second.tid, gettid());
    second.rc = ops->lane_open(cuda, 0, IB_COPY_HOST, 1, &second.lane);
    return NULL;
}

/* Whether thread @tid of this process sleeps. */
static int thread_sleeps(int tid)
{
    char path[64], state = 'R';
    FILE *f;

    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
    f = fopen(path, "re");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fscanf(f, "%*d (%*[^)]) %c", &state), 1);
    fclose(f);
    return state == 'S';
}

/* The first thread is about to make the context: the second comes, and waits for that. */
static void second_start(void)
{
    ck_assert_int_eq(pthread_create(&second.thread, NULL, second_run, NULL), 0);
    while (atomic_load(&second.tid) == 0 || !thread_sleeps(atomic_load(&second.tid))) {
        sched_yield();
    }
}

/* Of threads that use a context first at the same time one makes it. */
START_TEST(first_use)
{
    rig_open(1);
    fake->before("cuDevicePrimaryCtxRetain", second_start);
    ck_assert_int_eq(ops->lane_open(cuda, 0, IB_COPY_HOST, 1, &lane), 0);
    ck_assert_int_ne(atomic_load(&second.tid), 0);
    pthread_join(second.thread, NULL);
    ck_assert_int_eq(second.rc, 0);
    ck_assert_int_eq(fake->live().retained, 1);
    ops->lane_close(cuda, lane);
    ops->lane_close(cuda, second.lane);
    rig_close(0);
}
END_TEST

START_TEST(threads)
{
    rig_open(GPUS);
    fake->hold(1);
    fake->capture_set(1);
    atomic_store(&running, THREADS);
    for (int i = 0; i < THREADS; i++) {
        workers[i].from = i;
        workers[i].to = 1 - i;
        ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, worker_run, &workers[i]), 0);
    }
    while (atomic_load(&running) > 0) { /* the GPUs */
        if (fake->release(-1, 1) == 0) {
            sched_yield();
        }
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        ck_assert_uint_eq(workers[i].wrong, 0);
        ck_assert_uint_eq(workers[i].ended, ROUNDS);
    }
    ck_assert_int_eq(fake->live().retained, 2);
    ck_assert_uint_eq(fake->count().copies, THREADS * ROUNDS);
    ck_assert_uint_eq(fake->count().staged + fake->count().spoiled, 0);
    rig_close(0);
}
END_TEST

static void tests_add(TCase *t)
{
    tcase_add_test(t, arguments);
    tcase_add_loop_test(t, each_way, 0, 2 * WAYS);
    tcase_add_test(t, order);
    tcase_add_test(t, lanes_wait_for_none);
    tcase_add_test(t, a_copy_that_is_refused);
    tcase_add_test(t, an_event_that_is_not_recorded);
    tcase_add_loop_test(t, a_copy_of_which_nothing_is_known, 0, 8);
    tcase_add_test(t, a_broken_lane_is_closed);
    tcase_add_test(t, each_call_fails);
    tcase_add_loop_test(t, the_thread_is_left_as_it_was, 0, 2);
    tcase_add_loop_test(t, peers_fail, 0, 4);
    tcase_add_test(t, first_use);
    tcase_add_test(t, threads);
}

int main(void)
{
    return suite_run("cuda_lane", 60, NULL, NULL, tests_add);
}
