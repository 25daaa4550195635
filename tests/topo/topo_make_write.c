#include "tests/topo/topo_make.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[PATH_MAX / 4];

static void dirs_make(char *path)
{
    for (char *p = strchr(path + 1, '/'); p != NULL; p = strchr(p + 1, '/')) {
        *p = '\0';
        if (mkdir(path, 0755) != 0 && errno != EEXIST) {
            make_fail("%s: %s", path, strerror(errno));
        }
        *p = '/';
    }
}

static void bytes_put(const char *place, const void *data, size_t len)
{
    char path[PATH_MAX];
    int fd;

    if (snprintf(path, sizeof(path), "%s/%s", root, place) >= (int)sizeof(path)) {
        make_fail("%s: the name is too long", place);
    }
    dirs_make(path);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, data, len) != (ssize_t)len) {
        make_fail("%s: %s", path, strerror(errno));
    }
    close(fd);
}

static void put(const char *dir, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void put(const char *dir, const char *name, const char *fmt, ...)
{
    char path[PATH_MAX], text[8192];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof(text) ||
        snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path)) {
        make_fail("%s: too long", name);
    }
    bytes_put(path, text, (size_t)n);
}

static void link_put(const char *place, const char *target)
{
    char path[PATH_MAX];

    if (snprintf(path, sizeof(path), "%s/%s", root, place) >= (int)sizeof(path)) {
        make_fail("%s: the name is too long", place);
    }
    dirs_make(path);
    if (symlink(target, path) != 0) {
        make_fail("%s: %s", path, strerror(errno));
    }
}

/* --- PCI functions --- */

/* "devices/pci0000:15/0000:15:01.0/..." */
static void place_get(const struct make_machine *m, int i, char *out, size_t len)
{
    char above[PATH_MAX / 2] = "devices";

    if (m->item[i].parent >= 0) {
        place_get(m, m->item[i].parent, above, sizeof(above));
    }
    if (snprintf(out, len, "%s/%s", above, m->item[i].place) >= (int)len) {
        make_fail("%s: too deep", m->item[i].place);
    }
}

static unsigned last_bus(const struct make_machine *m, int bridge)
{
    unsigned last = 0;

    for (int i = 0; i < m->items; i++) {
        if (m->item[i].parent == bridge) {
            unsigned below = m->item[i].kind == MAKE_BRIDGE ? last_bus(m, i) : 0;

            last = m->item[i].bus > last ? m->item[i].bus : last;
            last = below > last ? below : last;
        }
    }
    return last;
}

static unsigned first_bus(const struct make_machine *m, int bridge)
{
    for (int i = 0; i < m->items; i++) {
        if (m->item[i].parent == bridge) {
            return m->item[i].bus;
        }
    }
    return 0;
}

/* The head of the configuration space, by which hwloc finds what is below a bridge. */
static void config_put(const struct make_machine *m, int i, const char *dir)
{
    const struct make_item *it = &m->item[i];
    unsigned char c[64] = {(unsigned char)it->vendor, (unsigned char)(it->vendor >> 8),
                           (unsigned char)it->device, (unsigned char)(it->device >> 8)};
    char path[PATH_MAX];

    c[0x09] = (unsigned char)it->class;
    c[0x0a] = (unsigned char)(it->class >> 8);
    c[0x0b] = (unsigned char)(it->class >> 16);
    if (it->kind == MAKE_BRIDGE) {
        c[0x0e] = 1;
        c[0x18] = (unsigned char)it->bus;
        c[0x19] = (unsigned char)first_bus(m, i);
        c[0x1a] = (unsigned char)last_bus(m, i);
    }
    if (snprintf(path, sizeof(path), "%s/config", dir) < (int)sizeof(path)) {
        bytes_put(path, c, sizeof(c));
    }
}

