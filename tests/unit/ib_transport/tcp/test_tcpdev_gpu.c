/* Memory of GPUs behind the TCP device: what is copied, and what the end of a queue pair or of a
 * key promises while a copy runs, does not end, or fails. The GPUs are the test's own: their
 * addresses are none of the process. */
#include "ib_transport/tcp/tcpdev_int.h"
#include "tests/unit/suite.h"
#include "tests/unit/tcpdev_rig.h"

#define GPU_AT   0x700000000000ull /* of GPU 0; the next are GPU_ROOM behind */
#define GPU_ROOM (4u << 20)
#define GPUS     2
#define MOST_NS  200000000ull
#define LEN      1000003u

/* What a copy of the stand-in does. */
enum mode { WORKS, HELD, NEVER, REFUSED, BREAKS };

static struct {
    uint8_t *mem[GPUS];
    _Atomic int mode[2]; /* from a GPU, to it */
    _Atomic int begun[2], opened;
    void *piece[2 * GPUS];
    bool open_fails;
    struct {
        _Atomic bool runs;
        void *dst;
        const void *src;
        size_t len;
    } copy[2]; /* likewise: each end has a thread of its own */
} gpu;

static uint8_t *bytes_of(const void *at)
{
    uint64_t off = (uint64_t)(uintptr_t)at - GPU_AT;

    return (uint64_t)(uintptr_t)at >= GPU_AT && off < GPUS * (uint64_t)GPU_ROOM
               ? gpu.mem[off / GPU_ROOM] + off % GPU_ROOM
               : (uint8_t *)(uintptr_t)at;
}

static int gpu_of(void *arg, const void *addr)
{
    return bytes_of(addr) != addr ? (int)(((uint64_t)(uintptr_t)addr - GPU_AT) / GPU_ROOM) : -1;
}

static int gpu_open(void *arg, int ordinal, size_t piece, struct tcpdev_lanes *out)
{
    if (gpu.open_fails) {
        return ENOMEM;
    }
    out->piece = malloc(piece);
    gpu.piece[atomic_fetch_add(&gpu.opened, 1)] = out->piece;
    return out->piece ? 0 : ENOMEM;
}

static int gpu_begin(void *arg, const struct tcpdev_lanes *lanes, bool to_gpu, void *dst,
                     const void *src, size_t len)
{
    if (atomic_load(&gpu.mode[to_gpu]) == REFUSED) {
        return EINVAL;
    }
    atomic_fetch_add(&gpu.begun[to_gpu], 1);
    gpu.copy[to_gpu].dst = bytes_of(dst);
    gpu.copy[to_gpu].src = bytes_of(src);
    gpu.copy[to_gpu].len = len;
    atomic_store(&gpu.copy[to_gpu].runs, true);
    return 0;
}

static int gpu_done(void *arg, const struct tcpdev_lanes *lanes, bool to_gpu)
{
    int mode = atomic_load(&gpu.mode[to_gpu]);

    if (mode == HELD || mode == NEVER) {
        return 0;
    }
    if (mode == BREAKS) {
        return -1;
    }
    memcpy(gpu.copy[to_gpu].dst, gpu.copy[to_gpu].src, gpu.copy[to_gpu].len);
    atomic_store(&gpu.copy[to_gpu].runs, false);
    return 1;
}

static const struct tcpdev_copies gpu_copies = {
    .gpu_of = gpu_of, .open = gpu_open, .begin = gpu_begin, .done = gpu_done, .most_ns = MOST_NS};

static void *at_gpu(int i)
{
    return (void *)(uintptr_t)(GPU_AT + (uint64_t)i * GPU_ROOM);
}

static struct ibv_mr *from_mr, *to_mr;

/* A pair of queue pairs; memory of GPU 0 at the sender, of GPU 1 at the receiver. */
static void gpus_begin(void)
{
    memset(&gpu, 0, sizeof(gpu));
    for (int i = 0; i < GPUS; i++) {
        gpu.mem[i] = calloc(1, GPU_ROOM);
        ck_assert_ptr_nonnull(gpu.mem[i]);
    }
    tcpdev_copies_set(&gpu_copies, NULL);
    rig_pair(0);
    rig_fill(gpu.mem[0], LEN, 3);
    from_mr = v.reg_mr(rig[0].pd, at_gpu(0), GPU_ROOM, RIG_ACCESS | IB_ACCESS_GPU);
    to_mr = v.reg_mr(rig[1].pd, at_gpu(1), GPU_ROOM, RIG_ACCESS | IB_ACCESS_GPU);
    ck_assert_ptr_nonnull(from_mr);
    ck_assert_ptr_nonnull(to_mr);
}

