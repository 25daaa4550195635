/*
 * What the module knows of MPI: a communicator of its own, and messages on it. The only file with
 * MPI calls is oob_mpi_world.c.
 *
 * Thread rule: after MPI_Init every MPI call is made inside a function of this header, under one
 * lock, and none of them waits. They are called by the thread of the endpoint. Only the end of MPI
 * comes from another thread, the program's: it takes the lock, waits a bounded time for the
 * endpoints to take leave, and after that nothing calls MPI any more.
 */
#ifndef OOB_MPI_WORLD_H
#define OOB_MPI_WORLD_H

#include <stddef.h>
#include <stdint.h>

struct world_out; /* a message on its way; owned by whoever made it until world_abandon() */

struct world_in { /* a message that arrived */
    struct world_in *next;
    int source;
    size_t len;
    uint8_t data[];
};

/* Where messages for one endpoint wait. Owned by the endpoint, listed here from world_join() to
 * world_leave(). */
struct world_box {
    struct world_box *next; /* all but wakefd: under the lock */
    uint64_t uuid[2];
    struct world_in *first, **last;
    int wakefd; /* eventfd: something to do without a message */
    int left;   /* has taken leave of an MPI that ends */
};

enum world_state {
    WORLD_NONE, /* no MPI_Init has passed through this module, or it could not be used: the reason
                   is in @why */
    WORLD_READY,
    WORLD_ENDING, /* MPI_Finalize waits for us: last messages may be sent */
    WORLD_ENDED,  /* nothing may be called any more */
    WORLD_STATES
};

/* Every message begins with this. All ranks have one byte order. */
struct world_head {
    uint32_t magic;
    uint8_t kind;
    uint8_t code;
    uint16_t zero;
    uint64_t chan;
    uint64_t from[2], to[2];
};
#define WORLD_MAGIC  0x4d4f3252u
#define WORLD_REFUSE 4 /* the kind that says: no endpoint of this uuid is here */

#define WORLD_RANK_MAX 0xffffffu

/* @why: the reason of WORLD_NONE and WORLD_ENDED. */
enum world_state world_state(char *why, size_t why_len);
int world_rank(void);
int world_size(void);
/* 1 to 255 and 0 to 255, alike in all ranks of this world, at random different in another one. */
void world_tag(uint8_t *low, uint8_t *high);

void world_join(struct world_box *box);
/* Also frees what has arrived and was not taken. */
void world_leave(struct world_box *box);
/* The endpoint has sent its last messages to an MPI that ends. */
void world_took_leave(struct world_box *box);
struct world_in *world_take(struct world_box *box);

/*
 * Receives what there is, into the boxes, and frees abandoned messages that are through. Returns
 * how much happened. Messages of one source are boxed in the order in which they were posted.
 */
int world_poll(void);

/* A message of @head and @len bytes for @rank, not yet posted; NULL: out of memory. */
struct world_out *world_out(int rank, const struct world_head *head, const void *data, size_t len);
size_t world_out_len(const struct world_out *o);
struct world_out **world_out_next(struct world_out *o); /* the owner's list */
/* -1: MPI has ended or refuses. Synchronous: it is through when the receiver has taken it, so a
 * receiver that does not look bounds what lies in its memory. */
int world_post(struct world_out *o);
int world_posted(const struct world_out *o);
int world_through(struct world_out *o);
/* Frees @o now, or when it is through: MPI may still read it. */
void world_abandon(struct world_out *o);

#endif
