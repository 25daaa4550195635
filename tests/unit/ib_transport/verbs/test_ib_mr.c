/* Registrations of memory on every NIC, shared by who covers whom. */
#include "tests/unit/mr_rig.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

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

/* --- a NIC that has pages, as real ones do: those that were there when it registered them --- */

static struct pinned {
    struct ibv_mr *mr;
    uint8_t *pages; /* the same ones, at another address */
    uintptr_t addr;
} pinned[16];
static int npinned;
static struct ibv_mr *(*plain_reg)(struct ibv_pd *pd, void *addr, size_t len, int access);
static struct ibv_mr *(*plain_iova2)(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
                                     unsigned access);

static struct ibv_mr *pin(struct ibv_mr *mr, void *addr, size_t len)
{
    void *pages = mremap(addr, 0, len, MREMAP_MAYMOVE); /* shared memory: maps it once more */

    ck_assert_ptr_ne(pages, MAP_FAILED);
    pinned[npinned++] = (struct pinned){mr, pages, (uintptr_t)addr};
    return mr;
}

static struct ibv_mr *pinning_reg(struct ibv_pd *pd, void *addr, size_t len, int access)
{
    return pin(plain_reg(pd, addr, len, access), addr, len);
}

static struct ibv_mr *pinning_iova2(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
                                    unsigned access)
{
    return pin(plain_iova2(pd, addr, len, iova, access), addr, len);
}

/* A peer's RDMA write by the key of @mr on NIC 0. */
static void nic_writes(struct ib_mr *mr, const void *addr, uint8_t byte)
{
    for (int i = npinned - 1; i >= 0; i--) {
        if (pinned[i].mr == atomic_load(&mr->mr[0])) {
            pinned[i].pages[(uintptr_t)addr - pinned[i].addr] = byte;
            return;
        }
    }
    ck_abort_msg("no such key");
}

/*
 * The whole and a part of it are registered, by two communicators, say. The whole is released, what
 * of it is no part is unmapped, and other pages come at its place: what is registered there is not
 * what the NIC still has.
 */
