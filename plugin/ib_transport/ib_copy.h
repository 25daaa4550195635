/*
 * What brings data to a bounce buffer (docs/balance.md): a copy engine. The transport knows
 * this interface alone; the CUDA driver's engine is r2_cuda.
 *
 * A lane is a sequence of copies that end in the order in which they begin, of one connection and
 * path.
 */
#ifndef IB_COPY_H
#define IB_COPY_H

#include <stddef.h>
#include <stdint.h>

#define IB_COPY_HOST (-1) /* instead of a GPU: memory of the host */

/* Bounce buffer that a NIC can be made to reach. */
struct ib_copy_mem {
    void *addr;
    size_t len;    /* bytes */
    int type;      /* IB_PTR_HOST or IB_PTR_CUDA: how it is registered */
    int dmabuf_fd; /* >= 0: as DMA-BUF, at offset 0; the engine closes it. -1: by its address */
};

struct ib_copy_ops {
    /* Whose memory @addr is: a GPU's ordinal in this process, or IB_COPY_HOST. Not the data path;
     * takes locks of the driver, waits for no GPU. */
    int (*gpu_of)(void *arg, const void *addr);
    /* PCI address of @gpu, "0000:3b:00.0", into @out. 0 or errno. May block. */
    int (*gpu_pci)(void *arg, int gpu, char *out, size_t len);
    /* Whether the process uses @gpu anyway, so that memory of it costs no context of its own. Not
     * the data path. NULL: it does. */
    int (*gpu_used)(void *arg, int gpu);

    /*
     * @len bytes of memory of @gpu, or of the host (page-locked, reached by every GPU); out->len
     * says how many there are, which may be more or less. 0, or errno with @out as it was. May
     * block. mem_put frees it, and closes the DMA-BUF; may block, waits for the GPU: nothing may be
     * registered, or run; memory that a broken lane may still write to is never put.
     */
    int (*mem_get)(void *arg, int gpu, size_t len, struct ib_copy_mem *out);
    void (*mem_put)(void *arg, struct ib_copy_mem *mem);

    /* A lane for copies from memory of @from to memory of @to, @slots at a time. 0, or errno with
     * @lane as it was. May block. lane_close: no copy may run, or the lane is broken. */
    int (*lane_open)(void *arg, int from, int to, unsigned slots, void **lane);
    void (*lane_close)(void *arg, void *lane);

    /*
     * Begins to copy @len bytes as @slot, which is free. Gate held; does not wait for the GPU.
     * 0: the slot is taken until done() says 1. errno: nothing was begun, nothing of it runs, the
     * slot is free. Where the engine cannot tell which of the two it is, 0, and done() says -1.
     */
    int (*begin)(void *arg, void *lane, unsigned slot, void *dst, const void *src, size_t len);
    /*
     * As begin(), for memory that is polled while it is written: of each line of 128 bytes of @dst,
     * counted from address 0, the last 8 come behind all else, and each aligned word of 8 at once
     * as far as the engine's writes keep it whole. @len 0: nothing is begun, and 0 says that it
     * can, EOPNOTSUPP that it cannot.
     */
    int (*begin_lines)(void *arg, void *lane, unsigned slot, void *dst, const void *src,
                       size_t len);
    /*
     * Whether the copy @slot has ended: 1, and the NIC may read what it wrote; 0: it runs; -1: the
     * lane is broken. Gate held; does not wait. A broken lane is so for good, for each of its
     * slots, and begin() fails: what is read and written by the copies that were not done is not
     * known. They count as never ended, whatever becomes of the lane: neither their buffers nor
     * their bounce buffer may be given back or used for something else.
     */
    int (*done)(void *arg, void *lane, unsigned slot);
};

#endif
