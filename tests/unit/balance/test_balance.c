/* Weights in whole instances: what both ends tell, faults, drains, other processes, and what of it
 * reaches the plan. */
#include "tests/unit/drain_rig.h"
#include "tests/unit/topo_rig.h"

#include "plugin/balance/r2_balance_int.h"

#define GB 1000000000ull /* bytes per second: 8 Gb/s */

static uint64_t rate[2][4]; /* by host and NIC; verbs tells lanes and speeds: 100, 200, 400 Gb/s
                               are 12.5, 25, 50 GB/s */

static void begin(int nics, const char *const *options)
{
    static struct fab_desc desc;
    char err[200];

    ck_assert_msg(fab_desc_init(&desc, 2, nics, 50 * GB, RIG_US, err, sizeof(err)) == 0, "%s", err);
    for (int h = 0; h < 2; h++) {
        for (int n = 0; n < nics; n++) {
            desc.nic[h][n].rate = rate[h][n] ? rate[h][n] : desc.nic[h][n].rate;
        }
    }
    rig = rig_create_desc(&desc, options);
    count = 0;
}

static void open_it(int nics, const char *const *more)
{
    const char *options[16] = {"NCCL_R2_T_RETURN=50", "NCCL_R2_T_PACKET=100",
                               "NCCL_R2_CUT_MIN=128"};
    int n = 3;

    while (more && *more) {
        options[n++] = *more++;
    }
    begin(nics, options);
    join();
}

static int share(int p)
{
    return share_of(comm(0), p);
}

#define SHARES(a, b, c, d)                                                                         \
    ck_assert_msg(near(share(0), a) && near(share(1), b) && near(share(2), c) &&                   \
                      near(share(3), d),                                                           \
                  "%d %d %d %d", share(0), share(1), share(2), share(3))

/* The division ends within 2 % of the best, and a weight may be 10 % off before it is worth a plan.
 */
static int near(int is, int want)
{
    return want == 0 || want == 100 ? is == want : abs(is - want) <= 1 + want / 10;
}

static void uneven_there(void)
{
    memset(rate, 0, sizeof(rate));
    rate[1][1] = 12500 * GB / 1000;
    rate[1][2] = 25 * GB;
}

START_TEST(the_other_ends_ports)
{
    uint64_t bytes[4];

    uneven_there();
    open_it(4, NULL);
    ck_assert_uint_ge(rig_count(rig, 1, FO_MSG_RATES), 1);
    ck_assert_uint_eq(comm(0)->flow->port_there[1], 100000);
    ck_assert_uint_eq(comm(0)->flow->port_there[3], 400000);
    messages(3);
    SHARES(100, 0, 0, 0);
    rig_fault(rig, "h0:n0 down");
    rig_run(rig, 20 * RIG_MS);
    SHARES(0, 14, 29, 57);
    for (int p = 0; p < 4; p++) {
        bytes[p] = carried(0, p);
    }
    messages(20);
    for (int p = 1; p < 4; p++) { /* and so it is carried, to a part's 128 bytes */
        int of = (int)(100 * (carried(0, p) - bytes[p]) / (20 * sizeof(out[0])));

        ck_assert_msg(abs(of - share(p)) <= 2, "path %d carries %d %%, planned %d %%", p, of,
                      share(p));
    }
    rig_fault(rig, "h1:n3 down");
    rig_run(rig, 20 * RIG_MS);
    SHARES(0, 33, 67, 0);
    rig_fault(rig, "h0:n0 up");
    wait_up(0, 2);
    rig_run(rig, 20 * RIG_MS);
    SHARES(100, 0, 0, 0);
    messages(3);
    stop();
}
END_TEST

START_TEST(drained_and_given_back)
{
    memset(rate, 0, sizeof(rate));
    rate[0][2] = 25 * GB;
    open_it(3, NULL);
    messages(2);
    drain(0, 1);
    rig_run(rig, 20 * RIG_MS);
    SHARES(0, 67, 33, 0);
    messages(4);
    drain(0, 0);
    wait_up(0, 2);
    rig_run(rig, 20 * RIG_MS);
    SHARES(100, 0, 0, 0);
    messages(2);
    stop();
}
END_TEST

