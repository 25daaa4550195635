/*
 * What a receiver announces of its NICs when connections stand in there: to whom, from when on, how
 * often, and that it is over. Two NICs, three peers with a connection at home on each; bytes are
 * what the test says.
 */
#include "tests/unit/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/r2_wire.h"
#include "plugin/balance/r2_balance_int.h"

#define PORT  400000u
#define MB    1000000u
#define PEERS 3
#define HURT  0 /* the peer whose connection at home on NIC 1 stands in on NIC 0 */

static struct r2_inst inst;
static struct r2_balance balance;
static struct r2_peer peer[PEERS];
static struct r2_comm comm[PEERS][2]; /* by peer and home NIC */
static struct r2_flow flow[PEERS][2];
static unsigned told[PEERS][2];    /* RATES in the latest look, by peer and home NIC */
static uint32_t said[PEERS][2][2]; /* ... the ports in them, by NIC */
static unsigned moves[PEERS][2];   /* bytes of each connection in a look */
static unsigned all_told;

static uint64_t now_ns;

static uint64_t clock_now(void *arg)
{
    (void)arg;
    return now_ns;
}

static void posts(struct r2_inst *i, struct r2_peer *p)
{
    (void)i;
    (void)p;
    ck_abort_msg("a message is full");
}

static void comm_make(int p, int home)
{
    struct r2_comm *c = &comm[p][home];

    c->inst = &inst;
    c->id = (uint32_t)(2 * p + home + 1);
    c->flow = &flow[p][home];
    snprintf(c->far.host, sizeof(c->far.host), "peer%d", p);
    c->peer = &peer[p];
    c->dev = home;
    c->conn.npaths = 2;
    c->conn.up = 3;
    c->conn.path[0].nic = (uint8_t)home;
    c->conn.path[1].nic = (uint8_t)!home;
    c->list.all_next = inst.comms.all;
    inst.comms.all = c;
    c->list.peer_next = peer[p].comms;
    peer[p].comms = c;
    r2_room_comm(c, true);
    moves[p][home] = 10 * MB;
}

static void setup(void)
{
    memset(&inst, 0, sizeof(inst));
    memset(&balance, 0, sizeof(balance));
    memset(peer, 0, sizeof(peer));
    memset(comm, 0, sizeof(comm));
    memset(flow, 0, sizeof(flow));
    all_told = 0;
    pthread_mutex_init(&inst.lock, NULL);
    inst.cfg.balance = 1;
    inst.above.post = posts;
    inst.env.now_ns = clock_now;
    now_ns = 1000000000;
    inst.nics.count = 2;
    inst.balance = &balance;
    balance.ways.nics = 2;
    balance.ways.port[0] = balance.ways.port[1] = PORT;
    for (int p = 0; p < PEERS; p++) {
        peer[p].next = inst.index.peers;
        inst.index.peers = &peer[p];
        comm_make(p, 0);
        comm_make(p, 1);
    }
}

static void teardown(void)
{
    pthread_mutex_destroy(&inst.lock);
}

static void hear(int p)
{
    struct r2_reader r = {.p = peer[p].out.buf, .end = peer[p].out.buf + peer[p].out.len};
    union fo_body b;
    const char *why = NULL;

    for (int type; (type = fo_unpack(&r, &b, &why)) != 0;) {
        int home = ((int)b.rates.src - 1) % 2;

        ck_assert_msg(type == FO_MSG_RATES, "%d: %s", type, why ? why : "");
        ck_assert_int_eq(((int)b.rates.src - 1) / 2, p);
        told[p][home]++;
        all_told++;
        said[p][home][home] = b.rates.port[0];
        said[p][home][!home] = b.rates.port[1];
    }
    peer[p].out.len = 0;
}

/* What each connection moves over its home, or where it stands in; and a look. */
static void look(void)
{
    memset(told, 0, sizeof(told));
    for (int p = 0; p < PEERS; p++) {
        for (int home = 0; home < 2; home++) {
            struct r2_comm *c = &comm[p][home];

            c->conn.path[c->conn.up & 1 ? 0 : 1].count.bytes += moves[p][home];
        }
    }
    if (inst.share.registry) {
        r2_flows_hear(&inst);
    }
    r2_room_look(&inst);
    for (int p = 0; p < PEERS; p++) {
        hear(p);
    }
}

