"""Untrusted templates -> their text, rendered in a sandbox with a budget of work.

Script commands of a matrix, and the template named by a site file or a matrix's `[slurm]` table,
are rendered on the login node. Both use Jinja2's sandbox. Every value that an expression makes or
uses draws from a budget by its size, which bounds time and memory whatever the operation. Commands
are restricted further: no assignments, macros or other files, and only a few filters and methods.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Optional

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.filters import make_attrgetter
from jinja2.sandbox import ImmutableSandboxedEnvironment

from dlperf_slurm.config.folders import find_resource_dir
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.quoting import QUOTING_FILTERS

MAX_COMMAND_CHARACTERS = 20_000
MAX_TEXT_CHARACTERS = 1_000_000
MAX_RANGE = 10_000
# units of work, of about a microsecond; a list of 1,000 hosts takes about 2,000
MAX_WORK = 200_000
# budget of all texts of a matrix together: SHARED_WORK, plus SHARED_WORK_EACH for each text
SHARED_WORK = 5_000_000
SHARED_WORK_EACH = 2_000
# handling this many items or characters takes about as long as evaluating an expression, one unit
ITEMS_PER_UNIT = 10
CHARACTERS_PER_UNIT = 100
MAX_BITS = 4096
MAX_DIGITS = 1000

_COMMAND_NODES = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.If, nodes.For),
    *(nodes.Name, nodes.Const, nodes.Tuple, nodes.List, nodes.Dict, nodes.Pair, nodes.Keyword),
    *(nodes.CondExpr, nodes.Filter, nodes.Test, nodes.Call, nodes.Getattr, nodes.Getitem),
    *(nodes.Slice, nodes.Concat, nodes.Compare, nodes.Operand, nodes.BinExpr, nodes.UnaryExpr),
)
_COMMAND_METHODS = ("startswith", "endswith", "lower", "upper", "strip", "split")
_COMMAND_FILTERS = (
    *("abs", "charged", "contains", "counted", "default", "first", "float", "int", "join", "last"),
    *("length", "lower", "max", "min", "replace", "sh", "sh_words", "string", "sum", "trim"),
    "upper",
)
# methods of texts, and filters of Jinja2, whose results are not much larger than their input
_TEMPLATE_METHODS = (
    *_COMMAND_METHODS,
    *("lstrip", "rstrip", "rsplit", "splitlines", "partition", "rpartition", "isdigit", "title"),
)
_TEMPLATE_FILTERS = (
    *("abs", "capitalize", "default", "dictsort", "first", "float", "int", "items", "last"),
    *("length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "round"),
    *("select", "selectattr", "sort", "string", "title", "trim", "unique", "upper"),
)


class _Budget:
    """The units of work that are left: `own` for the present text, `shared` for all texts."""

    def __init__(self) -> None:
        self.own = MAX_WORK
        self.shared = SHARED_WORK

    def draw(self, units: int) -> None:
        """Subtract units of work; raises SecurityError if none are left."""
        self.own -= units
        self.shared -= units
        if self.own < 0:
            raise SecurityError(
                "the template takes too much work to render; use fewer loops or shorter texts"
            )
        if self.shared < 0:
            raise SecurityError(
                "all templates together take too much work to render; shorten this template"
            )


_budget = _Budget()


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """A Jinja2 sandbox that limits the work of a rendering and the size of numbers."""

    intercepted_binops = frozenset(("*", "**", "%"))

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.globals = {"range": _make_range}
        self.filters = {
            name: self.filters[name] for name in _TEMPLATE_FILTERS if name in self.filters
        }
        self.filters["counted"] = _count
        self.filters["charged"] = _charge
        self.filters["contains"] = _contains
        self.filters["int"] = _to_int
        self.filters["join"] = _join
        self.filters["replace"] = _replace
        self.filters["sum"] = _sum
        self.filters.update(QUOTING_FILTERS)

    def _parse(self, source: str, name: Any, filename: Any) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        _charge_below(tree)
        return tree

    def join_path(self, template: str, parent: str) -> str:
        """Return the template that `extends` or `include` in template `parent` names: `template`.

        If it is `parent` itself, the template of that name in the package is meant.
        """
        return f"dlperf/{template}" if template == parent else template

    def wrap_str_format(self, value: Any) -> None:
        """Do nothing: `is_safe_attribute` forbids `str.format`, whose widths have no limit."""

    def is_safe_attribute(self, owner: Any, name: str, value: Any) -> bool:
        """Return whether a template may read an attribute: a few methods of texts and numbers."""
        if isinstance(owner, (str, int, float)) and name not in _TEMPLATE_METHODS:
            return False
        return super().is_safe_attribute(owner, name, value)

    def call(self, context: Any, function: Any, *arguments: Any, **options: Any) -> Any:
        """Call a function, charging a search such as `split` first; may raise SecurityError."""
        for argument in (*arguments, *options.values()):
            _draw_search(argument, getattr(function, "__self__", None))
        return super().call(context, function, *arguments, **options)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Apply an operator to two numbers; raises SecurityError for other types or huge values."""
        for value in (left, right):
            if not isinstance(value, (int, float)):
                raise SecurityError(f"{operator} needs numbers, not {value!r:.40}")
            if isinstance(value, int) and value.bit_length() > MAX_BITS:
                raise SecurityError(f"{operator}: a number has more than {MAX_BITS} bits")
        if operator == "**" and isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * abs(right)
            if bits > MAX_BITS:
                raise SecurityError(f"**: the result has more than {MAX_BITS} bits")
        return super().call_binop(context, operator, left, right)


