#!/bin/sh
# The driver sees what a wrong plugin does. Without this, "0 wrong" would mean nothing.
. "$(dirname "$0")/r2_perf_lib.sh"

LARGE="-b 4M -e 4M -n 10 -w 0 -T 3s"

for op in all_reduce all_gather reduce_scatter broadcast reduce sendrecv alltoall gather scatter; do
    for fault in CORRUPT DROP STALE; do
        export "TCPTEST_$fault=20"
        run $op $LARGE
        unset "TCPTEST_$fault"
        expect "$op with $fault" 7
        says "$op with $fault" 'Out of bounds values : [1-9][0-9]* FAILED'
    done
done

# A single wrong bit in the very last iterations, which stock nccl-tests would never look at.
TCPTEST_CORRUPT=95 run all_reduce -b 1M -e 1M -n 100 -w 0 --placement out --channels 1
expect "one bit in a timed iteration" 7
check "one bit is one element, or two where it is passed on" awk '
    /^ *[0-9]/ { if ($9 != 1 && $9 != 2) exit 1; n++ } END { exit n != 1 }' "$TMP/out"

TCPTEST_SHORT=20 run all_reduce $LARGE
expect "short messages" 7
says "short messages" '# r2 [1-9][0-9]* messages of a wrong size: FAILED; the first from rank'

# Without checks nothing is seen: the detection above is the driver's, not the plugin's.
TCPTEST_CORRUPT=20 run all_reduce $LARGE -c 0
expect "-c 0 sees nothing" 0

TCPTEST_ERROR=20 run all_reduce $LARGE
expect "an error from test()" 3
says "an error from test()" '^# error: test of a receive from rank [01] on rank [01], channel .* returned 6 (remote error): NET/TCPTEST'
TCPTEST_LISTEN=1 run all_reduce $LARGE
expect "an error from listen()" 3
says "an error from listen()" '^# error: listen on rank .*NET/TCPTEST : told to fail in listen'
TCPTEST_INIT=1 run all_reduce $LARGE
expect "an error from init()" 3
says "an error from init()" '^# error: .*init of plugin TCPTEST returned 2'
TCPTEST_HANG=20 run all_reduce $LARGE
expect "a plugin that stops" 4
says "a plugin that stops" '^# error: timeout: no progress for 3 s on rank'
says "a plugin that stops" 'messages given to the plugin'
TCPTEST_KILL=20 run all_reduce $LARGE --hosts 2 --ranks-per-host 2
expect "a killed rank" 3
says "a killed rank" '^# error: rank [0-3] (process [0-9]* on h[01]) was killed by signal 9 (Killed)'
check "nobody is left" nobody_left "^$PERF "

# A late message is not wrong, but its pause is found, measured and put in time.
TCPTEST_STALL=100:1500 run all_reduce -b 4M -e 4M -n 40 --placement out --json "$TMP/stall.json" --plot "$TMP/stall.svg"
expect "a pause" 0
# It is seen from the last message before it on: where the process does not run just then, it is shorter.
check "the pause is measured" awk -v RS=, '/"stall":\{"ms"/ { sub(/.*:/, ""); n++; if ($0 < 1000) exit 1 }
    /"all_stopped"/ { sub(/.*:/, ""); m++; if ($0 < 500) exit 1 } END { exit n != 1 || m != 1 }' "$TMP/stall.json"
says "failovers are counted" '# r2 failovers seen: [12] on'
finish
