/*
 * Enhanced connection establishment: what both ends' ports can do beyond the standard is agreed
 * upon for each data queue pair, before it leaves INIT, and again for the queue pair of a path
 * that returns. Where either end does not know of it, nothing is.
 */
#include "tests/unit/failback_rig.h"

#include "tests/fabric/model/fab_fault.h"
#include "tests/fabric/verbs/fab_ibv.h"

#define S_OPTIONS 0x3005
#define R_OPTIONS 0x1007
#define COMMON    0x1005

static struct fab_desc desc;

static void ports(uint32_t s_vendor, uint32_t r_vendor)
{
    char why[160];

    ck_assert_int_eq(fab_desc_init(&desc, 2, 2, 0, RIG_US, why, sizeof(why)), 0);
    for (int n = 0; n < 2; n++) {
        desc.nic[0][n].ece = (struct fab_ece){s_vendor, S_OPTIONS};
        desc.nic[1][n].ece = (struct fab_ece){r_vendor, R_OPTIONS};
    }
}

/* Of path @p, by the device. */
static uint32_t in_use(int side, int p)
{
    struct ibv_ece ece = {0};

    if (fab_inproc_nic(rig->f, side, p)->cfg.ece.vendor == 0) {
        return 0;
    }
    ck_assert_int_eq(fab_ibv_query_ece(comm(side)->conn.path[p].qp, &ece), 0);
    return ece.options;
}

static void all_use(uint32_t options)
{
    for (int side = 0; side < 2; side++) {
        for (int p = 0; p < 2; p++) {
            ck_assert_msg(in_use(side, p) == options,
                          "side %d path %d incarnation %u uses %x, not %x", side, p,
                          comm(side)->conn.path[p].inc, in_use(side, p), options);
            ck_assert_uint_eq(fab_inproc_nic(rig->f, side, p)->cnt.ece_late, 0);
        }
    }
}

/* Agreed, or not; a path that returns has the same. */
static void agree(uint32_t options)
{
    join();
    messages(4);
    all_use(options);
    rig_fault(rig, "h0:n0 blackhole");
    messages(4);
    wait_settled(0);
    rig_fault(rig, "h0:n0 restore");
    wait_up(0, 2);
    messages(4);
    all_use(options);
    stop();
}

#define OPTIONS                                                                                    \
    "NCCL_R2_T_RETURN=50", "NCCL_R2_T_PACKET=100", "NCCL_R2_SPREAD=on", "NCCL_R2_CUT_MIN=128"

START_TEST(what_both_can_do_is_used)
{
    ports(0xfab, 0xfab);
    rig = rig_create_desc(&desc, (const char *[]){OPTIONS, NULL});
    agree(COMMON);
}
END_TEST

/* A provider that knows nothing of it, or one of another vendor, at either end or both. */
START_TEST(ports_that_do_not_match)
{
    static const uint32_t vendor[][2] = {{0, 0xfab}, {0xfab, 0}, {0, 0}, {0xfab, 0xbaf}};

    ports(vendor[_i][0], vendor[_i][1]);
    rig = rig_create_desc(&desc, (const char *[]){OPTIONS, NULL});
    agree(0);
}
END_TEST

START_TEST(switched_off)
{
    static const char *const off[] = {"0:NCCL_IB_ECE_ENABLE=0", "1:NCCL_IB_ECE_ENABLE=0",
                                      "NCCL_IB_ECE_ENABLE=0"};

    ports(0xfab, 0xfab);
    rig = rig_create_desc(&desc, (const char *[]){OPTIONS, off[_i], NULL});
    agree(0);
}
END_TEST

/* libibverbs is from before it: the symbols are not there. */
START_TEST(no_such_calls)
{
    ports(0xfab, 0xfab);
    rig = rig_create_desc(&desc, (const char *[]){OPTIONS, NULL});
    if (_i % 2) {
        rig->side[_i / 2].inst->v.query_ece = NULL;
    } else {
        rig->side[_i / 2].inst->v.set_ece = NULL;
    }
    agree(0);
}
END_TEST

static int what, filtered;

/* What a peer says of it that cannot be, at either end. */
static int spoil(struct rig *r, int from, int type, union fo_body *b)
{
    struct ib_path_addr *a = type == FO_MSG_REP    ? &b->rep.path[0].addr
                             : type == FO_MSG_CONF ? &b->conf.path[0].addr
                                                   : NULL;

    if (a == NULL || (type == FO_MSG_REP) != (what < 2)) {
        return 1;
    }
    filtered++;
    if (what % 2) {
        a->ece.vendor = 0xdead;
    } else {
        a->ece.options = UINT32_MAX;
    }
    return 1;
}

START_TEST(a_peer_that_says_what_cannot_be)
{
    static const uint32_t uses[4][2] = {{S_OPTIONS, R_OPTIONS & S_OPTIONS},
                                        {0, 0},
                                        {COMMON, R_OPTIONS},
                                        {COMMON, 0}}; /* of path 0, S and R */

    ports(0xfab, 0xfab);
    rig = rig_create_desc(&desc, (const char *[]){OPTIONS, NULL});
    what = _i;
    filtered = 0;
    rig->filter = spoil;
    join();
    ck_assert_int_gt(filtered, 0);
    messages(4);
    for (int side = 0; side < 2; side++) {
        ck_assert_uint_eq(in_use(side, 0), uses[_i][side]);
        ck_assert_uint_eq(in_use(side, 1), COMMON);
    }
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, what_both_can_do_is_used);
    tcase_add_loop_test(t, ports_that_do_not_match, 0, 4);
    tcase_add_loop_test(t, switched_off, 0, 3);
    tcase_add_loop_test(t, no_such_calls, 0, 4);
    tcase_add_loop_test(t, a_peer_that_says_what_cannot_be, 0, 4);
}

int main(void)
{
    return suite_run("ece", 60, NULL, teardown, add);
}
