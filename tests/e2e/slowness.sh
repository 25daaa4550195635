#!/bin/sh
# R2-S01 on the software fabric, all to all between five hosts: a link that is late is named by both of its ends and by nobody else, a host by all others; nothing is
# said where all is well, or while all send to one of the two ends.
# Argument: build folder. Second argument: only cases whose name contains it.
. "$(dirname "$0")/collective_lib.sh"
case $B in /*) ;; *) B=$PWD/$B ;; esac
fab=slowness$$
trap '[ ! -e "$log/gather.pid" ] || kill "$(cat "$log/gather.pid")" 2>/dev/null; "$B/softfab" down --name $fab >/dev/null 2>&1; rm -rf "$log"' EXIT
unset NCCL_R2_RUN_DIR NCCL_R2_STATS NCCL_R2_EVENT_FILE NCCL_R2_SLOW
command -v jq >/dev/null || {
    echo "jq is not installed"
    exit 77
}
# A latency beside which it matters little how long a loaded machine lets a process wait. All cases begin once each host knows what is usual of the four others.
fabric() {
    "$B/softfab" down --name $fab >/dev/null 2>&1
    "$B/softfab" up --name $fab --hosts 5 --nics 1 --rate 20MB/s --latency 15ms >/dev/null || exit 1
}
run() {
    NCCL_DEBUG=TRACE NCCL_R2_LOG=trace NCCL_R2_EVENT_FILE=$log/events timeout -k 5 150 "$B/r2_perf" alltoall -b 256K -e 256K --p2p-chunk 2K --channels 4 --idle-sleep 200us --fabric $fab --hosts 5 \
        --placement out -w 1 -T 60s --duration 2s --after 100ms "$@" >"$log/out" 2>&1
    rc=$?
}
learnt=$(logged 'is slow: learns -> usual' 20)
fault() {
    echo "'$B/softfab' fault --name $fab"
}
# named: "WHO names WHOM" of each line, sorted, on one line
named() {
    sed -n 's/^.*WARN NET\/R2 : R2-S01 host=\([^ ]*\) nic=[^ ]* peer=\([^: ]*\).*$/\2>\1/p' "$log/out" | sort | tr '\n' ' '
}
# names NAME WANT: these lines, each once, their events, and nothing else: no path has gone down
names() {
    was_right "$1" || return
    if [ "$(named)" != "$2" ]; then
        bad "$1" "named: '$(named)', not '$2'"
    elif [ "$(jq -r 'select(.code == "R2-S01" and .severity == "warning") | .host + ">" + .peer.host' "$log/events" | sort | tr '\n' ' ')" != "$2" ]; then
        bad "$1" "events: $(grep R2-S01 "$log/events" | cut -c1-300)"
    elif [ "$(downs '')" != 0 ] || grep -q 'WARN.* R2-[A-RT-Z]' "$log/out"; then
        bad "$1" "something else was said or moved: $(grep -m 1 'WARN.* R2-[A-RT-Z]\| UP -> DOWN' "$log/out")"
    else
        ok "$1"
    fi
    rm -f "$log/events"
}

wanted link && {
    fabric
    run --fault-cmd "$(once 50ms "$learnt" "$(fault) 'h1:n0 delay 150ms' 'h1:n0 delay-to h3:n0'")" \
        --fault-cmd "$(once 100ms "$(logged 'WARN .*R2-S01 ' 2)" "$(fault) '*:* restore'")" --fault-cmd "$(once 150ms "$(logged 'R2-S01: the way to .* is as fast as usual again' 2)")"
    names "a link that is late" "h1>h3 h3>h1 "
}
wanted host && {
    fabric
    run --fault-cmd "$(once 50ms "$learnt" "$(fault) 'h2:n0 delay 150ms'")" --fault-cmd "$(once 100ms "$(logged 'WARN .*R2-S01 ' 4)" 'sleep 5')"
    names "a host that is late" "h0>h2 h1>h2 h3>h2 h4>h2 "
}
# Another job, which has nothing of this one's environment, sends to h3 from all hosts, so that its NIC is full. The way from h1 takes longer then, and the suspicion that arises is given up.
wanted full && {
    fabric
    cat >"$log/incast" <<END
env -i PATH="\$PATH" NCCL_SOCKET_IFNAME=lo NCCL_DEBUG=WARN "$B/r2_perf" gather -r 3 -b 8M -e 8M --fabric $fab --hosts 5 --placement out -w 1 -c 0 -T 60s --idle-sleep 200us --duration 120s --fault-cmd "1s:touch $log/flows" >"$log/gather" 2>&1 &
echo \$! >"$log/gather.pid"
END
    run --fault-cmd "$(once 50ms "$learnt" "sh $log/incast")" --fault-cmd "$(once 100ms "[ -e $log/flows ]" "$(fault) 'h1:n0 delay 150ms' 'h1:n0 delay-to h3:n0'")" \
        --fault-cmd "$(once 150ms "$(logged 'the way to h[13] is slow: suspect -> usual')")"
    kill "$(cat "$log/gather.pid")" 2>/dev/null
    names "a host that all send to" ""
}
wanted well && {
    fabric
    run --fault-cmd "$(once 50ms "$learnt" 'sleep 20')"
    names "all is well" ""
}
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
