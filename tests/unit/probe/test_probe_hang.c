/*
 * Who holds a job up: many processes in virtual time, with words that are late, lost and out of
 * step. What each of them says is compared with the graph of waits that the test has drawn.
 */
#include "tests/unit/hang_world.h"
#include "tests/unit/suite.h"

/* --- shapes --- */

START_TEST(chain)
{
    uint64_t from;

    world(64, (uint64_t)_i);
    from = g.now;
    for (int i = 0; i < 63; i++) {
        waits(i, i + 1);
    }
    run(10 * S);
    all_say(63, PROBE_HANG_IDLE, 8 * S, from);
    for (int i = 0; i < 64; i++) {
        ck_assert_int_eq(g.p[i].said.hops, 63 - i);
        ck_assert_int_eq(g.p[i].said.waiting, 1);
        ck_assert_uint_le(g.p[i].said.since_ms + g.p[i].said.age_ms, 8000);
        ck_assert_uint_ge(g.p[i].said.since_ms + g.p[i].said.age_ms, 4000);
        /* a question and an answer a period and edge, and what is told on between them */
        ck_assert_int_lt(g.p[i].sent, 60);
    }
}
END_TEST

/* Neighbours wait in both directions, as the rings of a collective do: circles of two everywhere,
 * which are none. */
static void ring(int n, int root, enum how how)
{
    for (int i = 0; i < n; i++) {
        if (i != root) {
            waits(i, (i + 1) % n);
            waits(i, (i + n - 1) % n);
        }
    }
    g.p[root].how = how;
}

START_TEST(stopped_in_a_ring)
{
    uint64_t from;

    world(64, (uint64_t)_i);
    g.jitter_ms = 20;
    g.loss_pct = _i % 3 * 3;
    from = g.now;
    ring(64, (int)draw(64), STOPPED);
    run(10 * S);
    for (int i = 0; i < 64; i++) {
        if (g.p[i].how == STOPPED) {
            all_say(i, PROBE_HANG_STOPPED, 10 * S, from);
        }
    }
}
END_TEST

START_TEST(idle_in_a_ring)
{
    static const struct {
        enum how how;
        enum probe_hang_kind kind;
    } row[] = {{IDLE, PROBE_HANG_IDLE}, {GONE, PROBE_HANG_GONE}, {SILENT, PROBE_HANG_PATH}};
    uint64_t from;

    world(32, (uint64_t)_i);
    g.jitter_ms = 20;
    from = g.now;
    ring(32, 7, row[_i].how);
    run(12 * S);
    all_say(7, row[_i].kind, 10 * S, from);
    ck_assert_str_eq(g.p[8].said.nic, row[_i].how == SILENT ? "mlx5_0" : "");
}
END_TEST

START_TEST(tree)
{
    uint64_t from;

    world(63, (uint64_t)_i);
    from = g.now;
    for (int i = 1; i < 63; i++) {
        waits(i, (i - 1) / 2);
    }
    run(10 * S);
    all_say(0, PROBE_HANG_IDLE, 8 * S, from);
    ck_assert_int_eq(g.p[62].said.waiting, 2);
    ck_assert_int_eq(g.p[62].said.hops, 5);
}
END_TEST

/* Who waits for short is asked on behalf of one who has waited for long. */
START_TEST(asked_on)
{
    uint64_t from;

    world(5, 1);
    from = g.now;
    waits(0, 1);
    run(3500 * MS);
    for (int i = 1; i < 4; i++) {
        waits(i, i + 1);
    }
    run(6 * S);
    ck_assert_int_eq(g.p[0].says, 1);
    ck_assert_int_eq(proc_of(g.p[0].said.root.id), 4);
    ck_assert_uint_lt(g.p[0].said_at - from, 6600 * MS);
}
END_TEST

START_TEST(circle)
{
    int n = 2 + _i * 7;
    uint64_t from;

    world(n + 3, (uint64_t)_i);
    g.jitter_ms = 20;
    from = g.now;
    for (int i = 0; i < n; i++) {
        waits(i, (i + 1) % n);
    }
    for (int i = n; i < n + 3; i++) { /* some lead into it, with smaller and larger ids */
        waits(i, (int)draw((unsigned)n));
    }
    run(25 * S);
    for (int i = 0; i < g.n; i++) {
        ck_assert_int_eq(g.p[i].says, 1);
        ck_assert_int_eq(g.p[i].said.kind, PROBE_HANG_CYCLE);
        ck_assert_int_eq(g.p[i].said.waiting, n);
        ck_assert_int_lt(proc_of(g.p[i].said.root.id), n);
        ck_assert_uint_lt(g.p[i].said_at - from, 15 * S);
    }
    for (int i = 0; i < g.n; i++) {
        moves(i);
    }
    run(5 * S);
    for (int i = 0; i < g.n; i++) {
        ck_assert_int_eq(g.p[i].clears, 1);
    }
}
END_TEST

