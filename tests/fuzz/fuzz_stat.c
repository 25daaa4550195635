/*
 * The statistics file as r2_stat reads it: what a process of the same user, or a broken one, may
 * have written anywhere into it, at any length. Names of files, and lines of events from texts of
 * any kind.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plugin/base/r2_fnv.h"
#include "plugin/telemetry/r2_event.h"
#include "plugin/telemetry/r2_nic_history.h"
#include "plugin/telemetry/r2_stat_file.h"

#define CONNS 4 /* that the input writes */

static int fd = -1;

static void begin(void)
{
    fd = memfd_create("fuzz-stat", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0);
}

static void word_put(size_t at, uint64_t v)
{
    FUZZ_CHECK(pwrite(fd, &v, sizeof(v), (off_t)at) == sizeof(v));
}

/* A file that is right as far as it goes: so that what the input breaks is reached. */
static void prepare(void)
{
    FUZZ_CHECK(ftruncate(fd, 0) == 0 && ftruncate(fd, (off_t)R2_STAT_SIZE(CONNS)) == 0);
    word_put(0, R2_STAT_MAGIC);
    word_put(8, r2_stat_shape());
}

static void text_check(const char *text, size_t room)
{
    size_t n = strnlen(text, room);

    FUZZ_CHECK(n < room);
    for (size_t i = 0; i < n; i++) {
        FUZZ_CHECK(text[i] >= 0x20 && text[i] < 0x7f);
    }
}
#define TEXT_CHECK(field) text_check(field, sizeof(field))

static void nics_check(const struct r2_stat_view *v)
{
    FUZZ_CHECK(v->who.nics <= R2_STAT_NICS);
    for (uint32_t i = 0; i < v->who.nics; i++) {
        TEXT_CHECK(v->nic[i].name);
        TEXT_CHECK(v->nic[i].device);
        TEXT_CHECK(v->nic[i].pci);
        TEXT_CHECK(v->nic[i].why);
        TEXT_CHECK(v->nic[i].trouble);
        TEXT_CHECK(v->nic[i].blamed);
        FUZZ_CHECK(r2_stat_nic_state_name(v->nic[i].state) != NULL);
    }
}

static void conns_check(const struct r2_stat_view *v)
{
    FUZZ_CHECK(v->conns >= 0 && v->conns <= R2_STAT_CONNS);
    for (int i = 0; i < v->conns; i++) {
        const struct r2_stat_conn *c = &v->conn[i];

        FUZZ_CHECK(c->id != 0 && c->npaths <= R2_STAT_PATHS &&
                   (c->dev == 0 || c->dev < v->who.nics));
        TEXT_CHECK(c->peer_host);
        TEXT_CHECK(c->peer_addr);
        TEXT_CHECK(c->why);
        for (int p = 0; p < R2_STAT_PATHS; p++) {
            TEXT_CHECK(c->path[p].peer_name);
            FUZZ_CHECK((c->path[p].nic == 0 || c->path[p].nic < v->who.nics) &&
                       c->path[p].state < R2_STAT_PATH_STATES);
        }
    }
}

static void peers_check(const struct r2_stat_view *v)
{
    FUZZ_CHECK(v->who.peers <= R2_STAT_PEERS);
    for (uint32_t i = 0; i < v->who.peers; i++) {
        TEXT_CHECK(v->peer[i].host);
        TEXT_CHECK(v->peer[i].address);
        for (int s = 0; s < R2_BAND_SIZES; s++) {
            FUZZ_CHECK(v->peer[i].transfer[s].state < R2_BAND_STATES);
        }
    }
}

