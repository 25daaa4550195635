/*
 * What a fence may believe once the device has moved the queue pair to ERR (protocol P16.4). Pure.
 *
 * Libraries differ in who flushes (tests/lab/fabric-vs-kernel.md): with some the NIC writes each
 * flush behind all that it did; others make the flushes up in the program, perhaps while the NIC
 * finishes what it has taken, refuse what is posted in ERR, or flush nothing. Decided by what is
 * seen, never by the provider's name.
 */
#ifndef IB_FENCE_PROOF_H
#define IB_FENCE_PROOF_H

#include <stdint.h>

#define IB_MARK_SEND 1u
#define IB_MARK_RECV 2u
#define IB_MARK_BOTH 3u

struct ib_fence_facts {
    int sender;     /* S's end: its own work requests matter; else arrivals do */
    uint8_t posted; /* markers that a queue took: IB_MARK_* */
    uint8_t out;    /* of these, those that are out; a receive marker that an arrival took is not */
    uint8_t out_nic; /* of these, those whose completion the NIC wrote itself */
    int idle;        /* no send work request was under way when the fence began */
    int refused;     /* the library has refused a post since the move to ERR */
    int late;        /* T_fence has passed */
};

enum ib_fence_proof {
    IB_PROOF_WAIT,    /* poll again */
    IB_PROOF_NIC,     /* the NIC's own completions prove that it is quiet */
    IB_PROOF_LIBRARY, /* the device is in ERR, its library made up the flush: quiet half of T_pcie
                         after the device's second answer */
    IB_PROOF_NONE,    /* a NIC that flushes by itself has not: nothing is proved */
};

/* What @f proves by now, by the table of P16. Any thread. */
enum ib_fence_proof ib_fence_proof(const struct ib_fence_facts *f);

#endif
