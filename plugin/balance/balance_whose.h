/*
 * Whose a slow way is. A NIC whose way to one host is slow, or that of a host to it, may be well,
 * and the other end, or what lies between, slow. One with slow ways to or from two hosts whose NICs
 * carry well with others is slow itself, or its cable or port is, or what it alone hangs on. In a
 * ring these are the host before and the host behind it. Pure; the caller's memory, one for each
 * NIC here. Times in ns, of one clock.
 *
 * A host whose NIC has other slow ways is no witness: on a rail that is slow as a whole every NIC
 * of a ring has two of them, and none is at fault. Nor is a host whose NIC carries nothing else, as
 * at the end of a chain: it cannot tell. So a slow NIC beside another one is not told.
 */
#ifndef BALANCE_WHOSE_H
#define BALANCE_WHOSE_H

#include <stdbool.h>
#include <stdint.h>

#define BALANCE_WHOSE_HOSTS 16
#define BALANCE_WHOSE_FRESH 3000000000ull /* a way that was slow longer ago is not known to be */
#define BALANCE_WHOSE_SPOKEN                                                                       \
    1000000000ull /* a word that is older counts no more: hosts that work speak each half second   \
                   */
#define BALANCE_WHOSE_HOLDS                                                                        \
    3000000000ull /* before it is said: others that find out later may be witnesses against it */
#define BALANCE_WHOSE_STEP                                                                         \
    500000000ull /* more than that between two steps counts as that: nobody has looked meanwhile   \
                  */
#define BALANCE_WHOSE_KEPT                                                                         \
    600000000000ull /* a job that rests says nothing: what was found stands for so long */

/* What a host says of its NIC, beside its way to or from ours. */
enum balance_word {
    BALANCE_WORD_NONE,
    BALANCE_WORD_ALONE,  /* it carries nothing else */
    BALANCE_WORD_OTHERS, /* another way to it or from it is slow, or suspected */
    BALANCE_WORD_WELL    /* it carries for others, and none of that is slow */
};

struct balance_witness {
    uint32_t host; /* hash of its name */
    enum balance_word word;
    uint64_t sends_at, slow_at; /* its way to us was slow then; ours to it; 0: never */
    uint64_t word_at;           /* 0: none has come */
};

/* All zero: nothing is known. */
struct balance_whose {
    bool ours;              /* the NIC here is slow itself */
    uint64_t step_at;       /* the last step; 0: none */
    uint64_t heard_at;      /* the last with a slow way */
    uint64_t held, against; /* for how long two witnesses have said so; have said the contrary */
    uint64_t from;          /* since when they have said so, as of when @ours became true */
    uint32_t hosts[2];      /* two of them, as of then */
    struct balance_witness witness[BALANCE_WHOSE_HOSTS];
};

/* Our way to @host is slow: with each window of work in which it is. */
void balance_whose_slow(struct balance_whose *w, uint32_t host, uint64_t now);
/* @host says that its way to our NIC is slow, and @word. */
void balance_whose_told(struct balance_whose *w, uint32_t host, enum balance_word word,
                        uint64_t now);
/* @host answers. */
void balance_whose_word(struct balance_whose *w, uint32_t host, enum balance_word word,
                        uint64_t now);
/* Our NIC has a slow way other than that to or from @host. */
bool balance_whose_has_others(const struct balance_whose *w, uint32_t host, uint64_t now);
/*
 * Returns whether @w->ours has changed. True: two witnesses have said so for BALANCE_WHOSE_HOLDS in
 * all, however long they rested in between. False: for as long a host said that others are slow,
 * and two witnesses did not say so. After BALANCE_WHOSE_KEPT without a slow way @w->ours is false,
 * too, and nothing has changed: nobody has said anything.
 */
bool balance_whose_step(struct balance_whose *w, uint64_t now);

#endif
