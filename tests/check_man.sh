#!/bin/sh
# The manual pages: the options of nccl-net-r2.7 are what r2_config --man prints, those of commands name every argument
# of theirs, and all are roff without complaints.
#   check_man.sh BUILD            closes with "N passed, N failed[, N skipped]"
#   check_man.sh BUILD --write    puts the options into nccl-net-r2.7
cd "$(dirname "$0")/.." || exit 2
B=$1
page7=docs/nccl-net-r2.7
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
"$B/r2_config" --man >"$tmp/table" || exit 1
awk -v t="$tmp/table" '
    /^\.\\" options$/ { print; while ((getline line < t) > 0) print line; skip = 1; found = 1; next }
    /^\.\\" end of options$/ { skip = 0 }
    !skip { print }
    END { exit !found }' "$page7" >"$tmp/want" || {
    echo "$page7 has no place for the options"
    exit 1
}
if [ "${2:-}" = --write ]; then
    cat "$tmp/want" >"$page7"
    exit 0
fi
passed=0 failed=0 skipped=0
if diff -u "$page7" "$tmp/want"; then
    passed=$((passed + 1))
else
    failed=$((failed + 1))
    echo "$page7 is not up to date: run make readme"
fi
for command in r2_config r2_ctl r2_stat r2_topo r2_plan r2_report r2_diag; do
    for word in $("$B/$command" --help | grep -o -e '--[a-z-]*[a-z]' | sort -u); do
        if sed 's/\\-/-/g' "docs/$command.1" | grep -q -e "$word"; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            echo "docs/$command.1 does not tell of $word"
        fi
    done
done
for page in docs/*.1 "$page7"; do
    if command -v mandoc >/dev/null 2>&1; then
        mandoc -T lint -W error "$page" >"$tmp/complaints" 2>&1
    elif command -v groff >/dev/null 2>&1; then
        groff -man -Tascii -ww -z "$page" >"$tmp/complaints" 2>&1
    else
        skipped=$((skipped + 1))
        echo "SKIP roff of $page: neither mandoc nor groff is installed"
        continue
    fi
    if [ -s "$tmp/complaints" ]; then
        failed=$((failed + 1))
        cat "$tmp/complaints"
    else
        passed=$((passed + 1))
    fi
done
if [ $skipped -gt 0 ]; then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
[ $failed = 0 ]
