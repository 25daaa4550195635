#!/bin/sh
# Shows that the simulation sees the rules of the protocol: for each rule a schedule that fails without it and holds with it.
#   without.sh SIM            one schedule per rule, looked for from the seed of the table on; closes with "N passed, N failed"
#   without.sh SIM --list N   how many of N schedules of the rule's class fail without it
# A seed is a schedule only together with the code it runs: when the code changes, another seed may be the one that fails, so the
# table says where to begin, and the search goes on for LOOK seeds. SIM is the program, or the build folder it is in.
set -u
LOOK=3000

# rule, class, first seed
table() {
    cat <<'ROWS'
recv-fence ghost 35
markers hang 325
told ghost 86
close-incarnation hang 275
ledger silent 81
retransmit-incarnation spread 3
e2e-ack device 0
cts-rewrite port 271
tombstone close 96
quarantine hang 408
frozen-cut spread 19
full-incarnation reborn 6
new-qp reborn 2
settled return 1052
pair-live adaptive 282
unread flushed 18
ask-again locate-late 290
late-answer locate-busy 1
late-aux locate2-cross 203
bounce-read bounce 48
bounce-ring bounce 15
live-parts unheard 61
live-frozen unheard 615
live-ledger unheard 3891
abort-err abort 0
ROWS
}

die() {
    echo "without.sh: $*" >&2
    exit 2
}

[ $# -ge 1 ] || die "usage: without.sh SIM [--list N]"
sim=$1
[ ! -d "$sim" ] || sim=$1/r2_sim
[ -f "$sim" ] && [ -x "$sim" ] || die "'$sim' is not a program"
rules=$("$sim" --list | sed -n '/^rules:/,$s/^  //p')
[ -n "$rules" ] || die "'$sim' has no rules to switch off"
count=
if [ $# -gt 1 ]; then
    [ "$2" = --list ] && [ $# -eq 3 ] || die "usage: without.sh SIM [--list N]"
    count=$3
fi

# The first failure without the rule: "SEED REASON". Without a rule, "": of a class that fails as it is.
search() { # rule class from
    "$sim" --class "$2" --seeds "$LOOK" --from "$3" ${1:+--without "$1"} --first --recheck 0 2>/dev/null |
        sed -n 's/^FAILED class [a-z0-9-]* seed \([0-9]*\)[^:]*: \(.*\)/\1 \2/p' | head -n 1
}

passed=0 failed=0
for rule in $rules; do
    row=$(table | sed -n "s/^$rule  *//p")
    if [ -z "$row" ]; then
        echo "FAILED without $rule: the table has no row for it"
        failed=$((failed + 1))
        continue
    fi
    class=${row% *} from=${row#* }
    if [ -n "$count" ]; then
        echo "$rule $class $("$sim" --class "$class" --seeds "$count" --without "$rule" --recheck 0 2>/dev/null | tail -n 1)"
        continue
    fi
    found=$(search "$rule" "$class" "$from")
    seed=${found%% *}
    if [ -z "$found" ]; then
        echo "FAILED without $rule: $LOOK schedules of class $class hold all the same"
        failed=$((failed + 1))
    elif ! "$sim" --class "$class" --seeds 1 --from "$seed" >/dev/null 2>&1; then
        echo "FAILED without $rule: class $class seed $seed fails with all rules as well"
        failed=$((failed + 1))
    else
        echo "without $rule: --class $class --seed $seed: ${found#* }"
        passed=$((passed + 1))
    fi
done
[ -n "$count" ] && exit 0
# A time in place of a rule.
found=$(search "" deaf-short 0)
if [ -z "$found" ]; then
    echo "FAILED: $LOOK schedules hold with a T_dead that RC outlasts"
    failed=$((failed + 1))
else
    echo "T_dead outlasted by RC: --class deaf-short --seed ${found%% *}: ${found#* }"
    passed=$((passed + 1))
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
