/*
 * Hundreds of jobs whose hosts lose NICs and get them back: the hub plans, ranks make
 * communicators (all of them, or none completes), switch, and free what is not used; the channel
 * loses, repeats and reorders; communicators fail or hang, ranks cannot switch or are lost.
 * Whatever happens, an operation uses one communicator at all ranks, which each of them has, and at
 * the end all use what is planned for what is left, and hold nothing else.
 *   SEED=N: job N alone, and what it did. RUNS=N: so many jobs, not 500.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "place/place_held.h"
#include "place/place_job.h"
#include "tests/unit/plan_rational.h"
#include "tests/unit/suite.h"

#define RANKS  8
#define OPS    10000
#define FLIGHT 512
#define COMMS  4 /* the last few of them */
#define RUNS   500
#define STEPS  2500 /* a step is 1 ms */
#define QUIET  6000
#define MS     1000000ull

/* An assertion of Check's costs system calls, and these are millions. */
#define CHECK(what, ...)                                                                           \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            ck_abort_msg(__VA_ARGS__);                                                             \
        }                                                                                          \
    } while (0)

static struct {
    uint64_t seed, now;
    uint32_t run;
    int n, per, ahead;
    bool rough; /* the channel is bad, NICs and ranks fail */
    struct place_job *job;
    struct rank {
        struct place_member m;
        struct place_held held;
        struct place_facts facts;
        uint32_t heard;
        bool gone, failed;
        int nics_up;
        uint32_t calls[64]; /* communicators of calls that have not returned; 0: free */
    } rank[RANKS];
    struct {
        uint8_t bytes[PLACE_NOTE_MAX];
        size_t len;
        int rank;
        bool to_hub;
    } flight[FLIGHT];
    int flights;
    uint32_t failed; /* communicator: one rank's init has */
    int order[COMMS][RANKS];
    int32_t used[OPS]; /* communicator of each operation; -1 */
} w;

static struct {
    int switched, back, made, failed, freed, over, settled;
} seen;

static uint32_t draw(uint32_t n)
{
    return plan_random(&w.seed, n);
}

/* --- channel --- */

static void send(int rank, bool to_hub, struct place_note *note)
{
    unsigned copies = 1;

    note->key = 42;
    note->rank = (uint32_t)rank;
    if (w.rough) {
        copies = draw(6) == 0 ? 0 : 1 + (draw(8) == 0);
    }
    for (; copies && w.flights < FLIGHT; copies--) {
        w.flight[w.flights].len = place_note_pack(note, w.flight[w.flights].bytes);
        w.flight[w.flights].rank = rank;
        w.flight[w.flights++].to_hub = to_hub;
    }
}

static void facts_change(struct rank *r)
{
    r->facts.seq++;
}

static void facts_fill(struct rank *r)
{
    r->facts.begun = r->m.begun;
    for (int i = 0; i < PLACE_HELD; i++) {
        r->facts.held[i].state = r->held.slot[i].state;
        r->facts.held[i].comm = r->held.slot[i].comm;
    }
}

static bool is_ready(struct rank *r, uint32_t comm)
{
    struct place_held_slot *s = place_held_find(&r->held, comm);

    return comm == 0 || (s != NULL && s->state == PLACE_HELD_READY && !s->drop);
}

static void rank_takes(int rank, const struct place_note *note)
{
    struct rank *r = &w.rank[rank];
    struct place_note out = {.kind = PLACE_NOTE_MSG};

    switch (note->kind) {
    case PLACE_NOTE_HEARD:
        r->heard = note->heard > r->heard ? note->heard : r->heard;
        break;
    case PLACE_NOTE_ASK:
        if (place_held_promise(&r->held, note->comm) != NULL) {
            facts_change(r);
        }
        break;
    case PLACE_NOTE_MAKE:
        if (place_held_make(&r->held, note->make.comm) != NULL) {
            w.order[note->make.comm % COMMS][rank] = (int)note->make.rank;
            facts_change(r);
        }
        break;
    case PLACE_NOTE_DROP:
        place_held_drop(&r->held, note->comm);
        facts_change(r);
        break;
    default:
        if (place_member_take(&r->m, &note->msg, is_ready(r, note->msg.to), &out.msg)) {
            send(rank, true, &out);
        }
    }
}

