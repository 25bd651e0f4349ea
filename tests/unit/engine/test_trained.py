"""An error in the gradient of a gate counts by what it brings to what is trained behind it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gradcheck import Case, ExitCode, Kernel, Outcome, Quantity, Regime, Trained, WorkItem
from gradcheck.calibrate.noise import tolerances
from gradcheck.engine import conditioning
from gradcheck.engine.conditioning import REPEATS, Ask, look
from gradcheck.engine.execute import Job, op_of, source_of
from gradcheck.engine.plan import Request
from gradcheck.engine.problem import Problem, draw
from gradcheck.engine.published import read_published
from gradcheck.engine.run import run
from gradcheck.engine.trained import CLOSED, carried, trained_of
from gradcheck.engine.truth import answer
from gradcheck.math import exp, sigmoid, softplus
from gradcheck.numerics.dtypes import DTYPES
from gradcheck.numerics.metrics import compare, rounding_unit
from gradcheck.suite import load

STRANGER = Path(__file__).parents[2] / "testdata" / "gated_delta" / "state_back.py"
SOURCE = source_of((), Path.cwd())
ROUNDINGS = 16
"""Operations in a slope, and in the gate that it is taken at, at most; each rounds once."""

F32 = DTYPES["f32"]
A = Trained("leak", "g", lambda g: g * (1 - g), "a test")


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADCHECK_CACHE_DIR", str(tmp_path_factory.mktemp("truths")))
        yield


def gradients(shape=(2, 7, 3)):
    rng = np.random.default_rng(0)
    value = rng.uniform(1, 2, shape) * rng.choice([-1, 1], shape)
    return Quantity(value, np.zeros(shape), 2 * np.abs(value)), rng


def test_of_a_gate_that_is_equally_open_everywhere_its_own_gradient_is_judged():
    want, rng = gradients()
    got = want.value + 1e-6 * rng.normal(size=want.value.shape)
    own = compare(got, want.value, want.error, rounding_unit(want.majorant, F32), ("B", "T", "H")).ratios
    assert carried(A, ("B", "T", "H"), np.full(got.shape, 0.3), got, want, F32) == pytest.approx(own)


def test_an_error_at_a_closed_gate_counts_by_what_the_gate_lets_through():
    want, _ = gradients()
    gate = np.full(want.value.shape, 0.5)
    gate[0, 3, 1] = 1e-9
    got = want.value.copy()
    got[0, 3, 1] += 1.0
    little = carried(A, ("B", "T", "H"), gate, got, want, F32)
    assert little is not None
    assert 0 < max(little.values()) < 0.1
    got[0, 3, 1] += 1e4
    much = carried(A, ("B", "T", "H"), gate, got, want, F32)
    assert much["z"] > 100 * little["z"] > 0
    assert much["l2"] > 1
    gate[0, 3, 1] = 0.5
    assert min(carried(A, ("B", "T", "H"), gate, got, want, F32).values()) > 1e5


def test_a_gate_is_closed_beside_the_open_ones_of_its_own_head_only():
    want, _ = gradients()
    gate = np.full(want.value.shape, 0.5)
    gate[..., 1] = 1e-9  # all of one head
    got = want.value.copy()
    got[0, 3, 1] *= 1.01
    assert carried(A, ("B", "T", "H"), gate, got, want, F32)["z"] > 1e4
    assert CLOSED < 1


def test_what_is_one_number_per_head_gets_the_sum():
    want, _ = gradients()
    gate, got = np.full(want.value.shape, 0.5), want.value.copy()
    got[0, 0, 2] += 1e-3
    got[0, 1, 2] -= 1e-3
    per_head = replace(A, axes="H")
    assert carried(per_head, ("B", "T", "H"), gate, got, want, F32)["z"] < 1e-3  # they cancel
    got[0, 1, 2] += 2e-3
    assert carried(per_head, ("B", "T", "H"), gate, got, want, F32)["z"] > 100


def test_where_nothing_is_trained_nothing_is_carried():
    want, _ = gradients()
    assert carried(A, ("B", "T", "H"), np.ones(want.value.shape), want.value + 1, want, F32) is None


@pytest.mark.parametrize("variant, rate", [("scalar", 1.0), ("vector", 1.0), ("scalar", 16.0), ("scalar", 1 / 16)])
def test_the_slopes_of_the_gated_delta_rule_are_those_of_the_model_that_trains_it(variant, rate):
    core, update = op_of(SOURCE, "gated_delta"), op_of(SOURCE, "gated_delta_update")
    case = Case.parse(f"gated_delta_update/B2,T5,Hk1,Hv2,Dk5,Dv3,{variant}/f32/typical/0")
    problem = draw(update, case)
    inputs = {**problem.inputs, "A_log": np.full(2, np.log(rate))}
    dt_bias = inputs["dt_bias"]
    gates = {"g": exp(-rate * softplus(inputs["a"] + dt_bias)), "beta": sigmoid(inputs["b"])}
    there = answer(update, variant, Problem(inputs, problem.cotangents)).gradients
    core_inputs = {name: {**inputs, **gates}[name] for name in core.inputs_of(variant)}
    here = answer(core, variant, Problem(core_inputs, problem.cotangents)).gradients
    known = {one.name: one for one in trained_of(SOURCE, "gated_delta")}
    a, A_log, b = known[f"a at exp(A_log) = {rate:g}"], known["A_log"], known["b"]
    lost = tuple(at for at in range(here["g"].value.ndim) if at != 2)
    for one, gate, summed in ((a, "g", ()), (b, "beta", ()), (A_log, "g", lost)):
        slope, core_, want = one.slope(gates[gate]), here[gate], there[one.name.partition(" ")[0]]
        apart = np.abs((slope * core_.value).sum(summed) - want.value)
        # Both truths say how far off they may be; what is beside that is the rounding of the slope, which is as large as its terms.
        terms = (np.abs(slope) * core_.majorant).sum(summed) + want.majorant
        bound = (np.abs(slope) * core_.error).sum(summed) + want.error + ROUNDINGS * np.finfo(float).eps * terms
        assert (apart <= bound).all()


def test_the_slope_of_beta_beyond_1_is_that_of_twice_a_sigmoid():
    (b,) = (one for one in trained_of(SOURCE, "gated_delta") if one.name == "b")
    x = np.linspace(-3, 3, 7)
    np.testing.assert_allclose(b.slope(2 * sigmoid(x)), 2 * sigmoid(x) * sigmoid(-x))


@pytest.fixture
def half_closed(monkeypatch):
    """The gated delta rule with a regime in which half of the gates are closed."""
    op = op_of(SOURCE, "gated_delta")

    def drawn(rng, shapes):
        inputs = op.regimes["typical"].draw(rng, shapes)
        closed = rng.random(shapes["g"]) < 1 / 2
        return inputs | {"g": np.where(closed, 10 ** rng.uniform(-6, -4, shapes["g"]), inputs["g"])}

    changed = replace(op, regimes={**op.regimes, "half-closed": Regime("half-closed", "gates saturate", drawn)})
    monkeypatch.setattr(conditioning, "op_of", lambda *_: changed)
    monkeypatch.setattr("gradcheck.engine.execute.op_of", lambda *_: changed)


def looked(name, regime="half-closed"):
    limits = tolerances(read_published(load([]), "gated_delta").noise["f32/f32"])
    case = f"gated_delta/B2,T33,Hk2,Hv6,Dk16,Dv5,scalar/f32/{regime}/0"
    target = f"{STRANGER}:{name}"
    return look(Ask(Job(WorkItem("gated_delta", target, case), SOURCE, Kernel(target, target), tolerances=limits), "f32"))


@pytest.mark.usefixtures("half_closed")
def test_a_right_kernel_whose_gradient_of_a_closed_gate_is_noise_is_ill_conditioned():
    found = looked("rule")
    assert found is not None
    assert (found.kind, found.excess <= 1, found.alone > 1000) == ("ill-conditioned", True, True)
    assert str(found).startswith("ill-conditioned, not wrong: where its gate saturates ")
    assert {"A_log", "a at exp(A_log) = 1"} <= set(found.trained)


@pytest.mark.usefixtures("half_closed")
def test_without_what_is_trained_behind_the_gate_it_would_not_be(monkeypatch):
    monkeypatch.setattr(conditioning, "trained_of", lambda *_: ())
    assert looked("rule").kind == "rounding"


@pytest.mark.usefixtures("half_closed")
def test_a_mistake_that_shows_in_what_is_trained_is_one():
    found = looked("scaled")
    assert found.kind == "mistake"
    assert found.excess > 100


@pytest.mark.usefixtures("half_closed")
def test_noise_that_shows_in_what_is_trained_is_poor_and_it_is_said_where():
    poor = looked("noisy")
    assert poor.kind == "rounding"
    assert str(poor).startswith("numerically poor: the error in a")


@pytest.mark.usefixtures("half_closed")
def test_noise_that_shows_in_what_is_trained_is_not_excused_though_the_model_has_it_in_the_gate(monkeypatch):
    own_noise = conditioning.own_noise

    def noisy_gate(*args):
        return {name: dict.fromkeys(row, 1e9) if name == "d g" else row for name, row in own_noise(*args).items()}

    monkeypatch.setattr(conditioning, "own_noise", noisy_gate)
    monkeypatch.setattr(conditioning, "FEW", 2**13)  # eight roundings are too little to move this error
    found = looked("rule", "gate-small")  # all gates are closed: what little is trained is noise as well
    assert (found.kind, found.alone <= 1, found.excess > 1) == ("rounding", True, True)


@pytest.mark.usefixtures("half_closed")
def test_a_gradient_of_zero_at_gates_of_zero_stays_a_mistake_and_it_is_said_what_it_comes_to():
    found = looked("rule", "gate-zero")
    assert (found.kind, found.excess <= 1) == ("mistake", True)
    assert "; what it comes to in a and A_log, trained behind it, is " in str(found)


@pytest.mark.parametrize("seed", [*range(6), 75])
def test_a_mistake_in_a_few_elements_is_not_excused_when_one_of_them_changes_its_sign(seed):
    limits = tolerances(read_published(load([]), "gated_delta").noise["f32/f32"])
    case = f"gated_delta/B3,T1,Hk1,Hv2,Dk33,Dv34,scalar/f32/gate-zero/{seed}"
    target = f"{STRANGER}:zero_at_zero"
    found = look(Ask(Job(WorkItem("gated_delta", target, case), SOURCE, Kernel(target, target), tolerances=limits), "f32"))
    assert found is None or (found.kind, found.repeats >= REPEATS) == ("mistake", True)


@pytest.mark.usefixtures("half_closed")
def test_within_its_tolerance_nothing_is_said_of_it():
    assert looked("rule", "typical") is None


SUITE = {
    "oracles/leak.py": '''
import numpy as np
from gradcheck import Kernel, Trained, op

def drawn(rng, shapes):
    """Half of the gates are nearly closed."""
    inputs = {name: rng.uniform(-1, 1, shape) for name, shape in shapes.items()}
    closed = rng.random(shapes["g"]) < 1 / 2
    return inputs | {"g": np.where(closed, 10 ** rng.uniform(-6, -5, shapes["g"]), rng.uniform(0.4, 0.9, shapes["g"]))}

@op(
    source="a test", inputs={"x": "B T D", "g": "B T D", "h": "B D"}, outputs={"y": "B T D", "h_T": "B D"}, state="h", terms="B D",
    linear="x g h", dims={"B": (1, 2), "T": (9, 17), "D": (3, 5)}, regimes={"half-closed": drawn},
    kernels=[Kernel("noisy", "kern.py:noisy"), Kernel("wrong", "kern.py:wrong")],
)
def leak(h, x, g):
    """h_t = g_t h_{t-1} + x_t."""
    h = g * h + x
    return h, (h,)

a = Trained("leak", "g", lambda g: g * (1 - g), "g = sigmoid(a)")
''',
    "kern.py": """
