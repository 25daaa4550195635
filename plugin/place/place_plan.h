/*
 * Which order of ranks a communicator should have, by what its hosts have left: whether another
 * communicator than the one in use is worth its price. Pure: memory of the caller; does not block.
 * docs/collectives.md, "Switching together".
 */
#ifndef PLACE_PLAN_H
#define PLACE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "place_note.h"

#define PLACE_PLAN_BYTES (64ull << 20) /* of the all_reduce that is planned for */
/* So much faster another communicator has to be than the one in use, and than the user's own: it
 * costs memory, and the planner knows NCCL's trees from a model. */
#define PLACE_PLAN_GAIN 1.15

enum place_plan_verdict {
    PLACE_PLAN_STAY,  /* the communicator in use is as good as any */
    PLACE_PLAN_OWN,   /* the user's own is, and it is not in use */
    PLACE_PLAN_OTHER, /* the order in newrank[] is better */
    /* no plan, and why; the user's own is to be used */
    PLACE_PLAN_UNKNOWN, /* a rank knows nothing of its NICs, or has none left */
    PLACE_PLAN_UNEVEN,  /* hosts have different numbers of ranks */
    PLACE_PLAN_FEW,     /* hosts: one */
    PLACE_PLAN_MANY,    /* hosts: more than PLANNER_NODES */
    PLACE_PLAN_VERDICTS
};
const char *place_plan_name(enum place_plan_verdict v); /* "?" when it is none */

struct place_plan {
    enum place_plan_verdict verdict;
    int hosts, degraded;
    double now_us, best_us, own_us; /* an all_reduce of PLACE_PLAN_BYTES; 0: no plan */
};

/* What place_plan_make() needs for @n ranks. */
struct place_plan_work {
    uint64_t *host;                  /* n: of nodes */
    int *node;                       /* n: of ranks */
    int *per, *order, *seat, *first; /* n each: of nodes */
    double *share;                   /* n: of nodes */
    double *load;                    /* 2 n */
    bool no_ring;                    /* NCCL_ALGO: the user's own runs by Tree */
};

/*
 * @facts: of rank 0, 1, ..., all of them. @now: ranks in the communicator in use by rank of the
 * user's; NULL: it is the user's own. newrank[], n places, is written where the verdict is
 * PLACE_PLAN_OTHER.
 */
void place_plan_make(const struct place_facts *const *facts, int n, const int *now,
                     const struct place_plan_work *work, struct place_plan *plan, int *newrank);

#endif
