/*
 * P4: one message of UNITS units, cut in two, over two paths of which one breaks. R counts parts; when both are there, every unit must
 * have been written. The first cut is any, and a retransmission keeps it (NO_FROZEN_CUT: is cut anew).
 */
#ifndef UNITS
#define UNITS 4
#endif
hidden byte unwritten;

byte cut;               /* units of part 0; part 1 has the rest */
byte at[2] = 2;         /* path of the last post of a part; 2: unposted */
bool under_way[2];
byte written;           /* bit per unit */
byte led;               /* bit per part */
byte broken = 2;        /* the path that is DOWN and fenced */
bool taken_up;

#define ALL ((1 << UNITS) - 1)
#define RANGE(k) ((k) == 0 -> ((1 << cut) - 1) : (ALL & ~((1 << cut) - 1)))

byte covers[2];         /* units, as bits */

inline post(k, p)
{
    at[k] = p;
    covers[k] = RANGE(k);
    under_way[k] = 1
}

inline any_path(k)
{
    if
    :: broken != 0 -> post(k, 0)
    :: broken != 1 -> post(k, 1)
    fi
}

inline arrive(k)
{
    d_step {
        under_way[k] = 0;
        written = written | covers[k];
        led = led | (1 << k)
    }
}

active proctype Connection()
{
    byte c;

    select(c : 1 .. UNITS - 1);
    cut = c;
    c = 0;
    atomic { any_path(0); any_path(1) }
    do
    :: under_way[0] -> arrive(0)
    :: under_way[1] -> arrive(1)
    :: broken == 2 -> broken = 0
    :: broken == 2 -> broken = 1
    /* what the broken path carried and R does not have is lost; the ledger says so, and it is posted again */
    :: atomic {
        broken < 2 && !taken_up ->
        taken_up = 1;
#ifdef NO_FROZEN_CUT
        select(c : 1 .. UNITS - 1);
        cut = c;
        c = 0;
#endif
        if
        :: at[0] == broken && under_way[0] -> any_path(0)
        :: else
        fi;
        if
        :: at[1] == broken && under_way[1] -> any_path(1)
        :: else
        fi
       }
    :: led == 3 -> break
    od;
    assert(unwritten || written == ALL)
}
