#include <string.h>

#include "plugin/base/r2_json.h"
#include "tools/r2_topo/tool.h"
#include "topo/topo_rank.h"
#include "topo/topo_route.h"

static void mbps_put(struct r2_json *j, const char *key, uint32_t mbps)
{
    r2_json_known(j, key, mbps ? mbps : -1LL);
}

static void node_put(struct r2_json *j, const struct topo *t, const char *key, int numa)
{
    r2_json_known(j, key, numa < 0 ? -1 : t->numa[numa].id);
}

static void pci_put(struct r2_json *j, const struct topo *t, const char *key, int pci)
{
    char bdf[TOPO_BDF];

    r2_json_text(j, key, pci >= 0 ? topo_bdf_text(&t->pci[pci], bdf) : NULL);
}

static void host_put(struct r2_json *j, const struct topo *t)
{
    r2_json_open(j, "cpu", '{');
    r2_json_text(j, "vendor", t->cpu != TOPO_CPU_UNKNOWN ? topo_cpu_name(t->cpu) : NULL);
    r2_json_int(j, "family", t->cpu_family);
    r2_json_int(j, "model", t->cpu_model);
    r2_json_close(j, '}');
    r2_json_int(j, "sockets", t->sockets);
    mbps_put(j, "between_sockets_mbps", t->inter_mbps);
    r2_json_open(j, "nodes", '[');
    for (int i = 0; i < t->numas; i++) {
        r2_json_open(j, NULL, '{');
        r2_json_int(j, "node", t->numa[i].id);
        r2_json_known(j, "socket", t->numa[i].socket);
        r2_json_close(j, '}');
    }
    r2_json_close(j, ']');
}

static void functions_put(struct r2_json *j, const struct topo *t)
{
    static const char *const ports[] = {"root", "up", "down", "end", "inside"};

    r2_json_open(j, "pci", '[');
    for (int i = 0; i < t->pcis; i++) {
        const struct topo_pci *p = &t->pci[i];
        char text[32];

        r2_json_open(j, NULL, '{');
        pci_put(j, t, "address", i);
        pci_put(j, t, "parent", p->parent);
        snprintf(text, sizeof(text), "%04x:%02x", t->root[p->root].domain, t->root[p->root].bus);
        r2_json_text(j, "root", text);
        r2_json_text(j, "port", ports[p->port]);
        snprintf(text, sizeof(text), "%04x:%04x", p->vendor, p->device);
        r2_json_text(j, "id", text);
        node_put(j, t, "node", p->numa);
        mbps_put(j, "link_mbps", p->mbps);
        r2_json_close(j, '}');
    }
    r2_json_close(j, ']');
}

static void devices_put(struct r2_json *j, const struct topo *t)
{
    static const char *const layers[] = {NULL, "InfiniBand", "Ethernet"};
    char guid[20];

    r2_json_open(j, "nics", '[');
    for (int i = 0; i < t->nics; i++) {
        const struct topo_nic *n = &t->nic[i];

        r2_json_open(j, NULL, '{');
        r2_json_text(j, "name", n->name);
        r2_json_int(j, "port", n->port);
        pci_put(j, t, "pci", n->pci);
        snprintf(guid, sizeof(guid), "%016llx", (unsigned long long)n->guid);
        r2_json_text(j, "guid", n->guid ? guid : NULL);
        mbps_put(j, "rate_mbps", n->rate_mbps);
        r2_json_text(j, "state", n->state ? topo_state_name(n->state) : NULL);
        r2_json_text(j, "layer", layers[n->layer <= TOPO_LAYER_ETH ? n->layer : 0]);
        node_put(j, t, "node", n->pci >= 0 ? t->pci[n->pci].numa : -1);
        r2_json_close(j, '}');
    }
    r2_json_close(j, ']');
    r2_json_open(j, "gpus", '[');
    for (int i = 0; i < t->gpus; i++) {
        r2_json_open(j, NULL, '{');
        r2_json_int(j, "gpu", i);
        pci_put(j, t, "pci", t->gpu[i].pci);
        node_put(j, t, "node", t->pci[t->gpu[i].pci].numa);
        mbps_put(j, "c2c_mbps", t->gpu[i].c2c_mbps);
        r2_json_open(j, "nvlink_mbps", '[');
        for (int k = 0; k < t->gpus && !(t->unknown & TOPO_NO_NVLINK); k++) {
            r2_json_int(j, NULL, t->nvlink_mbps[i][k]);
        }
        r2_json_close(j, ']');
        r2_json_close(j, '}');
    }
    r2_json_close(j, ']');
}

