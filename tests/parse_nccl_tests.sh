#!/bin/sh
# Reads the output of nccl-tests, or of r2_perf, on stdin as scripts in the field do: every line that starts with a digit
# and has 13 fields is a row, the sixth word of the first line with "bandwidth" is the mean, "FAILED" fails.
# Prints one line per row (size, then busbw out of place and in place), then: rows N wrong N busbw X verdict OK|FAILED.
# Exit 0 when there is at least one row, no wrong element and no FAILED; else 1.
exec awk '
/FAILED/ { failed = 1 }
/bandwidth/ && mean == "" { mean = $6 }
/^[ \t]*[0-9]/ {
    if (NF != 13) {
        print "malformed row: " $0
        failed = 1
        next
    }
    rows++
    wrong += ($9 == "N/A" ? 0 : $9) + ($13 == "N/A" ? 0 : $13)
    print $1, $8, $12
}
END {
    bad = failed || wrong || !rows || mean == ""
    print "rows", rows + 0, "wrong", wrong + 0, "busbw", mean, "verdict", bad ? "FAILED" : "OK"
    exit bad
}'
