/* What the service thread reads behind a wait: the descriptors that had something, and with a look
 * at the ports all of them. Real descriptors, whose waits never last; virtual time otherwise. */
#include "tests/unit/inband_rig.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>

#include "plugin/core/r2_net.h"
#include "plugin/service/r2_wait.h"

#define NICS   3
#define ALL    ((1u << NICS) - 1)
#define SETTLE (5 * RIG_S) /* probes of new NIC pairs; connections rest behind a second */

static int ppoll_fails; /* errno of the next one, which has left rubbish behind; 0: it works */
static unsigned polled; /* bit per device: its descriptor was waited for */
static uint32_t events_read, messages_read; /* bit per device, per NIC */
static int (*get_async_event_real)(struct ibv_context *ctx, struct ibv_async_event *ev);
static int (*get_cq_event_real)(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **context);

int __real_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *limit, const sigset_t *mask);
int __wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *limit, const sigset_t *mask);

int __wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *limit, const sigset_t *mask)
{
    polled = 0;
    for (nfds_t i = 0; i < n; i++) {
        for (int k = 0; k < inst(0)->nics.device_count; k++) {
            polled |= fds[i].fd == inst(0)->nics.device_ctx[k]->async_fd ? 1u << k : 0;
        }
        fds[i].revents = 0;
    }
    if (ppoll_fails) {
        errno = ppoll_fails;
        ppoll_fails = 0;
        return -1;
    }
    return __real_ppoll(fds, n, limit, mask);
}

static int get_async_event_counted(struct ibv_context *ctx, struct ibv_async_event *ev)
{
    for (int i = 0; i < inst(0)->nics.device_count; i++) {
        events_read |= ctx == inst(0)->nics.device_ctx[i] ? 1u << i : 0;
    }
    return get_async_event_real(ctx, ev);
}

static int get_cq_event_counted(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **context)
{
    for (int i = 0; i < inst(0)->nics.count; i++) {
        messages_read |= ch == inst(0)->inband.pool[i].channel ? 1u << i : 0;
    }
    return get_cq_event_real(ch, cq, context);
}

/* Process 0 rests, and its turns are taken here alone: see turn(). */
static void begin_at_rest(void)
{
    static const char *const options[] = {"NCCL_R2_INBAND=on", NULL};

    begin(NICS, options);
    rig_run(rig, SETTLE);
    ck_assert_uint_eq(inst(0)->inband.open, ALL);
    ck_assert_int_eq(inst(0)->nics.device_count, NICS);
    get_async_event_real = inst(0)->v.get_async_event;
    get_cq_event_real = inst(0)->v.get_cq_event;
    inst(0)->v.get_async_event = get_async_event_counted;
    inst(0)->v.get_cq_event = get_cq_event_counted;
    rig->side[0].still = 1;
}

static void end(void)
{
    inst(0)->v.get_async_event = get_async_event_real;
    inst(0)->v.get_cq_event = get_cq_event_real;
    rig->side[0].still = 0;
    rig_kick(&rig->side[0]);
    stop();
    teardown();
}

static void turn(void)
{
    events_read = messages_read = 0;
    rig_enter(&rig->side[0]);
    r2_inst_service_step(inst(0));
}

/* The turn after this one is no look at the ports. */
static void no_look_soon(void)
{
    inst(0)->ports.poll_at = rig_now(rig) + RIG_S;
}

START_TEST(nothing_is_read_that_is_not_there)
{
    begin_at_rest();
    r2_wait(inst(0), 0);
    ck_assert_uint_eq(polled, ALL);
    no_look_soon();
    turn();
    ck_assert_uint_eq(events_read, 0);
    ck_assert_uint_eq(messages_read, 0);
    /* known of one turn alone: the next one has not waited */
    turn();
    ck_assert_uint_eq(events_read, ALL);
    ck_assert_uint_eq(messages_read, ALL);
    end();
}
END_TEST

START_TEST(an_event_is_read_where_it_is)
{
    begin_at_rest();
    fire("h0:n1 down");
    r2_wait(inst(0), 0);
    no_look_soon();
    turn();
    ck_assert_uint_eq(events_read, 1u << 1);
    ck_assert_int_eq(ib_nic_state_get(&inst(0)->nics.nic[1]), IB_NIC_DOWN);
    end();
}
END_TEST

