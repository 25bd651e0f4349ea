"""Kernels as machine code: from the cache, or compiled into it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from gradcheck._files import write_whole
from gradcheck.metal import toolchain
from gradcheck.metal.cache import digest, folder, sum_of
from gradcheck.metal.compile import Options, compile_kernel, cores, headers_digest, prelude, runtime_digest
from gradcheck.metal.errors import CompileError
from gradcheck.metal.places import Diagnostic, Place, diagnostics
from gradcheck.metal.rules import breaches
from gradcheck.metal.spaces import space_errors
from gradcheck.metal.unit import Job, Source, Unit, make_unit

_PER_UNIT = 16  # kernels that share one translation unit: beyond this another core helps more


@dataclass(frozen=True, slots=True)
class Built:
    """A compiled kernel.

    Args:
        library: the shared library it is in.
        entry: symbol of its body for one thread.
        loop: symbol of its body for whole threadgroups, or nothing.
        sources: its texts, by the name that the library's line table has for them.
        warnings: what the compiler and the rules have to say.
    """

    library: Path
    entry: str
    loop: str
    sources: dict[str, Source] = field(hash=False)
    warnings: tuple[str, ...] = ()


def build(job: Job, options: Options) -> Built:
    """The kernel, compiled if it is not in the cache.

    Raises:
        CompileError: it is not valid; the message has the lines.
        NoCompilerError: there is no compiler, see `toolchain`.
    """
    (built,) = build_many([job], options)
    if isinstance(built, CompileError):
        raise built
    return built


def build_many(jobs: Sequence[Job], options: Options) -> list[Built | CompileError]:
    """Many kernels, compiled together: each as `build` gives it, or the error of that kernel alone.

    Raises:
        NoCompilerError: there is no compiler, see `toolchain`.
    """
    found: dict[int, Built | CompileError] = {}
    keys = [_key(job, options) for job in jobs]
    for i, job in enumerate(jobs):
        if broken := [str(one) for one in rule_diagnostics(job) if one.kind == "error"]:
            found[i] = _error(job, broken)
        elif (cached := _cached(keys[i], job, options)) is not None:
            found[i] = cached
    missing = [i for i in range(len(jobs)) if i not in found]
    workers = cores()
    size = min(_PER_UNIT, -(-len(missing) // workers)) if missing else 1
    units = [missing[first : first + size] for first in range(0, len(missing), size)]
    if units:
        for chosen in {_fitted(make_unit(tuple(jobs[i] for i in unit), loops=not options.checked), options) for unit in units}:
            prelude(chosen, toolchain.find())  # once, before many need it
        with ThreadPoolExecutor(workers) as pool:
            for unit, made in zip(units, pool.map(lambda unit: _compile([(keys[i], jobs[i]) for i in unit], options), units), strict=True):
                found |= dict(zip(unit, made, strict=True))
    return [found[i] for i in range(len(jobs))]


def rule_diagnostics(job: Job) -> list[Diagnostic]:
    """What Metal's own rules have against a kernel's text, as the compiler would say it."""
    found = []
    for name, text in ((f"{job.text.name}.header.metal", job.text.header), (f"{job.text.name}.metal", job.text.source)):
        lines = text.split("\n")
        for breach in breaches(text):
            where = Place(name, breach.line, breach.column, lines[breach.line - 1])
            found.append(Diagnostic("warning" if breach.warning else "error", breach.message, where, name))
    return found


def _compile(jobs: Sequence[tuple[str, Job]], options: Options) -> list[Built | CompileError]:
    """Compile kernels as one unit; where some are wrong, the others without them."""
    unit = make_unit(tuple(job for _, job in jobs), loops=not options.checked)
    name = f"{digest([key for key, _ in jobs])}.so" if len(jobs) > 1 else f"{jobs[0][0]}.so"
    try:
        with ThreadPoolExecutor(1) as pool:
            found = toolchain.find()
            crossed = pool.submit(space_errors, [job for _, job in jobs], found) if options.checked else None
            said = list(diagnostics(compile_kernel(unit.text, _fitted(unit, options), found, folder() / name), unit.sources))
    except CompileError as error:
        if len(jobs) == 1:
            return [_explained(jobs[0][1], str(error), unit.sources)]
        wrong = {
            one.key.rpartition("_")[2] for one in diagnostics(str(error), unit.sources) if one.kind == "error" and one.key in unit.sources
        }
        good = [i for i in range(len(jobs)) if str(i) not in wrong]
        if len(good) in {0, len(jobs)}:  # nothing tells which one: each for itself
            return [result for job in jobs for result in _compile([job], options)]
        made = dict(zip(good, _compile([jobs[i] for i in good], options), strict=True))
        return [made[i] if i in made else _compile([jobs[i]], options)[0] for i in range(len(jobs))]
    results: list[Built | CompileError] = []
    for k, (key, job) in enumerate(jobs):
        if crossed and (wrong_spaces := crossed.result()[k]):
            results.append(_error(job, [str(one) for one in wrong_spaces]))
            continue
        tag = f"_{k}" if len(jobs) > 1 else ""
        mine = [str(one) for one in said if one.kind == "warning" and (not tag or one.key.endswith(tag))]
        record = {"library": name, "tag": tag, "loop": unit.loops[k], "warnings": mine, "sum": sum_of(folder() / name)}
        write_whole(folder() / f"{key}.json", json.dumps(record).encode())
        made_one = _cached(key, job, options)
        assert made_one is not None  # written just now
        results.append(made_one)
    return results


def _cached(key: str, job: Job, options: Options) -> Built | None:
    try:
        record = json.loads((folder() / f"{key}.json").read_bytes())
    except (OSError, ValueError):
        return None
    library = folder() / record["library"]
    if not library.is_file() or record.get("sum") not in {None, sum_of(library)}:  # gone, or not whole
        return None
    tag = record["tag"]
    sources = make_unit((job,), loops=not options.checked).sources
    rules = tuple(str(one) for one in rule_diagnostics(job))
    return Built(
        library,
        f"gcm_entry{tag}",
        f"gcm_loop{tag}" if record["loop"] else "",
        {f"{file}{tag}": source for file, source in sources.items()},
        (*rules, *record["warnings"]),
    )


def _fitted(unit: Unit, options: Options) -> Options:
    """The options with what the unit needs."""
    return replace(options, loops=any(unit.loops), defines=unit.defines)


def _key(job: Job, options: Options) -> str:
    unit = make_unit((job,), loops=not options.checked)
    options = _fitted(unit, options)
    found = toolchain.find()
    return digest(["kernel", unit.text, *options.flags, *options.warnings, headers_digest(), runtime_digest(found), found.identity])


def _explained(job: Job, output: str, sources: dict[str, Source]) -> CompileError:
    said = [str(one) for one in diagnostics(output, sources) if one.kind != "warning"]
    return _error(job, said or [output])


def _error(job: Job, said: Sequence[str]) -> CompileError:
    return CompileError(f"the Metal kernel {job.text.name!r} does not compile:\n" + "\n".join(said))
