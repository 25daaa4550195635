/* Making room among the processes of a host: what one says in the host registry of its connections
 * that stand in, and what another one's connections do about it. The other process is this test. */
#include "tests/unit/drain_rig.h"
#include "tests/unit/topo_rig.h"

#include "plugin/balance/r2_balance_int.h"

#define LOOK (10 * RIG_MS)
#define MB   1000000ull
#define ROW  4 /* the neighbour's row ROW + i is our NIC i */

static struct r2_host_registry *neighbour;
static struct r2_host_registry_room room; /* what it says */

static void open_it(int nics)
{
    static const struct r2_host_registry_who who = {
        .command = "neighbour", .host = "h0", .pid = 1, .since = 1};
    char why[600];

    rig = rig_create(nics, 0,
                     (const char *[]){"NCCL_R2_LOOK=10", "NCCL_R2_T_RETURN=50",
                                      "NCCL_R2_T_PACKET=100", "NCCL_R2_CUT_MIN=128", NULL});
    count = 0;
    host_dir(0);
    rig_enter(&rig->side[0]);
    r2_host_share_open(rig->side[0].inst, dir);
    join();
    neighbour = r2_host_registry_open(dir, &who, why, sizeof(why));
    ck_assert_msg(neighbour != NULL, "%s", why);
    memset(&room, 0, sizeof(room));
    for (int i = 0; i < nics; i++) {
        const struct ib_nic *nic = &rig->side[0].inst->nics.nic[i];
        struct r2_host_registry_nic row = {.name = "x", .guid = nic->guid, .port = nic->port};

        r2_host_registry_nic_set(neighbour, ROW + i, &row);
    }
    messages(1);
    rig_run(rig, 3 * LOOK);
}

static void close_it(void)
{
    r2_host_registry_close(neighbour);
    stop();
    host_dir_remove();
}

static void ring(void)
{
    r2_host_share_rung(rig->side[0].inst);
    rig_kick(&rig->side[0]);
    rig_run(rig, 6 * LOOK);
}

/* Of what the neighbour sends over NIC @i, @all, @bound is of those that stand in. */
static void say(int i, uint64_t all, uint64_t bound)
{
    room.nic[ROW + i].out = all;
    room.nic[ROW + i].out_bound = bound;
    room.stands[1] = true;
    room.until = rig_now(rig) + RIG_S;
    r2_host_registry_room_set(neighbour, &room);
    ring();
}

static uint32_t used(void)
{
    return ib_send_plan_paths(&comm(0)->conn);
}

START_TEST(our_connections_make_room_for_anothers)
{
    open_it(3);
    ck_assert_uint_eq(used(), 1);
    say(0, 1000 * MB, 500 * MB);
    ck_assert_uint_eq(used(), 7);
    ck_assert_int_lt(share_of(comm(0), 0), 50);
    messages(4);
    say(1, 400 * MB, 100 * MB); /* it stands in there, too */
    ck_assert_uint_eq(used(), 5);
    messages(4);
    r2_host_registry_room_set(neighbour, NULL);
    ring();
    ck_assert_uint_eq(used(), 1);
    messages(4);
    close_it();
}
END_TEST

START_TEST(nobody_moves_for_little)
{
    open_it(2);
    say(0, 1000 * MB, 40 * MB);
    ck_assert_uint_eq(used(), 1);
    say(1, 900 * MB, 0); /* nor where it is as full */
    say(0, 1000 * MB, 500 * MB);
    ck_assert_uint_eq(used(), 1);
    say(1, 700 * MB, 0);
    ck_assert_uint_eq(used(), 3);
    r2_host_registry_close(neighbour); /* it is gone: its words count no more */
    neighbour = NULL;
    rig_run(rig, 6 * LOOK);
    ck_assert_uint_eq(used(), 1);
    close_it();
}
END_TEST

/* It has lost a NIC that we do not have; and one whose NICs are all others is none of our concern.
 */