static unsigned looks(int n)
{
    unsigned before = all_told;

    while (n-- > 0) {
        look();
    }
    return all_told - before;
}

static void up_set(uint32_t up)
{
    comm[HURT][1].conn.up = up;
    r2_room_comm(&comm[HURT][1], true);
}

/* Until it is told; the number of looks. */
static int looks_until_told(void)
{
    for (int n = 1; n < 100; n++) {
        if (looks(1) > 0) {
            return n;
        }
    }
    ck_abort_msg("nobody is told");
    return 0;
}

START_TEST(a_healthy_job)
{
    ck_assert_uint_eq(looks(20), 0);
    ck_assert(!balance.making.looks);
}
END_TEST

/* 20 of the hurt one and 20 that can move beside 20 that stay: 30 each. Nobody else is told more
 * than once in three looks, and then no more. */
START_TEST(the_others_are_told)
{
    looks(5);
    up_set(2);
    ck_assert_int_eq(looks_until_told(), 4); /* one to begin, three in a row */
    for (int n = 0; n < 3; n++) {
        for (int p = 0; p < PEERS; p++) {
            for (int home = 0; home < 2; home++) {
                ck_assert_uint_eq(told[p][home], p != HURT);
                if (p != HURT) {
                    /* 5 of its 10 over NIC 0; 5 and 10 over NIC 1: a third */
                    ck_assert_uint_ge(said[p][home][0], PORT / 3 - PORT / 20);
                    ck_assert_uint_le(said[p][home][0], PORT / 3 + PORT / 20);
                    ck_assert_uint_eq(said[p][home][1], PORT);
                }
            }
        }
        look();
    }
    ck_assert_uint_eq(looks(40), 0);
    ck_assert_uint_eq(balance.making.crowded, 1);
}
END_TEST

/* It does not hang on what has moved: they follow, and are not told anything else. */
START_TEST(it_is_told_once)
{
    up_set(2);
    looks_until_told();
    looks(3);
    for (int n = 0; n < 40; n++) {
        for (int p = 1; p < PEERS; p++) { /* half of what is at home on NIC 0 comes over NIC 1 */
            moves[p][0] = 0;
            comm[p][0].conn.path[0].count.bytes += 5 * MB;
            comm[p][0].conn.path[1].count.bytes += 5 * MB;
        }
        ck_assert_uint_eq(looks(1), 0);
    }
}
END_TEST

START_TEST(it_is_over)
{
    up_set(2);
    looks_until_told();
    looks(5);
    up_set(3);
    for (int n = 0; n < 3; n++) {
        ck_assert_uint_eq(looks(1), 4);
        ck_assert_uint_eq(said[1][0][0], PORT);
        ck_assert_uint_eq(said[2][1][0], PORT);
    }
    ck_assert_uint_eq(looks(20), 0);
    ck_assert(!balance.making.looks);
    up_set(2); /* once more, and it takes as long */
    ck_assert_int_eq(looks_until_told(), 4);
}
END_TEST

/* Its program has put the work elsewhere. */
START_TEST(one_that_rests_crowds_nobody)
{
    moves[HURT][1] = 0;
    moves[HURT][0] = 20 * MB;
    up_set(2);
    ck_assert_uint_eq(looks(40), 0);
    ck_assert(balance.making.looks);
    for (int i = 0; i < 10; i++) { /* two operations, and it rests again */
        moves[HURT][1] = 10 * MB;
        ck_assert_uint_eq(looks(2), 0);
        moves[HURT][1] = 0;
        ck_assert_uint_eq(looks(2), 0);
    }
}
END_TEST

