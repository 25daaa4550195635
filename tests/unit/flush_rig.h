/* What the suites of flushes share: a connection whose receiver has memory of the type of a GPU's,
 * messages over it, and its lanes. */
#ifndef TEST_FLUSH_RIG_H
#define TEST_FLUSH_RIG_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/base/r2_log.h"
#include "tests/support/duo.h"
#include "tests/unit/suite.h"

#define MB       (1u << 20)
#define BUF_LEN  (2 * MB)
#define LIMIT    (5000 * DUO_MS)
#define PCIE_MS  20
#define FENCE_MS 20

static struct duo d;
static struct r2_comm *tx, *rx;
static struct ib_mr *tx_mr, *rx_mr;
static uint8_t *out, *in;

/* No table of states allows a move that is refused. */
static inline void log_sink(enum r2_log_level level, const char *file, int line, const char *msg)
{
    ck_assert_msg(strstr(msg, " cannot go from ") == NULL, "%s", msg);
}

static inline void set(struct r2_config *cfg, const char *name, const char *value)
{
    char why[200];

    ck_assert_msg(r2_config_set(cfg, name, value, why, sizeof(why)) == 0, "%s: %s", name, why);
}

static inline void create_with(int nics, const char *mode, const char *name, const char *value)
{
    struct r2_config cfg;

    r2_config_defaults(&cfg);
    set(&cfg, "NCCL_R2_FLUSH", mode);
    set(&cfg, "NCCL_R2_SPREAD", "on");
    set(&cfg, "NCCL_R2_GIVE_UP", "1000");
    set(&cfg, "NCCL_IB_TIMEOUT", "10");
    if (name) {
        set(&cfg, name, value);
    }
    ck_assert_int_eq(cfg.t_pcie_ms, PCIE_MS);
    ck_assert_int_eq(cfg.t_fence_ms, FENCE_MS);
    r2_log_sink_set(log_sink);
    duo_create(&d, nics, 0, &cfg);
    out = aligned_alloc(4096, BUF_LEN);
    in = aligned_alloc(4096, BUF_LEN);
    for (unsigned i = 0; i < BUF_LEN; i++) {
        out[i] = (uint8_t)(i * 7 + (i >> 12));
    }
    memset(in, 0, BUF_LEN);
}

static inline void create(int nics, const char *mode)
{
    create_with(nics, mode, NULL, NULL);
}

/* Memory of type @type at the receiver. On this fabric a pointer of the CUDA type is registered as
 * any other. */
static inline void open_conn(int type)
{
    ck_assert_int_eq(duo_connect(&d, 0, &tx, &rx), 0);
    ck_assert_int_eq(r2_net_reg(tx, out, BUF_LEN, IB_PTR_HOST, 0, -1, &tx_mr), R2_OK);
    ck_assert_int_eq(r2_net_reg(rx, in, BUF_LEN, type, 0, -1, &rx_mr), R2_OK);
}

static inline void finish(void)
{
    r2_net_dereg(tx, tx_mr);
    r2_net_dereg(rx, rx_mr);
    r2_net_close(tx);
    r2_net_close(rx);
    duo_run(&d, 100 * DUO_MS);
    ck_assert_ptr_null(d.end[1].inst->comms.all); /* nothing of it is left, lanes included */
    duo_destroy(&d);
    free(out);
    free(in);
}

static inline struct r2_req *post_recv(size_t off, size_t len)
{
    struct r2_req *req = NULL;
    void *data = in + off;
    int tag = 1;

    ck_assert_int_eq(r2_net_irecv(rx, 1, &data, &len, &tag, &rx_mr, &req), R2_OK);
    ck_assert_ptr_nonnull(req);
    return req;
}

static inline void post_send(size_t off, size_t len, struct r2_req **req)
{
    for (int i = 0; i < 100000 && !*req; i++) {
        ck_assert_int_eq(r2_net_isend(tx, out + off, len, 1, tx_mr, req), R2_OK);
        duo_run(&d, 500);
    }
    ck_assert_ptr_nonnull(*req);
}

static inline void wait_done(struct r2_req *req)
{
    int sizes[8];
    int done;

    ck_assert_int_eq(duo_wait(&d, req, LIMIT, &done, sizes), R2_OK);
    ck_assert_int_eq(done, 1);
}

/* As two programs would: an end sees what became of its path when it tests. */
static inline void wait_both(struct r2_req *r, struct r2_req *s)
{
    uint64_t end = duo_now(&d) + LIMIT;
    int r_done = 0, s_done = 0;
    int sizes[8];

    while (!(r_done && s_done)) {
        ck_assert_uint_lt(duo_now(&d), end);
        if (!r_done) {
            ck_assert_int_eq(r2_net_test(r, &r_done, sizes), R2_OK);
        }
        if (!s_done) {
            ck_assert_int_eq(r2_net_test(s, &s_done, sizes), R2_OK);
        }
        duo_run(&d, 500);
    }
}

static inline void transfer(size_t off, size_t len)
{
    struct r2_req *r = post_recv(off, len), *s = NULL;

    post_send(off, len, &s);
    wait_both(r, s);
    ck_assert_mem_eq(in + off, out + off, len);
}

static inline struct r2_req *flush_one(size_t off, int len)
{
    struct r2_req *req = NULL;
    void *data = in + off;

    ck_assert_int_eq(r2_net_iflush(rx, 1, &data, &len, &rx_mr, &req), R2_OK);
    return req;
}

static inline struct ib_lane *lane(int i)
{
    return &rx->flush.lane->lane[i];
}

static inline int lane_state(int i)
{
    return atomic_load(&lane(i)->state);
}

#endif
