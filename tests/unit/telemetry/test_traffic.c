/* The file of traffic: when a row is written and what it has, what stays when the process ends and
 * for how long, and what a reader makes of a file that lies; then whole instances. */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/times.h"
#include "tests/unit/fsize.h"
#include "tests/unit/report_rig.h"

#include "plugin/telemetry/r2_traffic_file.h"

#define REAL (1800000000 * S) /* of clock 0 */

static struct r2_traffic_view traffic;
static struct r2_traffic_cell cells[R2_TRAFFIC_NICS];
static char why[700];

static void setup(void)
{
    memset(cells, 0, sizeof(cells));
    snprintf(dir, sizeof(dir), "/tmp/r2-traffic-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
}

/* The file of @unique in the directory, of this user. */
static const char *file(uint64_t unique, const char *end)
{
    static char path[2][128];
    static int turn;
    char *p = path[turn++ % 2];

    snprintf(p, sizeof(path[0]), "%s/nccl-net-r2.%u.%016llx.%s", dir, (unsigned)geteuid(),
             (unsigned long long)unique, end);
    return p;
}

static struct r2_traffic *must_create(uint64_t unique, uint32_t nics)
{
    struct r2_traffic_head head = {.pid = 4711, .nics = nics, .host = "h0", .job = "81233"};
    struct r2_traffic *t;

    for (uint32_t i = 0; i < nics; i++) {
        snprintf(head.nic[i], sizeof(head.nic[i]), "mlx5_%u", i);
    }
    t = r2_traffic_create(file(unique, "stat"), &head, why, sizeof(why));
    ck_assert_msg(t != NULL, "%s", why);
    return t;
}

static void must_read(uint64_t unique)
{
    ck_assert_msg(r2_traffic_read(file(unique, "traffic"), &traffic, why, sizeof(why)) == 1, "%s",
                  why);
}

/* NIC @i of @nics has sent @sent by @ms. */
static void look_at(struct r2_traffic *t, uint64_t ms, int i, uint64_t sent)
{
    cells[i].sent = sent;
    cells[i].received = sent / 2;
    r2_traffic_look(t, cells, ms * 1000000, REAL + ms * 1000000);
}

START_TEST(a_second_is_a_row)
{
    struct r2_traffic *t = must_create(5, 2);
    struct stat st;

    for (uint64_t ms = 5000; ms <= 8000; ms += 100) {
        look_at(t, ms, 1, (ms - 5000) * 10);
    }
    must_read(5); /* while it lives */
    ck_assert_str_eq(traffic.head.host, "h0");
    ck_assert_str_eq(traffic.head.job, "81233");
    ck_assert_str_eq(traffic.head.nic[1], "mlx5_1");
    ck_assert_int_eq(traffic.head.pid, 4711);
    ck_assert_int_eq(traffic.rows, 3);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_uint_eq(traffic.row[i].no, i + 1);
        ck_assert_uint_eq(traffic.row[i].from, REAL + (5 + i) * S);
        ck_assert_uint_eq(traffic.row[i].to, REAL + (6 + i) * S);
        ck_assert_uint_eq(traffic.row[i].cell[1].sent, 10000 * (i + 1));
        ck_assert_uint_eq(traffic.row[i].cell[1].received, 5000 * (i + 1));
        ck_assert_uint_eq(traffic.row[i].cell[0].sent, 0);
    }
    look_at(t, 8200, 1, 40000);
    r2_traffic_close(t);
    must_read(5); /* what was seen last is there */
    ck_assert_int_eq(traffic.rows, 4);
    ck_assert_uint_eq(traffic.row[3].cell[1].sent, 40000);
    ck_assert_uint_eq(traffic.row[3].to - traffic.row[3].from, S / 5);
    ck_assert_int_eq(stat(file(5, "traffic"), &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    ck_assert_uint_eq((uint64_t)st.st_size, R2_TRAFFIC_AT(5, 2));
}
END_TEST

/* At rest nothing is written, and what begins then has its own seconds. */
START_TEST(at_rest_there_are_no_rows)
{
    struct r2_traffic *t = must_create(5, 2);

    for (uint64_t ms = 1000; ms < 100000; ms += 100) {
        look_at(t, ms, 0, 0);
    }
    must_read(5);
    ck_assert_int_eq(traffic.rows, 0);
    for (uint64_t ms = 100000; ms <= 101000; ms += 100) {
        look_at(t, ms, 0, ms);
    }
    for (uint64_t ms = 101100; ms < 200000; ms += 100) {
        look_at(t, ms, 0, 101000);
    }
    must_read(5);
    ck_assert_int_eq(traffic.rows, 2);
    ck_assert_uint_eq(traffic.row[0].from, REAL + 99900 * 1000000ull);
    ck_assert_uint_eq(traffic.row[0].to, REAL + 100900 * 1000000ull);
    ck_assert_uint_eq(traffic.row[1].cell[0].sent, 101000);
    r2_traffic_close(t);
    must_read(5);
    ck_assert_int_eq(traffic.rows, 2);
    r2_traffic_close(must_create(6, 2)); /* nothing was ever carried: nothing stays */
    ck_assert_int_ne(access(file(6, "traffic"), F_OK), 0);
}
END_TEST

START_TEST(states_are_kept)
{
    struct r2_traffic *t = must_create(5, R2_TRAFFIC_NICS);
    struct r2_traffic_cell cell[R2_TRAFFIC_NICS] = {{0}};

    r2_traffic_look(t, cell, S, REAL);
    for (unsigned i = 0; i < R2_TRAFFIC_NICS; i++) {
        cell[i].state = (uint8_t)(i % R2_TRAFFIC_STATES);
    }
    r2_traffic_look(t, cell, 2 * S, REAL + S);
    r2_traffic_close(t);
    must_read(5);
    ck_assert_int_eq(traffic.rows, 1);
    for (unsigned i = 0; i < R2_TRAFFIC_NICS; i++) {
        ck_assert_uint_eq(traffic.row[0].cell[i].state, i % R2_TRAFFIC_STATES);
    }
}
END_TEST

/* The clock is set back: rows keep their length, and counters that seem to go back stay. */
START_TEST(clocks_and_counters_go_back)
{
    struct r2_traffic *t = must_create(5, 1);
    struct r2_traffic_cell cell = {.sent = 0};

    r2_traffic_look(t, &cell, S, REAL);
    cell.sent = 100;
    r2_traffic_look(t, &cell, 2 * S, REAL + S);
    cell.sent = 90;
    r2_traffic_look(t, &cell, 3 * S, REAL - 1000 * S);
    cell.sent = 200;
    r2_traffic_look(t, &cell, 4 * S, REAL - 999 * S);
    r2_traffic_close(t);
    must_read(5);
    ck_assert_int_eq(traffic.rows, 2);
    ck_assert_uint_eq(traffic.row[1].to - traffic.row[1].from, S);
    ck_assert_uint_eq(traffic.row[1].to, REAL - 999 * S);
    ck_assert_uint_eq(traffic.row[1].cell[0].sent, 200);
}
END_TEST

START_TEST(the_ring_keeps_the_last)
{
    struct r2_traffic *t = must_create(5, 8);
    struct stat st;

    for (uint64_t s = 0; s <= R2_TRAFFIC_ROWS + 50; s++) {
        look_at(t, 1000 * (s + 1), 7, s);
    }
    must_read(5);
    ck_assert_int_eq(traffic.rows, R2_TRAFFIC_ROWS);
    ck_assert_uint_eq(traffic.row[0].no, 51);
    ck_assert_uint_eq(traffic.row[R2_TRAFFIC_ROWS - 1].cell[7].sent, R2_TRAFFIC_ROWS + 50);
    r2_traffic_close(t);
    ck_assert_int_eq(stat(file(5, "traffic"), &st), 0);
    ck_assert_int_le(st.st_size, 110000); /* docs/diagnosis.md */
}
END_TEST

/* --- what stays --- */

static void leave(uint64_t unique, time_t when)
{
    struct timespec times[2] = {{.tv_sec = when}, {.tv_sec = when}};
    struct r2_traffic *t = must_create(unique, 1);

    look_at(t, 1000, 0, 0);
    look_at(t, 2000, 0, unique + 1);
    r2_traffic_close(t);
    ck_assert_int_eq(utimensat(AT_FDCWD, file(unique, "traffic"), times, 0), 0);
}

static int is_there(uint64_t unique)
{
    return access(file(unique, "traffic"), F_OK) == 0;
}

START_TEST(what_is_left_is_bounded)
{
    time_t now = 2000000000;
    int fd;

    leave(1000, now - R2_TRAFFIC_AGE_S - 1);
    leave(1001, now - R2_TRAFFIC_AGE_S - 1); /* its process lives, and has rested since */
    fd = open(file(1001, "stat"), O_CREAT | O_WRONLY, 0600);
    ck_assert_int_ge(fd, 0);
    close(fd);
    for (unsigned i = 0; i < R2_TRAFFIC_KEPT + 10; i++) {
        leave(i, now - 100 + (int)i);
    }
    r2_traffic_sweep(dir, geteuid() + 1, now);
    ck_assert_int_eq(is_there(0) && is_there(1000), 1); /* another user's */
    r2_traffic_sweep(dir, geteuid(), now);
    ck_assert_int_eq(is_there(1000), 0);
    ck_assert_int_eq(is_there(1001), 1);
    for (unsigned i = 0; i < R2_TRAFFIC_KEPT + 10; i++) {
        ck_assert_msg(is_there(i) == (i >= 10), "%u", i);
    }
    ck_assert_int_eq(unlink(file(1001, "stat")), 0);
    r2_traffic_sweep(dir, geteuid(), now + R2_TRAFFIC_AGE_S / 2);
    ck_assert_int_eq(is_there(1001), 0);
    ck_assert_int_eq(is_there(10), 1);
}
END_TEST

/* --- a file that lies --- */

static void refused(const char *path, const char *what)
{
    ck_assert_int_eq(r2_traffic_read(path, &traffic, why, sizeof(why)), -1);
    ck_assert_msg(strstr(why, what) != NULL, "%s", why);
    ck_assert_int_eq(traffic.rows, 0);
}

START_TEST(what_is_not_in_order_is_refused)
{
    uint64_t v, row[R2_TRAFFIC_WORDS(1)];
    const char *path = file(5, "traffic");
    char other[80];
    int fd;

    leave(5, 1);
    fd = open(path, O_RDWR);
    ck_assert_int_eq(pread(fd, row, sizeof(row), (off_t)R2_TRAFFIC_AT(1, 1)), sizeof(row));
    ck_assert_int_eq(pwrite(fd, row, sizeof(row), (off_t)R2_TRAFFIC_AT(3, 1)), sizeof(row));
    must_read(5);
    ck_assert_int_eq(traffic.rows, 1); /* in another place it is none */
    row[0] = 2;
    ck_assert_int_eq(pwrite(fd, row, sizeof(row), (off_t)R2_TRAFFIC_AT(2, 1)), sizeof(row));
    must_read(5);
    ck_assert_int_eq(traffic.rows, 1); /* half of it is another one */
    v = r2_traffic_shape() + 1;
    ck_assert_int_eq(pwrite(fd, &v, 8, 8), 8);
    refused(path, "no traffic of this version");
    v = r2_traffic_shape();
    ck_assert_int_eq(pwrite(fd, &v, 8, 8), 8);
    v = R2_TRAFFIC_NICS + 1;
    ck_assert_int_eq(pwrite(fd, &v, 4, offsetof(struct r2_traffic_head, nics)), 4);
    refused(path, "no traffic of this version");
    ck_assert_int_eq(ftruncate(fd, 1000), 0);
    refused(path, "is no file of traffic");
    close(fd);
    snprintf(other, sizeof(other), "%s/other", dir);
    ck_assert_int_eq(mkfifo(other, 0600), 0);
    refused(other, "no regular file"); /* and does not wait for a writer */
    unlink(other);
    ck_assert_int_eq(symlink(path, other), 0);
    refused(other, strerror(ELOOP));
}
END_TEST

/* Any bytes in it, and any length: rows are in order, states known, texts are texts. */
START_TEST(nothing_is_out_of_bounds)
{
    static uint8_t bytes[R2_TRAFFIC_ROWS_AT + 4096];
    uint32_t random = 1;
    int fd, rows = 0;

    leave(5, 1);
    fd = open(file(5, "traffic"), O_RDWR);
    for (int turn = 0; turn < 400; turn++) {
        ssize_t n;

        must_read(5);
        n = pread(fd, bytes, sizeof(bytes), 0);
        ck_assert_int_gt(n, R2_TRAFFIC_ROWS_AT);
        for (int i = 0; i < 20; i++) {
            random = random * 1664525u + 1013904223u;
            if (random >> 8 & 1 && i) { /* a whole row may be anywhere */
                uint64_t row[R2_TRAFFIC_WORDS(1)] = {random % 2000, 5, random % 9, random,
                                                     random,        7, 7,          random % 2000};

                ck_assert_int_eq(
                    pwrite(fd, row, sizeof(row), (off_t)R2_TRAFFIC_AT(random % 2000 + 1, 1)),
                    sizeof(row));
            }
            ck_assert_int_eq(pwrite(fd, &random, 1,
                                    sizeof(uint64_t) * 2 +
                                        (random >> 8) % (unsigned)(n - (int)sizeof(uint64_t) * 2)),
                             1);
        }
        if (r2_traffic_read(file(5, "traffic"), &traffic, why, sizeof(why)) == 1) {
            ck_assert_uint_le(traffic.head.nics, R2_TRAFFIC_NICS);
            for (const char *p = traffic.head.host; *p; p++) {
                ck_assert(*p >= 0x20 && *p < 0x7f);
            }
            for (int i = 0; i < traffic.rows; i++) {
                ck_assert(i == 0 || traffic.row[i].no > traffic.row[i - 1].no);
                ck_assert_uint_ge(traffic.row[i].to, traffic.row[i].from);
                ck_assert_uint_lt(traffic.row[i].cell[0].state, R2_TRAFFIC_STATES);
            }
            rows += traffic.rows;
        }
        ck_assert_int_eq(pwrite(fd, bytes, (size_t)n, 0), n); /* as it was */
    }
    ck_assert_int_gt(rows, 100);
    close(fd);
}
END_TEST

/* The process may write no such file, or no more of it: there are no rows, and no signal. One that
 * the program has waiting stays. */
START_TEST(a_limit_of_the_process_ends_no_process)
{
    struct r2_traffic_head head = {.nics = 1};
    struct r2_traffic *t = must_create(5, 1);
    const struct timespec now = {0};
    sigset_t xfsz, pending;

    sigemptyset(&xfsz);
    sigaddset(&xfsz, SIGXFSZ);
    look_at(t, 0, 0, 0);
    fsize_limit(8);
    look_at(t, 1000, 0, 100);
    look_at(t, 2000, 0, 200);
    fsize_limit(RLIM_INFINITY);
    ck_assert_ptr_null(
        FSIZE_LIMITED(8, r2_traffic_create(file(6, "stat"), &head, why, sizeof(why))));
    ck_assert_msg(strstr(why, strerror(EFBIG)) != NULL, "%s", why);
    sigprocmask(SIG_BLOCK, &xfsz, NULL);
    ck_assert_ptr_null(
        FSIZE_LIMITED(8, r2_traffic_create(file(6, "stat"), &head, why, sizeof(why))));
    sigpending(&pending);
    ck_assert(!sigismember(&pending, SIGXFSZ));
    raise(SIGXFSZ);
    ck_assert_ptr_null(
        FSIZE_LIMITED(8, r2_traffic_create(file(6, "stat"), &head, why, sizeof(why))));
    ck_assert_int_eq(sigtimedwait(&xfsz, NULL, &now), SIGXFSZ);
    must_read(5);
    ck_assert_int_eq(traffic.rows, 0);
    r2_traffic_close(t);
}
END_TEST

START_TEST(names)
{
    uint64_t unique;
    uid_t uid;

    ck_assert_int_eq(r2_traffic_name("nccl-net-r2.7.00000000000000ab.traffic", &uid, &unique), 1);
    ck_assert_uint_eq(uid, 7);
    ck_assert_uint_eq(unique, 0xab);
    ck_assert_int_eq(r2_traffic_name("nccl-net-r2.7.00000000000000ab.stat", &uid, &unique), 0);
    ck_assert_int_eq(r2_traffic_name("nccl-net-r2.7.ab.traffic", &uid, &unique), 0);
    ck_assert_int_eq(r2_traffic_name(".traffic", &uid, &unique), 0);
    ck_assert_int_eq(
        r2_traffic_name(
            "nccl-net-r2.4294967295.00000000000000ab00000000000000000000000000ab.traffic", &uid,
            &unique),
        0);
    ck_assert_ptr_null(r2_traffic_create("/tmp/x", &(struct r2_traffic_head){0}, why, sizeof(why)));
    ck_assert_ptr_null(
        r2_traffic_create("/nowhere/x.stat", &(struct r2_traffic_head){0}, why, sizeof(why)));
    ck_assert_str_eq(why, "/nowhere/x.traffic: No such file or directory");
}
END_TEST

/* --- whole instances --- */

static void end_kept(char stat_path[2][512])
{
    for (int i = 0; i < 2; i++) {
        snprintf(stat_path[i], 512, "%s", r2_stat_path(report(i)->stat));
        r2_report_stop(rig->side[i].inst);
    }
}

static void read_of(const char *stat_path)
{
    char path[512];

    snprintf(path, sizeof(path), "%.*s.traffic", (int)strlen(stat_path) - 5, stat_path);
    ck_assert_int_ne(access(stat_path, F_OK), 0);
    ck_assert_msg(r2_traffic_read(path, &traffic, why, sizeof(why)) == 1, "%s", why);
}

/* A NIC goes down between messages; afterwards, when the processes have ended, both files say what
 * went over which NIC, and when it was down. */
START_TEST(it_outlives_the_process)
{
    char stat_path[2][512];
    uint64_t bytes = 0;
    const struct r2_stat_view *v;
    struct r2_traffic_row *last;

    begin(2, NULL);
    messages(10);
    rig_run(rig, 2000 * RIG_MS);
    rig_fault(rig, "h0:n1 down");
    rig_run(rig, 2000 * RIG_MS);
    messages(10);
    v = look(0);
    for (int i = 0; i < 2; i++) {
        bytes += v->nic[i].sent;
    }
    ck_assert_uint_eq(bytes, 20 * sizeof(out[0]));
    end_kept(stat_path);
    read_of(stat_path[0]);
    ck_assert_uint_eq(traffic.head.nics, 2);
    ck_assert_str_eq(traffic.head.nic[1], "fab1");
    ck_assert_int_ge(traffic.rows, 2);
    last = &traffic.row[traffic.rows - 1];
    ck_assert_uint_eq(last->cell[0].sent + last->cell[1].sent, bytes);
    ck_assert_uint_eq(last->cell[0].sent, v->nic[0].sent);
    ck_assert_uint_eq(last->cell[0].state, R2_TRAFFIC_UP);
    ck_assert_uint_eq(last->cell[1].state, R2_TRAFFIC_DOWN);
    ck_assert_uint_eq(traffic.row[0].cell[1].state, R2_TRAFFIC_UP);
    ck_assert_uint_gt(traffic.row[0].cell[1].sent, 0);
    read_of(stat_path[1]);
    last = &traffic.row[traffic.rows - 1];
    ck_assert_uint_eq(last->cell[0].received + last->cell[1].received, bytes);
    ck_assert_uint_eq(last->cell[1].state, R2_TRAFFIC_AVOIDED); /* its port is up */
    end();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("traffic");
    TCase *t = tcase_create("file"), *w = tcase_create("instances");
    SRunner *r;
    int failed;

    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, host_dir_remove);
    tcase_add_test(t, a_second_is_a_row);
    tcase_add_test(t, at_rest_there_are_no_rows);
    tcase_add_test(t, states_are_kept);
    tcase_add_test(t, clocks_and_counters_go_back);
    tcase_add_test(t, the_ring_keeps_the_last);
    tcase_add_test(t, what_is_left_is_bounded);
    tcase_add_test(t, what_is_not_in_order_is_refused);
    tcase_add_test(t, nothing_is_out_of_bounds);
    tcase_add_test(t, a_limit_of_the_process_ends_no_process);
    tcase_add_test(t, names);
    suite_add_tcase(s, t);
    tcase_set_timeout(w, 120);
    tcase_add_test(w, it_outlives_the_process);
    suite_add_tcase(s, w);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
