/*
 * Control records between two processes (protocol section 4, P30): packing, unpacking, limits.
 * Pure.
 *
 * An OOB message is a list of records. A record: u8 type, u8 version, u16 length of the body, body;
 * integers little endian. Connections are named by the number their owner gave them: `dst` is of
 * the process addressed, `src` of the sender's process. Unknown types are skipped (a newer peer),
 * so are known ones of another version; a known type with a wrong length or field is an error of
 * the whole message.
 *
 * An address (struct ib_path_addr, in REP, CONF, OPEN, OPEN_OK and PROBE) has 70 bytes: u32 queue
 * pair number, u32 PSN, u32 NIC generation, u64 ring address, u32 ring key, u8 link layer, u8 MTU,
 * u16 LID, u8 LMC (0 to 7), 16 bytes GID, 16 bytes second GID (last resort over IPv6; else 0), u32
 * ECE vendor, u32 ECE options (both 0: none; the numbers are the provider's, which refuses what it
 * does not know), u8 way (ib_way.h; in REP and OPEN the one that both ends take, in PROBE the one
 * that the sender wants for its first queue pair).
 *
 * The version is that of all records together, and of the handle (r2_connect.c): +1 with every
 * change of a record that a process without it cannot read, or would read wrongly. 2: REQ has the
 * traffic class, PROBE which NIC it is. 3: PROBE has the queue pair for messages. 4: addresses have
 * ECE; DOWN and SETTLED have the parts that the incarnation may still bring; the ring has words for
 * lone acknowledgements (ib_wire.h). 5: addresses have a way, PROBE its second queue pair. 6: PROBE
 * has the ways that its sender wants. 7: addresses have a second GID. 8: they have an LMC.
 * Processes of different versions do not connect.
 */
#ifndef FO_PROTO_H
#define FO_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/r2_wire.h"
#include "ib_transport/ib_path.h"
#include "ib_transport/r2_ledger.h"
#include "probe/probe_gossip.h"
#include "probe/probe_hang.h"
#include "probe/probe_verdict.h"

#ifndef FO_PROTO_VERSION /* a test builds a plugin of another one */
#define FO_PROTO_VERSION 8
#endif
#define FO_MAX_NICS  IB_MAX_NICS
#define FO_MAX_QPS   128 /* what NCCL takes */
#define FO_NIC_NAME  24
#define FO_HOST_NAME 40

enum fo_type {
    FO_MSG_REQ = 1,  /* S: a connection to this listener is requested; S's NICs */
    FO_MSG_REP,      /* R: its paths, R's queue pairs */
    FO_MSG_CONF,     /* S: its queue pairs and rings */
    FO_MSG_READY,    /* R: paths that are up */
    FO_MSG_REFUSE,   /* either: set-up ends, with a reason */
    FO_MSG_NIC_DOWN, /* a NIC was given up */
    FO_MSG_NIC_DOWN_OK,
    FO_MSG_DOWN,    /* an incarnation is over */
    FO_MSG_FENCED,  /* R: ledger of a closed incarnation */
    FO_MSG_SETTLED, /* S: FENCED is applied */
    FO_MSG_BYE,     /* closed; R: final ledger */
    FO_MSG_BYE_OK,
    FO_MSG_GONE,           /* no such connection here */
    FO_MSG_PROBE,          /* this end of the probe queue pair between two NICs */
    FO_MSG_OPEN,           /* R: a new incarnation of a path begins; its queue pair */
    FO_MSG_OPEN_OK,        /* S: its queue pair for that */
    FO_MSG_OPEN_UP,        /* R: S may post */
    FO_MSG_DELIVERY_QUERY, /* S: R's NIC acknowledged these parts on this path long ago, and R has
                       not: a delivery query */
    FO_MSG_DRAIN,          /* exactly these NICs of the sender's process are to be free of work */
    FO_MSG_DRAIN_OK,
    FO_MSG_CTS_REQUEST, /* S: the CTS of this seq does not come: a CTS request */
    FO_MSG_REPORT,      /* a health report on a NIC, a path or a process of the job */
    FO_MSG_REPORT_OK,
    FO_MSG_LOCATE,   /* facts about this end of a NIC pair */
    FO_MSG_LOAD,     /* what moves over a NIC, or a request for that of the other */
    FO_MSG_FAILBACK, /* an administrator here lets this incarnation, when it is over, be followed by
                        another */
    FO_MSG_FAILBACK_OK,
    FO_MSG_RATES, /* R: what its end of each path can carry */
    FO_MSG_HANG,  /* who holds this process up in the end; or a request for that */
    FO_MSG_WAY,   /* the fabric swallows what takes this way between two NICs */
    FO_MSG_END,   /* one behind the last */
};
const char *fo_type_name(enum fo_type t);
/* Whether records of this type go to one connection, and so begin with struct fo_head. */
bool fo_is_addressed(enum fo_type t);

