#include "tools/r2_perf/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "tools/r2_perf/log.h"
#include "tools/r2_perf/util.h"

#define PLUGIN_CONF_LINE  4096
#define PLUGIN_CONF_VALUE 1024
#define OURS              "libnccl-net-r2.so"

/* No trimming, no quotes, a comment only in column 0, the first '=' divides, existing variables
 * win: NCCL's rules. */
static void plugin_conf_line(char *line)
{
    line[strcspn(line, "\n")] = '\0';
    size_t n = strlen(line);
    if (n && line[n - 1] == '\r') {
        line[n - 1] = '\0';
    }
    char *eq = strchr(line, '=');
    if (line[0] == '#' || !eq || eq == line) {
        return;
    }
    char name[PLUGIN_CONF_VALUE], value[PLUGIN_CONF_VALUE];
    snprintf(name, sizeof(name), "%.*s", (int)(eq - line), line);
    snprintf(value, sizeof(value), "%s", eq + 1);
    setenv(name, value, 0);
}

static void plugin_conf_file(const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f) {
        return;
    }
    char line[PLUGIN_CONF_LINE];
    while (fgets(line, sizeof(line), f)) {
        plugin_conf_line(line);
    }
    fclose(f);
}

void plugin_conf_read(void)
{
    const char *file = getenv("NCCL_CONF_FILE"), *home = getenv("HOME");
    char path[4096];
    if (file && *file) {
        plugin_conf_file(file);
    } else if (home && *home) {
        snprintf(path, sizeof(path), "%s/.nccl.conf", home);
        plugin_conf_file(path);
    }
    plugin_conf_file("/etc/nccl.conf");
}

static void plugin_beside_program(char *out, size_t bytes, const char *file)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash) {
        *slash = '\0';
    }
    snprintf(out, bytes, "%s/%s", self, file);
}

/* The tries of all names are collected in @why, so that the error can show each. */
static void *plugin_file_try(struct plugin *p, const char *path, char *why, size_t why_bytes)
{
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        size_t n = strlen(why);
        snprintf(why + n, why_bytes - n, "%s%s", n ? "; " : "", dlerror());
        return NULL;
    }
    snprintf(p->path, sizeof(p->path), "%s", path);
    return lib;
}

static void *plugin_name_try(struct plugin *p, const char *name, char *why, size_t why_bytes)
{
    size_t n = strlen(name);
    bool file_name =
        strchr(name, '/') || (!strncmp(name, "lib", 3) && n > 3 && !strcmp(name + n - 3, ".so"));
    void *lib = plugin_file_try(p, name, why, why_bytes);
    if (lib || strchr(name, '/')) {
        return lib;
    }
    char file[512], path[sizeof(p->path)];
    snprintf(file, sizeof(file), file_name ? "%s" : "libnccl-net-%s.so", name);
    if (!file_name) {
        lib = plugin_file_try(p, file, why, why_bytes);
    }
    if (!lib) {
        plugin_beside_program(path, sizeof(path), file);
        lib = plugin_file_try(p, path, why, why_bytes);
    }
    return lib;
}

/* As it is built, as make install puts it, as a package does. */
static void *plugin_default_try(struct plugin *p, char *why, size_t why_bytes)
{
    char path[sizeof(p->path)];
    void *lib;

    plugin_beside_program(path, sizeof(path), OURS);
    lib = plugin_file_try(p, path, why, why_bytes);
    if (!lib) {
        plugin_beside_program(path, sizeof(path), "../lib/" OURS);
        lib = plugin_file_try(p, path, why, why_bytes);
    }
    if (!lib) {
        lib = plugin_file_try(p, OURS, why, why_bytes);
    }
    return lib ? lib : plugin_file_try(p, "libnccl-net.so", why, why_bytes);
}

