/*
 * The topology: a tree of files in which the input decides what the links and files say, the file
 * of links, and snapshots as a module might hand them over. Whatever comes out must be finished:
 * every index in its table, every path ends, every rank is a permutation.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin/balance/balance_fill.h"
#include "topo/topo_links.h"
#include "topo/topo_rank.h"
#include "topo/topo_route.h"
#include "topo/topo_sysfs.h"

static struct topo_io io;
static char why[400];

static char dir[] = "/tmp/r2-fuzz-topo-XXXXXX";

static void end(void)
{
    rmdir(dir);
}

static void begin(void)
{
    FUZZ_CHECK(mkdtemp(dir) != NULL && atexit(end) == 0 && topo_io_open(&io, dir) == 0);
}

static void ranks_check(const struct topo *t, struct topo_end from)
{
    struct topo_choice c[TOPO_NICS_MAX];

    for (int failed = -1; failed < t->nics; failed++) {
        uint64_t seen = 0;
        int n = topo_rank(t, from, failed, c);

        FUZZ_CHECK(n == t->nics - (failed >= 0));
        for (int i = 0; i < n; i++) {
            FUZZ_CHECK(c[i].nic >= 0 && c[i].nic < t->nics && c[i].nic != failed &&
                       !(seen >> c[i].nic & 1));
            seen |= 1ull << c[i].nic;
        }
    }
}

static void routes_check(const struct topo *t)
{
    static struct topo_load load;
    struct topo_route r;
    char text[64];

    topo_load_begin(t, &load);
    for (int g = 0; g < t->gpus; g++) {
        ranks_check(t, (struct topo_end){TOPO_END_GPU, g});
        for (int n = 0; n < t->nics; n++) {
            topo_route_choose(t, &load, g, n, 100000, n % 2, &r);
            FUZZ_CHECK(r.n <= sizeof(r.way) / sizeof(r.way[0]) && r.relay < t->gpus &&
                       r.relay != g);
            for (int i = 0; i < r.n; i++) {
                FUZZ_CHECK(r.way[i] < TOPO_WAYS);
                topo_link_text(t, r.way[i] / 2, text, sizeof(text));
            }
            topo_load_take(&load, &r, 1000);
        }
    }
    for (int i = 0; i < t->numas; i++) {
        ranks_check(t, (struct topo_end){TOPO_END_NUMA, i});
    }
}

static void snapshot_check(const struct topo *t)
{
    FUZZ_CHECK(t->pcis <= TOPO_PCI_MAX && t->nics <= TOPO_NICS_MAX && t->gpus <= TOPO_GPUS_MAX &&
               t->numas <= TOPO_NUMA_MAX && t->roots <= TOPO_ROOTS_MAX &&
               t->sockets <= TOPO_SOCKETS_MAX);
    for (int i = 0; i < t->pcis; i++) {
        FUZZ_CHECK(t->pci[i].parent < t->pcis && t->pci[i].root < t->roots &&
                   t->pci[i].numa < t->numas && t->pci[i].mbps <= TOPO_MBPS_MAX);
    }
    for (int i = 0; i < t->nics; i++) {
        FUZZ_CHECK(t->nic[i].pci < t->pcis && strnlen(t->nic[i].name, TOPO_NAME) < TOPO_NAME);
        for (int k = 0; k < t->nics && t->nic[i].state == TOPO_STATE_DOWN; k++) {
            FUZZ_CHECK(t->nic[k].state == TOPO_STATE_DOWN || t->nic[k].rate_mbps == 0 ||
                       topo_nic_mbps(t, i) <= t->nic[k].rate_mbps);
        }
    }
    routes_check(t);
}

/* --- trees --- */

static void dirs(char *path)
{
    for (char *p = strchr(path, '/'); p != NULL; p = strchr(p + 1, '/')) {
        *p = '\0';
        mkdirat(io.fd, path, 0755);
        *p = '/';
    }
}

/* What was made, to be removed again. */
static char made[64][160];
static int count;

