/* softfab status. */
#include "tests/fabric/cli/softfab.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct nic_view {
    int host, nic;
    char name[32], state[16], faults[512], rate[32], latency[32];
    struct fab_link link;
    uint64_t tx_bytes, tx_packets, rx_bytes, rx_packets, drops;
};

void softfab_rate_text(uint64_t v, char *buf, size_t len)
{
    if (v == 0) {
        snprintf(buf, len, "unlimited");
    } else if (v >= 1000000000) {
        snprintf(buf, len, "%.4gGB/s", (double)v * 1e-9);
    } else {
        snprintf(buf, len, "%.4gMB/s", (double)v * 1e-6);
    }
}

static void time_text(uint64_t ns, char *buf, size_t len)
{
    if (ns >= 1000000) {
        snprintf(buf, len, "%.4gms", (double)ns * 1e-6);
    } else {
        snprintf(buf, len, "%.4gus", (double)ns * 1e-3);
    }
}

static void fault_add(struct nic_view *v, const char *text, const char *value)
{
    size_t len = strlen(v->faults);

    snprintf(v->faults + len, sizeof(v->faults) - len, "%s%s%s%s", len > 0 ? ", " : "", text,
             *value != '\0' ? " " : "", value);
}

static void share_add(struct nic_view *v, const char *text, uint32_t ppm)
{
    char buf[32];

    if (ppm != 0) {
        snprintf(buf, sizeof(buf), "%.4g%%", ppm / 1e4);
        fault_add(v, text, buf);
    }
}

static void link_faults(struct nic_view *v, uint64_t base_rate)
{
    const struct fab_link *l = &v->link;
    char buf[32];

    if (l->down) {
        fault_add(v, "down", "");
    }
    if (l->blackhole_tx && l->blackhole_rx) {
        fault_add(v, "blackhole", "");
    } else if (l->blackhole_tx || l->blackhole_rx) {
        fault_add(v, l->blackhole_tx ? "blackhole-tx" : "blackhole-rx", "");
    }
    if (l->ack_lost) {
        fault_add(v, "ack-lost", "");
    }
    if (l->send_error) {
        fault_add(v, "send-error", "");
    }
    share_add(v, "loss", l->loss_ppm);
    share_add(v, "corrupt", l->corrupt_ppm);
    share_add(v, "dup", l->dup_ppm);
    if (l->delay_ns != 0) {
        time_text(l->delay_ns, buf, sizeof(buf));
        fault_add(v, "delay", buf);
    }
    for (int i = 0; i < FAB_MAX_HOSTS * FAB_MAX_NICS; i++) {
        if (l->late[i / FAB_MAX_NICS] >> (i % FAB_MAX_NICS) & 1) {
            snprintf(buf, sizeof(buf), "h%d:n%d", i / FAB_MAX_NICS, i % FAB_MAX_NICS);
            fault_add(v, fab_fault_name(FAB_FAULT_DELAY_TO), buf);
        }
    }
    if (l->rate != base_rate) {
        softfab_rate_text(l->rate, buf, sizeof(buf));
        fault_add(v, "rate", buf);
    }
}

static bool cut_is(struct seg *seg, int h, int n, int far_h, int far_n)
{
    return (atomic_load_explicit(&seg_nic_at(seg, h, n)->link.cut[far_h], memory_order_relaxed) >>
                far_n &
            1) != 0;
}

