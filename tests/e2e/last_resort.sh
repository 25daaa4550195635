#!/bin/sh
# No RDMA path is left: the job goes on over TCP (docs/last-resort.md), and back as soon as a NIC is. Each case asserts that every element of
# every timed operation is right, that each fault fired (r2_perf fails otherwise), and what the plugin's log says of it.
# Argument: build folder. Second argument: only cases whose name contains it.
. "$(dirname "$0")/collective_lib.sh"
export NCCL_R2_LAST_RESORT=auto NCCL_R2_T_RETURN=100 NCCL_R2_GIVE_UP=5000
export NCCL_IB_TIMEOUT=20 NCCL_IB_RETRY_CNT=7 # RC's own end of a silent path comes behind the time limit of every case

# ended NAME REASON: the run ended with a connection's error, and the plugin says REASON; what it says last may be the verdict
ended() {
    if [ "$rc" = 0 ]; then
        bad "$1" "the run did not end with an error"
    elif has "returned 6 " && has "$2"; then
        ok "$1"
    else
        bad "$1" "rc $rc, not for '$2': $(tail -3 "$log/out")"
    fi
}

# perf ARGUMENTS: a run over a fabric of its own
perf() {
    timeout -k 5 120 "$B/r2_perf" "$@" --placement out -w 1 -T 60s >"$log/out" 2>&1
    rc=$?
}
ON='last resort: no RDMA path is left'
SWITCH='switch: [^,]*, .* to [^ ]*tcp0'
BACK='last resort: no connection goes over tcp0 any more'
has() {
    grep -q "$1" "$log/out"
}
# went NAME: the run was right, over TCP, and no connection ended
went() {
    was_right "$1" || return
    if ! has "$ON"; then
        bad "$1" "no line says that the job goes over TCP"
    elif ! has "$SWITCH"; then
        bad "$1" "no switch to tcp0 is said"
    elif has 'gave up [1-9]'; then
        bad "$1" "a connection was given up"
    else
        ok "$1: stall $(sed -n 's/^# r2 stall after fault [0-9]*: \([0-9.]* ms\).*/\1/p' "$log/out" | sort -rn | head -1)"
    fi
}

RUN="all_reduce -b 512K -e 512K --buffsize 256K --hosts 2 --nics 2 --rate 50MB/s --duration 1s --after 1500ms"
for fault in down blackhole fatal; do
    wanted "all NICs of a host: $fault" || continue
    # shellcheck disable=SC2086
    perf $RUN --fault "300ms:h1:* $fault"
    went "all NICs of a host: $fault"
    # the end of the job is no return
    if has "$BACK"; then bad "all NICs of a host: $fault" "it says that nothing goes over TCP any more"; else ok "all NICs of a host: $fault: to the end"; fi
done
if wanted "one NIC, which comes back"; then
    perf all_reduce -b 512K -e 512K --buffsize 256K --hosts 2 --nics 1 --rate 50MB/s --duration 1s --fault '300ms:h0:n0 down' --fault '2s:h0:n0 up' --after 4s
    went "one NIC, which comes back"
    if has "$BACK"; then ok "one NIC, which comes back: RDMA carries again"; else bad "one NIC, which comes back" "it stayed on TCP"; fi
fi
if wanted "silent, and back"; then
    # shellcheck disable=SC2086
    perf $RUN --fault '300ms:h0:* blackhole' --fault '2s:h0:* restore' --after 4s
    went "silent, and back"
    if has "$BACK"; then ok "silent, and back: RDMA carries again"; else bad "silent, and back" "it stayed on TCP"; fi
fi
if wanted "manual"; then # who has no other path over RDMA returns, whatever the policy, as without TCP
    NCCL_R2_FAILBACK=manual perf all_reduce -b 512K -e 512K --buffsize 256K --hosts 2 --nics 1 --rate 50MB/s --duration 1s --fault '300ms:h0:n0 down' --fault '2s:h0:n0 up' --after 4s
    went "manual"
    if has "$BACK"; then ok "manual: RDMA carries again"; else bad "manual" "it stayed on TCP"; fi
fi
if wanted "fewest NICs"; then # TCP is none of them
    NCCL_R2_MIN_NICS=2 perf all_reduce -b 512K -e 512K --hosts 2 --nics 2 --rate 50MB/s --duration 1s --fault '300ms:h1:n0 down' --fault-optional
    ended "fewest NICs" "1 NIC pairs left, NCCL_R2_MIN_NICS=2"
