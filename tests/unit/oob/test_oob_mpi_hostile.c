/*
 * Frames over MPI that no endpoint would send: again, cut, changed, from another rank; and which
 * calls of MPI the module makes when. These calls are this program's, which keeps what goes out,
 * changes it on the way, puts it in again and says of what comes in that it is another rank's.
 */
#include "tests/unit/oob_mpi_rig.h"

#include "plugin/oob/mpi/oob_mpi.h"

#define KEPT     64
#define ROOM     512
#define OTHER    1 /* a rank that is not this one, the only one */
#define ANY_RANK (-1)

#define MPI_SAYS __attribute__((visibility("default")))

struct taken {
    int n;
    _Alignas(struct world_head) uint8_t b[ROOM];
};

static struct {
    struct taken kept[KEPT]; /* what went out, the latest at count - 1 */
    int count;
    int size;           /* the next frame goes out with so many bytes; -1: as it is */
    int change;         /* in the next one this byte is another; -1: none */
    int yields;         /* calls in which MPI may give the processor away */
    int other, was_own; /* the next that comes in is OTHER's; its receive is to be of this rank */
    void *type, *comm;
    int tag;
} wire = {.size = -1, .change = -1};

/* The module's calls, resolved here before MPI's own (Makefile). Open MPI: handles are addresses, a
 * status begins with the source. */
MPI_SAYS int PMPI_Issend(const void *b, int n, void *type, int to, int tag, void *comm,
                         void **request);
MPI_SAYS int PMPI_Iprobe(int from, int tag, void *comm, int *flag, void *status);
MPI_SAYS int PMPI_Irecv(void *b, int n, void *type, int from, int tag, void *comm, void **request);
MPI_SAYS int PMPI_Test(void **request, int *flag, void *status);

static void *call(const char *name)
{
    void *p = dlsym(mpi_module, name);

    ck_assert_ptr_nonnull(p);
    return p;
}

static int true_issend(const void *b, int n, void *type, int to, int tag, void *comm,
                       void **request)
{
    int (*f)(const void *, int, void *, int, int, void *, void **);

    *(void **)&f = call("MPI_Issend");
    return f(b, n, type, to, tag, comm, request);
}

int PMPI_Issend(const void *b, int n, void *type, int to, int tag, void *comm, void **request)
{
    const struct world_head *head = b;

    ck_assert_int_lt(wire.count, KEPT);
    ck_assert_int_le(n, ROOM);
    wire.kept[wire.count].n = n;
    memcpy(wire.kept[wire.count++].b, b, (size_t)n);
    wire.type = type;
    wire.comm = comm;
    wire.tag = tag;
    if (head->kind == MPI_KIND_FRAME && wire.size >= 0) {
        b = wire.kept[wire.count - 1].b; /* it may be longer than the module's own copy */
        n = wire.size;
        wire.size = -1;
    }
    if (head->kind == MPI_KIND_FRAME && wire.change >= 0) {
        ((uint8_t *)(uintptr_t)b)[wire.change] ^= 1; /* the module's own copy */
        wire.change = -1;
    }
    return true_issend(b, n, type, to, tag, comm, request);
}

int PMPI_Iprobe(int from, int tag, void *comm, int *flag, void *status)
{
    int (*f)(int, int, void *, int *, void *), rc;

    wire.yields++;
    *(void **)&f = call("MPI_Iprobe");
    rc = f(from, tag, comm, flag, status);
    if (rc == 0 && *flag && wire.other && from == ANY_RANK) {
        wire.other = 0;
        wire.was_own = 1;
        *(int *)status = OTHER;
    }
    return rc;
}

int PMPI_Irecv(void *b, int n, void *type, int from, int tag, void *comm, void **request)
{
    int (*f)(void *, int, void *, int, int, void *, void **);

    *(void **)&f = call("MPI_Irecv");
    if (wire.was_own) {
        ck_assert_int_eq(from, OTHER);
        from = 0;
        wire.was_own = 0;
    }
    return f(b, n, type, from, tag, comm, request);
}

