#include <string.h>
#include <unistd.h>

#include "tools/r2_topo/tool.h"
#include "tools/shared/svg.h"

/* Pixels. A column is a leaf (a GPU or a function with NICs); a row is a level of switches. */
#define COLUMN_MIN 108
#define COLUMN_MAX 228
#define BETWEEN    8 /* boxes side by side */
#define ROW        84
#define ROOT_W     104
#define PORT_H     28 /* of a leaf, for each port of a NIC */
#define STUB       14 /* a NIC's cable */
#define GAP        44 /* between sockets */
#define MARGIN     24
#define TOP        64
#define LEGEND_H   64

struct picture {
    FILE *f;
    const struct topo *t;
    double column, leaf_h;
    double x, y; /* left edge of the next leaf; top of the socket that is drawn */
};

static const char style[] =
    "text{font-family:Helvetica,Arial,sans-serif;font-size:12px;fill:#222}.mid{text-anchor:middle}"
    ".small{font-size:10px;fill:#555}.head{font-size:14px;font-weight:bold}"
    "text.lost{fill:#b3261e;font-weight:bold}"
    ".socket,.strays{fill:#f6f6f4;stroke:#999}.root{fill:#e6e0f0;stroke:#7a68a6}.switch{fill:#eee;stroke:#777}"
    ".gpu{fill:#d8ecd0;stroke:#4c8c3a}.nic{fill:#d4e4f7;stroke:#2f6fb0}"
    ".nic-lost{fill:#fbe9e7;stroke:#b3261e;stroke-dasharray:4 3}"
    ".edge{fill:none;stroke:#777}.between{stroke:#777;stroke-width:4}"
    ".cable{stroke:#2f6fb0;stroke-width:3}.cable-lost{stroke:#b3261e;stroke-width:3;stroke-dasharray:2 3}";

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

static int ports_of(const struct topo *t, int pci)
{
    int n = 0;

    for (int i = 0; i < t->nics; i++) {
        n += t->nic[i].pci == pci;
    }
    return n;
}

/* A port: its name, what it carries, and its cable below the box. */
static void port_put(struct picture *p, const struct topo_nic *nic, double x, double y,
                     double cable_x, double bottom)
{
    bool is_lost = nic->state == TOPO_STATE_DOWN;
    char text[TOPO_NAME + 8], gbps[16];

    snprintf(text, sizeof(text), "%s:%u", nic->name, nic->port);
    svg_text_fit(p->f, x, y, p->column - BETWEEN - 6, 12, is_lost ? "mid lost" : "mid", text);
    if (nic->state == TOPO_STATE_ACTIVE || nic->state == TOPO_STATE_UNKNOWN) {
        snprintf(text, sizeof(text), "%s Gb/s", gbps_text(nic->rate_mbps, gbps));
    } else {
        snprintf(text, sizeof(text), "%s", topo_state_name(nic->state));
    }
    svg_text(p->f, x, y + 12, is_lost ? "mid small lost" : "mid small", text);
    svg_line(p->f, cable_x, bottom, cable_x, bottom + STUB,
             is_lost ? "class=\"cable-lost\"" : "class=\"cable\"");
}

/* @pci: -1: NICs that are no PCI devices. */
static void leaf_put(struct picture *p, int pci, double x, double y)
{
    const struct topo *t = p->t;
    double width = p->column - BETWEEN, left = x - width / 2;
    int g = pci < 0 ? -1 : gpu_at(t, pci), ports = ports_of(t, pci), lost = 0, n = 0;
    char text[64], bdf[TOPO_BDF];

    for (int i = 0; i < t->nics; i++) {
        lost += t->nic[i].pci == pci && t->nic[i].state == TOPO_STATE_DOWN;
    }
    svg_rect(p->f, left, y, width, p->leaf_h,
             g >= 0                      ? "gpu"
             : lost == ports && lost > 0 ? "nic-lost"
                                         : "nic");
    if (g >= 0) {
        snprintf(text, sizeof(text), "GPU%d", g);
        svg_text(p->f, x, y + 17, "mid", text);
    }
    for (int i = 0; i < t->nics; i++) {
        if (t->nic[i].pci == pci) {
            port_put(p, &t->nic[i], x, y + 15 + PORT_H * n, left + width * (n + 1) / (ports + 1),
                     y + p->leaf_h);
            n++;
        }
    }
    if (pci >= 0) {
        svg_text(p->f, x, y + p->leaf_h - 6, "mid small", topo_bdf_text(&t->pci[pci], bdf));
    }
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
        x = p->x + p->column / 2;
        p->x += p->column;
        leaf_put(p, pci, x, y);
        return x;
    }
    x = below_put(p, pci, -1, y + ROW, child, mbps, &n);
    for (int i = 0; i < n; i++) {
        edge_put(p, x, y + 26, child[i], y + ROW, mbps[i]);
    }
    svg_rect(p->f, x - ROOT_W / 2.0, y, ROOT_W, 26, "switch");
    svg_text(p->f, x, y + 17, "mid small", topo_bdf_text(&p->t->pci[pci], bdf));
    return x;
}