/* "cut h2:n1"; a rail on which nobody is reached is one fault, "cut *:n1". */
static void cuts_rail(struct nic_view *v, struct seg *seg, int far_n)
{
    const struct fab_desc *d = &seg->head.desc;
    char buf[32];
    int both = 0, others = 0;

    for (int h = 0; h < d->hosts; h++) {
        if (h != v->host) {
            others++;
            both +=
                cut_is(seg, v->host, v->nic, h, far_n) && cut_is(seg, h, far_n, v->host, v->nic);
        }
    }
    if (both > 1 && both == others) {
        snprintf(buf, sizeof(buf), "*:n%d", far_n);
        fault_add(v, fab_fault_name(FAB_FAULT_CUT), buf);
        return;
    }
    for (int h = 0; h < d->hosts; h++) {
        if ((h == v->host && far_n == v->nic) || !cut_is(seg, v->host, v->nic, h, far_n)) {
            continue;
        }
        snprintf(buf, sizeof(buf), "h%d:n%d", h, far_n);
        fault_add(v,
                  fab_fault_name(cut_is(seg, h, far_n, v->host, v->nic) ? FAB_FAULT_CUT
                                                                        : FAB_FAULT_CUT_TX),
                  buf);
    }
}

static void device_faults(struct nic_view *v, struct seg_nic *n)
{
    static const struct {
        const char *name;
        size_t word;
        bool counted;
    } rows[] = {
        {"hang", offsetof(struct seg_nic, hung), false},
        {"mr-fail", offsetof(struct seg_nic, mr_fail), false},
        {"call-error", offsetof(struct seg_nic, call_error), false},
        {"gpu-dma-fail", offsetof(struct seg_nic, gpu_dma_fail), false},
        {"retry7-forever", offsetof(struct seg_nic, retry7), false},
        {"silent-death", offsetof(struct seg_nic, silent_death), false},
        {"recv-kept", offsetof(struct seg_nic, recv_kept), false},
        {"mr-hang", offsetof(struct seg_nic, mr_hang), false},
        {"qp-error", offsetof(struct seg_nic, qp_errors), true},
        {"send-stuck", offsetof(struct seg_nic, send_stucks), true},
        {"gid-change", offsetof(struct seg_nic, epoch), true},
    };
    uint32_t gone = atomic_load_explicit(&n->gone, memory_order_relaxed);

    if (gone != 0) {
        fault_add(v, fab_fault_name((enum fab_fault_kind)(gone - 1)), "");
    }
    if (atomic_load_explicit(&n->provider, memory_order_relaxed) != FAB_PROVIDER_PLAIN) {
        fault_add(v, fab_fault_name(FAB_FAULT_PROVIDER),
                  fab_provider_name(atomic_load_explicit(&n->provider, memory_order_relaxed)));
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint32_t word = atomic_load_explicit((_Atomic uint32_t *)((char *)n + rows[i].word),
                                             memory_order_relaxed);
        char count[16] = "";
        if (word != 0 && rows[i].counted) {
            snprintf(count, sizeof(count), "(%u)", word);
        }
        if (word != 0) {
            fault_add(v, rows[i].name, count);
        }
    }
}

static void nic_view(struct seg *seg, int host, int nic, struct nic_view *v)
{
    struct seg_nic *n = seg_nic_at(seg, host, nic);
    uint32_t gone = atomic_load_explicit(&n->gone, memory_order_acquire);

    *v = (struct nic_view){.host = host, .nic = nic};
    fab_nic_name(nic, v->name, sizeof(v->name));
    seg_link_read(n, &v->link);
    snprintf(v->state, sizeof(v->state), "%s",
             gone == FAB_FAULT_FATAL + 1                                 ? "FATAL"
             : gone == FAB_FAULT_REMOVE + 1                              ? "REMOVED"
             : gone == FAB_FAULT_UNPLUG + 1                              ? "UNPLUGGED"
             : atomic_load_explicit(&n->hung, memory_order_relaxed) != 0 ? "HUNG"
             : v->link.down                                              ? "DOWN"
                                                                         : "ACTIVE");
    link_faults(v, seg->head.desc.nic[host][nic].rate);
    for (int i = 0; i < seg->head.desc.nics; i++) {
        cuts_rail(v, seg, i);
    }
    device_faults(v, n);
    softfab_rate_text(v->link.rate, v->rate, sizeof(v->rate));
    time_text(seg->head.desc.nic[host][nic].latency_ns, v->latency, sizeof(v->latency));
    v->tx_bytes = atomic_load_explicit(&n->count.tx_bytes, memory_order_relaxed);
    v->tx_packets = atomic_load_explicit(&n->count.tx_packets, memory_order_relaxed);
    v->rx_bytes = atomic_load_explicit(&n->count.rx_bytes, memory_order_relaxed);
    v->rx_packets = atomic_load_explicit(&n->count.rx_packets, memory_order_relaxed);
    v->drops = atomic_load_explicit(&n->count.drops, memory_order_relaxed);
}

