#!/bin/bash
# Runs a command with a multi-process service of its own, where the driver's tools can start one: ranks that share a
# GPU then run side by side instead of in turns, several times faster. Without the tools, or under a service that is
# there already, just runs the command. Changes no setting of the device; returns the command's exit code.
# usage: tools/with_mps.sh COMMAND...
set -u
PATH=$PATH:/usr/local/nvidia/bin
[ $# -gt 0 ] || { echo "usage: $0 COMMAND..." >&2; exit 64; }
if [ -n "${CUDA_MPS_PIPE_DIRECTORY:-}" ] || ! command -v nvidia-cuda-mps-control >/dev/null; then
  "$@"
  exit
fi
folder=$(mktemp -d)
export CUDA_MPS_PIPE_DIRECTORY=$folder CUDA_MPS_LOG_DIRECTORY=$folder
stop() {
  echo quit | timeout 10 nvidia-cuda-mps-control >/dev/null 2>&1
  rm -rf "$folder"
}
trap stop EXIT
if ! timeout 10 nvidia-cuda-mps-control -d; then
  echo "with_mps: no service could be started; ranks that share a GPU take turns" >&2
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
fi
"$@"
