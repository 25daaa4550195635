/*
 * Rank order of rings on fabrics that join only equal rails: neighbours use the rails that both
 * have, so an edge is as wide as the number of rails in common, and the ring as its narrowest edge.
 * rails[node]: a bit for each rail that the node still has. order[position]: node. Pure; any
 * thread; does not block. docs/collectives.md.
 */
#ifndef PLANNER_RING_H
#define PLANNER_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "planner_bound.h"

#define PLANNER_COVERED 16 /* nodes that the exact method takes on */

/* Working memory of planner_ring_best(), about 200 KiB; its contents mean nothing. */
struct planner_cover {
    uint16_t ends[1 << PLANNER_COVERED];
    uint8_t paths[1 << PLANNER_COVERED];
    uint8_t state[PLANNER_NODES];
};

struct planner_ring {
    int width;    /* rails on the narrowest edge */
    int limit;    /* what the node with the fewest rails has: no ring is wider */
    bool is_best; /* proved: no order is wider */
};

/* The narrowest edge of @order, in rails. */
int planner_ring_width(const uint32_t *rails, int n, const int *order);

/* The rails of the node with the fewest. */
int planner_ring_limit(const uint32_t *rails, int n);

/*
 * Algorithm 1 of R2CCL's paper (App. D), after a description of it, in place: for each edge that
 * was narrower than planner_ring_limit() at the start, the first node in ring order that reaches
 * the limit with both its ends, and whose own neighbours reach it without it, is put behind the
 * edge's first end. Edges are not looked at again. Returns how many nodes moved. The result may be
 * narrower than what is possible; it is here to compare with. @work: n.
 */
int planner_ring_paper(const uint32_t *rails, int n, int *order, int *work);

/*
 * out[] becomes the widest order; order[] itself, the present one, where that is as wide. Proved
 * best for any @n with up to PLANNER_COVERED nodes that lack what some other one has, with more
 * whenever as many nodes are compatible with all. Otherwise paths are found greedily, and is_best
 * is false unless the limit is reached.
 */
struct planner_ring planner_ring_best(const uint32_t *rails, int n, const int *order, int *out,
                                      struct planner_cover *cover);

#endif
