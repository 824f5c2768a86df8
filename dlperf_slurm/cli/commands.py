"""The commands in the order of --help: the file that declares each, its help text and its effects.

Every command imports this module: --help imports no file that declares commands, and a command
imports only its own.
"""

# name -> its file and its line of --help; in order: before a run, runs, results, checks, shell
COMMANDS = {
    "init": ("setup", "copy example matrices and site files to a folder"),
    "data": ("setup", "generate small data sets"),
    "env": ("setup", "create, list and check Python environments of the frameworks"),
    "config": ("setup", "show settings and what sets them, or the JSON Schema of a file"),
    "site": ("site", "write a site file for this cluster"),
    "doctor": ("site", "check that a site can run a matrix, before submitting it"),
    "plan": ("runs", "show the jobs that a matrix would submit, and their cost"),
    "render": ("runs", "write a run directory without submitting it"),
    "submit": ("runs", "submit a matrix"),
    "sweep": ("sweep", "measure every node of a partition with a matrix, and name the bad nodes"),
    "nodes": ("sweep", "say which nodes of a sweep are good, slow or failed"),
    "resume": ("runs", "continue a submission that was interrupted"),
    "retry": ("runs", "retry the array tasks that failed or were lost"),
    "list": ("browse", "list the runs of a results folder, the latest first"),
    "status": ("runs", "show the states of a run's array tasks"),
    "wait": ("runs", "wait for a run to end, then report"),
    "log": ("browse", "print the output of a run's array tasks"),
    "cancel": ("runs", "cancel the array tasks that have not ended"),
    "report": ("report", "write the tables of a run, from the run's files alone"),
    "compare": ("compare", "show which cases are faster or slower in run B than in run A"),
    "reference": ("accept", "write a reference file with the results of runs"),
    "accept": ("accept", "check that a run is as fast as a reference file or a contract requires"),
    "history": ("history", "show each case's results from run to run"),
    "publish": ("publish", "write a static website of a results folder"),
    "archive": ("archive", "pack a finished run into one file"),
    "import-logs": ("logs", "turn logs of other scripts into a run that can be reported"),
    "parity": ("checks", "check that frameworks compute the same losses and gradients"),
    "audit": ("checks", "check speedups and latencies in tables against the numbers beside them"),
    "completion": ("completion", "print a completion script for a shell"),
    "docs": ("docs", "list the pages of the documentation, or print a page"),
}

NO = "no"
IN_TURNS = "the named run, and your run that is interleaved with it"
IN_JOBS = "in jobs: commands that your matrix and site file set"
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
    "resume": (
        "the named run",
        "the named run",
        IN_TURNS,
        NO,
        "in jobs: commands that the run's files set",
    ),
    "retry": (
        "the named run",
        "the named run",
        IN_TURNS,
        NO,
        "in jobs: commands that the run's files set",
    ),
    "list": ("any", NO, NO, NO, NO),
    "log": ("any", NO, NO, NO, NO),
    "status": ("any", "the run's journal", NO, NO, NO),
    "wait": (
        "any",
        "the run's journal and report",
        "your run",
        NO,
        "in jobs: commands that your run's files set",
    ),
    "cancel": ("the named run, or yours", "the run's journal", NO, "the named run, or yours", NO),
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
