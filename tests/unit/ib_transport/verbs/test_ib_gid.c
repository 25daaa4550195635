/* Which GID a port uses (ib_gid.h): what a device with several is asked for, and what it answers.
 */
#include <errno.h>

#include "ib_transport/verbs/ib_gid.h"
#include "tests/unit/device_rig.h"

static void gid_of(struct fake_dev *d, int index, const char *raw16, int version)
{
    memcpy(d->port[1].gid[index].raw, raw16, 16);
    d->port[1].version[index] = version;
}

#define LINK_LOCAL "\xfe\x80\0\0\0\0\0\0\1\2\3\4\5\6\7\x8"
#define GLOBAL6    "\x20\x01\0\0\0\0\0\0\1\2\3\4\5\6\7\x8"
#define IPV4       "\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\x0a\1\2"
#define IPV4_LL    "\0\0\0\0\0\0\0\0\0\0\xff\xff\xa9\xfe\1\2"
#define OTHER4     "\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\x0a\1\3"
#define EMPTY      "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
#define BARE_LL    "\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\0"

static int chosen_gid(const char *a, int va, const char *b, int vb, const char *c, int vc)
{
    struct ib_addr addr;
    int index;

    fake_reset();
    gid_of(fake_add("a"), 0, a, va);
    gid_of(&fake_dev[0], 1, b, vb);
    gid_of(&fake_dev[0], 2, c, vc);
    fake_dev[0].port[1].attr.gid_tbl_len = 3;
    open_all(1);
    ib_nic_addr_get(&nics, 0, &addr);
    ck_assert_mem_eq(addr.gid, fake_dev[0].port[1].gid[addr.gid_index].raw, 16);
    index = addr.gid_index;
    close_all();
    return index;
}

START_TEST(gid_choice)
{
    ck_assert_int_eq(chosen_gid(IPV4, 1, LINK_LOCAL, 2, IPV4, 2), 2);
    ck_assert_int_eq(chosen_gid(IPV4, 2, GLOBAL6, 2, IPV4, 2), 0);
    ck_assert_int_eq(chosen_gid(GLOBAL6, 2, IPV4, 1, LINK_LOCAL, 2), 0);
    ck_assert_int_eq(chosen_gid(LINK_LOCAL, 2, GLOBAL6, 2, IPV4_LL, 2), 1);
    ck_assert_int_eq(chosen_gid(EMPTY, 0, BARE_LL, 2, LINK_LOCAL, 1), 2);
    ck_assert_int_eq(chosen_gid(LINK_LOCAL, 0, IPV4, 0, EMPTY, 0), 1); /* versions unknown */
}
END_TEST

/* A port whose table is empty has no address, and is not used until it has one. */
START_TEST(gid_nowhere)
{
    struct ib_addr addr;
    struct fake_dev *d = fake_add("a");

    for (int i = 0; i < d->port[1].attr.gid_tbl_len; i++) {
        gid_of(d, i, EMPTY, 0);
    }
    open_all(1);
    ck_assert_int_eq(ib_nic_state_get(&nics.nic[0]), IB_NIC_DOWN);
    ck_assert(logs("NIC a has no address") && logs("its GID table is empty"));
    ck_assert(logs("a port 1 RoCE DOWN"));
    gid_of(d, 2, IPV4, 2);
    ck_assert_int_eq(ib_nic_refresh(&nics, 0), 0);
    ib_nic_addr_get(&nics, 0, &addr);
    ck_assert_int_eq(addr.gid_index, 2);
    close_all();
    /* one that is down is among those that are down, without a warning of its own */
    gid_of(d, 2, EMPTY, 0);
    d->port[1].attr.state = IBV_PORT_DOWN;
    logged[0] = '\0';
    open_all(1);
    ck_assert_int_eq(ib_nic_state_get(&nics.nic[0]), IB_NIC_DOWN);
    ck_assert(!logs("has no address"));
    close_all();
}
END_TEST