def _charge_below(node: nodes.Node) -> None:
    """Change a parsed template so that all below `node` subtracts from the budget when rendered.

    Expressions are wrapped in the filter `charged`, and what loops run over in `counted`.
    """
    is_file_name = isinstance(node, (nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport))
    for name, value in [] if is_file_name else [*node.iter_fields()]:
        if isinstance(value, nodes.Node):
            setattr(node, name, _charge_node(value))
        elif isinstance(value, list):
            value[:] = [_charge_node(one) if isinstance(one, nodes.Node) else one for one in value]
    if isinstance(node, nodes.For):
        node.iter = _make_filter(node.iter, "counted")


def _charge_node(node: nodes.Node) -> nodes.Node:
    _charge_below(node)
    if isinstance(node, nodes.Compare):
        searches = [operand.op in ("in", "notin") for operand in node.ops]
        if searches == [True]:
            found = _make_filter(node.ops[0].expr, "contains", node.expr)
            return found if node.ops[0].op == "in" else nodes.Not(found, lineno=node.lineno)
        if any(searches):
            raise SecurityError(
                f"line {node.lineno}: `in` cannot be chained with other comparisons; join them "
                "with `and`"
            )
    is_value = isinstance(node, nodes.Expr) and not isinstance(
        node, (nodes.Slice, nodes.TemplateData, nodes.NSRef)
    )
    # a name or tuple may be the target of an assignment, which is not a value to charge for
    is_read = getattr(node, "ctx", "load") == "load"
    return _make_filter(node, "charged") if is_value and is_read else node


def _make_filter(node: nodes.Node, name: str, *arguments: nodes.Node) -> nodes.Filter:
    return nodes.Filter(node, name, [*arguments], [], None, None, lineno=node.lineno)


# with the context as an argument, Jinja2 does not evaluate a filter while it compiles
@jinja2.pass_context
def _charge(context: Any, value: Any) -> Any:
    """Subtract the size of a value from the budget of work, and return the value unchanged."""
    _budget.draw(_measure(value))
    return value


@jinja2.pass_context
def _contains(context: Any, container: Any, item: Any) -> bool:
    """Evaluate `item in container`, after subtracting the work of the search from the budget."""
    _draw_search(item, container)
    return item in container


def _count(items: Iterable[Any]) -> Iterator[Any]:
    """Yield the items of a loop, each of which subtracts a unit from the budget."""
    for item in items:
        _budget.draw(1)
        yield item


def _measure(value: Any) -> int:
    """Return the units of work that a value costs: linear in its length, with all its items."""
    kind = type(value)
    if kind is str:
        return 1 + len(value) // CHARACTERS_PER_UNIT
    if kind is range:
        return 1 + len(value) // ITEMS_PER_UNIT
    if kind in (list, tuple):
        return 1 + sum(map(_measure, value))
    if kind is dict:
        return 1 + sum(map(_measure, value)) + sum(map(_measure, value.values()))
    if isinstance(value, int):
        return 1 + value.bit_length() // MAX_BITS
    return 1


