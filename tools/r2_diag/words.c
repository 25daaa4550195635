/* What findings are called, over all sizes of transfers. */
#include <stdio.h>
#include <string.h>

#include "tools/r2_diag/tool.h"

/* --- over all sizes --- */

static int is_same(const struct diag_finding *a, const struct diag_finding *b)
{
    return a->kind == b->kind && a->source == b->source && a->destination == b->destination;
}

static int is_open(unsigned kind)
{
    return kind == DIAG_EITHER || kind == DIAG_SOURCE_OR_LINK || kind == DIAG_DESTINATION_OR_LINK;
}

/* Whether @by, which is certain, is what @f leaves open, or is a part of. */
static int is_covered(const struct diag_finding *f, const struct diag_finding *by)
{
    if (is_open(by->kind)) {
        return 0;
    }
    if (by->kind == DIAG_LINK) {
        return is_open(f->kind) &&
               ((f->source == by->source && f->destination == by->destination) ||
                (by->both_ways && f->source == by->destination && f->destination == by->source));
    }
    if (by->kind == DIAG_PLACE && ((f->kind == DIAG_SOURCE && f->source == by->source) ||
                                   (f->kind == DIAG_DESTINATION && f->destination == by->source))) {
        return 1;
    }
    return is_open(f->kind) && ((by->source >= 0 && f->source == by->source) ||
                                (by->destination >= 0 && f->destination == by->destination));
}

static void said_add(struct diag *d, const struct diag_finding *f, unsigned size)
{
    for (int i = 0; i < d->saids; i++) {
        struct said *s = &d->said[i];

        if (is_same(&s->f, f)) {
            s->sizes |= 1u << size;
            s->f.both_ways |= f->both_ways;
            if (f->ratio > s->f.ratio) {
                s->f.ratio = f->ratio;
                s->f.cells = f->cells;
            }
            return;
        }
    }
    d->said[d->saids++] = (struct said){.f = *f, .sizes = 1u << size};
}

static void saids_fill(struct diag *d)
{
    int n = 0;

    for (unsigned s = 0; s < FIGURES_SIZES; s++) {
        for (int i = 0; i < d->v[s].findings; i++) {
            said_add(d, &d->v[s].finding[i], s);
        }
    }
    for (int i = 0; i < d->saids; i++) {
        int covered = 0;

        for (int k = 0; k < d->saids && !covered; k++) {
            covered = k != i && is_covered(&d->said[i].f, &d->said[k].f);
        }
        d->said[i].sizes = covered ? 0 : d->said[i].sizes;
    }
    for (int i = 0; i < d->saids; i++) {
        if (d->said[i].sizes) {
            d->said[n++] = d->said[i];
        }
    }
    d->saids = n;
}

/* The size with a finding that is most slow; else that of which most is known. */
static unsigned size_choose(const struct diag *d)
{
    unsigned best = 0;
    double most = -1;

    for (unsigned s = 0; s < FIGURES_SIZES; s++) {
        double worth = d->m[s] ? d->v[s].judged + 1e-3 * d->v[s].thin : -1;

        for (int i = 0; i < d->v[s].findings; i++) {
            worth += 1e9 * d->v[s].finding[i].ratio;
        }
        if (worth > most) {
            most = worth;
            best = s;
        }
    }
    return best;
}

int diag_fill(struct diag *d, const struct figures *f, enum figures_by by, unsigned size)
{
    static const int worth[DIAG_STATES] = {
        [DIAG_FEW] = 0, [DIAG_CLEAN] = 1, [DIAG_UNCLEAR] = 2, [DIAG_FOUND] = 3};

    memset(d, 0, sizeof(*d));
    d->f = f;
    d->by = by;
    for (unsigned s = 0; figures_size_name(by, s); s++) {
        if (size != FIGURES_SIZES && size != s) {
            continue;
        }
        d->m[s] = figures_matrix(f, by, s);
        if (d->m[s] == NULL) {
            diag_free(d);
            return -1;
        }
        diag_judge(d->m[s], &d->v[s]);
        d->state = worth[d->v[s].state] > worth[d->state] ? d->v[s].state : d->state;
        if (d->v[s].judged == 0 && d->v[s].thin == 0 && size != s) {
            diag_matrix_free(d->m[s]);
            d->m[s] = NULL;
        }
    }
    saids_fill(d);
    d->shown = size_choose(d);
    return 0;
}

void diag_free(struct diag *d)
{
    for (unsigned s = 0; s < FIGURES_SIZES; s++) {
        diag_matrix_free(d->m[s]);
        d->m[s] = NULL;
    }
}

