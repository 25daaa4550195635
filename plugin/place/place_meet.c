#include "place_meet.h"

#include <string.h>

#include "base/r2_wire.h"

#define BYTES (PLACE_ID_BYTES - PLACE_MEET_AT)

/* Its last byte is the version. */
static const uint8_t mark[8] = {'r', '2', 'p', 'l', 'a', 'c', 'e', PLACE_MEET_VERSION};

bool place_meet_put(uint8_t id[PLACE_ID_BYTES], const struct place_meet *meet)
{
    static const uint8_t empty[BYTES];
    struct r2_writer w = {id + PLACE_MEET_AT, id + PLACE_ID_BYTES, 0};
    const struct r2_oob_name *n = &meet->hub;

    if (memcmp(id + PLACE_MEET_AT, empty, BYTES) != 0) {
        return false;
    }
    r2_put_bytes(&w, mark, sizeof(mark));
    r2_put(&w, meet->key, 8);
    r2_put(&w, n->uuid[0], 8);
    r2_put(&w, n->uuid[1], 8);
    r2_put_bytes(&w, n->secret, sizeof(n->secret));
    r2_put_bytes(&w, n->addr, sizeof(n->addr));
    r2_put(&w, n->scope, 4);
    r2_put(&w, n->port, 2);
    r2_put(&w, n->family, 1);
    r2_put(&w, 0, 1);
    return true;
}

bool place_meet_get(const uint8_t id[PLACE_ID_BYTES], struct place_meet *meet)
{
    struct r2_reader r = {id + PLACE_MEET_AT, id + PLACE_ID_BYTES, 0};
    struct r2_oob_name *n = &meet->hub;
    uint8_t head[sizeof(mark)];

    memset(meet, 0, sizeof(*meet));
    r2_get_bytes(&r, head, sizeof(head));
    if (memcmp(head, mark, sizeof(mark)) != 0) {
        return false;
    }
    meet->key = r2_get(&r, 8);
    n->uuid[0] = r2_get(&r, 8);
    n->uuid[1] = r2_get(&r, 8);
    r2_get_bytes(&r, n->secret, sizeof(n->secret));
    r2_get_bytes(&r, n->addr, sizeof(n->addr));
    n->scope = (uint32_t)r2_get(&r, 4);
    n->port = (uint16_t)r2_get(&r, 2);
    n->family = (uint8_t)r2_get(&r, 1);
    return meet->key != 0 && (n->uuid[0] | n->uuid[1]) != 0 && n->port != 0 &&
           (n->family == 4 || n->family == 6);
}
