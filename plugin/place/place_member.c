#include "place_member.h"

#include <stddef.h>

const char *place_kind_name(enum place_kind k)
{
    static const char *const names[PLACE_KINDS] = {"prepare", "answer", "commit", "abort", "done"};

    return (unsigned)k < PLACE_KINDS ? names[k] : "?";
}

const char *place_answer_name(enum place_answer a)
{
    static const char *const names[PLACE_ANSWERS] = {"none",      "yes",    "late",
                                                     "not-ready", "behind", "never"};

    return (unsigned)a < PLACE_ANSWERS ? names[a] : "?";
}

const char *place_member_state_name(enum place_member_state s)
{
    static const char *const names[PLACE_MEMBER_STATES] = {"free", "prepared", "committed", "lost",
                                                           "ended"};

    return (unsigned)s < PLACE_MEMBER_STATES ? names[s] : "?";
}

/* Row: from. */
bool place_member_move(struct place_member *m, enum place_member_state to)
{
    static const unsigned char legal[PLACE_MEMBER_STATES][PLACE_MEMBER_STATES] = {
        [PLACE_FREE] = {[PLACE_PREPARED] = 1, [PLACE_ENDED] = 1},
        [PLACE_PREPARED] =
            {[PLACE_FREE] = 1, [PLACE_COMMITTED] = 1, [PLACE_LOST] = 1, [PLACE_ENDED] = 1},
        [PLACE_COMMITTED] = {[PLACE_FREE] = 1, [PLACE_ENDED] = 1},
        [PLACE_LOST] = {[PLACE_ENDED] = 1},
    };

    if (m->state >= PLACE_MEMBER_STATES || (unsigned)to >= PLACE_MEMBER_STATES ||
        !legal[m->state][to]) {
        return false;
    }
    m->state = (uint8_t)to;
    return true;
}

enum place_use place_member_begin(struct place_member *m, uint32_t *use)
{
    if (m->state == PLACE_ENDED) {
        return PLACE_FAIL;
    }
    if (m->state != PLACE_FREE && m->begun == m->at) {
        if (m->state != PLACE_COMMITTED) {
            return m->state == PLACE_LOST ? PLACE_FAIL : PLACE_WAIT;
        }
        if (m->never) { /* it is the last switch: one slot is enough */
            m->kept = true;
            m->left = m->now;
        }
        m->now = m->to;
        m->since = m->begun;
        place_member_move(m, PLACE_FREE);
    }
    *use = m->now;
    m->begun++;
    return PLACE_USE;
}

bool place_member_take_back(struct place_member *m, unsigned n)
{
    if (m->begun < m->since + n) {
        place_member_end(m);
        return false;
    }
    m->begun -= n;
    return true;
}

/* --- the leader's messages --- */

static enum place_answer judge(const struct place_member *m, const struct place_msg *msg,
                               bool ready)
{
    if (m->never) {
        return PLACE_NEVER;
    }
    if (!ready) {
        return PLACE_NOT_READY;
    }
    return msg->at < m->begun ? PLACE_LATE : PLACE_YES;
}

static bool reply_with(const struct place_member *m, const struct place_msg *msg,
                       enum place_kind kind, enum place_answer answer, struct place_msg *reply)
{
    *reply = (struct place_msg){.kind = (uint8_t)kind,
                                .answer = (uint8_t)answer,
                                .attempt = msg->attempt,
                                .to = msg->to,
                                .at = m->begun};
    return true;
}

/* By a number that was agreed to for something else: of a leader that has forgotten. */
static bool is_another(const struct place_member *m, const struct place_msg *msg)
{
    return msg->attempt == m->attempt && m->answer == PLACE_YES &&
           (msg->to != m->to || msg->at != m->at);
}

/* An attempt is answered once, and then the same again. One that comes while an older one is open
 * is not remembered: the decision of the older one would be taken for stale. */
static bool on_prepare(struct place_member *m, const struct place_msg *msg, bool ready,
                       struct place_msg *reply)
{
    if (msg->attempt < m->attempt || is_another(m, msg)) {
        return false;
    }
    if (msg->attempt > m->attempt) {
        if (m->state != PLACE_FREE) {
            return reply_with(m, msg, PLACE_ANSWER, m->never ? PLACE_NEVER : PLACE_BEHIND, reply);
        }
        m->answer = (uint8_t)judge(m, msg, ready);
        m->attempt = msg->attempt;
        if (m->answer == PLACE_YES) {
            m->to = msg->to;
            m->at = msg->at;
            place_member_move(m, PLACE_PREPARED);
        }
    }
    return reply_with(m, msg, PLACE_ANSWER, (enum place_answer)m->answer, reply);
}

/* What was decided of an attempt that this rank has not agreed to can only be an abort, and makes
 * an offer of it that is still under way stale. */
static bool on_decision(struct place_member *m, const struct place_msg *msg,
                        struct place_msg *reply)
{
    bool commit = msg->kind == PLACE_COMMIT;

    if (msg->attempt > m->attempt) {
        if (commit || m->state == PLACE_PREPARED) {
            return false;
        }
        m->attempt = msg->attempt;
        m->answer = PLACE_LATE;
    } else if (msg->attempt == m->attempt) {
        if ((commit && m->answer != PLACE_YES) || is_another(m, msg)) {
            return false;
        }
        if (m->state == PLACE_PREPARED) {
            place_member_move(m, commit ? PLACE_COMMITTED : PLACE_FREE);
        }
    }
    return reply_with(m, msg, PLACE_DONE, PLACE_NONE, reply);
}

bool place_member_take(struct place_member *m, const struct place_msg *msg, bool ready,
                       struct place_msg *reply)
{
    if (msg->attempt == 0) {
        return false;
    }
    switch (msg->kind) {
    case PLACE_PREPARE:
        return on_prepare(m, msg, ready, reply);
    case PLACE_COMMIT:
    case PLACE_ABORT:
        return on_decision(m, msg, reply);
    default:
        return false;
    }
}

/* --- the rest --- */

bool place_member_never(struct place_member *m)
{
    m->never = true;
    return m->state == PLACE_PREPARED || m->state == PLACE_COMMITTED;
}

void place_member_lost(struct place_member *m)
{
    m->never = true;
    if (m->state == PLACE_PREPARED) {
        place_member_move(m, PLACE_LOST);
    }
}

void place_member_end(struct place_member *m)
{
    m->never = true;
    if (m->state != PLACE_ENDED) {
        place_member_move(m, PLACE_ENDED);
    }
}

bool place_member_is_idle(const struct place_member *m, uint32_t comm)
{
    if (m->state == PLACE_ENDED) {
        return true;
    }
    return comm != m->now && !(m->state != PLACE_FREE && comm == m->to) &&
           !(m->kept && comm == m->left);
}
