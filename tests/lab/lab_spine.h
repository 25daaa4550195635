/*
 * The ways of a rail: what leaf switches do with RoCE v2, by the addresses and the UDP source port
 * that the kernel under test writes. Between two ports of a rail lie LAB_SPINES of them. Pure.
 */
#ifndef R2_LAB_SPINE_H
#define R2_LAB_SPINE_H

#include <stddef.h>
#include <stdint.h>

#define LAB_SPINES 8 /* below 10: one digit */

/*
 * The spine that a frame takes, by a hash that does not tell source from destination, so that equal
 * source ports go the same way in both directions. -1: no RoCE v2 over IPv4, which meets none.
 */
int lab_spine_of(const uint8_t *frame, size_t len);

#endif
