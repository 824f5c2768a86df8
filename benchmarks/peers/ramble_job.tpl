#!/bin/bash
#SBATCH --nodes={n_nodes}
#SBATCH --ntasks-per-node={processes_per_node}
#SBATCH --time=10
#SBATCH --job-name={experiment_name}
cd {experiment_run_dir}
srun ./train {n_nodes} {processes_per_node} {precision}
