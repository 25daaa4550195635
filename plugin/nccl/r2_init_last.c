#include "r2_init_last.h"

#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/r2_log.h"
#include "ib_transport/tcp/tcpdev.h"
#include "ib_transport/verbs/ib_sysfs.h"
#include "oob/oob_ifsel.h"

#define NETDEVS_MAX 128

/* Interfaces of RDMA ports: they go down with what this is for. The caller frees the list. */
static const char **data_netdevs(const struct ib_verbs *v)
{
    char names[NETDEVS_MAX][IB_NETDEV_MAX];
    int n = 0, devices = 0;
    struct ibv_device **list = v->get_device_list(&devices);

    for (int i = 0; list && i < devices; i++) {
        n = ib_sysfs_netdevs(list[i]->ibdev_path, 1, names, n, NETDEVS_MAX);
    }
    if (list) {
        v->free_device_list(list);
    }
    return ib_sysfs_names_pack(names, n);
}

/* Mb/s; 0: the interface does not say, as loopback and bridges do not. */
static int speed_of(const char *name)
{
    char path[64], text[32] = "";
    FILE *f;
    long mbps;

    snprintf(path, sizeof(path), "/sys/class/net/%.16s/speed", name);
    f = fopen(path, "re");
    if (f == NULL) {
        return 0;
    }
    mbps = fgets(text, sizeof(text), f) ? strtol(text, NULL, 10) : 0;
    fclose(f);
    return mbps > 0 && mbps < 10000000 ? (int)mbps : 0;
}

static int interface_pick(const struct r2_config *cfg, const struct ib_verbs *v, struct oob_if *out,
                          char *why, size_t why_len)
{
    struct oob_if list[OOB_IF_MAX];
    int n = oob_ifsel_read(list, OOB_IF_MAX), i;
    bool automatic = strcmp(cfg->last_resort, "auto") == 0;
    const char *spec = !automatic           ? cfg->last_resort
                       : cfg->oob_ifname[0] ? cfg->oob_ifname
                                            : cfg->socket_ifname;
    const char **avoid;

    if (n < 0) {
        snprintf(why, why_len, "the interfaces of this host cannot be read");
        return -1;
    }
    avoid = data_netdevs(v);
    i = oob_ifsel_pick(list, n, spec, cfg->socket_family, avoid, why, why_len);
    i = i < 0 ? i : oob_ifsel_address(list, n, i, cfg->socket_family);
    for (int k = 0; i >= 0 && avoid && avoid[k]; k++) {
        if (strcmp(avoid[k], list[i].name) == 0) {
            R2_WARN(
                "last resort: %s is the interface of an RDMA port: it goes down with that; NCCL_R2_LAST_RESORT may name another",
                list[i].name);
        }
    }
    free(avoid);
    if (i >= 0) {
        *out = list[i];
    }
    return i < 0 ? -1 : 0;
}

int r2_init_last(const struct r2_config *cfg, struct ib_verbs *v, char *why, size_t why_len)
{
    struct tcpdev_params p = {.rate = (uint64_t)cfg->last_resort_rate * 1000000};
    struct oob_if chosen;

    if (strcmp(cfg->last_resort, "off") == 0 || cfg->last_resort[0] == '\0') {
        return 0;
    }
    if (interface_pick(cfg, v, &chosen, why, why_len) != 0) {
        return -1;
    }
    if (getrandom(p.secret, sizeof(p.secret), 0) != (ssize_t)sizeof(p.secret)) {
        snprintf(why, why_len, "no random numbers for its secret");
        return -1;
    }
    if (chosen.family == 4) {
        memcpy(&p.addr, chosen.addr, sizeof(p.addr));
    } else {
        memcpy(&p.addr6, chosen.addr, sizeof(p.addr6));
        p.scope = if_nametoindex(chosen.name);
    }
    p.speed_mbps = speed_of(chosen.name);
    if (tcpdev_add(v, &p, why, why_len) != 0) {
        return -1;
    }
    R2_INFO(
        "last resort: where no RDMA path is left, a connection goes on over TCP, interface %s, %s",
        chosen.name, chosen.family == 4 ? "IPv4" : "IPv6");
    return 0;
}