START_TEST(nics_that_are_not_ours)
{
    struct r2_balance *b;

    open_it(2);
    b = rig->side[0].inst->balance;
    room.nic[0].rows = 1u << (ROW + 1);
    room.nic[0].demand = 300 * MB;
    say(0, 1000 * MB, 10 * MB);
    ck_assert_uint_eq(b->others, 1);
    ck_assert_uint_eq(b->other[0].nics, 2);
    ck_assert_uint_ge(b->other[0].demand, 299 * MB);
    ck_assert(b->theirs.stands[1]);
    for (int i = 0; i < 2; i++) {
        struct r2_host_registry_nic row = {.name = "y", .guid = 1 + (uint64_t)i, .port = 1};

        r2_host_registry_nic_set(neighbour, ROW + i, &row);
    }
    say(0, 1000 * MB, 500 * MB);
    ck_assert_uint_eq(b->others, 0);
    ck_assert(!b->theirs.stands[1]);
    ck_assert_uint_eq(used(), 1);
    close_it();
}
END_TEST

/* Operations come in bursts. */
START_TEST(who_makes_room_does_not_flap)
{
    open_it(2);
    say(0, 1000 * MB, 500 * MB);
    for (int i = 0; i < 10; i++) {
        say(0, 1000 * MB, 0); /* for as long as ring() waits */
        ck_assert_uint_eq(used(), 3);
        say(0, 1000 * MB, 500 * MB);
        ck_assert_uint_eq(used(), 3);
    }
    say(0, 1000 * MB, 0);
    rig_run(rig, 6 * LOOK);
    ck_assert_uint_eq(used(), 1);
    close_it();
}
END_TEST

/* What our process says; 0: nothing. */
static int told(struct r2_host_registry_room *r)
{
    for (int s = 0; s < R2_HOST_REGISTRY_SLOTS; s++) {
        if (r2_host_registry_slot_room(neighbour, s, r)) {
            return 1;
        }
    }
    return 0;
}

static int has_flow(void)
{
    struct r2_host_registry_flow f;

    for (int s = 0; s < R2_HOST_REGISTRY_SLOTS; s++) {
        if (r2_host_registry_slot_alive(neighbour, s) &&
            r2_host_registry_slot_flow(neighbour, s, 0, &f)) {
            return 1;
        }
    }
    return 0;
}

static void busy(int looks)
{
    while (looks-- > 0) {
        messages(2);
        rig_run(rig, LOOK);
    }
}

START_TEST(those_that_stand_in_are_told)
{
    struct r2_host_registry_room r;

    open_it(3);
    busy(3);
    ck_assert(!told(&r));
    ck_assert(has_flow());
    rig_fault(rig, "h0:n0 down");
    wait_settled(0);
    busy(6);
    ck_assert(told(&r));
    ck_assert(r.stands[1] && !r.stands[0]);
    ck_assert_uint_eq(r.nic[0].rows, 6); /* at home on NIC 0, over both others */
    ck_assert_uint_gt(r.nic[0].demand, 0);
    ck_assert_uint_eq(r.nic[0].out_bound, 0);
    ck_assert_uint_gt(r.nic[1].out_bound, 0);
    ck_assert_uint_eq(r.nic[1].out_bound, r.nic[1].out);
    ck_assert(!has_flow()); /* not a second time */
    rig_fault(rig, "h0:n0 up");
    wait_up(0, 2);
    busy(6);
    ck_assert(!told(&r));
    ck_assert(has_flow());
    close_it();
}
END_TEST

static void add(TCase *t_case)
{
    tcase_add_test(t_case, our_connections_make_room_for_anothers);
    tcase_add_test(t_case, nobody_moves_for_little);
    tcase_add_test(t_case, nics_that_are_not_ours);
    tcase_add_test(t_case, who_makes_room_does_not_flap);
    tcase_add_test(t_case, those_that_stand_in_are_told);
}

int main(void)
{
    return run_suite("balance_host", add);
}
