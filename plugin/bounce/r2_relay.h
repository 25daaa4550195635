/*
 * Bounce buffer of a process and where it is used (docs/balance.md): which NICs a GPU reaches
 * badly, memory that these reach well, and its rings, lent to paths.
 */
#ifndef R2_RELAY_H
#define R2_RELAY_H

#include "base/r2_config.h"
#include "ib_transport/ib_relay.h"
#include "ib_transport/verbs/ib_device.h"
#include "topo/topo.h"

struct r2_inst;
struct r2_comm;
struct r2_relay;

#define R2_RELAY_LANES 8 /* rings of a NIC */

/* --- the decision; pure --- */

enum r2_relay_kind { R2_RELAY_NONE, R2_RELAY_GPU, R2_RELAY_HOST };

struct r2_relay_way {
    uint8_t kind;  /* enum r2_relay_kind; of memory that the NIC can register */
    uint8_t relay; /* R2_RELAY_GPU: which one, in gpu[] below */
};

/* What a topology says of each GPU and NIC of this host. Without GPUs where nothing is known. */
struct r2_relay_ways {
    uint16_t gpus;
    char gpu[TOPO_GPUS_MAX][TOPO_BDF]; /* PCI address */
    struct r2_relay_way way[TOPO_GPUS_MAX][IB_MAX_NICS];
};

/* @t NULL: nothing is known. */
void r2_relay_ways_make(struct r2_relay_ways *w, const struct ib_nics *nics, const struct topo *t,
                        enum r2_relay_mode mode);

/* @gpu: in w->gpu, -1 not known. @registered: the NIC has taken the GPU's memory. */
struct r2_relay_way r2_relay_way_get(const struct r2_relay_ways *w, int gpu, int nic,
                                     int registered);

/* --- the memory --- */

/* Nothing is made yet. @ops, @arg: the copy engine; they outlive it. NULL: out of memory. Does not
 * block. */
struct r2_relay *r2_relay_open(struct r2_inst *inst, const struct topo *t,
                               const struct ib_copy_ops *ops, void *arg);
/* No connection takes a lane any more. Memory of lanes that are not back, or lost, is left where it
 * is. May block. NULL is accepted. */
void r2_relay_close(struct r2_relay *relay);

/*
 * S: NCCL registers the memory at @addr, as @mr, for @c: finds out which of @nics, a bit for each
 * NIC of it, are reached through bounce buffer, which is made where it is missing. Any of NCCL's
 * threads, no gate held; may block in drivers.
 */
void r2_relay_buffer(struct r2_comm *c, const void *addr, struct ib_mr *mr, uint64_t nics);

#endif
