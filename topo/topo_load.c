#include "topo_load.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topo_hwloc.h"
#include "topo_io.h"
#include "topo_links.h"
#include "topo_sysfs.h"

/* Opens the module at one of the places beside @dir; NULL with the loader's words of a file that is
 * there and does not load. */
static void *module_beside(const char *dir, size_t len, char *why, size_t why_len)
{
    static const char *const places[] = {"", "nccl-net-r2/", "../lib/nccl-net-r2/"};
    char path[PATH_MAX];

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        void *module;

        if (snprintf(path, sizeof(path), "%.*s/%s%s", (int)len, dir, places[i],
                     TOPO_HWLOC_MODULE) >= (int)sizeof(path) ||
            access(path, F_OK) != 0) {
            continue;
        }
        module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (module != NULL) {
            return module;
        }
        snprintf(why, why_len, "%s", dlerror());
    }
    return NULL;
}

static void *module_open(char *why, size_t why_len)
{
    char exe[PATH_MAX];
    const char *slash;
    void *module = NULL;
    Dl_info info;
    ssize_t n;

    why[0] = '\0';
    /* the plugin itself; for a program dladdr tells argv[0], which may be no path */
    if (dladdr((void *)(uintptr_t)topo_load, &info) != 0 &&
        (slash = strrchr(info.dli_fname, '/')) != NULL) {
        module = module_beside(info.dli_fname, (size_t)(slash - info.dli_fname), why, why_len);
    }
    n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    if (module == NULL && n > 0) {
        exe[n] = '\0';
        slash = strrchr(exe, '/');
        if (slash != NULL) {
            module = module_beside(exe, (size_t)(slash - exe), why, why_len);
        }
    }
    if (module == NULL && why[0] == '\0') {
        module = dlopen(TOPO_HWLOC_MODULE, RTLD_NOW | RTLD_LOCAL);
        if (module == NULL) {
            snprintf(why, why_len, "%s", dlerror());
        }
    }
    return module;
}

static int hwloc_read(const struct topo_source *s, struct topo *t, char *why, size_t why_len)
{
    struct topo_hwloc_params params = {.abi = TOPO_HWLOC_ABI,
                                       .size = sizeof(params),
                                       .root = s->from == TOPO_FROM_HWLOC && s->root[0] ? s->root
                                                                                        : NULL,
                                       .xml = s->from == TOPO_FROM_XML ? s->xml : NULL};
    char reason[600];
    void *module = module_open(reason, sizeof(reason));
    topo_hwloc_read_fn read_fn =
        module ? (topo_hwloc_read_fn)(uintptr_t)dlsym(module, TOPO_HWLOC_ENTRY) : NULL;

    topo_clear(t);
    if (module == NULL) {
        snprintf(why, why_len, "hwloc is not available: %s", reason);
        return -1;
    }
    if (read_fn == NULL) {
        snprintf(why, why_len, "%s is not the module of this program", TOPO_HWLOC_MODULE);
        return -1;
    }
    return read_fn(&params, t, why, why_len);
}

/* What the root's file of links says; no file is no word. */
static int links_read(const struct topo_io *io, struct topo *t, char *why, size_t why_len)
{
    char *text = malloc(TOPO_LINKS_MAX + 2);
    long n;
    int rc = 0;

    if (text == NULL) {
        snprintf(why, why_len, "out of memory");
        return -1;
    }
    n = topo_io_read(io, TOPO_LINKS_FILE, text, TOPO_LINKS_MAX + 2);
    if (n > TOPO_LINKS_MAX) {
        snprintf(why, why_len, "%s has more than %d bytes", TOPO_LINKS_FILE, TOPO_LINKS_MAX);
        rc = -1;
    } else if (n >= 0) {
        rc = topo_links_apply(t, text, why, why_len);
    } else if (errno != ENOENT && errno != ENOTDIR) {
        snprintf(why, why_len, "%s: %s", TOPO_LINKS_FILE, strerror(errno));
        rc = -1;
    }
    free(text);
    return rc;
}

int topo_load(const struct topo_source *source, struct topo *t, char *why, size_t why_len)
{
    struct topo_io io;
    int rc;

    if (source->from == TOPO_FROM_XML) {
        rc = hwloc_read(source, t, why, why_len);
    } else if (topo_io_open(&io, source->root) != 0) {
        snprintf(why, why_len, "%s: %s", source->root, strerror(errno));
        rc = -1;
    } else {
        rc = source->from == TOPO_FROM_SYSFS ? topo_sysfs_read(&io, t, why, why_len)
                                             : hwloc_read(source, t, why, why_len);
        if (rc == 0) {
            rc = links_read(&io, t, why, why_len);
        }
        topo_io_close(&io);
    }
    if (rc != 0) {
        topo_clear(t);
    }
    return rc;
}
