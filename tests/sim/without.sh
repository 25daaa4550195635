#!/bin/sh
# Shows that the simulation sees the rules of the protocol: for each rule a schedule that holds with it and fails without it.
#   without.sh SIM                   checks the table; closes with "N passed, N failed"
#   without.sh SIM --hunt RULE [N]   looks through N schedules (2000) of every class for lines of the table
set -u

table() {
    cat <<'ROWS'
ROWS
}

die() {
    echo "without.sh: $*" >&2
    exit 2
}

[ $# -ge 1 ] || die "usage: without.sh SIM [--hunt RULE [N]]"
sim=$1
[ -x "$sim" ] || die "'$sim' is not a program"

holds() { # class seed [option value]
    c=$1 s=$2
    shift 2
    "$sim" --class "$c" --seeds 1 --from "$s" --limit 60 "$@" >/dev/null 2>&1
}

hunt() { # rule count
    for class in $("$sim" --list | sed -n '/^classes:/,/^rules:/s/^  \([a-z]*\) .*/\1/p'); do
        "$sim" --class "$class" --seeds "$2" --without "$1" --recheck 0 --limit 20 |
            sed -n 's/^FAILED class \([a-z]*\) seed \([0-9]*\)[ :].*/\1 \2/p' | head -n 3 |
            while read -r c s; do
                if holds "$c" "$s"; then
                    echo "$1 $c $s"
                else
                    echo "# $c $s fails with the rule as well"
                fi
            done
    done
}

if [ $# -ge 2 ]; then
    [ "$2" = --hunt ] && [ $# -ge 3 ] || die "usage: without.sh SIM [--hunt RULE [N]]"
    hunt "$3" "${4:-2000}"
    exit 0
fi

passed=0 failed=0
rules=$("$sim" --list | sed -n '/^rules:/,$s/^  //p')
for rule in $rules; do
    rows=$(table | sed -n "s/^$rule  *//p")
    if [ -z "$rows" ]; then
        echo "FAILED $rule: no schedule in the table"
        failed=$((failed + 1))
        continue
    fi
    while read -r class seed; do
        if ! holds "$class" "$seed"; then
            echo "FAILED $rule: class $class seed $seed fails with all rules on"
            failed=$((failed + 1))
        elif holds "$class" "$seed" --without "$rule"; then
            echo "FAILED $rule: class $class seed $seed holds without it"
            failed=$((failed + 1))
        else
            echo "without $rule: class $class seed $seed fails, as it must"
            passed=$((passed + 1))
        fi
    done <<LINES
$rows
LINES
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
