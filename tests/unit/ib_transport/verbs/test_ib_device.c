#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "ib_transport/verbs/ib_speed.h"
#include "ib_transport/verbs/ib_sysfs.h"
#include "tests/unit/device_rig.h"

START_TEST(none_is_fine)
{
    open_all(0);
    close_all();
}
END_TEST

START_TEST(verbs_that_fail_say_why)
{
    fake_list_errno = ENOSYS;
    ck_assert_int_eq(ib_nics_open(&nics, &verbs, &cfg, why, sizeof(why)), -1);
    ck_assert(strstr(why, "kernel") != NULL);
    fake_list_errno = EACCES;
    ck_assert_int_eq(ib_nics_open(&nics, &verbs, &cfg, why, sizeof(why)), -1);
    ck_assert(strstr(why, strerror(EACCES)) != NULL);
}
END_TEST

START_TEST(describes_a_nic)
{
    struct ib_addr addr;
    struct fake_dev *d = fake_add("mlx5_7");

    d->port[1].attr.lid = 9;
    option("NCCL_IB_PKEY", "3");
    open_all(1);
    ck_assert_str_eq(nics.nic[0].name, "mlx5_7");
    ck_assert_int_eq(nics.nic[0].port, 1);
    ck_assert_int_eq(nics.nic[0].rail, 7);
    ck_assert_int_eq(nics.nic[0].speed_mbps, 100000);
    ck_assert_uint_eq(nics.nic[0].guid, 0x1000);
    ck_assert_int_eq(nics.nic[0].max_qp_wr, 1024);
    ck_assert_int_eq(nics.nic[0].ptr_support, IB_PTR_HOST);
    ck_assert_int_eq(nics.nic[0].numa_node, -1);
    ck_assert_ptr_null(nics.nic[0].pci_path);
    ck_assert_int_eq(ib_nic_state_get(&nics.nic[0]), IB_NIC_UP);
    ib_nic_addr_get(&nics, 0, &addr);
    ck_assert_int_eq(addr.gid_index, 3); /* v2 and IPv4 */
    ck_assert_int_eq(addr.gid[10], 0xff);
    ck_assert_int_eq(addr.mtu, IBV_MTU_4096);
    ck_assert_int_eq(addr.lid, 9);
    ck_assert_int_eq(addr.pkey_index, 3);
    close_all();
}
END_TEST

/* What tells that a device is gone: its own directory, whatever calls answer, and whatever has its
 * name by now. */
START_TEST(gone_when_its_directory_is)
{
    char tree[128], from[256], to[256], guid[512];
    struct fake_dev *d = fake_add("a0");

    snprintf(tree, sizeof(tree), "%s", fake_tree_begin());
    fake_tree_device(d, "pci0000:00/0000:01:00.0", 0);
    fake_tree_file("ib/a0/node_guid", "0000:0000:0000:1000\n");
    fake_add("b0"); /* has no directory: nothing can tell */
    open_all(2);
    for (int i = 0; i < 2; i++) {
        static const int errors[] = {0, EIO, ENODEV};

        for (size_t e = 0; e < sizeof(errors) / sizeof(errors[0]); e++) {
            fake_dev[i].port[1].query_errno = errors[e];
            ck_assert_int_eq(ib_nic_is_gone(&nics, i), 0);
        }
    }
    snprintf(from, sizeof(from), "%s/ib/a0", tree);
    snprintf(to, sizeof(to), "%s/ib/a9", tree);
    snprintf(guid, sizeof(guid), "%s/node_guid", to);
    ck_assert_int_eq(rename(from, to), 0); /* rdma dev set a0 name a9 */
    ck_assert_int_eq(ib_nic_is_gone(&nics, 0), 0);
    ck_assert_int_eq(unlink(guid), 0);
    ck_assert_int_eq(ib_nic_is_gone(&nics, 0), 1);
    fake_tree_file("ib/a0/node_guid",
                   "0000:0000:0000:1000\n"); /* the next one is called as this one was */
    ck_assert_int_eq(ib_nic_is_gone(&nics, 0), 1);
    ck_assert_int_eq(ib_nic_is_gone(&nics, 1), 0);
    fake_tree_end();
    close_all();
}
END_TEST

