/*
 * Which component broke (docs/diagnosis.md): facts from both ends and from auxiliary ports in,
 * verdict out. Pure; any thread; nothing blocks or is allocated.
 */
#ifndef PROBE_VERDICT_H
#define PROBE_VERDICT_H

#include <stdint.h>

/* Of probes, ERROR proves no more than TIMEOUT; of the peer's process it does. */
enum probe_outcome {
    PROBE_NA,      /* it could not be probed */
    PROBE_OK,      /* answered */
    PROBE_ERROR,   /* refused at once: a call failed */
    PROBE_TIMEOUT, /* no answer */
    PROBE_OUTCOMES
};

enum probe_port {
    PROBE_PORT_NA, /* not known */
    PROBE_PORT_UP,
    PROBE_PORT_DOWN,
    PROBE_PORT_GONE, /* device fatal or removed */
    PROBE_PORTS
};

/* A probe to several that nobody answered counts from this many on: a single one that is silent may
 * be broken itself.
 */
#define PROBE_SEVERAL 2

/* What one end found out about its own NIC. */
struct probe_end {
    uint8_t port; /* enum probe_port */
    /* enum probe_outcome: the NIC to itself. NA unless it has answered before the fault: not every
     * NIC can. A completion in error counts only on a queue pair made since the fault. */
    uint8_t loop;
    uint8_t aux;   /* to other remote ports: OK when any answered, TIMEOUT or ERROR when none of
                      @aux_n did */
    uint8_t aux_n; /* never ports of the other NIC's card; at most one per third host, for it may
                      fail whole */
};

struct probe_facts {
    uint8_t direct; /* enum probe_outcome: the pair itself, after the fault */
    uint8_t peer;   /* its process: OK: it has sent its facts; ERROR: its host refuses, it is gone;
                       TIMEOUT: nothing came */
    /* Pairs between the same two processes that share neither NIC with this one: OK when any
     * answered since the fault.
     */
    uint8_t others;
    uint8_t others_n; /* how many of them were probed; no NIC is in two of them. One that worked
                         until this pair failed, and is silent since, counts as PROBE_SEVERAL */
    struct probe_end local,
        remote; /* remote: as the peer announced it; all NA where it announced nothing */
};

/*
 * The components, told apart by what they carry: a NIC's link carries all of that NIC's traffic and
 * nothing else's (a silent leaf switch that all of it passes counts as the link); the path carries
 * what neither link carries alone.
 */
enum probe_blame {
    PROBE_BLAME_NONE,       /* the pair answers: congestion, a queue pair alone, or over already */
    PROBE_BLAME_LOCAL_NIC,  /* device, firmware, driver */
    PROBE_BLAME_LOCAL_LINK, /* our port, its cable, the switch port */
    PROBE_BLAME_REMOTE_NIC,
    PROBE_BLAME_REMOTE_LINK,
    PROBE_BLAME_PATH, /* between: switch, plane */
    PROBE_BLAME_PEER, /* its process or host, or what cuts it off: nothing that is this pair's alone
                       */
    PROBE_BLAME_UNKNOWN,
    PROBE_BLAMES
};
/* "our NIC", ... for people. Never NULL; static. */
const char *probe_blame_name(enum probe_blame b);

struct probe_verdict {
    uint8_t blame;      /* enum probe_blame */
    uint8_t suspects;   /* bit per enum probe_blame, of NONE..PEER: explains every fact alone, or is
                           proved broken. Two or   more: UNKNOWN */
    uint8_t confidence; /* percent, (fit + 1) / (fit + misfit + 2) of the facts that are known; 0
                           for unknown */
    uint8_t several;    /* no single failure explains the facts; suspects are those that an end has
                           proved, none if 0 */
};

/*
 * Fields of *f out of range count as not available.
 *
 * Proved is what an end reports of itself: its port is down, its device is gone, its port is up and
 * neither its loop nor anything else answers; and that the peer's host refuses its process. One
 * proof is blamed whatever else would fit; two are unknown.
 */
struct probe_verdict probe_verdict(const struct probe_facts *f);

/* The same case seen from the other end: local and remote exchanged. */
struct probe_facts probe_facts_mirror(const struct probe_facts *f);
enum probe_blame probe_blame_mirror(enum probe_blame b);

#endif
