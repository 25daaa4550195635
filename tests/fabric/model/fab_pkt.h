/*
 * Packets of the reliable transport, and the staged work of a device.
 *
 * struct fab_hdr is what travels: plain numbers in host byte order (imm as posted), no pointers, so
 * that it may be copied into shared memory. Every segment of a write names its own address; the
 * first one also names the extent of the whole message, which is checked against the memory region
 * once, as a device does.
 */
#ifndef FAB_PKT_H
#define FAB_PKT_H

#include "fab_engine.h"

#include <stdbool.h>

#define FAB_PSN_MASK 0xffffffu
#define FAB_MAX_SGE                                                                                \
    16 /* per work request, and so pieces into which one segment can be scattered                  \
        */

enum fab_op { FAB_OP_SEND, FAB_OP_WRITE, FAB_OP_READ, FAB_OP_READ_RESP, FAB_OP_ACK };

enum fab_flag {
    FAB_F_FIRST = 1,
    FAB_F_LAST = 2,
    FAB_F_IMM = 4,
    FAB_F_SOLICITED = 8,
    FAB_F_ACKREQ = 16, /* the responder must acknowledge this one */
    FAB_F_GHOST = 32   /* a late copy; for counters only, no state machine looks at it */
};

/* Syndrome of an acknowledgement. */
enum fab_syn { FAB_ACK, FAB_NAK_RNR, FAB_NAK_SEQ, FAB_NAK_INV, FAB_NAK_ACCESS, FAB_NAK_OP };

struct fab_hdr {
    struct fab_addr src, dst;
    uint32_t src_qpn, dst_qpn;
    uint32_t
        psn; /* 24 bits; of an acknowledgement: the last one covered, of a NAK: the one expected */
    uint32_t len;   /* payload bytes in this packet */
    uint64_t raddr; /* write: where this segment goes. read: first byte asked for */
    uint64_t rlen;  /* first segment and read: bytes of the whole message */
    uint32_t rkey;
    uint32_t imm;
    uint8_t op, flags, syn, rnr_code;
    uint16_t sport; /* UDP source port (fab_udp_sport); in an InfiniBand subnet the source LID */
    uint16_t dlid;  /* ... the destination's; 0: none */
};

/* A packet that its own port takes back: it never sees the link. */
static inline bool fab_hdr_loops(const struct fab_hdr *h)
{
    return h->src.host == h->dst.host && h->src.nic == h->dst.nic;
}
static inline bool fab_hdr_response(const struct fab_hdr *h)
{
    return h->op == FAB_OP_ACK || h->op == FAB_OP_READ_RESP;
}

/* Bytes charged on a rated link for the headers of a packet. */
#define FAB_WIRE_OVERHEAD 64

enum fab_item_kind { FAB_ITEM_PKT, FAB_ITEM_RECV_CQE, FAB_ITEM_SEND_CQE, FAB_ITEM_FLUSH };

/* One step in a pipe of a queue pair (fab_pipe.h). Embedded in packets and send work requests: the
 * data path allocates nothing. */
struct fab_item {
    struct fab_item *next;
    uint64_t due;
    enum fab_item_kind kind;
};

/* Where one run of payload bytes goes. The key is looked up again when the bytes are written: it
 * must still be that region. */
struct fab_piece {
    uint64_t addr;
    uint64_t serial;
    uint32_t key;
    uint32_t len;
};

/*
 * A packet in this process. The engine owns the storage and embeds this struct in its own. Engine
 * fills h and data before fab_nic_rx; the rest is the model's while the packet is in a pipe and
 * needs no initialisation.
 */
struct fab_pkt {
    struct fab_hdr h;
    uint8_t *data;
    struct fab_item item;
    struct fab_rwqe *recv; /* receive work request that completes with this packet */
    uint32_t recv_len;     /* its byte_len */
    int recv_status;       /* enum ibv_wc_status */
    struct fab_wqe *read;  /* read that this response belongs to */
    uint64_t rd_off;       /* responder: bytes of this read already sent back */
    bool rd_dup;           /* responder: a read answered again */
    uint32_t npieces;
    struct fab_piece piece[FAB_MAX_SGE];
};

/* The packet of an item in a list. */
#define PKT_OF(it) ((struct fab_pkt *)((char *)(it)-offsetof(struct fab_pkt, item)))

/* a - b in 24 bit serial arithmetic: 0..2^23-1 when @a is at or after @b, more when it is before.
 */
static inline uint32_t fab_psn_diff(uint32_t a, uint32_t b)
{
    return (a - b) & FAB_PSN_MASK;
}

static inline uint32_t fab_psn_add(uint32_t a, uint32_t n)
{
    return (a + n) & FAB_PSN_MASK;
}

/* min_rnr_timer code (0..31) in ns; and the retransmission time-out of code @timeout (1..31) in ns,
 * 0 for code 0 (never). */
uint64_t fab_rnr_ns(uint8_t code);
uint64_t fab_timeout_ns(uint8_t timeout);

#endif
