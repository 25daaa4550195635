/* Kernels: found by their host stubs, queued with a copy of their arguments. */
#include "tests/nccl/standin/gpu.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct gpu_kernel *kernels;
static struct gpu_code *codes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of both lists; nothing leaves them */

void gpu_code_add(struct gpu_code *code)
{
    pthread_mutex_lock(&lock);
    code->next = codes;
    codes = code;
    pthread_mutex_unlock(&lock);
}

/* Lock held. */
static struct gpu_kernel *kernel_add(const void *stub, const char *name)
{
    struct gpu_kernel *k = calloc(1, sizeof(*k));

    if (k == NULL || (k->name = strdup(name)) == NULL) {
        gpu_die("out of memory");
    }
    k->stub = stub;
    k->next = kernels;
    kernels = k;
    return k;
}

/* Lock held. */
static struct gpu_kernel *kernel_find(const void *stub_or_kernel)
{
    struct gpu_kernel *k = kernels;

    while (k && k->stub != stub_or_kernel && k != stub_or_kernel) {
        k = k->next;
    }
    return k;
}

void gpu_kernel_register(const void *stub, const char *name)
{
    pthread_mutex_lock(&lock);
    if (kernel_find(stub) == NULL) {
        kernel_add(stub, name);
    }
    pthread_mutex_unlock(&lock);
}

struct gpu_kernel *gpu_kernel_of(const void *stub_or_kernel)
{
    struct gpu_kernel *k;
    const char *name = NULL;

    pthread_mutex_lock(&lock);
    k = kernel_find(stub_or_kernel);
    for (struct gpu_code *c = codes; k == NULL && name == NULL && c; c = c->next) {
        name = c->name ? c->name(stub_or_kernel) : NULL;
    }
    if (k == NULL) {
        k = kernel_add(stub_or_kernel, name ? name : "without a name");
    }
    pthread_mutex_unlock(&lock);
    return k;
}

static const struct gpu_code *code_of(struct gpu_kernel *k)
{
    const struct gpu_code *c;

    pthread_mutex_lock(&lock);
    for (c = k->code ? k->code : codes; c && c != k->code && !c->has(k->name);) {
        c = c->next;
    }
    k->code = c;
    pthread_mutex_unlock(&lock);
    if (c == NULL) {
        gpu_die("kernel %s is launched, and the stand-in does not have it", k->name);
    }
    return c;
}

struct launch {
    const struct gpu_kernel *k;
    const struct gpu_code *code;
    unsigned blocks;
    void *args[GPU_ARGS_MAX]; /* in bytes */
    char bytes[] __attribute__((aligned(16)));
};

static void launch_run(void *arg)
{
    struct launch *l = arg;

    gpu_log("%s: %u blocks", l->k->name, l->blocks);
    l->code->run(l->k->name, l->blocks, l->args);
    gpu_log("%s: done", l->k->name);
}

/* The arguments as one piece, when the caller has them so. */
static const void *packed_find(void **extra, size_t *len)
{
    const void *args = NULL;

    for (int i = 0; extra && extra[i]; i += 2) {
        if (extra[i] == (void *)1) {
            args = extra[i + 1];
        } else if (extra[i] == (void *)2) {
            *len = *(size_t *)extra[i + 1];
        }
    }
    return args;
}

static size_t aligned(size_t len)
{
    return (len + 15) / 16 * 16;
}

bool gpu_launch(struct gpu_kernel *k, unsigned blocks, void **params, void **extra,
                struct gpu_stream *s)
{
    const struct gpu_code *code = code_of(k);
    size_t sizes[GPU_ARGS_MAX], len = 0, at = 0;
    int n = code->sizes(k->name, sizes);
    const void *packed = packed_find(extra, &sizes[0]);
    struct launch *l;

    if (packed ? n != 1 : params == NULL) {
        return false;
    }
    for (int i = 0; i < n; i++) {
        len += aligned(sizes[i]);
    }
    l = aligned_alloc(16, aligned(sizeof(*l) + len));
    if (l == NULL) {
        return false;
    }
    *l = (struct launch){.k = k, .code = code, .blocks = blocks};
    for (int i = 0; i < n; i++) {
        l->args[i] = l->bytes + at;
        memcpy(l->args[i], packed ? packed : params[i], sizes[i]);
        at += aligned(sizes[i]);
    }
    gpu_push(s, launch_run, l, false);
    return true;
}
