# bench.json to the table of tests/bench/README.md; with --arg form readme to the short one of README.md.
# A row: [in README, what, value, what stands beside it, section that makes it]
def r(d): (. * pow(10; d) | round) / pow(10; d);
def kib: . / 1024 | r(1) | "\(.) KiB";
def size: if . >= 1048576 then "\(. / 1048576) MiB" elif . >= 1024 then "\(. / 1024) KiB" else "\(.) B" end;
def ms: r(2) | "\(.) ms";
def us: r(1) | "\(.) us";
def spread: "median \(.median_ms | ms), p99 \(.p99_ms | ms) over \(.n)";
def vspread: "median \(.median_us | us), p99 \(.p99_us | us) over \(.n)";
def ends: "sender \(.sender.send_wrs | r(2)) WR, \(.sender.cqes | r(2)) CQE; receiver \(.receiver.recv_wrs | r(2)) receives, \(.receiver.cts_wrs | r(2)) CTS writes, \(.receiver.ack_wrs | r(2)) acks alone, \(.receiver.cqes | r(2)) CQE";
def queues: "\(.qps | r(1)) QP, \(.send_slots | r(1)) send and \(.recv_slots | r(1)) receive slots, \(.cq_entries | r(1)) CQ entries, \(.mrs | r(1)) MR";
def paths: "\(.) path\(if . > 1 then "s" else "" end)";

# rows of one kind that read alike become one
def cost_rows: [.cost.rows[] | {traffic, bytes, text: ends}] | group_by([.traffic, .text]) | sort_by(.[0].traffic != "stream", .[0].bytes) | .[] |
  ([.[].bytes] | sort) as $b |
  [(.[0].traffic == "stream" and ($b | index(131072)) != null),
   "per message, \(.[0].traffic), \($b[0] | size)\(if ($b | length) > 1 then " to \($b[-1] | size)" else "" end)", .[0].text,
   (if .[0].traffic == "stream" then "NCCL's IB transport: 1 WR, 1 CQE; 1 receive, 1 CTS write, 1 CQE"
    elif (.[0].traffic | test("burst")) then "nothing left for the last acks to ride on"
    else "one NIC of four lost; from 64 KiB a message is cut" end), "cost"];

def rows:
  cost_rows,
  (.stall.connection |
    [true, "stall of a connection, port down", (.stall | spread), "no fault: \(.no_fault | spread)", "stall"],
    [false, "the same, best quarter", "below \(.stall.p25_ms | ms)", "no fault: below \(.no_fault.p25_ms | ms)", "stall"]),
  (.stall.collective |
    [false, "slowest connection of all_reduce, 7 of 8 NICs lost one by one", (.stall | spread), "no fault: \(.no_fault | spread)", "stall"]),
  (.stall.virtual.rows[] |
    [(.handover_us == 30), "stall in virtual time, \(.handover_us) us per hand-over and OOB message", (.stall | vspread),
     "first data on a survivor: \(.first_data_on_a_survivor | vspread); no fault: median \(.no_fault.median_us | us)", "stall"]),
  (.bandwidth[] |
    [true, "\(.operation), 1 of \(.nics) NICs lost", "\(.ratio * 100 | r(1)) % of before", "(N-1)/N: \((.nics - 1) / .nics * 100 | r(1)) %", "bandwidth"]),
  (.memory |
    [true, "heap of a connection with 8 paths", "sender \(.sender.heap_8_paths | kib), receiver \(.receiver.heap_8_paths | kib)",
     "with one path: \(.sender.heap_1_path | kib), \(.receiver.heap_1_path | kib)", "memory"],
    [true, "of which each sleeping path", "sender \(.sender.heap_per_sleeping_path | kib), receiver \(.receiver.heap_per_sleeping_path | kib)", "96 KiB for each NIC beside them, for control messages of all connections", "memory"],
    [false, "asked of the NIC for each path, sender", (.sender.per_sleeping_path | queues), "", "memory"],
    [false, "asked of the NIC for each path, receiver", (.receiver.per_sleeping_path | queues), "with its lane for flush", "memory"]),
  (.many[] |
    [(.active < .connections), "a port goes down under \(.connections) connections, \(.active) with \(.message_bytes | size) under way each",
     "these done after \(.first_active_ms | ms) to \(.last_active_ms | ms), all settled after \(.all_settled_ms | ms)",
     "virtual time, \(.job_us) us per verbs job; \(.messages_sent | add) messages, \(.bytes_sent | add | kib)", "many"]),
  (.setup |
    [true, "set-up of a connection, \(.nics | paths)", "median \(.one.median_ms | ms)", "the first between two processes: \(.first_ms | ms)", "setup"],
    [true, "set-up of 64 at once", "median \(.of_64.median_ms | ms)", "", "setup"]),
  (.load // [] | .[] |
    [false, "\(.connections) connections over \(.nics) NICs: set-up of all", (.setup_ms | ms), "", "load"],
    [false, "the same, idle", "\(.idle_cpu_ms_per_s | map(r(2)) | max) ms of CPU per s", "the larger of both processes", "load"],
    [false, "the same, all of them busy", "\(.barriers_per_s | r(0)) calls of membarrier per s", "", "load"],
    [false, "the same, a port goes down", "median \(.port_down.median_ms | ms), p99 \(.port_down.p99_ms | ms)", "no fault: median \(.no_fault.median_ms | ms), p99 \(.no_fault.p99_ms | ms)", "load"]),
  (if .calls | type == "array" then .calls[] |
    [(.nics == 8), "instructions per message of \(.bytes | size), \(.nics | paths)",
     "isend and its test \(.send), irecv and its test \(.recv)", "a test that finds nothing: \(.idle_send_test), \(.idle_recv_test); an isend without a receive: \(.no_receive)", "calls"]
   else [false, "instructions per message", "not measured: \(.calls.skipped)", "", "calls"] end),
  (.fill | [false, "weights of \(.connections) connections to \(.hosts) hosts over \(.nics) NICs", "\(.us) us of CPU", "each connection by itself: \(.single_us) us; least within \((1 - .of_bound) * 1000 | round / 10) % of the bound", "fill"], [false, "the same from facts to weights, one NIC lost", "\(.plan_us) us of CPU", "\(.connections) different connections: \(.plan_single_us) us", "fill"], [false, "the flow that gets least, \(.worlds) random worlds", "short of the bound: mean \(.lp_loss * 1000 | round / 10) %, at most \(.lp_loss_worst * 1000 | round / 10) %", "progressive filling alone: \(.filling_loss * 1000 | round / 10) %, \(.filling_loss_worst * 1000 | round / 10) %", "fill"]),
  (if .fabric | type == "array" then .fabric[] |
    [false, "rated link of the fabric: \(.what)", (if .of_rate then "\(.of_rate * 100 | r(1)) % of its rate" else "\(.ratio | r(2))" end), "the bound: tests/fabric/shm/README.md", "fabric"]
   else empty end);

($ARGS.named.form // "doc") as $form |
"| what | value | beside it | section |",
"|---|---|---|---|",
(rows | select($form == "doc" or .[0]) | "| \(.[1]) | \(.[2]) | \(.[3]) | \(.[4]) |")
