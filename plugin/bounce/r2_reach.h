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

/* What is known of a NIC, a GPU and a kind of registration. */
enum r2_reach_result {
    R2_REACH_UNKNOWN,
    R2_REACH_UNTESTED, /* it cannot be tested */
    R2_REACH_YES,
    R2_REACH_NO,
    R2_REACH_RESULTS
};
/* The step of a test that is out: one after the other, since a queue pair that is connected to
 * itself takes all it has to its end where its other half refuses something. */
enum r2_reach_step { R2_REACH_IDLE, R2_REACH_ASK, R2_REACH_WRITE, R2_REACH_READ, R2_REACH_STEPS };
/* The only writers of both, for r2_reach.c and its suite; @nic: its name. What is no legal move
 * changes nothing, and is logged. The NIC's lock is held. */
void r2_reach_result_move(uint8_t *result, enum r2_reach_result to, const char *nic);
void r2_reach_step_move(uint8_t *step, enum r2_reach_step to, const char *nic);

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
