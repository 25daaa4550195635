/*
 * The operator's line about a failure (docs/runbook.md): stable codes, one line in full, one of at
 * most 80 characters. Pure; any thread; nothing blocks or is allocated.
 */
#ifndef PROBE_LINE_H
#define PROBE_LINE_H

#include <stdint.h>

#include "probe_verdict.h"

/* In the order of the table; the names, once given, keep their meaning. */
enum probe_code {
    PROBE_CODE_NONE, /* not known; its name is "R2-000" */
    PROBE_CODE_N01,  /* device gone */
    PROBE_CODE_N02,  /* NIC or driver hangs */
    PROBE_CODE_L01,  /* port down */
    PROBE_CODE_L02,  /* cable or switch port silent */
    PROBE_CODE_F01,  /* path between two NICs */
    PROBE_CODE_F02,  /* plane */
    PROBE_CODE_F03,  /* a pair failed, and the facts do not tell the part */
    PROBE_CODE_P01,  /* process gone */
    PROBE_CODE_P02,  /* process stopped, or the channel to it lost; its NICs answer */
    PROBE_CODE_P03,  /* host dead or cut off */
    PROBE_CODE_G01,  /* the pair answers: slow, or one queue pair alone */
    PROBE_CODE_G02,  /* the pair answers, and carries much less than the others; not from a verdict
                      */
    PROBE_CODE_O01,  /* out-of-band channel lost; not from a verdict */
    PROBE_CODE_C01,  /* option that cannot be obeyed; not from a verdict */
    PROBE_CODE_F04,  /* one of the ways between two NICs is silent; not from a verdict */
    PROBE_CODE_H01,  /* a process that holds the job up, without a fault; not from a verdict */
    PROBE_CODE_S01,  /* the way to a host takes longer than ever, and others do not; not from a
                      verdict */
    PROBE_CODES
};

enum probe_severity { PROBE_INFO, PROBE_WARNING, PROBE_CRITICAL, PROBE_SEVERITIES };

struct probe_code_info {
    const char *name;  /* "R2-L02" */
    const char *text;  /* for people, at most 26 characters */
    const char *blame; /* the component, as the line has it */
    const char
        *action; /* what to do, as the line has it: words joined by '-', at most 21 characters */
    const char *recommend; /* of NONE, RESTART_APP, COMPONENT_RESET, RESTART_BM, CONTACT_SUPPORT,
                              REPLACE_VM */
    uint8_t severity;      /* enum probe_severity */
};

/* Static. The row of PROBE_CODE_NONE for what is out of range. */
const struct probe_code_info *probe_code_info(enum probe_code c);
const char *probe_severity_name(enum probe_severity s); /* "info", "warning", "critical"; static */

/* The code of a verdict on these facts. Never NONE, G02, O01, C01, F04, H01, S01. */
enum probe_code probe_code_of(const struct probe_facts *f, const struct probe_verdict *v);

enum probe_fate {
    PROBE_FATE_NA,
    PROBE_FATE_CONTINUES,
    PROBE_FATE_WAITS,
    PROBE_FATE_ENDS,
    PROBE_FATES
};

/*
 * What the caller knows; NULL, "", 0 mean: not known, left out. Strings may come from a peer: in
 * the line a byte that is not printable ASCII, a space, and any of % " \ = are written as %XX, and
 * a value is cut at its limit, which a '~' at its end shows. They must be terminated, and are read
 * until the limit only.
 */
struct probe_line {
    enum probe_code code;
    const char *host, *nic, *pci;     /* of the component blamed; 48, 32, 16 bytes */
    const char *peer_host, *peer_nic; /* the other end of the pair; 48, 32 */
    const char *how;                  /* what was measured, parts joined by ','; 160 */
    const char *flow, *back;          /* what a switch hashes, out and back; 95 each */
    const char *to;                   /* NICs that carry on, joined by ','; 80 */
    const char *job;                  /* "slurm:81233"; 48 */
    const char *blame, *action;       /* of this case; else those of the code */
    unsigned rail1;                   /* rail + 1 */
    uint8_t suspects;                 /* struct probe_verdict */
    uint8_t fate;                     /* enum probe_fate */
    uint8_t elsewhere;                /* @host is not that of the process that prints the line */
    uint64_t since_ms;                /* CLOCK_REALTIME; printed as time of day, UTC */
    uint8_t
        revises; /* enum probe_code of an earlier line about the same fault; of that, the time: */
    uint64_t revises_ms;
    unsigned seen_by, seen_of; /* vantage points that agree, of those that were probed; both or none
                                  (seen_of 0) */
    uint64_t stall_us;
    unsigned moved;                 /* connections that were moved */
    unsigned capacity, capacity_of; /* NICs that are left, of how many (capacity_of 0: not known) */
};

/* Bytes of a full line with its NUL: with the prefix it fits into a line of the log (r2_log.h). */
#define PROBE_LINE_SIZE  880
#define PROBE_SHORT_SIZE 81

/*
 * "R2-L02 host=n17 nic=mlx5_3/1 ... do=drain-after-job" into buf[PROBE_LINE_SIZE]. Code, host, nic,
 * blame and do are always there, host and nic as "-" when not known. Returns the length.
 */
int probe_line_full(char *buf, const struct probe_line *l);
/*
 * "R2-L02 mlx5_3/1 cable or switch port; job continues at 7/8; drain after job" into
 * buf[PROBE_SHORT_SIZE]; of a NIC elsewhere "n17:mlx5_3/1". What does not fit is left out whole:
 * capacity first, then the job's fate, never code, NIC (host, where that is not known), text and
 * what to do. A name is cut where these alone do not fit, the host's before the NIC's. Returns the
 * length.
 */
int probe_line_short(char *buf, const struct probe_line *l);

#endif
