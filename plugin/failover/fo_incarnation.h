/*
 * The incarnation of a path at one end: a pure state machine (protocol section 1 and 3). States
 * only grow; a path that returns is a new incarnation. The caller guards @s.
 */
#ifndef FO_INCARNATION_H
#define FO_INCARNATION_H

enum fo_state {
    FO_NONE,   /* being built */
    FO_UP,     /* carries work */
    FO_DOWN,   /* nothing is posted any more; its completions still count (P5) */
    FO_FENCED, /* closed: hard or soft, as the fence says */
    FO_STATE_COUNT
};
const char *fo_state_name(enum fo_state s);

/* Moves *@s to @to if that is legal. Returns 1 when the state changed. Same state, or backwards: 0,
 * nothing happens. */
int fo_incarnation_move(enum fo_state *s, enum fo_state to);

#endif
