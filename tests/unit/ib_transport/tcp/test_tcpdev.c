/* The TCP device as verbs see it: what arrives, what completes, what ERR and keys promise. */
#include <sys/wait.h>

#include "tests/unit/suite.h"
#include "tests/unit/tcpdev_rig.h"
#include "tests/unit/unmarked.h"

#define LARGE (8u << 20)

static uint8_t *from, *to;
static struct ibv_mr *from_mr, *to_mr;

static void buffers(size_t len)
{
    from = malloc(len);
    to = calloc(1, len);
    rig_fill(from, len, 7);
    from_mr = v.reg_mr(rig[0].pd, from, len, IBV_ACCESS_LOCAL_WRITE);
    to_mr = v.reg_mr(rig[1].pd, to, len, RIG_ACCESS);
    ck_assert_ptr_nonnull(from_mr);
    ck_assert_ptr_nonnull(to_mr);
}

static void buffers_end(void)
{
    ck_assert_int_eq(v.dereg_mr(from_mr), 0);
    ck_assert_int_eq(v.dereg_mr(to_mr), 0);
    free(from);
    free(to);
}

static int write_imm(uint64_t id, size_t off, uint32_t len)
{
    return rig_post(0, IBV_WR_RDMA_WRITE_WITH_IMM, id, from + off, len, from_mr->lkey, to + off,
                    to_mr->rkey, IBV_SEND_SIGNALED);
}

START_TEST(writes_of_all_sizes)
{
    static const uint32_t sizes[] = {0, 1, 63, 64, 511, 512, 513, 65535, 65536, 65537, 1000003};
    const int n = sizeof(sizes) / sizeof(sizes[0]);
    size_t off = 0;

    rig_pair(0);
    buffers(LARGE);
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(rig_recv(1, (uint64_t)i, NULL, 0, 0), 0);
    }
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(write_imm((uint64_t)i + 100, off, sizes[i]), 0);
        off += sizes[i];
    }
    for (int i = 0; i < n; i++) {
        struct ibv_wc r = rig_wait(1), s = rig_wait(0);

        ck_assert_int_eq(r.status, IBV_WC_SUCCESS);
        ck_assert_int_eq(r.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
        ck_assert_uint_eq(r.wr_id, (uint64_t)i);
        ck_assert_uint_eq(r.imm_data, (uint32_t)i + 100);
        ck_assert_uint_eq(r.byte_len, sizes[i]);
        ck_assert_int_eq(s.status, IBV_WC_SUCCESS);
        ck_assert_uint_eq(s.wr_id, (uint64_t)i + 100);
    }
    ck_assert_mem_eq(from, to, off);
    ck_assert_int_eq(to[off], 0);
    buffers_end();
    rig_close();
}
END_TEST

START_TEST(inline_and_unsignaled)
{
    uint8_t small[64];

    rig_pair(0);
    buffers(4096);
    for (int i = 0; i < 40; i++) {
        rig_fill(small, sizeof(small), (uint32_t)i);
        ck_assert_int_eq(rig_post(0, IBV_WR_RDMA_WRITE, 1, small, 64, 0, to + 64 * i, to_mr->rkey,
                                  IBV_SEND_INLINE | (i == 39 ? IBV_SEND_SIGNALED : 0)),
                         0);
        memset(small, 0, sizeof(small)); /* its bytes were taken when it was posted */
    }
    ck_assert_int_eq(rig_wait(0).status, IBV_WC_SUCCESS);
    for (int i = 0; i < 40; i++) {
        rig_fill(small, sizeof(small), (uint32_t)i);
        ck_assert_mem_eq(to + 64 * i, small, 64);
    }
    buffers_end();
    rig_close();
}
END_TEST

