/*
 * Which component broke (docs/design-probe.md): facts from both ends and from auxiliary ports in, verdict out. Pure; any thread.
 */
#ifndef PROBE_VERDICT_H
#define PROBE_VERDICT_H

#include <stdint.h>

enum probe_outcome {
    PROBE_NA,      /* nobody could ask */
    PROBE_OK,      /* answered */
    PROBE_ERROR,   /* refused at once: a call failed */
    PROBE_TIMEOUT, /* no answer */
    PROBE_OUTCOMES
};

enum probe_port {
    PROBE_PORT_NA,   /* not known */
    PROBE_PORT_UP,
    PROBE_PORT_DOWN,
    PROBE_PORT_GONE, /* device fatal or removed */
    PROBE_PORTS
};

/* What one end found out about its own NIC. */
struct probe_end {
    uint8_t port; /* enum probe_port */
    uint8_t loop; /* enum probe_outcome: the NIC to itself */
    uint8_t aux;  /* to other remote ports: OK when any answered, TIMEOUT or ERROR when none of @aux_n did */
    uint8_t aux_n;
};

struct probe_facts {
    uint8_t direct;           /* enum probe_outcome: the pair itself, after the fault */
    uint8_t peer;             /* the peer's process: OK it said what it found; ERROR its host says that it is gone; TIMEOUT no word */
    uint8_t others;           /* other NIC pairs between the same two processes: OK when any answered since the fault */
    struct probe_end local, remote;
};

enum probe_blame {
    PROBE_BLAME_NONE,        /* congestion, a queue pair alone, or over already */
    PROBE_BLAME_LOCAL_NIC,
    PROBE_BLAME_LOCAL_LINK,  /* our port or cable */
    PROBE_BLAME_REMOTE_NIC,
    PROBE_BLAME_REMOTE_LINK,
    PROBE_BLAME_PATH,        /* between: switch, plane */
    PROBE_BLAME_PEER,        /* its process or host */
    PROBE_BLAME_UNKNOWN,
    PROBE_BLAMES
};
const char *probe_blame_name(enum probe_blame b); /* "our NIC", ... for people */

struct probe_verdict {
    uint8_t blame;      /* enum probe_blame */
    uint8_t suspects;   /* bit per enum probe_blame that explains every fact alone; of NONE..PEER */
    uint8_t confidence; /* percent: by how many independent facts speak for it; 0 for unknown */
    uint8_t several;    /* no single failure explains the facts */
};

/* Fields of *f out of range count as not available. */
struct probe_verdict probe_verdict(const struct probe_facts *f);

/* The same case seen from the other end: local and remote exchanged. */
struct probe_facts probe_facts_mirror(const struct probe_facts *f);
enum probe_blame probe_blame_mirror(enum probe_blame b);

#endif
