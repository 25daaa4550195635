/*
 * Slow links on a model of links with queues, in virtual time: found within a second, what the sum
 * allows, no oscillation, and nothing found in an hour of what is no slow link.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "balance/balance_fill.h"
#include "balance/balance_slow.h"
#include "tests/support/times.h"
#include "tests/unit/suite.h"

#define NICS   4
#define QUEUE  256
#define WINDOW 8
#define STEP   250000ull /* ns */
#define LOOK   7500000ull
#define CAP    100000000.0 /* bytes/s of a link */

/* --- the model --- */

struct part {
    int flow, slot;
    double left;
    uint32_t len;
    uint64_t begins; /* not before */
};

struct link {
    double cap;     /* what is left for us, bytes/s */
    double others;  /* bytes/s that others move over our NIC, or over the peer's */
    double in_step; /* ... in parts of what we move over it, when we do */
    uint64_t latency;
    struct part queue[QUEUE];
    unsigned head, n;
    uint64_t posted, done, seen_done; /* bytes */
    uint32_t parts, seen_parts;
    uint64_t taken; /* bytes that completed and that the application has seen */
    uint32_t taken_parts;
    struct balance_rate rate;
    struct balance_slow slow;
    uint64_t moved_mark, moved_at;
};

struct flow {
    uint32_t weight[NICS]; /* of BALANCE_ONE */
    uint32_t size;         /* of a message */
    int left[WINDOW];      /* parts of a message; 0: free */
    uint64_t quiet_until;  /* the receiver has no room before */
    double quota;          /* bytes of this operation still to be posted */
    uint64_t bytes;
};

static struct world {
    uint64_t now, poll_at, look_last, gap_until, starved_until;
    struct link link[NICS];
    struct flow flow[NICS];
    double op; /* bytes per flow and operation */
    uint64_t gap;
    int ops, answers; /* answers: the peer says what its NIC moves */
    unsigned changes, found, suspected;
} w;
static uint64_t seed;

static uint64_t random_below(uint64_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return n ? seed % n : 0;
}

static void world_begin(uint64_t s, uint32_t size, double op, uint64_t gap)
{
    memset(&w, 0, sizeof(w));
    seed = s * 0x9e3779b97f4a7c15ull + 1;
    w.op = op;
    w.gap = gap;
    w.answers = 1;
    for (int i = 0; i < NICS; i++) {
        w.link[i].cap = CAP;
        w.link[i].latency = 20000;
        w.flow[i].size = size;
        w.flow[i].weight[i] = BALANCE_ONE;
        w.flow[i].quota = op;
    }
}

static void post(int f, int slot)
{
    struct flow *fl = &w.flow[f];
    double rest = fl->quota < fl->size ? fl->quota : fl->size;
    uint32_t size = (uint32_t)rest;

    fl->quota -= rest;
    fl->bytes += size;
    for (int i = 0; i < NICS; i++) {
        struct link *l = &w.link[i];
        uint32_t len = (uint32_t)((uint64_t)size * fl->weight[i] / BALANCE_ONE);

        if (len > 0) {
            if (l->n == QUEUE) { /* ck_assert would write to a file each time */
                ck_abort_msg("no room for another part");
            }
            l->queue[(l->head + l->n++) % QUEUE] =
                (struct part){f, slot, len, len, w.now + l->latency};
            l->posted += len;
            fl->left[slot]++;
        }
    }
}

static void serve(struct link *l)
{
    double budget = l->cap * (double)STEP / (double)S;

    while (l->n > 0 && budget > 0 && l->queue[l->head].begins <= w.now) {
        struct part *p = &l->queue[l->head];
        double bytes = p->left < budget ? p->left : budget;

        p->left -= bytes;
        budget -= bytes;
        if (p->left > 0) {
            return;
        }
        l->done += p->len;
        l->parts++;
        w.flow[p->flow].left[p->slot]--;
        l->head = (l->head + 1) % QUEUE;
        l->n--;
    }
}