static void deliver(void)
{
    struct place_note note;
    int i, rank;
    bool to_hub;
    const char *wrong;

    if (w.flights == 0) {
        return;
    }
    i = (int)draw((uint32_t)w.flights);
    wrong = place_note_parse(w.flight[i].bytes, w.flight[i].len, &note);
    CHECK(wrong == NULL && note.key == 42 && note.rank == (uint32_t)w.flight[i].rank, "seed %u: %s",
          w.run, wrong);
    rank = w.flight[i].rank;
    to_hub = w.flight[i].to_hub;
    w.flight[i] = w.flight[--w.flights];
    if (w.rank[rank].gone) {
        return;
    }
    if (to_hub) {
        wrong = place_job_take(w.job, rank, &note, w.now);
        CHECK(wrong == NULL, "seed %u: %s", w.run, wrong);
        place_job_tick(w.job, w.now);
    } else {
        rank_takes(rank, &note);
    }
}

static void hub_turn(void)
{
    static const uint8_t id[PLACE_ID_BYTES] = {1};
    struct place_note note;

    memset(&note, 0, sizeof(note));
    place_job_tick(w.job, w.now);
    if (place_job_wants_id(w.job) && draw(3) == 0) {
        place_job_id(w.job, w.rough && draw(20) == 0 ? NULL : id, w.now);
    }
    for (int i = 0; i < w.n; i++) {
        while (!w.rank[i].gone && place_job_due(w.job, i, w.now, &note)) {
            send(i, false, &note);
        }
    }
}

/* --- ranks --- */

/*
 * NCCL's init: complete at a rank only when all ranks are in it, and it cannot be broken off: where
 * one fails, so do the others; where one does not come, they wait for ever.
 */
static void make_turn(struct rank *r, struct place_held_slot *s)
{
    bool all = true, fails = w.rough && draw(400) == 0;

    for (int i = 0; i < w.n; i++) {
        struct place_held_slot *t = place_held_find(&w.rank[i].held, s->comm);

        all = all && t != NULL && t->state >= PLACE_HELD_MAKING;
        fails = fails || w.failed == s->comm || w.rank[i].gone;
    }
    if (fails) {
        w.failed = s->comm;
        place_held_move(s, PLACE_HELD_FAILED);
        seen.failed++;
    } else if (all && draw(4) == 0) {
        place_held_move(s, PLACE_HELD_READY);
        seen.made++;
    } else {
        return;
    }
    facts_change(r);
}

static void held_turn(struct rank *r)
{
    struct place_held_slot *s;

    for (int i = 0; i < PLACE_HELD; i++) {
        if (r->held.slot[i].state == PLACE_HELD_MAKING) {
            make_turn(r, &r->held.slot[i]);
        }
    }
    s = place_held_free(&r->held, &r->m);
    if (s != NULL && draw(3) == 0) {
        CHECK(s->busy == 0, "seed %u: freed under a call", w.run);
        place_held_move(s, PLACE_HELD_NOT);
        facts_change(r);
        seen.freed++;
    }
}

static uint64_t least_begun(void)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < w.n; i++) {
        if (!w.rank[i].gone && w.rank[i].m.begun < least) {
            least = w.rank[i].m.begun;
        }
    }
    return least;
}

static void call_note(struct rank *r, int rank, uint64_t op, uint32_t use)
{
    struct place_held_slot *s = place_held_find(&r->held, use);

    CHECK(use == 0 || (s != NULL && s->state == PLACE_HELD_READY),
          "seed %u: operation %llu on %u, which rank %d does not have", w.run,
          (unsigned long long)op, use, rank);
    CHECK(w.used[op] < 0 || w.used[op] == (int32_t)use,
          "seed %u: operation %llu on %u at rank %d, on %d elsewhere", w.run,
          (unsigned long long)op, use, rank, w.used[op]);
    if (w.used[op] < 0 && op > 0 && w.used[op - 1] >= 0 && w.used[op - 1] != (int32_t)use) {
        seen.switched++;
        seen.back += use == 0;
    }
    w.used[op] = (int32_t)use;
    for (int i = 0; s != NULL && i < 64; i++) {
        if (r->calls[i] == 0) {
            r->calls[i] = use;
            s->busy++;
            return;
        }
    }
}

