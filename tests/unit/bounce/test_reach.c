/* NICs that register memory of a GPU and cannot reach it: found out when it is registered
 * (r2_reach.h), before anything is sent over them. */
#include "tests/support/proto_rig.h"
#include "tests/unit/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/bounce/r2_reach.h"

#define PAGE  4096
#define PAGES 32
#define LEN   1000
#define OURS  (PAGES - 1) /* what the copy engine of process 0 gives */

static _Alignas(PAGE) uint8_t gpu[PAGES * PAGE];
static struct rig *rig;
static struct {
    unsigned waits, asked_for;
    uint64_t ns;
    unsigned at; /* this wait begins with ... */
    const char *fault;
    int writes_elsewhere, writes_ours; /* of devices while somebody waits; 1: waits now */
    int waiting;
    uint8_t *ours[2]; /* where the NICs of process 0 last wrote in memory of ours */
} seen;

static void wait_ns(void *arg, uint64_t ns)
{
    struct rig_side *s = arg;

    seen.waits++;
    seen.ns += ns;
    if (seen.fault && seen.waits == seen.at) {
        rig_fault(rig, seen.fault);
    }
    seen.waiting = 1;
    fab_inproc_run_until(rig->f, rig_now(rig) + ns);
    seen.waiting = 0;
    rig_enter(s);
}

static void wrote(void *arg, int host, int nic, uint32_t qpn, void *addr, uint32_t len)
{
    uintptr_t at = (uintptr_t)addr - (uintptr_t)gpu;

    if (seen.waiting && at < sizeof(gpu)) {
        seen.writes_ours += at / PAGE == OURS;
        seen.writes_elsewhere += at / PAGE != OURS;
        if (at / PAGE == OURS && host == 0 && nic < 2) {
            seen.ours[nic] = addr;
        }
    }
}

static int gpu_of(void *arg, const void *addr)
{
    return (uintptr_t)addr - (uintptr_t)gpu < sizeof(gpu) ? 0 : IB_COPY_HOST;
}

static int mem_get(void *arg, int which, size_t len, struct ib_copy_mem *out)
{
    ck_assert(which == 0 && len <= PAGE);
    seen.asked_for++;
    *out = (struct ib_copy_mem){
        .addr = gpu + OURS * PAGE, .len = PAGE, .type = IB_PTR_CUDA, .dmabuf_fd = -1};
    return 0;
}

static const struct ib_copy_ops engine = {.gpu_of = gpu_of, .mem_get = mem_get};

static void start(const char *fault)
{
    struct fab_inproc_opts opts = {
        .gpu_mem = gpu, .gpu_len = sizeof(gpu), .on_memory_write = wrote};

    memset(&seen, 0, sizeof(seen));
    memset(gpu, 0xee, sizeof(gpu));
    rig_relay.ops = &engine;
    rig = rig_create_on(&opts, 2, 0, (const char *[]){"NCCL_R2_FLUSH=always", NULL});
    for (int i = 0; i < 2; i++) {
        rig->side[i].inst->env.wait = wait_ns;
    }
    rig_connect(rig, 0, 0);
    if (fault) {
        rig_fault(rig, fault);
    }
}

static void stop(struct ib_mr *s_mr, struct ib_mr *r_mr)
{
    rig_dereg(rig, 0, s_mr);
    rig_dereg(rig, 1, r_mr);
    rig_destroy(rig);
    memset(&rig_relay, 0, sizeof(rig_relay));
}

/* Pages [page, page + n) at an end, as memory of a GPU. */
static struct ib_mr *reg(int side, int page, int n)
{
    struct ib_mr *mr;

    rig_enter(&rig->side[side]);
    ck_assert_int_eq(r2_net_reg(rig->side[side].comm, gpu + page * PAGE, (size_t)n * PAGE,
                                IB_PTR_CUDA, 0, -1, &mr),
                     R2_OK);
    return mr;
}

static void exchange(struct ib_mr *s_mr, struct ib_mr *r_mr)
{
    for (int i = 0; i < 20; i++) {
        memset(gpu, i + 1, LEN);
        memset(gpu + 8 * PAGE, 0xee, LEN);
        ck_assert_int_ge(rig_irecv1(rig, gpu + 8 * PAGE, LEN, 0, r_mr), 0);
        rig_send_wait(rig, gpu, LEN, 0, s_mr);
        ck_assert(rig_until(rig, rig_all_done, RIG_S));
        ck_assert_int_eq(memcmp(gpu, gpu + 8 * PAGE, LEN), 0);
    }
}