int diag_missing(const struct diag *d)
{
    const struct figures_set *set = &d->f->by[FIGURES_HOST];
    int n = 0;

    for (int i = 0; i < set->places; i++) {
        n += !set->place[i].is_read;
    }
    return n;
}

/* --- words --- */

const char *diag_time(double ns, char *out, size_t room)
{
    if (ns < 1e6) {
        snprintf(out, room, "%.1f us", ns / 1e3);
    } else if (ns < 1e9) {
        snprintf(out, room, "%.*f ms", ns < 1e7 ? 2 : 1, ns / 1e6);
    } else {
        snprintf(out, room, "%.2f s", ns / 1e9);
    }
    return out;
}

static const char *name_of(const struct diag *d, int place)
{
    return place >= 0 ? d->f->by[d->by].place[place].name : "all";
}

static void sizes_text(const struct diag *d, unsigned sizes, char *out, size_t room)
{
    size_t n = 0;

    out[0] = '\0';
    for (unsigned s = 0; s < FIGURES_SIZES; s++) {
        if (sizes >> s & 1 && n < room) {
            n += (size_t)snprintf(out + n, room - n, "%s%s", n ? ", " : "",
                                  figures_size_name(d->by, s));
        }
    }
}

const char *diag_sentence(const struct diag *d, const struct said *s, char out[SENTENCE])
{
    const char *from = name_of(d, s->f.source), *to = name_of(d, s->f.destination);
    char sizes[64], slow[120];

    sizes_text(d, s->sizes, sizes, sizeof(sizes));
    snprintf(slow, sizeof(slow), "%.1f times the usual time (size %s)", s->f.ratio, sizes);
    switch (s->f.kind) {
    case DIAG_PLACE:
        snprintf(out, SENTENCE,
                 "%s is slow both ways: what it sends, and what is sent to it, takes "
                 "%s, by %d figures",
                 from, slow, s->f.cells);
        break;
    case DIAG_SOURCE:
        snprintf(out, SENTENCE,
                 "%s is slow as a source: what it sends takes %s, by %d figures; "
                 "its destinations are well for others",
                 from, slow, s->f.cells);
        break;
    case DIAG_DESTINATION:
        snprintf(out, SENTENCE,
                 "%s is slow as a destination: what is sent to it takes %s, by %d "
                 "figures; its sources are well towards others",
                 to, slow, s->f.cells);
        break;
    case DIAG_LINK:
        snprintf(out, SENTENCE,
                 "the link %s %s %s %s is slow%s: %s; both ends are well towards "
                 "others",
                 s->f.both_ways ? "between" : "from", from, s->f.both_ways ? "and" : "to", to,
                 s->f.both_ways ? " in both directions, or late in one" : "", slow);
        break;
    case DIAG_SOURCE_OR_LINK:
        snprintf(out, SENTENCE,
                 "%s is slow as a source, or its link to %s: %s; %s is well for "
                 "others, and %s is seen with nobody else",
                 from, to, slow, to, from);
        break;
    case DIAG_DESTINATION_OR_LINK:
        snprintf(out, SENTENCE,
                 "%s is slow as a destination, or the link from %s to it: %s; %s is "
                 "well towards others, and %s is seen with nobody else",
                 to, from, slow, from, to);
        break;
    default:
        snprintf(out, SENTENCE,
                 "%s or %s is slow, or the link between them: %s from %s to %s; "
                 "neither is seen with others that are well, as in a ring",
                 from, to, slow, from, to);
    }
    return out;
}

const char *diag_summary(const struct diag *d, char out[SENTENCE])
{
    const struct diag_verdict *v = &d->v[d->shown];
    const char *what = d->by == FIGURES_NIC ? "NICs" : "hosts";

    switch (v->state) {
    case DIAG_FEW:
        snprintf(out, SENTENCE,
                 "too little is known to judge: %d figures, %d of fewer than %d times, where %d "
                 "from %d sources are needed",
                 v->figures, v->thin, DIAG_TIMES, DIAG_CELLS, DIAG_ROWS);
        break;
    case DIAG_CLEAN:
        snprintf(out, SENTENCE,
                 "nothing is slow: none of %d figures between %d %s is %.1f times "
                 "the usual",
                 v->judged, d->f->by[d->by].places, what, v->limit);
        break;
    case DIAG_UNCLEAR:
        snprintf(out, SENTENCE,
                 "%d of %d figures are well above the usual, in no order that a source, a "
                 "destination or a link explains: none is named",
                 v->slow, v->judged);
        break;
    default:
        snprintf(out, SENTENCE,
                 "slow is what takes %.1f times the usual, of %d figures between %d "
                 "%s",
                 v->limit, v->judged, d->f->by[d->by].places, what);
    }
    return out;
}
