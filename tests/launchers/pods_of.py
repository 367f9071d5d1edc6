#!/usr/bin/env python3
"""What the operators make of a manifest, as shell assignments: pods, host file, commands, environment.

usage: pods_of.py FILE.yaml NAMESPACE       (an MPIJob)
       pods_of.py FILE.yaml RUNTIMES.yaml   (a TrainJob and the file with its runtime)
Names, host file and variables follow mpi-operator 0.8 and Kubeflow Trainer 2.3.
"""
import pathlib
import shlex
import sys

import yaml


def documents(path):
    return [d for d in yaml.safe_load_all(pathlib.Path(path).read_text()) if d]


def launcher_variables(slots):
    return {"OMPI_MCA_orte_keep_fqdn_hostnames": "true", "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
            "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10", "OMPI_MCA_orte_set_default_slots": str(slots)}


def variables_of(container):
    return {v["name"]: v["value"] for v in container.get("env", [])}


def shared_memory(spec):
    for volume in spec.get("volumes", []):
        if volume.get("emptyDir", {}).get("medium") == "Memory":
            return volume["emptyDir"]["sizeLimit"].replace("Gi", "g")
    return "64m"


def mpijob(job, namespace):
    name, spec = job["metadata"]["name"], job["spec"]
    roles = {role: spec["mpiReplicaSpecs"][role]["template"]["spec"] for role in ("Launcher", "Worker")}
    launcher, worker = (roles[role]["containers"][0] for role in ("Launcher", "Worker"))
    slots = spec.get("slotsPerWorker", 1)
    workers = [f"{name}-worker-{i}" for i in range(spec["mpiReplicaSpecs"]["Worker"]["replicas"])]
    env = {"K_MPI_JOB_ROLE": "launcher", **launcher_variables(slots), "NVIDIA_VISIBLE_DEVICES": "",
           "NVIDIA_DRIVER_CAPABILITIES": "", **variables_of(launcher)}
    return {"launcher": f"{name}-launcher", "workers": workers, "names": [f"{w}.{name}.{namespace}.svc" for w in workers],
            "launcher_name": f"{name}-launcher", "hostfile": [f"{w}.{name}.{namespace}.svc slots={slots}" for w in workers],
            "launcher_env": env, "worker_env": {"K_MPI_JOB_ROLE": "worker", **variables_of(worker)},
            "launcher_command": launcher["command"] + launcher.get("args", []),
            "worker_command": worker["command"] + worker.get("args", []), "ssh_path": spec["sshAuthMountPath"],
            "user": roles["Worker"]["securityContext"]["runAsUser"], "worker_shm": shared_memory(roles["Worker"]),
            "launcher_shm": shared_memory(roles["Launcher"])}


def trainjob(job, runtime):
    name, trainer, mpi = job["metadata"]["name"], job["spec"]["trainer"], runtime["spec"]["mlPolicy"]["mpi"]
    jobs = {j["name"]: j["template"]["spec"]["template"]["spec"] for j in runtime["spec"]["template"]["spec"]["replicatedJobs"]}
    launcher, worker = (next(c for c in jobs[j]["containers"] if c["name"] == "node") for j in ("launcher", "node"))
    slots = trainer.get("numProcPerNode", mpi["numProcPerNode"])
    nodes = trainer["numNodes"]
    pods = max(nodes - 1, 1) if mpi["runLauncherAsNode"] else nodes
    workers = [f"{name}-node-0-{i}" for i in range(pods)]
    head = [f"{name}-launcher-0-0"] if mpi["runLauncherAsNode"] else []
    more = variables_of(trainer)
    return {"launcher": f"{name}-launcher-0-0", "launcher_name": f"{name}-launcher-0-0.{name}", "workers": workers,
            "names": [f"{w}.{name}" for w in workers], "hostfile": [f"{h}.{name} slots={slots}" for h in head + workers],
            "launcher_env": {**launcher_variables(slots), **variables_of(launcher), **more},
            "worker_env": {**variables_of(worker), **more},
            "launcher_command": trainer["command"] + trainer.get("args", []), "worker_command": worker["command"],
            "ssh_path": mpi["sshAuthMountPath"], "user": jobs["node"]["securityContext"]["runAsUser"],
            "worker_shm": shared_memory(jobs["node"]), "launcher_shm": shared_memory(jobs["launcher"])}


def main():
    docs = documents(sys.argv[1])
    job = next(d for d in docs if d["kind"] in ("MPIJob", "TrainJob"))
    if job["kind"] == "MPIJob":
        plan = mpijob(job, sys.argv[2])
    else:
        wanted = job["spec"]["runtimeRef"]["name"]
        plan = trainjob(job, next(d for d in documents(sys.argv[2]) if d["metadata"]["name"] == wanted))
    for key, value in plan.items():
        if isinstance(value, dict):
            value = [f"{k}={v}" for k, v in value.items()]
        text = "(" + " ".join(shlex.quote(str(v)) for v in value) + ")" if isinstance(value, list) else shlex.quote(str(value))
        print(f"plan_{key}={text}")
    for document in docs:
        if document["kind"] == "ConfigMap":
            folder = pathlib.Path(sys.argv[3])
            for name, text in document["data"].items():
                (folder / name).write_text(text)


main()
