#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ib_transport/verbs/ib_device.h"
#include "tests/support/fake_verbs.h"

static struct ib_verbs verbs;
static struct r2_config cfg;
static struct ib_nics nics;
static struct ib_fact facts[1000];
static enum ib_nic_state state_then[1000]; /* of the fact's NIC when it was handed on */
static int nfacts;

static void sink(void *arg, const struct ib_fact *f)
{
    ck_assert_ptr_eq(arg, &nics);
    ck_assert_int_lt(nfacts, 1000);
    state_then[nfacts] = ib_nic_state_get(&nics.nic[f->nic]);
    facts[nfacts++] = *f;
}

/* As r2_port_monitor.c does, with the looks at once; where events ask for one, its result follows.
 */
static unsigned look_due[3];
static int looks;

static void take(void *arg, const struct ib_fact *f)
{
    if (f->kind == IB_FACT_REFRESH) {
        look_due[f->nic] |= (unsigned)f->context;
        looks++;
    } else {
        sink(arg, f);
    }
}

static void progress(void)
{
    nfacts = looks = 0;
    memset(look_due, 0, sizeof(look_due));
    ib_async_progress(&nics, 0, take, &nics);
    for (int i = 0; i < 3; i++) {
        if (look_due[i]) {
            ib_async_refreshed(&nics, i, ib_nic_refresh(&nics, i), look_due[i], sink, &nics);
        }
    }
}

/* Two devices; the second has two ports: NICs 0, 1, 2. */
static void setup(void)
{
    char why[128];

    fake_reset();
    fake_table(&verbs);
    r2_config_defaults(&cfg);
    fake_add("a0");
    fake_add("a1")->ports = 2;
    ck_assert_int_eq(ib_nics_open(&nics, &verbs, &cfg, why, sizeof(why)), 0);
    ck_assert_int_eq(nics.count, 3);
}

static void teardown(void)
{
    ib_nics_close(&nics);
}

static void expect(int i, enum ib_fact_kind kind, int nic, uint64_t context, enum ib_nic_state then)
{
    ck_assert_int_lt(i, nfacts);
    ck_assert_int_eq(facts[i].kind, kind);
    ck_assert_int_eq(facts[i].nic, nic);
    ck_assert_uint_eq(facts[i].context, context);
    ck_assert_int_eq(state_then[i], then);
}

START_TEST(nothing_there)
{
    progress(); /* would wait for ever on a blocking descriptor */
    ck_assert_int_eq(nfacts, 0);
}
END_TEST

START_TEST(port_down_and_up)
{
    fake_dev[1].port[2].attr.state = IBV_PORT_DOWN;
    fake_event(&fake_dev[1], IBV_EVENT_PORT_ERR, 2, NULL);
    progress();
    ck_assert_int_eq(nfacts, 1);
    expect(0, IB_FACT_PORT_DOWN, 2, 0, IB_NIC_DOWN);
    ck_assert_uint_eq(atomic_load(&nics.nic[2].generation), 1);
    ck_assert_int_eq(ib_nic_state_get(&nics.nic[1]), IB_NIC_UP);
    ck_assert_int_eq(fake_dev[1].acks, 1);

    fake_dev[1].port[2].attr.state = IBV_PORT_ACTIVE;
    fake_dev[1].port[2].gid[3].raw[15] = 77;
    fake_event(&fake_dev[1], IBV_EVENT_PORT_ACTIVE, 2, NULL);
    progress();
    ck_assert_int_eq(nfacts, 1);
    expect(0, IB_FACT_PORT_UP, 2, 0, IB_NIC_UP);
    ck_assert_int_eq(nics.nic[2].addr.gid[15], 77); /* the address was read again */
    ck_assert_uint_eq(atomic_load(&nics.nic[2].generation), 1);
}
END_TEST

START_TEST(down_needs_no_call)
{
    fake_dev[0].port[1].query_errno = EIO; /* a sick port may not answer */
    fake_event(&fake_dev[0], IBV_EVENT_PORT_ERR, 1, NULL);
    progress();
    expect(0, IB_FACT_PORT_DOWN, 0, 0, IB_NIC_DOWN);
}
END_TEST

