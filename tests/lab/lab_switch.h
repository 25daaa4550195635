/*
 * The lab's switch: one process, one thread. lab_switch.c has the loop and the control socket,
 * lab_switch_port.c the ports. Each NIC of each VM is a port; the ports of one rail, and the
 * management ports, are one Ethernet segment each.
 */
#ifndef R2_LAB_SWITCH_H
#define R2_LAB_SWITCH_H

#include "tests/lab/lab_impair.h"
#include "tests/lab/lab_names.h"
#include "tests/lab/lab_spine.h"
#include "tests/lab/lab_util.h"
#include "tests/lab/lab_watch.h"

#define LAB_RAILS     4
#define LAB_SEGMENTS  (LAB_RAILS + 1) /* the last is management */
#define LAB_HOSTS_MAX 3
#define LAB_FRAME_MAX 65550u
#define LAB_MACS      4

struct lab_frame {
    struct lab_frame *next;
    uint64_t due; /* not handed over before, ns */
    uint32_t size;
    uint8_t bytes[]; /* as the socket wants it: 4 bytes of length, then the frame */
};

/* Frames, by what happened to them. */
enum lab_count {
    LAB_N_OUT, /* came from the NIC */
    LAB_N_OUT_BYTES,
    LAB_N_IN, /* handed to the NIC */
    LAB_N_IN_BYTES,
    LAB_N_CUT_OUT,
    LAB_N_CUT_IN,
    LAB_N_LOSS_OUT,
    LAB_N_LOSS_IN,
    LAB_N_DUP,
    LAB_N_CORRUPT,
    LAB_N_DELAYED,
    LAB_N_TAIL,    /* dropped: the queue of a rate or a delay was full */
    LAB_N_STUCK,   /* dropped: the NIC took nothing for too long */
    LAB_N_NO_LINK, /* dropped: no VM on this port */
    LAB_COUNTS,
};

struct lab_port {
    char name[8]; /* "h0:n1", "h0:m" */
    int host, segment;
    struct lab_watch listener, conn;
    struct lab_buf rx;
    bool readable; /* there is more to read */
    bool held;     /* the first frame of rx waits for room in another port's queue */
    struct lab_frame *head, *tail;
    size_t queued, sent; /* bytes in the queue; of its head already sent */
    uint64_t full_since; /* ns; 0: the last frame found room */
    bool stuck, write_blocked;
    struct lab_impair im[LAB_DIRS];
    unsigned cut_to; /* bit = host: what goes from here to its port of this segment is dropped */
    struct lab_pace pace[LAB_DIRS];
    uint8_t mac[LAB_MACS][6]; /* seen behind this port, the latest over the oldest */
    unsigned macs;
    uint64_t count[LAB_COUNTS];
};

struct lab_spine {
    bool cut;
    uint64_t frames, dropped; /* that chose it; of these: swallowed */
};

struct lab_switch {
    struct lab_port port[LAB_HOSTS_MAX * LAB_SEGMENTS];
    int ports;
    struct lab_spine spine[LAB_RAILS][LAB_SPINES];
    uint64_t rng;
};

extern struct lab_switch lab_sw;

/* Opens the port's socket in the current folder, "h0.n1". Ends the program on failure. */
void lab_port_open(struct lab_port *p, int host, int segment);
/* Moves frames until nothing more can move now, sets what each port waits for. Returns when time
 * alone will move the next one (ns), UINT64_MAX: never. */
uint64_t lab_ports_settle(uint64_t now);
const char *lab_count_name(enum lab_count c);

#endif
