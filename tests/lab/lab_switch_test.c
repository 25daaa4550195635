/* The lab's switch without VMs: the real process with NICs that are sockets of this test. */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lab/lab_impair.h"
#include "tests/lab/lab_roce.h"
#include "tests/lab/lab_spine.h"
#include "tests/lab/lab_util.h"
#include "tests/unit/suite.h"

#define LIMIT_MS 10000
#define FRAME    4000u

static char folder[] = "/tmp/lab-switch-XXXXXX";
static int nic[3]; /* h0.n0, h1.n0, h2.n0 */

static int nic_connect(const char *name)
{
    int fd = lab_unix_connect(name);

    ck_assert_msg(fd >= 0, "%s: %s", name, strerror(errno));
    return fd;
}

/* The switch's answer to @line. */
static const char *tell(const char *line)
{
    static char out[8192];
    int fd = nic_connect("switch");
    size_t n = 0;

    ck_assert_int_gt(dprintf(fd, "%s\n", line), 0);
    do {
        ssize_t got = recv(fd, out + n, sizeof(out) - n - 1, 0);
        ck_assert_msg(got > 0, "no answer to %s", line);
        n += (size_t)got;
        out[n] = '\0';
    } while (strstr(out, "ok") == NULL && strstr(out, "error") == NULL);
    close(fd);
    return out;
}

static unsigned long long counter(const char *port, const char *name)
{
    char line[32], key[32];
    const char *at;

    snprintf(line, sizeof(line), "show %s", port);
    snprintf(key, sizeof(key), " %s=", name);
    at = strstr(tell(line), key);
    ck_assert_ptr_nonnull(at);
    return strtoull(at + strlen(key), NULL, 10);
}

static void switch_start(void)
{
    char self[PATH_MAX] = "", path[PATH_MAX + 16];
    char name[16], ready[8] = "";
    int out[2], i;

    ck_assert_int_gt(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
    snprintf(path, sizeof(path), "%s/lab_switch", dirname(self));
    ck_assert_int_eq(chdir(folder), 0);
    ck_assert_int_eq(pipe(out), 0);
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* also when a test fails or is killed */
        dup2(out[1], STDOUT_FILENO);
        execl(path, path, "3", "1", "-", "test", NULL);
        _exit(127);
    }
    close(out[1]);
    ck_assert_int_eq(read(out[0], ready, 6), 6);
    ck_assert_str_eq(ready, "ready\n");
    close(out[0]);
    for (i = 0; i < 3; i++) {
        snprintf(name, sizeof(name), "h%d.n0", i);
        nic[i] = nic_connect(name);
    }
}

static void folder_make(void)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void folder_remove(void)
{
    char line[64];

    snprintf(line, sizeof(line), "rm -rf %.30s", folder);
    ck_assert_int_eq(system(line), 0);
}

/* A frame from host @from to host @to (-1: everybody), number @n in its payload. */
static size_t frame_make(uint8_t out[4 + FRAME], int from, int to, uint32_t n, size_t len)
{
    uint32_t head = htonl((uint32_t)len), i;

    memset(out, 0, 4 + FRAME);
    memcpy(out, &head, 4);
    memset(out + 4, to < 0 ? 0xff : 0x02, 6);
    memset(out + 10, 0x02, 6);
    if (to >= 0) {
        out[9] = (uint8_t)to;
    }
    out[15] = (uint8_t)from;
    memcpy(out + 18, &n, 4);
    for (i = 22; i < len; i++) {
        out[4 + i] = (uint8_t)(n + i);
    }
    return 4 + len;
}

static void frame_send(int from, int to, uint32_t n)
{
    uint8_t f[4 + FRAME];
    size_t len = frame_make(f, from, to, n, FRAME);

    ck_assert_int_eq(send(nic[from], f, len, MSG_NOSIGNAL), (ssize_t)len);
}

static bool readable(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, ms) > 0;
}

/* The number of the next frame at @host, whose content is checked; -1 when none comes within @ms.
 */