START_TEST(active_but_down_again)
{
    fake_event(&fake_dev[0], IBV_EVENT_PORT_ERR, 1, NULL);
    fake_event(&fake_dev[0], IBV_EVENT_PORT_ACTIVE, 1, NULL);
    fake_event(&fake_dev[0], IBV_EVENT_PORT_ERR, 1, NULL);
    fake_dev[0].port[1].attr.state = IBV_PORT_DOWN;
    progress();
    for (int i = 0; i < nfacts; i++) {
        ck_assert_int_eq(facts[i].kind, IB_FACT_PORT_DOWN);
    }
    ck_assert_int_eq(ib_nic_state_get(&nics.nic[0]), IB_NIC_DOWN);
    ck_assert_uint_eq(atomic_load(&nics.nic[0].generation), 1);
}
END_TEST

START_TEST(quick_flap)
{
    fake_event(&fake_dev[0], IBV_EVENT_PORT_ERR, 1, NULL);
    fake_event(&fake_dev[0], IBV_EVENT_PORT_ACTIVE, 1, NULL);
    progress();
    ck_assert_int_eq(nfacts, 2);
    expect(0, IB_FACT_PORT_DOWN, 0, 0, IB_NIC_DOWN);
    expect(1, IB_FACT_PORT_UP, 0, 0, IB_NIC_UP);
}
END_TEST

static int port_calls;

static int query_port_counted(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)
{
    port_calls++;
    return EIO;
}

/* A driver may keep whoever calls it: taking events makes no call but for the events. */
START_TEST(events_make_no_call)
{
    static const enum ibv_event_type types[] = {IBV_EVENT_PORT_ERR,         IBV_EVENT_PORT_ACTIVE,
                                                IBV_EVENT_GID_CHANGE,       IBV_EVENT_LID_CHANGE,
                                                IBV_EVENT_PKEY_CHANGE,      IBV_EVENT_SM_CHANGE,
                                                IBV_EVENT_CLIENT_REREGISTER};

    verbs.query_port = query_port_counted;
    port_calls = nfacts = looks = 0;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        fake_event(&fake_dev[0], types[i], 1, NULL);
    }
    ib_async_progress(&nics, 0, take, &nics);
    ck_assert_int_eq(port_calls, 0);
    ck_assert_int_eq(looks, 6);
    ck_assert_int_eq(nfacts, 1); /* PORT_ERR needs no look */
    ck_assert_uint_eq(look_due[0], IB_REFRESH_ACTIVE | IB_REFRESH_ADDR);
}
END_TEST

START_TEST(active_while_up)
{
    fake_event(&fake_dev[0], IBV_EVENT_PORT_ACTIVE, 1, NULL);
    progress();
    ck_assert_int_eq(nfacts, 1);
    expect(0, IB_FACT_PORT_UP, 0, 0, IB_NIC_UP);
}
END_TEST

START_TEST(addresses)
{
    static const enum ibv_event_type types[] = {IBV_EVENT_GID_CHANGE, IBV_EVENT_LID_CHANGE,
                                                IBV_EVENT_PKEY_CHANGE, IBV_EVENT_SM_CHANGE,
                                                IBV_EVENT_CLIENT_REREGISTER};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        fake_dev[0].port[1].attr.lid = (uint16_t)(100 + i);
        fake_event(&fake_dev[0], types[i], 1, NULL);
        progress();
        ck_assert_int_eq(nfacts, 1);
        expect(0, IB_FACT_ADDR_CHANGE, 0, 0, IB_NIC_UP);
        ck_assert_uint_eq(nics.nic[0].addr.lid, 100 + i);
    }
}
END_TEST

START_TEST(address_event_tells_of_the_port)
{
    fake_dev[0].port[1].attr.state = IBV_PORT_DOWN;
    fake_event(&fake_dev[0], IBV_EVENT_GID_CHANGE, 1, NULL);
    progress();
    ck_assert_int_eq(nfacts, 1);
    expect(0, IB_FACT_PORT_DOWN, 0, 0, IB_NIC_DOWN);
}
END_TEST

