/* NCCL_R2_FAILBACK=manual: what failed stays out until the administrator says otherwise
 * (docs/recovery.md). */
#include "tests/unit/drain_rig.h"

#include "plugin/admin/r2_failback.h"
#include "core/r2_policy.h"

#define MANUAL "NCCL_R2_FAILBACK=manual"

/* --- decisions --- */

START_TEST(may_table)
{
    static const struct {
        enum r2_failback policy;
        int said, any, may;
    } row[] = {
        {R2_FAILBACK_AUTO, 0, 0, 1},   {R2_FAILBACK_AUTO, 0, 1, 1},   {R2_FAILBACK_AUTO, 1, 1, 1},
        {R2_FAILBACK_MANUAL, 0, 0, 1}, {R2_FAILBACK_MANUAL, 0, 1, 0}, {R2_FAILBACK_MANUAL, 1, 0, 1},
        {R2_FAILBACK_MANUAL, 1, 1, 1}, {R2_FAILBACK_NEVER, 0, 0, 0},  {R2_FAILBACK_NEVER, 1, 0, 0},
        {R2_FAILBACK_NEVER, 1, 1, 0},
    };

    for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        ck_assert_msg(r2_failback_may(row[i].policy, row[i].said, row[i].any) == row[i].may,
                      "row %u", i);
    }
}
END_TEST

START_TEST(words_of_a_file)
{
    static const struct {
        const char *text;
        int n; /* -1: no such file */
        const char *name;
        uint64_t number; /* of the last */
    } row[] = {
        {"", 0, NULL, 0},
        {"# a comment\n\n  \t# another\n", 0, NULL, 0},
        {"mlx5_0 17\n", 1, "mlx5_0", 17},
        {"mlx5_0:2\t17 # why", 1, "mlx5_0:2", 17},
        {"* 9223372036854775807\r\n", 1, "*", 9223372036854775807u},
        {" a 1\n b 2\n* 3\n", 3, "*", 3},
        {"mlx5_0\n", -1, NULL, 0},
        {"mlx5_0 \n", -1, NULL, 0},
        {"mlx5_0 0\n", -1, NULL, 0},
        {"mlx5_0 -1\n", -1, NULL, 0},
        {"mlx5_0 1x\n", -1, NULL, 0},
        {"mlx5_0 99999999999999999999\n", -1, NULL, 0},
        {"mlx5_017 \n", -1, NULL, 0},
        {"^mlx5_0 1\n", -1, NULL, 0},
        {"** 1\n", -1, NULL, 0},
        {"a,b 1\n", -1, NULL, 0},
        {"17\n", -1, NULL, 0},
    };
    struct r2_rundir_command word[R2_RUNDIR_NAMES];
    char many[R2_RUNDIR_TEXT_MAX], why[128];

    for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        int n = r2_rundir_commands_parse(row[i].text, strlen(row[i].text), R2_RUNDIR_FAILBACK, word,
                                         why, sizeof(why));

        ck_assert_msg(n == row[i].n, "row %u: %d", i, n);
        if (n > 0) {
            ck_assert_str_eq(word[n - 1].name, row[i].name);
            ck_assert_uint_eq(word[n - 1].number, row[i].number);
        }
    }
    for (int i = 0; i <= R2_RUNDIR_NAMES; i++) {
        snprintf(many + 4 * i, 5, "a 1\n");
    }
    ck_assert_int_eq(r2_rundir_commands_parse(many, 4 * R2_RUNDIR_NAMES, R2_RUNDIR_FAILBACK, word,
                                              why, sizeof(why)),
                     R2_RUNDIR_NAMES);
    ck_assert_int_eq(r2_rundir_commands_parse(many, 4 * R2_RUNDIR_NAMES + 4, R2_RUNDIR_FAILBACK,
                                              word, why, sizeof(why)),
                     -1);
    ck_assert_int_eq(
        r2_rundir_commands_parse("a 1\0b 2", 7, R2_RUNDIR_FAILBACK, word, why, sizeof(why)), -1);
}
END_TEST

/* --- connections --- */

/* What the administrator of the host of the run directory says; the process looks when it is due.
 */
