#!/bin/sh
# table_put.sh NAME TABLE: TABLE between the markers "NAME table" of tests/bench/README.md.
set -eu
cd "$(dirname "$0")/../.."
out=$(mktemp)
trap 'rm -f "$out"' EXIT
awk -v t="$2" -v name="$1" '
    $0 == "<!-- " name " table -->" { print; print ""; while ((getline line < t) > 0) print line; print ""; skip = found = 1; next }
    $0 == "<!-- end of " name " table -->" { skip = 0 }
    !skip { print }
    END { exit !found }' tests/bench/README.md >"$out"
cat "$out" >tests/bench/README.md
