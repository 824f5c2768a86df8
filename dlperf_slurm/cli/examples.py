"""A command's words -> the end of its help: an example to type, and where to read more."""

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
