#!/bin/sh
# r2_stat --watch in a terminal emulator, tmux, under a collective on the software fabric: what is on the screen at 80 x 24 and at other sizes, by colour, what
# keys do, and that the terminal is the shell's again after q, a signal and a stop. Argument: build folder.
. "$(dirname "$0")/collective_lib.sh"
case $B in /*) ;; *) B=$PWD/$B ;; esac
if ! command -v tmux >/dev/null; then
    echo "tmux is not installed (sh tools/install-deps.sh ci)"
    exit 77
fi
fab=watch$$
unset NCCL_R2_RUN_DIR NCCL_R2_STATS NCCL_R2_EVENT_FILE SLURM_JOB_ID SLURM_STEP_ID NO_COLOR TMUX
# A server of its own, which reads nobody's settings.
mux() {
    tmux -S "$log/socket" -f /dev/null "$@"
}
trap 'mux kill-server 2>/dev/null; [ -z "$busy" ] || kill $busy 2>/dev/null; "$B/softfab" down --name $fab >/dev/null 2>&1; rm -rf "$log"' EXIT
# What the terminal shows; of the last case it is what is printed where that fails.
seen() {
    mux capture-pane -p "$@" >"$log/out"
}
# until_so NAME WHY CONDITION...: a bound against hangs: 60 s
until_so() {
    what=$1 why=$2 tries=0
    shift 2
    until "$@"; do
        tries=$((tries + 1))
        if [ $tries -gt 600 ]; then
            seen
            bad "$what" "never so: $why"
            return 1
        fi
        sleep 0.1
    done
    ok "$what"
}
has() { # PATTERN [NOT]
    seen && if grep -qE -e "$1" "$log/out"; then [ -z "${2:-}" ]; else [ "${2:-}" ]; fi
}
until_seen() { # NAME PATTERN [NOT]
    until_so "$1" "${3:-} $2" has "$2" ${3:+"$3"}
}
# of_terminal NAME FORMAT WANTED: what the emulator itself knows
terminal_is() {
    [ "$(mux display-message -p "$1")" = "$2" ]
}
of_terminal() {
    until_so "$1" "$2 is $3" terminal_is "$2" "$3"
}
modes='#{alternate_on} #{cursor_flag} #{wrap_flag}'
# its_own NAME, the_shells NAME: the other screen, the cursor, whether lines wrap
its_own() {
    of_terminal "$1: a screen of its own" "$modes" '1 0 0'
}
the_shells() {
    of_terminal "$1: the shell's screen" "$modes" '0 1 1'
    mux send-keys 'stty -a >'"$log/stty; echo state is \$((40 + 2))" Enter
    until_seen "$1: the shell reads again, and what was above is there" 'state is 42' || return
    if grep -q 'what was above' "$log/out" && ! grep -q 'q quit' "$log/out"; then ok "$1: what was above"; else bad "$1: what was above" "not so"; fi
    if grep -q ' icanon' "$log/stty" && grep -qE ' echo( |$)' "$log/stty"; then ok "$1: lines and echo"; else bad "$1: lines and echo" "$(cat "$log/stty")"; fi
    mux send-keys 'clear; echo what was above' Enter
    until_seen "$1: cleared" 'state is 42' not
}
# fits NAME COLUMNS ROWS: a program that takes the terminal for that large writes nothing beside or below it
fits() {
    seen
    if awk -v columns="$2" -v rows="$3" 'length > columns || (NR > rows && length) { bad = 1 } END { exit bad }' "$log/out"; then
        ok "$1"
    else
        bad "$1" "wider than $2 or longer than $3"
    fi
}
# edges NAME ROWS: the bars are the first and the last line, and whole
has_bars() {
    seen && sed -n 1p "$log/out" | grep -q ' [0-9:]*, .*every .* s: 1 job' && sed -n "$1p" "$log/out" | grep -q '^q quit' && [ "$(wc -l <"$log/out")" = "$1" ]
}
edges() {
    until_so "$1: bars" "the first and the last line" has_bars "$2"
}
"$B/softfab" up --name $fab --hosts 2 --nics 4 --rate 20MB/s >/dev/null || exit 1
"$B/r2_perf" all_reduce -b 256K -e 256K --buffsize 128K --fabric $fab --hosts 2 --placement out -w 1 -c 0 --duration 600s >"$log/job" 2>&1 &
busy=$!
cat >"$log/w" <<END
echo \$\$ >"$log/pid"
exec "$B/softfab" exec --name $fab --host 0 -- "$B/r2_stat" --watch "\$@"
END
mux new-session -d -x 80 -y 24 "PS1='$ ' ENV= sh -i" || exit 1
mux send-keys 'clear; echo what was above' Enter
mux send-keys "sh $log/w 0.2" Enter
until_seen "rates of all NICs" '^fab3 +up +[0-9.]+ [kM]B +[0-9.]+ [kM]B ' || exit 1
its_own "begins"
edges "80 x 24" 24
"$B/softfab" fault --name $fab 'h0:n1 down' >/dev/null || exit 1
until_seen "a NIC that is lost" '^fab1 +down .* R2-L01 port down'
until_seen "a NIC that is lost, in the bar" ' 1 job, 1 of 4 NICs in trouble'
mux capture-pane -p -e >"$log/out"
if tr '\033' '^' <"$log/out" | grep -qE '\^\[1(;31m|m\^\[31m)fab1 '; then ok "a NIC that is lost: red"; else bad "a NIC that is lost: red" "$(grep fab1 "$log/out" | tr '\033' '^')"; fi
mux send-keys c
until_seen "c: connections" '^DIR +NIC +PEER '
mux send-keys h
until_seen "h: more lines than there is room for" 'lines 1-22 of [0-9]+'
edges "more lines than there is room for" 24
mux send-keys j
until_seen "j: a line down" 'lines 2-23 of '
mux send-keys PageUp
until_seen "page up" 'lines 1-22 of '
mux send-keys c
until_seen "c again: none" '^DIR +NIC +PEER ' not
until_seen "h: what has happened" '^HISTORY, newest first'
mux send-keys h l
until_seen "h again: none" '^HISTORY' not
until_seen "l: times" 'TIMED'
mux send-keys l
until_seen "l again: none" 'TIMED' not
mux send-keys '?'
until_seen "?: help" '^q +quit'
mux send-keys '?' +
until_seen "+: less often" 'every 0.5 s: '
mux send-keys -- - -
until_seen "-: more often" 'every 0.1 s: '
mux send-keys p
until_seen "p: pause" 'paused, else every 0.1 s: '
mux send-keys p c h l
until_seen "p again: goes on" ' [0-9:]+, every 0.1 s: .* lines 1-22 '
for size in 60x12 40x8 132x43 80x24; do
    mux resize-window -x ${size%x*} -y ${size#*x}
    edges "resized to $size" ${size#*x}
done
mux send-keys q
the_shells "q"
# The emulator has more room than it tells: what is wider or longer than 80 x 24 is seen.
mux resize-window -x 200 -y 50
mux send-keys 'until [ "$(stty size)" = "50 200" ]; do sleep 0.1; done; stty cols 80 rows 24; clear; echo what was above' Enter
mux send-keys "sh $log/w 0.2 -c -H -l" Enter
until_seen "where there is more room than it knows of" 'lines 1-22 of '
its_own "where there is more room than it knows of"
fits "80 x 24: nothing beside or below" 80 24
mux send-keys Space
until_seen "a page down" ', lines ([2-9]|1[0-9])'
fits "a page down: nothing beside or below" 80 24
mux send-keys C-z
of_terminal "stopped: the shell's screen" "$modes" '0 1 1'
mux send-keys fg Enter
its_own "goes on"
kill "$(cat "$log/pid")"
the_shells "SIGTERM"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
