#!/bin/bash
# All launcher tests, one after the other, in a Python environment of their own beside the build. What is
# missing on this machine is skipped visibly. usage: run.sh PROGRAM [NAME...]
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
TRIREME=$(realpath "${1:?usage: run.sh PROGRAM [NAME...]}")
[ ! -x "$TRIREME-cpu" ] || TRIREME=$TRIREME-cpu # beside a CUDA build
export TRIREME
shift
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(supervise manifests slurm mpijob notebook ray container)

environment=$(dirname "$(dirname "$TRIREME")")/launchers-venv
if ! "$environment/bin/python" -c 'import ray, kubeflow.trainer, papermill, ipykernel, nbconvert, yaml, jsonschema, celpy' 2> /dev/null; then
  echo "installing ray, kubeflow, papermill into $environment"
  { python3 -m venv "$environment" && "$environment/bin/pip" install -q -r "$here/requirements.txt"; } ||
    echo "not all Python packages could be installed: tests that need them are skipped"
fi
export TRIREME_PYTHON=$environment/bin/python
[ -x "$TRIREME_PYTHON" ] || TRIREME_PYTHON=python3
export TRIREME_CRDS=${TRIREME_CRDS:-$root/../shared/crds} # Kubeflow's schemas (doc/run.md)

passed=0 failed=0 skipped=0
for name in "${names[@]}"; do
  echo "launchers.$name"
  "$here/$name.sh"
  case $? in
    0) passed=$((passed + 1)) ;;
    77) skipped=$((skipped + 1)) ;;
    *) failed=$((failed + 1)) ;;
  esac
done
echo "launchers: $passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
