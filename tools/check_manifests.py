#!/usr/bin/env python3
"""Checks Kubeflow manifests offline: against the CRD schemas with unknown fields refused and their CEL rules,
against the rules that the operators check in code only, and that nodes, slots, GPUs, ranks and grid agree.

usage: check_manifests.py FOLDER_OF_CRDS FILE.yaml...; exit 1 with a list of faults.
Needs PyYAML, jsonschema and cel-python. Kinds without a schema there (ConfigMap) are checked for their names only.
"""
import pathlib
import re
import sys

import jsonschema
import yaml

import cel_rules

RESERVED = {"OMPI_MCA_orte_default_hostfile", "OMPI_MCA_orte_keep_fqdn_hostnames", "OMPI_MCA_orte_set_default_slots",
            "OMPI_MCA_plm_rsh_args"}
LABEL = re.compile(r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$")
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
FRAMEWORK = "trainer.kubeflow.org/framework"


def strict(schema, key=""):
    """The schema with additionalProperties: false wherever fields are listed; OpenAPI's extras translated."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    if key == "metadata" and schema.get("type") == "object" and "properties" not in schema:
        return {"type": "object"}
    result = {}
    for name, value in schema.items():
        if name in ("properties", "patternProperties") and isinstance(value, dict):
            result[name] = {field: strict(item, field) for field, item in value.items()}
        else:
            result[name] = strict(value)
    if "properties" in result and isinstance(result["properties"], dict) and isinstance(result.get("type", "object"), str):
        if "additionalProperties" not in result and not schema.get("x-kubernetes-preserve-unknown-fields"):
            result["additionalProperties"] = False
    if schema.get("nullable") and isinstance(result.get("type"), str):
        result["type"] = [result["type"], "null"]
    return result


def load_schemas(folder):
    """{(apiVersion, kind): (strict schema, CEL rules)}"""
    schemas = {}
    for path in sorted(pathlib.Path(folder).glob("*.yaml")):
        crd = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        group, kind = crd["spec"]["group"], crd["spec"]["names"]["kind"]
        for version in crd["spec"]["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            schemas[f"{group}/{version['name']}", kind] = strict(schema), cel_rules.rules_of(schema)
    return schemas


def containers(template):
    return template.get("spec", {}).get("containers", [])


def pod_faults(where, template, ranks_here):
    """What every pod of ours keeps: no root, room in /dev/shm where ranks run, time to save."""
    spec = template.get("spec", {})
    security = spec.get("securityContext", {})
    if not (security.get("runAsNonRoot") and security.get("runAsUser") and security.get("fsGroup")):
        yield f"{where}: securityContext must set runAsNonRoot, runAsUser and fsGroup"
    if spec.get("terminationGracePeriodSeconds", 30) <= 30:
        yield f"{where}: terminationGracePeriodSeconds must leave time for a save"
    volumes = {v["name"]: v for v in spec.get("volumes", [])}
    for container in containers(template):
        mounts = container.get("volumeMounts", [])
        for mount in mounts:
            if mount["name"] not in volumes:
                yield f"{where}: volumeMount {mount['name']} has no volume"
        shm = [volumes.get(m["name"], {}) for m in mounts if m["mountPath"] == "/dev/shm"]
        if ranks_here and not any(v.get("emptyDir", {}).get("medium") == "Memory" for v in shm):
            yield f"{where}: /dev/shm must be an emptyDir of medium Memory"
        for variable in container.get("env", []):
            if variable["name"] in RESERVED or variable["name"] == "NVIDIA_VISIBLE_DEVICES":
                yield f"{where}: {variable['name']} belongs to the operator"


def sshd_faults(where, container):
    ports = [p["containerPort"] for p in container.get("ports", [])]
    probe = container.get("readinessProbe", {}).get("tcpSocket", {}).get("port")
    if ports != [2222] or probe != 2222:
        yield f"{where}: port 2222 must be declared and probed by readinessProbe.tcpSocket"
    if not container.get("command"):
        yield f"{where}: without a command the operator starts sshd as root on port 22"
    if "preStop" not in container.get("lifecycle", {}):
        yield f"{where}: a preStop hook must let the ranks save"


def option(words, name, otherwise=None):
    return words[words.index(name) + 1] if name in words else otherwise


def grid_faults(where, words, nodes, per_node, deck):
    """The words of launch.sh against the numbers of the manifest."""
    if (int(option(words, "--nodes", nodes)), int(option(words, "--per-node", per_node))) != (nodes, per_node):
        yield f"{where}: --nodes and --per-node differ from the manifest's {nodes} and {per_node}"
    grid = dict(re.findall(r"^(tp|cp|pp|dp) *= *(\d+)", deck, re.M))
    for word in words:
        match = re.match(r"--grid\.(tp|cp|pp|dp)=(\d+)$", word)
        if match:
            grid[match.group(1)] = match.group(2)
    size = 1
    for axis in ("tp", "cp", "pp", "dp"):
        size *= max(1, int(grid.get(axis, 1)))
    ranks = nodes * per_node
    if ranks % size or ("dp" in grid and int(grid["dp"]) and size != ranks):
        yield f"{where}: the grid {grid} does not fit {nodes} x {per_node} ranks"
    if int(grid.get("tp", 1)) > per_node or per_node % int(grid.get("tp", 1)):
        yield f"{where}: tp {grid.get('tp')} leaves its host of {per_node} ranks"


def gpus_of(resources):
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    if limits.get("nvidia.com/gpu") != requests.get("nvidia.com/gpu"):
        return -1
    return int(limits.get("nvidia.com/gpu", 0))


def deck_of(words, documents):
    """Text of the deck that the words name, from a ConfigMap of the same file or the folder inputs."""
    path = next((word for word in words if word.endswith(".ini")), "")
    for document in documents:
        if document.get("kind") == "ConfigMap" and pathlib.Path(path).name in document.get("data", {}):
            return document["data"][pathlib.Path(path).name]
    local = pathlib.Path(__file__).parent.parent / "inputs" / pathlib.Path(path).name
    return local.read_text() if path and local.exists() else ""


def mpijob_faults(job, documents):
    name, spec = job["metadata"]["name"], job["spec"]
    specs = spec.get("mpiReplicaSpecs", {})
    launcher, worker = specs.get("Launcher"), specs.get("Worker")
    if set(specs) - {"Launcher", "Worker"} or launcher is None or worker is None:
        yield "mpiReplicaSpecs must hold Launcher and Worker, spelt so"
        return
    replicas, slots = worker.get("replicas", 0), spec.get("slotsPerWorker", 1)
    if launcher.get("replicas", 1) != 1:
        yield "Launcher.replicas must be 1"
    if replicas < 1 or slots < 1:
        yield "Worker.replicas and slotsPerWorker must be at least 1"
    if not LABEL.match(f"{name}-worker-{replicas - 1}"):
        yield f"{name}-worker-{replicas - 1} is no DNS label of at most 63 characters"
    policy = spec.get("runPolicy", {})
    if policy.get("cleanPodPolicy") not in ("None", "Running", "All"):
        yield "runPolicy.cleanPodPolicy must be set: None, Running or All"
    if spec.get("mpiImplementation", "OpenMPI") not in ("OpenMPI", "Intel", "MPICH"):
        yield "mpiImplementation: OpenMPI, Intel or MPICH"
    if policy.get("managedBy", "kubeflow.org/mpi-operator") not in ("kubeflow.org/mpi-operator",
                                                                    "kueue.x-k8s.io/multikueue"):
        yield "runPolicy.managedBy: kubeflow.org/mpi-operator or kueue.x-k8s.io/multikueue"
    for field in ("backoffLimit", "ttlSecondsAfterFinished", "activeDeadlineSeconds"):
        if policy.get(field, 0) < 0:
            yield f"runPolicy.{field} must not be negative"
    if "backoffLimit" not in policy:
        yield "runPolicy.backoffLimit must be set: the default of 6 is nobody's decision"
    if spec.get("launcherCreationPolicy") != "WaitForWorkersReady":
        yield "launcherCreationPolicy must be WaitForWorkersReady: names resolve only when workers are Ready"
    for role, replica in (("Launcher", launcher), ("Worker", worker)):
        if replica.get("restartPolicy") not in ("Never", "OnFailure"):
            yield f"{role}.restartPolicy: Never or OnFailure"
        if not containers(replica["template"]):
            yield f"{role} has no container"
            return
        if "restartPolicy" in replica["template"]["spec"]:
            yield f"{role}: the pod's restartPolicy is overridden; leave it out"
        yield from pod_faults(role, replica["template"], role == "Worker")
        home = spec.get("sshAuthMountPath", "/root/.ssh")
        if replica["template"]["spec"].get("securityContext", {}).get("runAsUser") == 1000 and home != "/home/mpiuser/.ssh":
            yield "sshAuthMountPath must be /home/mpiuser/.ssh for uid 1000"
    box, first = containers(worker["template"])[0], containers(launcher["template"])[0]
    yield from sshd_faults("Worker", box)
    if box["image"] != first["image"]:
        yield "launcher and workers must run the same image"
    gpus = gpus_of(box.get("resources", {}))
    if gpus not in (0, slots):
        yield f"nvidia.com/gpu of a worker (requests and limits) must be slotsPerWorker ({slots})"
    if gpus_of(first.get("resources", {})) != 0:
        yield "the launcher runs no rank: it must ask for no GPU"
    words = first.get("args", [])
    yield from grid_faults("Launcher", words, replicas, slots, deck_of(words, documents))


def runtime_faults(runtime, documents):
    labels = runtime["metadata"].get("labels", {})
    if FRAMEWORK not in labels:
        yield f"label {FRAMEWORK} is missing: the SDK would not list the runtime"
    policy = runtime["spec"].get("mlPolicy", {})
    if len({"torch", "mpi", "jax", "xgboost", "flux"} & set(policy)) > 1:
        yield "mlPolicy may hold one framework"
    mpi = policy.get("mpi")
    if mpi is not None:
        if mpi.get("mpiImplementation", "") not in ("", "OpenMPI"):
            yield "mlPolicy.mpi.mpiImplementation: OpenMPI"
        if policy.get("numNodes", 1) != 1:
            yield "mlPolicy.numNodes above 1 multiplies the launcher of an MPI runtime"
        if mpi.get("numProcPerNode", 1) < 1:
            yield "numProcPerNode must be at least 1"
    jobs = {job["name"]: job for job in runtime["spec"]["template"]["spec"]["replicatedJobs"]}
    labelled = [name for name, job in jobs.items() if job["template"].get("metadata", {}).get("labels", {}).get(STEP) == "trainer"]
    want = ["launcher"] if mpi is not None else ["node"]
    if labelled != want or (mpi is not None and "node" not in jobs):
        yield f"label {STEP}: trainer must be on {want[0]} alone (on workers a command would replace sshd)"
    images = set()
    for name, job in jobs.items():
        if job.get("replicas", 1) != 1:
            yield f"replicated job {name}: replicas must be 1"
        template = job["template"]["spec"]["template"]
        box = [c for c in containers(template) if c["name"] == "node"]
        if len(box) != 1:
            yield f"replicated job {name}: the main container must be called node"
            continue
        images.add(box[0]["image"])
        yield from pod_faults(name, template, True)
        if mpi is not None and name == "node":
            yield from sshd_faults(name, box[0])
        for before in job.get("dependsOn", []):
            if before["name"] not in jobs:
                yield f"{name} depends on {before['name']}, which there is not"
        if name == "launcher" and [d for d in job.get("dependsOn", []) if d == {"name": "node", "status": "Ready"}] == []:
            yield "launcher must depend on node being Ready"
    if len(images) > 1:
        yield f"launcher and workers must run the same image: {sorted(images)}"


def trainjob_faults(job, documents, runtimes):
    name, spec = job["metadata"]["name"], job["spec"]
    if not LABEL.match(name):
        yield f"{name} is no RFC 1035 label of at most 63 characters"
    runtime = runtimes.get(spec["runtimeRef"]["name"])
    if runtime is None:
        yield f"the runtime {spec['runtimeRef']['name']} is in none of the files"
        return
    trainer = spec.get("trainer", {})
    for variable in trainer.get("env", []):
        if variable["name"] in RESERVED:
            yield f"env {variable['name']} is reserved"
    mpi = runtime["spec"].get("mlPolicy", {}).get("mpi", {})
    nodes = trainer.get("numNodes", 1)
    if mpi.get("runLauncherAsNode") and nodes < 2:
        yield "numNodes 1 with runLauncherAsNode starts two hosts: use trireme-single-node"
    if "image" in trainer:
        yield "image reaches the launcher only: set it in the runtime"
    gpus = gpus_of(trainer.get("resourcesPerNode", {}))
    processes = trainer.get("numProcPerNode", gpus if gpus > 1 else mpi.get("numProcPerNode", 1))
    if gpus not in (0, processes):
        yield f"nvidia.com/gpu (requests and limits) must be the {processes} processes of a node"
    words = trainer.get("args", [])
    yield from grid_faults("trainer", words, nodes, processes, deck_of(words, documents))
    names = {j["name"] for j in runtime["spec"]["template"]["spec"]["replicatedJobs"]}
    for patch in spec.get("runtimePatches", []):
        for target in patch.get("trainingRuntimeSpec", {}).get("template", {}).get("spec", {}).get("replicatedJobs", []):
            if target["name"] not in names:
                yield f"a patch names the job {target['name']}, which the runtime lacks"


def faults_of(document, documents, runtimes, schemas):
    kind, version = document.get("kind", "?"), document.get("apiVersion", "?")
    if "name" not in document.get("metadata", {}):
        yield "metadata.name is missing"
        return
    if (version, kind) not in schemas:
        if version != "v1":
            yield f"no schema for {version} {kind}"
        return
    schema, rules = schemas[version, kind]
    found = list(jsonschema.Draft7Validator(schema).iter_errors(document))
    for error in found:
        yield f"{'.'.join(str(p) for p in error.absolute_path)}: {error.message[:300]}"
    if found:
        return
    yield from cel_rules.broken(document, rules)
    if kind == "MPIJob":
        yield from mpijob_faults(document, documents)
    elif kind in ("ClusterTrainingRuntime", "TrainingRuntime"):
        yield from runtime_faults(document, documents)
    elif kind == "TrainJob":
        yield from trainjob_faults(document, documents, runtimes)


def check(texts, schemas):
    """Faults, one line each, of manifests {name: text}."""
    parsed = {name: [d for d in yaml.safe_load_all(text) if d] for name, text in texts.items()}
    runtimes = {d["metadata"]["name"]: d for docs in parsed.values() for d in docs if d.get("kind", "").endswith("TrainingRuntime")}
    return [f"{name}: {d.get('kind')} {d.get('metadata', {}).get('name')}: {fault}" for name, docs in parsed.items()
            for d in docs for fault in faults_of(d, docs, runtimes, schemas)]


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    faults = check({path: pathlib.Path(path).read_text() for path in sys.argv[2:]}, load_schemas(sys.argv[1]))
    print("\n".join(faults) if faults else f"{len(sys.argv) - 2} files: no fault")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
