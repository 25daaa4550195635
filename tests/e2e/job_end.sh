#!/bin/sh
# How a job ends when it must. Aborted: nothing moves any more, so r2_perf gives up and closes every connection with requests outstanding, over NICs that are silent,
# hang, are down or dead; each process has to be gone within seconds, and nothing of it left. Killed: the other process names the one that is gone, on every
# connection, in bounded time. The times are printed. Argument: build folder. Second argument: only cases whose name contains it.
. "$(dirname "$0")/collective_lib.sh"
case $B in /*) ;; *) B=$PWD/$B ;; esac
fab=jobend$$
pids=
trap 'for p in $pids; do kill -9 "$p" 2>/dev/null; done; "$B/softfab" down --name $fab >/dev/null 2>&1; rm -rf "$log"' EXIT
export PMI_SIZE=2 MPI_LOCALNRANKS=2 PMI_JOBID=$$ NCCL_R2_GIVE_UP=60000
unset NCCL_R2_RUN_DIR PMIX_NAMESPACE OMPI_MCA_ess_base_jobid SLURM_JOB_ID R2_PERF_ROOT
limit=30000 # ms: a bound against hangs, on a machine that others use

now_ms() { echo $(($(date +%s%N) / 1000000)); }
# within MS COMMAND...: waits until it is true
within() {
    until_ms=$(($(now_ms) + $1))
    shift
    until "$@"; do
        [ "$(now_ms)" -lt $until_ms ] || return 1
        sleep 0.01
    done
}
fabric() { "$B/softfab" up --name $fab --hosts 2 --nics 4 --rate 20MB/s >/dev/null || exit 1; }
gone() { ! kill -0 "$1" 2>/dev/null; }
error_said() { grep -q '^# error' "$log/out0"; }

# Ranks that no launcher ends: the first one says why it gives up, then both close.
abort() {
    name="aborted under '$1'"
    wanted "$name" || return
    fabric
    rm -f "$log"/out* "$log"/end*
    pids=
    for r in 0 1; do
        {
            NCCL_HOSTID=h$r PMI_RANK=$r MPI_LOCALRANKID=$r timeout -k 5 60 "$B/softfab" exec --name $fab --host $r -- "$B/r2_perf" all_reduce --intra net \
                -b 256K -e 256K --buffsize 128K --placement out -w 1 -T 1s --duration 20s --fault-cmd "500ms:$B/softfab fault --name $fab '$1'" >"$log/out$r" 2>&1
            echo "$? $(now_ms)" >"$log/end$r"
        } &
        pids="$pids $!"
    done
    within 30000 error_said
    said=$(now_ms)
    for p in $pids; do
        wait "$p"
    done
    pids=
    cat "$log/out0" "$log/out1" >"$log/out"
    took=0 gave_up=0
    for r in 0 1; do
        read -r rc at <"$log/end$r"
        case $rc in
        4) gave_up=$((gave_up + 1)) ;;
        3) ;; # the other one was sooner: its connections ended under this one
        *) bad "$name" "rank $r ends with $rc" ;;
        esac
        [ $((at - said)) -le $took ] || took=$((at - said))
    done
    left=$(for h in 0 1; do "$B/softfab" exec --name $fab --host $h -- sh -c 'ls "$NCCL_R2_RUN_DIR" | grep "[.]stat$"'; done)
    if [ $gave_up = 0 ] || ! error_said; then
        bad "$name" "it did not come to that"
    elif [ $took -gt $limit ] || [ -n "$left" ]; then
        bad "$name" "$took ms, left: $left"
    else
        ok "$name: both processes are gone $took ms after the first word of it"
    fi
    "$B/softfab" down --name $fab >/dev/null 2>&1
}
for fault in 'h1:* down' 'h1:* blackhole' 'h1:* hang' 'h1:* fatal' 'h0:* hang'; do
    abort "$fault"
done

connections() { grep -q '^# carried' "$log/r0" && grep -q '^# carried' "$log/r1"; }
all_ended() { [ "$(grep -c '^# host 0: .* returned [1-9]' "$log/r0")" = 8 ]; }
wanted "killed" && {
    fabric
    mkdir -p "$log/ways"
    pids=
    for h in 0 1; do
        : >"$log/r$h"
        NCCL_R2_RUN_DIR=$log "$B/softfab" exec --name $fab --host $h -- "$B/r2_matrix" --rank $h 2 4 "$B/libnccl-net-r2.so" "$log/ways" 200 >"$log/r$h" 2>&1 &
        pids="$pids $!"
    done
    : >"$log/out"
    within 30000 connections || bad "killed" "the job does not run"
    killed=$(now_ms)
    kill -9 "${pids##* }"
    within $limit all_ended
    took=$(($(now_ms) - killed))
    cat "$log/r0" >"$log/out"
    named=$(grep -c 'WARN NET/R2 : .* h1 ends: peer process at .* is gone: its host refuses connections' "$log/r0")
    if ! all_ended || [ "$named" != 8 ]; then
        bad "killed" "$(grep -c '^# host 0: .* returned [1-9]' "$log/r0") of 8 connections ended within $took ms, $named named it"
    elif [ $took -lt 900 ]; then
        bad "killed" "after $took ms: nobody may be taken for dead who starts again within a second"
    else
        ok "killed: all 8 connections of the other process ended and named it, $took ms after"
    fi
    kill "${pids% *}" 2>/dev/null
    wait
    pids=
}
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
