/* Fail-back scenarios: one connection of two instances, traffic over it, and what its paths are.
 * Included by the suites. */
#ifndef FAILBACK_RIG_H
#define FAILBACK_RIG_H

#include "tests/support/proto_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define WORDS 4096 /* of a message that is cut over all paths */

static struct rig *rig;
static uint64_t out[2][WORDS], in[2][WORDS];
static struct ib_mr *s_mr, *r_mr;
static uint64_t count;

static inline struct r2_comm *comm(int side)
{
    return rig->side[side].comm;
}
static inline uint32_t inc(int side, int p)
{
    return comm(side)->conn.path[p].inc;
}
static inline int is_up(int side, int p)
{
    return ib_conn_up(&comm(side)->conn, p);
}
static inline uint64_t carried(int side, int p)
{
    return comm(side)->conn.path[p].count.bytes;
}

/* Short times; @more: NULL, or more options, ended by NULL. */
static inline void create(int nics, const char *const *more)
{
    const char *options[16] = {"NCCL_R2_T_RETURN=50", "NCCL_R2_T_PACKET=100", "NCCL_R2_SPREAD=on",
                               "NCCL_R2_CUT_MIN=128"};
    int n = 4;

    while (more && *more) {
        ck_assert_int_lt(n, 15);
        options[n++] = *more++;
    }
    rig = rig_create(nics, 0, options);
    count = 0;
}

static inline void join(void)
{
    rig_connect(rig, 0, 0);
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
}

static inline void start(int nics, const char *const *more)
{
    create(nics, more);
    join();
}

static inline void teardown(void)
{
    if (rig) {
        rig_destroy(rig);
        rig = NULL;
    }
}

static inline void stop(void)
{
    ck_assert_int_eq(rig->side[0].status, R2_OK);
    ck_assert_int_eq(rig->side[1].status, R2_OK);
    ck_assert_uint_eq(comm(1)->rx->count.bad_arrivals, 0);
    rig_dereg(rig, 0, s_mr);
    rig_dereg(rig, 1, r_mr);
}

static inline void begin_message(void)
{
    uint64_t *o = out[count % 2], *i = in[count % 2];

    memset(i, 0xff, sizeof(in[0]));
    for (unsigned k = 0; k < WORDS; k++) {
        o[k] = count << 32 | k;
    }
    ck_assert_int_ge(rig_irecv1(rig, i, sizeof(in[0]), 0, r_mr), 0);
    rig_send_wait(rig, o, sizeof(out[0]), 0, s_mr);
}

static inline void end_message(void)
{
    ck_assert(rig_until(rig, rig_all_done, 2 * RIG_S));
    ck_assert_int_eq(memcmp(in[count % 2], out[count % 2], sizeof(in[0])), 0);
    count++;
}

/* @n messages go through, cut over the paths that are up, every byte right. */
static inline void messages(int n)
{
    for (int i = 0; i < n; i++) {
        begin_message();
        end_message();
    }
}

/* Conditions for rig_until: path @want_path, at both ends. */
static int want_path;
static uint32_t want_incarnation;

static inline int up_again(struct rig *r)
{
    return is_up(0, want_path) && is_up(1, want_path) && inc(0, want_path) >= want_incarnation &&
           inc(1, want_path) >= want_incarnation;
}
static inline int settled(struct rig *r)
{
    const struct fo_path *s = &comm(0)->fo.path[want_path], *t = &comm(1)->fo.path[want_path];

    return s->state == FO_FENCED && s->settled && t->state == FO_FENCED && t->settled;
}

static inline void wait_settled(int p)
{
    want_path = p;
    ck_assert_msg(rig_until(rig, settled, 20 * RIG_S), "path %d is not settled", p);
}
/* ns from now until (p) is up at both ends in incarnation @n or later. */
static inline uint64_t wait_up(int p, uint32_t n)
{
    uint64_t since = rig_now(rig);

    want_path = p;
    want_incarnation = n;
    ck_assert_msg(rig_until(rig, up_again, 60 * RIG_S),
                  "path %d incarnation %u does not return: %u at S, %u at R", p, n, inc(0, p),
                  inc(1, p));
    return rig_now(rig) - since;
}

/* The path has returned for good: it carries what is sent. */
static inline void carries(int p)
{
    uint64_t s = carried(0, p), t = carried(1, p);

    messages(8);
    ck_assert_uint_gt(carried(0, p), s);
    ck_assert_uint_gt(carried(1, p), t);
}

static inline int run_suite(const char *name, void (*add)(TCase *t))
{
    return suite_run(name, 300, NULL, teardown, add);
}

#endif
