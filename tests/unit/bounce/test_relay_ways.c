/* Which GPU reaches which NIC by way of what (r2_relay_topo.c), on the machines of tests/topo. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin/balance/r2_balance_int.h"
#include "plugin/bounce/r2_relay.h"
#include "tests/unit/suite.h"
#include "topo/topo_io.h"
#include "topo/topo_links.h"
#include "topo/topo_sysfs.h"

static struct topo t;
static struct ib_nics nics;
static struct r2_relay_ways ways;

/* Beside this program, two folders up. */
static void tool_path(char *out, size_t len)
{
    ssize_t n = readlink("/proc/self/exe", out, len - 1);

    ck_assert_int_gt(n, 0);
    out[n] = '\0';
    for (int i = 0; i < 3; i++) {
        *strrchr(out, '/') = '\0';
    }
}

/* Machine @name as the plugin reads it; @links: with what its administrator says of NVLink. */
static void machine_read(const char *name, int links)
{
    char tree[] = "/tmp/relay-ways-XXXXXX", build[500], text[4096], why[300] = "";
    char command[1200];
    struct topo_io io;

    tool_path(build, sizeof(build));
    ck_assert_ptr_nonnull(mkdtemp(tree));
    snprintf(command, sizeof(command), "'%s/topo_make' tests/topo/machines/%s.machine %s", build,
             name, tree);
    ck_assert_msg(system(command) == 0, "%s", command);
    ck_assert_int_eq(topo_io_open(&io, tree), 0);
    ck_assert_msg(topo_sysfs_read(&io, &t, why, sizeof(why)) == 0, "%s", why);
    if (links) {
        ck_assert_int_gt(topo_io_read(&io, "etc/nccl-net-r2/links", text, sizeof(text)), 0);
        ck_assert_msg(topo_links_apply(&t, text, why, sizeof(why)) == 0, "%s", why);
    }
    topo_io_close(&io);
    snprintf(command, sizeof(command), "rm -r %s", tree);
    ck_assert_int_eq(system(command), 0);
}

static uint32_t used; /* of the topology's NICs, bit by bit */

/* The plugin's numbers of the NICs are others than the topology's. */
static int number_of(int nic)
{
    return __builtin_popcount(used >> nic >> 1);
}

static void nics_use(uint32_t which)
{
    memset(&nics, 0, sizeof(nics));
    used = which;
    nics.count = __builtin_popcount(which);
    for (int i = 0; i < t.nics; i++) {
        struct ib_nic *n = &nics.nic[number_of(i)];

        if (which >> i & 1) {
            snprintf(n->dev_name, sizeof(n->dev_name), "%s", t.nic[i].name);
            n->port = t.nic[i].port;
        }
    }
}

static void nics_make(void)
{
    ck_assert_int_lt(t.nics, IB_MAX_NICS);
    nics_use((1u << t.nics) - 1);
}

/* '.': straight; 'h': by way of the host; a digit: of that GPU. */
static char said(int gpu, int nic, int registered)
{
    struct r2_relay_way way = r2_relay_way_get(&ways, gpu, number_of(nic), registered);

    return (char)(way.kind == R2_RELAY_NONE   ? '.'
                  : way.kind == R2_RELAY_HOST ? 'h'
                                              : '0' + way.relay);
}

static const struct machine_row {
    const char *name;
    int links, mode;
    const char *way[8]; /* of each GPU, a letter per NIC; the last that is there is for those behind
                           it, too */
} row[] = {
    /* two sockets of four nodes: the link between sockets has less than a NIC, those within a
       socket have as much; no GPU is beside NICs 4 and 5 */
    {"dgx-a100",
     1,
     R2_VIA_GPU,
     {"......4466", "......4466", "......4466", "......4466", "0022......"}},
    {"dgx-a100", 0, R2_VIA_GPU, {".........."}},
    {"dgx-a100",
     1,
     R2_VIA_HOST,
     {"..hhhhhhhh", "..hhhhhhhh", "hh..hhhhhh", "hh..hhhhhh", "hhhhhh..hh", "hhhhhh..hh",
      "hhhhhhhh.."}},
    {"dgx-h100",
     1,
     R2_VIA_GPU,
     {"......4..567", "......4..567", "......4..567", "......4..567", "0..123......"}},
    {"dgx-h100", 0, R2_VIA_GPU, {"............"}},
    {"dgx-h100",
     0,
     R2_VIA_HOST,
     {"......hhhhhh", "......hhhhhh", "......hhhhhh", "......hhhhhh", "hhhhhh......"}},
    {"one-side", 0, R2_VIA_GPU, {".."}}, /* no NVLink there */
    {"one-side", 0, R2_VIA_HOST, {"..", "..", "hh"}},
    {"cloud-vm", 0, R2_VIA_GPU, {".."}}, /* nothing says that any way is a bad one */
    {"cloud-vm", 0, R2_VIA_HOST, {".."}},
};

