/* What the suites of records share: a connection on the two-instance rig and messages of eight
 * bytes over it. */
#ifndef TEST_PROTOCOL_RIG_H
#define TEST_PROTOCOL_RIG_H

#include "tests/support/proto_rig.h"
#include "tests/unit/suite.h"

static struct rig *rig;
static uint64_t out[256], in[256];
static struct ib_mr *s_mr, *r_mr;
static uint64_t count;

static inline void teardown(void)
{
    rig_destroy(rig);
    rig = NULL;
}

static inline void start(int nics, const char *const *options)
{
    rig = rig_create(nics, 0, options);
    rig_connect(rig, 0, 0);
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
    count = 0;
}

static inline void stop(void)
{
    rig_dereg(rig, 0, s_mr);
    rig_dereg(rig, 1, r_mr);
}

/* @n messages go through, and nothing else happens. */
static inline void messages(int n)
{
    for (int i = 0; i < n; i++, count++) {
        in[count % 256] = ~0ull;
        out[count % 256] = count;
        ck_assert_int_ge(rig_irecv1(rig, &in[count % 256], 8, 0, r_mr), 0);
        rig_send_wait(rig, &out[count % 256], 8, 0, s_mr);
        ck_assert(rig_until(rig, rig_all_done, 10 * RIG_S));
        ck_assert_uint_eq(in[count % 256], count);
    }
    ck_assert_int_eq(rig->side[0].status, R2_OK);
    ck_assert_int_eq(rig->side[1].status, R2_OK);
}

#endif