static void command(const char *text)
{
    char tmp[128], name[128];

    snprintf(tmp, sizeof(tmp), "%s/tmp", dir);
    file_write_at(tmp, text, 0644);
    snprintf(name, sizeof(name), "%s/nccl-net-r2.%u.failback", dir, (unsigned)geteuid());
    ck_assert_int_eq(rename(tmp, name), 0);
}

/* NIC 0 of host 0 fails and answers again; the connection goes on without it. */
static void fail_and_mend(void)
{
    rig_fault(rig, "h0:n0 down");
    messages(2);
    wait_settled(0);
    rig_fault(rig, "h0:n0 up");
}

static void stays_out(uint64_t ns)
{
    uint32_t before = inc(0, 0);

    rig_run(rig, ns);
    messages(2);
    ck_assert(!is_up(0, 0) && !is_up(1, 0));
    ck_assert_uint_eq(inc(0, 0), before);
}

/* @said: at which host; both NICs of path 0 are called fab0. */
static void begin_manual(int said, const char *const *more)
{
    start(3, more);
    host_dir(said);
    rig_run(rig, RIG_S); /* the directory was looked at */
    messages(2);
}

static void end_manual(void)
{
    stop();
    host_dir_remove();
}

START_TEST(out_until_it_is_said_and_each_time_again)
{
    begin_manual(_i, (const char *[]){MANUAL, NULL});
    fail_and_mend();
    stays_out(100 * RIG_S);
    ck_assert_uint_eq(rig_count(rig, 1, FO_MSG_OPEN), 0);
    ck_assert_uint_eq(r2_failback_waiting(comm(0)), 1);
    ck_assert_uint_eq(r2_failback_waiting(comm(1)), 1);
    command("fab0 1\n");
    ck_assert_uint_ge(wait_up(0, 2), 50 * RIG_MS); /* still by its hold time */
    ck_assert_uint_eq(r2_failback_waiting(comm(0)) | r2_failback_waiting(comm(1)), 0);
    carries(0);
    fail_and_mend(); /* a later failure: the word is used up */
    stays_out(100 * RIG_S);
    command("fab0 1 # the same word, written again\n");
    stays_out(10 * RIG_S);
    command("fab1 2\nfab0 1\n"); /* another NIC */
    stays_out(10 * RIG_S);
    command("fab1 2\n* 3\n");
    wait_up(0, 3);
    carries(0);
    end_manual();
}
END_TEST

/* Words that were there when the process began are about failures of others. */
START_TEST(an_old_word_is_about_old_failures)
{
    start(3, (const char *[]){MANUAL, NULL});
    host_dir(_i);
    command("* 5\n");
    rig_run(rig, RIG_S);
    fail_and_mend();
    stays_out(10 * RIG_S);
    command("* 4\n"); /* the file was lost, the clock set back: another number is another word */
    wait_up(0, 2);
    carries(0);
    end_manual();
}
END_TEST

/* It is said while the NIC is still down: it returns when it answers. */
START_TEST(a_word_before_the_repair)
{
    begin_manual(_i, (const char *[]){MANUAL, NULL});
    rig_fault(rig, "h0:n0 down");
    messages(2);
    wait_settled(0);
    command("fab0 1\n");
    stays_out(10 * RIG_S);
    rig_fault(rig, "h0:n0 up");
    wait_up(0, 2);
    carries(0);
    end_manual();
}
END_TEST

/* One end manual, at either; the word at either. */
START_TEST(one_end_is_enough_to_keep_it_out)
{
    begin_manual(_i & 1, (const char *[]){_i & 2 ? "1:" MANUAL : "0:" MANUAL, NULL});
    fail_and_mend();
    stays_out(10 * RIG_S);
    command("fab0 1\n");
    wait_up(0, inc(0, 0) + 1);
    carries(0);
    end_manual();
}
END_TEST

static int lost_left, lost_type;
static int lose_some(struct rig *r, int from, int type, union fo_body *body)
{
    int lost = lost_left > 0 &&
               (type == lost_type || (lost_type == FO_MSG_FAILBACK && type == FO_MSG_FAILBACK_OK) ||
                (lost_type == FO_MSG_FENCED && type == FO_MSG_DOWN));

    lost_left -= lost;
    return !lost;
}

