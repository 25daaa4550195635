#include "topo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void topo_clear(struct topo *t)
{
    memset(t, 0, sizeof(*t));
    t->abi = TOPO_ABI;
    t->size = sizeof(*t);
}

int topo_root_add(struct topo *t, uint32_t domain, uint8_t bus)
{
    for (int i = 0; i < t->roots; i++) {
        if (t->root[i].domain == domain && t->root[i].bus == bus) {
            return i;
        }
    }
    if (t->roots == TOPO_ROOTS_MAX) {
        t->unknown |= TOPO_CUT;
        return -1;
    }
    t->root[t->roots] = (struct topo_root){.domain = domain, .bus = bus, .numa = -1};
    return t->roots++;
}

int topo_pci_find(const struct topo *t, uint32_t domain, uint8_t bus, uint8_t dev, uint8_t fn)
{
    for (int i = 0; i < t->pcis; i++) {
        const struct topo_pci *p = &t->pci[i];

        if (p->domain == domain && p->bus == bus && p->dev == dev && p->fn == fn) {
            return i;
        }
    }
    return -1;
}

int topo_pci_add(struct topo *t, uint32_t domain, uint8_t bus, uint8_t dev, uint8_t fn)
{
    int i = topo_pci_find(t, domain, bus, dev, fn);

    if (i >= 0) {
        return i;
    }
    if (t->pcis == TOPO_PCI_MAX) {
        t->unknown |= TOPO_CUT;
        return -1;
    }
    t->pci[t->pcis] = (struct topo_pci){
        .domain = domain, .bus = bus, .dev = dev, .fn = fn, .parent = -1, .root = -1, .numa = -1};
    return t->pcis++;
}

int topo_numa_add(struct topo *t, int id, int socket)
{
    for (int i = 0; i < t->numas; i++) {
        if (t->numa[i].id == id) {
            return i;
        }
    }
    if (t->numas == TOPO_NUMA_MAX) {
        t->unknown |= TOPO_CUT;
        return -1;
    }
    t->numa[t->numas] = (struct topo_numa){.id = id, .socket = socket, .socket_index = -1};
    return t->numas++;
}

/* Names go into logs, JSON and SVG, and come from directories. */
static bool name_is_fit(const char *name)
{
    size_t n = strnlen(name, TOPO_NAME);

    if (n == 0 || n == TOPO_NAME) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (name[i] <= 0x20 || name[i] >= 0x7f || strchr("/\"\\<>&", name[i]) != NULL) {
            return false;
        }
    }
    return true;
}

struct topo_nic *topo_nic_add(struct topo *t, const char *name, unsigned port)
{
    struct topo_nic *n;

    if (!name_is_fit(name) || port == 0 || port > 254) {
        t->unknown |= TOPO_BAD;
        return NULL;
    }
    if (t->nics == TOPO_NICS_MAX) {
        t->unknown |= TOPO_CUT;
        return NULL;
    }
    n = &t->nic[t->nics++];
    *n = (struct topo_nic){.port = (uint8_t)port, .pci = -1};
    memcpy(n->name, name, strlen(name));
    return n;
}

int topo_gpu_add(struct topo *t, int pci)
{
    for (int i = 0; i < t->gpus; i++) {
        if (t->gpu[i].pci == pci) {
            return i;
        }
    }
    if (t->gpus == TOPO_GPUS_MAX) {
        t->unknown |= TOPO_CUT;
        return -1;
    }
    t->gpu[t->gpus] = (struct topo_gpu){.pci = (int16_t)pci};
    return t->gpus++;
}

/* @min to @max hexadecimal digits; returns how many there were, 0 for a wrong number. */
static size_t hex_parse(const char *text, size_t min, size_t max, uint32_t *value)
{
    size_t n = 0;

    *value = 0;
    for (; n < max; n++) {
        char c = text[n];
        uint32_t d;

        if (c >= '0' && c <= '9') {
            d = (uint32_t)(c - '0');
        } else if (c >= 'a' && c <= 'f') {
            d = (uint32_t)(c - 'a' + 10);
        } else if (c >= 'A' && c <= 'F') {
            d = (uint32_t)(c - 'A' + 10);
        } else {
            break;
        }
        *value = *value << 4 | d;
    }
    return n >= min ? n : 0;
}

