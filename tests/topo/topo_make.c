#include "tests/topo/topo_make.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *file;
static int line_number;

void make_fail(const char *fmt, ...)
{
    va_list ap;

    fprintf(stderr, "topo_make: ");
    if (file != NULL) {
        fprintf(stderr, "%s, line %d: ", file, line_number);
    }
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(1);
}

static void text_set(char *out, size_t len, const char *text)
{
    if (strlen(text) >= len) {
        make_fail("'%s' is too long", text);
    }
    strcpy(out, text);
}

static void rates_set(struct make_item *it, const char *text)
{
    char *end;

    for (it->ports = 0; it->ports < MAKE_PORTS;) {
        it->rate[it->ports++] = strtod(text, &end);
        if (end == text || (*end != ',' && *end != '\0')) {
            break;
        }
        if (*end == '\0') {
            return;
        }
        text = end + 1;
    }
    make_fail("a NIC has 1 to %d rates, not '%s'", MAKE_PORTS, text);
}

static void option_set(struct make_item *it, char *word)
{
    char *value = strchr(word, '=');

    if (value == NULL) {
        make_fail("'%s' is no KEY=VALUE", word);
    }
    *value++ = '\0';
    if (strcmp(word, "node") == 0) {
        it->node = atoi(value);
    } else if (strcmp(word, "link") == 0) {
        text_set(it->cur, sizeof(it->cur), value), text_set(it->max, sizeof(it->max), value);
    } else if (strcmp(word, "max") == 0) {
        text_set(it->max, sizeof(it->max), value);
    } else if (strcmp(word, "name") == 0) {
        text_set(it->name, sizeof(it->name), value);
    } else if (strcmp(word, "guid") == 0) {
        text_set(it->guid, sizeof(it->guid), value);
    } else if (strcmp(word, "layer") == 0) {
        text_set(it->layer, sizeof(it->layer), value);
    } else if (strcmp(word, "state") == 0) {
        it->state = (unsigned)atoi(value);
    } else if (strcmp(word, "rate") == 0) {
        rates_set(it, value);
    } else if (strcmp(word, "class") == 0) {
        it->class = (unsigned)strtoul(value, NULL, 16);
    } else if (strcmp(word, "id") == 0 && sscanf(value, "%4x:%4x", &it->vendor, &it->device) == 2) {
        return;
    } else {
        make_fail("unknown %s=%s", word, value);
    }
}

static int kind_of(const char *word)
{
    static const char *const kinds[] = {"root", "bridge", "gpu", "nic", "other"};

    for (int i = 0; i < 5; i++) {
        if (strcmp(word, kinds[i]) == 0) {
            return i;
        }
    }
    return -1;
}

/* What a kind of device is when nothing else is said. */
static void item_begin(struct make_item *it, enum make_kind kind, const char *place)
{
    static const unsigned ids[][3] = {[MAKE_BRIDGE] = {0x1000, 0xc030, 0x060400},
                                      [MAKE_GPU] = {0x10de, 0x2330, 0x030200},
                                      [MAKE_NIC] = {0x15b3, 0x1021, 0x020700},
                                      [MAKE_OTHER] = {0x144d, 0xa80a, 0x010802}};
    int n = 0;

    *it = (struct make_item){.kind = kind, .parent = -1, .state = 4, .layer = "InfiniBand"};
    it->vendor = ids[kind == MAKE_ROOT ? MAKE_OTHER : kind][0];
    it->device = ids[kind == MAKE_ROOT ? MAKE_OTHER : kind][1];
    it->class = ids[kind == MAKE_ROOT ? MAKE_OTHER : kind][2];
    if (kind == MAKE_ROOT) {
        if (sscanf(place, "%8x:%2x%n", &it->domain, &it->bus, &n) != 2 || place[n]) {
            make_fail("a root bus is DDDD:BB, not '%s'", place);
        }
        snprintf(it->place, sizeof(it->place), "pci%s", place);
    } else {
        if (sscanf(place, "%8x:%2x:%2x.%1x%n", &it->domain, &it->bus, &it->dev, &it->fn, &n) != 4 ||
            place[n]) {
            make_fail("an address is DDDD:BB:DD.F, not '%s'", place);
        }
        text_set(it->place, sizeof(it->place), place);
    }
}

static void item_read(struct make_machine *m, int depth, int kind, char *rest)
{
    static int above[32];
    struct make_item *it = &m->item[m->items];
    char *word = strtok(rest, " \t");

    if (m->items == MAKE_ITEMS || depth >= 32 || word == NULL) {
        make_fail("too many lines, too deep, or no address");
    }
    if ((kind == MAKE_ROOT) != (depth == 0)) {
        make_fail("a root bus begins a line, everything else stands below one");
    }
    item_begin(it, (enum make_kind)kind, word);
    if (depth > 0) {
        it->parent = above[depth - 1];
        it->node = m->item[it->parent].node;
    }
    above[depth] = m->items++;
    for (int d = depth + 1; d < 32; d++) {
        above[d] = -1;
    }
    if (depth > 0 && it->parent < 0) {
        make_fail("nothing is above this line");
    }
    while ((word = strtok(NULL, " \t")) != NULL) {
        option_set(it, word);
    }
    if (kind == MAKE_NIC && (it->name[0] == '\0' || it->ports == 0)) {
        make_fail("a nic needs name= and rate=");
    }
}

static void host_read(struct make_machine *m, const char *word, const char *rest)
{
    int used = 0;

    if (strcmp(word, "cpu") == 0) {
        if (sscanf(rest, "%31s %31s %31s", m->cpu[0], m->cpu[1], m->cpu[2]) != 3) {
            make_fail("cpu VENDOR FAMILY MODEL");
        }
    } else if (strcmp(word, "node") == 0) {
        struct make_node *n = &m->node[m->nodes++];

        if (m->nodes == 64 || sscanf(rest, "%d socket %d%n", &n->id, &n->socket, &used) < 2) {
            make_fail("node ID socket ID [memory]");
        }
        n->memory_only = strstr(rest + used, "memory") != NULL;
    } else if (strcmp(word, "links") == 0) {
        size_t len = strlen(m->links);

        if (snprintf(m->links + len, sizeof(m->links) - len, "%s\n", rest) >=
            (int)(sizeof(m->links) - len)) {
            make_fail("too many links");
        }
    } else {
        make_fail("unknown word '%s'", word);
    }
}

void make_read(const char *path, struct make_machine *m)
{
    char line[512], word[32];
    FILE *f = fopen(path, "r");

    if (f == NULL) {
        make_fail("%s: %s", path, strerror(errno));
    }
    memset(m, 0, sizeof(*m));
    file = path;
    for (line_number = 1; fgets(line, sizeof(line), f) != NULL; line_number++) {
        size_t indent = strspn(line, " ");
        int used = 0;

        line[strcspn(line, "#\n")] = '\0';
        if (sscanf(line, "%31s %n", word, &used) != 1) {
            continue;
        }
        if (kind_of(word) >= 0) {
            item_read(m, (int)(indent / 2), kind_of(word), line + used);
        } else {
            host_read(m, word, line + used);
        }
    }
    fclose(f);
    file = NULL;
}

int main(int argc, char **argv)
{
    static struct make_machine m;

    if (argc != 3) {
        make_fail("usage: topo_make MACHINE DIR");
    }
    make_read(argv[1], &m);
    make_write(&m, argv[2]);
    return 0;
}
