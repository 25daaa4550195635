/* What a decided case means, and who hears of it: the job (news), the operator (one WARN line), the history. Service thread; nothing blocks. */
#ifndef R2_VERDICT_H
#define R2_VERDICT_H

#include <stdint.h>

struct r2_inst;
struct r2_case;
struct r2_peer;

/* Decides by the facts of @k and says it, unless the job knows it already. */
void r2_verdict_say(struct r2_inst *inst, const struct r2_case *k);

/* Says that the channel to @peer is lost, since @peer->channel_lost (R2-O01). Not of a NIC, and no news: every process has its own channels. */
void r2_verdict_channel(struct r2_inst *inst, const struct r2_peer *peer);

/* The time of day (ms since 1970) of an instant of r2_now(), as lines have it. Any thread. */
uint64_t r2_verdict_time(const struct r2_inst *inst, uint64_t ns);

/*
 * The latest verdict in short, if it is not older than NCCL_R2_GIVE_UP: what most likely explains a connection that ends now. Empty: none. Any thread.
 */
#define R2_VERDICT_BRIEF 81 /* PROBE_SHORT_SIZE */
void r2_verdict_latest(struct r2_inst *inst, char out[R2_VERDICT_BRIEF]);

#endif
