#!/bin/sh
# Every C file is as .clang-format says, by the release of clang-format that the project uses: others differ in details.
#   check_format.sh [BUILD]     closes with "N passed, N failed"
cd "$(dirname "$0")/.." || exit 1
f=clang-format-16
command -v $f >/dev/null || {
    echo "$f is not here (sh tools/install-deps.sh ci)"
    exit 77
}
list=$(git ls-files '*.c' '*.h') || exit 1
n=$(echo "$list" | wc -l)
# shellcheck disable=SC2086
bad=$($f --dry-run $list 2>&1 | sed -n 's/^\([^:]*\):[0-9]*:.*clang-format-violations.*/\1/p' | sort -u)
failed=$(printf '%s' "$bad" | grep -c .)
[ -z "$bad" ] || printf 'not formatted (make format): %s\n' $bad
echo "$((n - failed)) passed, $failed failed"
[ "$failed" = 0 ] && [ "$n" -gt 0 ]
