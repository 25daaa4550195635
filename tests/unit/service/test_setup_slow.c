/*
 * Set-up of many connections on devices whose calls take long, in virtual time: the jobs of all of
 * them queue at the same two devices. A device that works its queue off is waited for; one that
 * does not is left behind.
 */
#include <check.h>
#include <string.h>

#include "tests/support/duo.h"
#include "tests/unit/suite.h"

#define CONNS 1024
#define STEP  (5 * DUO_MS)

struct conn {
    uint8_t handle[R2_NET_HANDLE_SIZE];
    struct r2_comm *tx, *rx;
    uint64_t tx_at; /* when connect() returned it */
};

static struct duo d;
static struct conn conn[CONNS];
static uint64_t begun;

static void begin(const char *name, const char *value)
{
    struct r2_config cfg;
    char why[256];

    r2_config_defaults(&cfg);
    if (name) {
        ck_assert_int_eq(r2_config_set(&cfg, name, value, why, sizeof(why)), 0);
    }
    memset(conn, 0, sizeof(conn));
    duo_create(&d, 2, 0, &cfg);
    duo_run(&d, 10 * DUO_MS);
}

/* Connects @n at once, until all stand; 0 when an end got an error or it took longer than @limit.
 */
static int connect_all(int n, uint64_t limit, void (*meanwhile)(void))
{
    uint8_t handle[R2_NET_HANDLE_SIZE];
    struct r2_listen *listen;
    int left = 2 * n, taken = 0;

    begun = duo_now(&d);
    ck_assert_int_eq(r2_net_listen(d.end[1].inst, 0, handle, &listen), R2_OK);
    for (int i = 0; i < n; i++) {
        memcpy(conn[i].handle, handle, sizeof(handle));
    }
    while (left > 0 && duo_now(&d) < begun + limit) {
        for (int i = 0; i < n; i++) {
            if (conn[i].tx) {
                continue;
            }
            if (r2_net_connect(d.end[0].inst, 0, conn[i].handle, &conn[i].tx) != R2_OK) {
                return 0;
            }
            conn[i].tx_at = duo_now(&d);
            left -= conn[i].tx != NULL;
        }
        while (taken < n) {
            if (r2_net_accept(listen, &conn[taken].rx) != R2_OK) {
                return 0;
            }
            if (conn[taken].rx == NULL) {
                break;
            }
            taken++;
            left--;
        }
        if (meanwhile) {
            meanwhile();
        }
        duo_run(&d, STEP);
    }
    return left == 0;
}

static int with_paths(int n, int paths)
{
    int count = 0;

    for (int i = 0; i < n; i++) {
        count += __builtin_popcount(conn[i].tx->conn.up) == paths &&
                 __builtin_popcount(conn[i].rx->conn.up) == paths;
    }
    return count;
}

/* A device has 5 s of work for the first of three steps, the other one 6: as long as they go on no
 * path is given up. */
START_TEST(many_connections_on_slow_devices_have_all_paths)
{
    begin(NULL, NULL);
    d.job_ns = 5 * DUO_MS;
    d.device_ns[1] = 6 * DUO_MS;
    ck_assert(connect_all(CONNS, 60000 * DUO_MS, NULL));
    ck_assert_uint_gt(duo_now(&d) - begun, 5000 * DUO_MS);
    ck_assert_int_eq(with_paths(CONNS, 2), CONNS);
}
END_TEST

/* One that hangs is left behind 3 s later, with all connections. */
START_TEST(a_device_that_hangs_is_left_behind)
{
    const int host = _i;

    begin(NULL, NULL);
    d.job_ns = DUO_MS;
    d.stuck[host] = 1u << 1;
    ck_assert(connect_all(32, 60000 * DUO_MS, NULL));
    for (int i = 0; i < 32; i++) {
        ck_assert_uint_ge(conn[i].tx_at, begun + 3000 * DUO_MS);
        ck_assert_uint_le(conn[i].tx_at, begun + 3500 * DUO_MS);
    }
    ck_assert_int_eq(with_paths(32, 1), 32);
}
END_TEST

static void hang_after_2s(void)
{
    if (duo_now(&d) >= begun + 2000 * DUO_MS) {
        d.stuck[1] = 1u << 1;
    }
}

/* The same after two seconds of work: 3 s count from the last job that came back, and who was
 * served before has its path. */
START_TEST(a_device_that_hangs_later)
{
    int both;

    begin(NULL, NULL);
    d.job_ns = 20 * DUO_MS;
    d.device_ns[0] = DUO_MS;
    ck_assert(connect_all(256, 60000 * DUO_MS, hang_after_2s));
    for (int i = 0; i < 256; i++) {
        ck_assert(
            __builtin_popcount(conn[i].tx->conn.up) == 2 ||
            (conn[i].tx_at >= begun + 4900 * DUO_MS && conn[i].tx_at <= begun + 8500 * DUO_MS));
    }
    both = with_paths(256, 2);
    ck_assert_int_eq(both + with_paths(256, 1), 256);
}
END_TEST

/* Every call takes a second, as ibv_modify_qp does where a neighbour does not answer: set-up as a
 * whole has to end in time. */
START_TEST(a_backup_that_is_too_slow_does_not_cost_the_connection)
{
    begin("NCCL_R2_CONNECT", "20000");
    d.job_ns = DUO_MS;
    d.device_ns[1] = 1000 * DUO_MS;
    ck_assert(connect_all(64, 20000 * DUO_MS, NULL));
    ck_assert_int_gt(with_paths(64, 1), 32);
}
END_TEST

static void end(void)
{
    d.stuck[0] = d.stuck[1] = 0;
}

static void add(TCase *t)
{
    tcase_add_test(t, many_connections_on_slow_devices_have_all_paths);
    tcase_add_loop_test(t, a_device_that_hangs_is_left_behind, 0, 2);
    tcase_add_test(t, a_device_that_hangs_later);
    tcase_add_test(t, a_backup_that_is_too_slow_does_not_cost_the_connection);
}

int main(void)
{
    return suite_run("setup_slow", 120, NULL, end, add);
}