START_TEST(dmabuf_where_the_device_knows_it)
{
    fake_add("a");
    fake_dmabuf_errno = 0;
    open_all(1);
    ck_assert_int_eq(nics.nic[0].ptr_support, IB_PTR_HOST | IB_PTR_DMABUF);
    close_all();
    fake_dmabuf_errno = EPROTONOSUPPORT;
    open_all(1);
    ck_assert_int_eq(nics.nic[0].ptr_support, IB_PTR_HOST);
    close_all();
}
END_TEST

START_TEST(ports_of_a_device)
{
    struct fake_dev *d = fake_add("mlx5_0");

    d->ports = 2;
    open_all(2);
    ck_assert_str_eq(nics.nic[0].name, "mlx5_0");
    ck_assert_str_eq(nics.nic[1].name, "mlx5_0:2");
    ck_assert_ptr_eq(nics.nic[0].ctx, nics.nic[1].ctx);
    ck_assert_int_eq(nics.device_count, 1);
    ck_assert_int_eq(d->pds, 1);
    /* names do not tell the two apart */
    ck_assert_int_eq(nics.nic[0].rail, 0);
    ck_assert_int_eq(nics.nic[1].rail, 1);
    close_all();
    option("NCCL_IB_HCA", "mlx5_0:2");
    open_all(1);
    ck_assert_str_eq(nics.nic[0].name, "mlx5_0:2");
    close_all();
}
END_TEST

START_TEST(what_is_down_is_there_too)
{
    struct fake_dev *a = fake_add("a0");

    fake_add("a1");
    a->port[1].attr.state = IBV_PORT_DOWN;
    a->port[1].attr.active_speed = 1;
    a->port[1].attr.active_width = 1;
    open_all(2);
    ck_assert_int_eq(ib_nic_state_get(&nics.nic[0]), IB_NIC_DOWN);
    ck_assert_int_eq(nics.nic[0].speed_mbps, 100000); /* as its sister */
    ck_assert_int_eq(ib_nic_refresh(&nics, 0), ENETDOWN);
    a->port[1].attr.state = IBV_PORT_ACTIVE;
    ck_assert_int_eq(ib_nic_refresh(&nics, 0), 0);
    ck_assert_int_eq(ib_nic_state_get(&nics.nic[0]), IB_NIC_DOWN); /* the state has one writer */
    close_all();
}
END_TEST

START_TEST(what_is_not_ours_is_left_out)
{
    fake_add("a0")->open_errno = EPERM;
    fake_add("a1")->query_errno = EIO;
    fake_add("a2")->pd_errno = ENOMEM;
    fake_add("a3")->port[1].query_errno = EINVAL;
    fake_add("a4")->port[1].attr.link_layer = IBV_LINK_LAYER_UNSPECIFIED;
    fake_add("a5")->dev.transport_type = IBV_TRANSPORT_IWARP;
    fake_add("a6");
    open_all(1);
    ck_assert_str_eq(nics.nic[0].name, "a6");
    ck_assert(logs("a0 is left out: not given to this process"));
    ck_assert(logs("a1 is left out: ibv_query_device"));
    ck_assert(logs("a2 is left out: ibv_alloc_pd"));
    ck_assert(logs("port 1 of a3 is left out"));
    ck_assert(logs("a5 is left out: iWARP"));
    close_all();
}
END_TEST

START_TEST(order_does_not_depend_on_discovery)
{
    static const char *const expected[] = {"z", "b", "n2", "n10"};
    char tree[PATH_MAX], path[PATH_MAX];

    snprintf(tree, sizeof(tree), "%s", fake_tree_begin());
    for (int turn = 0; turn < 2; turn++) {
        fake_reset();
        for (int i = 0; i < 4; i++) {
            fake_add(expected[turn ? i : 3 - i]);
        }
        for (int i = 0; i < fake_dev_count && turn == 0; i++) {
            if (strcmp(fake_dev[i].dev.name, "z") == 0) {
                fake_tree_device(&fake_dev[i], "pci0000:00/0000:01:00.0", 0);
            }
            if (strcmp(fake_dev[i].dev.name, "b") == 0) {
                fake_tree_device(&fake_dev[i], "pci0000:00/0000:02:00.0", 1);
            }
        }
        for (int i = 0; i < fake_dev_count && turn == 1; i++) {
            snprintf(fake_dev[i].dev.ibdev_path, sizeof(fake_dev[i].dev.ibdev_path), "%.100s/ib/%s",
                     tree, expected[i]);
        }
        open_all(4);
        for (int i = 0; i < 4; i++) {
            ck_assert_str_eq(nics.nic[i].name, expected[i]);
            ck_assert_int_eq(nics.nic[i].index, i);
            ck_assert_int_eq(nics.nic[i].device_index, i);
            ck_assert_ptr_eq(nics.device_ctx[i], nics.nic[i].ctx);
        }
        snprintf(path, sizeof(path), "%.100s/devices/pci0000:00/0000:02:00.0", tree);
        ck_assert_str_eq(nics.nic[1].pci_path, path);
        ck_assert_int_eq(nics.nic[1].numa_node, 1);
        ck_assert_ptr_null(nics.nic[2].pci_path);
        close_all();
    }
    fake_tree_end();
}
END_TEST

