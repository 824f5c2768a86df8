#!/bin/bash
# Computes the losses, gradients and updates that parity compares; writes parity.json beside case.json.
run_dir=/shared/results/verify
group_id=verify
attempt_dir=/shared/results/verify/case
source "$run_dir/scripts/harness.sh" || exit 69

export_worker_environment
export OMP_NUM_THREADS=8
export NCCL_DEBUG=WARN

activate_pytorch() {
  set +u
  run_setup 'ulimit -l unlimited'
  load_modules cuda/12.6 openmpi/5.0
  export PATH=/shared/venvs/pytorch-2.13/bin:$PATH
  check_python /shared/venvs/pytorch-2.13/bin/python
  # a rank whose peer has died gets an error from NCCL instead of waiting for ever
  export TORCH_NCCL_ASYNC_ERROR_HANDLING=1
  export NCCL_IB_HCA=mlx5
}
launch_pytorch() {
  exec srun --nodes=1 --ntasks=2 --ntasks-per-node=2 --cpus-per-task=8 --mpi=pmix --kill-on-bad-exit=1 --distribution=block:block python -m dlperf_slurm.worker verify --data-rank=0 '--reference=/shared/results/a b' "$attempt_dir"
}
conclude_pytorch() {
  exec python -m dlperf_slurm.worker conclude "$attempt_dir" "$1"
}

activate_pytorch
export_pythonpath
cd "$attempt_dir" && launch_pytorch
