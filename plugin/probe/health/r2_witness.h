/*
 * Witnesses: data queue pairs between the two NICs of a pair, on other ways than its probe's two,
 * which a write of no bytes asks whether the NICs live where both of those may be silent
 * (docs/health.md, "Ways"). Service thread, no gate held; visits gates, nothing blocks.
 */
#ifndef R2_WITNESS_H
#define R2_WITNESS_H

struct r2_comm;
struct r2_pair;

/* The probe of @pair may have no answer. At most one path of each other way is asked, among the
 * first 64 connections to the peer: never the last of its connection, which may be at rest, and
 * which RC would break then if the NIC is out for a while, which nobody would have noticed. */
void r2_witness_ask(struct r2_pair *pair);

/* The way over which something has got through since it was asked; 0: none, or nobody was. */
unsigned r2_witness_answer(struct r2_pair *pair);

#endif
