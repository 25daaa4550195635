/* A kernel: its blocks, and the batches of work that each of them goes through. */
#include <sys/prctl.h>

#include "tests/nccl/standin/kernel.h"

#define TIMER_SLACK_NS    1000 /* short sleeps are meant */
#define KERNEL_ARGS_BYTES 4096

/* What a batch, with those that extend it, asks for. */
struct works {
    char bytes[WORKS_BYTES_MAX] __attribute__((aligned(16)));
    size_t size; /* of one */
    int n;
    int type; /* WORK_* */
};

static size_t work_size(int type)
{
    switch (type) {
    case WORK_P2P:
        return sizeof(struct work_p2p);
    case WORK_COLL:
        return sizeof(struct work_coll);
    case WORK_COLL_REG:
        return WORK_COLL_REG_SIZE;
    default:
        gpu_die("several broadcasts in one group are not for this stand-in");
    }
}

/* Bit i of a batch: a work at offset_base + i * its size, in the arguments or in the FIFO, which is
 * round. */
static void works_load(struct works *w, const struct kernel_args *args,
                       const struct work_batch *batch)
{
    w->type = batch->work_type;
    w->size = work_size(w->type);
    for (int i = 0; i < 64; i++) {
        size_t offset = batch->offset_base + (size_t)i * w->size;
        char *to = w->bytes + (size_t)w->n * w->size;

        if (!(batch->offset_bits >> i & 1)) {
            continue;
        }
        if ((size_t)(w->n + 1) * w->size > sizeof(w->bytes)) {
            gpu_die("a batch of more than %d works", w->n);
        }
        for (size_t o = 0; o < w->size; o += 16) {
            const char *from = args->storage == STORE_ARGS ? (const char *)args + offset + o
                                                           : (const char *)args->work_buf +
                                                                 ((offset + o) & args->work_mask);

            memcpy(to + o, from, 16);
        }
        w->n++;
    }
}

/* Kernels before 2.27 give the FIFO's room back themselves. */
static void works_consumed(const struct block *b, const struct work_batch *batch, size_t size)
{
#if NCCL_RELEASE < 227
    uint32_t end =
        batch->offset_base + (uint32_t)(64 - __builtin_clzll(batch->offset_bits)) * (uint32_t)size;

    if (b->args->storage == STORE_FIFO && b->comm->work_consumed) {
        __atomic_store_n(&b->comm->work_consumed[b->channel_id], end, __ATOMIC_RELEASE);
    }
#else
    (void)b;
    (void)batch;
    (void)size;
#endif
}

/* For NCCL's profiler: which works have begun, or are done. */
static void works_tell(struct block *b, const struct works *w, uint64_t counter, bool done)
{
#if NCCL_RELEASE >= 227
    struct dev_profiler *p =
        &(done ? b->comm->work_completed : b->comm->work_started)[b->channel_id];

    for (int i = 0; i < w->n; i++) {
        const void *work = w->bytes + (size_t)i * w->size;
        uint64_t c = counter + 1 + (uint64_t)i;

        if (w->type == WORK_P2P ? ((const struct work_p2p *)work)->profiled
                                : ((const struct work_coll *)work)->profiled) {
            __atomic_store_n(&p->data[c % PROFILER_EVENTS].counter, c, __ATOMIC_RELEASE);
        }
    }
#elif NCCL_RELEASE == 226
    uint64_t *p = done ? b->comm->work_completed : b->comm->work_started;

    __atomic_store_n(&p[b->channel_id], counter + (uint64_t)w->n, __ATOMIC_RELEASE);
#else
    (void)b;
    (void)w;
    (void)counter;
    (void)done;
#endif
}

static uint64_t counter_get(const struct block *b)
{
#if NCCL_RELEASE >= 226
    return b->channel->work_counter;
#else
    (void)b;
    return 0;
#endif
}

static void counter_set(struct block *b, uint64_t counter)
{
#if NCCL_RELEASE >= 226
    b->channel->work_counter = counter;
#else
    (void)b;
    (void)counter;
#endif
}

static void works_run(struct block *b, struct works *w, const struct kernel_function *f)
{
    if (w->type == WORK_P2P) {
        kernel_p2p_run(b, (struct work_p2p *)w->bytes, w->n);
        return;
    }
    for (int i = 0; i < w->n; i++) {
        kernel_collective_run(b, f, (struct work_coll *)(w->bytes + (size_t)i * w->size));
    }
}

static void *block_run(void *arg)
{
    struct block *b = arg;
    const struct work_batch *batch = (const struct work_batch *)(b->args + 1) + b->index;
    uint64_t counter = counter_get(b);

    prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
    while (!block_is_aborted(b)) {
        struct works w = {.n = 0};

        works_load(&w, b->args, batch);
        while (batch->next_extends) {
            batch += batch->next_jump;
            works_load(&w, b->args, batch);
        }
        works_consumed(b, batch, w.size);
        works_tell(b, &w, counter, false);
        works_run(b, &w, kernel_function_get(batch->func_id));
        works_tell(b, &w, counter, true);
        counter += (uint64_t)w.n;
        if (batch->next_jump == 0) {
            break;
        }
        batch += batch->next_jump;
    }
    counter_set(b, counter);
    return NULL;
}

static void kernel_run(const char *name, unsigned blocks, void **kernel_args)
{
    const struct kernel_args *args = kernel_args[0];
    struct dev_channel *channels = (void *)((char *)args->comm + CHANNELS_AT);
    struct block b[CHANNELS_MAX];
    pthread_t t[CHANNELS_MAX];
    uint64_t mask = args->channel_mask;

    if (blocks > CHANNELS_MAX || (unsigned)__builtin_popcountll(mask) != blocks) {
        gpu_die("%s: %u blocks for channels %#llx", name, blocks, (unsigned long long)mask);
    }
    for (unsigned i = 0; i < blocks; i++, mask &= mask - 1) {
        int id = __builtin_ctzll(mask);

        b[i] = (struct block){args, args->comm, &channels[id], id, (int)i, 0};
    }
    for (unsigned i = 1; i < blocks; i++) {
        block_thread_start(&t[i], block_run, &b[i]);
    }
    if (blocks > 0) {
        block_run(&b[0]);
    }
    for (unsigned i = 1; i < blocks; i++) {
        pthread_join(t[i], NULL);
    }
}

static bool kernel_has(const char *name)
{
    return strstr(name, "ncclDevKernel_") != NULL;
}

/* One struct, the works behind it. */
static int kernel_sizes(const char *name, size_t *sizes)
{
    (void)name;
    sizes[0] = KERNEL_ARGS_BYTES;
    return 1;
}

__attribute__((constructor)) static void kernels_add(void)
{
    static struct gpu_code code = {kernel_has, attach_name, kernel_sizes, kernel_run, NULL};

    gpu_code_add(&code);
}