/* What NCCL's thread does: takes completions, posts. */
static void application(void)
{
    int idle = 1;

    for (int i = 0; i < NICS; i++) {
        w.link[i].taken = w.link[i].done;
        w.link[i].taken_parts = w.link[i].parts;
    }
    if (w.now < w.gap_until) {
        return;
    }
    for (int f = 0; f < NICS; f++) {
        for (int s = 0; s < WINDOW; s++) {
            if (w.flow[f].left[s] == 0 && w.flow[f].quota >= 1 && w.now >= w.flow[f].quiet_until) {
                post(f, s);
            }
            idle &= w.flow[f].left[s] == 0 && w.flow[f].quota < 1;
        }
    }
    if (idle) { /* all flows have their share: the next operation */
        w.ops++;
        w.gap_until = w.now + w.gap;
        for (int f = 0; f < NICS; f++) {
            w.flow[f].quota = w.op;
        }
    }
}

/* --- what the plugin does with it --- */

static void weigh(void)
{
    uint32_t mbps[NICS], weight[NICS * NICS];
    struct balance_path path[NICS * NICS];
    struct balance_flow flow[NICS];
    struct balance_net net = {
        .mbps = mbps, .path = path, .flow = flow, .resources = NICS, .flows = NICS};
    uint8_t work[65536] __attribute__((aligned(8)));

    for (int f = 0; f < NICS; f++) {
        mbps[f] = w.link[f].slow.part ? 100000 * w.link[f].slow.part / BALANCE_SLOW_ONE : 100000;
        flow[f] = (struct balance_flow){.share = 1, .first = net.paths};
        for (int i = 0; i < NICS; i++) {
            if (i == f || w.link[f].slow.part) {
                path[net.paths++] = (struct balance_path){.n = 1, .res = {(uint16_t)i}};
                flow[f].n++;
            }
        }
    }
    ck_assert_uint_le(balance_fill_size(&net), sizeof(work));
    ck_assert_int_eq(balance_fill(&net, work, NULL, weight, NULL), 0);
    for (int f = 0; f < NICS; f++) {
        memset(w.flow[f].weight, 0, sizeof(w.flow[f].weight));
        for (uint32_t p = flow[f].first; p < flow[f].first + flow[f].n; p++) {
            w.flow[f].weight[path[p].res[0]] = weight[p];
        }
    }
}

static void judge(int n)
{
    struct link *l = &w.link[n];
    struct balance_slow_peer peer[NICS];
    struct balance_slow_facts f = {
        .mbps = 400000, .peer = peer, .percent = 60, .moved_known = w.answers};
    enum balance_slow_state before = l->slow.state;
    double s = (double)(w.now - l->moved_at) / (double)S;

    balance_rate_get(&l->rate, 2, &f.own);
    balance_rate_get(&l->rate, BALANCE_RATE_WINDOWS, &f.all);
    for (int i = 0; i < NICS; i++) {
        if (i != n) {
            balance_rate_get(&w.link[i].rate, BALANCE_RATE_WINDOWS, &peer[f.peers].tempo);
            peer[f.peers++].mbps = 400000;
        }
    }
    f.moved_here = f.moved_there =
        (uint64_t)((2 + l->in_step) * (double)(l->done - l->moved_mark) / s + l->others);
    l->moved_mark = l->done;
    l->moved_at = w.now;
    if (balance_slow_window(&l->slow, &f)) {
        w.changes++;
        w.found += before == BALANCE_SLOW_SUSPECT;
        weigh();
    }
    w.suspected += before == BALANCE_SLOW_NO && l->slow.state == BALANCE_SLOW_SUSPECT;
}

