# The table of make bench-nccl, in Markdown. Medians over the runs, and in brackets the extremes.
def median: sort | if length == 0 then null elif length % 2 == 1 then .[length / 2 | floor] else (.[length / 2] + .[length / 2 - 1]) / 2 end;
def round(n): . as $x | (pow(10; n)) as $p | ($x * $p | . + 0.5 | floor) / $p;
def spread(n): if length == 0 then "unknown" elif length == 1 then "\(.[0] | round(n))" else "\(median | round(n)) (\(min | round(n)) to \(max | round(n)))" end;
def time: (median // 0) as $m | if $m >= 10000 then "\(map(. / 1000) | spread(1)) s" elif $m >= 1000 then "\(map(. / 1000) | spread(2)) s" else "\(spread(0)) ms" end;
def reason: (capture("(?<s>IBV_WC_[A-Z_]+)") | .s) // (capture("communicator: (?<c>[0-9]+) [^:]*: (?<t>.*)") | .t[:100]) // .[:100];
def code: (capture("communicator: (?<c>[0-9]+) ") | "ncclResult \(.c), ") // "";
def many($n; $all): if $n == $all then "" else "\($n) of \($all) " end;
def goes_on($all): length as $n | if $n == 0 then empty else
    "\(many($n; $all))goes on: stands still \(map(.stall_ms) | time); afterwards \(map(.after | select(. != null) | . * 100) | spread(0)) %" end;
def ends($all): group_by(.error | reason)[] | length as $n |
    "\(many($n; $all))ends: exit \(.[0].rc), \(.[0].error | code)`\(.[0].error | reason)`\(map(.error_s | select(. != null)) | if length > 0 then " after \(map(. * 1000) | time)" else "" end)";
def fault_cell: length as $all | ([map(select(.rc == 0)) | goes_on($all)] + [map(select(.rc != 0)) | ends($all)]) | join("; ");
def ratios($ours; $theirs): [range([($ours | length), ($theirs | length)] | min) | select($ours[.].busbw and $theirs[.].busbw) | $ours[.].busbw / $theirs[.].busbw];
. as $d | [.columns[].name] as $names |
def of($case; $name): [$d.results[] | select(.case == $case and .column == $name)];
def row($case; $text): if of($case; $names[0]) == [] then empty else
    "| \($text) | \([$names[] | of($case; .) | fault_cell] | join(" | ")) |" end;
def healthy($case; $text): if of($case; $names[0]) == [] then empty else
    "| \($text) | \([$names[0] | of($case; .) as $o | "stands still \($o | map(.stall_ms) | time)"] + [$names[1:][] | ratios(of($case; $names[0]); of($case; .)) as $r |
        "R2 has \($r | spread(2)) times its rate; stands still \(of($case; .) | map(.stall_ms) | time)"] | join(" | ")) |" end;
"NCCL \(.nccl), all_reduce of \(.bytes)B, 2 ranks on 2 hosts, each with a GPU of the stand-in and 2 NICs of \(.rate), all in use; \(.runs) runs of each, taking turns; \(.cores) shared cores, load \(.load); \(.date), source \(.git).",
"Settings: \([.columns[] | "\(.name): `\(.settings)`"] | join(", ")).",
"",
"| | \($names | join(" | ")) |",
"|---|\($names | map("---") | join("|"))|",
healthy("healthy"; "no fault, links of \(.rate)"),
row("down"; "port down (h0:n1)"),
row("blackhole"; "blackhole (h1:n1)"),
row("fatal"; "device fatal (h1:n0)"),
row("flap"; "port down, up after 2 s (h0:n1)"),
row("loss"; "1 % of packets lost (h0:n0)"),
"",
"Values wrong: \([.results[] | .wrong // 0] | add) of \([.results[] | .checked // 0] | add) collectives checked; faults that fired: \([.results[].fired] | add)."
