#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ib_transport/ib_mr.h"
#include "r2_log.h"
#include "tests/support/fake_verbs.h"

#define PAGE 4096u
#define NICS 3
#define ALL  ((1u << NICS) - 1)
#define LIMIT 60000000000ull /* ns: a bound against hangs */

static struct ib_verbs verbs;
static struct r2_config cfg;
static struct ib_nics nics;
static struct ib_mr_cache *cache;
static char *mem; /* page aligned, never touched: the fake does not look */
static int lines;

static void sink(enum r2_log_level level, const char *file, int line, const char *msg)
{
    lines += strstr(msg, "cannot be registered") != NULL;
}

static void begin(void)
{
    char why[128];

    for (int i = 0; i < NICS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "n%d", i);
        fake_add(name);
    }
    ck_assert_int_eq(ib_nics_open(&nics, &verbs, &cfg, why, sizeof(why)), 0);
    for (int i = 0; i < NICS; i++)
        atomic_store(&fake_dev[i].reg_calls, 0); /* opening asks about DMA-BUF */
    cache = ib_mr_cache_create(&nics, 1);
    ck_assert_ptr_nonnull(cache);
    r2_log_flush();
    lines = 0;
}

static void setup(void)
{
    fake_reset();
    fake_table(&verbs);
    r2_config_defaults(&cfg);
    cfg.t_fence_ms = 2000; /* nobody is late, however busy the machine */
    r2_log_sink_set(sink);
    mem = aligned_alloc(PAGE, 64 * PAGE);
}

static int live(void)
{
    int n = 0;

    for (int i = 0; i < NICS; i++)
        n += atomic_load(&fake_dev[i].mrs);
    return n;
}

static void end(void)
{
    struct ib_mr_stats st;

    ib_mr_cache_stats(cache, &st);
    ck_assert_int_eq(st.live, 0);
    ck_assert_int_eq(live(), 0);
    ck_assert_uint_eq(ib_mr_cache_destroy(cache, LIMIT), 0);
    ib_nics_close(&nics);
    free(mem);
}

static struct ib_mr *host(size_t at, size_t len, uint64_t mask)
{
    return ib_mr_get(cache, mem + at, len, IB_PTR_HOST, 0, -1, mask);
}

START_TEST(every_nic_and_the_last_put)
{
    struct ib_mr *a, *b;
    struct ib_mr_stats st;

    begin();
    a = host(100, 50, ALL);
    ck_assert_ptr_nonnull(a);
    ck_assert_int_eq(live(), NICS);
    ck_assert_uint_eq(a->addr, (uintptr_t)mem);
    ck_assert_uint_eq(a->len, PAGE);
    ck_assert_uint_eq(fake_dev[0].last_iova, (uintptr_t)mem);
    for (int i = 0; i < NICS; i++) {
        ck_assert_uint_ne(ib_mr_lkey(a, i), 0);
        ck_assert_uint_eq(ib_mr_rkey(a, i), ib_mr_lkey(a, i) | 0x80000000u);
    }
    ck_assert_uint_eq(ib_mr_lkey(a, NICS), 0);
    b = host(100, 50, ALL);
    ck_assert_ptr_eq(a, b);
    ib_mr_cache_stats(cache, &st);
    ck_assert_uint_eq(st.registrations, NICS);
    ck_assert_uint_eq(st.hits, 1);
    ck_assert_int_eq(st.live, 1);
    ib_mr_put(cache, a);
    ck_assert_int_eq(live(), NICS); /* b still holds it */
    ib_mr_put(cache, b);
    ck_assert_int_eq(live(), 0);
    ib_mr_put(cache, NULL);
    end();
}
END_TEST

START_TEST(parts_are_covered)
{
    struct ib_mr *whole, *part, *next, *over;

    begin();
    whole = host(0, 8 * PAGE, ALL);
    part = host(3 * PAGE + 5, 2 * PAGE, ALL);
    ck_assert_ptr_eq(whole, part);
    next = host(8 * PAGE, 1, ALL);
    ck_assert_ptr_ne(whole, next);
    over = host(7 * PAGE, PAGE + 1, ALL); /* one byte beyond */
    ck_assert_ptr_ne(over, whole);
    ck_assert_uint_eq(over->len, 2 * PAGE);
    ck_assert_int_eq(live(), 3 * NICS);
    ib_mr_put(cache, whole);
    ck_assert_int_eq(live(), 3 * NICS);
    ib_mr_put(cache, part);
    ib_mr_put(cache, next);
    ib_mr_put(cache, over);
    end();
}
END_TEST

