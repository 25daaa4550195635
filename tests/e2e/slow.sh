#!/bin/sh
# NICs that are slow without failing: their share falls and returns, and nothing changes where none is slow, or all are. Rates are changed while the job runs; what
# comes next waits for the event of what came before. Each case asserts that the rates were changed and that every element of every timed operation is right.
# Argument: build folder. Second argument: only cases whose name contains it.
. "$(dirname "$0")/collective_lib.sh"
case $B in /*) ;; *) B=$PWD/$B ;; esac
fab=slow$$
trap '"$B/softfab" down --name $fab >/dev/null 2>&1; rm -rf "$log"' EXIT
unset NCCL_R2_RUN_DIR NCCL_R2_STATS NCCL_R2_EVENT_FILE NCCL_R2_SLOW NCCL_R2_SLOW_PERCENT

if ! command -v jq >/dev/null; then
    echo "jq is not installed"
    exit 77
fi
# The fault of a case: sh $log/slow RATE: NIC 1 of host 0 gets that rate; then until both hosts have said R2-G02, and until r2_stat shows that NIC with less than half
# of what is sent in each connection that begins on it; then its rate again, until both hosts have said that it is well. Bounds against hangs: 30 s.
cat >"$log/slow" <<'END'
rate=$1
until_true() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || exit 1
        sleep 0.1
    done
}
# said TEXT: on both hosts
said() {
    for h in 0 1; do
        jq -es "any(.kind == \"verdict\" and .code == \"R2-G02\" and (.text | test(\"$1\")))" "$dir/host$h/run"/*.events.ndjson >/dev/null 2>&1 || return 1
    done
}
# shares FILTER: true of the shares of NIC 1's paths in the connections of both hosts that send from it
shares() {
    for h in 0 1; do
        env -u NCCL_R2_RUN_DIR "$B/softfab" exec --name "$fab" --host $h -- "$B/r2_stat" --json |
            jq -e "[.jobs[].processes[].connections[] | select(.direction == \"send\" and .paths[0].nic == \"fab1\") | .paths[0].share_percent] | $1" >/dev/null || return 1
    done
}
"$B/softfab" fault --name "$fab" "h0:n1 rate $rate" || exit 1
until_true said 'slow beside the others'
until_true shares 'length > 0 and all(. > 0 and . < 45)'
echo fell >>"$log/steps"
"$B/softfab" fault --name "$fab" 'h0:n1 rate 20MB/s' || exit 1
until_true said 'as fast as the others again'
until_true shares 'length > 0 and all(. == 100)'
echo returned >>"$log/steps"
END
# sh $log/whose RATE: NIC 1 of host 1 gets that rate, of three hosts in a ring; then until that host has said that the NIC is slow itself, and the host that sends to
# it knows that its own is not.
sed '/^# shares/,$d' "$log/slow" >"$log/whose"
cat >>"$log/whose" <<'END'
itself() {
    jq -es 'any(.kind == "verdict" and .code == "R2-G02" and .blame == "nic-cable-or-port" and .severity == "warning" and .nic.device == "fab1")' "$dir/host1/run"/*.events.ndjson >/dev/null 2>&1
}
known() {
    env -u NCCL_R2_RUN_DIR "$B/softfab" exec --name "$fab" --host 0 -- "$B/r2_stat" --json |
        jq -e '[.jobs[].processes[].nics[] | select(.device == "fab1") | .blamed] | any(. != null and startswith("R2-G02 h1:fab1 "))' >/dev/null
}
"$B/softfab" fault --name "$fab" "h1:n1 rate $rate" || exit 1
until_true itself
echo itself >>"$log/steps"
until_true known
echo known >>"$log/steps"
END
export B fab log dir
hosts=2
fabric() {
    "$B/softfab" down --name $fab >/dev/null 2>&1
    "$B/softfab" up --name $fab --hosts $hosts --nics "$1" --rate 20MB/s >/dev/null || exit 1
    dir=$("$B/softfab" status --name $fab --json | jq -r .dir)
    : >"$log/steps"
}
run() {
    timeout -k 5 150 "$B/r2_perf" all_reduce -b 1M -e 1M --idle-sleep 100us --fabric $fab --hosts $hosts --placement out -w 1 -T 60s "$@" >"$log/out" 2>&1
    rc=$?
}
# unchanged NAME: right, nothing is slow, nothing failed, and no NIC has carried much more or less than the others
unchanged() {
    was_right "$1" || return
    if grep -q 'R2-G02' "$log/out" || [ "$(downs '')" != 0 ]; then
        bad "$1" "something changed: $(grep -m 1 'R2-G02\|UP -> DOWN' "$log/out")"
    else
        ok "$1 ($(grep -o 'checked [0-9]* operations' "$log/out"))"
    fi
}
# fell_and_returned NAME
fell_and_returned() {
    was_right "$1" || return
    if [ "$(tr '\n' ' ' <"$log/steps")" != "fell returned " ]; then
        bad "$1" "its share did not fall and return: got as far as '$(tail -1 "$log/steps")'"
    elif grep -q 'R2-G02.*nic=fab[^1]' "$log/out"; then
        bad "$1" "another NIC was called slow"
    elif [ "$(downs '')" != 0 ]; then
        bad "$1" "$(downs '') paths went down"
    elif grep -q 'WARN.* R2-G02 ' "$log/out" && grep 'WARN.* R2-G02 ' "$log/out" | grep -qv ' since=[0-9:.]*Z '; then
        bad "$1" "it does not say since when"
    else
        ok "$1: $(grep -o 'of-what-others-carry:[0-9]*' "$log/out" | tr '\n' ' ')"
    fi
}

wanted "a fifth" && {
    fabric 3
    run --duration 1s --fault-cmd "1s:sh $log/slow 4MB/s" --after 300ms
    fell_and_returned "one NIC of three at a fifth of its rate"
}
wanted "two NICs" && {
    fabric 2
    run --duration 1s --fault-cmd "1s:sh $log/slow 4MB/s" --after 300ms
    fell_and_returned "one NIC of two at a fifth of its rate"
}
wanted "whose" && {
    hosts=3
    fabric 3
    run --duration 1s --fault-cmd "1s:sh $log/whose 4MB/s" --after 300ms
    hosts=2
    name="the NIC of a ring that is slow itself"
    if was_right "$name"; then
        if [ "$(tr '\n' ' ' <"$log/steps")" != "itself known " ]; then
            bad "$name" "got as far as '$(tail -1 "$log/steps")': $(grep 'R2-G02' "$log/out")"
        elif [ "$(grep -c 'WARN.* blame=nic-cable-or-port ' "$log/out")" != 1 ]; then
            bad "$name" "said more than once: $(grep ' blame=nic-cable-or-port ' "$log/out")"
        elif grep 'WARN.* blame=nic-cable-or-port ' "$log/out" | grep -qv ' R2-G02 host=h1 nic=fab1 .* since=[0-9:.]*Z how=slow-for:\(h0,h2\|h2,h0\) '; then
            bad "$name" "another was named: $(grep ' blame=nic-cable-or-port ' "$log/out")"
        else
            ok "$name"
        fi
    fi
}
wanted "off" && {
    fabric 4
    NCCL_R2_SLOW=off run --duration 3s --fault '500ms:h0:n1 rate 4MB/s'
    unchanged "NCCL_R2_SLOW=off"
}
wanted "healthy" && {
    fabric 4
    run --duration 4s
    unchanged "all NICs healthy"
}
wanted "all slow" && {
    fabric 4
    run --duration 4s --fault '500ms:*:* rate 5MB/s' --fault '3s:*:* rate 20MB/s'
    unchanged "all NICs at a quarter of their rate"
}

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
