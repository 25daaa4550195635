/* The host registry: slots, events and rows across processes, processes that are killed at any
 * moment. */
#include "tests/unit/registry_rig.h"

START_TEST(what_one_says_the_others_hear_once)
{
    struct r2_host_registry *a = must_open(), *b = must_open(), *c = must_open();
    struct r2_host_registry_event e = event_of(2), got;
    struct r2_host_registry_who from;

    r2_host_registry_post(a, &e);
    ck_assert_int_eq(r2_host_registry_next(b, &got, &from), 1);
    ck_assert_int_eq(got.kind, e.kind);
    ck_assert_uint_eq(got.guid, e.guid);
    ck_assert_uint_eq(got.port, e.port);
    ck_assert_uint_eq(got.lid, e.lid);
    ck_assert_uint_eq(got.when, e.when);
    ck_assert_int_eq(memcmp(got.gid, e.gid, sizeof(e.gid)), 0);
    ck_assert_str_eq(from.command, "test");
    ck_assert_str_eq(from.host, "h0");
    ck_assert_int_eq(from.pid, 4711);
    ck_assert_int_eq(r2_host_registry_next(b, &got, NULL), 0);
    ck_assert_int_eq(r2_host_registry_next(a, &got, NULL), 0); /* not its own */
    r2_host_registry_post(b, &e);
    ck_assert_int_eq(r2_host_registry_next(c, &got, NULL), 1);
    ck_assert_int_eq(r2_host_registry_next(c, &got, NULL), 1);
    ck_assert_int_eq(r2_host_registry_next(c, &got, NULL), 0);
    r2_host_registry_close(a);
    r2_host_registry_close(b);
    r2_host_registry_close(c);
}
END_TEST

START_TEST(history_is_not_announced)
{
    struct r2_host_registry *a = must_open(), *b;
    struct r2_host_registry_event e = event_of(1), got, list[R2_HOST_REGISTRY_EVENTS];

    r2_host_registry_post(a, &e);
    b = must_open();
    ck_assert_int_eq(r2_host_registry_next(b, &got, NULL), 0);
    ck_assert_int_eq(r2_host_registry_slot_events(b, 0, list), 1); /* but can be looked up */
    ck_assert_uint_eq(list[0].guid, e.guid);
    r2_host_registry_close(a);
    a = must_open(); /* the same slot, another incarnation, which says something at once */
    r2_host_registry_post(a, &e);
    ck_assert_int_eq(r2_host_registry_next(b, &got, NULL), 1);
    ck_assert_int_eq(r2_host_registry_next(b, &got, NULL), 0);
    r2_host_registry_close(a);
    r2_host_registry_close(b);
}
END_TEST

START_TEST(who_is_late_hears_the_latest)
{
    struct r2_host_registry *a = must_open(), *b = must_open();
    struct r2_host_registry_event got, e;

    for (int k = 0; k < 3 * R2_HOST_REGISTRY_EVENTS + 5; k++) {
        e = event_of(k);
        r2_host_registry_post(a, &e);
    }
    for (int k = 2 * R2_HOST_REGISTRY_EVENTS + 5; k < 3 * R2_HOST_REGISTRY_EVENTS + 5; k++) {
        ck_assert_int_eq(r2_host_registry_next(b, &got, NULL), 1);
        ck_assert_uint_eq(got.guid, 1000u + (unsigned)k);
    }
    ck_assert_int_eq(r2_host_registry_next(b, &got, NULL), 0);
    r2_host_registry_close(a);
    r2_host_registry_close(b);
}
END_TEST

static int rung(const struct r2_host_registry *b, int ms)
{
    struct pollfd p = {.fd = r2_host_registry_fd(b), .events = POLLIN};

    return poll(&p, 1, ms) == 1;
}

START_TEST(an_event_wakes)
{
    struct r2_host_registry *a = must_open(), *b = must_open_woken();
    struct r2_host_registry_event e = event_of(1);

    r2_host_registry_heard(b);
    ck_assert(!rung(b, 0));
    r2_host_registry_post(a, &e);
    ck_assert(rung(b, 10000));
    r2_host_registry_heard(b);
    ck_assert(!rung(b, 0));
    r2_host_registry_close(a);
    a = r2_host_registry_attach(dir, geteuid(), why,
                                sizeof(why)); /* a tool has no slot, and can ring */
    ck_assert_ptr_nonnull(a);
    r2_host_registry_ring(a);
    ck_assert(rung(b, 10000));
    r2_host_registry_close(a);
    r2_host_registry_close(b);
}
END_TEST