static void gpus_end(void)
{
    rig_close();
    for (int i = 0; i < 2 * GPUS; i++) {
        free(gpu.piece[i]);
    }
    for (int i = 0; i < GPUS; i++) {
        free(gpu.mem[i]);
    }
}

static void write_post(uint64_t id, uint32_t len)
{
    ck_assert_int_eq(rig_recv(1, id, NULL, 0, 0), 0);
    ck_assert_int_eq(rig_post(0, IBV_WR_RDMA_WRITE_WITH_IMM, id, at_gpu(0), len, from_mr->lkey,
                              (char *)at_gpu(1) + 40, to_mr->rkey, IBV_SEND_SIGNALED),
                     0);
}

/* Until a copy that is held runs. */
static void wait_runs(int to_gpu)
{
    while (!atomic_load(&gpu.copy[to_gpu].runs)) {
        usleep(100);
    }
}

/* Nothing comes out of end @i for some time. */
static void stands_still(int i)
{
    struct ibv_wc wc;

    for (int k = 0; k < 100; k++) {
        ck_assert_int_eq(ibv_poll_cq(rig[i].cq, 1, &wc), 0);
        usleep(1000);
    }
}

static int to_error(int i)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};

    return v.modify_qp(rig[i].qp, &a, IBV_QP_STATE);
}

START_TEST(writes_and_reads)
{
    static const uint32_t sizes[] = {1, 7, 64, 4096, 65536, 65537, LEN};
    uint8_t *host = calloc(1, 65536);
    struct ibv_mr *host_mr;

    gpus_begin();
    host_mr = v.reg_mr(rig[0].pd, host, 65536, RIG_ACCESS);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        memset(gpu.mem[1], 0, GPU_ROOM);
        write_post(i, sizes[i]);
        ck_assert_int_eq(rig_wait(1).status, IBV_WC_SUCCESS);
        ck_assert_int_eq(rig_wait(0).status, IBV_WC_SUCCESS);
        ck_assert_mem_eq(gpu.mem[1] + 40, gpu.mem[0], sizes[i]);
        ck_assert_int_eq(gpu.mem[1][39] + gpu.mem[1][40 + sizes[i]], 0);
    }
    ck_assert_int_eq(rig_post(0, IBV_WR_RDMA_READ, 9, host, 65536, host_mr->lkey,
                              (char *)at_gpu(1) + 40, to_mr->rkey, IBV_SEND_SIGNALED),
                     0);
    ck_assert_int_eq(rig_wait(0).status, IBV_WC_SUCCESS);
    ck_assert_mem_eq(host, gpu.mem[0], 65536);
    ck_assert_int_eq(atomic_load(&gpu.opened), 2); /* once for each device and GPU */
    ck_assert_int_eq(v.dereg_mr(host_mr), 0);
    ck_assert_int_eq(v.dereg_mr(from_mr), 0);
    ck_assert_int_eq(v.dereg_mr(to_mr), 0);
    gpus_end();
    free(host);
}
END_TEST

