/*
 * How ranks of r2_perf on several machines agree, and end together: rank 0 and rank 1 are r2_perf's
 * own, rank 2 is a socket of the test, which hears and says what it wants.
 */
#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/times.h"
#include "tools/r2_perf/board.c"
#include "tools/r2_perf/boot.c"
#include "tools/r2_perf/boot_net.c"
#include "tools/r2_perf/util.c"

#include "tests/unit/suite.h"

#define KEY   77u
#define RANKS 3
#define LIMIT (60 * S) /* against a hang */
#define TOLD  "nothing moves"
#define BOUND (2 * S) /* boot_fail_settle() waits no longer */
#define PAUSE (S / 5)

static struct boot_place places[2];
static struct boot *boots[2];
static int raw = -1;
static pthread_t settler;
static bool settled;
static uint64_t begin_ns, end_ns;

static void *rank_0_main(void *arg)
{
    char error[600];
    ck_assert_msg(boot_open(&boots[0], &places[0], LIMIT, error, sizeof(error)) == 0, "%s", error);
    return NULL;
}

static void raw_open(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    uint64_t key = KEY;
    uint32_t rank = 2;
    raw = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(raw, (struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(boot_net_write(raw, &key, sizeof(key)), 0);
    ck_assert_int_eq(boot_net_write(raw, &rank, sizeof(rank)), 0);
}

static void ranks_open(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof(at);
    char error[600];
    pthread_t t;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(listen(fd, RANKS), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    for (int i = 0; i < 2; i++) {
        places[i] = (struct boot_place){.rank = i,
                                        .nranks = RANKS,
                                        .host = -1,
                                        .listen_fd = i == 0 ? fd : -1,
                                        .board_fd = -1,
                                        .port = ntohs(at.sin_port),
                                        .key = KEY};
    }
    ck_assert_int_eq(pthread_create(&t, NULL, rank_0_main, NULL), 0);
    raw_open(ntohs(at.sin_port));
    ck_assert_msg(boot_open(&boots[1], &places[1], LIMIT, error, sizeof(error)) == 0, "%s", error);
    pthread_join(t, NULL);
}

static void ranks_close(int code)
{
    if (raw >= 0) {
        close(raw);
        raw = -1;
    }
    /* each waits for the other's good-bye: rank 1 has it from rank 0's */
    ck_assert_int_eq(boot_close(boots[0]), code);
    ck_assert_int_eq(boot_close(boots[1]), code);
}

static void raw_fail_read(int code)
{
    struct boot_head h;
    char text[sizeof(TOLD)];
    ck_assert_int_eq(boot_net_read(raw, &h, sizeof(h)), 0);
    ck_assert_uint_eq(h.type, BOOT_FAIL);
    ck_assert_int_eq((int)h.code, code);
    ck_assert_uint_eq(h.bytes, sizeof(text));
    ck_assert_int_eq(boot_net_read(raw, text, sizeof(text)), 0);
    ck_assert_str_eq(text, TOLD);
}

static void *settler_main(void *boot)
{
    begin_ns = util_now_ns();
    settled = boot_fail_settle(boot);
    end_ns = util_now_ns();
    return NULL;
}

/* Rank @i fails, and its main thread waits for the others. */
static void rank_fails(int i)
{
    boot_fail(boots[i], PERF_TIMEOUT, TOLD);
    ck_assert_int_eq(pthread_create(&settler, NULL, settler_main, boots[i]), 0);
    raw_fail_read(PERF_TIMEOUT);
}

START_TEST(who_fails_stays_until_all_know)
{
    rank_fails(_i);
    usleep(PAUSE / US); /* who does not wait has gone by then */
    uint64_t known_ns = util_now_ns();
    struct boot_head h = {.type = BOOT_KNOWN};
    ck_assert_int_eq(boot_net_write(raw, &h, sizeof(h)), 0);
    pthread_join(settler, NULL);
    ck_assert(end_ns >= known_ns || end_ns - begin_ns >= BOUND);
    ck_assert(settled || end_ns - begin_ns >= BOUND);
    ck_assert(boot_failed(boots[0]) && boot_failed(boots[1]));
    /* who heard of it waits, too */
    ck_assert(boot_fail_settle(boots[!_i]));
    ranks_close(PERF_TIMEOUT);
}
END_TEST

START_TEST(who_is_gone_keeps_nobody)
{
    rank_fails(_i);
    close(raw);
    raw = -1;
    pthread_join(settler, NULL);
    ck_assert(settled || end_ns - begin_ns >= BOUND);
    ck_assert(boot_fail_settle(boots[0]) && boot_fail_settle(boots[1]));
    ranks_close(PERF_TIMEOUT);
}
END_TEST

START_TEST(who_does_not_answer_keeps_others_for_two_seconds)
{
    rank_fails(_i);
    pthread_join(settler, NULL);
    ck_assert(!settled);
    ck_assert_uint_ge(end_ns - begin_ns, BOUND);
    ranks_close(PERF_TIMEOUT);
}
END_TEST

/* The first error counts: what a rank sees of another's end is none. */
START_TEST(what_follows_is_no_error_of_its_own)
{
    rank_fails(1);
    struct boot_head h = {.type = BOOT_KNOWN};
    ck_assert_int_eq(boot_net_write(raw, &h, sizeof(h)), 0);
    pthread_join(settler, NULL);
    boot_fail(boots[0], PERF_NET, "remote error");
    ck_assert_int_eq(boot_error(boots[0])->code, PERF_TIMEOUT);
    ck_assert_str_eq(boot_error(boots[0])->text, TOLD);
    ranks_close(PERF_TIMEOUT);
}
END_TEST

static void *closer_main(void *boot)
{
    return (void *)(intptr_t)boot_close(boot);
}

/* Rank 1 has done all of its own well and waits for rank 0 to end, which fails. */
START_TEST(who_ended_well_has_the_code_of_a_later_failure)
{
    void *code;
    ck_assert_int_eq(pthread_create(&settler, NULL, closer_main, boots[1]), 0);
    boot_fail(boots[0], PERF_TIMEOUT, TOLD);
    raw_fail_read(PERF_TIMEOUT);
    close(raw);
    raw = -1;
    ck_assert_int_eq(boot_close(boots[0]), PERF_TIMEOUT);
    pthread_join(settler, &code);
    ck_assert_int_eq((int)(intptr_t)code, PERF_TIMEOUT);
}
END_TEST

START_TEST(a_run_without_a_failure_ends_with_none)
{
    void *code;
    struct boot_head h = {.type = BOOT_BYE};
    ck_assert_int_eq(boot_net_write(raw, &h, sizeof(h)), 0);
    shutdown(raw, SHUT_WR);
    ck_assert_int_eq(pthread_create(&settler, NULL, closer_main, boots[1]), 0);
    ck_assert_int_eq(boot_close(boots[0]), PERF_OK);
    pthread_join(settler, &code);
    ck_assert_int_eq((int)(intptr_t)code, PERF_OK);
    close(raw);
    raw = -1;
}
END_TEST

START_TEST(time_zero_is_that_of_the_first_rank_of_the_machine)
{
    enum { FAR = 61 };
    struct boot_clock all[] = {{1, 70 * S + 5}, {2, 70 * S + 1}, {1, 70 * S + 3}, {1, 70 * S + 9}};
    for (int i = 0; i < 4; i++) {
        ck_assert_uint_eq(boot_clock_first(all, 4, i),
                          all[i].machine == 1 ? 70 * S + 3 : 70 * S + 1);
    }
    all[2].now_ns -= FAR * S; /* another clock */
    ck_assert_uint_eq(boot_clock_first(all, 4, 0), 70 * S + 5);
    ck_assert_uint_eq(boot_clock_first(all, 4, 2), 70 * S + 3 - FAR * S);
}
END_TEST

static void *agree_main(void *t0)
{
    ck_assert_int_eq(boot_clock_agree(boots[1], t0), 0);
    return NULL;
}

/* Rank 2 is of this machine and was there 5 ms before. */
START_TEST(ranks_of_a_machine_agree_on_time_zero)
{
    uint64_t t0[2];
    struct boot_clock own = {util_machine_id(), util_now_ns() - 5 * MS};
    struct boot_head h = {.type = BOOT_GATHER, .bytes = sizeof(own)};
    ck_assert_int_eq(boot_net_write(raw, &h, sizeof(h)), 0);
    ck_assert_int_eq(boot_net_write(raw, &own, sizeof(own)), 0);
    ck_assert_int_eq(pthread_create(&settler, NULL, agree_main, &t0[1]), 0);
    ck_assert_int_eq(boot_clock_agree(boots[0], &t0[0]), 0);
    pthread_join(settler, NULL);
    ck_assert_uint_eq(t0[0], own.now_ns);
    ck_assert_uint_eq(t0[1], own.now_ns);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, time_zero_is_that_of_the_first_rank_of_the_machine);
    tcase_add_test(t, ranks_of_a_machine_agree_on_time_zero);
    tcase_add_loop_test(t, who_fails_stays_until_all_know, 0, 2);
    tcase_add_loop_test(t, who_is_gone_keeps_nobody, 0, 2);
    tcase_add_loop_test(t, who_does_not_answer_keeps_others_for_two_seconds, 0, 2);
    tcase_add_test(t, what_follows_is_no_error_of_its_own);
    tcase_add_test(t, who_ended_well_has_the_code_of_a_later_failure);
    tcase_add_test(t, a_run_without_a_failure_ends_with_none);
}

int main(void)
{
    return suite_run("perf_boot", 120, ranks_open, NULL, add);
}
