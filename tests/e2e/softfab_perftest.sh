#!/bin/sh
# The software fabric under Debian's verbs programs, and under faults, kills and neighbours.
#
#   tests/e2e/softfab_perftest.sh [BUILD]      BUILD: where softfab, softfab-lib and softfab_probe are (default: $B, then build)
#
# One line per check, last line "N passed, N failed". Exit status 0 if none failed. Needs ibverbs-utils and perftest.
set -u

build=${1:-${B:-}}
if [ -z "$build" ]; then
    build=$(dirname "$0")/../../build
fi
build=$(cd "$build" && pwd) || exit 2
for p in ibv_devinfo ibv_rc_pingpong ib_write_bw ib_send_bw ib_read_bw ib_write_lat; do
    if ! command -v $p >/dev/null; then
        echo "skipped: $p is not installed (ibverbs-utils, perftest)"
        echo "0 passed, 0 failed"
        exit 0
    fi
done
sf=$build/softfab
tmp=$(mktemp -d) || exit 2
name=e2e$$
passed=0
failed=0
pids=

cleanup() {
    for p in $pids; do
        kill -9 "$p" 2>/dev/null
    done
    for n in "$name" "$name-b" "$name-r" "$name-s"; do
        "$sf" down --name "$n" >/dev/null 2>&1
    done
    rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP PIPE

pass() {
    passed=$((passed + 1))
    echo "ok $*"
}

fail() {
    failed=$((failed + 1))
    echo "FAIL $*"
}

# check NAME COMMAND...: the command's exit status decides; its last lines are shown when it fails.
check() {
    what=$1
    shift
    if "$@" >"$tmp/check" 2>&1; then
        pass "$what"
    else
        fail "$what"
        tail -n 12 "$tmp/check" | sed 's/^/    /'
    fi
}

on() { # on FABRIC HOST COMMAND...
    f=$1
    h=$2
    shift 2
    timeout 60 "$sf" exec --name "$f" --host "$h" -- "$@"
}

. "$(dirname "$0")/../port_lib.sh"

# pair FABRIC PROGRAM OPTIONS...: server on host 0, client on host 1; both must end with 0. Output: client in $tmp/c, server in $tmp/s.
pair_start() {
    pf=$1
    shift
    rm -f "$tmp/s" "$tmp/c"
    port_next
    on "$pf" 0 "$@" -p "$port" >"$tmp/s" 2>&1 &
    server=$!
    pids="$pids $server"
    port_wait "$port" "$server"
}

pair() {
    if ! pair_start "$@"; then
        cat "$tmp/s"
        return 1
    fi
    shift
    on "$pf" 1 "$@" -p "$port" 127.0.0.1 >"$tmp/c" 2>&1
    crc=$?
    cat "$tmp/c"
    wait "$server"
    src=$?
    [ "$crc" -eq 0 ] && [ "$src" -eq 0 ] && return
    # What they say on standard error stands before what they print, which is buffered.
    echo "client: exit code $crc, server: exit code $src"
    grep -ihE 'error|fail|status|could' "$tmp/c" "$tmp/s"
    false
}

# Column @2 of the line of figures for message size @1 in the client's output.
figure() {
    awk -v s="$1" -v c="$2" '$1 == s { v = $c } END { print v + 0 }' "$tmp/c"
}

at_least() {
    awk -v v="$1" -v w="$2" 'BEGIN { exit !(v >= w) }'
}

status_of() { # status_of FABRIC PLACE: its line
    "$sf" status --name "$1" | awk -v p="$2" '$1 == p'
}

processes() { # how many live in FABRIC
    "$sf" status --json --name "$1" | jq '.process | length'
}

# ---- what is exported --------------------------------------------------------------------------------------------------------
symbols() {
    objdump -T "$1" | awk '$4 != "*UND*" && $0 ~ /IBVERBS_/ { print $(NF - 1), $NF }' | sort -u
}

exports() {
    real=
    for d in /usr/lib/*-linux-gnu /usr/lib64 /usr/lib; do
        [ -e "$d/libibverbs.so.1" ] && real=$d/libibverbs.so.1 && break
    done
    [ -n "$real" ] || { echo "no libibverbs.so.1 on this machine"; return 1; }
    symbols "$real" >"$tmp/real"
    symbols "$build/softfab-lib/libibverbs.so.1" >"$tmp/ours"
    [ -s "$tmp/real" ] && diff "$tmp/real" "$tmp/ours"
}

# ---- programs ------------------------------------------------------------------------------------------------------------------
devices() {
    [ "$(on "$name" 0 ibv_devinfo -l | grep -c fab)" -eq 4 ] && on "$name" 1 ibv_devinfo -d fab3 | grep -q PORT_ACTIVE
}

no_devices_outside() {
    LD_LIBRARY_PATH=$build/softfab-lib ibv_devinfo -l | grep -q '^0 HCAs'
}

# An exec around this one has set what is the host's; what the user has set stays.
exec_inside_exec() {
    on "$name" 0 "$sf" exec --name "$name" --host 1 -- env >"$tmp/env1" && NCCL_HOSTID=mine on "$name" 0 "$sf" exec --name "$name" --host 1 -- env >"$tmp/env2" &&
        grep -qx 'NCCL_HOSTID=h1' "$tmp/env1" && grep -qx 'NCCL_R2_RUN_DIR=.*/host1/run' "$tmp/env1" && grep -qx 'NCCL_HOSTID=mine' "$tmp/env2"
}

figures() { # figures LABEL SIZE COLUMN UNIT PROGRAM OPTIONS...: passes when both ends do and the figure is not 0
    label=$1
    size=$2
    col=$3
    unit=$4
    shift 4
    if pair "$name" "$@" >/dev/null && at_least "$(figure "$size" "$col")" 0.01; then
        pass "$label ($(figure "$size" "$col") $unit)"
    else
        fail "$label"
        tail -n 5 "$tmp/c" "$tmp/s" 2>&1 | sed 's/^/    /'
    fi
}

programs() {
    check "ibv_devinfo: 4 NICs on each host, active" devices
    check "without softfab exec there are no devices" no_devices_outside
    check "exec inside exec" exec_inside_exec
    check "ibv_rc_pingpong, contents checked" pair "$name" ibv_rc_pingpong -d fab0 -g 3 -n 2000 -c
    check "ibv_rc_pingpong with events" pair "$name" ibv_rc_pingpong -d fab1 -g 3 -n 500 -e -c
    check "ibv_rc_pingpong, 1 MiB" pair "$name" ibv_rc_pingpong -d fab2 -g 1 -n 200 -s 1048576 -c
    check "ibv_srq_pingpong" pair "$name" ibv_srq_pingpong -d fab0 -g 3 -n 500 -c
    figures "ib_write_bw" 65536 4 MiB/s ib_write_bw -d fab0 -x 3 -u 18 -s 65536 -n 5000
    figures "ib_write_bw, 8 queue pairs, both directions" 65536 4 MiB/s ib_write_bw -d fab0 -x 3 -u 18 -s 65536 -n 1000 -q 8 -b
    figures "ib_send_bw, events" 65536 4 MiB/s ib_send_bw -d fab0 -x 3 -u 18 -s 65536 -n 2000 -e
    figures "ib_send_bw" 65536 4 MiB/s ib_send_bw -d fab1 -x 3 -u 18 -s 65536 -n 5000
    figures "ib_read_bw" 65536 4 MiB/s ib_read_bw -d fab2 -x 3 -u 18 -s 65536 -n 5000
    figures "ib_write_lat" 8 5 us ib_write_lat -d fab0 -x 3 -u 18 -s 8 -n 500
    figures "ib_send_lat" 8 5 us ib_send_lat -d fab3 -x 1 -u 18 -s 8 -n 2000
    figures "ib_read_lat" 8 5 us ib_read_lat -d fab3 -x 3 -u 18 -s 8 -n 2000
}

crossrail_refused() {
    # Rails are apart: NIC 0 of host 0 and NIC 1 of host 1 do not reach each other.
    port_next
    on "$name" 0 ib_write_bw -d fab0 -x 3 -s 65536 -n 10 -p "$port" >"$tmp/s" 2>&1 &
    server=$!
    pids="$pids $server"
    port_wait "$port" "$server" || return 1
    on "$name" 1 ib_write_bw -d fab1 -x 3 -s 65536 -n 10 -p "$port" 127.0.0.1 >"$tmp/c" 2>&1 && return 1
    kill -9 "$server" 2>/dev/null
    wait "$server" 2>/dev/null
    true
}

# ---- rates -----------------------------------------------------------------------------------------------------------------------
# What a link carries is read from the fabric's counters, each between two instants that the status gives: the bound of
# fabric/shm/README.md holds however busy the machine is. How near the rate comes is a figure (make bench); here it has to flow.

# Received is counted when it is delivered, which may be late: the bound is on what is sent.

# samples FABRIC FILE: "from_ns to_ns PLACE tx rx" per NIC, ten times a second, until killed
samples() {
    while "$sf" status --json --name "$1" >"$2.now"; do
        jq -r '. as $s | .nic[] | "\($s.from_ns) \($s.to_ns) \(.place) \(.tx_bytes) \(.rx_bytes)"' "$2.now" >>"$2"
        sleep 0.1
    done
}

# rate_bound FILE BYTES_PER_S PROCESSES PLACE...: what every port sends stays within its bound in every interval; at these places a twentieth of the rate at least, while it flowed
rate_bound() {
    file=$1
    rate=$2
    procs=$3
    shift 3
    awk -v rate="$rate" -v procs="$procs" -v places="$*" '
        function look(what, i, bytes, k, w, over) {
            k = ++n[what]
            at_from[what, k] = $1; at_to[what, k] = $2; sum[what, k] = bytes
            for (i = 1; i < k; i++) {
                over = bytes - sum[what, i] - rate * ($2 - at_from[what, i]) / 1e9
                if (over > worst) worst = over
            }
        }
        { look($3 " tx", 0, $4) }
        END {
            burst = rate * 0.0016 + (1 + procs) * 32768
            m = split(places, want, " ")
            for (p = 1; p <= m; p++) {
                what = want[p] " tx"
                first = last = 0
                for (i = 2; i <= n[what]; i++) if (sum[what, i] > sum[what, i - 1] + rate / 100) { if (!first) first = i - 1; last = i }
                got = last > first ? (sum[what, last] - sum[what, first]) / ((at_to[what, last] - at_from[what, first]) / 1e9) : 0
                printf "%s %.1f MB/s, ", want[p], got / 1e6
                if (got < rate / 20) bad = 1
            }
            printf "at most %.0f of %.0f kB above %.0f MB/s\n", worst / 1e3, burst / 1e3, rate / 1e6
            exit bad || !m || worst > burst
        }' "$file"
}

rate_check() { # rate_check LABEL BYTES_PER_S "PLACE..." FABRIC PROGRAM...
    label=$1
    rate=$2
    places=$3
    shift 3
    rm -f "$tmp/samples"
    crc= src=
    samples "$1" "$tmp/samples" &
    sampler=$!
    pids="$pids $sampler"
    pair "$@" >/dev/null
    rc=$?
    kill "$sampler" 2>/dev/null
    wait "$sampler" 2>/dev/null
    # shellcheck disable=SC2086
    if [ $rc -eq 0 ] && rate_bound "$tmp/samples" "$rate" 2 $places >"$tmp/bound"; then
        pass "$label ($(cat "$tmp/bound"))"
    else
        fail "$label: client ${crc:-not run}, server ${src:-not run}: $(cat "$tmp/bound" 2>/dev/null)"
        grep -hi 'error\|fail' "$tmp/c" "$tmp/s" | sed 's/^/    /'
        tail -n 5 "$tmp/c" "$tmp/s" 2>&1 | sed 's/^/    /'
    fi
}

# Two processes of host 1 share its port towards two of host 0: one polls, one sleeps between completions. What each sends in the time in which both do:
# where one begins or ends between two samples, and the machine has made that long, it had the port for itself. So they begin long before either ends.
shared_port() {
    for side in 0 1; do
        port_next
        eval "sp$side=$port"
        tool=ib_write_bw
        [ "$side" -eq 0 ] || tool='ib_send_bw -e'
        # shellcheck disable=SC2086
        on "$name-s" 0 $tool -d "fab$side" -x 3 -s 65536 -n 5000 -u 18 -p "$port" >"$tmp/s$side" 2>&1 &
        eval "ss$side=$!"
        pids="$pids $!"
        port_wait "$port" "$!" || return 1
    done
    samples "$name-s" "$tmp/shared" &
    sampler=$!
    # shellcheck disable=SC2154
    on "$name-s" 1 ib_write_bw -d fab0 -x 3 -s 65536 -n 5000 -u 18 -p "$sp0" 127.0.0.1 >"$tmp/c0" 2>&1 &
    c0=$!
    # shellcheck disable=SC2154
    on "$name-s" 1 ib_send_bw -e -d fab0 -x 3 -s 65536 -n 5000 -u 18 -p "$sp1" 127.0.0.1 >"$tmp/c1" 2>&1 &
    c1=$!
    pids="$pids $sampler $c0 $c1"
    rc=0
    # shellcheck disable=SC2154
    for p in $c0 $c1 $ss0 $ss1; do
        wait "$p" || rc=$?
    done
    kill "$sampler" 2>/dev/null
    wait "$sampler" 2>/dev/null
    if [ $rc -ne 0 ]; then
        echo "exit status $rc: $(grep -hi 'error\|fail\|unable\|not ' "$tmp/c0" "$tmp/c1" "$tmp/s0" "$tmp/s1" | tail -n 4)"
        return 1
    fi
    rate_bound "$tmp/shared" 50000000 4 h1:n0 || return 1
    awk '{ if ($3 == "h0:n0") a[$1] = $5; if ($3 == "h0:n1") { b[$1] = $5; order[++n] = $1 } }
        function both(i) { return a[order[i]] - a[order[i - 1]] > 100000 && b[order[i]] - b[order[i - 1]] > 100000 }
        END {
            for (i = 3; i < n; i++) {
                if (both(i - 1) && both(i) && both(i + 1)) { sa += a[order[i]] - a[order[i - 1]]; sb += b[order[i]] - b[order[i - 1]] }
            }
            printf "polls %.1f MB, sleeps %.1f MB\n", sa / 1e6, sb / 1e6
            exit !(sa + sb > 20e6 && sa < 2 * sb && sb < 2 * sa)
        }' "$tmp/shared" >"$tmp/shares"
    rc=$?
    cat "$tmp/shares"
    return $rc
}

# A software NIC answers when its process gets the processor: on a machine without time that may be later than perftest's seven time-outs of 67 ms. -u 18: 1 s each.
rates() {
    "$sf" up --name "$name-r" --hosts 2 --nics 2 --rate 100MB/s --latency 10us >/dev/null || fail "up with a rate"
    rate_check "100 MB/s, ib_write_bw" 100000000 h1:n0 "$name-r" ib_write_bw -d fab0 -x 3 -s 65536 -n 6000 -u 18
    rate_check "100 MB/s, 4 queue pairs" 100000000 h1:n0 "$name-r" ib_write_bw -d fab0 -x 3 -s 65536 -n 1500 -u 18 -q 4
    rate_check "100 MB/s each way" 100000000 "h0:n0 h1:n0" "$name-r" ib_write_bw -d fab0 -x 3 -s 65536 -n 4000 -u 18 -b
    rate_check "100 MB/s, ib_read_bw" 100000000 h0:n1 "$name-r" ib_read_bw -d fab1 -x 3 -s 65536 -n 6000 -u 18
    "$sf" fault --name "$name-r" 'h1:n0 rate 20MB/s'
    rate_check "20 MB/s by a fault" 20000000 h1:n0 "$name-r" ib_write_bw -d fab0 -x 3 -s 65536 -n 1200 -u 18
    "$sf" down --name "$name-r" >/dev/null
    "$sf" up --name "$name-s" --hosts 2 --nics 2 --rate 50MB/s --latency 10us --crossrail >/dev/null || fail "up across rails"
    check "a sender that sleeps has its share of a port" shared_port
    check "two NICs of a process have their share of a port" on "$name-s" 0 "$build/softfab_probe" nics-share
    "$sf" down --name "$name-s" >/dev/null
}

# ---- faults ------------------------------------------------------------------------------------------------------------------------
fault_shows() { # fault_shows FAULT STATE TEXT
    "$sf" fault --name "$name" "h1:n2 $1" && status_of "$name" h1:n2 >"$tmp/line" && cat "$tmp/line" &&
        grep -q " $2 " "$tmp/line" && grep -q -e "  .*$3" "$tmp/line" &&
        "$sf" status --json --name "$name" | jq -e --arg s "$2" --arg f "$3" '.nic[] | select(.place == "h1:n2") | .state == $s and any(.faults[]; startswith($f))' &&
        "$sf" fault --name "$name" 'h1:n2 restore' && status_of "$name" h1:n2 | grep -q ' ACTIVE '
}

faults_show() {
    for f in 'down DOWN down' 'blackhole ACTIVE blackhole' 'blackhole-tx ACTIVE blackhole-tx' 'blackhole-rx ACTIVE blackhole-rx' \
        'ack-lost ACTIVE ack-lost' 'hang HUNG hang' 'fatal FATAL fatal' 'remove REMOVED remove' 'mr-fail ACTIVE mr-fail' 'call-error ACTIVE call-error' 'gpu-dma-fail ACTIVE gpu-dma-fail' \
        'qp-error ACTIVE qp-error' 'gid-change ACTIVE gid-change'; do
        # shellcheck disable=SC2086
        set -- $f
        check "status shows $1" fault_shows "$1" "$2" "$3"
    done
    check "status shows loss" fault_shows 'loss 1%' ACTIVE 'loss 1%'
    check "status shows corrupt" fault_shows 'corrupt 0.1%' ACTIVE 'corrupt 0.1%'
    check "status shows dup" fault_shows 'dup 2%' ACTIVE 'dup 2%'
    check "status shows delay" fault_shows 'delay 5ms' ACTIVE 'delay 5ms'
    check "status shows rate" fault_shows 'rate 20MB/s' ACTIVE 'rate 20MB/s'
    check "status shows cut" fault_shows 'cut h0:n2' ACTIVE 'cut h0:n2'
    check "status shows cut at the far end" fault_shows_far 'h0:n2 cut h1:n2' 'cut h0:n2'
    check "status shows cut-tx" fault_shows 'cut-tx h0:n2' ACTIVE 'cut-tx h0:n2'
}

fault_shows_far() { # fault_shows_far FAULT TEXT: at h1:n2, until the near end is restored
    "$sf" fault --name "$name" "$1" && status_of "$name" h1:n2 | grep -q "  .*$2" &&
        "$sf" fault --name "$name" 'h0:n2 restore' && ! status_of "$name" h1:n2 | grep -q cut
}

plane_shows() {
    "$sf" up --name "$name-p" --hosts 3 --nics 2 >/dev/null && "$sf" fault --name "$name-p" '*:n1 cut *:n1' &&
        [ "$("$sf" status --name "$name-p" | grep -c 'cut \*:n1$')" = 3 ] && "$sf" fault --name "$name-p" 'h0:n1 restore' &&
        status_of "$name-p" h1:n1 | grep -q 'cut h2:n1$'
    rc=$?
    "$sf" down --name "$name-p" >/dev/null
    return $rc
}

state_in_files() {
    state=$(on "$name" 0 sh -c 'echo "$SOFTFAB_SYSFS"')/class/infiniband/fab1/ports/1/state
    "$sf" fault --name "$name" 'h0:n1 down' && grep -q DOWN "$state" && "$sf" fault --name "$name" 'h0:n1 up' &&
        grep -q ACTIVE "$state"
}

bad_faults() {
    for f in 'h9:n0 down' 'h0:n0 cut' 'h0:n0 cut h9:n0' 'h0:n0 cut h0:n0' 'h0:n0 sideways' 'h0:n0 loss' 'h0:n0 loss much' 'n0 down' 'h0:n0 down 5'; do
        if "$sf" fault --name "$name" "$f" 2>"$tmp/err" || [ ! -s "$tmp/err" ]; then
            echo "'$f' was taken"
            return 1
        fi
    done
}

effects() {
    on "$name" 0 "$build/softfab_probe" >"$tmp/probe" 2>&1
    while read -r verdict rest; do
        case $verdict in
        ok) pass "effect of $rest" ;;
        *) fail "effect of $rest" ;;
        esac
    done <"$tmp/probe"
    grep -q '^ok many-peers-killed' "$tmp/probe" || fail "softfab_probe did not reach its end"
}

