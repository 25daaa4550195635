#include "topo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(struct topo *t, char *why, size_t why_len, const char *what)
{
    topo_clear(t);
    snprintf(why, why_len, "the topology contradicts itself: %s", what);
    return -1;
}

/* --- order --- */

static int pci_compare(const void *a, const void *b)
{
    const struct topo_pci *p = a, *q = b;
    int d = (p->domain > q->domain) - (p->domain < q->domain);

    if (d == 0) {
        d = p->bus - q->bus;
    }
    if (d == 0) {
        d = p->dev - q->dev;
    }
    return d ? d : p->fn - q->fn;
}

static int root_compare(const void *a, const void *b)
{
    const struct topo_root *p = a, *q = b;
    int d = (p->domain > q->domain) - (p->domain < q->domain);

    return d ? d : p->bus - q->bus;
}

static int numa_compare(const void *a, const void *b)
{
    const struct topo_numa *p = a, *q = b;

    return (p->id > q->id) - (p->id < q->id);
}

/* NICs without a PCI function come last. Indices of pci[] are in the order of addresses by now. */
static int nic_compare(const void *a, const void *b)
{
    const struct topo_nic *p = a, *q = b;
    int d = (uint16_t)p->pci - (uint16_t)q->pci;

    if (d == 0) {
        d = p->port - q->port;
    }
    if (d == 0) {
        d = (p->guid > q->guid) - (p->guid < q->guid);
    }
    return d ? d : strcmp(p->name, q->name);
}

static int gpu_compare(const void *a, const void *b)
{
    const struct topo_gpu *p = a, *q = b;

    return p->pci - q->pci;
}

/* --- checks --- */

/* Every index within its table, and every chain of parents ends. */
static const char *refs_check(const struct topo *t)
{
    for (int i = 0; i < t->pcis; i++) {
        int steps = 0;

        if (t->pci[i].root < 0 || t->pci[i].root >= t->roots) {
            return "a PCI function without a root bus";
        }
        for (int p = t->pci[i].parent; p != -1; p = t->pci[p].parent) {
            if (p < 0 || p >= t->pcis || ++steps > t->pcis) {
                return "a PCI function that is above itself";
            }
            if (t->pci[p].root != t->pci[i].root) {
                return "a PCI function below two root buses";
            }
        }
    }
    for (int i = 0; i < t->nics; i++) {
        if (t->nic[i].pci < -1 || t->nic[i].pci >= t->pcis) {
            return "a NIC without its PCI function";
        }
    }
    for (int i = 0; i < t->gpus; i++) {
        if (t->gpu[i].pci < 0 || t->gpu[i].pci >= t->pcis) {
            return "a GPU without its PCI function";
        }
    }
    return NULL;
}

/* By address; everything that named a function by its old index follows. */
static void pci_sort(struct topo *t)
{
    struct topo_pci old[TOPO_PCI_MAX];
    int16_t to[TOPO_PCI_MAX];

    memcpy(old, t->pci, sizeof(old));
    qsort(t->pci, t->pcis, sizeof(t->pci[0]), pci_compare);
    for (int i = 0; i < t->pcis; i++) {
        to[i] = (int16_t)topo_pci_find(t, old[i].domain, old[i].bus, old[i].dev, old[i].fn);
    }
    for (int i = 0; i < t->pcis; i++) {
        if (t->pci[i].parent >= 0) {
            t->pci[i].parent = to[t->pci[i].parent];
        }
    }
    for (int i = 0; i < t->nics; i++) {
        if (t->nic[i].pci >= 0) {
            t->nic[i].pci = to[t->nic[i].pci];
        }
    }
    for (int i = 0; i < t->gpus; i++) {
        t->gpu[i].pci = to[t->gpu[i].pci];
    }
}

static void root_sort(struct topo *t)
{
    struct topo_root old[TOPO_ROOTS_MAX];

    memcpy(old, t->root, sizeof(old));
    qsort(t->root, t->roots, sizeof(t->root[0]), root_compare);
    for (int i = 0; i < t->pcis; i++) {
        const struct topo_root *r = &old[t->pci[i].root];

        t->pci[i].root = (int16_t)topo_root_add(t, r->domain, r->bus);
    }
}

