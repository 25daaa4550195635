#include "topo_sysfs.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PCI_DEPTH_MAX 40

struct reader {
    const struct topo_io *io;
    struct topo *t;
};

/* A decimal number at the start of @text, within [@min, @max]; false: there is none. */
static bool number_parse(const char *text, long min, long max, long *value, const char **end)
{
    char *stop;

    if (!((text[0] >= '0' && text[0] <= '9') ||
          (text[0] == '-' && text[1] >= '0' && text[1] <= '9'))) {
        return false;
    }
    *value = strtol(text, &stop, 10);
    if (end != NULL) {
        *end = stop;
    }
    return *value >= min && *value <= max;
}

/* "2.5 ...", "400 ...": the number times @scale (a power of ten); 0 for what is none or above @max.
 */
static uint32_t decimal_parse(const char *text, uint32_t scale, uint32_t max)
{
    const char *p;
    long whole, value;

    if (!number_parse(text, 0, max / scale, &whole, &p)) {
        return 0;
    }
    value = whole * (long)scale;
    if (*p == '.') {
        for (p++; *p >= '0' && *p <= '9' && scale > 1; p++) {
            scale /= 10;
            value += (*p - '0') * (long)scale;
        }
    }
    return value <= (long)max ? (uint32_t)value : 0;
}

/* --- PCI functions --- */

static int attr_read(const struct reader *r, const char *bdf, const char *attr, char *out,
                     size_t len)
{
    char path[128];

    snprintf(path, sizeof(path), "sys/bus/pci/devices/%s/%s", bdf, attr);
    return topo_io_line(r->io, path, out, len);
}

static bool attr_hex(const struct reader *r, const char *bdf, const char *attr, unsigned long max,
                     uint32_t *value)
{
    char text[32], *end;
    unsigned long v;

    if (attr_read(r, bdf, attr, text, sizeof(text)) != 0) {
        return false;
    }
    v = strtoul(text, &end, 16);
    if (end == text || (*end != '\0' && *end != ' ') || v > max) {
        r->t->unknown |= TOPO_BAD;
        return false;
    }
    *value = (uint32_t)v;
    return true;
}

/* Capacity of a link in Mb/s from a pair of files; the kernel writes "Unknown" and widths of 0, 63
 * or 255 for what it does not know. */
static uint32_t link_read(const struct reader *r, const char *bdf, const char *which,
                          uint16_t *gts10, uint8_t *width)
{
    char attr[32], text[64];
    uint32_t speed, mbps;
    long lanes;

    snprintf(attr, sizeof(attr), "%s_link_speed", which);
    if (attr_read(r, bdf, attr, text, sizeof(text)) != 0) {
        return 0;
    }
    speed = decimal_parse(text, 10, 10000);
    snprintf(attr, sizeof(attr), "%s_link_width", which);
    if (speed == 0 || attr_read(r, bdf, attr, text, sizeof(text)) != 0 ||
        !number_parse(text, 1, 32, &lanes, NULL)) {
        return 0;
    }
    mbps = topo_link_mbps(speed, (unsigned)lanes);
    if (mbps == 0) {
        r->t->unknown |= TOPO_BAD;
        return 0;
    }
    *gts10 = (uint16_t)speed;
    *width = (uint8_t)lanes;
    return mbps;
}

static void function_read(const struct reader *r, struct topo_pci *p)
{
    char bdf[TOPO_BDF], text[32];
    uint32_t v;
    uint16_t speed;
    uint8_t width;
    long node;

    topo_bdf_text(p, bdf);
    if (attr_hex(r, bdf, "class", 0xffffff, &v)) {
        p->class = v;
    }
    if (attr_hex(r, bdf, "vendor", 0xffff, &v)) {
        p->vendor = (uint16_t)v;
    }
    if (attr_hex(r, bdf, "device", 0xffff, &v)) {
        p->device = (uint16_t)v;
    }
    if (attr_read(r, bdf, "numa_node", text, sizeof(text)) == 0) {
        if (number_parse(text, -1, INT16_MAX, &node, NULL)) {
            p->numa = (int16_t)node;
        } else {
            r->t->unknown |= TOPO_BAD;
        }
    }
    p->cur_mbps = link_read(r, bdf, "current", &p->gts10, &p->width);
    p->max_mbps = link_read(r, bdf, "max", &speed, &width);
}

/* The next part of a path into @out; false at its end. Parts that are too long for us are given as
 * empty. */
static bool part_next(const char **path, char *out, size_t len)
{
    size_t n;

    while (**path == '/') {
        (*path)++;
    }
    n = strcspn(*path, "/");
    if (n == 0) {
        return false;
    }
    snprintf(out, len, "%.*s", n < len ? (int)n : 0, *path);
    *path += n;
    return true;
}

static int root_parse(struct topo *t, const char *part)
{
    unsigned domain, bus;
    int end = 0;

    if (sscanf(part, "pci%8x:%2x%n", &domain, &bus, &end) != 2 || part[end] != '\0') {
        return -1;
    }
    return topo_root_add(t, domain, (uint8_t)bus);
}

