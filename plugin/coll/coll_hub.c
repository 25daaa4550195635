#include "coll_hub.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/r2_env.h"
#include "base/r2_log.h"
#include "base/r2_time.h"

/* Ranks that a hub takes: its memory is some 250 bytes for each, by a number that a peer says. */
#define RANKS_MAX 65536

struct hub {
    struct hub *next;
    uint64_t key;
    int n; /* ranks; 0: none has spoken, or all have left */
    struct place_job *job;
    struct r2_oob_peer **peer;   /* by rank; NULL: it has not spoken */
    enum place_job_state logged; /* what the log was told last */
    struct place_plan plan;
};

struct coll_hubs {
    struct coll_hub_conf conf;
    pthread_mutex_t lock; /* of the list: keys are added by any thread, nothing else is */
    struct hub *first;
};

struct coll_hubs *coll_hubs_new(const struct coll_hub_conf *conf)
{
    struct coll_hubs *hubs = calloc(1, sizeof(*hubs));

    if (hubs != NULL) {
        hubs->conf = *conf;
        pthread_mutex_init(&hubs->lock, NULL);
    }
    return hubs;
}

/* Back to a key of which no rank has spoken. */
static void job_end(struct coll_hubs *hubs, struct hub *h)
{
    for (int i = 0; i < h->n; i++) {
        if (h->peer[i] != NULL) {
            hubs->conf.oob->ops->peer_put(h->peer[i]);
        }
    }
    free(h->peer);
    free(h->job);
    h->peer = NULL;
    h->job = NULL;
    h->n = 0;
}

void coll_hubs_free(struct coll_hubs *hubs)
{
    struct hub *h = hubs->first, *next;

    for (; h != NULL; h = next) {
        next = h->next;
        job_end(hubs, h);
        free(h);
    }
    pthread_mutex_destroy(&hubs->lock);
    free(hubs);
}

uint64_t coll_hub_key(struct coll_hubs *hubs)
{
    struct hub *h = calloc(1, sizeof(*h));
    struct r2_env env;

    if (h == NULL) {
        return 0;
    }
    r2_env_default(&env);
    while (h->key == 0) {
        env.random(env.arg, &h->key, sizeof(h->key));
    }
    pthread_mutex_lock(&hubs->lock);
    h->next = hubs->first;
    hubs->first = h;
    pthread_mutex_unlock(&hubs->lock);
    return h->key;
}

static struct hub *hub_first(const struct coll_hubs *hubs)
{
    struct hub *h;

    pthread_mutex_lock((pthread_mutex_t *)&hubs->lock);
    h = hubs->first;
    pthread_mutex_unlock((pthread_mutex_t *)&hubs->lock);
    return h;
}

static struct hub *hub_find(const struct coll_hubs *hubs, uint64_t key)
{
    struct hub *h = hub_first(hubs);

    while (h != NULL && h->key != key) {
        h = h->next; /* written before the hub was in the list */
    }
    return h;
}

const struct place_job *coll_hub_job(const struct coll_hubs *hubs, uint64_t key)
{
    const struct hub *h = hub_find(hubs, key);

    return h != NULL ? h->job : NULL;
}

/* --- what comes --- */

static const char *job_begin(struct coll_hubs *hubs, struct hub *h, uint32_t ranks, uint64_t now)
{
    void *memory;

    if (ranks > RANKS_MAX) {
        return "more ranks than a hub takes";
    }
    h->peer = calloc(ranks, sizeof(struct r2_oob_peer *));
    memory = malloc(place_job_size((int)ranks));
    if (h->peer == NULL || memory == NULL) {
        free(h->peer);
        free(memory);
        h->peer = NULL;
        return "out of memory";
    }
    h->n = (int)ranks;
    h->job = place_job_init(memory, h->n, &hubs->conf.job, now);
    return NULL;
}

/* The rank that @peer says to be, by its first facts. */
static const char *rank_enter(struct coll_hubs *hubs, struct hub *h, struct r2_oob_peer *peer,
                              const struct place_facts *f)
{
    if (f->ranks != (uint32_t)h->n) {
        return "facts of another communicator";
    }
    if (h->peer[f->rank] == NULL) {
        hubs->conf.oob->ops->peer_ref(peer);
        h->peer[f->rank] = peer;
    }
    return h->peer[f->rank] == peer ? NULL : "a rank that another process is";
}