START_TEST(rows_are_read_by_others)
{
    struct r2_host_registry *a = must_open(), *b = must_open();
    struct r2_host_registry_nic nic = {.name = "mlx5_3:2",
                                       .guid = 77,
                                       .port = 2,
                                       .state = 1,
                                       .drained = 1,
                                       .waits = 7,
                                       .usable = 400,
                                       .last = 3,
                                       .lost = 9},
                                got;
    struct r2_host_registry_who who;

    r2_host_registry_nic_set(a, 31, &nic);
    r2_host_registry_nic_set(a, 32, &nic); /* there is no such row */
    ck_assert_int_eq(r2_host_registry_slot(b, 0, &who), 1);
    ck_assert_int_eq(r2_host_registry_slot(b, 1, &who), 0); /* its own */
    ck_assert_int_eq(r2_host_registry_slot(b, 2, &who), 0);
    ck_assert_int_eq(r2_host_registry_slot(b, -1, &who) +
                         r2_host_registry_slot(b, R2_HOST_REGISTRY_SLOTS, &who),
                     0);
    ck_assert_int_eq(r2_host_registry_slot_nic(b, 0, 31, &got), 1);
    ck_assert_int_eq(r2_host_registry_slot_nic(b, 0, 30, &got), 0);
    r2_host_registry_slot_nic(b, 0, 31, &got);
    ck_assert_str_eq(got.name, nic.name);
    ck_assert(got.guid == 77 && got.port == 2 && got.state == 1 && got.drained == 1 &&
              got.waits == 7 && got.usable == 400 && got.last == 3 && got.lost == 9);
    r2_host_registry_close(a);
    ck_assert_int_eq(r2_host_registry_slot(b, 0, &who), 0);
    r2_host_registry_close(b);
}
END_TEST

/* --- processes --- */

/* A child that has a slot when this returns, and then waits for its end. */
static pid_t child_start(int new_pids)
{
    int fd[2];
    char c;
    pid_t pid;

    ck_assert_int_eq(pipe(fd), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        struct r2_host_registry_event e = event_of(3);
        struct r2_host_registry *b;

        close(fd[0]);
        if (new_pids && (unshare(CLONE_NEWPID) != 0 || (pid = fork()) != 0)) {
            int status = 77;

            if (pid > 0) {
                close(fd[1]);
                waitpid(pid, &status, 0);
            }
            _exit(status == 77 ? 77 : 1);
        }
        if (new_pids) {
            prctl(PR_SET_PDEATHSIG, SIGKILL); /* who was forked by the one that the test kills */
        }
        b = r2_host_registry_open(dir, &me, why, sizeof(why));
        if (b == NULL) {
            _exit(2);
        }
        r2_host_registry_post(b, &e);
        if (write(fd[1], "x", 1) != 1) {
            _exit(3);
        }
        for (;;) {
            pause();
        }
    }
    close(fd[1]);
    ck_assert_int_eq(read(fd[0], &c, 1), 1);
    close(fd[0]);
    return pid;
}

/* It was killed: its slot is free at once, the others go on, the next one takes it. */
START_TEST(a_killed_process_leaves_its_slot)
{
    struct r2_host_registry *a = must_open(), *b;
    struct r2_host_registry_event got;
    pid_t pid = child_start(0);

    ck_assert_int_eq(alive_count(a), 1);
    ck_assert_int_eq(r2_host_registry_next(a, &got, NULL), 1);
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert_int_eq(alive_count(a), 0);
    b = must_open();
    ck_assert_int_eq(alive_count(a), 1);
    got = event_of(4);
    r2_host_registry_post(b, &got);
    ck_assert_int_eq(r2_host_registry_next(a, &got, NULL), 1);
    ck_assert_uint_eq(got.guid, 1004);
    r2_host_registry_close(a);
    r2_host_registry_close(b);
}
END_TEST

