/* Ports whose driver does not tell of them when they are opened, and does so later. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ib_transport/verbs/ib_device.h"
#include "base/r2_log.h"
#include "tests/support/fake_verbs.h"
#include "tests/unit/suite.h"

static struct ib_verbs verbs;
static struct r2_config cfg;
static struct ib_nics nics;
static char why[256], logged[1 << 14];

static void sink(enum r2_log_level level, const char *file, int line, const char *msg)
{
    size_t used = strlen(logged);

    snprintf(logged + used, sizeof(logged) - used, "%s%s\n", level == R2_LOG_WARN ? "WARN " : "",
             msg);
}

static void setup(void)
{
    fake_reset();
    fake_table(&verbs);
    r2_config_defaults(&cfg);
    r2_log_sink_set(sink);
    logged[0] = '\0';
}

static void open_all(int count)
{
    ck_assert_msg(ib_nics_open(&nics, &verbs, &cfg, why, sizeof(why)) == 0, "%s", why);
    ck_assert_int_eq(nics.count, count);
    r2_log_flush();
}

static unsigned up, down;

static void fact(void *arg, const struct ib_fact *f)
{
    up += f->kind == IB_FACT_PORT_UP && f->nic == 1;
    down += f->kind == IB_FACT_DEVICE_FAILS;
}

/* One line for all of them; the job goes on. */
START_TEST(ports_that_are_down)
{
    fake_add("a0");
    fake_add("a1")->port[1].attr.state = IBV_PORT_DOWN;
    fake_add("a2")->port[1].attr.state = IBV_PORT_DOWN;
    open_all(3);
    ck_assert_int_eq(ib_nic_state_get(&nics.nic[0]), IB_NIC_UP);
    ck_assert_int_eq(ib_nic_state_get(&nics.nic[1]), IB_NIC_DOWN);
    ck_assert_ptr_nonnull(strstr(logged, "WARN NET/R2 : down at the start: a1, a2. "));
    ib_nics_close(&nics);
    logged[0] = '\0';
    fake_dev[1].port[1].attr.state = fake_dev[2].port[1].attr.state = IBV_PORT_ACTIVE;
    open_all(3);
    ck_assert_ptr_null(strstr(logged, "WARN"));
    ib_nics_close(&nics);
}
END_TEST

/* It has its number, as in the processes that could read it, and what its sisters have of what is
 * never asked again. */
START_TEST(a_port_that_cannot_be_read_yet)
{
    static const int passing[] = {EIO, ENXIO, ENOLINK, ETIMEDOUT, EAGAIN, EINTR, EBUSY};
    struct fake_dev *late;

    fake_add("a0")->port[1].attr.max_msg_sz = 1 << 30;
    late = fake_add("a1");
    fake_add("a2")->port[1].attr.max_msg_sz = 1 << 24;
    late->port[1].query_errno = passing[_i];
    open_all(3);
    ck_assert_str_eq(nics.nic[1].name, "a1");
    ck_assert_int_eq(nics.nic[1].rail, 1);
    ck_assert_int_eq(ib_nic_state_get(&nics.nic[1]), IB_NIC_DOWN);
    ck_assert_int_eq(nics.nic[1].speed_mbps, 100000);
    ck_assert_uint_eq(nics.nic[1].max_msg_sz, 1 << 24);
    ck_assert_ptr_nonnull(strstr(logged, "WARN NET/R2 : NIC a1 has no address: "));
    ck_assert_ptr_nonnull(strstr(logged, "not used until its driver answers"));

    up = down = 0;
    ib_async_refreshed(&nics, 1, ib_nic_refresh(&nics, 1), 0, fact, NULL);
    ck_assert_int_eq(ib_nic_state_get(&nics.nic[1]), IB_NIC_DOWN);
    ck_assert_uint_eq(up + down, 0); /* nothing has changed for anybody */
    late->port[1].query_errno = 0;
    ib_async_refreshed(&nics, 1, ib_nic_refresh(&nics, 1), 0, fact, NULL);
    ck_assert_int_eq(ib_nic_state_get(&nics.nic[1]), IB_NIC_UP);
    ck_assert_uint_eq(up, 1);
    ck_assert_uint_eq(nics.nic[1].failing, 0);
    ib_nics_close(&nics);
}
END_TEST

/* What says that there is no such port is believed. */
START_TEST(a_port_that_is_not_there)
{
    static const int final[] = {EINVAL, ENODEV, EPERM, EOPNOTSUPP};

    fake_add("a0");
    fake_add("a1")->port[1].query_errno = final[_i];
    open_all(1);
    ck_assert_ptr_nonnull(strstr(logged, "port 1 of a1 is left out: ibv_query_port: "));
    ib_nics_close(&nics);
}
END_TEST

/* None can be read: they are there, and may come. */
START_TEST(no_port_can_be_read_yet)
{
    for (int i = 0; i < 2; i++) {
        fake_add(i ? "a1" : "a0")->port[1].query_errno = EIO;
    }
    open_all(2);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(ib_nic_state_get(&nics.nic[i]), IB_NIC_DOWN);
        ck_assert_uint_eq(nics.nic[i].failing, 1);
        ck_assert_uint_eq(nics.nic[i].max_msg_sz, 8 << 20); /* no driver takes less */
        fake_dev[i].port[1].query_errno = 0;
        ck_assert_int_eq(ib_nic_refresh(&nics, i), 0);
    }
    ib_nics_close(&nics);
}
END_TEST

static int (*true_query_device)(struct ibv_context *ctx, struct ibv_device_attr *attr);
static int refuses, asked; /* how often a1 refuses to tell of itself, and with what; was asked */
static int refused_with;

static int query_device_refused(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
    if (ctx == &fake_dev[1].ctx) {
        asked++;
        if (refuses > 0) {
            refuses--;
            return refused_with;
        }
    }
    return true_query_device(ctx, attr);
}

/* A device that refuses once has its place: without it those behind it had other numbers and rails.
 * One that goes on refusing, or will never tell, is left out, and keeps nobody for long. */
START_TEST(a_device_that_refuses_for_a_moment)
{
    static const struct {
        int times, with, asked, count;
    } row[] = {{1, EIO, 2, 3}, {3, ETIMEDOUT, 4, 3}, {1000, EIO, 5, 2}, {1000, ENODEV, 1, 2}};

    for (int i = 0; i < 3; i++) {
        fake_add((const char *const[]){"a0", "a1", "a2"}[i]);
    }
    true_query_device = verbs.query_device;
    verbs.query_device = query_device_refused;
    refuses = row[_i].times;
    refused_with = row[_i].with;
    asked = 0;
    open_all(row[_i].count);
    ck_assert_int_eq(asked, row[_i].asked);
    ck_assert_str_eq(nics.nic[1].name, row[_i].count == 3 ? "a1" : "a2");
    ib_nics_close(&nics);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, a_device_that_refuses_for_a_moment, 0, 4);
    tcase_add_test(t, ports_that_are_down);
    tcase_add_loop_test(t, a_port_that_cannot_be_read_yet, 0, 7);
    tcase_add_loop_test(t, a_port_that_is_not_there, 0, 4);
    tcase_add_test(t, no_port_can_be_read_yet);
}

int main(void)
{
    return suite_run("ib_open", 30, setup, NULL, add);
}