static void gpu_sort(struct topo *t)
{
    uint32_t links[TOPO_GPUS_MAX][TOPO_GPUS_MAX];
    struct topo_gpu old[TOPO_GPUS_MAX];
    int to[TOPO_GPUS_MAX];

    memcpy(old, t->gpu, sizeof(old));
    memcpy(links, t->nvlink_mbps, sizeof(links));
    qsort(t->gpu, t->gpus, sizeof(t->gpu[0]), gpu_compare);
    for (int i = 0; i < t->gpus; i++) {
        to[i] = topo_gpu_add(t, old[i].pci);
    }
    memset(t->nvlink_mbps, 0, sizeof(t->nvlink_mbps));
    for (int i = 0; i < t->gpus; i++) {
        for (int k = 0; k < t->gpus; k++) {
            t->nvlink_mbps[to[i]][to[k]] = i == k ? 0 : links[i][k];
        }
    }
}

static const char *twins_check(const struct topo *t)
{
    for (int i = 1; i < t->pcis; i++) {
        if (pci_compare(&t->pci[i - 1], &t->pci[i]) == 0) {
            return "two PCI functions with one address";
        }
    }
    for (int i = 1; i < t->nics; i++) {
        if (nic_compare(&t->nic[i - 1], &t->nic[i]) == 0) {
            return "two NIC ports that cannot be told apart";
        }
    }
    return NULL;
}

/* --- places --- */

static int numa_index(const struct topo *t, int id)
{
    for (int i = 0; i < t->numas; i++) {
        if (t->numa[i].id == id) {
            return i;
        }
    }
    return -1;
}

static void sockets_number(struct topo *t)
{
    for (int i = 0; i < t->numas; i++) {
        int below = 0;

        for (int k = 0; k < t->numas; k++) {
            bool first = true;

            for (int j = 0; j < k; j++) {
                first = first && t->numa[j].socket != t->numa[k].socket;
            }
            below += first && t->numa[k].socket >= 0 && t->numa[k].socket < t->numa[i].socket;
        }
        if (t->numa[i].socket >= 0 && below < TOPO_SOCKETS_MAX) {
            t->numa[i].socket_index = (int8_t)below;
            t->sockets = below + 1 > t->sockets ? (uint8_t)(below + 1) : t->sockets;
        } else {
            t->numa[i].socket_index = -1;
        }
    }
}

/* By depth: a parent's node is known before its children ask. */
static void numa_place(struct topo *t)
{
    for (int i = 0; i < t->pcis; i++) {
        t->pci[i].numa = (int16_t)numa_index(t, t->pci[i].numa);
        if (t->numas == 1) {
            t->pci[i].numa = 0;
        }
    }
    for (int i = 0; i < t->pcis; i++) {
        for (int p = t->pci[i].parent; t->pci[i].numa < 0 && p >= 0; p = t->pci[p].parent) {
            t->pci[i].numa = t->pci[p].numa;
        }
    }
    for (int r = 0; r < t->roots; r++) {
        t->root[r].numa = -1;
    }
    for (int i = 0; i < t->pcis; i++) {
        struct topo_root *r = &t->root[t->pci[i].root];

        if (r->numa < 0) {
            r->numa = t->pci[i].numa;
        }
    }
    for (int i = 0; i < t->pcis; i++) {
        if (t->pci[i].numa < 0) {
            t->pci[i].numa = t->root[t->pci[i].root].numa;
        }
    }
}

/* --- capacities --- */

static bool is_bridge(const struct topo_pci *p)
{
    return p->class >> 8 == 0x0604;
}

static enum topo_port port_of(const struct topo *t, const struct topo_pci *p)
{
    enum topo_port above;

    if (p->parent < 0) {
        return is_bridge(p) ? TOPO_PORT_ROOT : TOPO_PORT_INSIDE;
    }
    above = port_of(t, &t->pci[p->parent]);
    if (above == TOPO_PORT_ROOT || above == TOPO_PORT_DOWN) {
        return is_bridge(p) ? TOPO_PORT_UP : TOPO_PORT_END;
    }
    return is_bridge(p) ? TOPO_PORT_DOWN : TOPO_PORT_INSIDE;
}

