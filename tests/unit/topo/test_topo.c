/* Topology: the snapshot, paths and ranks, on small machines made here; routes are in
 * test_topo_route.c, whole machines in tests/topo. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/unit/suite.h"
#include "tests/unit/topo_machine.h"
#include "topo/topo_io.h"

START_TEST(classes_and_capacities)
{
    static const struct {
        enum topo_end_kind kind;
        int index;
        const char *nic;
        enum topo_class class;
        uint32_t mbps;
    } rows[] = {
        {TOPO_END_GPU, 0, "n14a", TOPO_PIX, 384000}, {TOPO_END_GPU, 1, "n14a", TOPO_PXB, 192000},
        {TOPO_END_GPU, 0, "n19", TOPO_PHB, 384000},  {TOPO_END_GPU, 1, "n19", TOPO_PHB, 192000},
        {TOPO_END_GPU, 0, "n41", TOPO_NODE, 384000}, {TOPO_END_GPU, 0, "n84", TOPO_SYS, 176000},
        {TOPO_END_GPU, 2, "n84", TOPO_PIX, 384000},  {TOPO_END_GPU, 2, "n41", TOPO_SYS, 176000},
        {TOPO_END_NUMA, 0, "n19", TOPO_PHB, 384000}, {TOPO_END_NUMA, 1, "n19", TOPO_SYS, 176000},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct topo_path *p = path_to(rows[i].kind, rows[i].index, rows[i].nic);

        ck_assert_msg(p->class == rows[i].class && p->mbps == rows[i].mbps && p->complete &&
                          !p->guess,
                      "row %zu: %s %u", i, topo_class_name(p->class), p->mbps);
    }
}
END_TEST

START_TEST(links_that_paths_share)
{
    const struct topo_path *p;
    int up = 0;

    p = path_to(TOPO_END_GPU, 0, "n84");
    ck_assert(goes_over(p, "sockets 0-1") && goes_over(p, "host bridge 0000:10") &&
              goes_over(p, "host bridge 0000:80"));
    ck_assert(
        goes_over(p, "PCI 0000:10:01.0")); /* the switch's uplink, named after the port above */
    /* a dual-port card's functions are behind one link */
    ck_assert(goes_over(path_to(TOPO_END_GPU, 0, "n14a"), "PCI 0000:12:01.0"));
    p = path_to(TOPO_END_GPU, 0, "n14b");
    ck_assert(goes_over(p, "PCI 0000:12:01.0") && !goes_over(p, "PCI 0000:10:01.0"));
    /* out of the GPU, into the NIC */
    for (int i = 0; i < p->n; i++) {
        up += p->way[i] % 2 == 0;
    }
    ck_assert_int_eq(p->n, 2);
    ck_assert_int_eq(up, 1);
    ck_assert_uint_eq(topo_link_capacity(&t, TOPO_LINK_SOCKETS + 1), 22 * 8000);
}
END_TEST

START_TEST(order_of_substitutes)
{
    static const char *const want[] = {"n19", "n14b", "n84", "n41"};
    struct topo_choice c[TOPO_NICS_MAX];
    int n = topo_rank(&t, (struct topo_end){TOPO_END_GPU, 0}, nic_at("n14a"), c);

    /* 384 PHB; 200 PIX of the same slot; 176 SYS; 100 NODE */
    ck_assert_int_eq(n, 4);
    for (int i = 0; i < n; i++) {
        ck_assert_str_eq(t.nic[c[i].nic].name, want[i]);
    }
    ck_assert_int_eq(topo_rank(&t, (struct topo_end){TOPO_END_GPU, 7}, -1, c), 0);
    ck_assert_int_eq(topo_rank(&t, (struct topo_end){TOPO_END_GPU, 0}, -1, c), 5);
    ck_assert_str_eq(t.nic[c[1].nic].name, "n14a"); /* equal to n14b in all but the address */
    ck_assert_str_eq(t.nic[c[2].nic].name, "n14b");
}
END_TEST

/* @end: the GPUs, then the nodes. */
static int end_rank(int end, int failed, struct topo_choice *c)
{
    struct topo_end from = {end < t.gpus ? TOPO_END_GPU : TOPO_END_NUMA,
                            end < t.gpus ? end : end - t.gpus};

    return topo_rank(&t, from, failed, c);
}

/* Who starts while a port is down finds the order that all others have, although PCI is faster than
 * the ports. */
