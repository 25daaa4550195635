/*
 * Why no line names a rank that is late (docs/diagnosis.md, "A rank that is late is not named"): a
 * model of ranks that compute and then take part in a ring, with NCCL's slots, sampled as the
 * service thread samples, and the rule "who waits least by 5 % of the time in 5 windows of 8" on
 * what it sees. PRINT=1 prints the table of the document.
 */
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/suite.h"

#define RANKS   16
#define DT      0.25 /* ms: a step of the model */
#define LOOK    7.5  /* ms */
#define WINDOW  2000.0
#define WINDOWS 40
#define SLOTS   8   /* of a connection, between proxy and GPU */
#define WIRE    1.0 /* ms of a chunk */
#define AHEAD   1   /* operations that a host launches before its GPU has come to them */
#define NOBODY  (-1)

struct rank {
    double compute; /* ms between two operations */
    bool waits;     /* its host launches an operation when the GPU has come to it */
    double ready;   /* the GPU comes to its next operation */
    long op;        /* operations done */
    int action;     /* ... and of this one */
    /* chunks: arrived, taken by the GPU, made by it, sent, and acknowledged; receives posted */
    long in, taken, made, sent, acked, posted;
    double wire_free, on_wire[SLOTS * 2]; /* ms: arrival of chunk i, modulo */
    struct {
        long in, acked, sent;
    } seen; /* by the last look */
    int looks_wait, looks_rest, looks;
    double wait, rest; /* shares of the last window */
};

static struct rank rank[RANKS];
static int n;
static double clock_ms, jitter, period;
static unsigned long seed;

static double draw(void)
{
    seed = seed * 6364136223846793005ul + 1442695040888963407ul;
    return (double)(seed >> 33) / 2147483648.0;
}

static void begin(void)
{
    memset(rank, 0, sizeof(rank));
    n = 4;
    seed = 1;
    clock_ms = jitter = 0;
    for (int i = 0; i < RANKS; i++) {
        rank[i].compute = 100;
    }
}

/* --- the job --- */

static int steps(void)
{
    return 2 * (n - 1);
}

static struct rank *after(int i)
{
    return &rank[(i + 1) % n];
}

/* One action of the ring: 0 sends what is its own, the last takes, each between does both. */
static bool gpu_acts(struct rank *r)
{
    bool takes = r->action > 0, makes = r->action < steps();

    if (clock_ms < r->ready || (takes && r->in == r->taken) ||
        (makes && r->made - r->acked >= SLOTS)) {
        return false;
    }
    r->taken += takes;
    r->made += makes;
    if (++r->action > steps()) {
        r->action = 0;
        r->op++;
        r->ready = clock_ms + r->compute * (1 - jitter + 2 * jitter * draw());
    }
    return true;
}

/* Receives of operations that the host has launched, as far as there are slots. */
static void proxy_receives(struct rank *r)
{
    long launched = r->op + (r->waits ? clock_ms >= r->ready : 1 + AHEAD);
    long room = r->taken + SLOTS, all = launched * steps(), to = room < all ? room : all;

    r->posted = to > r->posted ? to : r->posted;
}

static void proxy_sends(struct rank *r, struct rank *to)
{
    while (r->acked < r->sent && r->on_wire[r->acked % (2 * SLOTS)] <= clock_ms) {
        r->acked++;
        to->in++;
    }
    while (r->sent < r->made && r->sent < to->posted) {
        r->wire_free = (r->wire_free > clock_ms ? r->wire_free : clock_ms) + WIRE;
        r->on_wire[r->sent++ % (2 * SLOTS)] = r->wire_free;
    }
}

/* --- what is seen --- */

/* The table "What a connection waits for", of the process' two connections. */
static void look(struct rank *r)
{
    bool wire = r->sent > r->acked || r->in != r->seen.in || r->acked != r->seen.acked;
    bool no_cts = r->made > r->sent && r->sent == r->seen.sent, no_data = r->posted > r->in;

    r->looks++;
    r->looks_wait += !wire && (no_cts || no_data);
    r->looks_rest += !wire && !no_cts && !no_data;
    r->seen.in = r->in;
    r->seen.acked = r->acked;
    r->seen.sent = r->sent;
}

/* The rank that waits least, by 5 % of the time less than the middle one; NOBODY. */
static int window_late(void)
{
    double sorted[RANKS] = {0};
    int least = 0;

    for (int i = 0; i < n; i++) {
        int k = i;

        rank[i].wait = (double)rank[i].looks_wait / rank[i].looks;
        rank[i].rest = (double)rank[i].looks_rest / rank[i].looks;
        rank[i].looks = rank[i].looks_wait = rank[i].looks_rest = 0;
        least = rank[i].wait < rank[least].wait ? i : least;
        for (; k > 0 && sorted[k - 1] > rank[i].wait; k--) {
            sorted[k] = sorted[k - 1];
        }
        sorted[k] = rank[i].wait;
    }
    return sorted[n / 2] - rank[least].wait > 0.05 ? least : NOBODY;
}

struct verdict {
    int windows[RANKS]; /* in which the rank was the late one */
    int named[RANKS];   /* ... in five of the last eight, for the first time */
};

static struct verdict run(int windows)
{
    struct verdict v = {0};
    int late[8], in_row[RANKS] = {0};
    double next_look = LOOK;
    long ops = rank[0].op;

