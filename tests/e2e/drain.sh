#!/bin/sh
# Planned drains and the run directory, under collectives on the software fabric: r2_ctl in the middle of runs. Each case asserts that every element of
# every timed operation is right. Argument: build folder. Second argument: only cases whose name contains it.
. "$(dirname "$0")/collective_lib.sh"
case $B in /*) ;; *) B=$PWD/$B ;; esac
fab=drain$$
trap '"$B/softfab" down --name $fab >/dev/null 2>&1; rm -rf "$log"' EXIT
export NCCL_R2_T_RETURN=100

# fabric NICS
fabric() {
    "$B/softfab" down --name $fab >/dev/null 2>&1
    "$B/softfab" up --name $fab --hosts 2 --nics "$1" --rate 20MB/s >/dev/null || exit 1
}
# ctl HOST ARGUMENT...: r2_ctl as the administrator of that host of the fabric
ctl() {
    host=$1
    shift
    "$B/softfab" exec --name $fab --host "$host" -- "$B/r2_ctl" "$@"
}
# The same for r2_perf --fault-cmd, at @1: a time.
ctl_at() {
    when=$1 host=$2
    shift 2
    echo "$when:env -u NCCL_R2_RUN_DIR $B/softfab exec --name $fab --host $host -- $B/r2_ctl $* >>$log/ctl 2>&1"
}
# run ARGUMENT...: a run of @seconds over the fabric
run() {
    : >"$log/ctl"
    timeout -k 5 120 "$B/r2_perf" all_reduce -b 256K -e 256K --buffsize 128K --fabric $fab --hosts 2 --placement out -w 1 -T 30s \
        --stats "$@" >"$log/out" 2>&1
    rc=$?
}
retransmits() {
    grep -c 'settled: [1-9][0-9]* parts to retransmit' "$log/out"
}
# How many incarnations over NIC @1 ended as drained ones at host @2.
drained() {
    grep -cE "^h$2:.* UP -> DOWN: administrator, local NIC $1," "$log/out"
}

# --- a NIC is drained in the middle, and given back ---
case_middle() { # HOST
    fabric 3
    run --duration 2s --fault-cmd "$(ctl_at 500ms "$1" drain fab1 --wait --limit 20 --why cable)" --fault-cmd \
        "$(ctl_at 1s "$1" status)" --fault-cmd "$(ctl_at 1200ms "$1" undrain fab1)" --fault-cmd "$(once 1300ms "$(logged "^h$1:.* life 2 is up")")" --after 100ms
    was_right "drain at host $1" || return
    if [ "$(drained fab1 "$1")" = 0 ]; then
        bad "drain at host $1" "no incarnation ended by it"
    elif [ "$(retransmits)" != 0 ]; then
        bad "drain at host $1" "something was posted again"
    elif ! grep -qE ' fab1 +up +yes +0 ' "$log/ctl"; then
        bad "drain at host $1" "status: $(cat "$log/ctl")"
    elif ! grep -q 'fab1 is drained by .*: cable' "$log/ctl" || ! grep -q 'NIC fab1 is drained: .*(cable)' "$log/out"; then
        bad "drain at host $1" "nobody says why"
    elif ! grep -qE "^h$1:.* life 2 is up" "$log/out"; then
        bad "drain at host $1" "it did not come back"
    else
        ok "drain at host $1: $(drained fab1 "$1") incarnations ended there, nothing posted again, $(grep -o 'r2 stall after fault 1: [0-9.]* ms' "$log/out"), back after undrain"
    fi
}
for h in 0 1; do
    wanted "middle" && case_middle $h
done

# --- a rehearsal: it fails, for three seconds, with nothing wrong; who watches for failures sees none ---
kinds() { # HOST: its faults, and their like
    # shellcheck disable=SC2016
    "$B/softfab" exec --name $fab --host "$1" -- sh -c 'cat "$NCCL_R2_RUN_DIR"/nccl-net-r2.*.events.ndjson' |
        jq -c 'select(.kind == "fault" or .kind == "switch" or .kind == "verdict" or .kind == "giveup") | [.kind, .cause.how, .severity]'
}
case_rehearse() { # HOST
    fabric 3
    # What is asked beside it starts processes: on a busy machine that takes a second.
    run --duration 4s --fault-cmd "$(ctl_at 500ms "$1" rehearse fab1 --for 3s)" --fault-cmd "$(ctl_at 750ms "$1" status)" \
        --fault-cmd "750ms:$B/softfab exec --name $fab --host $1 -- $B/r2_stat --check >>$log/ctl 2>&1; echo check \$? >>$log/ctl" \
        --fault-cmd "$(once 1300ms "$(logged "^h$1:.* life 2 is up")")" --after 100ms
    was_right "rehearsal at host $1" || return
    n=$(grep -cE "^h$1:.* UP -> DOWN: rehearsal, local NIC fab1," "$log/out")
    if [ "$n" = 0 ]; then
        bad "rehearsal at host $1" "no incarnation ended by it"
    elif ! grep -q 'rehearsal: NIC fab1 fails for 3.0 s' "$log/out" || ! grep -q 'rehearsal: NIC fab1 may be used again' "$log/out"; then
        bad "rehearsal at host $1" "the log does not say it"
    elif ! grep -q 'fails for a rehearsal: fab1 for [0-9.]* s more' "$log/ctl" || ! grep -qx 'check 0' "$log/ctl"; then
        bad "rehearsal at host $1" "r2_ctl status, r2_stat --check: $(cat "$log/ctl")"
    elif [ "$(kinds "$1" | sort -u)" != "[\"switch\",\"rehearsal\",\"info\"]" ] || kinds $((1 - $1)) | grep -qv '"info"]$'; then
        bad "rehearsal at host $1" "events: $(kinds 0) $(kinds 1)"
    elif grep -q 'NET/R2 : R2-' "$log/out"; then
        bad "rehearsal at host $1" "somebody is blamed: $(grep -m1 'NET/R2 : R2-' "$log/out")"
    elif ! grep -qE "^h$1:.* life 2 is up" "$log/out"; then
        bad "rehearsal at host $1" "it did not come back"
    else
        ok "rehearsal at host $1: $n incarnations ended there, $(retransmits) times posted again, $(grep -o 'r2 stall after fault 1: [0-9.]* ms' "$log/out"), back"
    fi
}
for h in 0 1; do
    wanted "rehearse" && case_rehearse $h
done

# --- two processes per host: both leave it ---
case_processes() {
    fabric 2
    run --ranks-per-host 2 --intra net --duration 1s --fault-cmd "$(ctl_at 300ms 0 drain localhost fab0 --wait --limit 20)" --fault-cmd \
        "$(ctl_at 700ms 0 status --json)" --after 500ms
    was_right "two processes on a host" || return
    n=$(grep '^{' "$log/ctl" | jq '[.processes[] | select(.nic == "fab0" and .drained == 1 and .connections == 0) | .pid] | unique | length')
    if [ "$n" != 2 ]; then
        bad "two processes on a host" "$n processes left the NIC: $(cat "$log/ctl")"
    else
        ok "two processes on a host: both left the NIC, $(retransmits) retransmits"
    fi
}
wanted "processes" && case_processes

# --- drained before the job starts, by the file and by the environment ---
case_start() { # NAME ENVIRONMENT...
    name=$1
    shift
    run --iters 20
    was_right "$name" || return
    if [ "$(drained fab0 0)" = 0 ]; then
        bad "$name" "no incarnation ended by it"
    else
        ok "$name: work began elsewhere"
    fi
}
wanted "start" && {
    fabric 2
    ctl 0 drain fab0 2>"$log/err" || echo "drain failed"
    case_start "start: drained by the file"
    for name in fab7 fab0:2; do
        if ctl 0 drain $name --wait >"$log/out" 2>&1; then bad "start: drain of $name" "status 0"; else ok "start: $(head -1 "$log/out")"; fi
    done
    ctl 0 drain fab7 >"$log/out" 2>&1
    if grep -q 'has a NIC fab7: nothing was done: did you mean fab[01]?' "$log/out"; then ok "start: the nearest NIC"; else bad "start: the nearest NIC" "not said"; fi
    ctl 0 undrain --all
    export NCCL_R2_DRAIN='=fab0'
    case_start "start: drained by NCCL_R2_DRAIN"
    unset NCCL_R2_DRAIN
}

# --- a last NIC is not drained away ---
case_last() {
    fabric 1
    run --duration 1500ms --fault-optional --fault-cmd "$(ctl_at 200ms 0 drain fab0 --wait --limit 0.5 | sed "s/:/:! /")"
    was_right "the only NIC" || return
    if [ "$(downs)" != 0 ]; then
        bad "the only NIC" "an incarnation went down"
    elif ! grep -q 'it is the last NIC' "$log/ctl" || ! grep -q 'not free after 0.5 s' "$log/ctl"; then
        bad "the only NIC" "r2_ctl said: $(cat "$log/ctl" "$log/out" | tail -5)"
    else
        ok "the only NIC: the job goes on, --wait says who needs it"
    fi
}
wanted "last" && case_last

# --- the host registry ---
case_registry() {
    fabric 2
    dir=$log/run
    mkdir -p "$dir"
    export NCCL_R2_RUN_DIR="$dir" NCCL_R2_BOARD=on
    run --iters 5
    if was_right "registry: NCCL_R2_RUN_DIR"; then
        if [ -f "$dir/nccl-net-r2.$(id -u).board" ] && grep -q "host registry in $dir" "$log/out"; then ok "registry: NCCL_R2_RUN_DIR, it is there"; else
            bad "registry: NCCL_R2_RUN_DIR" "no host registry in $dir"; fi
    fi
    rm -f "$dir"/*
    export NCCL_R2_BOARD=off
    run --iters 5
    if was_right "registry: NCCL_R2_BOARD=off"; then
        if ! ls "$dir" | grep -q board; then ok "registry: NCCL_R2_BOARD=off, none"; else bad "registry: NCCL_R2_BOARD=off" "$(ls "$dir")"; fi
    fi
    export NCCL_R2_BOARD=on
    echo 'no board' >"$dir/nccl-net-r2.$(id -u).board"
    chmod 600 "$dir/nccl-net-r2.$(id -u).board"
    run --iters 5
    if was_right "registry: a file that is none"; then
        if grep -q 'WARN.*is no host registry of this version' "$log/out"; then ok "registry: a file that is none: said, and the job runs"; else
            bad "registry: a file that is none" "not said"; fi
    fi
    export NCCL_R2_RUN_DIR=/nonexistent
    run --iters 5
    if was_right "registry: no such directory"; then
        if grep -q 'WARN.*NCCL_R2_RUN_DIR=/nonexistent' "$log/out"; then ok "registry: no such directory: said, and the job runs"; else
            bad "registry: no such directory" "not said"; fi
    fi
    unset NCCL_R2_RUN_DIR NCCL_R2_BOARD
}
wanted "registry" && case_registry

# --- r2_ctl's command line ---
says() { # STATUS TEXT ARGUMENT...: ends with STATUS and says TEXT
    want=$1 text=$2
    shift 2
    "$B/r2_ctl" --run-dir "$dir" $force "$@" >"$log/out" 2>&1
    got=$?
    if [ $got = "$want" ] && { [ -z "$text" ] || grep -q -e "$text" "$log/out"; }; then
        ok "r2_ctl $*: $want, $(head -1 "$log/out")"
    else
        bad "r2_ctl $*" "status $got, expected $want and '$text'"
    fi
}
wanted "ctl" && {
    force=
    dir=$log/ctldir
    mkdir -p "$dir"
    says 2 "what is to be done"
    says 2 "unknown command 'sideways': drain" sideways
    says 2 "which NIC" drain
    says 2 "which NIC" rehearse
    says 2 "for takes seconds" rehearse mlx5_0 --for 2h
    says 2 "for takes seconds" rehearse mlx5_0 --for 3601
    says 2 "for takes seconds" rehearse mlx5_0 --for 0.1ms
    says 2 "wait goes with drain, not with rehearse" rehearse mlx5_0 --wait
    says 2 "names and --for alone" rehearse mlx5_0 --force
    says 2 "for goes with rehearse" drain mlx5_0 --for 10
    says 1 "no running job here has a NIC mlx5_0: there is nothing to rehearse" rehearse mlx5_0
    says 2 "unknown option '--sideways'" drain mlx5_0 --sideways
    says 2 "limit takes seconds" drain mlx5_0 --limit x
    says 2 "all goes with undrain" undrain --all mlx5_0
    says 1 "cannot be the name" drain 'a,b'
    says 1 "cannot be the name" drain '^a'
    says 1 "neither this host nor a NIC" drain elsewhere mlx5_0
    says 0 "drained: nothing" status
    says 1 "neither this host nor a running job has a NIC mlx5_9: nothing was done" drain mlx5_9 --wait
    says 0 "drained: nothing" status
    says 1 "neither this host nor a running job has a NIC mlx5_9" failback mlx5_9
    force=--force
    says 0 "this host has no NIC mlx5_9 that can be seen" drain mlx5_9 --why "new cable
rm -rf"
    says 0 "drained: mlx5_9" status
    says 0 "no NIC mlx5_8:2" drain "$(hostname)" mlx5_8:2
    says 0 "drained: mlx5_9,mlx5_8:2" status
    echo '# a comment stays' >>"$dir/nccl-net-r2.$(id -u).drain"
    says 0 "no NIC mlx5_9" drain mlx5_9
    says 0 "drained: mlx5_8:2,mlx5_9" status
    says 0 "" undrain mlx5_8:2
    says 0 "drained: mlx5_9" status
    says 0 '"drained_by_root": *"mlx5_9"\|"drained_by_user": *"mlx5_9"' status --json
    says 1 "mlx5_7 is not on a line of .*: nothing was done" undrain mlx5_7
    says 0 "" undrain --all
    says 0 "drained: nothing" status
    if grep -q 'a comment stays' "$dir/nccl-net-r2.$(id -u).drain"; then ok "comments stay"; else bad "comments" "gone"; fi
    for i in 1 2 3 4 5 6 7 8; do "$B/r2_ctl" --run-dir "$dir" --force drain "nic$i" 2>/dev/null & done
    wait
    n=$(grep -c '^nic' "$dir/nccl-net-r2.$(id -u).drain")
    if [ "$n" = 8 ]; then ok "eight at once lose nothing"; else bad "eight at once" "$n lines"; fi
    says 2 "which NIC" failback
    says 2 "takes names, or the word all" failback --all
    says 2 "wait goes with drain, not with failback" failback mlx5_0 --wait
    says 1 "cannot be the name" failback "*"
    says 1 "neither this host nor a NIC" failback elsewhere mlx5_0
    says 0 "no NIC mlx5_9" failback mlx5_9 --why cable
    says 0 "may return what failed before: mlx5_9 at 2" status
    before=$(sed -n 's/^mlx5_9 \([0-9]*\) .*/\1/p' "$dir/nccl-net-r2.$(id -u).failback")
    says 0 "no NIC mlx5_9" failback "$(hostname)" mlx5_9
    after=$(sed -n 's/^mlx5_9 \([0-9]*\) .*/\1/p' "$dir/nccl-net-r2.$(id -u).failback")
    if [ "${after:-0}" -gt "${before:-0}" ] && [ "${before:-0}" -gt 0 ]; then ok "failback: a later command has a larger number"; else
        bad "failback: numbers" "$before, then $after"; fi
    says 0 "" failback all
    says 0 '"failback_by_root": *"all at 2\|"failback_by_user": *"all at 2' status --json
    echo "mlx5_0" >>"$dir/nccl-net-r2.$(id -u).failback"
    says 1 "line 2 is not the name of a NIC and a number. Mend" failback mlx5_0
    says 1 "no command is taken from it" status
    rm "$dir/nccl-net-r2.$(id -u).failback"
    chmod 666 "$dir/nccl-net-r2.$(id -u).drain"
    says 1 "can be written by others" drain mlx5_0
    says 1 "it drains nothing" status
    dir=/nonexistent
    says 1 "is no directory" status
}
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