START_TEST(order_with_a_port_that_is_down)
{
    static const uint32_t said[] = {0, 2500, 800000}; /* by the port that is down */
    struct topo_choice want[TOPO_NICS_MAX], is[TOPO_NICS_MAX];

    for (int turn = 0; turn < t.nics * 3; turn++) {
        int down = turn / 3;

        for (int end = 0; end < t.gpus + t.numas; end++) {
            for (int failed = -1; failed < t.nics; failed++) {
                int n;

                rates_set(200000);
                t.nic[down].state = TOPO_STATE_ACTIVE;
                n = end_rank(end, failed, want);
                t.nic[down].state = TOPO_STATE_DOWN;
                t.nic[down].rate_mbps = said[turn % 3];
                ck_assert_int_eq(end_rank(end, failed, is), n);
                for (int i = 0; i < n; i++) {
                    ck_assert_msg(is[i].nic == want[i].nic && is[i].class == want[i].class &&
                                      is[i].mbps == want[i].mbps,
                                  "end %d without %d, %s down: place %d has %s with %u", end,
                                  failed, t.nic[down].name, i, t.nic[is[i].nic].name, is[i].mbps);
                }
            }
        }
        t.nic[down].state = TOPO_STATE_ACTIVE;
    }
}
END_TEST

START_TEST(rate_of_a_port_that_is_down)
{
    int n = nic_at("n14b"), port = TOPO_LINK_NIC + n;

    ck_assert_uint_eq(topo_nic_mbps(&t, n), 200000);
    t.nic[n].state = TOPO_STATE_DOWN;
    t.nic[n].rate_mbps = 2500;
    t.nic[nic_at("n41")].state = TOPO_STATE_INIT; /* without a subnet manager, but with a partner */
    ck_assert_uint_eq(topo_nic_mbps(&t, n), 100000);
    ck_assert_uint_eq(topo_link_capacity(&t, port), 100000);
    t.nic[nic_at("n41")].state = TOPO_STATE_DOWN;
    ck_assert_uint_eq(topo_nic_mbps(&t, n), 200000);
    t.nic[nic_at("n14a")].rate_mbps = 0; /* says nothing */
    ck_assert_uint_eq(topo_nic_mbps(&t, n), 400000);
    t.unknown = 0;
    t.nic[nic_at("n14a")].state = TOPO_STATE_DOWN;
    t.nic[nic_at("n14a")].rate_mbps = 2500;
    ck_assert_int_eq(topo_finish(&t, why, sizeof(why)), 0);
    ck_assert_uint_eq(t.unknown & TOPO_NO_RATE, 0);
    for (int i = 0; i < t.nics; i++) {
        t.nic[i].state = TOPO_STATE_DOWN;
    }
    ck_assert_uint_eq(topo_nic_mbps(&t, n), 0);
    ck_assert_uint_eq(topo_link_capacity(&t, port), 0);
    ck_assert_uint_eq(topo_path_nic_mbps(&t, path_to(TOPO_END_GPU, 0, "n14b"), n), 384000);
    ck_assert_int_eq(topo_finish(&t, why, sizeof(why)), 0);
    ck_assert_uint_eq(t.unknown & TOPO_NO_RATE, TOPO_NO_RATE);
}
END_TEST

/* Any order of reading gives the same snapshot, byte for byte. */
START_TEST(order_of_reading_does_not_matter)
{
    static struct topo first;
    int16_t to[TOPO_PCI_MAX];

    machine();
    memcpy(&first, &t, sizeof(t));
    srandom(3);
    for (int turn = 0; turn < 200; turn++) {
        static struct topo in;

        memcpy(&in, &first, sizeof(in));
        topo_clear(&t);
        t.cpu = in.cpu, t.cpu_family = in.cpu_family, t.cpu_model = in.cpu_model;
        t.pcis = in.pcis, t.nics = in.nics, t.gpus = in.gpus, t.roots = in.roots;
        for (int i = 0; i < in.pcis; i++) {
            to[i] = (int16_t)i;
        }
        for (int i = in.pcis - 1; i > 0; i--) {
            int k = (int)(random() % (i + 1));
            int16_t keep = to[i];

            to[i] = to[k], to[k] = keep;
        }
        for (int i = 0; i < in.pcis; i++) {
            struct topo_pci p = in.pci[i];

            p.parent = p.parent < 0 ? -1 : to[p.parent];
            p.root = (int16_t)(in.roots - 1 - p.root);
            p.numa = p.numa < 0 ? -1 : (int16_t)in.numa[p.numa].id;
            t.pci[to[i]] = p;
        }
        for (int i = 0; i < in.roots; i++) {
            t.root[in.roots - 1 - i] = in.root[i];
        }
        for (int i = 0, at = (int)(random() % in.nics); i < in.nics; i++) {
            struct topo_nic *n = &t.nic[(i + at) % in.nics];

            *n = in.nic[i];
            n->pci = to[n->pci];
        }
        for (int i = 0; i < in.gpus; i++) {
            t.gpu[in.gpus - 1 - i].pci = to[in.gpu[i].pci];
        }
        topo_numa_add(&t, turn % 2, turn % 2);
        topo_numa_add(&t, !(turn % 2), !(turn % 2));
        ck_assert_int_eq(topo_finish(&t, why, sizeof(why)), 0);
        ck_assert_mem_eq(&t, &first, sizeof(t));
    }
}
END_TEST

