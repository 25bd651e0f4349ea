"""`gradcheck list`: what the suites hold, and which runs there are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gradcheck._errors import GradcheckError
from gradcheck.cli.output import columns, emit, emit_json, width
from gradcheck.cli.run import FOLDER

if TYPE_CHECKING:
    from gradcheck._kernel import Kernel
    from gradcheck._op import Op
    from gradcheck.suite import Suite

Rows = list[dict[str, object]]

WHAT = ("ops", "kernels", "mutants", "regimes", "cases", "runs")


@click.command("list", short_help="Name the ops, kernels, mutants, regimes, cases or runs.")
@click.argument("what", type=click.Choice(WHAT), required=False)
@click.option("--op", metavar="NAME", help="Of this op alone.")
@click.option("--suite", "suites", metavar="PATH", multiple=True, help="A folder with oracles/, mutants/ or reports/; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
def command(what: str | None, op: str | None, suites: tuple[str, ...], *, as_json: bool) -> int:
    """Name the ops, kernels, mutants, regimes, cases or runs; without a word: all of a suite but its cases."""
    if what == "runs":
        found = {"runs": _runs(op)}
    else:
        from gradcheck.suite import find_op, load

        suite = load([Path(path) for path in suites])
        ops = [find_op(suite, op)] if op else list(suite.ops.values())
        if what == "cases" and not as_json:
            emit("\n".join(_cases(ops)))
            return 0
        kinds = (what,) if what else ("ops", "kernels", "mutants", "regimes")
        found = {kind: _rows(kind, suite, ops) for kind in kinds}
    if as_json:
        emit_json(found[what] if what else found)
    else:
        limit = width(sys.stdout) if sys.stdout.isatty() else None
        emit("\n\n".join(columns(rows, limit) or f"There are no {kind}." for kind, rows in found.items()))
    return 0


def _rows(kind: str, suite: Suite, ops: list[Op]) -> Rows:
    names = {op.name for op in ops}
    match kind:
        case "ops":
            return [_op(op, suite) for op in ops]
        case "kernels":
            return [_kernel(op, kernel) for op in ops for kernel in op.kernels]
        case "mutants":
            return [
                {"mutant": m.id, "defect": m.defect, "kernels": list(m.edits), "expect": m.expect, "why": m.why}
                for m in suite.mutants.values()
                if m.op in names
            ]
        case "regimes":
            return [{"regime": f"{op.name}/{regime.name}", "why": regime.why} for op in ops for regime in op.regimes.values()]
        case _:
            return [{"case": case} for case in _cases(ops)]


def _op(op: Op, suite: Suite) -> dict[str, object]:
    return {
        "op": op.name,
        "branches": list(op.variants),
        "gradients": [name for name in op.inputs if name not in op.constants],
        "outputs": list(op.outputs),
        "kernels": [kernel.name for kernel in op.kernels],
        "mutants": sum(mutant.op == op.name for mutant in suite.mutants.values()),
        "source": op.source,
    }


def _kernel(op: Op, kernel: Kernel) -> dict[str, object]:
    from gradcheck.engine.environment import lacking

    return {
        "kernel": f"{op.name}/{kernel.name}",
        "dtypes": list(kernel.dtypes),
        "branches": list(kernel.variants or op.variants),
        "runs here": f"no: needs {lacks}" if (lacks := lacking(kernel.requires)) else "yes",
        "target": kernel.target,
    }


def _cases(ops: list[Op]) -> Iterator[str]:
    """The covering grid in the dtypes that the op's kernels claim, as `gradcheck run` would go through it."""
    from gradcheck.engine.truth import cases_of

    for op in ops:
        dtypes = tuple(dict.fromkeys(dtype for kernel in op.kernels for dtype in kernel.dtypes)) or ("f32",)
        yield from map(str, cases_of(op, dtypes, 0))


def _runs(op: str | None) -> Rows:
    """The runs of this folder, newest first."""
    from gradcheck.engine.store import read

    rows: Rows = []
    for plan in sorted((FOLDER / "runs").glob("*/plan.json"), reverse=True):
        run = plan.parent.name
        try:
            stored = read(FOLDER, run)
        except GradcheckError as error:  # one damaged run must not hide the others
            rows.append({"run": run, "op": "", "mutants": "", "done": 0, "planned": 0, "state": str(error)})
            continue
        if op in (None, stored.plan.op):
            planned, left = len(stored.plan.items), len(stored.to_do)
            state = f"exit {stored.summary.get('exit_code')}" if stored.summary is not None else f"gradcheck run --resume {run}"
            mutants = str(stored.plan.request.get("mutants", ""))
            rows.append({"run": run, "op": stored.plan.op, "mutants": mutants, "done": planned - left, "planned": planned, "state": state})
    return rows
