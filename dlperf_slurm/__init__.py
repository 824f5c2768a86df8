"""Deep-learning benchmarks on Slurm clusters: a TOML matrix -> jobs, records and result tables."""

from dlperf_slurm.version import __version__ as __version__

__all__ = [
    "CasesFailedError",
    "ComparedRuns",
    "DlperfError",
    "EnvironmentMissingError",
    "History",
    "InconclusiveError",
    "InputError",
    "RunResults",
    "SchedulerError",
    "SlowerError",
    "compare",
    "open_history",
    "open_run",
    "plan",
    "submit",
]

# importing `typing` would take a tenth of the time of --help
TYPE_CHECKING = False
if TYPE_CHECKING:
    from dlperf_slurm.errors import (
        CasesFailedError,
        DlperfError,
        EnvironmentMissingError,
        InconclusiveError,
        InputError,
        SchedulerError,
        SlowerError,
    )
    from dlperf_slurm.interface import (
        ComparedRuns,
        History,
        RunResults,
        compare,
        open_history,
        open_run,
        plan,
        submit,
    )
else:
    # The worker imports this file on Python 3.7, without the modules of the login side, so they are
    # imported when a name is first used. The file is valid in Python 2.7, so that the tool can
    # report there which Python it needs.
    def __getattr__(name):
        from importlib import import_module

        if name not in __all__:
            raise AttributeError("module %r has no attribute %r" % (__name__, name))
        room = "errors" if name.endswith("Error") else "interface"
        return getattr(import_module(__name__ + "." + room), name)

    def __dir__():
        return sorted(set(globals()).union(__all__))
