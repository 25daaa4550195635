#include "place_note.h"

#include <string.h>

#include "base/r2_wire.h"

static void facts_put(struct r2_writer *w, const struct place_facts *f)
{
    r2_put(w, f->seq, 4);
    r2_put(w, f->rank, 4);
    r2_put(w, f->ranks, 4);
    r2_put(w, f->mbps, 4);
    r2_put(w, f->host, 8);
    r2_put(w, f->begun, 8);
    r2_put(w, f->nics, 2);
    r2_put(w, f->usable, 2);
    r2_put(w, f->used, 2);
    r2_put(w, f->can, 1);
    for (int i = 0; i < PLACE_HELD; i++) {
        r2_put(w, f->held[i].state, 1);
        r2_put(w, f->held[i].comm, 4);
    }
}

static const char *facts_get(struct r2_reader *r, struct place_facts *f)
{
    f->seq = (uint32_t)r2_get(r, 4);
    f->rank = (uint32_t)r2_get(r, 4);
    f->ranks = (uint32_t)r2_get(r, 4);
    f->mbps = (uint32_t)r2_get(r, 4);
    f->host = r2_get(r, 8);
    f->begun = r2_get(r, 8);
    f->nics = (uint16_t)r2_get(r, 2);
    f->usable = (uint16_t)r2_get(r, 2);
    f->used = (uint16_t)r2_get(r, 2);
    f->can = (uint8_t)r2_get(r, 1);
    for (int i = 0; i < PLACE_HELD; i++) {
        f->held[i].state = (uint8_t)r2_get(r, 1);
        f->held[i].comm = (uint32_t)r2_get(r, 4);
        if (f->held[i].state >= PLACE_HELD_STATES ||
            (f->held[i].state == PLACE_HELD_NOT) != (f->held[i].comm == 0)) {
            return "a communicator in no state";
        }
    }
    if (f->ranks == 0 || f->ranks > PLACE_RANKS_MAX || f->rank >= f->ranks) {
        return "a rank that is none";
    }
    return f->seq == 0 || f->usable > f->nics || f->used > f->nics || f->can >= PLACE_CANS
               ? "facts that cannot be"
               : NULL;
}

static void msg_put(struct r2_writer *w, const struct place_msg *m)
{
    r2_put(w, m->kind, 1);
    r2_put(w, m->answer, 1);
    r2_put(w, 0, 2);
    r2_put(w, m->attempt, 4);
    r2_put(w, m->to, 4);
    r2_put(w, m->at, 8);
}

static const char *msg_get(struct r2_reader *r, struct place_msg *m)
{
    m->kind = (uint8_t)r2_get(r, 1);
    m->answer = (uint8_t)r2_get(r, 1);
    r2_get(r, 2);
    m->attempt = (uint32_t)r2_get(r, 4);
    m->to = (uint32_t)r2_get(r, 4);
    m->at = r2_get(r, 8);
    return m->kind >= PLACE_KINDS || m->answer >= PLACE_ANSWERS ? "a message of no kind" : NULL;
}

size_t place_note_pack(const struct place_note *note, uint8_t out[PLACE_NOTE_MAX])
{
    struct r2_writer w = {out, out + PLACE_NOTE_MAX, 0};

    r2_put(&w, PLACE_NOTE_VERSION, 1);
    r2_put(&w, note->kind, 1);
    r2_put(&w, 0, 2);
    r2_put(&w, note->rank, 4);
    r2_put(&w, note->key, 8);
    switch (note->kind) {
    case PLACE_NOTE_FACTS:
        facts_put(&w, &note->facts);
        break;
    case PLACE_NOTE_HEARD:
        r2_put(&w, note->heard, 4);
        break;
    case PLACE_NOTE_MAKE:
        r2_put(&w, note->make.comm, 4);
        r2_put(&w, note->make.rank, 4);
        r2_put_bytes(&w, note->make.id, sizeof(note->make.id));
        break;
    case PLACE_NOTE_ASK:
    case PLACE_NOTE_DROP:
        r2_put(&w, note->comm, 4);
        break;
    default:
        msg_put(&w, &note->msg);
    }
    return (size_t)(w.p - out);
}

static const char *body_get(struct r2_reader *r, struct place_note *note)
{
    switch (note->kind) {
    case PLACE_NOTE_FACTS:
        return facts_get(r, &note->facts);
    case PLACE_NOTE_HEARD:
        note->heard = (uint32_t)r2_get(r, 4);
        return NULL;
    case PLACE_NOTE_MAKE:
        note->make.comm = (uint32_t)r2_get(r, 4);
        note->make.rank = (uint32_t)r2_get(r, 4);
        r2_get_bytes(r, note->make.id, sizeof(note->make.id));
        return note->make.comm == 0 ? "a communicator without a number" : NULL;
    case PLACE_NOTE_ASK:
    case PLACE_NOTE_DROP:
        note->comm = (uint32_t)r2_get(r, 4);
        return note->comm == 0 ? "a communicator without a number" : NULL;
    case PLACE_NOTE_MSG:
        return msg_get(r, &note->msg);
    default:
        return "an unknown kind";
    }
}

const char *place_note_parse(const uint8_t *in, size_t len, struct place_note *note)
{
    struct r2_reader r = {in, in + len, 0};
    uint64_t version = r2_get(&r, 1);
    const char *wrong;

    memset(note, 0, sizeof(*note));
    if (!r.bad && version != PLACE_NOTE_VERSION) {
        return "another version";
    }
    note->kind = (uint8_t)r2_get(&r, 1);
    r2_get(&r, 2);
    note->rank = (uint32_t)r2_get(&r, 4);
    note->key = r2_get(&r, 8);
    if (r.bad) {
        return "too short";
    }
    wrong = body_get(&r, note);
    if (r.bad) {
        return "too short";
    }
    if (wrong != NULL) {
        return wrong;
    }
    return r.p != r.end ? "too long" : NULL;
}
