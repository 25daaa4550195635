/*
 * A JSON writer: values in order, commas and nesting kept by it. @key is NULL inside a list. Any
 * thread, one at a time; blocks in writes only.
 */
#ifndef R2_PERF_JSON_H
#define R2_PERF_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct json {
    FILE *f;
    int depth;
    bool some[32]; /* by depth: something has been written at this level */
};

/* Write to @f, which stays the caller's. */
void json_init(struct json *j, FILE *f);
void json_object_start(struct json *j, const char *key);
void json_object_end(struct json *j);
void json_list_start(struct json *j, const char *key);
void json_list_end(struct json *j);
void json_text_put(struct json *j, const char *key, const char *text); /* NULL: null */
void json_int_put(struct json *j, const char *key, int64_t value);
void json_real_put(struct json *j, const char *key, double value); /* NaN: null */
void json_null_put(struct json *j, const char *key);
/* "true" or "false" as text, as nccl-tests writes them. */
void json_bool_put(struct json *j, const char *key, bool value);

#endif
