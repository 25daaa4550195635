/*
 * The report of a way that the fabric has lost (R2-F04): the operator's line, with both
 * five-tuples that a switch hashes, and the fact on_cause. Service thread; nothing blocks.
 */
#ifndef R2_WAY_REPORT_H
#define R2_WAY_REPORT_H

#include <stddef.h>
#include <stdint.h>

#define R2_WAY_FLOW 96 /* "[IPv6]:PORT>[IPv6]:4791" and its NUL */

struct ib_addr;
struct ib_ways;
struct r2_subscriber;

/* Subscribes to on_way. Allocates nothing. */
extern const struct r2_subscriber r2_way_subscriber;

/*
 * What a packet of way @way of @ways from port @from to port @to carries, as
 * "10.0.0.1:49155>10.0.0.2:4791": addresses and UDP ports of RoCE v2; or "lid:17>lid:42", as the
 * switches of an InfiniBand subnet see it. Pure.
 */
void r2_way_flow(char out[R2_WAY_FLOW], const struct ib_ways *ways, unsigned way,
                 const struct ib_addr *from, const struct ib_addr *to);

#endif
