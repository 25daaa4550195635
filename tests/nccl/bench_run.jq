# The figures of one run from r2_nccl's JSON. Rates are means over time: before, until the first fault; after, of the last two seconds.
def mean(f): [.r2.timeline.points[]? | select(f)] | if length == 0 then null else (map((.busbw // 0) * (.timed_share // 0)) | add) / ([(map(.timed_share // 0) | add), 1e-9] | max) end;
[$fired | split("\n")[] | select(. != "") | {at: (split(" ")[0] | tonumber / 1e9), port: (split(" ")[1:] | join(" "))}] as $hits |
(.r2.faults[0].fired_s // 1e9) as $first | ([.r2.timeline.points[]?.t_s] | max // 0) as $stop |
mean(.t_s < $first and .t_s >= 0.3) as $before | mean(.t_s >= $stop - 2) as $after |
{case: $case, column: $column, rc: $rc, fired: ($hits | length), ports: [$hits[].port], drops: $drops, error: $error,
 error_s: (if $error_at == "" or $hits == [] then null else (($error_at | tonumber) - $hits[0].at) * 1000 | round / 1000 end),
 checked: .r2.checked_operations, wrong: .r2.wrong, busbw: .r2.busbw.before,
 stall_ms: .r2.all_stopped.ms, after: (if $faults > 0 and $after and ($before // 0) > 0 then $after / $before else null end)}
