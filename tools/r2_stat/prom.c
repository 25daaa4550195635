/* Prometheus' text exposition format, as node_exporter's textfile collector takes it: no
 * timestamps, HELP and TYPE once before the samples of a metric. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "tools/r2_stat/prom.h"

/* The first bound of stalls, log2 of ns: 65.5 us, which is less than any of hardware. */
#define STALL_FIRST (16 - R2_HIST_FROM)

struct out {
    FILE *f;
    const struct stat_found *found;
    struct prom_count total;
    struct stat_nic nic[R2_STAT_NICS];
    int nics;
};

/* --- samples --- */

void prom_head(FILE *f, const char *name, const char *type, const char *help)
{
    fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void prom_label(FILE *f, const char *before, const char *key, const char *value)
{
    fprintf(f, "%s%s=\"", before, key);
    for (const char *p = value; *p; p++) {
        if (*p == '\\' || *p == '"') {
            putc('\\', f);
        }
        if (*p == '\n') {
            fputs("\\n", f);
        } else {
            putc((unsigned char)*p < 0x20 || (unsigned char)*p > 0x7e ? '?' : *p, f);
        }
    }
    putc('"', f);
}

/* "NAME{device="..",port=".." */
static void of_nic(const struct out *o, const char *name, const char *device, unsigned port)
{
    char text[16];

    snprintf(text, sizeof(text), "%u", port);
    fputs(name, o->f);
    prom_label(o->f, "{", "device", device);
    prom_label(o->f, ",", "port", text);
}

static void one(const struct out *o, const char *name, const char *type, const char *help,
                uint64_t value)
{
    prom_head(o->f, name, type, help);
    fprintf(o->f, "%s %" PRIu64 "\n", name, value);
}

static void seconds(const struct out *o, uint64_t ns)
{
    fprintf(o->f, "%" PRIu64 ".%09u\n", ns / NS, (unsigned)(ns % NS));
}

/* --- of the host --- */

static void host_counters(const struct out *o)
{
    static const struct {
        const char *name, *help;
    } row[PROM_SUMS] = {
        [PROM_FAULTS] = {"r2_faults_total", "NIC failures that ended lives of paths."},
        [PROM_SWITCHES] = {"r2_switches_total",
                           "NIC failures after which traffic goes on elsewhere."},
        [PROM_FAILBACKS] = {"r2_failbacks_total", "Returns of NICs to use."},
        [PROM_DRAINS] = {"r2_drains_total", "Drains that began or ended."},
        [PROM_GIVEUPS] = {"r2_giveups_total", "Times that connections ended with an error."},
        [PROM_VERDICTS] = {"r2_verdicts_total", "Verdicts on which component broke."},
        [PROM_REPLAYED] = {"r2_replayed_bytes_total",
                           "Bytes that were posted again after failures."},
        [PROM_DROPPED] = {"r2_events_dropped_total", "Events that could not be written."},
        [PROM_STRANGERS] = {"r2_oob_strangers_total",
                            "Times that somebody was not let into the out-of-band channel."},
        [PROM_BAD_FRAMES] = {"r2_oob_bad_frames_total",
                             "Replayed, truncated or changed frames of the out-of-band channel."},
        [PROM_BAD_MESSAGES] = {"r2_oob_bad_messages_total", "Malformed messages of peers."},
        [PROM_STALLS] = {"r2_stalls_total", "Times that NICs stood still without a fault."},
        [PROM_KEPT] = {"r2_registrations_kept_total",
                       "Registrations that a driver did not let go of."},
    };

    for (int s = 0; s < PROM_SUMS; s++) {
        one(o, row[s].name, "counter", row[s].help, o->total.sum[s]);
    }
}

static void host_gauges(const struct out *o)
{
    uint64_t all = 0, up = 0, stall = 0;

    for (int i = 0; i < o->found->procs; i++) {
        const struct r2_stat_who *w = &o->found->proc[i]->v.who;
        uint32_t nics = stat_proc_nics(o->found->proc[i]);

        all += nics;
        up += w->capacity_up < nics ? w->capacity_up : nics;
        stall = w->stall_max_ns > stall ? w->stall_max_ns : stall;
    }
    prom_head(o->f, "r2_build_info", "gauge", "The version of r2_stat that wrote this.");
    fputs("r2_build_info", o->f);
    prom_label(o->f, "{", "version", R2_VERSION);
    prom_label(o->f, ",", "revision", R2_GIT);
    fputs("} 1\n", o->f);
    one(o, "r2_processes", "gauge", "Processes of this host that use the plugin.",
        (uint64_t)o->found->procs);
    if (all) {
        prom_head(o->f, "r2_capacity_ratio", "gauge",
                  "NICs that carry, or could, of those that the processes have.");
        fprintf(o->f, "r2_capacity_ratio %.6f\n", (double)up / (double)all);
        prom_head(o->f, "r2_longest_stall_seconds", "gauge",
                  "Longest stall of a connection at a failure, of the processes that live.");
        fputs("r2_longest_stall_seconds ", o->f);
        seconds(o, stall);
    }
    one(o, "r2_collector_success", "gauge", "1: all statistics files could be read.",
        o->found->unread == 0);
    prom_head(o->f, "r2_collector_timestamp_seconds", "gauge", "When this was written.");
    fputs("r2_collector_timestamp_seconds ", o->f);
    seconds(o, r2_clock_ns(CLOCK_REALTIME));
}

/* --- histograms --- */

/* A sample of histogram @name: @what, of which those labels that the metric has beside it. */
typedef void (*sample_fn)(const struct out *o, const char *what, const void *of, int which);

/* Bounds from bucket @first on: what is below its bound is in the first one. */
static void times_put(const struct out *o, const struct prom_times *t, int first, sample_fn begin,
                      const void *of, int which)
{
    uint64_t below = 0;
    char le[32];

    for (int i = 0; i < PROM_TIMES; i++) {
        uint64_t bound = 1ull << (R2_HIST_FROM + i);

        below += t->n[i];
        if (i < first) {
            continue;
        }
        snprintf(le, sizeof(le), "%" PRIu64 ".%09u", bound / NS, (unsigned)(bound % NS));
        begin(o, "_bucket", of, which);
        prom_label(o->f, ",", "le", i < PROM_TIMES - 1 ? le : "+Inf");
        fprintf(o->f, "} %" PRIu64 "\n", below);
    }
    begin(o, "_sum", of, which);
    fputs("} ", o->f);
    seconds(o, t->sum_ns);
    begin(o, "_count", of, which);
    fprintf(o->f, "} %" PRIu64 "\n", below);
}

static void of_stall(const struct out *o, const char *what, const void *of, int which)
{
    (void)of;
    fprintf(o->f, "r2_stall_seconds%s", what);
    prom_label(o->f, "{", "fault", which == R2_STAT_STALL_FAULT ? "yes" : "no");
}

/* From the start: increase() does not see a first stall whose series begins with it. */
static void stalls_put(const struct out *o)
{
    prom_head(o->f, "r2_stall_seconds", "histogram",
              "Stalls of connections; fault: yes, from the last progress before a failure to the "
              "first after it; no, of half a second and more without one.");
    for (int k = 0; k < R2_STAT_STALLS; k++) {
        times_put(o, &o->total.stalls[k], STALL_FIRST, of_stall, NULL, k);
    }
}

/* --- of NICs --- */

static void nic_counters(const struct out *o)
{
    static const struct {
        const char *name, *help;
    } row[PROM_NIC_SUMS] = {
        [PROM_SENT] = {"r2_nic_sent_bytes_total",
                       "Bytes of messages sent, without headers and control writes."},
        [PROM_RECEIVED] = {"r2_nic_received_bytes_total",
                           "Bytes of messages received, without headers and control writes."},
        [PROM_WORK] = {"r2_nic_work_requests_total",
                       "Work requests posted for messages and control."},
        [PROM_LOST] = {"r2_nic_lives_lost_total", "Lives of paths that failed."},
        [PROM_NIC_STALLS] = {"r2_nic_stalls_total",
                             "Connections that stood still without a fault."},
    };

    for (int s = 0; s < PROM_NIC_SUMS && o->total.nics > 0; s++) {
        prom_head(o->f, row[s].name, "counter", row[s].help);
        for (int i = 0; i < o->total.nics; i++) {
            of_nic(o, row[s].name, o->total.nic[i].device, o->total.nic[i].port);
            fprintf(o->f, "} %" PRIu64 "\n", o->total.nic[i].sum[s]);
        }
    }
}

static void of_sends(const struct out *o, const char *what, const void *of, int size)
{
    const struct prom_nic *n = of;
    char name[48];

    snprintf(name, sizeof(name), "r2_nic_send_seconds%s", what);
    of_nic(o, name, n->device, n->port);
    prom_label(o->f, ",", "size", size == R2_SEND_SMALL ? "small" : "large");
}

/* Only what has been timed: of a NIC of receivers there would be 60 lines of zeros. */
static void nic_sends(const struct out *o)
{
    int shown = 0;

    for (int i = 0; i < o->total.nics; i++) {
        for (int s = 0; s < R2_SEND_SIZES; s++) {
            if (prom_times_count(&o->total.nic[i].sends[s]) == 0) {
                continue;
            }
            if (shown++ == 0) {
                prom_head(
                    o->f, "r2_nic_send_seconds", "histogram",
                    "Times of some sends, from the post until the process saw the completion; "
                    "small: of at most 16 KiB.");
            }
            times_put(o, &o->total.nic[i].sends[s], 0, of_sends, &o->total.nic[i], s);
        }
    }
}

/* The same device as somebody else's: containers may give other names to one NIC, and one name to
 * two. One of them is shown. */
static int shown_before(const struct out *o, int i)
{
    for (int k = 0; k < i; k++) {
        if (o->nic[k].n.port == o->nic[i].n.port &&
            strcmp(o->nic[k].n.device, o->nic[i].n.device) == 0) {
            return 1;
        }
    }
    return o->nic[i].n.device[0] == '\0';
}

static void nic_info(const struct out *o)
{
    prom_head(o->f, "r2_nic_info", "gauge", "Which NIC it is.");
    for (int i = 0; i < o->nics; i++) {
        const struct r2_stat_nic *n = &o->nic[i].n;
        char text[24];

        if (shown_before(o, i)) {
            continue;
        }
        of_nic(o, "r2_nic_info", n->device, n->port);
        prom_label(o->f, ",", "pci", n->pci);
        snprintf(text, sizeof(text), "%016" PRIx64, n->guid);
        prom_label(o->f, ",", "guid", text);
        snprintf(text, sizeof(text), "%d", n->rail);
        prom_label(o->f, ",", "rail", text);
        fputs("} 1\n", o->f);
    }
}

static void nic_states(const struct out *o)
{
    static const char *const states[] = {"up",   "partly", "avoided", "drained",
                                         "down", "fatal",  "gone"};
    const char *why;
    uint64_t since;

    prom_head(o->f, "r2_nic_state", "gauge",
              "1 for the state that the NIC is in, as the process that sees it worst reports.");
    for (int i = 0; i < o->nics; i++) {
        const struct r2_stat_nic *n = &o->nic[i].n;
        const char *word = stat_nic_word(n, &why, &since);

        for (size_t s = 0; s < sizeof(states) / sizeof(states[0]) && !shown_before(o, i); s++) {
            of_nic(o, "r2_nic_state", n->device, n->port);
            prom_label(o->f, ",", "state", states[s]);
            fprintf(o->f, "} %d\n", strcmp(word, states[s]) == 0);
        }
    }
    prom_head(o->f, "r2_nic_state_change_timestamp_seconds", "gauge",
              "Since when it is in that state.");
    for (int i = 0; i < o->nics; i++) {
        stat_nic_word(&o->nic[i].n, &why, &since);
        if (!shown_before(o, i)) {
            of_nic(o, "r2_nic_state_change_timestamp_seconds", o->nic[i].n.device,
                   o->nic[i].n.port);
            fputs("} ", o->f);
            seconds(o, since);
        }
    }
}

/* Label for alerts: what is known of a NIC that does not carry all it could. */
static void nic_trouble(const struct out *o)
{
    int shown = 0;

    for (int i = 0; i < o->nics; i++) {
        const struct r2_stat_nic *n = &o->nic[i].n;
        const char *why;
        uint64_t since;
        const char *word = stat_nic_word(n, &why, &since);
        const struct probe_code_info *c = prom_code(why);

        if (shown_before(o, i) || strcmp(word, "up") == 0 || strcmp(word, "drained") == 0) {
            continue;
        }
        if (shown++ == 0) {
            prom_head(o->f, "r2_nic_trouble_info", "gauge",
                      "A NIC that does not carry all it could; code, blame and action: of the "
                      "verdict on it, empty while there is none.");
        }
        of_nic(o, "r2_nic_trouble_info", n->device, n->port);
        prom_label(o->f, ",", "state", word);
        prom_label(o->f, ",", "at", n->theirs ? "peer" : "here");
        prom_label(o->f, ",", "code", c ? c->name : "");
        prom_label(o->f, ",", "blame", c ? c->blame : "");
        prom_label(o->f, ",", "action", c ? c->action : "");
        fputs("} 1\n", o->f);
    }
}

static void nic_connections(const struct out *o)
{
    static const char *const name[] = {"r2_nic_connections", "r2_nic_connections_moved",
                                       "r2_nic_connections_without_backup", "r2_nic_fault_at_peer"};
    static const char *const help[] = {
        "Connections with a usable path over the NIC.",
        "Connections whose path over the NIC is gone.",
        "Connections for which it is the only NIC left.",
        "1: every connection that moved away did so for a fault at the peer's end."};

    for (int m = 0; m < 4; m++) {
        prom_head(o->f, name[m], "gauge", help[m]);
        for (int i = 0; i < o->nics; i++) {
            const struct r2_stat_nic *n = &o->nic[i].n;

            if (!shown_before(o, i)) {
                of_nic(o, name[m], n->device, n->port);
                fprintf(o->f, "} %u\n",
                        m == 0   ? n->over
                        : m == 1 ? n->moved
                        : m == 2 ? n->last
                                 : n->theirs != 0);
            }
        }
    }
}

/* --- all of it --- */

static void everything(FILE *f, const struct stat_found *found, const struct prom_book *b)
{
    struct out o = {.f = f, .found = found, .total = b->ended};

    for (int i = 0; i < b->procs; i++) {
        prom_count_add(&o.total, &b->proc[i]);
    }
    o.nics = stat_nics(found->proc, found->procs, o.nic);
    host_gauges(&o);
    host_counters(&o);
    stalls_put(&o);
    prom_jobs(f, found);
    prom_verdicts(f, found);
    nic_counters(&o);
    nic_sends(&o);
    prom_peers(f, found);
    prom_nic_history(f, found);
    if (o.nics > 0) {
        nic_info(&o);
        nic_states(&o);
        nic_connections(&o);
        nic_trouble(&o);
    }
}

static int to_file(const struct stat_found *found, struct prom_book *now, struct prom_book *old,
                   const char *file, char *why, size_t why_len)
{
    char book[4096], *text = NULL;
    size_t len = 0;
    struct stat st;
    FILE *f;
    int rc;

    if (stat(file, &st) == 0 && S_ISDIR(st.st_mode)) {
        snprintf(why, why_len, "%s: %s", file, strerror(EISDIR));
        return -1; /* before there are counters beside it */
    }
    if (snprintf(book, sizeof(book), "%s.counters", file) >= (int)sizeof(book)) {
        snprintf(why, why_len, "the name is too long");
        return -1;
    }
    if (prom_book_read(book, old, why, why_len) != 0) {
        return -1;
    }
    prom_book_turn(now, old, found->unread > 0);
    f = open_memstream(&text, &len);
    if (f == NULL) {
        snprintf(why, why_len, "out of memory");
        return -1;
    }
    everything(f, found, now);
    rc = fclose(f) != 0 || prom_book_write(book, now, why, why_len) != 0 ||
                 prom_file_put(file, text, len, 0644, why, why_len) != 0
             ? -1
             : 0;
    free(text);
    return rc;
}

int stat_prom(const struct stat_found *found, const char *file)
{
    struct prom_book *now = calloc(2, sizeof(*now));
    char why[4400] = "out of memory";
    int rc = now ? 0 : -1;

    for (int i = 0; now && i < found->procs; i++) {
        prom_count_take(&now->proc[now->procs++], found->proc[i]);
    }
    if (now && strcmp(file, "-") == 0) {
        everything(stdout, found, now);
        rc = fflush(stdout) == 0 ? 0 : -1;
        snprintf(why, sizeof(why), "standard output: %s", strerror(errno));
    } else if (now) {
        rc = to_file(found, now, now + 1, file, why, sizeof(why));
    }
    if (rc != 0) {
        fprintf(stderr, "r2_stat: --prom: %s\n", why);
    }
    free(now);
    return rc == 0 ? 0 : 1;
}
