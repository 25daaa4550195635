#!/bin/sh
# Faults during a run: fired in time, or the run says so; the rate over time, the plot, the software fabric brought up and
# down by the driver. Needs the fabric's command; the plugin here is the TCP one, which no fabric fault can hurt.
. "$(dirname "$0")/r2_perf_lib.sh"

SHORT="-b 1M -e 1M -t 1s --placement out --interval 50ms"

run all_reduce $SHORT --fault-cmd "300ms:touch '$TMP/here'" --fault-cmd '0.6s:true' --json "$TMP/f.json" --plot "$TMP/f.svg"
expect "two commands" 0
check "the command was done" test -e "$TMP/here"
says "fault 1" '^# r2 fault 1 at [0-9.]* s (command took .* ms): touch'
says "fault 2" '^# r2 fault 2 at [0-9.]* s (command'
says "stalls" '^# r2 stall after fault 2'
says "rates" '^# r2 busbw before [0-9a-z.]* during [0-9a-z.]* after [0-9a-z.]* GB/s'
check "nothing of ours looks like a row, names bandwidth or FAILED" awk '
    ours { if (/^ *[0-9]/ || /bandwidth/ || /FAILED/ || !/^(# r2 .*|#|)$/) exit 1; n++ }
    /^# Collective test concluded/ { ours = 1 } END { exit n < 20 }' "$TMP/out"
check "the table is read as ever" sh -c "sh tests/parse_nccl_tests.sh <'$TMP/out' >'$TMP/parsed'"
# A machine without time for this may leave any of them without a rate: unknown. None is left out, and they reach as far as the run did.
check "the rate over time is there" awk '
    /^# r2 fault 2 at / { fault = $6 }
    /^# r2 at / { n++; if ($4 != sprintf("%.3f", n * 0.05)) exit 1; if ($6 > 0) moving++ } END { exit n * 0.05 < fault || moving < 1 }' "$TMP/out"
check "the picture is one" grep -q '</svg>' "$TMP/f.svg"
check "the picture marks both faults" awk '/class="fault/ { n++ } END { exit n != 2 }' "$TMP/f.svg"
if command -v xmllint >/dev/null; then
    check "the picture is well-formed" xmllint --noout "$TMP/f.svg"
fi
if command -v jq >/dev/null; then
    # the mean of the timeline is what the table says: the same bytes in the same time
    check "timeline and table agree" jq -e '.results[0].out_of_place.bus_bw as $table |
        ([.r2.timeline.points[] | select(.busbw) | .busbw * .timed_share] | add) as $sum |
        ([.r2.timeline.points[] | select(.busbw) | .timed_share] | add) as $time |
        ($sum / $time / $table) | . > 0.8 and . < 1.25' "$TMP/f.json" >"$TMP/parsed"
    check "faults in JSON" jq -e '.r2.faults | length == 2 and .[0].fired == "true" and .[0].status == 0 and
        .[0].fired_s >= 0.3 and .[1].fired_s >= 0.6 and .[0].fired_s < .[1].fired_s and .[1].stall.ms >= 0' "$TMP/f.json" >"$TMP/parsed"
    # what they are means of, whatever they are; the cases with known numbers are in unit/tools/test_perf_timeline.c
    check "before, during and after are means of the timeline" jq -e '.r2 | (.timeline.interval_ms / 1000) as $step | .timeline.points as $p |
        def mean(f; u): [$p[] | select(.busbw and .t_s > f - 1e-6 and .t_s + $step < u + 1e-6)] |
            if . == [] then null else (map(.busbw * .timed_share) | add) / (map(.timed_share) | add) end;
        def near(a; b): a == b or (a and b and (a - b | fabs) < 1e-3 * b + 1e-5);
        .faults[0].fired_s as $first | ((.after_from_s / $step | ceil) * $step) as $whole |
        near(.busbw.before; mean(0; $first)) and near(.busbw.during; mean(($first / $step | floor) * $step; $whole)) and
        near(.busbw.after; mean($whole; infinite))' "$TMP/f.json" >"$TMP/parsed"
fi

# A pause that begins long after the fault is not the fault's: with a second fault a message is kept for 1.5 s.
TCPTEST_STALL_AT=$TMP/now:1500 run all_reduce -b 1M -e 1M -t 1s -c 0 --placement out --interval 50ms --json "$TMP/late.json" \
    --fault-cmd 300ms:true --fault-cmd "1200ms:touch '$TMP/now'" --after 1s
expect "a pause long after a fault" 0
if command -v jq >/dev/null; then
    late='.r2 | (.faults[0] | .fired_s + .took_ms / 1000 + 0.2) as $settled | def began: .until_s - .ms / 1000; '
    check "the pause was there" jq -e "$late .stall.ms >= 1500 and (.stall | began) > \$settled" "$TMP/late.json" >"$TMP/parsed"
    check "it is not the fault's" jq -e "$late .faults[0] | .stall.by == \"driver\" and (.pause | began) < \$settled + 1e-5 and .stall.ms == .pause.ms" \
        "$TMP/late.json" >"$TMP/parsed"
fi

run all_reduce $SHORT --fault-cmd '1h:true'
expect "a fault whose time never came" 1
says "a fault whose time never came" '^# r2 fault 1 at 3600.000 s not fired: true'
run all_reduce $SHORT --fault-cmd '1h:true' --fault-optional
expect "the same, allowed" 0
run all_reduce $SHORT --fault-cmd '100ms:exit 3'
expect "a fault that could not be done" 1
says "a fault that could not be done" '^# r2 fault 1 at .* ended with status 3: exit 3'
run all_reduce $SHORT --fault-cmd '200ms:kill -9 $PPID'
expect "a rank is killed" 3
says "a rank is killed" '^# error: rank . (process .*) was killed by signal 9'
run all_reduce $SHORT --json "$TMP/orphan.json" --fault-cmd '200ms:kill -9 $(ps -o ppid= -p $PPID)'
expect "the launcher is killed" 137
check "its ranks go with it" nobody_left "^$PERF .*orphan.json"

if [ ! -x "$B/softfab" ] || [ ! -e "$B/softfab-lib/libibverbs.so.1" ]; then
    echo "skipped: the software fabric is not built"
    finish
fi
run all_reduce $SHORT --nics 2 --fault '300ms:h0:n1 down' --fault '600ms:h0:n1 up'
expect "a fabric for one run" 0
says "a fabric for one run" '^# r2 fault 1 at [0-9.]* s (command took .*): h0:n1 down$'
name=$(sed -n 's/.*fabric \(r2perf[0-9]*\) is up.*/\1/p' "$TMP/err")
check "it is gone" sh -c "! '$B/softfab' status --name '${name:-none}' >/dev/null 2>&1"
if command -v jq >/dev/null; then
    # Our plugin says itself how long its connections waited: the same figure everywhere. One operation takes a second on these links: the fault comes in
    # the middle of it, and something waits.
    tcp=$TCP TCP=$B/libnccl-net-r2.so
    export NCCL_R2_EVENT_FILE="$TMP/events.ndjson"
    run all_reduce -b 8M -e 8M -t 1s -w 0 --placement out --interval 50ms \
        --buffsize 256K --nics 2 --rate 4MB/s --fault '500ms:h0:n1 down' --json "$TMP/own.json" --plot "$TMP/own.svg"
    TCP=$tcp
    unset NCCL_R2_EVENT_FILE
    expect "the plugin's own figure" 0
    event=$(jq -s '[.[] | select(.kind == "switch") | .stall_us] | max' "$TMP/events.ndjson")
    check "the stall is the event's ($event us)" jq -e --argjson us "${event:-null}" '$us > 0 and .r2.faults[0].stall.by == "plugin" and
        ((.r2.faults[0].stall.ms * 1000 - $us) | . > -2 and . < 2)' "$TMP/own.json" >"$TMP/parsed"
    label=$(sed -n 's/.*h0:n1 down (stall \([0-9]*\.[0-9]\) ms).*/\1/p' "$TMP/own.svg")
    # to a tenth, of what the table has in microseconds: a half may go either way
    check "the picture has it (${label:-no figure})" jq -e --argjson ms "${label:-null}" '(.r2.faults[0].stall.ms - $ms) * 1000 | fabs <= 51' "$TMP/own.json" >"$TMP/parsed"
    check "after begins when the switch has ended" jq -e '.r2.after_from_s >= .r2.faults[0].fired_s + .r2.faults[0].stall.ms / 1000' "$TMP/own.json" >"$TMP/parsed"
fi
run all_reduce $SHORT --nics 2 --fault '300ms:h7:n1 down'
expect "a fault that the fabric refuses" 6
says "a fault that the fabric refuses" "softfab: fault: no NIC h7:n1: the fabric has 2 hosts with 2 NICs"
# the TCP plugin sends nothing over a spine: what is asked is whether the fault came to one of the fabric
run all_reduce $SHORT --nics 2 --spines 4 --fault '300ms:rail 0 spine 3 blackhole' \
    --fault-cmd "500ms:\$R2_PERF_SOFTFAB status --name \$R2_PERF_FABRIC >'$TMP/status'"
expect "a spine is silent" 0
check "it is that one alone" sh -c "grep blackhole '$TMP/status' >'$TMP/hit'; grep -q '^rail 0 spine 3 .*blackhole' '$TMP/hit' && [ \$(wc -l <'$TMP/hit') = 1 ]"
run all_reduce $SHORT --nics 2 --fault '300ms:spine 0 blackhole'
expect "a spine of a fabric without" 6
says "a spine of a fabric without" 'softfab: fault: no spine 0: the fabric was made without spines'
run all_reduce $SHORT --nics 2 --spines 4 --fault '300ms:rail 1 spine 4 down'
expect "no such spine" 6
says "no such spine" 'softfab: fault: no spine 4'
own=r2perftest$$
"$B/softfab" up --name $own --hosts 2 --nics 1 >/dev/null 2>&1
run all_reduce $SHORT --fabric $own --ranks-per-host 2
expect "a fabric that was there" 0
run all_reduce $SHORT --fabric $own --fault '300ms:spine 0 down'
expect "a spine of a fabric that was there without" 6
says "a spine of a fabric that was there without" 'no spine 0: the fabric was made without spines'
check "it still is" sh -c "'$B/softfab' status --name $own >/dev/null 2>&1"
"$B/softfab" down --name $own >/dev/null 2>&1
run all_reduce $SHORT --fabric $own
expect "no such fabric" 1
says "no such fabric" "there is no fabric $own"
run all_reduce $SHORT --nics 2 --softfab "$TMP/nothing"
expect "no such command" 1
finish
