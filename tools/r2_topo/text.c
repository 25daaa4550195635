#include <string.h>

#include "tools/r2_topo/tool.h"
#include "topo/topo_rank.h"
#include "topo/topo_route.h"

/* --- tree --- */

static void link_write(FILE *f, const struct topo_pci *p)
{
    char gbps[16];

    if (p->mbps == 0) {
        return;
    }
    fprintf(f, "  %s Gb/s", gbps_text(p->mbps, gbps));
    if (p->gts10 != 0) {
        fprintf(f, " (x%u at %g GT/s now)", p->width, p->gts10 / 10.0);
    }
}

static void devices_write(FILE *f, const struct topo *t, int pci)
{
    char gbps[16];

    for (int g = 0; g < t->gpus; g++) {
        if (t->gpu[g].pci == pci) {
            fprintf(f, "  GPU%d", g);
        }
    }
    for (int n = 0; n < t->nics; n++) {
        const struct topo_nic *nic = &t->nic[n];

        if (nic->pci == pci) {
            fprintf(f, "  %s:%u %s Gb/s%s %s", nic->name, nic->port,
                    gbps_text(nic->rate_mbps, gbps),
                    nic->layer == TOPO_LAYER_IB    ? " InfiniBand"
                    : nic->layer == TOPO_LAYER_ETH ? " Ethernet"
                                                   : "",
                    topo_state_name(nic->state));
        }
    }
}

/* @depth: of bridges above, which the caller has written. */
static void function_write(FILE *f, const struct topo *t, int pci, int depth)
{
    static const char *const ports[] = {"root port", "switch", "port", "", ""};
    const struct topo_pci *p = &t->pci[pci];
    char bdf[TOPO_BDF];

    fprintf(f, "%*s%s", 6 + 2 * depth, "", topo_bdf_text(p, bdf));
    if (ports[p->port][0] != '\0') {
        fprintf(f, "  %s", ports[p->port]);
    }
    devices_write(f, t, pci);
    link_write(f, p);
    fputc('\n', f);
    for (int i = 0; i < t->pcis; i++) {
        if (t->pci[i].parent == pci) {
            function_write(f, t, i, depth + 1);
        }
    }
}

static void roots_write(FILE *f, const struct topo *t, int numa)
{
    for (int r = 0; r < t->roots; r++) {
        if (t->root[r].numa != numa) {
            continue;
        }
        fprintf(f, "    host bridge %04x:%02x\n", t->root[r].domain, t->root[r].bus);
        for (int i = 0; i < t->pcis; i++) {
            if (t->pci[i].root == r && t->pci[i].parent < 0) {
                function_write(f, t, i, 0);
            }
        }
    }
}

static void tree_write(FILE *f, const struct topo *t)
{
    for (int i = 0; i < t->numas; i++) {
        fprintf(f, "  node %d", t->numa[i].id);
        if (t->numa[i].socket >= 0) {
            fprintf(f, ", socket %d", t->numa[i].socket);
        }
        fputc('\n', f);
        roots_write(f, t, i);
    }
    for (int r = 0; r < t->roots; r++) {
        if (t->root[r].numa < 0) {
            fprintf(f, "  node unknown\n");
            roots_write(f, t, -1);
            break;
        }
    }
    for (int n = 0; n < t->nics; n++) {
        if (t->nic[n].pci < 0) {
            fprintf(f, "  no PCI device:");
            devices_write(f, t, -1);
            fputc('\n', f);
            break;
        }
    }
}

/* --- matrix --- */

static void columns_write(FILE *f, const struct topo *t)
{
    fprintf(f, "%-8s", "");
    for (int n = 0; n < t->nics; n++) {
        fprintf(f, " NIC%-7d", n);
    }
    fprintf(f, " node\n");
}

static void row_write(FILE *f, const struct topo *t, struct topo_end from, const char *name)
{
    char gbps[16], cell[32];
    struct topo_path path;
    int numa = from.kind == TOPO_END_GPU ? t->pci[t->gpu[from.index].pci].numa : from.index;

    fprintf(f, "%-8s", name);
    for (int n = 0; n < t->nics; n++) {
        topo_path_find(t, from, n, &path);
        snprintf(cell, sizeof(cell), "%s %s", topo_class_name(path.class),
                 gbps_text(topo_path_nic_mbps(t, &path, n), gbps));
        fprintf(f, " %-10s", cell);
    }
    if (numa >= 0) {
        fprintf(f, " %d\n", t->numa[numa].id);
    } else {
        fprintf(f, " ?\n");
    }
}