/* Its messages take as long as some looks; then it has put its work elsewhere. */
START_TEST(one_that_moves_now_and_then)
{
    moves[HURT][1] = 40 * MB;
    up_set(2);
    looks_until_told();
    looks(20);
    for (int i = 0; i < 10; i++) {
        moves[HURT][1] = 0;
        looks(6);
        ck_assert(balance.making.mine.stands[0]);
        moves[HURT][1] = 40 * MB;
        looks(1);
    }
    moves[HURT][1] = 0;
    looks(7);
    ck_assert(balance.making.mine.stands[0]);
    looks(1);
    ck_assert(!balance.making.mine.stands[0]);
    moves[HURT][1] = 40 * MB; /* and it begins anew */
    looks(2);
    ck_assert(!balance.making.mine.stands[0]);
    looks(1);
    ck_assert(balance.making.mine.stands[0]);
}
END_TEST

/* NIC 1 is empty, and nobody can use it but who stands in. */
START_TEST(nowhere_to_go)
{
    for (int p = 1; p < PEERS; p++) {
        comm[p][0].conn.up = 1;
        r2_room_comm(&comm[p][0], true);
        r2_room_comm(&comm[p][1], false);
        moves[p][1] = 0;
    }
    up_set(2);
    ck_assert_uint_eq(looks(40), 0);
    ck_assert_uint_eq(balance.making.crowded, 0);
    ck_assert(balance.making.mine.stands[0]);
    up_set(3); /* nobody was told; it is forgotten all the same */
    ck_assert_uint_eq(looks(2), 0);
    ck_assert(!balance.making.mine.stands[0]);
    ck_assert_uint_eq(flow[HURT][1].stands, 0);
}
END_TEST

/* Its paths count from 0 again. */
START_TEST(a_new_incarnation)
{
    up_set(2);
    looks_until_told();
    looks(10);
    comm[1][0].conn.path[0].count.bytes = 0;
    ck_assert_uint_eq(looks(20), 0);
}
END_TEST

START_TEST(a_job_that_rests)
{
    unsigned before[PEERS][2];

    up_set(2);
    looks_until_told();
    looks(3);
    memcpy(before, moves, sizeof(before));
    memset(moves, 0, sizeof(moves));
    ck_assert_uint_eq(looks(100), 0);
    ck_assert_uint_eq(balance.making.announced, 4);
    memcpy(moves, before, sizeof(before));
    ck_assert_uint_eq(looks(40), 0);
    memset(moves, 0, sizeof(moves)); /* it is over while the job rests */
    looks(10);
    up_set(3);
    look();
    ck_assert(!balance.making.mine.stands[0]);
    ck_assert_uint_eq(said[1][0][0], PORT);
}
END_TEST

/* Not more than once in eight looks, whatever the traffic does. */
START_TEST(not_with_each_change)
{
    unsigned n = 0;

    up_set(2);
    looks_until_told();
    for (int i = 0; i < 80; i++) {
        moves[HURT][0] = i / 4 % 2 ? 40 * MB : MB;
        n += looks(1);
    }
    ck_assert_uint_gt(n, 0); /* it does change what is left */
    ck_assert_uint_le(n, 2 * 2 * 3 * (80 / 8 + 1));
}
END_TEST

START_TEST(again_when_the_channel_is_back)
{
    r2_balance_on_channel(&comm[1][0]);
    ck_assert_uint_eq(looks(5), 0); /* it was never told anything */
    up_set(2);
    looks_until_told();
    looks(5);
    r2_balance_on_channel(&comm[1][0]);
    for (int n = 0; n < 3; n++) {
        ck_assert_uint_eq(looks(1), 1);
        ck_assert_uint_eq(told[1][0], 1);
        ck_assert_uint_lt(said[1][0][0], PORT);
    }
    ck_assert_uint_eq(looks(5), 0);
    up_set(3);
    looks(10);
    r2_balance_on_channel(&comm[1][0]); /* the last word may have been lost */
    ck_assert_uint_eq(looks(5), 3);
    ck_assert_uint_eq(said[1][0][0], PORT);
}
END_TEST

