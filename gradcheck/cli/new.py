"""`gradcheck new`: an op, mutant, kernel or report to begin with. It passes `gradcheck lint` and runs as it is written."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import click

from gradcheck._errors import UsageError
from gradcheck._verdict import ExitCode
from gradcheck.cli.output import emit

if TYPE_CHECKING:
    from gradcheck._op import Op
    from gradcheck.suite import Suite

KINDS = ("op", "mutant", "kernel", "report")
Plan = tuple[dict[str, str], list[str]]  # file to text, and the commands to go on with


@click.command("new", short_help="Write an op, mutant, kernel or report to begin with.")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name")
@click.option("--op", metavar="NAME", default="", help="The op that a mutant or kernel is of.")
@click.option("--suite", "suites", metavar="PATH", multiple=True, help="A folder with oracles/, mutants/ or reports/; may be repeated.")
def command(kind: str, name: str, *, op: str, suites: tuple[str, ...]) -> int:
    """Write files into oracles/, mutants/, reports/ and kernels/ of the working directory. Nothing is ever overwritten.

    An op comes with a kernel and two mutants, and all of them run as they are.
    """
    from gradcheck.suite import find_op, load

    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        raise UsageError(f"the name {name!r} is no name for a {kind}: use letters, digits and underscores, and begin with a letter")
    if bool(op) != (kind in {"mutant", "kernel"}):
        raise UsageError(f"a {kind} is of an op: name it with --op" if not op else f"a new {kind} is of no op: leave out --op {op}")
    suite = load([Path(path) for path in suites])
    taken = f"{op}/{name}" if kind == "mutant" else name
    if kind != "kernel" and taken in suite.files:
        raise UsageError(f"the name {taken} is taken by {suite.files[taken]}; choose another")
    make: Mapping[str, Callable[[], Plan]] = {
        "op": lambda: _op(name),
        "report": lambda: _report(name),
        "mutant": lambda: _mutant(name, suite, find_op(suite, op)),
        "kernel": lambda: _kernel(name, find_op(suite, op)),
    }
    texts, commands = make[kind]()
    _write(texts)
    found = {root.path for root in load([Path(path) for path in suites]).roots}
    option = "" if Path.cwd().resolve() in found or kind == "kernel" else " --suite ."  # the configuration names other folders
    for line in (*(f"wrote {file}" for file in texts), *(f"next: {line}{option}" for line in commands)):
        emit(line)
    return ExitCode.OK


def _op(name: str) -> Plan:
    texts = {f"{folder}/{name}.py": _fill(f"op_{part}", name=name) for folder, part in PARTS.items()}
    return texts, ["gradcheck lint", f"gradcheck run --op {name} --mutants all"]


PARTS = {"oracles": "oracle", "kernels": "kernel", "mutants": "mutants"}


def _report(name: str) -> Plan:
    return {f"reports/{name}.py": _fill("report", name=name)}, [f"gradcheck report --format {name}"]


def _mutant(name: str, suite: Suite, op: Op) -> Plan:
    from gradcheck.engine.flip import flip_of

    kernel, edit = flip_of(op, suite.homes[op.name].path)
    text = _fill("mutant", name=name, op=op.name, kernel=kernel, file=edit.file, find=_quoted(edit.find), replace=_quoted(edit.replace))
    return {f"mutants/{name}.py": text}, ["gradcheck lint", f"gradcheck run --op {op.name} --kernel {kernel} --mutants {name}"]


def _kernel(name: str, op: Op) -> Plan:
    (output, axes), (state, _) = ((key, text.split()) for key, text in op.outputs.items())
    inputs = {key: text.split() for key, text in op.inputs.items()}
    size = {axis: f"{key}.shape[{at.index(axis)}]" for key, at in reversed(inputs.items()) for axis in at}
    text = _fill(
        "kernel",
        name=name,
        op=op.name,
        maths=op.maths,
        arguments=", ".join(inputs),
        shapes="; ".join(f"{key} [{' '.join(at)}]" for key, at in inputs.items()) + f" to {output} [{' '.join(axes)}] and {state}",
        steps=size["T"],
        step_shape=", ".join(size[axis] for axis in axes if axis != "T"),
        time=str(axes.index("T")),
        state=op.state,
    )
    return {f"kernels/{name}.py": text}, [f"gradcheck run --op {op.name} --kernel kernels/{name}.py:{name}"]


def _fill(template: str, **words: str) -> str:
    return Template((files("gradcheck.cli") / "templates" / f"{template}.py.tmpl").read_text("utf-8")).substitute(words)


def _quoted(text: str) -> str:
    """A Python string in double quotes."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _write(texts: Mapping[str, str]) -> None:
    """All of the files, or none where one of them exists."""
    for file in texts:
        if Path(file).exists():
            raise UsageError(f"{Path(file).absolute()} exists, and nothing is overwritten; choose another name, or move it away")
    for file, text in texts.items():
        try:
            Path(file).parent.mkdir(exist_ok=True)
            with Path(file).open("x", encoding="utf-8") as opened:
                opened.write(text)
        except OSError as error:
            raise UsageError(
                f"cannot write {Path(file).absolute()}: {error.strerror or error}; go to a folder that can be written"
            ) from error
