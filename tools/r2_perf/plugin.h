/*
 * Finding and loading a net plugin by NCCL's rules, and the configuration files that NCCL reads
 * before it.
 */
#ifndef R2_PERF_PLUGIN_H
#define R2_PERF_PLUGIN_H

#include <stddef.h>

#include "tools/r2_perf/abi_view.h"

#define PLUGIN_DEVICES_MAX 64

struct plugin {
    const struct abi_net *net; /* of any version (abi_view.h) */
    void *library;
    char path[4096 + 520]; /* what was opened */
    int ndev;
    struct abi_props props[PLUGIN_DEVICES_MAX]; /* strings belong to the plugin */
};

/*
 * Set what nccl.conf files set: NCCL_CONF_FILE, else ~/.nccl.conf, then /etc/nccl.conf; what is set
 * already wins. Before any thread is started.
 */
void plugin_conf_read(void);

/*
 * Load the plugin that NCCL_NET_PLUGIN names: each name of the list as a file, then as
 * libnccl-net-NAME.so, both by the loader's search and beside this program. Unset:
 * libnccl-net-r2.so beside this program, in ../lib, or where the loader finds it, else
 * libnccl-net.so. Checks NCCL_NET against the plugin's name, runs init, devices and getProperties
 * of its table of version @abi; 0: of the newest that it has, as NCCL does. 0, or -1 with the
 * reason in @error. Thread: main; may block in the plugin's init. plugin_close when done.
 */
int plugin_open(struct plugin *p, int abi, char *error, size_t error_bytes);
/* Forget the plugin: finalize. With @unload also dlclose, as NCCL does after its last communicator.
 */
void plugin_close(struct plugin *p, int unload);
/* The name of a result code, for messages. */
const char *plugin_result_name(int result);
/* "0000:9c:00.0" from the device's PCI path; "0000:00:00.0" for a virtual device. */
const char *plugin_device_bus(const struct plugin *p, int dev);

#endif