def _draw_search(item: Any, text: Any) -> None:
    """Subtract the work of a search for `item` in `text` from the budget.

    Before Python 3.10 it takes time proportional to the product of both lengths.
    """
    if isinstance(item, str) and isinstance(text, str):
        _budget.draw(len(item) * len(text) // CHARACTERS_PER_UNIT // 100)


def begin_all() -> None:
    """Reset the budget of work that the texts of one matrix share."""
    _budget.shared = SHARED_WORK


def begin_rendering() -> None:
    """Reset the budget for rendering one text; add its share to that of all texts of a matrix."""
    _budget.own = MAX_WORK
    _budget.shared += SHARED_WORK_EACH


def make_environment(template_dirs: Sequence[Path]) -> BoundedEnvironment:
    """Return the Jinja2 environment for templates in these folders.

    A template is taken from the first folder that has it; `dlperf/NAME` is always the one that
    ships with the package.
    """
    shipped = jinja2.FileSystemLoader(str(find_resource_dir("templates")))
    # the prefix lets a site's template extend the shipped one of the same name
    loader = jinja2.ChoiceLoader(
        [
            jinja2.FileSystemLoader([str(folder) for folder in template_dirs]),
            jinja2.PrefixLoader({"dlperf": shipped}),
        ]
    )
    # autoescape is for HTML; the filters quote for the shell
    return BoundedEnvironment(
        loader=loader,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def render_command(command: str, values: Mapping[str, object]) -> str:
    """Render a command of a matrix with the values of a case.

    Raises ValueError for a syntax error, a construct that is not allowed, an unknown value, or an
    error while rendering.
    """
    pieces: list[str] = []
    size = 0
    try:
        template = _compile_command(command)
        begin_rendering()
        for piece in template.generate(values):
            size += len(piece)
            if size > MAX_TEXT_CHARACTERS:
                raise SecurityError(f"the rendered text exceeds {MAX_TEXT_CHARACTERS} characters")
            pieces.append(piece)
    except RecursionError:
        raise ValueError("SecurityError: the expressions are nested too deeply") from None
    except jinja2.UndefinedError as error:
        raise ValueError(f"{error}; known: {', '.join(values)}") from error
    except jinja2.TemplateSyntaxError as error:
        raise ValueError(f"line {error.lineno}: {type(error).__name__}: {error.message}") from error
    except (jinja2.TemplateError, ArithmeticError, TypeError, ValueError) as error:
        # the last three are raised by expressions of the template
        raise ValueError(f"{type(error).__name__}: {error}") from error
    return "".join(pieces)


# cached, as thousands of cases may share a command
@lru_cache(maxsize=16)
def _compile_command(command: str) -> jinja2.Template:
    if len(command) > MAX_COMMAND_CHARACTERS:
        raise SecurityError(f"the command has more than {MAX_COMMAND_CHARACTERS} characters")
    environment = make_environment([])
    environment.filters = {name: environment.filters[name] for name in _COMMAND_FILTERS}
    # check a tree without the internal filters that charge work, which from_string adds
    for node in ImmutableSandboxedEnvironment._parse(environment, command, None, None).find_all(
        nodes.Node
    ):
        _check_node(node)
    return environment.from_string(command)


def render_setting(text: str, values: Mapping[str, object], key: str) -> str:
    """Render the template in a value of a TOML file, as `render_command` does.

    Raises InputError, whose message begins with `key`, for an invalid template or an unknown value.
    """
    try:
        return render_command(text, values)
    except ValueError as error:
        raise InputError(f"{key}: {error}") from error


def _check_node(node: nodes.Node) -> None:
    """Raise SecurityError for a construct that is not allowed in a command."""
    if not isinstance(node, _COMMAND_NODES) or (isinstance(node, nodes.For) and node.recursive):
        name = type(node).__name__.lower()
        raise SecurityError(
            f"line {node.lineno}: {name} cannot stand in a command; allowed: {{{{ values }}}}, if "
            "and for"
        )
    if isinstance(node, nodes.Call):
        called = node.node
        is_range = isinstance(called, nodes.Name) and called.name == "range"
        if not is_range and not (
            isinstance(called, nodes.Getattr) and called.attr in _COMMAND_METHODS
        ):
            raise SecurityError(
                f"line {node.lineno}: an expression of a command may call only range() and the "
                f"methods {', '.join(_COMMAND_METHODS)}"
            )


def _make_range(*bounds: int) -> range:
    made = range(*bounds)
    if made and (made[-1] - made[0]) // made.step >= MAX_RANGE:
        raise SecurityError(f"range: more than {MAX_RANGE} items")
    return made


@jinja2.pass_environment
def _join(
    environment: BoundedEnvironment,
    items: Iterable[Any],
    separator: str = "",
    attribute: Optional[str] = None,
) -> str:
    texts = [str(item) for item in _read_attribute(environment, items, attribute)]
    _check_size(sum(map(len, texts)) + len(texts) * len(separator))
    return separator.join(texts)


def _replace(text: str, old: str, new: str) -> str:
    _draw_search(old, text)
    _check_size(len(text) + text.count(old) * len(new))
    return text.replace(old, new)


@jinja2.pass_environment
def _sum(
    environment: BoundedEnvironment,
    items: Iterable[Any],
    attribute: Optional[str] = None,
    start: float = 0,
) -> float:
    """Add numbers, as Jinja2's filter `sum`; raise SecurityError for lists and other items.

    A sum of lists would copy them for each item. `attribute` names the attribute of items to add.
    """
    total = start
    for item in _read_attribute(environment, items, attribute):
        if not isinstance(item, (int, float)):
            raise SecurityError(f"sum needs numbers, not {item!r:.40}")
        total += item
    return total


def _read_attribute(
    environment: BoundedEnvironment, items: Iterable[Any], attribute: Optional[str]
) -> Iterable[Any]:
    return items if attribute is None else map(make_attrgetter(environment, attribute), items)


def _to_int(value: Any, default: int = 0) -> int:
    """Convert to int, or `default`, as Jinja2's `int`; SecurityError beyond MAX_DIGITS digits."""
    if isinstance(value, str) and len(value) > MAX_DIGITS:
        raise SecurityError(f"int: the text has more than {MAX_DIGITS} characters")
    try:
        return int(value)
    except (TypeError, ValueError):
        with suppress(TypeError, ValueError, OverflowError):
            return int(float(value))
        return default


def _check_size(characters: int) -> None:
    if characters > MAX_TEXT_CHARACTERS:
        raise SecurityError(f"the result of a filter exceeds {MAX_TEXT_CHARACTERS} characters")