static void view_check(void)
{
    static struct r2_stat_view v;
    char why[128];

    if (r2_stat_read_fd(fd, "f", &v, why, sizeof(why)) != 1) {
        return;
    }
    TEXT_CHECK(v.who.command);
    TEXT_CHECK(v.who.host);
    TEXT_CHECK(v.who.version);
    TEXT_CHECK(v.who.scheduler);
    TEXT_CHECK(v.who.job);
    TEXT_CHECK(v.who.step);
    nics_check(&v);
    peers_check(&v);
    conns_check(&v);
    FUZZ_CHECK(v.events >= 0 && v.events <= R2_STAT_HISTORY);
    for (int i = 0; i < v.events; i++) {
        TEXT_CHECK(v.event[i].text);
        TEXT_CHECK(v.event[i].cause);
        FUZZ_CHECK(v.event[i].no != 0 && (i == 0 || v.event[i].no > v.event[i - 1].no));
    }
    r2_stat_view_free(&v);
}

static size_t place(struct fuzz_in *in)
{
    static const struct {
        size_t at, size;
        unsigned n;
    } part[] = {
        {R2_STAT_WHO_AT, R2_STAT_RECORD(struct r2_stat_who), 1},
        {R2_STAT_NICS_AT, R2_STAT_RECORD(struct r2_stat_nic), R2_STAT_NICS},
        {R2_STAT_HISTORY_AT, R2_STAT_RECORD(struct r2_stat_event), R2_STAT_HISTORY},
        {R2_STAT_CONNS_AT, R2_STAT_RECORD(struct r2_stat_conn), CONNS},
        {R2_STAT_PEERS_AT, R2_STAT_RECORD(struct r2_stat_peer), R2_STAT_PEERS},
    };
    unsigned k = fuzz_pick(in, 5);

    return part[k].at + (size_t)fuzz_pick(in, part[k].n) * part[k].size +
           8 * (size_t)fuzz_pick(in, (unsigned)(part[k].size / 8));
}

static void name_check(struct fuzz_in *in)
{
    char name[80], again[80];
    uint64_t unique;
    uid_t uid;

    fuzz_text(in, name, sizeof(name));
    if (r2_stat_name(name, &uid, &unique)) {
        snprintf(again, sizeof(again), "nccl-net-r2.%u.%016llx.stat", (unsigned)uid,
                 (unsigned long long)unique);
        FUZZ_CHECK(strcmp(name, again) == 0);
    }
}

/* A line is one line, of printable characters, whatever the texts are. */
static void line_check(struct fuzz_in *in)
{
    static struct r2_event_source src;
    struct r2_event e = r2_event_empty;
    char how[64], text[300], host[40], out[R2_EVENT_LINE];
    size_t room = fuzz_pick(in, sizeof(out)) + 1u, n;

    e.kind = (enum r2_event_kind)fuzz_pick(in, R2_EVENT_KINDS + 2);
    e.when_ns = fuzz_number(in);
    e.stall_us = (int64_t)fuzz_number(in);
    fuzz_text(in, src.host, sizeof(src.host));
    fuzz_text(in, src.job, sizeof(src.job));
    fuzz_text(in, how, sizeof(how));
    fuzz_text(in, text, sizeof(text));
    fuzz_text(in, host, sizeof(host));
    e.how = how;
    e.text = text;
    e.peer.host = host;
    e.nic.device = fuzz_u8(in) & 1 ? host : NULL;
    n = r2_event_line(out, room, &src, &e, 1);
    FUZZ_CHECK(n < room);
    for (size_t i = 0; i + 1 < n; i++) {
        FUZZ_CHECK(out[i] >= 0x20 && out[i] < 0x7f);
    }
    FUZZ_CHECK(n == 0 ||
               (out[0] == '{' && out[n - 2] == '}' && out[n - 1] == '\n' && out[n] == '\0'));
}

