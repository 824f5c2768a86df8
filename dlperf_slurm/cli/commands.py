"""The commands in the order of --help: the file that declares each, and its help text.

Every command imports this module: --help imports no file that declares commands, and a command
imports only its own.
"""

# name -> its file and its line of --help; in order: before a run, runs, results, checks, shell
COMMANDS = {
    "init": ("setup", "copy example matrices and site configs to here"),
    "data": ("setup", "make small sets of real files for models to read"),
    "env": ("setup", "make, list and check environments of the frameworks"),
    "config": ("setup", "show the settings in force, and the schema of files"),
    "site": ("site", "write a site file for this cluster"),
    "doctor": ("site", "try what a matrix needs of a site before it is submitted"),
    "plan": ("runs", "what a matrix would submit, and what it costs"),
    "render": ("runs", "write a run directory without submitting it"),
    "submit": ("runs", "submit a matrix"),
    "resume": ("runs", "go on with a submission that was cut short"),
    "retry": ("runs", "try again what failed or was lost in a run"),
    "status": ("runs", "where the array tasks of a run stand"),
    "wait": ("runs", "follow a run to its end, then report"),
    "cancel": ("runs", "cancel what has not ended"),
    "report": ("report", "make the tables of a run, from its files alone"),
    "compare": ("compare", "which cases of run B are faster or slower"),
    "history": ("history", "what each case measured from run to run"),
    "archive": ("archive", "close a run that has ended into one file"),
    "import-logs": ("logs", "make a run of other scripts' logs, to report on"),
    "parity": ("checks", "prove that frameworks do the same work"),
    "audit": ("checks", "which cells of tables do not follow from others"),
    "completion": ("completion", "print what completes commands in a shell"),
}
