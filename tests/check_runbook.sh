#!/bin/sh
# Every code of plugin/probe/probe_line.c has its section in docs/runbook.md, with the same text, severity and actions, and the other way round.
# Each is brought about by some test.
cd "$(dirname "$0")/.." || exit 1
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
passed=0 failed=0

# codes_in SOURCE: CODE|text|action|recommend|severity, a line per row of the table but that of "not known"
codes_in() {
    sed -n 's/^ *{"\(R2-[A-Z][0-9][0-9]\)", *"\([^"]*\)", *"[^"]*", *"\([^"]*\)", *"\([^"]*\)", *PROBE_\([A-Z]*\)},*$/\1|\2|\3|\4|\5/p' "$1" | sort
}

# sections_in DOC: the same from the headings and the first line of each section; a section without all of its parts has "incomplete" behind it
sections_in() {
    awk '
        function flush() {
            if (code != "")
                print code "|" text "|" act "|" rec "|" toupper(sev) (parts == want && anchored ? "" : "|incomplete")
            code = ""
        }
        BEGIN { want = "Means Measured The job Look at Do Clears " }
        /^<a id="/ { anchor = $0 }
        /^## / {
            flush()
            if ($2 == "Alerts")
                next
            code = $2
            text = $0
            sub(/^## [^ ]* */, "", text)
            anchored = anchor == "<a id=\"" tolower(code) "\"></a>"
            sev = act = rec = parts = ""
        }
        /^Severity / {
            split($0, w, /[ ,.]+/)
            sev = w[2]
            act = w[3]
            sub(/^do=/, "", act)
            rec = w[5]
        }
        /^- \*\*[A-Z][a-z ]*\.\*\* ./ {
            part = $0
            sub(/^- \*\*/, "", part)
            sub(/\.\*\*.*/, "", part)
            parts = parts part " "
        }
        END { flush() }' "$1" | sort
}

# differs SOURCE DOC: prints what differs; status 0 when something does
differs() {
    codes_in "$1" >"$tmp/codes"
    sections_in "$2" >"$tmp/sections"
    ! diff "$tmp/codes" "$tmp/sections"
}

# must_differ NAME FILE SED: with FILE (source or doc) changed so, a difference is found
must_differ() {
    cp plugin/probe/probe_line.c "$tmp/source"
    cp docs/runbook.md "$tmp/doc"
    sed "$3" "$tmp/$2" >"$tmp/changed"
    cmp -s "$tmp/changed" "$tmp/$2" && { echo "FAILED $1: nothing was changed"; failed=$((failed + 1)); return; }
    mv "$tmp/changed" "$tmp/$2"
    if differs "$tmp/source" "$tmp/doc" >/dev/null; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $1: not found"
    fi
}
must_differ "a code without a section" doc '/^## R2-L02/d'
must_differ "a section without a code" source '/"R2-L02"/d'
must_differ "another text" source 's/"process gone"/"process went"/'
must_differ "another action" source 's/"watch"/"wait"/'
must_differ "another recommendation" doc 's/recommend RESTART_BM/recommend NONE/'
must_differ "another severity" source 's/PROBE_WARNING},$/PROBE_INFO},/'
must_differ "a missing part" doc '/^- \*\*Clears.\*\* PORT_ACTIVE/d'
must_differ "an empty part" doc 's/^- \*\*Do.\*\* Mend that network.$/- **Do.**/'
must_differ "a wrong anchor" doc 's/id="r2-f03"/id="r2-f04"/'

if differs plugin/probe/probe_line.c docs/runbook.md; then
    failed=$((failed + 1))
    echo "FAILED docs/runbook.md: the codes above (<: table, >: runbook) differ"
else
    passed=$((passed + $(wc -l <"$tmp/codes")))
fi
# The table has as many rows as the enumeration has codes, so that none was read over.
codes=$(grep -c '^ *PROBE_CODE_[A-Z][0-9][0-9],' plugin/probe/probe_line.h)
if [ "$codes" -gt 0 ] && [ "$codes" = "$(codes_in plugin/probe/probe_line.c | wc -l)" ]; then
    passed=$((passed + 1))
else
    failed=$((failed + 1))
    echo "FAILED probe_line.h has $codes codes, the table has $(codes_in plugin/probe/probe_line.c | wc -l)"
fi
# Each code is what some test brings about.
for code in $(sed "s/^R2-//; s/|.*//" "$tmp/codes"); do
    if grep -rqE "(PROBE_CODE_|R2-|\\b)$code\\b" --include=test_*.c --include=*.sh --exclude=check_runbook.sh tests; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED R2-$code: no test brings it about"
    fi
done
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
