#include "plugin/base/r2_json.h"
#include "tools/r2_diag/tool.h"

static void known_put(struct r2_json *j, const char *key, double value)
{
    if (value > 0) {
        r2_json_real(j, key, value);
    } else {
        r2_json_null(j, key);
    }
}

/* What a cell has: its value, or null. */
static void ratio_put(struct r2_json *j, const struct diag_cell *c)
{
    known_put(j, NULL, c->judged ? c->ratio : 0);
}

static void time_put(struct r2_json *j, const struct diag_cell *c)
{
    known_put(j, NULL, c->ns);
}

static void p99_put(struct r2_json *j, const struct diag_cell *c)
{
    known_put(j, NULL, c->ns_p99);
}

static void times_put(struct r2_json *j, const struct diag_cell *c)
{
    r2_json_uint(j, NULL, c->times);
}

static void mark_put(struct r2_json *j, const struct diag_cell *c)
{
    static const char *const name[] = {NULL, "cell", "row", "column"};

    r2_json_text(j, NULL, name[c->mark]);
}

static void matrix_put(struct r2_json *j, const char *key, const struct diag_matrix *m,
                       void (*put)(struct r2_json *j, const struct diag_cell *c))
{
    r2_json_open(j, key, '[');
    for (int s = 0; s < m->n; s++) {
        r2_json_open(j, NULL, '[');
        for (int d = 0; d < m->n; d++) {
            put(j, &m->cell[s * m->n + d]);
        }
        r2_json_close(j, ']');
    }
    r2_json_close(j, ']');
}

static void size_put(struct r2_json *j, const struct diag *d, unsigned size)
{
    static const char *const link[DIAG_LINKS] = {"rail", "cross", "host"};
    const struct diag_verdict *v = &d->v[size];

    r2_json_open(j, NULL, '{');
    r2_json_text(j, "size", figures_size_name(d->by, size));
    r2_json_text(j, "state", diag_state_name(v->state));
    r2_json_open(j, "usual_ns", '{');
    for (int l = 0; l < DIAG_LINKS; l++) {
        known_put(j, link[l], v->usual_ns[l]);
    }
    r2_json_close(j, '}');
    known_put(j, "limit", v->judged ? v->limit : 0);
    r2_json_int(j, "figures", v->figures);
    r2_json_int(j, "judged", v->judged);
    r2_json_int(j, "thin", v->thin);
    r2_json_int(j, "slow_in_no_order", v->slow);
    matrix_put(j, "p50_ns", d->m[size], time_put);
    matrix_put(j, "p99_ns", d->m[size], p99_put);
    matrix_put(j, "times", d->m[size], times_put);
    matrix_put(j, "ratio", d->m[size], ratio_put);
    matrix_put(j, "mark", d->m[size], mark_put);
    r2_json_close(j, '}');
}

static void place_put(struct r2_json *j, const char *key, const struct diag *d, int place)
{
    r2_json_text(j, key, place >= 0 ? d->f->by[d->by].place[place].name : NULL);
}

static void finding_put(struct r2_json *j, const struct diag *d, const struct said *s)
{
    char text[SENTENCE];

    r2_json_open(j, NULL, '{');
    r2_json_text(j, "kind", diag_kind_name(s->f.kind));
    place_put(j, "source", d, s->f.source);
    place_put(j, "destination", d, s->f.destination);
    r2_json_bool(j, "both_ways", s->f.both_ways);
    r2_json_real(j, "ratio", s->f.ratio);
    r2_json_int(j, "figures", s->f.cells);
    r2_json_open(j, "sizes", '[');
    for (unsigned k = 0; k < FIGURES_SIZES; k++) {
        if (s->sizes >> k & 1) {
            r2_json_text(j, NULL, figures_size_name(d->by, k));
        }
    }
    r2_json_close(j, ']');
    r2_json_text(j, "text", diag_sentence(d, s, text));
    r2_json_close(j, '}');
}

static void sources_put(struct r2_json *j, const struct diag *d)
{
    const struct figures_set *hosts = &d->f->by[FIGURES_HOST];

    r2_json_open(j, "missing", '[');
    for (int i = 0; i < hosts->places; i++) {
        if (!hosts->place[i].is_read) {
            r2_json_text(j, NULL, hosts->place[i].name);
        }
    }
    r2_json_close(j, ']');
    r2_json_open(j, "not_read", '[');
    for (int i = 0; i < d->unreads; i++) {
        r2_json_open(j, NULL, '{');
        r2_json_text(j, "source", d->unread[i].name);
        r2_json_text(j, "why", d->unread[i].why);
        r2_json_close(j, '}');
    }
    r2_json_close(j, ']');
    r2_json_int(j, "processes", d->f->processes);
    r2_json_int(j, "figures_stale", d->f->stale);
    r2_json_int(j, "connections_over_several_nics", d->f->spread);
    r2_json_int(j, "peers_not_listed", d->f->hidden);
}

void json_write(FILE *f, const struct diag *d)
{
    const struct figures_set *set = &d->f->by[d->by];
    struct r2_json j;

    r2_json_begin_file(&j, f);
    r2_json_open(&j, NULL, '{');
    r2_json_text(&j, "schema", "r2.diag/1");
    r2_json_text(&j, "job", d->f->job[0] ? d->f->job : NULL);
    r2_json_text(&j, "by", d->by == FIGURES_NIC ? "nic" : "host");
    r2_json_text(&j, "state", diag_state_name(d->state));
    sources_put(&j, d);
    r2_json_open(&j, "places", '[');
    for (int i = 0; i < set->places; i++) {
        r2_json_text(&j, NULL, set->place[i].name);
    }
    r2_json_close(&j, ']');
    r2_json_open(&j, "findings", '[');
    for (int i = 0; i < d->saids; i++) {
        finding_put(&j, d, &d->said[i]);
    }
    r2_json_close(&j, ']');
    r2_json_open(&j, "sizes", '[');
    for (unsigned s = 0; s < FIGURES_SIZES; s++) {
        if (d->m[s]) {
            size_put(&j, d, s);
        }
    }
    r2_json_close(&j, ']');
    r2_json_close(&j, '}');
    fputc('\n', f);
}
