/*
 * What the loader would read of a shared library, from the file: without running any code of it.
 */
#ifndef R2_CONFIG_ELF_H
#define R2_CONFIG_ELF_H

#include <stddef.h>

#define ELF_NEEDED_MAX   32
#define ELF_VERSIONS_MAX 64

struct elf_info {
    char soname[128];
    char needed[ELF_NEEDED_MAX][128];
    int needed_count;
    char version[ELF_VERSIONS_MAX][32]; /* of symbols that it defines */
    int version_count;
    int nodelete;    /* stays after dlclose */
    char ident[160]; /* "nccl-net-r2 ..." of our own builds, "" elsewhere */
};

/* 0, or -1 with the reason in @why. Blocks on the file system. */
int elf_read(const char *path, struct elf_info *out, char *why, size_t why_len);

#endif
