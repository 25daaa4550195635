/*
 * Which release a libnccl.so.2 is: prints the folder of the stand-in's kernels for it, such as
 * "228". release FILE; without a file, the one that r2_nccl takes; --file prints that file's name.
 * Exit 1 and one line on stderr when the file is no such library or its release is not known.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/nccl/rank/nccl_release.h"

int main(int argc, char **argv)
{
    const char *file = access(NCCL_LIB_DEFAULT, R_OK) == 0 ? NCCL_LIB_DEFAULT : "libnccl.so.2";
    int (*get)(int *);
    void *lib;
    char text[320];
    int version = 0;

    if (argc > 1 && strcmp(argv[1], "--file") == 0) {
        puts(file);
        return 0;
    }
    file = argc > 1 ? argv[1] : file;
    lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (lib == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    get = (int (*)(int *))dlsym(lib, "ncclGetVersion");
    if (get == NULL || get(&version) != 0) {
        fprintf(stderr, "%s has no ncclGetVersion\n", file);
        return 1;
    }
    if (nccl_release_folder(version) == NULL) {
        nccl_release_refuse(version, text, sizeof(text));
        fprintf(stderr, "%s\n", text);
        return 1;
    }
    puts(nccl_release_folder(version));
    return 0;
}