static long frame_take(int host, int ms)
{
    uint8_t got[4 + FRAME], want[4 + FRAME];
    uint32_t n;

    if (!readable(nic[host], ms)) {
        return -1;
    }
    ck_assert_int_eq(recv(nic[host], got, sizeof(got), MSG_WAITALL), sizeof(got));
    memcpy(&n, got + 18, 4);
    frame_make(want, got[15], got[4] == 0xff ? -1 : got[9], n, FRAME);
    ck_assert_mem_eq(got, want, sizeof(got));
    return (long)n;
}

/* Each host is heard once, so that the switch knows who is where. */
static void learn(void)
{
    int h, to;

    for (h = 0; h < 3; h++) {
        frame_send(h, -1, 1);
        for (to = 0; to < 3; to++) {
            ck_assert_int_eq(frame_take(to, to == h ? 0 : LIMIT_MS), to == h ? -1 : 1);
        }
    }
}

START_TEST(frames_reach_whom_they_are_for)
{
    learn();
    frame_send(0, 1, 77);
    ck_assert_int_eq(frame_take(1, LIMIT_MS), 77);
    frame_send(1, 0, 78);
    ck_assert_int_eq(frame_take(0, LIMIT_MS), 78);
    ck_assert_int_eq(frame_take(2, 0), -1);
    ck_assert_uint_eq(counter("h0:n0", "out_frames"), 2);
    ck_assert_uint_eq(counter("h0:n0", "in_frames"), 3);
    ck_assert_uint_eq(counter("h2:n0", "in_frames"), 2);
    ck_assert_uint_eq(counter("h0:n1", "in_frames"), 0);
}
END_TEST

START_TEST(a_cut_has_a_direction)
{
    learn();
    ck_assert_str_eq(tell("h0:n0 cut out"), "ok h0:n0 out cut\n");
    frame_send(0, 1, 5);
    frame_send(1, 0, 6);
    ck_assert_int_eq(frame_take(0, LIMIT_MS), 6);
    ck_assert_uint_eq(counter("h0:n0", "out_drop_cut"), 1);
    ck_assert_str_eq(tell("h0:n0 heal"), "ok h0:n0 healthy\n");
    ck_assert_str_eq(tell("h0:n0 cut in"), "ok h0:n0 in cut\n");
    frame_send(0, 1, 7);
    ck_assert_int_eq(frame_take(1, LIMIT_MS), 7);
    frame_send(1, 0, 8);
    frame_send(1, 2, 9);
    ck_assert_int_eq(frame_take(2, LIMIT_MS), 9);
    ck_assert_uint_eq(counter("h0:n0", "in_drop_cut"), 1);
    ck_assert_int_eq(frame_take(0, 0), -1);
    ck_assert_str_eq(tell("reset"), "ok reset\n");
    frame_send(1, 0, 10);
    ck_assert_int_eq(frame_take(0, LIMIT_MS), 10);
}
END_TEST

/* The path between two ports, then a whole rail; broadcasts reach who is not cut. */
START_TEST(a_cut_between_ports)
{
    static const char *const heals[] = {"h1:n0-h0:n0 heal", "h0:n0 heal", "rail0 heal", "reset"};

    learn();
    ck_assert_str_eq(tell("rail1 cut"), "ok rail1 cut\n");
    ck_assert_str_eq(tell(_i < 2 ? "h0:n0-h1:n0 cut" : "rail0 cut") + 3,
                     _i < 2 ? "h0:n0-h1:n0 cut\n" : "rail0 cut\n");
    frame_send(0, 1, 5);
    frame_send(1, 0, 6);
    frame_send(0, -1, 7);
    ck_assert_int_eq(frame_take(2, _i < 2 ? LIMIT_MS : 100), _i < 2 ? 7 : -1);
    while (counter("h1:n0", "out_drop_cut") < 1 ||
           counter("h0:n0", "out_drop_cut") < (_i < 2 ? 2 : 3)) {
    }
    ck_assert_ptr_nonnull(strstr(tell("show h0:n0"), _i < 2 ? "healthy, nothing to h1\n"
                                                            : "nothing to h1, nothing to h2\n"));
    ck_assert_int_eq(strncmp(tell(heals[_i]), "ok ", 3), 0);
    frame_send(0, 1, 10);
    frame_send(1, 0, 11);
    ck_assert_int_eq(frame_take(1, LIMIT_MS), 10);
    ck_assert_int_eq(frame_take(0, LIMIT_MS), 11);
    ck_assert_int_eq(strncmp(tell("h1:n0-h0:n0 cut in"), "ok ", 3), 0);
    frame_send(0, 1, 12);
    frame_send(1, 0, 13);
    ck_assert_int_eq(frame_take(0, LIMIT_MS), 13);
    ck_assert_int_eq(frame_take(1, 0), -1);
}
END_TEST

