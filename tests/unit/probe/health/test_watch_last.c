/* The pair of last resort: what TCP repairs by itself is waited for (docs/health.md). */
#include "tests/unit/suite.h"
#include "tests/unit/watch_rig.h"

#include "plugin/probe/health/r2_watch.h"

#define LAST 1 /* path, and NIC of each host */
#define GAP                                                                                        \
    (100 * RIG_MS) /* the fabric's NIC repeats behind a further probe alone: some are left */

static int is_last(struct ibv_context *ctx)
{
    return atoi(strpbrk(ctx->device->name, "0123456789")) == LAST ? 10000 : 0; /* Mb/s */
}

static void with_last(struct ib_verbs *v)
{
    v->last_resort = is_last;
}

static void begin(void)
{
    rig_verbs = with_last;
    start(2, (const char *[]){QUIET_RC, NULL});
    rig_verbs = NULL;
    ck_assert_uint_eq(rig->side[0].comm->conn.last, 1u << LAST);
    wait_probes();
    rate_known();
}

static int last_is_down(struct rig *r)
{
    return path_is_down(r, LAST);
}

/* A segment that is lost, or a thread that runs late: the data goes over RDMA meanwhile. */
START_TEST(what_tcp_repairs_is_no_fault)
{
    uint64_t answers, before;

    begin();
    answers = pair_of(0, LAST)->probe.answers;
    before = rig_now(rig);
    fire("h1:n1 blackhole");
    r2_watch_probe(pair_of(0, LAST));
    while (rig_now(rig) < before + GAP) {
        messages(1, BIG);
    }
    ck_assert_uint_eq(pair_of(0, LAST)->probe.answers, answers); /* it was silent */
    fire("h1:n1 up");
    ck_assert(rig_until(rig, probes_stand, RIG_S));
    ck_assert_uint_gt(pair_of(0, LAST)->probe.answers, answers);
    nothing_moved();
    stop();
}
END_TEST

START_TEST(what_stays_silent_is_given_up)
{
    begin();
    fire("h1:n1 blackhole");
    r2_watch_probe(pair_of(0, LAST));
    ck_assert(rig_until(rig, last_is_down, RIG_S));
    found_as(LAST, IB_FAULT_SILENT);
    messages(4, BIG);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, what_tcp_repairs_is_no_fault);
    tcase_add_test(t, what_stays_silent_is_given_up);
}

int main(void)
{
    return suite_run("watch_last", 60, NULL, teardown, add);
}
