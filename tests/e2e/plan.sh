#!/bin/sh
# r2_plan: what it prints, its JSON, and command lines that make no sense; what the figures of make bench-paper show.
#   plan.sh BUILD            closes with "N passed, N failed"
set -u
cd "$(dirname "$0")/../.." || exit 2
B=$1
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
passed=0 failed=0
ok() { passed=$((passed + 1)); }
bad() {
    failed=$((failed + 1))
    echo "FAIL $*"
}
plan() {
    timeout -k 5 60 "$B/r2_plan" "$@" >"$tmp/out" 2>"$tmp/err"
    rc=$?
}
# says TEXT ARGUMENTS...: exit 0, and a line of the output has TEXT in it
says() {
    text=$1
    shift
    plan "$@"
    if [ $rc = 0 ] && [ ! -s "$tmp/err" ] && grep -qF -e "$text" "$tmp/out"; then ok; else bad "$*: no '$text', exit $rc:" "$(cat "$tmp/out" "$tmp/err")"; fi
}
# holds FILTER ARGUMENTS...: one JSON value, for which jq's FILTER is true
holds() {
    filter=$1
    shift
    plan "$@" --json
    if [ $rc = 0 ] && jq -es "length == 1 and (.[0] | $filter)" "$tmp/out" >/dev/null; then ok; else bad "$*: not $filter"; fi
}
# refuses TEXT ARGUMENTS...: exit 2, nothing on the output, TEXT on the other
refuses() {
    text=$1
    shift
    plan "$@"
    if [ $rc = 2 ] && [ ! -s "$tmp/out" ] && grep -qF -e "$text" "$tmp/err"; then ok; else bad "$* should say '$text', exit $rc:" "$(cat "$tmp/err")"; fi
}

says '  17 0-2 4-16 18-63 3' --nodes 64 --nics 8 --lost 3:1,17:2
says 'lost: node 3: 1, node 17: 2' --nodes 64 --nics 8 --lost 3:1,17:n2+n5
says 'nothing lost' --nodes 4
says 'ranks as they are' --nodes 2 --lost 1:4
says 'of a node each' --nodes 8 --what-if 2
says "by R2CCL's Algorithm 1" --nodes 8 --rail-only --lost 1:n0
says 'NCCL_ALGO=Ring' --nodes 16 --lost 1:1,2:1,3:1,4:1 --size 16G
holds '.schema == 1 and .use == "tree, light seats" and .nccl_algo == "Tree"' --nodes 64 --lost 3:1,17:2
holds '.order[0] == 17 and .order[63] == 3 and (.order | sort) == [range(64)]' --nodes 64 --lost 3:1,17:2
holds '. as $d | (.strategies | length) == 8 and all(.strategies[]; .load >= $d.bound - 1e-6)' --nodes 16 --lost 2:7,5:3
holds '.degraded == [{"node": 3, "lost": 1, "share": 0.875}]' --nodes 5 --lost 3:1
holds '.rail_ring | .present == 0 and .best == 2 and .proved' --nodes 4 --nics 4 --rail-only --lost 1:n0+n1,2:n2+n3
holds '[.what_if[] | select(.where == "one")] | length == 3 and .[0].ring > 0.1 and .[2].ring > .[1].ring' --nodes 8 --nics 4 --what-if 5
holds '.nodes == 4096' --nodes 4096 --lost 0:1,4095:7
says 'no schedule below' simulate --nodes 8 --lost 3:4
plan simulate --nodes 8 --lost 0:1,3:2
if [ $rc = 0 ] && [ "$(grep -c '  right$' "$tmp/out")" = 9 ]; then ok; else bad "simulate: not all data is right:" "$(cat "$tmp/out")"; fi
holds 'all(.strategies[]; .wrong == null and .simulated >= .busy - 1e-6)' simulate --nodes 9 --lost 0:1,3:6,4:7
says 'at a receiver by senders first' simulate --nodes 8 --lost 3:4 --share senders
holds '.share == "connections"' simulate --nodes 8 --lost 3:4 --share connections
holds '.share == "bytes"' simulate --nodes 8 --lost 3:4
refuses '--share is bytes, connections or senders, not ports' simulate --nodes 8 --share ports
refuses '--share has no meaning without simulate' --nodes 8 --share bytes
holds '.strategies[] | select(.name == "tree, light seats") | .simulated < 2.1' simulate --nodes 8 --lost 3:4

