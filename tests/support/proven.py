"""The files that a framework's tests depend on, and the hashes for which they last passed.

A framework's hash covers its adapter, all modules of ours that this imports, directly or
indirectly, its pins and its tests; that of `FRAMEWORK-horovod` covers those files of the adapter
that name Horovod, what adapters share of it, its pins and the build of Horovod. Callers of
adapters, such as the measuring loop, are in no hash: `make test` tests them each time with PyTorch,
and `make test-all` with TensorFlow 1, which has the oldest Python. Comments, docstrings and blank
lines of Python files are in no hash either.
"""

import ast
import hashlib
import io
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

ALWAYS_TESTED = ("tensorflow1",)
ADAPTERS = "dlperf_slurm/worker/frameworks"
HOROVOD = "dlperf_slurm/worker/horovod.py"
# need the standard library alone: the tests with PyTorch and TensorFlow 1 are enough
SAME_BESIDE_ANY = (
    "dlperf_slurm/__init__.py",
    "dlperf_slurm/contract",
    "dlperf_slurm/files",
    "dlperf_slurm/version.py",
)
ENVIRONMENTS = "dlperf_slurm/provision/environments"
HEADER = (
    "# Written by `make test-frameworks` for what passed: the framework, the seconds of its\n"
    "# tests, and the sha256 of the files that these depend on (see tests/support/proven.py).\n"
)


@dataclass(frozen=True)
class Proof:
    """A hash for which tests passed, and how many seconds they took."""

    seconds: int
    sha256: str


def list_files(root: Path, framework: str, tests: Iterable[str]) -> list[Path]:
    """List the files of a checkout in a framework's hash, sorted; `tests` may be folders."""
    adapter = list_adapter(root, framework)
    chosen = follow_imports(root, adapter) | {root / ENVIRONMENTS / f"{framework}.txt"}
    for test in tests:
        path = root / test
        chosen |= set(path.rglob("*.py") if path.is_dir() else [path])
    left_out = {root / name for name in SAME_BESIDE_ANY}
    return sorted(path for path in chosen if not left_out & {path, path.parent})


def list_horovod_files(root: Path, framework: str) -> list[Path]:
    """List the files of a checkout in the hash of a framework with Horovod, sorted."""
    adapter = list_adapter(root, framework)
    files = [*adapter, root / HOROVOD]
    naming = {path for path in files if b"horovod" in read_code(path).lower()}
    builders = set((root / ENVIRONMENTS).glob("horovod*.*"))
    return sorted(naming | builders | {root / ENVIRONMENTS / f"{framework}.txt"})


def list_adapter(root: Path, framework: str) -> list[Path]:
    """List the adapter's files, in its folder and in the one that a framework's versions share."""
    folders = {framework, framework.rstrip("0123456789")}
    return [path for name in folders for path in (root / ADAPTERS / name).rglob("*.py")]


def follow_imports(root: Path, files: Iterable[Path]) -> set[Path]:
    """Return these files and all modules below `root` that they import, directly or indirectly."""
    seen: set[Path] = set()
    remaining = list(files)
    while remaining:
        path = remaining.pop()
        if path in seen:
            continue
        seen.add(path)
        found = (find_module(root, name) for name in list_imports(path))
        remaining += [module for module in found if module is not None]
    return seen


def list_imports(path: Path) -> Iterator[str]:
    """Yield the names that a file imports at run time, and their parent packages.

    In `from a import b`, b may be a module. Imports for type checkers alone are left out.
    """
    for node in walk_running(ast.parse(path.read_bytes())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def walk_running(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree, except those below `if TYPE_CHECKING:`."""
    yield node
    is_for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    for child in node.orelse if is_for_types else ast.iter_child_nodes(node):
        yield from walk_running(child)


def find_module(root: Path, name: str) -> Optional[Path]:
    """Return the file of a module below `root`, or None for other modules."""
    path = root.joinpath(*name.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def compute_hash(root: Path, files: Iterable[Path]) -> str:
    """Compute the sha256 over the names below `root`, and the code, of files in their order."""
    digest = hashlib.sha256()
    for path in files:
        content = read_code(path)
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def read_code(path: Path) -> bytes:
    """Read a file; of a Python file without comments, docstrings and blank lines.

    Text is cut by position, so that all versions of Python return the same.
    """
    content = path.read_bytes()
    if path.suffix != ".py":
        return content
    docstrings = set(list_docstring_lines(ast.parse(content)))
    text = content.decode("utf-8")
    lines = dict(enumerate(text.splitlines(keepends=True), 1))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        row, column = token.start
        if token.type == tokenize.COMMENT:
            lines[row] = lines[row][:column].rstrip() + "\n"
        if token.type == tokenize.NL and not lines[row].strip():
            del lines[row]
    return "".join(line for row, line in lines.items() if row not in docstrings).encode()


def list_docstring_lines(tree: ast.AST) -> Iterator[int]:
    """Yield the numbers of the lines of docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            begins = getattr(node, "lineno", 0)
            if ast.get_docstring(node) is not None and first is not None and first.lineno > begins:
                yield from range(first.lineno, (first.end_lineno or first.lineno) + 1)


def read_proofs(path: Path) -> dict[str, Proof]:
    """Read the proofs by name; {} if there is no file."""
    if not path.exists():
        return {}
    lines = path.read_text(encoding="ascii").splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    return {name: Proof(int(seconds), sha256) for name, seconds, sha256 in rows}


def write_proofs(path: Path, proofs: Mapping[str, Proof]) -> None:
    """Write one line for each proof, sorted by name."""
    rows = (f"{name} {proof.seconds} {proof.sha256}\n" for name, proof in sorted(proofs.items()))
    path.write_text(HEADER + "".join(rows), encoding="ascii")