START_TEST(memory_that_is_refused)
{
    struct ibv_mr *some[2];
    uint8_t byte;

    gpus_begin();
    errno = 0;
    ck_assert_ptr_null(v.reg_mr(rig[0].pd, &byte, 1, RIG_ACCESS | IB_ACCESS_GPU));
    ck_assert_int_eq(errno, EOPNOTSUPP);
    some[0] = v.reg_mr(rig[0].pd, (char *)at_gpu(0) - 64, 4096, RIG_ACCESS | IB_ACCESS_GPU);
    ck_assert_ptr_nonnull(some[0]); /* the rest of a page before it */
    gpu.open_fails = true;
    ck_assert_ptr_null(v.reg_mr(rig[0].pd, at_gpu(1), 4096, RIG_ACCESS | IB_ACCESS_GPU));
    ck_assert_int_eq(errno, ENOMEM);
    gpu.open_fails = false; /* asked again */
    some[1] = v.reg_mr(rig[0].pd, at_gpu(1), 4096, RIG_ACCESS | IB_ACCESS_GPU);
    ck_assert_ptr_nonnull(some[1]);
    tcpdev_copies_set(NULL, NULL);
    ck_assert_ptr_null(v.reg_mr(rig[0].pd, at_gpu(0), 4096, RIG_ACCESS | IB_ACCESS_GPU));
    ck_assert_int_eq(errno, EOPNOTSUPP);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(v.dereg_mr(some[i]), 0);
    }
    ck_assert_int_eq(v.dereg_mr(from_mr), 0);
    ck_assert_int_eq(v.dereg_mr(to_mr), 0);
    gpus_end();
}
END_TEST

/* --- the end of a queue pair, or of a key, while a copy runs --- */

static _Atomic int ended; /* 1 + what the call said; 0: it has not returned */

static void *end_run(void *arg)
{
    const int what = *(const int *)arg;
    int rc = what == 0   ? to_error(1)
             : what == 1 ? v.destroy_qp(rig[1].qp)
             : what == 2 ? v.dereg_mr(to_mr)
             : what == 3 ? to_error(0)
                         : v.dereg_mr(from_mr);

    atomic_store(&ended, rc + 1);
    return NULL;
}

/* The call waits for the copy, and the memory is its owner's alone when it has returned. */
START_TEST(ends_wait_for_a_copy)
{
    int what = _i, side = what < 3;
    pthread_t thread;
    int begun;

    gpus_begin();
    atomic_store(&gpu.mode[side], HELD);
    atomic_store(&ended, 0);
    write_post(1, LEN);
    wait_runs(side);
    ck_assert_int_eq(pthread_create(&thread, NULL, end_run, &what), 0);
    usleep(20000);
    ck_assert_int_eq(atomic_load(&ended), 0);
    atomic_store(&gpu.mode[side], WORKS);
    pthread_join(thread, NULL);
    ck_assert_int_eq(atomic_load(&ended), 1);
    begun = atomic_load(&gpu.begun[side]);
    usleep(50000);
    ck_assert_int_eq(atomic_load(&gpu.begun[side]), begun);
    ck_assert(!atomic_load(&gpu.copy[side].runs));
    if (what == 1) {
        ck_assert_int_eq(v.destroy_cq(rig[1].cq), 0);
        rig[1].qp = NULL;
    }
    gpus_end();
}
END_TEST

static void *exit_run(void *arg)
{
    tcpdev_exit();
    atomic_store(&ended, 1);
    return NULL;
}

/* The device whose GPU copies has been told that the process ends. */
static bool exit_is_known(void)
{
    for (int i = 0; tcpdev_get(i); i++) {
        struct tcpdev *d = tcpdev_get(i);
        bool copies;

        pthread_mutex_lock(&d->lock);
        copies = d->gpu.busy_qp != NULL;
        pthread_mutex_unlock(&d->lock);
        if (copies) {
            return atomic_load(&d->stopping);
        }
    }
    return false;
}

/* The end of the process waits for the copy that runs, and none begins behind it. */
START_TEST(exit_waits_for_a_copy)
{
    pthread_t thread;

    gpus_begin();
    atomic_store(&gpu.mode[0], HELD);
    atomic_store(&ended, 0);
    write_post(1, LEN);
    wait_runs(0);
    ck_assert_int_eq(pthread_create(&thread, NULL, exit_run, NULL), 0);
    while (!exit_is_known()) {
        usleep(1000);
    }
    usleep(20000);
    ck_assert_int_eq(atomic_load(&ended), 0);
    atomic_store(&gpu.mode[0], WORKS);
    pthread_join(thread, NULL);
    ck_assert(!atomic_load(&gpu.copy[0].runs));
    ck_assert_int_eq(atomic_load(&gpu.begun[0]), 1);
    gpus_end();
}
END_TEST

/* A copy to a GPU that does not end may write at any time: its queue pair is never fenced, looks
 * like one that stands still, and its memory is never let go; what is not its own goes on. */
