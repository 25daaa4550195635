# bench-peers.json as the table of tests/bench/README.md: medians, and the median of the ratios to the column in front of which nothing stands, of the same round.
def median: sort | .[length / 2 | floor];
def digits: if . >= 100 then round elif . >= 10 then . * 10 | round | . / 10 else . * 100 | round | . / 100 end;
.rows as $rows | .plugins as $plugins | ([$plugins[] | select(. == "IB")][0] // $plugins[0]) as $base |
def exact($nics; f): "| " + ([$plugins[] as $p | $rows[] | select(.kind == "calls" and .name == $p and .nics == $nics) | f | tostring] | join(" | ")) + " |";
def timed(pick; f): "| " + ([$plugins[] as $p |
    ([$rows[] | select(.name == $p and pick) | f] | median) as $m |
    ([$rows[] | select(.name == $p and pick) | . as $r | ([$rows[] | select(.name == $base and .round == $r.round and pick and .bytes == $r.bytes) | f][0]) as $b
      | if $b > 0 then ($r | f) / $b else empty end]) as $ratios |
    "\($m | digits)" + if $p == $base or ($ratios | length) == 0 then "" else " (\($ratios | median | digits))" end] | join(" | ")) + " |";
"Machine: \(.cores) cores, shared, load \(.load) at the end; source \(.git); medians of \(.runs) run\(if .runs > 1 then "s" else "" end) that took turns, and in brackets the median of the ratios to \($base) in the same round. Instructions are counted, once.",
"",
"| what | \($plugins | join(" | ")) |",
"|---|\($plugins | map("---|") | join(""))",
(1, 8 | . as $n | "\($n) NIC\(if $n > 1 then "s" else "" end)" as $w |
 "| instructions per message of 128 KiB, \($w): isend and its test " + exact($n; .send),
 "| irecv and its test, \($w) " + exact($n; .recv),
 "| a test that finds nothing, sender, \($w) " + exact($n; .empty_send),
 "| the same, receiver, \($w) " + exact($n; .empty_recv),
 "| an isend without a receive, \($w) " + exact($n; .no_receive)),
([8, 1, 8, "8 B"], [131072, 1, 8, "128 KiB"], [131072, 1, 32, "128 KiB"], [131072, 8, 8, "128 KiB"] | . as [$bytes, $n, $w, $text] |
 "| us per message of \($text), \($n) connection\(if $n > 1 then "s" else "" end), window \($w) " +
   timed(.kind == "stream" and .bytes == $bytes and .connections == $n and .window == $w; .us_per_message),
 "| CPU us of both processes, the fabric's included " +
   timed(.kind == "stream" and .bytes == $bytes and .connections == $n and .window == $w; .cpu_us_per_message)),
"| set-up of 1,000 connections, 4 NICs, ms " + timed(.kind == "crowd"; .setup_ms),
"| a process with them at rest, CPU ms per s " + timed(.kind == "crowd"; .idle_cpu_ms_per_s)
