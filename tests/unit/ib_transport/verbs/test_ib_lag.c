/* Which port of a bond a queue pair sends over (docs/health.md, "Bonds"). */
#include "tests/unit/suite.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/r2_log.h"
#include "ib_transport/ib_rc.h"
#include "ib_transport/ib_way.h"
#include "ib_transport/verbs/ib_lag.h"
#include "ib_transport/verbs/ib_sysfs.h"
#include "tests/support/fake_verbs.h"
#include "tests/support/mlx5/fake_mlx5.h"

static struct ib_verbs verbs;
static struct r2_config cfg;
static struct ib_nics nics;
static struct ibv_qp qp;
static struct fake_mlx5 *mlx5;
static char library[256], logged[1 << 14];

static void sink(enum r2_log_level level, const char *file, int line, const char *msg)
{
    size_t used = strlen(logged);

    snprintf(logged + used, sizeof(logged) - used, "%s\n", msg);
}

static unsigned said(const char *part)
{
    unsigned n = 0;

    r2_log_flush();
    for (const char *at = logged; (at = strstr(at, part)) != NULL; at++) {
        n++;
    }
    return n;
}

static int modify(struct ibv_qp *q, struct ibv_qp_attr *attr, int mask)
{
    q->state = attr->qp_state;
    return 0;
}

/* The stand-in, or a library that is @name. */
static void stand_in(const char *name)
{
    const char *b = getenv("R2_BUILD");
    void *lib;

    snprintf(library, sizeof(library), "%.200s/fake-mlx5/%s", b ? b : "build", name);
    lib = dlopen(library, RTLD_NOW);
    mlx5 = lib ? dlsym(lib, "fake_mlx5") : NULL;
}

/* A device whose one port is a bond, in a tree of its own, and one that is none. */
static void begin(const char *device, const char *mode, const char *slaves)
{
    const char *root = fake_tree_begin();
    struct fake_dev *d;
    char why[256];

    fake_reset();
    fake_table(&verbs);
    verbs.modify_qp = modify;
    r2_config_defaults(&cfg);
    r2_log_sink_set(sink);
    r2_log_level_set(R2_LOG_INFO);
    d = fake_add(device);
    fake_add("other_0");
    snprintf(d->dev.ibdev_path, sizeof(d->dev.ibdev_path), "%.150s/sys/class/infiniband/%.20s",
             root, device);
    snprintf(why, sizeof(why), "sys/class/infiniband/%s/ports/1/gid_attrs/ndevs/0", device);
    fake_tree_file(why, "bond0\n");
    fake_tree_file("sys/class/net/bond0/bonding/mode", mode);
    fake_tree_file("sys/class/net/bond0/bonding/slaves", slaves);
    memset(&nics, 0, sizeof(nics));
    ck_assert_msg(ib_nics_open(&nics, &verbs, &cfg, why, sizeof(why)) == 0, "%s", why);
    ck_assert_int_eq(nics.count, 2);
    ck_assert_str_eq(nics.nic[0].netdev, "bond0");
    memset(&nics.lag, 0, sizeof(nics.lag)); /* of this machine's library, if there is one */
    nics.nic[0].bond = false;
    r2_log_flush();
    logged[0] = '\0';
    ib_lag_open(&nics, library);
}

static void end(void)
{
    ib_nics_close(&nics);
    fake_tree_end();
}

static void join(int nic, unsigned way)
{
    struct ib_addr far = {.link_layer = IBV_LINK_LAYER_ETHERNET, .mtu = IBV_MTU_1024};
    struct ib_rc rc = {.way = (uint8_t)way};
    struct ib_rc_peer peer = {.port = &far, .qpn = 1};

    memset(&qp, 0, sizeof(qp));
    far.gid[15] = 9;
    ck_assert_int_eq(ib_rc_connect(&nics, nic, &qp, &rc, &peer), 0);
    ck_assert_int_eq(qp.state, IBV_QPS_RTS);
}