int PMPI_Test(void **request, int *flag, void *status)
{
    int (*f)(void **, int *, void *);

    wire.yields++;
    *(void **)&f = call("MPI_Test");
    return f(request, flag, status);
}

/* @n bytes come in, from this rank or from another; nothing else is under way. */
static void put(const void *b, int n, int other)
{
    static struct taken sent[KEPT]; /* MPI may read them until the process ends */
    static void *request[KEPT];
    static int turn;

    ck_assert_int_lt(turn, KEPT);
    memcpy(sent[turn].b, b, (size_t)n);
    wire.other = other;
    ck_assert_int_eq(
        true_issend(sent[turn].b, n, wire.type, 0, wire.tag, wire.comm, &request[turn]), 0);
    turn++;
    settle();
    ck_assert_int_eq(wire.other, 0);
}

static const struct taken *latest(int kind, const struct ep *from)
{
    for (int i = wire.count; i-- > 0;) {
        struct world_head head;

        memcpy(&head, wire.kept[i].b, sizeof(head));
        if (head.kind == kind && memcmp(head.from, from->name.uuid, sizeof(head.from)) == 0) {
            return &wire.kept[i];
        }
    }
    ck_abort_msg("nothing of kind %d was sent", kind);
    return NULL;
}

/* --- frames --- */

static struct ep *a, *b;
static struct r2_oob_peer *to_b;

/* A channel from @a to @b that has brought one message. */
static void begin_channel(void)
{
    a = ep_new();
    b = ep_new();
    to_b = dial(a, &b->name);
    UNTIL(a->up, 1);
    UNTIL(b->up, 1);
    ck_assert_int_eq(say(a, to_b, "good"), 0);
    UNTIL(b->got, 1);
    settle();
}

static void begin(void)
{
    begin_mpi();
    begin_channel();
}

/* What comes next arrives, once, by MPI. */
static void goes_on(int got)
{
    ck_assert_int_eq(say(a, to_b, "later"), 0);
    UNTIL(b->got, got + 1);
    settle();
    ck_assert_int_eq(b->got, got + 1);
    ck_assert_int_eq(memcmp(b->keep + b->kept - 5, "later", 5), 0);
    ck_assert_int_eq(strncmp(a->oob->ops->peer_str(to_b), "MPI rank 0", 10), 0);
}

static void undisturbed(void)
{
    ck_assert_int_eq(b->got, 1);
    ck_assert_int_eq(a->down + b->down, 0);
    ck_assert_uint_eq(counters(b).bad_frames, 0);
    goes_on(1);
    ck_assert_int_eq(a->down + b->down, 0);
}

/* The channel that brought it is given up, and a new one is made. */
static void bad(void)
{
    settle();
    ck_assert_int_eq(b->got, 1);
    ck_assert_int_eq(b->down, 1);
    ck_assert_uint_eq(counters(b).bad_frames, 1);
    UNTIL(b->up, 2);
    UNTIL(a->up, 2);
    goes_on(1);
    ck_assert_uint_eq(counters(b).bad_frames, 1);
}

START_TEST(replayed_frame)
{
    const struct taken *f = latest(MPI_KIND_FRAME, a);

    put(f->b, f->n, 0);
    bad();
}
END_TEST

/* Of a channel that is no more: nothing of it counts against the one that is. */
START_TEST(frame_of_an_earlier_channel)
{
    struct taken f = *latest(MPI_KIND_FRAME, a);

    put(f.b, f.n, 0);
    bad();
    put(f.b, f.n, 0);
    ck_assert_int_eq(b->got, 2);
    ck_assert_int_eq(b->down, 1);
    ck_assert_uint_eq(counters(b).bad_frames, 1);
    goes_on(2);
}
END_TEST

/* All that made the channel, once more: the nonce of the answer is another, so that the proof is
 * wrong, and the channel stays. */
