#!/bin/sh
# A driver that does not come back from calls on registrations, in processes on the software fabric: collectives go on, and the job ends, with buffers
# let go on all other NICs. Each case asserts that every element of every timed operation is right. Argument: build folder. Second argument: only
# cases whose name contains it.
. "$(dirname "$0")/collective_lib.sh"
case $B in /*) ;; *) B=$PWD/$B ;; esac
fab=register$$
trap '"$B/softfab" down --name $fab >/dev/null 2>&1; rm -rf "$log"' EXIT
export NCCL_R2_EXIT=1

# run ARGUMENT...: a run over a fabric of its own; it ends by itself, within a limit that is far beyond what it takes
run() {
    "$B/softfab" up --name $fab --hosts 2 --nics 3 --rate 20MB/s >/dev/null || exit 1
    timeout -k 5 100 "$B/r2_perf" all_reduce -b 64K -e 64K --buffsize 128K --fabric $fab --hosts 2 --placement out -w 1 -T 30s \
        --duration 1s --stats "$@" >"$log/out" 2>&1
    rc=$?
    "$B/softfab" status --name $fab >"$log/status" 2>&1
    "$B/softfab" down --name $fab >/dev/null 2>&1
}

# --- the driver of a NIC hangs while the buffers of all connections are let go, and says nothing of it to anybody ---
case_release() { # PLACE
    wanted "release $1" || return
    run --fault "300ms:$1 mr-hang"
    was_right "release $1" || return
    if ! grep -q 'mr-hang' "$log/status"; then
        bad "release $1" "no call could hang: $(cat "$log/status")"
    elif ! grep -q 'while the driver of NIC fab[0-9] does not come back' "$log/out"; then
        bad "release $1" "nothing is said"
    else
        ok "release $1: $(grep -c 'while the driver of NIC' "$log/out") buffers let go, all but there"
    fi
}
case_release h0:n1
case_release h1:n0

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
