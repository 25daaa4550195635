#include "tests/nccl/standin/elf_symbols.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether the part lies in the file. */
static bool has(const struct elf_symbols *s, uint64_t at, uint64_t len)
{
    return at <= s->len && len <= s->len - at;
}

static int file_map(struct elf_symbols *s, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    void *at = MAP_FAILED;

    if (fd < 0) {
        return -1;
    }
    if (fstat(fd, &st) == 0) {
        s->len = (size_t)st.st_size;
        at = mmap(NULL, s->len, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    close(fd);
    s->file = at == MAP_FAILED ? NULL : at;
    return s->file ? 0 : -1;
}

/* Sections; NULL: no such library. */
static const Elf64_Shdr *sections_of(const struct elf_symbols *s, int *n)
{
    const Elf64_Ehdr *e = (const void *)s->file;

    if (!has(s, 0, sizeof(*e)) || memcmp(e->e_ident, ELFMAG, SELFMAG) != 0 ||
        e->e_ident[EI_CLASS] != ELFCLASS64 || e->e_machine != EM_X86_64 ||
        !has(s, e->e_shoff, (uint64_t)e->e_shnum * sizeof(Elf64_Shdr))) {
        return NULL;
    }
    *n = e->e_shnum;
    return (const void *)(s->file + e->e_shoff);
}

static void list_take(struct elf_symbols *s, const Elf64_Shdr *list, const Elf64_Shdr *names)
{
    if (!has(s, list->sh_offset, list->sh_size) || !has(s, names->sh_offset, names->sh_size) ||
        names->sh_size == 0 || s->file[names->sh_offset + names->sh_size - 1] != '\0') {
        return;
    }
    s->sym = (const void *)(s->file + list->sh_offset);
    s->n = list->sh_size / sizeof(Elf64_Sym);
    s->names = s->file + names->sh_offset;
    s->names_len = names->sh_size;
}

int elf_symbols_open(struct elf_symbols *s, const char *path, char *why, size_t bytes)
{
    const Elf64_Shdr *section;
    int n = 0;

    memset(s, 0, sizeof(*s));
    if (file_map(s, path) != 0) {
        snprintf(why, bytes, "%s cannot be read: %s", path, strerror(errno));
        return -1;
    }
    section = sections_of(s, &n);
    for (int i = 0; section && i < n; i++) {
        if (section[i].sh_type == SHT_SYMTAB && section[i].sh_link < (unsigned)n) {
            list_take(s, &section[i], &section[section[i].sh_link]);
        }
    }
    if (s->n == 0) {
        snprintf(why, bytes,
                 section ? "%s is stripped: it has no symbols" : "%s is no library for x86-64",
                 path);
        elf_symbols_close(s);
        return -1;
    }
    return 0;
}

void elf_symbols_close(struct elf_symbols *s)
{
    if (s->file) {
        munmap((void *)(uintptr_t)s->file, s->len);
    }
    memset(s, 0, sizeof(*s));
}

const char *elf_symbols_name(const struct elf_symbols *s, size_t i)
{
    return s->sym[i].st_name < s->names_len ? s->names + s->sym[i].st_name : "";
}
