#!/bin/sh
# Two hosts of the software fabric in network namespaces of their own, the out-of-band channel on a link between them. The link is taken away under
# traffic, then NICs, one after the other: all connections go on without the channel, and it comes back.
# Needs root, for the namespaces alone. Closing line "N passed, N failed".
set -u
B=$1
name=oobcut$$
fabric="$B/softfab --name $name"
a=r2a$$ b=r2b$$
W=$(mktemp -d)
passed=0 failed=0 pids=

ip netns add "$a" 2>"$W/ip" && ip netns add "$b" 2>>"$W/ip" && ip link add va$$ netns "$a" type veth peer name vb$$ netns "$b" 2>>"$W/ip" || {
    why=$(head -1 "$W/ip" 2>/dev/null)
    ip netns del "$a" 2>/dev/null
    ip netns del "$b" 2>/dev/null
    rm -rf "$W"
    echo "no network namespaces here: ${why:-ip is missing}"
    exit 77
}
end() {
    trap - EXIT INT TERM
    for p in $pids; do
        kill "$p" 2>/dev/null
        wait "$p" 2>/dev/null
    done
    softfab down >/dev/null 2>&1
    ip netns del "$a"
    ip netns del "$b"
    rm -rf "$W"
}
trap end EXIT
trap 'end; exit 130' INT TERM

ok() {
    passed=$((passed + 1))
    echo "ok     $1"
}
bad() {
    failed=$((failed + 1))
    echo "FAILED $1"
    tail -n 12 "$W/r0" "$W/r1" | grep -v '^# carried' | cut -c1-220
}
softfab() {
    verb=$1
    shift
    "$B/softfab" "$verb" --name "$name" "$@"
}
# says SECONDS BEHIND PATTERN FILE: waits until it has a line that matches behind its first BEHIND. (A growing file has no event for a shell.)
says() {
    left=$(($1 * 10))
    while [ $left -gt 0 ]; do
        tail -n +$(($2 + 1)) "$4" | grep -q "$3" && return 0
        left=$((left - 1))
        sleep 0.1
    done
    return 1
}
# All connections of both hosts carry more messages than now: twice, for the first word of it may be under way already.
goes_on() {
    for f in "$W/r0" "$W/r1"; do
        says 60 "$(wc -l <"$f")" '^# carried ' "$f" && says 60 "$(wc -l <"$f")" '^# carried ' "$f" || return 1
    done
}
in_host() { # HOST COMMAND...
    ns=$a
    [ "$1" = 0 ] || ns=$b
    shift
    ip netns exec "$ns" "$@"
}

softfab up --hosts 2 --nics 4 --rate 20MB/s >/dev/null || exit 1
mkdir "$W/ways"
for h in 0 1; do
    dev=va$$
    [ $h = 0 ] || dev=vb$$
    in_host $h ip addr add 10.99.77.$((h + 1))/24 dev $dev
    in_host $h ip link set $dev up
    in_host $h ip link set lo up
done
for h in 0 1; do # a link is up a moment after both of its ends are
    left=50
    until in_host $h ip -o link show | grep -q 'v[ab][0-9].* state UP' || [ $left = 0 ]; do
        left=$((left - 1))
        sleep 0.1
    done
done
for h in 0 1; do
    : >"$W/r$h"
    ns=$a
    [ $h = 0 ] || ns=$b
    NCCL_DEBUG=INFO NCCL_R2_LOG=trace NCCL_IB_TIMEOUT=17 NCCL_IB_RETRY_CNT=3 NCCL_SOCKET_IFNAME=v NCCL_R2_T_RETURN=500 NCCL_R2_RUN_DIR="$W" \
        ip netns exec "$ns" "$B/softfab" exec --name "$name" --host $h -- "$B/r2_matrix" --rank $h 2 4 "$B/libnccl-net-r2.so" "$W/ways" 200 >"$W/r$h" 2>&1 &
    pids="$pids $!"
done

if ! goes_on; then
    bad "the job does not run"
    echo "$passed passed, $failed failed"
    exit 1
fi
in_host 0 ip link set va$$ down
for fault in 'h1:n1 down' 'h0:n2 blackhole' 'h1:n3 fatal'; do
    before=$(grep -c 'UP -> DOWN' "$W/r0")
    softfab fault "$fault" >/dev/null
    if ! says 30 0 "UP -> DOWN" "$W/r0" || ! goes_on || [ "$(grep -c 'UP -> DOWN' "$W/r0")" -le "$before" ]; then
        bad "no channel, $fault: not all connections carry messages"
    else
        ok "no channel, $fault: $(($(grep -c 'UP -> DOWN' "$W/r0") - before)) incarnations down at host 0, all connections carry messages"
    fi
done
softfab fault 'h1:n1 up' >/dev/null
if says 60 0 'life 2 is up: its NIC pair is back' "$W/r0" && goes_on; then
    ok "no channel, h1:n1 up again: paths are back"
else
    bad "no channel, h1:n1 up again: no path came back"
fi
if grep -q 'NET/R2 : the out-of-band channel to .* control messages go over [1-9]' "$W/r0" "$W/r1"; then
    ok "the log says so"
else
    bad "nothing in the log"
fi
lines=$(wc -l <"$W/r0")
in_host 0 ip link set va$$ up
if says 90 "$lines" 'the out-of-band channel to .* answers again' "$W/r0" && goes_on; then
    ok "the channel is back"
else
    bad "the channel does not come back"
fi
if grep -q '^r2_matrix: \|^# host .*returned' "$W/r0" "$W/r1"; then
    bad "a connection ended, or a message was wrong: $(grep -h '^r2_matrix: \|^# host .*returned' "$W/r0" "$W/r1" | head -1)"
else
    ok "every message was right, no connection ended"
fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
