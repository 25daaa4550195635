/*
 * A driver that answers with errors (EIO): firmware that refuses a command for a while, and a
 * device that the kernel has taken away, say the same with every call. The first comes back and is
 * never taken for quiet; the second is, as soon as it is gone.
 */
#include "tests/support/proto_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define REMOVING (60 * RIG_MS)

static struct rig *rig;
static uint64_t out[64], in[64];
static struct ib_mr *s_mr, *r_mr;

static void start(const struct fab_inproc_opts *opts)
{
    rig = rig_create_on(opts, 2, 0,
                        (const char *[]){"NCCL_R2_T_DEAD=20000", "NCCL_R2_T_PACKET=5000",
                                         "NCCL_IB_TIMEOUT=22", "NCCL_R2_LOOK=100",
                                         "NCCL_R2_T_RETURN=200", NULL});
    rig_connect(rig, 0, 0);
    memset(in, 0xff, sizeof(in));
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
}

static void stop(void)
{
    rig_dereg(rig, 0, s_mr);
    rig_dereg(rig, 1, r_mr);
    rig_destroy(rig);
    rig = NULL;
}

static void exchange(int i)
{
    out[i] = 1000u + (unsigned)i;
    ck_assert_int_ge(rig_irecv1(rig, &in[i], 8, 0, r_mr), 0);
    rig_send_wait(rig, &out[i], 8, 0, s_mr);
    ck_assert(rig_until(rig, rig_all_done, RIG_S));
    ck_assert_uint_eq(in[i], 1000u + (unsigned)i);
}

static struct fab_nic *nic_of(int host)
{
    return fab_inproc_nic(rig->f, host, 0);
}

static int failing; /* host */

static enum ib_nic_state state_of(int host)
{
    return ib_nic_state_get(&rig->side[host].inst->nics.nic[0]);
}

static int is_down(struct rig *r)
{
    return !ib_conn_up(&r->side[0].comm->conn, 0) && !ib_conn_up(&r->side[1].comm->conn, 0);
}

static int is_back(struct rig *r)
{
    return ib_conn_up(&r->side[0].comm->conn, 0) && ib_conn_up(&r->side[1].comm->conn, 0) &&
           state_of(failing) == IB_NIC_UP;
}

/* One refused command, or many seconds of them: the traffic goes on over the other NIC, and the
 * first one is used again afterwards. */
START_TEST(errors_pass_and_the_nic_is_back)
{
    failing = _i & 1;
    start(NULL);
    exchange(0);
    rig_fault(rig, _i & 2 ? (failing ? "h1:n0 call-error" : "h0:n0 call-error")
                          : (failing ? "h1:n0 call-error 1" : "h0:n0 call-error 1"));
    ck_assert(rig_until(rig, is_down, 2 * RIG_S));
    ck_assert_uint_ge(nic_of(failing)->cnt.calls_failed, 1);
    ck_assert_int_eq(state_of(failing), IB_NIC_DOWN);
    exchange(1);
    if (_i & 2) {
        rig_run(rig, 8 * RIG_S);
        ck_assert_uint_ge(nic_of(failing)->cnt.calls_failed, 20);
        ck_assert_int_eq(state_of(failing), IB_NIC_DOWN);
        exchange(2);
        rig_fault(rig, failing ? "h1:n0 restore" : "h0:n0 restore");
    }
    ck_assert(rig_until(rig, is_back, 3 * RIG_S));
    exchange(3);
    stop();
}
END_TEST

static int complete(struct rig *r)
{
    return r->side[1].comm->rx->ledger.acked == 1;
}

/* A message that R's first NIC may still write, and that has come over the other one. */
static void begin_after(const char *fault, const char *another)
{
    out[0] = 100;
    ck_assert_int_ge(rig_irecv1(rig, &in[0], 8, 0, r_mr), 0);
    rig_run(rig, 10 * RIG_US);
    rig_fault(rig, fault);
    if (another) {
        rig_fault(rig, another);
    }
    ck_assert_int_ge(rig_isend(rig, &out[0], 8, 0, s_mr), 0);
    ck_assert(rig_until(rig, complete, 300 * RIG_MS));
}

