/* The matrix: rows are what was broken, columns what was said. */
#include "tests/matrix/matrix.h"

#include <stdio.h>

enum mx_judgement mx_tally_add(struct mx_tally *t, const struct mx_case *c, int proc,
                               const struct mx_verdict *v)
{
    enum mx_judgement j = mx_judge(c, v);

    t->said[proc][v->blame]++;
    t->right += j == MX_RIGHT;
    t->wrong += j == MX_WRONG;
    t->wrong_place += j == MX_WRONG && v->blame == mx_case_blame(c);
    t->knows[proc] |= j == MX_RIGHT;
    t->undecided[proc] += j == MX_CANNOT_TELL;
    if (t->knows[proc]) { /* of another pair perhaps, and in whatever order: who reads its log has
                             the answer */
        t->revised += t->undecided[proc];
        t->undecided[proc] = 0;
    }
    return j;
}

void mx_tally_sum(const struct mx_tally *t, const struct mx_case *c, unsigned speaks,
                  unsigned informed, uint64_t first, uint64_t last, struct mx_sums *s)
{
    int broken = mx_case_blame(c) != MX_NOTHING, any = 0;
    enum mx_kind k = c->kind;

    s->cases[k]++;
    s->wrong[k] += (uint64_t)t->wrong;
    s->wrong_place[k] += (uint64_t)t->wrong_place;
    s->revised[k] += mx_case_can_tell(c) ? (uint64_t)t->revised : 0;
    for (int i = 0; i < c->hosts; i++) {
        int n = 0;

        s->unknown_though_known[k] += mx_case_can_tell(c) ? (uint64_t)t->undecided[i] : 0;
        for (int b = 0; b < MX_BLAMES; b++) {
            s->cell[k][b] += (uint64_t)t->said[i][b];
            n += t->said[i][b];
        }
        s->cell[k][MX_NOTHING] += n == 0 && (speaks >> i & 1);
        any += n;
    }
    s->silent[k] += broken && any == 0 && (k != MX_SPINE || c->met);
    s->missed[k] += broken && t->right == 0 && mx_case_can_tell(c);
    if (first == 0) {
        return;
    }
    s->not_informed[k] += k == MX_SPINE ? 0 : (unsigned)__builtin_popcount(speaks & ~informed);
    s->timed[k]++;
    s->first_ns[k] += first;
    s->first_max[k] = first > s->first_max[k] ? first : s->first_max[k];
    s->last_ns[k] += last;
    s->last_max[k] = last > s->last_max[k] ? last : s->last_max[k];
}

void mx_sums_add(struct mx_sums *to, const struct mx_sums *s)
{
    for (int k = 0; k < MX_KINDS; k++) {
        to->cases[k] += s->cases[k];
        for (int b = 0; b < MX_BLAMES; b++) {
            to->cell[k][b] += s->cell[k][b];
        }
        to->wrong[k] += s->wrong[k];
        to->wrong_place[k] += s->wrong_place[k];
        to->unknown_though_known[k] += s->unknown_though_known[k];
        to->revised[k] += s->revised[k];
        to->silent[k] += s->silent[k];
        to->missed[k] += s->missed[k];
        to->not_informed[k] += s->not_informed[k];
        to->stayed[k] += s->stayed[k];
        to->timed[k] += s->timed[k];
        to->first_ns[k] += s->first_ns[k];
        to->first_max[k] = s->first_max[k] > to->first_max[k] ? s->first_max[k] : to->first_max[k];
        to->last_ns[k] += s->last_ns[k];
        to->last_max[k] = s->last_max[k] > to->last_max[k] ? s->last_max[k] : to->last_max[k];
    }
}

static double mean_ms(uint64_t sum, uint64_t n)
{
    return n ? (double)sum / (double)n / 1e6 : 0;
}

static void row_print(const struct mx_sums *s, int k, FILE *out)
{
    fprintf(out, "%-18s %5llu |", mx_kind_name((enum mx_kind)k), (unsigned long long)s->cases[k]);
    for (int b = 0; b < MX_BLAMES; b++) {
        fprintf(out, " %7llu", (unsigned long long)s->cell[k][b]);
    }
    fprintf(out, " | %5llu %8llu %7llu %6llu %6llu %8llu %6llu", (unsigned long long)s->wrong[k],
            (unsigned long long)s->unknown_though_known[k], (unsigned long long)s->revised[k],
            (unsigned long long)s->silent[k], (unsigned long long)s->missed[k],
            (unsigned long long)s->not_informed[k], (unsigned long long)s->stayed[k]);
    if (s->timed[k]) {
        fprintf(out, " | %6.0f %6.0f  %6.0f %6.0f", mean_ms(s->first_ns[k], s->timed[k]),
                (double)s->first_max[k] / 1e6, mean_ms(s->last_ns[k], s->timed[k]),
                (double)s->last_max[k] / 1e6);
    }
    fprintf(out, "\n");
}

