#!/bin/bash
# The example notebook (jobscripts/kubeflow/trireme.ipynb) under papermill in its local mode, with two sets
# of parameters, and with one that must be refused. TRIREME_PYTHON: a Python with papermill and ipykernel.
# TRIREME_NOTEBOOK_DOC: writes the first run there as Markdown, for doc/trainjob_example.md.
source "$(dirname "$0")/support.sh"
python=${TRIREME_PYTHON:-python3}
"$python" -c 'import papermill, ipykernel' 2> /dev/null || skip "papermill and ipykernel are missing: tools/setup.sh launchers"
work=$(mktemp -d /var/tmp/trireme-notebook.XXXXXX)
trap 'rm -rf "$work"' EXIT
export TRIREME TRIREME_MPIRUN_ARGS=--oversubscribe
"$python" -m ipykernel install --prefix "$work/kernel" --name trireme-test > /dev/null 2>&1
export JUPYTER_PATH=$work/kernel/share/jupyter
execute() { # execute NAME -p KEY VALUE...
  local name=$1
  shift
  "$python" -m papermill -k trireme-test --start-timeout 300 --no-progress-bar "$root/jobscripts/kubeflow/trireme.ipynb" "$work/$name.ipynb" \
    -p mode local -p runs "$work/runs.$name" -p home "$root" "$@" > "$work/$name.out" 2>&1
}
check "tp 2 x pp 2 on 2 nodes: trains, saves, goes on as dp 4" execute two_nodes -p num_nodes 2 -p num_gpu 2 -p tp_size 2 -p pp_size 2 -p steps 40
check "its outputs" has "$work/two_nodes.ipynb" "tp 2 x pp 2 x dp 1, runtime trireme-distributed" "grid: tp 2 x cp 1 x dp 1 x pp 2" \
  "grid: tp 1 x cp 1 x dp 4 x pp 1" "step_000000040.h5 (step 40)" "60 steps, loss"
check "pp 2 on one node" execute one_node -p num_nodes 1 -p num_gpu 2 -p tp_size 1 -p pp_size 2 -p steps 20
check "its outputs" has "$work/one_node.ipynb" "runtime trireme-single-node" "grid: tp 1 x cp 1 x dp 1 x pp 2" "30 steps, loss"
refused() { ! execute wrong -p num_nodes 2 -p num_gpu 2 -p tp_size 4 -p pp_size 1; }
check "tp over nodes is refused in the notebook" refused
check "in words" has "$work/wrong.out" "must divide num_gpu 2: tensor parallelism stays inside a node"
if [ -n "${TRIREME_NOTEBOOK_DOC:-}" ]; then
  "$python" -m nbconvert --to markdown "$work/two_nodes.ipynb" --output "$TRIREME_NOTEBOOK_DOC" > /dev/null 2>&1
  sed -i "s|$work/runs.two_nodes|/runs|g; s|$root|/opt/trireme|g" "$TRIREME_NOTEBOOK_DOC"
fi
finish
