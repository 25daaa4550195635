#include "tools/r2_config/elf.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define IDENT "nccl-net-r2 "

/* The file in memory. Every offset in it is a stranger's number until image_at() has looked at it.
 */
struct image {
    const unsigned char *base;
    size_t size;
};

static const void *image_at(const struct image *m, size_t offset, size_t len)
{
    return offset <= m->size && len <= m->size - offset ? m->base + offset : NULL;
}

static const ElfW(Phdr) * header_get(const struct image *m, int i)
{
    const ElfW(Ehdr) *e = (const ElfW(Ehdr) *)m->base;

    return image_at(m, e->e_phoff + (size_t)i * sizeof(ElfW(Phdr)), sizeof(ElfW(Phdr)));
}

/* Offset in the file of what the loader puts at address @addr; SIZE_MAX: nowhere. */
static size_t address_offset(const struct image *m, ElfW(Addr) addr)
{
    const ElfW(Ehdr) *e = (const ElfW(Ehdr) *)m->base;

    for (int i = 0; i < e->e_phnum; i++) {
        const ElfW(Phdr) *p = header_get(m, i);

        if (p && p->p_type == PT_LOAD && addr >= p->p_vaddr && addr - p->p_vaddr < p->p_filesz) {
            return addr - p->p_vaddr + p->p_offset;
        }
    }
    return SIZE_MAX;
}

static void string_copy(const struct image *m, size_t offset, char *out, size_t len)
{
    size_t n = 0;

    while (n + 1 < len && offset < m->size && m->base[offset]) {
        out[n++] = (char)m->base[offset++];
    }
    out[n] = '\0';
}

/* The names of a chain of @count version definitions; a link that leads out of the file, or
 * nowhere, ends it. */
static void versions_read(const struct image *m, size_t offset, size_t count, size_t strings,
                          struct elf_info *out)
{
    for (size_t i = 0; i < count && out->version_count < ELF_VERSIONS_MAX; i++) {
        const ElfW(Verdef) *def = image_at(m, offset, sizeof(*def));
        const ElfW(Verdaux) *name = def ? image_at(m, offset + def->vd_aux, sizeof(*name)) : NULL;

        if (name == NULL) {
            return;
        }
        if (!(def->vd_flags & VER_FLG_BASE)) {
            string_copy(m, strings + name->vda_name, out->version[out->version_count++],
                        sizeof(out->version[0]));
        }
        if (def->vd_next == 0) {
            return;
        }
        offset += def->vd_next;
    }
}

static void dynamic_read(const struct image *m, const ElfW(Phdr) * p, struct elf_info *out)
{
    size_t count = p->p_filesz / sizeof(ElfW(Dyn)), strings = SIZE_MAX, versions = SIZE_MAX,
           version_count = 0;
    const ElfW(Dyn) *dyn = image_at(m, p->p_offset, p->p_filesz);

    for (size_t i = 0; dyn && i < count && dyn[i].d_tag != DT_NULL; i++) {
        if (dyn[i].d_tag == DT_STRTAB) {
            strings = address_offset(m, dyn[i].d_un.d_ptr);
        } else if (dyn[i].d_tag == DT_VERDEF) {
            versions = address_offset(m, dyn[i].d_un.d_ptr);
        } else if (dyn[i].d_tag == DT_VERDEFNUM) {
            version_count = dyn[i].d_un.d_val;
        }
    }
    if (dyn == NULL || strings == SIZE_MAX) {
        return;
    }
    for (size_t i = 0; i < count && dyn[i].d_tag != DT_NULL; i++) {
        if (dyn[i].d_tag == DT_SONAME) {
            string_copy(m, strings + dyn[i].d_un.d_val, out->soname, sizeof(out->soname));
        } else if (dyn[i].d_tag == DT_NEEDED && out->needed_count < ELF_NEEDED_MAX) {
            string_copy(m, strings + dyn[i].d_un.d_val, out->needed[out->needed_count++],
                        sizeof(out->needed[0]));
        } else if (dyn[i].d_tag == DT_FLAGS_1) {
            out->nodelete = (dyn[i].d_un.d_val & DF_1_NODELETE) != 0;
        }
    }
    if (versions != SIZE_MAX) {
        versions_read(m, versions, version_count, strings, out);
    }
}

/* The version text: the name, a blank, a digit, to tell it from messages that name the plugin. */
static void ident_find(const struct image *m, char *out, size_t len)
{
    const unsigned char *at = m->base, *end = m->base + m->size;

    while ((at = memmem(at, (size_t)(end - at), IDENT, sizeof(IDENT) - 1)) != NULL) {
        at += sizeof(IDENT) - 1;
        if (at < end && *at >= '0' && *at <= '9') {
            string_copy(m, (size_t)(at - m->base) - (sizeof(IDENT) - 1), out, len);
            return;
        }
    }
}

static int image_read(const struct image *m, struct elf_info *out, char *why, size_t why_len)
{
    const ElfW(Ehdr) *e = image_at(m, 0, sizeof(*e));

    if (e == NULL || memcmp(e->e_ident, ELFMAG, SELFMAG) != 0) {
        snprintf(why, why_len, "not an ELF file");
        return -1;
    }
    if (e->e_ident[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32) ||
        e->e_type != ET_DYN || e->e_phentsize != sizeof(ElfW(Phdr))) {
        snprintf(why, why_len, "not a shared library for this kind of process");
        return -1;
    }
    for (int i = 0; i < e->e_phnum; i++) {
        const ElfW(Phdr) *p = header_get(m, i);

        if (p && p->p_type == PT_DYNAMIC) {
            dynamic_read(m, p, out);
        }
    }
    ident_find(m, out->ident, sizeof(out->ident));
    return 0;
}

int elf_read(const char *path, struct elf_info *out, char *why, size_t why_len)
{
    struct image m = {0};
    struct stat st;
    void *map;
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc;

    memset(out, 0, sizeof(*out));
    if (fd < 0 || fstat(fd, &st) != 0) {
        snprintf(why, why_len, "%s", strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    map = S_ISREG(st.st_mode) && st.st_size > 0
              ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0)
              : MAP_FAILED;
    close(fd);
    if (map == MAP_FAILED) {
        snprintf(why, why_len, "not a file that can be mapped");
        return -1;
    }
    m.base = map;
    m.size = (size_t)st.st_size;
    rc = image_read(&m, out, why, why_len);
    munmap(map, m.size);
    return rc;
}
