/*
 * What each control record is made of: its fields in the order of the wire, and what they may be.
 * For fo_proto.c, which packs and unpacks by it. Pure.
 */
#ifndef FO_RECORD_H
#define FO_RECORD_H

#include "fo_proto.h"

#define FO_QPN_MAX     0xffffffu /* of PSN, too */
#define FO_ADDR_FIELDS 14

enum fo_kind {
    FO_UINT,  /* @size bytes in memory and on the wire */
    FO_TEXT,  /* printed, so that what is not printable is not taken over */
    FO_BYTES, /* as they are */
    FO_ADDR,  /* struct ib_path_addr, by fo_addr_fields */
    FO_LIST,  /* the @columns fields behind this one, once for each element */
    FO_TAIL   /* one byte that ends the record and is there only when it is not 0 */
};

/* One field of a record, in the order of the wire. */
struct fo_field {
    uint8_t kind;    /* enum fo_kind */
    uint8_t size;    /* LIST: of the member that counts its elements; 0: there are always @max */
    uint16_t at;     /* in the struct; LIST: of that member, which is a field of its own */
    uint16_t stride; /* in a LIST: from one element to the next */
    uint16_t max;    /* LIST: elements */
    uint8_t columns; /* LIST */
};

struct fo_record {
    const char *name;
    const struct fo_field *field;
    uint8_t fields;
    uint8_t addressed;                    /* begins with struct fo_head */
    uint8_t strict;                       /* not packed either where it is not valid */
    uint16_t size;                        /* of its struct */
    int (*valid)(const union fo_body *b); /* NULL: always */
};

/* NULL: there is no such type. */
const struct fo_record *fo_record_of(unsigned type);
/* Of struct ib_path_addr. */
extern const struct fo_field fo_addr_fields[FO_ADDR_FIELDS];
int fo_port_valid(const struct ib_path_addr *a);

#endif
