/*
 * Whether a NIC reaches memory of a GPU. A registration does not say: behind PCIe access control
 * (ACS) or an IOMMU it succeeds, an operation without bytes completes, and every access fails.
 * So the first registration per NIC, GPU and kind of registration is followed by a test: over a
 * queue pair of the NIC that is connected to itself, eight bytes are written to memory of the
 * plugin's own on that GPU, and read back (docs/architecture.md).
 */
#ifndef R2_REACH_H
#define R2_REACH_H

#include "ib_transport/ib_copy.h"
#include "ib_transport/verbs/ib_mr.h"

struct r2_inst;
struct r2_reach;

/* Opens a copy engine: 0 with *@ops, *@arg, which stay to the end of the process; errno. May block.
 */
typedef int (*r2_copy_open_fn)(const struct ib_copy_ops **ops, void **arg);

/*
 * Nothing is made yet. @ops, @arg: who has memory of GPUs; @ops NULL: @open is asked for it with
 * the first memory of a GPU, and may be NULL. NULL: out of memory. Does not block.
 */
struct r2_reach *r2_reach_create(struct r2_inst *inst, const struct ib_copy_ops *ops, void *arg,
                                 r2_copy_open_fn open);
/* No registration is under way. Memory of GPUs stays: to free it waits for the GPU. May block. NULL
 * is accepted. */
void r2_reach_destroy(struct r2_reach *r);

/*
 * For ib_mr_cache_reaches_set(), @arg is the struct r2_reach: 0 when NIC @nic reaches the memory of
 * @mr, which it has registered as @m, or when that cannot be tested; else EIO, with one line of log
 * per NIC and GPU. From threads of several NICs at once, no gate held. Blocks in drivers as a
 * registration does, and then for at most R2_REACH_NS for each of three answers, twice where they
 * are bad; only for the first memory of a GPU, or while the NIC has not answered for the last one.
 */
#define R2_REACH_NS (200 * 1000000ull)
int r2_reach_check(void *arg, int nic, const struct ib_mr *mr, const struct ibv_mr *m);

#endif