static double below_put(struct picture *p, int pci, int root, double y, double *edges_x,
                        uint32_t *edges_mbps, int *edges)
{
    const struct topo *t = p->t;
    double first = p->x + p->column / 2;

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
    svg_rect(p->f, x - ROOT_W / 2.0, y, ROOT_W, 34, "root");
    snprintf(text, sizeof(text), "bridge %04x:%02x", p->t->root[r].domain, p->t->root[r].bus);
    svg_text(p->f, x, y + 14, "mid small", text);
    if (numa >= 0) {
        snprintf(text, sizeof(text), "node %d", p->t->numa[numa].id);
    } else {
        strcpy(text, "node ?");
    }
    svg_text(p->f, x, y + 28, "mid small", text);
}

/* What a socket's box is high. */
static double height_of(const struct picture *p, int leaves, int levels)
{
    return leaves ? 64 + 34 + ROW / 2.0 + (levels - 1) * ROW + p->leaf_h + STUB : 40;
}

static void socket_put(struct picture *p, int socket, int leaves, int levels)
{
    double height = height_of(p, leaves, levels);
    char text[64];

    p->x = MARGIN + 16;
    svg_rect(p->f, MARGIN, p->y, (leaves > 3 ? leaves : 3) * p->column + 32, height, "socket");
    if (socket >= 0) {
        snprintf(text, sizeof(text), "socket %d (%s)%s", socket, topo_cpu_name(p->t->cpu),
                 leaves ? "" : ": neither GPU nor NIC");
    } else {
        strcpy(text, "socket unknown");
    }
    svg_text(p->f, MARGIN + 12, p->y + 22, "head", text);
    for (int r = 0; r < p->t->roots && leaves; r++) {
        if (topo_socket_of(p->t, p->t->root[r].numa) == socket) {
            root_put(p, r, p->y + 36);
        }
    }
    p->y += height;
}

/* Between the socket that was drawn last and the next. */
static void between_put(struct picture *p)
{
    char text[40], gbps[16];
    double x = MARGIN + 40;

    svg_line(p->f, x, p->y, x, p->y + GAP, "class=\"between\"");
    snprintf(text, sizeof(text), "%s Gb/s", gbps_text(p->t->inter_mbps, gbps));
    svg_text(p->f, x + 10, p->y + GAP / 2.0 + 4, "left", text);
}

static void strays_put(struct picture *p)
{
    double x = MARGIN + 16 + p->column / 2;

    svg_rect(p->f, MARGIN, p->y, p->column + 32, 50 + p->leaf_h + STUB, "strays");
    svg_text(p->f, MARGIN + 12, p->y + 22, "head", "no PCI device");
    leaf_put(p, -1, x, p->y + 34);
    p->y += 50 + p->leaf_h + STUB + GAP;
}

static const struct {
    const char *class, *text;
} kinds[] = {{"root", "PCI host bridge"},
             {"switch", "PCI switch"},
             {"gpu", "GPU"},
             {"nic", "NIC"},
             {"nic-lost", "NIC, port down"}};

static double kind_width(size_t i)
{
    return 40 + SVG_LETTER(12) * (double)strlen(kinds[i].text);
}

static double legend_width(void)
{
    double width = 0;

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        width += kind_width(i);
    }
    return width;
}

