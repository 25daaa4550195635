# Observations of verbs_watch, one file per run and host (TARGET.CASE.RETRY.REP.HOST), to the table of docs/fabric-vs-kernel.md.
# A cell lists what was seen, in the order of the median time: what, ms since the failure (lowest to highest over the repetitions), and in how
# many of the repetitions where not in all.
def base: split("/")[-1] | split(".");
def num: if . >= 100 or . <= -100 then round else (. * 10 | round) / 10 end;
def range: sort | (.[0] | num) as $a | (.[-1] | num) as $b | if $a == $b then "\($a)" else "\($a)..\($b)" end;
def median: sort | .[length / 2 | floor];
def of($n; $all): if $n == $all then "" else " (\($n) of \($all))" end;

# One run of one host, from its lines
def run: . as $l |
  { seen: [$l[] | select(.seen)], flows: [$l[] | select(.flow)], ends: [$l[] | select(.end)],
    blocked: [$l[] | select(.blocked) | .blocked], writes: ([$l[] | select(.run) | .writes] | any) };

def shown: select((.what | test("FLUSH")) or .seen == "qp" or .seen == "progress" or .what == "COMM_EST" | not);
def name: if .seen == "wc" then .what elif .seen == "port" then "port \(.what)" elif .seen == "gid" then "GID \(.what)"
          elif .seen == "device" then "device \(.what)" elif .seen == "peer" then "TCP closed" else .what end;

def cell: length as $n | if $n == 0 then "" else
  ([.[].seen[] | shown | {name: name, t: .t_ms}] | group_by(.name) |
    map({t: (map(.t) | median), text: "\(.[0].name) \(map(.t) | range)\(of(length; $n))"}) | sort_by(.t) | map(.text)) as $seen |
  ([.[] | select(.seen | any(.what | test("FLUSH")))] | length) as $flushed |
  ([.[] | select(.seen | any(.what == "send resumed" or .what == "recv resumed"))] | length) as $resumed |
  ([.[] | select((.seen | any(.seen == "progress" and (.what | test("stopped")))) | not)] | length) as $never |
  ([.[].flows[] | select(.gap_ms > 0) | .gap_ms]) as $gaps |
  ([.[].ends[] | select(.end == "state") | .state] | group_by(.) | map("\(.[0])\(of(length; $n))") | join(", ")) as $state |
  ([.[].ends[] | select(.end == "fence")]) as $fence |
  ([$fence[] | select(.send_marker_ms >= 0 and .recv_marker_ms >= 0)]) as $drained |
  ([.[] | select(.blocked | length > 0) | .blocked[0]]) as $blocked |
  ($seen
   + (if $flushed > 0 then ["rest flushed\(of($flushed; $n))"] else [] end)
   + (if $never > 0 then ["never stops\(of($never; $n))"] else [] end)
   + (if $resumed > 0 then ["goes on after a gap of \([.[] | select(.seen | any(.what | test("resumed"))) | [.flows[].gap_ms] | max] | range)\(of($resumed; $n))"] else [] end)
   + ["state \($state)"]
   + (if ($fence | length) == 0 then [] elif ($drained | length) == ($fence | length) then ["drained in \($drained | map([.send_marker_ms, .recv_marker_ms] | max) | range)"]
      else ["NOT drained\(of(($fence | length) - ($drained | length); $n))"] end)
   + (if ($blocked | length) > 0 then ["\($blocked[0]) BLOCKS\(of($blocked | length; $n))"] else [] end)) | join("; ") end;

([inputs | {file: input_filename, line: .}] | group_by(.file) | map({id: (.[0].file | base), run: (map(.line) | run)})
 | map({target: .id[0], case: .id[1], retry: .id[2], rep: .id[3], host: .id[4], run: .run})) as $runs |
($cases | split("\n") | map(select(length > 0) | split("=") | {name: .[0], label: .[1]})) as $cases |
"| failure | retry | host | fabric | fabric as Soft-RoCE | kernel |",
"|---|---|---|---|---|---|",
($cases[] as $c | ([$runs[] | select(.case == $c.name) | .retry] | unique[]) as $r | ("A", "B") as $h |
  [$runs[] | select(.case == $c.name and .retry == $r and .host == $h)] | select(length > 0) |
  def col($t): [.[] | select(.target == $t) | .run] | cell;
  "| \($c.label) | \($r) | \($h) | \(col("fabric")) | \(col("mimic")) | \(col("kernel")) |")
