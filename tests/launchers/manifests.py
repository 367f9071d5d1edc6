#!/usr/bin/env python3
"""The shipped manifests have no fault, and each of many planted ones is found.

usage: manifests.py FOLDER_OF_CRDS
"""
import pathlib
import sys

root = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(root / "tools"))
import check_manifests  # noqa: E402

MPI, CPU, RUNTIME, TRAIN = "mpijob.yaml", "mpijob-cpu.yaml", "runtime.yaml", "trainjob.yaml"
# file, text, replacement (first occurrence; * every one), words of the fault
PLANTED = [
    (MPI, "slotsPerWorker: 8", "slotsPerWorkers: 8", "slotsPerWorkers"),
    (MPI, "apiVersion: kubeflow.org/v2beta1", "apiVersion: kubeflow.org/v1", "no schema for kubeflow.org/v1 MPIJob"),
    (MPI, "readinessProbe:", "readynessProbe:", "readynessProbe"),
    (MPI, "emptyDir: {medium: Memory", "emptyDir: {medum: Memory", "medum"),
    (MPI, "slotsPerWorker: 8", "slotsPerWorker: 4", "must be slotsPerWorker (4)"),
    (MPI, "slotsPerWorker: 8", "slotsPerWorker: 4", "--nodes and --per-node differ"),
    (MPI, 'replicas: 2', 'replicas: 3', "--nodes and --per-node differ"),
    (MPI, "    Worker:", "    worker:", "Launcher and Worker"),
    (MPI, "  name: trireme\n", "  name: 1trireme\n", "no DNS label"),
    (MPI, "  name: trireme\n", "  name: " + "t" * 60 + "\n", "no DNS label"),
    (MPI, "restartPolicy: OnFailure  # exit", "restartPolicy: Always  # exit", "Never or OnFailure"),
    (MPI, "cleanPodPolicy: Running", "cleanPodPolicy: Sometimes", "cleanPodPolicy"),
    (MPI, "mpiImplementation: OpenMPI", "mpiImplementation: LAM", "mpiImplementation"),
    (MPI, "    backoffLimit: 10 ", "    backoffLimit: -1 ", "must not be negative"),
    (MPI, "launcherCreationPolicy: WaitForWorkersReady", "launcherCreationPolicy: AtStartup", "WaitForWorkersReady"),
    (MPI, "sshAuthMountPath: /home/mpiuser/.ssh", "sshAuthMountPath: /root/.ssh", "/home/mpiuser/.ssh"),
    (MPI, "image: trireme:cuda", "image: other:cuda", "same image"),
    (MPI, "      replicas: 1", "      replicas: 2", "Launcher.replicas must be 1"),
    (MPI, "mountPath: /dev/shm", "mountPath: /dev/shmem", "/dev/shm must be"),
    (MPI, "--grid.tp=8", "--grid.tp=16", "leaves its host"),
    (MPI, "name: NCCL_SOCKET_IFNAME", "name: NVIDIA_VISIBLE_DEVICES", "belongs to the operator"),
    (MPI, "terminationGracePeriodSeconds: 600", "terminationGracePeriodSeconds: 30", "time for a save"),
    (MPI, "runAsNonRoot: true, ", "", "runAsNonRoot"),
    (CPU, "tp = 2", "tp = 3", "does not fit"),
    (CPU, "containerPort: 2222", "containerPort: 22", "port 2222"),
    (RUNTIME, "trainer.kubeflow.org/framework", "framework", "would not list"),
    (RUNTIME, "trainjob-ancestor-step: trainer", "trainjob-ancestor-step: launcher", "must be on launcher alone"),
    (RUNTIME, "- name: node\n                      image", "- name: worker\n                      image", "called node"),
    (RUNTIME, "    numNodes: 1\n    mpi", "    numNodes: 4\n    mpi", "multiplies the launcher"),
    (RUNTIME, "mpiImplementation: OpenMPI", "mpiImplementation: Intel", "mpiImplementation"),
    (RUNTIME, "numProcPerNode: 1 ", 'numProcPerNode: "1" ', "numProcPerNode"),
    (RUNTIME, "status: Ready", "status: Complete", "node being Ready"),
    (RUNTIME, "image: trireme:cuda", "image: other:cuda", "same image"),
    (RUNTIME, "    mpi:\n", "    torch: {}\n    mpi:\n", "one framework"),
    # rules in CEL, in the API server's words
    (RUNTIME, "    mpi:\n", "    torch: {}\n    mpi:\n", "spec.mlPolicy: Only one of the policy can be configured"),
    (RUNTIME, "      replicatedJobs:", "      startupPolicy: {startupPolicyOrder: InOrder}\n      replicatedJobs:",
     "StartupPolicy and DependsOn APIs are mutually exclusive"),
    (TRAIN, "name: trireme-gpt2", "name: Trireme", "the object: metadata.name must match RFC 1035"),
    (TRAIN, "name: trireme-gpt2", "name: " + "t" * 64, "metadata.name must be no more than 63 characters"),
    (TRAIN, "spec:\n", "spec:\n  managedBy: somebody\n", "ManagedBy must be"),
    (TRAIN, "spec:\n", "spec:\n  initializer: {dataset: {storageUri: nowhere}}\n", "storageUri may be empty"),
    (TRAIN, "name: trireme-distributed", "name: mpi-distributed", "in none of the files"),
    (TRAIN, "numNodes: 2", "numNodes: 1", "starts two hosts"),
    (TRAIN, "numProcPerNode: 4", "numProcPerNode: auto", "numProcPerNode"),
    (TRAIN, "    numNodes: 2", "    image: other\n    numNodes: 2", "reaches the launcher only"),
    (TRAIN, "name: NCCL_SOCKET_IFNAME", "name: OMPI_MCA_plm_rsh_args", "is reserved"),
    (TRAIN, "name: trireme-gpt2", "name: Trireme", "RFC 1035"),
    (TRAIN, '"4"}\n      limits', '"8"}\n      limits', "nvidia.com/gpu"),
]


def main():
    folder = root / "jobscripts" / "kubeflow"
    schemas = check_manifests.load_schemas(sys.argv[1])
    texts = {path.name: path.read_text() for path in sorted(folder.glob("*.yaml"))}
    failed = check_manifests.check(texts, schemas)
    print("\n".join(failed), end="\n" if failed else "")
    for name, text, replacement, words in PLANTED:
        assert text in texts[name], (name, text)
        found = check_manifests.check({**texts, name: texts[name].replace(text, replacement, 1)}, schemas)
        if not any(words in fault for fault in found):
            failed.append(name)
            print(f"FAILED not found: {name}: {text!r} -> {replacement!r}; instead {found[:3]}")
    print(f"{len(PLANTED) + len(texts) - len(failed)} passed, {len(failed)} failed (manifests: {len(texts)} files, {len(PLANTED)} planted faults)")
    sys.exit(bool(failed))


main()
