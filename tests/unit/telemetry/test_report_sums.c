/* The sums over connections in the statistics are those that a walk over all of them finds, after
 * each thing that happens; and nobody walks connections that rest. */
#include "tests/unit/report_rig.h"
#include "tests/unit/second_conn.h"

#include "core/r2_registry.h"
#include "plugin/balance/r2_balance_int.h"

#define NOWHERE ((struct r2_comm *)16)

static int stands(const struct r2_comm *c)
{
    return c->state.setup == R2_SETUP_DONE && !c->seen.closing && !c->seen.error;
}

/* With a host registry each, as in a run. */
static void begin_shared(int nics)
{
    begin(nics, NULL);
    for (int i = 0; i < 2; i++) {
        rig_enter(&rig->side[i]);
        r2_host_share_open(rig->side[i].inst, dir);
        ck_assert_ptr_nonnull(rig->side[i].inst->share.registry);
    }
}

/* Of NIC @nic, of one connection: as struct r2_stat_nic has it. */
static void walk_one(const struct r2_comm *c, unsigned nic, struct r2_stat_nic *sum)
{
    uint32_t up = 0, stood = 0, others = 0, theirs = 1;

    for (int p = 0; p < c->conn.npaths; p++) {
        int is_up = c->seen.path[p].state == FO_UP;

        if (c->conn.path[p].nic != nic) {
            others |= (uint32_t)is_up;
            continue;
        }
        up |= (uint32_t)is_up;
        stood |= c->seen.path[p].stood;
        theirs &= is_up || !c->seen.path[p].stood || c->seen.path[p].theirs;
    }
    sum->over += up;
    sum->moved += stood && !up;
    sum->last += up && !others;
    sum->primary += c->dev == (int)nic;
    sum->theirs &= up || theirs;
}

static bool over(const struct r2_comm *c, uint32_t paths, unsigned nic)
{
    for (uint32_t m = paths; m; m &= m - 1) {
        if (c->conn.path[__builtin_ctz(m)].nic == nic) {
            return true;
        }
    }
    return false;
}

static void check_nic(int side, unsigned nic, const struct r2_stat_nic *n)
{
    struct r2_inst *inst = rig->side[side].inst;
    struct r2_stat_nic walk = {.theirs = 1};
    uint32_t plans = 0, shown = 0;

    for (struct r2_comm *c = r2_comm_first(inst); c; c = c->list.all_next) {
        if (stands(c)) {
            walk_one(c, nic, &walk);
        }
        shown += over(c, c->shown.up, nic);
        plans += c->is_send && c->dev == 0 && over(c, c->flow->plan, nic);
    }
    ck_assert_uint_eq(n->over, walk.over);
    ck_assert_uint_eq(n->moved, walk.moved);
    ck_assert_uint_eq(n->last, walk.last);
    ck_assert_uint_eq(n->primary, walk.primary);
    ck_assert_uint_eq(n->theirs, walk.moved && walk.theirs);
    ck_assert_uint_eq(inst->balance->home[0].over[nic] + inst->balance->stood[0].over[nic], plans);
    ck_assert_uint_eq(inst->share.sum[nic].usable, shown);
}

/* @bytes: that have gone from side 0 to side 1 so far, by any path. */
static void check(unsigned conns, uint64_t bytes)
{
    for (int side = 0; side < 2; side++) {
        const struct r2_stat_view *v = look(side);
        uint64_t sent = 0, received = 0, wrs = 0;

        ck_assert_uint_eq(v->who.conns_all, conns);
        ck_assert_int_eq(v->conns, (int)conns);
        for (unsigned i = 0; i < v->who.nics; i++) {
            check_nic(side, i, &v->nic[i]);
            sent += v->nic[i].sent;
            received += v->nic[i].received;
            wrs += v->nic[i].work_requests;
        }
        ck_assert_uint_eq(sent, side ? 0 : bytes);
        ck_assert_uint_eq(received, side ? bytes : 0);
        ck_assert_uint_gt(wrs, 0);
        ck_assert_uint_lt(wrs, 1000);
    }
}

#define BYTES(n) ((uint64_t)(n) * sizeof(out[0]))

START_TEST(sums_are_those_of_a_walk)
{
    begin_shared(2);
    messages(3);
    check(1, BYTES(3));
    second_connect();
    check(2, BYTES(3));
    rig_fault(rig, _i ? "h1:n0 down" : "h0:n0 down");
    wait_settled(0);
    check(2, BYTES(3));
    messages(2);
    check(2, BYTES(5));
    rig_run(rig, 3 * RIG_S); /* what the job finds out of it, and what follows */
    check(2, BYTES(5));
    rig_fault(rig, _i ? "h1:n0 up" : "h0:n0 up");
    wait_up(0, 2);
    rig_run(rig, 3 * RIG_S);
    check(2, BYTES(5));
    messages(1);
    check(2, BYTES(6));
    drain(0, 1);
    wait_settled(0);
    check(2, BYTES(6));
    drain(0, 0);
    rig_run(rig, 3 * RIG_S);
    check(2, BYTES(6));
    second_close();
    rig_run(rig, 5 * RIG_S);
    check(1, BYTES(6));
    end();
}
END_TEST

/* Who walks all connections of a process ends up where nothing can be read. */
static void walks_end(struct r2_comm *next)
{
    static struct r2_comm *last[2];

    for (int i = 0; i < 2; i++) {
        if (next) {
            last[i] = r2_comm_first(rig->side[i].inst);
            ck_assert_ptr_null(last[i]->list.all_next);
        }
        last[i]->list.all_next = next;
    }
}

static int all_rest(struct rig *r)
{
    return !r->side[0].inst->steps.stirred && !r->side[1].inst->steps.stirred &&
           !report(0)->rows.first && !report(1)->rows.first && !r->side[0].inst->balance->busy;
}

START_TEST(nobody_walks_connections_that_rest)
{
    begin_shared(2);
    messages(3);
    ck_assert(rig_until(rig, all_rest, 120 * RIG_S));
    walks_end(NOWHERE);
    rig_run(rig, 30 * RIG_S);
    walks_end(NULL);
    messages(1);
    check(1, BYTES(4)); /* with the next look */
    end();
}
END_TEST

/* Else the set-up of many costs the square of their number; so does their close. */
START_TEST(a_connection_comes_and_goes_without_a_walk)
{
    begin_shared(1);
    messages(1);
    walks_end(NOWHERE);
    for (int i = 0; i < 3; i++) {
        second_connect();
        rig_run(rig, 500 * RIG_MS);
        second_close();
        rig_run(rig, 3 * RIG_S);
    }
    walks_end(NULL);
    check(1, BYTES(1));
    end();
}
END_TEST

/* What one of them moves shows with the next look, whatever rested before. */
START_TEST(what_wakes_is_counted_with_the_next_look)
{
    begin_shared(2);
    for (unsigned i = 1; i < 6; i++) {
        messages(1);
        check(1, BYTES(i));
        ck_assert(rig_until(rig, all_rest, 120 * RIG_S));
        check(1, BYTES(i));
    }
    end();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, sums_are_those_of_a_walk, 0, 2);
    tcase_add_test(t, nobody_walks_connections_that_rest);
    tcase_add_test(t, a_connection_comes_and_goes_without_a_walk);
    tcase_add_test(t, what_wakes_is_counted_with_the_next_look);
}

int main(void)
{
    return suite_run("report_sums", 120, NULL, NULL, add);
}
