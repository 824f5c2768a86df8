"""Fake clients of Slurm, which print the recorded output of a version on tests/cluster."""

from pathlib import Path

from builders import write_program

RECORDED = Path(__file__).resolve().parents[1] / "data" / "slurm"
VERSIONS = ("22.05", "24.11")

SCONTROL = """\
case "$*" in
  "show config") exec /bin/cat {folder}/config.txt ;;
  "show partition --oneliner") exec /bin/cat {folder}/partitions.txt ;;
esac
exit 1"""
SACCTMGR = """\
case "$*" in
  *" associations "*) exec /bin/cat {folder}/associations.txt ;;
  *" user "*) exec /bin/cat {folder}/user.txt ;;
  *" qos "*) exec /bin/cat {folder}/qos.txt ;;
esac
exit 1"""
SRUN = '[ "$*" = --mpi=list ] && exec /bin/cat {folder}/mpi.txt\nexit 1'
SINFO = "exec /bin/cat {folder}/nodes.txt"
PROGRAMS = {"scontrol": SCONTROL, "sacctmgr": SACCTMGR, "srun": SRUN, "sinfo": SINFO}


def put_clients(bin_dir: Path, version: str, sbatch: str = "exit 0") -> None:
    """Put the clients of a version on an otherwise empty PATH; `sbatch` is a script."""
    for name, script in PROGRAMS.items():
        write_program(bin_dir, name, script.format(folder=RECORDED / version))
    write_program(bin_dir, "sbatch", sbatch)