static int plugin_devices_read(struct plugin *p, char *error, size_t bytes)
{
    int rc = p->net->init(log_line_write);
    char warning[1024];
    if (rc) {
        log_warning_get(warning, sizeof(warning));
        snprintf(error, bytes, "init of plugin %s returned %d (%s): %s", p->net->name, rc,
                 plugin_result_name(rc), warning);
        return -1;
    }
    rc = p->net->devices(&p->ndev);
    if (rc || p->ndev <= 0) {
        log_warning_get(warning, sizeof(warning));
        snprintf(error, bytes, "devices of plugin %s returned %d (%s) and %d devices: %s",
                 p->net->name, rc, plugin_result_name(rc), p->ndev, warning);
        return -1;
    }
    p->ndev = (int)util_size_min((size_t)p->ndev, PLUGIN_DEVICES_MAX);
    for (int d = 0; d < p->ndev; d++) {
        rc = p->net->get_properties(d, &p->props[d]);
        if (rc || !p->props[d].name || p->props[d].device_type != ABI_DEVICE_HOST) {
            snprintf(error, bytes,
                     "getProperties(%d) of plugin %s returned %d (%s), device type %d", d,
                     p->net->name, rc, plugin_result_name(rc), p->props[d].device_type);
            return -1;
        }
    }
    return 0;
}

static int plugin_table_use(struct plugin *p, int abi, char *error, size_t bytes)
{
    const char *wanted = getenv("NCCL_NET");
    p->net = abi_view_find(p->library, abi);
    if (!p->net && abi) {
        snprintf(error, bytes, "%s has no %s", p->path, abi_view_symbol(abi));
        return -1;
    }
    if (!p->net) {
        snprintf(error, bytes, "%s has no ncclNetPlugin_v%d to v%d", p->path, ABI_VIEW_OLDEST,
                 ABI_VIEW_NEWEST);
        return -1;
    }
    if (wanted && *wanted && strcasecmp(wanted, p->net->name)) {
        snprintf(error, bytes, "NCCL_NET asks for %s, but %s is called %s", wanted, p->path,
                 p->net->name);
        return -1;
    }
    return plugin_devices_read(p, error, bytes);
}

int plugin_open(struct plugin *p, int abi, char *error, size_t error_bytes)
{
    const char *names = getenv("NCCL_NET_PLUGIN");
    char why[2048] = "", list[1024], *save = NULL;
    memset(p, 0, sizeof(*p));
    snprintf(error, error_bytes, "no plugin in NCCL_NET_PLUGIN=%s", names ? names : "");
    if (!names || !*names) {
        p->library = plugin_default_try(p, why, sizeof(why));
        if (p->library) {
            return plugin_table_use(p, abi, error, error_bytes);
        }
        snprintf(error, error_bytes, "no plugin found: %s", why);
        return -1;
    }
    snprintf(list, sizeof(list), "%s", names);
    for (char *name = strtok_r(list, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
        why[0] = '\0';
        p->library = strcasecmp(name, "none") ? plugin_name_try(p, name, why, sizeof(why)) : NULL;
        if (!p->library) {
            snprintf(error, error_bytes, "plugin %s not found: %s", name, why);
        } else if (plugin_table_use(p, abi, error, error_bytes) == 0) {
            return 0;
        }
    }
    return -1;
}

void plugin_close(struct plugin *p, int unload)
{
    if (p->net) {
        abi_view_finalize();
    }
    if (unload && p->library) {
        dlclose(p->library);
    }
    p->library = NULL;
    p->net = NULL;
}

const char *plugin_result_name(int result)
{
    static const char *const names[] = {"success",        "unhandled CUDA error", "system error",
                                        "internal error", "invalid argument",     "invalid usage",
                                        "remote error",   "in progress",          "timeout"};
    return result >= 0 && result <= ABI_TIMEOUT ? names[result] : "unknown result";
}

const char *plugin_device_bus(const struct plugin *p, int dev)
{
    const char *path = p->props[dev].pci_path, *slash = path ? strrchr(path, '/') : NULL;
    const char *bus = slash ? slash + 1 : path;
    unsigned domain, b, d, f;
    return bus && sscanf(bus, "%x:%x:%x.%x", &domain, &b, &d, &f) == 4 ? bus : "0000:00:00.0";
}