static char *name_new(const char *fmt, unsigned a, unsigned b)
{
    if (count == 64) {
        return NULL;
    }
    snprintf(made[count], sizeof(made[0]), fmt, a, b);
    return made[count++];
}

static void file_make(struct fuzz_in *in, char *path)
{
    char text[80];
    size_t n = fuzz_text(in, text, sizeof(text));
    int fd;

    if (path == NULL) {
        return;
    }
    dirs(path);
    fd = openat(io.fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd >= 0) {
        FUZZ_CHECK(write(fd, text, n) == (ssize_t)n);
        close(fd);
    }
}

/* Parts that are right, in an order that need not be. */
static void link_make(struct fuzz_in *in, char *path)
{
    static const char *const parts[] = {"pci0000:00",
                                        "0000:00:01.0",
                                        "0000:01:00.0",
                                        "0000:02:00.0",
                                        "0000:03:00.0",
                                        "pci10000:e0",
                                        "10000:e1:00.0",
                                        "virtual",
                                        "infiniband",
                                        "mlx5_0",
                                        ""};
    char to[300] = "../../../devices";

    for (unsigned n = fuzz_pick(in, 12); n > 0; n--) {
        strncat(to, "/", sizeof(to) - strlen(to) - 1);
        strncat(to, parts[fuzz_pick(in, sizeof(parts) / sizeof(parts[0]))],
                sizeof(to) - strlen(to) - 1);
    }
    if (path != NULL) {
        dirs(path);
        (void)!symlinkat(to, io.fd, path);
    }
}

static void thing_make(struct fuzz_in *in)
{
    static const char *const attrs[] = {
        "class",          "vendor",        "numa_node", "current_link_speed", "current_link_width",
        "max_link_speed", "max_link_width"};
    char path[128];
    unsigned what = fuzz_pick(in, 6), a = fuzz_pick(in, 4), b = fuzz_pick(in, 3);

    switch (what) {
    case 0:
        snprintf(path, sizeof(path), "sys/devices/system/node/node%%u/%s",
                 b ? "cpulist" : "meminfo");
        file_make(in, name_new(path, a, 0));
        break;
    case 1:
        file_make(in, name_new("sys/devices/system/cpu/cpu%u/topology/physical_package_id", a, 0));
        break;
    case 2:
        link_make(in, name_new("sys/class/infiniband/mlx5_%u", a, 0));
        break;
    case 3:
        snprintf(path, sizeof(path), "sys/class/infiniband/d%%u/%s",
                 b == 0   ? "node_guid"
                 : b == 1 ? "ports/1/rate"
                          : "ports/1/state");
        file_make(in, name_new(path, a, 0));
        break;
    case 4:
        link_make(in, name_new("sys/bus/pci/devices/0000:%02x:00.%u", a, b));
        break;
    default:
        snprintf(path, sizeof(path), "sys/bus/pci/devices/0000:%%02x:00.%%u/%s",
                 attrs[fuzz_pick(in, 7)]);
        file_make(in, name_new(path, a, b));
    }
}

/* Also the folders, from below. */
static void all_remove(void)
{
    while (count > 0) {
        char *path = made[--count];

        if (unlinkat(io.fd, path, 0) != 0) {
            continue;
        }
        for (char *p = strrchr(path, '/'); p != NULL; p = strrchr(path, '/')) {
            *p = '\0';
            if (unlinkat(io.fd, path, AT_REMOVEDIR) != 0) {
                break;
            }
        }
    }
}

/* --- snapshots --- */