START_TEST(replayed_channel)
{
    struct taken dialled = *latest(MPI_KIND_DIAL, a), proof = {0};

    for (int i = 0; i < wire.count && proof.n == 0; i++) { /* the first frame of its dialler */
        const struct world_head *head = (const void *)wire.kept[i].b;

        if (head->kind == MPI_KIND_FRAME &&
            memcmp(head->from, a->name.uuid, sizeof(head->from)) == 0) {
            proof = wire.kept[i];
        }
    }
    put(dialled.b, dialled.n, 0);
    ((struct world_head *)(void *)proof.b)->chan ^=
        1; /* else it is one of the channel that stands */
    ((struct world_head *)(void *)dialled.b)->chan ^= 1;
    put(dialled.b, dialled.n, 0);
    put(proof.b, proof.n, 0);
    ck_assert_uint_eq(counters(b).strangers, 1);
    ck_assert_int_eq(b->up, 1);
    undisturbed();
}
END_TEST

/* Whole or not at all, and no byte more. */
START_TEST(frame_of_another_size)
{
    static const int size[] = {(int)sizeof(struct world_head), (int)sizeof(struct world_head) + 1,
                               (int)sizeof(struct world_head) + OOB_FRAME_HEAD};
    int whole = latest(MPI_KIND_FRAME, a)->n; /* of a message as long as that one */

    wire.size = _i < 3 ? size[_i] : _i == 3 ? whole - 1 : whole + 1;
    ck_assert_int_eq(say(a, to_b, "lost"), 0);
    bad();
}
END_TEST

/* Nobody's. */
START_TEST(less_than_a_head)
{
    const struct taken *f = latest(MPI_KIND_FRAME, a);

    for (int n = 0; n < (int)sizeof(struct world_head); n += 13) {
        put(f->b, n, 0);
    }
    undisturbed();
}
END_TEST

START_TEST(changed_on_the_way)
{
    wire.change = latest(MPI_KIND_FRAME, a)->n - 1 - _i * 8;
    ck_assert_int_eq(say(a, to_b, "lost"), 0);
    bad();
}
END_TEST

/* What its peer could have said, right in every byte but for where it comes from. */
START_TEST(frame_of_another_rank)
{
    wire.other = 1;
    ck_assert_int_eq(say(a, to_b, "taken"), 0);
    settle();
    ck_assert_int_eq(wire.other, 0);
    ck_assert_int_eq(b->got, 1);
    ck_assert_int_eq(b->down, 0);
    ck_assert_uint_eq(counters(b).strangers, 1);
    ck_assert_uint_eq(counters(b).bad_frames, 0);
    put(latest(MPI_KIND_FRAME, a)->b, latest(MPI_KIND_FRAME, a)->n,
        0); /* the channel waits for it, from whom it is */
    ck_assert_int_eq(b->got, 2);
    ck_assert_int_eq(b->down, 0);
    goes_on(2);
}
END_TEST

START_TEST(end_of_another_rank)
{
    struct taken fin;

    a->oob->ops->peer_put(to_b);
    wire.other = 1;
    settle();
    ck_assert_int_eq(wire.other, 0);
    fin = *latest(MPI_KIND_FIN, a);
    ck_assert_int_eq(b->down, 0);
    ck_assert_uint_eq(counters(b).strangers, 1);
    put(fin.b, fin.n, 0);
    ck_assert_int_eq(b->down, 1);
    to_b = dial(a, &b->name);
    UNTIL(a->up, 2);
    UNTIL(b->up, 2);
    goes_on(1);
}
END_TEST

START_TEST(dial_of_another_rank)
{
    struct taken dialled = *latest(MPI_KIND_DIAL, a);

    ((struct world_head *)(void *)dialled.b)->chan ^= 1;
    put(dialled.b, dialled.n, 1);
    ck_assert_uint_eq(counters(b).strangers, 1);
    undisturbed();
}
END_TEST

