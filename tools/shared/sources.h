/*
 * Where tools that join many hosts have the statistics of these from: run directories and copies
 * of them, files, what r2_stat --json has printed, and hosts that run it over ssh. One thread;
 * reading blocks on the file system, and on ssh.
 */
#ifndef R2_TOOLS_SOURCES_H
#define R2_TOOLS_SOURCES_H

#include "plugin/telemetry/r2_stat.h"
#include "tools/shared/json_in.h"

/* What a command line says of them. */
struct sources {
    const char *tool;  /* for what is said on stderr */
    char *const *name; /* hosts with ssh; else directories and files */
    int names;
    int ssh;
    const char *dir; /* --run-dir; NULL: not said */
    int seconds;     /* --limit; 0: not said */
};

/* Who takes what is read; @at is the number of the source that it comes from. */
struct sources_take {
    void *arg;
    void (*view)(void *arg, int at, const struct r2_stat_view *v);
    /* @text: what was read and is no file of statistics. 0; -1: nor what r2_stat --json prints */
    int (*json)(void *arg, int at, const char *text);
};

/* A source that was not read. */
struct sources_unread {
    const char *name;
    char why[300];
};

/* 0, with the default of --limit filled in; else the exit status of wrong use, which is said. */
int sources_fit(struct sources *s);
/* --limit: likewise. */
int sources_limit_read(struct sources *s, const char *text);

/* Reads all of them, in their order but for ssh. @unread: room for each. Returns how many were not
 * read; each is said. */
int sources_read(const struct sources *s, const struct sources_take *t,
                 struct sources_unread *unread);

/*
 * Hands each value of @text, which r2_stat --json has printed, to @take, in order (json_in.h).
 * 0; -1: it is something else, or cut short: nothing of it is handed on. Pure.
 */
int sources_json_walk(const char *text, json_in_take_t take, void *arg);

/* --- between its parts --- */

struct sources_remote {
    const char *host;
    char why[300]; /* it did not answer; empty: it did */
};

/*
 * Runs r2_stat --json on the @n hosts of @r over ssh, several at once, each for at most the limit
 * of @s. Blocks until all have answered, or not.
 */
void sources_ssh_read(const struct sources *s, const struct sources_take *t,
                      struct sources_remote *r, int n);

#endif
