#include "place_job.h"

#include <string.h>

#include "base/r2_time.h"

/* So many times the first pause may be: of 10 s, 11 minutes. An init that fails before NCCL's ranks
 * have met leaks what NCCL has made for it until then, some descriptors and a thread (commReclaim
 * of src/init.cc, 2.28 to 2.30): behind those, 11 hours, or some thirteen on the first day. */
#define PAUSES      64
#define PAUSES_MADE 4096

struct job_rank {
    struct place_facts facts; /* seq 0: none so far */
    bool hear;                /* its facts are to be confirmed */
    bool gone;
    uint64_t next; /* what is repeated is sent again */
};

struct place_job {
    uint8_t state; /* enum place_job_state */
    bool has_id, over;
    bool stale; /* there is to be a plan */
    int n, known, attempts;
    uint32_t numbers, to; /* communicators: made so far; of the attempt */
    uint64_t since, changed, not_before, pause;
    struct place_job_conf conf;
    const char *why;
    bool has_plan;
    struct place_plan plan;
    struct place_leader leader;
    uint8_t id[PLACE_ID_BYTES];
    struct job_rank *rank;
    struct place_rank *vote;
    const struct place_facts **facts;
    int *now_rank, *to_rank; /* by rank of the user's: in the communicator in use, in `to` */
    struct place_plan_work work;
};

const char *place_job_state_name(enum place_job_state s)
{
    static const char *const names[PLACE_JOB_STATES] = {"gathering", "resting",  "asking", "making",
                                                        "switching", "dropping", "over"};

    return (unsigned)s < PLACE_JOB_STATES ? names[s] : "?";
}

/* There is something new for all: nobody waits for its next time. */
static void send_now(struct place_job *j)
{
    for (int i = 0; i < j->n; i++) {
        j->rank[i].next = 0;
    }
}

/* Row: from. False: no legal move, and nothing changes. */
static bool move(struct place_job *j, enum place_job_state to, uint64_t now)
{
    static const unsigned char legal[PLACE_JOB_STATES][PLACE_JOB_STATES] = {
        [PLACE_JOB_GATHERING] = {[PLACE_JOB_RESTING] = 1, [PLACE_JOB_OVER] = 1},
        [PLACE_JOB_RESTING] =
            {[PLACE_JOB_ASKING] = 1, [PLACE_JOB_SWITCHING] = 1, [PLACE_JOB_OVER] = 1},
        [PLACE_JOB_ASKING] = {[PLACE_JOB_MAKING] = 1, [PLACE_JOB_DROPPING] = 1},
        [PLACE_JOB_MAKING] = {[PLACE_JOB_SWITCHING] = 1, [PLACE_JOB_DROPPING] = 1},
        [PLACE_JOB_SWITCHING] = {[PLACE_JOB_RESTING] = 1, [PLACE_JOB_DROPPING] = 1},
        [PLACE_JOB_DROPPING] = {[PLACE_JOB_RESTING] = 1, [PLACE_JOB_OVER] = 1},
    };

    if (!legal[j->state][to]) {
        return false;
    }
    j->state = (uint8_t)to;
    j->since = now;
    send_now(j);
    return true;
}

/* --- memory --- */

struct room {
    uint8_t *base; /* NULL: only the size is asked for */
    size_t used;
};

static void *take(struct room *m, size_t bytes)
{
    void *p = m->base != NULL ? m->base + m->used : NULL;

    m->used += (bytes + 15) & ~(size_t)15;
    return p;
}

/* One list of what a job consists of, for its size and for its parts. */
static void lay(struct place_job *j, struct room *m, size_t n)
{
    j->rank = take(m, n * sizeof(*j->rank));
    j->vote = take(m, n * sizeof(*j->vote));
    j->facts = take(m, n * sizeof(const struct place_facts *));
    j->now_rank = take(m, n * sizeof(int));
    j->to_rank = take(m, n * sizeof(int));
    j->work = (struct place_plan_work){.host = take(m, n * sizeof(uint64_t)),
                                       .node = take(m, n * sizeof(int)),
                                       .per = take(m, n * sizeof(int)),
                                       .order = take(m, n * sizeof(int)),
                                       .seat = take(m, n * sizeof(int)),
                                       .first = take(m, n * sizeof(int)),
                                       .share = take(m, n * sizeof(double)),
                                       .load = take(m, 2 * n * sizeof(double))};
}

