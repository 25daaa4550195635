# A schema (draft 2020-12, for schema.jq) of the manifests in share/kubernetes, from Kubernetes' API reference: as much of it as they use, so that a key that is
# misspelt, at the wrong place or of another type is a fault.
#   jq -n -f kubernetes.jq
def str: {type: "string"};
def strs: {type: "array", items: str, minItems: 1};
def name: {type: "string", pattern: "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"};
def obj($properties; $required): {type: "object", required: $required, properties: $properties};
def labels: {type: "object", additionalProperties: {type: "string", pattern: "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"}};
def quantities: {type: "object", additionalProperties: {type: ["string", "integer"], pattern: "^[0-9]+(m|Ki|Mi|Gi)?$", minimum: 0}};
def path: {type: "string", pattern: "^/[^:]*$"};
def security:
  obj({runAsUser: {type: "integer", minimum: 0}, allowPrivilegeEscalation: {type: "boolean"}, readOnlyRootFilesystem: {type: "boolean"},
       capabilities: obj({add: {type: "array", items: {enum: ["DAC_OVERRIDE", "IPC_LOCK"]}}, drop: {type: "array", items: {const: "ALL"}}}; [])}; ["capabilities"]);
def container:
  obj({name: name, image: {type: "string", pattern: "^[a-z0-9.]+/[a-z0-9-]+:[a-z0-9.]+$"}, command: strs, args: strs,
       env: {type: "array", items: obj({name: {type: "string", pattern: "^[A-Z][A-Z0-9_]*$"}, value: str}; ["name", "value"])},
       resources: obj({requests: quantities, limits: quantities}; []), securityContext: security,
       volumeMounts: {type: "array", items: obj({name: name, mountPath: path, readOnly: {type: "boolean"}}; ["name", "mountPath"])}};
      ["name", "image", "command", "securityContext", "volumeMounts"]);
def volume:
  obj({name: name, hostPath: obj({path: path, type: {enum: ["Directory", "DirectoryOrCreate"]}}; ["path", "type"]),
       emptyDir: obj({medium: {const: "Memory"}, sizeLimit: {type: "string", pattern: "^[0-9]+(Mi|Gi)$"}}; [])}; ["name"]);
def pod:
  obj({automountServiceAccountToken: {type: "boolean"}, terminationGracePeriodSeconds: {type: "integer", minimum: 1},
       restartPolicy: {enum: ["Always", "OnFailure", "Never"]}, hostNetwork: {type: "boolean"}, dnsPolicy: {enum: ["ClusterFirst", "ClusterFirstWithHostNet"]},
       tolerations: {type: "array", items: obj({operator: {enum: ["Exists", "Equal"]}, key: str, value: str, effect: str}; ["operator"])},
       initContainers: {type: "array", items: container}, containers: {type: "array", items: container, minItems: 1},
       volumes: {type: "array", items: volume}}; ["containers", "volumes"]);
def metadata($required): obj({name: name, labels: labels}; $required);
{
  DaemonSet:
    obj({apiVersion: {const: "apps/v1"}, kind: {const: "DaemonSet"}, metadata: metadata(["name"]),
         spec: obj({selector: obj({matchLabels: labels}; ["matchLabels"]), updateStrategy: obj({type: {enum: ["RollingUpdate", "OnDelete"]}}; ["type"]),
                    template: obj({metadata: metadata(["labels"]), spec: pod}; ["metadata", "spec"])}; ["selector", "template"])};
        ["apiVersion", "kind", "metadata", "spec"]),
  Pod: obj({apiVersion: {const: "v1"}, kind: {const: "Pod"}, metadata: metadata(["name"]), spec: pod}; ["apiVersion", "kind", "metadata", "spec"])
}