/* The queue pair cannot be moved to ERR, and nothing that the calls answer says that it is quiet:
 * held until it is. */
START_TEST(an_error_is_no_fence)
{
    uint64_t back;

    failing = 1;
    start(NULL);
    begin_after("h1:n0 call-error",
                "h1:n0 blackhole"); /* what S posts over it is neither there nor known to be lost */
    rig_run(rig, 2 * RIG_S);
    ck_assert_uint_ge(nic_of(1)->cnt.calls_failed, 3);
    ck_assert(!rig_all_done(rig));
    rig_fault(rig, "h1:n0 restore");
    back = rig_now(rig);
    ck_assert(rig_until(rig, rig_all_done, 2 * RIG_S));
    ck_assert_uint_le(rig_now(rig) - back,
                      1100 * RIG_MS); /* the soft fence tries again every second by now */
    ck_assert_uint_eq(in[0], 100);
    stop();
}
END_TEST

/*
 * Held as long as the kernel takes to destroy what the process had on the device, and T_pcie; not
 * for T_packet (5 s here). With the event, and with calls that fail alone.
 */
START_TEST(gone_is_seen_in_sysfs)
{
    struct fab_inproc_opts opts = {.nic = {.removing_ns = REMOVING},
                                   .remove_event_ppm = _i ? 1000000 : 0};
    uint64_t since;

    failing = 1;
    start(&opts);
    since = rig_now(rig);
    begin_after("h1:n0 remove", NULL);
    ck_assert(rig_until(rig, rig_all_done, 2 * RIG_S));
    ck_assert_uint_ge(rig_now(rig) - since, REMOVING);
    /* T_pcie is 20 ms; without the event a look, or silence, has to find it first */
    ck_assert_uint_le(rig_now(rig) - since, REMOVING + (_i ? 50 : 150) * RIG_MS);
    ck_assert_int_eq(state_of(1), IB_NIC_GONE);
    ck_assert_uint_eq(in[0], 100);
    stop();
}
END_TEST

static int (*query_port_real)(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);
static unsigned refused; /* reads of the port of the first NIC */
static unsigned refuses; /* how many more */

static int query_port_refused(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)
{
    if (refuses && strcmp(ctx->device->name, "fab0") == 0) {
        refuses--;
        refused++;
        return EIO;
    }
    return query_port_real(ctx, port, attr);
}

static void refuse_reads(struct ib_verbs *v)
{
    query_port_real = v->query_port;
    v->query_port = query_port_refused;
}

/*
 * The driver refuses to tell of a port when it is opened, once or for some time: the connection
 * goes over the other NIC where it has to, and uses this one as soon as it answers.
 */
START_TEST(errors_at_the_start_pass)
{
    refused = 0;
    refuses = _i ? 40 : 1;
    failing = 0;
    rig_relay.verbs = refuse_reads;
    start(NULL);
    rig_relay.verbs = NULL;
    ck_assert_int_eq(rig->side[0].inst->nics.count, 2);
    ck_assert_int_eq(state_of(0), _i ? IB_NIC_DOWN : IB_NIC_UP);
    exchange(0);
    rig_run(rig, 300 * RIG_MS);
    refuses = 0;
    ck_assert_uint_ge(refused, _i ? 3 : 1);
    ck_assert(rig_until(rig, is_back, 10 * RIG_S));
    exchange(1);
    rig_fault(rig, "h0:n1 down"); /* it carries alone */
    exchange(2);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, errors_at_the_start_pass, 0, 2);
    tcase_add_loop_test(t, errors_pass_and_the_nic_is_back, 0, 4);
    tcase_add_test(t, an_error_is_no_fence);
    tcase_add_loop_test(t, gone_is_seen_in_sysfs, 0, 2);
}

int main(void)
{
    return suite_run("NIC errors", 60, NULL, NULL, add);
}
