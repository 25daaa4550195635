/*
 * Puts the stand-in under the libnccl.so.2 that the process has loaded. Two seams:
 *
 * shared  NCCL is linked with libcudart.so.13: the stand-in is that library to the loader, by its
 * name, and nothing is touched.
 *
 * jump    NCCL has the runtime inside, so that its calls never leave the library. The released
 * library keeps its symbols: the public functions of the runtime are found by name, and the first
 * bytes of each become a jump to the function of the same name in the stand-in's libcudart.so.13,
 * in the memory of this process. One that is missing there ends the process, by name, when it is
 * called. The file is not changed, nor any code of NCCL's own. NCCL_SEAM=shared forbids it.
 *
 * Runs as a constructor, when NCCL is in memory (opened before this library, or beside it in a
 * program that was started with this one in LD_PRELOAD) and before anything calls it. NCCL's own
 * constructors only make lists.
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/nccl/standin/elf_symbols.h"
#include "tests/nccl/standin/kernel.h"

#define JUMP_BYTES  14 /* jmp *0(%rip), and the address behind it */
#define STUB_BYTES  32 /* of a function that is not here */
#define STUBS_BYTES (64 << 10)

static struct {
    char path[4096];
    uintptr_t base;
    struct elf_symbols symbols;
} lib;

static int lib_find(struct dl_phdr_info *info, size_t size, void *arg)
{
    const char *slash = strrchr(info->dlpi_name, '/');

    (void)size;
    (void)arg;
    if (strncmp(slash ? slash + 1 : info->dlpi_name, "libnccl.so", 10) != 0) {
        return 0;
    }
    snprintf(lib.path, sizeof(lib.path), "%s", info->dlpi_name);
    lib.base = info->dlpi_addr;
    return 1;
}

static bool lib_open(void)
{
    char why[sizeof(lib.path) + 128];

    if (lib.symbols.n) {
        return true;
    }
    if (dl_iterate_phdr(lib_find, NULL) == 0) {
        return false;
    }
    if (elf_symbols_open(&lib.symbols, lib.path, why, sizeof(why)) != 0) {
        gpu_die("%s", why);
    }
    return true;
}

void *attach_symbol(const char *name, size_t *len)
{
    for (size_t i = 0; lib_open() && i < lib.symbols.n; i++) {
        if (lib.symbols.sym[i].st_shndx != SHN_UNDEF &&
            strcmp(elf_symbols_name(&lib.symbols, i), name) == 0) {
            *len = lib.symbols.sym[i].st_size;
            return (void *)(lib.base + lib.symbols.sym[i].st_value);
        }
    }
    return NULL;
}

const char *attach_name(const void *addr)
{
    for (size_t i = 0; lib_open() && i < lib.symbols.n; i++) {
        if (ELF64_ST_TYPE(lib.symbols.sym[i].st_info) == STT_FUNC &&
            lib.base + lib.symbols.sym[i].st_value == (uintptr_t)addr) {
            return elf_symbols_name(&lib.symbols, i);
        }
    }
    return NULL;
}

static void missing_called(const char *name)
{
    gpu_die("%s is called, and the stand-in does not have it", name);
}

static void jump_write(unsigned char *at, const void *to)
{
    static const unsigned char jmp[6] = {0xff, 0x25, 0, 0, 0, 0}; /* jmp *0(%rip) */

    memcpy(at, jmp, sizeof(jmp));
    memcpy(at + sizeof(jmp), &to, sizeof(to));
}

/* mov $name, %rdi; jmp missing_called */
static void stub_write(unsigned char *at, const char *name)
{
    static const unsigned char mov_rdi[2] = {0x48, 0xbf};

    memcpy(at, mov_rdi, sizeof(mov_rdi));
    memcpy(at + sizeof(mov_rdi), &name, sizeof(name));
    jump_write(at + sizeof(mov_rdi) + sizeof(name), (const void *)missing_called);
}

static void text_make_writable(const unsigned char *at)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)at & ~(page - 1);
    uintptr_t to = ((uintptr_t)at + JUMP_BYTES + page - 1) & ~(page - 1);

    if (mprotect((void *)from, to - from, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) {
        gpu_die("the text of %s cannot be written to in memory (%s): SELinux's execmod, or a "
                "hardened kernel, forbids it",
                lib.path, strerror(errno));
    }
}

/* A public function of the runtime; what registers kernels is left, for it only makes lists. */
static bool is_runtime(const Elf64_Sym *y, const char *name)
{
    return y->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(y->st_info) == STT_FUNC &&
           strncmp(name, "cuda", 4) == 0 && name[4] >= 'A' && name[4] <= 'Z';
}

static void jumps_write(void *runtime, unsigned char *stubs)
{
    size_t stubs_len = 0;
    int here = 0, missing = 0;

    for (size_t i = 0; i < lib.symbols.n; i++) {
        const Elf64_Sym *y = &lib.symbols.sym[i];
        const char *name = elf_symbols_name(&lib.symbols, i);
        unsigned char *at = (void *)(lib.base + y->st_value);
        void *to;

        if (!is_runtime(y, name)) {
            continue;
        }
        if (y->st_size < JUMP_BYTES) {
            gpu_log("%s has %d bytes only: left as it is", name, (int)y->st_size);
            continue;
        }
        to = dlsym(runtime, name);
        if (to == NULL) {
            if (stubs_len + STUB_BYTES > STUBS_BYTES) {
                gpu_die("%s has more functions of the runtime than there is room for", lib.path);
            }
            to = stubs + stubs_len;
            stub_write(to, name);
            stubs_len += STUB_BYTES;
            missing++;
        } else {
            here++;
        }
        text_make_writable(at);
        jump_write(at, to);
    }
    if (here == 0) {
        gpu_die("%s neither needs libcudart.so nor has the runtime inside", lib.path);
    }
    gpu_log("attached to %s: %d functions of the runtime are here, %d are not", lib.path, here,
            missing);
}

/* Whether NCCL calls the runtime through the loader. */
static bool seam_is_shared(void)
{
    for (size_t i = 0; i < lib.symbols.n; i++) {
        if (strcmp(elf_symbols_name(&lib.symbols, i), "cudaGetDevice") == 0 ||
            strncmp(elf_symbols_name(&lib.symbols, i), "cudaGetDevice@", 14) == 0) {
            return lib.symbols.sym[i].st_shndx == SHN_UNDEF;
        }
    }
    return false;
}

__attribute__((constructor)) static void attach(void)
{
    const char *seam = getenv("NCCL_SEAM");
    unsigned char *stubs;
    Dl_info runtime;
    void *self; /* libcudart.so.13 */

    if (!lib_open() || seam_is_shared()) {
        return;
    }
    if (seam && strcmp(seam, "shared") == 0) {
        gpu_die("%s has CUDA's runtime inside, and NCCL_SEAM=shared forbids to redirect it",
                lib.path);
    }
    self = dladdr((void *)gpu_launch, &runtime) ? dlopen(runtime.dli_fname, RTLD_NOW | RTLD_NOLOAD)
                                                : NULL;
    stubs = mmap(NULL, STUBS_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
                 -1, 0);
    if (self == NULL || stubs == MAP_FAILED) {
        gpu_die("no way into %s: %s", lib.path,
                self ? strerror(errno) : "the stand-in does not find its libcudart.so.13");
    }
    jumps_write(self, stubs);
}