static void look(int nic)
{
    nfacts = 0;
    ib_async_refreshed(&nics, nic, ib_nic_refresh(&nics, nic), 0, sink, &nics);
}

/* The address that NCCL_IB_GID_INDEX names goes, and comes back in another entry: the kernel sends
 * the same event for both. */
START_TEST(address_goes_and_comes_back)
{
    union ibv_gid *gid = fake_dev[0].port[1].gid, ours = gid[3];

    cfg.ib_gid_index = 3;
    fake_event(&fake_dev[0], IBV_EVENT_GID_CHANGE, 1, NULL);
    progress();
    ck_assert_uint_eq(nics.nic[0].addr.gid_index, 3);
    memset(gid[3].raw, 0, sizeof(gid[3].raw));
    fake_event(&fake_dev[0], IBV_EVENT_GID_CHANGE, 1, NULL);
    progress();
    ck_assert_int_eq(nfacts, 1);
    expect(0, IB_FACT_PORT_DOWN, 0, 0, IB_NIC_DOWN);
    look(0); /* as it is done again and again */
    ck_assert_int_eq(nfacts, 0);
    gid[0] = ours;
    fake_dev[0].port[1].version[0] = fake_dev[0].port[1].version[3];
    fake_event(&fake_dev[0], IBV_EVENT_GID_CHANGE, 1, NULL);
    progress();
    ck_assert_int_eq(nfacts, 2);
    expect(0, IB_FACT_PORT_UP, 0, 0, IB_NIC_UP);
    expect(1, IB_FACT_ADDR_CHANGE, 0, 0, IB_NIC_UP);
    ck_assert_uint_eq(nics.nic[0].addr.gid_index, 0);
    ck_assert_mem_eq(nics.nic[0].addr.gid, ours.raw, sizeof(ours.raw));
}
END_TEST

static int is_gone[2];

static int is_removed(struct ibv_context *ctx)
{
    return is_gone[ctx == nics.device_ctx[1]];
}

START_TEST(unplugged)
{
    /* Soft-RoCE gives no DEVICE_FATAL on removal, only this, and one call that fails: all others
     * work, so that its queue pairs can be fenced */
    fake_dev[1].port[1].query_errno = fake_dev[1].port[2].query_errno = ENODEV;
    fake_event(&fake_dev[1], IBV_EVENT_GID_CHANGE, 1, NULL);
    progress();
    ck_assert_int_eq(nfacts, 2);
    expect(0, IB_FACT_DEVICE_FATAL, 1, 0, IB_NIC_FATAL);
    expect(1, IB_FACT_DEVICE_FATAL, 2, 0, IB_NIC_FATAL);
    ck_assert_int_eq(ib_nic_state_get(&nics.nic[0]), IB_NIC_UP);
}
END_TEST

/* A command that the firmware refuses is no dead device, however often it does: the NIC is back
 * with the first good answer. */
START_TEST(errors_that_pass)
{
    static const int errors[] = {EIO, ENXIO, ENOLINK};

    for (size_t e = 0; e < sizeof(errors) / sizeof(errors[0]); e++) {
        fake_dev[1].port[1].query_errno = errors[e];
        look(1);
        ck_assert_int_eq(nfacts, 1);
        expect(0, IB_FACT_DEVICE_FAILS, 1, 0, IB_NIC_DOWN);
        ck_assert_int_eq(ib_nic_state_get(&nics.nic[2]),
                         IB_NIC_UP); /* its other port was read well */
        ck_assert_uint_eq(atomic_load(&nics.nic[1].generation), e + 1);
        for (int i = 0; i < 20; i++) {
            look(1);
            ck_assert_int_eq(nfacts, 0);
            ck_assert_int_eq(ib_async_removals(&nics, sink, &nics), 1);
        }
        fake_dev[1].port[1].query_errno = 0;
        look(1);
        ck_assert_int_eq(nfacts, 1);
        expect(0, IB_FACT_PORT_UP, 1, 0, IB_NIC_UP);
        ck_assert_int_eq(ib_async_removals(&nics, sink, &nics), 0);
    }
    fake_dev[1].port[1].query_errno = ETIMEDOUT; /* says nothing */
    look(1);
    ck_assert_int_eq(nfacts, 0);
    ck_assert_int_eq(ib_nic_state_get(&nics.nic[1]), IB_NIC_UP);
}
END_TEST

