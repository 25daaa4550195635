#include "topo_path.h"

#include <stdio.h>
#include <string.h>

/* Functions from one up to its root bus. */
struct chain {
    int n;
    int16_t at[TOPO_PCI_MAX];
};

static void chain_climb(const struct topo *t, int pci, struct chain *c)
{
    c->n = 0;
    for (; pci >= 0 && c->n < TOPO_PCI_MAX; pci = t->pci[pci].parent) {
        c->at[c->n++] = (int16_t)pci;
    }
}

static void way_add(const struct topo *t, struct topo_path *p, int link, int down, uint32_t mbps)
{
    bool bridge = link >= TOPO_LINK_ROOT && link < TOPO_LINK_SOCKETS;

    if (p->n == TOPO_PATH_LINKS) {
        p->complete = false;
        return;
    }
    p->way[p->n++] = (uint16_t)(link * 2 + down);
    if (mbps == 0) {
        p->complete &= bridge;
    } else if (p->mbps == 0 || mbps < p->mbps) {
        p->mbps = mbps;
    }
}

/* The link above a function, where there is one. */
static void pci_add(const struct topo *t, struct topo_path *p, int pci, int down)
{
    const struct topo_pci *f = &t->pci[pci];

    if (f->port == TOPO_PORT_UP || f->port == TOPO_PORT_END) {
        way_add(t, p, f->parent, down, f->mbps);
    } else if (f->port == TOPO_PORT_INSIDE && f->parent < 0) {
        way_add(t, p, pci, down, f->mbps);
    }
}

static void chain_add(const struct topo *t, struct topo_path *p, const struct chain *c, int n,
                      int down)
{
    for (int i = 0; i < n; i++) {
        pci_add(t, p, c->at[down ? n - 1 - i : i], down);
    }
}

static void sockets_add(const struct topo *t, struct topo_path *p, int from_numa, int to_numa)
{
    int a = topo_socket_of(t, from_numa), b = topo_socket_of(t, to_numa);

    if (a < 0 || b < 0) {
        p->complete &= t->sockets <= 1;
        return;
    }
    if (a < b) {
        way_add(t, p, TOPO_LINK_SOCKETS + a * TOPO_SOCKETS_MAX + b, 0, t->inter_mbps);
    } else if (a > b) {
        way_add(t, p, TOPO_LINK_SOCKETS + b * TOPO_SOCKETS_MAX + a, 1, t->inter_mbps);
    }
}

/* From a NUMA node down to the NIC. */
static void node_to_nic(const struct topo *t, struct topo_path *p, int numa, int nic_pci,
                        const struct chain *nic)
{
    sockets_add(t, p, numa, t->pci[nic_pci].numa);
    way_add(t, p, TOPO_LINK_ROOT + t->pci[nic_pci].root, 1, 0);
    chain_add(t, p, nic, nic->n, 1);
}

static int switches_count(const struct topo *t, const struct chain *c, int n)
{
    int count = 0;

    for (int i = 0; i < n; i++) {
        count += t->pci[c->at[i]].port == TOPO_PORT_UP;
    }
    return count;
}

/* Below a common bridge: true. */
static bool peers_meet(const struct topo *t, struct topo_path *p, const struct chain *gpu,
                       const struct chain *nic)
{
    for (int i = 0; i < gpu->n; i++) {
        for (int k = 0; k < nic->n; k++) {
            int met = gpu->at[i], switches;

            if (met != nic->at[k]) {
                continue;
            }
            switches = switches_count(t, gpu, i) + switches_count(t, nic, k) +
                       (t->pci[met].port == TOPO_PORT_UP);
            p->class = switches <= 1 ? TOPO_PIX : TOPO_PXB;
            chain_add(t, p, gpu, i, 0);
            chain_add(t, p, nic, k, 1);
            return true;
        }
    }
    return false;
}

static void nodes_compare(struct topo_path *p, int a, int b, enum topo_class near)
{
    p->guess = a < 0 || b < 0;
    p->class = p->guess || a != b ? TOPO_SYS : near;
}

static void gpu_path(const struct topo *t, int gpu, int nic_pci, struct topo_path *p)
{
    int gpu_pci = t->gpu[gpu].pci, a = t->pci[gpu_pci].numa, b = t->pci[nic_pci].numa;
    struct chain up, down;

    chain_climb(t, gpu_pci, &up);
    chain_climb(t, nic_pci, &down);
    if (peers_meet(t, p, &up, &down)) {
        return;
    }
    if (t->gpu[gpu].c2c_mbps > 0) {
        way_add(t, p, TOPO_LINK_C2C + gpu, 0, t->gpu[gpu].c2c_mbps);
        nodes_compare(p, a, b, TOPO_P2C);
        node_to_nic(t, p, a, nic_pci, &down);
        return;
    }
    chain_add(t, p, &up, up.n, 0);
    if (t->pci[gpu_pci].root == t->pci[nic_pci].root) {
        p->class = TOPO_PHB;
        way_add(t, p, TOPO_LINK_ROOT + t->pci[nic_pci].root, 0, 0);
        chain_add(t, p, &down, down.n, 1);
        return;
    }
    way_add(t, p, TOPO_LINK_ROOT + t->pci[gpu_pci].root, 0, 0);
    nodes_compare(p, a, b, TOPO_NODE);
    node_to_nic(t, p, a, nic_pci, &down);
}

