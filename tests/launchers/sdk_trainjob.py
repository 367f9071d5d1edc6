#!/usr/bin/env python3
"""The notebook's cluster mode against the real kubeflow SDK with a stand-in for the Kubernetes API: the
TrainJobs that the SDK would create are valid, and no field of ours is lost on the way.

usage: sdk_trainjob.py FOLDER_OF_CRDS
"""
import contextlib
import io
import json
import logging
import pathlib
import sys
from unittest import mock

import yaml

root = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(root / "tools"))
import check_manifests  # noqa: E402

runtimes = {d["metadata"]["name"]: d for d in yaml.safe_load_all((root / "jobscripts/kubeflow/runtime.yaml").read_text())}
created, deleted = [], []


class Answer:
    """What the SDK's asynchronous calls return."""

    def __init__(self, value):
        self.value = value

    def get(self, *_, **__):
        return self.value


class Api:
    def __init__(self, *_, **__):
        pass

    def get_cluster_custom_object(self, group, version, plural, name, async_req=False, **_):
        return Answer(runtimes[name]) if async_req else runtimes[name]

    def get_namespaced_custom_object(self, *_, **__):
        from kubernetes import client
        raise client.ApiException(status=404)

    def create_namespaced_custom_object(self, group, version, namespace, plural, body, **_):
        created.append(json.loads(json.dumps(body)))

    def delete_namespaced_custom_object(self, group, version, namespace, plural, name=None, **_):
        deleted.append(name)


def run_notebook(parameters):
    """All code cells up to the logs, in cluster mode."""
    notebook = json.loads((root / "jobscripts/kubeflow/trireme.ipynb").read_text())
    space = {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code" or source.startswith("# %pip"):
            continue
        if "follow(" in source:  # needs pods
            source = source.replace("\nfollow(job)", "").replace("\nfollow(longer)", "")
        exec(compile(source, "notebook", "exec"), space)  # noqa: S102: our own notebook
        if cell["metadata"].get("tags") == ["parameters"]:
            space.update(parameters)


def main():
    logging.disable(logging.WARNING)  # the SDK finds no control plane to ask for its version
    with contextlib.redirect_stdout(io.StringIO()), mock.patch("kubernetes.client.CustomObjectsApi", Api), mock.patch("kubernetes.config.load_config"), \
            mock.patch("kubernetes.config.load_kube_config"), mock.patch("kubernetes.config.load_incluster_config"):
        for nodes, gpus, tp, pp in ((2, 2, 2, 2), (4, 8, 4, 2)):
            run_notebook({"num_nodes": nodes, "num_gpu": gpus, "tp_size": tp, "pp_size": pp, "job_name": f"gpt-{nodes}"})
    schemas = check_manifests.load_schemas(sys.argv[1])
    folder = root / "jobscripts" / "kubeflow"
    texts = {"runtime.yaml": (folder / "runtime.yaml").read_text()}
    for job in created:
        job["spec"]["trainer"].pop("image", None)  # the SDK demands one; it is the runtime's
        texts[job["metadata"]["name"]] = yaml.safe_dump(job)
    faults = check_manifests.check(texts, schemas)
    first = created[0]["spec"]
    want = {"numNodes": 2, "command": ["/opt/trireme/jobscripts/kubeflow/launch.sh"]}
    faults += [f"trainer.{k} is {first['trainer'].get(k)}, expected {v}" for k, v in want.items() if first["trainer"].get(k) != v]
    if first["trainer"]["args"][:5] != ["--nodes", "2", "--per-node", "2", "--"]:
        faults.append(f"args {first['trainer']['args'][:5]}")
    if len(created) != 4 or len(deleted) != 4:
        faults.append(f"{len(created)} TrainJobs created, {len(deleted)} deleted: 4 each expected")
    print("\n".join(f"    {fault}" for fault in faults) or f"    {len(created)} TrainJobs by the SDK: no fault")
    sys.exit(bool(faults))


main()