/* As the kernel takes a device away: an event or none, then errors, and at the end it is gone from
 * sysfs. */
START_TEST(taken_away)
{
    verbs.is_removed = is_removed;
    is_gone[0] = is_gone[1] = 0;
    if (_i == 0) {
        fake_event(&fake_dev[1], IBV_EVENT_DEVICE_FATAL, 0, NULL);
    }
    progress();
    ck_assert_int_eq(nfacts, _i == 0 ? 2 : 0);
    fake_dev[1].port[1].query_errno = fake_dev[1].port[2].query_errno = EIO;
    look(1);
    look(2);
    ck_assert_int_eq(ib_nic_state_get(&nics.nic[1]), _i == 0 ? IB_NIC_FATAL : IB_NIC_DOWN);
    nfacts = 0;
    ck_assert_int_eq(ib_async_removals(&nics, sink, &nics), 1);
    ck_assert_int_eq(nfacts, 0);
    is_gone[1] = 1;
    ck_assert_int_eq(ib_async_removals(&nics, sink, &nics), 0);
    ck_assert_int_eq(nfacts, 2);
    for (int i = 0; i < 2; i++) {
        expect(i, _i == 0 ? IB_FACT_REMOVED : IB_FACT_DEVICE_FATAL, 1 + i, 0, IB_NIC_GONE);
    }
    ck_assert_int_eq(ib_nic_state_get(&nics.nic[0]), IB_NIC_UP);
    is_gone[0] = 1; /* nobody has said that it fails */
    ck_assert_int_eq(ib_async_removals(&nics, sink, &nics), 0);
    fake_dev[0].port[1].query_errno = EIO;
    look(0); /* no event came, and the first look finds it gone */
    ck_assert_int_eq(nfacts, 1);
    expect(0, IB_FACT_DEVICE_FATAL, 0, 0, IB_NIC_GONE);
}
END_TEST

START_TEST(device_fatal)
{
    fake_event(&fake_dev[1], IBV_EVENT_DEVICE_FATAL, 0, NULL);
    progress();
    ck_assert_int_eq(nfacts, 2);
    expect(0, IB_FACT_DEVICE_FATAL, 1, 0, IB_NIC_FATAL);
    expect(1, IB_FACT_DEVICE_FATAL, 2, 0, IB_NIC_FATAL);
    /* said once, and nothing that comes later is believed */
    fake_event(&fake_dev[1], IBV_EVENT_DEVICE_FATAL, 0, NULL);
    fake_event(&fake_dev[1], IBV_EVENT_PORT_ACTIVE, 1, NULL);
    fake_event(&fake_dev[1], IBV_EVENT_PORT_ERR, 1, NULL);
    progress();
    ck_assert_int_eq(nfacts, 0);
    ck_assert_int_eq(fake_dev[1].acks, 4);
    ck_assert_int_eq(ib_nic_state_get(&nics.nic[1]), IB_NIC_FATAL);
}
END_TEST

static int event_errno;

static int get_event_fails(struct ibv_context *ctx, struct ibv_async_event *ev)
{
    errno = event_errno;
    return -1;
}