size_t place_job_size(int n)
{
    struct place_job j;
    struct room m = {NULL, 0};

    take(&m, sizeof(j));
    lay(&j, &m, (size_t)n);
    return m.used;
}

struct place_job *place_job_init(void *memory, int n, const struct place_job_conf *conf,
                                 uint64_t now)
{
    struct room m = {memory, 0};
    struct place_job *j;

    memset(memory, 0, place_job_size(n));
    j = take(&m, sizeof(*j));
    lay(j, &m, (size_t)n);
    j->n = n;
    j->conf = *conf;
    j->work.no_ring = conf->no_ring;
    j->pause = conf->pause_ns;
    j->why = "";
    j->stale = true;
    j->since = j->changed = now;
    place_leader_init(&j->leader, j->vote, n, conf->wait_ns);
    for (int i = 0; i < n; i++) {
        j->facts[i] = &j->rank[i].facts;
    }
    return j;
}

/* --- what ranks say --- */

static bool holds(const struct place_facts *f, uint32_t comm, enum place_held_state *state)
{
    for (int i = 0; i < PLACE_HELD; i++) {
        if (f->held[i].comm == comm && f->held[i].state != PLACE_HELD_NOT) {
            *state = (enum place_held_state)f->held[i].state;
            return true;
        }
    }
    return false;
}

static void on_facts(struct place_job *j, struct job_rank *r, const struct place_facts *f,
                     uint64_t now)
{
    bool is_new = r->facts.seq == 0;

    r->hear = true;
    if (!is_new && f->seq <= r->facts.seq) {
        return; /* said already: only the confirmation was lost */
    }
    if (is_new || f->nics != r->facts.nics || f->usable != r->facts.usable ||
        f->used != r->facts.used || f->mbps != r->facts.mbps) {
        j->changed = now;
        j->stale = true;
    }
    j->known += is_new;
    r->facts = *f;
    r->next = 0;
    if (f->can != PLACE_CAN && !j->over) {
        j->over = true;
        j->why = f->can == PLACE_HAS_LEFT ? "a rank has left" : "a rank cannot switch";
    }
}

/* Operations may wait for the decision. */
static void voted(struct place_job *j, int rank, const struct place_msg *msg)
{
    uint8_t before = j->leader.state;

    place_leader_take(&j->leader, rank, msg);
    if (j->leader.state != before) {
        send_now(j);
    }
}

const char *place_job_take(struct place_job *j, int rank, const struct place_note *note,
                           uint64_t now)
{
    const struct place_facts *f = &note->facts;
    struct job_rank *r;

    if (rank < 0 || rank >= j->n) {
        return "a rank that is none of this communicator";
    }
    r = &j->rank[rank];
    switch (note->kind) {
    case PLACE_NOTE_FACTS:
        if (f->ranks != (uint32_t)j->n || f->rank != (uint32_t)rank) {
            return "facts of another communicator";
        }
        if (r->facts.seq != 0 && f->host != r->facts.host) {
            return "a rank that has moved to another host";
        }
        on_facts(j, r, f, now);
        return NULL;
    case PLACE_NOTE_MSG:
        voted(j, rank, &note->msg);
        return NULL;
    default:
        return "a note that no rank sends";
    }
}

void place_job_lost(struct place_job *j, int rank)
{
    if (rank >= 0 && rank < j->n && !j->rank[rank].gone) {
        j->rank[rank].gone = true;
        j->over = true;
        j->why = "a rank is lost";
        place_leader_lost(&j->leader, rank);
    }
}

bool place_job_has_left(const struct place_job *j, int rank)
{
    const struct place_facts *f = &j->rank[rank].facts;

    for (int h = 0; h < PLACE_HELD; h++) {
        if (f->held[h].state != PLACE_HELD_NOT) {
            return false;
        }
    }
    return f->seq != 0 && f->can == PLACE_HAS_LEFT && !j->rank[rank].hear;
}

/* --- what is to be done --- */

/* Nobody has another communicator than the one in use. */
static bool is_tidy(const struct place_job *j)
{
    for (int i = 0; i < j->n; i++) {
        for (int h = 0; h < PLACE_HELD; h++) {
            uint32_t comm = j->rank[i].facts.held[h].comm;

            if (comm != 0 && comm != j->leader.now && !j->rank[i].gone) {
                return false;
            }
        }
    }
    return true;
}