    memset(late, -1, sizeof(late));
    for (int w = 0; w < windows; w++) {
        for (double end = clock_ms + WINDOW; clock_ms < end; clock_ms += DT) {
            for (int i = 0; i < n; i++) {
                proxy_receives(&rank[i]);
                proxy_sends(&rank[i], after(i));
                while (gpu_acts(&rank[i])) {
                }
            }
            if (clock_ms >= next_look) {
                next_look = clock_ms + LOOK;
                for (int i = 0; i < n; i++) {
                    look(&rank[i]);
                }
            }
        }
        late[w % 8] = window_late();
        for (int i = 0; i < n; i++) {
            int of_eight = 0;

            for (int k = 0; k < 8; k++) {
                of_eight += late[k] == i;
            }
            v.windows[i] += late[w % 8] == i;
            v.named[i] += of_eight >= 5 && in_row[i] < 5;
            in_row[i] = of_eight;
        }
    }
    period = windows * WINDOW / (double)(rank[0].op - ops);
    return v;
}

static void print(const char *what, const struct verdict *v)
{
    if (getenv("PRINT") == NULL) {
        return;
    }
    printf("%-48s %2d ranks, %5.1f ms:", what, n, period);
    for (int i = 0; i < n; i++) {
        printf(" %.0f/%.0f%s", 100 * rank[i].wait, 100 * rank[i].rest, v->named[i] ? "!" : "");
    }
    printf("\n");
}

/* --- what the rule makes of it --- */

#define LATE   2 /* the rank that is, in some jobs */
#define READER 3 /* the one whose host waits for its GPU, in some */

static const struct {
    const char *what;
    bool late, step, reads; /* LATE is late; all hosts wait for their GPUs; READER's does */
    int named;              /* of four ranks, in every window */
} job[] = {
    {"in step, all is well", false, true, false, NOBODY},
    {"in step, 2 is late", true, true, false, LATE},
    {"hosts are ahead, all is well", false, false, false, NOBODY},
    {"hosts are ahead, the GPU of 2 is late", true, false, false, NOBODY},
    {"3 waits for its GPU, all is well", false, false, true, READER},
    {"3 waits for its GPU, the GPU of 2 is late", true, false, true, READER},
};

static struct verdict run_job(int i, int ranks)
{
    struct verdict v;

    begin();
    n = ranks;
    for (int r = 0; r < n; r++) {
        rank[r].waits = job[i].step || (job[i].reads && r == READER);
    }
    rank[LATE].compute = job[i].late ? 130 : 100;
    v = run(WINDOWS);
    print(job[i].what, &v);
    return v;
}

/* Who waits least is the one that is late where all hosts wait for their GPUs, and there alone. */
START_TEST(who_waits_least)
{
    struct verdict v = run_job(_i, 4);

    for (int r = 0; r < n; r++) {
        ck_assert_int_eq(v.named[r], r == job[_i].named);
        ck_assert_int_eq(v.windows[r], r == job[_i].named ? WINDOWS : 0);
    }
    ck_assert_msg(job[_i].late == (period > 130), "a period of %.1f ms", period);
}
END_TEST

/* Its host has posted what is to come, and it waits as long as those that wait for it. */
START_TEST(a_late_gpu_waits_as_others)
{
    run_job(3, 4);
    for (int r = 0; r < n; r++) {
        ck_assert_msg(rank[r].wait > 0.8 && rank[r].rest < 0.01, "rank %d waits for %.2f", r,
                      rank[r].wait);
    }
}
END_TEST

/* Nobody is late for longer than the others; a period that is no small part of a window makes one
 * the last by chance. */
START_TEST(jitter_names_somebody)
{
    int named = 0;
    struct verdict v;

    jitter = 0.2;
    for (int r = 0; r < n; r++) {
        rank[r].waits = true;
        rank[r].compute = 500 << _i;
    }
    v = run(1800); /* an hour */
    for (int r = 0; r < n; r++) {
        named += v.named[r];
    }
    if (getenv("PRINT")) {
        printf("20 %% of jitter, a period of %.0f ms: %d named in an hour\n", period, named);
    }
    ck_assert_int_gt(named, 0);
}
END_TEST

/* A wait that does not outlast two looks is not seen to the end. */
START_TEST(short_waits)
{
    struct verdict v;

    for (int r = 0; r < n; r++) {
        rank[r].waits = true;
    }
    rank[LATE].compute = 110;
    v = run(WINDOWS);
    print("in step, 2 is late by 10 ms", &v);
    ck_assert_msg(rank[0].wait < 0.05, "%.3f of the time, of %.3f", rank[0].wait, 10 / period);
    ck_assert_int_eq(v.named[LATE], 0);
}
END_TEST

/* A GPU that stands behind its host: in a ring of at most SLOTS ranks its process waits as all
 * others do, in a circle; in a longer one what comes fills its slots, and it waits for nobody. */
START_TEST(a_gpu_that_stands)
{
    struct verdict v;

    n = SLOTS + _i;
    rank[LATE].compute = 1e9;
    v = run(5);
    print("the GPU of 2 stands", &v);
    for (int r = 0; r < n; r++) {
        ck_assert_msg(rank[r].wait == (_i && r == LATE ? 0 : 1), "rank %d waits for %.2f", r,
                      rank[r].wait);
    }
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, who_waits_least, 0, sizeof(job) / sizeof(job[0]));
    tcase_add_test(t, a_late_gpu_waits_as_others);
    tcase_add_loop_test(t, jitter_names_somebody, 0, 4);
    tcase_add_test(t, short_waits);
    tcase_add_loop_test(t, a_gpu_that_stands, 0, 2);
}

int main(void)
{
    return suite_run("late_rank", 120, begin, NULL, add);
}