fi
if wanted "eight NICs"; then # as many as a connection has paths: the last one has a place
    perf all_gather -b 512K -e 512K --buffsize 256K --hosts 2 --nics 8 --rate 20MB/s --duration 1s --fault '300ms:h1:* down' --after 1500ms
    went "eight NICs"
fi
if wanted "three hosts"; then
    perf all_reduce -b 512K -e 512K --buffsize 256K --hosts 3 --nics 2 --rate 50MB/s --duration 1s --fault '300ms:h1:* down' --after 1500ms
    went "three hosts"
fi
# over_ip6 NAME COMMAND...: a run with the out-of-band channel and the last resort on IPv6 of lo, by COMMAND
over_ip6() {
    name=$1
    shift
    # shellcheck disable=SC2086
    NCCL_DEBUG=INFO NCCL_SOCKET_FAMILY=AF_INET6 NCCL_SOCKET_IFNAME=lo timeout -k 5 120 "$@" "$B/r2_perf" $RUN --fault '300ms:h1:* down' --placement out -w 1 -T 60s >"$log/out" 2>&1
    rc=$?
    went "$name"
    if has 'last resort: .*interface lo, IPv6$'; then ok "$name: it listens there"; else bad "$name" "it does not listen on IPv6"; fi
}
if wanted "IPv6"; then
    if grep -q '^00000000000000000000000000000001 .* lo$' /proc/net/if_inet6 2>/dev/null; then
        over_ip6 "IPv6" env
    else
        echo "skipped: IPv6: this machine has no ::1"
    fi
    # a namespace of its own, whose lo has a link-local address alone
    # shellcheck disable=SC2016
    alone='ip link set lo up && ip -6 addr add fe80::1/64 dev lo nodad && ip -6 addr del ::1/128 dev lo && exec "$@"'
    if unshare -n sh -c "$alone" sh true 2>/dev/null; then
        over_ip6 "IPv6 link-local" unshare -n sh -c "$alone" sh
        if has 'channel listens on \[fe80::1\]'; then ok "IPv6 link-local: the channel does"; else bad "IPv6 link-local" "another address than fe80::1"; fi
    else
        echo "skipped: IPv6 link-local: no network namespace, or no IPv6 in it (wants root)"
    fi
fi
# Host 1 has no NIC from the beginning. Who has named interfaces goes over TCP, on hosts with NICs, too; nobody else does.
# without_nics NAME OPTIONS0 OPTIONS1: NCCL_R2_LAST_RESORT of each host; $status
without_nics() {
    fab=last$$
    trap '"$B/softfab" down --name $fab >/dev/null 2>&1; rm -rf "$log"' EXIT
    "$B/softfab" up --name $fab --hosts 2 --nics 2 --rate 50MB/s >/dev/null || exit 1
    for nic in 0 1; do "$B/softfab" fault --name $fab "h1:n$nic remove" || exit 1; done
    cat >"$log/exec" <<END
#!/bin/sh
case " \$* " in *' --host 0 '*) own=$2 ;; *) own=$3 ;; esac
NCCL_R2_LAST_RESORT=\$own exec "$B/softfab" "\$@"
END
    chmod +x "$log/exec"
    perf all_reduce -b 512K -e 512K --buffsize 256K --fabric $fab --softfab "$log/exec" --duration 1s \
        --fault-cmd "500ms:for h in 0 1; do $B/softfab exec --name $fab --host \$h -- $B/r2_stat --prom; $B/softfab exec --name $fab --host \$h -- $B/r2_stat; done >$log/stat 2>&1"
    "$B/softfab" down --name $fab >/dev/null 2>&1
}
if wanted "no NIC at the start"; then
    without_nics "no NIC at the start" auto lo
    if was_right "no NIC at the start"; then
        if [ "$(grep -c 'R2: tcp0$' "$log/out")" != 1 ] || ! has 'R2: fab0 fab1$'; then
            bad "no NIC at the start" "NCCL sees other NICs than tcp0 at one host, fab0 and fab1 at the other: $(grep 'R2: ' "$log/out")"
        elif [ "$(grep -c "$ON" "$log/out")" != 2 ]; then
            bad "no NIC at the start" "not both hosts say that the job goes over TCP"
        elif grep -qi 'nan' "$log/stat"; then
            bad "no NIC at the start" "r2_stat: $(grep -i 'nan' "$log/stat")"
        else
            ok "no NIC at the start"
        fi
    fi
    without_nics "no NIC at the start" auto auto
    if [ "$rc" != 0 ] && has 'no RDMA device that this process may use'; then ok "no NIC at the start: not named"; else bad "no NIC at the start: not named" "rc $rc"; fi
    without_nics "no NIC at the start" off lo
    if [ "$rc" != 0 ] && has 'a host has no RDMA NIC, and no path of last resort leads to the other'; then
        ok "no NIC at the start: off at the other end"
    else
        bad "no NIC at the start: off at the other end" "rc $rc: $(tail -3 "$log/out")"
    fi
