/*
 * Congestion that other processes make (docs/health.md): their bytes stand in front of our
 * probes, at our NIC and at the peer's, and nothing moves for that; a NIC pair that is dead is
 * found all the same. Several processes on two hosts, each host with a registry, slow links;
 * virtual time.
 */
#include "tests/unit/suite.h" /* before the rig, whose names its parameters have */
#include "tests/unit/watch_rig.h"

#include <unistd.h>

#include "plugin/admin/r2_host_share.h"
#include "plugin/probe/health/r2_load.h"

#define RATE    "11MB/s"
#define OTHERS  4
#define MOST    (1u << 20) /* bytes of a message of the others */
#define SECONDS 5          /* of virtual time; R2_CONGEST_SECONDS for more */

/* A process on each host with a connection between them, which is never idle. */
struct other {
    struct rig *rig;
    struct ib_mr *s_mr, *r_mr;
    size_t size;
    unsigned depth;
};

static struct other other[OTHERS];
static int others;
static uint8_t from[MOST], to[MOST];
static char dir[2][64];

static void boards_open(struct rig *r)
{
    for (int side = 0; side < 2; side++) {
        if (dir[side][0] == '\0') {
            snprintf(dir[side], sizeof(dir[side]), "/tmp/r2-congest-XXXXXX");
            ck_assert_ptr_nonnull(mkdtemp(dir[side]));
        }
        rig_enter(&r->side[side]);
        r2_host_share_open(r->side[side].inst, dir[side]);
        ck_assert_ptr_nonnull(r->side[side].inst->share.registry);
    }
}

static void boards_remove(void)
{
    char path[128];

    for (int side = 0; side < 2 && dir[side][0]; side++) {
        ck_assert_int_eq(r2_host_registry_path(dir[side], geteuid(), path, sizeof(path)), 0);
        unlink(path);
        ck_assert_msg(rmdir(dir[side]) == 0, "%s is not empty", dir[side]);
        dir[side][0] = '\0';
    }
}

static void clean(void)
{
    teardown();
    boards_remove();
    others = 0;
}

/* A hundred bytes now and then from NIC 0 to NIC 0, for which the others leave little room. */
static void victim_start(const char *const *options)
{
    rig = rig_create(3, 1, options);
    boards_open(rig);
    rig_fault(rig, "*:* rate " RATE);
    ck_assert_uint_eq(fab_inproc_nic(rig->f, 1, 2)->link.rate, 11000000);
    connect_ends();
    wait_probes();
    messages(4, 100);
}

static void other_start(int s_nic, int r_nic, size_t size, unsigned depth)
{
    struct other *o = &other[others++];

    *o = (struct other){.rig = rig_create_beside(rig, (const char *[]){QUIET_RC, NULL}),
                        .size = size,
                        .depth = depth};
    boards_open(o->rig);
    rig_connect(o->rig, s_nic, r_nic);
    o->s_mr = rig_reg(o->rig, 0, from, sizeof(from));
    o->r_mr = rig_reg(o->rig, 1, to, sizeof(to));
}

static void others_stop(void)
{
    for (int i = 0; i < others; i++) {
        rig_dereg(other[i].rig, 0, other[i].s_mr);
        rig_dereg(other[i].rig, 1, other[i].r_mr);
    }
}

static unsigned under_way(const struct rig_side *s)
{
    return s->tail - s->head;
}

static void others_feed(void)
{
    for (int i = 0; i < others; i++) {
        struct other *o = &other[i];

        while (under_way(&o->rig->side[1]) < o->depth &&
               rig_irecv1(o->rig, to, o->size, 0, o->r_mr) >= 0) {
        }
        while (under_way(&o->rig->side[0]) < o->depth &&
               rig_isend(o->rig, from, o->size, 0, o->s_mr) >= 0) {
        }
        ck_assert_int_eq(o->rig->side[0].status, R2_OK);
        ck_assert_int_eq(o->rig->side[1].status, R2_OK);
        rig_turn(o->rig, 0);
    }
}

/* Time goes on, at most until @cond. */
static int crowd_until(int (*cond)(struct rig *r), uint64_t ns)
{
    for (uint64_t end = rig_now(rig) + ns; rig_now(rig) < end;) {
        if (cond && cond(rig)) {
            return 1;
        }
        others_feed();
        rig_turn(rig, 200 * RIG_US);
    }
    return cond && cond(rig);
}

