#!/bin/sh
# The lab tests itself: commands, RDMA over each rail, and each fault with the effect it is to have.
#   lab_selftest.sh BUILD      LAB_ACCEL=tcg|kvm|auto, LAB_HOSTS=2|3
set -u
B=$1
here=$(cd "$(dirname "$0")" && pwd)
passed=0 failed=0 hosts=${LAB_HOSTS:-2}
out=$(mktemp -d)

lab() {
    sh "$here/lab.sh" "$B" "$@"
}
# t WHAT COMMAND...: passes when the command does; then WHAT is what was tested.
t() {
    what=$1
    shift
    if "$@" >"$out/log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL: $what: $*"
        tail -n 5 "$out/log" | sed 's/^/    /'
    fi
}
not() {
    ! "$@"
}
status_is() { # STATUS COMMAND...
    want=$1
    shift
    "$@"
    got=$?
    [ "$got" = "$want" ] || {
        echo "status $got, not $want"
        return 1
    }
}
says() { # PATTERN COMMAND...: a line of what it prints
    what_line=$1
    shift
    "$@" >"$out/says" 2>&1
    cat "$out/says"
    grep -q "$what_line" "$out/says"
}
fault() {
    lab fault "$@"
}
# state HOST NIC WORD...: the line of lab_nic has each word
state() {
    line=$(lab exec "$1" -t 20 -u -- lab_nic state "$2") || return 1
    echo "$line"
    shift 2
    for w in "$@"; do
        case " $line " in *" $w "*) ;; *) return 1 ;; esac
    done
}
rails() { # NIC...
    lab exec h0 -t 20 -u -- lab_nic rails "$hosts" "$@"
}
counter() { # PORT NAME
    lab counters "$1" | sed -n "s/^$2=//p"
}
grew() { # PORT NAME BEFORE
    now=$(counter "$1" "$2")
    echo "$1 $2: $3, now $now"
    [ "$now" -gt "$3" ]
}

# perf PROGRAM RAIL ARGS...: a perftest program from h0 to h1; its last table line goes to $out/perf
perf() {
    prog=$1 rail=$2
    shift 2
    lab exec h1 -t 60 -- "$prog" -d "rxe$rail" -x 1 -F "$@" >"$out/server" 2>&1 &
    server=$!
    lab exec h1 -t 30 -- sh "$here/guest_listen.sh" 18515 || return 1
    lab exec h0 -t 60 -- "$prog" -d "rxe$rail" -x 1 -F "$@" "10.10.$rail.2" >"$out/client" 2>&1
    rc=$?
    wait $server || rc=1
    grep -E '^ *[0-9]+ ' "$out/client" | tail -n 1 >"$out/perf"
    cat "$out/client"
    return $rc
}
bw() { # RAIL ARGS...: MB/s on average to $out/bw
    perf ib_write_bw "$@" -s 65536 || return 1
    awk '{ print $4 }' "$out/perf" >"$out/bw"
}
between() { # FILE LOW HIGH
    awk -v lo="$2" -v hi="$3" '{ ok = $1 >= lo && $1 <= hi; print $1 } END { exit !ok }' "$1"
}

