#include "tools/shared/svg.h"

#include <string.h>

void svg_begin(FILE *f, double width, double height, const char *style)
{
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
            "viewBox=\"0 0 %.0f %.0f\">\n<style>%s</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            width, height, width, height, style);
}

void svg_end(FILE *f)
{
    fputs("</svg>\n", f);
}

/* The rest of an element whose attributes of place are written. */
static void text_finish(FILE *f, const char *class, const char *text)
{
    fprintf(f, " class=\"%s\">", class);
    for (; *text; text++) {
        if (*text == '<' || *text == '>' || *text == '&') {
            fputs(*text == '<' ? "&lt;" : *text == '>' ? "&gt;" : "&amp;", f);
        } else {
            fputc((unsigned char)*text < 0x20 ? ' ' : *text, f);
        }
    }
    fputs("</text>\n", f);
}

void svg_text(FILE *f, double x, double y, const char *class, const char *text)
{
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\"", x, y);
    text_finish(f, class, text);
}

void svg_text_fit(FILE *f, double x, double y, double width, double size, const char *class,
                  const char *text)
{
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\"", x, y);
    if ((double)strlen(text) * SVG_LETTER(size) > width) {
        fprintf(f, " textLength=\"%.0f\" lengthAdjust=\"spacingAndGlyphs\"", width);
    }
    text_finish(f, class, text);
}

void svg_text_up(FILE *f, double x, double y, const char *class, const char *text)
{
    fprintf(f, "<text transform=\"translate(%.1f %.1f) rotate(-90)\"", x, y);
    text_finish(f, class, text);
}

void svg_rect(FILE *f, double x, double y, double width, double height, const char *class)
{
    fprintf(f,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"5\" class=\"%s\"/>\n",
            x, y, width, height, class);
}

void svg_line(FILE *f, double x0, double y0, double x1, double y1, const char *attributes)
{
    fprintf(f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x0, y0, x1, y1,
            attributes);
}

void svg_path_begin(FILE *f)
{
    fputs("<path d=\"", f);
}

void svg_path_end(FILE *f, const char *attributes)
{
    fprintf(f, "\" %s/>\n", attributes);
}