START_TEST(the_word_is_repeated_until_it_is_answered)
{
    begin_manual(_i, (const char *[]){MANUAL, NULL});
    fail_and_mend();
    rig->filter = lose_some;
    lost_type = FO_MSG_FAILBACK;
    lost_left = 6;
    command("fab0 1\n");
    wait_up(0, 2);
    ck_assert_int_eq(lost_left, 0);
    lost_left = (int)rig_count(rig, _i, FO_MSG_FAILBACK);
    ck_assert_int_gt(lost_left, 3);
    rig->filter = NULL;
    rig_run(rig, 10 * RIG_S);
    ck_assert_int_eq(lost_left, (int)rig_count(rig, _i, FO_MSG_FAILBACK)); /* and then no more */
    carries(0);
    end_manual();
}
END_TEST

/* A word covers attempts until one stands: here the first ones get no answer, or one that comes too
 * late. */
START_TEST(an_attempt_that_fails_does_not_use_it_up)
{
    static const int type[] = {FO_MSG_OPEN, FO_MSG_OPEN_OK, FO_MSG_OPEN_UP};

    begin_manual(_i & 1, (const char *[]){MANUAL, NULL});
    fail_and_mend();
    rig->filter = lose_some;
    lost_type = type[_i / 2];
    lost_left = 1000000;
    command("fab0 1\n");
    rig_run(rig, 8 * RIG_S); /* longer than an exchange is waited for */
    ck_assert_int_lt(lost_left, 1000000);
    ck_assert(!is_up(0, 0));
    rig->filter = NULL;
    wait_up(0, 3);
    carries(0);
    end_manual();
}
END_TEST

/* The peer has not heard of the failure when it hears the word. */
START_TEST(a_word_that_overtakes_the_failure)
{
    begin_manual(1, (const char *[]){MANUAL, NULL});
    rig->filter = lose_some;
    lost_type = FO_MSG_FENCED;
    lost_left = 1000000;
    rig_enter(&rig->side[1]);
    fo_fault(&comm(1)->fo, 0, &(struct ib_fault_info){.fault = IB_FAULT_QP});
    rig_kick(&rig->side[1]);
    command("fab0 1\n");
    rig_run(rig, RIG_S);
    ck_assert_int_lt(lost_left, 1000000);
    ck_assert_uint_gt(rig_count(rig, 1, FO_MSG_FAILBACK), 0);
    ck_assert(is_up(0, 0)); /* or this test tells nothing */
    rig->filter = NULL;
    wait_up(0, 2);
    carries(0);
    end_manual();
}
END_TEST

/* Availability wins: what comes back first is used when nothing is left, and only that. */
START_TEST(the_last_path_needs_no_word)
{
    begin_manual(0, (const char *[]){MANUAL, NULL});
    rig_fault(rig, "h0:n0 down");
    messages(2);
    rig_fault(rig, "h0:n1 down");
    messages(2);
    rig_fault(rig, "h0:n2 down");
    rig_run(rig, RIG_S);
    ck_assert_uint_eq(comm(0)->conn.up | comm(1)->conn.up, 0);
    rig_fault(rig, "h0:n1 up");
    wait_up(1, 2);
    messages(2);
    rig_fault(rig, "h0:n0 up");
    stays_out(20 * RIG_S);
    command("* 1\n");
    wait_up(0, 2);
    end_manual();
}
END_TEST

/* A drained NIC has not failed: undrained, it returns by itself. So does what failed on it
 * meanwhile. */
START_TEST(undrain_is_a_word)
{
    start(3, (const char *[]){MANUAL, NULL});
    messages(2);
    drain(_i & 1, 1);
    messages(2);
    wait_settled(0);
    if (_i & 2) {
        rig_fault(rig, "h0:n0 down");
        rig_run(rig, RIG_S);
        rig_fault(rig, "h0:n0 up");
    }
    rig_run(rig, RIG_S);
    ck_assert(!is_up(0, 0) && !is_up(1, 0));
    drain(_i & 1, 0);
    wait_up(0, 2);
    carries(0);
    stop();
}
END_TEST

