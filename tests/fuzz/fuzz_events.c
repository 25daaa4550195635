/*
 * Lines of events as r2_report reads them: of any text, and of right ones with anything in their
 * fields. The input is those lines. Spans lie within the story, and the page is well-formed with
 * nothing in it that is not the page's own: each tag is one that it uses, and closed.
 */
#include "fuzz.h"

#include "tools/shared/json_in.c"
#include "tools/r2_report/page.c"
#include "tools/r2_report/page_time.c"
#include "tools/r2_report/page_traffic.c"
#include "tools/r2_report/story.c"
#include "tools/r2_report/story_less.c"
#include "tools/r2_report/story_line.c"
#include "tools/r2_report/story_rate.c"
#include "tools/shared/svg.c"

/* The runbook is not what is asked here (runbook.c). */
int page_runbook(FILE *f, const char *code)
{
    (void)f;
    return code[0] == 'x';
}

static const char *const tags[] = {
    "html", "head",    "meta",    "title", "style",  "body",  "h1",   "h2", "h3", "p",
    "code", "ul",      "li",      "span",  "strong", "table", "tr",   "th", "td", "br",
    "div",  "details", "summary", "svg",   "rect",   "text",  "line", "g",  NULL};

static int tag_find(const char *p, size_t n)
{
    for (int i = 0; tags[i]; i++) {
        if (strlen(tags[i]) == n && strncmp(tags[i], p, n) == 0) {
            return i;
        }
    }
    printf("no tag of the page's: %.40s\n", p);
    abort();
}

/* Ends the process where a tag is not closed, or not the page's, or a byte is none of its own. */
static void page_check(const char *p)
{
    int open[64], depth = 0;

    p = strchr(p, '\n'); /* behind the document's type */
    for (; *p; p++) {
        int is_end = p[0] == '<' && p[1] == '/';
        size_t n;

        if (((unsigned char)*p < 0x20 && *p != '\n') || (unsigned char)*p > 0x7e) {
            printf("byte %u\n", (unsigned char)*p);
            abort();
        }
        if (*p != '<') {
            continue;
        }
        p += 1 + is_end;
        n = strspn(p, "abcdefghijklmnopqrstuvwxyz123");
        if (is_end && (depth == 0 || open[--depth] != tag_find(p, n))) {
            printf("closed, and not open: %.40s\n", p);
            abort();
        }
        if (!is_end) {
            open[depth++] = tag_find(p, n);
        }
        p += strcspn(p, ">");
        depth -= !is_end && p[-1] == '/';
        if (*p == '\0' || depth == 64) {
            abort();
        }
    }
    if (depth != 0) {
        printf("%d tags are open at the end\n", depth);
        abort();
    }
}

static void story_check(const struct story *s)
{
    for (int i = 0; i < s->nics; i++) {
        for (int k = 0; k < s->nic[i].spans; k++) {
            const struct story_span *span = &s->nic[i].span[k];

            if (span->from < s->from || span->to < span->from || span->to > s->to) {
                printf("a span from %llu to %llu\n", (unsigned long long)span->from,
                       (unsigned long long)span->to);
                abort();
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), *rest = text, *line, *page = NULL;
    struct story s = {0};
    size_t len = 0;
    FILE *f;

    memcpy(text, data, size);
    text[size] = '\0';
    while ((line = strsep(&rest, "\n")) != NULL) {
        if (story_line_add(&s, line, NULL) != 0) {
            abort();
        }
    }
    if (story_tell(&s) != 0) {
        abort();
    }
    story_check(&s);
    f = open_memstream(&page, &len);
    if (f == NULL) {
        abort();
    }
    page_write(f, &s, 1, &text);
    fclose(f);
    page_check(page);
    free(page);
    story_free(&s);
    free(text);
    return 0;
}
