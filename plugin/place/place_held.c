#include "place_held.h"

#include <stddef.h>

/* Row: from. */
bool place_held_move(struct place_held_slot *s, enum place_held_state to)
{
    static const unsigned char legal[PLACE_HELD_STATES][PLACE_HELD_STATES] = {
        [PLACE_HELD_NOT] = {[PLACE_HELD_PROMISED] = 1},
        [PLACE_HELD_PROMISED] = {[PLACE_HELD_MAKING] = 1, [PLACE_HELD_NOT] = 1},
        [PLACE_HELD_MAKING] = {[PLACE_HELD_READY] = 1, [PLACE_HELD_FAILED] = 1},
        [PLACE_HELD_READY] = {[PLACE_HELD_NOT] = 1},
        [PLACE_HELD_FAILED] = {[PLACE_HELD_NOT] = 1},
    };

    if (s->state >= PLACE_HELD_STATES || (unsigned)to >= PLACE_HELD_STATES ||
        !legal[s->state][to]) {
        return false;
    }
    s->state = (uint8_t)to;
    if (to == PLACE_HELD_NOT) {
        *s = (struct place_held_slot){.comm = 0};
    }
    return true;
}

struct place_held_slot *place_held_find(struct place_held *h, uint32_t comm)
{
    for (int i = 0; i < PLACE_HELD; i++) {
        if (h->slot[i].state != PLACE_HELD_NOT && h->slot[i].comm == comm) {
            return &h->slot[i];
        }
    }
    return NULL;
}

struct place_held_slot *place_held_promise(struct place_held *h, uint32_t comm)
{
    if (comm <= h->latest) {
        return NULL; /* numbers grow: a request that is late */
    }
    for (int i = 0; i < PLACE_HELD; i++) {
        if (h->slot[i].state == PLACE_HELD_NOT) {
            h->latest = comm;
            h->slot[i].comm = comm;
            place_held_move(&h->slot[i], PLACE_HELD_PROMISED);
            return &h->slot[i];
        }
    }
    return NULL;
}

struct place_held_slot *place_held_make(struct place_held *h, uint32_t comm)
{
    struct place_held_slot *s = place_held_find(h, comm);

    return s != NULL && place_held_move(s, PLACE_HELD_MAKING) ? s : NULL;
}

bool place_held_drop(struct place_held *h, uint32_t comm)
{
    struct place_held_slot *s = place_held_find(h, comm);
    bool is_new = s != NULL && !s->drop;

    if (s == NULL) {
        h->latest = comm > h->latest ? comm : h->latest; /* the question may come yet */
    } else if (s->state == PLACE_HELD_PROMISED) {
        place_held_move(s, PLACE_HELD_NOT);
        is_new = true;
    } else {
        s->drop = true;
    }
    return is_new;
}

void place_held_drop_all(struct place_held *h)
{
    h->latest = UINT32_MAX;
    for (int i = 0; i < PLACE_HELD; i++) {
        h->slot[i].drop = h->slot[i].state != PLACE_HELD_NOT;
    }
}

struct place_held_slot *place_held_free(struct place_held *h, const struct place_member *m)
{
    for (int i = 0; i < PLACE_HELD; i++) {
        struct place_held_slot *s = &h->slot[i];

        if (s->drop && s->state > PLACE_HELD_MAKING && !s->taken && s->busy == 0 &&
            place_member_is_idle(m, s->comm)) {
            return s;
        }
    }
    return NULL;
}
