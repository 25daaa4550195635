/* Kernels: found by their host stubs, queued with a copy of their arguments. */
#include "tests/nccl/standin/gpu.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define KERNELS_MAX 1024
static struct gpu_kernel kernels[KERNELS_MAX];
static int kernels_len;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of kernels */

const struct gpu_kernel *gpu_kernel_of(const void *stub)
{
    const struct gpu_kernel *k = NULL;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < kernels_len && !k; i++) {
        if (kernels[i].stub == stub) {
            k = &kernels[i];
        }
    }
    if (k == NULL && kernels_len < KERNELS_MAX) {
        const char *name = attach_name(stub);

        kernels[kernels_len] = (struct gpu_kernel){stub, name ? name : "?"};
        k = &kernels[kernels_len++];
    }
    pthread_mutex_unlock(&lock);
    return k;
}

struct launch {
    const struct gpu_kernel *k;
    unsigned blocks;
    size_t len;
    char args[] __attribute__((aligned(16)));
};

static void launch_run(void *arg)
{
    struct launch *l = arg;

    gpu_log("%s: %u blocks", l->k->name, l->blocks);
    kernel_run(l->k->name, l->blocks, l->args);
    gpu_log("%s: done", l->k->name);
    free(l);
}

bool gpu_launch(const struct gpu_kernel *k, unsigned blocks, void **params, void **extra,
                struct gpu_stream *s)
{
    struct launch *l;
    const void *args = NULL;
    size_t len = 0;

    for (int i = 0; extra && extra[i]; i += 2) {
        if (extra[i] == (void *)1) {
            args = extra[i + 1];
        } else if (extra[i] == (void *)2) {
            len = *(size_t *)extra[i + 1];
        }
    }
    if (args == NULL && params) { /* NCCL's kernels take one struct of 4 KiB */
        args = params[0];
        len = 4096;
    }
    if (args == NULL) {
        return false;
    }
    l = aligned_alloc(16, (sizeof(*l) + len + 15) / 16 * 16);
    if (l == NULL) {
        return false;
    }
    l->k = k;
    l->blocks = blocks;
    l->len = len;
    memcpy(l->args, args, len);
    gpu_push(s, launch_run, l, false);
    return true;
}
