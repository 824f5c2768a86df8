"""python -m dlperf_slurm.worker run|trace|search|profile|script|node|conclude|verify|probe.

Reads a case, and writes its record. Each subcommand imports only what it needs, as every rank of a
job reads these files, often from a file system that all nodes share.
"""

import os
import sys
from functools import partial
from pathlib import Path
from typing import List


def main(arguments: List[str]) -> int:
    """Run one subcommand of the worker and return its exit code.

    `run`, `verify` and `probe DIR` run on every rank; `conclude DIR EXIT_CODE` runs once after
    `run`, `node WORK_FILE DIR` once per node before it. `search DIR -- LAUNCHER...` starts `run`
    on all ranks once per trial, by LAUNCHER with the trial's folder appended. `script DIR --
    LAUNCHER...` starts an external script in the same way, with the script's path appended.
    `profile DIR TOOL N LAUNCHER... PROFILER...` starts `run` by the N words of LAUNCHER, then by
    PROFILER; `trace` is `run` with torch.profiler.
    """
    command = arguments[0]
    if command == "search":
        from dlperf_slurm.worker.search import search_batch_size

        return search_batch_size(Path(arguments[1]), arguments[3:])
    if command == "profile":
        from dlperf_slurm.worker.profiled_attempt import run_profiled

        folder, tool, count, *words = arguments[1:]
        return run_profiled(Path(folder), tool, words[: int(count)], words[int(count) :])
    if command == "script":
        from dlperf_slurm.worker.external_script import run_script

        return run_script(Path(arguments[1]), arguments[3:])
    if command == "node":
        from dlperf_slurm.worker.nodes.prepare import prepare_node

        return prepare_node(Path(arguments[1]), Path(arguments[2]))
    if command == "conclude":
        return conclude(Path(arguments[1]), int(arguments[2]))
    return join_and_run(command, arguments[1:])


def join_and_run(command: str, arguments: List[str]) -> int:
    """Run `run`, `trace`, `verify` or `probe`, whose options are `arguments`, on this rank."""
    from dlperf_slurm.worker.rendezvous import make_parser, read_options
    from dlperf_slurm.worker.rendezvous.communicators import join_ranks

    if command == "probe":
        from dlperf_slurm.worker.probe import probe_rank

        options = make_parser(command).parse_args(arguments)
        return probe_rank(options.directory, read_options(options))
    from dlperf_slurm.worker.attempt import run_attempt, watch_case

    if command == "verify":
        from dlperf_slurm.worker.parity import parse_arguments, verify_case
        from dlperf_slurm.worker.ranks import SingleProcess

        options = parse_arguments(arguments)
        rendezvous = read_options(options)
        return run_attempt(
            options.directory,
            partial(verify_case, rendezvous=rendezvous, references=options.reference),
            lambda case: (
                SingleProcess(options.data_rank)
                if case.world_size == 1
                else join_ranks(rendezvous, case, options.directory)
            ),
        )
    from dlperf_slurm.worker.phases import Phases
    from dlperf_slurm.worker.processes import block_signal

    phases = Phases(os.environ)
    options = make_parser(command).parse_args(arguments)
    rendezvous = read_options(options)
    block_signal()
    return run_attempt(
        options.directory,
        partial(watch_case, rendezvous=rendezvous, phases=phases, is_traced=command == "trace"),
        lambda case: join_ranks(rendezvous, case, options.directory),
    )


def conclude(attempt_dir: Path, exit_code: int) -> int:
    """Write a failed record if an ended attempt has no record; pack the files of a successful one.

    The files beside its record go into one archive. `exit_code` is that of the launcher. Returns 0;
    1, with a line on standard error, if a file cannot be written.
    """
    from dlperf_slurm.contract.record import OK
    from dlperf_slurm.contract.step_archive import pack_sidecars
    from dlperf_slurm.files import FileProblem
    from dlperf_slurm.worker.failed_record import conclude_attempt

    try:
        record = conclude_attempt(attempt_dir, exit_code)
        if record.status == OK:
            pack_sidecars(attempt_dir, record.case)
    except FileProblem as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