START_TEST(rails)
{
    fake_add("roce_f0");
    fake_add("roce_f1");
    fake_add("x");
    open_all(3);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(nics.nic[i].rail, i); /* "x" has no number */
    }
    close_all();
    option("NCCL_IB_HCA", "roce_f0:1:5,roce_f1:1:4");
    open_all(2);
    ck_assert_int_eq(nics.nic[0].rail, 5);
    ck_assert_int_eq(nics.nic[1].rail, 4);
    close_all();
    option("NCCL_IB_HCA", "roce_f1");
    open_all(1);
    ck_assert_int_eq(nics.nic[0].rail, 1); /* the number in the name, though it is device 0 */
    close_all();
}
END_TEST

START_TEST(bad_filter_shows_all)
{
    fake_add("a");
    fake_add("b");
    option("NCCL_IB_HCA", "a:x");
    open_all(2);
    ck_assert(logs("WARN"));
    ck_assert(logs("'a:x': the port is not a number"));
    close_all();
}
END_TEST

START_TEST(disabled)
{
    fake_add("a");
    option("NCCL_IB_DISABLE", "1");
    open_all(0);
    ck_assert(logs("NCCL_IB_DISABLE"));
    close_all();
}
END_TEST

START_TEST(more_than_there_is_room_for)
{
    char name[16];

    for (int i = 0; i < FAKE_DEVS; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        fake_add(name)->ports =
            i == 31 ? 2 : 1; /* port 2 of the last device does not fit, its port 1 does */
    }
    open_all(IB_MAX_NICS);
    ck_assert_str_eq(nics.nic[IB_MAX_NICS - 1].name, "n31");
    ck_assert(logs("41 ports found"));
    for (int i = 0; i < FAKE_DEVS; i++) {
        ck_assert_int_eq(fake_dev[i].opened, i < IB_MAX_NICS);
    }
    close_all();
}
END_TEST

/* A library whose structure has active_speed_ex; the other one's ends before it. */
static int query_whole(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr,
                       size_t size)
{
    uint32_t xdr = 1 << 8;

    memset(attr, 0, size);
    if (port == 2 && size >= 56) {
        memcpy((char *)attr + 52, &xdr, sizeof(xdr));
    }
    return port == 3 ? EIO : 0;
}

/* active_speed has 8 bits, and the kernel shows the ninth as the eighth. */
START_TEST(speeds_beyond_eight_bits)
{
    struct verbs_context v = {.sz = sizeof(v), .query_port = query_whole};
    struct fake_dev *d = fake_add("a");

    v.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    ck_assert_uint_eq(ib_verbs_port_speed_ex(&v.context, 1), 0);
    ck_assert_uint_eq(ib_verbs_port_speed_ex(&v.context, 2), 1 << 8);
    ck_assert_uint_eq(ib_verbs_port_speed_ex(&v.context, 3), 0);
    v.context.abi_compat = NULL; /* of a library before extended contexts */
    ck_assert_uint_eq(ib_verbs_port_speed_ex(&v.context, 2), 0);
    d->port[1].attr.active_speed = 128;
    d->port[1].attr.active_width = 2;
    d->port[1].speed_ex = 1 << 8;
    open_all(1);
    ck_assert_int_eq(nics.nic[0].speed_mbps, 800000);
    close_all();
    d->port[1].speed_ex = 0;
    open_all(1);
    ck_assert_int_eq(nics.nic[0].speed_mbps, 400000);
    close_all();
}
END_TEST

