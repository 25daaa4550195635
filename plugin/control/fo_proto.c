#include "fo_proto.h"

#include "fo_record.h"

static uint64_t uint_load(const uint8_t *p, unsigned size)
{
    uint16_t h;
    uint32_t w;
    uint64_t d;

    switch (size) {
    case 1:
        return *p;
    case 2:
        memcpy(&h, p, sizeof(h));
        return h;
    case 4:
        memcpy(&w, p, sizeof(w));
        return w;
    default:
        memcpy(&d, p, sizeof(d));
        return d;
    }
}

static void uint_store(uint8_t *p, unsigned size, uint64_t v)
{
    uint16_t h = (uint16_t)v;
    uint32_t w = (uint32_t)v;

    switch (size) {
    case 1:
        *p = (uint8_t)v;
        break;
    case 2:
        memcpy(p, &h, sizeof(h));
        break;
    case 4:
        memcpy(p, &w, sizeof(w));
        break;
    default:
        memcpy(p, &v, sizeof(v));
        break;
    }
}

/* Elements of the list @f of the record at @base; more than its most are that and one. */
static unsigned list_count(const struct fo_field *f, const uint8_t *base)
{
    uint64_t n = f->size ? uint_load(base + f->at, f->size) : f->max;

    return n > f->max ? f->max + 1u : (unsigned)n;
}

static void put_field(struct r2_writer *w, const struct fo_field *f, const uint8_t *p)
{
    switch (f->kind) {
    case FO_UINT:
        r2_put(w, uint_load(p, f->size), f->size);
        break;
    case FO_ADDR:
        for (int i = 0; i < FO_ADDR_FIELDS; i++) {
            put_field(w, &fo_addr_fields[i], p + fo_addr_fields[i].at);
        }
        break;
    case FO_TAIL:
        if (*p) {
            r2_put(w, *p, 1);
        }
        break;
    default:
        r2_put_bytes(w, p, f->size);
        break;
    }
}

static void get_text(struct r2_reader *r, char *dst, size_t n)
{
    r2_get_bytes(r, dst, n);
    dst[n - 1] = 0;
    for (size_t i = 0; dst[i]; i++) {
        if ((unsigned char)dst[i] < 0x20 || (unsigned char)dst[i] > 0x7e) {
            dst[i] = '?';
        }
    }
}

static void get_field(struct r2_reader *r, const struct fo_field *f, uint8_t *p);

/* All zero where there is none. */
static void get_addr(struct r2_reader *r, uint8_t *p)
{
    const struct ib_path_addr *a = (const struct ib_path_addr *)(const void *)p;

    for (int i = 0; i < FO_ADDR_FIELDS; i++) {
        get_field(r, &fo_addr_fields[i], p + fo_addr_fields[i].at);
    }
    if (a->qpn > FO_QPN_MAX || a->psn > FO_QPN_MAX || a->way > IB_WAYS_MAX || !fo_port_valid(a)) {
        r->bad |= a->qpn != 0 || a->psn != 0;
    }
}

static void get_field(struct r2_reader *r, const struct fo_field *f, uint8_t *p)
{
    switch (f->kind) {
    case FO_UINT:
        uint_store(p, f->size, r2_get(r, f->size));
        break;
    case FO_TEXT:
        get_text(r, (char *)p, f->size);
        break;
    case FO_ADDR:
        get_addr(r, p);
        break;
    case FO_TAIL:
        *p = r->p < r->end ? (uint8_t)r2_get(r, 1) : 0;
        break;
    default:
        r2_get_bytes(r, p, f->size);
        break;
    }
}

static void put_record(struct r2_writer *w, const struct fo_record *rec, const uint8_t *base)
{
    for (unsigned i = 0; i < rec->fields; i++) {
        const struct fo_field *f = &rec->field[i];
        unsigned n;

        if (f->kind != FO_LIST) {
            put_field(w, f, base + f->at);
            continue;
        }
        n = list_count(f, base);
        for (unsigned e = 0; e < n && e < f->max; e++) {
            for (unsigned c = 1; c <= f->columns; c++) {
                put_field(w, f + c, base + f[c].at + (size_t)e * f[c].stride);
            }
        }
        i += f->columns;
    }
}

static void get_record(struct r2_reader *r, const struct fo_record *rec, uint8_t *base)
{
    memset(base, 0, rec->size);
    for (unsigned i = 0; i < rec->fields; i++) {
        const struct fo_field *f = &rec->field[i];
        unsigned n;

        if (f->kind != FO_LIST) {
            get_field(r, f, base + f->at);
            continue;
        }
        n = list_count(f, base);
        r->bad |= n > f->max;
        for (unsigned e = 0; !r->bad && e < n; e++) {
            for (unsigned c = 1; c <= f->columns; c++) {
                get_field(r, f + c, base + f[c].at + (size_t)e * f[c].stride);
            }
        }
        i += f->columns;
    }
}

size_t fo_pack(enum fo_type type, const union fo_body *body, uint8_t *out, size_t room)
{
    const struct fo_record *rec = fo_record_of((unsigned)type);
    struct r2_writer w = {.p = out, .end = out + room};
    size_t len;

    if (rec == NULL || (rec->strict && !rec->valid(body))) {
        return 0;
    }
    r2_put(&w, type, 1);
    r2_put(&w, FO_PROTO_VERSION, 1);
    r2_put(&w, 0, 2);
    put_record(&w, rec, (const uint8_t *)body);
    if (w.bad) {
        return 0;
    }
    len = (size_t)(w.p - out);
    out[2] = (uint8_t)(len - 4);
    out[3] = (uint8_t)((len - 4) >> 8);
    return len;
}

unsigned fo_foreign_version(const void *msg, size_t len)
{
    struct r2_reader r = {.p = msg, .end = (const uint8_t *)msg + len};

    while (r.p < r.end) {
        unsigned version, body;

        r2_get(&r, 1);
        version = (unsigned)r2_get(&r, 1);
        body = (unsigned)r2_get(&r, 2);
        if (r.bad) {
            return 0;
        }
        if (version != FO_PROTO_VERSION) {
            return version;
        }
        if ((size_t)(r.end - r.p) < body) {
            return 0;
        }
        r.p += body;
    }
    return 0;
}

int fo_unpack(struct r2_reader *r, union fo_body *body, const char **why)
{
    while (r->p < r->end) {
        unsigned type = (unsigned)r2_get(r, 1), version = (unsigned)r2_get(r, 1),
                 len = (unsigned)r2_get(r, 2);
        struct r2_reader b = {.p = r->p, .end = r->p + len};
        const struct fo_record *rec = fo_record_of(type);

        if (r->bad || (size_t)(r->end - r->p) < len) {
            *why = "truncated record";
            return -1;
        }
        r->p += len;
        if (rec == NULL || version != FO_PROTO_VERSION) {
            continue;
        }
        get_record(&b, rec, (uint8_t *)body);
        if (b.bad || b.p != b.end || (rec->valid && !rec->valid(body))) {
            *why = rec->name;
            return -1;
        }
        return (int)type;
    }
    return 0;
}