START_TEST(balance_off)
{
    uneven_there();
    open_it(4, (const char *[]){"NCCL_R2_BALANCE=off", NULL});
    rig_fault(rig, "h0:n0 down");
    rig_run(rig, 20 * RIG_MS);
    SHARES(0, 100, 0, 0);
    r2_balance_measured(comm(0), 1, 5, 0);
    rig_run(rig, 20 * RIG_MS);
    SHARES(0, 100, 0, 0);
    messages(2);
    stop();
}
END_TEST

/* --- what the peer says --- */

static int changed;

static int lie(struct rig *r, int side, int type, union fo_body *b)
{
    if (type != FO_MSG_RATES) {
        return 1;
    }
    r->filter_count++;
    switch (changed) {
    case 0: /* an older peer says nothing */
        return 0;
    case 1: /* more than there can be is not known */
        memset(b->rates.port, 0xff, sizeof(b->rates.port));
        memset(b->rates.reach, 0xff, sizeof(b->rates.reach));
        return 1;
    case 2: /* of other paths than there are */
        b->rates.npaths = 3;
        b->rates.port[0] = b->rates.port[1] = b->rates.port[2] = 1;
        return 1;
    default:
        memset(b->rates.port, 0, sizeof(b->rates.port));
        b->rates.port[1] = 1;
        b->rates.reach[2] = BALANCE_MBPS_MAX;
        return 1;
    }
}

START_TEST(what_cannot_be_is_not_known)
{
    changed = _i;
    uneven_there();
    rate[0][3] = 12500 * GB / 1000;
    begin(4, (const char *[]){"NCCL_R2_CUT_MIN=128", NULL});
    rig->filter = lie;
    join();
    ck_assert_int_gt(rig->filter_count, 0);
    messages(2);
    rig_fault(rig, "h0:n0 down");
    rig_run(rig, 20 * RIG_MS);
    if (_i < 3) {
        SHARES(0, 44, 44, 11); /* our own ports are known */
    } else {
        ck_assert_int_eq(share(1), 0);
        ck_assert_int_eq(share(0), 0);
        ck_assert(near(share(2), 80) && near(share(3), 20));
    }
    messages(4);
    stop();
}
END_TEST

/* RATES at any time, of any connection: nothing but weights moves. */
START_TEST(rates_out_of_the_blue)
{
    union fo_body b;

    memset(rate, 0, sizeof(rate));
    open_it(3, NULL);
    messages(1);
    for (int to = 0; to < 2; to++) {
        for (int n = 1; n <= IB_MAX_PATHS; n++) {
            memset(&b, 0, sizeof(b));
            b.rates.dst = comm(to)->id;
            b.rates.src = comm(!to)->id;
            b.rates.npaths = (uint8_t)n;
            for (int i = 0; i < n; i++) {
                b.rates.port[i] = 100000u << i;
            }
            rig_inject(rig, to, FO_MSG_RATES, &b);
        }
    }
    ck_assert_uint_eq(comm(0)->flow->port_there[2], 400000);
    ck_assert_uint_eq(comm(1)->flow->port_there[2], 0); /* who receives has no use for it */
    messages(2);
    rig_fault(rig, "h0:n0 down");
    rig_run(rig, 20 * RIG_MS);
    SHARES(0, 33, 67, 0);
    messages(2);
    stop();
}
END_TEST

static void close_both(void)
{
    rig_close(rig, 0);
    rig_close(rig, 1);
    rig_run(rig, 5 * RIG_S);
}

/* --- making room (test_balance_room, e2e/balance.sh) --- */

static void announce_each(const uint32_t mbps[])
{
    union fo_body b;

    memset(&b, 0, sizeof(b));
    b.rates.dst = comm(0)->id;
    b.rates.src = comm(1)->id;
    b.rates.npaths = (uint8_t)comm(0)->conn.npaths;
    for (int p = 0; p < comm(0)->conn.npaths; p++) {
        b.rates.port[p] = mbps[p];
    }
    rig_inject(rig, 0, FO_MSG_RATES, &b);
    rig_run(rig, 2500 * RIG_MS); /* ports are checked */
}

