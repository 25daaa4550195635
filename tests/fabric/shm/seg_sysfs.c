/* A tree in the shape of sysfs for every host: what programs read about a NIC beside verbs. */
#include "tests/fabric/shm/seg.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_LEN 512

static int dirs_make(const char *path)
{
    char p[PATH_LEN];
    size_t len = strlen(path);

    if (len >= sizeof(p)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    for (size_t i = 1; i <= len; i++) {
        if (path[i] != '/' && path[i] != '\0') {
            continue;
        }
        memcpy(p, path, i);
        p[i] = '\0';
        if (mkdir(p, 0700) != 0 && errno != EEXIST) {
            return -1;
        }
    }
    return 0;
}

/* Replaces <dir>/<name> in one step, so that a reader sees the old or the new text. */
static int file_write(const char *dir, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static int file_write(const char *dir, const char *name, const char *fmt, ...)
{
    char tmp[PATH_LEN], path[PATH_LEN];
    va_list ap;

    if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path) ||
        snprintf(tmp, sizeof(tmp), "%s/%s.%d", dir, name, (int)getpid()) >= (int)sizeof(tmp)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    FILE *f = fopen(tmp, "we");
    if (f == NULL) {
        return -1;
    }
    va_start(ap, fmt);
    int n = vfprintf(f, fmt, ap);
    va_end(ap);
    if (fclose(f) != 0 || n < 0 || rename(tmp, path) != 0) {
        unlink(tmp);
        return -1;
    }
    return 0;
}

/* A link @path to @target, written from the directory that holds @path; @depth directories above it
 * is the top of the tree. */
static int link_make(const char *dir, const char *name, int depth, const char *target)
{
    char path[PATH_LEN], to[PATH_LEN];
    int n = 0;

    for (int i = 0; i < depth; i++) {
        n += snprintf(to + n, sizeof(to) - (size_t)n, "../");
    }
    if (n + snprintf(to + n, sizeof(to) - (size_t)n, "%s", target) >= (int)sizeof(to) ||
        snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return symlink(to, path);
}

static int depth_of(const char *relative)
{
    int n = 1;

    for (; *relative != '\0'; relative++) {
        n += *relative == '/';
    }
    return n;
}

static const char *ib_dir(char *buf, size_t len, const char *dir, int host, int nic)
{
    char name[32];

    fab_nic_name(nic, name, sizeof(name));
    snprintf(buf, len, "%s/host%d/sys/class/infiniband/%s", dir, host, name);
    return buf;
}

int seg_sysfs_state_set(const char *dir, int host, int nic, bool up)
{
    char base[PATH_LEN - 16], port[PATH_LEN];

    snprintf(port, sizeof(port), "%s/ports/1", ib_dir(base, sizeof(base), dir, host, nic));
    return file_write(port, "state", "%s\n", up ? "4: ACTIVE" : "1: DOWN") |
           file_write(port, "phys_state", "%s\n", up ? "5: LinkUp" : "3: Disabled");
}

int seg_sysfs_gids_set(const char *dir, int host, int nic, uint32_t epoch)
{
    char base[PATH_LEN - 32], gids[PATH_LEN], types[PATH_LEN], ndevs[PATH_LEN], name[12];
    int rc = 0;

    ib_dir(base, sizeof(base), dir, host, nic);
    snprintf(gids, sizeof(gids), "%s/ports/1/gids", base);
    snprintf(types, sizeof(types), "%s/ports/1/gid_attrs/types", base);
    snprintf(ndevs, sizeof(ndevs), "%s/ports/1/gid_attrs/ndevs", base);
    if (dirs_make(gids) != 0 || dirs_make(types) != 0 || dirs_make(ndevs) != 0) {
        return -1;
    }
    for (int i = 0; i < FAB_GIDS; i++) {
        union ibv_gid g;
        uint16_t w[8];
        fab_gid_make(host, nic, epoch, i, &g);
        for (int k = 0; k < 8; k++) {
            w[k] = (uint16_t)(g.raw[2 * k] << 8 | g.raw[2 * k + 1]);
        }
        snprintf(name, sizeof(name), "%d", i);
        rc |= file_write(gids, name, "%04x:%04x:%04x:%04x:%04x:%04x:%04x:%04x\n", w[0], w[1], w[2],
                         w[3], w[4], w[5], w[6], w[7]);
        rc |= file_write(types, name, "%s\n", i % 2 != 0 ? "RoCE v2" : "IB/RoCE v1");
        rc |= file_write(ndevs, name, "softfab%d\n", nic);
    }
    return rc;
}

/* Bridges above the function. */
static int bridges_write(const char *sys, const char *pci)
{
    char dir[PATH_LEN];
    int rc = 0;

    for (const char *p = strchr(pci, '/'); p != NULL && (p = strchr(p + 1, '/')) != NULL;) {
        snprintf(dir, sizeof(dir), "%s/devices/%.*s", sys, (int)(p - pci), pci);
        rc |= file_write(dir, "class", "0x060400\n");
    }
    return rc;
}

/* The PCI function: what a topology reader looks at. 0x15b3/0x1017 is a common 100 Gb/s Ethernet
 * NIC. */
static int pci_write(const char *sys, const struct fab_nic_desc *nd)
{
    char device[PATH_LEN - 64], bus[PATH_LEN];
    const char *bdf = strrchr(nd->pci, '/');

    snprintf(device, sizeof(device), "%s/devices/%s", sys, nd->pci);
    snprintf(bus, sizeof(bus), "%s/bus/pci/devices", sys);
    if (dirs_make(device) != 0 || dirs_make(bus) != 0) {
        return -1;
    }
    char target[PATH_LEN];
    snprintf(target, sizeof(target), "devices/%s", nd->pci);
    if (bdf != NULL && link_make(bus, bdf + 1, 3, target) != 0 && errno != EEXIST) {
        return -1;
    }
    return bridges_write(sys, nd->pci) | file_write(device, "numa_node", "%d\n", nd->numa) |
           file_write(device, "class", "0x020000\n") | file_write(device, "vendor", "0x15b3\n") |
           file_write(device, "device", "0x1017\n") |
           file_write(device, "subsystem_vendor", "0x15b3\n") |
           file_write(device, "subsystem_device", "0x0002\n") |
           file_write(device, "max_link_speed", "16.0 GT/s PCIe\n") |
           file_write(device, "max_link_width", "16\n") |
           file_write(device, "current_link_speed", "16.0 GT/s PCIe\n") |
           file_write(device, "current_link_width", "16\n") |
           link_make(device, "subsystem", 1 + depth_of(nd->pci), "bus/pci");
}

static int ib_write(const char *sys, const struct fab_desc *d, int host, int nic)
{
    const struct fab_nic_desc *nd = &d->nic[host][nic];
    char device[PATH_LEN - 64], ib[PATH_LEN], class[PATH_LEN], name[32], target[PATH_LEN],
        uverbs[32];
    uint64_t g = be64toh(fab_nic_guid(host, nic));

    fab_nic_name(nic, name, sizeof(name));
    snprintf(uverbs, sizeof(uverbs), "uverbs%d", nic);
    snprintf(device, sizeof(device), "%s/devices/%s", sys, nd->pci);
    snprintf(ib, sizeof(ib), "%s/infiniband/%s/ports/1", device, name);
    if (dirs_make(ib) != 0) {
        return -1;
    }
    int rc =
        file_write(ib, "link_layer", "Ethernet\n") |
        file_write(ib, "rate", "%.4g Gb/sec\n", nd->rate == 0 ? 100.0 : (double)nd->rate * 8e-9) |
        file_write(ib, "lid", "0x0\n");
    snprintf(ib, sizeof(ib), "%s/infiniband/%s", device, name);
    rc |= file_write(ib, "node_guid", "%04x:%04x:%04x:%04x\n", (unsigned)(g >> 48),
                     (unsigned)(g >> 32 & 0xffff), (unsigned)(g >> 16 & 0xffff),
                     (unsigned)(g & 0xffff)) |
          file_write(ib, "node_type", "1: CA\n") | file_write(ib, "fw_ver", R2_VERSION "\n") |
          link_make(ib, "device", 0, "../..");
    snprintf(class, sizeof(class), "%s/class/infiniband", sys);
    rc |= dirs_make(class);
    snprintf(target, sizeof(target), "devices/%s/infiniband/%s", nd->pci, name);
    rc |= link_make(class, name, 2, target);

    snprintf(ib, sizeof(ib), "%s/infiniband_verbs/%s", device, uverbs);
    rc |= dirs_make(ib) | file_write(ib, "ibdev", "%s\n", name) |
          file_write(ib, "abi_version", "1\n") | link_make(ib, "device", 0, "../..");
    snprintf(class, sizeof(class), "%s/class/infiniband_verbs", sys);
    rc |= dirs_make(class);
    snprintf(target, sizeof(target), "devices/%s/infiniband_verbs/%s", nd->pci, uverbs);
    rc |= link_make(class, uverbs, 2, target);
    return rc;
}

int seg_sysfs_device_set(const char *dir, const struct fab_desc *d, int host, int nic, bool there)
{
    const char *pci = d->nic[host][nic].pci;
    char sys[SEG_PATH_MAX + 32], path[PATH_LEN], name[32];

    snprintf(sys, sizeof(sys), "%s/host%d/sys", dir, host);
    fab_nic_name(nic, name, sizeof(name));
    snprintf(path, sizeof(path), "%s/class/infiniband/%s", sys, name);
    if (there) {
        return access(path, F_OK) == 0
                   ? 0
                   : ib_write(sys, d, host, nic) | seg_sysfs_gids_set(dir, host, nic, 0) |
                         seg_sysfs_state_set(dir, host, nic, true);
    }
    unlink(path);
    snprintf(path, sizeof(path), "%s/class/infiniband_verbs/uverbs%d", sys, nic);
    unlink(path);
    snprintf(path, sizeof(path), "%s/devices/%s/infiniband_verbs", sys, pci);
    seg_dir_remove(path);
    snprintf(path, sizeof(path), "%s/devices/%s/infiniband", sys, pci);
    return seg_dir_remove(path);
}

static int gpu_write(const char *dir, int host)
{
    char at[SEG_PATH_MAX + 64];

    snprintf(at, sizeof(at), "%s/host%d/" SEG_GPU_DIR, dir, host);
    return dirs_make(at) | file_write(at, "version", "softfab\n");
}

int seg_sysfs_write(const char *dir, const struct fab_desc *d, bool gpu, char *why, size_t why_len)
{
    char sys[SEG_PATH_MAX + 32];

    for (int h = 0; h < d->hosts; h++) {
        snprintf(sys, sizeof(sys), "%s/host%d/sys", dir, h);
        if (gpu && gpu_write(dir, h) != 0) {
            snprintf(why, why_len, "cannot write " SEG_GPU_FILE " of host %d below %s: %s", h, dir,
                     strerror(errno));
            return -1;
        }
        for (int n = 0; n < d->nics; n++) {
            if (pci_write(sys, &d->nic[h][n]) != 0 || ib_write(sys, d, h, n) != 0 ||
                seg_sysfs_gids_set(dir, h, n, 0) != 0 ||
                seg_sysfs_state_set(dir, h, n, true) != 0) {
                snprintf(why, why_len, "cannot write the device tree of h%d:n%d below %s: %s", h, n,
                         dir, strerror(errno));
                return -1;
            }
        }
    }
    return 0;
}
