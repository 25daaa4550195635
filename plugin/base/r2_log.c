#include "r2_log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "r2_time.h"

#define LOG_PREFIX "NET/R2 : "
#define LOG_LINE_MAX                                                                               \
    900 /* below NCCL's 1,023 bytes of last error, with room for its own prefix                    \
         */
#define LOG_SLOTS 256

struct log_line {
    enum r2_log_level level;
    const char *file;
    int line;
    int next; /* slot, -1 = last */
    char text[LOG_LINE_MAX];
};

/*
 * queue_lock: slots, lists, sink. Held for list work and one memcpy, never across the sink.
 * flushing: set by the one thread that feeds the sink, so that lines keep their order without a
 * lock held across it.
 */
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t flush_done = PTHREAD_COND_INITIALIZER;
static struct log_line slots[LOG_SLOTS];
static int used_head = -1, used_tail = -1, free_head = -1, slots_fresh;
static int flushing;
static pthread_t flusher; /* valid while flushing */
static r2_log_sink_fn sink;
static unsigned long dropped_unlogged;

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
    dropped_unlogged++;
    atomic_fetch_add_explicit(&dropped_total, 1, memory_order_relaxed);
}

/* Takes the oldest line out that is no WARN; the oldest of all when there are only WARNs and @any.
 * -1: none. Must hold queue_lock. */
static int queue_evict(int any)
{
    int prev = -1, i = used_head;

    while (i >= 0 && slots[i].level == R2_LOG_WARN) {
        prev = i;
        i = slots[i].next;
    }
    if (i < 0) {
        if (!any) {
            return -1;
        }
        prev = -1;
        i = used_head;
    }
    if (i < 0) {
        return -1;
    }
    if (prev < 0) {
        used_head = slots[i].next;
    } else {
        slots[prev].next = slots[i].next;
    }
    if (used_tail == i) {
        used_tail = prev;
    }
    return i;
}

/* A free slot, at the cost of an older line when there is none; -1: the new line is the one to
 * drop. Must hold queue_lock. */
static int slot_take(enum r2_log_level level)
{
    int i;

    if (free_head >= 0) {
        i = free_head;
        free_head = slots[i].next;
        return i;
    }
    if (slots_fresh < LOG_SLOTS) {
        return slots_fresh++;
    }
    drop_count();
    return queue_evict(level == R2_LOG_WARN);
}

static void line_queue(enum r2_log_level level, const char *file, int line, const char *fmt,
                       va_list ap)
{
    char text[LOG_LINE_MAX];
    int i;

    if ((int)level > atomic_load_explicit(&max_level, memory_order_relaxed)) {
        return;
    }
    memcpy(text, LOG_PREFIX, sizeof(LOG_PREFIX));
    vsnprintf(text + sizeof(LOG_PREFIX) - 1, sizeof(text) - sizeof(LOG_PREFIX) + 1, fmt, ap);
    for (char *nl = text; (nl = strchr(nl, '\n')) != NULL;) {
        *nl = ' ';
    }

    pthread_mutex_lock(&queue_lock);
    i = slot_take(level);
    if (i >= 0) {
        slots[i].level = level;
        slots[i].file = file;
        slots[i].line = line;
        slots[i].next = -1;
        memcpy(slots[i].text, text, strlen(text) + 1);
        if (used_tail >= 0) {
            slots[used_tail].next = i;
        } else {
            used_head = i;
        }
        used_tail = i;
    }
    pthread_mutex_unlock(&queue_lock);
}

void r2_log_write(enum r2_log_level level, const char *file, int line, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    line_queue(level, file, line, fmt, ap);
    va_end(ap);
}

/* --- lines of which there are many --- */

static pthread_mutex_t many_lock =
    PTHREAD_MUTEX_INITIALIZER; /* taken before queue_lock, never inside of it */
static struct {
    uint64_t last; /* ns, CLOCK_MONOTONIC: the latest one */
    unsigned long left;
    unsigned written;
} many[R2_LOG_KINDS];
static unsigned many_first = R2_LOG_FIRST; /* many_lock */
static atomic_int
    many_left; /* kinds with something left to be said; written under many_lock, a hint to flush */