START_TEST(a_copy_that_never_ends)
{
    bool broken = _i == 1;
    struct ibv_mr *other;

    gpus_begin();
    atomic_store(&gpu.mode[1], broken ? BREAKS : NEVER);
    write_post(1, LEN);
    ck_assert_int_eq(rig_wait(0).status, IBV_WC_REM_ACCESS_ERR); /* the sender is told */
    stands_still(1);
    ck_assert_int_eq(to_error(1), EIO);
    ck_assert_int_eq(rig_recv(1, 2, NULL, 0, 0), 0); /* a marker: it does not come out */
    stands_still(1);
    ck_assert_int_eq(v.destroy_qp(rig[1].qp), EBUSY);
    ck_assert_int_eq(v.dereg_mr(to_mr), EIO);
    ck_assert_ptr_null(v.reg_mr(rig[1].pd, at_gpu(1), 4096, RIG_ACCESS | IB_ACCESS_GPU));
    ck_assert_int_eq(errno, EIO);
    other = v.reg_mr(rig[1].pd, at_gpu(0), 4096, RIG_ACCESS | IB_ACCESS_GPU);
    ck_assert_ptr_nonnull(other); /* another GPU */
    ck_assert_int_eq(v.dereg_mr(other), 0);
    ck_assert_int_eq(v.dereg_mr(from_mr), 0);
}
END_TEST

/* From a GPU: nothing of the user's is written, so that its queue pair ends as any. */
START_TEST(a_copy_from_a_gpu_never_ends)
{
    gpus_begin();
    atomic_store(&gpu.mode[0], NEVER);
    write_post(1, LEN);
    ck_assert_int_eq(rig_wait(0).status, IBV_WC_LOC_PROT_ERR);
    ck_assert_int_eq(to_error(0), 0);
    ck_assert_int_eq(v.dereg_mr(from_mr), EIO);
    ck_assert_int_eq(v.dereg_mr(to_mr), 0);
    gpus_end();
}
END_TEST

/* Others in the place of queue pairs that have failed. */
static void pair_again(void)
{
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(to_error(i), 0);
        rig_qp_end(i);
        rig_qp(i, 20);
    }
    rig_connect(0, rig[1].lid, 20);
    rig_connect(1, rig[0].lid, 20);
}

/* One that is refused: nothing runs. The registration allows nothing more, another does. */
START_TEST(a_copy_that_is_refused)
{
    int side = _i, fails = side ? IBV_WC_REM_ACCESS_ERR : IBV_WC_LOC_PROT_ERR;
    struct ibv_mr **mr = side ? &to_mr : &from_mr;

    gpus_begin();
    atomic_store(&gpu.mode[side], REFUSED);
    write_post(1, LEN);
    ck_assert_int_eq(rig_wait(0).status, fails);
    atomic_store(&gpu.mode[side], WORKS);
    pair_again();
    write_post(2, LEN);
    ck_assert_int_eq(rig_wait(0).status, fails);
    ck_assert_int_eq(v.dereg_mr(*mr), 0);
    pair_again();
    *mr = v.reg_mr(rig[side].pd, at_gpu(side), GPU_ROOM, RIG_ACCESS | IB_ACCESS_GPU);
    ck_assert_ptr_nonnull(*mr);
    write_post(3, LEN);
    ck_assert_int_eq(rig_wait(1).status, IBV_WC_SUCCESS);
    ck_assert_mem_eq(gpu.mem[1] + 40, gpu.mem[0], LEN);
    gpus_end();
}
END_TEST

static void tests_add(TCase *t)
{
    tcase_add_test(t, writes_and_reads);
    tcase_add_test(t, memory_that_is_refused);
    tcase_add_loop_test(t, ends_wait_for_a_copy, 0, 5);
    tcase_add_test(t, exit_waits_for_a_copy);
    tcase_add_loop_test(t, a_copy_that_never_ends, 0, 2);
    tcase_add_test(t, a_copy_from_a_gpu_never_ends);
    tcase_add_loop_test(t, a_copy_that_is_refused, 0, 2);
}

int main(void)
{
    return suite_run("tcpdev_gpu", 60, NULL, NULL, tests_add);
}
