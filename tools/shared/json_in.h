/* Reads a line of JSON without keeping a tree of it. Pure; any thread. */
#ifndef R2_TOOLS_JSON_IN_H
#define R2_TOOLS_JSON_IN_H

#define JSON_IN_TEXT 1024 /* bytes of a value that are kept; the rest of it is passed over */
#define JSON_IN_PATH 128

/*
 * A value that is neither object nor array: the keys that lead to it, joined by dots ("nic.device";
 * elements of an array have the array's), and what it is as text: a string without its escapes, a
 * number, true, false or null as they stand.
 */
typedef void (*json_in_take_t)(void *arg, const char *path, const char *text);

/* Hands each value of the object @line to @take, in order. 0; -1: it is no JSON object, and @take
 * may have had a part of it. */
int json_in_walk(const char *line, json_in_take_t take, void *arg);

#endif
