/*
 * The symbols of an ELF library, those too that the loader does not know: the released libnccl.so.2
 * keeps them. x86-64. Nothing here ends the process.
 */
#ifndef ELF_SYMBOLS_H
#define ELF_SYMBOLS_H

#include <elf.h>
#include <stddef.h>

struct elf_symbols {
    const char *file; /* mapped */
    size_t len;
    const Elf64_Sym *sym;
    size_t n; /* 0: not open */
    const char *names;
    size_t names_len;
};

/* Maps @path and finds its list of symbols. 0; -1: none, with a reason in @why that names @path.
 * Thread: any, one per @s; reads a file. elf_symbols_close when done. */
int elf_symbols_open(struct elf_symbols *s, const char *path, char *why, size_t bytes);
void elf_symbols_close(struct elf_symbols *s);
/* The name of symbol @i, which lies in the mapped file; "" where the file has none there. */
const char *elf_symbols_name(const struct elf_symbols *s, size_t i);

#endif
