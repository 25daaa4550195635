#!/bin/sh
# What a verbs program is told under each failure on the software fabric, across processes: the semantics of NICs, and what the fabric mimics of the
# kernel's Soft-RoCE (tests/lab/fabric-vs-kernel.md). Argument: build folder.
B=${1:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
T=$(mktemp -d)
name=verbs$$
trap '"$B/softfab" down --name $name >/dev/null 2>&1; rm -rf "$T"' EXIT
trap 'exit 130' INT TERM
. "$(dirname "$0")/../port_lib.sh"
passed=0 failed=0
"$B/softfab" up --name $name --hosts 2 --nics 1 --rate 20MB/s >/dev/null || exit 1

# watch BEFORE COMMAND [OPTIONS...]: host 1 (A) runs COMMAND in the middle of the traffic; $f stands for "softfab fault" at its NIC
watch() {
    before=$1 command=$2
    shift 2
    port_next
    "$B/softfab" fault --name $name '*:* restore' || return 1
    for w in $before; do
        "$B/softfab" fault --name $name "*:* $w" || return 1
    done
    cat >"$T/f" <<END
#!/bin/sh
for w in "\$@"; do "$B/softfab" fault --name $name "h1:n0 \$w" || exit 1; done
END
    "$B/softfab" exec --name $name --host 0 -- timeout 60 "$B/lab/verbs_watch" --listen 127.0.0.1:$port --observe 1200ms --timeout 13 "$@" \
        </dev/null >"$T/B" 2>"$T/errB" &
    peer=$!
    "$B/softfab" exec --name $name --host 1 -- env f="sh $T/f" timeout 60 "$B/lab/verbs_watch" --connect 127.0.0.1:$port --observe 1200ms \
        --timeout 13 "$@" --after 200ms --fault-cmd "read go && $command" </dev/null >"$T/A" 2>"$T/errA" &&
        wait $peer
}
# check NAME HOST CONDITION: over the lines of the observation, $l; saw(KIND; WHAT): whether it was there; at(WHAT): when; fin(WHAT): the end
words='. as $l | def saw(k; w): any($l[]; .seen == k and .what == w); def at(w): first($l[] | select(.seen and .what == w) | .t_ms);
    def fin(e): first($l[] | select(.end == e)); '
check() {
    if jq -e -s "$words$3" "$T/$2" >/dev/null 2>"$T/jq"; then
        passed=$((passed + 1))
        echo "ok     $1"
    else
        failed=$((failed + 1))
        echo "FAILED $1: not so at $2: $3"
        cat "$T/jq" "$T/err$2" "$T/$2" | grep -v '"first"' | tail -20 | cut -c1-200 | sed 's/^/    | /'
    fi
}

watch '' '$f down' --retry 3
check "down: PORT_ERR, then the retries run out" A \
    'saw("event"; "PORT_ERR") and saw("port"; "DOWN") and saw("wc"; "send RETRY_EXC_ERR") and fin("state").state == "ERR" and at("PORT_ERR") < at("send RETRY_EXC_ERR")'
check "down: the other end has no event" B 'saw("wc"; "send RETRY_EXC_ERR") and any($l[]; .seen == "event") == false'
check "a fence drains at once" B 'fin("fence") | .again == "" and .send_marker_ms >= 0 and .recv_marker_ms >= 0'

watch '' '$f down send-error' --retry 3
check "send-error: LOC_QP_OP_ERR after one time-out at most" A \
    'saw("wc"; "send LOC_QP_OP_ERR") and saw("wc"; "send RETRY_EXC_ERR") == false and fin("state").state == "ERR"'

# What comes back in the middle is watched for longer: its command starts four processes, which takes a second where the machine is busy.
watch '' '$f down send-stuck && sleep 0.3 && $f up' --retry 7 --observe 4000ms
check "send-stuck: no completion, no event but the port's, RTS after up" A \
    'any($l[]; .seen == "wc") == false and saw("event"; "PORT_ACTIVE") and fin("state") == {end: "state", query_qp: "ok", state: "RTS", send_outstanding: 8, recv_outstanding: 16}'
check "send-stuck: ERR flushes what was outstanding" A 'fin("fence") | .send_flushed == 8 and .recv_flushed == 16 and .again == ""'

watch 'retry7-forever' '$f blackhole && sleep 0.5 && $f up' --retry 7 --observe 4000ms
check "retry7-forever: an outage of many retries is survived" A \
    'any($l[]; .seen == "wc") == false and fin("state").state == "RTS" and any($l[]; .flow == "send" and .gap_ms > 400 and .last_ok_ms > 800)'
watch '' '$f blackhole && sleep 0.5 && $f up' --retry 7
check "without it the seven retries run out" A 'saw("wc"; "send RETRY_EXC_ERR") and fin("state").state == "ERR"'

watch 'recv-kept' '$f unplug' --retry 3
check "unplug: GID_CHANGE, ENODEV, no GID, no DEVICE_FATAL" A \
    'saw("event"; "GID_CHANGE") and saw("event"; "DEVICE_FATAL") == false and saw("port"; "query_port ENODEV") and saw("gid"; "changed") and saw("device"; "not listed") and saw("wc"; "send LOC_QP_OP_ERR")'
check "recv-kept: the receive marker waits for a second move to ERR" A \
    'fin("fence") | .again == "ok" and .recv_marker_ms > .send_marker_ms + 900 and .send_marker_ms >= 0'

watch '' '$f remove' --retry 3
check "remove: DEVICE_FATAL, and every call fails" A \
    'saw("event"; "DEVICE_FATAL") and any($l[]; .seen == "call" and (.what | test("^poll_cq -"))) and fin("state").query_qp == "EIO" and fin("fence").modify_qp == "EIO" and fin("destroy").qp == "ok"'
watch 'silent-death' '$f remove' --retry 3
check "silent-death: who posts and polls is told nothing" A \
    'saw("event"; "DEVICE_FATAL") and any($l[]; .seen == "call") == false and any($l[]; .seen == "wc") == false and saw("progress"; "send stopped") and fin("fence").modify_qp == "EIO"'

# Spines. way WHICH FAULT OPTIONS...: a fabric of four, and a queue pair whose spine (WHICH 0) or another (1 to 3 beyond it) gets FAULT in the middle
# of the traffic; $T/S is the status behind it, $T/k the spine
way() {
    which=$1 broken=$2
    shift 2
    "$B/softfab" down --name $name >/dev/null && "$B/softfab" up --name $name --hosts 2 --nics 1 --rate 20MB/s --spines 4 >/dev/null || return 1
    cat >"$T/w" <<END
#!/bin/sh
k=\$("$B/softfab" status --name $name --json | jq '.spine | max_by(.bytes).spine')
k=\$(((k + $which) % 4))
echo \$k >"$T/k"
"$B/softfab" fault --name $name "spine \$k $broken"
END
    watch '' "sh $T/w" --observe 4000ms "$@" # the command itself takes a second where the machine is busy
    "$B/softfab" status --name $name --json >"$T/S"
}
# of_spine NAME CONDITION: over that spine's line of the status, $s, and the sum over the others, $o
of_spine() {
    if jq -e --argjson k "$(cat "$T/k")" '.spine as $all | $all[$k] as $s | ($all | map(select(.spine != $k)) |
        {dropped: map(.dropped) | add, moved: map(.moved) | add, packets: map(.packets) | add}) as $o | '"$2" "$T/S" >/dev/null 2>"$T/jq"; then
        passed=$((passed + 1))
        echo "ok     $1"
    else
        failed=$((failed + 1))
        echo "FAILED $1: not so at spine $(cat "$T/k"): $2"
        cat "$T/jq" && jq -c '.spine[]' "$T/S" | sed 's/^/    | /'
    fi
}
# Where no error may come RC's retries have to last longer than a process waits for the processor, and its software NIC with it: 0.5 s seven times.
patient=17
way 0 blackhole --retry 3 --label 5
check "spine blackhole: the retries run out, nobody is told before" A \
    'saw("wc"; "send RETRY_EXC_ERR") and any($l[]; .seen == "event" or .seen == "port") == false and fin("state").state == "ERR"'
