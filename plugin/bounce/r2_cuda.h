/*
 * CUDA's driver as a copy engine (ib_transport/ib_copy.h, docs/balance.md), opened at run
 * time: nothing of CUDA is needed to build the plugin, or to load it. Drivers of CUDA 11 and later
 * have what is called.
 *
 * Threads: every call may come from any thread, several at once; two calls for one lane never
 * overlap (its user's gate). The context that a thread has current is afterwards what it was, and
 * so is its mode of stream capture: while a call is under way it is relaxed, since another thread
 * of the process may be capturing a graph, which a call of ours would end with an error.
 *
 * GPUs are named by their ordinals in this process (CUDA_VISIBLE_DEVICES). A GPU's primary context
 * is retained when it is first used, which costs memory of that GPU unless the process has the
 * context anyway, and given back by r2_cuda_close().
 *
 * A lane is broken, for good, when a call of the driver fails such that a copy may run of whose end
 * no event tells: cuEventRecord behind a copy; cuMemcpyAsync with an error that may be one of
 * earlier work; cuEventQuery; or when the thread could not be left as it was. The begin() that
 * finds this out says 0, for its slot is taken; those after it say EIO. done() says -1 for every
 * slot. One line of log per lane.
 */
#ifndef R2_CUDA_H
#define R2_CUDA_H

#include <stddef.h>

#include "ib_transport/ib_copy.h"

/* Of a lane: well below what a stream of the driver takes before a call waits for the GPU. */
#define R2_CUDA_SLOTS_MAX 512u

struct r2_cuda;

/*
 * Opens the driver, @lib, by default (NULL) "libcuda.so.1". 0 with *@out; or errno with what is
 * missing in @why, and
 * *@out as it was: ENOENT the library, ENOSYS a call of it, ENODEV a GPU, else what the driver
 * says. May block (seconds where this is the first use of the driver). The library stays loaded
 * once it has been initialised: it has threads of its own.
 */
int r2_cuda_open(const char *lib, struct r2_cuda **out, char *why, size_t why_len);

/*
 * Gives back the contexts, and frees @c (NULL: nothing). Every lane is closed, all memory put,
 * except what a broken lane may still write to: once a lane was broken the contexts stay, since a
 * copy that runs may need them. May block.
 */
void r2_cuda_close(struct r2_cuda *c);

/*
 * The operations; arg is the struct r2_cuda. As ib_copy.h says, and:
 *
 *   gpu_of     Memory that the driver does not know is memory of the host.
 *   mem_get    The length is rounded up to pages, of which DMA-BUFs consist. Memory of the host
 *              lies where the calling thread's memory policy puts it, and is made in the context of
 *              a GPU that the process uses anyway.
 *   lane_open  The stream is in the context of @from, or of @to where @from is the host; one of
 *              them is a GPU (EINVAL). @slots: up to R2_CUDA_SLOTS_MAX (EINVAL). Access of @from's
 *              primary context to memory of @to is switched on, where the machine has it, and stays
 *              on: others in the process may have come to rely on it. Without it the driver copies
 *              through the host.
 *   begin      Where @src is pageable memory of the host the driver may copy before it returns.
 */
extern const struct ib_copy_ops r2_cuda_ops;

#endif
