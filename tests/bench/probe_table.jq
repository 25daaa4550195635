# bench-probe.json to the tables of tests/bench/README.md, between its marks "probe"
def r(d): (. * pow(10; d) | round) / pow(10; d);
def spread: "\(.min_ms | r(2)) / \(.median_ms | r(2)) / \(.max_ms | r(2))";

def ms: if . then "\(.)" else "-" end;

"| broken | cases | right | wrong | undecided though it could be told | first verdict, ms (longest) | last process knows, ms (longest) |",
"|---|---|---|---|---|---|---|",
(.matrix.confusion[] | "| \(.broken) | \(.cases) | \(.cases - .missed - .silent) | \(.wrong) | \(.unknown_though_known) | \(.first_ms | ms) (\(.first_max_ms | ms)) | \(.last_ms | ms) (\(.last_max_ms | ms)) |"),
"",
"| one hour, one pair of processes | messages between the processes | bytes | probes posted | queue pairs made | time-outs of the transport, both NICs | data messages |",
"|---|---|---|---|---|---|---|",
(.hour.rows[] | "| \(.what) | \(.messages) | \(.bytes) | \(.questions) | \(.queue_pairs) | \(.timeouts) | \(.carried) |"),
"",
(.gossip as $n |
"| job | hosts x processes | all know, ms: min / median / max over \($n.seeds) seeds | last word at all, ms | without loss, ms; bound | messages, median (max); of one process | sent at once | announced again | heard twice | registry |",
"|---|---|---|---|---|---|---|---|---|---|",
($n.jobs[] | "| \(.job) | \(.hosts) x \(.processes / .hosts) | \(.heard | spread) | \(.last_word | spread) | \(.no_loss.max_ms | r(2)); \(.bound_ms | r(2)) | \(.messages_median) (\(.messages_max)); \(.of_one_process_max) | \(.fan_out_max) | \(.repeated_max) | \(.suppressed_max) | \(.registry_max) |"))