/* "n0,n2", the NICs that the process in @s has open. */
static void open_text(struct seg_slot *s, char *buf, size_t len)
{
    uint64_t open = atomic_load_explicit(&s->nics_open, memory_order_relaxed);
    size_t n = 0;

    snprintf(buf, len, "none");
    for (int i = 0; i < FAB_MAX_NICS && n + 8 < len; i++) {
        if (open & (1ull << i)) {
            n += (size_t)snprintf(buf + n, len - n, "%sn%d", n > 0 ? "," : "", i);
        }
    }
}

static void text_print(struct seg_map *m)
{
    struct fab_desc *d = &m->seg->head.desc;
    struct nic_view v;
    char open[128];
    pid_t pid;
    int any = 0;

    printf("fabric %s: %d hosts with %d NICs, %s%s, up for %lld s, at %s\n\n", m->seg->head.name,
           d->hosts, d->nics, d->crossrail ? "rails reach each other" : "rails apart",
           d->reorder ? ", writes overtake each other" : "",
           (long long)(time(NULL) - (time_t)m->seg->head.created_s), m->dir);
    printf("%-8s %-6s %-8s %-10s %-8s %12s %10s %12s %10s %8s  %s\n", "place", "name", "state",
           "rate", "latency", "tx bytes", "packets", "rx bytes", "packets", "drops", "faults");
    for (int h = 0; h < d->hosts; h++) {
        for (int n = 0; n < d->nics; n++) {
            char place[32];
            nic_view(m->seg, h, n, &v);
            snprintf(place, sizeof(place), "h%d:n%d", h, n);
            printf("%-8s %-6s %-8s %-10s %-8s %12" PRIu64 " %10" PRIu64 " %12" PRIu64 " %10" PRIu64
                   " %8" PRIu64 "  %s\n",
                   place, v.name, v.state, v.rate, v.latency, v.tx_bytes, v.tx_packets, v.rx_bytes,
                   v.rx_packets, v.drops, *v.faults != '\0' ? v.faults : "-");
        }
    }
    softfab_spines_text(m->seg);
    for (int i = 0; i < SEG_SLOTS; i++) {
        if (!seg_slot_alive(m, i, &pid)) {
            continue;
        }
        if (any++ == 0) {
            printf("\n%-8s %-5s %-16s %s\n", "process", "host", "command", "open");
        }
        open_text(&m->seg->slot[i], open, sizeof(open));
        printf("%-8d h%-4u %-16s %s\n", (int)pid,
               atomic_load_explicit(&m->seg->slot[i].host, memory_order_relaxed),
               m->seg->slot[i].command, open);
    }
    if (any == 0) {
        printf("\nno processes\n");
    }
}

