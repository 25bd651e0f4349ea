"""What a request comes to: its plan, what is written of it, and the bands it is judged by."""

from __future__ import annotations

import shlex
from dataclasses import asdict, replace
from pathlib import Path

from gradcheck.calibrate.published import Published
from gradcheck.engine import store
from gradcheck.engine.assemble import planned_items
from gradcheck.engine.cache import source_digest
from gradcheck.engine.environment import environment
from gradcheck.engine.plan import Plan, Request, make_plan
from gradcheck.engine.published import read_published
from gradcheck.engine.shard import parse_shard, part
from gradcheck.engine.target import source_files
from gradcheck.engine.truth import op_digest, own_digest
from gradcheck.suite import Suite


def planned(request: Request, suite: Suite, cwd: Path) -> tuple[Plan, store.Manifest]:
    """What a request comes to in this folder: the plan, and what is written of it.

    Raises:
        UsageError: a name in it does not exist, or does not fit.
    """
    plan = make_plan(request, suite)
    if (published := published_for(request, suite)) is not None:
        known = {band.kernel for band in published.bands}
        plan = replace(plan, subjects=tuple(replace(subject, banded=subject.kernel.name in known) for subject in plan.subjects))
    sources, items = sources_of(plan, suite, request, cwd), planned_items(plan)
    whole = store.digest_of(items, sources)
    if request.shard:
        plan = part(plan, parse_shard(request.shard))
        items = planned_items(plan)
    manifest = store.Manifest(
        op=plan.op.name,
        request={**asdict(request), "cwd": str(cwd)},
        items=items,
        environment=environment(cwd),
        digest=store.digest_of(items, sources),
        whole=whole,
        sources=store.digest_of((), sources),
    )
    return plan, manifest


def sources_of(plan: Plan, suite: Suite, request: Request, cwd: Path) -> str:
    """Digest of every source that evidence depends on, as it lies on disk now: a process may run an op, edit it, and run it again."""
    for once in (op_digest, own_digest):
        once.cache_clear()
    packages = [Path(subject.package) for subject in plan.subjects if subject.package]
    targets = [file for subject in plan.subjects if subject.stranger for file in source_files(subject.kernel.target, folder=cwd)]
    mutants = {Path(suite.files[mutant.id]) for subject in plan.subjects for mutant in subject.mutants.values()}
    files = [path for path in (*packages, *targets, *sorted(mutants)) if path.exists()]
    kernels = [subject.kernel for subject in plan.subjects]
    return f"{op_digest(plan.op.file)} {own_digest()} {source_digest(files)} {request.forward_only} {request.oracle} {kernels}"


def published_for(request: Request, suite: Suite) -> Published | None:
    """The published bands that a request is judged by, if there are any of these sources."""
    if not request.published or request.bands == "none":
        return None
    return read_published(suite, request.op, Path(request.bands) if request.bands else None)


def command_of(request: Request) -> str:
    """The command line that asks for `request`."""
    words = ["gradcheck", "run", "--op", request.op]
    plain = Request(request.op)
    for name, option in {"kernels": "--kernel", "cases": "--cases", "suites": "--suite"}.items():
        words += [word for value in getattr(request, name) for word in (option, value)]
    for name, option in {"dtypes": "--dtype", "regimes": "--regime"}.items():
        words += [option, ",".join(getattr(request, name))] if getattr(request, name) else []
    for name in ("mutants", "dims", "seed", "jobs", "timeout", "memory", "oracle"):
        if getattr(request, name) != getattr(plain, name):
            words += [f"--{name}", str(getattr(request, name))]
    words += ["--checks", request.checks] if request.checks != "all" else []
    words += [
        word
        for name in ("shard", "engine", "scheduler")
        if (value := getattr(request, name)) != getattr(plain, name)
        for word in (f"--{name}", value)
    ]
    words += [option for option, on in {"--matrix": request.matrix, "--forward-only": request.forward_only}.items() if on]
    return shlex.join(words)
