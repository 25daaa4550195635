/* Classes of schedules. Each aims at a part of the failures in scope; the first four show no
 * switch, but noise that of a last packet which was lost. */
#include "tests/soak/soak.h"

#define LINK (SOAK_BIT(SOAK_DOWN))
#define SILENT                                                                                     \
    (SOAK_BIT(SOAK_BLACKHOLE) | SOAK_BIT(SOAK_BLACKHOLE_TX) | SOAK_BIT(SOAK_BLACKHOLE_RX) |        \
     SOAK_BIT(SOAK_ACK_LOST) | SOAK_BIT(SOAK_CUT) | SOAK_BIT(SOAK_CUT_TX))
#define STUCK (SOAK_BIT(SOAK_HANG) | SOAK_BIT(SOAK_SEND_STUCK) | SOAK_BIT(SOAK_SEND_ERROR))
#define DEVICE                                                                                     \
    (SOAK_BIT(SOAK_FATAL) | SOAK_BIT(SOAK_REMOVE) | SOAK_BIT(SOAK_SILENT_DEATH) |                  \
     SOAK_BIT(SOAK_UNPLUG) | SOAK_BIT(SOAK_QP_ERROR) | SOAK_BIT(SOAK_GID_CHANGE))
#define BROKEN (LINK | SILENT | STUCK | DEVICE)

static void draw_calm(struct soak_plan *p, struct fab_rng *r)
{
    p->quiet = 1;
}

static void draw_noise(struct soak_plan *p, struct fab_rng *r)
{
    p->quiet = 1;
    soak_grey_draw(p, r, (int)soak_pick(r, 1, 4));
}

/* The NICs of a process stand still with it: nobody may take that for a failure. */
static void draw_pause(struct soak_plan *p, struct fab_rng *r)
{
    p->quiet = 1;
    soak_stops_draw(p, r, (int)soak_pick(r, 1, 3), 900);
}

/* Full queues and receivers that let everybody wait. */
static void draw_slow(struct soak_plan *p, struct fab_rng *r)
{
    p->quiet = 1;
    for (int i = 0; i < p->conns; i++) {
        p->conn[i].recv_us = soak_pct(r, 50) ? 4000 : p->conn[i].recv_us;
        p->conn[i].test_us = soak_pct(r, 30) ? 5000 : p->conn[i].test_us;
        p->conn[i].rest_pct = 3;
        p->conn[i].rest_us = 150000;
    }
}

static void draw_port(struct soak_plan *p, struct fab_rng *r)
{
    soak_faults_draw(p, r, LINK, (int)soak_pick(r, 1, 4), 40);
}

static void draw_silent(struct soak_plan *p, struct fab_rng *r)
{
    soak_faults_draw(p, r, SILENT, (int)soak_pick(r, 1, 3), 40);
}

static void draw_stuck(struct soak_plan *p, struct fab_rng *r)
{
    soak_faults_draw(p, r, STUCK, (int)soak_pick(r, 1, 2), 50);
}

static void draw_device(struct soak_plan *p, struct fab_rng *r)
{
    soak_faults_draw(p, r, DEVICE, (int)soak_pick(r, 1, 3), 40);
}

/* All there is, some of it at once, up to all NICs but one. */
static void draw_mix(struct soak_plan *p, struct fab_rng *r)
{
    soak_faults_draw(p, r, BROKEN | SOAK_BIT(SOAK_MR_FAIL), (int)soak_pick(r, 2, 7), 70);
    if (soak_pct(r, 40)) {
        soak_grey_draw(p, r, (int)soak_pick(r, 1, 2));
    }
    if (soak_pct(r, 25)) {
        soak_stops_draw(p, r, 1, 100);
    }
}

/* What fails comes back, on every rail, again and again. */
static void draw_back(struct soak_plan *p, struct fab_rng *r)
{
    soak_rounds_draw(p, r,
                     LINK | SILENT | SOAK_BIT(SOAK_HANG) | SOAK_BIT(SOAK_QP_ERROR) |
                         SOAK_BIT(SOAK_GID_CHANGE),
                     (int)soak_pick(r, 2, 6));
}

/* No path at all for a while. */
static void draw_all(struct soak_plan *p, struct fab_rng *r)
{
    soak_all_draw(p, r, LINK | SOAK_BIT(SOAK_BLACKHOLE) | SOAK_BIT(SOAK_BLACKHOLE_TX), 1);
}

/* Where acknowledgements alone are lost, each incarnation carries something: a job crawls on, and
 * need not end. */
static void draw_dead(struct soak_plan *p, struct fab_rng *r)
{
    p->want = SOAK_DEAD;
    soak_all_draw(p, r, (LINK | SILENT | DEVICE) & ~SOAK_BIT(SOAK_ACK_LOST), 0);
}

