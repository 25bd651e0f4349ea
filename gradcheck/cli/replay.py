"""`gradcheck replay`: one kernel at one case, seen close."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from gradcheck._case import Case
from gradcheck._verdict import CANARY, NULL, ExitCode, Outcome
from gradcheck.cli.output import PIPE_WIDTH, columns, emit, printable

if TYPE_CHECKING:
    from gradcheck.engine.closeup import Closeup
    from gradcheck.engine.view import Element, View

TIME, BATCH = "T", "B"  # as in gradcheck.numerics.recurrence, which loads NumPy
_BARS = "▁▂▃▄▅▆▇█"
_INDENT = "  "


@click.command("replay", short_help="Compare one kernel at one case, and show where it is off.")
@click.argument("case")
@click.option("--kernel", metavar="NAME|TARGET", required=True, help="A kernel of the op, or `package.module:attr` or `path/file.py:attr`.")
@click.option("--mutant", metavar="NAME", default="", help="A defect to plant first; `canary` and `null` are understood too.")
@click.option("--forward-only", is_flag=True, help="Compare the outputs alone.")
@click.option("--all", "-a", "everything", is_flag=True, help="Details of every output and gradient, not only of those that fail.")
@click.option("--pytest", "as_pytest", is_flag=True, help="Print a pytest function that makes this comparison, and do not make it now.")
@click.option(
    "--timeout", metavar="SECONDS", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True, help="Time limit."
)
@click.option("--memory", metavar="GIB", type=click.FloatRange(min=0, min_open=True), default=8.0, show_default=True, help="Memory limit.")
@click.option("--suite", "suites", metavar="PATH", multiple=True, help="A folder with oracles/, mutants/ or reports/; may be repeated.")
def command(  # noqa: PLR0913 - each is an option
    case: str,
    *,
    kernel: str,
    mutant: str,
    suites: tuple[str, ...],
    forward_only: bool,
    everything: bool,
    as_pytest: bool,
    timeout: float,
    memory: float,
) -> int:
    """Draw CASE again, compare the kernel with the truth once, and show how far off it is, and where.

    CASE is an id such as `gradcheck list cases` and the replay lines of a report have. Exit 0 where the kernel agrees, or the defect is seen; 1
    where it differs; 3 where the defect is not seen at this case.
    """
    if as_pytest:
        emit(pytest_function(case, kernel, mutant=mutant, suites=suites, forward_only=forward_only))
        return ExitCode.OK
    from gradcheck.engine.closeup import closeup

    seen = closeup(case, kernel=kernel, mutant=mutant, suites=suites, forward_only=forward_only, timeout=timeout, memory=memory)
    emit(printable("\n".join(_text(seen, everything=everything))))
    return status(seen)


_STATUS = {
    **dict.fromkeys((Outcome.PASSED, Outcome.PASSED_ZERO, Outcome.KILLED, Outcome.EQUIVALENT, Outcome.HARMLESS), ExitCode.OK),
    Outcome.FAILED: ExitCode.WRONG,
    Outcome.CRASHED: ExitCode.WRONG,
    Outcome.UNVIABLE: ExitCode.WRONG,
    Outcome.UNINFORMATIVE: ExitCode.NOTHING,
    Outcome.SURVIVED: ExitCode.SURVIVORS,
}
_OF_MUTANT = {Outcome.CRASHED: ExitCode.INCONCLUSIVE, Outcome.UNVIABLE: ExitCode.ROTTEN}
_OF_CONTROL = {(NULL, Outcome.SURVIVED): ExitCode.OK, (NULL, Outcome.KILLED): ExitCode.ROTTEN, (CANARY, Outcome.SURVIVED): ExitCode.ROTTEN}


def status(seen: Closeup) -> ExitCode:
    """The exit status, as `gradcheck run` would give it for this comparison alone."""
    usual = {**_STATUS, **(_OF_MUTANT if seen.item.mutant else {})}.get(seen.outcome, ExitCode.INCONCLUSIVE)
    return _OF_CONTROL.get((seen.item.mutant, seen.outcome), usual)


def pytest_function(case: str, kernel: str, *, mutant: str = "", suites: Sequence[str] = (), forward_only: bool = False) -> str:
    """A test that passes where the kernel agrees with the truth at `case` or, with a mutant, where the defect is seen there.

    Raises:
        UsageError: `case` is no case.
    """
    op = Case.parse(case).op
    short = kernel.rpartition("/")[2].replace(".py:", ":")
    name = re.sub(r"\W+", "_", f"{mutant.rpartition('/')[2]} in {short}" if mutant else short).strip("_")
    options = [f"kernel={json.dumps(kernel)},"]
    options += [f"mutant={json.dumps(mutant)},"] if mutant else []
    options += [f"suites={json.dumps(suites)},"] if suites else []
    options += ["forward_only=True,"] if forward_only else []
    claim = "is_seen" if mutant else f"agrees_with_the_truth_of_{op}"
    check = "seen.outcome is Outcome.KILLED" if mutant else "seen.passed"
    return "\n".join(
        [
            *(["from gradcheck import Outcome"] if mutant else []),
            "from gradcheck.engine.closeup import closeup",
            "",
            "",
            "# Files and suites are looked for from the working directory.",
            f"def test_{name}_{claim}():",
            "    seen = closeup(",
            *(f"        {text}" for text in [f"{json.dumps(case)},", *options]),
            "    )",
            f"    assert {check}, str(seen)",
            "",
        ]
    )


def _text(seen: Closeup, *, everything: bool) -> Iterator[str]:
    what = f"{seen.item.mutant} in {seen.item.kernel}" if seen.item.mutant else seen.item.kernel
    yield f"{seen.outcome.name}  {what}: {seen.ending}"
    yield f"case       {seen.item.case}"
    if seen.place:
        yield f"ran on     {seen.place}"
    if not seen.views:
        yield f"reason     {seen.why}"
        yield from (f"log        {line}" for line in seen.log.splitlines()[-8:])
        return
    yield f"truth      {seen.oracle}"
    yield f"tolerance  {seen.limits}"
    if seen.why and all(view.passed for view in seen.views):
        yield f"reason     {seen.why}"
    for remark in seen.remarks:
        yield f"seen       {remark}"
    yield ""
    yield columns([_metrics(view) for view in seen.views])
    yield "Errors in rounding units of the case, each / its tolerance; above 1 it is no noise."
    for view in seen.views:
        if (everything or not view.passed) and view.elements:
            yield ""
            yield from _details(view)


def _metrics(view: View) -> dict[str, object]:
    """One row: every metric against its tolerance."""
    m = view.measurement
    name = f"{'✓' if view.passed else '✗'} {m.quantity}"
    word = m.problem or {"zero-kept": "exactly zero, as the truth is", "zero-broken": "not exactly zero, as the truth is"}.get(m.zero, "")
    told = {metric: _against(m.ratios.get(metric), limit) if m.ratios else "" for metric, limit in view.tolerances.items()}
    return {"": name, **told, "elements": m.checked, "note": word or ("" if m.informative else "the truth is below the oracle's own error")}


def _against(ratio: float | None, limit: float) -> str:
    return f"{_short(ratio)} / {_short(limit)}{'' if ratio is not None and ratio <= limit else ' !'}"


def _details(view: View) -> Iterator[str]:
    m = view.measurement
    yield f"{m.quantity}  [{' '.join(m.axes)}]"
    yield from (_INDENT + line for line in columns([_element(m.axes, e) for e in view.elements]).splitlines())
    limit = view.tolerances["slice"]
    head = next((axis for axis in m.axes if axis not in {TIME, BATCH}), "")
    for axis, what in {TIME: "time step", head: f"head ({head})", BATCH: "row"}.items():
        if axis not in m.axes:
            continue
        out, slices, index = view.out(axis), view.slices[axis], axis.lower()
        reach = f"{len(out)} of {len(slices)} out of the noise" + (f", first at {index} = {out[0]}" if out else "")
        worst = max(range(len(slices)), key=lambda i: math.inf if slices[i] is None else slices[i] or 0.0)
        yield f"{_INDENT}by {what}: {reach}; worst at {index} = {worst}, {_short(slices[worst])} / {_short(limit)}"
        if len(slices) > 1:
            yield from (2 * _INDENT + line for line in _profile(slices, limit))


def _element(axes: Sequence[str], element: Element) -> dict[str, object]:
    return {
        "worst elements": ", ".join(f"{axis.lower()}={i}" for axis, i in zip(axes, element.index, strict=True)),
        "got": f"{element.got:.9g}",
        "want": f"{element.want:.9g} ± {element.error:.1g}",
        "off": _short(element.off),
    }


def _profile(slices: Sequence[float | None], limit: float) -> Iterator[str]:
    """The error of each index: as numbers where there are few, else as bars over the four decades about the tolerance."""
    if len(slices) <= 8:
        yield "  ".join(f"{i}: {_short(ratio)}" for i, ratio in enumerate(slices))
        return
    per = math.ceil(len(slices) / (PIPE_WIDTH - 8))
    yield "".join(_bar(slices[i : i + per], limit) for i in range(0, len(slices), per))


def _bar(ratios: Sequence[float | None], limit: float) -> str:
    """The worst of these errors; `!` where one is not finite."""
    finite = [ratio for ratio in ratios if ratio is not None]
    if len(finite) < len(ratios):
        return "!"
    level = 0.5 + math.log10(max(finite) / limit) / 4 if max(finite) > 0 else 0.0
    return _BARS[min(max(int(level * len(_BARS)), 0), len(_BARS) - 1)]


def _short(value: float | None) -> str:
    if value is None:
        return "not finite"
    return f"{value:.3g}" if value == 0 or 0.01 <= abs(value) < 1000 else f"{value:.1e}".replace("e+0", "e").replace("e-0", "e-")