static void legend_put(struct picture *p)
{
    const struct topo *t = p->t;
    char text[160], gbps[16];
    double x = MARGIN, y = p->y + 4;
    uint32_t nvlink = t->gpus > 1 ? topo_link_capacity(t, TOPO_LINK_NVLINK) : 0;

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        svg_rect(p->f, x, y, 18, 12, kinds[i].class);
        svg_text(p->f, x + 24, y + 10, "left", kinds[i].text);
        x += kind_width(i);
    }
    svg_text(p->f, MARGIN, y + 32, "left",
             "Numbers beside lines: Gb/s each way, of the link below.");
    snprintf(text, sizeof(text), "NVLink: %s%s. GPU to CPU (C2C): %s.",
             t->unknown & TOPO_NO_NVLINK ? "not known"
             : nvlink                    ? gbps_text(nvlink, gbps)
                                         : "none",
             nvlink ? " out of each GPU" : "",
             t->gpus && t->gpu[0].c2c_mbps ? "yes" : "not known or none");
    svg_text(p->f, MARGIN, y + 50, "left", text);
}

/* Which host this is: this one, or where it was read from. */
static void host_text(const struct tool *tool, char *out, size_t room)
{
    const char *from = tool->root[0] ? tool->root : NULL;

    from = strcmp(tool->source, "sysfs") != 0 && strcmp(tool->source, "hwloc") != 0 ? tool->source
                                                                                    : from;
    if (from || gethostname(out, room - 1) != 0) {
        snprintf(out, room, "%s", from ? from : "this host");
    }
}

/* Columns are as wide as the names, boxes as high as the NIC with the most ports is. */
static void sizes_set(struct picture *p)
{
    const struct topo *t = p->t;
    int ports = 1;

    p->column = COLUMN_MIN;
    for (int n = 0; n < t->nics; n++) {
        double width = ((double)strlen(t->nic[n].name) + 3) * SVG_LETTER(12) + BETWEEN + 6;
        int k = ports_of(t, t->nic[n].pci);

        p->column = width > p->column ? width : p->column;
        ports = k > ports ? k : ports;
    }
    p->column = p->column > COLUMN_MAX ? COLUMN_MAX : p->column;
    p->leaf_h = 22 + PORT_H * ports;
}

void svg_write(FILE *f, const struct tool *tool)
{
    const struct topo *t = &tool->t;
    struct picture p = {.f = f, .t = t, .y = TOP};
    int widest = 4, levels, n, strays = ports_of(t, -1), sockets = 0;
    double width, wide, height = TOP;
    char host[160] = "", text[300], gbps[16];

    sizes_set(&p);
    for (int s = -1; s < t->sockets; s++) {
        n = leaves_of(t, s, (levels = 1, &levels));
        widest = n > widest ? n : widest;
        height += s >= 0 || n ? height_of(&p, n, levels) + GAP : 0;
    }
    height += strays ? 50 + p.leaf_h + STUB + GAP : 0;
    width = widest * p.column + 32 > legend_width() ? widest * p.column + 32 : legend_width();
    host_text(tool, host, sizeof(host));
    snprintf(text, sizeof(text), "%s: %u GPUs, %u NIC ports%s%s%s", host, t->gpus, t->nics,
             t->sockets > 1 ? "; between sockets " : "",
             t->sockets > 1 ? gbps_text(t->inter_mbps, gbps) : "", t->sockets > 1 ? " Gb/s" : "");
    wide = SVG_LETTER(14) * (double)strlen(text);
    svg_begin(f, (wide > width ? wide : width) + 2 * MARGIN, height + LEGEND_H, style);
    svg_text(f, MARGIN, 34, "head", text);
    for (int s = -1; s < t->sockets; s++) {
        n = leaves_of(t, s, (levels = 1, &levels));
        if (s >= 0 || n > 0) {
            socket_put(&p, s, n, levels);
            sockets += s >= 0;
            if (s >= 0 && sockets < t->sockets) {
                between_put(&p);
            }
            p.y += GAP;
        }
    }
    if (strays) {
        strays_put(&p);
    }
    legend_put(&p);
    svg_end(f);
}
