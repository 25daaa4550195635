/* What of a job goes into the history of NICs: whole instances over the fabric, both ends in one
 * run directory. */
#include "tests/unit/report_rig.h"

#include <sys/file.h>

#include "telemetry/r2_nic_file.h"
#include "telemetry/r2_nic_log.h"

static struct r2_nic_history h;

static const char *path(void)
{
    static char name[128];

    ck_assert_int_eq(r2_nic_file_path(dir, geteuid(), name, sizeof(name)), 0);
    return name;
}

static enum r2_nic_file_result get(void)
{
    char why[700];

    return r2_nic_file_read(path(), geteuid(), &h, why, sizeof(why));
}

static void finish(void)
{
    unlink(path());
    end();
}

/* A verdict as others make it: @code, of NIC @nic. */
static void cause(const char *code, int nic, int severity, const char *peer)
{
    struct r2_cause v = {.code = code, .severity = severity, .nic = nic, .peer_host = peer};

    rig_enter(&rig->side[0]);
    r2_nic_log_cause(rig->side[0].inst, &v);
}

/* Port down at our end: once, by the end whose NIC it is. */
START_TEST(a_failure_of_ours_is_entered)
{
    const struct ib_nic *nic;

    begin(2, NULL);
    messages(4);
    ck_assert_int_eq(get(), R2_NIC_FILE_NONE);
    rig_fault(rig, "h0:n1 down");
    messages(4);
    rig_run(rig, 4 * RIG_S); /* until both ends have decided */
    ck_assert_int_eq(get(), R2_NIC_FILE_OK);
    nic = &rig->side[0].inst->nics.nic[1];
    ck_assert_uint_eq(h.nics, 1);
    ck_assert_uint_eq(h.nic[0].guid, nic->guid);
    ck_assert_uint_eq(h.nic[0].port, nic->port);
    ck_assert_str_eq(h.nic[0].name, nic->dev_name);
    ck_assert_uint_eq(h.nic[0].hour[0].failures, 1);
    ck_assert_uint_eq(h.nic[0].jobs, 1);
    ck_assert_uint_eq(h.nic[0].hour[0].slow_to, 0);
    finish();
}
END_TEST

START_TEST(what_is_no_failure_of_ours_is_not)
{
    begin(2, NULL);
    messages(4);
    cause("R2-F01", 1, 2, "h1");  /* the path's */
    cause("R2-F03", 1, 2, "h1");  /* nobody knows whose */
    cause("R2-L01", -1, 2, "h1"); /* the peer's */
    cause("R2-H01", -1, 1, "h1");
    cause("R2-G02", 1, 0, "h1"); /* as fast as the others again */
    cause(NULL, 1, 2, "h1");
    drain(0, 2);
    messages(4);
    rig_run(rig, RIG_S);
    ck_assert_int_eq(get(), R2_NIC_FILE_NONE);
    cause("R2-G02", 1, 1, "h1");
    rig_run(rig, 2 * RIG_S);
    ck_assert_int_eq(get(), R2_NIC_FILE_OK);
    ck_assert_uint_eq(h.nic[0].hour[0].failures, 0);
    ck_assert_int_eq(__builtin_popcount(h.nic[0].hour[0].slow_to), 1);
    cause("R2-G02", 1, 1, NULL); /* itself: no single peer's */
    rig_run(rig, 2 * RIG_S);
    ck_assert_int_eq(get(), R2_NIC_FILE_OK);
    ck_assert_uint_eq(h.nic[0].hour[0].failures, 0);
    ck_assert_int_gt(__builtin_popcount(h.nic[0].hour[0].slow_to), 1);
    finish();
}
END_TEST

/* Somebody else has the file: it is entered later, at the next turn, or at the end. */
START_TEST(a_busy_file_is_tried_again)
{
    int fd;

    begin(2, NULL);
    messages(4);
    cause("R2-N01", 0, 2, "h1");
    ck_assert_int_eq(get(), R2_NIC_FILE_NONE); /* not while connections settle */
    rig_run(rig, 2 * RIG_S);
    ck_assert_int_eq(get(), R2_NIC_FILE_OK);
    fd = open(path(), O_RDWR);
    ck_assert_int_eq(flock(fd, LOCK_EX), 0);
    cause("R2-N02", 1, 2, "h1");
    rig_run(rig, 2 * RIG_S);
    ck_assert_int_eq(get(), R2_NIC_FILE_OK);
    ck_assert_uint_eq(h.nics, 1);
    close(fd);
    if (_i) {
        r2_report_stop(rig->side[0].inst);
    } else {
        rig_run(rig, 2 * RIG_S);
    }
    ck_assert_int_eq(get(), R2_NIC_FILE_OK);
    ck_assert_uint_eq(h.nics, 2);
    finish();
}
END_TEST

START_TEST(none_without_statistics)
{
    static const char *const off[] = {"NCCL_R2_STATS=off", NULL};

    begin(2, off);
    ck_assert_ptr_null(rig->side[0].inst->telemetry.nics);
    cause("R2-N01", 0, 2, "h1");
    ck_assert_int_eq(get(), R2_NIC_FILE_NONE);
    end();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, a_failure_of_ours_is_entered);
    tcase_add_test(t, what_is_no_failure_of_ours_is_not);
    tcase_add_loop_test(t, a_busy_file_is_tried_again, 0, 2);
    tcase_add_test(t, none_without_statistics);
}

int main(void)
{
    return run_suite("nic_log", add);
}