/* One spine swallows what takes it, both ways, and nothing else. */
START_TEST(a_spine_is_cut)
{
    uint8_t f[4 + ROCE_LEN] = {0, 0, 0, ROCE_LEN}, got[4 + ROCE_LEN];
    char line[64], want[64];
    int k;

    learn();
    roce_make(f + 4, 1, 2, 0xc123);
    memcpy(f + 4, (const uint8_t[]){2, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 0}, 12);
    k = lab_spine_of(f + 4, ROCE_LEN);
    ck_assert_int_eq(send(nic[0], f, sizeof(f), MSG_NOSIGNAL), sizeof(f));
    ck_assert(readable(nic[1], LIMIT_MS));
    ck_assert_int_eq(recv(nic[1], got, sizeof(got), MSG_WAITALL), sizeof(got));
    ck_assert_mem_eq(got, f, sizeof(f));
    snprintf(line, sizeof(line), _i ? "rail0/most cut" : "rail0/%d cut", k);
    snprintf(want, sizeof(want), "ok rail0/%d cut\n", k);
    ck_assert_str_eq(tell(line), want);
    ck_assert_int_eq(send(nic[0], f, sizeof(f), MSG_NOSIGNAL), sizeof(f));
    frame_send(0, 1, 7); /* no RoCE: behind it */
    ck_assert_int_eq(frame_take(1, LIMIT_MS), 7);
    snprintf(want, sizeof(want), "rail0/%d frames=2 dropped=1 state: cut\n", k);
    ck_assert_ptr_nonnull(strstr(tell("show"), want));
    ck_assert_int_eq(strncmp(tell("rail0/8 cut"), "error", 5), 0);
    ck_assert_int_eq(strncmp(tell("rail0/ cut"), "error", 5), 0);
    ck_assert_int_eq(strncmp(tell("rail4/0 cut"), "error", 5), 0);
    ck_assert_int_eq(strncmp(tell(_i ? "rail0/most heal" : "reset"), "ok ", 3), 0);
    ck_assert_int_eq(send(nic[0], f, sizeof(f), MSG_NOSIGNAL), sizeof(f));
    ck_assert(readable(nic[1], LIMIT_MS));
}
END_TEST

/* Sends until the switch takes no more; returns how many. @first is the number of the first. */
static uint32_t flood(int from, int to, uint32_t first, uint32_t max, int patience_ms)
{
    uint8_t f[4 + FRAME];
    uint32_t n = 0;

    while (n < max) {
        size_t len = frame_make(f, from, to, first + n, FRAME), done = 0;
        while (done < len) {
            ssize_t rc = send(nic[from], f + done, len - done, MSG_NOSIGNAL | MSG_DONTWAIT);
            struct pollfd p = {.fd = nic[from], .events = POLLOUT};
            if (rc < 0 && done == 0 && poll(&p, 1, patience_ms) == 0) {
                return n;
            }
            if (rc < 0 && done > 0) {
                ck_assert_int_eq(poll(&p, 1, LIMIT_MS),
                                 1); /* half a frame: the receiver is expected to read on */
            }
            done += rc > 0 ? (size_t)rc : 0;
        }
        n++;
    }
    return n;
}

