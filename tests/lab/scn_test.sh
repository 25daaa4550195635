#!/bin/sh
# What check_lab.sh makes of ranks that did not end well (scn_lib.sh), on made-up logs: no VM is needed. Usage: scn_test.sh
cd "$(dirname "$0")/../.." || exit 1
. tests/lab/scn_lib.sh
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT
run=$T/run1 good=0 wrong=0
lab() { :; }
# stands STATUS: h1 at its limit, its agent silent, QEMU with that STATUS; rank 0 waits for it
stands() {
    cat >"$run.r0" <<EOF
h0:1:2 [0] NCCL INFO NET/R2 : send 6 h0/rxe1 -> h1 path 0 life 1 UP -> DOWN: no answer
lab: h0: env: limit reached, killed
lab: process 347 thread 347 r2_perf: state S in futex_wait_queue, system call 202; futex_wait_queue < do_futex
lab: process 347 thread 348 r2_perf: state S in wait_woken, system call 45; wait_woken < sk_wait_data
lab: process 347 thread 350 r2 verbs: state S in futex_wait_queue, system call 202; futex_wait_queue < do_futex
lab: process 400 thread 401 r2_perf: state S in futex_wait_queue, system call 202; futex_wait_queue < do_futex
lab: kernel: <6>[    7.818794] infiniband rxe2: set active
lab: kernel: <6>[    7.869019] virtio_net virtio7 r2d3: renamed from eth3
lab: kernel: NETDEV WATCHDOG
EOF
    {
        echo "lab: h1: env: limit reached, killed"
        echo "lab: h1: its agent says nothing, either"
        echo "lab: h1: QEMU: $1"
        echo "lab: h1: CPU: RIP=ffff1 CPL=0 HLT=0"
        echo "lab: h1: CPU: RIP=ffff2 CPL=0 HLT=0"
        echo "lab: h1: CPU: RIP=ffff1 CPL=0 HLT=0"
    } >"$run.r1"
}
# says NAME TEXT: right() begins with that
says() {
    out=$(right "it" 0 99)
    case $out in
    "$2"*) good=$((good + 1)) && echo "ok   $1" ;;
    *) wrong=$((wrong + 1)) && echo "FAIL $1: $out" ;;
    esac
}
# line NAME TEXT: what says() saw has that line
line() {
    if echo "$out" | grep -qxF "$2"; then
        good=$((good + 1)) && echo "ok   $1"
    else
        wrong=$((wrong + 1)) && echo "FAIL $1: $out"
    fi
}
stands running
for rcs in "124 124" "3 124" "4 124" "0 124"; do
    says "a VM that stands, exit codes $rcs" "SKIP   it: a virtual machine stood still: h1 (RIP=ffff1 CPL=0 HLT=0 x2, RIP=ffff2 CPL=0 HLT=0 x1)"
done
for rcs in "7 124" "137 124" "1 124" "2 124" "124 124 fault:1" "3 3"; do
    says "a VM that stands, exit codes $rcs: no excuse" "FAILED it: exit codes $rcs"
done
rcs="124 124"
stands paused
says "a VM that was stopped" "FAILED it: exit codes 124 124"
line "threads that wait in one place" \
    "    run1.r0 lab: process 347: 347 r2_perf, 350 r2 verbs: state S in futex_wait_queue, system call 202; futex_wait_queue < do_futex"
line "a thread elsewhere" "    run1.r0 lab: process 347: 348 r2_perf: state S in wait_woken, system call 45; wait_woken < sk_wait_data"
line "another process there" "    run1.r0 lab: process 400: 401 r2_perf: state S in futex_wait_queue, system call 202; futex_wait_queue < do_futex"
line "the kernel's words" "    run1.r0 lab: kernel: NETDEV WATCHDOG"
line "the other rank's words" "    run1.r1 lab: h1: QEMU: paused"
line "what the rank said" "    run1.r0 h0:1:2 [0] NCCL INFO NET/R2 : send 6 h0/rxe1 -> h1 path 0 life 1 UP -> DOWN: no answer"
if [ "$(echo "$out" | grep -c 'lab: kernel: ')" = 1 ]; then
    good=$((good + 1)) && echo "ok   NICs that come up are no news"
else
    wrong=$((wrong + 1)) && echo "FAIL NICs that come up are no news: $out"
fi
sed -i '/its agent says nothing/d; s/paused/running/' "$run.r1"
says "a program that hangs" "FAILED it: exit codes 124 124"
echo "$good passed, $wrong failed"
[ $wrong = 0 ]
