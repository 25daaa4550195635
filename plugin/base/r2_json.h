/*
 * A JSON writer into a bounded buffer: escape and print, no allocation. For events; untrusted JSON
 * is never parsed in a job. Pure.
 *
 * Values are written in order, commas are kept by the writer. @key is NULL inside a list. What does
 * not fit makes the whole text void.
 */
#ifndef R2_JSON_H
#define R2_JSON_H

#include <stddef.h>
#include <stdint.h>

struct r2_json {
    char *out;
    size_t room, n;
    uint8_t comma; /* a value stands before the next one */
    uint8_t over;  /* it did not fit */
};

void r2_json_begin(struct r2_json *j, char *out, size_t room);
/* @bracket is '{' or '['. */
void r2_json_open(struct r2_json *j, const char *key, char bracket);
void r2_json_close(struct r2_json *j, char bracket); /* '}' or ']' */
/* NULL: null. Control characters are escaped; what is not ASCII becomes '?', since nobody knows its
 * encoding. */
void r2_json_text(struct r2_json *j, const char *key, const char *text);
void r2_json_int(struct r2_json *j, const char *key, int64_t value);
void r2_json_uint(struct r2_json *j, const char *key, uint64_t value);
void r2_json_null(struct r2_json *j, const char *key);
/* Ends the text with a zero; its length, 0 when it did not fit. */
size_t r2_json_end(struct r2_json *j);

#endif
