#include "r2_inband.h"

#include <errno.h>
#include <string.h>

#include "base/r2_log.h"
#include "r2_pair.h"
#include "r2_pair_int.h"
#include "r2_ways.h"

#define PAIRS_MAX 64 /* of one peer that are chosen from */
#define TAKEN_MAX                                                                                  \
    8 /* pieces that a NIC of the peer's has taken without a message from it; behind that ... */
#define TAKEN_WAIT_NS                                                                              \
    R2_MS(1000) /* ... one message in so long: a process that stands still takes none of its       \
                buffers back */
#define ROW_NS(inst)                                                                               \
    (40 * R2_MS((inst)->cfg.t_repeat_ms)) /* messages that are further apart are no row; in one    \
                                          the question is put again */
#define DEAF                                                                                       \
    1 /* beside a message: who sends it has heard nothing by the channel; else the word is an      \
         answer in kind */
#define MEND_MIN_NS R2_MS(100)
#define MEND_MAX_NS R2_MS(10000)
#define KNOWN_NS                                                                                   \
    R2_MS(1000) /* a pair that has brought a message is taken to carry them for so long            \
                 */
#define LOG_AFTER_NS R2_MS(1000) /* a channel that does not answer for so long is said */

static int usable_nic(const struct r2_inst *inst, int nic)
{
    enum ib_nic_state s = ib_nic_state_get(&inst->nics.nic[nic]);

    return s != IB_NIC_FATAL && s != IB_NIC_GONE;
}

/* --- a pair's queue pair --- */

void r2_inband_create(struct r2_pair *pair)
{
    struct r2_inst *inst = pair->inst;
    struct ib_inband_pool *pool = &inst->inband.pool[pair->nic];
    uint32_t psn;

    if (!inst->cfg.inband || inst->nics.nic[pair->nic].last) { /* its network is the channel's */
        return;
    }
    pair->carried.opened = 1;
    if (ib_inband_open(pool, &inst->nics, pair->nic) != 0) {
        return;
    }
    inst->env.random(inst->env.arg, &psn, sizeof(psn));
    if (ib_inband_create(&pair->inband, pool, &inst->nics, pair->nic, psn) != 0) {
        ib_inband_destroy(&pair->inband, &inst->nics);
        pair->inband.qpn = 0; /* it has sent nothing, and another's may have the number next */
    }
}

/* By a way of the probe's, which looks after it. */
void r2_inband_connect(struct r2_pair *pair)
{
    if (pair->inband.qp && pair->carried.peer_qpn) {
        ib_inband_connect(&pair->inband, &pair->inst->nics, pair->nic, pair->qp.lane[0].way,
                          &pair->far.addr.port, pair->carried.peer_qpn, pair->carried.peer_psn);
    }
}

void r2_inband_built(struct r2_pair *pair)
{
    struct r2_inst *inst = pair->inst;
    const struct ib_inband_pool *pool = &inst->inband.pool[pair->nic];
    uint32_t bit = 1u << pair->nic;

    pair->carried.qpn = pair->inband.qpn;
    if (pair->carried.opened &&
        !(inst->inband.tried & bit)) { /* another pair's job may be opening it at this moment */
        inst->inband.tried |= bit;
        if (pool->rc == 0) {
            inst->inband.open |= bit;
        } else {
            R2_INFO("NIC %s carries no control messages: %s", inst->nics.nic[pair->nic].name,
                    strerror(pool->rc));
        }
    }
}

void r2_inband_quieted(struct r2_pair *pair)
{
    pair->job.busy =
        1; /* to the messages that come in now: they must not begin another job of it */
    r2_inband_progress(pair->inst, 0);
    pair->job.busy = 0;
}

void r2_inband_destroyed(struct r2_pair *pair)
{
    struct r2_inst *inst = pair->inst;

    if (inst->inband.open >> pair->nic & 1) {
        r2_inband_quieted(pair); /* completions that it left: none may be taken for a later one's */
        ib_inband_reclaim(&pair->inband, &inst->inband.pool[pair->nic]);
    }
    pair->carried.qpn = 0;
}

