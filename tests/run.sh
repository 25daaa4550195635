#!/bin/sh
# Runs tests and counts. Usage: tests/run.sh BUILD_DIR [-l SECONDS] [-j N] TEST... [-- [-j N] TEST...]...
# -j: those of this group N side by side; they share no file and no name. Otherwise, and behind a "--", one after the other. A group begins when
# the one before it is done. TEST,TEST: one after the other also there.
# A TEST is a program or a script (called with BUILD_DIR), with arguments after '+': "tests/e2e/x.sh+--fast".
# What it prints last is read: Check's "N%: Checks: a, Failures: b, Errors: c", or "N passed, N failed[, N skipped]". Exit 77 is a skip, whose
# reason is its last line. A test that counts nothing counts as one. R2_T=NAME runs only the tests whose name contains NAME.
B=$1
shift
limit=1800
if [ "${1:-}" = -l ]; then
    limit=$2
    shift 2
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
trap 'exit 130' INT TERM
passed=0 failed=0 skipped=0
: >"$out/skips"

# side N: the tests of $out/side, each by a process of this script; what they print comes in whole, and their counts are added
side() {
    # One whose process ends without its count is named, and counts as failed.
    # shellcheck disable=SC2016
    xargs -P "$1" -I{} sh -c 'for t in $(echo "$3" | tr , " "); do r=$(sh "$0" "$1" -l "$2" "$t" 2>&1)
case $r in *" passed, "*" failed"*) ;; *) r="${r:+$r
}FAIL $t ended without a count" ;; esac; printf "%s\n" "$r"; done' "$0" "$B" "$limit" {} <"$out/side" | {
        p=0 f=$(tr , '\n' <"$out/side" | wc -l) s=0
        while IFS= read -r line; do
            case $line in
            [0-9]*" passed, "*" failed"*)
                # shellcheck disable=SC2086
                set -- $line
                p=$((p + $1)) f=$((f - 1 + $3)) s=$((s + ${5:-0}))
                ;;
            "skipped, and why:") ;;
            "  "[!\ ]*) echo "${line#  }" >>"$out/skips" ;;
            *) printf '%s\n' "$line" ;;
            esac
        done
        echo "$p $f $s" >"$out/sums"
    }
    read -r p f s <"$out/sums" || exit 2
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

# one TEST
one() {
    t=$1
    prog=${t%%+*}
    args=
    case $t in *+*) args=$(echo "${t#*+}" | tr '+' ' ') ;; esac
    name=$(basename "$prog")${args:+ $args}
    case $name in *"${R2_T:-}"*) ;; *) return ;; esac
    start=$(date +%s)
    case $prog in
    # shellcheck disable=SC2086
    *.sh) timeout -k 10 "$limit" sh "$prog" "$B" $args >"$out/log" 2>&1 ;;
    # shellcheck disable=SC2086
    *) R2_BUILD=$B R2_PLUGIN=$B/libnccl-net-r2.so timeout -k 10 "$limit" "$prog" $args >"$out/log" 2>&1 ;;
    esac
    rc=$?
    took=$(($(date +%s) - start))
    p=0 f=0 s=0 counted=1
    if line=$(grep -E '^[0-9]+%: Checks: ' "$out/log" | tail -1) && [ -n "$line" ]; then
        n=$(echo "$line" | sed 's/.*Checks: \([0-9]*\).*/\1/')
        f=$(echo "$line" | sed 's/.*Failures: \([0-9]*\), Errors: \([0-9]*\).*/\1 \2/' | awk '{print $1+$2}')
        p=$((n - f))
    elif line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$out/log" | tail -1) && [ -n "$line" ]; then
        p=$(echo "$line" | awk '{print $1}')
        f=$(echo "$line" | awk '{print $3}')
        s=$(echo "$line" | sed -n 's/.*, \([0-9]*\) skipped.*/\1/p')
        s=${s:-0}
    else
        counted=0
    fi
    if [ $rc = 77 ]; then
        s=$((s + 1))
        echo "$name: $(tail -1 "$out/log")" >>"$out/skips"
        result=SKIP
    elif [ $rc = 0 ] && [ "$f" = 0 ]; then
        result=ok
        if [ $counted = 0 ]; then
            p=1
        elif [ $((p + s)) = 0 ]; then
            f=1 result=FAIL # it ran and tested nothing
        fi
    else
        [ "$f" -gt 0 ] || f=1
        result=FAIL
    fi
    grep -E '^SKIP' "$out/log" | sed "s|^|$name: |" >>"$out/skips"
    printf '%-4s %-44s %4s passed %3s failed %3s skipped  %4s s\n' "$result" "$name" "$p" "$f" "$s" "$took"
    if [ $result = FAIL ]; then
        [ $rc = 124 ] && echo "     ran past its limit of $limit s"
        lines=${R2_FAIL_LINES:-60}
        # First what failed, wherever it stands: who keeps only a part of this output keeps its beginning.
        grep -B2 -A20 -E '^FAIL|:[FE]:' "$out/log" | grep -v '^ok ' | head -n "$lines" | sed 's/^/     | /'
        echo "     the end of its output:"
        tail -n "$lines" "$out/log" | sed 's/^/     | /'
    fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

while [ $# -gt 0 ]; do
    jobs=1
    if [ "$1" = -j ]; then
        jobs=$2
        shift 2
    fi
    : >"$out/side"
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        if [ "$jobs" -gt 1 ]; then
            echo "$1" >>"$out/side"
        else
            for test in $(echo "$1" | tr , ' '); do
                one "$test"
            done
        fi
        shift
    done
    [ ! -s "$out/side" ] || side "$jobs"
    [ $# = 0 ] || shift
done
if [ -s "$out/skips" ]; then
    echo "skipped, and why:"
    sed 's/^/  /' "$out/skips"
fi
if [ $skipped -gt 0 ]; then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
[ $failed = 0 ] && [ $passed -gt 0 ]
