"""Write docs/api.md and docs/cli.md from the code: signatures, docstrings, options; `make api`."""

from __future__ import annotations

import dataclasses
import inspect
import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click

import bayesmf
from bayesmf import errors, sklearn
from bayesmf.cli.main import main
from bayesmf.cli.shared.options import reading_options
from bayesmf.evaluation.convergence import Diagnostics
from bayesmf.evaluation.diagnostics import Targets, Verdict
from bayesmf.fitted.base import Fitted, SavedFit
from bayesmf.fitted.explore.answers import Explores
from bayesmf.fitted.explore.plot import Plot
from bayesmf.inference.gibbs import GibbsFit
from bayesmf.inference.loop import Progress
from bayesmf.inference.map.fit import MapFit
from bayesmf.inference.variational.fit import VariationalFit
from bayesmf.selection.compare import Comparison
from bayesmf.selection.cross_validate import CrossValidation
from bayesmf.selection.trials import Step
from bayesmf.selection.tune import Tuning

HERE = Path(__file__).parent
MADE = "Made from the code by `make api`; change it there."
WIDTH = 96
SECTIONS: list[tuple[str, str, list[Any]]] = [
    ("In one call", "From ratings to a fit.", [bayesmf.fit]),
    ("Data", "Ratings in and out, and cut into parts.", [
        bayesmf.load, bayesmf.Ratings, bayesmf.Scale, bayesmf.split, bayesmf.kfold, bayesmf.Split,
        bayesmf.save_split, bayesmf.load_split, bayesmf.write,
    ]),
    ("Models", "A model is a value. [Which one?](guides/models.md) "
     "[How to extend it](guides/extending.md)",
     [bayesmf.Model, bayesmf.Hyper, bayesmf.RatedSet, bayesmf.Attributes]),
    ("Algorithms", "Each takes a model and has `fit`. [Which one?](guides/inference.md)",
     [bayesmf.Gibbs, bayesmf.Targets, bayesmf.Variational, bayesmf.MAP, Progress,
     bayesmf.ProgressBar]),
    ("More than one machine",
     "[Sampling on Ray](guides/cluster.md), and [limited communication](guides/propagation.md).",
     [bayesmf.Ray, bayesmf.shard, bayesmf.Shards, bayesmf.Propagation]),
    ("Fits", "What every fit can do comes first, then what each algorithm leaves besides. "
     "[Predictions, recommendations, new users](guides/everyday.md)",
     [Fitted, Plot, GibbsFit, VariationalFit, MapFit, SavedFit, bayesmf.load_model]),
    ("Choosing", "[Which model to take](guides/choosing.md).", [
        bayesmf.compare, Comparison, bayesmf.cross_validate, CrossValidation, bayesmf.tune, Tuning,
        Step,
    ]),
    ("A page", "A fit on one page of HTML.", [bayesmf.summary_page]),
    ("Convergence", "What `fit.diagnostics()` returns. [Has it converged?](guides/convergence.md)",
     [Diagnostics, Verdict, Targets]),
    ("For scikit-learn", "In `bayesmf.sklearn`; needs `pip install 'bayesmf[sklearn]'`.",
     [sklearn.MatrixFactorization]),
    ("Errors", "What a wrong argument, a damaged file or an unusable table raises.",
     [errors.DataError, errors.AttributesWarning, errors.OverfittingWarning,
      errors.SeenWarning, errors.UnusedWarning]),
]  # fmt: skip
INSIDE = {  # what callers have no use for
    "from_columns", "from_sorted", "known", "made", "posterior", "has_own", "groups", "wishart",
    "size", "first_shifted", "design_group", "designs", "responds", "to_dict", "from_dict",
    "most_sweeps", "room_for", "draws_kept", "matrix", "check", "place", "start", "sweep",
    "map", "describe_engine", "shared", "cluster", "propagate", "from_traces", "format_table",
    "render", "message", "check_rows", "format_lines",
}  # fmt: skip
CALLED = {Fitted: "fit", Plot: "fit.plot"}  # as whom the methods are shown