/* A half-written event, as of a process killed within the writing: nobody takes it for one. */
START_TEST(half_an_event_is_none)
{
    struct r2_host_registry *a = must_open(), *b = must_open();
    struct r2_host_registry_event e = event_of(1), got;
    uint64_t zero = 0;
    int fd = open(path, O_RDWR);

    r2_host_registry_post(a, &e);
    /* event 0 of slot 0: behind incarnation, pid, since, events, 4 words of command, 8 of host */
    ck_assert_int_eq(pwrite(fd, &zero, 8, 4096 + 16 * 8), 8);
    ck_assert_int_eq(r2_host_registry_next(b, &got, NULL), 0);
    r2_host_registry_post(a, &e);
    ck_assert_int_eq(r2_host_registry_next(b, &got, NULL), 1);
    close(fd);
    r2_host_registry_close(a);
    r2_host_registry_close(b);
}
END_TEST

/* Who takes a slot does not inherit what the last one said of its NICs. */
START_TEST(a_slot_begins_empty)
{
    struct r2_host_registry *b, *a = must_open();
    struct r2_host_registry_nic nic = {.name = "mlx5_0", .guid = 1, .port = 1, .usable = 4};
    struct r2_host_registry_event e = event_of(1), list[R2_HOST_REGISTRY_EVENTS];

    b = must_open();
    for (int i = 0; i < R2_HOST_REGISTRY_NICS; i++) {
        r2_host_registry_nic_set(a, i, &nic);
    }
    for (int i = 0; i < R2_HOST_REGISTRY_EVENTS + 3; i++) {
        r2_host_registry_post(a, &e);
    }
    r2_host_registry_close(a);
    a = must_open();
    for (int i = 0; i < R2_HOST_REGISTRY_NICS; i++) {
        ck_assert_int_eq(r2_host_registry_slot_nic(b, 0, i, &nic), 0);
    }
    ck_assert_int_eq(r2_host_registry_slot_events(b, 0, list), 0);
    r2_host_registry_close(a);
    r2_host_registry_close(b);
}
END_TEST

static struct r2_host_registry_event event_all(uint64_t k)
{
    struct r2_host_registry_event e = {.kind = R2_HOST_REGISTRY_NIC_UP,
                                       .guid = k,
                                       .port = (uint8_t)k,
                                       .lid = (uint16_t)k,
                                       .when = k};

    memcpy(e.gid, &k, 8);
    memcpy(e.gid + 8, &k, 8);
    return e;
}

static int event_is_whole(const struct r2_host_registry_event *e)
{
    struct r2_host_registry_event w = event_all(e->guid);

    return e->kind == w.kind && e->port == w.port && e->lid == w.lid && e->when == w.when &&
           memcmp(e->gid, w.gid, sizeof(w.gid)) == 0;
}

/* A child that posts as fast as it can, from when this returns until it is killed. */
static pid_t writer_start(void)
{
    int fd[2];
    pid_t pid;
    char c;

    ck_assert_int_eq(pipe(fd), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        struct r2_host_registry *b;
        struct r2_host_registry_event e;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        b = r2_host_registry_open(dir, &me, why, sizeof(why));
        if (b == NULL || write(fd[1], "x", 1) != 1) {
            _exit(1);
        }
        for (uint64_t k = 1;; k++) {
            e = event_all(k * 0x10001);
            r2_host_registry_post(b, &e);
        }
    }
    close(fd[1]);
    ck_assert_int_eq(read(fd[0], &c, 1), 1);
    close(fd[0]);
    return pid;
}