START_TEST(one_that_closes)
{
    up_set(2);
    r2_room_comm(&comm[1][1], false);
    looks_until_told();
    ck_assert_uint_eq(told[1][0], 1);
    ck_assert_uint_eq(told[1][1], 0);
    r2_room_comm(&comm[HURT][1], false);
    ck_assert_uint_eq(balance.making.displaced[0], 0);
    ck_assert_uint_gt(looks(1), 0);
    ck_assert_uint_eq(said[1][0][0], PORT);
    r2_room_comm(&comm[1][0], false); /* told before, and gone */
    looks(10);
    ck_assert_uint_eq(told[1][0], 0);
    ck_assert(!balance.making.looks);
}
END_TEST

/* Freed without another step. */
START_TEST(one_that_is_gone)
{
    up_set(2);
    ck_assert_uint_eq(balance.making.displaced[0], 1);
    r2_balance_comm_gone(&comm[HURT][1]);
    ck_assert_uint_eq(balance.making.displaced[0], 0);
}
END_TEST

START_TEST(without_rates_or_balance)
{
    balance.ways.port[0] = 0;
    up_set(2);
    ck_assert_uint_eq(looks(20), 0);
    balance.ways.port[0] = PORT;
    inst.cfg.balance = 0;
    ck_assert_uint_eq(looks(20), 0);
    inst.cfg.balance = 1;
    ck_assert_int_gt(looks_until_told(), 0);
}
END_TEST

/* --- two processes of the receiving host: this one has those at home on NIC 0 --- */

static struct r2_host_registry *neighbour;
static char dir[64];

static struct r2_host_registry *registry_open(void)
{
    static const struct r2_host_registry_who who = {.command = "c", .host = "h", .pid = 1};
    char why[600];
    struct r2_host_registry *b = r2_host_registry_open(dir, &who, why, sizeof(why));

    ck_assert_msg(b != NULL, "%s", why);
    for (int i = 0; i < 2; i++) {
        struct r2_host_registry_nic row = {.name = "n", .guid = 70 + (uint64_t)i, .port = 1};

        inst.nics.nic[i].guid = row.guid;
        inst.nics.nic[i].port = row.port;
        r2_host_registry_nic_set(b, i, &row);
    }
    return b;
}

/* What the neighbour says of its connections at home on NIC 1, when the hurt peer's stands in. */
static struct r2_host_registry_room theirs = {
    .nic[0] = {.in = 20 * MB, .in_bound = 20 * MB, .in_fixed = 20 * MB},
    .nic[1] = {.in = 40 * MB, .in_fixed = 40 * MB},
    .stands[0] = true};

