/* Receives that a softly fenced life may still write into are not reported done (P17, P18). */
#include "ib_transport/ib_recv.h"
#include "r2_rules.h"

#define SLOT(rx, s) (&(rx)->msg[(s) % R2_LEDGER_WINDOW])

void ib_recv_hold(struct ib_recv *rx, int p)
{
    if (!r2_rule(R2_RULE_HOLD)) {
        return;
    }
    rx->holding |= (uint8_t)(1u << p);
    for (uint64_t seq = rx->ledger.rdone; seq < rx->ledger.rpost; seq++) {
        if (!r2_ledger_complete(&rx->ledger, seq)) {
            SLOT(rx, seq)->hold |= (uint8_t)(1u << p);
        }
    }
}

void ib_recv_hold_peer_stopped(struct ib_recv *rx, int p)
{
    rx->holding &= (uint8_t) ~(1u << p);
}

void ib_recv_hold_over(struct ib_recv *rx, int p)
{
    ib_recv_hold_peer_stopped(rx, p);
    for (uint64_t seq = rx->ledger.rdone; seq < rx->ledger.rpost; seq++) {
        SLOT(rx, seq)->hold &= (uint8_t) ~(1u << p);
    }
}

int ib_recv_hold_gpu(struct ib_recv *rx, int p)
{
    int n = 0;

    for (uint64_t seq = rx->ledger.rdone; rx->flush && r2_rule(R2_RULE_HOLD) && seq < rx->ledger.rpost; seq++) {
        struct ib_rmsg *m = SLOT(rx, seq);

        if (m->gpu && !r2_ledger_complete(&rx->ledger, seq)) {
            m->hold |= (uint8_t)(1u << p);
            n++;
        }
    }
    return n;
}

int ib_recv_hold_gpu_only(struct ib_recv *rx, int p)
{
    int n = 0;

    ib_recv_hold_peer_stopped(rx, p);
    for (uint64_t seq = rx->ledger.rdone; seq < rx->ledger.rpost; seq++) {
        struct ib_rmsg *m = SLOT(rx, seq);

        if (!m->gpu) {
            m->hold &= (uint8_t) ~(1u << p);
        }
        n += (m->hold >> p) & 1;
    }
    return n;
}
