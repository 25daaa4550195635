# What a schema does not see of a DaemonSet and a Pod beside it.
#   jq -rs --argjson options '["NCCL_..."]' -f manifests.jq DAEMONSET POD      a line per fault
def spec: .spec.template.spec // .spec;
def containers: spec | (.initContainers // []) + .containers;
def volumes: spec.volumes;
# Where a path of a container is on the host; null: nowhere.
def on_host($c; $path):
  . as $doc
  | first($c.volumeMounts[] | . as $m | select($path == $m.mountPath or ($path | startswith($m.mountPath + "/")))
          | first($doc | volumes[] | select(.name == $m.name)) | select(.hostPath) | .hostPath.path + ($path | ltrimstr($m.mountPath))) // null;
def faults_of($doc):
  $doc
  | (volumes | group_by(.name)[] | select(length > 1) | "volume \(.[0].name) twice"),
    (volumes[] | select([.hostPath, .emptyDir | values] | length != 1) | "volume \(.name) is of no kind, or of two"),
    (containers[] as $c
     | ($c.volumeMounts[] | .name as $n | select(any($doc | volumes[]; .name == $n) | not) | "\($c.name) mounts \($n), which is no volume"),
       ($c.volumeMounts | group_by(.mountPath)[] | select(length > 1) | "\($c.name) mounts twice at \(.[0].mountPath)")),
    (volumes[] | .name as $n | select(any($doc | containers[].volumeMounts[]; .name == $n) | not) | "nobody mounts \($n)");
def mount($path): first(.volumeMounts[] | select(.mountPath == $path)) // null;
.[0] as $set | .[1] as $pod
| faults_of($set), faults_of($pod),
  ($set.spec | select([.selector.matchLabels | to_entries[]] - [.template.metadata.labels | to_entries[]] != []) | "the selector selects other pods"),
  ($pod | .spec.containers[0] as $c
   | ($c.env[] | select(.name == "NCCL_NET_PLUGIN") | .value) as $plugin
   | ($set.spec.template.spec.initContainers[0] as $i | $set | on_host($i; "/host-lib/libnccl-net-r2.so")) as $installed
   | (select(on_host($c; $plugin) != $installed) | "the pod's plugin is \(on_host($c; $plugin)) of the host, and is installed as \($installed)"),
     (select($c | mount("/run/nccl-net-r2") | .readOnly // false) | "the pod cannot write into the run directory"),
     (select(on_host($c; "/run/nccl-net-r2") != "/run/nccl-net-r2") | "the pod's run directory is not the host's"),
     ($c.env[] | .name as $n | select($options | index($n) == null) | "\($n) is no option"),
     (select(any($c.env[]; . == {name: "NCCL_NET", value: "R2"}) | not) | "NCCL_NET is not R2"),
     (select($c.securityContext.capabilities.add | index("IPC_LOCK") == null) | "memory cannot be locked")),
  ($set.spec.template.spec | (.initContainers + .containers)[] as $c
   | ($set | on_host($c; "/run/nccl-net-r2")) | select(. != "/run/nccl-net-r2") | "\($c.name): its run directory is not the host's"),
  ([$set | containers[].image] | unique | select(length > 1) | "two images: \(join(", "))")