static void announce(uint32_t mbps)
{
    announce_each((const uint32_t[]){mbps, 400000, 400000});
}

/* Others stand in on the receiver's NIC 0; then they are gone. */
START_TEST(the_other_end_is_crowded)
{
    memset(rate, 0, sizeof(rate));
    open_it(3, NULL);
    messages(2);
    announce(UINT32_MAX); /* that is no rate, and none that would be missed later */
    announce(400000);
    SHARES(100, 0, 0, 0);
    announce(200000);
    SHARES(20, 40, 40, 0);
    ck_assert_uint_eq(r2_balance_limit(comm(0), 0),
                      400000); /* what a pair that is not slow carries */
    messages(4);
    rig_fault(rig, "h0:n0 down");
    rig_run(rig, 20 * RIG_MS);
    SHARES(0, 50, 50, 0);
    messages(4);
    announce(150000); /* it stands in itself */
    ck_assert_uint_eq(comm(0)->flow->room, 0);
    announce(200000);
    rig_fault(rig, "h0:n0 up");
    wait_up(0, 2);
    rig_run(rig, 2500 * RIG_MS);
    SHARES(20, 40, 40, 0);
    r2_balance_wide(comm(0), 1); /* two reasons, of which one goes */
    announce(400000);
    SHARES(33, 33, 33, 0);
    r2_balance_wide(comm(0), 0);
    SHARES(100, 0, 0, 0);
    messages(2);
    stop();
}
END_TEST

/* No more NICs than it has to: those that are crowded, too, carry nothing of it. */
START_TEST(room_is_where_nothing_stands_in)
{
    uint32_t host = 0;

    memset(rate, 0, sizeof(rate));
    open_it(3, NULL);
    host = r2_room_host(comm(0));
    messages(2);
    announce_each((const uint32_t[]){100000, 100000, 400000});
    SHARES(20, 0, 80, 0);
    ck_assert_uint_ne(r2_room_host(comm(0)), host); /* another process there may say otherwise */
    messages(4);
    announce_each((const uint32_t[]){100000, 400000, 100000}); /* now it is another one */
    SHARES(20, 80, 0, 0);
    messages(4);
    r2_balance_wide(comm(0), 1); /* two reasons: all of them, then those of the one */
    rig_run(rig, 20 * RIG_MS);
    ck_assert_int_gt(share(2), 0);
    r2_balance_wide(comm(0), 0);
    rig_run(rig, 20 * RIG_MS);
    SHARES(20, 80, 0, 0);
    announce_each((const uint32_t[]){100000, 100000, 100000}); /* nowhere to go */
    SHARES(100, 0, 0, 0);
    announce_each((const uint32_t[]){100000, 100000, 400000});
    rig_fault(rig, "h0:n0 down"); /* all that is left carries, though it had no part before */
    rig_run(rig, 20 * RIG_MS);
    SHARES(0, 20, 80, 0);
    messages(4);
    rig_fault(rig, "h0:n2 down");
    rig_run(rig, 20 * RIG_MS);
    SHARES(0, 100, 0, 0);
    messages(4);
    stop();
}
END_TEST

/* It is over while the connection has no path: that is not forgotten. */
START_TEST(the_crowd_is_gone_meanwhile)
{
    memset(rate, 0, sizeof(rate));
    open_it(3, NULL);
    messages(2);
    announce(200000);
    SHARES(20, 40, 40, 0);
    rig_fault(rig, "h0:* down");
    rig_run(rig, 2500 * RIG_MS);
    ck_assert_uint_eq(comm(0)->conn.up, 0);
    announce(400000);
    rig_fault(rig, "h0:* up");
    wait_up(0, 2);
    rig_run(rig, 2500 * RIG_MS);
    SHARES(100, 0, 0, 0);
    messages(2);
    stop();
}
END_TEST