/* --- whoever waits, in any graph --- */

static int reaches[PROCS][PROCS];

static void close_reach(void)
{
    for (int i = 0; i < g.n; i++) {
        for (int j = 0; j < g.n; j++) {
            reaches[i][j] = runs(i) && g.p[i].how != DEAF && g.p[i].since[j] != 0;
        }
    }
    for (int k = 0; k < g.n; k++) {
        for (int i = 0; i < g.n; i++) {
            for (int j = 0; j < g.n; j++) {
                reaches[i][j] |= reaches[i][k] && reaches[k][j];
            }
        }
    }
}

static int waits_for_any(int i)
{
    int any = 0;

    for (int j = 0; j < g.n; j++) {
        any |= g.p[i].since[j] != 0;
    }
    return any;
}

/* What @j is for those who come to it; NONE: it waits itself. */
static enum probe_hang_kind truth_of(int j)
{
    static const enum probe_hang_kind kind[] = {
        [WORKS] = PROBE_HANG_MOVES,     [IDLE] = PROBE_HANG_IDLE, [SILENT] = PROBE_HANG_PATH,
        [STOPPED] = PROBE_HANG_STOPPED, [GONE] = PROBE_HANG_GONE, [DEAF] = PROBE_HANG_DEAF};
    int ends = g.p[j].how >= SILENT || !waits_for_any(j);

    return ends ? kind[g.p[j].how] : PROBE_HANG_NONE;
}

START_TEST(any_graph)
{
    int said = 0;

    world(2 + _i % 63, (uint64_t)_i);
    g.jitter_ms = 30;
    g.loss_pct = _i % 3 * 5;
    for (int i = 0; i < g.n; i++) {
        int out = draws(20) ? 0 : 1 + (int)draw(3);

        g.p[i].how = draws(6) ? (enum how)draw(6) : IDLE;
        g.p[i].nameless = !runs(i) && draws(30);
        for (int k = 0; k < out; k++) {
            int j = (int)draw((unsigned)g.n);

            if (j != i) {
                waits(i, j);
            }
        }
    }
    close_reach();
    run(30 * S);
    for (int i = 0; i < g.n; i++) {
        enum probe_hang_kind best = PROBE_HANG_CYCLE;
        const struct probe_hang_report *w = &g.p[i].said;

        if (!runs(i) || g.p[i].how == DEAF || !waits_for_any(i)) {
            continue;
        }
        for (int j = 0; j < g.n; j++) {
            if (reaches[i][j] && truth_of(j) > best) {
                best = truth_of(j);
            }
        }
        if (g.p[i].how == SILENT && best < PROBE_HANG_PATH) {
            best = PROBE_HANG_PATH; /* its own */
        }
        if (!probe_hang_is_hang(best)) {
            REQUIRE(g.p[i].says == 0, "seed %d: process %d says %s, %s is true", _i, i,
                    probe_hang_kind_name((enum probe_hang_kind)w->kind),
                    probe_hang_kind_name(best));
            continue;
        }
        said++;
        REQUIRE(g.p[i].says == 1 && g.p[i].clears == 0, "seed %d: process %d says %d, clears %d",
                _i, i, g.p[i].says, g.p[i].clears);
        /* Said once, of what was known first: another end may be found later, none that is not. */
        REQUIRE(reaches[i][proc_of(w->root.id)] || proc_of(w->root.id) == i,
                "seed %d: process %d does not wait for %d", _i, i, proc_of(w->root.id));
        REQUIRE(w->kind == PROBE_HANG_CYCLE ? best == PROBE_HANG_CYCLE
                                            : w->kind == truth_of(proc_of(w->root.id)),
                "seed %d: process %d says %s of %d", _i, i,
                probe_hang_kind_name((enum probe_hang_kind)w->kind), proc_of(w->root.id));
        REQUIRE(g.p[i].h.own.kind == best, "seed %d: process %d knows %s, %s is true", _i, i,
                probe_hang_kind_name((enum probe_hang_kind)g.p[i].h.own.kind),
                probe_hang_kind_name(best));
    }
    ck_assert_int_eq(g.refused, 0);
    ck_assert_int_ge(said, 0);
}
END_TEST

/* --- no hang --- */

START_TEST(job_rests)
{
    world(64, 1);
    run(3600 * S / 20);
    nobody_says();
    for (int i = 0; i < g.n; i++) {
        ck_assert_int_eq(g.p[i].sent, 0);
    }
}
END_TEST

