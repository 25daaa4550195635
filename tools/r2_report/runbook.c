/* The runbook, as this version has it: the page needs no other file. Of Markdown it reads what
 * docs/runbook.md has: paragraphs, lists, code, strong words, links. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "tools/r2_report/page.h"

static const char *const lines[] = {
#include "runbook.inc"
    NULL};

/* Where the section of @code begins, behind its heading. NULL: nowhere. */
static const char *const *section_find(const char *code)
{
    char anchor[40] = "<a id=\"";
    size_t n = strlen(anchor);

    for (; *code && n < sizeof(anchor) - 8; code++) {
        anchor[n++] = (char)tolower((unsigned char)*code);
    }
    strcpy(anchor + n, "\"></a>");
    for (const char *const *p = lines; *p; p++) {
        if (strcmp(*p, anchor) == 0 && p[1]) {
            return p + 2;
        }
    }
    return NULL;
}

static void piece_put(FILE *f, const char *text, size_t n)
{
    char piece[1024];

    snprintf(piece, sizeof(piece), "%.*s", (int)n, text);
    page_text(f, piece);
}

/* What stands between two @mark, as @tag. The rest of the text; NULL: it is not that. */
static const char *marked_put(FILE *f, const char *text, const char *mark, const char *tag)
{
    size_t n = strlen(mark);
    const char *end = strncmp(text, mark, n) == 0 ? strstr(text + n, mark) : NULL;

    if (end == NULL) {
        return NULL;
    }
    fprintf(f, "<%s>", tag);
    piece_put(f, text + n, (size_t)(end - text) - n);
    fprintf(f, "</%s>", tag);
    return end + n;
}

static const char *link_put(FILE *f, const char *text)
{
    const char *middle = *text == '[' ? strstr(text, "](") : NULL;
    const char *end = middle ? strchr(middle, ')') : NULL;

    if (end == NULL) {
        return NULL;
    }
    piece_put(f, text + 1, (size_t)(middle - text) - 1);
    return end + 1;
}

static void inline_put(FILE *f, const char *text)
{
    while (*text) {
        const char *next = marked_put(f, text, "`", "code");

        next = next ? next : marked_put(f, text, "**", "strong");
        next = next ? next : link_put(f, text);
        if (next == NULL) {
            piece_put(f, text, 1);
            next = text + 1;
        }
        text = next;
    }
}

/* The block that begins at @p, its lines joined, into @out. The first line behind it. */
static const char *const *block_read(const char *const *p, char *out, size_t room)
{
    size_t n = 0;

    out[0] = '\0';
    do {
        const char *line = *p + strspn(*p, " ");

        n += (size_t)snprintf(out + n, n < room ? room - n : 0, "%s%s", n ? " " : "", line);
        n = n < room ? n : room - 1;
        p++;
    } while (*p && **p && strncmp(*p, "- ", 2) != 0 && strncmp(*p, "<a id", 5) != 0);
    return p;
}

int page_runbook(FILE *f, const char *code)
{
    const char *const *p = section_find(code);
    char block[4096];
    int list = 0;

    if (p == NULL) {
        return 0;
    }
    while (*p && strncmp(*p, "<a id", 5) != 0 && strncmp(*p, "## ", 3) != 0) {
        int item = strncmp(*p, "- ", 2) == 0;

        if (**p == '\0') {
            p++;
            continue;
        }
        p = block_read(p, block, sizeof(block));
        if (item != list) {
            fputs(item ? "<ul>\n" : "</ul>\n", f);
            list = item;
        }
        fputs(item ? "<li>" : "<p>", f);
        inline_put(f, block + (item ? 2 : 0));
        fputs(item ? "</li>\n" : "</p>\n", f);
    }
    fputs(list ? "</ul>\n" : "", f);
    return 1;
}