test_commands() {
    t "exit status" status_is 7 lab exec h0 -- sh -c 'exit 7'
    t "killed by a signal" status_is 143 lab exec h0 -- sh -c 'kill -TERM $$'
    t "no such program" status_is 127 lab exec h0 -- no-such-program
    [ "$hosts" = 3 ] || t "no such host" status_is 125 lab exec h2 -t 5 -- true
    t "limit" status_is 124 lab exec h0 -t 1 -- sleep 300
    t "limit: what each thread waits for is said" says 'thread [0-9]* sleep: state S in [a-z_]*nanosleep, system call 230; .*< do_syscall_64' \
        lab exec h0 -t 1 -- sh -c 'sleep 299 & wait'
    t "limit: of all that it started" says 'thread [0-9]* sh: state S in \(do_wait\|sigsuspend\), ' lab exec h0 -t 1 -- sh -c 'setsid sleep 299 & wait'
    t "limit: of nobody else" status_is 1 says 'lab_agent' lab exec h0 -t 1 -- sleep 299
    t "limit: of one that waits in the kernel" says 'state D in ' lab exec h0 -t 3 -- \
        python3 -c 'import ctypes, time; c = ctypes.CDLL(None); c.syscall(58) == 0 and (time.sleep(99), c._exit(0))'
    lab exec h1 -t 8 -- sh -c 'echo begun; sleep 300' >"$out/still" 2>&1 &
    still=$!
    t "limit in a VM: begun" timeout 30 sh -c 'tail -f -n +1 "$1" | grep -q -m 1 begun' - "$out/still"
    t "limit in a VM that does not answer" fault freeze h1
    t "limit: still" status_is 124 wait $still
    t "limit: QEMU says so" grep -q 'lab: h1: QEMU: paused' "$out/still"
    t "limit: and where its CPU is" grep -q 'lab: h1: CPU: RIP=[0-9a-f]* CPL=[03] HLT=[01]' "$out/still"
    fault thaw h1 >/dev/null
    t "limit kills" status_is 1 lab exec h0 -- pgrep -x sleep
    t "host names" sh -c '[ "$(sh "$1" "$2" exec h1 -- uname -n)" = h1 ]' - "$here/lab.sh" "$B"
    t "standard input" sh -c '[ "$(echo in | sh "$1" "$2" exec h0 -i -- cat)" = in ]' - "$here/lab.sh" "$B"
    t "standard error apart" sh -c '[ -z "$(sh "$1" "$2" exec h0 -- sh -c "echo x >&2" 2>/dev/null)" ]' - "$here/lab.sh" "$B"
    t "10 MB of output" sh -c '[ "$(sh "$1" "$2" exec h0 -- head -c 10000000 /dev/zero | wc -c)" = 10000000 ]' - "$here/lab.sh" "$B"
    t "what a command leaves behind is killed" lab exec h0 -- sh -c 'setsid sleep 301 >/dev/null 2>&1 & true'
    t "and is gone" status_is 1 lab exec h0 -- pgrep -x sleep
    timeout -s KILL 1 sh -c 'exec "$0" "$@"' "$B/lab/lab_ctl" "$B/lab/run" exec h0 -- sleep 302
    t "dies with its client" status_is 1 lab exec h0 -- pgrep -x sleep
    t "this folder is seen" lab exec h0 -- test -f "$here/lab_selftest.sh"
    t "and cannot be written" not lab exec h0 -- touch "$here/x"
    echo fresh >"$B/lab/fresh"
    t "a new file of the build is seen" lab exec h0 -- grep -q fresh "$B/lab/fresh"
    rm -f "$B/lab/fresh"
    t "out can be written" lab exec h0 -- sh -c "echo h0 >$B/lab/out/selftest"
    t "and is seen here" grep -q h0 "$B/lab/out/selftest"
    rm -f "$B/lab/out/selftest"
    t "the control NIC is hidden" status_is 1 lab exec h0 -- grep -v -E 'lo:|r2d[0-3]:|mgmt:|Inter|face' /proc/net/dev
    for i in 1 2 3 4 5 6 7 8; do
        lab exec h0 -- echo "answer $i" >"$out/many.$i" &
    done
    wait
    t "eight at once" sh -c '[ "$(cat "$1"/many.* | sort -u | wc -l)" = 8 ]' - "$out"
}

