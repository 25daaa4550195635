#include "tests/lab/lab_qmp.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define QMP_LIMIT_NS (30 * LAB_NS_PER_S)

/* The next message from the monitor, or NULL. */
static json_t *qmp_read(struct lab_qmp *q, uint64_t deadline)
{
    struct pollfd p = {.fd = q->fd, .events = POLLIN};
    json_error_t err;
    json_t *j;
    char *end;
    ssize_t n;

    while (lab_buf_len(&q->rx) == 0 ||
           (end = memchr(q->rx.mem + q->rx.head, '\n', lab_buf_len(&q->rx))) == NULL) {
        if (poll(&p, 1, lab_clock_left_ms(deadline)) == 0) {
            lab_complain("%s: the monitor does not answer", q->host);
            return NULL;
        }
        n = recv(q->fd, lab_buf_room(&q->rx, 65536), 65536, 0);
        if (n == 0 || (n < 0 && errno != EINTR)) {
            lab_complain("%s: the monitor is gone", q->host);
            return NULL;
        }
        q->rx.tail += n > 0 ? (size_t)n : 0;
    }
    n = end - (q->rx.mem + q->rx.head) + 1;
    j = json_loadb(q->rx.mem + q->rx.head, (size_t)n, 0, &err);
    lab_buf_take(&q->rx, (size_t)n);
    if (j == NULL) {
        lab_complain("%s: monitor: %s", q->host, err.text);
    }
    return j;
}

json_t *lab_qmp_call(struct lab_qmp *q, const char *command, json_t *arguments)
{
    uint64_t deadline = lab_clock_now() + QMP_LIMIT_NS;
    json_t *ask = json_pack("{s:s}", "execute", command), *j, *result = NULL;
    char *text;

    if (arguments != NULL) {
        json_object_set_new(ask, "arguments", arguments);
    }
    text = json_dumps(ask, JSON_COMPACT);
    json_decref(ask);
    if (text == NULL || send(q->fd, text, strlen(text), MSG_NOSIGNAL) < 0) {
        lab_complain("%s: monitor: %s: %s", q->host, command, strerror(errno));
        free(text);
        return NULL;
    }
    free(text);
    while ((j = qmp_read(q, deadline)) != NULL) {
        result = json_incref(json_object_get(j, "return"));
        if (json_object_get(j, "error") != NULL) {
            const char *desc =
                json_string_value(json_object_get(json_object_get(j, "error"), "desc"));
            lab_complain("%s: monitor: %s: %s", q->host, command, desc != NULL ? desc : "error");
            json_decref(j);
            return NULL;
        }
        json_decref(j); /* an event, unless there is a result */
        if (result != NULL) {
            return result;
        }
    }
    return NULL;
}

int lab_qmp_do(struct lab_qmp *q, const char *command, json_t *arguments)
{
    json_t *j = lab_qmp_call(q, command, arguments);

    json_decref(j);
    return j != NULL ? 0 : -1;
}

int lab_qmp_open(struct lab_qmp *q, const char *host)
{
    char path[32];
    json_t *greeting;

    memset(q, 0, sizeof(*q));
    q->host = host;
    snprintf(path, sizeof(path), "%.8s.qmp", host);
    q->fd = lab_unix_connect(path);
    if (q->fd < 0) {
        return lab_complain("%s: monitor: %s", host, strerror(errno));
    }
    greeting = qmp_read(q, lab_clock_now() + QMP_LIMIT_NS);
    json_decref(greeting);
    if (greeting == NULL || lab_qmp_do(q, "qmp_capabilities", NULL) != 0) {
        lab_qmp_close(q);
        return -1;
    }
    return 0;
}

void lab_qmp_close(struct lab_qmp *q)
{
    close(q->fd);
    lab_buf_free(&q->rx);
}

/* 1, 0, or -1 when the monitor does not say. */
static int has_device(struct lab_qmp *q, const char *id)
{
    json_t *list = lab_qmp_call(q, "qom-list", json_pack("{s:s}", "path", "/machine/peripheral")),
           *item;
    int rc = list == NULL ? -1 : 0;
    size_t i;

    json_array_foreach(list, i, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));

        rc |= name != NULL && strcmp(name, id) == 0;
    }
    json_decref(list);
    return rc;
}

/* An event that comes before the list is one that the list knows of; those behind it are read here.
 */
int lab_qmp_await_deleted(struct lab_qmp *q, const char *id, uint64_t deadline)
{
    int rc;

    while ((rc = has_device(q, id)) > 0) {
        json_t *j = qmp_read(q, deadline);

        if (j == NULL) {
            return -1;
        }
        json_decref(j);
    }
    return rc;
}
