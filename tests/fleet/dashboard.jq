# A Grafana dashboard: what Grafana needs of it is there, panels do not overlap, and every expression speaks of metrics in $printed alone.
#   jq -r --argjson printed '["r2_..."]' -f dashboard.jq DASHBOARD      a line per fault
#   ... --arg rules yes: its expressions as recording rules, for promtool check rules
def exprs: [.panels[] | .title as $t | .targets[]? | {$t, expr}] + [.annotations.list[]? | {t: .name, expr}];
def metrics: [scan("r2_[a-z_]+")];
def base: sub("_(bucket|sum|count)$"; "");
# of two panels whether they have a cell in common
def overlap($a; $b): $a.x < $b.x + $b.w and $b.x < $a.x + $a.w and $a.y < $b.y + $b.h and $b.y < $a.y + $a.h;
def needed: {title: "string", uid: "string", schemaVersion: "number", panels: "array", templating: "object", annotations: "object", time: "object"};
def types: ["row", "stat", "table", "timeseries", "state-timeline"];
def faults:
  . as $d
  | (needed | to_entries[] | select(($d[.key] | type) != .value) | "\(.key) is no \(.value)"),
    (.panels | group_by(.id)[] | select(length > 1) | "id \(.[0].id) twice"),
    (.panels[]
     | (select((.id | type) != "number" or (.title | length) == 0) | "a panel without id or title"),
       (select(.type as $t | types | index($t) == null) | "\(.title): type \(.type)"),
       (.gridPos as $g | select(($g | [.x, .y, .w, .h] | map(type == "number") | all | not) or $g.x < 0 or $g.x + $g.w > 24 or $g.h < 1) | "\(.title): gridPos"),
       (select(.type != "row") | select((.targets | length) == 0 or .fieldConfig.defaults.unit == null) | "\(.title): no target or unit"),
       (select(.type != "row") | select([.targets[].refId] | length != (unique | length)) | "\(.title): a refId twice"),
       (.targets[]? | select(.datasource.type != "prometheus" or (.expr | length) == 0) | "a target without expression or source")),
    (.panels as $p | range($p | length) as $i | range($i) as $k | select(overlap($p[$i].gridPos; $p[$k].gridPos)) | "\($p[$i].title) lies on \($p[$k].title)"),
    (exprs[] | .t as $t | .expr | metrics[] | select(. as $m | $printed | index($m) == null and index($m | base) == null) | "\($t): nothing prints \(.)"),
    (exprs[] | select(.expr | metrics == []) | "\(.t): no metric"),
    (.templating.list[] | select(.type == "query") | .query.query | metrics[] | select(. as $m | $printed | index($m) == null) | "a variable: nothing prints \(.)");
if $rules == "yes" then
  "groups:", "  - name: dashboard", "    rules:",
  (exprs | to_entries[] | "      - {record: \"e:\(.key)\", expr: \(.value.expr | gsub("\\$__rate_interval"; "5m") | @json)}")
else faults end
