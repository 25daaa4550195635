/* r2_ctl rehearse: a NIC fails for a while in every job of its host, though nothing is wrong with
 * it (docs/control.md). */
#include "tests/unit/drain_rig.h"

#include <time.h>

#include "plugin/admin/r2_rehearse.h"

static uint64_t real_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static void poll_files(int side)
{
    rig_enter(&rig->side[side]);
    r2_rehearse_poll(rig->side[side].inst);
    rig_kick(&rig->side[side]);
}

/* The host of @side has a run directory, and its process has looked there. */
static void start_with_dir(int nics, int side, const char *const *options)
{
    start(nics, options);
    host_dir(side);
    poll_files(side);
}

static void write_text(int side, const char *text)
{
    char tmp[128], name[128];

    snprintf(tmp, sizeof(tmp), "%s/tmp", dir);
    snprintf(name, sizeof(name), "%s/nccl-net-r2.%u.rehearse", dir, (unsigned)geteuid());
    file_write_at(tmp, text, 0600);
    ck_assert_int_eq(rename(tmp, name), 0);
    poll_files(side);
}

/* @ago_us: given so long ago. */
static void rehearse(int side, const char *nic, uint64_t ago_us, unsigned ms)
{
    char text[128];

    snprintf(text, sizeof(text), "%s %llu %u\n", nic, (unsigned long long)(real_us() - ago_us), ms);
    write_text(side, text);
}

static void end(void)
{
    stop();
    host_dir_remove();
}

/* Under way on both paths as it begins: nothing is lost, and the path stays out for the whole time,
 * at either end. Then it is used again as after any failure, whatever the policy. */
START_TEST(a_nic_fails_and_is_back)
{
    const char *manual[] = {"NCCL_R2_FAILBACK=manual", NULL};
    int here = _i & 1;

    start_with_dir(2, here, _i & 2 ? manual : NULL);
    messages(2);
    begin_message();
    rig_run(rig, 20 * RIG_US);
    rehearse(here, "fab0", 0, 2000);
    ck_assert_uint_eq(rig->side[here].inst->drain.nics, 1);
    ck_assert_int_eq(comm(here)->fo.path[0].why.fault, IB_FAULT_REHEARSAL);
    end_message();
    wait_settled(0);
    ck_assert(!is_up(0, 0) && !is_up(1, 0));
    ck_assert(is_up(0, 1) && is_up(1, 1));
    ck_assert_int_eq(comm(!here)->fo.path[0].peer_reason, IB_FAULT_REHEARSAL);
    rig_run(rig, 1900 * RIG_MS);
    messages(2);
    ck_assert_uint_eq(inc(0, 0), 1);
    rig_run(rig, 200 * RIG_MS);
    poll_files(here);
    ck_assert_uint_eq(rig->side[here].inst->drain.nics, 0);
    ck_assert_uint_le(wait_up(0, 2), 200 * RIG_MS);
    carries(0);
    ck_assert_int_eq(comm(0)->fo.cause.code, PROBE_CODE_NONE); /* no verdict of an error to come */
    end();
}
END_TEST

/* What nothing else can carry goes on. */
START_TEST(a_last_path_stays)
{
    start_with_dir(2, _i, NULL);
    rig_fault(rig, "h0:n1 down");
    rig_run(rig, 20 * RIG_MS);
    ck_assert(!is_up(0, 1) && is_up(0, 0));
    rehearse(_i, "fab0", 0, 2000);
    ck_assert_uint_eq(rig->side[_i].inst->drain.rehearsed, 1);
    messages(2);
    ck_assert(is_up(0, 0) && is_up(1, 0));
    ck_assert_uint_eq(inc(0, 0), 1);
    end();
}
END_TEST

