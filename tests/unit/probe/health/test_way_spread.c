/* Which ways connections between the same two NICs take: each the one that the fewest have. */
#include <check.h>
#include <string.h>

#include "core/r2_visit.h"
#include "tests/support/duo.h"
#include "tests/unit/suite.h"

#define WAYS  8
#define CONNS (2 * WAYS)

static struct duo d;
static struct r2_comm *tx[CONNS], *rx[CONNS];

static void begin(int hosts, int nics, const char *qps)
{
    static struct fab_desc desc;
    struct r2_config cfg;
    char why[256];

    r2_config_defaults(&cfg);
    ck_assert_int_eq(r2_config_set(&cfg, "NCCL_IB_QPS_PER_CONNECTION", qps, why, sizeof(why)), 0);
    ck_assert_int_eq(fab_desc_init(&desc, hosts, nics, 0, 1000, why, sizeof(why)), 0);
    duo_create_on(&d, &desc, &cfg);
    duo_run(&d, 10 * DUO_MS);
}

static void end_all(int conns)
{
    for (int i = 0; i < conns; i++) {
        r2_net_close(tx[i]);
        r2_net_close(rx[i]);
    }
    duo_run(&d, 100 * DUO_MS);
    duo_destroy(&d);
}

/* How many queue pairs of the primary pairs of connections @first, @first + @step, ... take each
 * way. */
static void count(int conns, int first, int step, int n[WAYS])
{
    memset(n, 0, WAYS * sizeof(*n));
    for (int i = first; i < conns; i += step) {
        for (int p = 0; p < rx[i]->conn.npaths; p++) {
            const struct ib_path *path = &rx[i]->conn.path[p];

            ck_assert_uint_eq(path->way, tx[i]->conn.path[p].way);
            ck_assert(path->way >= 1 && path->way <= WAYS);
            n[path->way - 1] += path->nic == rx[i]->conn.path[0].nic;
        }
    }
}

/* A connection's queue pairs take ways that those of the one before have not. */
START_TEST(queue_pairs_of_connections)
{
    int n[WAYS];

    begin(2, 1, "4");
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(duo_connect(&d, 0, &tx[i], &rx[i]), 0);
        count(i + 1, 0, 1, n);
        for (int k = 0; k < WAYS; k++) {
            ck_assert_int_le(n[k], i / 2 + 1);
        }
    }
    end_all(4);
}
END_TEST

/* Two hosts connect in turn: what one does says nothing of the other's ways. */
START_TEST(hosts_in_turn)
{
    int n[WAYS];

    begin(3, 1, "1");
    for (int i = 0; i < CONNS; i++) {
        ck_assert_int_eq(duo_connect_hosts(&d, i % 2, 2, 0, &tx[i], &rx[i]), 0);
    }
    for (int host = 0; host < 2; host++) {
        count(CONNS, host, 2, n);
        for (int k = 0; k < WAYS; k++) {
            ck_assert_int_eq(n[k], 1);
        }
    }
    end_all(CONNS);
}
END_TEST

/* Two NICs in turn, each of which backs up the other. */
START_TEST(nics_in_turn)
{
    int n[WAYS];

    begin(2, 2, "1");
    for (int i = 0; i < CONNS; i++) {
        ck_assert_int_eq(duo_connect(&d, i % 2, &tx[i], &rx[i]), 0);
    }
    for (int nic = 0; nic < 2; nic++) {
        count(CONNS, nic, 2, n);
        for (int k = 0; k < WAYS; k++) {
            ck_assert_int_eq(n[k], 1);
        }
    }
    end_all(CONNS);
}
END_TEST

/* Whatever has ended an incarnation may have been its way: the next one takes another, also where
 * that one has the fewest. */
START_TEST(the_next_incarnation_takes_another)
{
    enum { LEFT = CONNS - 1 };
    struct ib_fault_info info = {.fault = IB_FAULT_WAY};
    struct r2_comm *c = NULL;
    unsigned way;
    int n[WAYS];

    begin(2, 1, "1");
    for (int i = 0; i < CONNS; i++) {
        ck_assert_int_eq(duo_connect(&d, 0, &tx[i], &rx[i]), 0);
    }
    way = rx[LEFT]->conn.path[0].way;
    r2_net_close(tx[LEFT]); /* one way has one connection now, the others two */
    r2_net_close(rx[LEFT]);
    duo_run(&d, 100 * DUO_MS);
    count(LEFT, 0, 1, n);
    ck_assert_int_eq(n[way - 1], 1);
    for (int i = 0; i < LEFT; i++) {
        c = rx[i]->conn.path[0].way == way ? rx[i] : c;
    }
    r2_comm_visit(c);
    fo_fault(&c->fo, 0, &info);
    r2_comm_unvisit(c);
    duo_run(&d, 3000 * DUO_MS);
    ck_assert_uint_eq(c->conn.path[0].inc, 2);
    ck_assert(ib_conn_up(&c->conn, 0));
    ck_assert_uint_ne(c->conn.path[0].way, way);
    end_all(LEFT);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, the_next_incarnation_takes_another);
    tcase_add_test(t, queue_pairs_of_connections);
    tcase_add_test(t, hosts_in_turn);
    tcase_add_test(t, nics_in_turn);
}

int main(void)
{
    return suite_run("way_spread", 120, NULL, NULL, add);
}