START_TEST(type_is_part_of_the_key)
{
    struct ib_mr *h, *c;

    begin();
    h = host(0, PAGE, 1);
    c = ib_mr_get(cache, mem, PAGE, IB_PTR_CUDA, 0, -1, 1);
    ck_assert_ptr_ne(h, c);
    ib_mr_put(cache, h);
    ib_mr_put(cache, c);
    end();
}
END_TEST

START_TEST(nics_are_added_later)
{
    struct ib_mr *a, *b;

    begin();
    a = host(0, PAGE, 1);
    ck_assert_int_eq(live(), 1);
    ck_assert_uint_eq(ib_mr_lkey(a, 2), 0);
    b = host(0, PAGE, 5);
    ck_assert_ptr_eq(a, b);
    ck_assert_int_eq(live(), 2);
    ck_assert_uint_ne(ib_mr_lkey(a, 2), 0);
    ck_assert_uint_eq(ib_mr_lkey(a, 1), 0);
    ib_mr_put(cache, a);
    ib_mr_put(cache, b);
    end();
}
END_TEST

START_TEST(a_backup_that_cannot)
{
    struct ib_mr *a, *b;
    struct ib_mr_stats st;

    begin();
    fake_dev[1].reg_errno = ENOMEM;
    a = host(0, PAGE, ALL);
    ck_assert_ptr_nonnull(a);
    ck_assert_uint_eq(ib_mr_lkey(a, 1), 0);
    ck_assert_uint_ne(ib_mr_lkey(a, 0), 0);
    ck_assert_uint_ne(ib_mr_lkey(a, 2), 0);
    ck_assert_int_eq(atomic_load(&fake_dev[1].reg_calls), 1);
    /* not asked again, nor complained about, by each of many connections */
    b = host(0, PAGE, ALL);
    ck_assert_ptr_eq(a, b);
    ck_assert_int_eq(atomic_load(&fake_dev[1].reg_calls), 1);
    r2_log_flush();
    ck_assert_int_eq(lines, 1);
    /* unless it is the only one that would do */
    ck_assert_ptr_null(host(0, PAGE, 2));
    ck_assert_int_eq(errno, ENOMEM);
    fake_dev[1].reg_errno = 0;
    ck_assert_ptr_eq(host(0, PAGE, 2), a);
    ck_assert_uint_ne(ib_mr_lkey(a, 1), 0);
    ib_mr_cache_stats(cache, &st);
    ck_assert_uint_eq(st.failures, 2);
    for (int i = 0; i < 3; i++)
        ib_mr_put(cache, a);
    end();
}
END_TEST

START_TEST(none_that_can)
{
    begin();
    for (int i = 0; i < NICS; i++)
        fake_dev[i].reg_errno = EFAULT;
    ck_assert_ptr_null(host(0, PAGE, ALL));
    ck_assert_int_eq(errno, EFAULT);
    end();
}
END_TEST

START_TEST(dead_nics_are_not_touched)
{
    struct ib_mr *a, *b;
    struct ibv_mr *left;

    begin();
    a = host(0, PAGE, ALL);
    left = atomic_load(&a->mr[0]);
    ib_nic_state_change(&nics, 0, IB_NIC_FATAL, "test");
    ib_nic_state_change(&nics, 1, IB_NIC_GONE, "test");
    b = host(PAGE, PAGE, ALL);
    ck_assert_uint_eq(ib_mr_lkey(b, 0), 0);
    ck_assert_uint_eq(ib_mr_lkey(b, 1), 0);
    ck_assert_uint_ne(ib_mr_lkey(b, 2), 0);
    ck_assert_ptr_null(host(PAGE * 2, PAGE, 3));
    ck_assert_int_eq(errno, ENODEV);
    ib_mr_put(cache, b);
    ib_mr_put(cache, a);
    ck_assert_int_eq(atomic_load(&fake_dev[0].mrs), 1); /* FATAL: left to the end of the process */
    free(left);
    ck_assert_int_eq(atomic_load(&fake_dev[1].mrs), 0);
    ck_assert_int_eq(atomic_load(&fake_dev[2].mrs), 0);
    ck_assert_uint_eq(ib_mr_cache_destroy(cache, LIMIT), 0);
    ib_nics_close(&nics);
    free(mem);
}
END_TEST