check "spine blackhole: at the other end as well" B 'saw("wc"; "send RETRY_EXC_ERR")'
of_spine "equal labels: all packets take one spine, which swallows them" '$s.dropped > 0 and $s.faults == ["blackhole"] and $o.packets == 0'
way 1 blackhole --retry 7 --label 5 --timeout $patient
check "a blackholed spine that nothing hashes to is not noticed" A 'any($l[]; .seen == "wc") == false and fin("state").state == "RTS"'
of_spine "none of its packets was touched" '$s.packets == 0 and $o.packets > 0 and $o.dropped == 0'
way 0 down --retry 7 --label 5 --timeout $patient
check "spine down: another one carries on" A 'any($l[]; .seen == "wc") == false and fin("state").state == "RTS"'
of_spine "spine down: its packets moved" '$s.state == "DOWN" and $s.moved > 0 and $s.dropped == 0 and $o.packets > 0 and $o.moved == 0'
way 0 "rate 1MB/s" --retry 7 --label 5 --timeout $patient
check "spine rate: slow, and no error" A 'any($l[]; .seen == "wc") == false and fin("state").state == "RTS"'
of_spine "spine rate: packets waited in its queue" '$s.queued > 0 and $s.rate_Bps == 1000000'
if "$B/softfab" fault --name $name "spine 4 down" 2>"$T/e" || ! grep -q "no spine 4" "$T/e"; then
    failed=$((failed + 1))
    echo "FAILED a fault of a spine that is not there: $(cat "$T/e")"
else
    passed=$((passed + 1))
    echo "ok     a fault of a spine that is not there names it"
fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
