/*
 * Bytes that NICs carry: the immediate, the CTS entry, the ring (protocol section 4). Little endian
 * in memory of both ends; the immediate is in network order as verbs demand. Pure.
 */
#ifndef IB_WIRE_H
#define IB_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "r2_ledger.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "CTS entries are little endian in memory"
#endif

#define IB_MAX_PATHS 8

/* Immediate: seq[15:0] k[3:0] nparts-1[3:0] kind[1:0] incarnation[5:0], from the high bits down. */
enum ib_imm_kind {
    IB_IMM_DATA = 0, /* of the write that carries the bytes */
    IB_IMM_RECORD,   /* the bytes went before; the write carries the part's size record (P32) */
    IB_IMM_NONE = 4, /* of no immediate */
};

struct ib_imm {
    uint16_t seq;
    uint8_t k, nparts, kind, inc;
};

static inline uint32_t ib_imm_pack(uint64_t seq, unsigned k, unsigned nparts, unsigned kind,
                                   uint32_t inc)
{
    return (uint32_t)(seq & 0xffff) << 16 | (k & 15) << 12 | ((nparts - 1) & 15) << 8 |
           (kind & 3) << 6 | (inc & 63);
}

static inline struct ib_imm ib_imm_unpack(uint32_t v)
{
    return (struct ib_imm){.seq = (uint16_t)(v >> 16),
                           .k = (v >> 12) & 15,
                           .nparts = (uint8_t)(((v >> 8) & 15) + 1),
                           .kind = (v >> 6) & 3,
                           .inc = v & 63};
}

/* CTS entry, 64 bytes, in ring slot seq mod 256. rkey 0: this buffer cannot be reached over that
 * path. */
struct ib_cts {
    uint64_t seq;
    uint64_t addr;
    uint32_t size;
    uint32_t tag;
    uint32_t rkey[IB_MAX_PATHS]; /* by path index */
    uint32_t acked;              /* low bits */
    uint8_t n;                   /* buffers of the group, 1..8 */
    uint8_t index;               /* of this one */
    uint16_t check;
};
_Static_assert(sizeof(struct ib_cts) == 64, "CTS entry");

/*
 * What R writes into S's memory, one per path incarnation. Slot contents start as zero: seq 0 is
 * told apart by check and n. ack[0] is the ack word. Where R has adaptive routing on, its lone
 * acknowledgements go round ack[] instead (P14).
 */
#define IB_ACKS 56
struct ib_ring {
    struct ib_cts entry[R2_LEDGER_WINDOW];
    uint64_t ack[IB_ACKS];
};
_Static_assert(sizeof(struct ib_ring) == 64 * (R2_LEDGER_WINDOW + IB_ACKS / 8), "ring");

/*
 * What R writes it from, where that cannot go inline. Words that go round are read again when RC
 * repeats: one set per path.
 */
struct ib_ctl_src {
    struct ib_cts entry[R2_LEDGER_WINDOW]; /* as in the ring */
    uint64_t acked;                        /* as ack[0] of the ring: only grows, for all paths */
    uint64_t ack[IB_MAX_PATHS][IB_ACKS];
};
_Static_assert(offsetof(struct ib_ctl_src, acked) == offsetof(struct ib_ring, ack),
               "one offset for both");
_Static_assert(sizeof(struct ib_ctl_src) <= 5 * 4096, "control source: five pages");

/* Size record, 8 bytes: what S writes with an immediate of kind RECORD. All zero is none, since no
 * such immediate is 0 (P33). */
struct ib_record {
    uint32_t imm;   /* that immediate */
    uint32_t bytes; /* of the part */
};
_Static_assert(sizeof(struct ib_record) == 8, "size record");

/* R's memory for the records of one path incarnation, slot = number of the record mod 256. S may
 * use no more receives than that at a time (P2). */
#define IB_RECORDS 256
struct ib_records {
    struct ib_record at[IB_RECORDS];
};
_Static_assert(sizeof(struct ib_records) == 8 * IB_RECORDS, "size records");

/*
 * The entry as the eight words that it is, without check. Each is multiplied by an odd number of
 * its own, by itself, so that one word of another entry never leaves the sum as it was; the sum is
 * mixed twice, since what differs may be in high bits alone (a key of an odd path), and 15 bits of
 * it are kept: of two halves one in 32768 passes. What may be such halves is in P10. Never 0, so
 * an untouched slot does not pass.
 */
static inline uint16_t ib_cts_check_words(uint64_t w0, uint64_t w1, uint64_t w2, uint64_t w3,
                                          uint64_t w4, uint64_t w5, uint64_t w6, uint64_t w7)
{
    uint64_t h = w0 * 0x6a09e667u + w1 * 0x3b67ae85u + w2 * 0x3c6ef373u + w3 * 0x654ff53bu +
                 w4 * 0x510e527fu + w5 * 0x1b05688du + w6 * 0x1f83d9abu + w7 * 0x5be0cd19u;

    h = (h ^ h >> 32) * 0xff51afd7ed558ccdull;
    h = (h ^ h >> 32) * 0xc4ceb9fe1a85ec53ull;
    return (uint16_t)(h >> 48) | 1;
}

#define IB_CTS_CHECK_SHIFT 48 /* of check in the last word */

/* Check over all fields but itself. Read where they are, as words: nothing here may rely on strict
 * aliasing (Makefile). */
static inline uint16_t ib_cts_check(const struct ib_cts *e)
{
    const uint64_t *w = (const uint64_t *)e;

    return ib_cts_check_words(w[0], w[1], w[2], w[3], w[4], w[5], w[6],
                              w[7] & ((1ull << IB_CTS_CHECK_SHIFT) - 1));
}

/* Whether @e is the entry of @seq, whole, as far as seq and check show. */
static inline int ib_cts_whole(const struct ib_cts *e, uint64_t seq)
{
    return e->seq == seq && e->check == ib_cts_check(e);
}

/* Whether @e is one buffer, alone in its group. */
static inline int ib_cts_alone(const struct ib_cts *e)
{
    return (e->n | (unsigned)e->index << 8) == 1;
}

/* Whether @e is the entry of @seq. */
static inline int ib_cts_valid(const struct ib_cts *e, uint64_t seq)
{
    return ib_cts_whole(e, seq) && e->n - 1u < 8 && e->index < e->n;
}

/* Work request ids: kind in the top 4 bits, a part number, a value (seq or a count) in the low 48.
 * BULK and RECORD are the two of P32; BOUNCE is DATA by way of a bounce buffer. */
enum ib_wr_kind {
    IB_WR_DATA = 1,
    IB_WR_RECV,
    IB_WR_CTL,
    IB_WR_MARK_SEND,
    IB_WR_MARK_RECV,
    IB_WR_FLUSH,
    IB_WR_BULK,
    IB_WR_RECORD,
    IB_WR_ACK_FLUSH,
    IB_WR_BOUNCE,
    IB_WR_TAIL
};

static inline uint64_t ib_wr_id(enum ib_wr_kind kind, unsigned k, uint64_t value)
{
    return (uint64_t)kind << 60 | (uint64_t)(k & 15) << 56 | (value & 0xffffffffffffull);
}
static inline enum ib_wr_kind ib_wr_kind(uint64_t id)
{
    return (enum ib_wr_kind)(id >> 60);
}
static inline unsigned ib_wr_part(uint64_t id)
{
    return (unsigned)(id >> 56) & 15;
}
static inline uint64_t ib_wr_value(uint64_t id)
{
    return id & 0xffffffffffffull;
}

#endif
