# bench-rings.json to the table of tests/bench/README.md.
def percent: . * 1000 | round / 10 | "\(.) %";
def spread($value; $least; $most): "\($value | percent) (\($least | percent) to \($most | percent))";

"| rings; queue pairs of a connection | `NCCL_R2_WAYS` | NICs alone | all \(.uplinks) uplinks | one lost | after by before |",
"|---|---|---|---|---|---|",
(.rows[] |
 "| \(.rings); \(.qps) | \(.ways) | \(spread(.nics; .nics_least; .nics_most)) | \(spread(.healthy; .healthy_least; .healthy_most)) | \(spread(.lost; .lost_least; .lost_most)) | \(.ratio | percent) |")
