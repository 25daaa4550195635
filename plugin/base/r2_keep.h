#ifndef R2_KEEP_H
#define R2_KEEP_H

/*
 * Keeps @p, an address that was computed, in a register. Of an element of an array, whose size is
 * no power of two, compilers compute the address anew at each use, three to five instructions each
 * time; behind this they cannot see what it was made of. For the data path; no instruction of its
 * own.
 */
#define R2_KEEP(p) __asm__("" : "+r"(p))

#endif
