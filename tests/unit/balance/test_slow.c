/*
 * NICs that are slow without failing (docs/health.md): a process for each NIC, as with a GPU
 * each, whose connections are never idle; their NICs' rates change. Whole instances on the
 * in-process fabric with host registries; virtual time.
 */
#include "tests/unit/suite.h" /* before the rig, whose names its parameters have */
#include "tests/unit/watch_rig.h"

#include <unistd.h>

#include "plugin/balance/r2_balance.h"
#include "plugin/admin/r2_host_share.h"
#include "plugin/control/fo_proto.h"

#define NICS  3
#define RATE  12000000ull
#define SIZE  65536
#define DEPTH 8
#define S     RIG_S

struct proc {
    struct rig *rig;
    struct ib_mr *s_mr, *r_mr;
    unsigned sent; /* messages */
};

static struct proc proc[NICS];
static uint8_t from[NICS][SIZE], to[NICS][SIZE * DEPTH];
static char dir[2][64];
static unsigned gap_us; /* between operations of 16 messages each, which all processes begin
                           together; 0: no operations, but streams */
static unsigned ops;

static void boards_open(struct rig *r)
{
    for (int side = 0; side < 2; side++) {
        if (dir[side][0] == '\0') {
            snprintf(dir[side], sizeof(dir[side]), "/tmp/r2-slow-XXXXXX");
            ck_assert_ptr_nonnull(mkdtemp(dir[side]));
        }
        rig_enter(&r->side[side]);
        r2_host_share_open(r->side[side].inst, dir[side]);
        ck_assert_ptr_nonnull(r->side[side].inst->share.registry);
    }
}

static void clean(void)
{
    char path[128];

    teardown();
    for (int side = 0; side < 2 && dir[side][0]; side++) {
        ck_assert_int_eq(r2_host_registry_path(dir[side], geteuid(), path, sizeof(path)), 0);
        unlink(path);
        ck_assert_msg(rmdir(dir[side]) == 0, "%s is not empty", dir[side]);
        dir[side][0] = '\0';
    }
}

/* A fault that has taken hold: of both ports' ways, as the fabric has it. */
static void rate_set(int nic, uint64_t rate)
{
    char fault[64];

    snprintf(fault, sizeof(fault), "h0:n%d rate %lluB/s", nic, (unsigned long long)rate);
    rig_fault(rig, fault);
    ck_assert_uint_eq(fab_inproc_nic(rig->f, 0, nic)->link.rate, rate);
}

static void procs_start(const char *const *options)
{
    for (int i = 0; i < NICS; i++) {
        struct proc *p = &proc[i];

        p->rig = i == 0 ? rig_create(NICS, 0, options) : rig_create_beside(proc[0].rig, options);
        p->sent = 0;
        rig = proc[0].rig;
        boards_open(p->rig);
        if (i == 0) {
            rig_fault(rig, "*:* rate 12MB/s");
        }
        rig_connect(p->rig, i, i);
        memset(from[i], 17 + i, SIZE);
        p->s_mr = rig_reg(p->rig, 0, from[i], SIZE);
        p->r_mr = rig_reg(p->rig, 1, to[i], sizeof(to[i]));
    }
}

static void procs_stop(void)
{
    for (int i = 0; i < NICS; i++) {
        ck_assert_int_eq(memcmp(to[i], from[i], SIZE), 0);
        rig_dereg(proc[i].rig, 0, proc[i].s_mr);
        rig_dereg(proc[i].rig, 1, proc[i].r_mr);
    }
}

static void feed(struct proc *p, uint8_t *data, uint8_t *room, unsigned limit)
{
    struct rig_side *s = &p->rig->side[0], *r = &p->rig->side[1];

    while (r->tail - r->head < DEPTH &&
           rig_irecv1(p->rig, room + r->tail % DEPTH * SIZE, SIZE, 0, p->r_mr) >= 0) {
    }
    while (p->sent < limit && s->tail - s->head < DEPTH &&
           rig_isend(p->rig, data, SIZE, 0, p->s_mr) >= 0) {
        p->sent++;
    }
    ck_assert_int_eq(s->status, R2_OK);
    ck_assert_int_eq(r->status, R2_OK);
}

