/*
 * Which place is slow: the matrix of transfer times, by source and destination, beside what is
 * usual in it (docs/diagnosis.md, "Who is slow, seen from all hosts"). Figures in, marks and
 * findings out. Pure, but that a matrix is allocated; no function blocks. One thread.
 */
#ifndef R2_DIAG_MATRIX_H
#define R2_DIAG_MATRIX_H

#include <stdint.h>

#define DIAG_TIMES     4   /* a figure of fewer times is shown, and not judged */
#define DIAG_CELLS     4   /* figures of a class, at least ... */
#define DIAG_ROWS      3   /* ... from so many sources; of fewer nothing is known */
#define DIAG_RATIO     1.5 /* of the usual: slow is what takes longer ... */
#define DIAG_RATIO_FEW 2.0 /* ... where there are fewer than DIAG_FEW_CELLS figures ... */
#define DIAG_FEW_CELLS 32
#define DIAG_MADS      6 /* ... and is further from it than so many MADs, of logarithms */
#define DIAG_NOISE     5 /* where so much were needed, the figures differ too much to judge by */
#define DIAG_FINDINGS  64

/* Only links of one class are compared with each other. */
enum diag_link {
    DIAG_LINK_RAIL,  /* between NICs of one rail; between hosts: of all rails */
    DIAG_LINK_CROSS, /* between rails */
    DIAG_LINK_HOST,  /* within a host */
    DIAG_LINKS
};

enum diag_mark { DIAG_MARK_NONE, DIAG_MARK_CELL, DIAG_MARK_ROW, DIAG_MARK_COLUMN };

struct diag_cell {
    double ns, ns_p99; /* 0: there is no figure */
    uint32_t times;    /* that it is of */
    uint8_t link;      /* enum diag_link */
    /* out */
    uint8_t mark;   /* enum diag_mark */
    uint8_t judged; /* it has times enough, and its class cells enough */
    double ratio;   /* of what is usual in its class; 0: not known */
};

struct diag_matrix {
    int n;                  /* places */
    struct diag_cell *cell; /* n * n: that from s to d is at s * n + d */
    double *scratch;        /* n * n + n */
    uint8_t *place;         /* 2 * n: rows, then columns: slow, by what is known so far */
};

enum diag_kind {
    DIAG_PLACE,               /* source and destination are one place: slow both ways */
    DIAG_SOURCE,              /* a row */
    DIAG_DESTINATION,         /* a column */
    DIAG_LINK,                /* a cell: both of its ends are well towards others */
    DIAG_SOURCE_OR_LINK,      /* the destination is well, of the source nothing else is known */
    DIAG_DESTINATION_OR_LINK, /* the other way round */
    DIAG_EITHER,              /* nothing else is known of either, as in a ring */
    DIAG_KINDS
};
const char *diag_kind_name(unsigned kind); /* "place", ...; "?" when it is none */

struct diag_finding {
    uint8_t kind;            /* enum diag_kind */
    uint8_t both_ways;       /* a link, whose other direction is slow, too */
    int source, destination; /* -1: all */
    int cells;               /* that are slow by it */
    double ratio;            /* the median of theirs */
};

enum diag_state {
    DIAG_FEW,     /* too few figures to judge by */
    DIAG_CLEAN,   /* nothing is slow beside the others */
    DIAG_FOUND,   /* findings, that explain what is slow */
    DIAG_UNCLEAR, /* too much is slow, and in no order: nothing is named */
    DIAG_STATES
};
const char *diag_state_name(unsigned state); /* "few", ... */

struct diag_verdict {
    enum diag_state state;
    int figures;                                /* cells that have one */
    int judged;                                 /* ... of which so many are */
    int thin;                                   /* cells of fewer than DIAG_TIMES */
    int slow;                                   /* cells that are so in no order */
    double usual_ns[DIAG_LINKS];                /* 0: not known */
    double limit;                               /* ratio from which a cell is slow */
    struct diag_finding finding[DIAG_FINDINGS]; /* places first, then links */
    int findings;
};

/* A matrix without figures; NULL: out of memory. Free with diag_matrix_free(); NULL accepted. */
struct diag_matrix *diag_matrix_new(int n);
void diag_matrix_free(struct diag_matrix *m);
/* Marks the cells of @m. */
void diag_judge(struct diag_matrix *m, struct diag_verdict *out);

#endif
