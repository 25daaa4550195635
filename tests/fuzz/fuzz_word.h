/* Control records for a process of the rig: as its peer could say them in the state they are in,
 * then changed. */
#ifndef FUZZ_WORD_H
#define FUZZ_WORD_H

#include "fuzz_rig.h"

/*
 * A record of a type that the input chooses, right for the state that its receiver, *@to, is in;
 * then up to three of its fields or bytes are others.
 * @rec has room for FO_MAX_RECORD. Returns its length.
 */
size_t fuzz_word_say(struct fuzz_in *in, struct rig *rig, int *to, uint8_t *rec);
/* The same with one that was said by the channel before, to the same process or to who said it. 0:
 * none was. */
size_t fuzz_word_again(struct fuzz_in *in, struct rig *rig, int *to, uint8_t *rec);

#endif
