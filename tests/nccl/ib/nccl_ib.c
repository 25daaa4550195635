/*
 * NCCL's own IB transport as a net plugin: the table inside the released libnccl.so.2 (NCCL_LIB,
 * else the one that was there when this was built), unmodified, where a driver of plugins finds
 * it. The library keeps its symbols, so that the table is found by its name. Nothing else of NCCL
 * runs; no GPU and no stand-in is needed.
 *
 * A refusal is one line on stderr and a table of zeros, which no driver takes.
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "tests/nccl/standin/elf_symbols.h"
#include "tools/r2_perf/abi_next.h"

#ifndef NCCL_LIB_DEFAULT
#define NCCL_LIB_DEFAULT "libnccl.so.2"
#endif

#define TABLE   "ncclNetIb"
#define RELEASE 228 /* the one whose own table is of version 11: major * 100 + minor */

/* Written by the constructor alone, before a driver looks for it. */
__attribute__((visibility("default"))) struct abi_net_v11 ncclNetPlugin_v11;

static __attribute__((format(printf, 1, 2))) bool refuse(const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    fprintf(stderr, "libnccl-net-ib.so: %s\n", text);
    return false;
}

/* The transport looks its NICs up in /sys, which is the fabric's then, for this thread and those
 * that it starts. */
static bool sysfs_take(void)
{
    const char *sys = getenv("SOFTFAB_SYSFS");

    if (sys &&
        (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
         mount(sys, "/sys", NULL, MS_BIND, NULL) != 0)) {
        return refuse("a /sys with the fabric's NICs wants root and unshare: %s", strerror(errno));
    }
    return true;
}

static bool release_is_known(void *nccl, const char *path)
{
    int (*version_get)(int *version), version = 0;

    *(void **)&version_get = dlsym(nccl, "ncclGetVersion");
    if (version_get == NULL) {
        return refuse("%s has no ncclGetVersion", path);
    }
    version_get(&version);
    return version / 100 == RELEASE ||
           refuse("%s is NCCL %d.%d: its own transport's table is not that of 2.28", path,
                  version / 10000, version / 100 % 100);
}

static bool table_take(void *nccl)
{
    struct elf_symbols s;
    struct link_map *map;
    char why[512];
    bool ok = false;

    if (dlinfo(nccl, RTLD_DI_LINKMAP, &map) != 0) {
        return refuse("%s", dlerror());
    }
    if (elf_symbols_open(&s, map->l_name, why, sizeof(why)) != 0) {
        return refuse("%s", why);
    }
    for (size_t i = 0; i < s.n && !ok; i++) {
        ok = s.sym[i].st_shndx != SHN_UNDEF && s.sym[i].st_size == sizeof(ncclNetPlugin_v11) &&
             strcmp(elf_symbols_name(&s, i), TABLE) == 0;
        if (ok) {
            memcpy(&ncclNetPlugin_v11, (const void *)(map->l_addr + s.sym[i].st_value),
                   sizeof(ncclNetPlugin_v11));
        }
    }
    elf_symbols_close(&s);
    return ok || refuse("%s has no " TABLE " of %zu bytes", map->l_name, sizeof(ncclNetPlugin_v11));
}

static __attribute__((constructor)) void begin(void)
{
    const char *path = getenv("NCCL_LIB");
    void *nccl;

    if (path == NULL || *path == '\0') {
        path = NCCL_LIB_DEFAULT;
    }
    nccl = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (nccl == NULL) {
        refuse("%s (NCCL_LIB=FILE names a libnccl.so.2)", dlerror());
        return;
    }
    if (release_is_known(nccl, path) && sysfs_take()) {
        table_take(nccl);
    }
}