void mx_table_print(const struct mx_sums *s, FILE *out)
{
    fprintf(out, "%-18s %5s |", "broken", "cases");
    for (int b = 0; b < MX_BLAMES; b++) {
        fprintf(out, " %7s", mx_blame_name((enum mx_blame)b));
    }
    fprintf(out, " | %5s %8s %7s %6s %6s %8s %6s | %13s  %13s\n", "wrong", "unknown*", "revised",
            "silent", "missed", "not told", "stayed", "first, ms max", "last, ms max");
    for (int k = 0; k < MX_KINDS; k++) {
        if (s->cases[k]) {
            row_print(s, k, out);
        }
    }
    fprintf(
        out,
        "columns: what processes blamed, \"nothing\": one that gave no verdict. unknown*: though somebody could "
        "tell, and left so; revised: the same\n"
        "process said it as well. silent: nobody gave one; missed: nobody gave the right one though somebody could. not "
        "told: processes that did not hear of it. stayed: cases\n"
        "that were mended, and somebody stayed blamed, or paths down. first: fault to first verdict; last: until the last process knew\n");
}

uint64_t mx_sums_bad_of(const struct mx_sums *s, enum mx_kind k)
{
    return s->wrong[k] + s->silent[k] + s->missed[k] + s->unknown_though_known[k] +
           s->not_informed[k] + s->stayed[k];
}

uint64_t mx_sums_bad(const struct mx_sums *s)
{
    uint64_t bad = 0;

    for (int k = 0; k < MX_KINDS; k++) {
        bad += mx_sums_bad_of(s, (enum mx_kind)k);
    }
    return bad;
}

const char *mx_sums_worse(const struct mx_sums *s, const struct mx_sums *before, enum mx_kind k)
{
    return s->wrong[k] != before->wrong[k]                                 ? "wrong"
           : s->silent[k] != before->silent[k]                             ? "silent"
           : s->missed[k] != before->missed[k]                             ? "missed"
           : s->unknown_though_known[k] != before->unknown_though_known[k] ? "undecided"
           : s->not_informed[k] != before->not_informed[k]                 ? "not told"
           : s->stayed[k] != before->stayed[k]                             ? "stayed"
                                                                           : NULL;
}

int mx_table_json(const struct mx_sums *s, const struct mx_opts *o, FILE *out)
{
    int first = 1;

    fprintf(
        out,
        "{\"schema\": \"r2-matrix-1\", \"hosts\": %d, \"nics\": %d, \"spines\": %d, \"crossrail\": %s, \"from\": %llu, \"seeds\": %llu,\n \"confusion\": [",
        o->hosts, o->nics, o->spines, o->crossrail ? "true" : "false", (unsigned long long)o->from,
        (unsigned long long)o->seeds);
    for (int k = 0; k < MX_KINDS; k++) {
        if (s->cases[k] == 0) {
            continue;
        }
        fprintf(out, "%s\n  {\"broken\": \"%s\", \"cases\": %llu", first ? "" : ",",
                mx_kind_name((enum mx_kind)k), (unsigned long long)s->cases[k]);
        first = 0;
        for (int b = 0; b < MX_BLAMES; b++) {
            fprintf(out, ", \"%s\": %llu", mx_blame_name((enum mx_blame)b),
                    (unsigned long long)s->cell[k][b]);
        }
        fprintf(
            out,
            ", \"wrong\": %llu, \"wrong_place\": %llu, \"unknown_though_known\": %llu, \"silent\": %llu, "
            "\"missed\": %llu, \"not_informed\": %llu, \"revised\": %llu, \"stayed\": %llu",
            (unsigned long long)s->wrong[k], (unsigned long long)s->wrong_place[k],
            (unsigned long long)s->unknown_though_known[k], (unsigned long long)s->silent[k],
            (unsigned long long)s->missed[k], (unsigned long long)s->not_informed[k],
            (unsigned long long)s->revised[k], (unsigned long long)s->stayed[k]);
        if (s->timed[k]) {
            fprintf(
                out,
                ", \"first_ms\": %.1f, \"first_max_ms\": %.1f, \"last_ms\": %.1f, \"last_max_ms\": %.1f",
                mean_ms(s->first_ns[k], s->timed[k]), (double)s->first_max[k] / 1e6,
                mean_ms(s->last_ns[k], s->timed[k]), (double)s->last_max[k] / 1e6);
        }
        fprintf(out, "}");
    }
    fprintf(out, "\n ]}\n");
    return ferror(out) ? -1 : 0;
}
