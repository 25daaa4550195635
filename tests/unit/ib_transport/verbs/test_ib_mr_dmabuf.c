/* Registrations of memory that comes through a DMA-BUF. */
#include "tests/unit/mr_rig.h"

#include <sys/resource.h>

static int fd_is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

/* NCCL closes its descriptor right after the call, and so is ours closed: a process has few. The
 * same memory comes with another one, which serves for the NICs that are missing. */
START_TEST(dmabuf)
{
    struct ib_mr *a, *b;
    int fd = open("/dev/null", O_RDONLY), other = open("/dev/null", O_RDONLY);

    fake_dmabuf_errno = 0;
    begin();
    a = ib_mr_get(cache, mem + 7, 1000, IB_PTR_CUDA, 64, fd, 1);
    ck_assert_ptr_nonnull(a);
    ck_assert_int_eq(fake_dev[0].last_via, 'd');
    ck_assert_uint_eq(fake_dev[0].last_offset, 64);
    ck_assert_uint_eq(fake_dev[0].last_len, 1000);
    ck_assert_uint_eq(fake_dev[0].last_iova, (uintptr_t)mem + 7);
    ck_assert_int_ne(fake_dev[0].last_fd, fd);
    ck_assert(!fd_is_open(fake_dev[0].last_fd));
    close(fd);
    b = ib_mr_get(cache, mem + 7, 1000, IB_PTR_CUDA, 8, other, 3);
    ck_assert_ptr_eq(a, b);
    ck_assert_int_eq(fake_dev[1].last_via, 'd');
    ck_assert_uint_eq(fake_dev[1].last_offset, 8);
    ck_assert_uint_eq(fake_dev[1].last_len, 1000);
    ck_assert_int_ne(fake_dev[1].last_fd, other);
    ck_assert(!fd_is_open(fake_dev[1].last_fd));
    ck_assert_int_eq(atomic_load(&fake_dev[0].reg_calls), 1);
    /* a part's descriptor need not reach over the whole */
    b = ib_mr_get(cache, mem + 8, 10, IB_PTR_CUDA, 0, other, 3);
    ck_assert_ptr_eq(a, b);
    ib_mr_put_part(cache, b);
    b = ib_mr_get(cache, mem + 8, 10, IB_PTR_CUDA, 0, other, 7);
    ck_assert_ptr_ne(a, b);
    ck_assert_uint_eq(fake_dev[2].last_len, 10);
    ib_mr_put(cache, b);
    /* not what plain registration of the same address would be */
    b = ib_mr_get(cache, mem + 7, 1000, IB_PTR_CUDA, 0, -1, 1);
    ck_assert_ptr_ne(a, b);
    ib_mr_put(cache, b);
    ib_mr_put(cache, a);
    ib_mr_put(cache, a);
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

/* A NIC that refuses it is not asked again for a part: the whole stands for that. */
START_TEST(a_part_where_a_nic_refuses)
{
    struct ib_mr *whole, *part;
    int fd = open("/dev/null", O_RDONLY), calls;

    fake_dmabuf_errno = 0;
    begin();
    fake_dev[1].reg_errno = EOPNOTSUPP;
    whole = ib_mr_get(cache, mem, 1000, IB_PTR_CUDA, 0, fd, 3);
    ck_assert_ptr_nonnull(whole);
    ck_assert_uint_eq(ib_mr_lkey(whole, 1), 0);
    calls = atomic_load(&fake_dev[1].reg_calls);
    part = ib_mr_get(cache, mem + 10, 10, IB_PTR_CUDA, 0, fd, 3);
    ck_assert_ptr_eq(part, whole);
    ck_assert_int_eq(atomic_load(&fake_dev[1].reg_calls), calls);
    ib_mr_put_part(cache, part);
    /* where no other NIC has it, it is asked once more, for what the descriptor reaches over */
    fake_dev[1].reg_errno = 0;
    part = ib_mr_get(cache, mem + 10, 10, IB_PTR_CUDA, 0, fd, 2);
    ck_assert_ptr_nonnull(part);
    ck_assert_ptr_ne(part, whole);
    ck_assert_uint_eq(fake_dev[1].last_len, 10);
    ib_mr_put(cache, part);
    part = ib_mr_get(cache, mem, 1000, IB_PTR_CUDA, 0, fd, 2);
    ck_assert_ptr_eq(part, whole);
    ck_assert_uint_eq(fake_dev[1].last_len, 1000);
    ib_mr_put(cache, part);
    ib_mr_put(cache, whole);
    close(fd);
    end();
}
END_TEST

/* A process may have 1,024 descriptors, and a connection has three buffers of a GPU. */
START_TEST(more_than_there_are_descriptors)
{
    struct ib_mr *mr[64];
    struct rlimit was, few;
    int fd = open("/dev/null", O_RDONLY), taken[64], n = 0;

    fake_dmabuf_errno = 0;
    begin();
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &was), 0);
    few = (struct rlimit){(rlim_t)fd + 24, was.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int i = 0; i < 64; i++) {
        mr[i] = ib_mr_get(cache, mem + i * PAGE, PAGE, IB_PTR_CUDA, 0, fd, i ? ALL : 1);
        ck_assert_msg(mr[i] != NULL, "buffer %d: %s", i, strerror(errno));
    }
    while (n < 64 && (taken[n] = dup(fd)) >= 0) { /* until none is free */
        n++;
    }
    ck_assert_ptr_null(ib_mr_get(cache, mem + 63 * PAGE, 2 * PAGE, IB_PTR_CUDA, 0, fd, ALL));
    ck_assert_int_eq(errno, EMFILE);
    /* one NIC has it, which is enough; the others are asked the next time */
    ck_assert_ptr_eq(ib_mr_get(cache, mem, PAGE, IB_PTR_CUDA, 0, fd, ALL), mr[0]);
    ck_assert_uint_eq(ib_mr_lkey(mr[0], 1), 0);
    ib_mr_put(cache, mr[0]);
    for (int i = 0; i < 64; i++) {
        ib_mr_put(cache, mr[i]);
    }
    while (n > 0) {
        close(taken[--n]);
    }
    close(fd);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &was), 0);
    end();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ib_mr: DMA-BUF");
    TCase *t = tcase_create("cache");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(t, setup, NULL);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, dmabuf);
    tcase_add_test(t, dmabuf_that_does_not_work);
    tcase_add_test(t, a_part_where_a_nic_refuses);
    tcase_add_test(t, more_than_there_are_descriptors);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
