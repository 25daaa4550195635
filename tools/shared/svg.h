/*
 * Writes a picture as SVG, one element after the other. Pixels from the upper left corner; texts
 * are escaped, attributes and classes are not. Any thread, one at a time; blocks in writes only,
 * whose errors are the file's owner's to look for.
 */
#ifndef R2_TOOLS_SVG_H
#define R2_TOOLS_SVG_H

#include <stdio.h>

/* Pixels of a letter: the mean of a wide font of so many pixels. */
#define SVG_LETTER(size) (7.4 / 12 * (size))

/* @style: the style sheet. The ground is white. */
void svg_begin(FILE *f, double width, double height, const char *style);
void svg_end(FILE *f);
void svg_text(FILE *f, double x, double y, const char *class, const char *text);
/* The same, not wider than @width: what might be, depending on the font, is drawn that wide. @size:
 * the font's, pixels. */
void svg_text_fit(FILE *f, double x, double y, double width, double size, const char *class,
                  const char *text);
/* A text that is read from below. */
void svg_text_up(FILE *f, double x, double y, const char *class, const char *text);
/* Its corners are round. */
void svg_rect(FILE *f, double x, double y, double width, double height, const char *class);
void svg_line(FILE *f, double x0, double y0, double x1, double y1, const char *attributes);
/* Between them the caller writes the path's commands to @f. */
void svg_path_begin(FILE *f);
void svg_path_end(FILE *f, const char *attributes);

#endif
