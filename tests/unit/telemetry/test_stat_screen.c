/*
 * r2_stat --watch on a terminal of 80 columns and 24 lines, which is a pseudo terminal here, with
 * keys: what it shows of statistics made by hand, in which colours, and that no line is longer.
 */
#include "tests/unit/telemetry/screen_rig.h"

/* The figures of two looks are those of the process' own times. */
START_TEST(rates)
{
    start("0.1", NULL);
    wait_for("rocep193s0f0 up             -        -     1     0", true);
    nic[0].sent += 25000000;
    nic[0].received += 5000000;
    nic[3].sent += 1000;
    updated += 2000000000;
    put(0);
    wait_for("rocep193s0f0 up       12.5 MB   2.5 MB     1     0", true);
    wait_for("rocep193s0f3 up         500 B      0 B     1     0", true);
    wait_for("all                   12.5 MB   2.5 MB", true);
    wait_for("job slurm 81233, user ", true);
    key("q");
    end();
}
END_TEST

/* Who has not written for a while moves nothing. */
START_TEST(rates_end)
{
    updated -= 2 * LATER;
    put(0);
    start("0.1", NULL);
    wait_for("rocep193s0f0 up ", true);
    nic[0].sent += 25000000;
    updated += 1000000000;
    put(0);
    wait_for("rocep193s0f0 up           0 B      0 B", true);
    key("q");
    end();
}
END_TEST

START_TEST(colours)
{
    static const char digit[] = {0, 1, 3, 6}; /* plain, red, yellow, cyan */

    nic[1].state = R2_STAT_NIC_DOWN;
    snprintf(nic[1].blamed, sizeof(nic[1].blamed),
             "R2-L01 rocep193s0f1 port down; job continues at 2/4; check link");
    nic[1].blamed_at = updated;
    nic[2].moved = 3;
    nic[2].trouble_at = updated;
    snprintf(nic[2].trouble, sizeof(nic[2].trouble), "%s",
             "a reason that has so many words that it does not fit behind the other columns of it");
    nic[3].drained = 1;
    nic[3].moved = 1; /* as it is to be */
    snprintf(nic[3].why, sizeof(nic[3].why), "drained by root: new cable");
    put(0);
    if (_i) {
        setenv("NO_COLOR", "1", 1);
    }
    start("0.1", NULL);
    wait_for("h0 ", true);
    ck_assert_int_eq(wait_for("slurm 81233", true), 1);
    wait_for(", every 0.1 s: 1 job, 2 of 4 NICs in trouble ", true);
    wait_for("R2-L01 port down", true);
    wait_for("             a reason that has so many words that it does not fit", true);
    for (int i = 0; i < 4; i++) {
        char name[32];

        snprintf(name, sizeof(name), "rocep193s0f%d ", i);
        ck_assert_int_eq(term.colour[wait_for(name, true)][0], _i ? 0 : digit[i]);
    }
    key("q");
    end();
}
END_TEST

START_TEST(keys)
{
    put(40);
    start("300", NULL);
    wait_for("faults 1, switches 1, failbacks 0, gave up 0, longest stall 8.73 ms, ", true);
    wait_for("posted again 262.1 kB", true); /* on a line of its own */
    wait_for("q quit  c connections  h history  l times  p pause  + - interval  ? help", true);
    key("c");
    wait_for("send rocep193s0f0 h1/rocep193s0f0         5.0 MB  rocep193s0f0 25%,", true);
    wait_for("               rocep193s0f1 25%, rocep193s0f2 25%, rocep193s0f3 25%", true);
    key("ch");
    wait_for("PATHS", false);
    wait_for("event number 40, which ", true);
    wait_for(", lines 1-22 of 91", true); /* two of each event */
    key("jjj\033[B");
    wait_for(", lines 5-26 of 91", true);
    key("\033[A\033[5~");
    wait_for(", lines 1-22 of 91", true);
    for (int i = 0; i < 20; i++) {
        key(" ");
    }
    wait_for("event number 1, which ", true);
    key("b");
    wait_for(", lines 49-70 of 91", true);
    key("\033OA\033[5~\033[6~");
    wait_for(", lines 48-69 of 91", true);
    key("k56AB\033[1;5B"); /* typed: no keys of theirs */
    wait_for(", lines 47-68 of 91", true);
    key("hl");
    wait_for("event", false);
    wait_for("NIC          SENDS          TIMED", true);
    key("-");
    wait_for(", every 60 s: ", true);
    key("?");
    wait_for("p           pause; again: go on", true);
    key("?p");
    wait_for(", paused, else every 60 s: ", true);
    updated++;
    put(41);
    key("h"); /* shows what was seen before */
    wait_for("event number 40, which ", true);
    key("p+");
    wait_for(", every 300 s: ", true);
    key("+");
    key("------");
    wait_for(", every 1 s: ", true);
    wait_for("event number 41, which ", true);
    key("-----");
    wait_for(", every 0.1 s: ", true);
    key("q");
    end();
}
END_TEST

