#include <string.h>

#include "tools/r2_perf/json.h"
#include "tools/r2_topo/tool.h"
#include "topo/topo_rank.h"
#include "topo/topo_route.h"

/* Numbers that are unknown are null. */
static void mbps_put(struct json *j, const char *key, uint32_t mbps)
{
    if (mbps == 0) {
        json_null_put(j, key);
    } else {
        json_int_put(j, key, mbps);
    }
}

static void node_put(struct json *j, const struct topo *t, const char *key, int numa)
{
    if (numa < 0) {
        json_null_put(j, key);
    } else {
        json_int_put(j, key, t->numa[numa].id);
    }
}

static void pci_put(struct json *j, const struct topo *t, const char *key, int pci)
{
    char bdf[TOPO_BDF];

    json_text_put(j, key, pci >= 0 ? topo_bdf_text(&t->pci[pci], bdf) : NULL);
}

static void host_put(struct json *j, const struct topo *t)
{
    json_object_start(j, "cpu");
    json_text_put(j, "vendor", t->cpu != TOPO_CPU_UNKNOWN ? topo_cpu_name(t->cpu) : NULL);
    json_int_put(j, "family", t->cpu_family);
    json_int_put(j, "model", t->cpu_model);
    json_object_end(j);
    json_int_put(j, "sockets", t->sockets);
    mbps_put(j, "between_sockets_mbps", t->inter_mbps);
    json_list_start(j, "nodes");
    for (int i = 0; i < t->numas; i++) {
        json_object_start(j, NULL);
        json_int_put(j, "node", t->numa[i].id);
        if (t->numa[i].socket >= 0) {
            json_int_put(j, "socket", t->numa[i].socket);
        } else {
            json_null_put(j, "socket");
        }
        json_object_end(j);
    }
    json_list_end(j);
}

static void functions_put(struct json *j, const struct topo *t)
{
    static const char *const ports[] = {"root", "up", "down", "end", "inside"};

    json_list_start(j, "pci");
    for (int i = 0; i < t->pcis; i++) {
        const struct topo_pci *p = &t->pci[i];
        char text[32];

        json_object_start(j, NULL);
        pci_put(j, t, "address", i);
        pci_put(j, t, "parent", p->parent);
        snprintf(text, sizeof(text), "%04x:%02x", t->root[p->root].domain, t->root[p->root].bus);
        json_text_put(j, "root", text);
        json_text_put(j, "port", ports[p->port]);
        snprintf(text, sizeof(text), "%04x:%04x", p->vendor, p->device);
        json_text_put(j, "id", text);
        node_put(j, t, "node", p->numa);
        mbps_put(j, "link_mbps", p->mbps);
        json_object_end(j);
    }
    json_list_end(j);
}

static void devices_put(struct json *j, const struct topo *t)
{
    static const char *const layers[] = {NULL, "InfiniBand", "Ethernet"};
    char guid[20];

    json_list_start(j, "nics");
    for (int i = 0; i < t->nics; i++) {
        const struct topo_nic *n = &t->nic[i];

        json_object_start(j, NULL);
        json_text_put(j, "name", n->name);
        json_int_put(j, "port", n->port);
        pci_put(j, t, "pci", n->pci);
        snprintf(guid, sizeof(guid), "%016llx", (unsigned long long)n->guid);
        json_text_put(j, "guid", n->guid ? guid : NULL);
        mbps_put(j, "rate_mbps", n->rate_mbps);
        json_text_put(j, "state", n->state ? topo_state_name(n->state) : NULL);
        json_text_put(j, "layer", layers[n->layer <= TOPO_LAYER_ETH ? n->layer : 0]);
        node_put(j, t, "node", n->pci >= 0 ? t->pci[n->pci].numa : -1);
        json_object_end(j);
    }
    json_list_end(j);
    json_list_start(j, "gpus");
    for (int i = 0; i < t->gpus; i++) {
        json_object_start(j, NULL);
        json_int_put(j, "gpu", i);
        pci_put(j, t, "pci", t->gpu[i].pci);
        node_put(j, t, "node", t->pci[t->gpu[i].pci].numa);
        mbps_put(j, "c2c_mbps", t->gpu[i].c2c_mbps);
        json_list_start(j, "nvlink_mbps");
        for (int k = 0; k < t->gpus && !(t->unknown & TOPO_NO_NVLINK); k++) {
            json_int_put(j, NULL, t->nvlink_mbps[i][k]);
        }
        json_list_end(j);
        json_object_end(j);
    }
    json_list_end(j);
}