START_TEST(a_message_is_read_where_it_is)
{
    static const uint8_t no_record[8];

    begin_at_rest();
    rig_enter(&rig->side[1]);
    ck_assert_int_eq(ib_inband_send(&pair(1, 2)->inband, &inst(1)->inband.pool[2], no_record, 8, 0),
                     0);
    rig_run(rig, RIG_MS);
    ck_assert_uint_eq(inst(0)->inband.received, 0);
    r2_wait(inst(0), 0);
    no_look_soon();
    turn();
    ck_assert_uint_eq(messages_read, 1u << 2);
    ck_assert_uint_eq(inst(0)->inband.received, 1);
    /* and the channel is asked for the next one */
    rig_enter(&rig->side[1]);
    ck_assert_int_eq(ib_inband_send(&pair(1, 2)->inband, &inst(1)->inband.pool[2], no_record, 8, 0),
                     0);
    rig_run(rig, RIG_MS);
    r2_wait(inst(0), 0);
    no_look_soon();
    turn();
    ck_assert_uint_eq(messages_read, 1u << 2);
    ck_assert_uint_eq(inst(0)->inband.received, 2);
    end();
}
END_TEST

START_TEST(what_comes_behind_a_wait_ends_the_next_one)
{
    begin_at_rest();
    r2_wait(inst(0), 0);
    fire("h0:n1 down");
    no_look_soon();
    turn();
    ck_assert_uint_eq(events_read, 0);
    ck_assert_int_eq(ib_nic_state_get(&inst(0)->nics.nic[1]), IB_NIC_UP);
    r2_wait(inst(0), rig_now(rig) + 1000 * RIG_S); /* at once, or this hangs */
    no_look_soon();
    turn();
    ck_assert_uint_eq(events_read, 1u << 1);
    ck_assert_int_eq(ib_nic_state_get(&inst(0)->nics.nic[1]), IB_NIC_DOWN);
    end();
}
END_TEST

START_TEST(an_interrupted_wait_knows_nothing)
{
    begin_at_rest();
    ppoll_fails = EINTR;
    r2_wait(inst(0), 0);
    ck_assert_int_eq(ppoll_fails, 0);
    no_look_soon();
    turn();
    ck_assert_uint_eq(events_read, ALL);
    ck_assert_uint_eq(messages_read, ALL);
    end();
}
END_TEST

/* Should the kernel lose an event, it is a look that finds what the device has. */
START_TEST(a_look_reads_all)
{
    begin_at_rest();
    r2_wait(inst(0), 0);
    inst(0)->ports.poll_at = rig_now(rig);
    turn();
    ck_assert_uint_eq(events_read, ALL);
    ck_assert_uint_eq(messages_read, ALL);
    end();
}
END_TEST

/* Its descriptor may be readable for ever, so that nobody waits for it: it is read with each turn,
 * messages over it are not. */
START_TEST(a_dead_device_is_not_waited_for)
{
    begin_at_rest();
    fire("h0:n1 fatal");
    r2_wait(inst(0), 0);
    no_look_soon();
    turn();
    ck_assert_int_eq(ib_nic_state_get(&inst(0)->nics.nic[1]), IB_NIC_FATAL);
    for (int i = 0; i < 2; i++) { /* what other turns have begun is through with the first */
        r2_wait(inst(0), 0);
        no_look_soon();
        turn();
    }
    ck_assert_uint_eq(polled, ALL & ~(1u << 1));
    ck_assert_uint_eq(events_read, 1u << 1);
    ck_assert_uint_eq(messages_read & 1u << 1, 0);
    end();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, nothing_is_read_that_is_not_there);
    tcase_add_test(t, an_event_is_read_where_it_is);
    tcase_add_test(t, a_message_is_read_where_it_is);
    tcase_add_test(t, what_comes_behind_a_wait_ends_the_next_one);
    tcase_add_test(t, an_interrupted_wait_knows_nothing);
    tcase_add_test(t, a_look_reads_all);
    tcase_add_test(t, a_dead_device_is_not_waited_for);
}

int main(void)
{
    return suite_run("wait", 60, NULL, NULL, add);
}