/* One message each 20 ms at most, and the next when it is through. */
static void victim_goes_on(uint64_t ns)
{
    for (uint64_t end = rig_now(rig) + ns; rig_now(rig) < end;) {
        recv_post(0, 100);
        crowd_until(NULL, RIG_MS);
        while (rig_isend(rig, out[0], 100, 0, s_mr) < 0) {
            crowd_until(NULL, RIG_MS);
        }
        ck_assert_msg(crowd_until(rig_all_done, 10 * RIG_S), "no message for 10 s");
        crowd_until(NULL, 20 * RIG_MS);
    }
}

static unsigned switches(void)
{
    unsigned n = 0;

    for (int i = -1; i < others; i++) {
        struct rig *r = i < 0 ? rig : other[i].rig;

        for (int side = 0; side < 2; side++) {
            n += (unsigned)r->side[side].comm->fo.switches;
        }
    }
    return n;
}

static const struct {
    const char *what;
    struct {
        int s_nic, r_nic;
        size_t size;
        unsigned depth;
    } other[OTHERS];
} crowds[] = {
    {"other NICs of our host send to the NIC of our peer",
     {{1, 0, BIG, 16}, {1, 0, BIG, 16}, {2, 0, BIG, 16}, {2, 0, BIG, 16}}},
    {"they do, long messages",
     {{1, 0, MOST, 3}, {1, 0, MOST, 3}, {2, 0, MOST, 3}, {2, 0, MOST, 3}}},
    {"our NIC and others do", {{0, 0, BIG, 16}, {1, 0, BIG, 16}, {2, 0, BIG, 16}}},
    {"all do, long messages", {{0, 0, MOST, 3}, {1, 0, MOST, 3}, {2, 0, MOST, 3}}},
    {"our NIC is full of what goes elsewhere", {{0, 1, BIG, 32}, {0, 2, BIG, 32}}},
    {"other processes use our two NICs alone", {{0, 0, BIG, 32}, {0, 0, BIG, 32}}},
    {"the same, with messages of 0.1 s", {{0, 0, BIG, 32}, {0, 0, MOST, 3}}},
};
#define CROWDS (int)(sizeof(crowds) / sizeof(crowds[0]))

static void crowd_start(int i)
{
    for (int k = 0; k < OTHERS && crowds[i].other[k].size; k++) {
        other_start(crowds[i].other[k].s_nic, crowds[i].other[k].r_nic, crowds[i].other[k].size,
                    crowds[i].other[k].depth);
    }
}

static uint64_t seconds(void)
{
    const char *s = getenv("R2_CONGEST_SECONDS");

    return s && atoi(s) > 0 ? (uint64_t)atoi(s) : SECONDS;
}

/* From the very first, when no rate is known, and on. */
START_TEST(what_others_have_queued_is_no_fault)
{
    victim_start((const char *[]){QUIET_RC, NULL});
    crowd_start(_i);
    victim_goes_on(seconds() * RIG_S);
    ck_assert_msg(switches() == 0, "%s: %u paths given up: %s", crowds[_i].what, switches(),
                  rig->side[0].comm->fo.last_fault);
    if (getenv("RIG_VERBOSE")) {
        printf("%s: %u words about loads, slowest answer %.1f ms\n", crowds[_i].what,
               rig_count(rig, 0, FO_MSG_LOAD), (double)pair_of(0, 0)->probe.slowest / 1e6);
    }
    others_stop();
    stop();
}
END_TEST

static int deaf(struct rig *r, int from_side, int type, union fo_body *body)
{
    r->filter_count += type == FO_MSG_LOAD;
    return type != FO_MSG_LOAD;
}

/* The same with a peer that does not say what its NIC moves, as an older one: that this is
 * congestion cannot be known.
 */
START_TEST(without_the_peers_word_it_looks_dead)
{
    victim_start((const char *[]){QUIET_RC, NULL});
    rig->filter = deaf;
    crowd_start(_i);
    victim_goes_on(RIG_S);
    ck_assert_int_gt(rig->filter_count, 0);
    ck_assert_uint_gt(rig->side[0].comm->fo.switches, 0);
    others_stop();
    stop();
}
END_TEST