START_TEST(a_port_that_is_down_is_registered)
{
    struct ib_mr *a;

    begin();
    ib_nic_state_change(&nics, 0, IB_NIC_DOWN, "test");
    a = host(0, PAGE, ALL);
    ck_assert_uint_ne(ib_mr_lkey(a, 0), 0);
    ib_mr_put(cache, a);
    end();
}
END_TEST

START_TEST(bad_arguments)
{
    begin();
    ck_assert_ptr_null(ib_mr_get(cache, NULL, 1, IB_PTR_HOST, 0, -1, ALL));
    ck_assert_int_eq(errno, EINVAL);
    ck_assert_ptr_null(ib_mr_get(cache, mem, 1, 8, 0, -1, ALL));
    ck_assert_int_eq(errno, EINVAL);
    ck_assert_ptr_null(ib_mr_get(cache, mem, 1, IB_PTR_HOST, 0, -1, 0));
    ck_assert_int_eq(errno, EINVAL);
    ck_assert_ptr_null(ib_mr_get(cache, mem, SIZE_MAX, IB_PTR_HOST, 0, -1, ALL));
    ck_assert_int_eq(errno, EINVAL);
    ck_assert_ptr_null(ib_mr_get(cache, (void *)(UINTPTR_MAX - 10), 5, IB_PTR_HOST, 0, -1, ALL));
    ck_assert_int_eq(errno, EINVAL);
    ck_assert_ptr_null(ib_mr_get(cache, mem, 1, IB_PTR_DMABUF, 0, -1, ALL));
    ck_assert_int_eq(errno, EINVAL);
    end();
}
END_TEST

START_TEST(no_length_is_one_byte)
{
    struct ib_mr *a;

    begin();
    a = host(PAGE, 0, 1);
    ck_assert_ptr_nonnull(a);
    ck_assert_uint_eq(a->len, PAGE);
    ib_mr_put(cache, a);
    end();
}
END_TEST

static int fd_is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

START_TEST(dmabuf)
{
    struct ib_mr *a, *b;
    int fd = open("/dev/null", O_RDONLY), other = open("/dev/null", O_RDONLY), dup;

    fake_dmabuf_errno = 0;
    begin();
    a = ib_mr_get(cache, mem + 7, 1000, IB_PTR_CUDA, 64, fd, 1);
    ck_assert_ptr_nonnull(a);
    ck_assert_int_eq(fake_dev[0].last_via, 'd');
    ck_assert_uint_eq(fake_dev[0].last_offset, 64);
    ck_assert_uint_eq(fake_dev[0].last_len, 1000);
    ck_assert_uint_eq(fake_dev[0].last_iova, (uintptr_t)mem + 7);
    dup = a->dmabuf_fd;
    ck_assert_int_ne(dup, fd);
    close(fd); /* as NCCL does, right after the call */
    /* the same memory comes with another fd; the one of the first call serves for the NICs that are missing */
    b = ib_mr_get(cache, mem + 7, 1000, IB_PTR_CUDA, 0, other, 3);
    ck_assert_ptr_eq(a, b);
    ck_assert_int_eq(fake_dev[1].last_fd, dup);
    ck_assert_uint_eq(fake_dev[1].last_offset, 64);
    ck_assert_int_eq(atomic_load(&fake_dev[0].reg_calls), 1);
    ck_assert(fd_is_open(dup));
    /* not what plain registration of the same address would be */
    b = ib_mr_get(cache, mem + 7, 1000, IB_PTR_CUDA, 0, -1, 1);
    ck_assert_ptr_ne(a, b);
    ib_mr_put(cache, b);
    ib_mr_put(cache, a);
    ib_mr_put(cache, a);
    ck_assert(!fd_is_open(dup));
    ck_assert(fd_is_open(other));
    close(other);
    end();
}
END_TEST

START_TEST(dmabuf_that_does_not_work)
{
    int fd = open("/dev/null", O_RDONLY), before, after;

    verbs.reg_dmabuf_mr = NULL;
    begin();
    before = dup(0);
    close(before);
    ck_assert_ptr_null(ib_mr_get(cache, mem, 1, IB_PTR_CUDA, 0, fd, ALL));
    ck_assert_int_eq(errno, EOPNOTSUPP);
    ck_assert_ptr_null(ib_mr_get(cache, mem, 1, IB_PTR_CUDA, 0, 9999, ALL));
    ck_assert_int_eq(errno, EBADF);
    after = dup(0);
    close(after);
    ck_assert_int_eq(before, after); /* no descriptor stays behind */
    close(fd);
    end();
}
END_TEST