struct fo_head {
    uint32_t dst, src;
};

struct fo_nic {
    char name[FO_NIC_NAME];
    int16_t rail;
    uint8_t usable; /* as a backup: 0 no, else the larger the sooner */
    uint32_t gen;
};

struct fo_req {
    uint32_t src, listen;
    uint8_t dev, nnics;
    uint8_t qps;     /* wanted per NIC pair, 1 to FO_MAX_QPS */
    uint32_t digest; /* of the policy */
    char host[FO_HOST_NAME];
    struct fo_nic nic[FO_MAX_NICS];
    uint8_t traffic_class; /* of S's communicator, for R's end too; last in the record, and only
                              there when it is not 0 */
};

struct fo_path_ent {
    uint8_t s_nic, r_nic;
    uint8_t ok;
    struct ib_path_addr addr;
};

struct fo_rep {
    uint32_t dst, src;
    uint8_t dev, npaths;
    uint16_t rq_depth;
    uint32_t digest;
    char host[FO_HOST_NAME];
    char nic_name[IB_MAX_PATHS][FO_NIC_NAME]; /* of r_nic of each path */
    struct fo_path_ent path[IB_MAX_PATHS];
};

struct fo_conf {
    uint32_t dst, src;
    uint8_t npaths;
    struct fo_path_ent path[IB_MAX_PATHS];
};

struct fo_ready {
    uint32_t dst, src;
    uint8_t up; /* bit per path */
};

struct fo_refuse {
    uint32_t dst, src, listen;
    char why[96];
};

struct fo_nic_down {
    uint8_t nic, reason;
    uint32_t gen;
};

#define FO_FLAG_WANTED 1  /* DOWN: S has parts there that no acknowledgement covers; not read */
#define FO_FLAG_FENCED 2  /* DOWN: the sender's fence has ended; not read */
#define FO_FLAG_SOFT   4  /* the sender's fence is soft */
#define FO_FLAG_ABORT  8  /* BYE: requests were outstanding */
#define FO_FLAG_RECV   16 /* BYE: from the receiver */
#define FO_FLAG_HEARD                                                                              \
    32 /* DOWN: FENCED has come, and waits for S's fence: not to be sent again                     \
        */

/*
 * DOWN, 26 bytes and 2 for each seq of @live; SETTLED, 24 and the same. On the wire @live is u16 n,
 * u64 base, u16 mask[n]: of S the parts that were posted on this incarnation, of which S does not
 * know that R has them, as the incarnation went DOWN at S (P35). The same in every copy. Of R none,
 * n = 0.
 */
struct fo_down {
    uint32_t dst, src, inc;
    uint8_t path, reason, flags, wc_status;
    struct r2_parts live;
};