START_TEST(ways_in_turn)
{
    unsigned n[IB_LAG_PORTS + 1] = {0};

    ck_assert_uint_eq(ib_lag_port(0), 0);
    for (unsigned way = 1; way <= IB_WAYS_MAX; way++) {
        ck_assert_uint_ge(ib_lag_port(way), 1);
        ck_assert_uint_le(ib_lag_port(way), IB_LAG_PORTS);
        ck_assert_uint_ne(ib_lag_port(way), ib_lag_port(way + 1)); /* the next one is elsewhere */
        n[ib_lag_port(way)]++;
    }
    ck_assert_uint_eq(n[1], n[2]);
}
END_TEST

/* Each queue pair as soon as it can send, and none but those. */
START_TEST(a_bond)
{
    stand_in("libmlx5.so.1");
    begin("mlx5_bond_0", "802.3ad 4\n", "eth0 eth1\n");
    for (unsigned way = 1; way <= IB_WAYS_DEFAULT; way++) {
        join(0, way);
        ck_assert_uint_eq(mlx5->calls, way);
        ck_assert_ptr_eq(mlx5->qp, &qp);
        ck_assert_uint_eq(mlx5->port, 2 - way % 2);
    }
    join(0, 0); /* no way was chosen */
    join(1, 3); /* no bond */
    ck_assert_uint_eq(mlx5->calls, IB_WAYS_DEFAULT);
    ck_assert_uint_eq(mlx5->early, 0);
    ck_assert_str_eq(logged, "");
    end();
}
END_TEST

/* It is refused: the queue pair stands, one line, and nobody asks again. */
START_TEST(a_refusal)
{
    stand_in("libmlx5.so.1");
    begin("mlx5_bond_0", "balance-xor 2\n", "eth0 eth1\n");
    mlx5->err = _i ? EOPNOTSUPP : -EIO;
    for (unsigned way = 1; way <= IB_WAYS_DEFAULT; way++) {
        join(0, way);
    }
    ck_assert_uint_eq(mlx5->calls, 1);
    ck_assert_uint_eq(said("NIC mlx5_bond_0: mlx5dv_modify_qp_lag_port: "), 1);
    ck_assert_uint_eq(said(strerror(_i ? EOPNOTSUPP : EIO)), 1);
    ck_assert_uint_eq(said("\n"), 1);
    end();
}
END_TEST

/* What is no such bond is not asked, nor the library opened for it. */
START_TEST(no_bond_of_two)
{
    static const struct {
        const char *device, *mode, *slaves;
    } row[] = {{"mlx5_0", "active-backup 1\n", "eth0 eth1\n"}, {"mlx5_0", "802.3ad 4\n", "eth0\n"},
               {"mlx5_0", "802.3ad 4\n", "eth0 eth1 eth2\n"},  {"mlx5_0", "802.3ad 4\n", "\n"},
               {"mlx5_0", "balance-rr 0\n", "eth0 eth1\n"},    {"irdma0", "802.3ad 4\n", "a b\n"}};

    stand_in("libmlx5.so.1");
    begin(row[_i].device, row[_i].mode, row[_i].slaves);
    ck_assert_int_eq(nics.lag.set_port != NULL, strcmp(row[_i].device, "irdma0") == 0);
    join(0, 1);
    ck_assert_uint_eq(mlx5->calls, 0);
    ck_assert_str_eq(logged, "");
    end();
}
END_TEST

/* No library, or one from before the call: one line, and queue pairs as before. */
START_TEST(no_library)
{
    stand_in(_i ? "old/libmlx5.so.1" : "none/libmlx5.so.1");
    begin("mlx5_bond_0", "802.3ad 4\n", "eth0 eth1\n");
    ck_assert_ptr_null(nics.lag.set_port);
    ck_assert_ptr_null(nics.lag.is_mlx5);
    for (unsigned way = 1; way <= 3; way++) {
        join(0, way);
    }
    ck_assert_uint_eq(said("bond0 is a bond of 2 ports, of which the kernel chooses: "), 1);
    ck_assert_uint_eq(said(_i ? "has no mlx5dv_modify_qp_lag_port" : "cannot open"), 1);
    ck_assert_uint_eq(said("\n"), 1);
    end();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, ways_in_turn);
    tcase_add_test(t, a_bond);
    tcase_add_loop_test(t, a_refusal, 0, 2);
    tcase_add_loop_test(t, no_bond_of_two, 0, 6);
    tcase_add_loop_test(t, no_library, 0, 2);
}

int main(void)
{
    return suite_run("bonds", 60, NULL, NULL, add);
}
