#include "ib_hca.h"

#include <stdio.h>
#include <string.h>

#define HCA_NUMBER_MAX 65535

/* A whole non-negative number of @len characters, "" or "-1" (both -1). -1 on anything else. */
static int number_parse(const char *text, size_t len, int *out)
{
    int v = 0;

    *out = -1;
    if (len == 0 || (len == 2 && memcmp(text, "-1", 2) == 0)) {
        return 0;
    }
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return -1;
        }
        v = v * 10 + (text[i] - '0');
        if (v > HCA_NUMBER_MAX) {
            return -1;
        }
    }
    *out = v;
    return 0;
}

/* One entry of @len characters; NULL, or what is wrong with it. */
static const char *entry_parse(struct ib_hca_entry *e, const char *text, size_t len)
{
    static const char *const faults[] = {"the port is not a number", "the rail is not a number",
                                         "the plane is not a number"};
    int *const fields[] = {&e->port, &e->rail, &e->plane};
    const char *end = text + len;
    size_t n = strcspn(text, ":,");

    e->port = e->rail = e->plane = -1;
    if (n >= sizeof(e->name)) {
        return "the name is too long";
    }
    memcpy(e->name, text, n);
    e->name[n] = '\0';
    text += n;
    for (int i = 0; text < end; i++) {
        if (i == 3) {
            return "it has more than four fields";
        }
        text++; /* the colon */
        n = strcspn(text, ":,");
        if (number_parse(text, n, fields[i]) != 0) {
            return faults[i];
        }
        text += n;
    }
    return NULL;
}

int ib_hca_parse(struct ib_hca_filter *f, const char *spec, char *why, size_t why_len)
{
    const char *s = spec, *fault;

    memset(f, 0, sizeof(*f));
    if (*s == '^') {
        f->exclude = 1;
        s++;
    }
    if (*s == '=') {
        f->exact = 1;
        s++;
    }
    while (*s != '\0') {
        size_t len = strcspn(s, ",");
        if (len > 0 && s[0] != ':') {
            fault = f->count == IB_HCA_MAX ? "the list is too long"
                                           : entry_parse(&f->entry[f->count], s, len);
            if (fault != NULL) {
                snprintf(why, why_len, "'%.*s': %s; expected name[:port[:rail[:plane]]]",
                         (int)(len < 80 ? len : 80), s, fault);
                memset(f, 0, sizeof(*f));
                return -1;
            }
            f->count++;
        }
        s += len;
        if (*s == ',') {
            s++;
        }
    }
    return 0;
}

static int entry_match(const struct ib_hca_filter *f, const struct ib_hca_entry *e,
                       const char *name, int port)
{
    if (e->port >= 0 && e->port != port) {
        return 0;
    }
    return f->exact ? strcmp(e->name, name) == 0 : strncmp(e->name, name, strlen(e->name)) == 0;
}

int ib_hca_rank(const struct ib_hca_filter *f, const char *name, int port)
{
    for (int i = 0; i < f->count; i++) {
        if (entry_match(f, &f->entry[i], name, port)) {
            return i;
        }
    }
    return -1;
}

int ib_hca_match(const struct ib_hca_filter *f, const char *name, int port, int *rail)
{
    int i = ib_hca_rank(f, name, port);
    int listed = f->count == 0 || i >= 0;

    if (rail != NULL) {
        *rail = i >= 0 && !f->exclude ? f->entry[i].rail : -1;
    }
    return f->exclude ? !listed : listed;
}
