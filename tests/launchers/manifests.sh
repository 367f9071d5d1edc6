#!/bin/bash
# The shipped Kubernetes files against Kubeflow's schemas and the operators' rules, and planted faults.
# TRIREME_CRDS: the folder of the CRD files of mpi-operator and Kubeflow Trainer.
source "$(dirname "$0")/support.sh"
python=${TRIREME_PYTHON:-python3}
crds=${TRIREME_CRDS:-$root/../shared/crds}
[ -e "$crds/trainer.kubeflow.org_trainjobs.yaml" ] || skip "Kubeflow's CRD files are not at $crds: set TRIREME_CRDS"
"$python" -c 'import yaml, jsonschema, celpy' 2> /dev/null || skip "PyYAML, jsonschema and cel-python are missing"
check "the manifests have no fault, planted faults are found" "$python" "$here/manifests.py" "$crds"
check "the SDK builds the TrainJob that the notebook describes" "$python" "$here/sdk_trainjob.py" "$crds"
finish
