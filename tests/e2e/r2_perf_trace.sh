#!/bin/sh
# --trace: what is in the file, beside what the run says of itself; how much of it there is at most; and that it is there whole or not at all.
. "$(dirname "$0")/r2_perf_lib.sh"
if ! command -v jq >/dev/null; then
    echo "jq is not installed"
    exit 77
fi
# holds NAME FILE CONDITION: true of the trace of $n ranks, of which $e are the events and $ops the operations
holds()
{
    check "$1" jq -e ".otherData.nranks as \$n | .traceEvents as \$e | [\$e[] | select(.cat == \"operation\")] as \$ops | $3" "$2" >"$TMP/parsed"
}
valid()
{
    jq -rs --argjson open false --slurpfile schema share/schemas/r2_perf_trace.json -f tests/fleet/schema.jq "$2" >"$TMP/parsed" 2>&1
    check "$1: by its schema" test ! -s "$TMP/parsed"
}
# common NAME FILE: what holds of every trace
common()
{
    valid "$1" "$2"
    holds "$1: every event has what its kind wants" "$2" 'all($e[]; (.cat != null or .ph == "M") and
        (if .ph == "M" then (.ts == null) elif .ph == "X" then .dur >= 0 elif .ph == "i" then .s != null else true end) and
        (.ph == "M" or .ts >= 0) and (.args | type == "object"))'
    holds "$1: by time" "$2" '[$e[] | select(.ph != "M") | .ts] | . == sort'
    holds "$1: every row and thread has a name" "$2" '
        ([$e[] | select(.name == "process_name") | .pid] | sort) == ([$e[] | .pid] | unique) and
        ([$e[] | select(.name == "process_sort_index") | .pid] | sort) == ([$e[] | .pid] | unique) and
        ([$e[] | select(.ph == "X" or (.ph == "i" and .cat != "note")) | [.pid, .tid]] | unique) - [$e[] | select(.name == "thread_name") | [.pid, .tid]] == []'
    # to the ns: times are sums of whole ones
    holds "$1: nothing overlaps on one thread" "$2" '[$e[] | select(.ph == "X")] | group_by([.pid, .tid]) |
        all(.[]; . as $x | all(range(1; length); $x[.].ts >= $x[. - 1].ts + $x[. - 1].dur - 0.0006))'
    holds "$1: operations are numbered, and none is missing" "$2" '[$ops | group_by(.pid)[] |
        reduce .[] as $o (0; if . != null and $o.args.operation == . then . + $o.args.operations else null end)] | length == $n and unique == [.[0]] and .[0] > 0'
}

# --- any plugin ---
run all_reduce -b 64K -e 64K -t 600ms -m 2 --interval 50ms --trace "$TMP/any.json" --json "$TMP/any.run.json" --fault-cmd '200ms:echo "a\b" '"'"'"x"'"'"' >/dev/null'
expect "any plugin" 0
says "any plugin" "^# r2 trace $TMP/any.json\$"
common "any plugin" "$TMP/any.json"
holds "any plugin: the fault's text is as it was" "$TMP/any.json" '[$e[] | select(.cat == "fault") | .name] == ["echo \"a\\b\" '"'"'\"x\"'"'"' >/dev/null"]'
holds "any plugin: both placements" "$TMP/any.json" '[$ops[].args.placement] | unique == ["in", "out"]'
# a fast machine has more operations than are told one by one, and says that, too
holds "any plugin: that it tells no more is said" "$TMP/any.json" '[$e[] | select(.cat == "note" and (.name | test("^[0-9]+ operations, told [0-9]+ together$") | not))] as $notes |
    ($notes | length) == 2 and ([$notes[].pid] | sort) == [1, 2] and all($notes[].name; test("no statistics"))'
