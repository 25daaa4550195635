#include "r2_reach.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/r2_log.h"
#include "base/r2_pages.h"
#include "core/r2_inst.h"
#include "probe/probe_qp.h"

#define GPUS_MAX                                                                                   \
    64 /* ordinals of a process; behind them one place for memory whose GPU is not known */
#define POLL_NS 20000 /* between two checks of a completion queue */
#define HOST_LEN                                                                                   \
    4096 /* in pages of its own: registered memory is kept from forked children, page by page */
#define BACK 64 /* where in it what is read comes to */
#define MARK sizeof(uint64_t)
#define PLACE                                                                                      \
    64 /* of a NIC in memory of ours, which NICs that are tested at the same time have together */
_Static_assert(IB_MAX_NICS *PLACE <= HOST_LEN, "each NIC has a place in memory of ours");

enum way { BY_ADDRESS, BY_DMABUF, WAYS };

/* Memory of ours on a GPU. */
struct ours {
    enum { OURS_UNKNOWN, OURS_READY, OURS_NONE } state; /* NONE: the user's is read */
    struct ib_copy_mem mem;
};

/* A test: its objects, of which a NIC that has not answered may still have some. */
struct test {
    struct probe_qp qp;
    void *host; /* one page: the bytes that are written, and those that come back */
    struct ibv_mr *host_mr;
    struct ibv_mr *own_mr; /* of ours on the GPU; NULL: the user's is read, and nothing written */
    uintptr_t addr;        /* of the memory that is tested */
    uint32_t rkey;
    uint64_t mark;
    int gpu, way;
    uint8_t step; /* enum r2_reach_step: that is out */
    int again;    /* one test has failed before */
    int late;     /* it has not answered in time */
};

/*
 * Threads: nic[].lock is held through a test, by the thread that registers; @make while memory of
 * ours is made, or the engine opened. No gate is taken with them. The data path does not come here.
 */
struct r2_reach {
    struct r2_inst *inst;
    r2_copy_open_fn open;
    pthread_mutex_t make;
    int opened; /* @open was asked */
    const struct ib_copy_ops *ops;
    void *arg;
    struct ours ours[GPUS_MAX];
    struct {
        pthread_mutex_t lock;
        uint8_t result[GPUS_MAX + 1][WAYS]; /* enum r2_reach_result */
        uint8_t logged[GPUS_MAX + 1];
        struct test test;
    } nic[IB_MAX_NICS];
};

/* Row: from. What is known stays known: a NIC that comes back is another one. */
void r2_reach_result_move(uint8_t *result, enum r2_reach_result to, const char *nic)
{
    static const char *const names[R2_REACH_RESULTS] = {"unknown", "untested", "reaches",
                                                        "does not reach"};
    static const unsigned char legal[R2_REACH_RESULTS][R2_REACH_RESULTS] = {
        [R2_REACH_UNKNOWN] = {[R2_REACH_UNTESTED] = 1, [R2_REACH_YES] = 1, [R2_REACH_NO] = 1},
    };

    if (*result == to) {
        return;
    }
    if (!legal[*result][to]) {
        R2_WARN("NIC %s and memory of a GPU cannot go from %s to %s", nic, names[*result],
                names[to]);
        return;
    }
    R2_TRACE("NIC %s and memory of a GPU: %s -> %s", nic, names[*result], names[to]);
    *result = (uint8_t)to;
}

/* Row: from. Without memory of ours nothing is written; any step may be the last one. */
void r2_reach_step_move(uint8_t *step, enum r2_reach_step to, const char *nic)
{
    static const char *const names[R2_REACH_STEPS] = {"none", "asking", "writing", "reading"};
    static const unsigned char legal[R2_REACH_STEPS][R2_REACH_STEPS] = {
        [R2_REACH_IDLE] = {[R2_REACH_ASK] = 1},
        [R2_REACH_ASK] = {[R2_REACH_IDLE] = 1, [R2_REACH_WRITE] = 1, [R2_REACH_READ] = 1},
        [R2_REACH_WRITE] = {[R2_REACH_IDLE] = 1, [R2_REACH_READ] = 1},
        [R2_REACH_READ] = {[R2_REACH_IDLE] = 1},
    };

    if (*step == to) {
        return;
    }
    if (!legal[*step][to]) {
        R2_WARN("the test of NIC %s and memory of a GPU cannot go from %s to %s", nic, names[*step],
                names[to]);
        return;
    }
    R2_TRACE("the test of NIC %s and memory of a GPU: %s -> %s", nic, names[*step], names[to]);
    *step = (uint8_t)to;
}