START_TEST(what_is_released_may_be_other_memory)
{
    uint8_t *at = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct ib_mr *whole, *part, *anew;

    begin();
    plain_reg = verbs.reg_mr;
    plain_iova2 = verbs.reg_mr_iova2;
    verbs.reg_mr = pinning_reg;
    verbs.reg_mr_iova2 = pinning_iova2;
    whole = ib_mr_get(cache, at, 4 * PAGE, IB_PTR_HOST, 0, -1, 1);
    part = ib_mr_get(cache, at + 3 * PAGE, PAGE, IB_PTR_HOST, 0, -1, 1);
    nic_writes(whole, at, 1);
    ck_assert_uint_eq(at[0], 1);

    ib_mr_put(cache, whole);
    ck_assert_int_eq(munmap(at, 3 * PAGE), 0);
    ck_assert_ptr_eq(
        mmap(at, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
        at);
    anew = ib_mr_get(cache, at, 3 * PAGE, IB_PTR_HOST, 0, -1, 1);
    ck_assert_ptr_nonnull(anew);
    nic_writes(anew, at, 0x77);
    ck_assert_msg(at[0] == 0x77, "a message that has come is not in its buffer: byte 0 is %02x",
                  at[0]);
    ib_mr_put(cache, anew);
    ib_mr_put(cache, part);
    end();
}
END_TEST

static atomic_int reaches_asked; /* bit per NIC: each NIC's thread asks */

static int reaches_all(void *arg, int nic, const struct ib_mr *mr, const struct ibv_mr *m)
{
    atomic_fetch_or(&reaches_asked, 1 << nic);
    return 0;
}

/* A NIC of last resort copies: it is told that memory is a GPU's, has it by its address, be there a
 * DMA-BUF or not, and is not asked whether it reaches it. */
START_TEST(last_resort_copies_memory_of_a_gpu)
{
    struct ib_mr *h, *c;
    int fd;

    begin();
    nics.nic[2].last = true;
    atomic_store(&reaches_asked, 0);
    ib_mr_cache_reaches_set(cache, reaches_all, NULL);
    h = host(0, PAGE, ALL);
    ck_assert_uint_ne(ib_mr_lkey(h, 2), 0);
    ck_assert_int_eq(fake_dev[2].last_access & IB_ACCESS_GPU, 0);
    fake_dmabuf_errno = 0;
    for (int dmabuf = 0; dmabuf < 2; dmabuf++) {
        fd = dmabuf ? open("/dev/null", O_RDONLY) : -1;
        c = ib_mr_get(cache, mem + PAGE, PAGE, IB_PTR_CUDA, 0, fd, ALL);
        ck_assert_ptr_nonnull(c);
        ck_assert_uint_ne(ib_mr_lkey(c, 1), 0);
        ck_assert_uint_ne(ib_mr_lkey(c, 2), 0);
        ck_assert_int_ne(fake_dev[2].last_access & IB_ACCESS_GPU, 0);
        ck_assert_int_eq(fake_dev[1].last_access & IB_ACCESS_GPU, 0);
        ck_assert_int_eq(atomic_load(&reaches_asked) & 1 << 2, 0);
        ib_mr_put(cache, c);
        if (fd >= 0) {
            close(fd);
        }
    }
    ck_assert_int_eq(atomic_load(&fake_dev[2].reg_calls), 3);
    ib_mr_put(cache, h);
    end();
}
END_TEST

/* What RDMA refuses is refused, whatever the last resort takes; where a connection has that NIC
 * alone, or the others are dead, it is enough. */
START_TEST(last_resort_is_enough_where_it_is_alone)
{
    struct ib_mr *h;

    begin();
    nics.nic[2].last = true;
    fake_dev[0].reg_errno = fake_dev[1].reg_errno = ENOMEM;
    ck_assert_ptr_null(host(0, PAGE, ALL));
    ck_assert_int_eq(errno, ENOMEM);
    h = host(PAGE, PAGE, 1 << 2);
    ck_assert_ptr_nonnull(h);
    ck_assert_uint_ne(ib_mr_lkey(h, 2), 0);
    ib_mr_put(cache, h);
    fake_dev[2].reg_errno = EPERM;
    ck_assert_ptr_null(host(2 * PAGE, PAGE, 1 << 2));
    ck_assert_int_eq(errno, EPERM);
    fake_dev[2].reg_errno = 0;
    ib_nic_state_change(&nics, 0, IB_NIC_FATAL, "test");
    ck_assert_ptr_null(host(3 * PAGE, PAGE, ALL));
    ck_assert_int_eq(errno, ENOMEM);
    ib_nic_state_change(&nics, 1, IB_NIC_GONE, "test");
    h = host(3 * PAGE, PAGE, ALL);
    ck_assert_ptr_nonnull(h);
    ck_assert_uint_ne(ib_mr_lkey(h, 2), 0);
    ib_mr_put(cache, h);
    end();
}
END_TEST

/* It cannot, as without a driver: nobody expected it to. */
START_TEST(last_resort_without_copies)
{
    struct ib_mr *c;

    begin();
    nics.nic[2].last = true;
    fake_dev[2].reg_errno = EOPNOTSUPP;
    c = ib_mr_get(cache, mem + PAGE, PAGE, IB_PTR_CUDA, 0, -1, ALL);
    ck_assert_uint_ne(ib_mr_lkey(c, 1), 0);
    ck_assert_uint_eq(ib_mr_lkey(c, 2), 0);
    ck_assert_uint_eq(ib_mr_cache_refused(cache), 0);
    ib_mr_put(cache, c);
    end();
}
END_TEST

START_TEST(parts_of_what_is_held)
{
    struct ib_mr *whole, *part;

    begin();
    whole = host(0, 8 * PAGE, 1);
    for (int i = 0; i < 10; i++) {
        part = host(i % 8 * PAGE, PAGE, 1);
        ck_assert_ptr_eq(part, whole);
        ib_mr_put_part(cache, part);
    }
    ck_assert_int_eq(fake_dev[0].reg_calls, 1);
    ib_mr_put(cache, whole);
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
    for (int i = 0; i < 3; i++) {
        ib_mr_put(cache, a);
    }
    end();
}
END_TEST

START_TEST(none_that_can)
{
    begin();
    for (int i = 0; i < NICS; i++) {
        fake_dev[i].reg_errno = EFAULT;
    }
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

static void relaxed_case(const char *mode, int has_iova2, int want_flag, int want_via)
{
    struct ib_mr *a;
    char why[64];

    setup();
    ck_assert_int_eq(r2_config_set(&cfg, "NCCL_IB_PCI_RELAXED_ORDERING", mode, why, sizeof(why)),
                     0);
    if (!has_iova2) {
        verbs.reg_mr_iova2 = NULL;
    }
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

/* Several threads take and drop a few overlapping buffers while one reads keys, as NCCL's two proxy
 * threads do. */
static struct ib_mr *watched;
static atomic_int stop;

static void *taker(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;

    for (int i = 0; i < 3000; i++) {
        size_t at = (size_t)(rand_r(&seed) % 8) * PAGE;
        struct ib_mr *m =
            host(at, PAGE * (1 + (size_t)(rand_r(&seed) % 4)), 1u << (rand_r(&seed) % NICS));
        if (m == NULL || m->addr > (uintptr_t)mem + at) {
            return (void *)1;
        }
        ib_mr_put(cache, m);
    }
    return NULL;
}

static void *reader(void *arg)
{
    while (!atomic_load(&stop)) {
        for (int i = 0; i < NICS; i++) {
            uint32_t l = ib_mr_lkey(watched, i), r = ib_mr_rkey(watched, i);
            if (l != 0 && r != (l | 0x80000000u)) {
                return (void *)1;
            }
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
    for (uintptr_t i = 0; i < 4; i++) {
        pthread_create(&t[i], NULL, taker, (void *)(i + 1));
    }
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
    tcase_add_test(t, what_is_released_may_be_other_memory);
    tcase_add_test(t, parts_of_what_is_held);
    tcase_add_test(t, last_resort_copies_memory_of_a_gpu);
    tcase_add_test(t, last_resort_is_enough_where_it_is_alone);
    tcase_add_test(t, last_resort_without_copies);
    tcase_add_test(t, type_is_part_of_the_key);
    tcase_add_test(t, nics_are_added_later);
    tcase_add_test(t, a_backup_that_cannot);
    tcase_add_test(t, none_that_can);
    tcase_add_test(t, dead_nics_are_not_touched);
    tcase_add_test(t, a_port_that_is_down_is_registered);
    tcase_add_test(t, bad_arguments);
    tcase_add_test(t, no_length_is_one_byte);
    tcase_add_test(t, relaxed_ordering);
    tcase_add_test(t, destroy_drops_what_is_left);
    tcase_add_test(t, threads);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
