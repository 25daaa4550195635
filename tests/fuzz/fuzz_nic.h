/*
 * One half of a connection on NICs of the fuzzer's: posts are checked and kept, completions come
 * when the input says so. No fabric, no time, no peer: what the peer's NICs would write is written
 * by the target.
 */
#ifndef FUZZ_NIC_H
#define FUZZ_NIC_H

#include "fuzz.h"

#include "ib_transport/ib_path.h"

#define FUZZ_PATHS 3
#define FUZZ_MEM   65536
#define FUZZ_POSTS 512

/* S: what the peer writes, and S's copies of its size records behind it. */
struct fuzz_ring {
    struct ib_ring ring;
    struct ib_records copies;
};

struct fuzz_nic {
    struct ibv_context ctx;
    struct ibv_qp qp[FUZZ_PATHS];
    struct ibv_cq cq[FUZZ_PATHS];
    struct ibv_mr key[FUZZ_PATHS];
    struct ib_nics nics;
    struct r2_config cfg;
    struct ib_mr mr; /* of @mem */
    struct ib_conn conn;
    struct fuzz_ring ring[FUZZ_PATHS];
    struct ib_records records[FUZZ_PATHS]; /* R: written by the peer */
    uint32_t one_max; /* adaptive routing, from the next fuzz_nic_path_begin on: S's threshold;
                         UINT32_MAX: off */
    uint8_t mem[FUZZ_MEM];
    uint64_t now;
    /* work requests by path: all of the send queue, in order; @marked of them have their completion
     * in @wc */
    struct {
        uint64_t id[FUZZ_POSTS];
        uint8_t quiet[FUZZ_POSTS]; /* unsignaled */
        unsigned n;
    } sq[FUZZ_PATHS];
    unsigned rq[FUZZ_PATHS]; /* receives posted */
    struct {
        struct ibv_wc wc[FUZZ_POSTS];
        unsigned n;
    } done[FUZZ_PATHS];
    unsigned refuse; /* bit per path: posting fails */
    unsigned cut;    /* bit per path: it fails behind the first work request of a list */
    unsigned faults; /* told by the sink */
    int broken;      /* the sink was told that the peer breaks the protocol */
    /* the target's check of what is posted */
    void (*on_post)(struct fuzz_nic *f, int p, const struct ibv_send_wr *wr);
    void (*on_down)(struct fuzz_nic *f, int p); /* after link.up has lost @p */
    void *half;
};

/* All paths up, incarnation 1. @one_max as in the struct. Freed with free(). */
struct fuzz_nic *fuzz_nic_create(int sender, uint32_t one_max);
/* An incarnation begins on the path; the last one must be over. */
void fuzz_nic_path_begin(struct fuzz_nic *f, int p, int sender);
/* Completes the oldest send work request of @p; 0: there is none. Unsignaled good ones complete in
 * silence. */
int fuzz_nic_complete(struct fuzz_nic *f, int p, enum ibv_wc_status status);
/* An arrival on @p takes a receive; 0: none is posted. */
int fuzz_nic_arrive(struct fuzz_nic *f, int p, uint32_t imm_be, uint32_t bytes,
                    enum ibv_wc_opcode opcode);
/* ERR: everything comes out flushed; then the markers. */
void fuzz_nic_flush(struct fuzz_nic *f, int p);

#endif