def api() -> str:
    """The page of the Python names."""
    lines: list[str] = []
    for title, about, things in SECTIONS:
        lines += ["", f"## {title}", "", about]
        for thing in things:
            lines += _class(thing) if inspect.isclass(thing) else _function(thing, "###")
    slugs: list[str] = []
    for line in lines:
        if heading := re.fullmatch(r"#+ (.*)", line):
            slugs.append(_slug(heading[1], slugs))
    places = iter(slugs)
    about = "`import bayesmf`. The command line has [a reference of its own](cli.md)."
    top = ["# Python reference", "", MADE, "", about, ""]
    for title, _, things in SECTIONS:
        names = []
        for thing in things:
            place = next(s for s in places if re.sub(r"-\d+$", "", s) == thing.__name__.lower())
            names.append(f"[`{thing.__name__}`](#{place})")
        top.append(f"- {title}: {', '.join(names)}")
    return "\n".join([*top, *lines]) + "\n"


def _slug(heading: str, before: list[str]) -> str:
    """What a heading's address is, where Markdown is shown: the second one of a name is -1."""
    name = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
    again = sum(re.sub(r"-\d+$", "", one) == name for one in before)
    return f"{name}-{again}" if again else name


def _class(thing: type) -> Iterator[str]:
    yield from ("", f"### {thing.__name__}")
    fields = _fields(thing)
    if not fields and not issubclass(thing, Exception | Fitted):
        yield from ("", *_code(_signature(thing.__name__, thing)))
    yield from ("", _text(thing))
    if fields:
        yield from ("", "| field | type | default | |", "|---|---|---|---|")
        for name, *rest in fields:
            kind, default = (text and f"`{text}`".replace("|", "\\|") for text in rest[:2])
            yield f"| `{name}` | {kind} | {default} | {rest[2]} |"
    for name, value in {**vars(thing), **(vars(Explores) if thing is Fitted else {})}.items():
        if name.startswith("_") or (name in INSIDE and thing is not Fitted):
            continue
        method = value.__func__ if isinstance(value, classmethod) else value
        if inspect.isfunction(method):
            yield from _function(method, "####", CALLED.get(thing, thing.__name__))
    plain = [(name, value) for name, value in vars(thing).items()
             if isinstance(value, property) and name not in INSIDE]  # fmt: skip
    if plain:
        yield from ("", "| property | |", "|---|---|")
        yield from (f"| `{name}` | {_text(value)} |" for name, value in plain)


def _function(thing: Callable[..., Any], level: str, owner: str = "") -> list[str]:
    name = f"{owner}.{thing.__name__}" if owner else thing.__name__
    return ["", f"{level} {name}", "", *_code(_signature(name, thing)), "", _text(thing)]


def _fields(thing: type) -> list[tuple[str, str, str, str]]:
    """Name, type, default and the comment behind it, of a dataclass."""
    if not dataclasses.is_dataclass(thing):
        return []
    comments = _comments(thing)
    return [
        (one.name, _kind(one.type, thing), _default(one), comments.get(one.name, ""))
        for one in dataclasses.fields(thing)
        if one.name not in INSIDE
    ]


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return repr(field.default)
    if field.default_factory is not dataclasses.MISSING:
        return f"{field.default_factory.__qualname__}()"
    return ""


def _comments(thing: type) -> dict[str, str]:
    """What is written behind the fields."""
    found: dict[str, str] = {}
    first: dict[int, str] = {}  # the first name of each line
    for token in tokenize.generate_tokens(io.StringIO(inspect.getsource(thing)).readline):
        if token.type == tokenize.NAME:
            first.setdefault(token.start[0], token.string)
        elif token.type == tokenize.COMMENT and token.start[0] in first:
            text = token.string.lstrip("# ").replace("``", "`").replace("|", "\\|")
            found.setdefault(first[token.start[0]], text)
    return found