/* A socket takes whole frames or nothing here, as the reader below makes room for more than one. */
START_TEST(a_slow_reader_stops_the_sender_and_loses_nothing)
{
    uint32_t want = 4000, sent = 0, taken = 0;
    pid_t pid;

    learn();
    pid = fork();
    if (pid == 0) {
        while (sent < want) {
            frame_send(0, 1, sent++);
        }
        _exit(0);
    }
    while (taken < want) {
        if (taken % 1000 == 500) {
            ck_assert_int_eq(poll(NULL, 0, 50),
                             0); /* stand still, shorter than the switch's patience */
        }
        ck_assert_int_eq(frame_take(1, LIMIT_MS), taken);
        taken++;
    }
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert_uint_eq(counter("h0:n0", "out_frames"), want + 1);
    ck_assert_uint_eq(counter("h1:n0", "in_frames"), want + 2);
    ck_assert_uint_eq(counter("h1:n0", "in_drop_stuck"), 0);
}
END_TEST

START_TEST(a_dead_reader_does_not_stop_the_others_for_long)
{
    learn();
    /* h1 takes nothing. 4 MB do not fit anywhere; after the switch's patience they are dropped. */
    ck_assert_uint_eq(flood(0, 1, 0, 1000, 5000), 1000);
    frame_send(0, 2, 4711);
    ck_assert_int_eq(frame_take(2, LIMIT_MS), 4711);
    ck_assert_uint_gt(counter("h1:n0", "in_drop_stuck"), 0);
    while (frame_take(1, 200) >= 0) {
    }
    frame_send(0, 1, 4712);
    ck_assert_int_eq(frame_take(1, LIMIT_MS), 4712);
}
END_TEST

START_TEST(a_rate_out_holds_the_sender_back)
{
    uint64_t start;
    uint32_t i;

    learn();
    ck_assert_str_eq(tell("h0:n0 rate 80 out"), "ok h0:n0 out rate 80Mbit\n");
    start = lab_clock_now();
    /* 200 frames of 4000 bytes at 10 MB/s: 80 ms. */
    for (i = 0; i < 200; i++) {
        frame_send(0, 1, i);
        while (frame_take(1, 0) >= 0) {
        }
    }
    while (counter("h1:n0", "in_frames") < 202) {
        frame_take(1, 20);
    }
    ck_assert_uint_ge(lab_clock_now() - start, 75 * LAB_NS_PER_MS);
    ck_assert_uint_eq(counter("h1:n0", "in_drop_queue"), 0);
}
END_TEST

START_TEST(a_rate_in_has_a_queue_with_an_end)
{
    learn();
    ck_assert_str_eq(tell("h1:n0 rate 1 in"), "ok h1:n0 in rate 1Mbit\n");
    /* 8 MB at once; the queue holds 4.6. The sender is not held back. */
    ck_assert_uint_eq(flood(0, 1, 0, 2000, 200), 2000);
    while (counter("h0:n0", "out_frames") < 2001) {
    }
    ck_assert_uint_gt(counter("h1:n0", "in_drop_queue"), 800);
    ck_assert_uint_lt(counter("h1:n0", "in_drop_queue"), 900);
    ck_assert_int_eq(frame_take(1, LIMIT_MS), 0);
    ck_assert_int_eq(frame_take(1, LIMIT_MS), 1);
}
END_TEST

START_TEST(a_delay_is_at_least_that)
{
    uint64_t start;

    learn();
    tell("h0:n0 delay 30 out");
    tell("h1:n0 delay 20 in");
    start = lab_clock_now();
    frame_send(0, 1, 3);
    frame_send(0, 1, 4);
    ck_assert_int_eq(frame_take(1, LIMIT_MS), 3);
    ck_assert_uint_ge(lab_clock_now() - start, 50 * LAB_NS_PER_MS);
    ck_assert_int_eq(frame_take(1, LIMIT_MS), 4);
    ck_assert_uint_eq(counter("h1:n0", "delayed"), 2);
    /* The way back is not delayed. */
    tell("h1:n0 delay 5000 in");
    frame_send(1, 0, 5);
    ck_assert_int_eq(frame_take(0, LIMIT_MS), 5);
}
END_TEST