START_TEST(reads)
{
    rig_pair(0);
    buffers(200000);
    rig_fill(to, 200000, 99);
    ck_assert_int_eq(rig_post(0, IBV_WR_RDMA_READ, 5, from, 65536, from_mr->lkey, to, to_mr->rkey,
                              IBV_SEND_SIGNALED),
                     0);
    ck_assert_int_eq(rig_post(0, IBV_WR_RDMA_READ, 6, from + 70000, 1, from_mr->lkey, to + 70000,
                              to_mr->rkey, IBV_SEND_SIGNALED),
                     0);
    ck_assert_uint_eq(rig_wait(0).wr_id, 5);
    ck_assert_uint_eq(rig_wait(0).wr_id, 6);
    ck_assert_mem_eq(from, to, 65536);
    ck_assert_int_eq(from[70000], to[70000]);
    ck_assert_int_eq(rig_post(0, IBV_WR_RDMA_READ, 7, from, 65537, from_mr->lkey, to, to_mr->rkey,
                              IBV_SEND_SIGNALED),
                     EINVAL); /* larger than it does */
    buffers_end();
    rig_close();
}
END_TEST

/* A key of 0 says "none" to a peer, and one that was taken away stays none for long. */
START_TEST(keys_are_never_none_nor_the_last_ones)
{
    enum { LATELY = 16 };
    uint32_t last[LATELY] = {0};
    uint8_t byte;

    rig_open(0);
    for (int i = 0; i < 200000; i++) {
        struct ibv_mr *m = v.reg_mr(rig[0].pd, &byte, 1, RIG_ACCESS);

        ck_assert_ptr_nonnull(m);
        ck_assert_uint_eq(m->lkey, m->rkey);
        ck_assert_uint_ne(m->rkey >> 12 << 12, m->rkey);
        for (int k = 0; k < LATELY; k++) {
            ck_assert_uint_ne(m->rkey, last[k]);
        }
        last[i % LATELY] = m->rkey;
        ck_assert_int_eq(v.dereg_mr(m), 0);
    }
    rig_close();
}
END_TEST

/* Its parent's devices have no thread in it: it has none, and may have its own. */
START_TEST(a_child_begins_anew)
{
    int status;
    pid_t child;

    rig_open(0);
    child = fork();
    if (child == 0) {
        struct tcpdev_params p = {.addr.s_addr = htonl(INADDR_LOOPBACK), .secret = {1}};
        struct ibv_device **list;
        char why[128];
        int n = -1;

        if (tcpdev_add(&v, &p, why, sizeof(why)) != 0) {
            _exit(1);
        }
        list = v.get_device_list(&n);
        if (list == NULL || n != 1) {
            _exit(2);
        }
        /* its own: one whose lock nobody holds and whose thread runs */
        rig[0].ctx = rig[1].ctx = v.open_device(list[0]);
        for (int i = 0; i < 2; i++) {
            struct ibv_port_attr port;

            rig[i].pd = v.alloc_pd(rig[i].ctx);
            v.query_gid(rig[i].ctx, 1, 0, &rig[i].gid);
            v.query_port(rig[i].ctx, 1, &port);
            rig[i].lid = port.lid;
            rig_qp(i, 20);
        }
        rig_connect(0, rig[1].lid, 20);
        rig_connect(1, rig[0].lid, 20);
        buffers(4096);
        if (write_imm(1, 0, 4096) != 0 || rig_recv(1, 1, NULL, 0, 0) != 0) {
            _exit(3);
        }
        _exit(rig_wait(0).status == IBV_WC_SUCCESS && memcmp(from, to, 4096) == 0 ? 0 : 4);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    rig_close();
}
END_TEST

/* The requester learns that it is done when the receive has been taken, as from a NIC. */
START_TEST(immediate_waits_for_a_receive)
{
    struct ibv_wc wc;

    rig_pair(0);
    buffers(4096);
    for (uint64_t i = 0; i < 20; i++) {
        ck_assert_int_eq(write_imm(i, 100 * i, 100), 0);
    }
    while (__atomic_load_n(&to[1999], __ATOMIC_ACQUIRE) != from[1999]) {
        usleep(20); /* the data is there */
    }
    poll(NULL, 0, 20);
    ck_assert_int_eq(ibv_poll_cq(rig[0].cq, 1, &wc), 0);
    ck_assert_int_eq(ibv_poll_cq(rig[1].cq, 1, &wc), 0);
    for (uint64_t i = 0; i < 20; i++) {
        ck_assert_int_eq(rig_recv(1, i, NULL, 0, 0), 0);
        ck_assert_uint_eq(rig_wait(1).imm_data, i);
        ck_assert_uint_eq(rig_wait(0).wr_id, i);
    }
    buffers_end();
    rig_close();
}
END_TEST

/* All that was posted comes back in its order, marked as the device's own. */
START_TEST(error_flushes_all)
{
    uint64_t next = 0, recvs = 0;
    struct ibv_wc wc;

    rig_pair(0);
    buffers(LARGE);
    for (uint64_t i = 0; i < 10; i++) {
        ck_assert_int_eq(rig_recv(0, 1000 + i, NULL, 0, 0), 0);
    }
    for (uint64_t i = 0; i < 60; i++) {
        ck_assert_int_eq(write_imm(i, 0, 100000), 0);
    }
    rig_error(0);
    while (ibv_poll_cq(rig[0].cq, 1, &wc) == 1) {
        if (wc.wr_id >= 1000) {
            ck_assert_uint_eq(wc.wr_id, 1000 + recvs++);
        } else {
            ck_assert_uint_eq(wc.wr_id, next++);
        }
        ck_assert(wc.status == IBV_WC_WR_FLUSH_ERR && wc.vendor_err != 0);
    }
    ck_assert_uint_eq(next, 60); /* none has a receive, so that none was done before */
    ck_assert_uint_eq(recvs, 10);
    /* and what is posted in ERR, at once */
    ck_assert_int_eq(write_imm(60, 0, 8), 0);
    ck_assert_int_eq(rig_recv(0, 2000, NULL, 0, 0), 0);
    ck_assert_uint_eq(rig_wait(0).wr_id, 60);
    ck_assert_uint_eq(rig_wait(0).wr_id, 2000);
    buffers_end();
    rig_close();
}
END_TEST

static void post_many(int n)
{
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(rig_post(0, IBV_WR_RDMA_WRITE, (uint64_t)i, from, LARGE, from_mr->lkey, to,
                                  to_mr->rkey, 0),
                         0);
    }
}

