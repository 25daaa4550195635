#!/bin/sh
# Every C file is as .clang-format says, by the release of clang-format that the project uses (others differ in details), and has
# at most 600 lines.
#   check_format.sh [BUILD]     first that long files are found, then the tree; closes with "N passed, N failed"
cd "$(dirname "$0")/.." || exit 1
limit=600
f=clang-format-16
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
# long FILE...: one line for each file that has more lines
long() {
    awk -v limit=$limit 'FNR == limit + 1 { printf "%s has more than %d lines: split it by subject\n", FILENAME, limit }' "$@"
}

seq $limit >"$tmp/at.c"
seq $((limit + 1)) >"$tmp/above.c"
[ "$(long "$tmp/at.c" "$tmp/above.c" "$tmp/at.c")" = "$tmp/above.c has more than $limit lines: split it by subject" ] || {
    echo "FAIL a file of $((limit + 1)) lines should be found, and one of $limit should not"
    exit 1
}
list=$(git ls-files '*.c' '*.h') || exit 1
n=$(echo "$list" | wc -l)
# shellcheck disable=SC2086
too_long=$(long $list)
failed=$(printf '%s' "$too_long" | grep -c .)
[ -z "$too_long" ] || echo "$too_long"
if command -v $f >/dev/null; then
    # shellcheck disable=SC2086
    bad=$($f --dry-run $list 2>&1 | sed -n 's/^\([^:]*\):[0-9]*:.*clang-format-violations.*/\1/p' | sort -u)
    failed=$((failed + $(printf '%s' "$bad" | grep -c .)))
    # shellcheck disable=SC2086
    [ -z "$bad" ] || printf 'not formatted (make format): %s\n' $bad
elif [ $failed = 0 ]; then
    echo "$f is not here (sh tools/install-deps.sh ci)"
    exit 77
fi
echo "$((n - failed)) passed, $failed failed"
[ $failed = 0 ] && [ "$n" -gt 1 ]
