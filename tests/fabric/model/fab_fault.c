/* Faults: text form, effect on a link. */
#include "fab_fault.h"

#include "fab_desc.h"
#include "fab_pkt.h"
#include "fab_spine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum value_kind { NO_VALUE, PERCENT, TIME, RATE, OPT_COUNT, PLACE, PROVIDER };

static const struct {
    const char *name;
    enum value_kind value;
} kinds[FAB_FAULT_KINDS] = {
    [FAB_FAULT_DOWN] = {"down", NO_VALUE},
    [FAB_FAULT_UP] = {"up", NO_VALUE},
    [FAB_FAULT_BLACKHOLE] = {"blackhole", NO_VALUE},
    [FAB_FAULT_BLACKHOLE_TX] = {"blackhole-tx", NO_VALUE},
    [FAB_FAULT_BLACKHOLE_RX] = {"blackhole-rx", NO_VALUE},
    [FAB_FAULT_LOSS] = {"loss", PERCENT},
    [FAB_FAULT_CORRUPT] = {"corrupt", PERCENT},
    [FAB_FAULT_DUP] = {"dup", PERCENT},
    [FAB_FAULT_DELAY] = {"delay", TIME},
    [FAB_FAULT_RATE] = {"rate", RATE},
    [FAB_FAULT_ACK_LOST] = {"ack-lost", NO_VALUE},
    [FAB_FAULT_HANG] = {"hang", NO_VALUE},
    [FAB_FAULT_UNHANG] = {"unhang", NO_VALUE},
    [FAB_FAULT_FATAL] = {"fatal", NO_VALUE},
    [FAB_FAULT_REMOVE] = {"remove", NO_VALUE},
    [FAB_FAULT_CUT] = {"cut", PLACE},
    [FAB_FAULT_CUT_TX] = {"cut-tx", PLACE},
    [FAB_FAULT_HEAL] = {"heal", PLACE},
    [FAB_FAULT_DELAY_TO] = {"delay-to", PLACE},
    [FAB_FAULT_QP_ERROR] = {"qp-error", NO_VALUE},
    [FAB_FAULT_MR_FAIL] = {"mr-fail", OPT_COUNT},
    [FAB_FAULT_CALL_ERROR] = {"call-error", OPT_COUNT},
    [FAB_FAULT_GPU_DMA_FAIL] = {"gpu-dma-fail", NO_VALUE},
    [FAB_FAULT_GID_CHANGE] = {"gid-change", NO_VALUE},
    [FAB_FAULT_SILENT_DEATH] = {"silent-death", NO_VALUE},
    [FAB_FAULT_SEND_ERROR] = {"send-error", NO_VALUE},
    [FAB_FAULT_SEND_STUCK] = {"send-stuck", NO_VALUE},
    [FAB_FAULT_UNPLUG] = {"unplug", NO_VALUE},
    [FAB_FAULT_RETRY7_FOREVER] = {"retry7-forever", NO_VALUE},
    [FAB_FAULT_RECV_KEPT] = {"recv-kept", NO_VALUE},
    [FAB_FAULT_PROVIDER] = {"provider", PROVIDER},
    [FAB_FAULT_MR_HANG] = {"mr-hang", NO_VALUE},
    [FAB_FAULT_RESTORE] = {"restore", NO_VALUE},
};

static const char *const providers[FAB_PROVIDERS] = {"plain", "send-refused", "bnxt",
                                                     "ionic", "mana",         "mlx4"};

const char *fab_provider_name(uint64_t provider)
{
    return provider < FAB_PROVIDERS ? providers[provider] : "unknown";
}