/* Of a terminal that becomes narrower, too. */
START_TEST(no_line_is_too_long)
{
    put(3);
    start("300", "-cHl");
    wait_for("HISTORY", true);
    for (int columns = 79; columns > 8; columns -= 14) {
        resize(columns, ROWS);
        wait_for("job slurm", true); /* which begins the second line */
    }
    ck_assert_int_eq(term.wraps, 0);
    ck_assert_int_eq(kill(term.pid, SIGTERM), 0);
    end();
}
END_TEST

/* NICs of a host are counted once, and those of last resort not at all. */
START_TEST(two_jobs)
{
    struct r2_stat *file = stat_file;
    char why[700];

    nic[1].state = R2_STAT_NIC_DOWN;
    nic[3].last_resort = 1;
    put(0);
    stat_file = r2_stat_create(dir, geteuid(), 8, why, sizeof(why));
    ck_assert_msg(stat_file != NULL, "%s", why);
    job = "81234";
    put(0);
    start("300", NULL);
    wait_for(": 2 jobs, 1 of 3 NICs in trouble", true);
    ck_assert_int_eq(wait_for("job slurm 81234", true) - wait_for("job slurm 81233", true), 8);
    key("q");
    end();
    r2_stat_remove(stat_file);
    stat_file = file;
}
END_TEST

/* As many bytes as there is room for, none of them zero. */
static void fill(char *text, size_t room)
{
    static const char what[] = "\033[31mX\033\033]0;t\007\t\n\r\b\x9b\x7f\xc3\xa4";

    for (size_t i = 0; i < room; i++) {
        text[i] = what[i % (sizeof(what) - 1)];
    }
}

/* Whatever another user's process writes, it is letters that come to the terminal, and figures. */
START_TEST(hostile)
{
    struct r2_stat_who who = {.pid = -1, .start = UINT64_MAX, .nics = 4, .conns = 1, .history = 3};
    struct r2_stat_conn conn = {.id = 1, .is_send = 1, .npaths = 4, .standing = 1};
    struct r2_stat_event e = {.kind = 255, .severity = 255};

    start("0.1", "-cHl");
    wait_for("job slurm", true);
    fill(who.command, sizeof(who.command));
    fill(who.host, sizeof(who.host));
    fill(who.scheduler, sizeof(who.scheduler));
    fill(who.job, sizeof(who.job));
    fill(conn.peer_host, sizeof(conn.peer_host));
    fill(conn.why, sizeof(conn.why));
    fill(conn.path[0].peer_name, sizeof(conn.path[0].peer_name));
    conn.path[0].nic = conn.path[1].state = conn.dev = 255;
    conn.error = _i == 1;
    who.updated = updated + 1;
    for (unsigned i = 0; i < 4; i++) {
        fill(nic[i].name, sizeof(nic[i].name));
        fill(nic[i].why, sizeof(nic[i].why));
        fill(nic[i].trouble, sizeof(nic[i].trouble));
        fill(nic[i].blamed, sizeof(nic[i].blamed));
        nic[i].state = (uint8_t)i;
        nic[i].moved = nic[i].over = UINT32_MAX;
        r2_stat_put_nic(stat_file, i, &nic[i]);
    }
    for (e.no = 1; e.no <= 3; e.no++) {
        fill(e.text, sizeof(e.text));
        fill(e.code, sizeof(e.code));
        r2_stat_put_event(stat_file, &e);
    }
    r2_stat_put_conn(stat_file, 0, &conn);
    r2_stat_put_who(stat_file, &who);
    wait_for("?[31mX??]0;", true);
    key("cl"); /* for there to be room */
    for (int i = 0; i < 5; i++) {
        key(" ");
    }
    wait_for(" -1 ", true); /* the process of an event */
    key("bbbbb");
    nic[0].sent = UINT64_MAX;
    who.updated++;
    r2_stat_put_nic(stat_file, 0, &nic[0]);
    r2_stat_put_who(stat_file, &who);
    wait_for(" 18.4 EB", true); /* of UINT64_MAX in a nanosecond */
    key("q");
    end();
}
END_TEST

