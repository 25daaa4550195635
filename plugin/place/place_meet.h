/*
 * Where the ranks of a communicator meet to switch together: the process that made its
 * ncclUniqueId. Its address travels in the id itself, which the user brings to every rank and NCCL
 * leaves 0 behind its own 44 bytes (ncclBootstrapHandle, 2.20 to 2.30: magic, address, and in 2.30
 * a count). Pure; any thread; does not block.
 *
 * In the id, from byte PLACE_MEET_AT on, little endian: "r2place" and the version (8), a key (8),
 * the name of the out-of-band endpoint: uuid (16), secret (16), address (16), scope (4), port (2),
 * family (1), 0 (1).
 */
#ifndef PLACE_MEET_H
#define PLACE_MEET_H

#include <stdbool.h>
#include <stdint.h>

#include "oob/r2_oob.h"

#define PLACE_ID_BYTES     128 /* NCCL_UNIQUE_ID_BYTES */
#define PLACE_MEET_AT      56
#define PLACE_MEET_VERSION 1

struct place_meet {
    struct r2_oob_name hub; /* of that process */
    uint64_t key;           /* of the communicator, among those of that process; never 0 */
};

/* Writes @meet into @id; false: there is something there already, and @id is as it was. */
bool place_meet_put(uint8_t id[PLACE_ID_BYTES], const struct place_meet *meet);

/* False: there is nothing of this version, or nothing that could be an address. */
bool place_meet_get(const uint8_t id[PLACE_ID_BYTES], struct place_meet *meet);

#endif