static void snapshot_make(struct fuzz_in *in, struct topo *t)
{
    topo_clear(t);
    for (unsigned n = fuzz_pick(in, 4); n > 0; n--) {
        topo_root_add(t, fuzz_pick(in, 3), fuzz_u8(in));
    }
    for (unsigned n = fuzz_pick(in, 3); n > 0; n--) {
        topo_numa_add(t, (int)fuzz_pick(in, 4), (int)fuzz_number(in));
    }
    for (unsigned n = fuzz_pick(in, 12); n > 0; n--) {
        int i = topo_pci_add(t, fuzz_pick(in, 2), fuzz_u8(in), fuzz_pick(in, 32), fuzz_pick(in, 8));

        t->pci[i].parent = (int16_t)(fuzz_u8(in) % 14 - 1);
        t->pci[i].root = (int16_t)(fuzz_u8(in) % 4);
        t->pci[i].numa = (int16_t)(fuzz_u8(in) % 5 - 1);
        t->pci[i].class = fuzz_u8(in) % 2 ? 0x060400 : 0x030200;
        t->pci[i].vendor = 0x10de;
        t->pci[i].cur_mbps = topo_link_mbps(320, 1u << fuzz_pick(in, 6));
        if (fuzz_u8(in) % 2) {
            topo_gpu_add(t, i);
        }
    }
    for (unsigned n = fuzz_pick(in, 6); n > 0; n--) {
        struct topo_nic *nic = topo_nic_add(t, "n", fuzz_u8(in));

        if (nic != NULL) {
            uint8_t place = fuzz_u8(in);

            nic->pci = (int16_t)(place % 14 - 1);
            nic->state = place / 14 % 5;
            nic->rate_mbps = (uint32_t)fuzz_number(in) % TOPO_MBPS_MAX;
        }
    }
}

/* --- weights --- */

static void fill_check(struct fuzz_in *in)
{
    static uint64_t work[4096];
    struct balance_path path[24] = {{0}};
    struct balance_flow flow[4];
    uint32_t mbps[6], rate[24], weight[24];
    struct balance_net net = {mbps, path, flow, 1 + fuzz_pick(in, 6), 0, fuzz_pick(in, 5)};
    struct balance_result result;

    for (uint32_t r = 0; r < net.resources; r++) {
        mbps[r] = (uint32_t)fuzz_number(in);
    }
    for (uint32_t f = 0; f < net.flows; f++) {
        flow[f] = (struct balance_flow){(uint16_t)(fuzz_u8(in) + fuzz_u8(in) % 2),
                                        (uint16_t)fuzz_pick(in, 7), net.paths};
        for (int k = 0; k < flow[f].n; k++, net.paths++) {
            path[net.paths].n = (uint8_t)fuzz_pick(in, 5);
            for (int i = 0; i < path[net.paths].n; i++) {
                path[net.paths].res[i] = (uint16_t)fuzz_pick(in, 8);
            }
        }
    }
    FUZZ_CHECK(balance_fill_size(&net) <= sizeof(work));
    if (balance_fill(&net, work, rate, weight, &result) != 0) {
        return;
    }
    FUZZ_CHECK(result.least <= result.bound * 1.00001);
    for (uint32_t r = 0; r < net.resources; r++) {
        uint64_t used = 0;

        for (uint32_t p = 0; p < net.paths; p++) {
            for (int i = 0; i < path[p].n; i++) {
                used += path[p].res[i] == r ? rate[p] : 0;
            }
        }
        FUZZ_CHECK(used <= mbps[r]);
    }
    for (uint32_t f = 0; f < net.flows; f++) {
        uint64_t sum = 0;

        for (uint32_t p = flow[f].first; p < flow[f].first + flow[f].n; p++) {
            sum += weight[p];
        }
        FUZZ_CHECK(sum == BALANCE_ONE);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, data + size};
    static struct topo t;
    char text[300];

    if (io.fd == 0) {
        begin();
    }
    switch (fuzz_pick(&in, 3)) {
    case 0:
        while (fuzz_more(&in) && count < 64) {
            thing_make(&in);
        }
        if (topo_sysfs_read(&io, &t, why, sizeof(why)) == 0) {
            snapshot_check(&t);
        }
        all_remove();
        break;
    case 1:
        snapshot_make(&in, &t);
        fuzz_text(&in, text, sizeof(text));
        if (topo_finish(&t, why, sizeof(why)) == 0) {
            (void)!topo_links_apply(&t, text, why, sizeof(why));
            snapshot_check(&t);
        }
        break;
    default:
        fill_check(&in);
    }
    return 0;
}