/* Everybody computes for longer than AFTER and nobody waits; then waits are short, with a straggler
 * that is late by less than AFTER each time. */
START_TEST(waits_are_short)
{
    world(32, (uint64_t)_i);
    g.jitter_ms = 30;
    run(9 * S);
    for (int k = 0; k < 6; k++) {
        int late = (int)draw(32);

        for (int i = 0; i < 32; i++) {
            g.p[i].moved_at = g.now;
        }
        ring(32, late, IDLE);
        run(4500 * MS);
        for (int i = 0; i < 32; i++) {
            moves(i);
            g.p[i].how = IDLE;
            g.p[i].moved_at = g.now;
        }
        run(500 * MS);
    }
    nobody_says();
}
END_TEST

/* It is waited for for long, and works: slow, no hang. */
START_TEST(who_works_is_none)
{
    world(16, 3);
    ring(16, 5, WORKS);
    run(30 * S);
    nobody_says();
    g.p[5].how = IDLE;
    g.p[5].moved_at = g.now;
    run(10 * S);
    for (int i = 0; i < 16; i++) {
        ck_assert_int_eq(g.p[i].says, 1);
        ck_assert_int_eq(proc_of(g.p[i].said.root.id), 5);
    }
}
END_TEST

/* An older plugin at the end of it: nothing is known, and nothing said; also where circles of two
 * are all that is left to see. */
START_TEST(who_cannot_tell)
{
    world(16, 3);
    ring(16, 5, DEAF);
    run(30 * S);
    nobody_says();
}
END_TEST

/* One that speaks, and never of this: who waits for it in a circle with others does not know that
 * there is nobody else. */
START_TEST(who_does_not_answer)
{
    world(3, 3);
    waits(0, 1);
    waits(1, 0);
    waits(0, 2);
    waits(1, 2);
    g.p[2].how = MUTE;
    for (int k = 0; k < 300; k++) {
        g.p[0].contacts[2]++;
        g.p[1].contacts[2]++;
        run(100 * MS);
    }
    nobody_says();
    ck_assert_int_eq(g.p[0].h.own.kind, PROBE_HANG_NONE);
}
END_TEST

/* Our id comes back to us: a circle only if each wait on its way had begun when it set out. */
START_TEST(waits_of_one_time)
{
    struct probe_hang_report w = {
        .low = id_of(0), .low_age_ms = 3000, .stood_ms = _i ? 3500 : 2500};

    world(2, 1);
    waits(0, 1);
    run(6 * S);
    probe_hang_on_report(&g.p[0].h, g.now, &g.p[1], 0, &w);
    step(0);
    ck_assert_int_eq(g.p[0].h.loop_since != 0, _i);
}
END_TEST

/* --- it goes on --- */

START_TEST(said_once_and_cleared)
{
    world(16, (uint64_t)_i);
    g.jitter_ms = 20;
    for (int k = 0; k < 3; k++) {
        int root = (int)draw(16);

        for (int i = 0; i < 16; i++) {
            g.p[i].moved_at = g.now;
            g.p[i].says = g.p[i].clears = 0;
        }
        ring(16, root, k == 1 ? STOPPED : IDLE);
        run(40 * S);
        for (int i = 0; i < 16; i++) {
            if (runs(i)) {
                ck_assert_int_eq(g.p[i].says, 1);
                ck_assert_int_eq(g.p[i].clears, 0);
                ck_assert_int_eq(proc_of(g.p[i].said.root.id), root);
            }
        }
        for (int i = 0; i < 16; i++) {
            moves(i);
        }
        run(5 * S);
        for (int i = 0; i < 16; i++) {
            if (k != 1 || i != root) {
                ck_assert_int_eq(g.p[i].clears, 1);
            }
        }
    }
}
END_TEST

/* A process that stood still, and goes on, is not said to be stopped by anybody afterwards; nor
 * does it take others for stopped: its clock stood. */
START_TEST(stopped_goes_on)
{
    world(8, 5);
    ring(8, 2, STOPPED);
    run(12 * S);
    all_say(2, PROBE_HANG_STOPPED, 10 * S, S);
    g.p[2].how = IDLE;
    g.p[2].moved_at = g.now;
    run(5 * S);
    for (int i = 0; i < 8; i++) {
        ck_assert_int_eq(g.p[i].h.own.kind, PROBE_HANG_IDLE);
        ck_assert_int_le(g.p[i].says, 1);
    }
}
END_TEST

/* --- bounds --- */

