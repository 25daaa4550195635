/* How long sends take, as a table, 100 columns wide. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/r2_stat/stat.h"

static const char *size_name(int size)
{
    return size == R2_SEND_SMALL ? "to 16 KiB" : "larger";
}
_Static_assert(R2_SEND_SMALL_MAX == 16 << 10 && R2_SEND_SIZES == 2, "as size_name() says");

static const char *time_text(uint64_t ns, char *out, size_t room)
{
    if (ns < 1000000) {
        snprintf(out, room, "%.1f us", (double)ns / 1e3);
    } else if (ns < 1000000000) {
        snprintf(out, room, "%.1f ms", (double)ns / 1e6);
    } else {
        snprintf(out, room, "%.1f s", (double)ns / 1e9);
    }
    return out;
}

uint64_t stat_mean(const struct r2_stat_times *t)
{
    return t->samples ? t->sum_ns / t->samples : 0;
}

static void row(FILE *out, const char *name, int size, const struct r2_hist *h)
{
    struct r2_stat_times t;
    char mean[24], p50[24], p99[24], p999[24];

    r2_stat_times_of(h, &t);
    if (t.samples == 0) {
        return;
    }
    fprintf(out, "%-12s %-9s %10" PRIu64 " %9s %9s %9s %9s\n", name, size_name(size), t.samples,
            time_text(stat_mean(&t), mean, sizeof(mean)), time_text(t.p50_ns, p50, sizeof(p50)),
            time_text(t.p99_ns, p99, sizeof(p99)), time_text(t.p999_ns, p999, sizeof(p999)));
}

void stat_print_sends(FILE *out, const struct stat_nic *nic, int nics)
{
    struct r2_hist all[R2_SEND_SIZES];

    memset(all, 0, sizeof(all));
    fprintf(out, "\n%-12s %-9s %10s %9s %9s %9s %9s\n", "NIC", "SENDS", "TIMED", "MEAN", "P50",
            "P99", "P99.9");
    for (int i = 0; i < nics; i++) {
        for (int s = 0; s < R2_SEND_SIZES; s++) {
            row(out, nic[i].n.name, s, &nic[i].n.sends[s]);
            r2_hist_add(&all[s], &nic[i].n.sends[s]);
        }
    }
    for (int s = 0; s < R2_SEND_SIZES && nics > 1; s++) {
        row(out, "all", s, &all[s]);
    }
}

void stat_print_sends_of(const struct r2_stat_conn *c)
{
    for (int s = 0; s < R2_SEND_SIZES; s++) {
        const struct r2_stat_times *t = &c->sends[s];
        char mean[24], p50[24], p99[24], p999[24];

        if (t->samples) {
            printf("%15s%s: mean %s, p50 %s, p99 %s, p99.9 %s, %" PRIu64 " timed\n", "",
                   size_name(s), time_text(stat_mean(t), mean, sizeof(mean)),
                   time_text(t->p50_ns, p50, sizeof(p50)), time_text(t->p99_ns, p99, sizeof(p99)),
                   time_text(t->p999_ns, p999, sizeof(p999)), t->samples);
        }
    }
}

static void peer_row(const struct stat_proc *p, const struct r2_stat_peer *peer, unsigned size)
{
    const struct r2_stat_transfer *t = &peer->transfer[size];
    char p50[24], p99[24], low[24], high[24], band[52] = "-";

    if (t->at == 0) {
        return;
    }
    if (t->high_ns) {
        snprintf(band, sizeof(band), "%s to %s", time_text(t->low_ns, low, sizeof(low)),
                 time_text(t->high_ns, high, sizeof(high)));
    }
    printf("%8" PRId64 " %-24.24s %-4s %10" PRIu64 " %9s %9s  %-20s %s\n", p->v.who.pid, peer->host,
           r2_band_size_name(size), t->times, time_text(t->p50_ns, p50, sizeof(p50)),
           time_text(t->p99_ns, p99, sizeof(p99)), band, r2_band_state_name(t->state));
}

void stat_print_peers(struct stat_proc *const *p, int n)
{
    printf("\n%8s %-24s %-4s %10s %9s %9s  %-20s %s\n", "PID", "TRANSFERS TO", "SIZE", "TIMED",
           "P50", "P99", "BAND", "STATE");
    for (int i = 0; i < n; i++) {
        for (uint32_t k = 0; k < p[i]->v.who.peers; k++) {
            for (unsigned s = 0; s < R2_BAND_SIZES; s++) {
                peer_row(p[i], &p[i]->v.peer[k], s);
            }
        }
    }
}
