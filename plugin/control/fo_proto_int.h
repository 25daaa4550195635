/*
 * Records of fo_proto whose packing is in a file of its own. A put or get of a body with a field
 * out of range turns the writer or reader bad. Pure; called by fo_pack() and fo_unpack() alone.
 */
#ifndef FO_PROTO_INT_H
#define FO_PROTO_INT_H

#include "fo_proto.h"

void fo_put_news(struct r2_writer *w, const struct probe_word *m);
void fo_get_news(struct r2_reader *r, struct probe_word *m);
void fo_put_news_ok(struct r2_writer *w, const struct fo_news_ok *m);
void fo_get_news_ok(struct r2_reader *r, struct fo_news_ok *m);
void fo_put_locate(struct r2_writer *w, const struct fo_locate *m);
void fo_get_locate(struct r2_reader *r, struct fo_locate *m);
void fo_put_load(struct r2_writer *w, const struct fo_load *m);
void fo_get_load(struct r2_reader *r, struct fo_load *m);
void fo_put_rates(struct r2_writer *w, const struct fo_rates *m);
void fo_get_rates(struct r2_reader *r, struct fo_rates *m);

#endif