struct r2_reach *r2_reach_create(struct r2_inst *inst, const struct ib_copy_ops *ops, void *arg,
                                 r2_copy_open_fn open)
{
    struct r2_reach *r = calloc(1, sizeof(*r));

    if (r == NULL) {
        return NULL;
    }
    r->inst = inst;
    r->ops = ops;
    r->arg = arg;
    r->open = open;
    pthread_mutex_init(&r->make, NULL);
    for (int i = 0; i < IB_MAX_NICS; i++) {
        pthread_mutex_init(&r->nic[i].lock, NULL);
    }
    return r;
}

/* --- memory of ours --- */

/* The GPU of @addr; GPUS_MAX: nobody knows. @make is held for the first one alone, which opens the
 * engine. */
static int gpu_of(struct r2_reach *r, uintptr_t addr)
{
    int gpu;

    pthread_mutex_lock(&r->make);
    if (r->ops == NULL && r->open && !r->opened && r->open(&r->ops, &r->arg) != 0) {
        r->ops = NULL;
    }
    r->opened = 1;
    pthread_mutex_unlock(&r->make);
    gpu = r->ops ? r->ops->gpu_of(r->arg, (const void *)addr) : IB_COPY_HOST;
    return gpu >= 0 && gpu < GPUS_MAX ? gpu : GPUS_MAX;
}

/* NULL: there is none that could be registered as @way. */
static const struct ib_copy_mem *ours_get(struct r2_reach *r, int gpu, int way)
{
    struct ours *o = gpu < GPUS_MAX ? &r->ours[gpu] : NULL;

    if (o == NULL) {
        return NULL;
    }
    pthread_mutex_lock(&r->make);
    if (o->state == OURS_UNKNOWN) {
        int used = r->ops->gpu_used == NULL || r->ops->gpu_used(r->arg, gpu);

        o->state =
            used && r->ops->mem_get(r->arg, gpu, HOST_LEN, &o->mem) == 0 ? OURS_READY : OURS_NONE;
    }
    pthread_mutex_unlock(&r->make);
    return o->state == OURS_READY && (way == BY_ADDRESS || o->mem.dmabuf_fd >= 0) ? &o->mem : NULL;
}

/* --- one test --- */

static void test_end(struct r2_reach *r, int nic)
{
    const struct ib_verbs *v = r->inst->nics.v;
    struct test *t = &r->nic[nic].test;

    probe_qp_destroy(&t->qp, &r->inst->nics);
    if (t->own_mr) {
        v->dereg_mr(t->own_mr);
    }
    /* what cannot be taken away may still be written: then it is never freed */
    if (t->host_mr == NULL || ib_verbs_err(v->dereg_mr(t->host_mr)) == 0 ||
        ib_nic_is_gone(&r->inst->nics, nic)) {
        r2_pages_put(t->host, HOST_LEN);
    }
    r2_reach_step_move(&t->step, R2_REACH_IDLE, r->inst->nics.nic[nic].name);
    memset(t, 0, sizeof(*t));
}

static int host_make(struct r2_reach *r, int nic, struct test *t)
{
    t->host = r2_pages_get(HOST_LEN);
    if (t->host == NULL) {
        return ENOMEM;
    }
    memcpy(t->host, &t->mark, MARK);
    errno = 0;
    t->host_mr = r->inst->nics.v->reg_mr(r->inst->nics.nic[nic].pd, t->host, HOST_LEN,
                                         IBV_ACCESS_LOCAL_WRITE);
    return t->host_mr ? 0 : (errno ? errno : ENOMEM);
}

/* As the user's is. Without it the user's is read. */
static void own_make(struct r2_reach *r, int nic, struct test *t)
{
    const struct ib_verbs *v = r->inst->nics.v;
    const struct ib_copy_mem *mem = ours_get(r, t->gpu, t->way);
    struct ibv_pd *pd = r->inst->nics.nic[nic].pd;
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

    if (mem && t->way == BY_DMABUF && v->reg_dmabuf_mr) {
        t->own_mr = v->reg_dmabuf_mr(pd, 0, mem->len, (uintptr_t)mem->addr, mem->dmabuf_fd, access);
    } else if (mem && t->way == BY_ADDRESS) {
        t->own_mr = v->reg_mr(pd, mem->addr, mem->len, access);
    }
}