/* Whose own connections stand in divides by what it has lost: it is told of nothing. */
START_TEST(who_stands_in_is_not_told)
{
    unsigned told;

    memset(rate, 0, sizeof(rate));
    open_it(3, NULL);
    messages(2);
    told = rig_count(rig, 1, FO_MSG_RATES);
    rig_fault(rig, "h0:n0 down");
    for (int i = 0; i < 10; i++) {
        messages(20);
        rig_run(rig, 500 * RIG_MS);
    }
    ck_assert_uint_eq(rig->side[1].inst->balance->making.displaced[0], 1);
    ck_assert_uint_ne(rig->side[1].inst->balance->making.series, 0); /* R has looked */
    ck_assert_uint_eq(rig->side[0].inst->balance->making.displaced[1], 1);
    ck_assert_uint_eq(rig_count(rig, 1, FO_MSG_RATES), told);
    rig_fault(rig, "h0:n0 up");
    wait_up(0, 2);
    rig_run(rig, 2500 * RIG_MS);
    ck_assert_uint_eq(rig->side[1].inst->balance->making.displaced[0], 0);
    ck_assert_uint_eq(rig->side[0].inst->balance->making.displaced[1], 0);
    ck_assert_uint_eq(rig_count(rig, 1, FO_MSG_RATES), told);
    rig_fault(rig, "h0:n0 down");
    rig_run(rig, 20 * RIG_MS);
    ck_assert_uint_eq(rig->side[1].inst->balance->making.displaced[0], 1);
    close_both();
    ck_assert_uint_eq(rig->side[1].inst->balance->making.displaced[0], 0);
    ck_assert_uint_eq(rig->side[0].inst->balance->making.displaced[1], 0);
}
END_TEST

/* --- inputs of who measures --- */

START_TEST(measured_and_wide)
{
    uint32_t before;

    memset(rate, 0, sizeof(rate));
    open_it(4, NULL);
    messages(1);
    r2_balance_wide(comm(0), 1);
    rig_run(rig, 20 * RIG_MS);
    SHARES(25, 25, 25, 25);
    messages(2);
    r2_balance_measured(comm(0), 0, 100000, 0);
    rig_run(rig, 20 * RIG_MS);
    SHARES(8, 31, 31, 31);
    before = comm(0)->conn.weight[0];
    r2_balance_measured(comm(0), 0, 105000, 0); /* not worth a plan */
    rig_run(rig, 20 * RIG_MS);
    ck_assert_uint_eq(comm(0)->conn.weight[0], before);
    r2_balance_measured(comm(0), 0, 0, 0);
    rig_run(rig, 20 * RIG_MS);
    SHARES(25, 25, 25, 25);
    messages(2);
    r2_balance_wide(comm(0), 0);
    SHARES(100, 0, 0, 0);
    messages(2);
    r2_balance_measured(comm(0), 99, 7, 0);
    r2_balance_measured(comm(0), -1, 7, 0);
    stop();
}
END_TEST

/* --- memory --- */

static int table_count(int side)
{
    const struct r2_balance *b = rig->side[side].inst->balance;

    return (b->comm != NULL) + (b->conn != NULL) + (b->demand != NULL) + (b->weight != NULL) +
           (b->work != NULL);
}

/* Two laps in one process: memory of divisions goes with the last connection, not before, and comes
 * back for others. */
START_TEST(memory_goes_with_the_last_connection)
{
    memset(rate, 0, sizeof(rate));
    rate[1][2] = 25 * GB;
    open_it(3, NULL);
    for (int lap = 0; lap < 2; lap++) {
        struct r2_comm *first[2] = {comm(0), comm(1)};

        ck_assert_int_eq(table_count(0), 0); /* nothing to divide yet */
        rig->side[0].comm = rig->side[1].comm = NULL;
        rig_connect(rig, 0, 0);
        rig_fault(rig, "h0:n0 down");
        rig_run(rig, 20 * RIG_MS);
        SHARES(0, 67, 33, 0);
        ck_assert_int_eq(table_count(0), 5);
        ck_assert_uint_ge(rig->side[0].inst->balance->room, 2);
        messages(2);
        close_both();
        ck_assert_int_eq(rig_comms(rig, 0), 1);
        ck_assert_int_eq(table_count(0), 5);
        rig->side[0].comm = first[0];
        rig->side[1].comm = first[1];
        SHARES(0, 67, 33, 0);
        messages(2); /* over the one that is left */
        close_both();
        ck_assert_int_eq(rig_comms(rig, 0), 0);
        ck_assert_int_eq(table_count(0), 0);
        ck_assert_uint_eq(rig->side[0].inst->balance->room, 0);
        ck_assert_uint_eq(rig->side[0].inst->balance->work_size, 0);
        rig_fault(rig, "h0:n0 up");
        rig_run(rig, 5 * RIG_S);
        rig_connect(rig, 0, 0);
    }
    messages(2);
    stop();
}
END_TEST

