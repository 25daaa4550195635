# bench-ways.json as the table of tests/bench/README.md.
def round1: . * 10 | round | . / 10;
def median: sort | if length == 0 then null else (.[(length - 1) / 2 | floor] + .[length / 2 | floor]) / 2 end;
def shown(unit): if . == null then "-" else "\(round1)\(unit)" end;
def names: [["X0", "X0: one NIC silent for 20 to 80 ms"], ["X0b", "X0b: one NIC loses 1 %"], ["X1", "X1: one of 8 spines silent in mid-run"],
            ["X2", "X2: that spine silent before the start"], ["X3", "X3: one of 8 spines loses 3 %"]];
. as $b |
# what nothing was wrong with: before the fault of X1
def ratio($ways): if .row == "X2" then (.before // null) as $w | ([$b.rows[] | select(.row == "X1" and .ways == $ways and .before) | .before] | median) as $m |
        if $w and $m then $w / $m else null end else .ratio end;
def cells($row; $ways): [$b.rows[] | select(.row == $row and .ways == $ways)] as $all | [$all[] | select(.ok)] as $good | [$good[] | select(.lost > 0)] as $hit |
    [([$hit[].stall_ms] | "\(median | shown("")), \(max | shown(""))"),
     ([$all[].given_up] | add | tostring + (if . > 0 and $ways > 1 and $row != "X0" then " (missed)" else "" end)) + (if ($all | length) > ($good | length) then ", \(($all | length) - ($good | length)) failed" else "" end),
     ([$hit[] | ratio($ways) | select(.)] | median | if . then . * 100 else null end | shown(" %")),
     "\($hit | length) of \($all | length)"];
"Machine: \($b.cores) cores, shared, load \($b.load) at the end; \($b.runs) run\(if $b.runs > 1 then "s" else "" end) for each row.",
"",
"| all_reduce, 2 hosts x 4 NICs of 20 MB/s | longest stall, ms: median, max | NICs given up | busbw after by before | runs that lost packets | with one way: longest stall, ms | NICs given up | busbw after by before | runs that lost packets |",
"|---|---|---|---|---|---|---|---|---|",
(names[] | . as [$row, $what] | "| \($what) | \((cells($row; 8) + cells($row; 1)) | join(" | ")) |")
