# bench-balance.json to the tables of tests/bench/README.md, between its marks "balance"
def pc: if . == null then "-" else "\(. * 1000 | round / 10) %" end;
def mark(ok): if ok then "" else " (missed)" end;
def ops: ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "sendrecv", "alltoall"];

"| bandwidth after by before, of the ideal; target 97 % | \(ops | join(" | ")) | worst |",
"|---|\(ops | map("---|") | add)---|",
(.lost | group_by([.nics, .lost, .hosts])[] | . as $g | ($g[0]) as $x |
    "| \($x.lost) of \($x.nics) NICs lost, \(if $x.hosts == 1 then "on one host" else "over both hosts" end) | \([ops[] as $o | $g[] | select(.operation == $o) | .of_ideal | pc] | join(" | ")) | \([$g[].of_ideal] | min | "\(pc)\(mark(. >= 0.97))") |",
    (select($x.hot_repair != null) | "| the same, hot repair | \([ops[] as $o | $g[] | select(.operation == $o) | .hot_repair | pc] | join(" | ")) | \([$g[].hot_repair] | min | pc) |")),
"",
"| host 2 gathers from two hosts, one of which loses a NIC: bandwidth after by before; target 97 % | \(.room | map("\(.nics) NICs") | join(" | ")) |",
"|---|\(.room | map("---|") | add)",
"| the other host makes room | \(.room | map("\(.ratio | pc)\(mark(.ratio >= 0.97))") | join(" | ")) |",
"| it does not, computed | \(.room | map(.without | pc) | join(" | ")) |",
"",
"| one of four hosts loses one of its two NICs: all_reduce | ideal | bandwidth after by before, of the ideal; target 95 % | what each host sends by the one that sends most, and of it over NIC 0 |",
"|---|---|---|---|",
(.four[] | ([.by_host[].sent] | max) as $most | "| \(.what) | \(.ideal | pc) | \(.of_ideal | pc)\(mark(.of_ideal >= 0.95)) | \(.by_host | map("\(.sent / $most * 100 | round / 100) (\(.over_nic0 * 100 | round) %)") | join(", ")) |"),
"",
"| NICs that differ; one ring, whose NIC of 10 MB/s goes down | survivors, MB/s | by weights, of the optimum | the best single one | equal parts |",
"|---|---|---|---|---|",
(.unequal[] | "| \(.what) | \(.rates_MBps | map(tostring) | join(", ")) | \(.of_water_filling | pc)\(mark(.of_water_filling >= 0.95 and .weights >= .single)) | \(.single / .water_filling | pc) | \(.equal / .water_filling | pc)\(mark(.equal < .weights)) |"),
"",
"| four processes on each host share four NICs, one goes down; target 1.1 | \(ops | join(" | ")) |",
"|---|\(ops | map("---|") | add)",
(.processes as $p | "| the busiest survivor by the mean | \([ops[] as $o | $p[] | select(.operation == $o) | "\(.max_over_mean * 100 | round / 100)\(mark(.max_over_mean <= 1.1))"] | join(" | ")) |"),
"",
"| one small message at a time, latency after one NIC was lost by before; target 110 % | \(.small | map(.bytes) | unique | map("\(.) B") | join(" | ")) |",
"|---|\(.small | map(.bytes) | unique | map("---|") | add)",
(.small | group_by(.nics)[] | "| \(.[0].nics) NICs | \(map("\(.latency_after_over_before | pc)\(mark(.latency_after_over_before <= 1.1))") | join(" | ")) |"),
"",
"| one of four NICs carries a fifth, no error; from one second on | \(ops | join(" | ")) |",
"|---|\(ops | map("---|") | add)",
(.grey as $p | "| of what the four can carry; 25 % without weights | \([ops[] as $o | $p[] | select(.operation == $o) | .of_ideal | pc] | join(" | ")) |"),
"",
"Weights of \(.fill.connections) connections over \(.fill.nics) NICs: \(.fill.us) us of CPU time (target 1000), \(.fill.single_us) us where no two connections are alike."