void r2_inband_close(struct r2_inst *inst, uint64_t still_running)
{
    for (int i = 0; i < inst->nics.count; i++) {
        if (!(still_running >> inst->nics.nic[i].device_index & 1)) {
            ib_inband_close(&inst->inband.pool[i], &inst->nics);
        }
    }
    inst->inband.open = 0;
}

/* --- in --- */

/* Numbers are used again at once: a job that is out may have made a queue pair with that of one
 * whose last completions are checked here. */
static struct r2_pair *pair_of(const struct r2_inst *inst, int nic, uint32_t qpn)
{
    struct r2_pair *pair;

    for (pair = inst->index.pairs; pair && !(pair->nic == nic && pair->carried.qpn == qpn);
         pair = pair->next) {
    }
    return pair;
}

static void on_message(void *arg, int nic, uint32_t qpn, const void *msg, size_t len, uint32_t imm)
{
    struct r2_inst *inst = arg;
    struct r2_pair *pair = pair_of(inst, nic, qpn);
    struct r2_peer *peer = pair ? pair->peer : NULL;

    if (peer) { /* else the incarnation of its queue pair is over */
        inst->inband.received++;
        pair->carried.heard_at = r2_now(inst);
        peer->channel.deaf_until =
            imm == DEAF ? r2_now(inst) + ROW_NS(inst) : peer->channel.deaf_until;
        inst->above.deliver(inst, peer, msg, len);
    }
}

static void on_sent(void *arg, int nic, uint32_t qpn, int failed)
{
    struct r2_pair *pair = pair_of(arg, nic, qpn);

    if (pair && !pair->job.busy) {
        pair->inband.out = (uint8_t)(pair->inband.out - (pair->inband.out > 0));
        if (failed && pair->inband.up) {
            r2_ways_on_lost(pair, pair->qp.lane[0].way); /* RC has given up; or the peer ended */
        }
        pair->inband.up &= (uint8_t)!failed;
        if (!failed && pair->peer) {
            pair->carried.mend_at = pair->carried.mend_wait = 0;
            pair->carried.taken = pair->carried.messages == pair->peer->channel.messages
                                      ? pair->carried.taken + 1
                                      : 1;
            pair->carried.messages = pair->peer->channel.messages;
        }
    }
}

void r2_inband_progress(struct r2_inst *inst, uint32_t none)
{
    const struct ib_inband_sink sink = {.arg = inst, .message = on_message, .sent = on_sent};

    for (uint32_t m = inst->inband.open & ~none; m; m &= m - 1) {
        int nic = __builtin_ctz(m);

        if (usable_nic(inst, nic)) {
            ib_inband_progress(&inst->inband.pool[nic], &inst->nics, nic, &sink);
        }
    }
}

int r2_inband_fds(const struct r2_inst *inst, struct pollfd *fds, uint8_t *nics)
{
    int n = 0;

    for (uint32_t m = inst->inband.open; m; m &= m - 1) {
        int nic = __builtin_ctz(m);

        if (usable_nic(inst, nic)) {
            fds[n] = (struct pollfd){.fd = inst->inband.pool[nic].channel->fd, .events = POLLIN};
            nics[n++] = (uint8_t)nic;
        }
    }
    return n;
}

/* --- out --- */

/* Also while it is being asked itself: all pairs may be, because of one of them. */
static int usable(const struct r2_pair *pair)
{
    return r2_pair_ready(pair) && !pair->job.busy && pair->inband.up &&
           !pair->inst->inband.pool[pair->nic].sick &&
           ib_nic_state_get(&pair->inst->nics.nic[pair->nic]) == IB_NIC_UP;
}

static const struct r2_pair *any_usable(const struct r2_inst *inst, const struct r2_peer *peer)
{
    const struct r2_pair *pair;

    for (pair = inst->inband.open ? peer->pairs : NULL; pair && !usable(pair);
         pair = pair->peer_next) {
    }
    return pair;
}

void r2_inband_channel(struct r2_inst *inst, struct r2_peer *peer)
{
    peer->channel.owed_since = peer->channel.requested_since = 0;
    if (peer->channel.inband_logged) {
        peer->channel.inband_logged = 0;
        R2_INFO("the out-of-band channel to %s answers again", inst->oob->ops->peer_str(peer->oob));
    }
}

