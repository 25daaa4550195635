/*
 * A NIC of R's under several connections (P29): its generation, NIC_DOWN, and incarnations that end and return one by one. Data is not in this
 * model; what connections share is the verdict. S's NIC is the mirror image. Records are facts, as in failover.pml.
 */
#ifndef NC
#define NC 2            /* connections */
#endif
#ifndef FAULTS
#define FAULTS 2        /* times that the NIC goes down */
#endif
#define INCS (FAULTS + 2)
hidden byte false_failover, tmp;

bool nicUp = 1;
byte gen;               /* +1 each time R's process gives the NIC up; NIC_DOWN says it, and older ones may come late */
byte faults = FAULTS;

#define OPENING 0       /* built, said, not yet up: NIC_DOWN does not look at it */
#define UP 1
#define OVER 2          /* down, fenced, and so on: one step here */

typedef End {
    byte inc;           /* the present one */
    byte st;
    byte gen            /* R: of the NIC when the queue pair was made; S: what OPEN said */
}
End r[NC], s[NC];
byte deadGen;           /* S's process: the largest generation heard in NIC_DOWN */
byte rGen[NC * INCS];   /* what OPEN of an incarnation says: it may come late */

#define AT(c, l) ((c) * INCS + (l))

/* An incarnation that stands at last is looked at once more: what happened while it was built was told to nobody. */
#ifdef NO_LOOK_AGAIN
#define R_STANDS(c) UP
#define S_STANDS(c) UP
#else
#define R_STANDS(c) ((r[c].gen != gen || !nicUp) -> OVER : UP)
#define S_STANDS(c) ((deadGen > s[c].gen) -> OVER : UP)
#endif
#ifdef NO_GENERATION
#define BEFORE(c, g) 1
#else
#define BEFORE(c, g) (g > s[c].gen)
#endif

inline end_lives_over_nic()
{
    tmp = 0;
    do
    :: tmp < NC ->
        if
        :: r[tmp].st == UP -> r[tmp].st = OVER
        :: else
        fi;
        tmp++
    :: else -> break
    od;
    tmp = 0
}
inline nic_down(g)
{
    deadGen = g;
    tmp = 0;
    do
    :: tmp < NC ->
        if
        :: s[tmp].st == UP && BEFORE(tmp, g) ->
            assert(false_failover || rGen[AT(tmp, s[tmp].inc)] < g);
            s[tmp].st = OVER
        :: else
        fi;
        tmp++
    :: else -> break
    od;
    tmp = 0
}

#define BOTH_UP(c) (r[c].st == UP && s[c].st == UP && r[c].gen == gen)
#define AT_REST (nicUp && BOTH_UP(0) && BOTH_UP(NC / 2) && BOTH_UP(NC - 1))

/* The NIC, and what is heard of it. */
proctype Nic()
{
    do
    :: d_step { faults > 0 && nicUp -> nicUp = 0; gen++; faults--; end_lives_over_nic() }
    :: d_step { !nicUp -> nicUp = 1 }
    :: d_step { gen >= 1 && deadGen < 1 -> nic_down(1) }
    :: d_step { gen >= 2 && deadGen < 2 -> nic_down(2) }
    :: atomic { faults == 0 && AT_REST -> break }
    od
}

/* One connection's incarnation over it. */
proctype Connection(byte c)
{
    do
    /* DOWN of the present incarnation; an end that builds it gives it up */
    :: d_step { r[c].inc == s[c].inc && r[c].st == OVER && s[c].st != OVER -> s[c].st = OVER }
    :: d_step { r[c].inc == s[c].inc && s[c].st == OVER && r[c].st != OVER -> r[c].st = OVER }
    /* the other end has never begun it: R that ends an incarnation before S knows of it has nothing to ask */
    :: d_step {
        r[c].st == OVER && nicUp && r[c].inc + 1 < INCS && (s[c].inc < r[c].inc || s[c].st == OVER) ->
        r[c].inc++;
        r[c].st = OPENING;
        r[c].gen = gen;
        rGen[AT(c, r[c].inc)] = gen
       }
    :: d_step {
        s[c].inc < r[c].inc && s[c].st == OVER ->
        s[c].inc = r[c].inc;
        s[c].st = OPENING;
        s[c].gen = rGen[AT(c, r[c].inc)]
       }
    :: d_step { r[c].inc == s[c].inc && r[c].st == OPENING -> r[c].st = R_STANDS(c) }
    :: d_step { r[c].inc == s[c].inc && s[c].st == OPENING && r[c].st == UP -> s[c].st = S_STANDS(c) }
    /* an OPEN_UP that comes late */
    :: d_step { r[c].inc == s[c].inc && s[c].st == OPENING && r[c].st == OVER -> s[c].st = S_STANDS(c) }
    :: atomic { faults == 0 && AT_REST -> break }
    od
}

init
{
    atomic {
        tmp = 0;
        do
        :: tmp < NC -> r[tmp].st = UP; s[tmp].st = UP; run Connection(tmp); tmp++
        :: else -> break
        od;
        run Nic()
    }
}
