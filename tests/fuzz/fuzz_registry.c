/*
 * The registry of a host and the drain files: what another process of the same user may have
 * written anywhere into the slots, at any moment between two of ours, and what an administrator may
 * have typed.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <unistd.h>

#include "plugin/base/r2_host_registry.h"
#include "plugin/base/r2_rundir.h"

#define SLOTS      3 /* that the input writes; the first is our own */
#define SLOT       8192
#define HEADER     4096
#define MAX_EVENTS (R2_HOST_REGISTRY_SLOTS * R2_HOST_REGISTRY_EVENTS)

static char dir[64], path[128];
static struct r2_host_registry *own, *other, *tool;
static int fd;

static void begin(void)
{
    const struct r2_host_registry_who me = {.command = "fuzz", .host = "h", .pid = 1, .since = 1};
    char why[600];

    snprintf(dir, sizeof(dir), "/tmp/r2-fuzz-registry-XXXXXX");
    FUZZ_CHECK(mkdtemp(dir) != NULL &&
               r2_host_registry_path(dir, geteuid(), path, sizeof(path)) == 0);
    own = r2_host_registry_open(dir, &me, why, sizeof(why));
    other = r2_host_registry_open(dir, &me, why, sizeof(why));
    tool = r2_host_registry_attach(dir, geteuid(), why, sizeof(why));
    fd = open(path, O_RDWR | O_CLOEXEC);
    FUZZ_CHECK(own && other && tool && fd >= 0);
    FUZZ_CHECK(unlink(path) == 0 &&
               rmdir(dir) ==
                   0); /* it has no name any more: nothing stays, however this process ends */
}

static void text_check(const char *text, size_t room)
{
    size_t n = strnlen(text, room);

    FUZZ_CHECK(n < room);
    for (size_t i = 0; i < n; i++) {
        FUZZ_CHECK(text[i] >= 0x20 && text[i] < 0x7f);
    }
}

static void event_check(const struct r2_host_registry_event *e)
{
    FUZZ_CHECK(e->kind > R2_HOST_REGISTRY_NONE && e->kind < R2_HOST_REGISTRY_KINDS &&
               r2_host_registry_kind_name(e->kind)[0] != '?');
}

static void events_read(struct r2_host_registry *b)
{
    struct r2_host_registry_event e;
    struct r2_host_registry_who who;

    for (int n = 0; r2_host_registry_next(b, &e, &who); n++) {
        FUZZ_CHECK(n < MAX_EVENTS);
        event_check(&e);
        text_check(who.command, sizeof(who.command));
        text_check(who.host, sizeof(who.host));
    }
}

static void rows(void)
{
    struct r2_host_registry_event list[R2_HOST_REGISTRY_EVENTS];
    struct r2_host_registry_flow flow;
    struct r2_host_registry_room room;
    struct r2_host_registry_nic nic;
    struct r2_host_registry_who who;

    for (int i = 0; i < SLOTS; i++) {
        int n = r2_host_registry_slot_events(tool, i, list);

        FUZZ_CHECK(n >= 0 && n <= R2_HOST_REGISTRY_EVENTS);
        for (int k = 0; k < n; k++) {
            event_check(&list[k]);
        }
        if (r2_host_registry_slot(tool, i, &who)) {
            FUZZ_CHECK(i < 2); /* the third one's lock is held by nobody */
            FUZZ_CHECK(r2_host_registry_slot_alive(tool, i));
            text_check(who.command, sizeof(who.command));
        }
        r2_host_registry_slot_room(tool, i, &room);
        for (int k = 0; k < R2_HOST_REGISTRY_NICS; k++) {
            r2_host_registry_slot_nic(tool, i, k, &nic);
            text_check(nic.name, sizeof(nic.name));
            FUZZ_CHECK(!r2_host_registry_slot_flow(tool, i, k, &flow) || flow.conns > 0);
        }
    }
}