struct fo_fenced { /* also the ledger part of BYE */
    uint32_t dst, src;
    uint32_t inc; /* BYE: enum probe_code, the failure that ended it; 0: none, or not known. Who
                      does not know the number takes it for 0 */
    uint8_t path, flags;
    uint16_t n;
    uint64_t acked, base;
    uint16_t mask[R2_LEDGER_WINDOW];
};

struct fo_settled {
    uint32_t dst, src, inc;
    uint8_t path, flags;
    struct r2_parts live;
};

struct fo_bye_ok {
    uint32_t dst, src;
};

#define FO_PROBE_REQUEST                                                                           \
    1 /* to be answered: not known here whether the other end is connected to this incarnation,    \
         and in order */
#define FO_PROBE_BACK   2 /* the sender's NIC has come back */
#define FO_PROBE_SILENT 8 /* with LOST: given up because the other end did not answer */
#define FO_PROBE_WORKS                                                                             \
    16 /* a probe of the sender's over this pair was answered since REQUEST came */
#define FO_PROBE_LOST                                                                              \
    4 /* nothing here is connected to your incarnation @for_inc any more; no address */

struct fo_probe {
    uint8_t nic, peer_nic; /* of who sends it; of who is addressed */
    uint8_t flags;
    uint32_t inc;     /* incarnation of the sender's queue pair, never 0 */
    uint32_t for_inc; /* of the other end's that it is connected to, 0: none yet */
    struct ib_path_addr addr;
    uint64_t guid; /* of the sender's NIC: node GUID, port, name; 0 and "" not known */
    uint8_t port;
    char name[FO_NIC_NAME];
    uint32_t inband_qpn, inband_psn; /* of the queue pair for messages beside it; 0: none */
    uint32_t alt_qpn, alt_psn;       /* of the probe's second way; 0: none */
    uint8_t alt_way;                 /* ... and the way; that of the first is addr.way */
    uint16_t turn;                   /* of this choice of ways; probe_way.h */
};

struct fo_report_ok { /* the report that it confirms */
    struct probe_subject subject;
    uint64_t version, origin;
};

#define FO_LOCATE_REQUEST 1 /* the facts of the other end are requested */
#define FO_LOCATE_FINAL   2 /* these are all that the sender will find out */

#define FO_LOCATE_AUX 4

struct fo_locate_aux { /* a port that the sender's NIC has probed */
    uint64_t guid;
    uint8_t port;
    uint8_t outcome; /* enum probe_outcome */
};

struct fo_locate {
    uint8_t nic, peer_nic; /* of who sends it; of who is addressed */
    uint8_t flags;
    uint32_t id;     /* case number of who sends it */
    uint32_t for_id; /* case of the addressed process that this answers, 0: none */
    struct probe_end end;
    uint8_t direct; /* enum probe_outcome, of the pair itself */
    uint8_t n_aux;
    struct fo_locate_aux aux[FO_LOCATE_AUX];
};

struct fo_delivery_query {
    uint32_t dst, src, inc;
    uint8_t path;
    uint16_t mask; /* parts of @seq */
    uint64_t seq;
};

struct fo_cts_request {
    uint32_t dst, src;
    uint64_t seq;
};

#define FO_LOAD_REQUEST 1 /* answer with your own; the numbers mean nothing */
/* With one of these two the numbers mean nothing, and are 0, as of a NIC of which nothing is known:
 * so who does not know them takes such a record. */
#define FO_LOAD_SLOW 2 /* the way from @nic to @peer_nic is slow; is answered by WORD */
#define FO_LOAD_WORD 4
/* ... and of @nic, one of the first two or none: */
#define FO_LOAD_OTHERS 8  /* a way of it to or from another host is slow, too, or suspected */
#define FO_LOAD_WELL   16 /* it carries for another host, and none of that is slow */
#define FO_LOAD_ITSELF 32 /* it is slow itself: two hosts say so that carry well */