/* Numbers of a peer that means no good: what fails after it spoke is not released by them. */
START_TEST(no_number_of_the_peer_reaches_ahead)
{
    union fo_body b = {.failback = {.path = 0}};

    begin_manual(0, (const char *[]){MANUAL, NULL});
    for (unsigned i = 0; i < 2; i++) {
        b.failback.inc = i ? 0x7fffffff : 2;
        for (int side = 0; side < 2; side++) {
            b.failback.dst = comm(side)->id;
            b.failback.src = comm(!side)->id;
            rig_inject(rig, side, FO_MSG_FAILBACK, &b);
            b.failback.path = 7; /* there is none */
            rig_inject(rig, side, FO_MSG_FAILBACK, &b);
            b.failback.path = 0;
        }
    }
    rig_run(rig, RIG_S);
    fail_and_mend();
    wait_up(0, 2); /* of its present incarnation it may speak */
    fail_and_mend();
    stays_out(10 * RIG_S);
    end_manual();
}
END_TEST

/* A file that anybody could have written, or that is none, commands nothing. */
START_TEST(only_a_file_of_the_administrator)
{
    char name[128];

    begin_manual(0, (const char *[]){MANUAL, NULL});
    fail_and_mend();
    snprintf(name, sizeof(name), "%s/nccl-net-r2.%u.failback", dir, (unsigned)geteuid());
    command("fab0\n");
    stays_out(2 * RIG_S);
    snprintf(name, sizeof(name), "%s/tmp", dir);
    file_write_at(name, "fab0 7\n", 0666);
    {
        char to[128];

        snprintf(to, sizeof(to), "%s/nccl-net-r2.%u.failback", dir, (unsigned)geteuid());
        ck_assert_int_eq(rename(name, to), 0);
        stays_out(2 * RIG_S);
        ck_assert_int_eq(chmod(to, 0644), 0);
    }
    wait_up(0, 2);
    end_manual();
}
END_TEST

static unsigned refusals;
static int lose_refusals(struct rig *r, int from, int type, union fo_body *body)
{
    int is = from == 0 && type == FO_MSG_DOWN && body->down.reason == IB_FAULT_SETUP &&
             body->down.inc == 2;

    refusals += (unsigned)is;
    return !is;
}

/* R is free to try and S is not: an incarnation that S refused before the word stays refused after
 * it, for that refusal may be late. */
START_TEST(what_was_refused_before_the_word_stays_refused)
{
    unsigned before;

    begin_manual(0, (const char *[]){"0:" MANUAL, NULL});
    refusals = 0;
    rig->filter = lose_refusals;
    fail_and_mend();
    rig_run(rig, 3 * RIG_S);
    ck_assert_uint_gt(refusals, 0);
    command("fab0 1\n");
    rig_run(rig, 100 * RIG_MS);
    before = refusals;
    rig_run(rig, 500 * RIG_MS);
    ck_assert_uint_gt(refusals, before);
    ck_assert_uint_eq(inc(0, 0), 1);
    wait_up(0, 3);
    carries(0);
    ck_assert_uint_eq(comm(0)->fo.switches, 1);
    end_manual();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, may_table);
    tcase_add_test(t, words_of_a_file);
    tcase_add_loop_test(t, out_until_it_is_said_and_each_time_again, 0, 2);
    tcase_add_loop_test(t, an_old_word_is_about_old_failures, 0, 2);
    tcase_add_loop_test(t, a_word_before_the_repair, 0, 2);
    tcase_add_loop_test(t, one_end_is_enough_to_keep_it_out, 0, 4);
    tcase_add_loop_test(t, the_word_is_repeated_until_it_is_answered, 0, 2);
    tcase_add_loop_test(t, an_attempt_that_fails_does_not_use_it_up, 0, 6);
    tcase_add_test(t, a_word_that_overtakes_the_failure);
    tcase_add_test(t, the_last_path_needs_no_word);
    tcase_add_loop_test(t, undrain_is_a_word, 0, 4);
    tcase_add_test(t, no_number_of_the_peer_reaches_ahead);
    tcase_add_test(t, what_was_refused_before_the_word_stays_refused);
    tcase_add_test(t, only_a_file_of_the_administrator);
}

int main(void)
{
    return run_suite("failback: manual", add);
}
