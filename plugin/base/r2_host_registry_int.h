/* Format of the host registry; shared by r2_host_registry.c (the file, slots, events) and
 * r2_host_registry_rows.c (what a process says of its NICs). */
#ifndef R2_HOST_REGISTRY_INT_H
#define R2_HOST_REGISTRY_INT_H

#include <stdatomic.h>
#include <string.h>

#include "r2_host_registry.h"

/*
 * Format, version 2. All of it is little words of 64 bits in the host's order, so that each is read
 * and written whole; texts are filled up with zeroes. Header: 4096 bytes, word 0 magic, 1 version
 * and number of slots, 2 the bell. Slot: 8192 bytes.
 */
#define MAGIC       0x626f617264327200ull /* "\0r2draob" in memory of a little endian host */
#define VERSION     2
#define HEADER_SIZE 4096
#define SLOT_SIZE   8192
#define BELL        (2 * sizeof(uint64_t))
#define FILE_SIZE   (HEADER_SIZE + (size_t)R2_HOST_REGISTRY_SLOTS * SLOT_SIZE)

typedef _Atomic uint64_t word;

#define EVENT_WORDS (6 + R2_HOST_REGISTRY_DATA)
#define NIC_WORDS   7
#define LOAD_WORDS  4
#define FLOW_WORDS  2
#define TEMPO_WORDS 4
#define ROOM_WORDS  2
#define TEXT(n)     ((n) / 8)

struct registry_slot {
    word incarnation; /* 0: nobody, or being taken */
    word pid, since;
    word events; /* said so far */
    word command[TEXT(R2_HOST_REGISTRY_NAME)], host[TEXT(R2_HOST_REGISTRY_HOST)];
    word event[R2_HOST_REGISTRY_EVENTS]
              [EVENT_WORDS]; /* [0]: its number, from 1, written last; 0 while it changes */
    word nic[R2_HOST_REGISTRY_NICS][NIC_WORDS];
    word load[R2_HOST_REGISTRY_NICS][LOAD_WORDS]; /* moved, queued, front, moved_at; zero where the
                                             writer does not know of it */
    word flow_of; /* incarnation that wrote flow[]: a writer that does not know of it leaves those
                     of the one before */
    word flow[R2_HOST_REGISTRY_NICS][FLOW_WORDS];   /* connections and rows, demand */
    word tempo_of;                                  /* likewise */
    word tempo[R2_HOST_REGISTRY_NICS][TEMPO_WORDS]; /* rate, least, wait and busy and parts, at */
    word room_of;                                   /* likewise; 0: there is nothing to say */
    word room_sum[4];                               /* move, stands and move_rows, hosts, until */
    word room[R2_HOST_REGISTRY_NICS][ROOM_WORDS];   /* rows, demand and in_fixed; out, out_bound, in
                                                       and in_bound; numbers as pack() */
};
_Static_assert(sizeof(struct registry_slot) <= SLOT_SIZE, "a slot");
_Static_assert(sizeof(word) == 8, "atomic words are plain ones in memory");

struct r2_host_registry {
    struct r2_host_registry *next; /* all_lock */
    int fd, notify;
    uint8_t *map;
    int own; /* slot; -1: none */
    uint64_t posted;
    uint64_t seen_inc[R2_HOST_REGISTRY_SLOTS], seen[R2_HOST_REGISTRY_SLOTS];
    uint64_t known[R2_HOST_REGISTRY_SLOTS / 64]; /* bit per slot: somebody had it */
};

/*
 * Each set is a release and pairs with each get, an acquire: who reads a word of a new event also
 * sees that its number was zeroed before, or what came after. (Fences would say the same with fewer
 * barriers, but ThreadSanitizer does not know them.)
 */
static inline uint64_t registry_get(const word *w)
{
    return atomic_load_explicit((word *)w, memory_order_acquire);
}
static inline void registry_set(word *w, uint64_t v)
{
    atomic_store_explicit(w, v, memory_order_release);
}

static inline void registry_text_set(word *w, int words, const char *text)
{
    for (int i = 0; i < words; i++) {
        uint64_t v = 0;
        size_t n = strlen(text);

        memcpy(&v, text, n < 8 ? n : 8);
        text += n < 8 ? n : 8;
        registry_set(&w[i], v);
    }
}

/* @out has room for 8 * words; what cannot be printed becomes '?'. */
static inline void registry_text_get(const word *w, int words, char *out)
{
    size_t n = (size_t)words * 8;

    for (int i = 0; i < words; i++) {
        uint64_t v = registry_get(&w[i]);

        memcpy(out + 8 * i, &v, 8);
    }
    out[n - 1] = '\0';
    for (size_t i = 0; out[i]; i++) {
        if ((unsigned char)out[i] < 0x20 || (unsigned char)out[i] > 0x7e) {
            out[i] = '?';
        }
    }
}

static inline struct registry_slot *registry_slot_of(const struct r2_host_registry *b, int i)
{
    return (struct registry_slot *)(void *)(b->map + HEADER_SIZE + (size_t)i * SLOT_SIZE);
}

#endif