static const struct {
    int crowd;
    const char *fault;
    unsigned limit_ms;
} dead[] = {
    /* ack-lost: the way back is good, and it is asked twice */
    {5, "h0:n0 blackhole", 120},    {5, "h1:n0 blackhole", 120},  {5, "h0:n0 blackhole-tx", 120},
    {5, "h1:n0 blackhole-rx", 120}, {5, "h1:n0 ack-lost", 200},   {4, "h0:n0 blackhole", 120},
    {6, "h0:n0 blackhole", 300},    {6, "h1:n0 blackhole", 300},  {1, "h0:n0 blackhole", 2500},
    {0, "h1:n0 blackhole", 400},    {2, "h1:n0 blackhole", 400},  {2, "h1:n0 blackhole-rx", 400},
    {4, "h1:n0 blackhole", 1200},   {0, "h0:n0 blackhole", 1200}, {2, "h0:n0 blackhole-tx", 1200},
};
#define DEAD (int)(sizeof(dead) / sizeof(dead[0]))

/*
 * What others have queued over the dead NIC does not move and gives it no time. Where the other end
 * goes on moving what stands in front of us, and ours would be silent either way, the wait is that
 * of the queue there, at most T_stuck.
 */
START_TEST(a_dead_nic_is_found_behind_what_others_have_queued)
{
    uint64_t since;

    victim_start((const char *[]){QUIET_RC, NULL});
    crowd_start(dead[_i].crowd);
    crowd_until(NULL, 300 * RIG_MS);
    recv_post(0, 100);
    crowd_until(NULL, 50 * RIG_MS);
    ck_assert_uint_eq(switches(), 0);
    fire(dead[_i].fault);
    since = rig_now(rig);
    while (rig_isend(rig, out[0], 100, 0, s_mr) < 0) {
        crowd_until(NULL, RIG_MS);
    }
    ck_assert_msg(crowd_until(path_0_is_down, 3 * RIG_S), "%s, %s: not found",
                  crowds[dead[_i].crowd].what, dead[_i].fault);
    if (getenv("RIG_VERBOSE")) {
        printf("%s, %s: after %.1f ms\n", crowds[dead[_i].crowd].what, dead[_i].fault,
               (double)(rig_now(rig) - since) / 1e6);
    }
    ck_assert_msg(rig_now(rig) - since < dead[_i].limit_ms * RIG_MS, "%s, %s: after %.1f ms",
                  crowds[dead[_i].crowd].what, dead[_i].fault,
                  (double)(rig_now(rig) - since) / 1e6);
    found_as(0, IB_FAULT_SILENT);
    ck_assert_msg(crowd_until(rig_all_done, 5 * RIG_S), "the message is not done");
    others_stop();
    stop();
}
END_TEST

/*
 * Receives of several sizes are open, and what comes first is a long message: nothing moves for its
 * time, however short the others are. What was the longest is forgotten when none is open.
 */
START_TEST(what_is_in_front_may_be_the_largest)
{
    static const size_t sizes[] = {100, 60000, 100, 200, 100};
    struct r2_nic_load *load;

    rig = rig_create(1, 0, (const char *[]){QUIET_RC, NULL});
    rig_connect(rig, 0, 0);
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
    load = &rig->side[1].inst->watch.load[0];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 5; i++) {
            recv_post(i, round ? 100 : sizes[i]);
        }
        rig_run(rig, 50 * RIG_MS);
        ck_assert_uint_eq(load->queued, round ? 500 : 60500);
        ck_assert_uint_eq(load->front, round ? 100 : 60000);
        for (int i = 0; i < 5; i++) {
            send_post(i, round ? 100 : sizes[i]);
        }
        finish(0, 0, 10 * RIG_S);
        rig_run(rig, 50 * RIG_MS);
        ck_assert_uint_eq(load->queued, 0);
    }
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, what_others_have_queued_is_no_fault, 0, CROWDS);
    tcase_add_loop_test(t, without_the_peers_word_it_looks_dead, 0, 2);
    tcase_add_test(t, what_is_in_front_may_be_the_largest);
    tcase_add_loop_test(t, a_dead_nic_is_found_behind_what_others_have_queued, 0, DEAD);
}

int main(void)
{
    return suite_run("congestion", 120, NULL, clean, add);
}