static void speed_put(const char *dir, const char *which, const char *link)
{
    char name[40], speed[16];
    unsigned width = 0;

    if (link[0] == '\0') {
        return;
    }
    snprintf(name, sizeof(name), "%s_link_speed", which);
    if (sscanf(link, "%15[0-9.]x%u", speed, &width) == 2) {
        put(dir, name, "%s%s GT/s PCIe\n", speed, strchr(speed, '.') ? "" : ".0");
    } else {
        put(dir, name, "Unknown\n");
    }
    snprintf(name, sizeof(name), "%s_link_width", which);
    put(dir, name, "%u\n", width);
}

/* Which CPUs are near, as the kernel writes a mask. */
static unsigned long long cpus_of(const struct make_machine *m, int node)
{
    unsigned long long mask = 0;
    int first = 0;

    for (int i = 0; i < m->nodes; i++) {
        if (m->node[i].memory_only) {
            continue;
        }
        if (node < 0 || m->node[i].id == node) {
            mask |= ((1ull << MAKE_CPUS) - 1) << first;
        }
        first += MAKE_CPUS;
    }
    return mask;
}

static void mask_text(unsigned long long mask, char *out, size_t len)
{
    snprintf(out, len, "%08llx,%08llx", mask >> 32, mask & 0xffffffff);
}

static void nic_put(const struct make_item *it, const char *place)
{
    static const char *const states[] = {"0: NOP",   "1: DOWN",   "2: INIT",
                                         "3: ARMED", "4: ACTIVE", "5: ACTIVE_DEFER"};
    char dir[PATH_MAX], port[PATH_MAX], link[PATH_MAX];

    if (snprintf(dir, sizeof(dir), "sys/%s/infiniband/%s", place, it->name) >= (int)sizeof(dir)) {
        make_fail("%s: too deep", place);
    }
    put(dir, "node_guid", "%s\n", it->guid[0] ? it->guid : "0000:0000:0000:0000");
    put(dir, "sys_image_guid", "%s\n", it->guid[0] ? it->guid : "0000:0000:0000:0000");
    for (int p = 0; p < it->ports; p++) {
        if (snprintf(port, sizeof(port), "%s/ports/%d", dir, p + 1) >= (int)sizeof(port)) {
            make_fail("%s: too deep", place);
        }
        put(port, "rate", "%g Gb/sec (4X)\n", it->rate[p]);
        put(port, "state", "%s\n", states[it->state < 6 ? it->state : 0]);
        put(port, "link_layer", "%s\n", it->layer);
        put(port, "lid", "0x1\n");
        put(port, "lid_mask_count", "0\n");
        put(port, "gids/0", "fe80:0000:0000:0000:%s\n",
            it->guid[0] ? it->guid : "0000:0000:0000:0000");
    }
    snprintf(port, sizeof(port), "sys/%.2000s/infiniband/%s/device", place, it->name);
    snprintf(link, sizeof(link), "../../../%s", it->place);
    link_put(port, link);
    snprintf(port, sizeof(port), "sys/class/infiniband/%s", it->name);
    snprintf(link, sizeof(link), "../../%.2000s/infiniband/%s", place, it->name);
    link_put(port, link);
}

static void item_put(const struct make_machine *m, int i)
{
    const struct make_item *it = &m->item[i];
    char place[PATH_MAX / 2], dir[PATH_MAX], link[PATH_MAX], mask[40];

    if (it->kind == MAKE_ROOT) {
        return;
    }
    place_get(m, i, place, sizeof(place));
    snprintf(dir, sizeof(dir), "sys/%s", place);
    put(dir, "class", "0x%06x\n", it->class);
    put(dir, "vendor", "0x%04x\n", it->vendor);
    put(dir, "device", "0x%04x\n", it->device);
    put(dir, "subsystem_vendor", "0x%04x\n", it->vendor);
    put(dir, "subsystem_device", "0x0000\n");
    put(dir, "numa_node", "%d\n", it->node);
    mask_text(cpus_of(m, it->node), mask, sizeof(mask));
    put(dir, "local_cpus", "%s\n", mask);
    speed_put(dir, "current", it->cur);
    speed_put(dir, "max", it->max);
    config_put(m, i, dir);
    snprintf(dir, sizeof(dir), "sys/bus/pci/devices/%s", it->place);
    snprintf(link, sizeof(link), "../../../%s", place);
    link_put(dir, link);
    if (it->kind == MAKE_NIC) {
        nic_put(it, place);
    }
}

