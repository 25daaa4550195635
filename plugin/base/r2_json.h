/*
 * A JSON writer, into a bounded buffer or a file: escape and print, no allocation. For events and
 * tools; untrusted JSON is never parsed in a job. Pure, but for writes to a file.
 *
 * Values are written in order, commas are kept by the writer. @key is NULL inside a list. What does
 * not fit makes the whole text void; errors of a file are its owner's to look for.
 */
#ifndef R2_JSON_H
#define R2_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct r2_json {
    FILE *f; /* NULL: @out */
    char *out;
    size_t room, n;
    uint8_t comma; /* a value stands before the next one */
    uint8_t over;  /* it did not fit */
};

void r2_json_begin(struct r2_json *j, char *out, size_t room);
/* @f stays the caller's. Blocks in writes. */
void r2_json_begin_file(struct r2_json *j, FILE *f);
/* @bracket is '{' or '['. */
void r2_json_open(struct r2_json *j, const char *key, char bracket);
void r2_json_close(struct r2_json *j, char bracket); /* '}' or ']' */
/* NULL: null. Control characters are escaped; what is not ASCII becomes '?' in a buffer, since
 * nobody knows its encoding, and stays in a file. */
void r2_json_text(struct r2_json *j, const char *key, const char *text);
void r2_json_int(struct r2_json *j, const char *key, int64_t value);
void r2_json_uint(struct r2_json *j, const char *key, uint64_t value);
/* Negative: nobody knows it, null. */
void r2_json_known(struct r2_json *j, const char *key, int64_t value);
void r2_json_real(struct r2_json *j, const char *key, double value); /* NaN, infinite: null */
void r2_json_bool(struct r2_json *j, const char *key, bool value);
void r2_json_null(struct r2_json *j, const char *key);
/* Nanoseconds of CLOCK_REALTIME as UTC by ISO 8601, with @digits of the second, 3 or 9. */
void r2_json_time(struct r2_json *j, const char *key, uint64_t ns, int digits);
/* As "fe80:0000:...", all eight groups. */
void r2_json_gid(struct r2_json *j, const char *key, const uint8_t gid[16]);
/* Ends a buffer's text with a zero; its length, 0 when it did not fit. */
size_t r2_json_end(struct r2_json *j);

#endif