def _kind(annotation: Any, where: Any) -> str:
    """A type as it is written, with names for choices replaced by the choices."""

    def choices(found: re.Match[str]) -> str:
        value = getattr(sys.modules[where.__module__], found[0], None)
        return " | ".join(map(repr, get_args(value))) if get_origin(value) is Literal else found[0]

    text = re.sub(r"\b[A-Z]\w+\b", choices, str(annotation))
    return re.sub(r"Literal\[([^]]*)\]", lambda found: found[1].replace(", ", " | "), text)


def _signature(name: str, thing: Any) -> str:
    """As it is called; one argument a line if it is long."""
    signature = inspect.signature(thing)
    parts, star = [], False
    for key, one in signature.parameters.items():
        if key in ("self", "cls"):
            continue
        if one.kind is one.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        prefix = "**" if one.kind is one.VAR_KEYWORD else ""
        default = "" if one.default is one.empty else f" = {one.default!r}"
        parts.append(f"{prefix}{key}: {_kind(one.annotation, thing)}{default}")
    back = signature.return_annotation
    end = "" if inspect.isclass(thing) else f" -> {_kind(back, thing)}"
    line = f"{name}({', '.join(parts)}){end}"
    if len(line) <= WIDTH:
        return line
    inner = "".join(f"    {part},\n" for part in parts)
    return f"{name}(\n{inner}){end}"


def _code(text: str) -> list[str]:
    return ["```", text, "```"]


def _text(thing: Any) -> str:
    """A docstring as Markdown: only its doubled backticks differ."""
    return (inspect.getdoc(thing) or "").replace("``", "`")


def cli() -> str:
    """The page of the commands."""
    lines = ["# Command-line reference", "", MADE, "", _help(main), "",
             "Every command has `--help`. From Python the same is in the [Python "
             "reference](api.md).", ""]  # fmt: skip
    commands = list(_commands(main, "bayesmf"))
    lines += [f"- [`{name}`](#{name.replace(' ', '-')}): {_help(command).splitlines()[0]}"
              for name, command in commands]  # fmt: skip
    reading = click.command("DATA")(reading_options(lambda: None)).params
    shared = {one.name for one in reading}
    lines += ["", "## Options of reading DATA", "",
              "Every command with `DATA` has them; see [Your own ratings]"
              "(guides/your-own-ratings.md).", "", *_options(reading)]  # fmt: skip
    for name, command in commands:
        params = [one for one in command.params if isinstance(one, click.Option)]
        reads = shared <= {one.name for one in params}
        usage = " ".join(command.collect_usage_pieces(click.Context(command)))
        lines += ["", f"## {name}", "", *_code(f"{name} {usage}"), "", _help(command)]
        own = [one for one in params if not (reads and one.name in shared)]
        if own:
            lines += ["", *_options(own)]
        if reads:
            lines += ["", "And the [options of reading DATA](#options-of-reading-data)."]
    return "\n".join(lines) + "\n"


def _commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _help(command: click.Command) -> str:
    """The help text; an example in it as code."""
    text = inspect.cleandoc(command.help or "")
    return re.sub(r"^Example: (.*)$", r"Example: `\1`", text, flags=re.M)


def _options(params: list[Any]) -> Iterator[str]:
    yield from ("| option | |", "|---|---|")
    for one in params:
        record = one.get_help_record(click.Context(click.Command("")))
        if record is not None:
            option, about = (text.replace("|", "\\|") for text in record)
            about = about.replace(str(2**64 - 1), "2^64 - 1").replace("<=", " <= ")
            about = re.sub(r"  +", " ", about.replace(">=", " >= "))
            yield f"| `{option.replace(' RANGE', '')}` | {about} |"


PAGES = {"api.md": api, "cli.md": cli}

if __name__ == "__main__":
    for page, made in PAGES.items():
        (HERE / page).write_text(made(), encoding="utf-8")
