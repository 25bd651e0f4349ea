"""Why a kernel is off: the case, the form, or a mistake. No mistake is excused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gradcheck import F64, Case, Kernel, Regime, WorkItem, op
from gradcheck.calibrate.noise import noise_table, tolerances
from gradcheck.engine import conditioning
from gradcheck.engine.conditioning import REPEATS, Ask, look
from gradcheck.engine.execute import Job, op_of, source_of
from gradcheck.engine.truth import know
from gradcheck.math import sigmoid

STRANGERS = Path(__file__).parents[2] / "testdata" / "strangers"
TYPICAL = "ssm_scan/B2,T19,H4,G2,P3,N5,mamba2/f32/typical/0"
STRONG = "ssm_scan/B2,T63,H2,G1,P3,N5,mamba2/f32/strong-decay/0"
STEEP = "ssm_scan/B3,T5,H6,G1,P3,N5,mamba2/f32/steep/0"
SOURCE = source_of((), Path.cwd())


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADCHECK_CACHE_DIR", str(tmp_path_factory.mktemp("truths")))
        yield


def steep(rng, shapes):
    """Every decay is e^10, the exponent a product of 1000 and 0.01: one rounding of it is worth ten of the result, over again each step."""
    inputs = {name: rng.uniform(-1, 1, shape) for name, shape in shapes.items()}
    return inputs | {"dt": rng.uniform(900, 1100, shapes["dt"]), "A": rng.uniform(0.009, 0.011, shapes["A"])}


@pytest.fixture(scope="module")
def steep_op():
    """The scan with a regime in which its truth moves by hundreds of roundings when its inputs move by one."""
    op = op_of(SOURCE, "ssm_scan")
    return replace(op, regimes={**op.regimes, "steep": Regime("steep", "ill-conditioned", steep)})


def noise_at(op, *cases):
    return tolerances(noise_table([know(op, Case.parse(case))[0].noise["f32"] for case in cases]))


def looked(monkeypatch, op, kernel, case, limits):
    monkeypatch.setattr(conditioning, "op_of", lambda *_: op)
    monkeypatch.setattr("gradcheck.engine.execute.op_of", lambda *_: op)
    name = kernel if isinstance(kernel, str) else "mine:mine"
    if name != kernel:
        monkeypatch.setattr("gradcheck.engine.execute.kernel_of", lambda _: kernel)
    return look(Ask(Job(WorkItem(op.name, name, case), SOURCE, Kernel(name, name), tolerances=limits), "f32"))


def stranger(name):
    return f"{STRANGERS / name.partition(':')[0]}.py:{name.partition(':')[2] or 'scan'}"


@pytest.fixture(scope="module")
def numpy_scan():
    from gradcheck.engine.target import load_target

    return type(load_target(stranger("numpy_object")))


WRONG = ("scale_error", "sign_error", "zeros_for_one", "missing_group_sum", "last_token_wrong", "later_batch_rows_wrong", "two_swapped")


@pytest.mark.parametrize("name", [*WRONG, "state_cotangent_ignored", "planted:even_steps"])
def test_a_mistake_repeats(monkeypatch, name):
    op = op_of(SOURCE, "ssm_scan")
    found = looked(monkeypatch, op, stranger(name), TYPICAL, noise_at(op, TYPICAL))
    assert found is not None
    assert found.kind == "mistake"
    assert found.repeats > 0.9


def test_a_form_that_amplifies_rounding_is_said_to_be_poor_not_ill_conditioned(monkeypatch):
    op = op_of(SOURCE, "ssm_scan")
    found = looked(monkeypatch, op, stranger("cumulative_sums"), STRONG, noise_at(op, STRONG, TYPICAL))
    assert found is not None
    assert found.kind == "rounding"
    assert found.excess > 1
    assert str(found).startswith("numerically poor: the error is ")


def test_a_poor_form_with_a_mistake_in_it_is_a_mistake(monkeypatch):
    from gradcheck.engine.target import load_target

    poor = load_target(stranger("cumulative_sums"))
    op = op_of(SOURCE, "ssm_scan")

    def wrong(s, x, dt, A, B, C):
        y, s_T = poor(s, x, dt, A, B, C)
        return y, s_T * 1.01

    wrong.arrays = "mlx"
    found = looked(monkeypatch, op, wrong, STRONG, noise_at(op, STRONG, TYPICAL))
    assert found is not None
    assert found.kind == "mistake"


def test_what_the_case_itself_explains_is_ill_conditioned(monkeypatch, steep_op, numpy_scan):
    limits = noise_at(steep_op, TYPICAL)  # of a grid without such a case
    found = looked(monkeypatch, steep_op, numpy_scan(), STEEP, limits)
    assert found is not None
    assert found.kind == "ill-conditioned"
    assert found.excess <= 1
    assert found.repeats < REPEATS
    assert str(found).startswith("ill-conditioned, not wrong: ")


@pytest.mark.parametrize("part", [1e-3, 1e-5])
def test_a_mistake_does_not_hide_behind_an_ill_conditioned_case(monkeypatch, steep_op, numpy_scan, part):
    class Scaled(numpy_scan):
        def finish(self, gradients, _inputs):
            return {**gradients, "C": gradients["C"] * np.float32(1 + part)}

    limits = noise_at(steep_op, TYPICAL)
    found = looked(monkeypatch, steep_op, Scaled(), STEEP, limits)
    assert found is not None
    assert found.kind == "mistake" if part > 1e-4 else found.kind != "ill-conditioned"


@op(
    source="a gate as every recurrent layer has one",
    inputs={"h": "B D", "x": "B T D", "g": "B T D"},
    outputs={"y": "B T D", "h_T": "B D"},
    state="h",
    terms="B D",
    linear="h x",
    dims={"B": (1, 2), "T": (1, 5), "D": (1, 3)},
    regimes={
        "saturated": lambda rng, shapes: {n: rng.uniform(-1, 1, s) for n, s in shapes.items()} | {"g": rng.uniform(8, 12, shapes["g"])}
    },
    kernels=[],
)
def gate_scan(h: F64, x: F64, g: F64) -> tuple[F64, tuple[F64, ...]]:
    """h_t = sigmoid(g_t) h_{t-1} + x_t and y_t = h_t."""
    h = sigmoid(g) * h + x
    return h, (h,)


class Gated:
    """Float32 NumPy, with a slope of the sigmoid to be said."""

    arrays = "numpy"

    def __init__(self, slope):
        self.slope = slope

    def states(self, h, x, g):
        states = [h]
        for t in range(x.shape[1]):
            states.append(states[-1] / (1 + np.exp(-g[:, t])) + x[:, t])
        return np.stack(states, axis=1)

    def forward(self, h, x, g):
        states = self.states(h, x, g)
        return states[:, 1:].copy(), states[:, -1].copy()

    def vjp(self, inputs, cotangents):
        h, x, g = inputs
        states, (dy, G), dx, dg = self.states(h, x, g), cotangents, np.empty_like(x), np.empty_like(g)
        for t in reversed(range(x.shape[1])):
            G = G + dy[:, t]
            dx[:, t], dg[:, t] = G, G * states[:, t] * self.slope(g[:, t])
            G = G / (1 + np.exp(-g[:, t]))
        return G, dx, dg


def as_mlx_has_it(g):
    s = 1 / (1 + np.exp(-g))
    return s * (1 - s)


@pytest.mark.parametrize(
    "slope, kind",
    [
        (lambda g: 1 / ((1 + np.exp(-g)) * (1 + np.exp(g))), None),
        (as_mlx_has_it, "rounding"),
        (lambda g: 1 / (1 + np.exp(-g)), "mistake"),
        (lambda g: np.float32(1.01) * as_mlx_has_it(g), "mistake"),
    ],
    ids=["right", "s (1 - s)", "forgotten", "one per cent too large"],
)
def test_where_a_gate_saturates_a_slope_that_cancels_is_poor_and_a_wrong_one_wrong(monkeypatch, slope, kind):
    case, gates = "gate_scan/B2,T5,D3/f32/saturated/0", replace(gate_scan, file=__file__)
    found = looked(monkeypatch, gates, Gated(slope), case, noise_at(gates, case, case.replace("/0", "/1")))
    assert (found and found.kind) == kind


def test_a_kernel_that_does_not_repeat_itself_is_not_excused(monkeypatch, steep_op, numpy_scan):
    class Jitters(numpy_scan):
        rng = np.random.default_rng(0)

        def finish(self, gradients, _inputs):
            return {
                **gradients,
                "C": gradients["C"] * (1 + np.float32(1e-4) * self.rng.normal(size=gradients["C"].shape).astype(np.float32)),
            }

    assert looked(monkeypatch, steep_op, Jitters(), STEEP, noise_at(steep_op, TYPICAL)) is None


def test_what_is_no_number_is_not_looked_at(monkeypatch):
    op = op_of(SOURCE, "ssm_scan")
    for name in ("nan_in_one_element", "one_too_few", "overwrites_input", "wrong_dtype"):
        assert looked(monkeypatch, op, stranger(name), TYPICAL, noise_at(op, TYPICAL)) is None


def test_what_is_within_its_tolerance_needs_no_look(monkeypatch):
    op = op_of(SOURCE, "ssm_scan")
    assert looked(monkeypatch, op, stranger("numpy_object"), TYPICAL, noise_at(op, TYPICAL, STRONG)) is None
