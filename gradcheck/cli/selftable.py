"""What `--oracle self` found, as text: somebody else's table, ours by the same method, and the same kernels against the truth."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill

from gradcheck._verdict import CANARY, NULL, ExitCode
from gradcheck.cli.output import columns, printable
from gradcheck.engine.selfcheck import SelfResult
from gradcheck.engine.selfrows import SelfRow, Separation, Spread

WIDTH, INDENT = 110, 10

METHOD = {
    "method": "One element at a time, float32 differences of the kernel's own forward: of L = sum(w * packed), with w random in sign and "
    "0.5 to 1.5 in size, over y and the final state. The products are float32, their sum float64, L rounded to float32 as ggml_sum does.",
    "MAA": "mean |(a - n) / (a + n)|, ggml's formula; of the gradients the worst. 0/0 counts 0, and what is not finite is a failure: in "
    "ggml 0/0 is NaN, which exceeds no tolerance, so that the tensor passes.",
    "float64": "Relative L2 against the float64 truth; of the same gradients the worst.",
}

MEANING = (
    "The noise by MAA is the truncation of the step and the rounding of the forward, blown up where a gradient is near 0; it is not the "
    "gradient's error, which is the noise by float64. And a forward that is wrong agrees with itself."
)


def table(found: SelfResult) -> str:
    """The report for people."""
    return printable("\n".join(_blocks(found)))


def _blocks(found: SelfResult) -> Iterator[str]:
    yield f"{_badge(found)}  {found.op}: {_sentence(found)}"
    yield ""
    for label, text in _statements(found):
        yield fill(text, WIDTH, initial_indent=label.ljust(INDENT), subsequent_indent=" " * INDENT)
    for kernel, variant in dict.fromkeys((row.kernel, row.variant) for row in found.rows):
        yield ""
        yield from _branch(found, kernel, variant)
    yield ""
    yield fill(MEANING, WIDTH)
    yield ""
    yield f"{found.environment.get('device', '')} · {sum(row.done for row in found.rows)} items · {found.seconds:.1f} s"
    yield f"exit {int(found.exit_code)}: by MAA against the tolerance; without --oracle self the kernel is judged by the truth"


def _statements(found: SelfResult) -> Iterator[tuple[str, str]]:
    """Labelled lines: why it failed, what was done, with what it is compared."""
    setting, last = found.setting, found.seed + found.seeds - 1
    apart = f", {' '.join(found.apart)} apart" if found.apart else ""
    yield from (("because", reason) for reason in found.reasons)
    yield from (("note", note) for note in found.notes)
    points = f"{setting.stencil}-point, step {setting.step:g}"
    yield "setting", f"{setting.dims} · {setting.regime} · f32 · {points} · seeds {found.seed} to {last}"
    yield "judged", f"gradients of {' '.join(found.gradients)}{apart}; tolerance {found.tolerance:g}"
    yield from METHOD.items()
    if found.table:
        yield "theirs", f"{found.table.source}, {found.table.runs} runs. Neither its shape nor its step is told."


def _badge(found: SelfResult) -> str:
    return "PASS" if found.exit_code is ExitCode.OK else found.exit_code.name if found.exit_code > ExitCode.SURVIVORS else "FAIL"


def _sentence(found: SelfResult) -> str:
    clean = [row for row in found.rows if not row.mutant]
    defects = [row for row in found.rows if row.counted]
    names = dict.fromkeys(row.mutant for row in defects)
    seen = [name for name in names if all(row.done == row.above == row.runs for row in defects if row.mutant == name)]
    runs = sum(row.runs for row in clean)
    within = sum(row.done - row.above for row in clean)
    parts = [f"within {found.tolerance:g} of differences of its own forward in {within} of {runs} runs"]
    if names:
        parts.append(f"{len(seen)} of {len(names)} defects above it at every seed")
    return "; ".join(parts)


def _branch(found: SelfResult, kernel: str, variant: str) -> Iterator[str]:
    mine = [row for row in found.rows if (row.kernel, row.variant) == (kernel, variant)]
    yield " · ".join(filter(None, (kernel, variant)))
    yield columns([_line(found, row) for row in mine if row.mutant not in {CANARY, NULL}])
    if clean := next((row for row in mine if not row.mutant and row.apart), None):
        assert clean.apart is not None
        yield f"apart: noise of {' '.join(found.apart)} up to {_number(clean.apart.most)}"
    for one in found.separations:
        if (one.kernel, one.variant) == (kernel, variant):
            yield _separation(found, one)


def _line(found: SelfResult, row: SelfRow) -> dict[str, object]:
    """One line of the table. Ours is the median over seeds, but for noise the most."""
    line: dict[str, object] = {"": row.mutant or "noise"}
    ours = None if row.maa is None else row.maa.middle if row.mutant else row.maa.most
    theirs = None
    if found.table:
        theirs = found.table.defects.get(row.mutant) if row.mutant else found.table.noise
        line["theirs"] = "" if theirs is None else _number(theirs)
    line |= {f"MAA {name}": text for name, text in zip(("least", "median", "most"), _spread(row.maa), strict=True)}
    if found.table:
        line["ours/theirs"] = f"{ours / theirs:.2g}" if theirs and ours is not None else ""
    line[f"above {found.tolerance:g}"] = f"{row.above} of {row.done}" if row.done else row.detail or row.status
    least, _, most = _spread(row.l2)
    return line | {"float64 least": least, "float64 most": most}


def _spread(spread: Spread | None) -> tuple[str, str, str]:
    return ("", "", "") if spread is None else (_number(spread.least), _number(spread.middle), _number(spread.most))


def _separation(found: SelfResult, one: Separation) -> str:
    theirs = f"theirs {min(found.table.defects.values()) / found.table.noise:.2g}, " if found.table and found.table.defects else ""
    text = f"separation (least defect / most noise): {theirs}self {_number(one.by_self)}, float64 {_number(one.by_truth)}"
    if one.by_self and one.by_truth:
        text += f": float64 puts them {one.by_truth / one.by_self:.2g} times further apart"
    return text


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.2g}"