int topo_path_find(const struct topo *t, struct topo_end from, int nic, struct topo_path *path)
{
    int pci;
    struct chain down;

    if (nic < 0 || nic >= t->nics || from.index < 0 ||
        from.index >= (from.kind == TOPO_END_GPU ? t->gpus : t->numas)) {
        return -1;
    }
    *path = (struct topo_path){.class = TOPO_NONE, .complete = true};
    pci = t->nic[nic].pci;
    if (pci < 0) {
        path->complete = false;
        return 0;
    }
    if (from.kind == TOPO_END_GPU) {
        gpu_path(t, from.index, pci, path);
        return 0;
    }
    chain_climb(t, pci, &down);
    nodes_compare(path, from.index, t->pci[pci].numa, TOPO_PHB);
    node_to_nic(t, path, from.index, pci, &down);
    return 0;
}

uint32_t topo_path_nic_mbps(const struct topo *t, const struct topo_path *path, int nic)
{
    uint32_t rate = topo_nic_mbps(t, nic);

    return path->mbps == 0 || (rate != 0 && rate < path->mbps) ? rate : path->mbps;
}

static uint32_t pci_capacity(const struct topo *t, int pci)
{
    uint32_t least = 0;

    if (t->pci[pci].port != TOPO_PORT_ROOT && t->pci[pci].port != TOPO_PORT_DOWN) {
        return t->pci[pci].mbps;
    }
    for (int i = 0; i < t->pcis; i++) {
        if (t->pci[i].parent == pci && t->pci[i].mbps != 0 &&
            (least == 0 || t->pci[i].mbps < least)) {
            least = t->pci[i].mbps;
        }
    }
    return least;
}

uint32_t topo_link_capacity(const struct topo *t, int link)
{
    uint32_t most = 0;

    if (link < 0 || link >= TOPO_LINKS) {
        return 0;
    }
    if (link < TOPO_LINK_ROOT) {
        return link < t->pcis ? pci_capacity(t, link) : 0;
    }
    if (link >= TOPO_LINK_NIC) {
        return link - TOPO_LINK_NIC < t->nics ? topo_nic_mbps(t, link - TOPO_LINK_NIC) : 0;
    }
    if (link >= TOPO_LINK_C2C) {
        return t->gpu[link - TOPO_LINK_C2C].c2c_mbps;
    }
    if (link >= TOPO_LINK_NVLINK) { /* all of a GPU's links may serve each peer (a switch): never
                                       taken for more than the best of them */
        for (int k = 0; k < t->gpus; k++) {
            uint32_t mbps = t->nvlink_mbps[link - TOPO_LINK_NVLINK][k];

            most = mbps > most ? mbps : most;
        }
        return most;
    }
    return link >= TOPO_LINK_SOCKETS ? t->inter_mbps : 0;
}

void topo_link_text(const struct topo *t, int link, char *out, size_t len)
{
    char bdf[TOPO_BDF];
    int i;

    if (link < TOPO_LINK_ROOT) {
        snprintf(out, len, "PCI %s",
                 link >= 0 && link < t->pcis ? topo_bdf_text(&t->pci[link], bdf) : "?");
    } else if (link < TOPO_LINK_SOCKETS) {
        i = link - TOPO_LINK_ROOT;
        snprintf(out, len, "host bridge %04x:%02x", t->root[i].domain, t->root[i].bus);
    } else if (link < TOPO_LINK_NVLINK) {
        i = link - TOPO_LINK_SOCKETS;
        snprintf(out, len, "sockets %d-%d", i / TOPO_SOCKETS_MAX, i % TOPO_SOCKETS_MAX);
    } else if (link < TOPO_LINK_C2C) {
        snprintf(out, len, "NVLink of GPU%d", link - TOPO_LINK_NVLINK);
    } else if (link < TOPO_LINK_NIC) {
        snprintf(out, len, "C2C of GPU%d", link - TOPO_LINK_C2C);
    } else {
        i = link - TOPO_LINK_NIC;
        snprintf(out, len, "port %s:%u", i < t->nics ? t->nic[i].name : "?",
                 i < t->nics ? t->nic[i].port : 0u);
    }
}

const char *topo_class_name(enum topo_class class)
{
    static const char *const names[] = {"PIX", "PXB", "P2C", "PHB", "NODE", "SYS", "none"};

    return (unsigned)class < sizeof(names) / sizeof(names[0]) ? names[class] : "none";
}
