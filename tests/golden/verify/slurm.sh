#!/bin/bash
# Computes what all frameworks must agree on; leaves parity.json beside case.json.
attempt_dir=/shared/results/verify/case
export PYTHONPATH=/shared/results/verify/code PYTHONNOUSERSITE=1 PYTHONUNBUFFERED=1
unset PYTHONHOME
export OMP_NUM_THREADS=8

# Lines of the site's: each runs, with those that it goes on in, before the next; one that fails is the
# end of the array task.
run_setup() { # LINE...
  local setup_line setup= setup_lines=("$@")
  set --
  for setup_line in "${setup_lines[@]}"; do
    setup+=$setup_line$'\n'
    # of a here-document without an end it only warns
    if [[ $setup_line == *\\ ]] || [ -n "$(LC_ALL=C "$BASH" -n <<< "$setup" 2>&1)" ]; then
      continue
    fi
    eval "$setup" || fail_setup "$?" "$setup"
    setup=
  done
  eval "$setup" || fail_setup "$?" "$setup"
}
fail_setup() { # EXIT_CODE LINES
  echo "the site's setup line failed with exit code $1: ${2%$'\n'}" >&2
  exit 69
}

activate_pytorch() {
  # what sites and `module` run here is not written for `set -u`
  set +u
  export PATH=/shared/environments/pytorch-cuda/bin:$PATH
  # a rank whose peer is gone leaves its NCCL collective with an error instead of waiting for ever
  export TORCH_NCCL_ASYNC_ERROR_HANDLING=1
}
launch_pytorch() {
  exec srun --nodes=1 --ntasks=2 --ntasks-per-node=2 --cpus-per-task=8 --distribution=block:block --mpi=pmix --kill-on-bad-exit=1 python -m dlperf_slurm.worker verify --data-rank=0 '--reference=/shared/results/a b' "$attempt_dir"
}
conclude_pytorch() {
  exec python -m dlperf_slurm.worker conclude "$attempt_dir" "$1"
}

activate_pytorch
cd "$attempt_dir" && launch_pytorch
