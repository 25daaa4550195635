/*
 * One direction of a rated port, shared by the processes whose packets pass it.
 *
 * The port is a clock: free_at is the instant until which it is busy. A packet takes the span of
 * its length behind free_at, and arrives when its span ends. No two spans overlap, whoever sends,
 * and however late anybody wakes up.
 *
 * Bound. A span ends at most @ahead and its own length after the instant at which it is taken, and
 * starts at most SEG_PORT_CREDIT_NS before. So in any interval a port takes at most what its rate
 * carries in the interval and in @ahead + CREDIT, and one packet. There is no other credit: a port
 * that idles saves nothing up.
 *
 * At a receiving port @ahead is what the switch before it holds. A sender whose packet is held
 * there goes on to others. With room for less than a packet it would not: it had to find both its
 * own port and the receiver's free at one instant, and receivers would stand idle meanwhile.
 *
 * Fairness. The users of a port are processes (slots of the fabric); each has its own NIC thread or
 * polls, and one that sleeps would find the port taken by one that polls, for ever. So every user
 * has a tag: the port's time that it has used, started at the front of the others' when it begins
 * to wait (start-time fair queueing). Who is ahead of a user that waits by more than
 * SEG_PORT_LEAD_NS lets it go first. A user that waits has to ask again within SEG_PORT_STALE_NS of
 * when it was told to; one that does not (killed, stopped, without a core) is no longer waited for,
 * and may later make up for SEG_PORT_LEAD_NS of what it missed. Nor is one that was let through and
 * took no time: its tag stands still, and who sends nothing but acknowledgements would hold up all
 * that are ahead of it. Users that have something to send all the time thus get equal shares, up to
 * LEAD and a packet between any two, over any time in which none of them went stale.
 *
 * Threads: a word of a user (claim) is written by that process alone, under its engine's lock; the
 * rest are single atomics. A process killed at any instruction leaves the port valid. Nothing here
 * blocks or reads a clock.
 */
#ifndef SEG_PORT_H
#define SEG_PORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SEG_PORT_USERS 64
/* How far spans reach into the future. More costs latency behind bulk data, less costs wake-ups. */
#define SEG_PORT_AHEAD_NS 600000ull
/* And that of a receiving port at least, in packets: as many as AHEAD has of 100 us. */
#define SEG_PORT_AHEAD_PKTS 6
/* A user that had to wait and then came late may start its spans this far in the past, where the
 * port was free. */
#define SEG_PORT_CREDIT_NS 1000000ull
#define SEG_PORT_LEAD_NS   1000000ull
#define SEG_PORT_STALE_NS  2000000ull
/* When a user that lets others go first asks again. */
#define SEG_PORT_YIELD_NS 100000ull

struct seg_claim {
    _Atomic uint64_t tag;  /* ns of the port's time */
    _Atomic uint64_t seen; /* when it last asked, or has been told to ask */
};

struct seg_port {
    _Alignas(64) _Atomic uint64_t free_at; /* CLOCK_MONOTONIC ns, advanced by compare-and-swap */
    _Atomic uint64_t front;   /* largest tag at which a span was taken; never goes back */
    _Atomic uint64_t waiting; /* bit u: user u was refused, and has not left since */
    struct seg_claim claim[SEG_PORT_USERS];
};

/* Whether @user may take a span at @now, when spans reach @ahead ns into the future. 0: yes. Else
 * when to ask again; until seg_port_leave it counts as waiting. */
uint64_t seg_port_ask(struct seg_port *p, int user, uint64_t now, uint64_t ahead);
/* Where the spans of @user start at the earliest: @now, or earlier for one that waits. */
uint64_t seg_port_floor(struct seg_port *p, int user, uint64_t now);
/* Takes a span of @dur ns not before @floor. Returns its end. To be called after seg_port_ask said
 * yes. */
uint64_t seg_port_take(struct seg_port *p, int user, uint64_t floor, uint64_t dur);
/* Nobody waits for @user until the port has refused it again: what it asked for took no time, or it
 * could not use the yes. */
void seg_port_yield(struct seg_port *p, int user);
/* @user has nothing to send here now, or cannot for another reason. */
void seg_port_leave(struct seg_port *p, int user);

#endif