static void step(void)
{
    int over = gap_us != 0;

    for (int i = 0; i < NICS; i++) {
        feed(&proc[i], from[i], to[i], gap_us ? ops * 16 : UINT32_MAX);
        over &= proc[i].sent == ops * 16 && proc[i].rig->side[0].tail == proc[i].rig->side[0].head;
        rig_turn(proc[i].rig, i == 0 ? (over && gap_us ? gap_us * RIG_US : 500 * RIG_US) : 0);
    }
    ops += (unsigned)over;
}

static int slow(int nic)
{
    return proc[nic].rig->side[0].comm->conn.wide != 0;
}

static int run_until(int nic, int is_slow, uint64_t ns)
{
    for (uint64_t end = rig_now(rig) + ns; rig_now(rig) < end && slow(nic) != is_slow;) {
        step();
    }
    return slow(nic) == is_slow;
}

static void run(uint64_t ns)
{
    for (uint64_t end = rig_now(rig) + ns; rig_now(rig) < end;) {
        step();
    }
}

static unsigned sent(int nic)
{
    return proc[nic].sent;
}

/* Nobody's plan has changed, nothing has gone over another NIC, nothing has failed. */
static void untouched(void)
{
    for (int i = 0; i < NICS; i++) {
        const struct r2_comm *c = proc[i].rig->side[0].comm;

        ck_assert_int_eq(c->conn.wide, 0);
        ck_assert_int_eq(c->tx->plan.n, 1);
        ck_assert_int_eq(c->tx->plan.path[0], 0);
        ck_assert_uint_eq(c->fo.switches, 0);
        for (int p = 1; p < c->conn.npaths; p++) {
            ck_assert_uint_eq(c->conn.path[p].count.wrs, 0);
        }
    }
}

static const char *const quiet[] = {QUIET_RC, NULL};

/* A NIC falls to a fifth of its rate: within a second others carry a part; when it recovers, they
 * do not any more. */
static void falls_and_returns(void)
{
    const struct r2_comm *c;
    unsigned before, rest;

    procs_start(quiet);
    run(3 * S);
    untouched();
    before = sent(0);
    run(2 * S);
    before = sent(0) - before;
    rate_set(0, RATE / 5);
    ck_assert_msg(run_until(0, 1, 3 * S / 2), "its connection does not use other NICs");
    c = proc[0].rig->side[0].comm;
    run(S / 2); /* the division comes after */
    ck_assert_int_eq(c->tx->plan.n, NICS);
    ck_assert_uint_lt(c->conn.weight[0], c->conn.weight[1]);
    run(S);
    rest = sent(0);
    run(2 * S);
    rest = sent(0) - rest;
    ck_assert_msg(rest > before / 2, "%u messages, %u before", rest, before);
    ck_assert_uint_gt(c->conn.path[1].count.wrs, 0);
    for (int i = 1; i < NICS; i++) {
        ck_assert_int_eq(slow(i), 0);
    }
    rate_set(0, RATE);
    ck_assert_msg(run_until(0, 0, 10 * S), "it is still avoided");
    ck_assert_int_eq(c->tx->plan.n, 1);
    for (int i = 0; i < NICS; i++) {
        ck_assert_uint_eq(proc[i].rig->side[0].comm->fo.switches, 0);
    }
    procs_stop();
}

START_TEST(a_slow_nic)
{
    gap_us = 2000;
    falls_and_returns();
}
END_TEST

/* Half of the time is spent on other things. */
START_TEST(a_slow_nic_half_the_time)
{
    gap_us = 90000;
    falls_and_returns();
}
END_TEST

/* Both parts are of the same limit: here that of the pair, half of the port's. Else the NIC would
 * count for twice what it carries. */
START_TEST(measured_by_one_limit)
{
    const struct r2_flow *f;

    procs_start(quiet);
    gap_us = 2000;
    for (int i = 0; i < NICS; i++) {
        struct r2_comm *c = proc[i].rig->side[0].comm;

        for (int p = 0; p < c->conn.npaths; p++) {
            c->flow->reach_there[p] = r2_balance_port(c->inst, c->conn.path[p].nic) / 2;
        }
    }
    run(3 * S);
    untouched();
    rate_set(0, RATE / 5);
    ck_assert(run_until(0, 1, 4 * S));
    run(S);
    f = proc[0].rig->side[0].comm->flow;
    ck_assert_uint_gt(f->measured[0], 0);
    ck_assert_uint_ge(f->nic_measured[0], f->measured[0]);
    ck_assert_msg(f->nic_measured[0] < f->measured[0] * 3 / 2, "the pair %u Mb/s, its NIC %u",
                  f->measured[0], f->nic_measured[0]);
    ck_assert_uint_eq(f->measured[1], 0);
    procs_stop();
}
END_TEST