/*
 * Adds the functions that a link such as
 * ../../../devices/pci0000:15/0000:15:01.0/0000:16:00.0/infiniband/mlx5_0 names, from the root bus
 * down. Returns the last one, -1 when there is none. A root bus below a function (VMD) begins anew.
 * A function that is known under another parent stays there.
 */
static int chain_add(const struct reader *r, const char *link)
{
    int root = -1, last = -1, depth = 0;
    uint8_t bus, dev, fn;
    uint32_t domain;
    char part[64];

    while (part_next(&link, part, sizeof(part))) {
        size_t n = topo_bdf_parse(part, &domain, &bus, &dev, &fn);
        int parent = last, known;

        if (n == 0 || part[n] != '\0') {
            int begins = root_parse(r->t, part);

            if (begins < 0 && last >= 0) {
                break;
            }
            if (begins >= 0) {
                root = begins;
                last = -1;
            }
            continue;
        }
        if (root < 0 || ++depth > PCI_DEPTH_MAX) {
            r->t->unknown |= TOPO_BAD;
            return -1;
        }
        known = topo_pci_find(r->t, domain, bus, dev, fn);
        last = known >= 0 ? known : topo_pci_add(r->t, domain, bus, dev, fn);
        if (last < 0) {
            return -1;
        }
        if (known < 0) {
            r->t->pci[last].parent = (int16_t)parent;
            r->t->pci[last].root = parent >= 0 ? r->t->pci[parent].root : (int16_t)root;
            function_read(r, &r->t->pci[last]);
        } else if (r->t->pci[last].parent != parent) {
            r->t->unknown |= TOPO_BAD;
        }
    }
    return last;
}

static int device_add(const struct reader *r, const char *bdf)
{
    char path[128], link[PATH_MAX];

    snprintf(path, sizeof(path), "sys/bus/pci/devices/%s", bdf);
    if (topo_io_link(r->io, path, link, sizeof(link)) != 0) {
        return -1;
    }
    return chain_add(r, link);
}

static bool gpu_visit(void *arg, const char *name)
{
    const struct reader *r = arg;
    uint32_t class = 0, vendor = 0, domain;
    uint8_t bus, dev, fn;
    size_t n = topo_bdf_parse(name, &domain, &bus, &dev, &fn);
    int i;

    if (n == 0 || name[n] != '\0' || !attr_hex(r, name, "class", 0xffffff, &class) ||
        class >> 16 != 3 || !attr_hex(r, name, "vendor", 0xffff, &vendor) ||
        !topo_is_gpu(class, (uint16_t)vendor)) {
        return true;
    }
    i = device_add(r, name);
    /* the link must lead to the function that it is named after */
    if (i >= 0 && i == topo_pci_find(r->t, domain, bus, dev, fn)) {
        topo_gpu_add(r->t, i);
    } else {
        r->t->unknown |= TOPO_BAD;
    }
    return true;
}

/* --- RDMA devices --- */

struct device {
    const struct reader *r;
    const char *name;
    int pci;
    uint64_t guid;
};

static uint64_t guid_parse(const char *text)
{
    unsigned a, b, c, d;
    int end = 0;

    if (sscanf(text, "%4x:%4x:%4x:%4x%n", &a, &b, &c, &d, &end) != 4 || text[end] != '\0') {
        return 0;
    }
    return (uint64_t)a << 48 | (uint64_t)b << 32 | (uint64_t)c << 16 | d;
}

static bool port_visit(void *arg, const char *name)
{
    const struct device *d = arg;
    char path[192], text[64];
    struct topo_nic *nic;
    const char *end;
    long port, state;

    if (!number_parse(name, 1, 254, &port, &end) || *end != '\0') {
        return true;
    }
    nic = topo_nic_add(d->r->t, d->name, (unsigned)port);
    if (nic == NULL) {
        return true;
    }
    nic->pci = (int16_t)d->pci;
    nic->guid = d->guid;
    snprintf(path, sizeof(path), "sys/class/infiniband/%s/ports/%ld/rate", d->name, port);
    if (topo_io_line(d->r->io, path, text, sizeof(text)) == 0 && strstr(text, "Gb/sec") != NULL) {
        nic->rate_mbps = decimal_parse(text, 1000, TOPO_MBPS_MAX);
    }
    snprintf(path, sizeof(path), "sys/class/infiniband/%s/ports/%ld/state", d->name, port);
    if (topo_io_line(d->r->io, path, text, sizeof(text)) == 0 &&
        number_parse(text, 1, 4, &state, NULL)) {
        nic->state = (uint8_t)state;
    }
    snprintf(path, sizeof(path), "sys/class/infiniband/%s/ports/%ld/link_layer", d->name, port);
    if (topo_io_line(d->r->io, path, text, sizeof(text)) == 0) {
        nic->layer = strcmp(text, "InfiniBand") == 0 ? TOPO_LAYER_IB
                     : strcmp(text, "Ethernet") == 0 ? TOPO_LAYER_ETH
                                                     : TOPO_LAYER_UNKNOWN;
    }
    return true;
}

