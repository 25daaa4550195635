#!/bin/sh
# Ways through the fabric by a file of ports, as a fabric controller writes it (NCCL_R2_WAYS): data takes the ports of the file, and leaves one whose spine
# is silent for another of them. What was taken is asked of the fabric (packets per spine) and of r2_stat. Each case asserts that every element of every
# timed operation is right.
# Argument: build folder. Second argument: only cases whose name contains it.
. "$(dirname "$0")/collective_lib.sh"
case $B in /*) ;; *) B=$PWD/$B ;; esac
fab=ways$$
trap '"$B/softfab" down --name $fab >/dev/null 2>&1; rm -rf "$log"' EXIT
unset NCCL_R2_RUN_DIR NCCL_R2_STATS
# RC's time-out is longer than r2_perf waits for anything; each path's line counts
export NCCL_IB_TIMEOUT=23 NCCL_IB_RETRY_CNT=7 NCCL_R2_LOG=trace NCCL_R2_T_PACKET=200
export NCCL_R2_WAYS="$log/ways"

if ! command -v jq >/dev/null; then
    echo "jq is not installed"
    exit 77
fi
# fabric: one NIC per host, and eight spines, of which two ports of a pair may have the same
fabric() {
    "$B/softfab" down --name $fab >/dev/null 2>&1
    "$B/softfab" up --name $fab --hosts 2 --nics 1 --spines 8 --rate 20MB/s >/dev/null || exit 1
}
# seen TIME NAME FILTER [COMMAND]: for --fault-cmd: from TIME on, once jq's FILTER is true of the UDP source ports of all 8 paths of host 0 (4 channels, two
# ways round), what fabric and processes say goes to NAME.fab, NAME.stat; then COMMAND
seen() {
    once "$1" "$B/r2_stat --json -c >$log/$2.stat 2>/dev/null && jq -e '[.jobs[].processes[].connections[].paths[].udp_port] | length == 8 and all(. > 0) and ($3)' $log/$2.stat >/dev/null" \
        "$B/softfab status --name $fab --json >$log/$2.fab${4:+ && $4}"
}
run() {
    timeout -k 5 60 "$B/r2_perf" all_reduce -b 256K -e 256K --buffsize 128K --fabric $fab --hosts 2 --channels 4 --placement out -w 1 -T 30s --stats "$@" \
        >"$log/out" 2>&1
    rc=$?
    return $rc
}
# spines NAME: those that packets have taken; ports NAME: the UDP source ports of all paths
spines() {
    jq -r '[.spine[] | select(.packets > 0) | .spine] | join(" ")' "$log/$1.fab"
}
ports() {
    jq -r '[.jobs[].processes[].connections[].paths[].udp_port] | unique | join(" ")' "$log/$1.stat"
}
# of NAME WHAT WANTED: WHAT of NAME is that
of() {
    got=$($2 "$1" 2>"$log/jq")
    if [ "$got" = "$3" ]; then
        ok "$1: $2 $got"
    else
        bad "$1" "$2 are '$got', not '$3' $(cat "$log/jq")"
    fi
}

# Which spine each of four ports leads over: a rule of one port, and nothing goes anywhere else.
: >"$log/map"
for port in 50000 50001 50002 50005; do
    printf '# by the controller\n10.0.0.0/8 10.0.0.0/8 %s\n' $port >"$NCCL_R2_WAYS"
    fabric
    run --duration 300ms --after 100ms --fault-cmd "$(seen 200ms $port true)"
    was_right "port $port" && of $port ports $port
    one=$(spines $port)
    case $one in
    [0-7])
        ok "port $port: all packets took spine $one"
        echo "$port $one" >>"$log/map"
        ;;
    *) bad "port $port" "its packets took the spines '$one'" ;;
    esac
done
[ "$(cut -d ' ' -f 2 "$log/map" | sort -u | wc -l)" = 4 ] || bad "four ports" "do not lead over four spines: $(tr '\n' ' ' <"$log/map")"

# All four at once: data takes them all and no other spine. The spine of one goes silent, and those that were on it go on over the others, the NIC as well
# as before; the port is named.
wanted "silent port" && {
    echo '* * 50000-50002,50005' >"$NCCL_R2_WAYS"
    fabric
    k=$(sed -n 's/^50001 //p' "$log/map")
    run --duration 1s --after 500ms --fault-cmd "$(seen 500ms before true "$B/softfab fault --name $fab 'spine $k blackhole'")" \
        --fault-cmd "$(seen 600ms after 'all(. != 50001)')" --fault-cmd "$(once 700ms "$(logged 'R2-F04 ')")"
    was_right "silent port" && {
        of before ports "50000 50001 50002 50005"
        of before spines "$(cut -d ' ' -f 2 "$log/map" | sort -n | tr '\n' ' ' | sed 's/ $//')"
        of after ports "50000 50002 50005"
        of after spines "$(spines before)"
        [ "$(jq --argjson k "$k" '[.spine[] | select(.spine == $k)][0].dropped' "$log/after.fab")" -gt 0 ] || bad "silent port" "spine $k has swallowed nothing"
        if [ "$(downs '')" = 0 ] || [ "$(downs '')" != "$(downs '\(last packet lost\|silent way\|announced by peer\)')" ]; then
            bad "silent port" "not the loss of last packets alone: $(grep -o 'UP -> DOWN: [^,]*' "$log/out" | sort | uniq -c)"
        else
            ok "silent port: $(downs '') incarnations ended by lost packets, no NIC was given up"
        fi
        if grep -q 'R2-F04.*:50001>10\.[0-9.]*:4791' "$log/out"; then
            ok "silent port: R2-F04 names it"
        else
            bad "silent port" "no R2-F04 names it: $(grep R2-F04 "$log/out" | head -2)"
        fi
    }
}

# Two jobs share the NIC pair of the hosts. The one's way is silent; the other's processes have nothing to do for a while and hear of it, each on its host: when they go
# on, their paths have left it, and nothing was lost on it. Nor does a job lose anything that begins only then. The processes of both hosts show it.
share() {
    "$B/r2_perf" all_reduce --buffsize 128K --fabric $fab --hosts 2 --channels 4 --placement out -w 1 -T 60s "$@" 2>&1
}
# show HOST FILTER: jq's FILTER is true of what r2_stat says there
cat >"$log/show" <<END
env -u NCCL_R2_RUN_DIR "$B/softfab" exec --name $fab --host \$1 -- "$B/r2_stat" --json -c -H >"$log/shown.\$1" 2>/dev/null && jq -e "\$2" "$log/shown.\$1" >/dev/null
END
# until both hosts show that; a bound against hangs: 60 s
until_both() {
    n=0
    until sh "$log/show" 0 "$1" && sh "$log/show" 1 "$1"; do
        n=$((n + 1))
        [ $n -lt 600 ] || { bad "neighbours" "60 s, and r2_stat never shows: $1" && break; }
        sleep 0.1
    done
}
# lost_nothing LOG LABEL PATTERN: no path of that job has found the way to be silent by itself: no line matches
lost_nothing() {
    left=$(grep -cE ' UP -> DOWN: (silent way|last packet lost)' "$log/$1") lost=$(grep -c ' UP -> DOWN: last packet lost' "$log/$1")
    if ! grep -q '# r2 checked [1-9][0-9]* operations, 0 elements wrong' "$log/$1"; then
        bad "$2" "not checked, or wrong: $(tail -3 "$log/$1")"
    elif grep -qE "$3" "$log/$1"; then
        bad "$2" "has found it out itself: $(grep -E "$3" "$log/$1" | head -2)"
    elif [ "$left" = 0 ]; then
        bad "$2" "no path has left the silent way"
    else
        ok "$2: $left incarnations have left the silent way, of which $lost have lost a packet on it"
    fi
}
wanted "neighbours" && {
    echo '* * 50000-50002,50005' >"$NCCL_R2_WAYS"
    fabric
    k=$(sed -n 's/^50001 //p' "$log/map")
    share --stats -b 128K -e 256K -f 2 -n 5 --late 1:20s >"$log/stands" &
    busy=$!
    until_both '[.jobs[].processes[].connections[].paths[].udp_port] | length == 8'
    run --duration 1s --after 1s --fault-cmd "500ms:$B/softfab fault --name $fab 'spine $k blackhole'" --fault-cmd "$(once 700ms "[ -e $log/came ]")" &
    busy="$busy $!"
    until_both '[.jobs[].processes[] | select([.. | strings | select(test("R2-F04"))] | length > 0)] | length == 2'
    share --stats -b 256K -e 256K -n 5 >"$log/comes"
    : >"$log/came"
    for one in $busy; do
        wait "$one"
        rc=$?
    done
    busy=
    was_right "neighbours" && {
        ok "neighbours: on both hosts the processes of both jobs show R2-F04"
        lost_nothing stands "a neighbour that stands" ' UP -> DOWN: last packet lost|R2-F04 host'
        # its first messages may go out before it is known which ports the NIC pair has, and be lost
        lost_nothing comes "a neighbour that comes later" 'R2-F04 host'
    }
}

# A file with a slip of the pen: one warning with its line, and the job goes on with ways as without it.
wanted "wrong file" && {
    printf '* 10.10.0.1 50000\n* * 4791\n' >"$NCCL_R2_WAYS"
    fabric
    run --duration 300ms --after 100ms --fault-cmd "$(seen 200ms wrong true)"
    was_right "wrong file" && {
        case $(ports wrong) in
        *50000* | '') bad "wrong file" "ports are '$(ports wrong)'" ;;
        *) ok "wrong file: ports are those of the default, $(ports wrong)" ;;
        esac
        n=$(grep -c "NET/R2 : NCCL_R2_WAYS: $NCCL_R2_WAYS:2: '4791': expected a port" "$log/out")
        if [ "$n" = 2 ]; then
            ok "wrong file: said once by each process"
        else
            bad "wrong file" "said $n times by 2 processes"
        fi
    }
}
echo "$passed passed, $failed failed"
[ $failed = 0 ]