static void relaxed_case(const char *mode, int has_iova2, int want_flag, int want_via)
{
    struct ib_mr *a;
    char why[64];

    setup();
    ck_assert_int_eq(r2_config_set(&cfg, "NCCL_IB_PCI_RELAXED_ORDERING", mode, why, sizeof(why)), 0);
    if (!has_iova2)
        verbs.reg_mr_iova2 = NULL;
    begin();
    a = host(0, PAGE, 1);
    ck_assert_int_eq((fake_dev[0].last_access & IBV_ACCESS_RELAXED_ORDERING) != 0, want_flag);
    ck_assert_int_eq(fake_dev[0].last_via, want_via);
    ck_assert_int_eq(fake_dev[0].last_access & 15,
                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    ib_mr_put(cache, a);
    end();
}

START_TEST(relaxed_ordering)
{
    free(mem);
    relaxed_case("2", 1, 1, 'i');
    relaxed_case("1", 1, 1, 'i');
    relaxed_case("0", 1, 0, 'r');
    relaxed_case("2", 0, 0, 'r');
    relaxed_case("1", 0, 0, 'r');
}
END_TEST

START_TEST(destroy_drops_what_is_left)
{
    begin();
    host(0, PAGE, ALL);
    host(PAGE, PAGE, 1);
    ck_assert_int_eq(live(), NICS + 1);
    ck_assert_uint_eq(ib_mr_cache_destroy(cache, LIMIT), 0);
    ck_assert_int_eq(live(), 0);
    ib_nics_close(&nics);
    free(mem);
}
END_TEST

/* Several threads take and drop a few overlapping buffers while one reads keys, as NCCL's two proxy threads do. */
static struct ib_mr *watched;
static atomic_int stop;

static void *taker(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;

    for (int i = 0; i < 3000; i++) {
        size_t at = (size_t)(rand_r(&seed) % 8) * PAGE;
        struct ib_mr *m = host(at, PAGE * (1 + (size_t)(rand_r(&seed) % 4)), 1u << (rand_r(&seed) % NICS));
        if (m == NULL || m->addr > (uintptr_t)mem + at)
            return (void *)1;
        ib_mr_put(cache, m);
    }
    return NULL;
}

/* The same over all NICs, until it is told to stop. */
static void *taker_of_all(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;

    while (!atomic_load(&stop)) {
        struct ib_mr *m = host((size_t)(rand_r(&seed) % 8) * PAGE, PAGE, ALL);

        if (m == NULL || (!ib_mr_rkey(m, 0) && !ib_mr_rkey(m, 2)))
            return (void *)1;
        ib_mr_put(cache, m);
    }
    return NULL;
}

static void *reader(void *arg)
{
    while (!atomic_load(&stop)) {
        for (int i = 0; i < NICS; i++) {
            uint32_t l = ib_mr_lkey(watched, i), r = ib_mr_rkey(watched, i);
            if (l != 0 && r != (l | 0x80000000u))
                return (void *)1;
        }
    }
    return NULL;
}

START_TEST(threads)
{
    pthread_t t[4], rd;
    void *bad;

    begin();
    watched = host(0, 2 * PAGE, 1); /* other NICs are added to it by the takers */
    pthread_create(&rd, NULL, reader, NULL);
    for (uintptr_t i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, taker, (void *)(i + 1));
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], &bad);
        ck_assert_ptr_null(bad);
    }
    atomic_store(&stop, 1);
    pthread_join(rd, &bad);
    ck_assert_ptr_null(bad);
    ib_mr_put(cache, watched);
    end();
}
END_TEST

/* --- a driver that does not come back --- */

enum where { IN_REG = 1, IN_DEREG };

static struct ib_verbs true_verbs;
static atomic_int hang_nic, hang_where; /* the device whose calls stay, and which; 0: none */
static atomic_int inside;               /* calls that stay */
static pthread_mutex_t hang_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t hang_over = PTHREAD_COND_INITIALIZER;

static void stay(struct ibv_context *ctx, int where)
{
    if (ctx != &fake_dev[atomic_load(&hang_nic)].ctx || atomic_load(&hang_where) != where)
        return;
    pthread_mutex_lock(&hang_lock);
    atomic_fetch_add(&inside, 1);
    while (atomic_load(&hang_where) == where)
        pthread_cond_wait(&hang_over, &hang_lock);
    atomic_fetch_sub(&inside, 1);
    pthread_mutex_unlock(&hang_lock);
}