import numpy as np

BESIDE = np.float32(1 / 64)

class Leak:
    arrays = "numpy"

    def __init__(self, factor):
        self.factor = np.float32(factor)

    def forward(self, x, g, h):
        y = np.empty_like(x)
        for t in range(x.shape[1]):
            h = g[:, t] * h + x[:, t]
            y[:, t] = h
        return y, h

    def vjp(self, inputs, cotangents):
        x, g, h = inputs
        dy, G = cotangents
        y, _ = self.forward(*inputs)
        dx, dg = np.empty_like(x), np.empty_like(g)
        for t in reversed(range(x.shape[1])):
            G = G + dy[:, t]
            dx[:, t] = G
            log_slope = G * (y[:, t - 1] if t else h) * g[:, t]
            dg[:, t] = self.factor * ((BESIDE + log_slope) - BESIDE) / g[:, t]  # as a difference of sums has it
            G = G * g[:, t]
        return dx, dg, G

noisy, wrong = Leak(1.0), Leak(1.001)
""",
}


@pytest.fixture
def leak(tmp_path, monkeypatch):
    for name, text in SUITE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


CASES = tuple(f"leak/B2,T17,D5/f32/half-closed/{seed}" for seed in range(3))


def checked(leak, kernel, *, trained=True):
    if not trained:
        file = leak / "oracles/leak.py"
        file.write_text(file.read_text().partition("\na = Trained")[0])
    request = Request("leak", kernels=(kernel,), mutants="none", checks="none", suites=(str(leak),), cases=CASES, jobs=1)
    return run(request, folder=leak / ".gradcheck" / "runs", tell=lambda _: None)


def test_a_run_of_a_foreign_suite_says_that_it_is_not_wrong_where_its_suite_says_what_is_trained(leak):
    excused = checked(leak, "noisy")
    assert excused.exit_code is ExitCode.INCONCLUSIVE
    said = [verdict.why for verdict in excused.verdicts if verdict.outcome is Outcome.INCONCLUSIVE]
    assert said
    assert all(
        why.startswith("ill-conditioned, not wrong: where its gate saturates") and " in a, trained behind it, is " in why for why in said
    )
    (ending,) = {verdict.ending for verdict in excused.verdicts if verdict.outcome is Outcome.INCONCLUSIVE}
    assert ending == "is undecided: what is off is ill-conditioned, not shown to be wrong"


def test_and_where_it_does_not_that_it_is_numerically_poor(leak):
    poor = checked(leak, "noisy", trained=False)
    assert (poor.exit_code, poor.fault("noisy")) == (ExitCode.WRONG, "is numerically poor")


def test_a_run_of_a_kernel_that_is_wrong_in_what_is_trained_says_that_it_is_wrong(leak):
    wrong = checked(leak, "wrong")
    assert (wrong.exit_code, wrong.fault("wrong")) == (ExitCode.WRONG, "is wrong")
