/*
 * How often a port and its GID table are read. A table has 256 entries on real ports, and each
 * costs a call; where no entry is the best that there can be (a fabric of IPv6 alone) a search
 * asks for all of them.
 */
#include "tests/unit/failback_rig.h"

#include <pthread.h>

#include "tests/fabric/model/fab_fault.h"

#define TABLE 256

static int ports, gids;
static int (*query_port_real)(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);
static int (*query_gid_real)(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid);

static int query_port_long_table(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)
{
    int rc = query_port_real(ctx, port, attr);

    ports++;
    attr->gid_tbl_len = TABLE;
    return rc;
}

static int query_gid_long_table(struct ibv_context *ctx, uint8_t port, int index,
                                union ibv_gid *gid)
{
    gids++;
    if (index < FAB_GIDS) {
        return query_gid_real(ctx, port, index, gid);
    }
    memset(gid, 0, sizeof(*gid));
    return 0;
}

/* Process 0, on NICs without an IPv4 address, with a look every 100 ms. */
static void begin(const char *option)
{
    create(2, (const char *[]){"NCCL_R2_LOOK=100", option, NULL});
    query_port_real = rig->side[0].inst->v.query_port;
    query_gid_real = rig->side[0].inst->v.query_gid;
    rig->side[0].inst->v.query_port = query_port_long_table;
    rig->side[0].inst->v.query_gid = query_gid_long_table;
    ports = gids = 0;
}

/* Many paths over one port: what the first of them reads is good for all. */
START_TEST(set_up_reads_a_port_once)
{
    begin("NCCL_IB_ADDR_FAMILY=AF_INET6");
    rig->side[0].inst->cfg.ib_qps = 4;
    rig->side[0].inst->cfg.t_port_poll_ms = 60000;
    join();
    ck_assert_int_eq(comm(0)->conn.npaths, 8);
    ck_assert_int_le(ports, 2 * 2); /* and a look */
    ck_assert_int_gt(ports, 0);
    ck_assert_int_le(gids, 2 * (TABLE + 1));
    messages(2);
    stop();
}
END_TEST

/* A look asks for the port and for the entry that was chosen. */
START_TEST(a_look_does_not_search)
{
    begin("NCCL_IB_ADDR_FAMILY=AF_INET6");
    join();
    rig_run(rig, 300 * RIG_MS);
    ports = gids = 0;
    rig_run(rig, 1000 * RIG_MS);
    ck_assert_int_ge(ports, 2 * 9); /* it looks */
    ck_assert_int_le(ports, 2 * 11);
    ck_assert_int_eq(gids, ports);
    stop();
}
END_TEST

/* An event has the table searched, once; the address that is then used is the new one. */
START_TEST(an_event_has_it_searched)
{
    struct ib_addr before, after;

    begin("NCCL_IB_ADDR_FAMILY=AF_INET6");
    join();
    rig_run(rig, 300 * RIG_MS);
    ib_nic_addr_get(&rig->side[0].inst->nics, 1, &before);
    gids = 0;
    rig_fault(rig, "h0:n1 gid-change");
    rig_run(rig, 50 * RIG_MS);
    ib_nic_addr_get(&rig->side[0].inst->nics, 1, &after);
    ck_assert_int_ne(memcmp(before.gid, after.gid, 16), 0);
    ck_assert_int_ge(gids, TABLE);
    rig_run(rig, 300 * RIG_MS);
    gids = ports = 0;
    rig_run(rig, 1000 * RIG_MS);
    ck_assert_int_le(gids, ports + 2 * TABLE); /* paths came back, on what was read for them */
    messages(2);
    stop();
}
END_TEST

/* The event was lost: the chosen entry has another GID, and the look finds it. */
START_TEST(a_look_finds_what_no_event_said)
{
    struct ib_addr after;

    begin("NCCL_IB_ADDR_FAMILY=AF_INET6");
    join();
    rig_run(rig, 300 * RIG_MS);
    pthread_mutex_lock(rig->side[0].inst->nics.lock);
    rig->side[0].inst->nics.nic[1].addr.gid[15] ^= 1; /* as if it had been another before */
    pthread_mutex_unlock(rig->side[0].inst->nics.lock);
    gids = 0;
    rig_run(rig, 150 * RIG_MS);
    ib_nic_addr_get(&rig->side[0].inst->nics, 1, &after);
    ck_assert_int_eq(after.gid[15],
                     1); /* the fabric ends its link-local GIDs with the NIC's number */
    ck_assert_int_ge(gids, TABLE);
    stop();
}
END_TEST

/* A path that returns does so on what is read then, event or not (P23). */
START_TEST(a_return_reads_again)
{
    begin("NCCL_IB_ADDR_FAMILY=AF_INET6");
    rig->side[0].inst->cfg.t_port_poll_ms = 60000;
    join();
    rig_run(rig, 300 * RIG_MS);
    rig_fault(rig, "h0:n0 blackhole"); /* no event */
    messages(4);
    wait_settled(0);
    ports = gids = 0;
    rig_fault(rig, "h0:n0 restore");
    wait_up(0, 2);
    ck_assert_int_ge(ports, 1);
    ck_assert_int_ge(gids, 1);
    messages(2);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, set_up_reads_a_port_once);
    tcase_add_test(t, a_look_does_not_search);
    tcase_add_test(t, an_event_has_it_searched);
    tcase_add_test(t, a_look_finds_what_no_event_said);
    tcase_add_test(t, a_return_reads_again);
}

int main(void)
{
    return suite_run("port_reads", 60, NULL, teardown, add);
}
