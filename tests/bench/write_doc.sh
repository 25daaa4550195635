#!/bin/sh
# write_doc.sh BENCH_JSON TABLE: tests/bench/README.md, and the short table in README.md, from what make bench has measured.
set -eu
json=$1 table=$2
probe=$(sed -n '/^<!-- probe -->$/,/^<!-- end of probe -->$/p' tests/bench/README.md) # written by bench_probe.sh: stays
ways=$(sed -n '/^## Ways$/,$p' tests/bench/README.md) # by bench_ways.sh and bench_rings.sh: likewise
balance=$(sed -n '/^<!-- balance -->$/,/^<!-- end of balance -->$/p' tests/bench/README.md) # by bench_balance.sh: likewise
{
    cat <<'END'
# Measurements

Written by `sh tests/bench/bench.sh build --write-doc`; `make bench` measures the same, prints the table and leaves all figures in
`build/bench.json`; `sh tests/bench/bench.sh build --only SECTION` makes one section again. No NIC was needed and none was
there: counts and virtual times come from the in-process fabric and are the same in every run, real times and rates from processes over the
shared-memory fabric.

END
    jq -r '"Machine: \(.cores) cores, shared, load \(.load) at the end; source \(.git).\n"' "$json"
    cat "$table"
    cat <<'END'

## How to read it

| section | what is done |
|---|---|
| cost | One connection over one of four NICs, window of 8 as NCCL's proxy keeps it, 100 Gb/s links in virtual time. Every work request and completion is counted, of messages in the middle of a stream. "Bursts of a window": eight messages, then silence |
| | A CTS write is signaled each 16th time: the receiver's 0.06 CQE. Acknowledgements ride on CTS; alone they are 8 bytes, and only where nothing is left to ride on |
| stall | The longest time in which a receiver that has work finishes no message, around the instant at which a port goes down at either end or both; the NICs of a connection fail one after another until one is left. The twin figure is the same around a fault that changes nothing: what scheduler and links do by themselves. In virtual time there is no scheduler: what remains is the number of hand-overs between threads and of messages between processes |
| bandwidth | `r2_perf` on rated links: busbw after one NIC went down by busbw before, in one run; the median of three runs. Slightly more than (N-1)/N is possible: with the link slower in proportion the ends of operations cost less |
| many | Two processes with 1,000 connections over two NICs, one of which goes down; in virtual time, links of 10 GB/s, one worker per NIC. Queue pairs that somebody waits for are fenced first |
| memory | What the plugin takes from the heap for one more connection at either end, rounding of the heap included, and the sizes of queues that it asks for. What a driver makes of those is its own |
| setup | Two processes, from `listen` until `connect` and `accept` have returned at both ends for all; the exchange of handles, a socket here, included |
| load | Two processes, all connections polled by one thread each: set-up of all, CPU time of each process while nothing is sent, of its service thread in set-up and in what follows, calls of membarrier at the receiver while all are busy, and from the instant at which a port goes down until all that was under way and one message more are through, for each connection. The twin figure is the same behind a fault that changes nothing |
| idle | Two processes at rest: CPU time, how often the service thread wakes and what for (a deadline, a job that a worker has ended, channel, host registry, a device's event), how often the workers do; medians of runs, of the process that takes more. `IDLE_BESIDE=PLUGIN` puts another build between the runs, `IDLE="1 1000"` and `IDLE_ROUNDS` choose |
| calls | callgrind, instructions in the plugin's own functions and the verbs calls inlined into them, without the driver's. Set-up cancels out: the difference of a short and a long run |
| fabric | perftest over two hosts with links of 100 MB/s: bytes of a port between two readings of its counters, by its rate |
END
    [ -z "$probe" ] || printf '\n%s\n' "$probe"
    [ -z "$balance" ] || printf '\n%s\n' "$balance"
    [ -z "$ways" ] || printf '\n%s\n' "$ways"
} >tests/bench/README.md
[ -e README.md ] && grep -q '^<!-- numbers -->$' README.md || exit 0
jq -r --arg form readme -f tests/bench/table.jq "$json" >"$json.readme"
awk -v file="$json.readme" '
    /^<!-- numbers -->$/ { print; while ((getline line < file) > 0) print line; skip = 1; next }
    /^<!-- end of numbers -->$/ { skip = 0 }
    !skip { print }' README.md >"$json.md"
cat "$json.md" >README.md
rm -f "$json.readme" "$json.md"
