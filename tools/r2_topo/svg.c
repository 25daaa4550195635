#include <string.h>

#include "tools/r2_topo/tool.h"
#include "tools/shared/svg.h"

/* Pixels. A column is a leaf (a GPU or a function with NICs); a row is a level of switches. */
#define COLUMN 108
#define ROW    84
#define BOX_W  100
#define BOX_H  48
#define MARGIN 24
#define TOP    64

struct picture {
    FILE *f;
    const struct topo *t;
    double x, y; /* left edge of the next leaf; top of the socket that is drawn */
};

static const char style[] =
    "text{font-family:Helvetica,Arial,sans-serif;font-size:12px;fill:#222}.mid{text-anchor:middle}"
    ".small{font-size:10px;fill:#555}.head{font-size:14px;font-weight:bold}.down{fill:#b3261e}"
    ".socket{fill:#f6f6f4;stroke:#999}.root{fill:#e6e0f0;stroke:#7a68a6}.switch{fill:#eee;stroke:#777}"
    ".gpu{fill:#d8ecd0;stroke:#4c8c3a}.nic{fill:#d4e4f7;stroke:#2f6fb0}.edge{fill:none;stroke:#777}";

/* Root ports and the lower ports of switches are not drawn: a link is. */
static bool is_drawn(const struct topo_pci *p)
{
    return p->port != TOPO_PORT_ROOT && p->port != TOPO_PORT_DOWN;
}

static int gpu_at(const struct topo *t, int pci)
{
    for (int g = 0; g < t->gpus; g++) {
        if (t->gpu[g].pci == pci) {
            return g;
        }
    }
    return -1;
}

static void edge_put(struct picture *p, double x0, double y0, double x1, double y1, uint32_t mbps)
{
    char label[16];

    svg_path_begin(p->f);
    fprintf(p->f, "M%.1f %.1f V%.1f H%.1f V%.1f", x0, y0, (y0 + y1) / 2, x1, y1);
    svg_path_end(p->f, "class=\"edge\"");
    if (mbps != 0) {
        svg_text(p->f, x1 + 4, y1 - 5, "small", gbps_text(mbps, label));
    }
}

static void leaf_put(struct picture *p, int pci, double x, double y)
{
    const struct topo *t = p->t;
    int g = gpu_at(t, pci), lines = 0, skipped = 0;
    char text[160], bdf[TOPO_BDF], gbps[16];

    svg_rect(p->f, x - BOX_W / 2.0, y, BOX_W, BOX_H, g >= 0 ? "gpu" : "nic");
    if (g >= 0) {
        snprintf(text, sizeof(text), "GPU%d", g);
        svg_text(p->f, x, y + 17, "mid", text);
    }
    for (int n = 0; n < t->nics; n++) {
        if (t->nic[n].pci != pci) {
            continue;
        }
        if (lines == 2) {
            skipped++;
            continue;
        }
        snprintf(text, sizeof(text), "%.13s:%u %s", t->nic[n].name, t->nic[n].port,
                 gbps_text(t->nic[n].rate_mbps, gbps));
        svg_text(p->f, x, y + 14 + 13 * lines++,
                 t->nic[n].state == TOPO_STATE_DOWN ? "mid down" : "mid", text);
    }
    snprintf(text, sizeof(text), "%s%s", topo_bdf_text(&t->pci[pci], bdf), skipped ? " ..." : "");
    svg_text(p->f, x, y + BOX_H - 6, "mid small", text);
}

/* What is below a function or, with @root >= 0, a root bus, at level @y. Returns the middle of the
 * whole. */
static double below_put(struct picture *p, int pci, int root, double y, double *edges_x,
                        uint32_t *edges_mbps, int *edges);

/* A drawn function and all below it; its middle. */
static double node_put(struct picture *p, int pci, double y)
{
    double child[64], x;
    uint32_t mbps[64];
    char bdf[TOPO_BDF];
    int n = 0;

    if (p->t->pci[pci].port != TOPO_PORT_UP) {
        x = p->x + COLUMN / 2.0;
        p->x += COLUMN;
        leaf_put(p, pci, x, y);
        return x;
    }
    x = below_put(p, pci, -1, y + ROW, child, mbps, &n);
    for (int i = 0; i < n; i++) {
        edge_put(p, x, y + 26, child[i], y + ROW, mbps[i]);
    }
    svg_rect(p->f, x - BOX_W / 2.0, y, BOX_W, 26, "switch");
    svg_text(p->f, x, y + 17, "mid small", topo_bdf_text(&p->t->pci[pci], bdf));
    return x;
}