static int loop_make(struct r2_reach *r, int nic, struct test *t)
{
    struct ib_nics *nics = &r->inst->nics;
    struct ib_path_addr self;
    int rc;

    t->qp.reads = 1;
    rc = probe_qp_create(&t->qp, nics, nic, (uint32_t)t->mark);
    if (rc == 0) {
        probe_qp_addr_get(&t->qp, nics, nic, &self);
        rc = probe_qp_connect(&t->qp, nics, nic, &self, NULL);
    }
    return rc;
}

/*
 * The next step. The first one needs no memory: a NIC that does not answer even that is no case of
 * this. The user's memory is read, never written: kernels may work on it.
 */
static int post(struct r2_reach *r, int nic, enum r2_reach_step step)
{
    struct test *t = &r->nic[nic].test;
    size_t len = step == R2_REACH_ASK ? 0 : t->own_mr ? MARK : 1;
    struct ibv_sge sge = {.addr = (uintptr_t)t->host + (step == R2_REACH_READ ? BACK : 0),
                          .length = (uint32_t)len,
                          .lkey = t->host_mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = len > 0,
                             .opcode = step == R2_REACH_READ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {.remote_addr = step == R2_REACH_ASK ? 0 : t->addr,
                                         .rkey = step == R2_REACH_ASK ? 0 : t->rkey}};
    struct ibv_send_wr *bad;

    r2_reach_step_move(&t->step, step, r->inst->nics.nic[nic].name);
    return ib_verbs_err(ibv_post_send(t->qp.lane[0].qp, &wr, &bad));
}

/* What has come back. R2_REACH_UNKNOWN: not all yet. @status: of the completion that refuses it. */
static enum r2_reach_result poll_test(struct r2_reach *r, int nic, enum ibv_wc_status *status)
{
    const struct test *t = &r->nic[nic].test;
    struct ibv_wc wc;
    int n = ibv_poll_cq(t->qp.cq, 1, &wc);

    if (n == 0) {
        return R2_REACH_UNKNOWN;
    }
    *status = n < 0 ? IBV_WC_GENERAL_ERR : wc.status;
    if (*status != IBV_WC_SUCCESS) {
        return t->step == R2_REACH_ASK ? R2_REACH_UNTESTED : R2_REACH_NO;
    }
    if (t->step == R2_REACH_READ) {
        return t->own_mr == NULL || memcmp((char *)t->host + BACK, &t->mark, MARK) == 0
                   ? R2_REACH_YES
                   : R2_REACH_NO;
    }
    return post(r, nic, t->step == R2_REACH_ASK && t->own_mr ? R2_REACH_WRITE : R2_REACH_READ) == 0
               ? R2_REACH_UNKNOWN
               : R2_REACH_UNTESTED;
}

/* A device that is lost, or a port that is down, says nothing about memory. */
static bool nic_is_well(const struct r2_reach *r, int nic)
{
    return ib_nic_state_get(&r->inst->nics.nic[nic]) == IB_NIC_UP;
}

static void log_result(struct r2_reach *r, int nic, const struct test *t, const char *why)
{
    if (!r->nic[nic].logged[t->gpu]) {
        R2_WARN(
            "NIC %s registers memory of GPU %d and does not reach it (%s): it carries nothing to "
            "or from that GPU. PCIe access control (ACS) or an IOMMU between them is the usual "
            "reason",
            r->inst->nics.nic[nic].name, t->gpu < GPUS_MAX ? t->gpu : -1, why);
        r2_log_flush();
        r->nic[nic].logged[t->gpu] = 1;
    }
}

/* Takes what has come back of what is out, waiting for it for @limit, and for each further step for
 * R2_REACH_NS. 0 or EIO. */