void r2_inband_owed(const struct r2_inst *inst, struct r2_peer *peer, uint64_t now)
{
    if (peer->channel.owed_since == 0 || r2_elapsed(now, peer->channel.owed_at) > ROW_NS(inst)) {
        peer->channel.owed_since =
            now; /* what had been said last needed no answer, or nobody wants one any more */
        peer->channel.requested_since = 0;
    }
    peer->channel.owed_at = now;
}

/* Words that need no answer may be all that there is to say, for long. */
static int unanswered(const struct r2_inst *inst, const struct r2_peer *peer, uint64_t now)
{
    return peer->channel.owed_since && peer->channel.requested_since &&
           r2_elapsed(now, peer->channel.requested_since) >= R2_MS(inst->cfg.t_repeat_ms);
}

/* Adds the question to what goes out. 0: there is no room. */
static size_t question_add(struct r2_peer *peer, const struct r2_pair *pair)
{
    union fo_body b = {
        .load = {.nic = pair->nic, .peer_nic = pair->peer_nic, .flags = FO_LOAD_REQUEST}};
    size_t n = fo_pack(FO_MSG_LOAD, &b, peer->out.buf + peer->out.len,
                       sizeof(peer->out.buf) - peer->out.len);

    peer->out.len += n;
    return n;
}

bool r2_inband_ask(struct r2_inst *inst, struct r2_peer *peer)
{
    const struct r2_pair *pair = any_usable(inst, peer);

    return pair && question_add(peer, pair) != 0;
}

void r2_inband_request(struct r2_inst *inst, struct r2_peer *peer, uint64_t now)
{
    const struct r2_pair *pair = any_usable(inst, peer);

    if (pair == NULL || peer->channel.lost || peer->channel.owed_since == 0 ||
        r2_elapsed(now, peer->channel.owed_at) > ROW_NS(inst) ||
        r2_elapsed(now, peer->channel.owed_since) < R2_MS(inst->cfg.t_repeat_ms) ||
        (peer->channel.requested_since &&
         r2_elapsed(now, peer->channel.requested_at) < ROW_NS(inst))) {
        return;
    }
    if (question_add(peer, pair)) {
        peer->channel.requested_at = now;
        peer->channel.requested_since =
            peer->channel.requested_since ? peer->channel.requested_since : now;
    }
}

int r2_inband_due(const struct r2_inst *inst, const struct r2_peer *peer, uint64_t now)
{
    return now < peer->channel.deaf_until || unanswered(inst, peer, now);
}

/* Its buffers may all be in use: a word from it tells that it takes them back. */
static int full(const struct r2_pair *pair, uint64_t now)
{
    return pair->carried.messages == pair->peer->channel.messages &&
           pair->carried.taken >= TAKEN_MAX &&
           r2_elapsed(now, pair->carried.sent_at) < TAKEN_WAIT_NS;
}

/*
 * A pair that answers, and whose queue pair for messages has failed: it is made anew, now that it
 * is needed. With a back-off of its own: the pair's ends with an answer to its probe, and the words
 * that make it anew would want the next one.
 */
static void mend(struct r2_pair *pair, uint64_t now)
{
    if (r2_pair_ready(pair) && !pair->job.busy && !r2_pair_is_probing(pair) && pair->inband.qpn &&
        !pair->inband.up && pair->carried.peer_qpn && now >= pair->build.at &&
        now >= pair->carried.mend_at) {
        uint64_t wait = 2 * pair->carried.mend_wait;

        pair->carried.mend_wait = wait < MEND_MIN_NS   ? MEND_MIN_NS
                                  : wait < MEND_MAX_NS ? wait
                                                       : MEND_MAX_NS;
        pair->carried.mend_at = now + pair->carried.mend_wait;
        r2_pair_again(pair);
    }
}

int r2_inband_reaches(const struct r2_inst *inst, const struct r2_peer *peer, int nic, int peer_nic)
{
    for (const struct r2_pair *pair = inst->inband.open ? peer->pairs : NULL; pair;
         pair = pair->peer_next) {
        if (!(pair->nic == nic && pair->peer_nic == peer_nic) && usable(pair)) {
            return 1;
        }
    }
    return 0;
}