START_TEST(duplicates_and_damage_arrive)
{
    uint8_t got[4 + FRAME], want[4 + FRAME];
    int bits = 0;
    size_t i;

    learn();
    tell("h0:n0 dup 100 out");
    frame_send(0, 1, 8);
    ck_assert_int_eq(frame_take(1, LIMIT_MS), 8);
    ck_assert_int_eq(frame_take(1, LIMIT_MS), 8);
    ck_assert_uint_eq(counter("h1:n0", "duplicated"), 1);
    tell("reset");
    tell("h1:n0 corrupt 100 in");
    frame_send(0, 1, 9);
    ck_assert_int_eq(recv(nic[1], got, sizeof(got), MSG_WAITALL), sizeof(got));
    frame_make(want, 0, 1, 9, FRAME);
    for (i = 0; i < sizeof(got); i++) {
        bits += __builtin_popcount((unsigned)(got[i] ^ want[i]));
    }
    ck_assert_int_eq(bits, 1);
}
END_TEST

START_TEST(loss_is_counted_exactly)
{
    uint32_t i, got = 0;

    learn();
    tell("h0:n0 loss 30 out");
    for (i = 0; i < 1000; i++) {
        frame_send(0, 1, i);
        got += frame_take(1, 0) >= 0;
    }
    while (frame_take(1, 200) >= 0) {
        got++;
    }
    ck_assert_uint_eq(counter("h0:n0", "out_drop_loss"), 1000 - got);
    ck_assert_uint_gt(got, 600);
    ck_assert_uint_lt(got, 800);
}
END_TEST

START_TEST(nonsense_ends_only_the_one_who_talks_it)
{
    uint32_t len = htonl(1u << 30);

    learn();
    ck_assert_int_eq(send(nic[0], &len, 4, 0), 4);
    ck_assert(readable(nic[0], LIMIT_MS));
    ck_assert_int_eq(recv(nic[0], &len, 1, 0), 0);
    frame_send(1, 2, 5);
    ck_assert_int_eq(frame_take(2, LIMIT_MS), 5);
    /* A VM that boots again takes its place. */
    nic[0] = nic_connect("h0.n0");
    frame_send(0, 2, 6);
    ck_assert_int_eq(frame_take(2, LIMIT_MS), 6);
    ck_assert_int_eq(strncmp(tell("h9:n0 cut"), "error", 5), 0);
    ck_assert_int_eq(strncmp(tell("h0:n0 burn"), "error", 5), 0);
    ck_assert_int_eq(strncmp(tell("h0:n0-h1:n1 cut"), "error", 5), 0);
    ck_assert_int_eq(strncmp(tell("h0:n0-h0:n0 cut"), "error", 5), 0);
    ck_assert_int_eq(strncmp(tell("rail9 cut"), "error", 5), 0);
    ck_assert_int_eq(strncmp(tell("a b c d e f g h"), "error", 5), 0);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_unchecked_fixture(t, folder_make, folder_remove);
    tcase_add_test(t, frames_reach_whom_they_are_for);
    tcase_add_test(t, a_cut_has_a_direction);
    tcase_add_loop_test(t, a_cut_between_ports, 0, 4);
    tcase_add_loop_test(t, a_spine_is_cut, 0, 2);
    tcase_add_test(t, a_slow_reader_stops_the_sender_and_loses_nothing);
    tcase_add_test(t, a_dead_reader_does_not_stop_the_others_for_long);
    tcase_add_test(t, a_rate_out_holds_the_sender_back);
    tcase_add_test(t, a_rate_in_has_a_queue_with_an_end);
    tcase_add_test(t, a_delay_is_at_least_that);
    tcase_add_test(t, duplicates_and_damage_arrive);
    tcase_add_test(t, loss_is_counted_exactly);
    tcase_add_test(t, nonsense_ends_only_the_one_who_talks_it);
}

int main(void)
{
    return suite_run("lab_switch", 60, switch_start, NULL, add);
}
