/* A process in which nothing is under way: its service thread sleeps for long, what wakes it is
 * looked at as soon as by one that ticks, and the watch's clock goes on. */
#include "tests/unit/suite.h"
#include "tests/unit/watch_rig.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "plugin/core/r2_registry.h"

#define SETTLE (5 * RIG_S) /* probes of new NIC pairs; connections rest behind a second */
#define TICK   (7500 * RIG_US)
#define REST   (250 * RIG_MS) /* as long as between two looks at the ports */

/* Each turn reads the events of each device here: nobody has waited for them. */
static unsigned turns[2];
static int (*get_async_event_real)(struct ibv_context *ctx, struct ibv_async_event *ev);

static int get_async_event_counted(struct ibv_context *ctx, struct ibv_async_event *ev)
{
    for (int s = 0; s < 2; s++) {
        turns[s] += ctx == rig->side[s].inst->nics.device_ctx[0];
    }
    return get_async_event_real(ctx, ev);
}

static void turns_count(void)
{
    get_async_event_real = rig->side[0].inst->v.get_async_event;
    for (int s = 0; s < 2; s++) {
        rig->side[s].inst->v.get_async_event = get_async_event_counted;
        turns[s] = 0;
    }
}

static void turns_end(void)
{
    for (int s = 0; s < 2; s++) {
        rig->side[s].inst->v.get_async_event = get_async_event_real;
    }
}

static uint64_t wanted[2]; /* by who was told of the latest turn, and is above the watch */

static void on_watch(struct r2_inst *inst, uint64_t now, uint64_t tick)
{
    int s = inst == rig->side[1].inst;

    ck_assert_uint_le(now, wanted[s] + TICK);
    wanted[s] = inst->watch.wanted;
    ck_assert_uint_le(wanted[s], now + 500 * RIG_MS); /* the search for hangs does */
}

static const struct r2_subscriber wants = {.on_watch = on_watch};

static void rested(void)
{
    messages(2, BIG);
    rig_run(rig, SETTLE);
    for (int s = 0; s < 2; s++) {
        ck_assert_ptr_null(rig->side[s].inst->steps.awake);
    }
}

/* Those of the looks at the ports, every 250 ms, and no others: whoever else wants a turn now and
 * then, as the search for hangs does every 500 ms, takes one of these. Looks and rounds of the
 * search stand in any order when the rest begins: @_i. */
START_TEST(few_turns_are_taken)
{
    start(2, NULL);
    rig_run(rig, (uint64_t)_i * 29 * RIG_MS);
    rested();
    rig_run(rig, 2 * RIG_S);
    wanted[0] = wanted[1] = UINT64_MAX - TICK;
    subscribe(&wants);
    turns_count();
    rig_run(rig, 10 * RIG_S);
    turns_end();
    for (int s = 0; s < 2; s++) {
        ck_assert_uint_ge(turns[s], 39);
        ck_assert_uint_le(turns[s], 44);
    }
    stop();
    teardown();
}
END_TEST

/* Rounds of the search for hangs come as often as ever, and none is late. */
START_TEST(a_short_limit_on_hangs_is_kept)
{
    const char *const options[] = {"NCCL_R2_HANG_AFTER=500", NULL};

    start(2, options);
    rested();
    turns_count();
    rig_run(rig, 10 * RIG_S);
    turns_end();
    for (int s = 0; s < 2; s++) { /* a tenth each */
        ck_assert_uint_ge(turns[s], 199);
        ck_assert_uint_le(turns[s], 250);
    }
    stop();
    teardown();
}
END_TEST

/* How long a message takes that is sent over a NIC that has fallen silent: behind @rest ns, or by a
 * process that ticks. Its CTS is there, and the fault long past, which wakes both ends. */
static uint64_t silence_takes(uint64_t rest)
{
    uint64_t took;

    start(2, NULL);
    messages(2, BIG);
    recv_post(0, BIG);
    rig_run(rig, SETTLE);
    fire("h0:n0 blackhole");
    rig_run(rig, REST + rest);
    ck_assert_ptr_null(rig->side[0].inst->steps.awake);
    if (rest == 0) {
        rig_kick(&rig->side[0]); /* the tick would be within TICK */
        rig_run(rig, RIG_MS);
    }
    send_post(0, BIG);
    took = finish(1, BIG, RIG_S);
    stop();
    teardown();
    return took;
}