static void give_up(struct place_job *j, const char *why, uint64_t now)
{
    uint64_t most = j->state == PLACE_JOB_MAKING ? PAUSES_MADE : PAUSES;

    j->why = j->over ? j->why : why;
    j->stale = true;
    j->not_before = now + j->pause;
    j->pause = j->pause < most * j->conf.pause_ns ? 2 * j->pause : j->pause;
    move(j, PLACE_JOB_DROPPING, now);
}

static bool attempt(struct place_job *j, uint64_t now)
{
    uint64_t begun = 0;

    for (int i = 0; i < j->n; i++) {
        begun = j->rank[i].facts.begun > begun ? j->rank[i].facts.begun : begun;
    }
    j->attempts++;
    send_now(j);
    return place_leader_begin(&j->leader, j->to, begun, now);
}

static void begin(struct place_job *j, uint64_t now)
{
    j->attempts = 0;
    move(j, PLACE_JOB_SWITCHING, now);
    if (!attempt(j, now)) {
        give_up(j, "no attempt can be made", now);
    }
}

static void rest(struct place_job *j, uint64_t now)
{
    if (j->over) {
        move(j, PLACE_JOB_OVER, now);
        return;
    }
    if (!j->stale || r2_elapsed(now, j->changed) < j->conf.settle_ns || now < j->not_before ||
        !is_tidy(j)) {
        return;
    }
    place_plan_make(j->facts, j->n, j->leader.now != 0 ? j->now_rank : NULL, &j->work, &j->plan,
                    j->to_rank);
    j->has_plan = true;
    j->stale = false;
    j->why = "";
    if (j->conf.only_advises) {
        return;
    }
    if (j->plan.verdict == PLACE_PLAN_OTHER) {
        j->to = ++j->numbers;
        j->has_id = false;
        move(j, PLACE_JOB_ASKING, now);
    } else if (j->plan.verdict != PLACE_PLAN_STAY && j->leader.now != 0) {
        j->to = 0;
        begin(j, now);
    }
}

/* Of `to`: how many ranks have come as far as @state; -1: one has failed. */
static int held_count(const struct place_job *j, enum place_held_state state)
{
    int count = 0;

    for (int i = 0; i < j->n; i++) {
        enum place_held_state is;

        if (holds(&j->rank[i].facts, j->to, &is)) {
            if (is == PLACE_HELD_FAILED) {
                return -1;
            }
            count += is >= state;
        }
    }
    return count;
}

static void ask(struct place_job *j, uint64_t now)
{
    if (j->over || r2_elapsed(now, j->since) >= j->conf.make_ns) {
        give_up(j, "a rank has not promised to make the communicator", now);
    } else if (held_count(j, PLACE_HELD_PROMISED) == j->n) {
        move(j, PLACE_JOB_MAKING, now);
    }
}

/* Those who have entered wait for one that has promised and is still to come: it comes, or is lost.
 * What is broken off before NCCL's ranks have met leaks (above). */
static bool is_one_missed(const struct place_job *j)
{
    bool missed = false;

    for (int i = 0; i < j->n; i++) {
        enum place_held_state state;

        if (j->rank[i].gone) {
            return false;
        }
        missed =
            missed || (holds(&j->rank[i].facts, j->to, &state) && state == PLACE_HELD_PROMISED);
    }
    return missed;
}

static void make(struct place_job *j, uint64_t now)
{
    int ready = held_count(j, PLACE_HELD_READY);

    if (j->has_id && is_one_missed(j)) {
        return;
    }
    if (ready < 0) {
        give_up(j, "a rank could not make the communicator", now);
    } else if (j->over || r2_elapsed(now, j->since) >= j->conf.make_ns) {
        give_up(j, "the communicator was not complete in time", now);
    } else if (ready == j->n) {
        begin(j, now);
    }
}

static void agree(struct place_job *j, uint64_t now)
{
    uint8_t before = j->leader.state;

    place_leader_tick(&j->leader, now);
    if (j->leader.state != before) {
        send_now(j);
    }
    if (j->leader.state != PLACE_IDLE) {
        return;
    }
    if (j->leader.now == j->to) {
        memcpy(j->now_rank, j->to_rank, (size_t)j->n * sizeof(int));
        j->pause = j->conf.pause_ns;
        j->stale = true;
        j->not_before = now;
        j->why = j->over ? j->why : "";
        move(j, PLACE_JOB_RESTING, now);
    } else if (j->over || j->leader.never || j->attempts >= PLACE_JOB_ATTEMPTS ||
               !attempt(j, now)) {
        if (j->leader.never && !j->over) {
            j->over = true;
            j->why = "a rank switches no more";
        }
        give_up(j, "ranks did not agree on an operation", now);
    }
}

