/*
 * A peer process whose program is somebody else's: what it sends over the queue pairs for control
 * messages (plugin/ib_transport/ib_inband.h) of a rig is anything, and what its plugin sends there
 * is changed on the way. Both processes can be it. One at a time.
 */
#ifndef FUZZ_FOE_H
#define FUZZ_FOE_H

#include "fuzz_rig.h"

#define FUZZ_FOE_NICS  4
#define FUZZ_FOE_SLOTS 32
#define FUZZ_FOE_ROOM  2048 /* twice what a receive buffer takes */
#define FUZZ_FOE_KEPT  32

/* What becomes of the next messages of a process. */
enum fuzz_foe_how {
    FOE_AS_IS,
    FOE_CUT,     /* to @at bytes of it, also 0 */
    FOE_WORD,    /* another word beside it */
    FOE_NO_WORD, /* none */
    FOE_TWICE,
    FOE_LONGER,  /* behind it what lies there, beyond what a receive buffer takes */
    FOE_VERSION, /* its first record is of another version */
    FOE_EDIT,    /* bytes of it are others */
    FOE_HOWS
};

struct fuzz_foe {
    struct rig *rig;
    uint8_t *mem[2]; /* FUZZ_FOE_SLOTS times FUZZ_FOE_ROOM */
    struct ibv_mr *mr[2][FUZZ_FOE_NICS];
    unsigned turn;
    int (*true_post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
    struct {
        enum fuzz_foe_how how;
        unsigned left; /* messages */
        uint16_t at;
        uint8_t edit[8];
    } change[2];
    struct {
        int from;
        size_t len;
        uint8_t msg[1024];
    } kept[FUZZ_FOE_KEPT]; /* what their plugins sent last */
    uint64_t sent;         /* by the plugins */
    uint64_t foreign;      /* by the foe, and taken by its NIC */
};

/* What a NIC is asked to do. */
struct fuzz_foe_post {
    size_t len; /* at most FUZZ_FOE_ROOM */
    uint32_t word;
    enum ibv_wr_opcode opcode;
    uint64_t at; /* of RDMA */
    uint32_t rkey;
};

/* The instances stand, with @nics NICs each, and no pair yet. */
void fuzz_foe_init(struct fuzz_foe *foe, struct rig *rig, int nics);
/* Memory of process @from for the next fuzz_foe_go(), FUZZ_FOE_ROOM bytes. */
uint8_t *fuzz_foe_mem(struct fuzz_foe *foe, int from);
/*
 * Process @from sends the first bytes of it over the queue pair of its @pair-th NIC pair (modulo
 * their number), whatever state that is in. 0: the NIC did not take it, or there is no such queue
 * pair.
 */
int fuzz_foe_go(struct fuzz_foe *foe, int from, unsigned pair, const struct fuzz_foe_post *p);
/* Whether some record of the @len bytes at @msg would be understood. */
int fuzz_foe_means(const uint8_t *msg, size_t len);
/* Numbers of every pool and queue pair. */
void fuzz_foe_check(const struct fuzz_foe *foe);
/* The same when nothing is under way any more: every buffer is back. */
void fuzz_foe_check_idle(const struct fuzz_foe *foe);
/* Before fuzz_rig_destroy(): hooks and registrations. */
void fuzz_foe_end(struct fuzz_foe *foe);
void fuzz_foe_free(struct fuzz_foe *foe);

#endif