static void json_nic(struct r2_json *j, const struct nic_view *v, const struct fab_nic_desc *nd)
{
    char text[sizeof(v->faults)];

    r2_json_open(j, NULL, '{');
    snprintf(text, sizeof(text), "h%d:n%d", v->host, v->nic);
    r2_json_text(j, "place", text);
    r2_json_int(j, "host", v->host);
    r2_json_int(j, "nic", v->nic);
    r2_json_text(j, "name", v->name);
    r2_json_text(j, "state", v->state);
    r2_json_open(j, "faults", '[');
    for (const char *p = v->faults; *p != '\0';) {
        size_t len = strcspn(p, ",");

        snprintf(text, sizeof(text), "%.*s", (int)len, p);
        r2_json_text(j, NULL, text);
        p += len + (p[len] == ',' ? 2 : 0);
    }
    r2_json_close(j, ']');
    r2_json_text(j, "pci", nd->pci);
    r2_json_int(j, "numa", nd->numa);
    r2_json_uint(j, "rate_Bps", v->link.rate);
    r2_json_uint(j, "latency_ns", nd->latency_ns);
    r2_json_uint(j, "tx_bytes", v->tx_bytes);
    r2_json_uint(j, "tx_packets", v->tx_packets);
    r2_json_uint(j, "rx_bytes", v->rx_bytes);
    r2_json_uint(j, "rx_packets", v->rx_packets);
    r2_json_uint(j, "drops", v->drops);
    r2_json_close(j, '}');
}

static void json_process(struct r2_json *j, struct seg_slot *s, int slot, pid_t pid)
{
    char open[128];

    open_text(s, open, sizeof(open));
    r2_json_open(j, NULL, '{');
    r2_json_int(j, "pid", pid);
    r2_json_int(j, "host", atomic_load_explicit(&s->host, memory_order_relaxed));
    r2_json_int(j, "slot", slot);
    r2_json_text(j, "open", open);
    r2_json_text(j, "command", s->command);
    r2_json_close(j, '}');
}

static void json_print(struct seg_map *m)
{
    struct fab_desc *d = &m->seg->head.desc;
    struct nic_view v;
    struct r2_json j;
    pid_t pid;

    r2_json_begin_file(&j, stdout);
    r2_json_open(&j, NULL, '{');
    r2_json_text(&j, "schema", "softfab-status-1");
    r2_json_text(&j, "name", m->seg->head.name);
    r2_json_text(&j, "dir", m->dir);
    r2_json_int(&j, "hosts", d->hosts);
    r2_json_int(&j, "nics", d->nics);
    r2_json_bool(&j, "crossrail", d->crossrail);
    r2_json_uint(&j, "from_ns", seg_now()); /* counters are read between this and to_ns */
    r2_json_open(&j, "nic", '[');
    for (int h = 0; h < d->hosts; h++) {
        for (int n = 0; n < d->nics; n++) {
            nic_view(m->seg, h, n, &v);
            json_nic(&j, &v, &d->nic[h][n]);
        }
    }
    r2_json_close(&j, ']');
    softfab_spines_json(&j, m->seg);
    r2_json_uint(&j, "to_ns", seg_now());
    r2_json_open(&j, "process", '[');
    for (int i = 0; i < SEG_SLOTS; i++) {
        if (seg_slot_alive(m, i, &pid)) {
            json_process(&j, &m->seg->slot[i], i, pid);
        }
    }
    r2_json_close(&j, ']');
    r2_json_close(&j, '}');
    putchar('\n');
}

int softfab_status(int argc, char **argv)
{
    static const struct option opts[] = {{"name", 1, NULL, 'N'}, {"json", 0, NULL, 'j'}, {0}};
    const char *name = NULL;
    bool json = false;
    struct seg_map m;
    int opt;

    while ((opt = getopt_long(argc, argv, ":", opts, NULL)) != -1) {
        if (opt == 'N') {
            name = optarg;
        } else if (opt == 'j') {
            json = true;
        } else {
            return softfab_refuse("status", opt, argv, opts);
        }
    }
    if (optind < argc) {
        return softfab_misuse("status: unexpected '%s'", argv[optind]);
    }
    int rc = softfab_open(&m, name);
    if (rc != 0) {
        return rc;
    }
    if (json) {
        json_print(&m);
    } else {
        text_print(&m);
    }
    seg_file_close(&m);
    return fflush(stdout) == 0 ? 0 : softfab_fail("cannot write the status");
}
