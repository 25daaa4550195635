/* What a line of the plugin's log says. Pure. */
#include "tests/matrix/matrix.h"

#include <string.h>

/* The text behind " KEY=", up to the next space; NULL: not there. */
static const char *value_of(const char *line, const char *key, char *out, size_t len)
{
    size_t n = strlen(key);

    for (const char *p = strchr(line, ' '); p; p = strchr(p + 1, ' ')) {
        if (strncmp(p + 1, key, n) == 0 && p[1 + n] == '=') {
            snprintf(out, len, "%.*s", (int)strcspn(p + 2 + n, " "), p + 2 + n);
            return out;
        }
    }
    return NULL;
}

/* "h2" and "fab1/1" or "fab1" as numbers; -1: something else. */
static int number_of(const char *text, const char *prefix)
{
    int v = -1, n = 0;
    size_t len = strlen(prefix);

    if (text == NULL || strncmp(text, prefix, len) != 0 ||
        sscanf(text + len, "%3d%n", &v, &n) != 1) {
        return -1;
    }
    return text[len + (size_t)n] == '\0' || text[len + (size_t)n] == '/' ? v : -1;
}

/* The code says which kind of component is blamed; F03 that the facts do not tell. What is only
 * slow (G), the channel (O) and the configuration (C) blame nobody. */
static enum mx_blame blame_of(const char *code)
{
    switch (code[0]) {
    case 'N':
        return MX_NIC;
    case 'L':
        return MX_LINK;
    case 'F':
        return strncmp(code, "F03", 3) == 0   ? MX_UNKNOWN
               : strncmp(code, "F04", 3) == 0 ? MX_WAY
                                              : MX_PATH;
    case 'P':
        return MX_PROCESS;
    default:
        return MX_NOTHING;
    }
}

/* "R2-L02 host=h1 nic=fab2 ... peer=h0:fab2 ..."; what stands behind "R2-L02:" is evidence. */
static enum mx_said verdict_read(const char *line, struct mx_verdict *v)
{
    const char *code = line + strlen("R2-");
    char host[64], nic[64], peer[64], *colon;
    enum mx_blame blame = blame_of(code);

    if (blame == MX_NOTHING || strcspn(code, " ") != 3) {
        return MX_SAID_OTHER;
    }
    *v = (struct mx_verdict){.blame = blame, .far_host = -1, .far_nic = -1};
    v->host = number_of(value_of(line, "host", host, sizeof(host)), "h");
    v->nic = number_of(value_of(line, "nic", nic, sizeof(nic)), "fab");
    if (value_of(line, "peer", peer, sizeof(peer)) && (colon = strchr(peer, ':')) != NULL) {
        *colon = '\0';
        v->far_host = number_of(peer, "h");
        v->far_nic = number_of(colon + 1, "fab");
    }
    v->plane = strncmp(code, "F02", 3) == 0;
    return MX_SAID_VERDICT;
}

/* "news from h1: h2 fab0: its NIC" or "... good again": what is behind the sender; NULL: no health
 * report.
 */
static const char *report_of(const char *ours)
{
    const char *colon = strncmp(ours, "news from ", 10) == 0 ? strstr(ours, ": ") : NULL;

    return colon ? colon + 2 : NULL;
}

const char *mx_line_who(const char *line)
{
    static char who[64];
    const char *ours = strstr(line, "NET/R2 : ");
    char host[40] = "", nic[24] = "";
    const char *report;

    if (ours == NULL) {
        return "";
    }
    ours += strlen("NET/R2 : ");
    report = report_of(ours);
    if (strncmp(ours, "R2-", 3) == 0) {
        value_of(ours, "host", host, sizeof(host));
        value_of(ours, "nic", nic, sizeof(nic));
        nic[strcspn(nic, "/")] = '\0';
        nic[strcmp(nic, "-") == 0 ? 0 : strlen(nic)] = '\0'; /* a process */
    } else if (report) {
        sscanf(report, "%39[^ :] %23[^: ]", host, nic);
    }
    snprintf(who, sizeof(who), "%s %s", host, nic);
    return who;
}

enum mx_said mx_line_read(const char *line, struct mx_verdict *v)
{
    const char *ours = strstr(line, "NET/R2 : ");
    const char *down, *report;

    if (ours == NULL) {
        return MX_SAID_OTHER;
    }
    ours += strlen("NET/R2 : ");
    if (strncmp(ours, "R2-", 3) == 0) {
        return verdict_read(ours, v);
    }
    report = report_of(ours);
    if (report) {
        return strstr(report, ": good again") ? MX_SAID_GOOD_REPORT : MX_SAID_BAD_REPORT;
    }
    if (strstr(ours, " more lives of paths went UP -> DOWN") ||
        strstr(ours, " more paths are up again")) {
        return MX_SAID_LEFT_OUT;
    }
    down =
        strstr(ours, " life ") ? strstr(ours, " UP -> DOWN: ") : NULL; /* of a path, not of a NIC */
    if (down && strncmp(down + strlen(" UP -> DOWN: "), "closing", 7) != 0) {
        return MX_SAID_PATH_DOWN;
    }
    return strstr(ours, " is up: its NIC pair is back") ? MX_SAID_PATH_UP : MX_SAID_OTHER;
}