const char *coll_hub_take(struct coll_hubs *hubs, struct r2_oob_peer *peer,
                          const struct place_note *note, uint64_t now)
{
    struct hub *h = hub_find(hubs, note->key);
    const char *wrong = NULL;

    if (h == NULL) {
        return "a key that is none of ours";
    }
    if (note->kind == PLACE_NOTE_FACTS) {
        if (h->job == NULL) {
            wrong = job_begin(hubs, h, note->facts.ranks, now);
        }
        if (wrong == NULL) {
            wrong = rank_enter(hubs, h, peer, &note->facts);
        }
        return wrong != NULL ? wrong : place_job_take(h->job, (int)note->facts.rank, note, now);
    }
    if (h->job == NULL || note->rank >= (uint32_t)h->n || h->peer[note->rank] != peer) {
        return "a rank that has not spoken";
    }
    return place_job_take(h->job, (int)note->rank, note, now);
}

/* Rank @i of @h is not spoken to any more: its peer is not dialled again. */
static void rank_put(struct coll_hubs *hubs, struct hub *h, int i)
{
    struct r2_oob_peer *peer = h->peer[i];

    h->peer[i] = NULL;
    hubs->conf.oob->ops->peer_put(peer);
}

void coll_hub_down(struct coll_hubs *hubs, const struct r2_oob_peer *peer, bool refused,
                   uint64_t now)
{
    for (struct hub *h = hub_first(hubs); h != NULL && refused; h = h->next) {
        for (int i = 0; i < h->n; i++) {
            if (h->peer[i] == peer) {
                place_job_lost(h->job, i);
                place_job_tick(h->job, now);
            }
        }
    }
}

/* --- what goes --- */

static void plan_log(struct hub *h)
{
    const struct place_plan *p = place_job_plan(h->job);

    if (p == NULL || (h->plan.verdict == p->verdict && h->plan.hosts == p->hosts &&
                      h->plan.degraded == p->degraded && h->plan.now_us == p->now_us)) {
        return;
    }
    h->plan = *p;
    if (p->verdict == PLACE_PLAN_OTHER) {
        R2_INFO("placement: %d of %d hosts are degraded; an all_reduce takes %.2f times as long "
                "as in another order of hosts",
                p->degraded, p->hosts, p->now_us / p->best_us);
    } else {
        R2_INFO("placement: %s", place_plan_name(p->verdict));
    }
}

static void state_log(struct hub *h)
{
    enum place_job_state state = place_job_state_get(h->job);
    const char *why = place_job_why(h->job);

    if (state == h->logged) {
        return;
    }
    h->logged = state;
    if (state == PLACE_JOB_RESTING) {
        return; /* what is planned has its own line */
    }
    R2_INFO("placement: %s communicator %u%s%s", place_job_state_name(state), place_job_to(h->job),
            why[0] != '\0' ? ", " : "", why);
}

/* Whether one of its ranks has something that is sent again if it is not answered. */
static bool hub_send(struct coll_hubs *hubs, struct hub *h, uint64_t now)
{
    const struct r2_oob_ops *ops = hubs->conf.oob->ops;
    uint8_t out[PLACE_NOTE_MAX];
    struct place_note note;
    bool sent = false;

    for (int i = 0; i < h->n; i++) {
        memset(&note, 0, sizeof(note));
        while (h->peer[i] != NULL && place_job_due(h->job, i, now, &note)) {
            note.key = h->key;
            note.rank = (uint32_t)i;
            ops->send(h->peer[i], out, place_note_pack(&note, out));
            sent = true;
        }
        if (h->peer[i] != NULL && place_job_has_left(h->job, i)) {
            rank_put(hubs, h, i);
        }
    }
    return sent;
}

/* What of it is repeated is answered by a new job, which has nothing else to do. */
static bool have_all_left(const struct hub *h)
{
    for (int i = 0; i < h->n; i++) {
        if (!place_job_has_left(h->job, i)) {
            return false;
        }
    }
    return true;
}

uint64_t coll_hub_turn(struct coll_hubs *hubs, uint64_t now)
{
    uint64_t next = UINT64_MAX;
    uint8_t id[PLACE_ID_BYTES];

    for (struct hub *h = hub_first(hubs); h != NULL; h = h->next) {
        enum place_job_state state;

        if (h->job == NULL) {
            continue;
        }
        place_job_tick(h->job, now);
        if (place_job_wants_id(h->job)) {
            place_job_id(h->job, hubs->conf.id_make(id) == 0 ? id : NULL, now);
        }
        plan_log(h);
        state_log(h);
        state = place_job_state_get(h->job);
        if (hub_send(hubs, h, now) || (state != PLACE_JOB_RESTING && state != PLACE_JOB_OVER &&
                                       state != PLACE_JOB_GATHERING)) {
            next = now + hubs->conf.job.repeat_ns;
        } else if (state == PLACE_JOB_RESTING && next == UINT64_MAX) {
            next = now + hubs->conf.job.settle_ns;
        }
        if (have_all_left(h)) {
            job_end(hubs, h);
        }
    }
    return next;
}
