/*
 * Triggers: a program in the VM says "now" to whoever waits outside, and hears when that was acted
 * upon. A trigger that nobody waits for is kept until somebody does, so that neither side has to be
 * first.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lab/lab_agent.h"

/* One firing, or one waiter, or both once they have met. */
struct trigger {
    struct lab_watch watch; /* lab_trigger, which waits for the answer; fd -1 when it does not, or
                               does no longer */
    char name[LAB_TRIGGER_NAME_MAX + 1];
    bool fired, keep; /* keep: lab_trigger did not want to wait */
    struct lab_session *waiter;
    struct trigger *next;
};

static struct trigger *triggers;

#define trigger_of(w) ((struct trigger *)((char *)(w)-offsetof(struct trigger, watch)))

static void trigger_free(struct trigger *t)
{
    struct trigger **at = &triggers;

    lab_watch_close(&t->watch);
    while (*at != t) {
        at = &(*at)->next;
    }
    *at = t->next;
    free(t);
}

static struct trigger *trigger_find(const char *name, bool fired)
{
    struct trigger *t = triggers, *oldest = NULL;

    for (; t != NULL; t = t->next) {
        bool free_half = fired ? t->fired && t->waiter == NULL : !t->fired && t->waiter != NULL;
        if (free_half && strcmp(t->name, name) == 0) {
            oldest = t;
        }
    }
    return oldest;
}

static struct trigger *trigger_new(void)
{
    struct trigger *t = calloc(1, sizeof(*t));

    if (t == NULL) {
        lab_die(1, "no memory for a trigger");
    }
    t->watch.fd = -1;
    t->next = triggers;
    triggers = t;
    return t;
}

static void trigger_meet(struct trigger *firing, struct trigger *waiting)
{
    firing->waiter = waiting->waiter;
    waiting->waiter = NULL;
    trigger_free(waiting);
    lab_session_fired(firing->waiter);
}

/* The first packet is 'w' (wait for the answer) or 'n', then the name; after that only the end
 * comes. */
static void client_ready(struct lab_watch *w, uint32_t events)
{
    struct trigger *t = trigger_of(w), *waiting;
    char packet[LAB_TRIGGER_NAME_MAX + 2];
    ssize_t n = recv(w->fd, packet, sizeof(packet) - 1, 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n <= 0) {
        lab_watch_close(w);
        if (t->waiter == NULL && !t->keep) {
            trigger_free(t);
        }
        return;
    }
    if (t->fired || n < 2) {
        return;
    }
    packet[n] = '\0';
    strcpy(t->name, packet + 1);
    t->fired = true;
    t->keep = packet[0] == 'n';
    waiting = trigger_find(t->name, false);
    if (waiting != NULL) {
        trigger_meet(t, waiting);
    }
}

void lab_trigger_open(int fd)
{
    struct trigger *t = trigger_new();

    t->watch = (struct lab_watch){.ready = client_ready, .fd = fd};
    lab_watch_set(&t->watch, EPOLLIN);
}

void lab_trigger_wait(struct lab_session *s, const char *name)
{
    struct trigger *firing = trigger_find(name, true), *t = trigger_new();

    strcpy(t->name, name);
    t->waiter = s;
    if (firing != NULL) {
        trigger_meet(firing, t);
    }
}

void lab_trigger_done(struct lab_session *s, const char *text, size_t len)
{
    static const char lost[] = "-whoever waited for the trigger went away";
    struct trigger *t = triggers;

    while (t != NULL && t->waiter != s) {
        t = t->next;
    }
    if (t == NULL) {
        return;
    }
    if (t->watch.fd >= 0) {
        (void)!send(t->watch.fd, text != NULL ? text : lost, text != NULL ? len : sizeof(lost) - 1,
                    MSG_NOSIGNAL);
    }
    trigger_free(t);
}
