"""Runs built by hand: what a report must be able to tell, without an engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gradcheck import (
    Band,
    Case,
    Evidence,
    ExitCode,
    Measurement,
    MutantVerdict,
    Outcome,
    Report,
    Run,
    Verdict,
    WorkItem,
)
from gradcheck.suite import load

OUTPUTS = {"y": (1, 12, 3, 4), "s_T": (1, 3, 4, 9)}
GRADIENTS = {"d s": (0, 2, 1, 5), "d x": (1, 40, 2, 3), "d dt": (0, 64, 3), "d A": (2,), "d B": (1, 3, 0, 7), "d C": (1, 64, 1, 2)}
MUTANTS = {
    "drop_dA_path": "d dt",
    "ds_seeded_with_zeros": "d s",
    "drop_own_contribution": "d x",
    "previous_state_in_dC": "d C",
    "drop_softplus_derivative": "d dt",
}
DIFF = """--- a/mlx.py
+++ b/mlx.py
@@ -88,7 +88,7 @@ def backward(s, x, dt, A, B, C, dy, ds):
     du_x = (dP * x).sum(-1)
-    ddt = du_x + dA_path
+    ddt = du_x  # [red]not markup[/red]
     return ddt
"""

AXES = {"d x": ("B", "T", "H", "P"), "d dt": ("B", "T", "H"), "d B": ("B", "T", "G", "N"), "d C": ("B", "T", "G", "N")}


def case(variant: str = "mamba2", regime: str = "long-memory", seed: int = 7, steps: int = 65, dtype: str = "f32") -> Case:
    return Case("ssm_scan", (("B", 2), ("T", steps), ("H", 4), ("P", 8), ("N", 16), ("G", 2)), dtype, regime, seed, variant)


def measurement(quantity: str, scale: float = 1.0) -> Measurement:
    """One output or gradient, well within its tolerance at scale 1."""
    worst = {**OUTPUTS, **GRADIENTS}[quantity]
    timed = len(worst) > 1 and quantity not in ("d s", "s_T")
    ratios = {"z": 1.9 * scale, "l2": 0.31 * scale, "max": 0.52 * scale, "slice": 1.1 * scale, "maa": 0.8 * scale}
    return Measurement(
        quantity,
        checked=4160,
        errors={name: ratio * 6e-8 for name, ratio in ratios.items()},
        ratios=ratios,
        diluted={"last step": 0.9 * scale, "one head": 0.7 * scale},
        spliced={"zeroed": 3e6, "scaled by 0.1 %": 4e3},
        axes=AXES.get(quantity, ())[: len(worst)],
        worst=worst,
        got=0.123456789 * scale,
        want=0.123456783,
        worst_step=worst[1] if timed else None,
        profile=tuple(0.2 + 0.01 * t for t in range(65)) if timed else (),
    )


def bands(kernel: str) -> tuple[Band, ...]:
    made = []
    for k, quantity in enumerate({**OUTPUTS, **GRADIENTS}):
        for metric, noise in {"z": 3.1, "l2": 0.5, "max": 0.9, "slice": 1.7, "maa": 1.2}.items():
            defect = noise * 10 ** (3.2 + 0.3 * k) * (3 if metric == "l2" else 1) if quantity in GRADIENTS else None
            weakest = list(MUTANTS)[k % 5] if defect else ""
            made.append(Band("ssm_scan", kernel, "f32", quantity, metric, noise, noise * 8, 0.9 * noise, defect, weakest))
    return tuple(made)


def verdict(kernel: str, of: Case, outcome: Outcome = Outcome.PASSED, **changed: Measurement) -> Verdict:
    """A verdict on a kernel; `changed` replaces measurements, by quantity with `_` for the blank."""
    item = WorkItem("ssm_scan", kernel, str(of))
    measured = tuple(changed.get(name.replace(" ", "_"), measurement(name)) for name in (*OUTPUTS, *GRADIENTS))
    return Verdict(item, outcome, "", Evidence(item, "measured", measured, seconds=0.04))


def kills(kernel: str = "mlx") -> tuple[MutantVerdict, ...]:
    made = []
    for mutant, quantity in MUTANTS.items():
        for variant in ("mamba1", "mamba2"):
            for form, margin in {"full": 41_234.5, "last step": 612.0, "one head": 87.3}.items():
                made.append(
                    MutantVerdict(
                        kernel, mutant, variant, form, Outcome.KILLED, 48, 45, quantity, "l2", str(case(variant)), margin, diff=DIFF
                    )
                )
    for variant in ("mamba1", "mamba2"):
        made.append(MutantVerdict(kernel, "canary", variant, "full", Outcome.KILLED, 48, 48, "d x", "l2", str(case(variant)), 1e6))
        made.append(MutantVerdict(kernel, "null", variant, "full", Outcome.SURVIVED, 48, 0))
    return tuple(made)


@pytest.fixture
def passing() -> Run:
    """The main job: one kernel, two branches, all mutants killed."""
    cases = [case(variant, seed=seed) for variant in ("mamba1", "mamba2") for seed in range(48)]
    return Run(
        id="20261130-000512-3f9a",
        command="gradcheck run --op ssm_scan --mutants all",
        op="ssm_scan",
        environment={"device": "cpu", "mlx": "0.32.4", "numpy": "2.4.6", "platform": "linux x86_64"},
        not_run={"metal": "needs an Apple GPU, which this machine has not"},
        verdicts=tuple(verdict("mlx", of) for of in cases),
        kills=kills(),
        bands=bands("mlx"),
        notes=("built-in suite from /work/main (a checkout; it replaces the installed copy)",),
        planned=1152,
        done=1152,
        seconds=41.23,
        exit_code=ExitCode.OK,
        reasons=(),
    )


@pytest.fixture
def stranger(passing: Run) -> Run:
    """A stranger's kernel whose d dt is wrong at the last step, and whose d A is not finite, in some cases."""
    kernel = "path/to/my_kernels.py:scan"
    late = tuple(0.3 if t < 60 else 900.0 * (t - 59) for t in range(65))
    wrong = replace(measurement("d dt", 9000.0), profile=late, worst=(0, 64, 3), worst_step=64, got=1.5, want=-2.5)
    endless = replace(
        measurement("d A"), problem="3 of 4 elements are not finite", ratios=dict.fromkeys(("z", "l2", "max", "slice", "maa")), got=None
    )
    verdicts = [verdict(kernel, case(seed=seed)) for seed in range(40)]
    verdicts += [verdict(kernel, case(seed=seed), Outcome.FAILED, d_dt=wrong) for seed in range(40, 47)]
    verdicts += [verdict(kernel, case(seed=47), Outcome.FAILED, d_A=endless)]
    return replace(
        passing,
        command=f"gradcheck run --op ssm_scan --kernel {kernel} --suite ../theirs",
        not_run={},
        verdicts=tuple(verdicts),
        kills=(),
        bands=bands("op-level"),
        notes=("band: op-level",),
        planned=48,
        done=48,
        seconds=12.3,
        exit_code=ExitCode.WRONG,
        reasons=(f"{kernel}: d dt, d A differ from the truth by more than noise in 8 of 48 cases",),
    )


