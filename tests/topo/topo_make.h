/*
 * A machine in words (tests/topo/README.md), made into a tree of files that looks like its "/". One
 * thread, for tests.
 */
#ifndef TOPO_MAKE_H
#define TOPO_MAKE_H

#include <stdbool.h>
#include <stdint.h>

#define MAKE_ITEMS 512
#define MAKE_PORTS 4
#define MAKE_CPUS  2 /* of each NUMA node */

enum make_kind { MAKE_ROOT, MAKE_BRIDGE, MAKE_GPU, MAKE_NIC, MAKE_OTHER };

struct make_item {
    enum make_kind kind;
    int parent; /* in item[]; -1: a root bus */
    unsigned domain, bus, dev, fn;
    char place[32]; /* "0000:15:01.0", for a root bus "pci0000:15" */
    int node;       /* what numa_node says */
    char cur[16],
        max[16]; /* links, "32x16"; "": no such files; "unknown": as the kernel writes it */
    unsigned vendor, device, class;
    char name[32], guid[32], layer[16];
    unsigned state;
    double rate[MAKE_PORTS]; /* Gb/s */
    int ports;
};

struct make_node {
    int id, socket;
    bool memory_only;
};

struct make_machine {
    struct make_item item[MAKE_ITEMS];
    int items;
    struct make_node node[64];
    int nodes;
    char cpu[3][32]; /* vendor, family, model */
    char links[4096];
};

/* Reads the description; what is wrong with it ends the program. */
void make_read(const char *path, struct make_machine *m);

/* Writes the tree below @dir, which exists and is empty. */
void make_write(const struct make_machine *m, const char *dir);

/* Ends the program with a message. */
void make_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