START_TEST(speeds)
{
    ck_assert_int_eq(ib_speed_mbps(1, 1), 2500);
    ck_assert_int_eq(ib_speed_mbps(4, 2), 40000);
    ck_assert_int_eq(ib_speed_mbps(16, 2), 56000);
    ck_assert_int_eq(ib_speed_mbps(64, 2), 200000);
    ck_assert_int_eq(ib_speed_mbps(128, 2), 400000);
    ck_assert_int_eq(ib_speed_mbps(256, 2), 800000);
    ck_assert_int_eq(ib_speed_mbps(64, 16), 100000); /* HDR100: two lanes */
    ck_assert_int_eq(ib_speed_mbps(0, 2), 0);
    ck_assert_int_eq(ib_speed_mbps(32, 0), 0);
    ck_assert_int_eq(ib_speed_mbps(1 << 12, 2), 0);
    ck_assert_int_eq(ib_name_trailing_number("mlx5_12"), 12);
    ck_assert_int_eq(ib_name_trailing_number("7"), 7);
    ck_assert_int_eq(ib_name_trailing_number("mlx"), -1);
    ck_assert_int_eq(ib_name_trailing_number(""), -1);
    ck_assert_int_eq(ib_name_trailing_number("x99999999999"), -1);
}
END_TEST

START_TEST(state_machine)
{
    static const struct {
        enum ib_nic_state from, to;
    } legal[] = {{IB_NIC_UP, IB_NIC_DOWN},    {IB_NIC_UP, IB_NIC_FATAL},
                 {IB_NIC_UP, IB_NIC_GONE},    {IB_NIC_DOWN, IB_NIC_UP},
                 {IB_NIC_DOWN, IB_NIC_FATAL}, {IB_NIC_DOWN, IB_NIC_GONE},
                 {IB_NIC_FATAL, IB_NIC_GONE}};
    int count = 0;

    fake_add("a");
    open_all(1);
    for (int from = IB_NIC_UP; from <= IB_NIC_GONE; from++) {
        for (int to = IB_NIC_UP; to <= IB_NIC_GONE; to++) {
            uint32_t generation = atomic_load(&nics.nic[0].generation);
            int want = 0, changed;
            for (size_t i = 0; i < sizeof(legal) / sizeof(legal[0]); i++) {
                want |= legal[i].from == (enum ib_nic_state)from &&
                        legal[i].to == (enum ib_nic_state)to;
            }
            atomic_store(&nics.nic[0].state, from);
            changed = ib_nic_state_change(&nics, 0, to, "test");
            ck_assert_int_eq(changed, want);
            ck_assert_int_eq(ib_nic_state_get(&nics.nic[0]), want ? to : from);
            ck_assert_uint_eq(atomic_load(&nics.nic[0].generation),
                              generation + (want && from == IB_NIC_UP));
            count += changed;
        }
    }
    ck_assert_int_eq(count, 7);
    ck_assert_int_eq(ib_nic_state_change(&nics, 0, (enum ib_nic_state)99, "test"), 0);
    logged[0] = '\0';
    r2_log_flush();
    logged[0] = '\0';
    atomic_store(&nics.nic[0].state, IB_NIC_UP);
    ib_nic_state_change(&nics, 0, IB_NIC_DOWN, "cable");
    ck_assert(logs("WARN NET/R2 : NIC a rail 0 -: UP -> DOWN: cable\n"));
    logged[0] = '\0';
    ib_nic_state_change(&nics, 0, IB_NIC_UP, "back");
    ck_assert(logs("NET/R2 : NIC a rail 0 -: DOWN -> UP: back\n"));
    ck_assert_ptr_null(strstr(logged, "WARN"));
    ck_assert_str_eq(ib_nic_state_name(IB_NIC_GONE), "GONE");
    ck_assert_str_eq(ib_nic_state_name((enum ib_nic_state)77), "unknown state");
    close_all();
}
END_TEST

START_TEST(netdevs)
{
    const char **list;
    struct fake_dev *a = fake_add("a"), *b = fake_add("b");
    int eth = 0, bond = 0, n;

    fake_tree_begin();
    fake_tree_device(a, "pci0000:00/0000:01:00.0", 0);
    fake_tree_device(b, "pci0000:00/0000:02:00.0", 0);
    fake_tree_file("ib/a/ports/1/gid_attrs/ndevs/0", "eth7\n");
    fake_tree_file("ib/a/ports/1/gid_attrs/ndevs/1", "bond0\n");
    fake_tree_file("devices/pci0000:00/0000:01:00.0/net/eth7/mtu", "1500\n");
    fake_tree_file("devices/pci0000:00/0000:02:00.0/net/eth8/mtu", "1500\n");
    open_all(2);
    list = ib_nics_netdevs(&nics);
    for (n = 0; list[n] != NULL; n++) {
        eth += strcmp(list[n], "eth7") == 0 || strcmp(list[n], "eth8") == 0;
        bond += strcmp(list[n], "bond0") == 0;
    }
    ck_assert_int_eq(n, 3);
    ck_assert_int_eq(eth, 2);
    ck_assert_int_eq(bond, 1);
    free(list);
    ck_assert_str_eq(nics.nic[0].netdev, "eth7"); /* the port's own comes first */
    ck_assert_str_eq(nics.nic[1].netdev, "eth8");
    ck_assert_str_eq(nics.nic[1].fw, "28.39.1002");
    close_all();
    fake_tree_end();
}
END_TEST

