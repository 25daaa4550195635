/* The statistics file: who makes it, who takes it away, what a reader makes of a writer in the
 * middle and of a file that lies. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plugin/telemetry/r2_event.h"
#include "plugin/telemetry/r2_stat_file.h"
#include "tests/unit/fsize.h"
#include "tests/unit/suite.h"

static char dir[64], why[700];

static void setup(void)
{
    snprintf(dir, sizeof(dir), "/tmp/r2-stat-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void teardown(void)
{
    ck_assert_msg(rmdir(dir) == 0, "%s is not empty", dir);
}

static struct r2_stat *must_create(uint64_t unique)
{
    struct r2_stat *s = r2_stat_create(dir, geteuid(), unique, why, sizeof(why));

    ck_assert_msg(s != NULL, "%s", why);
    return s;
}

static void put_some(struct r2_stat *s)
{
    struct r2_stat_who who = {.command = "test",
                              .host = "h0",
                              .pid = 4711,
                              .nics = 2,
                              .peers = 2,
                              .conns = 3,
                              .conns_all = 3,
                              .history = 2,
                              .cuda_dev = -1};
    struct r2_stat_nic nic = {.name = "mlx5_1", .port = 1, .state = R2_STAT_NIC_DOWN, .moved = 4};
    struct r2_stat_conn conn = {
        .id = 7, .npaths = 2, .dev = 1, .path = {{.nic = 1, .state = R2_STAT_PATH_UP}}};
    struct r2_stat_peer peer = {.host = "h1", .transfer[R2_BAND_1M] = {.p50_ns = 77}};
    struct r2_stat_event e = {.no = 1, .kind = R2_EVENT_FAULT, .stall_ns = -1, .text = "first"};

    r2_stat_begin(s);
    ck_assert_int_eq(r2_stat_put_nic(s, 1, &nic), 1);
    ck_assert_int_eq(r2_stat_put_conn(s, 2, &conn), 1);
    ck_assert_int_eq(r2_stat_put_peer(s, 1, &peer), 1);
    ck_assert_int_eq(r2_stat_put_event(s, &e), 1);
    e.no = 2;
    snprintf(e.text, sizeof(e.text), "second");
    ck_assert_int_eq(r2_stat_put_event(s, &e), 1);
    r2_stat_put_who(s, &who);
    r2_stat_end(s);
}

START_TEST(what_is_written_is_read)
{
    struct r2_stat *s = must_create(5);
    struct r2_stat_view v;
    struct stat st;

    put_some(s);
    ck_assert_int_eq(stat(r2_stat_path(s), &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0600);
    ck_assert_msg(st.st_blocks * 512 >= st.st_size, "a full file system is no SIGBUS later");
    ck_assert_int_eq(r2_stat_read(r2_stat_path(s), geteuid(), &v, why, sizeof(why)), 1);
    ck_assert_int_eq(v.whole, 1);
    ck_assert_str_eq(v.who.command, "test");
    ck_assert_int_eq(v.who.pid, 4711);
    ck_assert_str_eq(v.nic[1].name, "mlx5_1");
    ck_assert_uint_eq(v.nic[1].moved, 4);
    ck_assert_str_eq(v.peer[0].host, "");
    ck_assert_str_eq(v.peer[1].host, "h1");
    ck_assert_uint_eq(v.peer[1].transfer[R2_BAND_1M].p50_ns, 77);
    ck_assert_int_eq(v.events, 2);
    ck_assert_str_eq(v.event[0].text, "first");
    ck_assert_str_eq(v.event[1].text, "second");
    ck_assert_int_eq(v.conns, 1);
    ck_assert_uint_eq(v.conn[0].id, 7);
    r2_stat_view_free(&v);
    r2_stat_remove(s); /* and nothing is left: teardown */
}
END_TEST