START_TEST(silence_behind_a_rest_is_found_as_soon)
{
    uint64_t ticking = silence_takes(0);

    for (uint64_t rest = RIG_MS; rest < RIG_MS + 2 * REST; rest += 7 * RIG_MS) {
        uint64_t took = silence_takes(rest);
        ck_assert_msg(took <= ticking + TICK, "%llu us behind %llu ms of rest, %llu us otherwise",
                      (unsigned long long)(took / 1000), (unsigned long long)(rest / RIG_MS),
                      (unsigned long long)(ticking / 1000));
    }
}
END_TEST

static int is_asleep(struct rig *r)
{
    return r->side[0].inst->watch.rest != 0;
}

START_TEST(the_clock_goes_on)
{
    struct r2_inst *inst;
    uint64_t clock, from;

    start(2, NULL);
    rested();
    inst = rig->side[0].inst;
    clock = inst->watch.clock;
    from = rig_now(rig);
    rig_run(rig, 10 * RIG_S);
    ck_assert_uint_ge(inst->watch.clock - clock, rig_now(rig) - from - REST);
    ck_assert_uint_le(inst->watch.clock - clock, rig_now(rig) - from + REST);
    /* but not for a process that stands */
    ck_assert(rig_until(rig, is_asleep, RIG_S));
    clock = inst->watch.clock;
    rig->side[0].still = 1;
    rig_run(rig, 10 * RIG_S);
    rig->side[0].still = 0;
    rig_kick(&rig->side[0]);
    rig_run(rig, RIG_MS);
    ck_assert_uint_gt(inst->watch.clock, clock);
    ck_assert_uint_le(inst->watch.clock - clock, REST + 2 * TICK);
    stop();
    teardown();
}
END_TEST

/* --- who wakes, and who is about to sleep --- */

#define ROUNDS 200000 /* 3 s, where both threads have a processor */
#define LONG   10     /* s: where others have it, too, each round may cost slices of them */

static _Atomic unsigned wakes, taken;
static _Atomic bool is_over;

static void on_wake(void *arg)
{
    atomic_fetch_add(&wakes, 1);
}

/* The connection's owner: as ib_conn_stir(), whenever the thread has let it rest. */
static void *owner(void *arg)
{
    struct r2_comm *c = arg;

    for (unsigned i = 0; i < ROUNDS; i++) {
        for (unsigned n = 1; atomic_load(&taken) != i; n++) { /* near to when it is taken */
            if (n % 256 == 0 && atomic_load(&is_over)) {
                return NULL;
            } else if (n % 256 == 0) {
                sched_yield();
            }
        }
        r2_comm_wake(c);
    }
    return NULL;
}

START_TEST(no_wake_is_lost)
{
    struct r2_inst *inst;
    struct r2_comm *c;
    unsigned slept = 0;
    bool is_late = false;
    time_t until;
    pthread_t t;

    start(1, NULL);
    rested();
    inst = rig->side[0].inst;
    c = rig->side[0].comm;
    inst->env.kick_service = on_wake;
    until = time(NULL) + LONG;
    ck_assert_int_eq(pthread_create(&t, NULL, owner, c), 0);
    while (atomic_load(&taken) < ROUNDS && !is_late) {
        unsigned before = atomic_load(&wakes);

        for (unsigned n = atomic_load(&taken) % 512; n > 0; n--) { /* so that the owner's push meets
                                                                      each point of this loop */
            atomic_signal_fence(memory_order_seq_cst);
        }
        r2_comms_turn(inst);
        if (r2_comms_awake(inst)) {
            ck_assert_ptr_eq(r2_comms_awake(inst), c);
            r2_comm_rest(c);
            atomic_fetch_add(&taken, 1);
        } else if (r2_comms_sleep(inst)) {
            slept++;
            while (atomic_load(&wakes) == before) { /* for ever, if it is lost */
                sched_yield();
                is_late = time(NULL) > until;
            }
        }
    }
    atomic_store(&is_over, true);
    pthread_join(t, NULL);
    ck_assert_uint_gt(slept, 0);
    ck_assert_uint_le(slept, atomic_load(&wakes));
    inst->env.kick_service = rig_kick;
    stop();
    teardown();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, few_turns_are_taken, 0, 9);
    tcase_add_test(t, a_short_limit_on_hangs_is_kept);
    tcase_add_test(t, silence_behind_a_rest_is_found_as_soon);
    tcase_add_test(t, the_clock_goes_on);
    tcase_add_test(t, no_wake_is_lost);
}

int main(void)
{
    return suite_run("watch_rest", 120, NULL, NULL, add);
}
