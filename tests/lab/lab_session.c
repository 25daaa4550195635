#include "tests/lab/lab_agent.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lab/lab_explain.h"

/* Above this much unsent output the command's pipes are not read, so that a slow reader slows the
 * command, not the agent. */
#define OUT_HIGH (256u * 1024u)
/* Above this much input that the command has not taken, the connection is not read. */
#define IN_HIGH  (256u * 1024u)
#define ARGS_MAX 1024

enum session_state { S_HELLO, S_REQUEST, S_JOB, S_TRIGGER, S_CLOSING };

struct lab_session {
    struct lab_watch conn, in, out, err;
    enum session_state state;
    struct lab_buf rx, tx, input;
    bool input_ended;
    struct lab_job job;
    struct lab_session *next;
};

static struct lab_session *sessions;

#define session_of(w, member)                                                                      \
    ((struct lab_session *)((char *)(w)-offsetof(struct lab_session, member)))

static void session_free(struct lab_session *s)
{
    struct lab_session **at = &sessions;

    if (s->state == S_TRIGGER) {
        lab_trigger_done(s, NULL, 0);
    }
    if (s->job.pid != 0) {
        lab_job_kill(&s->job);
    }
    lab_watch_close(&s->conn);
    lab_watch_close(&s->in);
    lab_watch_close(&s->out);
    lab_watch_close(&s->err);
    lab_buf_free(&s->rx);
    lab_buf_free(&s->tx);
    lab_buf_free(&s->input);
    while (*at != s) {
        at = &(*at)->next;
    }
    *at = s->next;
    free(s);
}

/* What each descriptor is asked for follows from the buffers alone. */
static void session_watch(struct lab_session *s)
{
    bool room = lab_buf_len(&s->tx)<OUT_HIGH, has_input = lab_buf_len(&s->input)> 0;
    uint32_t conn = EPOLLRDHUP;

    if (lab_buf_len(&s->input) < IN_HIGH && s->state != S_CLOSING) {
        conn |= EPOLLIN;
    }
    if (lab_buf_len(&s->tx) > 0) {
        conn |= EPOLLOUT;
    }
    lab_watch_set(&s->conn, conn);
    lab_watch_set(&s->out, room ? EPOLLIN : 0);
    lab_watch_set(&s->err, room ? EPOLLIN : 0);
    lab_watch_set(&s->in, has_input ? EPOLLOUT : 0);
}

/* Sends what the connection takes now. Returns -1 when the peer is gone, or has everything and is
 * to be left. */
static int session_flush(struct lab_session *s)
{
    while (lab_buf_len(&s->tx) > 0) {
        ssize_t n = send(s->conn.fd, s->tx.mem + s->tx.head, lab_buf_len(&s->tx), MSG_NOSIGNAL);
        if (n < 0) {
            return errno == EAGAIN || errno == EINTR ? 0 : -1;
        }
        lab_buf_take(&s->tx, (size_t)n);
    }
    if (s->state == S_CLOSING) {
        /* The peer closes when it has read the last message; closing first could drop what it has
         * not. */
        shutdown(s->conn.fd, SHUT_WR);
    }
    return 0;
}

static void session_refuse(struct lab_session *s, const char *reason)
{
    lab_wire_put(&s->tx, LAB_REFUSED, reason, strlen(reason));
    s->state = S_CLOSING;
}

/* Reads one pipe until it is empty. Returns false when it ended. */
static bool pipe_read(struct lab_session *s, int fd, enum lab_wire_type type)
{
    char data[16384];
    ssize_t n = 0;

    while (lab_buf_len(&s->tx) < OUT_HIGH || s->job.pid == 0) {
        n = read(fd, data, sizeof(data));
        if (n <= 0) {
            break;
        }
        lab_wire_put(&s->tx, type, data, (size_t)n);
    }
    return !(n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR));
}

static void session_step(struct lab_session *s)
{
    if (session_flush(s) != 0) {
        session_free(s);
        return;
    }
    session_watch(s);
}

static void out_ready(struct lab_watch *w, uint32_t events)
{
    struct lab_session *s = session_of(w, out);

    if (!pipe_read(s, w->fd, LAB_STDOUT)) {
        lab_watch_close(w);
    }
    session_step(s);
}

static void err_ready(struct lab_watch *w, uint32_t events)
{
    struct lab_session *s = session_of(w, err);

    if (!pipe_read(s, w->fd, LAB_STDERR)) {
        lab_watch_close(w);
    }
    session_step(s);
}

static void input_write(struct lab_session *s)
{
    while (s->in.fd >= 0 && lab_buf_len(&s->input) > 0) {
        ssize_t n = write(s->in.fd, s->input.mem + s->input.head, lab_buf_len(&s->input));
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (n < 0) {
            lab_watch_close(&s->in);
            lab_buf_take(&s->input, lab_buf_len(&s->input));
            return;
        }
        lab_buf_take(&s->input, (size_t)n);
    }
    if (s->input_ended) {
        lab_watch_close(&s->in);
    }
}

static void in_ready(struct lab_watch *w, uint32_t events)
{
    struct lab_session *s = session_of(w, in);

    input_write(s);
    session_step(s);
}