START_TEST(reading_events_fails)
{
    verbs.get_async_event = get_event_fails;
    event_errno = EIO;
    progress();
    ck_assert_int_eq(nfacts, 3);
    expect(0, IB_FACT_DEVICE_FATAL, 0, 0, IB_NIC_FATAL);
    progress();
    ck_assert_int_eq(nfacts, 0);
    event_errno = ENODEV;
    progress();
    ck_assert_int_eq(nfacts, 0);
    verbs.is_removed = is_removed;
    is_gone[0] = 0;
    is_gone[1] = 1;
    progress();
    ck_assert_int_eq(nfacts, 2);
    expect(0, IB_FACT_REMOVED, 1, 0, IB_NIC_GONE);
    expect(1, IB_FACT_REMOVED, 2, 0, IB_NIC_GONE);
}
END_TEST

START_TEST(objects)
{
    struct ibv_qp qp = {.qp_context = (void *)(uintptr_t)0x1234};
    struct ibv_cq cq = {.cq_context = (void *)(uintptr_t)0x5678};

    fake_event(&fake_dev[1], IBV_EVENT_QP_FATAL, 0, &qp);
    fake_event(&fake_dev[1], IBV_EVENT_QP_REQ_ERR, 0, &qp);
    fake_event(&fake_dev[1], IBV_EVENT_QP_ACCESS_ERR, 0, &qp);
    fake_event(&fake_dev[1], IBV_EVENT_CQ_ERR, 0, &cq);
    fake_event(&fake_dev[1], IBV_EVENT_COMM_EST, 0, &qp);
    fake_event(&fake_dev[1], IBV_EVENT_SQ_DRAINED, 0, &qp);
    fake_event(&fake_dev[1], IBV_EVENT_QP_LAST_WQE_REACHED, 0, &qp);
    progress();
    ck_assert_int_eq(nfacts, 4);
    for (int i = 0; i < 3; i++) {
        expect(i, IB_FACT_QP_FATAL, 1, 0x1234, IB_NIC_UP);
    }
    expect(3, IB_FACT_CQ_ERR, 1, 0x5678, IB_NIC_UP);
    ck_assert_int_eq(fake_dev[1].acks, 7);
}
END_TEST

START_TEST(ports_that_are_not_ours)
{
    fake_event(&fake_dev[0], IBV_EVENT_PORT_ERR, 2, NULL);
    progress();
    ck_assert_int_eq(nfacts, 0);
    ck_assert_int_eq(fake_dev[0].acks, 1);
}
END_TEST

START_TEST(a_storm_leaves_the_others_their_turn)
{
    struct pollfd p = {.fd = nics.device_ctx[0]->async_fd, .events = POLLIN};

    for (int i = 0; i < 300; i++) {
        fake_event(&fake_dev[0], IBV_EVENT_LID_CHANGE, 1, NULL);
    }
    fake_event(&fake_dev[1], IBV_EVENT_PORT_ERR, 1, NULL);
    progress();
    ck_assert_int_eq(facts[0].kind, IB_FACT_PORT_DOWN);
    ck_assert_int_ge(looks, 1);
    ck_assert_int_lt(looks, 300);
    ck_assert_int_eq(poll(&p, 1, 0), 1); /* what is left keeps the descriptor readable */
    while (poll(&p, 1, 0) == 1) {
        progress();
    }
    ck_assert_int_eq(fake_dev[0].acks, 301);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ib_async");
    TCase *t = tcase_create("events");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, nothing_there);
    tcase_add_test(t, port_down_and_up);
    tcase_add_test(t, down_needs_no_call);
    tcase_add_test(t, active_but_down_again);
    tcase_add_test(t, quick_flap);
    tcase_add_test(t, events_make_no_call);
    tcase_add_test(t, active_while_up);
    tcase_add_test(t, addresses);
    tcase_add_test(t, address_event_tells_of_the_port);
    tcase_add_test(t, address_goes_and_comes_back);
    tcase_add_test(t, unplugged);
    tcase_add_test(t, errors_that_pass);
    tcase_add_loop_test(t, taken_away, 0, 2);
    tcase_add_test(t, device_fatal);
    tcase_add_test(t, reading_events_fails);
    tcase_add_test(t, objects);
    tcase_add_test(t, ports_that_are_not_ours);
    tcase_add_test(t, a_storm_leaves_the_others_their_turn);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