@pytest.fixture
def crash(passing: Run) -> Run:
    """A kernel that takes its process down in one case and hangs in another; its log tries to draw on the screen."""
    kernel = "theirs:scan[red]"
    log = "loading\x1b[31m weights\x1b[0m\r\n[bold]Fatal[/bold] Python error: \x1b]0;owned\x07Segmentation fault\x1b[2J\n"
    crashed, hung = (WorkItem("ssm_scan", kernel, str(case(seed=seed))) for seed in (1, 2))
    return replace(
        passing,
        not_run={},
        verdicts=(
            verdict(kernel, case(seed=0)),
            Verdict(crashed, Outcome.CRASHED, "killed by SIGSEGV", Evidence(crashed, "crashed", detail="killed by SIGSEGV", log=log)),
            Verdict(hung, Outcome.TIMEOUT, "did not end within 60 s", Evidence(hung, "timeout", seconds=60.0)),
        ),
        kills=(),
        bands=bands("op-level"),
        notes=(),
        planned=3,
        done=3,
        exit_code=ExitCode.WRONG,
        reasons=(f"{kernel} took its process down in 1 of 3 cases",),
    )


@pytest.fixture
def survivor(passing: Run) -> Run:
    """One mutant survives in one branch, in full and at the last step; the null mutant is fine, the canary survives too."""
    lost = {("drop_dA_path", "mamba1", "full"), ("drop_dA_path", "mamba1", "last step"), ("canary", "mamba2", "full")}
    why = "d(dt) loses what flows through exp(dt*A)"
    rows = tuple(
        replace(row, outcome=Outcome.SURVIVED, kills=0, margin=0.4, why=why) if (row.mutant, row.variant, row.form) in lost else row
        for row in passing.kills
    )
    return replace(
        passing, kills=rows, exit_code=ExitCode.ROTTEN, reasons=("canary was not seen on mlx", "1 of 5 mutants survived: drop_dA_path")
    )