static void gid_options(const char *family, const char *range, const char *version)
{
    option("NCCL_IB_ADDR_FAMILY", family);
    option("NCCL_IB_ADDR_RANGE", range);
    option("NCCL_IB_ROCE_VERSION_NUM", version);
}

START_TEST(gid_family_and_range)
{
    static const struct {
        const char *family, *range, *version;
        int chosen; /* of LINK_LOCAL v2, IPV4 v2, GLOBAL6 v2 */
    } row[] = {
        {"", "", "2", 1},
        {"AF_INET", "", "2", 1},
        {"AF_INET6", "", "2", 2},
        {"AF_INET6", "fe80::/10", "2", 0},
        {"", "fe80::/9", "2", 0},
        {"", "2001::/16", "2", 2},
        {"AF_INET6", "::/0", "2", 2},
        {"", "10.0.0.0/8", "2", 1},
        {"", "10.10.1.2/32", "2", 1},
        {"", "10.10.1.3/31", "2", 1}, /* bits behind the range do not count */
        {"AF_INET", "0.0.0.0/0", "2", 1},
    };
    static const char *const none[] = {"10.10.1.3/32", "11.0.0.0/8", "2002::/16", "192.168.0.0/16"};
    struct ib_addr addr;

    for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        gid_options(row[i].family, row[i].range, row[i].version);
        ck_assert_msg(chosen_gid(LINK_LOCAL, 2, IPV4, 2, GLOBAL6, 2) == row[i].chosen, "row %u", i);
    }
    gid_options("", "", "1");
    ck_assert_int_eq(chosen_gid(IPV4, 2, LINK_LOCAL, 1, IPV4, 1), 2);
    gid_options("AF_INET", "", "1");
    ck_assert_int_eq(chosen_gid(LINK_LOCAL, 1, GLOBAL6, 1, IPV4, 2), 2); /* only a preference */
    for (unsigned i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        gid_options("", none[i], "2");
        fake_reset();
        gid_of(fake_add("a"), 0, IPV4, 2);
        fake_dev[0].port[1].attr.gid_tbl_len = 1;
        open_all(1);
        ck_assert_int_eq(ib_nic_state_get(&nics.nic[0]), IB_NIC_DOWN);
        ck_assert(logs("no GID of NCCL_IB_ADDR_FAMILY in NCCL_IB_ADDR_RANGE"));
        gid_of(&fake_dev[0], 0, "\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\xa8\1\2",
               2); /* the host gets another address */
        ck_assert_int_eq(ib_nic_refresh(&nics, 0), i == 3 ? 0 : EADDRNOTAVAIL);
        ib_nic_addr_get(&nics, 0, &addr);
        ck_assert_int_eq(addr.gid[15], i == 3 ? 2 : 0);
        close_all();
    }
}
END_TEST

START_TEST(gid_rules_that_are_none)
{
    static const char *const row[][3] = {
        {"IPv4", "", "AF_INET or AF_INET6"},
        {"AF_INET ", "", "AF_INET or AF_INET6"},
        {"", "10.0.0.0", "ADDRESS/BITS"},
        {"", "10.0.0.0/33", "ADDRESS/BITS"},
        {"", "10.0.0/8", "ADDRESS/BITS"},
        {"", "::/129", "ADDRESS/BITS"},
        {"", "10.0.0.0/", "ADDRESS/BITS"},
        {"", "10.0.0.0/8x", "ADDRESS/BITS"},
        {"", "10.0.0.0/-1", "ADDRESS/BITS"},
        {"", "/8", "ADDRESS/BITS"},
        {"", "10.0.0.0/99999999999999999999", "ADDRESS/BITS"},
        {"AF_INET6", "10.0.0.0/8", "a range of NCCL_IB_ADDR_FAMILY=AF_INET6"},
        {"AF_INET", "fd00::/8", "a range of NCCL_IB_ADDR_FAMILY=AF_INET"},
    };
    struct ib_gid_rule rule;
    union ibv_gid gid;

    memcpy(gid.raw, GLOBAL6, 16);
    for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        gid_options(row[i][0], row[i][1], "2");
        ck_assert_msg(ib_gid_rule_parse(&rule, &cfg, why, sizeof(why)) == -1, "row %u", i);
        ck_assert_msg(strstr(why, row[i][2]) && strstr(why, row[i][1][0] ? row[i][1] : row[i][0]),
                      "row %u: %s", i, why);
        ck_assert(ib_gid_fits(&rule, &gid));
    }
}
END_TEST

