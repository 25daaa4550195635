/* Where the rows of a traffic file are; shared by its writer and its reader (r2_traffic.h). */
#ifndef R2_TRAFFIC_FILE_H
#define R2_TRAFFIC_FILE_H

#include "r2_traffic.h"

#define R2_TRAFFIC_MAGIC   0x0a66617274327200ull
#define R2_TRAFFIC_ROWS_AT 2048

/* Words of a row of @nics: number, from, to, two of states, the cells, number. */
#define R2_TRAFFIC_CELLS_AT    5
#define R2_TRAFFIC_WORDS(nics) (R2_TRAFFIC_CELLS_AT + 2 * (size_t)(nics) + 1)
#define R2_TRAFFIC_AT(no, nics)                                                                    \
    (R2_TRAFFIC_ROWS_AT + ((no)-1) % R2_TRAFFIC_ROWS * R2_TRAFFIC_WORDS(nics) * sizeof(uint64_t))

_Static_assert(sizeof(struct r2_traffic_head) == 1272 &&
                   sizeof(struct r2_traffic_head) <= R2_TRAFFIC_ROWS_AT,
               "version 1");
_Static_assert(R2_TRAFFIC_STATES <= 16 && R2_TRAFFIC_NICS <= 32, "four bits, two words");

/* What a reader of another version must not guess. */
static inline uint64_t r2_traffic_shape(void)
{
    return (uint64_t)1 << 48 | (uint64_t)R2_TRAFFIC_ROWS << 16 | R2_TRAFFIC_NICS;
}

#endif
