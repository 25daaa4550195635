/*
 * What rank 0 prints: nccl-tests' table to the byte, its JSON (version 3), and our own lines after
 * it. Thread: main of rank 0; blocks in writes only.
 */
#ifndef R2_PERF_REPORT_H
#define R2_PERF_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plugin/base/r2_json.h"
#include "tools/r2_perf/opts.h"
#include "tools/r2_perf/timeline.h"

struct planned;

/* One rank in the list of devices. */
struct report_device {
    int32_t rank, group, pid, device;
    char host[64];
    char bus[16]; /* 0000:9c:00 */
    char info[256];
};

/* One measurement: half a row. */
struct report_cell {
    bool made;           /* false: prints N/A */
    bool checked;        /* false: no count of wrong elements */
    double seconds;      /* per operation */
    double algbw, busbw; /* GB/s */
    uint64_t wrong;
    const double *times; /* -I: seconds per iteration, slowest rank; and by rank */
    const double *rank_times;
    int ntimes, nranks;
};

struct report_row {
    size_t size, count; /* bytes and elements as nccl-tests counts */
    const char *type, *redop;
    int root, iters;
    struct report_cell out, in;
};

/* What is known at the end beyond the table. */
struct report_extra {
    const char *plugin_name, *plugin_path;
    int plugin_abi; /* 0: it is NCCL, whose plugin is its own affair */
    int devices, channels, nranks;
    bool forked;
    uint64_t checked, wrong; /* operations checked, elements wrong, over the whole run */
    uint64_t mismatches;     /* messages of a wrong size */
    const char *mismatch;
    size_t watched_size;           /* the size that the timeline is about */
    const struct planned *planned; /* NULL: without --algo */
    const struct timeline *timeline;
    const struct fault_event *events;
    int nevents;
};

struct report {
    const struct opts *o;
    struct r2_json json;
    bool has_json, in_results; /* the JSON's list of results is open */
    double busbw_sum;
    int busbw_n;
    uint64_t bad_rows; /* measurements with wrong elements */
};

/* Preamble up to "Using devices" and the list. Opens the JSON file; if it cannot, says so and goes
 * on without. */
void report_open(struct report *r, const struct opts *o, const struct report_device *devices,
                 int n);
/* Column headings. */
void report_header_print(struct report *r);
void report_row_print(struct report *r, const struct report_row *row);
/* Summary lines; @error: the run's error or NULL. Returns the exit code that the results alone
 * would give. */
int report_footer_print(struct report *r, const char *error);
/* The lines that start with "# r2 ", and the JSON key r2. */
void report_extra_print(struct report *r, const struct report_extra *x, bool print);
/* Finish the JSON file; nothing is freed elsewhere. After an error also when the table was never
 * finished. */
void report_close(struct report *r, const char *error);

/* As text, as nccl-tests writes them. */
void report_bool_json(struct r2_json *j, const char *key, bool value);

/* @value in at most @width characters with as many decimals as fit. @text: width + 1 bytes. */
void report_number_format(double value, int width, char *text);

#endif