START_TEST(gid_version_from_sysfs)
{
    struct fake_dev *d = fake_add("a");
    struct ib_addr addr;
    char path[64];

    fake_tree_begin();
    fake_tree_device(d, "pci0000:00/0000:01:00.0", 0);
    memset(d->port[1].version, 0, sizeof(d->port[1].version));
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof(path), "ib/a/ports/1/gid_attrs/types/%d", i);
        fake_tree_file(path, i == 1 ? "RoCE v2\n" : "IB/RoCE v1\n");
    }
    open_all(1);
    ib_nic_addr_get(&nics, 0, &addr);
    ck_assert_int_eq(addr.gid_index, 1);
    close_all();
    fake_tree_end();
}
END_TEST

START_TEST(gid_given)
{
    struct ib_addr addr;

    fake_add("a");
    option("NCCL_IB_GID_INDEX", "1");
    open_all(1);
    ib_nic_addr_get(&nics, 0, &addr);
    ck_assert_int_eq(addr.gid_index, 1);
    close_all();
    option("NCCL_IB_GID_INDEX", "4");
    open_all(1);
    ck_assert_int_eq(ib_nic_state_get(&nics.nic[0]), IB_NIC_DOWN);
    ck_assert(logs("NCCL_IB_GID_INDEX"));
    close_all();
    /* InfiniBand does not look at it */
    fake_dev[0].port[1].attr.link_layer = IBV_LINK_LAYER_INFINIBAND;
    open_all(1);
    ib_nic_addr_get(&nics, 0, &addr);
    ck_assert_int_eq(addr.gid_index, 0);
    close_all();
}
END_TEST

/* The entry that is used behind a refresh which returns @rc, after a GID_CHANGE. */
static int entry_after(int rc)
{
    struct ib_addr addr;

    ib_nic_addr_request(&nics.nic[0]);
    ck_assert_int_eq(ib_nic_refresh(&nics, 0), rc);
    ib_nic_addr_get(&nics, 0, &addr);
    return addr.gid_index;
}

/* NCCL_IB_GID_INDEX names an entry, and that the address in it. When it goes and comes back, the
 * kernel has it in another entry as long as queue pairs use the one that it had. */
START_TEST(gid_given_moves)
{
    struct fake_dev *d = fake_add("a");
    struct ib_nic *nic = &nics.nic[0];
    struct ib_addr addr;

    for (int i = 0; i < d->port[1].attr.gid_tbl_len; i++) {
        gid_of(d, i, i == 1 ? IPV4 : EMPTY, i == 1 ? 2 : 0);
    }
    option("NCCL_IB_GID_INDEX", "1");
    open_all(1);
    ck_assert_int_eq(ib_nic_state_get(nic), IB_NIC_UP);
    gid_of(d, 1, EMPTY, 0);
    ib_nic_addr_request(nic);
    ck_assert_int_eq(ib_nic_refresh(&nics, 0), EADDRNOTAVAIL);
    ib_nic_addr_get(&nics, 0, &addr);
    ck_assert_mem_eq(addr.gid, IPV4, 16); /* what it was */
    gid_of(d, 2, IPV4, 1);                /* of RoCE v1, as the kernel enters it first */
    ck_assert_int_eq(ib_nic_refresh(&nics, 0), EADDRNOTAVAIL);
    gid_of(d, 3, IPV4, 2);
    ck_assert_int_eq(ib_nic_refresh(&nics, 0), 0);
    ib_nic_addr_get(&nics, 0, &addr);
    ck_assert_int_eq(addr.gid_index, 3);
    ck_assert(logs("address of NCCL_IB_GID_INDEX=1 has moved to entry 3"));
    /* another address there is not ours while ours is somewhere, and none that our peers do not
     * reach from theirs is */
    gid_of(d, 1, LINK_LOCAL, 2);
    ck_assert_int_eq(entry_after(0), 3);
    gid_of(d, 3, EMPTY, 0);
    ck_assert_int_eq(entry_after(EADDRNOTAVAIL), 3);
    gid_of(d, 1, IPV4, 1);
    ck_assert_int_eq(entry_after(EADDRNOTAVAIL), 3);
    gid_of(d, 2, IPV4, 2);
    ck_assert_int_eq(entry_after(0), 2);
    /* another address for good; and ours comes back behind it */
    gid_of(d, 1, OTHER4, 2);
    gid_of(d, 2, EMPTY, 0);
    ck_assert_int_eq(entry_after(0), 1);
    gid_of(d, 3, IPV4, 2);
    ck_assert_int_eq(entry_after(0), 3);
    close_all();
    /* from the start */
    gid_of(d, 1, EMPTY, 0);
    open_all(1);
    ck_assert_int_eq(ib_nic_state_get(nic), IB_NIC_DOWN);
    ck_assert(logs("entry NCCL_IB_GID_INDEX of its GID table is empty"));
    close_all();
}
END_TEST

