#!/bin/bash
# A chain of jobs for sites that forbid requeueing: each link starts when the one before has ended,
# however it ended, and goes on with the same run. A link that finds all steps done ends at once.
#   jobscripts/slurm/chain.sh LINKS SCRIPT.sbatch deck.ini [--section.key=value ...]
# TRIREME_SBATCH_ARGS: more options for sbatch.
set -euo pipefail
links=${1:?usage: chain.sh LINKS SCRIPT.sbatch DECK...}
script=${2:?usage: chain.sh LINKS SCRIPT.sbatch DECK...}
shift 2
export TRIREME_MAX_RESTARTS=0 # the next link goes on, not this one
previous=
for ((link = 1; link <= links; link++)); do
  # shellcheck disable=SC2086
  previous=$(sbatch --parsable --no-requeue ${TRIREME_SBATCH_ARGS:-} ${previous:+--dependency=afterany:$previous} "$script" "$@")
  echo "link $link of $links: job $previous"
done
