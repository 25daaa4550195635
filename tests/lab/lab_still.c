#include "tests/lab/lab_still.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "tests/lab/lab_qmp.h"

#define LOOKS         5
#define LOOK_EVERY_MS 200

/* The word of @text that begins with @key, with its value; empty when there is none. */
static void word_find(const char *text, const char *key, char *out, size_t size)
{
    const char *p = strstr(text, key);

    snprintf(out, size, "%.*s", p != NULL ? (int)strcspn(p, " \r\n") : 0, p != NULL ? p : "");
}

static void cpu_print(struct lab_qmp *q)
{
    json_t *j = lab_qmp_call(q, "human-monitor-command",
                             json_pack("{s:s}", "command-line", "info registers"));
    const char *text = json_string_value(j);
    char place[48], level[16], halted[16];

    if (text != NULL) {
        word_find(text, "RIP=", place, sizeof(place));
        word_find(text, "CPL=", level, sizeof(level));
        word_find(text, "HLT=", halted, sizeof(halted));
        lab_complain("%s: CPU: %s %s %s", q->host, place, level, halted);
    }
    json_decref(j);
}

void lab_still_explain(const char *host)
{
    struct lab_qmp q;
    json_t *j;
    const char *status;
    int i;

    if (lab_qmp_open(&q, host) != 0) {
        return;
    }
    j = lab_qmp_call(&q, "query-status", NULL);
    status = json_string_value(json_object_get(j, "status"));
    lab_complain("%s: QEMU: %s", host, status != NULL ? status : "does not say");
    for (i = 0; i < LOOKS; i++) {
        cpu_print(&q);
        poll(NULL, 0, LOOK_EVERY_MS);
    }
    json_decref(j);
    lab_qmp_close(&q);
}
