"""The job of `gradcheck calibrate`: noise and defects over many seeds, and the bands that follow, tried on other seeds."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gradcheck._case import Case
from gradcheck._errors import UsageError
from gradcheck._verdict import CANARY, NULL, Outcome, Run
from gradcheck.calibrate.noise import FACTOR, Table, noise_table
from gradcheck.calibrate.published import Published, Trial, joined, merged, pooled, ratio, total
from gradcheck.engine.assemble import carried
from gradcheck.engine.plan import Request, make_plan
from gradcheck.engine.progress import Tell
from gradcheck.engine.published import read_published
from gradcheck.engine.run import run
from gradcheck.engine.truth import cases_of, lookup, sources_of
from gradcheck.suite import Suite, find_op, load


def calibrate(op: str, *, seeds: Sequence[int], held: Sequence[int], request: Request, folder: Path, tell: Tell) -> Published:
    """Measure noise, kernels and defects on `seeds`, and judge the same on the seeds `held` by what was found.

    If `request` names kernels, what is published of the others stays, where it is of the same sources and seeds.

    Raises:
        UsageError: a seed is in both sets, or one of them is empty; or the others were measured on other seeds.
    """
    if not seeds or not held or set(seeds) & set(held):
        raise UsageError(f"seeds {list(seeds)} and held-out seeds {list(held)} must both be given, and share none")
    suite = load([Path(path) for path in request.suites])
    known = read_published(suite, op) if request.kernels else None
    if known is not None and (known.seeds, known.held.seeds, known.factor) != (tuple(seeds), tuple(held), FACTOR):
        raise UsageError(
            f"the other kernels of {op} were calibrated on the seeds {list(known.seeds)}, held {list(known.held.seeds)}: take the same, or "
            "calibrate all kernels"
        )
    found = [_one(replace(request, weakest=True), seed, folder, tell) for seed in seeds]
    noise = _noise(suite, request, seeds)
    by_kernel = {
        (subject.kernel.name, dtype): noise[f"{dtype}/{carried(subject, dtype)}"]
        for subject in make_plan(request, suite).subjects
        for dtype in dict.fromkeys(case.dtype for case in subject.cases)
    }
    bands = merged([one.bands for one in found], by_kernel)
    tolerances = {(b.kernel, b.dtype, b.quantity, b.metric): b.tolerance for b in bands}
    trials = _trials([_one(request, seed, folder, tell) for seed in held], tuple(held), tolerances)
    made = Published(
        op=op,
        sources=sources_of(find_op(suite, op)),
        factor=FACTOR,
        seeds=tuple(seeds),
        ratio=float(f"{ratio(bands):.4g}"),
        noise={key: {q: {m: float(f"{v:.4g}") for m, v in row.items()} for q, row in table.items()} for key, table in noise.items()},
        bands=bands,
        held=total(trials.values()),
        environment={"date": dt.datetime.now(dt.UTC).date().isoformat(), **_short(found[0].environment)},
        trials=trials,
    )
    return made if known is None else joined(known, made)


def _one(request: Request, seed: int, folder: Path, tell: Tell) -> Run:
    return run(replace(request, seed=seed, published=False, checks="none"), folder=folder, tell=tell)


def _noise(suite: Suite, request: Request, seeds: Sequence[int]) -> dict[str, Table]:
    """The model noise of every dtype that a kernel takes, pooled over the grids of all seeds; the runs have put it into the cache."""
    plan = make_plan(request, suite)
    out: dict[str, Table] = {}
    for subject in plan.subjects:
        for dtype in dict.fromkeys(case.dtype for case in subject.cases):
            carry = carried(subject, dtype)
            known = [[lookup(plan.op, case) for case in cases_of(plan.op, (dtype,), seed)] for seed in seeds]
            out[f"{dtype}/{carry}"] = pooled(noise_table(one.noise[carry] for one in of_seed if one is not None) for of_seed in known)
    return out


def _trials(runs: Sequence[Run], seeds: tuple[int, ...], tolerances: dict[tuple[str, str, str, str], float]) -> dict[str, Trial]:
    """The trial of each kernel."""
    kernels = dict.fromkeys(verdict.item.kernel for one in runs for verdict in one.verdicts)
    return {kernel: _trial(runs, kernel, seeds, tolerances) for kernel in kernels}


def _trial(runs: Sequence[Run], kernel: str, seeds: tuple[int, ...], tolerances: dict[tuple[str, str, str, str], float]) -> Trial:
    clean = alarms = rows = missed = 0
    worst = 0.0
    places: dict[str, None] = {}
    for one in runs:
        for verdict in one.verdicts:
            if verdict.evidence is None or verdict.item.kernel != kernel:
                continue
            clean += 1
            places |= dict.fromkeys([verdict.evidence.place] if verdict.evidence.place else [])
            dtype = Case.parse(verdict.item.case).dtype
            sizes = [
                ratio_ / tolerances[verdict.item.kernel, dtype, m.quantity, metric] if ratio_ is not None else float("inf")
                for m in verdict.evidence.measurements
                for metric, ratio_ in m.ratios.items()
            ]
            worst = max([worst, *sizes])
            broken = any(m.zero == "zero-broken" or m.problem for m in verdict.evidence.measurements)
            alarms += bool(broken or verdict.evidence.status != "measured" or not all(size <= 1 for size in sizes))
        for row in one.kills:
            if row.kernel == kernel and row.mutant not in {CANARY, NULL}:
                rows += 1
                missed += row.outcome is Outcome.SURVIVED
    return Trial(seeds, clean, alarms, rows, missed, float(f"{worst:.4g}"), " + ".join(places))


def _short(environment: Mapping[str, str]) -> dict[str, str]:
    keep = ("gradcheck", "python", "numpy", "mlx", "machine", "device", "commit")
    return {key: value for key, value in environment.items() if key in keep}