static bool rdma_visit(void *arg, const char *name)
{
    const struct reader *r = arg;
    struct device d = {.r = r, .name = name, .pci = -1};
    char path[192], link[PATH_MAX], text[64], *base;

    if (strlen(name) >= TOPO_NAME) {
        r->t->unknown |= TOPO_BAD;
        return true;
    }
    snprintf(path, sizeof(path), "sys/class/infiniband/%s", name);
    if (topo_io_link(r->io, path, link, sizeof(link)) == 0) {
        d.pci = chain_add(r, link);
    }
    if (d.pci <
        0) { /* a directory in place of a link: an older kernel, or a tree that was copied */
        snprintf(path, sizeof(path), "sys/class/infiniband/%s/device", name);
        if (topo_io_link(r->io, path, link, sizeof(link)) == 0) {
            base = strrchr(link, '/');
            base = base != NULL ? base + 1 : link;
            d.pci = strlen(base) < TOPO_BDF ? device_add(r, base) : -1;
        }
    }
    snprintf(path, sizeof(path), "sys/class/infiniband/%s/node_guid", name);
    if (topo_io_line(r->io, path, text, sizeof(text)) == 0) {
        d.guid = guid_parse(text);
    }
    snprintf(path, sizeof(path), "sys/class/infiniband/%s/ports", name);
    topo_io_walk(r->io, path, port_visit, &d);
    return true;
}

/* --- CPUs --- */

static bool node_visit(void *arg, const char *name)
{
    const struct reader *r = arg;
    char path[128], text[64];
    const char *end;
    long id, cpu, socket = -1;

    if (strncmp(name, "node", 4) != 0 || !number_parse(name + 4, 0, INT16_MAX, &id, &end) ||
        *end != '\0') {
        return true;
    }
    snprintf(path, sizeof(path), "sys/devices/system/node/node%ld/cpulist", id);
    if (topo_io_line(r->io, path, text, sizeof(text)) != 0 ||
        !number_parse(text, 0, INT_MAX, &cpu, NULL)) {
        return true; /* memory without CPUs */
    }
    snprintf(path, sizeof(path), "sys/devices/system/cpu/cpu%ld/topology/physical_package_id", cpu);
    if (topo_io_line(r->io, path, text, sizeof(text)) != 0 ||
        !number_parse(text, 0, INT_MAX, &socket, NULL)) {
        socket = -1;
    }
    topo_numa_add(r->t, (int)id, (int)socket);
    return true;
}

/* The value of "key<tabs>: value" in the first lines of @text; NULL when there is none. */
static const char *info_find(const char *text, const char *key)
{
    size_t n = strlen(key);

    for (const char *p = text; p != NULL && *p; p = strchr(p, '\n'), p = p ? p + 1 : NULL) {
        if (strncmp(p, key, n) == 0) {
            size_t skip = strspn(p + n, " \t");

            if (p[n + skip] == ':') {
                return p + n + skip + 1 + strspn(p + n + skip + 1, " \t");
            }
        }
    }
    return NULL;
}

static uint16_t info_number(const char *text, const char *key)
{
    const char *v = info_find(text, key);
    long n;

    return v != NULL && number_parse(v, 0, UINT16_MAX, &n, NULL) ? (uint16_t)n : 0;
}

static void cpu_read(const struct reader *r)
{
    static const struct {
        const char *key, *value;
        enum topo_cpu cpu;
    } kinds[] = {{"vendor_id", "GenuineIntel", TOPO_CPU_INTEL},
                 {"vendor_id", "AuthenticAMD", TOPO_CPU_AMD},
                 {"vendor_id", "CentaurHauls", TOPO_CPU_ZHAOXIN},
                 {"vendor_id", "Shanghai", TOPO_CPU_ZHAOXIN},
                 {"CPU implementer", "0x", TOPO_CPU_ARM},
                 {"cpu", "POWER", TOPO_CPU_POWER}};
    char text[4096];

    if (topo_io_read(r->io, "proc/cpuinfo", text, sizeof(text)) <= 0) {
        return;
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]) && r->t->cpu == TOPO_CPU_UNKNOWN; i++) {
        const char *v = info_find(text, kinds[i].key);

        if (v != NULL && strncmp(v, kinds[i].value, strlen(kinds[i].value)) == 0) {
            r->t->cpu = kinds[i].cpu;
        }
    }
    r->t->cpu_family = info_number(text, "cpu family");
    r->t->cpu_model = info_number(text, "model");
}

int topo_sysfs_read(const struct topo_io *io, struct topo *t, char *why, size_t why_len)
{
    struct reader r = {.io = io, .t = t};

    topo_clear(t);
    t->unknown = TOPO_NO_NVLINK;
    topo_io_walk(io, "sys/devices/system/node", node_visit, &r);
    topo_io_walk(io, "sys/bus/pci/devices", gpu_visit, &r);
    topo_io_walk(io, "sys/class/infiniband", rdma_visit, &r);
    cpu_read(&r);
    return topo_finish(t, why, why_len);
}