/* One writes as fast as it can what another reads: each event is read whole, or not at all. */
START_TEST(events_are_read_whole)
{
    struct r2_host_registry *a = must_open();
    struct r2_host_registry_event list[R2_HOST_REGISTRY_EVENTS];
    uint64_t mixed = 0, left_out = 0, first = 0, last = 0;
    pid_t pid = writer_start();

    /* until the writer has been caught in the act often enough */
    for (uint64_t turn = 0; turn < 400000 || left_out < 20 || last < first + 100000 * 0x10001ull;
         turn++) {
        int n = r2_host_registry_slot_events(a, 1, list);

        for (int i = 0; i < n; i++) {
            mixed += !event_is_whole(&list[i]);
        }
        left_out += n > 0 && n < R2_HOST_REGISTRY_EVENTS && last; /* one was being overwritten */
        last = n == R2_HOST_REGISTRY_EVENTS ? list[n - 1].guid : last;
        first = first ? first : last;
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    ck_assert_msg(mixed == 0, "%llu events were a mixture of two", (unsigned long long)mixed);
    r2_host_registry_close(a);
}
END_TEST

/* A child that takes slots, writes all that there is in them and gives them back, for ever. */
static pid_t churn_start(void)
{
    int fd[2];
    pid_t pid;
    char c;

    ck_assert_int_eq(pipe(fd), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        struct r2_host_registry_nic nic = {.name = "mlx5_0", .guid = 1, .port = 1};
        struct r2_host_registry_event e;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (uint64_t k = 1;; k++) {
            struct r2_host_registry *b = r2_host_registry_open(dir, &me, why, sizeof(why));

            if (b == NULL || (k == 1 && write(fd[1], "x", 1) != 1)) {
                _exit(1);
            }
            for (int i = 0; i < 4; i++) {
                e = event_all(k * 0x10001);
                r2_host_registry_post(b, &e);
                r2_host_registry_nic_set(b, i, &nic);
            }
            r2_host_registry_close(b);
        }
    }
    close(fd[1]);
    ck_assert_int_eq(read(fd[0], &c, 1), 1);
    close(fd[0]);
    return pid;
}

/* Killed while they take a slot, hold its lock, write to it or give it back: nothing stays locked,
 * nobody hears half a word. */
START_TEST(killed_at_any_moment)
{
    struct r2_host_registry *a = must_open(), *b;
    struct r2_host_registry_event got, e = event_all(0x20002);
    unsigned heard = 0;

    srandom(5);
    for (int turn = 0; turn < 200 || heard < 5;
         turn++) { /* most are killed with nothing posted: taking a slot takes longer */
        pid_t pid[2] = {churn_start(), churn_start()};
        struct timespec instant = {.tv_nsec = random() % 1000000};

        nanosleep(&instant, NULL);
        for (int i = 0; i < 2; i++) {
            kill(pid[i], SIGKILL);
            ck_assert_int_eq(waitpid(pid[i], NULL, 0), pid[i]);
        }
        ck_assert_int_eq(alive_count(a), 0);
        while (r2_host_registry_next(a, &got, NULL)) {
            ck_assert(event_is_whole(&got));
            heard++;
        }
        b = must_open();
        r2_host_registry_post(b, &e);
        ck_assert_int_eq(r2_host_registry_next(a, &got, NULL), 1);
        ck_assert_uint_eq(got.guid, e.guid);
        r2_host_registry_close(b);
    }
    r2_host_registry_close(a);
}
END_TEST

/* A child of the process has a copy of everything, but does not hold its slot. */
START_TEST(a_fork_holds_no_slot)
{
    struct r2_host_registry *a = must_open(), *b = must_open();
    int fd[2];
    pid_t pid;
    char c;

    ck_assert_int_eq(pipe(fd), 0);
    pid = fork();
    if (pid == 0) {
        c = write(fd[1], "x", 1) == 1 ? 'x' : 'y';
        for (;;) {
            pause();
        }
    }
    ck_assert_int_eq(read(fd[0], &c, 1), 1);
    ck_assert_int_eq(alive_count(a), 1);
    r2_host_registry_close(b);
    ck_assert_int_eq(alive_count(a), 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(fd[0]);
    close(fd[1]);
    r2_host_registry_close(a);
}
END_TEST

/*
 * A process that has forked is killed while its child lives on, as a launcher's helper does: the
 * child's copy of the descriptor must not keep the slot.
 */
START_TEST(a_child_does_not_keep_the_slot_of_the_dead)
{
    struct r2_host_registry *a = must_open();
    int up[2], inc[2];
    pid_t pid;
    char c;

    ck_assert_int_eq(pipe(up), 0);
    ck_assert_int_eq(pipe(inc), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        struct r2_host_registry *b = r2_host_registry_open(dir, &me, why, sizeof(why));

        close(inc[1]);
        if (b == NULL || fork() < 0) {
            _exit(1);
        }
        if (write(up[1], "x", 1) != 1) { /* both */
            _exit(1);
        }
        _exit(read(inc[0], &c, 1) == 0 ? 0 : 1); /* until the test ends */
    }
    close(up[1]);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(read(up[0], &c, 1), 1);
    }
    ck_assert_int_eq(alive_count(a), 1);
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert_int_eq(alive_count(a), 0);
    close(inc[0]);
    close(inc[1]);
    ck_assert_int_eq(read(up[0], &c, 1), 0); /* it has lived until now */
    close(up[0]);
    r2_host_registry_close(a);
}
END_TEST

START_TEST(registry_across_pid_namespaces)
{
    struct r2_host_registry *a = must_open();
    pid_t probe = fork(), pid;
    int status;

    if (probe == 0) {
        _exit(unshare(CLONE_NEWPID) == 0 ? 0 : 77);
    }
    waitpid(probe, &status, 0);
    if (WEXITSTATUS(status) == 77) {
        printf("SKIP registry_across_pid_namespaces: no new PID namespace here\n");
        r2_host_registry_close(a);
        return;
    }
    pid = child_start(1);
    ck_assert_int_eq(alive_count(a), 1); /* its pid there is 1, and says nothing here */
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    for (int i = 0; i < 1000 && alive_count(a); i++) {
        usleep(10000);
    }
    ck_assert_int_eq(alive_count(a), 0);
    r2_host_registry_close(a);
}
END_TEST

/* Many at once, on a registry that is not there yet: each has a slot of its own. */
START_TEST(all_begin_together)
{
    enum { N = 12 };
    pid_t pid[N];
    int go[2], up[2];
    struct r2_host_registry *a;
    char c;

    ck_assert_int_eq(pipe(go), 0);
    ck_assert_int_eq(pipe(up), 0);
    for (int i = 0; i < N; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            struct r2_host_registry *b;

            close(go[1]);
            if (read(go[0], &c, 1) < 0) {
                _exit(1);
            }
            b = r2_host_registry_open(dir, &me, why, sizeof(why));
            c = b ? 'x' : 'n';
            if (write(up[1], &c, 1) != 1) {
                _exit(1);
            }
            for (;;) {
                pause();
            }
        }
    }
    close(go[0]);
    close(go[1]);
    for (int i = 0; i < N; i++) {
        ck_assert_int_eq(read(up[0], &c, 1), 1);
        ck_assert_int_eq(c, 'x');
    }
    a = must_open();
    ck_assert_int_eq(alive_count(a), N);
    for (int i = 0; i < N; i++) {
        kill(pid[i], SIGKILL);
        waitpid(pid[i], NULL, 0);
    }
    ck_assert_int_eq(alive_count(a), 0);
    close(up[0]);
    close(up[1]);
    r2_host_registry_close(a);
}
END_TEST