/* --- other processes --- */

START_TEST(what_others_send_is_left_room)
{
    static const struct r2_host_registry_who who = {
        .command = "neighbour", .host = "h0", .pid = 1, .since = 1};
    struct r2_host_registry_nic row = {.name = "x", .port = 1};
    struct r2_host_registry_flow flow = {.conns = 2, .rows = 1, .demand = 0};
    struct r2_host_registry *b;
    char why[600], path[128];

    memset(rate, 0, sizeof(rate));
    open_it(4, (const char *[]){"NCCL_R2_LOOK=10", NULL});
    host_dir(0);
    rig_enter(&rig->side[0]);
    r2_host_share_open(rig->side[0].inst, dir);
    b = r2_host_registry_open(dir, &who, why, sizeof(why));
    ck_assert_msg(b != NULL, "%s", why);
    messages(1);
    rig_run(rig, 30 * RIG_MS);
    rig_fault(rig, "h0:n0 down");
    rig_run(rig, 30 * RIG_MS);
    SHARES(0, 33, 33, 33);

    /* its row 5 is our NIC 1, row 0 is nobody's; it sends twice over NIC 1 and says something of a
     * NIC that it does not have */
    row.guid = rig->side[0].inst->nics.nic[1].guid;
    r2_host_registry_nic_set(b, 5, &row);
    flow.rows = 1u << 5 | 1u;
    r2_host_registry_flow_set(b, 5, &flow);
    flow.rows = UINT32_MAX;
    flow.demand = UINT64_MAX;
    flow.conns = 0;
    r2_host_registry_flow_set(b, 7, &flow);
    rig_run(rig, 300 * RIG_MS);
    ck_assert_msg(share(1) <= 4 && near(share(2), 50) && near(share(3), 50), "%d %d %d", share(1),
                  share(2), share(3));
    messages(2);
    {
        struct r2_host_registry_flow ours;
        int found = 0;

        for (int s = 0; s < R2_HOST_REGISTRY_SLOTS; s++) {
            if (r2_host_registry_slot_alive(b, s) && r2_host_registry_slot_flow(b, s, 0, &ours)) {
                ck_assert_uint_eq(ours.conns, 1);
                ck_assert_uint_eq(ours.rows, 0xe);
                found++;
            }
        }
        ck_assert_int_eq(found, 1);
    }
    r2_host_registry_close(b); /* it has gone: its words count no more */
    rig_run(rig, 300 * RIG_MS);
    SHARES(0, 33, 33, 33);
    messages(2);
    stop();
    ck_assert_int_eq(r2_host_registry_path(dir, geteuid(), path, sizeof(path)), 0);
    host_dir_remove();
}
END_TEST

static void add(TCase *t_case)
{
    tcase_add_test(t_case, the_other_ends_ports);
    tcase_add_test(t_case, drained_and_given_back);
    tcase_add_test(t_case, balance_off);
    tcase_add_loop_test(t_case, what_cannot_be_is_not_known, 0, 4);
    tcase_add_test(t_case, rates_out_of_the_blue);
    tcase_add_test(t_case, the_other_end_is_crowded);
    tcase_add_test(t_case, room_is_where_nothing_stands_in);
    tcase_add_test(t_case, the_crowd_is_gone_meanwhile);
    tcase_add_test(t_case, who_stands_in_is_not_told);
    tcase_add_test(t_case, measured_and_wide);
    tcase_add_test(t_case, memory_goes_with_the_last_connection);
    tcase_add_test(t_case, what_others_send_is_left_room);
}

int main(void)
{
    return run_suite("balance", add);
}