/* The same traffic and faults again and again in the same processes: nothing may grow. */
static void draw_again(struct soak_plan *p, struct fab_rng *r)
{
    soak_rounds_draw(p, r, LINK | SOAK_BIT(SOAK_BLACKHOLE) | SOAK_BIT(SOAK_QP_ERROR), 6);
}

static void draw_kill(struct soak_plan *p, struct fab_rng *r)
{
    p->want = SOAK_KILL;
    if (soak_pct(r, 40)) {
        soak_faults_draw(p, r, LINK | SILENT, 1, 0);
    }
    soak_kill_draw(p, r);
}

/* Every process sends to every NIC of the other host: what stands in front of a probe is others'.
 */
static void draw_crowd(struct soak_plan *p, struct fab_rng *r)
{
    p->quiet = 1;
    for (int i = 0; i < p->conns; i++) {
        p->conn[i].window = (int)soak_pick(r, 4, 8);
        p->conn[i].send_us = p->conn[i].recv_us = p->conn[i].setup_us = 0;
        p->conn[i].to_dev = (int)(fab_rng_next(r) % 2); /* some NICs get most of it */
    }
}

/* Several ways between the NICs of a rail, of which one fails: the NICs are well, and stay. */
static void draw_ways(struct soak_plan *p, struct fab_rng *r)
{
    p->spines = 8;
    soak_spines_draw(p, r, (int)soak_pick(r, 1, 4));
    if (soak_pct(r, 40)) {
        soak_faults_draw(p, r, LINK | SILENT, 1, 0);
    }
}

/*
 * All NICs of a host: for ever, or until one is back. An error is right in neither case. They go
 * early and together, and come back behind the silence after which TCP is taken: else the traffic
 * ends before.
 */
static void draw_resort(struct soak_plan *p, struct fab_rng *r)
{
    p->resort = 1;
    if (soak_pct(r, 50)) {
        soak_all_draw(p, r, LINK | SOAK_BIT(SOAK_BLACKHOLE) | SOAK_BIT(SOAK_BLACKHOLE_TX), 1);
    } else {
        soak_all_draw(p, r, BROKEN & ~SOAK_BIT(SOAK_ACK_LOST), 0);
    }
    p->fault[0].done = (uint32_t)soak_pick(r, 1, p->total / 4);
    for (int i = 1; i < p->nfaults; i++) {
        struct soak_fault *f = &p->fault[i];
        f->delay = f->kind == SOAK_MEND ? f->delay + 600 * SOAK_MS : f->delay / 20;
    }
    if (soak_pct(r, 30)) {
        soak_stops_draw(p, r, 1, 100);
    }
}

const struct soak_class soak_classes[] = {
    {"calm", "no fault: pauses, groups, late set-ups", draw_calm, 0},
    {"noise",
     "loss, corruption, duplicates, delay, low rates: none may go down, but for a lost last packet",
     draw_noise, 0},
    {"pause", "processes that are stopped for up to 0.9 s: no path may go down", draw_pause, 0},
    {"slow", "slow links under several connections, slow receivers: no path may go down", draw_slow,
     0},
    {"port", "ports that go down, and up", draw_port, 1},
    {"silent",
     "one or two directions of a link, of what is between two NICs or of a plane, or acknowledgements, are lost without a word",
     draw_silent, 1},
    {"stuck", "NICs that hang, queue pairs that send nothing more, sends without a route",
     draw_stuck, 1},
    {"device", "devices that die, disappear, lose their queue pairs or their addresses",
     draw_device, 1},
    {"mix", "all of these, one into the settlement of the other, with noise and pauses", draw_mix,
     1},
    {"back", "rounds of faults on every rail, each mended after a while", draw_back, 1},
    {"all", "all NICs of a host at a time, then one comes back", draw_all, 1},
    {"dead", "all NICs for ever: an error at both ends, in time", draw_dead, 1},
    {"kill", "a process is killed, or an end leaves with requests outstanding", draw_kill, 0},
    {"again", "twelve laps in one pair of processes: neither memory nor files may grow", draw_again,
     1},
    {"crowd",
     "four processes, each NIC used by all of them and by every NIC of the other host: no path may go down",
     draw_crowd, 0},
    {"ways", "one of eight ways between two NICs is silent, loses packets or is down", draw_ways,
     1},
    {"resort", "all NICs of a host, for ever or until one is back: over TCP, without an error",
     draw_resort, 1, 1},
};
const int soak_class_count = sizeof(soak_classes) / sizeof(soak_classes[0]);