# What counts as a rank that only the kernel keeps (scn_lib.sh): nothing that hangs by itself.
kept() { # STATUS [LINE]...: the process had ended with STATUS; other threads' lines
    {
        echo "lab: process 7 thread 7 r2_perf: state ${1:-S in do_wait}, system call 0; do_exit"
        shift
        [ $# = 0 ] || printf 'lab: process 7 thread %s\n' "$@"
        echo "lab: kernel: [1] WARNING: CPU: 0 at __rxe_cleanup"
    } >"$out/rank"
    (. "$here/scn_lib.sh" && kept_by_kernel "$out/rank" && echo "ended with $ended")
}
test_kept() {
    cleanup="state D in __rxe_cleanup, system call 16; __rxe_cleanup < rxe_destroy_qp < ib_destroy_qp_user"
    t "kept: in the destruction of a queue pair" says 'ended with 0$' kept "Z in -, ended with 0" "8 r2-verbs-1: $cleanup"
    t "kept: its status is its own" says 'ended with 3$' kept "Z in -, ended with 3" "8 r2-verbs-1: $cleanup" "9 r2-verbs-2: $cleanup"
    t "not kept: another thread waits for a lock" not kept "Z in -, ended with 0" "8 r2-verbs-1: $cleanup" \
        "9 r2-service: state S in futex_wait_queue, system call 202; futex_wait_queue < futex_wait"
    t "not kept: it has not ended" not kept "" "8 r2-verbs-1: $cleanup"
    t "not kept: another wait of the kernel's" not kept "Z in -, ended with 0" "8 r2-verbs-1: state D in msleep, system call 16; msleep < x"
    t "not kept: nothing is left" not kept "Z in -, ended with 0"
    t "a process that has ended, but for a thread" says 'thread [0-9]* python3: state Z in -, ended with 5, ' lab exec h0 -t 5 -- \
        python3 -c 'import ctypes, threading, time; c = ctypes.CDLL(None); threading.Thread(target=time.sleep, args=(99,)).start(); c.syscall(60, 5)'
}

test_rdma() {
    for k in 0 1 2 3; do
        t "rail $k: device" state h0 n$k up=1 carrier=1 mtu=4200 "addr=10.10.$k.1" "rxe$k=ACTIVE"
        t "rail $k: ib_write_bw" bw $k -n 200
        echo "rail $k: $(cat "$out/bw" 2>/dev/null) MB/s"
    done
    t "ibv_devinfo" sh -c '[ "$(sh "$1" "$2" exec h0 -- ibv_devinfo | grep -c PORT_ACTIVE)" = 4 ]' - "$here/lab.sh" "$B"
    t "rails do not reach each other" not lab exec h0 -t 20 -- timeout 3 sh -c 'ip neigh flush dev r2d0; ping -c 1 -I r2d0 10.10.1.2'
}

test_switch() {
    n=$(counter h0:n1 out_drop_cut)
    t "cut" fault cut h0:n1
    t "cut: no way" not rails n1
    t "cut: counted" grew h0:n1 out_drop_cut "$n"
    t "cut: nobody is told" state h0 n1 carrier=1 rxe1=ACTIVE
    t "cut: other rails work" rails n0 n2 n3 m
    t "heal" fault heal h0:n1
    t "heal: works" rails n1
    n=$(counter h0:n1 in_drop_cut)
    o=$(counter h0:n1 out_drop_cut)
    t "cut in" fault cut h0:n1 in
    t "cut in: no answer" not rails n1
    t "cut in: counted" grew h0:n1 in_drop_cut "$n"
    t "cut in: only in" status_is 1 grew h0:n1 out_drop_cut "$o"
    fault heal h0:n1 >/dev/null
    n=$(counter h0:n1 in_drop_cut)
    t "cut out" fault cut h0:n1 out
    t "cut out: no answer" not rails n1
    t "cut out: only out" status_is 1 grew h0:n1 in_drop_cut "$n"
    fault heal h0:n1 >/dev/null
    n=$(counter h0:n1 out_drop_cut)
    t "cut of a path" fault cut h0:n1-h1:n1
    t "cut of a path: no way" not rails n1
    t "cut of a path: counted" grew h0:n1 out_drop_cut "$n"
    t "cut of a path: nobody is told" state h0 n1 carrier=1 rxe1=ACTIVE
    t "cut of a path: other rails work" rails n0 n2 n3 m
    t "heal of a path" fault heal h0:n1-h1:n1
    t "heal of a path: works" rails n1
    t "cut of a rail" fault cut rail1
    t "cut of a rail: no way" not rails n1
    t "cut of a rail: other rails work" rails n0 n2 n3 m
    t "heal of one NIC ends its part of it" fault heal h0:n1
    t "heal of one NIC: works" rails n1
    fault heal rail1 >/dev/null
    t "loss" fault loss h0:n1 1 out
    n=$(counter h0:n1 out_drop_loss)
    t "loss: RDMA hides it" bw 1 -n 200
    t "loss: counted" grew h0:n1 out_drop_loss "$n"
    fault heal h0:n1 >/dev/null
    t "dup" fault dup h0:n1 5
    t "corrupt" fault corrupt h0:n1 0.5
    n=$(counter h0:n1 duplicated)
    o=$(counter h0:n1 corrupted)
    t "dup, corrupt: RDMA hides them" bw 1 -n 200
    t "dup: counted" sh -c '[ "$1" -gt "$2" ]' - $(($(counter h0:n1 duplicated) + $(counter h1:n1 duplicated))) "$n"
    t "corrupt: counted" sh -c '[ "$1" -gt "$2" ]' - $(($(counter h0:n1 corrupted) + $(counter h1:n1 corrupted))) "$o"
    fault heal h0:n1 >/dev/null
    t "delay" fault delay h0:n1 50
    t "delay: ib_write_lat" perf ib_write_lat 1 -n 5 -s 8
    awk '{ print $5 / 1000 }' "$out/perf" >"$out/lat"
    t "delay: half the way back and forth takes 50 to 80 ms" between "$out/lat" 50 80
    fault heal h0:n1 >/dev/null
    t "rate" fault rate h0:n1 20
    t "rate: ib_write_bw" bw 1 -n 120 -u 18
    # Above is the limit; below is what a machine busy with other things may leave of it, far from the collapse that a lossy queue causes.
    t "rate: 20 Mbit/s are 2.5 MB/s at most, and no collapse" between "$out/bw" 1.0 2.5
    fault heal h0:n1 >/dev/null
    t "oobcut" fault oobcut h0
    t "oobcut: no way" not rails m
    t "oobcut: data goes on" rails n0
    t "oobheal" fault oobheal h0
    t "oobheal: works" rails m
}

test_vm() {
    t "linkdown" fault linkdown h0:n1
    t "linkdown: no carrier" state h0 n1 up=1 carrier=0 rxe1=DOWN
    t "linkdown: no way" not rails n1
    t "linkdown: the other end sees nothing" state h1 n1 carrier=1 rxe1=ACTIVE
    t "linkup" fault linkup h0:n1
    t "linkup: works" rails n1
    t "ifdown" fault ifdown h0:n1
    t "ifdown: down" state h0 n1 up=0 rxe1=DOWN
    t "ifup" fault ifup h0:n1
    t "ifup: works" rails n1
    t "rdmadel" fault rdmadel h0:n1
    t "rdmadel: no device, but the interface" state h0 n1 rxe1=none carrier=1
    t "rdmaadd" fault rdmaadd h0:n1
    t "rdmaadd: device" state h0 n1 rxe1=ACTIVE
    t "unplug" fault unplug h0:n1
    t "unplug: gone" state h0 n1 absent
    t "unplug: RDMA device too" not lab exec h0 -- test -e /sys/class/infiniband/rxe1
    t "unplug again is an error" status_is 1 fault unplug h0:n1
    t "plug" fault plug h0:n1
    t "plug: as before" state h0 n1 up=1 carrier=1 mtu=4200 addr=10.10.1.1 rxe1=ACTIVE
    t "plug: RDMA works" bw 1 -n 50
    t "netem" fault netem h0:n1 loss 100%
    t "netem: no way" not rails n1
    t "netem off" fault netem h0:n1 off
    t "netem off: works" rails n1
    t "freeze" fault freeze h1
    t "freeze: no answer" status_is 125 lab exec h1 -t 2 -- true
    t "freeze: no way" not rails n0
    t "thaw" fault thaw h1
    t "thaw: works" rails
}

test_triggers() {
    lab on-trigger h0 now -t 30 cut h0:n2 >"$out/on" 2>&1 &
    on=$!
    t "lab-trigger" lab exec h0 -t 30 -- lab-trigger -t 20 now
    t "on-trigger" wait $on
    t "on-trigger: injected" not rails n2
    t "lab-trigger -n" lab exec h0 -- lab-trigger -n early
    t "kept for a late waiter" lab wait-trigger h0 early -t 5
    t "but once" status_is 124 lab wait-trigger h0 early -t 1
    t "nobody waits" status_is 1 lab exec h0 -- lab-trigger -t 1 nobody
    lab on-trigger h0 bad -t 30 plug h0:n1 >/dev/null 2>&1 &
    on=$!
    t "a fault that fails is told" status_is 1 lab exec h0 -t 40 -- lab-trigger -t 30 bad
    t "at both ends" status_is 1 wait $on
    t "wrong fault" status_is 2 lab on-trigger h0 x burn h0:n1
}

test_reset() {
    for f in "cut h0:n0" "rate h1:n1 1" "linkdown h0:n2" "ifdown h0:n3" "unplug h1:n0" "rdmadel h1:n2" "netem h1:n3 loss 50%" "freeze h0"; do
        # shellcheck disable=SC2086
        fault $f >/dev/null 2>&1 || t "fault $f" false
    done
    t "reset of eight faults" lab reset
    t "reset: all rails" rails
    lab exec h0 -- touch /run/not-booted-again
    t "crash" fault crash h1
    t "crash: cannot be reached" status_is 125 lab exec h1 -t 5 -- true
    t "reset boots it" lab reset
    t "and nothing else" lab exec h0 -- test -e /run/not-booted-again
    t "reset: all rails again" rails
    start=$(date +%s)
    t "reset of nothing" lab reset
    t "reset of nothing is quick" [ $(($(date +%s) - start)) -le 3 ]
    # A fault that the lab does not know and so cannot repair, as a transmit queue that hangs is one.
    t "a NIC goes deaf" lab exec h0 -- sh -c 'touch /run/not-booted-again; ip link set r2d1 arp off; ip neigh flush dev r2d1'
    t "deaf: no way" not rails n1
    t "reset boots what it cannot repair" lab reset
    t "deaf no more" rails n1
    t "it was booted" status_is 1 lab exec h0 -- test -e /run/not-booted-again
    t "status" lab status
}

trap 'lab down; rm -rf "$out"' EXIT
trap 'exit 130' INT TERM
lab up --hosts "$hosts" --accel "${LAB_ACCEL:-auto}"
rc=$?
[ $rc = 0 ] || exit $rc
for part in ${LAB_PARTS:-commands kept rdma switch vm triggers reset}; do
    begin=$(date +%s)
    test_$part
    echo "$part: $(($(date +%s) - begin)) s"
done
t "no transmit queue hung" status_is 1 sh -c 'for h in h0 h1; do sh "$1" "$2" exec $h -- dmesg; done | grep "NETDEV WATCHDOG"' - "$here/lab.sh" "$B"
id=$(cat "$B/lab/run/id")
t "the lab's processes are found by its name" pgrep -f "$id"
lab down
t "down: nothing runs" not pgrep -f "$id"
t "down again" lab down
echo "$passed passed, $failed failed"
[ $failed = 0 ]
