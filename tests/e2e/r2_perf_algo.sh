#!/bin/sh
# r2_perf --algo: planned schedules over the software fabric with the plugin. Every element is checked by the driver; what goes by each NIC is, to the byte, what
# the plan says, and the fabric's own counters see no more than control messages beside it; a NIC that goes down makes a new plan.
. "$(dirname "$0")/r2_perf_lib.sh"
NET=$B/libnccl-net-r2.so
for f in "$NET" "$B/softfab" "$B/softfab-lib/libibverbs.so.1"; do
    [ -e "$f" ] || {
        echo "skipped: $f is not built"
        echo "0 passed, 0 failed"
        exit 0
    }
done
command -v jq >/dev/null || {
    echo "skipped: jq is not installed"
    echo "0 passed, 0 failed"
    exit 0
}
export NCCL_SOCKET_IFNAME=lo

# play ARGUMENTS: 4 hosts of 2 NICs unless said otherwise
play()
{
    rm -f "$TMP"/a.json*
    NCCL_NET_PLUGIN=$NET timeout -k 5 120 "$PERF" all_reduce --hosts 4 --nics 2 --idle-sleep 50us --json "$TMP/a.json" "$@" >"$TMP/out" 2>"$TMP/err"
    RC=$?
}
# holds NAME FILTER: the last run was right, and FILTER is true of its JSON's r2
holds()
{
    if [ "$RC" = 0 ] && jq -e ".r2.wrong == 0 and .r2.wrong_sizes == 0 and .r2.checked_operations > 0 and (.r2 | $2)" "$TMP/a.json" >/dev/null 2>&1; then
        pass
    else
        jq -c '.r2.schedules[] | del(.nics), .nics[]' "$TMP/a.json" >>"$TMP/err" 2>&1
        fail "$1"
    fi
}
exact='all(.nics[]; .sent == .planned_sent and .received == .planned_received)'
# what carries, answers and asks for data: a part of a hundred, and what each of few messages costs
wire='all(.nics[]; .wire_sent >= .sent and .wire_sent < .sent * 1.05 + 100000 and .wire_received >= .received and .wire_received < .received * 1.05 + 100000)'

for algo in ring tree r2 r2-serial leaf recursion leaves star; do
    play --algo $algo -b 400012 -e 400012 -n 3 --p2p-chunk 16K
    holds "$algo" ".schedules | length == 1 and (.[0] | .operations == 6 and .changed == \"false\" and $exact and $wire)"
    play --algo $algo -b 400012 -e 400012 --placement out --duration 300ms --after 300ms --fault '50ms:h1:n1 down'
    holds "$algo with a NIC down" ".schedules[-1] | .changed == \"false\" and $exact and $wire and
        ([.nics[] | select(.up == \"false\")] | length == 1 and .[0].host == 1 and .[0].nic == 1 and .[0].sent == 0 and .[0].received == 0)"
done

# D in the end seats of four, 2 D elsewhere, whoever sits there
play --algo tree --order 2,0,3,1 -b 1M -e 1M -n 2 --placement out
holds "seats" ".schedules[0] | .order == [2, 0, 3, 1] and $exact and ([.nics[] | {host, sent}] | group_by(.host) | map(map(.sent) | add / 2097152)) as \$d |
    (\$d | map(. * 1000 | round)) == [2000, 1000, 1000, 2000]"
play --algo tree --order seats -b 1M -e 1M --placement out --duration 300ms --after 300ms --fault '50ms:h1:n0 down'
holds "light seats for who has lost one" ".schedules[-1] | $exact and (.order[0] == 1 or .order[3] == 1)"
# which NIC carries what is the plan's business: what is left of a rail is not overloaded, bytes of a host are those of its load
play --algo ring -b 1M -e 1M --placement out --duration 300ms --after 300ms --fault '50ms:h1:n1 down'
holds "a ring's load is of the host" ".schedules[-1] | $exact and ([.nics[] | {host, sent}] | group_by(.host) | map(map(.sent) | add)) as \$d | (\$d | max) == (\$d | min)"
# other shapes, types, sizes
play --hosts 3 --nics 3 --algo leaf -b 1 -e 4K -f 16 -n 2 -d int8 -o max
holds "small sizes" "all(.schedules[]; $exact) and (.schedules | length) == 4"
play --hosts 2 --nics 1 --algo r2 -b 100K -e 100K -n 2 -m 3 -d half -o avg
holds "two hosts" "all(.schedules[]; $exact and .operations == 12)"
play --hosts 5 --nics 2 --algo recursion --pieces 1 -b 300K -e 300K -d double --placement out --duration 300ms --after 300ms --fault '0s:h1:n1 down' --fault '0s:h4:n1 down'
holds "two hosts degraded" ".schedules[-1] | $exact and ([.nics[] | select(.up == \"false\")] | length) == 2"
says "the table" '^# r2 h4:n1  .* down$'
says "the time" '^# r2 makespan [0-9.]* ms; simulated [0-9.]* D/B, of a rate that is not known$'
play --algo ring -b 256K -e 256K -n 2 --rate 50MB/s
holds "the time beside the simulator's" '.schedules[0] | .makespan_ms > 0 and .simulated == 1.5 and .simulated_ms > 3.9 and .simulated_ms < 4 and .ratio > 0.9'

# refuses TEXT ARGUMENTS: exit code 6, one line that names what is allowed
refuses()
{
    text=$1
    shift
    run "$@"
    expect "$*" 6
    check "$*: '$text'" grep -qF -e "$text" "$TMP/err"
    check "$*: one line" [ "$(wc -l <"$TMP/err")" = 1 ]
}
refuses "option --algo: 'rings' is not one of ring tree r2 r2-serial leaf recursion leaves star" all_reduce --algo rings
refuses "option --order: '0,0' names a host twice; it is rank, seats or all hosts as in 2,0,1" all_reduce --algo ring --order 0,0
refuses "option --order: '0,2' leaves a host out" all_reduce --algo ring --order 0,2
refuses "option --order: 'left' is not rank, seats or all hosts as in 2,0,1" all_reduce --algo ring --order left
refuses "option --order: '1,' is not" all_reduce --algo ring --order 1,
refuses "--order seats is for --algo tree" all_reduce --algo ring --order seats
refuses "--order needs --algo" all_reduce --order rank
refuses "--algo has schedules of all_reduce alone" all_gather --algo ring
refuses "--channels and --ranks-per-host have no meaning with it" all_reduce --algo ring --channels 2
refuses "option --pieces: '0' is not a whole number from 1 to 64" all_reduce --algo ring --pieces 0
run all_reduce --algo ring --order 0,1,2
expect "more hosts than there are" 6
says "more hosts than there are" 'option --order: 3 hosts are named, and there are 2'
# over another's plugin, without a fabric that counts
run all_reduce --hosts 3 --algo star -b 64K -e 64K -n 2
expect "the TCP plugin" 0
says "the TCP plugin" '^# r2 h2:n0 '
finish