fault_ends_run() { # fault_ends_run FAULT: a running ib_write_bw ends with an error
    pair_start "$name" ib_write_bw -d fab0 -x 3 -s 65536 -D 20 -u 12 || return 1
    on "$name" 1 ib_write_bw -d fab0 -x 3 -s 65536 -D 20 -u 12 -p "$port" 127.0.0.1 >"$tmp/c" 2>&1 &
    client=$!
    pids="$pids $client"
    wait_traffic h1:n0 || return 1
    "$sf" fault --name "$name" "$1"
    wait "$client"
    rc=$?
    "$sf" fault --name "$name" '*:* restore'
    kill -9 "$server" 2>/dev/null
    wait "$server" 2>/dev/null
    cat "$tmp/c"
    [ "$rc" -ne 0 ] && [ "$rc" -ne 124 ]
}

wait_traffic() { # until PLACE has sent 10 MB since now
    before=$(status_of "$name" "$1" | awk '{ print $6 }')
    i=0
    while [ "$(status_of "$name" "$1" | awk '{ print $6 }')" -lt $((before + 10000000)) ]; do
        i=$((i + 1))
        [ "$i" -lt 400 ] || return 1
        sleep 0.02
    done
}

# ---- kills and neighbours --------------------------------------------------------------------------------------------------------
killed_run() { # the client, the server or both are killed while data flows
    pair_start "$name" ib_write_bw -d fab0 -x 3 -s 65536 -D 20 || return 1
    on "$name" 1 ib_write_bw -d fab0 -x 3 -s 65536 -D 20 -p "$port" 127.0.0.1 >"$tmp/c" 2>&1 &
    client=$!
    pids="$pids $client"
    wait_traffic h1:n0 || return 1
    [ "$(processes "$name")" -eq 2 ] || return 1
    # Children of timeout are the programs themselves: exec replaces softfab.
    for side in $1; do
        case $side in
        client) kill_child "$client" ;;
        server) kill_child "$server" ;;
        esac
    done
    case $1 in *client*) ;; *) kill_child "$client" ;; esac
    case $1 in *server*) ;; *) kill_child "$server" ;; esac
    wait "$client" "$server" 2>/dev/null
    all_gone && pair "$name" ib_write_bw -d fab0 -x 3 -u 18 -s 65536 -n 1000
}

