"""Deep-learning benchmarks on Slurm clusters: a TOML matrix goes in, tables to defend come out."""

from dlperf_slurm.version import __version__ as __version__

__all__ = [
    "CasesFailedError",
    "ComparedRuns",
    "DlperfError",
    "History",
    "InputError",
    "RunResults",
    "SlowerError",
    "UndecidedError",
    "compare",
    "open_history",
    "open_run",
]

# an import of `typing` would be a tenth of what --help takes
TYPE_CHECKING = False
if TYPE_CHECKING:
    from dlperf_slurm.errors import (
        CasesFailedError,
        DlperfError,
        InputError,
        SlowerError,
        UndecidedError,
    )
    from dlperf_slurm.interface import (
        ComparedRuns,
        History,
        RunResults,
        compare,
        open_history,
        open_run,
    )
else:
    # The worker imports this file, on Python 3.7 and without the modules of the login side, and
    # no command needs them either: they are imported when a name is first asked for. Python 2.7
    # can parse it, to be told which Python the tool needs.
    def __getattr__(name):
        from importlib import import_module

        if name not in __all__:
            raise AttributeError("module %r has no attribute %r" % (__name__, name))
        room = "errors" if name.endswith("Error") else "interface"
        return getattr(import_module(__name__ + "." + room), name)

    def __dir__():
        return sorted(set(globals()).union(__all__))