/* One that is out of the time that it was meant for: before the process, or long ago. */
START_TEST(what_is_past_is_not_begun)
{
    start(2, NULL);
    host_dir(0);
    rehearse(0, "fab0", 0, 2000); /* its first look */
    ck_assert_uint_eq(rig->side[0].inst->drain.rehearsed, 0);
    rehearse(0, "fab0", 60000000, 2000);
    ck_assert_uint_eq(rig->side[0].inst->drain.rehearsed, 0);
    messages(2);
    ck_assert(is_up(0, 0) && is_up(1, 0));
    end();
}
END_TEST

START_TEST(it_ends_when_that_is_said)
{
    start_with_dir(2, 0, NULL);
    rehearse(0, "fab0", 0, 3600000);
    wait_settled(0);
    ck_assert_uint_eq(rig->side[0].inst->drain.rehearsed, 1);
    rehearse(0, "fab0", 0, 0);
    ck_assert_uint_eq(rig->side[0].inst->drain.rehearsed, 0);
    ck_assert_uint_eq(rig->side[0].inst->drain.nics, 0);
    wait_up(0, 2);
    carries(0);
    end();
}
END_TEST

/* A drain of the same NIC goes on behind it. */
START_TEST(a_drain_outlasts_it)
{
    start_with_dir(2, 0, NULL);
    rehearse(0, "fab0", 0, 100);
    drain(0, 1);
    rig_run(rig, 150 * RIG_MS);
    poll_files(0);
    ck_assert_uint_eq(rig->side[0].inst->drain.rehearsed, 0);
    ck_assert_uint_eq(rig->side[0].inst->drain.nics, 1);
    rig_run(rig, 500 * RIG_MS);
    ck_assert(!is_up(0, 0));
    drain(0, 0);
    wait_up(0, 2);
    end();
}
END_TEST

START_TEST(without_failover_nothing_ends)
{
    const char *off[] = {"NCCL_R2_FAILOVER=off", NULL};

    start_with_dir(2, 0, off);
    rehearse(0, "fab0", 0, 2000);
    ck_assert_uint_eq(rig->side[0].inst->drain.rehearsed, 1);
    messages(2);
    ck_assert(is_up(0, 0) && is_up(1, 0));
    end();
}
END_TEST

START_TEST(text_of_a_file)
{
    static const struct {
        const char *text;
        int n; /* -1: no such file */
        uint32_t ms;
    } row[] = {
        {"", 0, 0},
        {"# nothing\n", 0, 0},
        {"mlx5_0 17 1000\n", 1, 1000},
        {"mlx5_0:2\t17 0 # ends\r\n", 1, 0},
        {"a 1 2\nb 2 3600000\n", 2, 3600000},
        {"a 1 3600001\n", -1, 0},
        {"a 1\n", -1, 0},
        {"a 1 \n", -1, 0},
        {"a 0 1\n", -1, 0},
        {"a 1 2x\n", -1, 0},
        {"a 1 -2\n", -1, 0},
        {"a 1 2 3\n", 1, 2},
        {"* 1 2\n", -1, 0},
        {"a 1 99999999999999999999\n", -1, 0},
    };
    struct r2_rundir_command command[R2_RUNDIR_NAMES];
    char why[128];

    for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        int n = r2_rundir_commands_parse(row[i].text, strlen(row[i].text), R2_RUNDIR_REHEARSE,
                                         command, why, sizeof(why));

        ck_assert_msg(n == row[i].n, "row %u: %d", i, n);
        if (n > 0) {
            ck_assert_uint_eq(command[n - 1].ms, row[i].ms);
        }
    }
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, a_nic_fails_and_is_back, 0, 4);
    tcase_add_loop_test(t, a_last_path_stays, 0, 2);
    tcase_add_test(t, what_is_past_is_not_begun);
    tcase_add_test(t, it_ends_when_that_is_said);
    tcase_add_test(t, a_drain_outlasts_it);
    tcase_add_test(t, without_failover_nothing_ends);
    tcase_add_test(t, text_of_a_file);
}

int main(void)
{
    return run_suite("rehearsals", add);
}
