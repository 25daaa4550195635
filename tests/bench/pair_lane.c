#include "tests/bench/pair.h"

#include <string.h>

static void post(struct pair_lane *s)
{
    char *data = s->buf + s->posted % (uint64_t)s->window * (uint64_t)s->size;
    int tag = 1, size = s->size;
    void *req = NULL, *at = data;

    if (drv.side) {
        OK(drv.net->irecv(s->comm, 1, &at, &size, &tag, &s->mr, &req));
    } else {
        memcpy(data, &s->posted, sizeof(s->posted));
        OK(drv.net->isend(s->comm, data, size, tag, s->mr, &req));
    }
    if (req) {
        s->req[s->posted++ % (uint64_t)s->window] = req;
    }
}

bool pair_lane_turn(struct pair_lane *s, bool closing)
{
    int done = 0, size = 0;

    if (!closing && s->posted - s->done < (uint64_t)s->window) {
        post(s);
    }
    if (s->posted > s->done) {
        OK(drv.net->test(s->req[s->done % (uint64_t)s->window], &done, &size));
    }
    if (!done) {
        return false;
    }
    if (drv.side) {
        uint64_t number;

        memcpy(&number, s->buf + s->done % (uint64_t)s->window * (uint64_t)s->size, sizeof(number));
        NEED(number == s->done && size == s->size, "message %llu in the place of %llu",
             (unsigned long long)number, (unsigned long long)s->done);
    }
    s->done++;
    return true;
}