static struct ibv_mr *reg_hung(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova, unsigned int access)
{
    stay(pd->context, IN_REG);
    return true_verbs.reg_mr_iova2(pd, addr, len, iova, access);
}

static struct ibv_mr *reg_dmabuf_hung(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova, int fd, int access)
{
    stay(pd->context, IN_REG);
    return true_verbs.reg_dmabuf_mr(pd, offset, len, iova, fd, access);
}

static int dereg_hung(struct ibv_mr *mr)
{
    stay(mr->context, IN_DEREG);
    return true_verbs.dereg_mr(mr);
}

static void begin_hung(int nic, enum where where)
{
    true_verbs = verbs;
    cfg.t_fence_ms = 40;
    verbs.reg_mr_iova2 = reg_hung;
    verbs.reg_dmabuf_mr = reg_dmabuf_hung;
    verbs.dereg_mr = dereg_hung;
    begin();
    atomic_store(&hang_nic, nic);
    atomic_store(&hang_where, where);
}

static void come_back(void)
{
    pthread_mutex_lock(&hang_lock);
    atomic_store(&hang_where, 0);
    pthread_cond_broadcast(&hang_over);
    pthread_mutex_unlock(&hang_lock);
}

/* Test limits are what bounds these. */
static void wait_live(int n)
{
    while (live() != n)
        usleep(1000);
}

/* It keeps neither other NICs, nor other buffers, nor a release; what it brings behind that is taken away. */
START_TEST(a_hung_driver_keeps_nobody)
{
    struct ib_mr *a, *b;
    struct ib_mr_stats st;

    begin_hung(1, IN_REG);
    a = host(0, PAGE, ALL);
    ck_assert_ptr_nonnull(a);
    b = host(8 * PAGE, PAGE, ALL);
    ck_assert_ptr_nonnull(b);
    ck_assert_ptr_eq(host(0, PAGE, ALL), a);
    ck_assert(ib_mr_rkey(a, 0) && ib_mr_rkey(a, 2) && ib_mr_rkey(b, 0) && ib_mr_rkey(b, 2));
    ck_assert(!ib_mr_rkey(a, 1) && !ib_mr_rkey(b, 1));
    ib_mr_put(cache, a);
    ib_mr_put(cache, a);
    ck_assert_int_eq(live(), 2); /* of b */
    ck_assert_int_eq(atomic_load(&inside), 1);
    r2_log_flush();
    ib_mr_cache_stats(cache, &st);
    ck_assert_uint_eq(st.owed, 1);
    come_back();
    wait_live(3); /* b on all; a, which came late, on none */
    ck_assert_uint_ne(ib_mr_rkey(b, 1), 0);
    ck_assert_int_eq(atomic_load(&fake_dev[1].reg_calls), 2);
    ib_mr_cache_stats(cache, &st);
    ck_assert_uint_eq(st.late, 1);
    ib_mr_put(cache, b);
    end();
}
END_TEST

/*
 * The registration that others wait for is the one that hangs: they go on over the NICs that have
 * it.
 */
START_TEST(its_key_comes_when_it_does)
{
    struct ib_mr *a;

    begin_hung(0, IN_REG);
    a = host(0, PAGE, ALL);
    ck_assert_ptr_nonnull(a);
    ck_assert_uint_eq(ib_mr_lkey(a, 0), 0);
    come_back();
    while (ib_mr_lkey(a, 0) == 0)
        usleep(1000);
    ck_assert_ptr_eq(host(0, PAGE, 1), a);
    ck_assert_int_eq(atomic_load(&fake_dev[0].reg_calls), 1);
    ib_mr_put(cache, a);
    ib_mr_put(cache, a);
    end();
}
END_TEST

START_TEST(a_driver_that_hangs_in_a_release)
{
    struct ib_mr *a, *b;
    struct ib_mr_stats st;

    begin_hung(1, IN_DEREG);
    a = host(0, PAGE, ALL);
    b = host(8 * PAGE, PAGE, ALL);
    ib_mr_put(cache, a);
    ck_assert_int_eq(live(), 4); /* b on all, a on the one */
    ib_mr_put(cache, b);
    ck_assert_int_eq(live(), 2);
    ck_assert_int_eq(atomic_load(&inside), 1);
    ib_mr_cache_stats(cache, &st);
    ck_assert_uint_eq(st.owed, 2);
    a = host(0, PAGE, 5);
    ck_assert_ptr_nonnull(a);
    come_back();
    wait_live(2);
    ib_mr_put(cache, a);
    end();
}
END_TEST

