#!/bin/sh
# All operations give right results: numbers of ranks, odd sizes down to one element, several channels, both placements,
# all types and reductions. Every element of every run is checked by the driver; r2_perf_detect.sh shows that it would see.
. "$(dirname "$0")/r2_perf_lib.sh"

OPS="all_reduce all_gather reduce_scatter broadcast reduce sendrecv alltoall gather scatter"

# rows NAME N: the last run printed N rows that common scripts can read, all right
rows()
{
    if sh tests/parse_nccl_tests.sh <"$TMP/out" >"$TMP/parsed" && grep -q "^rows $2 wrong 0 " "$TMP/parsed"; then
        pass
    else
        fail "$1: $(tail -1 "$TMP/parsed")"
    fi
}

for op in $OPS; do
    for shape in "1 1" "2 1" "1 3" "2 2" "5 1" "2 4"; do
        set -- $shape
        name="$op on $1 hosts with $2 ranks"
        run "$op" --hosts "$1" --ranks-per-host "$2" -b 1 -e 40K -f 7 -n 3 -w 1 -d int8 --channels 3 --buffsize 32K \
            --p2p-chunk 2K
        expect "$name" 0
        rows "$name" 6
    done
    run "$op" --hosts 2 --ranks-per-host 2 -b 3M -e 3M -n 4 -u 3 -d double --intra net --flush
    expect "$op, large" 0
    rows "$op, large" 1
done

run all_reduce --hosts 3 -b 2000 -e 2000 -n 2 -d all -o all
expect "all types and reductions" 0
rows "all types and reductions" 50
run reduce --hosts 3 -b 5000 -e 5000 -n 2 -r -1 -o avg -d bfloat16
expect "all roots" 0
rows "all roots" 3
run broadcast --hosts 4 -b 5000 -e 5000 -n 2 -r 2
expect "root 2" 0
rows "root 2" 1
for z in 1 2 3; do
    run all_reduce -b 64K -e 64K -n 4 -m 3 -z $z
    expect "-z $z" 0
    rows "-z $z" 1
done
TCPTEST_NULL=80 run all_reduce -b 1M -e 1M -n 3
expect "a plugin that is often not ready" 0
rows "a plugin that is often not ready" 1
TCPTEST_NULL=80 run alltoall --hosts 4 -b 1M -e 1M -n 3 --flush
expect "a plugin that is often not ready, alltoall" 0
run all_reduce -b 16M -e 16M -t 500ms
expect "by time" 0
rows "by time" 1
finish
