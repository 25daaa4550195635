#!/bin/sh
# Who holds the job up, on the software fabric: a rank that begins later than the others and one that is stopped are named by
# all others, once; the job goes on where it can; and nothing is said where nobody waits for long, or a NIC fails. Who hears so, and who is
# down to the last NIC, runs the program of NCCL_R2_ON_EVENT once.
# Argument: build folder. Second argument: only cases whose name contains it.
. "$(dirname "$0")/collective_lib.sh"
export NCCL_R2_RUN_DIR="$log" NCCL_R2_EVENT_FILE="$log/events" NCCL_R2_ON_EVENT="$log/save"
cat >"$log/save" <<END
#!/bin/sh
echo "\$1 \$(jq -r '.kind + " " + .host')" >>"$log/saved"
END
chmod +x "$log/save"

# perf ARGUMENTS: four hosts, one rank each
perf() {
    rm -f "$log/events" "$log"/*.told
    : >"$log/saved"
    timeout -k 5 120 "$B/r2_perf" all_reduce -b 64K -e 64K --buffsize 128K --hosts 4 --nics 2 --placement out -w 2 -T 60s --idle-sleep 100us "$@" >"$log/out" 2>&1
    rc=$?
}
# named HOST WHAT: how many processes have warned that it is this one, by the line; WHAT: a pattern of how
named() {
    grep -cE "WARN NET/R2 : R2-H01 host=$1 nic=[^ ]* .*how=$2" "$log/out"
}
# saved: for what, and on which hosts, the program was run
saved() {
    sort "$log/saved" | tr '\n' ,
}
lines() {
    grep -c 'WARN NET/R2 : R2-H01 ' "$log/out"
}
# all_named NAME HOST WHAT COUNT: so many processes name it, each once, and nobody another one
all_named() {
    if [ "$(named "$2" "$3")" != "$4" ] || [ "$(lines)" != "$4" ]; then
        bad "$1" "$(named "$2" "$3") of $4 name $2 as $3, $(lines) say anything"
        return 1
    fi
    return 0
}

wanted "late rank" && {
    NCCL_R2_HANG_AFTER=1000 perf --duration 1s --late 2:5s \
        --fault-cmd "$(once 50ms "[ \$($B/r2_stat --run-dir $log --history | tee $log/history | grep -c 'R2-H01 ') -ge 4 ]")" --fault-cmd "$(once 100ms "$(logged 'R2-H01: h2 goes on' 4)")" --after 100ms
    if was_right "late rank" && all_named "late rank" h2 posted-nothing,rank:2,pid: 4; then
        if [ "$(grep -c 'R2-H01: h2 goes on' "$log/out")" != 4 ]; then
            bad "late rank" "not everybody says that it goes on"
        elif [ "$(jq -r 'select(.code == "R2-H01" and .severity == "warning") | .peer.host' "$log/events" | sort | uniq -c | tr -s ' ')" != " 4 h2" ]; then
            bad "late rank" "events: $(grep -c R2-H01 "$log/events")"
        elif ! jq -es '[.[] | select(.code == "R2-H01")] | length == 8 and all(.kind == "verdict" and (.since | type) == "string" and .since <= .ts)' "$log/events" >"$log/jq"; then
            bad "late rank" "not eight events as events.md has them: $(grep R2-H01 "$log/events" | cut -c1-400)"
        elif [ "$(grep -cE 'verdict +R2-H01 h2 held up by a process' "$log/history")" != 4 ]; then
            bad "late rank" "r2_stat shows: $(cat "$log/history")"
        elif [ "$(saved)" != "hang checkpoint h0,hang checkpoint h1,hang checkpoint h2,hang checkpoint h3," ]; then
            bad "late rank" "the program was run for: $(saved)"
        else
            ok "late rank: named by all four, who say when it goes on"
        fi
    fi
}
wanted "shorter" && {
    NCCL_R2_HANG_AFTER=20000 perf -n 20 --stats --late 2:3s
    was_right "shorter" && if [ "$(lines)" = 0 ]; then ok "shorter than is said: nothing"; else bad "shorter" "$(lines) lines"; fi
}
wanted "off" && {
    NCCL_R2_HANG_AFTER=0 perf -n 20 --stats --late 2:3s
    was_right "off" && if [ "$(lines)" = 0 ]; then ok "off: nothing"; else bad "off" "$(lines) lines"; fi
}
# Of one batch, since between two the ranks wait for each other outside of the plugin; on slow links, since it is to last until the rank is stopped.
# The rank that runs the command is an ancestor of what stops another one.
# shellcheck disable=SC2016
ranks='$(ps -o pid= --ppid "$(ps -o ppid= -p $PPID | tr -d " ")" | tr "\n" " ")'
wanted "stopped" && {
    NCCL_R2_HANG_AFTER=1000 perf -n 1000 --batch-bytes 1G --rate 20MB/s \
        --fault-cmd "400ms:p=$ranks; set -- \$p; shift 2; echo \"stopped \$1 at \$(date +%s)\" >&2; kill -STOP \$1
            n=0; until [ \$(grep -c 'WARN NET/R2 : R2-H0[1] ' $log/out) -ge 3 ]; do n=\$((n + 1)); [ \$n -lt 300 ] || break; sleep 0.1; done
            echo \"named after \$(date +%s)\" >&2; kill -CONT \$1"
    grep -q '^stopped *[0-9][0-9]*' "$log/out" || bad "stopped" "it was not"
    pid=$(sed -n 's/^stopped *\([0-9]*\) .*/\1/p' "$log/out")
    if was_right "stopped" && all_named "stopped" h2 "process-silent,rank:2,pid:$pid," 3; then
        ok "stopped: named by the three others, with its pid, $(($(sed -n 's/^named after //p' "$log/out") - $(sed -n 's/^stopped .* at //p' "$log/out"))) s later; and goes on"
    fi
}
wanted "healthy" && {
    NCCL_R2_HANG_AFTER=1000 perf --duration 6s
    was_right "healthy" && if [ "$(lines)" = 0 ] && [ ! -s "$log/saved" ]; then ok "healthy: nothing"; else bad "healthy" "$(lines) lines, $(saved)"; fi
}
wanted "NIC fails" && {
    NCCL_R2_STATS=off NCCL_R2_EVENT_FILE=off NCCL_R2_HANG_AFTER=2000 perf --duration 6s --fault '500ms:h1:n1 blackhole' --fault '2s:h2:n1 down' \
        --fault-cmd "$(once 2100ms "[ \$(grep -c last-nic $log/saved) -ge 2 ]")" --after 1s
    if was_right "NIC fails"; then
        if [ "$(lines)" != 0 ]; then
            bad "NIC fails" "$(lines) lines"
        elif [ "$(saved)" != "last-nic checkpoint h1,last-nic checkpoint h2," ]; then
            bad "NIC fails" "the program was run for: $(saved)"
        else
            ok "NIC fails: nobody holds the job up; the two hosts with one NIC left ask for a checkpoint"
        fi
    fi
}
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