/* All links in the same look, or windows would end apart. */
static void look(void)
{
    uint32_t ends = 0;

    for (int i = 0; i < NICS; i++) {
        struct link *l = &w.link[i];

        if (l->slow.state == BALANCE_SLOW_SUSPECT) {
            l->taken = l->done;
            l->taken_parts = l->parts;
        }
        ends |= (uint32_t)balance_rate_tick(&l->rate, w.now - w.look_last,
                                            l->taken_parts - l->seen_parts, l->taken - l->seen_done,
                                            l->posted - l->taken, l->posted != l->taken)
                << i;
        l->seen_done = l->taken;
        l->seen_parts = l->taken_parts;
    }
    w.look_last = w.now;
    w.poll_at = w.now + LOOK + random_below(MS);
    for (int i = 0; i < NICS; i++) {
        if (ends >> i & 1) {
            judge(i);
        }
    }
}

static void run(uint64_t ns, void (*disturb)(void))
{
    for (uint64_t end = w.now + ns; w.now < end; w.now += STEP) {
        if (disturb) {
            disturb();
        }
        for (int i = 0; i < NICS; i++) {
            serve(&w.link[i]);
        }
        if (w.now >= w.starved_until) {
            application();
        }
        if (w.now >= w.poll_at) {
            look();
        }
    }
}

/* Bytes/s of all flows for so long. */
static double goodput(uint64_t ns)
{
    uint64_t from = 0, to = 0;

    for (int f = 0; f < NICS; f++) {
        from += w.flow[f].bytes;
    }
    run(ns, NULL);
    for (int f = 0; f < NICS; f++) {
        to += w.flow[f].bytes;
    }
    return (double)(to - from) / ((double)ns / (double)S);
}

/* --- a link that is slow --- */

/* @size, @op: of messages and operations. A link of @part of its rate from 2 s on, until it is
 * whole again. */
static void slow_and_back(uint64_t s, uint32_t size, double op, uint64_t gap, double part)
{
    double whole, rest;
    unsigned changes;

    world_begin(s, size, op, gap);
    run(2 * S + random_below(S / 4), NULL);
    ck_assert_uint_eq(w.suspected, 0);
    whole = goodput(2 * S);
    w.link[1].cap = CAP * part;
    run(S, NULL);
    ck_assert_msg(w.link[1].slow.part > 0,
                  "not found within a second, seed %llu, part %.2f, operations of %.0f",
                  (unsigned long long)s, part, op);
    ck_assert_uint_eq(w.found, 1);
    run(2 * S, NULL);
    rest = goodput(4 * S);
    ck_assert_msg(rest > whole * (3 + part) / 4 * 0.85,
                  "%.3f of %.3f allowed, part of the weight %u, seed %llu, part %.2f", rest / whole,
                  (3 + part) / 4, w.link[1].slow.part, (unsigned long long)s, part);
    changes = w.changes;
    run(60 * S, NULL);
    ck_assert_msg(w.changes <= changes + 2, "the weights changed %u times in a minute, seed %llu",
                  w.changes - changes, (unsigned long long)s);
    ck_assert_uint_eq(w.found, 1);
    w.link[1].cap = CAP;
    run(5 * S, NULL);
    ck_assert_msg(w.link[1].slow.part == 0, "its recovery was not found, part %u, seed %llu",
                  w.link[1].slow.part, (unsigned long long)s);
    ck_assert(goodput(2 * S) > whole * 0.95);
    for (int i = 0; i < NICS; i++) {
        ck_assert_uint_eq(w.link[i].slow.state, BALANCE_SLOW_NO);
    }
}

START_TEST(found_and_forgotten)
{
    static const double part[] = {0.2, 0.1, 0.33};

    for (uint64_t s = 1; s <= 20; s++) {
        slow_and_back(s, 524288, 16e6, 0, part[s % 3]); /* a collective that nothing else limits */
        slow_and_back(s, 524288, 4e6, 10 * MS, part[s % 3]); /* short ones, with pauses */
        slow_and_back(s, 131072, 1e12, 0, part[s % 3]); /* flows that do not wait for each other */
    }
}
END_TEST

START_TEST(flapping_is_damped)
{
    world_begin(1, 524288, 16e6, 0);
    for (int i = 0; i < 60; i++) { /* two minutes */
        w.link[2].cap = i & 1 ? CAP * 0.2 : CAP;
        run(2 * S, NULL);
    }
    ck_assert_uint_ge(w.found, 1);
    ck_assert_msg(w.found <= 8, "found %u times", w.found);
}
END_TEST