/* The fence of a receiver: nothing is written from the return of modify_qp on. */
START_TEST(error_at_the_target_ends_writing)
{
    uint8_t *seen = malloc(LARGE);

    rig_pair(0);
    buffers(LARGE);
    post_many(12);
    while (__atomic_load_n(&to[100000], __ATOMIC_RELAXED) != from[100000]) {
    }
    rig_error(1);
    memset(to, 0x5a, LARGE);
    memcpy(seen, to, LARGE);
    poll(NULL, 0, 100);
    ck_assert_mem_eq(seen, to, LARGE);
    free(seen);
    buffers_end();
    rig_close();
}
END_TEST

/* Bytes of the target that are not @b. */
static size_t others(uint8_t b)
{
    size_t n = 0;

    for (size_t i = 0; i < LARGE; i++) {
        n += to[i] != b;
    }
    return n;
}

/* A key that was taken away is no key, in the middle of a message neither, nor is the next one it.
 */
START_TEST(deregistration_ends_writing)
{
    uint32_t key;
    struct ibv_wc wc;

    rig_pair(0);
    buffers(LARGE);
    key = to_mr->rkey;
    post_many(12);
    while (__atomic_load_n(&to[100000], __ATOMIC_RELAXED) != from[100000]) {
    }
    ck_assert_int_eq(v.dereg_mr(to_mr), 0);
    memset(to, 0x5a, LARGE);
    to_mr = v.reg_mr(rig[1].pd, to, LARGE, RIG_ACCESS);
    ck_assert_uint_ne(to_mr->rkey, key);
    /* one more, where this thread stood so long that all of them had been written */
    (void)rig_post(0, IBV_WR_RDMA_WRITE, 12, from, LARGE, from_mr->lkey, to, key, 0);
    do {
        wc = rig_wait(0);
    } while (wc.status == IBV_WC_SUCCESS);
    ck_assert_int_eq(wc.status, IBV_WC_REM_ACCESS_ERR);
    ck_assert_uint_eq(others(0x5a), 0);
    buffers_end();
    rig_close();
}
END_TEST