static struct fab_counters *counters(int host)
{
    return &fab_inproc_nic(rig->f, host, 0)->cnt;
}

static int both_up(void)
{
    return ib_conn_up(&rig->side[0].comm->conn, 0) && ib_conn_up(&rig->side[0].comm->conn, 1) &&
           rig->side[0].comm->conn.path[0].inc == 1 && rig->side[1].comm->conn.path[0].inc == 1;
}

/* At either end: nothing goes over that NIC, no path fails, and it is said and asked once. Process
 * 0 has memory of its own to test with, process 1 has not. */
START_TEST(nothing_goes_over_a_nic_that_cannot)
{
    struct ib_mr *mr[2], *more;
    unsigned waits;

    start(_i ? "h1:n0 gpu-dma-fail" : "h0:n0 gpu-dma-fail");
    for (int s = 0; s < 2; s++) {
        mr[s] = reg(s, 8 * s, 2);
        ck_assert_int_eq(ib_mr_rkey(mr[s], 0) == 0, s == _i);
        ck_assert_uint_ne(ib_mr_rkey(mr[s], 1), 0);
    }
    ck_assert_ptr_nonnull(strstr(rig->last_warn[_i], "registers memory of GPU"));
    ck_assert_uint_gt(counters(_i)->gpu_failed, 0);
    ck_assert_uint_gt(seen.writes_ours, 0);
    ck_assert_int_eq(seen.writes_elsewhere, 0);
    ck_assert_uint_eq(seen.asked_for, 1);
    exchange(mr[0], mr[1]);
    ck_assert(both_up());
    ck_assert_uint_eq(rig->side[0].comm->conn.path[0].count.bytes, 0);
    waits = seen.waits;
    rig->last_warn[_i][0] = '\0';
    more = reg(_i, 16, 4);
    ck_assert_uint_eq(ib_mr_rkey(more, 0), 0);
    ck_assert_uint_eq(seen.waits, waits);
    ck_assert_str_eq(rig->last_warn[_i], "");
    rig_dereg(rig, _i, more);
    stop(mr[0], mr[1]);
}
END_TEST

START_TEST(nics_that_can_are_asked_once)
{
    struct ib_mr *mr[2], *more;
    unsigned waits;

    start(NULL);
    mr[0] = reg(0, 0, 2);
    mr[1] = reg(1, 8, 2);
    waits = seen.waits;
    ck_assert_uint_gt(waits, 0);
    ck_assert_uint_lt(seen.ns, 10 * RIG_MS);
    ck_assert_int_eq(seen.writes_elsewhere, 0);
    /* NICs are tested by threads of their own, at the same time: none writes where another does. */
    ck_assert_ptr_nonnull(seen.ours[0]);
    ck_assert_ptr_nonnull(seen.ours[1]);
    ck_assert_int_ge(labs((long)(seen.ours[0] - seen.ours[1])), (long)sizeof(uint64_t));
    more = reg(1, 16, 2);
    for (int n = 0; n < 2; n++) {
        ck_assert(ib_mr_rkey(mr[0], n) && ib_mr_rkey(mr[1], n) && ib_mr_rkey(more, n));
    }
    ck_assert_uint_eq(seen.waits, waits);
    exchange(mr[0], mr[1]);
    ck_assert_uint_gt(rig->side[0].comm->conn.path[0].count.bytes, 0);
    rig_dereg(rig, 1, more);
    stop(mr[0], mr[1]);
}
END_TEST

/* One that does not answer anything is no case of this, and is not waited for twice. */
START_TEST(a_nic_that_hangs_keeps_nobody)
{
    struct ib_mr *mr[2], *more;

    start("h0:n0 hang");
    mr[0] = reg(0, 0, 2);
    ck_assert_uint_le(seen.ns, R2_REACH_NS + 10 * RIG_MS);
    ck_assert_uint_ge(seen.ns, R2_REACH_NS);
    ck_assert_uint_ne(ib_mr_rkey(mr[0], 0), 0);
    more = reg(0, 4, 2);
    ck_assert_uint_le(seen.ns, R2_REACH_NS + 10 * RIG_MS);
    rig_dereg(rig, 0, more);
    rig_fault(rig, "h0:n0 unhang");
    mr[1] = reg(1, 8, 2);
    stop(mr[0], mr[1]);
}
END_TEST

