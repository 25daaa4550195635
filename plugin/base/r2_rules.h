/*
 * Protocol rules that a test build can switch off one by one, to show that the simulation fails
 * without them. The product is compiled without R2_TEST_RULES: r2_rule() is the constant 1 there
 * and the switch does not exist.
 */
#ifndef R2_RULES_H
#define R2_RULES_H

enum r2_rule {
    R2_RULE_RECV_FENCE, /* P16: R fences before it sends the ledger */
    R2_RULE_MARKERS,    /* P16.3-4: wait for markers before the snapshot */
    R2_RULE_TOLD,       /* P16.4: a flush that the library made up is held for, not believed */
    R2_RULE_CLOSE_INCARNATION, /* P16.5: no completion of a closed incarnation enters the ledger */
    R2_RULE_LEDGER,            /* P21: parts in the ledger are not retransmitted */
    R2_RULE_RETRANSMIT,        /* P21: only parts whose last post was on the settled incarnation
                                          are retransmitted */
    R2_RULE_E2E_ACK,           /* P13: a send is done when the receiver's ledger has it */
    R2_RULE_CTS_REWRITE,       /* P11: CTS of a dead incarnation is written again elsewhere */
    R2_RULE_TOMBSTONE,         /* P26: a closed receiver still answers */
    R2_RULE_QUARANTINE,        /* P18: a soft fence quarantines what was open */
    R2_RULE_FROZEN_CUT,        /* P4: a retransmission keeps the cut */
    R2_RULE_FULL_INCARNATION,  /* P8: a record counts for the incarnation that it names */
    R2_RULE_NEW_QP,    /* P23: a new incarnation has another queue pair number and another PSN */
    R2_RULE_SETTLED,   /* P23: R begins a new incarnation when S has applied the ledger of the old
                          one */
    R2_RULE_PAIR_LIVE, /* P32: a call that failed may have posted the first of two */
    R2_RULE_UNREAD,    /* P34: what waits for its read when its incarnation is closed is dropped */
    R2_RULE_ASK_AGAIN, /* verdicts: a silence is asked once more before a link or the way is blamed
                        */
    R2_RULE_LATE_ANSWER, /* verdicts: what is still asked over the pair of a busy NIC is waited for
                            ... */
    R2_RULE_LATE_AUX,    /* ... and over others */
    R2_RULE_BOUNCE_READ, /* P13: a copy that runs reads the message's buffer */
    R2_RULE_BOUNCE_RING, /* bounce buffer is free when its work request is accounted for */
    R2_RULE_LIVE_PARTS,  /* P35: S names the parts that an incarnation may still bring ... */
    R2_RULE_LIVE_FROZEN, /* ... as they were when it stopped posting there */
    R2_RULE_LIVE_LEDGER, /* P35: ... and R takes off what it had at the close, not what came since
                          */
    R2_RULE_ABORT_ERR,   /* P27: queue pairs are in ERR before a registration goes under requests */
    R2_RULE_COUNT
};
_Static_assert(R2_RULE_COUNT <= 32, "a bit for each");

#ifdef R2_TEST_RULES
extern unsigned r2_rules_off; /* bit per rule; set before traffic, one thread */
static inline int r2_rule(enum r2_rule r)
{
    return !((r2_rules_off >> r) & 1u);
}
/* Name as given to the simulation's --without, and back; NULL, -1 when there is none. */
const char *r2_rule_name(enum r2_rule r);
int r2_rule_parse(const char *name);
#else
#define r2_rule(r) 1
#endif

#endif