START_TEST(peer_memory_module)
{
    const char *root = fake_tree_begin();
    char path[PATH_MAX];

    ck_assert_int_eq(ib_sysfs_has_peer_memory(root), 0);
    fake_tree_file("sys/module/nvidia_peermem/version", "1\n");
    ck_assert_int_eq(ib_sysfs_has_peer_memory(root), 1);
    snprintf(path, sizeof(path), "%s/sys/class/infiniband/a", root);
    ck_assert_int_eq(ib_sysfs_device_has_peer_memory(path), 1);
    snprintf(path, sizeof(path), "%s/host0/sys/class/infiniband/a", root);
    ck_assert_int_eq(ib_sysfs_device_has_peer_memory(path), 0);
    snprintf(path, sizeof(path), "%s/host0/sys/class/infiniband/x%s/sys/class/infiniband/a", root,
             root);
    ck_assert_int_eq(ib_sysfs_device_has_peer_memory(path), 0);
    ck_assert_int_eq(ib_sysfs_device_has_peer_memory("/nonexistent/a"),
                     ib_sysfs_has_peer_memory(""));
    fake_tree_end();
}
END_TEST

/* Two NICs, one in a tree with the module. */
START_TEST(peer_memory_of_a_nic)
{
    const char *root = fake_tree_begin();
    struct fake_dev *with = fake_add("a"), *without = fake_add("b");

    fake_tree_file("sys/module/nvidia_peermem/version", "1\n");
    snprintf(with->dev.ibdev_path, sizeof(with->dev.ibdev_path), "%.150s/sys/class/infiniband/a",
             root);
    snprintf(without->dev.ibdev_path, sizeof(without->dev.ibdev_path),
             "%.150s/h/sys/class/infiniband/b", root);
    open_all(2);
    ck_assert_int_eq(nics.nic[0].ptr_support, IB_PTR_HOST | IB_PTR_CUDA);
    ck_assert_int_eq(nics.nic[1].ptr_support, IB_PTR_HOST);
    close_all();
    fake_tree_end();
}
END_TEST

START_TEST(both_error_conventions)
{
    ck_assert_int_eq(ib_verbs_err(0), 0);
    ck_assert_int_eq(ib_verbs_err(EIO), EIO);
    errno = ENODEV;
    ck_assert_int_eq(ib_verbs_err(-1), ENODEV);
    ck_assert_int_eq(ib_verbs_err(-EINVAL), EINVAL);
    errno = 0;
    ck_assert_int_ne(ib_verbs_err(-1), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ib_device");
    TCase *t = tcase_create("device");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, none_is_fine);
    tcase_add_test(t, verbs_that_fail_say_why);
    tcase_add_test(t, describes_a_nic);
    tcase_add_test(t, gone_when_its_directory_is);
    tcase_add_test(t, dmabuf_where_the_device_knows_it);
    tcase_add_test(t, ports_of_a_device);
    tcase_add_test(t, what_is_down_is_there_too);
    tcase_add_test(t, what_is_not_ours_is_left_out);
    tcase_add_test(t, order_does_not_depend_on_discovery);
    tcase_add_test(t, rails);
    tcase_add_test(t, bad_filter_shows_all);
    tcase_add_test(t, disabled);
    tcase_add_test(t, more_than_there_is_room_for);
    tcase_add_test(t, speeds);
    tcase_add_test(t, speeds_beyond_eight_bits);
    tcase_add_test(t, state_machine);
    tcase_add_test(t, netdevs);
    tcase_add_test(t, peer_memory_module);
    tcase_add_test(t, peer_memory_of_a_nic);
    tcase_add_test(t, both_error_conventions);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
