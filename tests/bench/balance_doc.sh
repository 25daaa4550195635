#!/bin/sh
# balance_doc.sh TABLE JSON: tests/bench/README.md with the tables of make bench-balance between their marks
set -eu
table=$1 json=$2 doc=tests/bench/README.md
{
    awk '/^<!-- balance -->$/ { skip = 1 } !skip { print } /^<!-- end of balance -->$/ { skip = 0 }' "$doc" | awk 'NF { for (; blank > 0; blank--) print ""; print; next } { blank++ }'
    cat <<'END'

<!-- balance -->
## Balance

Written by `sh tests/bench/bench_balance.sh build --write-doc`; `make bench-balance` measures the same in some 18 minutes, prints the tables and leaves all figures in
`build/bench-balance.json`, the first table as a picture in `build/bench-balance.svg`. `--only SECTION` makes one section again, `--runs N` takes the median of N runs.

END
    jq -r '"Machine: \(.cores) cores, shared, load \(.load) at the end; source \(.git); \(if .runs == 1 then "one run" else "the median of \(.runs) runs" end) for each figure.\n"' "$json"
    cat "$table"
    cat <<'END'

Two hosts on rated links of the software fabric, 4 NICs of 20 MB/s or 8 of 10 MB/s: slow enough for two cores. A figure is what all NICs send (their counters), while `r2_perf` runs with
messages of 4 MiB and checks every element, from 0.25 s after the faults on by what they sent before, each the middle one of five pieces of 0.4 s, in one run. The ideal is what is left along the ring: rails that both hosts still have, by all. More than 100 % is
possible: on fewer links the ends of operations cost less. Figures far above it
say that the machine, not the links, was the limit before the fault; make them again on a quiet one. What is counted (shares of NICs, virtual time) does not depend on that. Beside it all goes over the first backup (`NCCL_R2_BALANCE=off`), as with one standby NIC.
A NIC that is slow is found by comparing completions; the links of that table are as fast as the others', so that a message of 64 KiB takes 16 ms on the slow one.

NICs that differ are told apart by the topology (`NCCL_R2_TOPO`: the fabric's tree), since verbs know no port slower than 2.5 Gb/s; without it parts are equal, and the slowest survivor
sets the pace. The optimum is the sum of the survivors' rates. What four processes put on each NIC is read from the fabric's counters on both hosts, the worse one is shown.
Small messages are those of one connection in virtual time (`bench_inproc small`): from posting at both ends until the receiver has it, 1 us of link, a turn of both
ends each 50 ns.
<!-- end of balance -->
END
} >"$json.md"
cat "$json.md" >"$doc"
rm -f "$json.md"
