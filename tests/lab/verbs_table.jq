# Observations of verbs_watch, one file per run and host (TARGET.CASE.RETRY.REP.HOST), to the table of tests/lab/fabric-vs-kernel.md.
# A cell lists what was seen in the order of the median time: what, ms since the failure (lowest to highest over the repetitions), and in how
# many of the repetitions where not in all. The failure is not later than what is seen, not earlier than the command that makes it or than the
# last message that came through: its time is the later of these two.
def base: split("/")[-1] | split(".");
def num: if . >= 100 or . <= -100 then round else (. * 10 | round) / 10 end;
def range: sort | (.[0] | num) as $a | (.[-1] | num) as $b | if $a == $b then "\($a)" else "\($a)..\($b)" end;
def median: sort | .[length / 2 | floor];
def of($n; $all): if $n == $all then "" else " (\($n) of \($all))" end;

def one: first(.[]) // {};
# One run of one host, from its lines
def run: . as $l |
  ([$l[] | select(.run)] | one) as $about |
  { seen: [$l[] | select(.seen)], ends: [$l[] | select(.end)], blocked: [$l[] | select(.blocked) | .blocked],
    flows: ([$l[] | select(.flow and .posted > 0)] | map(. + {on: (.last_ok_ms > $about.observe_ms - 400), busy: ($about.pace_ms == 0)})) };

def shown: select((.what | test("FLUSH")) or .seen == "qp" or .seen == "progress" or .what == "COMM_EST" | not);
def name: if .seen == "wc" then .what elif .seen == "port" then "port \(.what)" elif .seen == "gid" then "GID \(.what)"
          elif .seen == "device" then "device \(.what)" elif .seen == "peer" then "TCP closed" else .what end;
def elapsed: [.t_ms, .since_ok_ms] | min;

# What a run says as a whole: [order, words, number or null]
def verdicts:
  ([.flows[] | select(.flow == "send" and .ok > 0)] | one) as $s | ([.flows[] | select(.flow == "recv" and .ok > 0)] | one) as $r |
  (if .seen | any(.what | test("FLUSH")) then [0, "rest flushed", null] else empty end),
  (if ($s.on and $r.on) or ($s.on and $r == {}) or ($r.on and $s == {}) then [1, "goes on, longest gap", ([$s.gap_ms, $r.gap_ms] | max)]
   elif $s.on then [1, "its writes go on, longest gap", $s.gap_ms] elif $r.on then [1, "receives go on, longest gap", $r.gap_ms] else empty end),
  (if ($s.on // false) and $s.busy then [2, "rate after/before %", ($s.after_per_s * 100 / $s.before_per_s)] else empty end),
  (.ends[] | select(.end == "state") | [3, "state \(if .query_qp == "ok" then .state else .query_qp end)", null]),
  (.ends[] | select(.end == "fence") |
    if .modify_qp != "ok" then [4, "to ERR: \(.modify_qp)", null]
    elif .send_marker_ms < 0 or .recv_marker_ms < 0 then [4, "fence never drained", null]
    elif .again == "" then [4, "fence", ([.send_marker_ms, .recv_marker_ms] | max)]
    else [4, "fence with two ERR", .send_marker_ms] end),
  (.blocked[] | [5, "\(.) BLOCKS", null]);

def cell: length as $n | if $n == 0 then "" else
  ([.[].seen[] | shown | {name: name, t: elapsed}] | group_by(.name) |
    map({t: (map(.t) | median), text: "\(.[0].name) \(map(.t) | range)\(of(length; $n))"}) | sort_by(.t) | map(.text))
  + ([.[] | verdicts] | group_by([.[0], .[1]]) |
     map("\(.[0][1])\(if .[0][2] == null then "" else " \(map(.[2]) | range)" end)\(of(length; $n))")) | join("; ") end;

([inputs | {file: input_filename, line: .}] | group_by(.file) | map({id: (.[0].file | base), run: (map(.line) | run)})
 | map({target: .id[0], case: .id[1], retry: .id[2], rep: .id[3], host: .id[4], run: .run})) as $runs |
($cases | split("\n") | map(select(length > 0) | split("=") | {name: .[0], label: .[1]})) as $cases |
"| failure | retry | host | fabric | fabric as Soft-RoCE | kernel |",
"|---|---|---|---|---|---|",
($cases[] as $c | ([$runs[] | select(.case == $c.name) | .retry] | unique[]) as $r | ("A", "B") as $h |
  [$runs[] | select(.case == $c.name and .retry == $r and .host == $h and (.run | .ends + .blocked | length > 0))] | select(length > 0) |
  def col($t): [.[] | select(.target == $t) | .run] | cell;
  "| \($c.label) | \($r) | \($h) | \(col("fabric")) | \(col("mimic")) | \(col("kernel")) |")
