/*
 * Who holds a job up, and who does not: silent paths to processes that have not answered, waits for
 * oneself, and one hang behind the other. As test_probe_hang.c.
 */
#include "tests/unit/hang_world.h"
#include "tests/unit/suite.h"

/* What is in flight to a process that stands still with its NICs is no path's fault; nor where that
 * has never said who it is. Of one that takes no part an answer of any kind shows that it runs. */
START_TEST(stopped_with_its_nics)
{
    static const struct {
        enum how how;
        int nameless;
        enum probe_hang_kind kind;
    } row[] = {{STOPPED, 0, PROBE_HANG_STOPPED},
               {STOPPED, 1, PROBE_HANG_STOPPED},
               {GONE, 1, PROBE_HANG_GONE},
               {IDLE, 0, PROBE_HANG_PATH},
               {DEAF, 0, PROBE_HANG_PATH}};

    world(3, 1);
    waits(0, 1);
    g.p[0].how = SILENT;
    g.p[1].how = row[_i].how;
    g.p[1].nameless = row[_i].nameless;
    waits(2, 0);
    run(12 * S);
    for (int i = 0; i < 3; i += 2) {
        ck_assert_int_eq(g.p[i].says, 1);
        ck_assert_int_eq(g.p[i].said.kind, row[_i].kind);
        ck_assert_int_eq(proc_of(g.p[i].said.root.id), row[_i].kind != PROBE_HANG_PATH);
    }
}
END_TEST

/* It has answered until a moment ago, and what is in flight to it since is not looked at, nor
 * answered: no path is blamed in between. */
START_TEST(stopped_after_it_has_answered)
{
    uint64_t until;

    world(3, (uint64_t)_i);
    waits(0, 1);
    waits(2, 0);
    run(6 * S + (uint64_t)_i * 100 * MS);
    ck_assert_int_eq(g.p[0].h.own.kind, PROBE_HANG_IDLE);
    g.p[0].how = SILENT;
    g.p[0].moved_at = g.now;
    run(400 * MS);
    g.p[1].how = STOPPED;
    for (until = g.now + 10 * S; g.now < until;) {
        run(TICK);
        ck_assert_int_ne(g.p[0].h.own.kind, PROBE_HANG_PATH);
        ck_assert_int_ne(g.p[2].h.own.kind, PROBE_HANG_PATH);
    }
    ck_assert_int_eq(g.p[0].h.own.kind, PROBE_HANG_STOPPED);
    ck_assert_int_eq(g.p[2].h.own.kind, PROBE_HANG_STOPPED);
}
END_TEST

/* More is waited for than there is room to query, and something is in flight to one of the others:
 * nothing is known of that one. */
START_TEST(silent_and_not_queried)
{
    struct proc *last = &g.p[PROBE_HANG_PEERS + 1];

    world(PROBE_HANG_PEERS + 2, 3);
    for (int j = 1; j < g.n; j++) {
        waits(0, j);
    }
    g.p[0].silent_to = last;
    g.p[0].how = SILENT;
    last->how = STOPPED;
    run(12 * S);
    ck_assert_int_eq(g.p[0].says, 1);
    ck_assert_int_eq(g.p[0].said.kind, PROBE_HANG_IDLE);
}
END_TEST

/* One of its threads waits for another one: nobody else, so that it is the end of all waits. */
START_TEST(waits_for_itself)
{
    world(3, 1);
    waits(0, 0);
    if (_i) {
        waits(1, 0);
        waits(2, 1);
    }
    run(20 * S);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(g.p[i].says, i == 0 || _i);
        ck_assert(g.p[i].says == 0 || g.p[i].said.kind == PROBE_HANG_IDLE);
        ck_assert(g.p[i].says == 0 || proc_of(g.p[i].said.root.id) == 0);
    }
    moves(0);
    moves(1);
    moves(2);
    run(5 * S);
    ck_assert_int_eq(g.p[0].clears, 1);
}
END_TEST

/* --- one after the other --- */

/* Who was named goes on, and the one behind it stays: it is named, too, though the wait for it has
 * been the same all the time. */
START_TEST(next_one_is_named)
{
    world(4, (uint64_t)_i);
    g.jitter_ms = 20;
    for (int i = 0; i < 3; i++) {
        waits(i, i + 1);
    }
    run(12 * S);
    all_say(3, PROBE_HANG_IDLE, 8 * S, S);
    moves(3);
    g.p[2].since[3] = 0;
    g.p[2].moved_at = g.now;
    run(12 * S);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(g.p[i].says, 2);
        ck_assert_int_eq(g.p[i].clears, 1);
        ck_assert_int_eq(proc_of(g.p[i].said.root.id), 2);
    }
    ck_assert_int_eq(g.p[3].says, 1);
    ck_assert_int_eq(g.p[3].clears, 1);
}
END_TEST

/* One that does something now and then is the same one: named once. */
START_TEST(moves_now_and_then)
{
    world(4, (uint64_t)_i);
    for (int i = 0; i < 3; i++) {
        waits(i, i + 1);
    }
    for (int k = 0; k < 10; k++) {
        run(4 * S);
        g.p[3].moved_at = g.now;
    }
    all_say(3, PROBE_HANG_IDLE, 12 * S, S);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(g.p[i].clears, 0);
    }
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, stopped_with_its_nics, 0, 5);
    tcase_add_loop_test(t, stopped_after_it_has_answered, 0, 10);
    tcase_add_test(t, silent_and_not_queried);
    tcase_add_loop_test(t, waits_for_itself, 0, 2);
    tcase_add_loop_test(t, next_one_is_named, 0, 5);
    tcase_add_test(t, moves_now_and_then);
}

int main(void)
{
    return suite_run("hang_blame", 120, NULL, NULL, add);
}