static void drop(struct place_job *j, uint64_t now)
{
    if (is_tidy(j)) {
        move(j, j->over ? PLACE_JOB_OVER : PLACE_JOB_RESTING, now);
    }
}

void place_job_tick(struct place_job *j, uint64_t now)
{
    switch (j->state) {
    case PLACE_JOB_GATHERING:
        if (j->over) {
            move(j, PLACE_JOB_OVER, now);
        } else if (j->known == j->n) {
            move(j, PLACE_JOB_RESTING, now);
        }
        break;
    case PLACE_JOB_RESTING:
        rest(j, now);
        break;
    case PLACE_JOB_ASKING:
        ask(j, now);
        break;
    case PLACE_JOB_MAKING:
        make(j, now);
        break;
    case PLACE_JOB_SWITCHING:
        agree(j, now);
        break;
    case PLACE_JOB_DROPPING:
        drop(j, now);
        break;
    default:
        break;
    }
}

bool place_job_wants_id(const struct place_job *j)
{
    return j->state == PLACE_JOB_MAKING && !j->has_id;
}

void place_job_id(struct place_job *j, const uint8_t *id, uint64_t now)
{
    if (!place_job_wants_id(j)) {
        return;
    }
    if (id == NULL) {
        give_up(j, "ncclGetUniqueId has failed", now);
        return;
    }
    memcpy(j->id, id, sizeof(j->id));
    j->has_id = true;
}

/* --- what is to be sent --- */

static bool make_due(const struct place_job *j, int rank, struct place_note *note)
{
    enum place_held_state state;
    bool has = holds(&j->rank[rank].facts, j->to, &state);

    if (j->state == PLACE_JOB_ASKING && !has) {
        note->kind = PLACE_NOTE_ASK;
        note->comm = j->to;
        return true;
    }
    if (j->state == PLACE_JOB_MAKING && j->has_id && has && state == PLACE_HELD_PROMISED) {
        note->kind = PLACE_NOTE_MAKE;
        note->make.comm = j->to;
        note->make.rank = (uint32_t)j->to_rank[rank];
        memcpy(note->make.id, j->id, sizeof(j->id));
        return true;
    }
    return false;
}

static bool drop_due(const struct place_job *j, int rank, struct place_note *note)
{
    bool wants_to = j->state == PLACE_JOB_ASKING || j->state == PLACE_JOB_MAKING ||
                    j->state == PLACE_JOB_SWITCHING;

    for (int i = 0; i < PLACE_HELD; i++) {
        uint32_t comm = j->rank[rank].facts.held[i].comm;

        /* While a switch is not confirmed by all, the one before is in use. */
        if (comm != 0 && comm != j->leader.now && !wants_to) {
            note->kind = PLACE_NOTE_DROP;
            note->comm = comm;
            return true;
        }
    }
    return false;
}

bool place_job_due(struct place_job *j, int rank, uint64_t now, struct place_note *note)
{
    struct job_rank *r;

    if (rank < 0 || rank >= j->n) {
        return false;
    }
    r = &j->rank[rank];
    if (r->hear) {
        r->hear = false;
        note->kind = PLACE_NOTE_HEARD;
        note->heard = r->facts.seq;
        return true;
    }
    if (now < r->next) {
        return false;
    }
    if (place_leader_due(&j->leader, rank, &note->msg)) {
        note->kind = PLACE_NOTE_MSG;
    } else if (!make_due(j, rank, note) && !drop_due(j, rank, note)) {
        return false;
    }
    r->next = now + j->conf.repeat_ns;
    return true;
}

enum place_job_state place_job_state_get(const struct place_job *j)
{
    return (enum place_job_state)j->state;
}

uint32_t place_job_now(const struct place_job *j)
{
    return j->leader.now;
}

uint32_t place_job_to(const struct place_job *j)
{
    return j->to;
}

const struct place_plan *place_job_plan(const struct place_job *j)
{
    return j->has_plan ? &j->plan : NULL;
}

const char *place_job_why(const struct place_job *j)
{
    return j->why;
}
