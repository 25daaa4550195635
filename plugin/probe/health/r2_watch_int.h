/* What the files of the watchdog share: r2_watch.c (who is silent) calls r2_watch_path.c (what that
 * means for a path), as does r2_still.c. Service thread; gate held unless it says otherwise. */
#ifndef R2_WATCH_INT_H
#define R2_WATCH_INT_H

#include "r2_watch.h"

/* What a tick reads of path @p; without the gate as of a moment ago. */
struct probe_pulse r2_watch_pulse(const struct r2_comm *c, int p);

/* Whether a verdict about path @p may end its incarnation: never the last one, where waiting costs
 * nothing that ending would save, unless a drained one would return in its place; nor while the
 * peer could not be notified, by the channel or over another NIC pair, which settlement needs. */
bool r2_watch_may_end(const struct r2_comm *c, int p);

/* Path @p has work requests without completion, and stood still at @s: probes its NIC pair, and
 * ends the incarnation when it has been silent for longer than RC may need. */
void r2_watch_on_silence(struct r2_comm *c, int p, const struct probe_pulse *s);

/* Ends the incarnation of path @p, and returns true, when its last packet is lost. @w: the watch
 * that finds it silent; @pair may be NULL; @expect: ns that its queues may take. */
bool r2_watch_end_if_lost(struct r2_comm *c, int p, struct probe_watch *w, struct r2_pair *pair,
                          uint64_t expect);

/* Probes the NIC pair of path @p; returns it, NULL when it has none. */
struct r2_pair *r2_watch_probe_path(struct r2_comm *c, int p);

/* The last path, or all that are left are over one NIC pair: its incarnation goes on, but nobody
 * waits for ever: RC may never say anything, and then no other end would come. @silent: ns; @limit:
 * what any repair may take. */
void r2_watch_check_last(struct r2_comm *c, int p, uint64_t silent, uint64_t limit);

/* Ends the connection: @p, its last path, or all that are up have carried nothing for @silent ns.
 */
void r2_watch_give_up_last(struct r2_comm *c, int p, uint64_t silent);

#endif