static void end_put(struct json *j, const struct topo *t, struct topo_end from)
{
    if (from.kind == TOPO_END_GPU) {
        json_int_put(j, "gpu", from.index);
    } else {
        json_int_put(j, "node", t->numa[from.index].id);
    }
}

static void nic_put(struct json *j, const struct topo *t, const char *key, int nic)
{
    char text[NIC_TEXT];

    json_text_put(j, key, nic >= 0 ? nic_text(t, nic, text) : NULL);
}

static void path_put(struct json *j, const struct topo *t, struct topo_end from, int nic,
                     const struct topo_load *load)
{
    struct topo_path path;
    struct topo_route r;
    char text[64];

    topo_path_find(t, from, nic, &path);
    json_object_start(j, NULL);
    end_put(j, t, from);
    nic_put(j, t, "nic", nic);
    json_text_put(j, "class", topo_class_name(path.class));
    mbps_put(j, "path_mbps", path.mbps);
    mbps_put(j, "mbps", topo_path_nic_mbps(t, &path, nic));
    json_list_start(j, "links");
    for (int i = 0; i < path.n; i++) {
        topo_link_text(t, path.way[i] / 2, text, sizeof(text));
        json_text_put(j, NULL, text);
    }
    json_list_end(j);
    if (from.kind == TOPO_END_GPU) {
        topo_route_choose(t, load, from.index, nic, topo_path_nic_mbps(t, &path, nic), true, &r);
        if (r.kind == TOPO_ROUTE_RELAY) {
            json_int_put(j, "relay_gpu", r.relay);
            json_int_put(j, "relay_mbps", r.mbps);
        }
    }
    json_object_end(j);
}

static void paths_put(struct json *j, const struct topo *t)
{
    static struct topo_load load;

    topo_load_begin(t, &load);
    json_list_start(j, "paths");
    for (int n = 0; n < t->nics; n++) {
        for (int g = 0; g < t->gpus; g++) {
            path_put(j, t, (struct topo_end){TOPO_END_GPU, g}, n, &load);
        }
        for (int i = 0; i < t->numas; i++) {
            path_put(j, t, (struct topo_end){TOPO_END_NUMA, i}, n, &load);
        }
    }
    json_list_end(j);
}

static void order_put(struct json *j, const struct topo *t)
{
    struct topo_choice c[TOPO_NICS_MAX];

    json_list_start(j, "order");
    for (int i = 0; i < ends_count(t); i++) {
        for (int failed = -1; failed < t->nics; failed++) {
            int n = topo_rank(t, end_at(t, i), failed, c);

            json_object_start(j, NULL);
            end_put(j, t, end_at(t, i));
            nic_put(j, t, "failed", failed);
            json_list_start(j, "nics");
            for (int k = 0; k < n; k++) {
                nic_put(j, t, NULL, c[k].nic);
            }
            json_list_end(j);
            json_object_end(j);
        }
    }
    json_list_end(j);
}

void json_write(FILE *f, const struct tool *tool)
{
    const struct topo *t = &tool->t;
    struct json j;

    json_init(&j, f);
    json_object_start(&j, NULL);
    json_int_put(&j, "schema", 1);
    json_text_put(&j, "version", R2_VERSION);
    json_text_put(&j, "source", tool->source);
    json_text_put(&j, "root", tool->root[0] ? tool->root : NULL);
    host_put(&j, t);
    functions_put(&j, t);
    devices_put(&j, t);
    paths_put(&j, t);
    if (tool->order) {
        order_put(&j, t);
    }
    json_list_start(&j, "unknown");
    for (unsigned bit = 1; bit <= TOPO_BAD; bit <<= 1) {
        if (t->unknown & bit) {
            json_text_put(&j, NULL, topo_unknown_text(bit));
        }
    }
    json_list_end(&j);
    json_object_end(&j);
    fputc('\n', f);
}
