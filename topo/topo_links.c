#include "topo_links.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANY     (-1)
#define MISSING (-2)
#define WRONG   (-3)

struct line {
    char word[5][32];
    int words;
};

/* -1: too many words, or one that is too long. */
static int line_split(const char *text, size_t len, struct line *l)
{
    l->words = 0;
    for (size_t i = 0; i < len;) {
        size_t n = 0;

        while (i < len && (text[i] == ' ' || text[i] == '\t' || text[i] == '\r')) {
            i++;
        }
        if (i == len || text[i] == '#') {
            break;
        }
        while (i + n < len && strchr(" \t\r#", text[i + n]) == NULL) {
            n++;
        }
        if (l->words == 5 || n >= sizeof(l->word[0])) {
            return -1;
        }
        memcpy(l->word[l->words], text + i, n);
        l->word[l->words++][n] = '\0';
        i += n;
    }
    return 0;
}

static int gpu_named(const struct topo *t, const char *word)
{
    uint8_t bus, dev, fn;
    uint32_t domain;
    size_t n;
    int pci;

    if (strcmp(word, "*") == 0) {
        return ANY;
    }
    n = topo_bdf_parse(word, &domain, &bus, &dev, &fn);
    if (n == 0 || word[n] != '\0') {
        return WRONG;
    }
    pci = topo_pci_find(t, domain, bus, dev, fn);
    for (int g = 0; g < t->gpus && pci >= 0; g++) {
        if (t->gpu[g].pci == pci) {
            return g;
        }
    }
    return MISSING;
}

static bool mbps_parse(const char *word, uint32_t *mbps)
{
    char *end;
    unsigned long v;

    if (word[0] < '0' || word[0] > '9') {
        return false;
    }
    v = strtoul(word, &end, 10);
    *mbps = (uint32_t)v;
    return *end == '\0' && v > 0 && v <= TOPO_MBPS_MAX;
}

static bool matches(int named, int gpu)
{
    return named == ANY || named == gpu;
}

static const char *line_apply(struct topo *t, const struct line *l)
{
    bool nvlink = l->words == 4 && strcmp(l->word[0], "nvlink") == 0;
    bool c2c = l->words == 3 && strcmp(l->word[0], "c2c") == 0;
    uint32_t mbps;
    int a, b;

    if (!nvlink && !c2c) {
        return "neither 'nvlink GPU GPU MBPS' nor 'c2c GPU MBPS'";
    }
    a = gpu_named(t, l->word[1]);
    b = nvlink ? gpu_named(t, l->word[2]) : ANY;
    if (a == WRONG || b == WRONG) {
        return "a GPU is a PCI address such as 0000:1b:00.0, or *";
    }
    if (!mbps_parse(l->word[l->words - 1], &mbps)) {
        return "the capacity is no number of Mb/s from 1 to 8388608";
    }
    for (int i = 0; i < t->gpus; i++) {
        if (c2c && matches(a, i)) {
            t->gpu[i].c2c_mbps = mbps;
        }
        for (int k = 0; k < t->gpus && nvlink; k++) {
            if (i != k && ((matches(a, i) && matches(b, k)) || (matches(a, k) && matches(b, i)))) {
                t->nvlink_mbps[i][k] = mbps;
            }
        }
    }
    return NULL;
}

int topo_links_apply(struct topo *t, const char *text, char *why, size_t why_len)
{
    struct topo made = *t;
    struct line l;

    for (int number = 1; *text; number++) {
        size_t len = strcspn(text, "\n");
        const char *wrong = line_split(text, len, &l) != 0 ? "too many or too long words" : NULL;

        if (wrong == NULL && l.words > 0) {
            wrong = line_apply(&made, &l);
        }
        if (wrong != NULL) {
            snprintf(why, why_len, "%s, line %d: %s", TOPO_LINKS_FILE, number, wrong);
            return -1;
        }
        text += len + (text[len] == '\n');
    }
    made.unknown &= (uint16_t)~TOPO_NO_NVLINK; /* the file tells of all links there are */
    *t = made;
    return 0;
}
