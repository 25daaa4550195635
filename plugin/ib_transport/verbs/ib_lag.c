#include "ib_lag.h"

#include <dlfcn.h>
#include <string.h>

#include "base/r2_log.h"
#include "base/r2_symbols.h"
#include "ib_sysfs.h"

unsigned ib_lag_port(unsigned way)
{
    return way ? (way - 1) % IB_LAG_PORTS + 1 : 0;
}

static bool load(struct ib_lag *lag, const char *library, const char *netdev)
{
    static const struct r2_symbol rows[] = {
        {"mlx5dv_is_supported", offsetof(struct ib_lag, is_mlx5), 0},
        {"mlx5dv_modify_qp_lag_port", offsetof(struct ib_lag, set_port), 0}};
    void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    const char *why = lib ? NULL : dlerror(), *missing = NULL;

    if (lib) {
        missing = r2_symbols_find(lib, rows, sizeof(rows) / sizeof(rows[0]), lag);
    }
    if (lib && missing == NULL) {
        return true;
    }
    memset(lag, 0, sizeof(*lag));
    R2_INFO("%s is a bond of %d ports, of which the kernel chooses: %s%s%s", netdev, IB_LAG_PORTS,
            missing ? library
            : why   ? why
                    : library,
            missing ? " has no " : "", missing ? missing : "");
    if (lib) {
        dlclose(lib);
    }
    return false;
}

void ib_lag_open(struct ib_nics *nics, const char *library)
{
    for (int i = 0; i < nics->count; i++) {
        struct ib_nic *nic = &nics->nic[i];
        struct ibv_device *device = nic->ctx->device;

        if (ib_sysfs_bond_ports(device->ibdev_path, nic->netdev) != IB_LAG_PORTS) {
            continue;
        }
        if (nics->lag.set_port == NULL && !load(&nics->lag, library, nic->netdev)) {
            return;
        }
        atomic_store_explicit(&nic->bond, nics->lag.is_mlx5(device), memory_order_relaxed);
    }
}

void ib_lag_place(struct ib_nics *nics, int nic, struct ibv_qp *qp, unsigned way)
{
    struct ib_nic *n = &nics->nic[nic];
    unsigned port = ib_lag_port(way);
    int err;

    if (port == 0 || !atomic_load_explicit(&n->bond, memory_order_relaxed)) {
        return;
    }
    err = ib_verbs_err(nics->lag.set_port(qp, (uint8_t)port));
    if (err != 0 && atomic_exchange_explicit(&n->bond, false, memory_order_relaxed)) {
        R2_INFO("NIC %s: mlx5dv_modify_qp_lag_port: %s: the kernel chooses the port of bond %s",
                n->name, strerror(err), n->netdev);
    }
}