/* Of each severity its colour, of each connection what it is. */
START_TEST(rows_of_conns)
{
    struct r2_stat_conn c = {
        .id = 2, .dev = 1, .npaths = 1, .peer_host = "h2", .why = "the peer is gone"};

    put(0);
    r2_stat_put_conn(stat_file, 0, &c);
    start("0.1", "-cH");
    ck_assert_int_eq(term.colour[wait_for("recv rocep193s0f1 h2/? ", true)][0], 0);
    wait_for("begins", true);
    wait_for("nothing has happened", true);
    c.error = 1;
    r2_stat_put_conn(stat_file, 0, &c);
    ck_assert_int_eq(term.colour[wait_for("ended: the peer is gone", true)][0], 1);
    c.error = 0;
    c.standing = 1;
    c.path[0].state = R2_STAT_PATH_FENCED;
    r2_stat_put_conn(stat_file, 0, &c);
    wait_for("ended", false);
    ck_assert_int_eq(term.colour[wait_for("recv rocep193s0f1 h2/? ", true)][0], 3);
    put(1);
    ck_assert_int_eq(term.colour[wait_for("event number 1, ", true)][0], 3);
    severity = R2_EVENT_CRITICAL;
    updated++;
    put(2);
    ck_assert_int_eq(term.colour[wait_for("event number 2, ", true)][0], 1);
    severity = R2_EVENT_INFO;
    updated++;
    put(3);
    ck_assert_int_eq(term.colour[wait_for("event number 3, ", true)][0], 0);
    key("q");
    end();
}
END_TEST

START_TEST(unread)
{
    char path[128];
    FILE *f;

    snprintf(path, sizeof(path), "%s/nccl-net-r2.%u.0000000000000009.stat", dir,
             (unsigned)geteuid());
    f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fchmod(fileno(f), 0600), 0);
    start("0.1", NULL);
    wait_for(": 1 job, ", true);
    ck_assert_int_eq(wait_for("job slurm", true), 1);
    ck_assert_int_eq(fchmod(fileno(f), 0666), 0); /* it is nobody's any more */
    ck_assert_int_eq(term.colour[wait_for("1 file could not be read; the first one: ", true)][0],
                     3);
    key("?");
    wait_for("could not", false);
    key("q");
    end();
    fclose(f);
    unlink(path);
}
END_TEST

START_TEST(no_job)
{
    struct r2_stat *file = stat_file;

    stat_file = NULL;
    r2_stat_remove(file);
    start("300", NULL);
    wait_for("uses the plugin on this host; looked in ", true);
    key("?");
    wait_for("uses the plugin", false);
    key("q");
    end();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, rates);
    tcase_add_test(t, rates_end);
    tcase_add_loop_test(t, colours, 0, 2);
    tcase_add_test(t, keys);
    tcase_add_test(t, no_line_is_too_long);
    tcase_add_test(t, two_jobs);
    tcase_add_loop_test(t, hostile, 0, 2);
    tcase_add_test(t, rows_of_conns);
    tcase_add_test(t, unread);
    tcase_add_test(t, no_job);
}

int main(void)
{
    return suite_run("stat_screen", 2 * LIMIT_S, setup, teardown, add);
}
