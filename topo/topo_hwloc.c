#include "topo_hwloc.h"

#include <errno.h>
#include <hwloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * hwloc tells GB/s of a link after its encoding, in place of speed and width. The nearest pair,
 * which may be another one with the same capacity (16 lanes of 8 GT/s are 8 of 16); neighbours
 * among the values are 1.5 % apart.
 */
static uint32_t link_of(float gbytes)
{
    static const unsigned gts10[] = {25, 50, 80, 160, 320, 640},
                          widths[] = {1, 2, 4, 8, 12, 16, 32};
    double best = 0.007; /* of the value: half of that distance */
    uint32_t mbps = 0;

    if (!(gbytes > 0) || !isfinite(gbytes)) {
        return 0;
    }
    for (size_t s = 0; s < sizeof(gts10) / sizeof(gts10[0]); s++) {
        for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++) {
            double lane = gts10[s] <= 50 ? gts10[s] * 0.8 : gts10[s] * 128.0 / 130;
            double off = fabs((double)gbytes / (lane / 80 * widths[w]) - 1);

            if (off < best) {
                best = off;
                mbps = topo_link_mbps(gts10[s], widths[w]);
            }
        }
    }
    return mbps;
}

/* The one NUMA node (the kernel's number) that a device is near; -1: none, or several. */
static int numa_near(hwloc_topology_t h, hwloc_obj_t io)
{
    hwloc_obj_t obj = hwloc_get_non_io_ancestor_obj(h, io);
    int node;

    if (obj == NULL || obj->nodeset == NULL || hwloc_bitmap_weight(obj->nodeset) != 1) {
        return -1;
    }
    node = hwloc_bitmap_first(obj->nodeset);
    return node <= INT16_MAX ? node : -1;
}

static const struct hwloc_pcidev_attr_s *function_of(hwloc_obj_t obj)
{
    if (obj->type == HWLOC_OBJ_PCI_DEVICE) {
        return &obj->attr->pcidev;
    }
    if (obj->type == HWLOC_OBJ_BRIDGE && obj->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI) {
        return &obj->attr->bridge.upstream.pci;
    }
    return NULL;
}

static int function_add(hwloc_topology_t h, struct topo *t, hwloc_obj_t obj, int root)
{
    const struct hwloc_pcidev_attr_s *a = function_of(obj);
    int i = topo_pci_find(t, a->domain, a->bus, a->dev, a->func);
    struct topo_pci *p;

    if (i >= 0) {
        return i;
    }
    i = topo_pci_add(t, a->domain, a->bus, a->dev, a->func);
    if (i < 0) {
        return -1;
    }
    p = &t->pci[i];
    p->root = (int16_t)root;
    p->class = (uint32_t)a->class_id << 8;
    p->vendor = a->vendor_id;
    p->device = a->device_id;
    p->numa = (int16_t)numa_near(h, obj);
    p->cur_mbps = link_of(a->linkspeed);
    return i;
}

/* A function and the bridges above it; its index, -1: no PCI function, or no room. */
static int chain_add(hwloc_topology_t h, struct topo *t, hwloc_obj_t obj)
{
    int first = -1, below = -1, root = -1;
    hwloc_obj_t host = obj;

    while (host != NULL && !(host->type == HWLOC_OBJ_BRIDGE &&
                             host->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST)) {
        host = host->parent;
    }
    if (host == NULL) {
        return -1;
    }
    root = topo_root_add(t, host->attr->bridge.downstream.pci.domain,
                         host->attr->bridge.downstream.pci.secondary_bus);
    for (; obj != host && root >= 0; obj = obj->parent) {
        int i = function_of(obj) != NULL ? function_add(h, t, obj, root) : -1;

        if (i < 0) {
            return -1;
        }
        if (below >= 0) {
            t->pci[below].parent = (int16_t)i;
        }
        first = first < 0 ? i : first;
        below = i;
    }
    return first;
}

/* --- RDMA devices --- */

static uint64_t guid_parse(const char *text)
{
    unsigned a, b, c, d;

    if (text == NULL || sscanf(text, "%4x:%4x:%4x:%4x", &a, &b, &c, &d) != 4) {
        return 0;
    }
    return (uint64_t)a << 48 | (uint64_t)b << 32 | (uint64_t)c << 16 | d;
}

static void nic_add(hwloc_topology_t h, struct topo *t, hwloc_obj_t os)
{
    hwloc_obj_t pci = os->parent;
    int at;

    while (pci != NULL && pci->type == HWLOC_OBJ_OS_DEVICE) {
        pci = pci->parent;
    }
    at = pci != NULL && pci->type == HWLOC_OBJ_PCI_DEVICE ? chain_add(h, t, pci) : -1;
    for (unsigned port = 1; port < 255; port++) {
        char key[32];
        const char *state;
        struct topo_nic *nic;

        snprintf(key, sizeof(key), "Port%uState", port);
        state = hwloc_obj_get_info_by_name(os, key);
        if (state == NULL) {
            return;
        }
        nic = topo_nic_add(t, os->name != NULL ? os->name : "", port);
        if (nic == NULL) {
            return;
        }
        nic->pci = (int16_t)at;
        nic->state =
            state[0] >= '1' && state[0] <= '4' ? (uint8_t)(state[0] - '0') : TOPO_STATE_UNKNOWN;
        nic->guid = guid_parse(hwloc_obj_get_info_by_name(os, "NodeGUID"));
    }
}