# A killed process is gone when the kernel has taken it down, not when kill returns, and it is nobody's child here.
all_gone() {
    tries=100
    while [ "$(processes "$name")" -ne 0 ]; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.1
    done
}

# kill_child PID: the program under a background shell and its timeout
kill_child() {
    for t in $(cat "/proc/$1/task/$1/children" 2>/dev/null) "$1"; do
        for c in $(cat "/proc/$t/task/$t/children" 2>/dev/null); do
            kill -9 "$c" 2>/dev/null
        done
    done
    kill -9 "$1" 2>/dev/null
    true
}

side_by_side() {
    "$sf" up --name "$name-b" --hosts 2 --nics 1 >/dev/null || return 1
    "$sf" fault --name "$name-b" '*:* down'
    pair "$name" ib_write_bw -d fab0 -x 3 -u 18 -s 65536 -n 500 >/dev/null || return 1
    on "$name-b" 0 ibv_devinfo -d fab0 | grep -q PORT_DOWN || return 1
    [ "$(on "$name-b" 0 ibv_devinfo -l | grep -c fab)" -eq 1 ] || return 1
    "$sf" status --name "$name-b" | awk '$1 ~ /^h[01]:n0$/ { s += $6 + $8 } END { exit s != 0 }' || return 1
    "$sf" down --name "$name-b" >/dev/null && "$sf" status --name "$name" >/dev/null
}