/* The fence of a sender: from the return of modify_qp on its memory is not read. */
START_TEST(error_at_the_source_ends_reading)
{
    uint8_t *first = malloc(LARGE);
    size_t wrong = 0;

    rig_pair(0);
    buffers(LARGE);
    memcpy(first, from, LARGE);
    post_many(20);
    while (__atomic_load_n(&to[100000], __ATOMIC_RELAXED) != from[100000]) {
    }
    rig_error(0);
    memset(from, 0xee, LARGE);
    poll(NULL, 0, 100);
    for (size_t i = 0; i < LARGE; i++) {
        uint8_t b = __atomic_load_n(&to[i], __ATOMIC_RELAXED);

        wrong += b != first[i] && b != 0;
    }
    ck_assert_uint_eq(wrong, 0);
    free(first);
    buffers_end();
    rig_close();
}
END_TEST

/* i: a key of nobody, one byte too many, one byte before, no right to write, a local key of nobody
 */
START_TEST(keys_are_looked_at)
{
    struct ibv_mr *ro;
    const uint8_t *at = to;
    uint32_t key, lkey, len = 100;
    struct ibv_wc wc;

    rig_pair(0);
    buffers(4096);
    ro = v.reg_mr(rig[1].pd, to, 4096, IBV_ACCESS_LOCAL_WRITE);
    at = to;
    key = _i == 0 ? to_mr->rkey ^ 0x5 : _i == 3 ? ro->rkey : to_mr->rkey;
    lkey = _i == 4 ? from_mr->lkey ^ 0x5 : from_mr->lkey;
    at = _i == 1 ? to + 4096 - 99 : _i == 2 ? to - 1 : to;
    ck_assert_int_eq(rig_post(0, IBV_WR_RDMA_WRITE, 1, from, len, from_mr->lkey, to, to_mr->rkey,
                              IBV_SEND_SIGNALED),
                     0);
    ck_assert_int_eq(rig_post(0, IBV_WR_RDMA_WRITE, 2, from, len, lkey, at, key, IBV_SEND_SIGNALED),
                     0);
    ck_assert_int_eq(rig_post(0, IBV_WR_RDMA_WRITE, 3, from, len, from_mr->lkey, to, to_mr->rkey,
                              IBV_SEND_SIGNALED),
                     0);
    wc = rig_wait(0);
    ck_assert(wc.wr_id == 1 && wc.status == IBV_WC_SUCCESS);
    wc = rig_wait(0);
    ck_assert_uint_eq(wc.wr_id, 2);
    ck_assert_int_eq(wc.status, _i == 4 ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_ACCESS_ERR);
    wc = rig_wait(0);
    ck_assert(wc.wr_id == 3 && wc.status == IBV_WC_WR_FLUSH_ERR);
    v.dereg_mr(ro);
    buffers_end();
    rig_close();
}
END_TEST

START_TEST(receiver_comes_up_late)
{
    rig_open(0);
    rig_qp(0, 20);
    rig_qp(1, 20);
    buffers(1000000);
    rig_connect(0, rig[1].lid, 20);
    ck_assert_int_eq(rig_post(0, IBV_WR_RDMA_WRITE, 1, from, 1000000, from_mr->lkey, to,
                              to_mr->rkey, IBV_SEND_SIGNALED),
                     0);
    poll(NULL, 0, 60);
    ck_assert_int_eq(to[0], 0);
    rig_connect(1, rig[0].lid, 20);
    ck_assert_int_eq(rig_wait(0).status, IBV_WC_SUCCESS);
    ck_assert_mem_eq(from, to, 1000000);
    buffers_end();
    rig_close();
}
END_TEST