START_TEST(more_peers_than_room)
{
    world(80, 7);
    for (int i = 0; i < 79; i++) {
        waits(i, 79);
    }
    run(10 * S);
    ck_assert_int_eq(g.most, PROBE_HANG_BUDGET);
    ck_assert_int_gt(g.refused, 0); /* those are answered by the owner; here they hear nothing */
    for (int i = 0; i < 79; i++) {
        ck_assert_msg(g.p[i].h.own.kind == PROBE_HANG_IDLE ||
                          g.p[i].h.own.kind == PROBE_HANG_STOPPED,
                      "process %d", i);
    }
    for (int j = 0; j < 79; j++) {
        waits(79, j);
    }
    run(2 * S);
    ck_assert_int_le(g.most, PROBE_HANG_BUDGET);
}
END_TEST

START_TEST(words_are_checked)
{
    struct probe_hang_report w = {.kind = PROBE_HANG_IDLE, .root = who_of(0)}, bad;

    ck_assert(probe_hang_report_is_valid(&w));
    bad = w;
    bad.kind = PROBE_HANG_KINDS;
    ck_assert(!probe_hang_report_is_valid(&bad));
    bad = w;
    bad.hops = PROBE_HANG_HOPS_MAX + 1;
    ck_assert(!probe_hang_report_is_valid(&bad));
    bad = w;
    bad.age_ms = PROBE_HANG_AGE_MAX + 1;
    ck_assert(!probe_hang_report_is_valid(&bad));
    bad = w;
    bad.low_age_ms = PROBE_HANG_AGE_MAX + 1;
    ck_assert(!probe_hang_report_is_valid(&bad));
    bad = w;
    bad.root.id = 0;
    ck_assert(!probe_hang_report_is_valid(&bad));
    bad.kind = PROBE_HANG_NONE;
    ck_assert(probe_hang_report_is_valid(&bad));
}
END_TEST

/* Whatever valid words a peer makes up: what is sent stays bounded and valid, and what is not
 * waited for is not believed. */
START_TEST(hostile_words)
{
    world(3, (uint64_t)_i);
    for (int k = 0; k < 2000; k++) {
        struct probe_hang_report w = {.kind = (uint8_t)draw(PROBE_HANG_KINDS),
                                      .hops = (uint16_t)draw(PROBE_HANG_HOPS_MAX + 1),
                                      .waiting = (uint16_t)draw(65536),
                                      .age_ms = draw(2) ? 0 : draw(PROBE_HANG_AGE_MAX + 1),
                                      .since_ms = draw(2) ? UINT32_MAX : draw(1000),
                                      .root = who_of((int)draw(3)),
                                      .low = draw(2) ? id_of((int)draw(3)) : draw(5),
                                      .low_age_ms = draw(PROBE_HANG_AGE_MAX + 1),
                                      .stood_ms = draw(2) ? UINT32_MAX : 0};

        ck_assert(probe_hang_report_is_valid(&w));
        probe_hang_on_report(&g.p[0].h, g.now, &g.p[2], draw(4), &w);
        run(TICK);
    }
    ck_assert_int_eq(g.p[1].says + g.p[2].says, 0);
    ck_assert_int_le(g.p[0].says, 1 + g.p[0].clears);
    ck_assert(g.p[0].says == 0 || g.p[0].said.kind == PROBE_HANG_IDLE); /* of itself: it is asked */
    ck_assert_int_lt(g.p[0].sent, 2000 / 100 * 100 + 1000);
}
END_TEST

START_TEST(switched_off)
{
    struct probe_hang_who w = who_of(0);
    struct probe_hang h;

    probe_hang_init(&h, &w, 0, S);
    ck_assert_int_eq(probe_hang_is_due(&h, 100 * S), 0);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, chain, 0, 5);
    tcase_add_loop_test(t, stopped_in_a_ring, 0, 500);
    tcase_add_loop_test(t, idle_in_a_ring, 0, 3);
    tcase_add_test(t, tree);
    tcase_add_test(t, asked_on);
    tcase_add_loop_test(t, circle, 0, 9);
    tcase_add_loop_test(t, any_graph, 0, 400);
    tcase_add_test(t, job_rests);
    tcase_add_loop_test(t, waits_are_short, 0, 20);
    tcase_add_test(t, who_works_is_none);
    tcase_add_test(t, who_cannot_tell);
    tcase_add_loop_test(t, waits_of_one_time, 0, 2);
    tcase_add_test(t, who_does_not_answer);
    tcase_add_loop_test(t, said_once_and_cleared, 0, 20);
    tcase_add_test(t, stopped_goes_on);
    tcase_add_test(t, more_peers_than_room);
    tcase_add_test(t, words_are_checked);
    tcase_add_loop_test(t, hostile_words, 0, 20);
    tcase_add_test(t, switched_off);
}

int main(void)
{
    return suite_run("hang", 120, NULL, NULL, add);
}