static int conclude(struct r2_reach *r, int nic, uint64_t limit)
{
    const struct r2_env *env = &r->inst->env;
    struct test *t = &r->nic[nic].test;
    uint8_t *result = &r->nic[nic].result[t->gpu][t->way];
    enum ibv_wc_status status = IBV_WC_SUCCESS;
    uint64_t since = r2_now(r->inst);
    enum r2_reach_result found;
    int step = t->step, again;

    while ((found = poll_test(r, nic, &status)) == R2_REACH_UNKNOWN) {
        if (t->step != step) { /* it answers: so it has its time for the next one, too */
            step = t->step;
            limit = R2_REACH_NS;
            since = r2_now(r->inst);
        } else if (r2_elapsed(r2_now(r->inst), since) < limit) {
            env->wait(env->arg, POLL_NS);
        } else if (t->step != R2_REACH_ASK) {
            t->late = 1;
            log_result(r, nic, t, "it has not answered yet");
            return EIO; /* checked again with the next memory */
        } else {
            found = R2_REACH_UNTESTED; /* no loop, or the NIC hangs, which is found by who waits for
                                          it */
            break;
        }
    }
    if (found == R2_REACH_NO &&
        (!t->again || !nic_is_well(r, nic) || (t->late && t->own_mr == NULL))) {
        found = R2_REACH_UNKNOWN; /* the first one may have had another reason, as when somebody
                            breaks all queue pairs of the NIC, or the user's memory is gone */
    } else if (found == R2_REACH_NO) {
        log_result(r, nic, t,
                   status ? r->inst->nics.v->wc_status_str(status)
                          : "what was written is not what is read");
    } else if (found == R2_REACH_UNTESTED) {
        R2_INFO("NIC %s does not answer itself: whether it reaches memory of a GPU is not known",
                r->inst->nics.nic[nic].name);
    }
    r2_reach_result_move(result, found, r->inst->nics.nic[nic].name);
    again = found == R2_REACH_UNKNOWN && !t->again;
    test_end(r, nic);
    t->again = again;
    return found == R2_REACH_NO ? EIO : 0;
}

static int begin(struct r2_reach *r, int nic, const struct ib_mr *mr, const struct ibv_mr *m,
                 int gpu, int way)
{
    struct test *t = &r->nic[nic].test;
    int rc;

    *t = (struct test){.gpu = gpu, .way = way, .again = t->again};
    r->inst->env.random(r->inst->env.arg, &t->mark, sizeof(t->mark));
    rc = host_make(r, nic, t);
    if (rc == 0) {
        own_make(r, nic, t);
        t->addr = t->own_mr ? (uintptr_t)r->ours[gpu].mem.addr + (uintptr_t)nic * PLACE : mr->addr;
        t->rkey = t->own_mr ? t->own_mr->rkey : m->rkey;
        rc = loop_make(r, nic, t);
    }
    if (rc == 0) {
        rc = post(r, nic, R2_REACH_ASK);
    }
    if (rc != 0) {
        R2_INFO("NIC %s: whether it reaches memory of GPU %d cannot be tested: %s",
                r->inst->nics.nic[nic].name, gpu < GPUS_MAX ? gpu : -1, strerror(rc));
        r2_reach_result_move(&r->nic[nic].result[gpu][way], R2_REACH_UNTESTED,
                             r->inst->nics.nic[nic].name);
        test_end(r, nic);
    }
    return rc;
}

static int check(struct r2_reach *r, int nic, const struct ib_mr *mr, const struct ibv_mr *m,
                 int gpu, int way)
{
    struct test *t = &r->nic[nic].test;

    if (t->step != R2_REACH_IDLE && conclude(r, nic, 0) != 0 && t->step != R2_REACH_IDLE) {
        return EIO; /* an earlier question is not answered yet: the NIC hangs, or nearly so */
    }
    for (int i = 0;
         i < 2 && r->nic[nic].result[gpu][way] == R2_REACH_UNKNOWN && nic_is_well(r, nic); i++) {
        if (begin(r, nic, mr, m, gpu, way) != 0) {
            break;
        }
        if (conclude(r, nic, R2_REACH_NS) != 0) {
            return EIO;
        }
    }
    t->again = t->step != R2_REACH_IDLE && t->again;
    return r->nic[nic].result[gpu][way] == R2_REACH_NO ? EIO : 0;
}

int r2_reach_check(void *arg, int nic, const struct ib_mr *mr, const struct ibv_mr *m)
{
    struct r2_reach *r = arg;
    int way = mr->dmabuf ? BY_DMABUF : BY_ADDRESS, gpu, rc;

    if (r->inst->env.wait == NULL) {
        return 0; /* one thread, which cannot wait for what it has to bring about itself */
    }
    gpu = gpu_of(r, mr->addr);
    pthread_mutex_lock(&r->nic[nic].lock);
    rc = check(r, nic, mr, m, gpu, way);
    pthread_mutex_unlock(&r->nic[nic].lock);
    return rc;
}

void r2_reach_destroy(struct r2_reach *r)
{
    if (r == NULL) {
        return;
    }
    for (int i = 0; i < IB_MAX_NICS; i++) {
        if (r->nic[i].test.host) {
            test_end(r, i);
        }
        pthread_mutex_destroy(&r->nic[i].lock);
    }
    pthread_mutex_destroy(&r->make);
    free(r);
}