static uint32_t lower_known(uint32_t a, uint32_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

/* An idle GPU lowers the speed of its link, and raises it when there is work: what both ends could
 * do counts. Others run as they run. */
static uint32_t link_capacity(const struct topo *t, const struct topo_pci *p)
{
    uint32_t most = p->max_mbps;

    if (p->port == TOPO_PORT_ROOT || p->port == TOPO_PORT_DOWN) {
        return 0;
    }
    if (p->parent >= 0) {
        most = lower_known(most, t->pci[p->parent].max_mbps);
    }
    if (topo_is_gpu(p->class, p->vendor)) {
        return most ? most : p->cur_mbps;
    }
    return p->cur_mbps ? p->cur_mbps : most;
}

/* GB/s between two NUMA nodes as NCCL takes them (src/graph/topo.h, ncclTopoGetInterCpuBw), in
 * Mb/s. */
static uint32_t inter_capacity(const struct topo *t)
{
    switch (t->cpu) {
    case TOPO_CPU_INTEL:
        if (t->cpu_family != 6) {
            return 6 * 8000;
        }
        return (t->cpu_model >= 0xcf   ? 40
                : t->cpu_model >= 0x8f ? 22
                : t->cpu_model >= 0x55 ? 10
                                       : 6) *
               8000;
    case TOPO_CPU_AMD: /* families: 23 Zen 1 and 2, 25 Zen 3 and 4, 26 Zen 5 */
        return (t->cpu_family >= 26 ? 32 : t->cpu_family >= 25 ? 24 : 16) * 8000;
    case TOPO_CPU_ZHAOXIN:
        return (t->cpu_family == 7 && t->cpu_model == 0x5b ? 9 : 6) * 8000;
    case TOPO_CPU_ARM:
        return 6 * 8000;
    case TOPO_CPU_POWER:
        return 32 * 8000;
    default:
        return 0;
    }
}

static void unknowns_note(struct topo *t)
{
    for (int i = 0; i < t->nics; i++) {
        const struct topo_nic *n = &t->nic[i];

        if (n->rate_mbps == 0 || topo_nic_mbps(t, i) == 0) {
            t->unknown |= TOPO_NO_RATE;
        }
        if (n->pci >= 0 && t->pci[n->pci].numa < 0) {
            t->unknown |= TOPO_NO_NUMA;
        }
        if (n->pci >= 0 && t->pci[n->pci].mbps == 0) {
            t->unknown |= TOPO_NO_LINK;
        }
    }
    for (int i = 0; i < t->gpus; i++) {
        if (t->pci[t->gpu[i].pci].numa < 0) {
            t->unknown |= TOPO_NO_NUMA;
        }
        if (t->pci[t->gpu[i].pci].mbps == 0) {
            t->unknown |= TOPO_NO_LINK;
        }
    }
    if (t->sockets > 1 && t->inter_mbps == 0) {
        t->unknown |= TOPO_NO_CPU;
    }
}

int topo_finish(struct topo *t, char *why, size_t why_len)
{
    const char *wrong = refs_check(t);

    if (wrong != NULL) {
        return fail(t, why, why_len, wrong);
    }
    if (t->numas == 0) { /* a kernel without NUMA */
        topo_numa_add(t, 0, 0);
    }
    pci_sort(t);
    root_sort(t);
    qsort(t->numa, t->numas, sizeof(t->numa[0]), numa_compare);
    qsort(t->nic, t->nics, sizeof(t->nic[0]), nic_compare);
    gpu_sort(t);
    wrong = twins_check(t);
    if (wrong != NULL) {
        return fail(t, why, why_len, wrong);
    }
    sockets_number(t);
    numa_place(t);
    for (int i = 0; i < t->pcis; i++) {
        t->pci[i].port = (uint8_t)port_of(t, &t->pci[i]);
    }
    for (int i = 0; i < t->pcis; i++) {
        t->pci[i].mbps = link_capacity(t, &t->pci[i]);
    }
    t->inter_mbps = inter_capacity(t);
    unknowns_note(t);
    return 0;
}