static void matrix_write(FILE *f, const struct topo *t)
{
    char name[32];

    columns_write(f, t);
    for (int g = 0; g < t->gpus; g++) {
        snprintf(name, sizeof(name), "GPU%d", g);
        row_write(f, t, (struct topo_end){TOPO_END_GPU, g}, name);
    }
    for (int i = 0; i < t->numas; i++) {
        snprintf(name, sizeof(name), "memory%d", t->numa[i].id);
        row_write(f, t, (struct topo_end){TOPO_END_NUMA, i}, name);
    }
    fputc('\n', f);
    for (int n = 0; n < t->nics; n++) {
        char port[NIC_TEXT], bdf[TOPO_BDF];

        fprintf(f, "NIC%-3d %-16s %s  guid %016llx\n", n, nic_text(t, n, port),
                t->nic[n].pci >= 0 ? topo_bdf_text(&t->pci[t->nic[n].pci], bdf) : "no PCI    ",
                (unsigned long long)t->nic[n].guid);
    }
    for (int g = 0; g < t->gpus; g++) {
        char bdf[TOPO_BDF];

        fprintf(f, "GPU%-3d %-16s %s\n", g, "", topo_bdf_text(&t->pci[t->gpu[g].pci], bdf));
    }
    fprintf(
        f,
        "\nCells: class, and Gb/s each way of path and port together.\n"
        "PIX one PCI switch at most, PXB several, P2C the GPU's link to its CPU, PHB the host bridge,\n"
        "NODE two host bridges of a NUMA node, SYS between NUMA nodes.\n");
}

/* Where NCCL's relay over NVLink would carry more: by relay, for the GPUs that it helps. */
static void relays_write(FILE *f, const struct tool *tool)
{
    const struct topo *t = &tool->t;
    static struct topo_load load;
    bool said = false;

    topo_load_begin(t, &load);
    for (int n = 0; n < t->nics; n++) {
        for (int relay = 0; relay < t->gpus; relay++) {
            bool line = false;

            for (int g = 0; g < t->gpus; g++) {
                char port[NIC_TEXT], a[16], b[16];
                struct topo_path path;
                struct topo_route r;

                topo_path_find(t, (struct topo_end){TOPO_END_GPU, g}, n, &path);
                topo_route_choose(t, &load, g, n, topo_path_nic_mbps(t, &path, n), true, &r);
                if (r.kind != TOPO_ROUTE_RELAY || r.relay != relay) {
                    continue;
                }
                if (!said) {
                    fprintf(f,
                            "\nMore over NVLink and another GPU (what NCCL calls PXN), in Gb/s:\n");
                }
                if (!line) {
                    fprintf(f, "  %s by GPU%d: %s;", nic_text(t, n, port), relay,
                            gbps_text(r.mbps, a));
                }
                said = line = true;
                fprintf(f, " GPU%d alone %s", g, gbps_text(topo_path_nic_mbps(t, &path, n), b));
            }
            if (line) {
                fputc('\n', f);
            }
        }
    }
}

/* --- substitutes --- */

static void choices_write(FILE *f, const struct topo *t, const struct topo_choice *c, int n)
{
    char port[NIC_TEXT], gbps[16];

    for (int i = 0; i < n; i++) {
        fprintf(f, " %s", nic_text(t, c[i].nic, port));
        if (i + 1 == n || c[i + 1].class != c[i].class || c[i + 1].mbps != c[i].mbps) {
            fprintf(f, " (%s %s)%s", topo_class_name(c[i].class), gbps_text(c[i].mbps, gbps),
                    i + 1 < n ? "," : "");
        }
    }
    fprintf(f, "%s\n", n == 0 ? " none" : "");
}

static void order_write(FILE *f, const struct topo *t)
{
    struct topo_choice c[TOPO_NICS_MAX];
    char end[16], port[NIC_TEXT];

    fprintf(f, "\nIn which order NICs are taken:\n");
    for (int i = 0; i < ends_count(t); i++) {
        fprintf(f, "  %s, all well:", end_text(t, i, end));
        choices_write(f, t, c, topo_rank(t, end_at(t, i), -1, c));
        for (int n = 0; n < t->nics; n++) {
            fprintf(f, "  %s, without %s:", end_text(t, i, end), nic_text(t, n, port));
            choices_write(f, t, c, topo_rank(t, end_at(t, i), n, c));
        }
    }
}

void text_write(FILE *f, const struct tool *tool)
{
    const struct topo *t = &tool->t;
    char gbps[16];

    fprintf(f, "%s (%s): %u GPUs, %u NIC ports, %u NUMA nodes, %u sockets",
            tool->root[0] ? tool->root : "host", tool->source, t->gpus, t->nics, t->numas,
            t->sockets);
    if (t->cpu != TOPO_CPU_UNKNOWN) {
        fprintf(f, ", %s CPU", topo_cpu_name(t->cpu));
    }
    if (t->sockets > 1) {
        fprintf(f, ", between sockets %s Gb/s", gbps_text(t->inter_mbps, gbps));
    }
    fputs("\n\n", f);
    tree_write(f, t);
    if (t->nics > 0) {
        fputc('\n', f);
        matrix_write(f, t);
        relays_write(f, tool);
        if (tool->order) {
            order_write(f, t);
        }
    }
    for (unsigned bit = 1; bit <= TOPO_BAD; bit <<= 1) {
        if (t->unknown & bit) {
            fprintf(f, "%snot known: %s\n", bit == (t->unknown & -(unsigned)t->unknown) ? "\n" : "",
                    topo_unknown_text(bit));
        }
    }
}
