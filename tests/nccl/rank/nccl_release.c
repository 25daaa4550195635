#include "tests/nccl/rank/nccl_release.h"

#include <stdio.h>

/* In order. Patch releases of one folder have the same layouts, field by field. */
static const struct {
    int version; /* as ncclGetVersion() has it */
    const char *folder;
} releases[] = {
    {22203, "222"}, {22304, "223"}, {22403, "224"}, {22501, "225"}, {22602, "226"}, {22603, "226"},
    {22605, "226"}, {22606, "226"}, {22703, "227"}, {22705, "227"}, {22706, "227"}, {22707, "227"},
    {22803, "228"}, {22807, "228"}, {22809, "228"}, {22902, "229"}, {22903, "229"}, {22907, "229"},
    {23003, "230"}, {23004, "230"}, {23007, "230"},
};
#define RELEASES ((int)(sizeof(releases) / sizeof(releases[0])))

const char *nccl_release_folder(int version)
{
    for (int i = 0; i < RELEASES; i++) {
        if (releases[i].version == version) {
            return releases[i].folder;
        }
    }
    return NULL;
}

void nccl_release_print(int version, char *text, size_t bytes)
{
    snprintf(text, bytes, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

/* Those of the same minor version, with commas; first and last of all when there are none. */
static void neighbours_print(int version, char *text, size_t bytes)
{
    char one[32], first[32], last[32];
    size_t at = 0;

    text[0] = '\0';
    for (int i = 0; i < RELEASES; i++) {
        if (releases[i].version / 100 == version / 100 && at < bytes) {
            nccl_release_print(releases[i].version, one, sizeof(one));
            at += (size_t)snprintf(text + at, bytes - at, "%s%s", at ? ", " : "", one);
        }
    }
    if (at == 0) {
        nccl_release_print(releases[0].version, first, sizeof(first));
        nccl_release_print(releases[RELEASES - 1].version, last, sizeof(last));
        snprintf(text, bytes, "%s to %s", first, last);
    }
}

void nccl_release_refuse(int version, char *text, size_t bytes)
{
    char name[32], others[128];

    nccl_release_print(version, name, sizeof(name));
    neighbours_print(version, others, sizeof(others));
    snprintf(text, bytes,
             "NCCL %s: the stand-in for CUDA does not know the layouts of this release, which is "
             "%s; it knows %s",
             name,
             version < releases[0].version              ? "older than all that it knows"
             : version > releases[RELEASES - 1].version ? "newer than all that it knows"
                                                        : "none that was compared with its sources",
             others);
}
