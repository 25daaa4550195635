/*
 * Which NICs a connection gets where some are down when it is set up: hosts whose NICs have a
 * second port without a cable have more NICs than a connection has paths.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/duo.h"
#include "tests/unit/suite.h"

#define NICS 12 /* 0, 2, ... have a cable, 1, 3, ... have none */

static struct duo d;
static struct r2_comm *tx, *rx;

/* @where: the host, or '*', whose odd NICs are down. Connects on NIC @dev. Rails reach each other
 * where an option says that pairs may be across. */
static void connected(char where, int dev, const char *name, const char *value)
{
    static struct fab_desc desc;
    struct r2_config cfg;
    char text[64], why[256];

    r2_config_defaults(&cfg);
    if (name) {
        ck_assert_int_eq(r2_config_set(&cfg, name, value, why, sizeof(why)), 0);
    }
    ck_assert_int_eq(fab_desc_init(&desc, 2, NICS, 0, 1000, why, sizeof(why)), 0);
    desc.crossrail = cfg.backup_scope == R2_BACKUP_ANY;
    duo_create_on(&d, &desc, &cfg);
    for (int n = 1; n < NICS; n += 2) {
        snprintf(text, sizeof(text), "%s%c:n%d down", where == '*' ? "" : "h", where, n);
        duo_fault(&d, text);
    }
    duo_run(&d, 10 * DUO_MS);
    for (int host = 0; host < 2; host++) {
        for (int n = 0; n < NICS; n++) {
            bool down = n % 2 == 1 && (where == '*' || where == '0' + host);

            ck_assert_int_eq(ib_nic_state_get(&d.end[host].inst->nics.nic[n]),
                             down ? IB_NIC_DOWN : IB_NIC_UP);
        }
    }
    ck_assert_int_eq(duo_connect(&d, dev, &tx, &rx), 0);
    ck_assert_uint_eq(tx->conn.npaths, rx->conn.npaths);
    for (int p = 0; p < tx->conn.npaths; p++) {
        ck_assert_uint_eq(tx->conn.path[p].nic, rx->conn.path[p].peer_nic);
        ck_assert_uint_eq(rx->conn.path[p].nic, tx->conn.path[p].peer_nic);
        ck_assert(desc.crossrail || rx->conn.path[p].nic == tx->conn.path[p].nic);
    }
}

/* The NIC of path @p. */
static int nic(int p)
{
    return tx->conn.path[p].nic;
}

static const char place[] = {'*', '0', '1'};

/* All that are up are backups; the places that are left go to those that are down, which may come
 * up. i: where they are down; and the connection's own is up, is down */
START_TEST(those_that_are_up_come_first)
{
    int dev = _i / 3, up = 6 - 1 + dev;

    connected(place[_i % 3], dev, NULL, NULL);
    ck_assert_uint_eq(tx->conn.npaths, IB_MAX_PATHS);
    ck_assert_int_eq(nic(0), dev);
    for (int p = 1; p < IB_MAX_PATHS; p++) {
        ck_assert_int_eq(nic(p) % 2, p > up);
    }
    duo_destroy(&d);
}
END_TEST

/* Before a pair with an end that is down come those across rails, and behind those of a rail. i:
 * where they are down; and the connection's own is up, is down */
START_TEST(across_rails_before_those_that_are_down)
{
    int dev = _i / 3, same = 6 - 1 + dev;

    connected(place[_i % 3], dev, "NCCL_R2_BACKUP_SCOPE", "any");
    ck_assert_uint_eq(tx->conn.npaths, IB_MAX_PATHS);
    ck_assert_int_eq(nic(0), dev);
    for (int p = 1; p < IB_MAX_PATHS; p++) {
        int there = rx->conn.path[p].nic;

        ck_assert_int_eq(nic(p) == there, p <= same);
        ck_assert(place[_i % 3] == '1' || nic(p) % 2 == 0);
        ck_assert(place[_i % 3] == '0' || there % 2 == 0);
    }
    duo_destroy(&d);
}
END_TEST

/* An order that somebody has pinned holds whatever is up. */
START_TEST(a_list_is_an_order)
{
    static const int want[] = {0, 3, 2, 1, 5};

    connected('*', 0, "NCCL_R2_BACKUP_NICS", "=fab3,fab2,fab1,fab5");
    ck_assert_uint_eq(tx->conn.npaths, 5);
    for (int p = 0; p < 5; p++) {
        ck_assert_int_eq(nic(p), want[p]);
    }
    duo_destroy(&d);
}
END_TEST

/* One that says which are none says nothing of the others. */
START_TEST(a_list_of_those_that_are_none)
{
    connected('*', 0, "NCCL_R2_BACKUP_NICS", "^=fab2");
    ck_assert_uint_eq(tx->conn.npaths, IB_MAX_PATHS);
    for (int p = 0; p < IB_MAX_PATHS; p++) {
        ck_assert_int_ne(nic(p), 2);
        ck_assert_int_eq(nic(p) % 2, p > 4);
    }
    duo_destroy(&d);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, those_that_are_up_come_first, 0, 6);
    tcase_add_loop_test(t, across_rails_before_those_that_are_down, 0, 6);
    tcase_add_test(t, a_list_is_an_order);
    tcase_add_test(t, a_list_of_those_that_are_none);
}

int main(void)
{
    return suite_run("setup_down", 60, NULL, NULL, add);
}
