#!/bin/sh
# How much a process says at NCCL_DEBUG=INFO where it has many connections: when they come up, and when one failure hits all of them. What is left out is counted,
# and what operators look for is there. Argument: build folder. Second argument: only cases whose name contains it.
. "$(dirname "$0")/collective_lib.sh"
case $B in /*) ;; *) B=$PWD/$B ;; esac
# 4 processes, one per host, 16 channels to each of the others in both directions: 96 connections each
many() {
    timeout -k 5 200 "$B/r2_perf" alltoall -b 64K -e 64K --hosts 4 --nics 2 --channels 16 --buffsize 64K --p2p-chunk 8K --placement out -w 1 -T 60s "$@" >"$log/out" 2>&1
    rc=$?
    ids=$(sed -n 's/^h0:\([0-9]*\):.*NET\/R2.*/\1/p; s/^\[.*\] h0:\([0-9]*\):.*NET\/R2.*/\1/p' "$log/out" | sort -u | wc -l)
    lines=$(grep -c '^\(\[[^]]*\] \)\{0,1\}h0:.*NET/R2' "$log/out")
}
at_most() { # NAME LIMIT
    if [ "$ids" != 1 ]; then
        bad "$1" "$ids processes on the host"
    elif [ "$lines" -gt "$2" ]; then
        bad "$1" "$lines lines, more than $2"
    else
        ok "$1: $lines lines"
    fi
}
# there NAME PATTERN: host 0 says so
there() {
    if grep '^\(\[[^]]*\] \)\{0,1\}h0:' "$log/out" | grep -qE "$2"; then ok "$1"; else bad "$1" "nothing like '$2'"; fi
}
wanted "start" && {
    many -n 3 --stats
    was_right "start: 96 connections" && at_most "start: 96 connections" 60
    there "start: the first are told" ' connected: 2 paths of 2 up'
    there "start: the others are counted" 'NET/R2 : 80 more connections are up \(r2_stat -c lists them\)'
}
wanted "failure" && {
    many --duration 4s --fault '1500ms:h0:n1 down' --fault-cmd "$(once 2s "$(logged '^h0:.* more lives of paths went UP -> DOWN')")" \
        --fault-cmd "$(once 2100ms "$(logged '^h0:.*NET/R2 : switch: fab1')")" --after 2500ms
    was_right "failure: 96 connections move" && at_most "failure: 96 connections move" 140
    there "failure: the first are told" ' life 1 UP -> DOWN: port down'
    there "failure: the others are counted" 'NET/R2 : [1-9][0-9]* more lives of paths went UP -> DOWN'
    there "failure: the verdict" 'WARN NET/R2 : R2-L01 host=h0 nic=fab1 '
    there "failure: the switch" 'NET/R2 : switch: fab1, 96 connections to fab0'
}
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
