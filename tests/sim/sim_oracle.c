/*
 * What has to hold of the bytes.
 *
 * A device may write into a receive slot only while the slot is posted, within the capacity of the
 * message posted there, and only the bytes of that message. So a late write of an older message is
 * caught at the moment it happens, whoever owns the slot by then; a send buffer is overwritten at
 * its done, so a retransmission from it is caught where it lands.
 */
#include "sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ARENA_ADDR  ((uint8_t *)0x200000000000ull)
#define ARENA_BYTES (SIM_REGION_BYTES * SIM_MAX_CONNS * 2)

static uint8_t *arena;

void sim_arena_init(void)
{
    if (arena) {
        return;
    }
    arena = mmap(ARENA_ADDR, ARENA_BYTES, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (arena == MAP_FAILED) {
        fprintf(stderr, "r2_sim: no memory for the buffers: %s\n", strerror(errno));
        exit(2);
    }
}

uint8_t *sim_arena_region(int conn, int sender)
{
    return arena + SIM_REGION_BYTES * (size_t)(conn * 2 + sender);
}

static uint64_t word_of(uint64_t key, uint64_t i)
{
    uint64_t z = key + i * 0x9e3779b97f4a7c15ull;

    z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93ull;
    return z ^ (z >> 29);
}

static uint64_t key_of(const struct sim_conn *c, uint32_t msg)
{
    return (c->sim->key ^ ((uint64_t)(unsigned)c->index << 32 | msg)) * 0xff51afd7ed558ccdull;
}

void sim_fill(struct sim_conn *c, uint32_t msg, uint8_t *at, size_t len)
{
    uint64_t key = key_of(c, msg), w;
    size_t i;

    for (i = 0; i + 8 <= len; i += 8) {
        w = word_of(key, i / 8);
        memcpy(at + i, &w, 8);
    }
    w = word_of(key, i / 8);
    memcpy(at + i, &w, len - i);
}

int64_t sim_compare(struct sim_conn *c, uint32_t msg, size_t off, const uint8_t *at, size_t len)
{
    uint64_t key = key_of(c, msg), w, have;
    size_t i = 0;

    while (i < len) {
        size_t in = (off + i) % 8, n = 8 - in < len - i ? 8 - in : len - i;
        w = word_of(key, (off + i) / 8);
        if (n == 8) {
            memcpy(&have, at + i, 8);
            if (have != w) {
                break;
            }
        } else if (memcmp(at + i, (uint8_t *)&w + in, n) != 0) {
            break;
        }
        i += n;
    }
    for (; i < len; i++) {
        w = word_of(key, (off + i) / 8);
        if (at[i] != ((uint8_t *)&w)[(off + i) % 8]) {
            return (int64_t)i;
        }
    }
    return -1;
}

uint8_t *sim_slot_addr(struct sim_conn *c, uint32_t msg)
{
    return c->recv_base + (size_t)c->stride * (msg % (uint32_t)c->nslots) + c->msg[msg].recv_skew;
}

/* Which message, if any, the bytes at @at are a piece of: says whose ghost it was. */
static int owner_of_bytes(struct sim_conn *c, size_t off, const uint8_t *at, size_t len)
{
    for (int m = 0; m < c->nmsgs && len > 0; m++) {
        if (sim_compare(c, (uint32_t)m, off, at, len < 16 ? len : 16) < 0) {
            return m;
        }
    }
    return -1;
}

void sim_oracle_settle(struct sim *s)
{
    struct sim_conn *c = s->written.c;
    struct sim_msg *m;
    struct sim_slot *slot;
    int64_t bad;

    if (!c) {
        return;
    }
    s->written.c = NULL;
    m = &c->msg[s->written.msg];
    slot = &c->slot[s->written.msg % (uint32_t)c->nslots];
    if (slot->state == SIM_SLOT_GONE && c->kept & 2) {
        return; /* the pages are nobody's: that is what they are kept for */
    }
    if (slot->state != SIM_SLOT_POSTED) {
        sim_fail(
            s,
            "conn %d: NIC %d (QP %#x) wrote %zu bytes at %zu into a slot that is %s; last message there %u; bytes of "
            "message %d",
            c->index, s->written.nic, s->written.qpn, s->written.len, s->written.off,
            slot->state == SIM_SLOT_FREE ? "done" : "deregistered", s->written.msg,
            owner_of_bytes(c, s->written.off, s->written.at, s->written.len));
        return;
    }
    if (s->written.off + s->written.len > m->cap) {
        sim_fail(s,
                 "conn %d: NIC %d wrote %zu bytes at %zu of message %u, beyond its capacity of %u",
                 c->index, s->written.nic, s->written.len, s->written.off, s->written.msg, m->cap);
        return;
    }
    if (c->left) {
        return; /* the sender may have its buffer back, and the NIC that repeats it read another */
    }
    bad = sim_compare(c, s->written.msg, s->written.off, s->written.at, s->written.len);
    if (bad >= 0) {
        sim_fail(
            s,
            "conn %d: NIC %d (QP %#x) wrote %zu bytes at %zu into the slot of message %u, wrong from byte %lld "
            "on; they "
            "are of message %d",
            c->index, s->written.nic, s->written.qpn, s->written.len, s->written.off,
            s->written.msg, (long long)bad,
            owner_of_bytes(c, s->written.off, s->written.at, s->written.len));
    }
}

void sim_oracle_write(void *arg, int host, int nic, uint32_t qpn, void *addr, uint32_t len)
{
    struct sim *s = arg;
    uint8_t *at = addr;
    size_t region, off;
    struct sim_conn *c;
    uint32_t slot;

    sim_oracle_settle(s);
    if (at < arena || at >= arena + ARENA_BYTES || len == 0) {
        return;
    }
    region = (size_t)(at - arena) / SIM_REGION_BYTES;
    c = &s->conn[region / 2];
    if ((int)(region / 2) >= s->p.conns || region % 2) {
        sim_fail(s, "NIC %d of host %d wrote %u bytes into a send buffer of conn %zu", nic, host,
                 len, region / 2);
        return;
    }
    slot = (uint32_t)((size_t)(at - c->recv_base) / c->stride);
    if (slot >= (uint32_t)c->nslots) {
        sim_fail(s, "conn %d: NIC %d of host %d wrote %u bytes behind all slots", c->index, nic,
                 host, len);
        return;
    }
    off = (size_t)(at - c->recv_base) % c->stride;
    if (off < c->msg[c->slot[slot].msg].recv_skew) {
        sim_fail(s, "conn %d: NIC %d of host %d wrote %u bytes before the buffer of message %u",
                 c->index, nic, host, len, c->slot[slot].msg);
        return;
    }
    s->written.c = c;
    s->written.msg = c->slot[slot].msg;
    s->written.off = off - c->msg[c->slot[slot].msg].recv_skew;
    s->written.len = len;
    s->written.at = at;
    s->written.nic = nic;
    s->written.qpn = qpn;
}

void sim_oracle_recv_done(struct sim_conn *c, uint32_t msg, size_t size)
{
    struct sim_msg *m = &c->msg[msg];
    int64_t bad;

    if (size != sim_size_due(m)) {
        sim_fail(c->sim, "conn %d: receive of message %u done with %zu bytes; sent %u, capacity %u",
                 c->index, msg, size, m->size, m->cap);
        return;
    }
    bad = sim_compare(c, msg, 0, sim_slot_addr(c, msg), size);
    if (bad >= 0) {
        sim_fail(c->sim, "conn %d: receive of message %u done, but byte %lld of %zu is wrong",
                 c->index, msg, (long long)bad, size);
    }
    if (m->r_done++) {
        sim_fail(c->sim, "conn %d: receive of message %u done twice", c->index, msg);
    }
    c->slot[msg % (uint32_t)c->nslots].state = SIM_SLOT_FREE;
}

/* A send is done when the receiving process has the message: then its bytes are all there, if they
 * were not consumed already. */
void sim_oracle_send_done(struct sim_conn *c, uint32_t msg, size_t size)
{
    struct sim_msg *m = &c->msg[msg];
    struct sim_slot *slot = &c->slot[msg % (uint32_t)c->nslots];

    if (size != sim_size_due(m)) {
        sim_fail(
            c->sim,
            "conn %d: send of message %u done with %zu bytes; size %u, capacity at the receiver %u",
            c->index, msg, size, m->size, m->cap);
    }
    if (m->s_done++) {
        sim_fail(c->sim, "conn %d: send of message %u done twice", c->index, msg);
    }
    if (m->r_done) {
        return;
    }
    if (slot->state == SIM_SLOT_FREE || slot->msg != msg ||
        sim_compare(c, msg, 0, sim_slot_addr(c, msg), size) >= 0) {
        sim_fail(c->sim, "conn %d: send of message %u done, but the receiver does not have it",
                 c->index, msg);
    }
}
