#!/bin/sh
# README's table of options is what r2_config --markdown prints. With --write: puts it there.
B=$1
table=$(mktemp) want=$(mktemp)
trap 'rm -f "$table" "$want"' EXIT
"$B/r2_config" --markdown >"$table" || exit 1
awk -v t="$table" '
    /<!-- options -->/ { print; while ((getline line < t) > 0) print line; skip = 1; next }
    /<!-- end of options -->/ { skip = 0 }
    !skip { print }' README.md >"$want"
if [ "${2:-}" = --write ]; then
    cat "$want" >README.md
    exit 0
fi
grep -q '<!-- options -->' README.md || { echo "README.md has no table of options"; exit 1; }
if diff -u README.md "$want"; then
    echo "1 passed, 0 failed"
else
    echo "README.md is not up to date: run make readme"
    echo "0 passed, 1 failed"
    exit 1
fi