refuses '--nodes is needed'
refuses '--nodes is a whole number from 2 to 4096, not 1' --nodes 1
refuses '--nodes is a whole number from 2 to 4096, not 4097' --nodes 4097
refuses '--nodes is a whole number from 2 to 4096, not 8x' --nodes 8x
refuses '--nics is a whole number from 1 to 32, not 33' --nodes 8 --nics 33
refuses '--gpus is a whole number from 1 to 64, not 0' --nodes 8 --gpus 0
refuses '--what-if is a whole number from 1 to 64, not -1' --nodes 8 --what-if -1
refuses '--size is a number of bytes as in 64M or 1.5G, 1 to 1024T, not 0' --nodes 8 --size 0
refuses 'not big' --nodes 8 --size big
refuses '--rate is that of a NIC in Gb/s, 0.001 to 100000, not nan' --nodes 8 --rate nan
refuses 'not 400Gb' --nodes 8 --rate 400Gb
refuses 'there is nothing to name beside options, not node' --nodes 8 node
refuses '--lost is given once' --nodes 8 --lost 1:1 --lost 2:1
refuses "--rail-only needs the names of lost NICs, as in --lost 3:n1+n4, not 1:1" --nodes 8 --rail-only --lost 1:1
refuses 'there is no node 8: the 8 nodes are 0 to 7' --nodes 8 --lost 8:1
refuses 'node 1 is named twice' --nodes 8 --lost 1:1,1:2
refuses 'node 1 has 8 NICs and cannot lose 9' --nodes 8 --lost 1:9
refuses 'node 1 would have no NIC left' --nodes 8 --lost 1:8
refuses 'node 1 would have no NIC left' --nodes 8 --nics 2 --lost 1:n0+n1
refuses 'node 1 has no n8: its 8 NICs are n0 to n7' --nodes 8 --lost 1:n8
refuses 'n3 of node 1 is named twice' --nodes 8 --lost 1:n3+n3
refuses "as in n0+n3, not '2'" --nodes 8 --lost 1:n0+2
refuses 'node 1 lacks what it lost' --nodes 8 --lost 1
refuses "not ''" --nodes 8 --lost 1:
refuses "not 'x:1'" --nodes 8 --lost x:1
refuses "not ''" --nodes 8 --lost ''
refuses "';2:1' is not understood" --nodes 8 --lost '1:1;2:1'
refuses "unknown option '--nonsense'" --nodes 8 --nonsense
refuses "option --nodes needs a value" --nodes
refuses 'simulate takes up to 128 nodes' simulate --nodes 129
refuses '--size has no meaning with simulate' simulate --nodes 8 --size 1M
refuses '--pieces has no meaning without simulate' --nodes 8 --pieces 4
refuses '--pieces is a whole number from 1 to 64, not 65' simulate --nodes 8 --pieces 65
refuses 'simulate comes before the options' --nodes 8 simulate
# Figures of the paper: what they are known to show, and that pictures are whole.
mkdir "$tmp/paper"
if timeout -k 5 120 "$B/bench/bench_paper" "$tmp/paper" >"$tmp/out" 2>"$tmp/err"; then ok; else bad "bench_paper:" "$(cat "$tmp/err")"; fi
for line in '| 8 | 1.7500 | 1.5625 | 1.5625 | 1.75 |' '| 128 | 1.9844 | 1.7383 | 1.7383 | 1.75 |' 'Crossover at 82 MiB' '114 MiB with the factor' \
    'costs 2.34 %' '0.9333 = 2 / ' '| 10 | 4.41 +- 0.17 | 3.97 +- 0.15 | 0.45 '; do
    if grep -qF -e "$line" "$tmp/out"; then ok; else bad "bench_paper does not print: $line"; fi
done
for fig in 5 10 15; do
    if [ "$(tail -1 "$tmp/paper/fig$fig.svg")" = '</svg>' ] && ! grep -q 'nan\|inf' "$tmp/paper/fig$fig.svg"; then ok; else bad "fig$fig.svg is not whole"; fi
done
# An output that takes nothing.
if "$B/r2_plan" --nodes 8 >/dev/full 2>"$tmp/err"; then bad "a full disk is not noticed"; elif grep -q 'r2_plan: output: ' "$tmp/err"; then ok; else bad "a full disk:" "$(cat "$tmp/err")"; fi
plan --version
if [ $rc = 0 ] && grep -q "^r2_plan $(cat VERSION) " "$tmp/out"; then ok; else bad "--version"; fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
