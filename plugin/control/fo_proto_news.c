#include "fo_proto_int.h"

static void put_subject(struct r2_writer *w, const struct probe_subject *s)
{
    r2_put(w, s->a, 8);
    r2_put(w, s->b, 8);
    r2_put(w, s->pa, 1);
    r2_put(w, s->pb, 1);
}

static void get_subject(struct r2_reader *r, struct probe_subject *s)
{
    memset(s, 0, sizeof(*s));
    s->a = r2_get(r, 8);
    s->b = r2_get(r, 8);
    s->pa = (uint8_t)r2_get(r, 1);
    s->pb = (uint8_t)r2_get(r, 1);
}

/* 124 bytes. Every byte of a word is the same wherever it goes: nothing is put right on the way,
 * what is wrong is refused. */
void fo_put_news(struct r2_writer *w, const struct probe_word *m)
{
    put_subject(w, &m->subject);
    r2_put(w, m->version, 8);
    r2_put(w, m->origin, 8);
    r2_put(w, m->since_ms, 8);
    r2_put(w, m->blame, 1);
    r2_put(w, m->confidence, 1);
    r2_put_bytes(w, m->gid, sizeof(m->gid));
    r2_put_bytes(w, m->host, sizeof(m->host));
    r2_put_bytes(w, m->nic, sizeof(m->nic));
    w->bad |= !probe_word_valid(m);
}

void fo_get_news(struct r2_reader *r, struct probe_word *m)
{
    memset(m, 0, sizeof(*m));
    get_subject(r, &m->subject);
    m->version = r2_get(r, 8);
    m->origin = r2_get(r, 8);
    m->since_ms = r2_get(r, 8);
    m->blame = (uint8_t)r2_get(r, 1);
    m->confidence = (uint8_t)r2_get(r, 1);
    r2_get_bytes(r, m->gid, sizeof(m->gid));
    r2_get_bytes(r, m->host, sizeof(m->host));
    r2_get_bytes(r, m->nic, sizeof(m->nic));
    r->bad |= !probe_word_valid(m);
}

static int news_ok_valid(const struct fo_news_ok *m)
{
    return probe_subject_valid(&m->subject) && m->version > 0 &&
           m->version <= PROBE_NEWS_VERSION_MAX;
}

void fo_put_news_ok(struct r2_writer *w, const struct fo_news_ok *m)
{
    put_subject(w, &m->subject);
    r2_put(w, m->version, 8);
    r2_put(w, m->origin, 8);
    w->bad |= !news_ok_valid(m);
}

void fo_get_news_ok(struct r2_reader *r, struct fo_news_ok *m)
{
    get_subject(r, &m->subject);
    m->version = r2_get(r, 8);
    m->origin = r2_get(r, 8);
    r->bad |= !news_ok_valid(m);
}

static int locate_valid(const struct fo_locate *m)
{
    int ok = m->nic < FO_MAX_NICS && m->peer_nic < FO_MAX_NICS && m->end.port < PROBE_PORTS &&
             m->end.loop < PROBE_OUTCOMES && m->end.aux < PROBE_OUTCOMES &&
             m->direct < PROBE_OUTCOMES && m->n_aux <= FO_LOCATE_AUX;

    for (int i = 0; i < FO_LOCATE_AUX; i++) {
        ok &= m->aux[i].outcome < PROBE_OUTCOMES;
    }
    return ok;
}

/* 57 bytes: places of auxiliary ports that were not asked are zero. */
void fo_put_locate(struct r2_writer *w, const struct fo_locate *m)
{
    r2_put(w, m->nic, 1);
    r2_put(w, m->peer_nic, 1);
    r2_put(w, m->flags, 1);
    r2_put(w, m->id, 4);
    r2_put(w, m->for_id, 4);
    r2_put(w, m->end.port, 1);
    r2_put(w, m->end.loop, 1);
    r2_put(w, m->end.aux, 1);
    r2_put(w, m->end.aux_n, 1);
    r2_put(w, m->direct, 1);
    r2_put(w, m->n_aux, 1);
    for (int i = 0; i < FO_LOCATE_AUX; i++) {
        r2_put(w, m->aux[i].guid, 8);
        r2_put(w, m->aux[i].port, 1);
        r2_put(w, m->aux[i].outcome, 1);
    }
    w->bad |= !locate_valid(m);
}

void fo_get_locate(struct r2_reader *r, struct fo_locate *m)
{
    m->nic = (uint8_t)r2_get(r, 1);
    m->peer_nic = (uint8_t)r2_get(r, 1);
    m->flags = (uint8_t)r2_get(r, 1);
    m->id = (uint32_t)r2_get(r, 4);
    m->for_id = (uint32_t)r2_get(r, 4);
    m->end.port = (uint8_t)r2_get(r, 1);
    m->end.loop = (uint8_t)r2_get(r, 1);
    m->end.aux = (uint8_t)r2_get(r, 1);
    m->end.aux_n = (uint8_t)r2_get(r, 1);
    m->direct = (uint8_t)r2_get(r, 1);
    m->n_aux = (uint8_t)r2_get(r, 1);
    for (int i = 0; i < FO_LOCATE_AUX; i++) {
        m->aux[i].guid = r2_get(r, 8);
        m->aux[i].port = (uint8_t)r2_get(r, 1);
        m->aux[i].outcome = (uint8_t)r2_get(r, 1);
    }
    r->bad |= !locate_valid(m);
}

/* 51 bytes. */
void fo_put_load(struct r2_writer *w, const struct fo_load *m)
{
    r2_put(w, m->nic, 1);
    r2_put(w, m->peer_nic, 1);
    r2_put(w, m->flags, 1);
    r2_put(w, m->moved, 8);
    r2_put(w, m->queued, 8);
    r2_put(w, m->front, 8);
    r2_put(w, m->age, 8);
    r2_put(w, m->rate, 8);
    r2_put(w, m->at, 8);
}

void fo_get_load(struct r2_reader *r, struct fo_load *m)
{
    m->nic = (uint8_t)r2_get(r, 1);
    m->peer_nic = (uint8_t)r2_get(r, 1);
    m->flags = (uint8_t)r2_get(r, 1);
    m->moved = r2_get(r, 8);
    m->queued = r2_get(r, 8);
    m->front = r2_get(r, 8);
    m->age = r2_get(r, 8);
    m->rate = r2_get(r, 8);
    m->at = r2_get(r, 8);
    r->bad |= m->nic >= FO_MAX_NICS || m->peer_nic >= FO_MAX_NICS;
}

void fo_put_rates(struct r2_writer *w, const struct fo_rates *m)
{
    r2_put(w, m->dst, 4);
    r2_put(w, m->src, 4);
    r2_put(w, m->npaths, 1);
    for (int i = 0; i < m->npaths && i < IB_MAX_PATHS; i++) {
        r2_put(w, m->port[i], 4);
        r2_put(w, m->reach[i], 4);
    }
}

/* Any rate is taken: who uses it says what is believable (balance_plan.h). */
void fo_get_rates(struct r2_reader *r, struct fo_rates *m)
{
    m->dst = (uint32_t)r2_get(r, 4);
    m->src = (uint32_t)r2_get(r, 4);
    m->npaths = (uint8_t)r2_get(r, 1);
    if (m->npaths == 0 || m->npaths > IB_MAX_PATHS) {
        r->bad = 1;
    }
    for (int i = 0; !r->bad && i < m->npaths; i++) {
        m->port[i] = (uint32_t)r2_get(r, 4);
        m->reach[i] = (uint32_t)r2_get(r, 4);
    }
}