/* --- CPUs --- */

static void numas_read(hwloc_topology_t h, struct topo *t)
{
    for (hwloc_obj_t n = NULL;
         (n = hwloc_get_next_obj_by_type(h, HWLOC_OBJ_NUMANODE, n)) != NULL;) {
        int cpu = n->cpuset != NULL ? hwloc_bitmap_first(n->cpuset) : -1;
        hwloc_obj_t pu = cpu >= 0 ? hwloc_get_pu_obj_by_os_index(h, (unsigned)cpu) : NULL;
        hwloc_obj_t package =
            pu != NULL ? hwloc_get_ancestor_obj_by_type(h, HWLOC_OBJ_PACKAGE, pu) : NULL;

        if (pu != NULL && n->os_index <= INT16_MAX) {
            topo_numa_add(t, (int)n->os_index,
                          package != NULL && package->os_index <= INT_MAX ? (int)package->os_index
                                                                          : -1);
        }
    }
}

static const char *info_get(hwloc_topology_t h, const char *name)
{
    hwloc_obj_t package = hwloc_get_obj_by_type(h, HWLOC_OBJ_PACKAGE, 0);
    const char *value = package != NULL ? hwloc_obj_get_info_by_name(package, name) : NULL;

    if (value == NULL) {
        value = hwloc_obj_get_info_by_name(hwloc_get_root_obj(h), name);
    }
    return value != NULL ? value : "";
}

static uint16_t info_number(hwloc_topology_t h, const char *name)
{
    long v = strtol(info_get(h, name), NULL, 10);

    return v > 0 && v <= UINT16_MAX ? (uint16_t)v : 0;
}

static void cpu_read(hwloc_topology_t h, struct topo *t)
{
    const char *vendor = info_get(h, "CPUVendor");

    if (strcmp(vendor, "GenuineIntel") == 0) {
        t->cpu = TOPO_CPU_INTEL;
    } else if (strcmp(vendor, "AuthenticAMD") == 0) {
        t->cpu = TOPO_CPU_AMD;
    } else if (strcmp(vendor, "CentaurHauls") == 0 || strstr(vendor, "Shanghai") != NULL) {
        t->cpu = TOPO_CPU_ZHAOXIN;
    } else if (info_get(h, "CPUImplementer")[0] != '\0') {
        t->cpu = TOPO_CPU_ARM;
    } else if (strncmp(info_get(h, "CPUModel"), "POWER", 5) == 0) {
        t->cpu = TOPO_CPU_POWER;
    }
    t->cpu_family = info_number(h, "CPUFamilyNumber");
    t->cpu_model = info_number(h, "CPUModelNumber");
}

static void all_read(hwloc_topology_t h, struct topo *t)
{
    t->unknown = TOPO_NO_NVLINK | TOPO_NO_MAX_LINK;
    numas_read(h, t);
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_pcidev(h, o)) != NULL;) {
        if (topo_is_gpu((uint32_t)o->attr->pcidev.class_id << 8, o->attr->pcidev.vendor_id)) {
            int i = chain_add(h, t, o);

            if (i >= 0) {
                topo_gpu_add(t, i);
            }
        }
    }
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_osdev(h, o)) != NULL;) {
        if (o->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS) {
            nic_add(h, t, o);
        }
    }
    cpu_read(h, t);
}

static int open_failed(const struct topo_hwloc_params *params, char *why, size_t why_len)
{
    snprintf(why, why_len, "hwloc cannot read %s: %s",
             params->xml    ? params->xml
             : params->root ? params->root
                            : "this machine",
             strerror(errno));
    return -1;
}

__attribute__((visibility("default"))) int
r2_topo_hwloc_read(const struct topo_hwloc_params *params, struct topo *t, char *why,
                   size_t why_len);

int r2_topo_hwloc_read(const struct topo_hwloc_params *params, struct topo *t, char *why,
                       size_t why_len)
{
    hwloc_topology_t h;
    int rc;

    if (params->abi != TOPO_HWLOC_ABI || params->size != sizeof(*params) || t->abi != TOPO_ABI ||
        t->size != sizeof(*t)) {
        snprintf(why, why_len, "%s is of another version", TOPO_HWLOC_MODULE);
        return -1;
    }
    topo_clear(t);
    errno = 0;
    /* CPUID would be that of the machine we run on */
    if (params->root != NULL && (setenv("HWLOC_FSROOT", params->root, 1) != 0 ||
                                 setenv("HWLOC_COMPONENTS", "-x86", 1) != 0)) {
        return open_failed(params, why, why_len);
    }
    if (hwloc_topology_init(&h) != 0) {
        return open_failed(params, why, why_len);
    }
    rc = hwloc_topology_set_io_types_filter(h, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (rc == 0 && params->xml != NULL) {
        rc = hwloc_topology_set_xml(h, params->xml);
    }
    if (rc == 0) {
        rc = hwloc_topology_load(h);
    }
    if (rc == 0) {
        all_read(h, t);
    }
    hwloc_topology_destroy(h);
    if (params->root != NULL) {
        unsetenv("HWLOC_FSROOT");
        unsetenv("HWLOC_COMPONENTS");
    }
    return rc != 0 ? open_failed(params, why, why_len) : topo_finish(t, why, why_len);
}
