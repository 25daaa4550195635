/* Where the records of a statistics file are; shared by its writer and its reader (r2_stat.h). */
#ifndef R2_STAT_FILE_H
#define R2_STAT_FILE_H

#include "r2_stat.h"

#define R2_STAT_MAGIC 0x7461747332720a00ull

/* Words: a number, then the struct. */
#define R2_STAT_RECORD(type) (8 + sizeof(type))
#define R2_STAT_ROUND_AT     16
#define R2_STAT_WHO_AT       64
#define R2_STAT_NICS_AT      4096
#define R2_STAT_HISTORY_AT   (R2_STAT_NICS_AT + R2_STAT_NICS * R2_STAT_RECORD(struct r2_stat_nic))
#define R2_STAT_PEERS_AT                                                                           \
    (R2_STAT_HISTORY_AT + R2_STAT_HISTORY * R2_STAT_RECORD(struct r2_stat_event))
#define R2_STAT_CONNS_AT    (R2_STAT_PEERS_AT + R2_STAT_PEERS * R2_STAT_RECORD(struct r2_stat_peer))
#define R2_STAT_SIZE(conns) (R2_STAT_CONNS_AT + (size_t)(conns)*R2_STAT_RECORD(struct r2_stat_conn))

_Static_assert(sizeof(struct r2_stat_who) == 2216 && sizeof(struct r2_stat_nic) == 2240 &&
                   sizeof(struct r2_stat_conn) == 728 && sizeof(struct r2_stat_event) == 512 &&
                   sizeof(struct r2_stat_path) == 48 && sizeof(struct r2_stat_peer) == 360,
               "version 7");
_Static_assert(R2_STAT_WHO_AT + R2_STAT_RECORD(struct r2_stat_who) <= R2_STAT_NICS_AT, "head");

/* Word 1: what a reader of another version must not guess. */
static inline uint64_t r2_stat_shape(void)
{
    return (uint64_t)R2_STAT_VERSION << 48 | (uint64_t)R2_STAT_CONNS << 32 |
           (uint64_t)R2_STAT_HISTORY << 16 | sizeof(struct r2_stat_conn);
}

#endif