fi
# While an RDMA path is left, nothing but probes goes over TCP; NCCL is not shown its device.
if wanted "a NIC is left"; then
    fab=last$$
    trap '"$B/softfab" down --name $fab >/dev/null 2>&1; rm -rf "$log"' EXIT
    "$B/softfab" up --name $fab --hosts 2 --nics 2 --rate 50MB/s >/dev/null || exit 1
    perf all_reduce -b 512K -e 512K --buffsize 256K --fabric $fab --duration 1s --after 1500ms --fault '300ms:h1:n0 down' \
        --fault-cmd "1200ms:$B/softfab exec --name $fab --host 0 -- $B/r2_stat --json >$log/stat"
    "$B/softfab" down --name $fab >/dev/null 2>&1
    if was_right "a NIC is left"; then
        sent=$(tr '{' '\n' <"$log/stat" | grep '"device":"tcp0"' | sed -n 's/.*"sent_bytes":\([0-9]*\).*/\1/p')
        if has "$ON"; then
            bad "a NIC is left" "the job went over TCP"
        elif [ "${sent:-none}" != 0 ]; then
            bad "a NIC is left" "tcp0 has sent ${sent:-no figure} bytes: $(cat "$log/stat")"
        elif ! has 'R2: fab0 fab1$'; then
            bad "a NIC is left" "NCCL sees other NICs than fab0 and fab1"
        elif grep "$SWITCH" "$log/out" >"$log/said"; then # away from it is another thing: it is probed, and may be found silent
            bad "a NIC is left" "a switch to tcp0 is said: $(cat "$log/said")"
        else
            ok "a NIC is left"
        fi
    fi
fi
# An RDMA NIC of another speed class carries nothing before none of the connection's class is left, then all; TCP is behind it.
if wanted "a slow NIC before TCP"; then
    fab=last$$
    trap '"$B/softfab" down --name $fab >/dev/null 2>&1; rm -rf "$log"' EXIT
    printf '%s\n' "hosts 2" "nics 3" "rate 12GB/s" "nic 2 rate 40MB/s" >"$log/desc"
    "$B/softfab" up --name $fab --desc "$log/desc" >/dev/null || exit 1
    # looks FILE NIC: a condition: that NIC of host 0 has sent a megabyte; what all have stands in FILE
    sent() { tr '{' '\n' <"$log/$1" | grep "\"device\":\"$2\"" | sed -n 's/.*"sent_bytes":\([0-9]*\).*/\1/p'; }
    looks() {
        echo "{ $B/softfab exec --name $fab --host 0 -- $B/r2_stat --json >$log/$1; tr '{' '\\n' <$log/$1 | grep '\"device\":\"$2\"' | grep -q '\"sent_bytes\":[0-9]\{7,\}'; }"
    }
    perf all_reduce -b 512K -e 512K --buffsize 256K --fabric $fab --channels 1 --duration 1s --after 2500ms --fault '300ms:h1:n0 down' --fault-cmd "$(once 301ms "$(looks before fab1)")" \
        --fault '302ms:h1:n1 down' --fault-cmd "$(once 303ms "$(looks then fab2)")" --fault '304ms:h1:n2 down'
    "$B/softfab" down --name $fab >/dev/null 2>&1
    if was_right "a slow NIC before TCP"; then
        if [ -e "$log/never" ]; then
            bad "a slow NIC before TCP" "not within 60 s: $(sed -n 2p "$log/never")"
        elif [ "$(sent before fab2)" != 0 ]; then
            bad "a slow NIC before TCP" "fab1 has sent $(sent before fab1), fab2 $(sent before fab2) bytes while fab1 was up"
        elif ! has 'no NIC of their own kind is left to [0-9]* of [0-9]* connections: they go on over fab2 (2500 Mb/s)'; then
            bad "a slow NIC before TCP" "no line says that fab2 carries"
        elif [ "$(sent then tcp0)" != 0 ]; then
            bad "a slow NIC before TCP" "fab2 has sent $(sent then fab2), tcp0 $(sent then tcp0) bytes while fab2 was up"
        elif ! has "$ON"; then
            bad "a slow NIC before TCP" "no line says that the job goes over TCP"
        else
            ok "a slow NIC before TCP: stalls $(sed -n 's/^# r2 stall after fault [0-9]*: \([^:]*\) ms.*/\1/p' "$log/out" | tr '\n' ' ')ms"
        fi
    fi