static void operation(int rank)
{
    struct rank *r = &w.rank[rank];
    uint64_t op = r->m.begun;
    uint32_t use;

    if (r->gone || r->failed || op >= OPS || op >= least_begun() + (uint64_t)w.ahead) {
        return;
    }
    switch (place_member_begin(&r->m, &use)) {
    case PLACE_USE:
        call_note(r, rank, op, use);
        break;
    case PLACE_FAIL:
        r->failed = true;
        break;
    case PLACE_WAIT:
        break;
    }
}

static void calls_return(struct rank *r, bool all)
{
    for (int i = 0; i < 64; i++) {
        if (r->calls[i] != 0 && (all || draw(4) == 0)) {
            place_held_find(&r->held, r->calls[i])->busy--;
            r->calls[i] = 0;
        }
    }
}

static void rank_turn(int rank)
{
    struct rank *r = &w.rank[rank];
    struct place_note note = {.kind = PLACE_NOTE_FACTS};

    if (r->gone) {
        return;
    }
    calls_return(r, !w.rough);
    held_turn(r);
    facts_fill(r);
    if (r->heard < r->facts.seq && (w.now / MS) % 20 == (uint64_t)rank) {
        note.facts = r->facts;
        send(rank, true, &note);
    }
    operation(rank);
}

/* --- what happens --- */

static void host_set(int host, int up)
{
    for (int i = 0; i < w.n; i++) {
        struct rank *r = &w.rank[i];

        if ((int)r->facts.host == 1 + host && r->facts.usable != up) {
            r->facts.usable = (uint16_t)up;
            facts_change(r);
        }
    }
}

static void mishap(void)
{
    int rank = (int)draw((uint32_t)w.n);

    switch (draw(60)) {
    case 0: /* more than its seconds of quiet follow only now and then */
    case 1:
    case 2:
        host_set((int)draw((uint32_t)(w.n / w.per)), 1 + (int)draw(4));
        break;
    case 3:
        if (w.run % 8 == 3 && draw(20) == 0) {
            w.rank[rank].facts.can = PLACE_CAN_NOT;
            place_member_never(&w.rank[rank].m);
            facts_change(&w.rank[rank]);
        }
        break;
    case 4:
        if (w.run % 8 == 5 && draw(20) == 0 && !w.rank[rank].gone) {
            w.rank[rank].gone = true;
            place_job_lost(w.job, rank);
            place_job_tick(w.job, w.now);
        }
        break;
    default:
        break;
    }
}

static void begin(uint32_t run)
{
    static const struct place_job_conf conf = {.no_ring = true,
                                               .settle_ns = 100 * MS,
                                               .make_ns = 500 * MS,
                                               .wait_ns = 60 * MS,
                                               .pause_ns = 20 * MS,
                                               .repeat_ns = 10 * MS};
    static const int sizes[][2] = {{2, 1}, {4, 1}, {6, 1}, {8, 1}, {8, 2}, {6, 2}, {8, 4}};
    const int *size = sizes[run % (sizeof(sizes) / sizeof(sizes[0]))];

    memset(&w, 0, sizeof(w));
    memset(w.used, 0xff, sizeof(w.used));
    w.run = run;
    w.seed = run * 2654435761u + 1;
    w.n = size[0];
    w.per = size[1];
    w.ahead = 1 + (int)draw(12);
    w.rough = true;
    w.now = 1000 * MS;
    w.job = place_job_init(malloc(place_job_size(w.n)), w.n, &conf, w.now);
    for (int i = 0; i < w.n; i++) {
        w.rank[i].facts = (struct place_facts){.seq = 1,
                                               .rank = (uint32_t)i,
                                               .ranks = (uint32_t)w.n,
                                               .mbps = 50000,
                                               .host = 1 + (uint64_t)(i / w.per),
                                               .nics = 4,
                                               .usable = 4,
                                               .used = 4,
                                               .can = PLACE_CAN};
    }
}

static void step(void)
{
    w.now += MS;
    for (int i = 0; i < 4; i++) {
        deliver();
    }
    hub_turn();
    for (int i = 0; i < w.n; i++) {
        rank_turn(i);
    }
}