static void two_processes(void)
{
    snprintf(dir, sizeof(dir), "/tmp/r2-tell-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    inst.share.registry = registry_open();
    neighbour = registry_open();
    theirs.hosts = 1ull << flow[HURT][0].host % 64;
    theirs.until = now_ns + 1000;
    for (int p = 0; p < PEERS; p++) {
        ck_assert_uint_eq(flow[p][0].host, flow[p][1].host);
        ck_assert(p == HURT || !(theirs.hosts >> flow[p][0].host % 64 & 1));
    }
    for (int p = 0; p < PEERS; p++) {
        r2_room_comm(&comm[p][1], false);
        moves[p][1] = 0;
    }
}

static void one_process(void)
{
    char cmd[128];

    r2_host_registry_close(inst.share.registry);
    r2_host_registry_close(neighbour);
    inst.share.registry = NULL;
    snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
    ck_assert_int_eq(system(cmd), 0);
}

/* As where all of them are in one process: a third of what they send. */
START_TEST(another_process_has_who_stands_in)
{
    two_processes();
    ck_assert_uint_eq(looks(20), 0);
    ck_assert(!balance.making.looks);
    r2_host_registry_room_set(neighbour, &theirs);
    looks_until_told();
    look();
    for (int p = 0; p < PEERS; p++) {
        ck_assert_uint_eq(told[p][0], p != HURT);
        if (p != HURT) {
            ck_assert_uint_ge(said[p][0][0], PORT / 3 - PORT / 20);
            ck_assert_uint_le(said[p][0][0], PORT / 3 + PORT / 20);
            ck_assert_uint_eq(said[p][0][1], PORT);
        }
    }
    looks(10);
    ck_assert_uint_eq(looks(40), 0);
    if (_i) {
        now_ns += 1000; /* it stands still */
    } else {
        r2_host_registry_room_set(neighbour, NULL);
    }
    ck_assert_uint_eq(looks(1), 2);
    ck_assert_uint_eq(said[1][0][0], PORT);
    looks(10);
    ck_assert(!balance.making.looks);
    one_process();
}
END_TEST

/* And what it says to the neighbour, who has those that can move. */
START_TEST(who_stands_in_is_said)
{
    struct r2_host_registry_room r;

    two_processes();
    for (int p = 0; p < PEERS; p++) {
        r2_room_comm(&comm[p][0], false);
        r2_room_comm(&comm[p][1], true);
        moves[p][0] = 0;
        moves[p][1] = 10 * MB;
    }
    looks(5);
    ck_assert(!r2_host_registry_slot_room(neighbour, 0, &r));
    up_set(2);
    looks(20);
    ck_assert(r2_host_registry_slot_room(neighbour, 0, &r));
    for (int i = 0; i < 2; i++) {
        ck_assert_uint_ge(r.nic[i].in, theirs.nic[i].in - theirs.nic[i].in / 500);
        ck_assert_uint_le(r.nic[i].in, theirs.nic[i].in);
        ck_assert_uint_eq(r.nic[i].in_fixed, r.nic[i].in);
        ck_assert_uint_eq(r.nic[i].in_bound, i == 0 ? r.nic[i].in : 0);
    }
    ck_assert_uint_eq(r.hosts, theirs.hosts);
    ck_assert(r.stands[0] && !r.stands[1] && r.move == 0);
    ck_assert_uint_ge(r.until, now_ns + 5000000000);
    if (_i) { /* the last connection goes, and nobody looks any more */
        for (int p = 0; p < PEERS; p++) {
            r2_room_comm(&comm[p][1], false);
        }
        inst.comms.all = NULL;
        r2_balance_comm_gone(&comm[HURT][1]);
    } else {
        up_set(3);
        looks(5);
    }
    ck_assert(!r2_host_registry_slot_room(neighbour, 0, &r));
    ck_assert(!r2_room_is_due(&inst));
    one_process();
}
END_TEST

/* Who uses all NICs as it is moves nothing for a word of less. */
START_TEST(nobody_looks_for_ever)
{
    balance.making.told = true;
    ck_assert(r2_room_is_due(&inst));
    inst.cfg.spread = 1;
    ck_assert(!r2_room_is_due(&inst));
    inst.cfg.spread = 0;
    looks(1);
    ck_assert(!r2_room_is_due(&inst));
    balance.theirs.stands[1] = true;
    ck_assert(r2_room_is_due(&inst));
    inst.comms.all = NULL;
    ck_assert(!r2_room_is_due(&inst));
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, another_process_has_who_stands_in, 0, 2);
    tcase_add_loop_test(t, who_stands_in_is_said, 0, 2);
    tcase_add_test(t, nobody_looks_for_ever);
    tcase_add_test(t, a_healthy_job);
    tcase_add_test(t, the_others_are_told);
    tcase_add_test(t, it_is_told_once);
    tcase_add_test(t, it_is_over);
    tcase_add_test(t, one_that_rests_crowds_nobody);
    tcase_add_test(t, one_that_moves_now_and_then);
    tcase_add_test(t, nowhere_to_go);
    tcase_add_test(t, a_new_incarnation);
    tcase_add_test(t, a_job_that_rests);
    tcase_add_test(t, not_with_each_change);
    tcase_add_test(t, again_when_the_channel_is_back);
    tcase_add_test(t, one_that_closes);
    tcase_add_test(t, one_that_is_gone);
    tcase_add_test(t, without_rates_or_balance);
}

int main(void)
{
    return suite_run("balance_tell", 30, setup, teardown, add);
}
