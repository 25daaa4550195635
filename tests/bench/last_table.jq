# bench-last.json as the table of tests/bench/README.md.
def round1: . * 10 | round | . / 10;
def round2: . * 100 | round | . / 100;
def pair: "\(.median | round1), \(.max | round1)";
.summary as $s |
"Machine: \(.cores) cores, shared, load \(.load) at the end; source \(.git); \(.runs) run\(if .runs > 1 then "s" else "" end) for each row, three rounds each.",
"",
"| messages, one connection, loopback | over tcp0, GB/s | a raw TCP stream, GB/s | median of the ratios | CPU time over tcp0, s per GB | of the raw stream |",
"|---|---|---|---|---|---|",
($s.by_size[] | "| \(.size / 1024 | if . >= 1024 then "\(. / 1024) MiB" else "\(.) KiB" end) | \(.last_gbs | round2) | \(.raw_gbs | round2) | \(.ratio * 100 | round1) % | \(.last_cpu_s_per_gb | round2) | \(.raw_cpu_s_per_gb | round2) |"),
"",
"| ms: median, max | longest pause, no fault | longest pause, all NICs of a host lost | bound | until RDMA carries again | bound | longest pause at that |",
"|---|---|---|---|---|---|---|",
(.bounds as $b | ["event", "ports down", $b.event_ms], ["silent", "nothing comes back", $b.silent_ms] | . as [$f, $name, $bound] | $s.by_fault[$f] |
 "| \($name) | \(.no_fault_ms | pair) | \(.stall_ms | pair) | \($bound) | \(.return_ms | pair) | \($b.return_ms) | \(.return_stall_ms | pair) |")