START_TEST(ways_of_machines)
{
    const struct machine_row *m = &row[_i];
    const char *way = NULL;

    machine_read(m->name, m->links);
    nics_make();
    r2_relay_ways_make(&ways, &nics, &t, (enum r2_relay_mode)m->mode);
    ck_assert_int_eq(ways.gpus, t.gpus);
    ck_assert_int_gt(ways.gpus, 1);
    for (int g = 0; g < ways.gpus; g++) {
        char text[TOPO_BDF];

        ck_assert_str_eq(ways.gpu[g], topo_bdf_text(&t.pci[t.gpu[g].pci], text));
        way = g < 8 && m->way[g] ? m->way[g] : way;
        ck_assert_uint_eq(strlen(way), (unsigned)t.nics);
        for (int n = 0; n < t.nics; n++) {
            ck_assert_msg(said(g, n, 1) == way[n], "GPU %d, NIC %d: %c", g, n, said(g, n, 1));
            ck_assert_int_eq(said(g, n, 0), way[n] == '.' ? 'h' : way[n]);
        }
    }
}
END_TEST

/* What is not known is straight where the NIC takes the memory, and by way of the host where it
 * does not. */
START_TEST(ways_of_what_is_not_known)
{
    r2_relay_ways_make(&ways, &nics, NULL, R2_VIA_GPU);
    ck_assert_int_eq(ways.gpus, 0);
    ck_assert_int_eq(r2_relay_way_get(&ways, 0, 0, 1).kind, R2_RELAY_NONE);
    ck_assert_int_eq(r2_relay_way_get(&ways, -1, 0, 0).kind, R2_RELAY_HOST);
    machine_read("dgx-h100", 1);
    nics_make();
    snprintf(nics.nic[number_of(6)].dev_name, sizeof(nics.nic[0].dev_name), "mlx5_99");
    nics.nic[number_of(9)].port = 2;
    r2_relay_ways_make(&ways, &nics, &t, R2_VIA_GPU);
    ck_assert_int_eq(said(0, 6, 1), '.');
    ck_assert_int_eq(said(0, 9, 1), '.');
    ck_assert_int_eq(said(0, 10, 1), '6');
    for (int registered = 0; registered < 2; registered++) {
        int kind = registered ? R2_RELAY_NONE : R2_RELAY_HOST;

        ck_assert_int_eq(r2_relay_way_get(&ways, -1, 0, registered).kind, kind);
        ck_assert_int_eq(r2_relay_way_get(&ways, ways.gpus, 0, registered).kind, kind);
        ck_assert_int_eq(r2_relay_way_get(&ways, 0, -1, registered).kind, kind);
        ck_assert_int_eq(r2_relay_way_get(&ways, 0, IB_MAX_NICS, registered).kind, kind);
    }
}
END_TEST

/* --- what that means for weights --- */

static struct r2_ways w;
static struct r2_way bounced_ways[IB_MAX_NICS][IB_MAX_NICS];

static const struct r2_way *way_of(int from, int to, int bounced)
{
    return bounced ? &w.bounced[number_of(from)][number_of(to)]
                   : &w.way[number_of(from)][number_of(to)];
}

static int has(const struct r2_way *way, int link)
{
    for (int i = 0; i < way->n; i++) {
        if (way->link[i] == link) {
            return 1;
        }
    }
    return 0;
}

static int has_capacity(const struct r2_way *way, uint32_t mbps)
{
    for (int i = 0; i < way->n; i++) {
        if (w.link[way->link[i]] == mbps) {
            return 1;
        }
    }
    return 0;
}

static int in_common(const struct r2_way *a, const struct r2_way *b)
{
    int n = 0;

    for (int i = 0; i < a->n; i++) {
        n += has(b, a->link[i]);
    }
    return n;
}

/* A relay's links are what counts, not those between the sockets: NVLink out of the one GPU and
 * into the other, PCI behind it. NICs 0 and 1 have GPUs 0 and 1, NICs 6 and 9 GPUs 4 and 5. */
START_TEST(links_by_way_of_a_gpu)
{
    const struct r2_way *way;
    const uint32_t nvlink = 3600000;

    machine_read("dgx-h100", 1);
    nics_make();
    r2_ways_make(&w, &nics, &t, R2_VIA_GPU, bounced_ways);
    way = way_of(0, 6, 0);
    ck_assert(has_capacity(way, t.inter_mbps));
    ck_assert(!has_capacity(way, nvlink));
    way = way_of(0, 6, 1);
    ck_assert(!has_capacity(way, t.inter_mbps));
    ck_assert(has_capacity(way, nvlink));
    ck_assert_uint_gt(way->reach, way_of(0, 6, 0)->reach);
    ck_assert_int_eq(way->n, 4);
    ck_assert_int_eq(in_common(way, way_of(0, 9, 1)), 1); /* NVLink out of GPU 0 */
    ck_assert_int_eq(in_common(way, way_of(3, 6, 1)), 3); /* all but that */
    ck_assert_int_eq(in_common(way, way_of(6, 6, 0)),
                     2); /* PCI of GPU 4 and of its NIC: shared with what that one sends */
    ck_assert_int_eq(
        way_of(0, 3, 1)->n,
        way_of(0, 3, 0)->n -
            1); /* straight, if the NIC refuses: through memory, without the bridge's limit */
    r2_ways_make(&w, &nics, &t, R2_VIA_NONE, NULL);
    ck_assert_ptr_null(w.bounced);
}
END_TEST