static void session_exec(struct lab_session *s, const char *body, size_t len)
{
    char *argv[ARGS_MAX + 1], *text = malloc(len + 1), *p;
    int n = 0, err;

    if (text == NULL) {
        session_refuse(s, "no memory");
        return;
    }
    memcpy(text, body, len);
    text[len] = '\0';
    for (p = text; p < text + len && n < ARGS_MAX; p += strlen(p) + 1) {
        argv[n++] = p;
    }
    argv[n] = NULL;
    if (n < 3 || p < text + len) {
        session_refuse(s, "a command of no words, or of too many");
    } else if ((err = lab_job_start(&s->job, argv[0], argv[1], argv + 2)) != 0) {
        session_refuse(s, strerror(err));
    } else {
        s->state = S_JOB;
        s->in.fd = s->job.in;
        s->out.fd = s->job.out;
        s->err.fd = s->job.err;
    }
    free(text);
}

static void session_wait(struct lab_session *s, const struct lab_wire_msg *m)
{
    char name[LAB_TRIGGER_NAME_MAX + 1];

    if (m->len == 0 || m->len > LAB_TRIGGER_NAME_MAX) {
        session_refuse(s, "a trigger's name has 1 to 63 bytes");
        return;
    }
    memcpy(name, m->body, m->len);
    name[m->len] = '\0';
    s->state = S_TRIGGER;
    lab_trigger_wait(s, name);
}

void lab_session_fired(struct lab_session *s)
{
    lab_wire_put(&s->tx, LAB_FIRED, NULL, 0);
    /* At once: it is what the other side measures. What cannot be sent now goes out of the loop. */
    (void)!session_flush(s);
    session_watch(s);
}

/* Behind what the command wrote itself. */
static void session_explain(struct lab_session *s)
{
    struct lab_buf text = {0};
    size_t n;

    if (s->err.fd >= 0) {
        pipe_read(s, s->err.fd, LAB_STDERR);
    }
    lab_explain_job(s->job.number, &text);
    while ((n = lab_buf_len(&text)) > 0) {
        n = n < LAB_WIRE_BODY_MAX ? n : LAB_WIRE_BODY_MAX;
        lab_wire_put(&s->tx, LAB_STDERR, text.mem + text.head, n);
        lab_buf_take(&text, n);
    }
    lab_buf_free(&text);
    lab_wire_put(&s->tx, LAB_TOLD, NULL, 0);
}

static void session_message(struct lab_session *s, const struct lab_wire_msg *m)
{
    switch (s->state) {
    case S_HELLO:
        if (m->type != LAB_HELLO || m->len != LAB_SECRET_LEN ||
            memcmp(m->body, lab_agent_secret, m->len) != 0) {
            session_refuse(s, "wrong secret");
            return;
        }
        s->state = S_REQUEST;
        lab_wire_put(&s->tx, LAB_READY, NULL, 0);
        return;
    case S_REQUEST:
        if (m->type == LAB_EXEC) {
            session_exec(s, m->body, m->len);
        } else if (m->type == LAB_WAIT) {
            session_wait(s, m);
        } else {
            session_refuse(s, "no such request");
        }
        return;
    case S_JOB:
        if (m->type == LAB_STDIN) {
            lab_buf_put(&s->input, m->body, m->len);
        } else if (m->type == LAB_STDIN_END) {
            s->input_ended = true;
        } else if (m->type == LAB_WHY) {
            session_explain(s);
        }
        input_write(s);
        return;
    case S_TRIGGER:
        if (m->type == LAB_DONE) {
            s->state = S_CLOSING;
            lab_trigger_done(s, m->body, m->len);
        }
        return;
    case S_CLOSING:
        return;
    }
}

static void conn_ready(struct lab_watch *w, uint32_t events)
{
    struct lab_session *s = session_of(w, conn);
    struct lab_wire_msg m;
    int rc = 0;

    if ((events & EPOLLIN) != 0) {
        ssize_t n = recv(w->fd, lab_buf_room(&s->rx, 65536), 65536, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            session_free(s);
            return;
        }
        s->rx.tail += n > 0 ? (size_t)n : 0;
        while ((rc = lab_wire_get(&s->rx, &m)) > 0) {
            session_message(s, &m);
            lab_wire_drop(&s->rx, &m);
        }
    }
    if (rc < 0 || (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0) {
        session_free(s);
        return;
    }
    session_step(s);
}

void lab_session_open(int fd)
{
    struct lab_session *s = calloc(1, sizeof(*s));

    if (s == NULL) {
        close(fd);
        return;
    }
    s->conn = (struct lab_watch){.ready = conn_ready, .fd = fd};
    s->in = (struct lab_watch){.ready = in_ready, .fd = -1};
    s->out = (struct lab_watch){.ready = out_ready, .fd = -1};
    s->err = (struct lab_watch){.ready = err_ready, .fd = -1};
    s->next = sessions;
    sessions = s;
    session_watch(s);
}

void lab_session_reaped(pid_t pid, int status)
{
    struct lab_session *s = sessions;
    uint32_t code = htonl(WIFSIGNALED(status) ? 128 + (uint32_t)WTERMSIG(status)
                                              : (uint32_t)WEXITSTATUS(status));

    while (s != NULL && s->job.pid != pid) {
        s = s->next;
    }
    if (s == NULL) {
        return;
    }
    /* What the command wrote is in the pipes; what it left behind is killed and not waited for. */
    lab_job_kill(&s->job);
    s->job.pid = 0;
    if (s->out.fd >= 0) {
        pipe_read(s, s->out.fd, LAB_STDOUT);
    }
    if (s->err.fd >= 0) {
        pipe_read(s, s->err.fd, LAB_STDERR);
    }
    lab_watch_close(&s->in);
    lab_watch_close(&s->out);
    lab_watch_close(&s->err);
    lab_wire_put(&s->tx, LAB_EXIT, &code, sizeof(code));
    s->state = S_CLOSING;
    session_step(s);
}
