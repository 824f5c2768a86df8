"""The commands in the order of --help: the file that declares each, its help text and its effects.

Every command imports this module: --help imports no file that declares commands, and a command
imports only its own.
"""

# name -> its file and its line of --help; in order: before a run, runs, results, checks, shell
COMMANDS = {
    "init": ("setup", "copy example matrices and site files to a folder"),
    "data": ("setup", "generate small data sets"),
    "env": ("setup", "create, list and check Python environments of the frameworks"),
    "config": ("setup", "show each setting and its source, or the JSON Schema of a file"),
    "site": ("site", "write a site file for this cluster"),
    "doctor": ("site", "check that a site can run a matrix, before submitting it"),
    "plan": ("runs", "show the jobs that a matrix would submit, and their cost"),
    "render": ("runs", "write a run directory without submitting it"),
    "submit": ("runs", "submit a matrix"),
    "sweep": ("sweep", "measure every node of a partition with a matrix, and name the bad nodes"),
    "nodes": ("sweep", "say which nodes of a sweep are good, slow or failed"),
    "resume": ("runs", "continue a submission that was interrupted"),
    "retry": ("runs", "retry the array tasks that failed or were lost"),
    "list": ("folder", "list the runs of a results folder, the latest first"),
    "status": ("runs", "show the states of a run's array tasks"),
    "wait": ("runs", "wait for a run to end, then report"),
    "log": ("folder", "print the output of a run's array tasks"),
    "cancel": ("runs", "cancel the array tasks that have not ended"),
    "report": ("report", "write the tables of a run, from the run's files alone"),
    "compare": ("compare", "show which cases are faster or slower in run B than in run A"),
    "reference": ("accept", "write a reference file with the results of runs"),
    "accept": ("accept", "check that a run is as fast as a reference file or a contract requires"),
    "history": ("history", "show each case's results from run to run"),
    "publish": ("folder", "write a static website of a results folder"),
    "archive": ("folder", "pack a finished run into one file"),
    "import-logs": ("logs", "turn logs of other scripts into a run that can be reported"),
    "parity": ("checks", "check that frameworks compute the same losses and gradients"),
    "audit": ("checks", "find speedups and latencies in tables that contradict the other cells"),
    "completion": ("completion", "print a completion script for a shell"),
    "docs": ("docs", "list the pages of the documentation, or print a page"),
}

NO = "no"
IN_TURNS = "the named run, and your run submitted with it by --interleave"
IN_JOBS = "in jobs: commands that your matrix and site file set"
OF_THE_RUN = "in jobs: commands that the run's files set"
CONTINUES_RUN = ("the named run", "the named run", IN_TURNS, NO, OF_THE_RUN)
NAMED_OR_YOURS = "the named run, or the latest if it is yours"
# name -> whether it reads runs, writes into a run, submits, cancels, and where it runs code; other
# commands do none of it. A run is any run, one that this user began ("your"), or the one that the
# command line names ("the named run"). A test checks the commands.
EFFECTS = {
    "env": (NO, NO, NO, NO, "on this host: pip, compilers, the frameworks"),
    "doctor": (
        NO,
        NO,
        "the probe job",
        "the probe job",
        "in the probe job: commands that your site file sets",
    ),
    "plan": ("any", NO, NO, NO, NO),
    "render": (NO, "a new run", NO, NO, NO),
    "submit": ("any", "new runs", "the new runs", NO, IN_JOBS),
    "sweep": ("any", "a new run", "the new run", NO, IN_JOBS),
    "nodes": ("any", "the run's report", NO, NO, NO),
    "resume": CONTINUES_RUN,
    "retry": CONTINUES_RUN,
    "list": ("any", NO, NO, NO, NO),
    "log": ("any", NO, NO, NO, NO),
    "status": ("any", "the run's journal", NO, NO, NO),
    "wait": (
        "any",
        "the run's journal and report",
        "the run, if it is yours",
        NO,
        "in jobs of a run that is yours: commands that the run's files set",
    ),
    "cancel": (NAMED_OR_YOURS, "the run's journal", NO, NAMED_OR_YOURS, NO),
    "report": ("any", "the run's report", NO, NO, NO),
    "compare": ("any", NO, NO, NO, NO),
    "reference": ("the named run", NO, NO, NO, NO),
    "accept": ("any", NO, NO, NO, NO),
    "history": ("any", NO, NO, NO, NO),
    "publish": ("any", NO, NO, NO, NO),
    "archive": ("the named run", "the named run", NO, NO, NO),
    "import-logs": (NO, "a new run", NO, NO, NO),
    "parity": (NO, NO, NO, NO, "on this host: commands that your site file sets, the frameworks"),
}


# words of a command -> arguments of its example, and the page of docs/ about it
EXAMPLES = {
    "init": ("", "tutorial"),
    "data make images": ("data/images --train 1000", "matrix"),
    "data make text": ("data/text", "matrix"),
    "data make digits": ("data/digits", "matrix"),
    "env create": ("pytorch", "frameworks"),
    "env list": ("", "frameworks"),
    "env check": ("pytorch", "frameworks"),
    "config show": ("matrices/quickstart.toml --site local", "site"),
    "config schema": ("matrix", "matrix"),
    "site init": ("--device cpu", "site"),
    "doctor": ("matrices/quickstart.toml --site local", "site"),
    "plan": ("matrices/quickstart.toml --site local", "matrix"),
    "render": ("matrices/quickstart.toml --set protocol.repeats=3", "run-directory"),
    "submit": ("matrices/quickstart.toml --site local --wait", "tutorial"),
    "sweep": ("matrices/sweep.toml --wait", "faults"),
    "nodes": ("20240501", "statistics"),
    "resume": ("20240501 --wait", "run-directory"),
    "retry": ("20240501 --wait", "run-directory"),
    "list": ("", "run-directory"),
    "log": ("latest resnet50", "run-directory"),
    "status": ("20240501", "run-directory"),
    "wait": ("20240501", "run-directory"),
    "cancel": ("20240501", "run-directory"),
    "report": ("20240501 --layout dlperf", "tutorial"),
    "compare": ("20240501 20240502 --fail-if-slower 3%", "statistics"),
    "reference make": ("20240501 20240502 -o reference.toml", "statistics"),
    "accept": ("20240503 --reference reference.toml", "statistics"),
    "history": ("--case 'pytorch-*-1n8g-*'", "statistics"),
    "publish": ("site/", "exports"),
    "archive": ("20240501 --remove", "run-directory"),
    "import-logs": ("logs/ --dry-run", "logs"),
    "parity": ("pytorch jax", "frameworks"),
    "completion": ("bash", "commands"),
    "docs": ("statistics#drift", "index"),
    "audit": ("table.csv --threshold 1%", "how-it-works"),
}


def write_epilog(program: str) -> str:
    """Return the last lines of a command's help: an example, and where to read more.

    `program` is the tool's name and the command's words: "dlperf-slurm env create". Raises
    ValueError for a command without an example.
    """
    words = max((words for words in EXAMPLES if program.endswith(f" {words}")), key=len)
    arguments, page = EXAMPLES[words]
    tool = program[: -len(words)]
    return f"Example: {program} {arguments}".rstrip() + f"\nMore: {tool}docs {page}"