START_TEST(contradictions_are_refused)
{
    for (int wrong = 0; wrong < 6; wrong++) {
        machine();
        switch (wrong) {
        case 0:
            t.pci[0].parent = 0;
            break;
        case 1:
            t.pci[2].parent = 3, t.pci[3].parent = 2;
            break;
        case 2:
            t.pci[1].root = 77;
            break;
        case 3:
            t.pci[5] = t.pci[4];
            break;
        case 4:
            t.nic[0].pci = 500;
            break;
        default:
            t.nic[1] = t.nic[0];
        }
        why[0] = '\0';
        ck_assert_msg(topo_finish(&t, why, sizeof(why)) == -1, "wrong %d", wrong);
        ck_assert_int_eq(strncmp(why, "the topology contradicts itself: ", 33), 0);
        ck_assert_int_eq(t.pcis + t.nics + t.gpus, 0);
    }
}
END_TEST

START_TEST(tables_that_are_full_say_so)
{
    topo_clear(&t);
    for (int i = 0; i < 300; i++) {
        topo_pci_add(&t, 0, (uint8_t)(i % 256), (uint8_t)(i / 256), 0);
    }
    ck_assert_int_eq(t.pcis, TOPO_PCI_MAX);
    ck_assert_int_eq(topo_pci_add(&t, 9, 0, 0, 0), -1);
    ck_assert_uint_eq(t.unknown, TOPO_CUT);
    t.unknown = 0;
    for (int i = 0; i < TOPO_NICS_MAX; i++) {
        ck_assert_ptr_nonnull(topo_nic_add(&t, "n", (unsigned)i + 1));
    }
    ck_assert_ptr_null(topo_nic_add(&t, "n", 99));
    ck_assert_uint_eq(t.unknown, TOPO_CUT);
    ck_assert_ptr_null(topo_nic_add(&t, "a/b", 1));
    ck_assert_ptr_null(topo_nic_add(&t, "", 1));
    ck_assert_ptr_null(topo_nic_add(&t, "a", 0));
    ck_assert_uint_eq(t.unknown, TOPO_CUT | TOPO_BAD);
}
END_TEST

START_TEST(link_speeds)
{
    ck_assert_uint_eq(topo_link_mbps(80, 16), 96000); /* 12 GB/s: NCCL's PCI_BW, generation 3 x16 */
    ck_assert_uint_eq(topo_link_mbps(160, 16), 192000); /* 24 */
    ck_assert_uint_eq(topo_link_mbps(320, 8), 192000);
    ck_assert_uint_eq(topo_link_mbps(25, 1), 1500);
    ck_assert_uint_eq(topo_link_mbps(81, 16) + topo_link_mbps(80, 0) + topo_link_mbps(80, 63) +
                          topo_link_mbps(80, 3),
                      0);
}
END_TEST

START_TEST(addresses)
{
    static const char *const bad[] = {"",
                                      "0000",
                                      "0000:17:00",
                                      "000:17:00.0",
                                      "0000:17:20.0",
                                      "0000:17:00.8",
                                      "0000-17:00.0",
                                      "123456789:17:00.0"};
    uint32_t domain;
    uint8_t bus, dev, f;

    ck_assert_uint_eq(topo_bdf_parse("10000:e1:1f.7/x", &domain, &bus, &dev, &f), 13);
    ck_assert_uint_eq(domain, 0x10000);
    ck_assert_uint_eq(bus * 10000u + dev * 10u + f, 0xe1 * 10000 + 31 * 10 + 7);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_msg(topo_bdf_parse(bad[i], &domain, &bus, &dev, &f) == 0, "%s", bad[i]);
    }
}
END_TEST