struct fo_load {           /* of all processes of the host together */
    uint8_t nic, peer_nic; /* of who sends it; of who is addressed */
    uint8_t flags;
    uint64_t moved;  /* bytes sent and acknowledged, and bytes received; only differences mean
                        something */
    uint64_t queued; /* bytes posted and not completed, and bytes that receives are open for */
    uint64_t front;  /* ... of these, those of the message that comes next on each queue pair */
    uint64_t age;    /* ns since it moved last; UINT64_MAX: never */
    uint64_t rate;   /* bytes/s, the best seen; 0: not measured */
    uint64_t at;     /* ns, clock of who sends it; only differences mean something */
};

/* Beside PROBE_HANG_ASK, PROBE_HANG_LONG */
#define FO_HANG_WORD                                                                               \
    4 /* @word means something; else the record says who sends it, and with ASK wants MET */
#define FO_HANG_MET 8 /* ... who knows who is addressed */

struct fo_hang { /* 118 bytes. Who does not know it passes it over, and never sends one */
    uint8_t flags;
    uint32_t rank, pid; /* of who sends it; PROBE_HANG_RANK_NONE: not known */
    struct probe_hang_report report;
};

struct fo_way {            /* Who does not know it passes it over, and never sends one */
    uint8_t nic, peer_nic; /* of who sends it; of who is addressed */
    uint8_t way;           /* ib_way.h, as both ends of the pair count */
    uint32_t age_ms;       /* silent for so long */
};

struct fo_failback { /* FAILBACK, FAILBACK_OK */
    uint32_t dst, src, inc;
    uint8_t path;
};

struct fo_rates { /* of R's end, by path; Mb/s, 0: not known */
    uint32_t dst, src;
    uint8_t npaths;
    uint32_t port[IB_MAX_PATHS];  /* of the port */
    uint32_t reach[IB_MAX_PATHS]; /* of the way between port and memory */
};

struct fo_drain {  /* DRAIN, DRAIN_OK */
    uint32_t nics; /* bit per NIC of who drains */
    uint32_t gen;  /* grows with each change; DRAIN_OK names the one it answers */
};

struct fo_open { /* OPEN, OPEN_OK; OPEN_UP without address */
    uint32_t dst, src, inc;
    uint8_t path;
    struct ib_path_addr addr;
};

union fo_body {
    struct fo_head head; /* where fo_is_addressed() */
    struct fo_req req;
    struct fo_rep rep;
    struct fo_conf conf;
    struct fo_ready ready;
    struct fo_refuse refuse;
    struct fo_nic_down nic_down;
    struct fo_down down;
    struct fo_fenced fenced; /* FENCED, BYE */
    struct fo_settled settled;
    struct fo_bye_ok bye_ok; /* BYE_OK, GONE */
    struct fo_probe probe;
    struct fo_delivery_query delivery_query;
    struct fo_open open;
    struct fo_drain drain;
    struct fo_cts_request cts_request;
    struct probe_report report;
    struct fo_report_ok report_ok;
    struct fo_locate locate;
    struct fo_load load;
    struct fo_failback failback;
    struct fo_rates rates;
    struct fo_hang hang;
    struct fo_way way;
};

/* Largest packed record: a FENCED with a full window, or a REQ with all NICs. */
#define FO_MAX_RECORD  2048
#define FO_RECORD_HEAD 4 /* type, version, length of the body */

/* Packs one record of @type from @body. Returns its length, or 0 when it does not fit or a field is
 * out of range. */
size_t fo_pack(enum fo_type type, const union fo_body *body, uint8_t *out, size_t room);

/*
 * Takes the next record off @r. Returns its type, 0 at the end of the message, -1 when the message
 * is malformed (*why says where). Every count, index and string of *body is in range when the type
 * is returned.
 */
int fo_unpack(struct r2_reader *r, union fo_body *body, const char **why);

/* The version of the first record of message @msg that is not FO_PROTO_VERSION; 0: all are, as far
 * as the message can be read. */
unsigned fo_foreign_version(const void *msg, size_t len);

#endif