/* "No such endpoint here" would make the dialler take TCP for good. */
START_TEST(refusal_of_another_rank)
{
    struct ep *c = ep_new();
    struct world_head refusal = {.magic = WORLD_MAGIC, .kind = MPI_KIND_REFUSE};
    struct r2_oob_peer *p;

    c->asleep = 1;
    p = dial(a, &c->name);
    settle();
    refusal.chan = ((const struct world_head *)(const void *)latest(MPI_KIND_DIAL, a)->b)->chan;
    memcpy(refusal.from, c->name.uuid, sizeof(refusal.from));
    memcpy(refusal.to, a->name.uuid, sizeof(refusal.to));
    put(&refusal, sizeof(refusal), 1);
    ck_assert_int_eq(a->down, 0);
    ck_assert_uint_eq(counters(a).strangers, 1);
    c->asleep = 0;
    UNTIL(c->up, 1);
    UNTIL(a->up, 2);
    ck_assert_int_eq(strncmp(a->oob->ops->peer_str(p), "MPI rank 0", 10), 0);
    ck_assert_int_eq(say(a, p, "there"), 0);
    UNTIL(c->got, 1);
    goes_on(1);
}
END_TEST

/* --- a process that stands still --- */

/* Longer than a channel may be silent. Who stood still has heard nobody, and says of nobody that he
 * was silent; for time that it does look, silence counts as ever. */
START_TEST(silence_is_not_what_nobody_listened_to)
{
    a->asleep = b->asleep = 1;
    run_for(4 * SEC);
    a->asleep = 0;
    run_for(2 * SEC);
    ck_assert_int_eq(a->down, 0);
    b->asleep = 0;
    run_for(1 * SEC);
    undisturbed();
    b->asleep = 1;
    run_for(4 * SEC);
    ck_assert_int_eq(a->down, 1);
}
END_TEST

/* Longer than a dial may take, both ends, between any two of its steps. */
START_TEST(a_dial_that_stands_still)
{
    struct ep *c = ep_new(), *turns[] = {c, a, c, a};

    b->asleep = c->asleep = 1;
    (void)dial(a, &c->name);
    settle();
    a->asleep = 1;
    for (size_t i = 0; i < sizeof(turns) / sizeof(turns[0]); i++) {
        run_for(3 * SEC); /* nobody has a turn */
        (void)turns[i]->oob->ops->progress(turns[i]->oob, clock_ns);
        ck_assert_int_eq(a->down + c->down, 0);
    }
    ck_assert_int_eq(a->up, 2);
    ck_assert_int_eq(c->up, 1);
    ck_assert_uint_eq(counters(c).strangers, 0);
}
END_TEST

/* --- calls of MPI --- */

/* Open MPI gives the processor away in a test or a probe that finds nothing: only progress() does
 * that, and a caller with much to send is not held up once for each message. */
START_TEST(send_gives_no_processor_away)
{
    int before = wire.yields;

    for (int i = 0; i < 3 * MPI_WINDOW; i++) {
        ck_assert_int_eq(say(a, to_b, "more"), 0);
    }
    ck_assert_int_eq(wire.yields, before);
    UNTIL(b->got, 1 + 3 * MPI_WINDOW);
    ck_assert_int_gt(wire.yields, before);
    ck_assert_int_eq(a->down + b->down, 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("oob_mpi_hostile");
    TCase *t = tcase_create("frames");
    SRunner *r;
    int failed;

    if (!module_is_there()) {
        return 77;
    }
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, begin, end_all);
    tcase_add_test(t, replayed_frame);
    tcase_add_test(t, frame_of_an_earlier_channel);
    tcase_add_test(t, replayed_channel);
    tcase_add_loop_test(t, frame_of_another_size, 0, 5);
    tcase_add_test(t, less_than_a_head);
    tcase_add_loop_test(t, changed_on_the_way, 0, 3);
    tcase_add_test(t, frame_of_another_rank);
    tcase_add_test(t, end_of_another_rank);
    tcase_add_test(t, dial_of_another_rank);
    tcase_add_test(t, refusal_of_another_rank);
    tcase_add_test(t, silence_is_not_what_nobody_listened_to);
    tcase_add_test(t, a_dial_that_stands_still);
    tcase_add_test(t, send_gives_no_processor_away);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