static int fail(char *err, size_t len, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int fail(char *err, size_t len, const char *fmt, ...)
{
    va_list ap;

    if (err && len) {
        va_start(ap, fmt);
        vsnprintf(err, len, fmt, ap);
        va_end(ap);
    }
    return -1;
}

const char *fab_fault_name(enum fab_fault_kind kind)
{
    return kind < FAB_FAULT_KINDS ? kinds[kind].name : "unknown";
}

/* "h3", "n0" or "*" up to ':' or the end; the rest through *text. */
static int parse_place(const char **text, char letter, int limit, int *out)
{
    char *end;
    long v;

    if (**text == '*') {
        *out = -1;
        (*text)++;
        return 0;
    }
    if (**text != letter || (*text)[1] < '0' || (*text)[1] > '9') {
        return -1;
    }
    v = strtol(*text + 1, &end, 10);
    if (v >= limit) {
        return -1;
    }
    *out = (int)v;
    *text = end;
    return 0;
}

/* "h0:n1", "*:n1", ... in full. */
static int parse_port(const char *p, int *host, int *nic)
{
    return parse_place(&p, 'h', FAB_MAX_HOSTS, host) || *p++ != ':' ||
                   parse_place(&p, 'n', FAB_MAX_NICS, nic) || *p
               ? -1
               : 0;
}

static int parse_value(enum value_kind kind, const char *word, uint64_t *value)
{
    uint32_t ppm;
    int host, nic;
    char *end;

    switch (kind) {
    case PERCENT:
        if (fab_parse_percent(word, &ppm)) {
            return -1;
        }
        *value = ppm;
        return 0;
    case TIME:
        return fab_parse_time(word, value);
    case RATE:
        return fab_parse_rate(word, value);
    case PROVIDER:
        for (*value = 0; *value < FAB_PROVIDERS && strcmp(word, providers[*value]) != 0;) {
            (*value)++;
        }
        return *value < FAB_PROVIDERS ? 0 : -1;
    case PLACE:
        if (parse_port(word, &host, &nic)) {
            return -1;
        }
        *value = fab_ports(host, nic);
        return 0;
    default:
        *value = strtoul(word, &end, 10);
        return *end || *word < '0' || *word > '9' || *value == 0 || *value > UINT32_MAX ? -1 : 0;
    }
}

/* A number below @limit, or "*". */
static int parse_index(const char *word, int limit, int *out)
{
    char *end;
    long v = strtol(word, &end, 10);

    if (strcmp(word, "*") == 0) {
        *out = -1;
        return 0;
    }
    if (*word < '0' || *word > '9' || *end || v >= limit) {
        return -1;
    }
    *out = (int)v;
    return 0;
}

/* "rail 1 spine 3", "spine 3" at the start of @text. Returns what is behind it; NULL with the
 * reason in @err. */
static const char *parse_spine(const char *text, struct fab_fault *fault, char *err, size_t err_len)
{
    char what[32], rail[32] = "*", number[32];
    int n = 0;

    if (sscanf(text, " rail %31s %31s %31s%n", rail, what, number, &n) < 3 &&
        sscanf(text, " %31s %31s%n", what, number, &n) < 2) {
        n = 0;
    }
    if (!n || strcmp(what, "spine") != 0) {
        fail(err, err_len, "'%s': want a spine and a fault, as in 'rail 1 spine 3 down'", text);
        return NULL;
    }
    *fault = (struct fab_fault){.host = -1, .at = FAB_AT_SPINE};
    if (parse_index(rail, FAB_MAX_NICS, &fault->nic)) {
        fail(err, err_len, "'%s': not a rail; want a number below %d, or '*'", rail, FAB_MAX_NICS);
        return NULL;
    }
    if (parse_index(number, FAB_MAX_SPINES, &fault->spine)) {
        fail(err, err_len, "'%s': not a spine; want a number below %d, or '*'", number,
             FAB_MAX_SPINES);
        return NULL;
    }
    return text + n;
}

/* Where: "h0:n1", or a spine. Returns what is behind it; NULL with the reason in @err. */
static const char *parse_where(const char *text, struct fab_fault *fault, char *err, size_t err_len)
{
    char place[32], word[2];
    int n = 0;

    if (sscanf(text, "%31s%n %1s", place, &n, word) < 2) {
        fail(err, err_len, "'%s': want a place and a fault, as in 'h0:n1 down'", text);
        return NULL;
    }
    if (strcmp(place, "spine") == 0 || strcmp(place, "rail") == 0) {
        return parse_spine(text, fault, err, err_len);
    }
    *fault = (struct fab_fault){.at = FAB_AT_NIC};
    if (parse_port(place, &fault->host, &fault->nic)) {
        fail(err, err_len,
             "'%s': not a place; want hH:nN with H below %d and N below %d, or '*' for either",
             place, FAB_MAX_HOSTS, FAB_MAX_NICS);
        return NULL;
    }
    return text + n;
}

static bool of_spines(enum fab_fault_kind kind)
{
    return kind == FAB_FAULT_DOWN || kind == FAB_FAULT_UP || kind == FAB_FAULT_BLACKHOLE ||
           kind == FAB_FAULT_LOSS || kind == FAB_FAULT_RATE || kind == FAB_FAULT_RESTORE;
}

static int find_kind(const char *word)
{
    if (strcmp(word, "clear") == 0) {
        return FAB_FAULT_RESTORE;
    }
    for (int k = 0; k < FAB_FAULT_KINDS; k++) {
        if (strcmp(word, kinds[k].name) == 0) {
            return k;
        }
    }
    return -1;
}

int fab_fault_word(const char *text, char word[32])
{
    struct fab_fault fault;
    const char *what = parse_where(text, &fault, NULL, 0);

    return what && sscanf(what, "%31s", word) == 1 ? 0 : -1;
}

/* What a value of that kind is, in words. */
static const char *value_words(enum value_kind kind)
{
    static const char *const words[] = {
        [NO_VALUE] = "nothing",
        [PERCENT] = "a share such as 1%",
        [TIME] = "a time such as 5ms",
        [RATE] = "a rate such as 20MB/s",
        [OPT_COUNT] = "a number of at least 1",
        [PLACE] = "a port such as h2:n1",
        [PROVIDER] = "plain, send-refused, bnxt, ionic, mana or mlx4",
    };

    return words[kind];
}

int fab_fault_parse(const char *text, struct fab_fault *fault, char *err, size_t err_len)
{
    char word[32], value[32], rest[2];
    const char *what = parse_where(text, fault, err, err_len);
    int n, kind;

    if (!what) {
        return -1;
    }
    n = sscanf(what, "%31s %31s %1s", word, value, rest);
    if (n < 1) {
        return fail(err, err_len, "'%s': want a fault behind the spine, as in 'spine 3 down'",
                    text);
    }
    kind = find_kind(word);
    if (kind < 0) {
        return fail(err, err_len, "'%s': unknown fault", word);
    }
    if (fault->at == FAB_AT_SPINE && !of_spines((enum fab_fault_kind)kind)) {
        return fail(err, err_len, "'%s': not a fault of a spine", word);
    }
    if (n > 2 || (n == 2 && kinds[kind].value == NO_VALUE)) {
        return fail(err, err_len, "'%s': unexpected after '%s'", n > 2 ? rest : value,
                    n > 2 ? value : word);
    }
    if (n == 1 && kinds[kind].value != NO_VALUE && kinds[kind].value != OPT_COUNT) {
        return fail(err, err_len, "'%s': needs a value: %s", word, value_words(kinds[kind].value));
    }
    fault->kind = kind;
    fault->value = kinds[kind].value == OPT_COUNT ? UINT32_MAX : 0;
    if (n == 2 && parse_value(kinds[kind].value, value, &fault->value)) {
        return fail(err, err_len, "'%s': not a value for '%s', which takes %s", value, word,
                    value_words(kinds[kind].value));
    }
    if (kinds[kind].value == PLACE && fault->host >= 0 && fault->nic >= 0 &&
        fault->value == fab_ports(fault->host, fault->nic)) {
        return fail(err, err_len, "'%s': a port's packets to itself do not leave it", value);
    }
    return 0;
}

bool fab_fault_fits(const struct fab_fault *fault, int hosts, int nics)
{
    bool far = kinds[fault->kind].value == PLACE;

    return fault->host < hosts && fault->nic < nics &&
           (!far ||
            ((fault->value >> 16) <= (uint64_t)hosts && (fault->value & 0xffff) <= (uint64_t)nics));
}

bool fab_fault_spine_fits(const struct fab_fault *fault, const struct fab_desc *d, char *err,
                          size_t err_len)
{
    int n = fab_spines(d);

    if (fault->at == FAB_AT_NIC || (n > 1 && fault->spine < n && fault->nic < d->nics)) {
        return true;
    }
    if (fault->nic >= d->nics) {
        fail(err, err_len, "no rail %d: the fabric has rails 0 to %d", fault->nic, d->nics - 1);
    } else if (n > 1) {
        fail(err, err_len, "no spine %d: each rail has spines 0 to %d", fault->spine, n - 1);
    } else if (fault->spine >= 0) {
        fail(err, err_len, "no spine %d: the fabric was made without spines", fault->spine);
    } else {
        fail(err, err_len, "no spines: the fabric was made without any");
    }
    return false;
}

bool fab_fault_other(const struct fab_fault *fault, struct fab_fault *other)
{
    uint64_t here = fab_ports(fault->host, fault->nic);

    *other = (struct fab_fault){.host = -1, .nic = -1, .kind = FAB_FAULT_HEAL, .value = here};
    if (fault->at == FAB_AT_SPINE) {
        return false;
    }
    if (fault->kind == FAB_FAULT_RESTORE) {
        return true;
    }
    if (fault->kind != FAB_FAULT_CUT && fault->kind != FAB_FAULT_HEAL) {
        return false;
    }
    other->kind = fault->kind;
    other->host = (int)(fault->value >> 16) - 1;
    other->nic = (int)(fault->value & 0xffff) - 1;
    return true;
}

bool fab_fault_moves(const struct fab_fault *fault, const struct fab_link *l)
{
    struct fab_link after = *l;

    if (fault->kind != FAB_FAULT_HEAL) {
        return true;
    }
    fab_link_fault(&after, fault, 0);
    return memcmp(after.cut, l->cut, sizeof after.cut) != 0;
}

static void ports_set(uint16_t mask[FAB_MAX_HOSTS], uint64_t ports, bool on)
{
    for (int h = 0; h < FAB_MAX_HOSTS; h++) {
        for (int n = 0; n < FAB_MAX_NICS; n++) {
            uint16_t bit = (uint16_t)(1u << n);

            if (fab_ports_has(ports, h, n)) {
                mask[h] = (uint16_t)(on ? mask[h] | bit : mask[h] & ~bit);
            }
        }
    }
}

void fab_link_fault(struct fab_link *l, const struct fab_fault *fault, uint64_t base_rate)
{
    switch (fault->kind) {
    case FAB_FAULT_DOWN:
        l->down = 1;
        break;
    case FAB_FAULT_UP:
        l->down = l->blackhole_tx = l->blackhole_rx = l->send_error = 0;
        break;
    case FAB_FAULT_BLACKHOLE:
        l->blackhole_tx = l->blackhole_rx = 1;
        break;
    case FAB_FAULT_BLACKHOLE_TX:
        l->blackhole_tx = 1;
        break;
    case FAB_FAULT_BLACKHOLE_RX:
        l->blackhole_rx = 1;
        break;
    case FAB_FAULT_LOSS:
        l->loss_ppm = (uint32_t)fault->value;
        break;
    case FAB_FAULT_CORRUPT:
        l->corrupt_ppm = (uint32_t)fault->value;
        break;
    case FAB_FAULT_DUP:
        l->dup_ppm = (uint32_t)fault->value;
        break;
    case FAB_FAULT_DELAY:
        l->delay_ns = fault->value;
        break;
    case FAB_FAULT_RATE:
        l->rate = fault->value;
        break;
    case FAB_FAULT_ACK_LOST:
        l->ack_lost = 1;
        break;
    case FAB_FAULT_SEND_ERROR:
        l->send_error = 1;
        break;
    case FAB_FAULT_CUT:
    case FAB_FAULT_CUT_TX:
    case FAB_FAULT_HEAL:
        ports_set(l->cut, fault->value, fault->kind != FAB_FAULT_HEAL);
        break;
    case FAB_FAULT_DELAY_TO:
        ports_set(l->late, fault->value, true);
        l->late_some = 1;
        break;
    case FAB_FAULT_RESTORE:
        *l = (struct fab_link){.rate = base_rate};
        break;
    default:
        break;
    }
}

uint64_t fab_link_delay(const struct fab_link *l, const struct fab_hdr *h)
{
    return fab_hdr_loops(h) || (l->late_some && !(l->late[h->dst.host] >> h->dst.nic & 1))
               ? 0
               : l->delay_ns;
}

bool fab_link_random(const struct fab_link *l)
{
    return l->loss_ppm || l->corrupt_ppm || l->dup_ppm;
}

/* The chances take disjoint digits of one random number, so that one draw serves all. */
static bool chance(uint64_t rnd, unsigned int part, uint32_t ppm)
{
    return ppm && (rnd >> (part * 21) & 0x1fffff) * 1000000ull >> 21 < ppm;
}

enum fab_fate fab_link_tx(const struct fab_link *l, const struct fab_hdr *h, uint64_t rnd)
{
    if (fab_hdr_loops(h)) {
        return l->down ? FAB_DROP : FAB_PASS;
    }
    if (l->down || l->blackhole_tx || (l->ack_lost && fab_hdr_response(h)) ||
        (l->cut[h->dst.host] >> h->dst.nic & 1)) {
        return FAB_DROP;
    }
    if (chance(rnd, 0, l->loss_ppm) || chance(rnd, 1, l->corrupt_ppm)) {
        return FAB_DROP;
    }
    return chance(rnd, 2, l->dup_ppm) ? FAB_TWICE : FAB_PASS;
}

enum fab_fate fab_link_rx(const struct fab_link *l, const struct fab_hdr *h, uint64_t rnd)
{
    if (fab_hdr_loops(h)) {
        return l->down ? FAB_DROP : FAB_PASS;
    }
    if (l->down || l->blackhole_rx) {
        return FAB_DROP;
    }
    return chance(rnd, 0, l->loss_ppm) || chance(rnd, 1, l->corrupt_ppm) ? FAB_DROP : FAB_PASS;
}

uint64_t fab_link_ns(uint64_t rate, uint32_t bytes)
{
    return rate ? ((uint64_t)bytes + FAB_WIRE_OVERHEAD) * 1000000000ull / rate : 0;
}
