#include "r2_rules.h"

#include <string.h>

#ifdef R2_TEST_RULES
unsigned r2_rules_off;

static const char *const names[R2_RULE_COUNT] = {
    [R2_RULE_RECV_FENCE] = "recv-fence",
    [R2_RULE_MARKERS] = "markers",
    [R2_RULE_TOLD] = "told",
    [R2_RULE_CLOSE_INCARNATION] = "close-incarnation",
    [R2_RULE_LEDGER] = "ledger",
    [R2_RULE_RETRANSMIT] = "retransmit-incarnation",
    [R2_RULE_E2E_ACK] = "e2e-ack",
    [R2_RULE_CTS_REWRITE] = "cts-rewrite",
    [R2_RULE_TOMBSTONE] = "tombstone",
    [R2_RULE_QUARANTINE] = "quarantine",
    [R2_RULE_FROZEN_CUT] = "frozen-cut",
    [R2_RULE_FULL_INCARNATION] = "full-incarnation",
    [R2_RULE_NEW_QP] = "new-qp",
    [R2_RULE_SETTLED] = "settled",
    [R2_RULE_PAIR_LIVE] = "pair-live",
    [R2_RULE_UNREAD] = "unread",
    [R2_RULE_ASK_AGAIN] = "ask-again",
    [R2_RULE_LATE_ANSWER] = "late-answer",
    [R2_RULE_LATE_AUX] = "late-aux",
    [R2_RULE_BOUNCE_READ] = "bounce-read",
    [R2_RULE_BOUNCE_RING] = "bounce-ring",
    [R2_RULE_LIVE_PARTS] = "live-parts",
    [R2_RULE_LIVE_FROZEN] = "live-frozen",
    [R2_RULE_LIVE_LEDGER] = "live-ledger",
    [R2_RULE_ABORT_ERR] = "abort-err",
};

const char *r2_rule_name(enum r2_rule r)
{
    return (unsigned)r < R2_RULE_COUNT ? names[r] : NULL;
}

int r2_rule_parse(const char *name)
{
    for (int i = 0; i < R2_RULE_COUNT; i++) {
        if (strcmp(names[i], name) == 0) {
            return i;
        }
    }
    return -1;
}
#else
typedef int r2_rules_are_constant; /* the product has no switches */
#endif
