/* What the suites of gossip share. */
#ifndef GOSSIP_RIG_H
#define GOSSIP_RIG_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/probe/probe_gossip.h"
#include "plugin/probe/probe_verdict.h"
#include "tests/unit/suite.h"

#define BAD  PROBE_BLAME_LOCAL_LINK
#define GOOD PROBE_BLAME_NONE

static inline struct probe_report word(uint64_t subject, uint64_t version, uint64_t origin,
                                       int blame)
{
    struct probe_report w;

    memset(&w, 0, sizeof(w));
    w.subject.a = subject;
    w.subject.pa = 1;
    w.version = version;
    w.origin = origin;
    w.blame = (uint8_t)blame;
    snprintf(w.host, sizeof(w.host), "v%llu",
             (unsigned long long)version); /* the text belongs to the word */
    return w;
}

#endif