START_TEST(unknown_places_are_the_worst)
{
    t.pci[t.nic[nic_at("n41")].pci].numa = -1;
    ck_assert_int_eq(path_to(TOPO_END_GPU, 0, "n41")->class, TOPO_SYS);
    ck_assert(path_to(TOPO_END_GPU, 0, "n41")->guess);
    t.nic[nic_at("n41")].pci = -1;
    ck_assert_int_eq(path_to(TOPO_END_GPU, 0, "n41")->class, TOPO_NONE);
    ck_assert(!path_to(TOPO_END_GPU, 0, "n41")->complete);
}
END_TEST

START_TEST(sources_by_name)
{
    struct topo_source s = {.root = ""};

    ck_assert(topo_source_parse("sysfs", &s) == 0 && s.from == TOPO_FROM_SYSFS);
    ck_assert(topo_source_parse("hwloc", &s) == 0 && s.from == TOPO_FROM_HWLOC);
    ck_assert(topo_source_parse("/a/b.xml", &s) == 0 && s.from == TOPO_FROM_XML &&
              strcmp(s.xml, "/a/b.xml") == 0);
    ck_assert(topo_source_parse(".xml", &s) == -1 && topo_source_parse("", &s) == -1 &&
              topo_source_parse("SYSFS", &s) == -1);
}
END_TEST

/* How often openat2 is refused from now on, as while other processes rename files; how often it
 * was. */
static int refusals, refused;

long __real_syscall(long nr, ...);
long __wrap_syscall(long nr, ...);

/* Nothing else of what runs here calls it: openat2(dirfd, path, how, size). */
long __wrap_syscall(long nr, ...)
{
    va_list ap;
    int at;
    const char *path;
    void *how;
    size_t size;

    va_start(ap, nr);
    at = va_arg(ap, int);
    path = va_arg(ap, const char *);
    how = va_arg(ap, void *);
    size = va_arg(ap, size_t);
    va_end(ap);
    ck_assert_int_eq(nr, SYS_openat2);
    if (refusals > 0) {
        refusals--;
        refused++;
        errno = EAGAIN;
        return -1;
    }
    return __real_syscall(nr, at, path, how, size);
}

START_TEST(what_is_renamed_elsewhere_hides_nothing)
{
    char root[] = "/tmp/test_topo-XXXXXX", text[16];
    struct topo_io io;
    int at, fd;

    ck_assert_ptr_nonnull(mkdtemp(root));
    at = open(root, O_RDONLY | O_DIRECTORY);
    ck_assert_int_eq(mkdirat(at, "sub", 0755), 0);
    fd = openat(at, "rate", O_WRONLY | O_CREAT, 0644);
    ck_assert_int_eq(write(fd, "400\n", 4), 4);
    close(fd);
    ck_assert_int_eq(symlinkat("../rate", at, "sub/link"), 0);
    ck_assert_int_eq(topo_io_open(&io, root), 0);
    refusals = 7;
    ck_assert_int_eq(topo_io_line(&io, "sub/link", text, sizeof(text)), 0);
    ck_assert_str_eq(text, "400");
    ck_assert_int_eq(refused, 7);
    refusals = INT32_MAX; /* and comes to an end */
    ck_assert_int_eq(topo_io_line(&io, "sub/link", text, sizeof(text)), -1);
    ck_assert_int_eq(errno, EAGAIN);
    refusals = 0;
    topo_io_close(&io);
    unlinkat(at, "sub/link", 0);
    unlinkat(at, "sub", AT_REMOVEDIR);
    unlinkat(at, "rate", 0);
    close(at);
    rmdir(root);
}
END_TEST

static void add(TCase *c)
{
    tcase_add_test(c, classes_and_capacities);
    tcase_add_test(c, links_that_paths_share);
    tcase_add_test(c, order_of_substitutes);
    tcase_add_test(c, order_with_a_port_that_is_down);
    tcase_add_test(c, rate_of_a_port_that_is_down);
    tcase_add_test(c, order_of_reading_does_not_matter);
    tcase_add_test(c, contradictions_are_refused);
    tcase_add_test(c, tables_that_are_full_say_so);
    tcase_add_test(c, link_speeds);
    tcase_add_test(c, addresses);
    tcase_add_test(c, unknown_places_are_the_worst);
    tcase_add_test(c, sources_by_name);
    tcase_add_test(c, what_is_renamed_elsewhere_hides_nothing);
}

int main(void)
{
    return suite_run("topo", 60, machine, NULL, add);
}