/* --- what is none: an hour of each --- */

static uint64_t next_at;

static int due(uint64_t least, uint64_t most)
{
    if (w.now < next_at) {
        return 0;
    }
    next_at = w.now + least + random_below(most - least);
    return 1;
}

/* All links at the same part of their rate. */
static void congestion(void)
{
    if (due(S / 5, 5 * S)) {
        double part = (double)(100 + random_below(900)) / 1000;

        for (int i = 0; i < NICS; i++) {
            w.link[i].cap = CAP * part;
        }
    }
}

/* Some receiver posts late, now and then or for seconds, so that nothing may be sent. */
static uint64_t quiet_mark[2];

static void slow_receivers(void)
{
    struct flow *f = &w.flow[random_below(NICS)];

    if (due(MS, 60 * MS)) {
        f->quiet_until = w.now + random_below(random_below(20) ? 50 * MS : 3 * S);
    }
    for (int i = 0; i < 2; i++) { /* flow 0 and 1: after each message */
        if (w.flow[i].bytes != quiet_mark[i]) {
            quiet_mark[i] = w.flow[i].bytes;
            w.flow[i].quiet_until = w.now + random_below(30 * MS);
        }
    }
}

/* What goes to one peer stands still, as where its process is stopped and its NIC is software. */
static void paused_peers(void)
{
    if (due(S / 2, 6 * S)) {
        int i = (int)random_below(NICS);

        w.link[i].cap = w.link[i].cap > 0 ? 0 : CAP;
        w.answers = 1;
        for (int k = 0; k < NICS; k++) {
            w.answers &= w.link[k].cap > 0;
        }
    }
}

/* Processes that we know of take most of one NIC's rate. */
static void neighbours(void)
{
    if (due(S / 2, 10 * S)) {
        struct link *l = &w.link[random_below(NICS)];
        double part = (double)(50 + random_below(950)) / 1000;

        l->cap = CAP * part;
        l->others = CAP * (1 - part) * 1.3;
    }
}

/* ... of the job whose flow 1 is: they begin and rest together, while the other flows go on. */
static void neighbours_in_step(void)
{
    struct link *l = &w.link[1];
    uint64_t period = w.now / (40 * MS) * 40 * MS;

    l->cap = CAP * 0.25;
    l->in_step = 2; /* with both directions of our own they fill the NIC */
    if (w.now >= period + 12 * MS) {
        w.flow[1].quiet_until = period + 40 * MS;
    }
}

/* The thread that takes completions does not run: everything seems to be under way for long. */
static void starvation(void)
{
    if (due(MS, 150 * MS)) {
        w.starved_until = w.now + random_below(120 * MS);
    }
}

/* Bursts of any size on some flows, small messages on others, a fabric of changing latency. */
static void mixture(void)
{
    if (due(S / 10, 3 * S)) {
        static const uint32_t size[] = {1024, 8192, 65536, 524288, 4194304};
        int i = (int)random_below(NICS);
        uint64_t latency = 10000 + random_below(MS);
        w.flow[i].size = size[random_below(5)];

        for (int k = 0; k < NICS; k++) {
            w.link[k].latency = latency;
        }
        w.flow[i].quiet_until = w.now + random_below(S / 2);
    }
}

static void hour(const char *what, void (*disturb)(void), uint32_t size, double op, uint64_t gap)
{
    for (uint64_t s = 1; s <= 4 && !getenv("ONLY"); s++) {
        world_begin(s, size, op, gap);
        next_at = 0;
        run(900 * S, disturb);
        ck_assert_int_gt(w.link[0].parts, 1000);
        ck_assert_msg(w.changes == 0, "%s, seed %llu: %u changes, %u suspicions", what,
                      (unsigned long long)s, w.changes, w.suspected);
    }
}

START_TEST(an_hour_of_health)
{
    hour("health", NULL, 524288, 16e6, 3 * MS);
    hour("health, no pauses", NULL, 131072, 1e12, 0);
}
END_TEST

