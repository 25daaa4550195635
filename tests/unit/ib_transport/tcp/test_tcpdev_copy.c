/* How the TCP device writes memory of the host. */
#include <check.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ib_transport/tcp/tcpdev_int.h"
#include "tests/unit/suite.h"

#define MOST 400

/* Each length, from and to each place of a line: the bytes, and none beside them. */
START_TEST(all_places_and_lengths)
{
    uint8_t from[MOST + 64], to[MOST + 96], expected[sizeof(to)];

    for (size_t i = 0; i < sizeof(from); i++) {
        from[i] = (uint8_t)(1 + i % 251);
    }
    for (size_t n = 0; n <= MOST; n++) {
        for (size_t at = 0; at < 32; at++) {
            size_t source = (7 * at + n) % 64;

            memset(to, 0, sizeof(to));
            memset(expected, 0, sizeof(expected));
            memcpy(expected + 16 + at, from + source, n);
            tcpdev_copy_in_order(to + 16 + at, from + source, n);
            ck_assert_mem_eq(to, expected, sizeof(to));
        }
    }
}
END_TEST

#ifndef __SANITIZE_THREAD__ /* whose runtime does the stores, and cannot be left from a signal */
static sigjmp_buf fault;

static void on_fault(int sig)
{
    siglongjmp(fault, 1);
}

static bool copy_dies(uint8_t *to, const uint8_t *from, size_t n)
{
    if (sigsetjmp(fault, 1)) {
        return true;
    }
    tcpdev_copy_in_order(to, from, n);
    return false;
}

/*
 * The copy runs into a page that cannot be written, at each place of its blocks: all bytes below
 * that page are there. What stores a later one first dies before the earlier one.
 */
START_TEST(nothing_is_written_before_what_is_below_it)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t from[4 * MOST];
    uint8_t *to = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction act = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};

    ck_assert(to != MAP_FAILED && mprotect(to + page, page, PROT_NONE) == 0);
    ck_assert(sigaction(SIGSEGV, &act, NULL) == 0 && sigaction(SIGBUS, &act, NULL) == 0);
    for (size_t i = 0; i < sizeof(from); i++) {
        from[i] = (uint8_t)(1 + i % 251);
    }
    for (size_t below = 0; below <= MOST; below++) {
        memset(to, 0, page);
        ck_assert(copy_dies(to + page - below, from, below + 2 * MOST));
        ck_assert_mem_eq(to + page - below, from, below);
    }
    munmap(to, 2 * page);
}
END_TEST
#endif

/* --- who polls --- */

#define WORDS 8192 /* 64 KiB: a chunk */

static _Atomic int stop;
static _Atomic uint64_t saw;

/* Numbers grow, and all bytes of one are alike: a word that is seen is whole, and none before it is
 * older. */
static void *reader(void *arg)
{
    const uint64_t *w = arg, ones = 0x0101010101010101;
    uint64_t wrong = 0;

    while (!stop) {
        for (int i = WORDS - 1; i > 0; i--) {
            uint64_t later = __atomic_load_n(&w[i], __ATOMIC_ACQUIRE);

            wrong += later != (later & 0xff) * ones;
            wrong += __atomic_load_n(&w[i - 1], __ATOMIC_ACQUIRE) < later;
            saw += later != 0;
        }
    }
    return (void *)(uintptr_t)wrong;
}

/* i: words between a boundary of 16 and the first, and how the source lies. */
START_TEST(a_poller_sees_words_in_order)
{
    uint64_t *to = aligned_alloc(64, 8 * (WORDS + 8));
    uint8_t *from = malloc(8 * (WORDS + 2));
    pthread_t t;
    void *wrong;

    memset(to, 0, 8 * (WORDS + 8));
    stop = 0;
    saw = 0;
    ck_assert_int_eq(pthread_create(&t, NULL, reader, to + _i % 2), 0);
    for (int k = 1; k < 256 || saw == 0; k++) {
        int number = k < 255 ? k : 255;

        memset(from, number, 8 * (WORDS + 2));
        tcpdev_copy_in_order((uint8_t *)(to + _i % 2), from + _i, 8 * WORDS);
    }
    stop = 1;
    pthread_join(t, &wrong);
    ck_assert_uint_eq((uintptr_t)wrong, 0);
    free(to);
    free(from);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, all_places_and_lengths);
#ifndef __SANITIZE_THREAD__
    tcase_add_test(t, nothing_is_written_before_what_is_below_it);
#endif
    tcase_add_loop_test(t, a_poller_sees_words_in_order, 0, 4);
}

int main(void)
{
    return suite_run("tcpdev_copy", 60, NULL, NULL, add);
}
