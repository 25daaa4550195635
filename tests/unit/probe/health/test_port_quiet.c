/*
 * Looks at the ports of a process at rest: one that finds what the one before has found wakes
 * nobody, any other one wakes the service thread at once, and so does one that somebody waits for.
 */
#include "tests/unit/suite.h"
#include "tests/unit/watch_rig.h"

#include <errno.h>

#include "plugin/core/r2_registry.h"
#include "plugin/probe/health/r2_port_monitor.h"

#define SETTLE (5 * RIG_S) /* probes of new NIC pairs; connections rest behind a second */
#define LOOK   (250 * RIG_MS)
#define SOON   (5 * RIG_US) /* a few hand-overs between threads */

static unsigned kicks, reads;
static uint64_t read_at;
static int answer; /* of the next reads of NIC 0's port: errno, or -1: not ACTIVE, 0: as it is */
static struct r2_inst *inst;
static int (*query_port_real)(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);

static void kick_counted(void *arg)
{
    kicks++;
    rig_kick(arg);
}

static int query_port_counted(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)
{
    int rc = query_port_real(ctx, port, attr);

    reads++;
    if (answer && ctx == inst->nics.nic[0].ctx) {
        read_at = rig_now(rig);
        if (answer < 0) {
            attr->state = IBV_PORT_DOWN;
        }
        return answer > 0 ? answer : rc;
    }
    return rc;
}

/* Process 0 rests, and a look has just been taken. */
static void begin(void)
{
    uint64_t at;

    start(2, NULL);
    messages(2, BIG);
    rig_run(rig, SETTLE);
    inst = rig->side[0].inst;
    ck_assert_ptr_null(inst->steps.awake);
    inst->env.kick_service = kick_counted;
    query_port_real = inst->v.query_port;
    inst->v.query_port = query_port_counted;
    answer = 0;
    at = inst->ports.poll_at;
    rig_run(rig, at - rig_now(rig) + 2 * RIG_MS);
    ck_assert_uint_eq(inst->ports.poll_at, at + LOOK);
    kicks = reads = 0;
}

static void end(void)
{
    inst->v.query_port = query_port_real;
    inst->env.kick_service = rig_kick;
    stop();
    teardown();
}

/* The worker of NIC @nic does nothing, as if its thread had no processor; or goes on. */
static void worker_hold(int nic)
{
    rig->side[0].worker_armed |= 1u << inst->nics.nic[nic].device_index;
}

static int worker_go(int nic)
{
    int n = 0;

    rig_enter(&rig->side[0]);
    while (r2_inst_worker_step(inst, inst->nics.nic[nic].device_index)) {
        n++;
    }
    rig->side[0].worker_armed &= ~(1u << inst->nics.nic[nic].device_index);
    return n;
}

/* The next look has begun, and its job is with the worker of NIC 0, which does nothing. */
static void look_out(void)
{
    worker_hold(0);
    rig_run(rig, inst->ports.poll_at - rig_now(rig) + RIG_US);
    kicks = reads = 0;
}

START_TEST(no_news_wakes_nobody)
{
    begin();
    rig_run(rig, 10 * RIG_S);
    ck_assert_uint_eq(kicks, 0);
    ck_assert_uint_ge(reads,
                      2 * 39); /* each answer is taken back, or there would be no next look */
    ck_assert_uint_le(reads, 2 * 41);
    end();
}
END_TEST

/* Found without an event, by the look that reads it: the port is down, it cannot be read. */
START_TEST(news_wake_at_once)
{
    static const int found[] = {-1, EIO, EADDRNOTAVAIL};

    begin();
    answer = found[_i];
    read_at = 0;
    for (uint64_t until = rig_now(rig) + LOOK + RIG_MS; read_at == 0;) {
        ck_assert_uint_lt(rig_now(rig), until);
        rig_run(rig, RIG_US);
    }
    rig_run(rig, SOON);
    ck_assert_int_ge((int)kicks, 1);
    ck_assert_int_eq(ib_nic_state_get(&inst->nics.nic[0]), IB_NIC_DOWN);
    /* and likewise when it is well again: nothing about that was expected */
    answer = 0;
    rig_run(rig, LOOK + SOON);
    ck_assert_int_eq(ib_nic_state_get(&inst->nics.nic[0]), IB_NIC_UP);
    end();
}
END_TEST