check "any plugin: the rate is the timeline's" jq -es '.[0].r2.timeline.points as $p | [.[1].traceEvents[] | select(.cat == "rate")] as $r | ($r | length) == ($p | length) + 1 and
    all(range($p | length); . as $i | ($p[$i].busbw // 0) == $r[$i].args.GBps and ($p[$i].t_s * 1e6 - $r[$i].ts | fabs) < 1)' "$TMP/any.run.json" "$TMP/any.json" >"$TMP/parsed"
check "any plugin: as many operations as the table says" jq -es '(.[0].results[0].actual_iterations * 2) as $in_place |
    [.[1].traceEvents[] | select(.cat == "operation" and .pid == 1 and .args.placement == "in") | .args.operations] | add == $in_place' \
    "$TMP/any.run.json" "$TMP/any.json" >"$TMP/parsed"
check "nothing is left beside it" test "$(ls "$TMP" | grep -c tmp)" = 0
# one rank, which waits for nobody: on a loaded machine each exchange takes two turns of the processor
run all_reduce --hosts 1 -b 8 -e 8 -n 9000 -c 0 --placement out --trace "$TMP/many.json"
expect "many operations" 0
common "many operations" "$TMP/many.json"
holds "many operations: bounded, none lost" "$TMP/many.json" '[$ops | group_by(.pid)[] | (length <= 4096) and ((map(.args.operations) | add) == 9000)] == [true]'
holds "many operations: the trace says so" "$TMP/many.json" '[$e[] | select(.cat == "note" and (.name | test("^9000 operations, told 4 together$")))] | length == 1'
holds "many operations: not checked" "$TMP/many.json" 'all($ops[]; .args.wrong == null)'

# --- files ---
before()
{
    check "$1: before the run" sh -c "! grep -q '^# Using devices' '$TMP/out'"
    check "$1: one line" test "$(wc -l <"$TMP/err")" = 1
}
run all_reduce -b 8 -e 8 --trace "$TMP/none/a.json"
expect "no such folder" 6
says "no such folder" "r2_perf: --trace $TMP/none/a.json: No such file or directory\$"
before "no such folder"
run all_reduce -b 8 -e 8 --trace "$TMP"
expect "a folder" 6
before "a folder"
run all_reduce -b 8 -e 8 --trace /dev/full
expect "a device" 6
before "a device"
check "a device is not replaced" test -c /dev/full
# a file system without room, as far as one can be had everywhere: no file may have a byte
(
    trap '' XFSZ
    ulimit -f 0
    NCCL_NET_PLUGIN=$TCP timeout 60 "$PERF" all_reduce -b 8 -e 8 --trace "$TMP/full.json" 2>&1
    echo "code $?"
) | cat >"$TMP/out"
says "no room" "r2_perf: --trace $TMP/full.json: File too large"
says "no room" '^code 6$'
check "no room: nothing is left" test "$(ls "$TMP" | grep -c full)" = 0
cp "$TMP/any.json" "$TMP/kept.json"
TCPTEST_ERROR=5 run all_reduce -b 1M -e 1M -n 9 --trace "$TMP/kept.json"
expect "a run that fails" 3
check "a run that fails leaves what was there" cmp -s "$TMP/any.json" "$TMP/kept.json"
check "... and nothing else" test "$(ls "$TMP" | grep -c tmp)" = 0
# mpi RANK: as mpirun would start it, with the launcher's check left out
mpi()
{
    OMPI_COMM_WORLD_RANK=$1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=$1 OMPI_COMM_WORLD_LOCAL_SIZE=2 NCCL_NET_PLUGIN=$TCP \
        timeout 60 "$PERF" all_reduce -b 8 -e 8 --trace "$TMP/none/a.json" --rendezvous "$TMP/meet" -T 20s >"$TMP/rank$1" 2>&1
}
mpi 1 &
mpi 0
RC=$?
wait $!
other=$?
cat "$TMP/rank0" >"$TMP/out"
expect "under mpirun" 6
says "under mpirun" "error: --trace $TMP/none/a.json: No such file"
check "under mpirun: the other rank, too" test $other = 6

# --- our plugin, with a NIC that fails and comes back ---
if [ ! -x "$B/softfab" ] || [ ! -e "$B/softfab-lib/libibverbs.so.1" ]; then
    echo "skipped: the software fabric is not built"
    finish
fi
own=$TMP/own.json
TCP=$B/libnccl-net-r2.so
# One operation takes half a second on these links, so that the first fault comes in the middle of one, and something waits. The run goes on until the path has
# had time to come back.
NCCL_R2_T_RETURN=100 run all_reduce -b 8M -e 8M --duration 3s -w 0 --placement out --nics 2 --rate 10MB/s --buffsize 512K --interval 50ms -T 60s --after 2500ms \
    --fault '200ms:h0:n1 down' --fault '1500ms:h0:n1 up' --trace "$own" --json "$TMP/own.run.json"
expect "a NIC fails and comes back" 0
common "a NIC fails" "$own"
F='([$e[] | select(.cat == "fault")] | sort_by(.ts)) as $f | ([$ops[] | .ts + .dur] | max) as $over | '
check "the faults fired" jq -e '[.r2.faults[] | .fired == "true" and .status == 0] == [true, true]' "$TMP/own.run.json" >"$TMP/parsed"
holds "both faults, within the run" "$own" "$F"'[$f[].name] == ["h0:n1 down", "h0:n1 up"] and all($f[]; .s == "g" and .ts > 0 and .ts < $over and .args.status == 0) and
    ($f[0].ts >= 200000) and ($f[1].ts >= 1500000)'
check "at the times that the run says" jq -es '([.[0].r2.faults[].fired_s]) as $s | [.[1].traceEvents[] | select(.cat == "fault") | .ts / 1e6] as $t |
    all(0, 1; ($s[.] - $t[.] | fabs) < 1e-5)' "$TMP/own.run.json" "$own" >"$TMP/parsed"
holds "the first fault's stall lies behind it, on the rank that says so" "$own" "$F"'[$e[] | select(.cat == "stall" and .args.fault == 1)] as $s | ($s | length) == 1 and
    ($s[0] | .ph == "X" and .ts >= $f[0].ts and .ts + .dur < $over and .dur > 0 and (.dur - .args.ms * 1000 | fabs) < 0.01 and .args.ms == $f[0].args.stall_ms)'
check "it is as long as the run says" jq -es '.[0].r2.faults[0].stall as $s | .[1].traceEvents[] | select(.cat == "stall" and .args.fault == 1) |
    .args.by == $s.by and (.args.ms - $s.ms | fabs) < 1e-6 and $s.by == "plugin"' "$TMP/own.run.json" "$own" >"$TMP/parsed"
holds "the path goes down" "$own" "$F"'any($e[]; .cat == "plugin" and .pid == 1 and .args.kind == "fault" and .args.nic == "fab1" and (.args.cause | test("port down")) and .ts >= $f[0].ts and .ts < $f[1].ts)'
holds "the verdict" "$own" "$F"'any($e[]; .cat == "plugin" and .pid == 1 and .args.code == "R2-L01" and .name == "R2-L01 fab1" and .args.severity == "critical" and .ts >= $f[0].ts)'
holds "the switch, with what it cost" "$own" "$F"'[$e[] | select(.cat == "plugin" and .args.kind == "switch" and .ts < $f[1].ts)] | (map(.pid) | unique) == [1, 2] and
    (map(.args.stall_ms) | max) == $f[0].args.stall_ms'
holds "the path is back" "$own" "$F"'any($e[]; .cat == "plugin" and .args.kind == "failback" and .args.nic == "fab1" and .ts > $f[1].ts)'
# Two ranks: each receives as much as it reduces.
holds "bytes by NIC sum up to what was carried" "$own" '($ops | map(select(.pid == 1).args.operations) | add) as $all | all(1, 2; . as $pid |
    [$e[] | select(.cat == "nic" and .pid == $pid)] | group_by(.name) | (map(.[0].name) == ["fab0", "fab1"]) and
    ((map(. as $r | [range(1; length) | $r[. - 1].args.received_Bps * ($r[.].ts - $r[. - 1].ts) / 1e6] | add) | add) / ($all * 8388608) | . > 0.85 and . < 1.15))'
holds "the last value of a NIC is none" "$own" '[$e[] | select(.cat == "nic")] | group_by([.pid, .name]) | length == 4 and all(.[]; .[-1].args.received_Bps == 0 and .[-1].args.sent_Bps == 0)'
# What the plugin counts late is in the first sample behind both switches: no later one has anything of the NIC that is down.
holds "the NIC that failed carries nothing until it is back" "$own" "$F"'([$e[] | select(.cat == "plugin" and .args.kind == "switch" and .ts < $f[1].ts) | .ts] | max) as $gone |
    [$e[] | select(.cat == "nic" and .name == "fab1")] | group_by(.pid) | length == 2 and all(.[]; . as $r |
        [range(1; length - 1) | select($r[. - 1].ts > $gone and $r[. + 1].ts < $f[1].ts) | $r[.].args | .sent_Bps + .received_Bps] | all(. == 0))'
holds "nothing is wrong" "$own" 'all($ops[]; .args.wrong == 0 and .args.algbw_GBps > 0)'
finish
