/*
 * How many delivery queries (DELIVERY_QUERY) and CTS requests (CTS_REQUEST) go between two
 * processes (docs/health.md, "Questions"). Each makes the receiving process poll, and write, for
 * one connection; a thousand connections that wait for the same process learn no more than a few of
 * them, and records about a failure queue behind them all. Service thread; nothing blocks.
 */
#ifndef R2_QUESTIONS_H
#define R2_QUESTIONS_H

#include <stdbool.h>

#include "core/r2_inst.h"

/* In a tick of the watch, T_suspect / 4. An end takes more than the other sends: their ticks do not
 * fall together. What comes beyond is passed over: it is repeated. */
#define R2_QUESTIONS_ASKED  64 /* by this process */
#define R2_QUESTIONS_PEER   16 /* ... of one other */
#define R2_QUESTIONS_ANSWER 32 /* to one other */

/* Whether one more may be sent about @c now; it is counted. */
bool r2_questions_may_ask(struct r2_comm *c);
/* Whether one more about @c is answered now; it is counted. */
bool r2_questions_may_answer(struct r2_comm *c);

#endif