START_TEST(the_ring_keeps_the_last)
{
    struct r2_stat *s = must_create(5);
    struct r2_stat_who who = {.history = 1000};
    struct r2_stat_view v;

    for (uint64_t no = 1; no <= 1000; no++) {
        struct r2_stat_event e = {.no = no, .kind = R2_EVENT_FAULT};

        r2_stat_put_event(s, &e);
    }
    r2_stat_put_who(s, &who);
    ck_assert_int_eq(r2_stat_read(r2_stat_path(s), geteuid(), &v, why, sizeof(why)), 1);
    ck_assert_int_eq(v.events, R2_STAT_HISTORY);
    ck_assert_uint_eq(v.event[0].no, 1000 - R2_STAT_HISTORY + 1);
    ck_assert_uint_eq(v.event[R2_STAT_HISTORY - 1].no, 1000);
    r2_stat_view_free(&v);
    r2_stat_remove(s);
}
END_TEST

START_TEST(the_file_grows_up_to_its_bound)
{
    struct r2_stat *s = must_create(5);
    struct r2_stat_who who = {.conns = R2_STAT_CONNS, .conns_all = R2_STAT_CONNS + 9, .nics = 1};
    struct r2_stat_view v;
    struct stat st;

    for (unsigned i = 0; i < R2_STAT_CONNS; i++) {
        struct r2_stat_conn c = {.id = i + 1};

        ck_assert_int_eq(r2_stat_put_conn(s, i, &c), 1);
    }
    ck_assert_int_eq(r2_stat_put_conn(s, R2_STAT_CONNS, &(struct r2_stat_conn){.id = 1}), 0);
    ck_assert_int_eq(r2_stat_put_nic(s, R2_STAT_NICS, &(struct r2_stat_nic){.port = 1}), 0);
    ck_assert_int_eq(r2_stat_put_event(s, &(struct r2_stat_event){.no = 0}), 0);
    r2_stat_put_who(s, &who);
    ck_assert_int_eq(stat(r2_stat_path(s), &st), 0);
    ck_assert_int_eq((size_t)st.st_size, R2_STAT_SIZE(R2_STAT_CONNS));
    ck_assert_int_eq(r2_stat_read(r2_stat_path(s), geteuid(), &v, why, sizeof(why)), 1);
    ck_assert_int_eq(v.conns, R2_STAT_CONNS);
    ck_assert_uint_eq(v.conn[R2_STAT_CONNS - 1].id, R2_STAT_CONNS);
    r2_stat_view_free(&v);
    r2_stat_remove(s);
}
END_TEST

/* A file system that is full: no statistics, or no more connections, but no signal. */
START_TEST(no_room_is_no_signal)
{
    const struct r2_stat_conn conn = {.id = 1};
    const rlim_t room = R2_STAT_SIZE(64);
    struct r2_stat *s;

    s = FSIZE_LIMITED(4096, r2_stat_create(dir, geteuid(), 5, why, sizeof(why)));
    ck_assert_ptr_null(s);
    ck_assert_msg(strstr(why, strerror(EFBIG)) != NULL, "%s", why);
    s = FSIZE_LIMITED(room, r2_stat_create(dir, geteuid(), 5, why, sizeof(why)));
    ck_assert_msg(s != NULL, "%s", why);
    ck_assert_int_eq(FSIZE_LIMITED(room, r2_stat_put_conn(s, 63, &conn)), 1);
    ck_assert_int_eq(FSIZE_LIMITED(room, r2_stat_put_conn(s, 64, &conn)), 0);
    r2_stat_remove(s);
}
END_TEST

/* --- incarnation and death --- */

static int count(void)
{
    char cmd[128];
    FILE *f;
    int n = -1;

    snprintf(cmd, sizeof(cmd), "ls -A %s | wc -l", dir);
    f = popen(cmd, "r");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fscanf(f, "%d", &n), 1);
    pclose(f);
    return n;
}