@pytest.fixture
def incomplete(passing: Run) -> Run:
    """Half of the main job."""
    return replace(
        passing,
        verdicts=passing.verdicts[:40],
        kills=(),
        done=40,
        exit_code=ExitCode.INCONCLUSIVE,
        reasons=("40 of 1152 items done",),
    )


@pytest.fixture
def render() -> Callable[..., str]:
    """The built-in suite's report of a name, as `gradcheck run` finds it."""
    reports: dict[str, Report] = dict(load(()).reports)

    def draw(name: str, run: Run, **options: object) -> str:
        shown: Callable[..., str] = reports[name].render
        return shown(run, **options)

    return draw


@pytest.fixture
def on_cpu() -> Callable[[Run], Run]:
    """A run as if its kernels were Metal, on the CPU's executor."""

    def moved(run: Run) -> Run:
        there = tuple(replace(v, evidence=v.evidence and replace(v.evidence, place="metal-cpu")) for v in run.verdicts)
        return replace(run, verdicts=there)

    return moved


SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def hostile(survivor: Run, crash: Run) -> Run:
    """Names, sentences and logs that would be markup, a formula, a mention or a control character anywhere they are not escaped."""
    name = f"{SCRIPT}|`@octocat` ]]> \x1b[2J\x00\u202e=1+1"
    rows = tuple(
        replace(row, mutant=name, why=f"{SCRIPT} why", diff=f"{DIFF}+```\n+{SCRIPT}\n+</pre>]]>\n") if row.mutant == "drop_dA_path" else row
        for row in survivor.kills
    )
    rows = tuple(replace(row, kernel=f"=cmd|{SCRIPT}:x") for row in rows)
    item = WorkItem("ssm_scan", f"=cmd|{SCRIPT}:x", str(case(seed=5)))
    bad = replace(measurement("d x", 9000.0), problem=f"{SCRIPT} is no number")
    evidence = Evidence(item, "measured", (bad,), detail=SCRIPT, log=f"{SCRIPT}\x1b[2J]]>", notes=(f"note {SCRIPT}",))
    weak = tuple(replace(band, kernel=item.kernel, weakest=SCRIPT if band.weakest else "") for band in survivor.bands)
    return replace(
        survivor,
        op="ssm_scan",
        kills=rows,
        bands=weak,
        command=f"gradcheck run --kernel '{SCRIPT}'",
        environment={"device": SCRIPT, SCRIPT: "x"},
        not_run={SCRIPT: f"{SCRIPT}\n| a | b |"},
        notes=(SCRIPT, "@octocat #12 https://example.invalid"),
        reasons=(f"{SCRIPT} `code` | cell",),
        verdicts=(Verdict(item, Outcome.FAILED, f"why {SCRIPT}", evidence), *crash.verdicts),
        checks=(Verdict(replace(item, check=SCRIPT), Outcome.FAILED, SCRIPT, Evidence(item, "measured", notes=(SCRIPT,))),),
        exit_code=ExitCode.WRONG,
    )


@pytest.fixture(params=["passing", "stranger", "crash", "survivor", "incomplete", "hostile"])
def every_run(request: pytest.FixtureRequest) -> Run:
    """Each of the runs in turn."""
    run: Run = request.getfixturevalue(request.param)
    return run