START_TEST(an_hour_of_congestion)
{
    hour("congestion", congestion, 524288, 8e6, MS);
}
END_TEST

START_TEST(an_hour_of_slow_receivers)
{
    hour("slow receivers", slow_receivers, 524288, 1e12, 0);
    hour("slow receivers in collectives", slow_receivers, 524288, 8e6, MS);
}
END_TEST

START_TEST(an_hour_of_paused_peers)
{
    hour("paused peers", paused_peers, 524288, 1e12, 0);
}
END_TEST

START_TEST(an_hour_of_neighbours)
{
    hour("neighbours", neighbours, 524288, 1e12, 0);
}
END_TEST

START_TEST(an_hour_of_neighbours_in_step)
{
    hour("neighbours in step", neighbours_in_step, 16384, 1e12, 0);
}
END_TEST

START_TEST(an_hour_of_starvation)
{
    hour("starvation", starvation, 524288, 1e12, 0);
}
END_TEST

START_TEST(an_hour_of_mixture)
{
    hour("mixture", mixture, 524288, 1e12, 0);
}
END_TEST

static struct balance_tempo tempo(uint64_t mb)
{
    uint64_t rate = mb * 1000000;

    return (struct balance_tempo){.rate = rate,
                                  .least = rate * 95 / 100,
                                  .most = rate * 105 / 100,
                                  .wait = 4000000000000ull / rate,
                                  .parts = 100,
                                  .busy = 1000};
}

/* Two NIC pairs share a NIC that is slow: each has its part, and both know what the NIC carries. */
START_TEST(what_its_nic_carries)
{
    struct balance_slow_peer peer[2] = {{tempo(10000), 100000}, {tempo(10000), 100000}};
    struct balance_slow_facts f = {.own = tempo(1000),
                                   .all = tempo(1000),
                                   .nic = tempo(2000),
                                   .mbps = 100000,
                                   .peer = peer,
                                   .peers = 2,
                                   .moved_known = 1,
                                   .percent = 60};
    struct balance_slow s = {0};

    for (int i = 0; s.state != BALANCE_SLOW_YES; i++) {
        ck_assert_int_lt(i, 10);
        balance_slow_window(&s, &f);
    }
    ck_assert_uint_eq(s.part, BALANCE_SLOW_ONE / 10);
    ck_assert_uint_eq(s.nic, BALANCE_SLOW_ONE / 5);
    f.nic = tempo(2010);
    ck_assert_int_eq(balance_slow_window(&s, &f), 0);
    f.nic = tempo(4000);
    ck_assert_int_eq(balance_slow_window(&s, &f), 1);
    ck_assert_uint_eq(s.nic, BALANCE_SLOW_ONE * 4 / 10);
    ck_assert_uint_eq(s.part, BALANCE_SLOW_ONE / 10);
    f.nic = tempo(500); /* cannot be: the pair is of it */
    ck_assert_int_eq(balance_slow_window(&s, &f), 1);
    ck_assert_uint_eq(s.nic, s.part);
    f.all = f.nic = tempo(9900);
    while (s.state == BALANCE_SLOW_YES) {
        balance_slow_window(&s, &f);
    }
    ck_assert_uint_eq(s.part + s.nic, 0);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, what_its_nic_carries);
    tcase_add_test(t, found_and_forgotten);
    tcase_add_test(t, flapping_is_damped);
    tcase_add_test(t, an_hour_of_health);
    tcase_add_test(t, an_hour_of_congestion);
    tcase_add_test(t, an_hour_of_slow_receivers);
    tcase_add_test(t, an_hour_of_paused_peers);
    tcase_add_test(t, an_hour_of_neighbours);
    tcase_add_test(t, an_hour_of_neighbours_in_step);
    tcase_add_test(t, an_hour_of_starvation);
    tcase_add_test(t, an_hour_of_mixture);
}

int main(void)
{
    return suite_run("balance_slow", 120, NULL, NULL, add);
}