static void end_put(struct r2_json *j, const struct topo *t, struct topo_end from)
{
    if (from.kind == TOPO_END_GPU) {
        r2_json_int(j, "gpu", from.index);
    } else {
        r2_json_int(j, "node", t->numa[from.index].id);
    }
}

static void nic_put(struct r2_json *j, const struct topo *t, const char *key, int nic)
{
    char text[NIC_TEXT];

    r2_json_text(j, key, nic >= 0 ? nic_text(t, nic, text) : NULL);
}

static void path_put(struct r2_json *j, const struct topo *t, struct topo_end from, int nic,
                     const struct topo_load *load)
{
    struct topo_path path;
    struct topo_route r;
    char text[64];

    topo_path_find(t, from, nic, &path);
    r2_json_open(j, NULL, '{');
    end_put(j, t, from);
    nic_put(j, t, "nic", nic);
    r2_json_text(j, "class", topo_class_name(path.class));
    mbps_put(j, "path_mbps", path.mbps);
    mbps_put(j, "mbps", topo_path_nic_mbps(t, &path, nic));
    r2_json_open(j, "links", '[');
    for (int i = 0; i < path.n; i++) {
        topo_link_text(t, path.way[i] / 2, text, sizeof(text));
        r2_json_text(j, NULL, text);
    }
    r2_json_close(j, ']');
    if (from.kind == TOPO_END_GPU) {
        topo_route_choose(t, load, from.index, nic, topo_path_nic_mbps(t, &path, nic), true, &r);
        if (r.kind == TOPO_ROUTE_RELAY) {
            r2_json_int(j, "relay_gpu", r.relay);
            r2_json_int(j, "relay_mbps", r.mbps);
        }
    }
    r2_json_close(j, '}');
}

static void paths_put(struct r2_json *j, const struct topo *t)
{
    static struct topo_load load;

    topo_load_begin(t, &load);
    r2_json_open(j, "paths", '[');
    for (int n = 0; n < t->nics; n++) {
        for (int g = 0; g < t->gpus; g++) {
            path_put(j, t, (struct topo_end){TOPO_END_GPU, g}, n, &load);
        }
        for (int i = 0; i < t->numas; i++) {
            path_put(j, t, (struct topo_end){TOPO_END_NUMA, i}, n, &load);
        }
    }
    r2_json_close(j, ']');
}

static void order_put(struct r2_json *j, const struct topo *t)
{
    struct topo_choice c[TOPO_NICS_MAX];

    r2_json_open(j, "order", '[');
    for (int i = 0; i < ends_count(t); i++) {
        for (int failed = -1; failed < t->nics; failed++) {
            int n = topo_rank(t, end_at(t, i), failed, c);

            r2_json_open(j, NULL, '{');
            end_put(j, t, end_at(t, i));
            nic_put(j, t, "failed", failed);
            r2_json_open(j, "nics", '[');
            for (int k = 0; k < n; k++) {
                nic_put(j, t, NULL, c[k].nic);
            }
            r2_json_close(j, ']');
            r2_json_close(j, '}');
        }
    }
    r2_json_close(j, ']');
}

void json_write(FILE *f, const struct tool *tool)
{
    const struct topo *t = &tool->t;
    struct r2_json j;

    r2_json_begin_file(&j, f);
    r2_json_open(&j, NULL, '{');
    r2_json_int(&j, "schema", 1);
    r2_json_text(&j, "version", R2_VERSION);
    r2_json_text(&j, "source", tool->source);
    r2_json_text(&j, "root", tool->root[0] ? tool->root : NULL);
    host_put(&j, t);
    functions_put(&j, t);
    devices_put(&j, t);
    paths_put(&j, t);
    if (tool->order) {
        order_put(&j, t);
    }
    r2_json_open(&j, "unknown", '[');
    for (unsigned bit = 1; bit <= TOPO_BAD; bit <<= 1) {
        if (t->unknown & bit) {
            r2_json_text(&j, NULL, topo_unknown_text(bit));
        }
    }
    r2_json_close(&j, ']');
    r2_json_close(&j, '}');
    fputc('\n', f);
}
