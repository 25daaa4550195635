/*
 * NCCL's own IB transport as a net plugin: the table inside the released libnccl.so.2 (NCCL_LIB,
 * else the one that was there when this was built), unmodified, where a driver of plugins finds
 * it. The library keeps its symbols, so that the table is found by its name. Nothing else of NCCL
 * runs; no GPU and no stand-in is needed.
 *
 * A refusal is one line on stderr and a table of zeros, which no driver takes.
 */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/r2_perf/abi_next.h"

#ifndef NCCL_LIB_DEFAULT
#define NCCL_LIB_DEFAULT "libnccl.so.2"
#endif

#define TABLE   "ncclNetIb"
#define RELEASE 228 /* the one whose own table is of version 11: major * 100 + minor */

/* Written by the constructor alone, before a driver looks for it. */
__attribute__((visibility("default"))) struct abi_net_v11 ncclNetPlugin_v11;

struct file {
    const char *at; /* mapped */
    size_t len;
};

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

static bool file_map(struct file *f, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    void *at = MAP_FAILED;

    if (fd >= 0 && fstat(fd, &st) == 0) {
        f->len = (size_t)st.st_size;
        at = mmap(NULL, f->len, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    if (fd >= 0) {
        close(fd);
    }
    f->at = at;
    return at != MAP_FAILED || refuse("%s cannot be read: %s", path, strerror(errno));
}

/* Whether the part lies in the file. */
static bool file_has(const struct file *f, uint64_t at, uint64_t len)
{
    return at <= f->len && len <= f->len - at;
}

/* The symbol of that name in a list of them, whose names are in @names. */
static const Elf64_Sym *list_find(const struct file *f, const Elf64_Shdr *list,
                                  const Elf64_Shdr *names, const char *name)
{
    size_t len = strlen(name) + 1;

    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= list->sh_size; at += sizeof(Elf64_Sym)) {
        const Elf64_Sym *s = (const void *)(f->at + list->sh_offset + at);

        if (s->st_name < names->sh_size && names->sh_size - s->st_name >= len &&
            ELF64_ST_TYPE(s->st_info) == STT_OBJECT &&
            memcmp(f->at + names->sh_offset + s->st_name, name, len) == 0) {
            return s;
        }
    }
    return NULL;
}

static const Elf64_Sym *symbol_find(const struct file *f, const char *name)
{
    const Elf64_Ehdr *e = (const void *)f->at;
    const Elf64_Shdr *s;

    if (!file_has(f, 0, sizeof(*e)) || memcmp(e->e_ident, ELFMAG, SELFMAG) != 0 ||
        e->e_ident[EI_CLASS] != ELFCLASS64 ||
        !file_has(f, e->e_shoff, (uint64_t)e->e_shnum * sizeof(*s))) {
        return NULL;
    }
    s = (const void *)(f->at + e->e_shoff);
    for (int i = 0; i < e->e_shnum; i++) {
        const Elf64_Shdr *names = &s[s[i].sh_link < e->e_shnum ? s[i].sh_link : 0];

        if (s[i].sh_type == SHT_SYMTAB && file_has(f, s[i].sh_offset, s[i].sh_size) &&
            file_has(f, names->sh_offset, names->sh_size)) {
            return list_find(f, &s[i], names, name);
        }
    }
    return NULL;
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
    struct link_map *map;
    struct file f = {0};
    const Elf64_Sym *s;
    bool ok;

    if (dlinfo(nccl, RTLD_DI_LINKMAP, &map) != 0) {
        return refuse("%s", dlerror());
    }
    if (!file_map(&f, map->l_name)) {
        return false;
    }
    s = symbol_find(&f, TABLE);
    ok = s != NULL && s->st_size == sizeof(ncclNetPlugin_v11);
    if (ok) {
        memcpy(&ncclNetPlugin_v11, (const void *)(map->l_addr + s->st_value),
               sizeof(ncclNetPlugin_v11));
    }
    munmap((void *)(uintptr_t)f.at, f.len);
    return ok || refuse("%s has no " TABLE " of %zu bytes: is it stripped?", map->l_name,
                        sizeof(ncclNetPlugin_v11));
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