up_over_stale() {
    on "$name" 0 sleep 30 &
    sleeper=$!
    pids="$pids $sleeper"
    # sleep has opened no device, so nobody lives in the fabric and up replaces it.
    "$sf" up --name "$name" --hosts 2 --nics 4 >/dev/null || return 1
    kill_child "$sleeper"
    wait "$sleeper" 2>/dev/null
    status_of "$name" h0:n0 | awk '{ exit $6 != 0 }'
}

up_over_living() {
    pair_start "$name" ib_write_bw -d fab0 -x 3 -s 65536 -D 20 || return 1
    if "$sf" up --name "$name" 2>"$tmp/err"; then
        kill_child "$server"
        return 1
    fi
    kill_child "$server"
    wait "$server" 2>/dev/null
    grep -q 'process [0-9]' "$tmp/err" && "$sf" up --name "$name" --hosts 2 --nics 4 >/dev/null
}

no_root() {
    command -v setpriv >/dev/null || { echo "no setpriv"; return 1; }
    as="setpriv --reuid=65534 --regid=65534 --clear-groups"
    mkdir "$tmp/u" && chmod 755 "$tmp" && chown 65534 "$tmp/u" && cp -r "$sf" "$build/softfab-lib" "$tmp/u" || return 1
    port_next
    # shellcheck disable=SC2086
    $as "$tmp/u/softfab" up --name "$name" --hosts 2 --nics 1 || return 1
    # shellcheck disable=SC2086
    timeout 30 $as "$tmp/u/softfab" exec --name "$name" --host 0 -- ibv_rc_pingpong -d fab0 -g 3 -p "$port" >"$tmp/s" 2>&1 &
    server=$!
    pids="$pids $server"
    port_wait "$port" "$server" || return 1
    # shellcheck disable=SC2086
    timeout 30 $as "$tmp/u/softfab" exec --name "$name" --host 1 -- ibv_rc_pingpong -d fab0 -g 3 -p "$port" 127.0.0.1
    rc=$?
    wait "$server" || rc=1
    # shellcheck disable=SC2086
    $as "$tmp/u/softfab" down --name "$name" && [ "$rc" -eq 0 ]
}

gone_after_down() {
    dir=$("$sf" status --name "$name" | sed -n 's/.* at \(\/.*\)/\1/p')
    [ -d "$dir" ] && "$sf" down --name "$name" && [ ! -e "$dir" ] && [ -z "$(ls -d "$dir"* 2>/dev/null)" ]
}

"$sf" up --name "$name" --hosts 2 --nics 4 >/dev/null || exit 2
check "exports: names and versions of rdma-core's library" exports
programs
check "rails are apart" crossrail_refused
rates
faults_show
check "the port's state in the files" state_in_files
check "status shows a plane as one fault" plane_shows
check "bad faults are named" bad_faults
effects
for f in 'h1:n0 down' 'h0:n0 blackhole' 'h0:n0 remove' '*:n0 qp-error' 'h1:n0 fatal'; do
    check "ib_write_bw ends when $f" fault_ends_run "$f"
done
check "client killed" killed_run client
check "server killed" killed_run server
check "both killed" killed_run "client server"
check "two fabrics side by side" side_by_side
check "up over a living fabric is refused" up_over_living
check "up over a stale fabric replaces it" up_over_stale
if [ "$(id -u)" -eq 0 ]; then
    check "without root" no_root
fi
check "down leaves nothing" gone_after_down
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