/* No other NIC would do: the caller hears of it, in bounded time, and the next one at once. */
START_TEST(the_only_nic_hangs)
{
    cfg.t_give_up_ms = 300;
    begin_hung(2, IN_REG);
    ck_assert_ptr_null(host(0, PAGE, 4));
    ck_assert_int_eq(errno, ETIMEDOUT);
    ck_assert_ptr_null(host(8 * PAGE, PAGE, 4));
    ck_assert_int_eq(errno, ETIMEDOUT);
    ck_assert_int_eq(atomic_load(&inside), 1);
    come_back();
    while (atomic_load(&inside))
        usleep(1000);
    ck_assert_ptr_nonnull(watched = host(16 * PAGE, PAGE, 4));
    ib_mr_put(cache, watched);
    ck_assert_int_eq(atomic_load(&fake_dev[2].reg_calls), 2); /* the second one was not asked for any more */
    wait_live(0);
    end();
}
END_TEST

/* NCCL closes its descriptor behind the call; ours stays as long as the late call needs it, and no longer. */
START_TEST(dmabuf_of_a_hung_driver)
{
    int fd = open("/dev/null", O_RDONLY), mine;
    struct ib_mr *a;

    fake_dmabuf_errno = 0;
    begin_hung(1, IN_REG);
    a = ib_mr_get(cache, mem, 1000, IB_PTR_CUDA, 64, fd, 3);
    ck_assert_ptr_nonnull(a);
    mine = a->dmabuf_fd;
    close(fd);
    ib_mr_put(cache, a);
    ck_assert(fd_is_open(mine));
    come_back();
    while (fd_is_open(mine))
        usleep(1000);
    wait_live(0);
    end(); /* joins its thread */
    ck_assert_int_eq(fake_dev[1].last_fd, mine);
}
END_TEST

/* The instance goes with its driver inside: said, and all that it may come back to stays. */
START_TEST(destroyed_with_a_driver_inside)
{
    struct ib_mr *a;

    begin_hung(1, IN_REG);
    a = host(0, PAGE, ALL);
    ib_mr_put(cache, a);
    ck_assert_uint_eq(ib_mr_cache_destroy(cache, 1000000), 2);
    ck_assert_int_eq(live(), 0);
    come_back();
    while (atomic_load(&fake_dev[1].reg_calls) != 1 || live() != 0)
        usleep(1000);
}
END_TEST

/* Threads at work while a driver comes and goes. */
START_TEST(threads_and_a_driver_that_hangs_now_and_then)
{
    pthread_t t[4];
    void *bad;

    begin_hung(1, 0);
    for (uintptr_t i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, taker_of_all, (void *)(i + 1));
    for (int i = 0; i < 6; i++) {
        atomic_store(&hang_where, i % 2 ? IN_DEREG : IN_REG);
        while (atomic_load(&inside) == 0)
            usleep(1000);
        usleep(20000);
        come_back();
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], &bad);
        ck_assert_ptr_null(bad);
    }
    wait_live(0);
    end();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ib_mr");
    TCase *t = tcase_create("cache");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(t, setup, NULL);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, every_nic_and_the_last_put);
    tcase_add_test(t, parts_are_covered);
    tcase_add_test(t, type_is_part_of_the_key);
    tcase_add_test(t, nics_are_added_later);
    tcase_add_test(t, a_backup_that_cannot);
    tcase_add_test(t, none_that_can);
    tcase_add_test(t, dead_nics_are_not_touched);
    tcase_add_test(t, a_port_that_is_down_is_registered);
    tcase_add_test(t, bad_arguments);
    tcase_add_test(t, no_length_is_one_byte);
    tcase_add_test(t, dmabuf);
    tcase_add_test(t, dmabuf_that_does_not_work);
    tcase_add_test(t, relaxed_ordering);
    tcase_add_test(t, destroy_drops_what_is_left);
    tcase_add_test(t, threads);
    tcase_add_test(t, a_hung_driver_keeps_nobody);
    tcase_add_test(t, its_key_comes_when_it_does);
    tcase_add_test(t, a_driver_that_hangs_in_a_release);
    tcase_add_test(t, the_only_nic_hangs);
    tcase_add_test(t, dmabuf_of_a_hung_driver);
    tcase_add_test(t, destroyed_with_a_driver_inside);
    tcase_add_test(t, threads_and_a_driver_that_hangs_now_and_then);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