/* A child that has made a file, and waits to be killed. */
static pid_t child_with(uint64_t unique, char path[128])
{
    int ready[2];
    pid_t pid;

    ck_assert_int_eq(pipe(ready), 0);
    pid = fork();
    if (pid == 0) {
        struct r2_stat *s = r2_stat_create(dir, geteuid(), unique, why, sizeof(why));

        if (s != NULL) {
            put_some(s);
        }
        if (s == NULL || write(ready[1], r2_stat_path(s), 128) != 128) {
            _exit(1);
        }
        for (;;) {
            pause();
        }
    }
    ck_assert_int_eq(read(ready[0], path, 128), 128);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static void child_end(pid_t pid)
{
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

START_TEST(a_dead_process_is_not_shown_and_swept_by_the_next)
{
    char dead[128], alive[128];
    pid_t one = child_with(1, dead), two = child_with(2, alive);
    struct r2_stat_view v;
    struct r2_stat *s;

    ck_assert_int_eq(r2_stat_read(dead, geteuid(), &v, why, sizeof(why)), 1);
    r2_stat_view_free(&v);
    child_end(one);
    ck_assert_int_eq(r2_stat_read(dead, geteuid(), &v, why, sizeof(why)), 0);
    ck_assert_int_eq(count(), 2);
    s = must_create(3);
    ck_assert_int_ne(access(dead, F_OK), 0);
    ck_assert_int_eq(access(alive, F_OK), 0); /* its process lives */
    child_end(two);
    unlink(alive);
    r2_stat_remove(s);
}
END_TEST

START_TEST(a_child_of_fork_does_not_keep_it_alive)
{
    struct r2_stat_view v;
    char path[128], sink;
    int go[2], hold[2];
    pid_t owner, child = 0;

    ck_assert_int_eq(pipe(go), 0);
    ck_assert_int_eq(pipe(hold), 0);
    owner = fork();
    if (owner == 0) {
        if (r2_stat_create(dir, geteuid(), 9, why, sizeof(why)) == NULL) {
            _exit(1);
        }
        close(hold[1]);
        child = fork();
        if (child == 0) {
            child = getpid();
            _exit(write(go[1], &child, sizeof(child)) < 0 ||
                  read(hold[0], &sink, 1) != 0); /* until the test has ended */
        }
        _exit(child < 0);
    }
    close(hold[0]);
    ck_assert_int_eq(waitpid(owner, NULL, 0), owner);
    ck_assert_int_eq(read(go[0], &child, sizeof(child)), sizeof(child));
    ck_assert_int_eq(kill(child, 0), 0); /* it lives, with a copy of its parent's descriptor */
    snprintf(path, sizeof(path), "%s/nccl-net-r2.%u.%016x.stat", dir, (unsigned)geteuid(), 9u);
    ck_assert_int_eq(access(path, F_OK), 0);
    ck_assert_int_eq(r2_stat_read(path, geteuid(), &v, why, sizeof(why)), 0);
    unlink(path);
    close(hold[1]);
    close(go[0]);
    close(go[1]);
}
END_TEST

START_TEST(the_child_does_not_take_its_parents_file_away)
{
    struct r2_stat *s = must_create(9);
    pid_t pid = fork();

    if (pid == 0) {
        r2_stat_remove(s);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert_int_eq(access(r2_stat_path(s), F_OK), 0);
    r2_stat_remove(s);
}
END_TEST

START_TEST(names)
{
    static const char *const wrong[] = {"nccl-net-r2.0.0123456789abcdef.sta",
                                        "nccl-net-r2.0.0123456789abcdef.statx",
                                        "nccl-net-r2..0123456789abcdef.stat",
                                        "nccl-net-r2.0.0123456789abcde.stat",
                                        "nccl-net-r2.0.0123456789ABCDEF.stat",
                                        "nccl-net-r2.00.0123456789abcdef.stat",
                                        "nccl-net-r2.4294967296.0123456789abcdef.stat",
                                        "nccl-net-r2.0.board",
                                        "",
                                        "nccl-net-r2.0",
                                        "nccl-net-r2.-1.0123456789abcdef.stat"};
    uint64_t unique;
    uid_t uid;

    ck_assert_int_eq(r2_stat_name("nccl-net-r2.1000.0123456789abcdef.stat", &uid, &unique), 1);
    ck_assert_uint_eq(uid, 1000);
    ck_assert_uint_eq(unique, 0x0123456789abcdef);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        ck_assert_msg(r2_stat_name(wrong[i], &uid, &unique) == 0, "%s", wrong[i]);
    }
}
END_TEST

/* --- a reader while it is written --- */

/* All fields of a record say the same number; a reader that mixes two moments sees two. */
static void nic_of(uint64_t n, struct r2_stat_nic *nic)
{
    memset(nic, 0, sizeof(*nic));
    nic->guid = nic->since = nic->sent = nic->received = nic->work_requests = nic->lost = n;
    nic->over = nic->moved = (uint32_t)n;
}

static int nic_agrees(const struct r2_stat_nic *nic)
{
    uint64_t n = nic->guid;

    return nic->since == n && nic->sent == n && nic->received == n && nic->work_requests == n &&
           nic->lost == n && nic->over == (uint32_t)n && nic->moved == (uint32_t)n;
}

struct both {
    _Atomic int stop;
    _Atomic uint64_t rounds, asked;
};

/* Without rest, but for every 64th round, after which the reader has one reading for itself: on two
 * processors of its own it might never get a whole one. */
static void write_on(struct r2_stat *s, struct both *b)
{
    for (uint64_t n = 1; !b->stop; n++) {
        struct r2_stat_who who = {.nics = 2, .history = n};
        struct r2_stat_nic nic;

        nic_of(n, &nic);
        r2_stat_begin(s);
        r2_stat_put_nic(s, 0, &nic);
        r2_stat_put_nic(s, 1, &nic);
        r2_stat_put_who(s, &who);
        r2_stat_end(s);
        b->rounds = n;
        for (uint64_t a = b->asked; n % 64 == 0 && !b->stop && b->asked < a + 2;) {
            sched_yield();
        }
    }
}

START_TEST(no_record_is_ever_torn)
{
    struct both *shared =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct r2_stat_view v;
    char path[128];
    pid_t pid;
    int seen = 0;
    uint64_t last = 0;

    ck_assert_ptr_ne(shared, MAP_FAILED);
    pid = fork();
    if (pid == 0) {
        struct r2_stat *s = r2_stat_create(dir, geteuid(), 9, why, sizeof(why));

        if (s == NULL) {
            _exit(1);
        }
        write_on(s, shared);
        r2_stat_remove(s);
        _exit(0);
    }
    snprintf(path, sizeof(path), "%s/nccl-net-r2.%u.%016x.stat", dir, (unsigned)geteuid(), 9u);
    while (shared->rounds < 200 || seen < 40) { /* the writer was at work all the time */
        shared->asked++;
        if (r2_stat_read(path, geteuid(), &v, why, sizeof(why)) != 1) {
            ck_assert_int_eq(waitpid(pid, NULL, WNOHANG), 0);
            continue;
        }
        for (int i = 0; i < 2; i++) {
            ck_assert_msg(v.who.nics == 0 || nic_agrees(&v.nic[i]) || v.nic[i].guid == 0,
                          "a record of two moments");
        }
        if (v.whole && v.who.nics == 2) {
            ck_assert_uint_eq(v.nic[0].guid, v.nic[1].guid);
            ck_assert_uint_eq(v.nic[0].guid, v.who.history);
        }
        ck_assert_uint_ge(v.who.history, last);
        last = v.who.history;
        seen++;
        r2_stat_view_free(&v);
    }
    shared->stop = 1;
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert_int_gt(last, 0);
}
END_TEST

/* A writer that stands still in the middle, as one that is stopped: what it changes is not given,
 * the rest is. */
START_TEST(a_writer_stopped_in_the_middle)
{
    struct r2_stat *s = must_create(9);
    struct r2_stat_view v;
    uint64_t odd = 7;
    int fd;

    put_some(s);
    fd = open(r2_stat_path(s), O_RDWR);
    ck_assert_int_eq(pwrite(fd, &odd, 8, R2_STAT_ROUND_AT), 8);
    ck_assert_int_eq(
        pwrite(fd, &odd, 8, R2_STAT_CONNS_AT + 2 * R2_STAT_RECORD(struct r2_stat_conn)), 8);
    ck_assert_int_eq(r2_stat_read(r2_stat_path(s), geteuid(), &v, why, sizeof(why)), 1);
    ck_assert_int_eq(v.whole, 0);
    ck_assert_int_eq(v.conns, 0);
    ck_assert_str_eq(v.nic[1].name, "mlx5_1");
    r2_stat_view_free(&v);
    ck_assert_int_eq(pwrite(fd, &odd, 8, R2_STAT_WHO_AT), 8);
    ck_assert_int_eq(r2_stat_read(r2_stat_path(s), geteuid(), &v, why, sizeof(why)), -1);
    close(fd);
    r2_stat_remove(s);
}
END_TEST

/* --- files that lie --- */

static void refused(const char *path, const char *word)
{
    struct r2_stat_view v;

    ck_assert_int_eq(r2_stat_read(path, geteuid(), &v, why, sizeof(why)), -1);
    ck_assert_msg(strstr(why, word) != NULL, "'%s' does not say '%s'", why, word);
}

static void texts_clean(const struct r2_stat_view *v)
{
    ck_assert_uint_lt(strnlen(v->who.command, sizeof(v->who.command)), sizeof(v->who.command));
    ck_assert_uint_le(v->who.nics, R2_STAT_NICS);
    for (uint32_t i = 0; i < v->who.nics; i++) {
        ck_assert_uint_lt(strnlen(v->nic[i].why, sizeof(v->nic[i].why)), sizeof(v->nic[i].why));
        for (const char *c = v->nic[i].name; *c; c++) {
            ck_assert(*c >= 0x20 && *c < 0x7f);
        }
    }
    ck_assert_uint_le(v->who.peers, R2_STAT_PEERS);
    for (uint32_t i = 0; i < v->who.peers; i++) {
        for (const char *c = v->peer[i].host; *c; c++) {
            ck_assert(*c >= 0x20 && *c < 0x7f);
        }
        for (const char *c = v->peer[i].address; *c; c++) {
            ck_assert(*c >= 0x20 && *c < 0x7f);
        }
        for (int s = 0; s < R2_BAND_SIZES; s++) {
            ck_assert_uint_lt(v->peer[i].transfer[s].state, R2_BAND_STATES);
        }
    }
    for (int i = 0; i < v->conns; i++) {
        ck_assert_uint_le(v->conn[i].npaths, R2_STAT_PATHS);
        ck_assert(v->conn[i].dev == 0 || v->conn[i].dev < v->who.nics);
        for (int p = 0; p < R2_STAT_PATHS; p++) {
            ck_assert(v->conn[i].path[p].nic == 0 || v->conn[i].path[p].nic < v->who.nics);
        }
    }
}

START_TEST(what_is_no_statistics_is_not_read)
{
    struct r2_stat *s = must_create(9);
    char other[128];
    const char *path = r2_stat_path(s);
    uint64_t v = 0x4142434445464748;
    int fd;

    put_some(s);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(chmod(path, i ? 0602 : 0620), 0);
        refused(path, "written by others");
    }
    ck_assert_int_eq(chmod(path, 0600), 0);
    snprintf(other, sizeof(other), "%s/other", dir);
    ck_assert_int_eq(symlink(path, other), 0);
    refused(other, strerror(ELOOP));
    unlink(other);
    ck_assert_int_eq(mkfifo(other, 0600), 0);
    refused(other, "is not a file"); /* and does not wait for a writer */
    unlink(other);
    if (geteuid() == 0) {
        ck_assert_int_eq(chown(path, 65534, 65534), 0);
        refused(path, "belongs to user 65534");
        ck_assert_int_eq(chown(path, 0, 0), 0);
    }
    fd = open(path, O_RDWR);
    ck_assert_int_eq(pwrite(fd, &v, 8, 8), 8);
    refused(path, "no statistics of this version");
    v = r2_stat_shape() - (1ull << 48);
    ck_assert_int_eq(pwrite(fd, &v, 8, 8), 8);
    refused(path, "its format is 6, and 7 can be read");
    ck_assert_int_eq(pwrite(fd, &v, 8, 0), 8);
    refused(path, "is no statistics file");
    v = R2_STAT_MAGIC;
    ck_assert_int_eq(pwrite(fd, &v, 8, 0), 8);
    v = r2_stat_shape();
    ck_assert_int_eq(pwrite(fd, &v, 8, 8), 8);
    for (off_t size = 2 * R2_STAT_NICS_AT; size > 0;
         size -= 512) { /* cut short: what is missing is not there, or nothing is */
        struct r2_stat_view view;
        int rc;

        ck_assert_int_eq(ftruncate(fd, size - 512), 0);
        rc = r2_stat_read(path, geteuid(), &view, why, sizeof(why));
        ck_assert_int_eq(rc, size - 512 < 2560 ? -1 : 1);
        if (rc == 1) {
            texts_clean(&view);
            r2_stat_view_free(&view);
        }
    }
    close(fd);
    r2_stat_remove(s);
}
END_TEST

/* Absurd counts and texts without an end: what is given is within its bounds. */
START_TEST(garbage_in_the_records)
{
    struct r2_stat *s = must_create(9);
    uint64_t x = (uint64_t)_i * 0x9e3779b97f4a7c15ull + 1;
    struct r2_stat_view v;
    int fd = open(r2_stat_path(s), O_RDWR);

    put_some(s);
    for (size_t at = R2_STAT_WHO_AT; at < R2_STAT_SIZE(64); at += 8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        ck_assert_int_eq(pwrite(fd, &x, 8, (off_t)at), 8);
    }
    x = 8; /* the numbers of some records even: they are taken for whole */
    for (int i = 0; i < 64; i++) {
        pwrite(fd, &x, 8,
               (off_t)(R2_STAT_CONNS_AT + (size_t)i * R2_STAT_RECORD(struct r2_stat_conn)));
        pwrite(fd, &x, 8,
               (off_t)(R2_STAT_NICS_AT +
                       (size_t)(i % R2_STAT_NICS) * R2_STAT_RECORD(struct r2_stat_nic)));
        pwrite(fd, &x, 8,
               (off_t)(R2_STAT_PEERS_AT + (size_t)i * R2_STAT_RECORD(struct r2_stat_peer)));
    }
    ck_assert_int_eq(pwrite(fd, &x, 8, R2_STAT_WHO_AT), 8);
    ck_assert_int_eq(r2_stat_read(r2_stat_path(s), geteuid(), &v, why, sizeof(why)), 1);
    texts_clean(&v);
    r2_stat_view_free(&v);
    close(fd);
    r2_stat_remove(s);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, what_is_written_is_read);
    tcase_add_test(t, the_ring_keeps_the_last);
    tcase_add_test(t, the_file_grows_up_to_its_bound);
    tcase_add_test(t, no_room_is_no_signal);
    tcase_add_test(t, a_dead_process_is_not_shown_and_swept_by_the_next);
    tcase_add_test(t, a_child_of_fork_does_not_keep_it_alive);
    tcase_add_test(t, the_child_does_not_take_its_parents_file_away);
    tcase_add_test(t, names);
    tcase_add_test(t, no_record_is_ever_torn);
    tcase_add_test(t, a_writer_stopped_in_the_middle);
    tcase_add_test(t, what_is_no_statistics_is_not_read);
    tcase_add_loop_test(t, garbage_in_the_records, 0, 20);
}

int main(void)
{
    return suite_run("stat", 60, setup, teardown, add);
}