/* A line of a history, or some; @hour goes on, so that most lines are taken. */
static size_t nics_line_put(struct fuzz_in *in, char *out, size_t room, unsigned *hour)
{
    unsigned long long a, b;
    char raw[64];
    size_t n = 0;

    switch (fuzz_pick(in, 8)) {
    case 0:
        a = fuzz_number(in);
        b = fuzz_number(in);
        return (size_t)snprintf(out, room, "nic %016llx %u fab%u %llu\n", a, (unsigned)b,
                                fuzz_pick(in, 40), b);
    case 1:
        a = fuzz_number(in);
        return (size_t)snprintf(out, room, "job %08x %u\n", (unsigned)a, (unsigned)(a >> 32));
    case 2:
        a = fuzz_number(in);
        b = fuzz_number(in);
        return (size_t)snprintf(out, room, "hour %llu %u %llu %08x\n", a, fuzz_pick(in, 9), b,
                                (unsigned)b);
    case 3:
        fuzz_text(in, raw, sizeof(raw));
        return (size_t)snprintf(out, room, "%s\n", raw);
    case 4: /* as many as there may be, and one more */
        for (unsigned i = 24 + fuzz_pick(in, 26); i > 0; i--) {
            n += (size_t)snprintf(out + n, room - n, "hour %u 1 0 00000000\n", ++*hour);
        }
        return n;
    default:
        *hour += 1 + fuzz_pick(in, 30);
        a = fuzz_u8(in);
        return (size_t)snprintf(out, room, "hour %u %llu %u %08x\n", *hour, a & 7, (unsigned)a >> 3,
                                (unsigned)a * 0x01030709u);
    }
}

/* A history of NICs whose checksum is right, as a process of the same user may make it: what is
 * taken prints as it was taken, and lines that are no such are refused. */
static void nics_history_check(struct fuzz_in *in)
{
    static struct r2_nic_history h, again;
    static char text[R2_NIC_HISTORY_TEXT];
    struct r2_nic_judged j;
    unsigned hour = fuzz_pick(in, 4);
    size_t n = (size_t)snprintf(text, sizeof(text), "r2.nic-history/1\n");

    while (fuzz_more(in) && n < sizeof(text) - 4096 && fuzz_pick(in, 16) != 15) {
        n += nics_line_put(in, text + n, 4000, &hour);
    }
    n += (size_t)snprintf(text + n, sizeof(text) - n, "end %08x\n",
                          r2_fnv_add(R2_FNV_BASIS, text, n));
    if (r2_nic_history_parse(text, n, &h) != 0) {
        FUZZ_CHECK(h.nics == 0);
        return;
    }
    FUZZ_CHECK(h.nics <= R2_NIC_HISTORY_NICS);
    for (uint32_t i = 0; i < h.nics; i++) {
        const struct r2_nic_past *p = &h.nic[i];

        FUZZ_CHECK(p->hours <= R2_NIC_HISTORY_HOURS && p->jobs <= R2_NIC_HISTORY_JOBS);
        for (uint32_t k = 1; k < p->hours; k++) {
            FUZZ_CHECK(p->hour[k - 1].hour < p->hour[k].hour);
        }
        for (const char *c = p->name; *c; c++) {
            FUZZ_CHECK(*c > 0x20 && *c < 0x7f);
        }
        r2_nic_history_judge(p, fuzz_number(in), &j);
        FUZZ_CHECK(j.verdict < R2_NIC_VERDICTS);
    }
    /* jobs may have stood among hours: as many bytes */
    FUZZ_CHECK(r2_nic_history_print(&h, text, sizeof(text)) == n);
    FUZZ_CHECK(r2_nic_history_parse(text, n, &again) == 0 && memcmp(&h, &again, sizeof(h)) == 0);
    memset(&again, 0, sizeof(again));
    r2_nic_history_merge(&again, &h);
    FUZZ_CHECK(again.nics <= h.nics);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, data + size};

    if (fd < 0) {
        begin();
    }
    prepare();
    while (fuzz_more(&in)) {
        switch (fuzz_pick(&in, 9)) {
        case 0:
            view_check();
            break;
        case 1:
            name_check(&in);
            break;
        case 2:
            line_check(&in);
            break;
        case 3:
            FUZZ_CHECK(ftruncate(fd, (off_t)(fuzz_number(&in) % (R2_STAT_SIZE(CONNS) + 1))) == 0);
            break;
        case 4:
            word_put(fuzz_pick(&in, 3) * 8, fuzz_number(&in));
            break;
        case 5:
            nics_history_check(&in);
            break;
        default:
            word_put(place(&in), fuzz_number(&in));
            break;
        }
    }
    view_check();
    return 0;
}