/* --- CPUs --- */

static void cpu_put(const struct make_machine *m, const struct make_node *n, int cpu)
{
    unsigned long long package = 0;
    char dir[128], mask[40];

    for (int i = 0; i < m->nodes; i++) {
        if (m->node[i].socket == n->socket) {
            package |= m->node[i].memory_only ? 0 : cpus_of(m, m->node[i].id);
        }
    }
    snprintf(dir, sizeof(dir), "sys/devices/system/cpu/cpu%d/topology", cpu);
    put(dir, "physical_package_id", "%d\n", n->socket);
    put(dir, "core_id", "%d\n", cpu);
    mask_text(package, mask, sizeof(mask));
    put(dir, "core_siblings", "%s\n", mask);
    put(dir, "package_cpus", "%s\n", mask);
    mask_text(1ull << cpu, mask, sizeof(mask));
    put(dir, "thread_siblings", "%s\n", mask);
    put(dir, "core_cpus", "%s\n", mask);
}

static size_t info_line(const struct make_machine *m, int cpu, char *out, size_t len)
{
    if (strncmp(m->cpu[0], "0x", 2) == 0) {
        return (size_t)snprintf(
            out, len,
            "processor\t: %d\nCPU implementer\t: %s\nCPU architecture: %s\nCPU part\t: %s\n\n", cpu,
            m->cpu[0], m->cpu[1], m->cpu[2]);
    }
    return (size_t)snprintf(
        out, len,
        "processor\t: %d\nvendor_id\t: %s\ncpu family\t: %s\nmodel\t\t: %s\nmodel name\t: %s\n\n",
        cpu, m->cpu[0], m->cpu[1], m->cpu[2], m->cpu[0]);
}

static void host_put(const struct make_machine *m)
{
    char info[8000] = "", dir[128], mask[40], online[16];
    size_t used = 0;
    int cpu = 0;

    for (int i = 0; i < m->nodes; i++) {
        const struct make_node *n = &m->node[i];
        bool has = !n->memory_only;

        snprintf(dir, sizeof(dir), "sys/devices/system/node/node%d", n->id);
        mask_text(has ? cpus_of(m, n->id) : 0, mask, sizeof(mask));
        put(dir, "cpumap", "%s\n", mask);
        if (has) {
            put(dir, "cpulist", "%d-%d\n", cpu, cpu + MAKE_CPUS - 1);
        } else {
            put(dir, "cpulist", "\n");
        }
        put(dir, "meminfo", "Node %d MemTotal:       1048576 kB\n", n->id);
        for (int c = 0; has && c < MAKE_CPUS && used < sizeof(info) - 256; c++, cpu++) {
            cpu_put(m, n, cpu);
            used += info_line(m, cpu, info + used, sizeof(info) - used);
        }
    }
    snprintf(online, sizeof(online), "0-%d\n", cpu - 1);
    put("sys/devices/system/cpu", "online", "%s", online);
    put("sys/devices/system/cpu", "possible", "%s", online);
    put("sys/devices/system/cpu", "present", "%s", online);
    put("proc", "cpuinfo", "%s", info);
    /* what a kernel says without files: hwloc reads it in captured trees */
    put("proc", "hwloc-nofile-info", "OSName: Linux\nArchitecture: %s\n",
        strncmp(m->cpu[0], "0x", 2) == 0 ? "aarch64" : "x86_64");
    put("proc", "meminfo", "MemTotal:        4194304 kB\n");
    if (m->links[0]) {
        put("etc/nccl-net-r2", "links", "%s", m->links);
    }
}

void make_write(const struct make_machine *m, const char *dir)
{
    if (strlen(dir) >= sizeof(root)) {
        make_fail("%s: the name is too long", dir);
    }
    strcpy(root, dir);
    host_put(m);
    for (int i = 0; i < m->items; i++) {
        item_put(m, i);
    }
}