/* While the NIC is down every look is news: it may be the one that finds it well. */
START_TEST(a_nic_that_is_back_is_found_by_the_look)
{
    begin();
    answer = -1;
    rig_run(rig, LOOK + RIG_MS);
    ck_assert_int_eq(ib_nic_state_get(&inst->nics.nic[0]), IB_NIC_DOWN);
    look_out();
    answer = 0;
    ck_assert_int_eq(worker_go(0), 1);
    rig_run(rig, SOON);
    ck_assert_int_eq(ib_nic_state_get(&inst->nics.nic[0]), IB_NIC_UP);
    end();
}
END_TEST

START_TEST(another_address_is_news)
{
    begin();
    look_out();
    inst->nics.nic[0].addr.gid[15] ^= 1; /* as if it had been another before */
    ck_assert_int_eq(worker_go(0), 1);
    ck_assert_uint_eq(kicks, 1);
    end();
}
END_TEST

/* The driver has kept the worker: that it is back is news. */
START_TEST(a_late_answer_is_news)
{
    begin();
    look_out();
    rig_run(rig, 50 * RIG_MS);
    kicks = 0;
    ck_assert_int_eq(worker_go(0), 1);
    ck_assert_uint_eq(kicks, 1);
    end();
}
END_TEST

/* An event asks for a look while one is out: what that brings is taken back at once, and the port
 * is read again. @_i: it has ended quietly by then. */
START_TEST(an_answer_that_is_waited_for_wakes)
{
    static const struct ib_fact asks = {
        .kind = IB_FACT_REFRESH, .nic = 0, .context = IB_REFRESH_ACTIVE};

    begin();
    look_out();
    if (_i == 1) {
        ck_assert_int_eq(worker_go(0), 1);
        ck_assert_uint_eq(kicks, 0);
    }
    rig_enter(&rig->side[0]);
    r2_port_monitor_fact(inst, &asks);
    if (_i == 0) {
        ck_assert_uint_eq(kicks, 0);
        ck_assert_int_eq(worker_go(0), 1);
    }
    ck_assert_uint_eq(kicks, 1);
    reads = 0;
    rig_run(rig, SOON);
    ck_assert_uint_eq(reads, 1);
    end();
}
END_TEST

/* The worker has last been alive when it ended that, whenever it is taken back. */
START_TEST(a_quiet_answer_counts_from_its_end)
{
    uint64_t ended;

    begin();
    look_out();
    ended = rig_now(rig);
    ck_assert_int_eq(worker_go(0), 1);
    rig_run(rig, 20 * RIG_MS);
    rig_kick(&rig->side[0]);
    rig_run(rig, RIG_MS);
    ck_assert_uint_eq(inst->jobs.alive[inst->nics.nic[0].device_index], ended);
    end();
}
END_TEST

/* There is no connection any more, and a look is out: no later one takes its answer back. */
START_TEST(nothing_is_left_behind)
{
    struct r2_comm *all;

    begin();
    look_out();
    all = inst->comms.all;
    inst->comms.all = NULL;
    r2_port_monitor_step(inst, rig_now(rig), 0);
    inst->comms.all = all;
    kicks = 0; /* that of NIC 1 has ended by then */
    ck_assert_int_eq(worker_go(0), 1);
    ck_assert_uint_eq(kicks, 1);
    end();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, no_news_wakes_nobody);
    tcase_add_loop_test(t, news_wake_at_once, 0, 3);
    tcase_add_test(t, a_nic_that_is_back_is_found_by_the_look);
    tcase_add_test(t, another_address_is_news);
    tcase_add_test(t, a_late_answer_is_news);
    tcase_add_loop_test(t, an_answer_that_is_waited_for_wakes, 0, 2);
    tcase_add_test(t, a_quiet_answer_counts_from_its_end);
    tcase_add_test(t, nothing_is_left_behind);
}

int main(void)
{
    return suite_run("port_quiet", 120, NULL, NULL, add);
}
