#include <stdbool.h>

#include "ib_fence_proof.h"

static bool is_nic_quiet(const struct ib_fence_facts *f)
{
    if (f->sender) {
        return (f->out_nic & IB_MARK_SEND) || f->idle;
    }
    return (f->out_nic & IB_MARK_RECV) != 0;
}

enum ib_fence_proof ib_fence_proof(const struct ib_fence_facts *f)
{
    uint8_t needed = f->sender ? IB_MARK_SEND : IB_MARK_RECV;

    int all_out = (f->out & f->posted) == f->posted;

    if (all_out && is_nic_quiet(f)) {
        return IB_PROOF_NIC;
    }
    if (all_out && (f->posted & needed)) {
        return IB_PROOF_LIBRARY;
    }
    if (f->refused && !(f->posted & needed)) {
        return IB_PROOF_LIBRARY; /* nothing that may still come would prove more */
    }
    if (!f->late) {
        return IB_PROOF_WAIT;
    }
    return f->refused ? IB_PROOF_LIBRARY : IB_PROOF_NONE;
}