static double below_put(struct picture *p, int pci, int root, double y, double *edges_x,
                        uint32_t *edges_mbps, int *edges)
{
    const struct topo *t = p->t;
    double first = p->x + COLUMN / 2.0;

    for (int i = 0; i < t->pcis; i++) {
        if (t->pci[i].parent != pci || (pci < 0 && t->pci[i].root != root)) {
            continue;
        }
        if (is_drawn(&t->pci[i]) && *edges < 64) {
            edges_mbps[*edges] = t->pci[i].mbps;
            edges_x[(*edges)++] = node_put(p, i, y);
        } else if (!is_drawn(&t->pci[i])) {
            below_put(p, i, -1, y, edges_x, edges_mbps, edges);
        }
    }
    return *edges > 0 ? (edges_x[0] + edges_x[*edges - 1]) / 2 : first;
}

static int levels_of(const struct topo *t, int pci)
{
    int n = 0;

    for (; pci >= 0; pci = t->pci[pci].parent) {
        n += is_drawn(&t->pci[pci]);
    }
    return n;
}

static int leaves_of(const struct topo *t, int socket, int *levels)
{
    int n = 0;

    for (int i = 0; i < t->pcis; i++) {
        if (topo_socket_of(t, t->root[t->pci[i].root].numa) != socket || !is_drawn(&t->pci[i]) ||
            t->pci[i].port == TOPO_PORT_UP) {
            continue;
        }
        n++;
        *levels = levels_of(t, i) > *levels ? levels_of(t, i) : *levels;
    }
    return n;
}

static void root_put(struct picture *p, int r, double y)
{
    double child[64], x;
    uint32_t mbps[64];
    char text[64];
    int n = 0, numa = p->t->root[r].numa;

    x = below_put(p, -1, r, y + 34 + ROW / 2.0, child, mbps, &n);
    for (int i = 0; i < n; i++) {
        edge_put(p, x, y + 34, child[i], y + 34 + ROW / 2.0, mbps[i]);
    }
    svg_rect(p->f, x - BOX_W / 2.0, y, BOX_W, 34, "root");
    snprintf(text, sizeof(text), "bridge %04x:%02x", p->t->root[r].domain, p->t->root[r].bus);
    svg_text(p->f, x, y + 14, "mid small", text);
    if (numa >= 0) {
        snprintf(text, sizeof(text), "node %d", p->t->numa[numa].id);
    } else {
        strcpy(text, "node ?");
    }
    svg_text(p->f, x, y + 28, "mid small", text);
}

static void socket_put(struct picture *p, int socket, int leaves, int levels)
{
    double height = 64 + 34 + ROW / 2.0 + (levels - 1) * ROW + BOX_H;
    char text[64];

    p->x = MARGIN + 16;
    svg_rect(p->f, MARGIN, p->y, leaves * COLUMN + 32, height, "socket");
    if (socket >= 0) {
        snprintf(text, sizeof(text), "socket %d (%s)", socket, topo_cpu_name(p->t->cpu));
    } else {
        strcpy(text, "socket unknown");
    }
    svg_text(p->f, MARGIN + 12, p->y + 22, "head", text);
    for (int r = 0; r < p->t->roots; r++) {
        if (topo_socket_of(p->t, p->t->root[r].numa) == socket) {
            root_put(p, r, p->y + 36);
        }
    }
    p->y += height + 44;
}

static void notes_put(struct picture *p)
{
    const struct topo *t = p->t;
    char text[160], gbps[16];
    double y = p->y - 14;
    uint32_t nvlink = t->gpus > 1 ? topo_link_capacity(t, TOPO_LINK_NVLINK) : 0;

    snprintf(text, sizeof(text), "Numbers: Gb/s each way.  NVLink: %s%s.  GPU to CPU (C2C): %s.",
             t->unknown & TOPO_NO_NVLINK ? "not known"
             : nvlink                    ? gbps_text(nvlink, gbps)
                                         : "none",
             nvlink ? " out of each GPU" : "",
             t->gpus && t->gpu[0].c2c_mbps ? "yes" : "not known or none");
    svg_text(p->f, MARGIN, y, "left", text);
}

void svg_write(FILE *f, const struct tool *tool)
{
    const struct topo *t = &tool->t;
    struct picture p = {.f = f, .t = t, .y = TOP};
    int widest = 4;
    double height = TOP;
    char text[200], gbps[16];

    for (int s = -1; s < t->sockets; s++) {
        int levels = 1, n = leaves_of(t, s, &levels);

        widest = n > widest ? n : widest;
        height += n ? 64 + 34 + ROW / 2.0 + (levels - 1) * ROW + BOX_H + 44 : 0;
    }
    svg_begin(f, widest * COLUMN + 32 + 2 * MARGIN, height, style);
    snprintf(text, sizeof(text), "%u GPUs, %u NIC ports%s%s%s", t->gpus, t->nics,
             t->sockets > 1 ? "; between sockets " : "",
             t->sockets > 1 ? gbps_text(t->inter_mbps, gbps) : "", t->sockets > 1 ? " Gb/s" : "");
    svg_text(f, MARGIN, 34, "head", text);
    for (int s = -1; s < t->sockets; s++) {
        int levels = 1, n = leaves_of(t, s, &levels);

        if (n > 0) {
            socket_put(&p, s, n, levels);
        }
    }
    notes_put(&p);
    svg_end(f);
}
