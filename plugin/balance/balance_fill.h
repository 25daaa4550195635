/*
 * How much each flow sends over each of its paths, so that the flow that gets least gets as much as
 * possible, with the links that paths share taken into account; what then is left over goes to
 * whoever can take it. Pure; the caller's memory; no libm. Arithmetic is IEEE double up to the
 * division of a flow among its paths, and integer from there.
 *
 * A flow is what is cut: a connection, or all connections of a GPU to one host. A path is a way it
 * may take, here and at the remote end. A resource is anything that has a capacity in one
 * direction: a NIC port, a PCI link, the link between sockets, a path's own rate as it was
 * measured.
 */
#ifndef BALANCE_FILL_H
#define BALANCE_FILL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BALANCE_FLOWS      4096
#define BALANCE_PATHS      16384
#define BALANCE_RESOURCES  8192
#define BALANCE_PATH_RES   24 /* resources of one path */
#define BALANCE_FLOW_PATHS 64 /* paths of one flow */
#define BALANCE_MBPS_MAX   (1u << 23)
#define BALANCE_ONE        65536u /* the weights of a flow add up to this */

struct balance_path {
    uint8_t n; /* at least one resource, each once */
    uint16_t res[BALANCE_PATH_RES];
};

struct balance_flow {
    uint16_t share; /* 1 to 256: a flow of share 2 is to get twice what one of share 1 gets */
    uint16_t
        n; /* its paths are path[first] to path[first + n - 1]; flows are in the order of these */
    uint32_t first;
};

struct balance_net {
    const uint32_t *mbps; /* what each resource has left */
    const struct balance_path *path;
    const struct balance_flow *flow;
    uint32_t resources, paths, flows;
};

struct balance_result {
    double least; /* Mb/s per share of the flow that gets least; flows that can get nothing are left
                     out */
    double bound; /* no division of any kind gives that flow more: proved, by dual prices of the
                     resources (balance_search.c) */
};

/* Bytes of working memory that balance_fill() needs for @net; 0 when the net is out of the bounds
 * above or refers to what is not there. */
size_t balance_fill_size(const struct balance_net *net);
/* What suffices for every net with at most so many resources, flows, paths, and resources of all
 * its paths together (@entries, not below @paths). */
size_t balance_fill_size_most(size_t resources, size_t flows, size_t paths, size_t entries);

/*
 * Fills in @rate (Mb/s, per path), @weight (of BALANCE_ONE, per path, within its flow) and @result;
 * each may be NULL. @work: balance_fill_size() bytes, aligned to 8. No resource gets more than it
 * has. A flow all of whose paths have a resource with nothing left gets equal weights: something
 * has to carry it. -1, and nothing filled in, for a net whose size is 0.
 *
 * Stops as soon as result.least is within 2 % of result.bound, or after a fixed number of rounds,
 * with what was best. Does not block; time grows with the paths, less with their resources: give
 * flows with the same paths as one, with their share.
 */
int balance_fill(const struct balance_net *net, void *work, uint32_t *rate, uint32_t *weight,
                 struct balance_result *result);

/*
 * Whether weights of a flow have changed enough to be worth a new plan: one moves by more than
 * @percent of its larger value, and by more than BALANCE_LITTLE, 1 % of the flow, since the weight
 * of a path that carries next to nothing is never sure to a tenth. Against plans that change with
 * every measurement.
 */
#define BALANCE_LITTLE (BALANCE_ONE / 100)
bool balance_weights_differ(const uint32_t *now, const uint32_t *next, unsigned n,
                            unsigned percent);

#endif
