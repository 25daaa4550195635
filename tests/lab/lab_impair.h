/* What the switch does to frames, without IO or a clock of its own: impairments of a port's two
 * directions, the decision for one frame, a rate, and the text forms. Pure: the caller gives time
 * and random state. */
#ifndef R2_LAB_IMPAIR_H
#define R2_LAB_IMPAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As the VM sees it: LAB_OUT is what its NIC sends, LAB_IN what goes towards its NIC. */
enum lab_dir { LAB_OUT, LAB_IN, LAB_DIRS };

struct lab_impair {
    bool cut;
    double loss, dup, corrupt; /* chance of each, 0 to 1 */
    uint64_t delay_ns;
    uint64_t rate; /* bits per second; 0: as fast as it goes */
};

struct lab_verdict {
    enum { LAB_PASS, LAB_DROP_CUT, LAB_DROP_LOSS } what;
    bool twice, corrupt;
    uint64_t delay_ns;
};

/* Decides about one frame. Draws from @rng only what an impairment that is set asks for. */
struct lab_verdict lab_impair_decide(const struct lab_impair *im, uint64_t *rng);

/* 64 random bits; @rng may have any value. */
uint64_t lab_rng_next(uint64_t *rng);

/* Flips one bit of a frame's payload: behind Ethernet, IPv4, UDP and BTH where there is so much, so
 * that the frame still gets to the transport that has to find the damage. */
void lab_frame_corrupt(uint8_t *frame, size_t len, uint64_t *rng);

/* A rate as a schedule: each frame takes the wire for its time, and the next may start when that is
 * over. */
struct lab_pace {
    uint64_t free_at; /* ns */
};
/* Whether a frame may start at @now. */
static inline bool lab_pace_ready(const struct lab_pace *p, uint64_t now)
{
    return p->free_at <= now;
}
/* Takes the wire for @len bytes at @rate bits per second (0: for no time), from @now or from the
 * end of the one before, whichever is later; a waker that comes up to 2 ms late makes up for it. */
void lab_pace_take(struct lab_pace *p, uint64_t now, size_t len, uint64_t rate);

/* A command that sets impairments, as the control socket takes it:
 *   cut | loss PERCENT | dup PERCENT | corrupt PERCENT | delay MS | rate MBIT
 *           each with an optional both | in | out
 *   heal    everything off, both directions
 * @word is split into words; changes @im[LAB_DIRS]. Returns NULL, or what is wrong. */
const char *lab_impair_parse(char *const *word, int n, struct lab_impair im[LAB_DIRS]);

/* The impairments in words, as in "out cut, in loss 1% rate 20Mbit"; "healthy" when there are none.
 */
void lab_impair_print(const struct lab_impair im[LAB_DIRS], char *out, size_t size);

#endif