/* By way of the host: the same links, written and read, and no peer-to-peer through a bridge. */
START_TEST(links_by_way_of_the_host)
{
    machine_read("dgx-h100", 1);
    nics_make();
    r2_ways_make(&w, &nics, &t, R2_VIA_HOST, bounced_ways);
    ck_assert_int_eq(way_of(0, 6, 1)->n, way_of(0, 6, 0)->n - 1);
    ck_assert_int_eq(in_common(way_of(0, 6, 1), way_of(0, 6, 0)), way_of(0, 6, 1)->n);
    ck_assert_uint_eq(way_of(0, 6, 1)->reach, t.inter_mbps);
    ck_assert_uint_eq(way_of(0, 3, 0)->reach, 400000 * BALANCE_BRIDGE_PERCENT / 100);
    ck_assert_uint_gt(way_of(0, 3, 1)->reach, way_of(0, 3, 0)->reach);
}
END_TEST

#define FAST 0xe79u /* the NICs of dgx-h100 with 400 Gb/s: all but 1, 2, 7 and 8 */

/* A process that starts while a port is down stages as all others do, and weighs alike; what slower
 * NICs do that it does not use is no guess for the port. */
START_TEST(ways_with_a_port_that_is_down)
{
    static struct r2_relay_ways want_ways;
    static struct r2_ways want;
    static struct r2_way want_bounced[IB_MAX_NICS][IB_MAX_NICS];

    machine_read("dgx-h100", 1);
    nics_use(FAST);
    t.pci[t.gpu[0].pci].mbps = 96000; /* so that what is needed matters inside the node, too: GPU 1
                                         reaches NIC 3 at more */
    r2_relay_ways_make(&want_ways, &nics, &t, R2_VIA_GPU);
    r2_ways_make(&want, &nics, &t, R2_VIA_GPU, want_bounced);
    ck_assert_int_eq(want_ways.way[0][number_of(3)].kind, R2_RELAY_GPU);
    ck_assert_int_eq(want_ways.way[0][number_of(6)].kind, R2_RELAY_GPU);
    for (int i = 0; i < t.nics; i++) {
        struct topo_nic up = t.nic[i];

        if (!(FAST >> i & 1)) {
            continue;
        }
        t.nic[i].state = TOPO_STATE_DOWN;
        t.nic[i].rate_mbps = 2500;
        r2_relay_ways_make(&ways, &nics, &t, R2_VIA_GPU);
        ck_assert_msg(memcmp(&ways, &want_ways, sizeof(ways)) == 0, "NIC %d", i);
        r2_ways_make(&w, &nics, &t, R2_VIA_GPU, bounced_ways);
        ck_assert_msg(memcmp(w.bounced, want.bounced, sizeof(want_bounced)) == 0, "NIC %d", i);
        w.bounced = want.bounced;
        ck_assert_msg(memcmp(&w, &want, sizeof(w)) == 0, "NIC %d", i);
        t.nic[i] = up;
    }
}
END_TEST

/* NICs 3 and 10 are beside GPUs 1 and 6; GPU 0, which has none, has NIC 3 for its best, too, from
 * another root. */
START_TEST(origin_is_the_gpu_beside)
{
    machine_read("dgx-h100", 1);
    nics_use(1u << 3 | 1u << 10);
    r2_ways_make(&w, &nics, &t, R2_VIA_NONE, NULL);
    ck_assert_uint_eq(way_of(3, 3, 0)->reach, 384000);
    ck_assert_uint_eq(way_of(10, 10, 0)->reach, 384000);
    ck_assert_uint_eq(way_of(3, 10, 0)->reach, t.inter_mbps);
    ck_assert_uint_gt(way_of(3, 3, 0)->preference, way_of(3, 10, 0)->preference);
    ck_assert_uint_gt(way_of(10, 10, 0)->preference, way_of(10, 3, 0)->preference);
}
END_TEST

static void add(TCase *c)
{
    tcase_add_loop_test(c, ways_of_machines, 0, (int)(sizeof(row) / sizeof(row[0])));
    tcase_add_test(c, ways_of_what_is_not_known);
    tcase_add_test(c, links_by_way_of_a_gpu);
    tcase_add_test(c, links_by_way_of_the_host);
    tcase_add_test(c, ways_with_a_port_that_is_down);
    tcase_add_test(c, origin_is_the_gpu_beside);
}

int main(void)
{
    return suite_run("relay: ways", 60, NULL, NULL, add);
}