static int versions_known;
static int (*fake_query_gid_ex)(struct ibv_context *, uint32_t, uint32_t, struct ibv_gid_entry *,
                                uint32_t, size_t);

static int query_gid_ex_knows(struct ibv_context *ctx, uint32_t port, uint32_t index,
                              struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
    return versions_known ? fake_query_gid_ex(ctx, port, index, entry, flags, size) : ENODATA;
}

/* The version is read behind the GID, and the entry may be gone by then. */
START_TEST(gid_given_of_no_known_version)
{
    struct fake_dev *d = fake_add("a");

    for (int i = 0; i < d->port[1].attr.gid_tbl_len; i++) {
        gid_of(d, i, i == 1 ? IPV4 : EMPTY, i == 1 ? 2 : 0);
    }
    fake_query_gid_ex = verbs.query_gid_ex;
    verbs.query_gid_ex = query_gid_ex_knows;
    versions_known = 0;
    option("NCCL_IB_GID_INDEX", "1");
    open_all(1);
    versions_known = 1;
    gid_of(d, 1, EMPTY, 0);
    gid_of(d, 2, IPV4, 1);
    gid_of(d, 3, IPV4, 2);
    ck_assert_int_eq(entry_after(0), 3); /* the version that is preferred */
    gid_of(d, 1, IPV4, 1);
    ck_assert_int_eq(entry_after(0), 3); /* which is ours from then on */
    gid_of(d, 3, EMPTY, 0);
    ck_assert_int_eq(entry_after(EADDRNOTAVAIL), 3);
    close_all();
}
END_TEST

/* A link-local address stands there for each VLAN of the port, too. */
START_TEST(gid_given_link_local)
{
    struct fake_dev *d = fake_add("a");

    for (int i = 0; i < d->port[1].attr.gid_tbl_len; i++) {
        gid_of(d, i, i == 0 ? EMPTY : LINK_LOCAL, 2);
    }
    option("NCCL_IB_GID_INDEX", "1");
    open_all(1);
    gid_of(d, 1, EMPTY, 0);
    ck_assert_int_eq(entry_after(EADDRNOTAVAIL), 1);
    gid_of(d, 1, LINK_LOCAL, 2);
    ck_assert_int_eq(entry_after(0), 1);
    close_all();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, gid_choice);
    tcase_add_test(t, gid_family_and_range);
    tcase_add_test(t, gid_rules_that_are_none);
    tcase_add_test(t, gid_version_from_sysfs);
    tcase_add_test(t, gid_given);
    tcase_add_test(t, gid_nowhere);
    tcase_add_test(t, gid_given_moves);
    tcase_add_test(t, gid_given_of_no_known_version);
    tcase_add_test(t, gid_given_link_local);
}

int main(void)
{
    return suite_run("ib_gid", 60, setup, NULL, add);
}
