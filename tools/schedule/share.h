/*
 * How flows that are under way at once share the ports that they go over: max-min, each flow held
 * by a port that is full. Pure but for the memory of its work; one thread; memory that is not there
 * ends the process (util_mem_alloc()).
 */
#ifndef SCHEDULE_SHARE_H
#define SCHEDULE_SHARE_H

#include <stddef.h>

enum share_by {
    SHARE_FLOWS,   /* at every port flows are alike, by weight */
    SHARE_SENDERS, /* at a receiving port senders are alike, then the flows of each, by weight */
};

struct share_flow {
    int out, in;   /* ports: that which sends, that which receives */
    int pair;      /* those with the same two ports have the same number */
    double weight; /* above 0 */
    double rate;   /* the answer */
    double rise;   /* for the work */
};

/* What the work keeps of a port, and of those that send to it with something still open. */
struct share_port {
    double left;   /* of its capacity, beside what is fixed */
    double weight; /* of the open flows */
    double load;   /* of their rises */
    double held;   /* fixed flows of senders that have open ones, too */
    int senders;   /* that have open flows */
};

struct share_pair {
    double held, weight; /* of its fixed flows; of its open ones */
    double level;        /* of a unit of weight, at the receiving port */
    int in;
};

struct share {
    int ports, pairs;
    const double *capacity; /* [ports]; above 0, or the flows there get 0 */
    struct share_port *port;
    struct share_pair *pair;
};

/* @capacity stays until share_close(); a port is one direction of a NIC. */
void share_open(struct share *s, const double *capacity, int ports, int pairs);
void share_close(struct share *s);

/*
 * The rates of @flow. No port carries more than its capacity, and each flow goes over one that is
 * full, where no other has more: of all flows by weight, or with SHARE_SENDERS at a receiving port
 * no sender, and no flow of its own. Ends after as many rounds as there are ports at most. Returns
 * in how many of them fair parts of different ports turned in a circle, as they can with
 * SHARE_SENDERS: then all rise in the ratio of their smaller parts until a port is full, and only
 * that is sure.
 */
int share_fill(struct share *s, enum share_by by, struct share_flow *flow, int flows);

#endif
