#include <string.h>

#include "tools/shared/sources.h"

static void schema_look(void *arg, const char *path, const char *text)
{
    if (strcmp(path, "schema") == 0) {
        *(int *)arg = strcmp(text, "r2.stat/1") == 0;
    }
}

int sources_json_walk(const char *text, json_in_take_t take, void *arg)
{
    int is_stat = 0;

    /* Of an answer that is cut short nothing is taken: the first pass is for that, too. */
    return json_in_walk(text, schema_look, &is_stat) != 0 || !is_stat
               ? -1
               : json_in_walk(text, take, arg);
}