/* i: it never receives; nobody listens */
START_TEST(nobody_there)
{
    struct ibv_wc wc;
    uint64_t begin;

    rig_open(0);
    rig_qp(0, 14);
    rig_qp(1, 14);
    buffers(1000);
    rig_connect(0, _i ? 1 : rig[1].lid, 14);
    begin = rig_now();
    for (uint64_t i = 0; i < 3; i++) {
        ck_assert_int_eq(rig_post(0, IBV_WR_RDMA_WRITE, i, from, 1000, from_mr->lkey, to,
                                  to_mr->rkey, IBV_SEND_SIGNALED),
                         0);
    }
    wc = rig_wait(0);
    ck_assert_uint_eq(wc.wr_id, 0);
    ck_assert_int_eq(wc.status, IBV_WC_RETRY_EXC_ERR);
    ck_assert_uint_ge(rig_now() - begin, 2 * (4096ull << 14));
    ck_assert_int_eq(rig_wait(0).status, IBV_WC_WR_FLUSH_ERR);
    ck_assert_int_eq(rig_wait(0).status, IBV_WC_WR_FLUSH_ERR);
    buffers_end();
    rig_close();
}
END_TEST

/* A small message does not wait behind what large ones have queued. */
START_TEST(small_goes_before_large)
{
    struct rig_end large[2], small[2];
    uint64_t begin, alone;
    struct ibv_wc wc;

    rig_pair(20000000); /* 20 MB/s */
    buffers(LARGE);
    memcpy(large, rig, sizeof(large));
    rig_qp(0, 20);
    rig_qp(1, 20);
    rig_connect(0, rig[1].lid, 20);
    rig_connect(1, rig[0].lid, 20);
    memcpy(small, rig, sizeof(small));
    memcpy(rig, large, sizeof(rig));
    ck_assert_int_eq(rig_post(0, IBV_WR_RDMA_WRITE, 1, from, LARGE, from_mr->lkey, to, to_mr->rkey,
                              IBV_SEND_SIGNALED),
                     0);
    poll(NULL, 0, 20);
    memcpy(rig, small, sizeof(rig));
    begin = rig_now();
    ck_assert_int_eq(rig_post(0, IBV_WR_RDMA_WRITE, 2, from, 8, from_mr->lkey, to, to_mr->rkey,
                              IBV_SEND_SIGNALED),
                     0);
    rig_wait(0);
    alone = rig_now() - begin;
    ck_assert_int_eq(ibv_poll_cq(large[0].cq, 1, &wc), 0); /* takes 400 ms */
    rig_qp_end(0);
    rig_qp_end(1);
    memcpy(rig, large, sizeof(rig));
    rig_wait(0);
    ck_assert_uint_lt(alone, (rig_now() - begin) / 2);
    buffers_end();
    rig_close();
}
END_TEST

START_TEST(rate_is_kept)
{
    uint64_t begin, took;

    rig_pair(40000000);
    buffers(LARGE);
    begin = rig_now();
    ck_assert_int_eq(rig_post(0, IBV_WR_RDMA_WRITE, 1, from, LARGE, from_mr->lkey, to, to_mr->rkey,
                              IBV_SEND_SIGNALED),
                     0);
    ck_assert_int_eq(rig_wait(0).status, IBV_WC_SUCCESS);
    took = rig_now() - begin;
    ck_assert_uint_ge(took, 195000000); /* 8 MiB less two chunks at 40 MB/s: 206 ms */
    buffers_end();
    rig_close();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, writes_of_all_sizes);
    tcase_add_test(t, inline_and_unsignaled);
    tcase_add_test(t, reads);
    tcase_add_test(t, keys_are_never_none_nor_the_last_ones);
    tcase_add_test(t, a_child_begins_anew);
    tcase_add_test(t, immediate_waits_for_a_receive);
    tcase_add_test(t, error_flushes_all);
    tcase_add_test(t, error_at_the_target_ends_writing);
    tcase_add_test(t, deregistration_ends_writing);
    tcase_add_test(t, error_at_the_source_ends_reading);
    tcase_add_loop_test(t, keys_are_looked_at, 0, 5);
    tcase_add_test(t, receiver_comes_up_late);
    tcase_add_loop_test(t, nobody_there, 0, 2);
    tcase_add_test(t, small_goes_before_large);
    tcase_add_test(t, rate_is_kept);
}

int main(void)
{
    return suite_run("tcpdev", 120, NULL, NULL, add);
}
