#include "tests/lab/lab_wire.h"

#include <arpa/inet.h>
#include <assert.h>
#include <string.h>

#define HEADER_LEN 8u

void lab_wire_put(struct lab_buf *b, enum lab_wire_type type, const void *body, size_t len)
{
    uint32_t head[2] = {htonl((uint32_t)type), htonl((uint32_t)len)};

    assert(len <= LAB_WIRE_BODY_MAX);
    lab_buf_put(b, head, sizeof(head));
    lab_buf_put(b, body, len);
}

int lab_wire_get(const struct lab_buf *b, struct lab_wire_msg *m)
{
    uint32_t head[2], type, len;

    if (lab_buf_len(b) < HEADER_LEN) {
        return 0;
    }
    memcpy(head, b->mem + b->head, sizeof(head));
    type = ntohl(head[0]);
    len = ntohl(head[1]);
    if (type < LAB_HELLO || type > LAB_TOLD || len > LAB_WIRE_BODY_MAX) {
        return -1;
    }
    if (lab_buf_len(b) < HEADER_LEN + len) {
        return 0;
    }
    m->type = (enum lab_wire_type)type;
    m->body = b->mem + b->head + HEADER_LEN;
    m->len = len;
    return 1;
}

void lab_wire_drop(struct lab_buf *b, const struct lab_wire_msg *m)
{
    lab_buf_take(b, HEADER_LEN + m->len);
}