static unsigned told; /* that a way to side 1 is slow */

static void on_slow_word(struct r2_pair *pair, uint8_t flags)
{
    told += pair->inst == rig->side[1].inst && (flags & FO_LOAD_SLOW);
}

/* What is under way arrives, and nothing else is sent for @ns. */
static void rest(uint64_t ns)
{
    for (uint64_t end = rig_now(rig) + ns; rig_now(rig) < end;) {
        for (int i = 0; i < NICS; i++) {
            rig_turn(proc[i].rig, i == 0 ? 500 * RIG_US : 0);
        }
    }
}

/* The other end hears of it every half second, as long as it is slow and something is sent. */
START_TEST(the_other_end_is_told)
{
    static const struct r2_subscriber counting = {.on_slow_word = on_slow_word};
    unsigned before;

    told = 0;
    procs_start(quiet);
    subscribe(&counting);
    run(3 * S);
    ck_assert_uint_eq(told, 0);
    for (int episode = 0; episode < 2; episode++) {
        before = told;
        rate_set(0, RATE / 5);
        ck_assert(run_until(0, 1, 3 * S / 2));
        run(4 * S);
        ck_assert_uint_ge(told - before, 5);
        ck_assert_uint_le(told - before, 12);
        rest(2 * S);
        before = told;
        rest(4 * S);
        ck_assert_uint_eq(told, before);
        ck_assert_int_eq(slow(0), 1); /* for all that is known */
        rate_set(0, RATE);
        ck_assert(run_until(0, 0, 20 * S));
        run(S);
        before = told;
        run(3 * S);
        ck_assert_uint_eq(told, before);
    }
    procs_stop();
}
END_TEST

START_TEST(switched_off)
{
    procs_start((const char *[]){QUIET_RC, "NCCL_R2_SLOW=off", NULL});
    run(S);
    rate_set(0, RATE / 5);
    run(4 * S);
    untouched();
    procs_stop();
}
END_TEST

/* Two fifths of its rate: slow or not by the option. */
START_TEST(the_limit)
{
    procs_start((const char *[]){QUIET_RC,
                                 _i ? "NCCL_R2_SLOW_PERCENT=30" : "NCCL_R2_SLOW_PERCENT=60", NULL});
    gap_us = 2000;
    run(S);
    untouched();
    rate_set(0, RATE / 5 * 2);
    ck_assert_int_eq(run_until(0, 1, 4 * S), !_i);
    if (_i) {
        untouched();
    }
    procs_stop();
}
END_TEST

/* All alike: nothing to gain. */
START_TEST(all_slow)
{
    procs_start(quiet);
    run(2 * S);
    for (int i = 0; i < NICS; i++) {
        rate_set(i, RATE / 5);
    }
    run(5 * S);
    untouched();
    for (int i = 0; i < NICS; i++) {
        rate_set(i, RATE);
    }
    run(3 * S);
    untouched();
    procs_stop();
}
END_TEST

/* One receiver posts nothing for long, again and again: no link is slow for that. */
START_TEST(a_slow_receiver)
{
    procs_start(quiet);
    for (int k = 0; k < 60; k++) {
        proc[0].rig->side[1].asleep = k % 3 != 0;
        run(S / 10);
    }
    proc[0].rig->side[1].asleep = 0;
    run(S);
    untouched();
    procs_stop();
}
END_TEST

static void setup(void)
{
    gap_us = ops = 0;
}

static void add(TCase *t)
{
    tcase_add_test(t, a_slow_nic);
    tcase_add_test(t, a_slow_nic_half_the_time);
    tcase_add_test(t, measured_by_one_limit);
    tcase_add_test(t, the_other_end_is_told);
    tcase_add_test(t, switched_off);
    tcase_add_loop_test(t, the_limit, 0, 2);
    tcase_add_test(t, all_slow);
    tcase_add_test(t, a_slow_receiver);
}

int main(void)
{
    return suite_run("slow", 240, setup, clean, add);
}