fi
# What monitors see, at both hosts: TCP is one row for all processes, and none of the NICs that are counted.
if wanted "monitors"; then
    fab=last$$
    trap '"$B/softfab" down --name $fab >/dev/null 2>&1; rm -rf "$log"' EXIT
    "$B/softfab" up --name $fab --hosts 2 --nics 2 --rate 50MB/s >/dev/null || exit 1
    look="for h in 0 1; do $B/softfab exec --name $fab --host \$h -- $B/r2_stat --check; echo \"rc \$?\"; $B/softfab exec --name $fab --host \$h -- $B/r2_stat -H; $B/softfab exec --name $fab --host \$h -- $B/r2_stat --prom; $B/softfab exec --name $fab --host \$h -- $B/r2_stat --json; done"
    perf all_reduce -b 512K -e 512K --buffsize 256K --fabric $fab --ranks-per-host 2 --duration 1s --after 2500ms --fault '300ms:h1:* down' \
        --fault-cmd "100ms:{ $look; } >$log/before" --fault-cmd "2s:{ $look; } >$log/stat"
    "$B/softfab" down --name $fab >/dev/null 2>&1
    if was_right "monitors"; then
        if [ "$(grep -c '^rc 0' "$log/before")" != 2 ] || grep -q 'over TCP' "$log/before"; then
            bad "monitors" "a problem while all is well: $(grep -B 1 '^rc' "$log/before")"
        elif [ "$(grep -cE '^[1-9][0-9]* connections go over TCP, no RDMA path is left to them: checkpoint now$' "$log/stat")" != 2 ] || [ "$(grep -c '^rc 1' "$log/stat")" != 2 ]; then
            bad "monitors" "--check says: $(grep -B 1 '^rc' "$log/stat")"
        elif [ "$(grep -c '^tcp0 .* last resort$' "$log/stat")" != 2 ]; then
            bad "monitors" "not one row of tcp0 for the two processes of a host: $(grep '^tcp0' "$log/stat")"
        elif grep -q '"capacity":\[3,' "$log/stat" || ! grep -q '"capacity":\[2,0\]' "$log/stat"; then
            bad "monitors" "capacity: $(grep -o '"capacity":[^]]*]' "$log/stat" | sort | uniq -c)"
        elif [ "$(grep -c '^r2_capacity_ratio 0\.0*$' "$log/stat")" != 2 ] || [ "$(grep -c '^r2_capacity_ratio 1\.0*$' "$log/before")" != 2 ]; then
            bad "monitors" "capacity: $(grep '^r2_capacity_ratio' "$log/before" "$log/stat")"
        elif ! grep -q 'job continues at 0/2' "$log/stat"; then
            bad "monitors" "no verdict says that 0 of 2 NICs are left: $(grep verdict "$log/stat")"
        else
            ok "monitors"
        fi
    fi
fi
if wanted "rate"; then
    NCCL_R2_LAST_RESORT_RATE=10 perf sendrecv -b 512K -e 512K --hosts 2 --nics 2 --rate 50MB/s --duration 1s --fault '300ms:h1:* down' --after 2s
    went "rate"
    # of both directions each has its own limit, and the plateau behind the switch is below it
    late=$(sed -n 's/^# r2 at \([0-9.]*\) s busbw \([0-9.]*\) GB.*/\1 \2/p' "$log/out" | tail -12 | awk '{ s += $2; n++ } END { printf "%d", n ? s / n * 1000 : -1 }')
    if [ "$late" -ge 0 ] && [ "$late" -le 13 ]; then ok "rate: $late MB/s"; else bad "rate" "$late MB/s where 10 are allowed"; fi
fi
if wanted "off"; then
    NCCL_R2_LAST_RESORT=off NCCL_R2_GIVE_UP=1000 perf all_reduce -b 512K -e 512K --hosts 2 --nics 2 --rate 50MB/s --duration 1s --fault '300ms:h1:* down' --fault-optional
    ended "off" "no path left for 1000 ms"
fi
if wanted "no such interface"; then
    NCCL_R2_LAST_RESORT=nosuch0 perf all_reduce -b 4K -e 4K --hosts 2 --nics 2 -n 1
    if [ "$rc" != 0 ] && has 'NCCL_R2_LAST_RESORT: .*nosuch0'; then ok "no such interface"; else bad "no such interface" "rc $rc: $(tail -3 "$log/out")"; fi
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