static int gather(struct r2_inst *inst, const struct r2_peer *peer, struct r2_pair **out)
{
    uint64_t now = r2_now(inst);
    int n = 0;

    for (struct r2_pair *pair = peer->pairs; pair; pair = pair->peer_next) {
        if (!(inst->inband.open >> pair->nic & 1)) {
            continue;
        }
        if (!usable(pair)) {
            mend(pair, now);
        } else if (!full(pair, now) && n < PAIRS_MAX) {
            out[n++] = pair;
        }
    }
    return n;
}

/* The one that has brought a message last, not long ago; -1: none has. */
static int latest(struct r2_pair *const *pair, int n, uint64_t now)
{
    int at = -1;

    for (int i = 0; i < n; i++) {
        if (pair[i]->carried.heard_at && r2_elapsed(now, pair[i]->carried.heard_at) < KNOWN_NS &&
            (at < 0 || pair[i]->carried.heard_at > pair[at]->carried.heard_at)) {
            at = i;
        }
    }
    return at;
}

/* One behind @first in the circle, best of all over other NICs at both ends, since one NIC may be
 * what has failed. @first when there is no other. */
static int second(struct r2_pair *const *pair, int n, int first)
{
    int other = first;

    for (int i = n - 1; i > 0; i--) {
        int at = (first + i) % n;

        if (pair[at]->nic != pair[first]->nic && pair[at]->peer_nic != pair[first]->peer_nic) {
            return at;
        }
        other = at;
    }
    return other;
}

/* Of the record at @msg; 0: none ends within @len bytes. */
static size_t record_len(const uint8_t *msg, size_t len)
{
    size_t n = len < FO_RECORD_HEAD ? 0 : FO_RECORD_HEAD + (size_t)(msg[2] | msg[3] << 8);

    return n <= len ? n : 0;
}

/* Bytes of the whole records from @msg on that fit into one message. */
static size_t piece_len(const uint8_t *msg, size_t len)
{
    size_t n = 0, record;

    while ((record = record_len(msg + n, len - n)) > 0 && n + record <= IB_INBAND_MESSAGE) {
        n += record;
    }
    return n;
}

static int send_over(struct r2_inst *inst, struct r2_pair *pair, const uint8_t *msg, size_t len,
                     uint32_t imm)
{
    pair->carried.sent_at = r2_now(inst);
    return ib_inband_send(&pair->inband, &inst->inband.pool[pair->nic], msg, len, imm) == 0;
}

static void log_once(struct r2_inst *inst, struct r2_peer *peer, int pairs, uint64_t now)
{
    if (!peer->channel.inband_logged &&
        (peer->channel.lost || r2_elapsed(now, peer->channel.owed_since) >= LOG_AFTER_NS)) {
        peer->channel.inband_logged = 1;
        R2_INFO_MANY(
            R2_LOG_INBAND,
            "the out-of-band channel to %s %s: control messages go over %d NIC pairs as well",
            inst->oob->ops->peer_str(peer->oob), peer->channel.lost ? "is lost" : "does not answer",
            pairs);
    }
}

int r2_inband_send(struct r2_inst *inst, struct r2_peer *peer, const uint8_t *msg, size_t len)
{
    struct r2_pair *pair[PAIRS_MAX];
    uint64_t now = r2_now(inst);
    uint32_t imm = peer->channel.lost || unanswered(inst, peer, now) ? DEAF : 0;
    int n, a, b, known, sent = 0;
    size_t piece;

    if (inst->inband.open == 0) {
        return 0;
    }
    n = gather(inst, peer, pair);
    if (n == 0) {
        return 0;
    }
    a = (int)(peer->channel.turn++ % (unsigned)n);
    known = latest(
        pair, n, now); /* each in turn, since nobody knows which of them carry, and one that has */
    b = known >= 0 && known != a ? known : second(pair, n, a);
    for (; record_len(msg, len) > 0; msg += piece, len -= piece) {
        int went;

        piece = piece_len(msg, len);
        if (piece == 0) { /* longer than a message: the channel's alone */
            piece = record_len(msg, len);
            continue;
        }
        went = send_over(inst, pair[a], msg, piece, imm);
        if (b != a) {
            went |= send_over(inst, pair[b], msg, piece, imm);
        }
        if (!went) {
            break;
        }
        sent++;
    }
    if (sent) {
        log_once(inst, peer, n, now);
    }
    inst->inband.sent += (unsigned)sent;
    return sent;
}