static const char *const many_text[R2_LOG_KINDS] = {
    [R2_LOG_CONNECTED] = "%lu more connections are up (r2_stat -c lists them)",
    [R2_LOG_DOWN] = "%lu more lives of paths went UP -> DOWN",
    [R2_LOG_FENCED] = "%lu more lives of paths are fenced",
    [R2_LOG_SETTLED] = "%lu more lives of paths are settled",
    [R2_LOG_BACK] = "%lu more paths are up again",
    [R2_LOG_ENDS] = "%lu more connections end",
    [R2_LOG_KEPT] = "%lu more queue pairs cannot be destroyed",
    [R2_LOG_NO_PROBE] = "%lu more NIC pairs have no probe",
    [R2_LOG_CHANNEL_LOST] = "%lu more out-of-band channels lost",
    [R2_LOG_INBAND] = "to %lu more peers control messages go over NICs as well",
};

static uint64_t now_ns(void)
{
    return r2_clock_ns(CLOCK_MONOTONIC);
}

/* What was left out of this kind, for a line; it begins anew. Must hold many_lock. */
static unsigned long many_end(int kind)
{
    unsigned long left = many[kind].left;

    atomic_fetch_sub_explicit(&many_left, left != 0, memory_order_relaxed);
    many[kind].left = 0;
    many[kind].written = 0;
    return left;
}

/* At INFO, also of warnings: the last warning is what frameworks show. */
static void many_log(int kind, unsigned long left)
{
    char text[128];

    if (left) {
        snprintf(text, sizeof(text), many_text[kind], left);
        r2_log_write(R2_LOG_INFO, __FILE__, __LINE__, "%s", text);
    }
}

static void many_flush(int all)
{
    uint64_t now;

    if (atomic_load_explicit(&many_left, memory_order_relaxed) == 0) {
        return;
    }
    now = now_ns();
    for (int k = 0; k < R2_LOG_KINDS; k++) {
        unsigned long left = 0;

        pthread_mutex_lock(&many_lock);
        if (many[k].left && (all || now - many[k].last >= R2_LOG_QUIET_NS)) {
            left = many_end(k);
        }
        pthread_mutex_unlock(&many_lock);
        many_log(k, left);
    }
}

void r2_log_many_first(unsigned first)
{
    pthread_mutex_lock(&many_lock);
    many_first = first;
    pthread_mutex_unlock(&many_lock);
}

void r2_log_many_over(void)
{
    many_flush(1);
}

void r2_log_many(enum r2_log_kind kind, enum r2_log_level level, const char *file, int line,
                 const char *fmt, ...)
{
    int all = atomic_load_explicit(&max_level, memory_order_relaxed) >= R2_LOG_TRACE, write;
    unsigned long left = 0;
    uint64_t now = now_ns();
    va_list ap;

    pthread_mutex_lock(&many_lock);
    if (now - many[kind].last >= R2_LOG_QUIET_NS) {
        left = many_end(kind);
    }
    many[kind].last = now;
    write = all || many[kind].written < many_first;
    if (write) {
        many[kind].written++;
    } else if (many[kind].left++ == 0) {
        atomic_fetch_add_explicit(&many_left, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&many_lock);
    many_log(kind, left);
    if (write) {
        va_start(ap, fmt);
        line_queue(level, file, line, fmt, ap);
        va_end(ap);
    }
}

/* Copies the oldest line out, or makes one of the count of dropped lines. 0: nothing to say. Must
 * hold queue_lock. */
static int line_next(struct log_line *out)
{
    int i = used_head;

    if (i >= 0) {
        *out = slots[i];
        used_head = slots[i].next;
        if (used_head < 0) {
            used_tail = -1;
        }
        slots[i].next = free_head;
        free_head = i;
        return 1;
    }
    if (dropped_unlogged == 0) {
        return 0;
    }
    out->level = R2_LOG_INFO;
    out->file = __FILE__;
    out->line = __LINE__;
    snprintf(out->text, sizeof(out->text), LOG_PREFIX "%lu log lines dropped: the queue was full",
             dropped_unlogged);
    dropped_unlogged = 0;
    return 1;
}

/*
 * A second caller waits for the first, because its own lines may be in the first one's hands: when
 * it returns they are out. A sink that calls back finds itself to be the flusher and returns: its
 * lines follow in the outer call.
 */
void r2_log_flush(void)
{
    struct log_line l;

    many_flush(0);
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
        if (fn) {
            fn(l.level, l.file, l.line, l.text);
        }
        pthread_mutex_lock(&queue_lock);
    }
    flushing = 0;
    pthread_cond_broadcast(&flush_done);
    pthread_mutex_unlock(&queue_lock);
}