/* What is to be done about what the hosts have left, while the ranks use @now. */
static enum place_plan_verdict planned(uint32_t now)
{
    static uint64_t host[RANKS];
    static int node[RANKS], per[RANKS], order[RANKS], seat[RANKS], first[RANKS], newrank[RANKS];
    static double share[RANKS], load[2 * RANKS];
    const struct place_plan_work work = {host, node, per, order, seat, first, share, load, true};
    const struct place_facts *facts[RANKS];
    struct place_plan plan;

    for (int i = 0; i < w.n; i++) {
        facts[i] = &w.rank[i].facts;
    }
    place_plan_make(facts, w.n, now != 0 ? w.order[now % COMMS] : NULL, &work, &plan, newrank);
    return plan.verdict;
}

static void is_settled(void)
{
    enum place_job_state state = place_job_state_get(w.job);
    uint32_t now = place_job_now(w.job);
    enum place_plan_verdict verdict = planned(now);

    if (state == PLACE_JOB_OVER) {
        seen.over++;
        return;
    }
    CHECK(state == PLACE_JOB_RESTING, "seed %u: %s at the end (%s)", w.run,
          place_job_state_name(state), place_job_why(w.job));
    CHECK(verdict != PLACE_PLAN_OTHER && verdict != PLACE_PLAN_OWN, "seed %u: it is to be %s (%s)",
          w.run, place_plan_name(verdict), place_job_why(w.job));
    for (int i = 0; i < w.n; i++) {
        struct rank *r = &w.rank[i];

        CHECK(r->m.state == PLACE_FREE && r->m.now == now, "seed %u: rank %d uses %u (%s), not %u",
              w.run, i, r->m.now, place_member_state_name((enum place_member_state)r->m.state),
              now);
        for (int h = 0; h < PLACE_HELD; h++) {
            CHECK(r->held.slot[h].comm == 0 || r->held.slot[h].comm == now,
                  "seed %u: rank %d still has %u", w.run, i, r->held.slot[h].comm);
        }
    }
    seen.settled++;
}

/* At a gate for a decision; in NCCL's init for a rank that does not come, unless that one is lost.
 */
static void nobody_waits(void)
{
    bool lost = false;

    for (int i = 0; i < w.n; i++) {
        lost = lost || w.rank[i].gone;
    }
    for (int i = 0; i < w.n; i++) {
        CHECK(w.rank[i].m.state != PLACE_PREPARED || w.rank[i].gone,
              "seed %u: rank %d waits at the end", w.run, i);
        for (int h = 0; h < PLACE_HELD; h++) {
            CHECK(lost || w.rank[i].held.slot[h].state != PLACE_HELD_MAKING,
                  "seed %u: rank %d is alone in %u", w.run, i, w.rank[i].held.slot[h].comm);
        }
    }
}

static void job_run(uint32_t run)
{
    begin(run);
    for (int s = 0; s < STEPS; s++) {
        mishap();
        step();
    }
    w.rough = false;
    for (int s = 0; s < QUIET; s++) {
        step();
    }
    nobody_waits();
    is_settled();
    free(w.job);
}

START_TEST(all_or_none)
{
    const char *seed = getenv("SEED"), *many = getenv("RUNS");
    int runs = many ? atoi(many) : RUNS;

    for (int run = seed ? atoi(seed) : 0; run < (seed ? atoi(seed) + 1 : runs); run++) {
        job_run((uint32_t)run);
    }
    if (seed) {
        printf("%d made, %d failed, %d freed; %d switched, %d back; %d over\n", seen.made,
               seen.failed, seen.freed, seen.switched, seen.back, seen.over);
        return;
    }
    ck_assert_int_gt(seen.made, runs);
    ck_assert_int_gt(seen.failed, runs / 20);
    ck_assert_int_gt(seen.freed, runs);
    ck_assert_int_gt(seen.switched, runs / 4);
    ck_assert_int_gt(seen.back, runs / 20);
    ck_assert_int_gt(seen.settled, runs / 2);
    ck_assert_int_gt(seen.over, runs / 20);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, all_or_none);
}

int main(void)
{
    return suite_run("place_job_runs", 1200, NULL, NULL, add);
}
