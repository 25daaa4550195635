/* Queue pairs that a driver refuses to destroy: what their NICs may still read and write stays
 * registered and in its place. */
#include "tests/unit/race_rig.h"

#include <errno.h>
#include <sys/mman.h>

#define NICS 2
#define MOST 64

static struct {
    int (*destroy_qp)(struct ibv_qp *qp);
    int (*dereg_mr)(struct ibv_mr *mr);
    struct ibv_qp *refused[MOST];
    const struct ibv_mr *watched[MOST]; /* not to be taken away */
    unsigned n, m, taken;
} driver; /* of one side */

static int destroy_qp_refuses(struct ibv_qp *qp)
{
    ck_assert_uint_lt(driver.n, MOST);
    driver.refused[driver.n++] = qp;
    return EBUSY;
}

static int dereg_mr_seen(struct ibv_mr *mr)
{
    for (unsigned i = 0; i < driver.m; i++) {
        driver.taken += driver.watched[i] == mr;
    }
    return driver.dereg_mr(mr);
}

static void hook(int side)
{
    struct ib_verbs *v = &rig->side[side].inst->v;

    memset(&driver, 0, sizeof(driver));
    driver.destroy_qp = v->destroy_qp;
    driver.dereg_mr = v->dereg_mr;
    v->destroy_qp = destroy_qp_refuses;
    v->dereg_mr = dereg_mr_seen;
}

/* The driver lets go at last, so that the fabric can be taken down. */
static void unhook(int side)
{
    struct ib_verbs *v = &rig->side[side].inst->v;

    v->destroy_qp = driver.destroy_qp;
    v->dereg_mr = driver.dereg_mr;
    rig_enter(&rig->side[side]);
    for (unsigned i = 0; i < driver.n; i++) {
        struct ibv_cq *cq = driver.refused[i]->send_cq;

        ck_assert_int_eq(driver.destroy_qp(driver.refused[i]), 0);
        driver.refused[i] = (void *)cq;
    }
    for (unsigned i = 0; i < driver.m; i++) {
        ck_assert_int_eq(driver.dereg_mr((struct ibv_mr *)driver.watched[i]), 0);
    }
}

static void watch(const struct ibv_mr *mr)
{
    if (mr) {
        driver.watched[driver.m++] = mr;
    }
}

static void in_place(const struct ibv_mr *mr)
{
    unsigned char pages[64];

    ck_assert_uint_le(mr->length, sizeof(pages) * 4096);
    ck_assert_msg(mincore(mr->addr, mr->length, pages) == 0,
                  "memory that is registered is not there any more: %s", strerror(errno));
}

/* Row: which end; whether size records are, too. */
START_TEST(the_memory_of_a_path_stays)
{
    int side = _i % 2, ar = _i / 2;
    char option[40];

    snprintf(option, sizeof(option), "NCCL_IB_ADAPTIVE_ROUTING=%d", ar);
    start(NICS, (const char *[]){option, "NCCL_R2_WATCHDOG=off", NULL});
    messages(4, 1000);
    hook(side);
    for (int p = 0; p < NICS; p++) {
        watch(comm(side)->conn.path[p].mem.ring_mr);
        watch(comm(side)->conn.path[p].mem.records_mr);
        watch(side ? comm(1)->flush.lane->lane[p].mr : NULL);
    }
    ck_assert_uint_eq(driver.m, NICS * (side ? 2u + (unsigned)ar : 1u));
    rig_dereg(rig, 0, s_mr);
    rig_dereg(rig, 1, r_mr);
    rig_close(rig, 0);
    rig_close(rig, 1);
    rig_run(rig, RIG_S);
    ck_assert_int_eq(rig_comms(rig, side), 0);
    r2_log_flush();
    ck_assert_uint_ge(driver.n, NICS);
    ck_assert_uint_eq(driver.taken, 0);
    for (unsigned i = 0; i < driver.m; i++) {
        in_place(driver.watched[i]);
    }
    ck_assert_uint_eq(rig->side[side].inst->nics.kept, driver.m);
    ck_assert_uint_eq(rig->side[!side].inst->nics.kept, 0);
    ck_assert_ptr_nonnull(strstr(rig->last_warn[side], "cannot be destroyed"));
    unhook(side);
}
END_TEST

/* So does that of an incarnation which is over while the connection goes on, in an incarnation that
 * has memory of its own. */
START_TEST(the_memory_of_an_old_incarnation_stays)
{
    const struct ibv_mr *old;

    start(NICS, (const char *[]){"NCCL_R2_T_PACKET=100", "NCCL_R2_T_RETURN=100",
                                 "NCCL_R2_WATCHDOG=off", NULL});
    messages(4, 1000);
    hook(_i);
    old = comm(_i)->conn.path[0].mem.ring_mr;
    watch(old);
    fire("h0:n0 down");
    messages(4, 1000);
    fire("h0:n0 up");
    wait_returned(0, 2);
    rig_run(rig, RIG_S);
    ck_assert_uint_ge(driver.n, 1);
    ck_assert_uint_eq(driver.taken, 0);
    in_place(old);
    ck_assert(comm(_i)->conn.path[0].mem.ring_mr != old);
    ck_assert_uint_eq(rig->side[_i].inst->nics.kept, 1);
    messages(4, 1000);
    stop();
    unhook(_i);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, the_memory_of_a_path_stays, 0, 4);
    tcase_add_loop_test(t, the_memory_of_an_old_incarnation_stays, 0, 2);
}

int main(void)
{
    return run_suite("memory that is kept", add);
}
