#!/bin/sh
# Who carries how much after a failure: NICs of unequal rates, several processes on a host, and what the topology has to do with it. Rates are counted in bytes per NIC, never
# in time. Each case asserts that its fault fired and that every element of every timed operation is right.
# Argument: build folder. Second argument: only cases whose name contains it.
. "$(dirname "$0")/collective_lib.sh"
case $B in /*) ;; *) B=$PWD/$B ;; esac
fab=balance$$
trap '"$B/softfab" down --name $fab >/dev/null 2>&1; rm -rf "$log"' EXIT
unset NCCL_R2_RUN_DIR NCCL_R2_TOPO NCCL_R2_BALANCE NCCL_R2_BACKUP_NICS

if ! command -v jq >/dev/null; then
    echo "jq is not installed"
    exit 77
fi
# fabric LINE...: of such a description
fabric() {
    "$B/softfab" down --name $fab >/dev/null 2>&1
    printf '%s\n' "$@" >"$log/desc"
    "$B/softfab" up --name $fab --desc "$log/desc" >/dev/null || exit 1
    dir=$("$B/softfab" status --name $fab --json | jq -r .dir)
}
# run ARGUMENT...: a run over it, with a fault in the middle; what had been sent once all $processes had left the NIC is in $log/then.json, what was at the
# end in $log/end.json
processes=2
run() {
    timeout -k 5 120 "$B/r2_perf" all_reduce -b 512K -e 512K --buffsize 2M --fabric $fab --hosts 2 --placement out -w 1 -T 30s \
        --fault "300ms:h0:n0 down" \
        --fault-cmd "$(once 700ms "$(logged 'NET/R2 : switch: fab0' $processes)" "$B/softfab status --name $fab --json >$log/then.json")" \
        --duration 2500ms --after 1500ms "$@" >"$log/out" 2>&1
    rc=$?
    "$B/softfab" status --name $fab --json >"$log/end.json"
}
# sent: bytes that host 0's NICs have sent since the command in the middle, one line per NIC
sent() {
    jq -s '[.[0].nic, .[1].nic] | map(map(select(.host == 0) | .tx_bytes)) | [range(.[0] | length) as $i | .[1][$i] - .[0][$i]] | .[]' "$log/then.json" "$log/end.json" |
        tr '\n' ' '
}
# shares NAME FILTER: jq's FILTER is true of the list of bytes
shares() {
    was_right "$1" || return
    if [ "$(downs 'port down')" = 0 ]; then
        bad "$1" "no path went down"
    elif [ "$(echo "[$(sent | sed 's/ *$//; s/ /,/g')]" | jq "$2")" = true ]; then
        ok "$1: NICs sent $(sent)bytes"
    else
        bad "$1" "not so: $2: $(sent)"
    fi
}

# --- one ring, its NIC goes; the others carry by their rates: 4 to 2 to 1 ---
uneven='nic 1 rate 40MB/s
nic 2 rate 20MB/s
nic 3 rate 10MB/s'
wanted "unequal" && {
    fabric "hosts 2" "nics 4" "rate 40MB/s" "$uneven"
    NCCL_R2_TOPO=$dir/host0 run --channels 1 --fault-cmd "1500ms:env -u NCCL_R2_RUN_DIR $B/softfab exec --name $fab --host 0 -- $B/r2_stat --json >$log/stat.json 2>&1"
    shares "unequal: shares by the rates of the topology" '.[0] < .[3] / 20 and .[1] > 1.5 * .[2] and .[1] < 2.6 * .[2] and .[2] > 1.5 * .[3] and .[2] < 2.6 * .[3]'
    if jq -e '[.jobs[].processes[].connections[] | select(.direction == "send").paths | map(.share_percent)] | any(.[0] == 0 and .[1] >= 50 and .[1] <= 64 and .[2] >= 25 and .[2] <= 33 and .[3] >= 12 and .[3] <= 17)' "$log/stat.json" >"$log/jq" 2>&1; then
        ok "unequal: r2_stat says 57, 29 and 14 %"
    else
        bad "unequal: r2_stat says 57, 29 and 14 %" "$(head -c 200 "$log/jq"); $(tr -d '\n' <"$log/stat.json" | head -c 1500)"
    fi
}

# --- the same NICs and no word of their rates: verbs knows no speed below 2.5 Gb/s, so all are alike ---
wanted "no topology" && {
    fabric "hosts 2" "nics 4" "rate 40MB/s"
    NCCL_R2_TOPO=$log/no/such/ run --channels 1
    if grep -q "WARN NET/R2 : NCCL_R2_TOPO=$log/no/such/: .*No such file or directory. Weights and order of NICs go by their ports alone" "$log/out"; then
        ok "no topology: a warning"
    else
        bad "no topology: a warning" "nothing like it in the log"
    fi
    shares "no topology: equal shares" '.[0] < .[3] / 20 and (.[1:] | max < 1.2 * min)'
    NCCL_R2_TOPO=nearby run --channels 1
    if [ "$rc" != 0 ] && grep -q 'NCCL_R2_TOPO=nearby: expected auto, sysfs, hwloc, off, a directory' "$log/out"; then
        ok "no topology: a word that is none ends the job"
    else
        bad "no topology: a word that is none ends the job" "exit code $rc"
    fi
}

# --- pure hot repair: all of it on one backup ---
wanted "off" && {
    fabric "hosts 2" "nics 4" "rate 40MB/s"
    NCCL_R2_BALANCE=off run --channels 1
    shares "off: all on one backup" '(add / 50) as $few | .[0] < $few and (map(select(. > $few)) | length) == 1'
}

# --- four processes on each host, each with rings on all NICs: no survivor carries much more than the others ---
wanted "processes" && {
    fabric "hosts 2" "nics 4" "rate 40MB/s"
    processes=6 # of eight; two have both of their neighbours on host 1
    run --ranks-per-host 4 --intra net --channels 4
    shares "processes: four share three NICs" '.[0] < .[3] / 20 and (.[1:] | max < 1.1 * add / 3)'
}

# --- three hosts; host 1 loses a NIC and stands in on rail 0 of the others, which make room there. Host 0 sent half of its bytes over either NIC before ---
# room OPERATION OPTION...: bytes are counted from when host 0 has said that it makes room; with $again, that it does not any more, the NIC being back
again=
room() {
    fabric "hosts 3" "nics 2" "rate 20MB/s"
    from="$(logged 'stand in there')"
    if [ -n "$again" ]; then
        set -- "$@" --fault-cmd "$(once 400ms "$from" "$B/softfab fault --name $fab 'h1:n1 up'")"
        from="$(logged 'are by themselves again')"
    fi
    timeout -k 5 120 "$B/r2_perf" "$@" -b 1M -e 1M --fabric $fab --hosts 3 --placement out -w 1 -T 30s --fault "300ms:h1:n1 down" \
        --fault-cmd "$(once 500ms "$from" "$B/softfab status --name $fab --json >$log/then.json")" --duration 2500ms --after 1500ms >"$log/out" 2>&1
    rc=$?
    "$B/softfab" status --name $fab --json >"$log/end.json"
}
wanted "room" && {
    room scatter -r 0
    # to host 1 all over NIC 0, to host 2 half: 75 % without
    shares "room: a sender by what it sends itself" ".[0] / add < 0.6"
    room gather -r 2
    # host 2 gets all of host 1 over NIC 0, and says so: 50 % without
    shares "room: a sender by what the receiver says" ".[0] / add < 0.35"
    again=yes
    export NCCL_R2_T_RETURN=100
    room scatter -r 0
    shares "room: no more when the NIC is back" ".[0] / add > 0.42 and .[0] / add < 0.58"
    room gather -r 2
    shares "room: no more when the receiver says so" ".[0] / add > 0.42 and .[0] / add < 0.58"
    unset NCCL_R2_T_RETURN
}

# --- two processes of host 0: one that stands in on NIC 0, and one that has nothing but what is at home there ---
wanted "room of another" && {
    fabric "hosts 3" "nics 2" "rate 20MB/s"
    there="grep -qs 'stand in there' $log/other"
    timeout -k 5 120 "$B/r2_perf" scatter -r 0 --channels 1 -b 1M -e 1M --fabric $fab --hosts 3 --placement out -w 1 -T 30s \
        --fault-cmd "$(once 100ms "$there")" --duration 500ms --after 500ms >"$log/other" 2>&1 &
    busy=$!
    timeout -k 5 120 "$B/r2_perf" scatter -r 0 -b 1M -e 1M --fabric $fab --hosts 3 --placement out -w 1 -T 30s --fault "300ms:h1:n1 down" \
        --fault-cmd "$(once 400ms "$there")" --duration 500ms --after 500ms >"$log/out" 2>&1
    rc=$?
    wait $busy
    theirs=$?
    busy=
    if was_right "room of another: a process makes room for another one"; then
        if [ $theirs = 0 ] && grep -q '# r2 checked [1-9][0-9]* operations, 0 elements wrong' "$log/other"; then
            ok "room of another: a process makes room for another one"
        else
            bad "room of another: a process makes room for another one" "exit code $theirs: $(tail -n 2 "$log/other")"
        fi
    fi
}

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
