#include "r2_log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define LOG_PREFIX   "NET/R2 : "
#define LOG_LINE_MAX 900 /* below NCCL's 1,023 bytes of last error, with room for its own prefix */
#define LOG_SLOTS    256

struct log_line {
    enum r2_log_level level;
    const char *file;
    int line;
    int next; /* slot, -1 = last */
    char text[LOG_LINE_MAX];
};

/*
 * queue_lock: slots, lists, sink. Held for list work and one memcpy, never across the sink.
 * flushing: set by the one thread that feeds the sink, so that lines keep their order without a lock held across it.
 */
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t flush_done = PTHREAD_COND_INITIALIZER;
static struct log_line slots[LOG_SLOTS];
static int used_head = -1, used_tail = -1, free_head = -1, slots_fresh;
static int flushing;
static pthread_t flusher; /* valid while flushing */
static r2_log_sink_fn sink;
static unsigned long dropped_unsaid;

static atomic_int max_level = R2_LOG_INFO;
static atomic_ulong dropped_total;

void r2_log_sink_set(r2_log_sink_fn fn)
{
    pthread_mutex_lock(&queue_lock);
    sink = fn;
    pthread_mutex_unlock(&queue_lock);
}

void r2_log_level_set(enum r2_log_level level)
{
    atomic_store_explicit(&max_level, (int)level, memory_order_relaxed);
}

unsigned long r2_log_dropped(void)
{
    return atomic_load_explicit(&dropped_total, memory_order_relaxed);
}

/* Must hold queue_lock. */
static void drop_count(void)
{
    dropped_unsaid++;
    atomic_fetch_add_explicit(&dropped_total, 1, memory_order_relaxed);
}

/* Takes the oldest line out that is no WARN; the oldest of all when there are only WARNs and @any. -1: none. Must hold
 * queue_lock. */
static int queue_evict(int any)
{
    int prev = -1, i = used_head;

    while (i >= 0 && slots[i].level == R2_LOG_WARN) {
        prev = i;
        i = slots[i].next;
    }
    if (i < 0) {
        if (!any)
            return -1;
        prev = -1;
        i = used_head;
    }
    if (i < 0)
        return -1;
    if (prev < 0)
        used_head = slots[i].next;
    else
        slots[prev].next = slots[i].next;
    if (used_tail == i)
        used_tail = prev;
    return i;
}

/* A free slot, at the cost of an older line when there is none; -1: the new line is the one to drop. Must hold
 * queue_lock. */
static int slot_take(enum r2_log_level level)
{
    int i;

    if (free_head >= 0) {
        i = free_head;
        free_head = slots[i].next;
        return i;
    }
    if (slots_fresh < LOG_SLOTS)
        return slots_fresh++;
    drop_count();
    return queue_evict(level == R2_LOG_WARN);
}

void r2_log_write(enum r2_log_level level, const char *file, int line, const char *fmt, ...)
{
    char text[LOG_LINE_MAX];
    va_list ap;
    int i;

    if ((int)level > atomic_load_explicit(&max_level, memory_order_relaxed))
        return;
    memcpy(text, LOG_PREFIX, sizeof(LOG_PREFIX));
    va_start(ap, fmt);
    vsnprintf(text + sizeof(LOG_PREFIX) - 1, sizeof(text) - sizeof(LOG_PREFIX) + 1, fmt, ap);
    va_end(ap);
    for (char *nl = text; (nl = strchr(nl, '\n')) != NULL;)
        *nl = ' ';

    pthread_mutex_lock(&queue_lock);
    i = slot_take(level);
    if (i >= 0) {
        slots[i].level = level;
        slots[i].file = file;
        slots[i].line = line;
        slots[i].next = -1;
        memcpy(slots[i].text, text, strlen(text) + 1);
        if (used_tail >= 0)
            slots[used_tail].next = i;
        else
            used_head = i;
        used_tail = i;
    }
    pthread_mutex_unlock(&queue_lock);
}

/* Copies the oldest line out, or makes one of the count of dropped lines. 0: nothing to say. Must hold queue_lock. */
static int line_next(struct log_line *out)
{
    int i = used_head;

    if (i >= 0) {
        *out = slots[i];
        used_head = slots[i].next;
        if (used_head < 0)
            used_tail = -1;
        slots[i].next = free_head;
        free_head = i;
        return 1;
    }
    if (dropped_unsaid == 0)
        return 0;
    out->level = R2_LOG_INFO;
    out->file = __FILE__;
    out->line = __LINE__;
    snprintf(out->text, sizeof(out->text), LOG_PREFIX "%lu log lines dropped: the queue was full", dropped_unsaid);
    dropped_unsaid = 0;
    return 1;
}

/*
 * A second caller waits for the first, because its own lines may be in the first one's hands: when it returns they are
 * out. A sink that calls back finds itself to be the flusher and returns: its lines follow in the outer call.
 */
void r2_log_flush(void)
{
    struct log_line l;

    pthread_mutex_lock(&queue_lock);
    while (flushing) {
        if (pthread_equal(flusher, pthread_self())) {
            pthread_mutex_unlock(&queue_lock);
            return;
        }
        pthread_cond_wait(&flush_done, &queue_lock);
    }
    flushing = 1;
    flusher = pthread_self();
    while (line_next(&l)) {
        r2_log_sink_fn fn = sink;
        pthread_mutex_unlock(&queue_lock);
        if (fn)
            fn(l.level, l.file, l.line, l.text);
        pthread_mutex_lock(&queue_lock);
    }
    flushing = 0;
    pthread_cond_broadcast(&flush_done);
    pthread_mutex_unlock(&queue_lock);
}