static void scribble(struct fuzz_in *in)
{
    uint64_t v = fuzz_number(in);
    off_t at = HEADER + (off_t)fuzz_pick(in, SLOTS) * SLOT + (off_t)fuzz_pick(in, SLOT / 8) * 8;

    FUZZ_CHECK(pwrite(fd, &v, sizeof(v), at) == sizeof(v));
}

static void post(struct fuzz_in *in, struct r2_host_registry *b)
{
    struct r2_host_registry_event e = {
        .kind = (enum r2_host_registry_kind)(1 + fuzz_pick(in, R2_HOST_REGISTRY_KINDS - 1)),
        .guid = fuzz_number(in),
        .port = fuzz_u8(in),
        .lid = (uint16_t)fuzz_get(in, 2),
        .when = fuzz_number(in)};

    r2_host_registry_post(b, &e);
}

/* The same bytes as a file of commands. */
static void words(const char *text, size_t len, enum r2_rundir_kind kind)
{
    struct r2_rundir_command word[R2_RUNDIR_NAMES];
    char why[64];
    int n = r2_rundir_commands_parse(text, len, kind, word, why, sizeof(why));

    FUZZ_CHECK(n >= -1 && n <= R2_RUNDIR_NAMES);
    FUZZ_CHECK(n >= 0 || strnlen(why, sizeof(why)) < sizeof(why));
    for (int i = 0; i < n; i++) {
        FUZZ_CHECK(word[i].number != 0 &&
                   strnlen(word[i].name, sizeof(word[i].name)) < sizeof(word[i].name));
        FUZZ_CHECK(word[i].ms <= (kind == R2_RUNDIR_REHEARSE ? R2_RUNDIR_REHEARSE_MS : 0));
        FUZZ_CHECK((kind == R2_RUNDIR_FAILBACK && strcmp(word[i].name, "*") == 0) ||
                   strpbrk(word[i].name, "=^,* \t") == NULL);
    }
}

static void names(struct fuzz_in *in)
{
    char list[300], why[64], note[R2_RUNDIR_NOTE];
    size_t room = 1 + fuzz_pick(in, sizeof(list) - 1);
    const uint8_t *at;
    size_t n = fuzz_bytes(in, 256, &at);
    static const char allowed[] =
        "=,abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:";

    memset(list, 1, sizeof(list));
    r2_rundir_drain_note(at ? (const char *)at : "", n, "fab0", note, sizeof(note));
    if (r2_rundir_drain_parse(at ? (const char *)at : "", n, list, room, why, sizeof(why)) == 0) {
        FUZZ_CHECK(strnlen(list, room) < room && strspn(list, allowed) == strlen(list));
        FUZZ_CHECK(list[0] == '\0' || list[0] == '=');
    } else {
        FUZZ_CHECK(strnlen(why, sizeof(why)) < sizeof(why));
    }
    for (size_t i = room; i < sizeof(list); i++) {
        FUZZ_CHECK(list[i] == 1);
    }
    words(at ? (const char *)at : "", n, R2_RUNDIR_FAILBACK);
    words(at ? (const char *)at : "", n, R2_RUNDIR_REHEARSE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, data + size};
    static const uint8_t zero[SLOT];

    if (own == NULL) {
        begin();
    }
    for (int i = 0; i < SLOTS; i++) {
        FUZZ_CHECK(pwrite(fd, zero, SLOT, HEADER + i * SLOT) == SLOT);
    }
    while (fuzz_more(&in)) {
        switch (fuzz_pick(&in, 8)) {
        case 0:
            post(&in, own);
            break;
        case 1:
            post(&in, other);
            break;
        case 2:
            events_read(own);
            break;
        case 3:
            events_read(tool);
            break;
        case 4:
            rows();
            break;
        case 5:
            names(&in);
            break;
        default:
            scribble(&in);
            break;
        }
    }
    events_read(own);
    events_read(other);
    rows();
    return 0;
}