size_t topo_bdf_parse(const char *text, uint32_t *domain, uint8_t *bus, uint8_t *dev, uint8_t *fn)
{
    uint32_t b, d, f;
    size_t n = hex_parse(text, 4, 8, domain);

    if (n == 0 || text[n] != ':' || hex_parse(text + n + 1, 2, 2, &b) == 0 || text[n + 3] != ':' ||
        hex_parse(text + n + 4, 2, 2, &d) == 0 || d > 31 || text[n + 6] != '.' ||
        hex_parse(text + n + 7, 1, 1, &f) == 0 || f > 7) {
        return 0;
    }
    *bus = (uint8_t)b;
    *dev = (uint8_t)d;
    *fn = (uint8_t)f;
    return n + 8;
}

uint32_t topo_link_mbps(unsigned gts10, unsigned width)
{
    static const struct {
        unsigned gts10, mbps;
    } lanes[] = {{25, 1500}, {50, 3000}, {80, 6000}, {160, 12000}, {320, 24000}, {640, 48000}};

    if (width == 0 || width > 32 || ((width & (width - 1)) != 0 && width != 12)) {
        return 0;
    }
    for (size_t i = 0; i < sizeof(lanes) / sizeof(lanes[0]); i++) {
        if (lanes[i].gts10 == gts10) {
            return lanes[i].mbps * width;
        }
    }
    return 0;
}

bool topo_is_gpu(uint32_t class, uint16_t vendor)
{
    return vendor == 0x10de && (class >> 8 == 0x0300 || class >> 8 == 0x0302);
}

char *topo_bdf_text(const struct topo_pci *p, char *out)
{
    snprintf(out, TOPO_BDF, "%04x:%02x:%02x.%x", p->domain, p->bus, p->dev & 31u, p->fn & 7u);
    return out;
}

const char *topo_state_name(unsigned state)
{
    static const char *const names[] = {"unknown", "down", "init", "armed", "active"};

    return state < sizeof(names) / sizeof(names[0]) ? names[state] : "unknown";
}

const char *topo_cpu_name(unsigned cpu)
{
    static const char *const names[] = {"unknown", "Intel", "AMD", "Zhaoxin", "Arm", "POWER"};

    return cpu < sizeof(names) / sizeof(names[0]) ? names[cpu] : "unknown";
}

const char *topo_unknown_text(unsigned bit)
{
    switch (bit) {
    case TOPO_NO_NVLINK:
        return "links between GPUs (sysfs does not tell; /etc/nccl-net-r2/links may)";
    case TOPO_NO_MAX_LINK:
        return "what PCI links could do: present speeds are shown, and an idle GPU lowers its own";
    case TOPO_NO_RATE:
        return "the rate of a NIC port";
    case TOPO_NO_NUMA:
        return "the NUMA node of a NIC or GPU";
    case TOPO_NO_CPU:
        return "what goes between sockets: the CPU model";
    case TOPO_NO_LINK:
        return "the PCI link of a NIC or GPU";
    case TOPO_CUT:
        return "some devices: there are more than this program takes";
    case TOPO_BAD:
        return "something that had contents which make no sense";
    default:
        return NULL;
    }
}

int topo_socket_of(const struct topo *t, int numa)
{
    return numa >= 0 && numa < t->numas ? t->numa[numa].socket_index : -1;
}

/*
 * A port that is down says what it does without a partner. Unknown would be no limit, and the port
 * the best of all where PCI is faster than ports; the slowest of the others promises no more than
 * they do. ib_open.c guesses alike for verbs.
 */
uint32_t topo_nic_mbps(const struct topo *t, int nic)
{
    uint32_t slowest = 0;

    if (t->nic[nic].state != TOPO_STATE_DOWN) {
        return t->nic[nic].rate_mbps;
    }
    for (int i = 0; i < t->nics; i++) {
        uint32_t rate = t->nic[i].state != TOPO_STATE_DOWN ? t->nic[i].rate_mbps : 0;

        if (rate != 0 && (slowest == 0 || rate < slowest)) {
            slowest = rate;
        }
    }
    return slowest;
}