/* One that answers what needs no memory and then hangs on the GPU's: refuses until it answers. */
START_TEST(late_is_no_until_it_comes)
{
    struct ib_mr *mr[3];
    uint64_t ns;

    start(NULL);
    seen.at = 2;
    seen.fault = "h0:n0 hang";
    mr[0] = reg(0, 0, 2);
    ck_assert_uint_eq(fab_inproc_nic(rig->f, 0, 0)->cnt.faults[FAB_FAULT_HANG], 1);
    ck_assert_uint_eq(ib_mr_lkey(mr[0], 0), 0);
    ck_assert_uint_ne(ib_mr_lkey(mr[0], 1), 0);
    ck_assert_ptr_nonnull(strstr(rig->last_warn[0], "has not answered"));
    ns = seen.ns;
    mr[1] = reg(0, 4, 2);
    ck_assert_uint_eq(ib_mr_lkey(mr[1], 0), 0);
    ck_assert_uint_eq(seen.ns, ns);
    rig_fault(rig, "h0:n0 unhang");
    rig_run(rig, 10 * RIG_MS);
    mr[2] = reg(0, 6, 2);
    ck_assert_uint_ne(ib_mr_lkey(mr[2], 0), 0);
    rig_dereg(rig, 0, mr[1]);
    rig_dereg(rig, 0, mr[2]);
    mr[1] = reg(1, 8, 2);
    stop(mr[0], mr[1]);
}
END_TEST

/* A queue pair that breaks for another reason in the middle of it: asked again before a word is
 * believed. */
START_TEST(one_failure_is_no_verdict)
{
    struct ib_mr *mr[2];

    start(NULL);
    seen.at = 2;
    seen.fault = "h0:n0 qp-error";
    mr[0] = reg(0, 0, 2);
    ck_assert_uint_eq(fab_inproc_nic(rig->f, 0, 0)->cnt.faults[FAB_FAULT_QP_ERROR], 1);
    ck_assert_uint_ne(ib_mr_lkey(mr[0], 0), 0);
    mr[1] = reg(1, 8, 2);
    stop(mr[0], mr[1]);
}
END_TEST

static struct {
    struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t len, int access);
    unsigned own, of_heap; /* registrations of our memory in the host; of these, in the heap */
} pages;

/* A sanitizer's heap has no name: there nothing is found to be of the heap. */
static int is_of_heap(uintptr_t from, uintptr_t end)
{
    FILE *f = fopen("/proc/self/maps", "r");
    char line[512];
    int found = 0;

    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof(line), f)) {
        unsigned long a, b;

        found |=
            strstr(line, "[heap]") && sscanf(line, "%lx-%lx ", &a, &b) == 2 && from < b && end > a;
    }
    fclose(f);
    return found;
}

static struct ibv_mr *reg_mr_seen(struct ibv_pd *pd, void *addr, size_t len, int access)
{
    if ((uintptr_t)addr - (uintptr_t)gpu >= sizeof(gpu)) {
        pages.own++;
        pages.of_heap += is_of_heap((uintptr_t)addr, (uintptr_t)addr + len) != 0;
    }
    return pages.reg_mr(pd, addr, len, access);
}

/* The page of a test is none of the heap: before kernel 5.12 a forked child lacks it, whole, and
 * where pages are of 64 KiB its neighbours with it. */
START_TEST(its_page_is_not_of_the_heap)
{
    struct ib_mr *mr[2];

    start(NULL);
    memset(&pages, 0, sizeof(pages));
    pages.reg_mr = rig->side[0].inst->v.reg_mr;
    rig->side[0].inst->v.reg_mr = reg_mr_seen;
    mr[0] = reg(0, 0, 2);
    ck_assert_uint_eq(pages.own, 2); /* a NIC each */
    ck_assert_uint_eq(pages.of_heap, 0);
    mr[1] = reg(1, 8, 2);
    stop(mr[0], mr[1]);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, nothing_goes_over_a_nic_that_cannot, 0, 2);
    tcase_add_test(t, nics_that_can_are_asked_once);
    tcase_add_test(t, a_nic_that_hangs_keeps_nobody);
    tcase_add_test(t, late_is_no_until_it_comes);
    tcase_add_test(t, one_failure_is_no_verdict);
    tcase_add_test(t, its_page_is_not_of_the_heap);
}

int main(void)
{
    return suite_run("reach of memory of GPUs", 60, NULL, NULL, add);
}