START_TEST(full_is_said)
{
    struct r2_host_registry *b[R2_HOST_REGISTRY_SLOTS];

    for (int i = 0; i < R2_HOST_REGISTRY_SLOTS; i++) {
        b[i] = must_open();
    }
    ck_assert_ptr_null(r2_host_registry_open(dir, &me, why, sizeof(why)));
    ck_assert_msg(strstr(why, "slots") != NULL, "%s", why);
    r2_host_registry_close(b[100]);
    b[100] = must_open();
    for (int i = 0; i < R2_HOST_REGISTRY_SLOTS; i++) {
        r2_host_registry_close(b[i]);
    }
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, what_one_says_the_others_hear_once);
    tcase_add_test(t, history_is_not_announced);
    tcase_add_test(t, who_is_late_hears_the_latest);
    tcase_add_test(t, an_event_wakes);
    tcase_add_test(t, rows_are_read_by_others);
    tcase_add_test(t, a_killed_process_leaves_its_slot);
    tcase_add_test(t, half_an_event_is_none);
    tcase_add_test(t, a_slot_begins_empty);
    tcase_add_test(t, events_are_read_whole);
    tcase_add_test(t, killed_at_any_moment);
    tcase_add_test(t, a_fork_holds_no_slot);
    tcase_add_test(t, a_child_does_not_keep_the_slot_of_the_dead);
    tcase_add_test(t, registry_across_pid_namespaces);
    tcase_add_test(t, all_begin_together);
    tcase_add_test(t, full_is_said);
}

int main(void)
{
    return run_suite("host registry", add);
}
