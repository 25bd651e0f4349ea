"""The checks that need no tolerance: each rejects a kernel that numbers alone would pass, and none a right one."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from gradcheck import Case, Kernel, UsageError
from gradcheck.calibrate.noise import noise_table, tolerances
from gradcheck.engine.call import call
from gradcheck.engine.checks import CHECKS, Bench, bench_of
from gradcheck.engine.checks.alike import DECLARED
from gradcheck.engine.checks.bench import NOT_DETERMINISTIC, Result, size_of, unequal
from gradcheck.engine.checks.cases import chosen, items
from gradcheck.engine.checks.taint import LARGE
from gradcheck.engine.target import load_target
from gradcheck.engine.truth import cases_of, know
from gradcheck.numerics.forward import forward, sequence
from gradcheck.suite import load

STRANGERS = Path(__file__).parents[2] / "testdata" / "strangers"
HELLO = Path(__file__).parents[2] / "testdata" / "hello"
RIGHT = ("other_order", "chunked", "autodiff", "half_inputs", "noncontiguous", "numpy_object")
SHIPPED = ("mlx", "checkpoint", "autodiff")
BY_NAME = {check.name: check for check in CHECKS}
SMALL = [check.name for check in CHECKS if not (check.large or check.optional)]
SEEN_BY = {
    "leak_from_later_token": "taint",
    "assumes_unit_cotangents": "scaling",
    "wrong_at_even_lengths": "split",
    "batch_order_dependent": "permutation",
    "stale_state": "determinism",
    "nondeterministic": "determinism",
    "reads_strides_wrong": "layout",
    "wrong_at_production_shape": "production",
}
CASES = {"mamba1": "ssm_scan/B2,T19,H6,G3,P2,N3,mamba1/f32/typical/7", "mamba2": "ssm_scan/B2,T19,H6,G3,P2,N3,mamba2/f32/typical/7"}
WIDE = "ssm_scan/B1,T3,H4,G1,P3,N128,mamba2/f32/typical/0"


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADCHECK_CACHE_DIR", str(tmp_path_factory.mktemp("truths")))
        yield


@pytest.fixture(scope="module")
def op():
    return load([]).ops["ssm_scan"]


@pytest.fixture(scope="module")
def bench(op, _cache):
    """A bench for a kernel at a case; its tolerances are those of the noise there and at the cases of `CASES`."""

    def build(kernel, text=CASES["mamba2"], op=op, **changed):
        case = Case.parse(text)
        known, problem = know(op, case)
        noises = [known.noise["f32"], *(know(op, Case.parse(other))[0].noise["f32"] for other in CASES.values())]
        return Bench(kernel, op, case, problem, tolerances(noise_table(noises)), **changed)

    return build


def stranger(name):
    return load_target(f"{STRANGERS / name}.py:scan")


def right(name):
    return (
        stranger(name.removeprefix("stranger "))
        if name.startswith("stranger ")
        else load_target(f"gradcheck.kernels.ssm_scan.{name}:ssm_scan")
    )


@pytest.mark.parametrize("check", SMALL)
@pytest.mark.parametrize("name", [*SHIPPED, *(f"stranger {name}" for name in RIGHT)])
def test_no_check_rejects_a_right_kernel(bench, name, check):
    found = BY_NAME[check].find(bench(right(name)))
    assert found.broken == ()
    assert found.compared > 0


@pytest.mark.parametrize("name", ["mlx", "stranger numpy_object"])
def test_the_production_probe_does_not_reject_a_right_kernel(bench, name):
    found = BY_NAME["production"].find(bench(right(name), WIDE))
    assert (found.broken, found.compared > 0) == ((), True)


@pytest.mark.parametrize("name", [name for name in SEEN_BY if name != "wrong_at_production_shape"])
@pytest.mark.parametrize("branch", CASES)
def test_each_check_rejects_what_it_is_for(bench, name, branch):
    found = BY_NAME[SEEN_BY[name]].find(bench(stranger(name), CASES[branch]))
    assert found.broken


@pytest.mark.parametrize("name", SEEN_BY)
def test_the_numbers_alone_pass_it(bench, name):
    here = bench(stranger(name))
    result = here.call()
    assert here.off(result, here.truth()) == {}
    assert (result.notes, len(result.gots)) == ((), 8)


def test_a_leak_is_told_with_its_source_and_its_place(bench):
    sentences = BY_NAME["taint"].find(bench(stranger("leak_from_later_token"))).broken
    assert any(s.startswith("y does not depend on x at t=9, and yet at [") and ", t=8, " in s and f"±{LARGE:g}" in s for s in sentences)


def test_a_leak_of_any_size_is_seen_in_the_backward_too(bench):
    class Leaks(type(stranger("numpy_object"))):
        def vjp(self, inputs, cotangents):
            s, x, dt, *rest = super().vjp(inputs, cotangents)
            earlier = np.concatenate([np.zeros_like(dt[:, :1]), cotangents[0][:, :-1, :, 0]], axis=1)
            return (s, x, dt * (1 + np.float32(1e-12) * earlier), *rest)

    here = bench(Leaks())
    assert here.off(here.call(), here.truth()) == {}
    (sentence,) = BY_NAME["taint"].find(here).broken
    assert sentence.startswith("d dt does not depend on the cotangent of y at t=9")


def test_a_leak_between_rows_is_seen(bench):
    class Leaks(type(stranger("numpy_object"))):
        def forward(self, *inputs):
            y, s_T = super().forward(*inputs)
            return y * (1 + np.float32(1e-12) * inputs[1][::-1]), s_T

    assert any("at b=" in sentence for sentence in BY_NAME["taint"].find(bench(Leaks())).broken)


def test_in_a_coupled_state_too_the_reference_says_what_is_independent():
    op = load([HELLO]).ops["delta_rule"]
    case = Case.parse("delta_rule/B2,T7,K3,V5/f32/uniform/1")
    known, problem = know(op, case)
    kernel = load_target("hello.delta:delta_rule", folder=HELLO)
    here = Bench(kernel, op, case, problem, tolerances(noise_table([known.noise["f32"]])))
    for name in SMALL:
        assert BY_NAME[name].find(here).broken == (), name
    assert BY_NAME["taint"].find(here).compared > 0

    class Leaks(type(kernel)):
        def forward(self, *inputs):
            y, S = super().forward(*inputs)
            return y * (1 + np.float32(1e-12) * np.roll(inputs[3], 1, axis=2)), S

    assert any("v at v=" in sentence for sentence in BY_NAME["taint"].find(replace(here, kernel=Leaks())).broken)


def test_a_gradient_of_nothing_must_be_nothing(bench):
    class Offset(type(stranger("numpy_object"))):
        def finish(self, gradients, _inputs):
            return {**gradients, "A": gradients["A"] + np.float32(1e-30)}

    sentences = BY_NAME["scaling"].find(bench(Offset())).broken
    assert any(sentence.startswith("with cotangents of zeros, d A at [") for sentence in sentences)


def test_a_kernel_that_differs_from_itself_is_said_to_and_is_not_blamed_for_a_leak(bench):
    here = bench(stranger("nondeterministic"))
    for name in ("taint", "scaling", "layout"):
        sentences = BY_NAME[name].find(here).broken
        assert sentences
        assert all(text.startswith(NOT_DETERMINISTIC) or "more of this kind" in text for text in sentences)


class Seldom(type(stranger("numpy_object"))):
    """Right, but one call in so many is off by its last digit, as where two threads meet."""

    def __init__(self, every):
        self.every, self.calls = every, 0

    def forward(self, *inputs):
        y, s_T = super().forward(*inputs)
        self.calls += 1
        return (np.nextafter(y, np.float32(9)) if self.calls % self.every == 0 else y), s_T


def test_a_race_that_strikes_seldom_is_no_leak(bench):
    sentences = BY_NAME["taint"].find(bench(Seldom(every=7))).broken
    assert sentences
    assert all(text.startswith(NOT_DETERMINISTIC) for text in sentences)


class Atomics(type(stranger("nondeterministic"))):
    """Right, and not deterministic: the last digit of every gradient is another one in every call. It says so."""

    deterministic = False

    def finish(self, gradients, inputs):
        jittered = super().finish(gradients, inputs)
        return {name: np.where(gradients[name] == 0, gradients[name], value) for name, value in jittered.items()}


def declared(bench, kernel, text=CASES["mamba2"]):
    here = bench(kernel, text)
    return bench_of(kernel, Kernel("mine", "mine:mine"), here.op, here.case, here.problem, here.tolerances)


@pytest.mark.parametrize("check", SMALL)
def test_a_kernel_that_declares_atomics_is_judged_within_noise_and_that_is_said(bench, check):
    here = declared(bench, Atomics())
    found = BY_NAME[check].find(here)
    assert found.broken == ()
    if check in {"taint", "scaling", "determinism"}:
        assert found.remark.startswith(DECLARED)
    if check == "determinism":
        assert "differ between calls, by at most" in found.remark


def test_the_declaration_excuses_no_leak(bench):
    class Leaks(Atomics):
        def forward(self, *inputs):
            y, s_T = super().forward(*inputs)
            later = np.concatenate([inputs[1][:, 1:], np.zeros_like(inputs[1][:, :1])], axis=1)
            return y * (1 + np.float32(1e-12) * later), s_T

    here = declared(bench, Leaks())
    assert here.off(here.call(), here.truth()) == {}
    sentences = BY_NAME["taint"].find(here).broken
    assert any("y does not depend on x at t=9" in text and "beyond noise" in text for text in sentences)


def test_the_declaration_excuses_no_gradient_that_assumes_its_cotangent(bench):
    class Assumes(Atomics):
        def finish(self, gradients, inputs):
            found = super().finish(gradients, inputs)
            return {**found, "A": found["A"] + np.float32(1e-9)}

    here = declared(bench, Assumes())
    assert here.off(here.call(), here.truth()) == {}
    assert any("d A" in text for text in BY_NAME["scaling"].find(here).broken)


def test_the_declaration_excuses_no_stale_state(bench):
    stale = stranger("stale_state")
    stale.deterministic = False
    assert any(
        "after one of the same shapes, is off the truth" in text for text in BY_NAME["determinism"].find(declared(bench, stale)).broken
    )


def test_what_is_declared_and_yet_repeats_itself_is_said_too(bench):
    kernel = stranger("numpy_object")
    kernel.deterministic = False
    assert BY_NAME["determinism"].find(declared(bench, kernel)).remark == f"{DECLARED}: every call gave the same bits all the same"


class Chunks(type(stranger("numpy_object"))):
    """Right at its own size of chunk; at others the adjoint is not handed from one chunk to the one before it."""

    chunks: ClassVar = {"chunk": (64, 16)}
    lossy = True

    def vjp(self, inputs, cotangents, chunk=64):
        s, x, dt, *rest = super().vjp(inputs, cotangents)
        steps = np.arange(x.shape[1])
        lost = self.lossy & (steps % chunk == chunk - 1) & (steps < len(steps) - 1)
        return (s, np.where(lost[None, :, None, None], 0, x), dt, *rest)

    def forward(self, *inputs, chunk=64):
        assert chunk > 0
        return super().forward(*inputs)


@pytest.mark.parametrize("sizes", [(64, 16), [16]])
def test_a_chunk_that_is_not_the_default_is_tried(bench, sizes):
    kernel = Chunks()
    kernel.chunks = {"chunk": sizes}
    here = declared(bench, kernel)
    assert here.off(here.call(), here.truth()) == {}
    (sentence,) = BY_NAME["chunks"].find(here).broken
    assert sentence.startswith("with chunk=16, d x at [")
    assert ", t=15," in sentence


def test_chunks_that_all_give_the_same_hold(bench):
    kernel = Chunks()
    kernel.lossy = False
    found = BY_NAME["chunks"].find(declared(bench, kernel))
    assert (found.broken, found.compared > 0) == ((), True)


def test_the_kernel_with_checkpoints_is_the_same_for_every_chunk(bench):
    kernel = right("checkpoint")
    here = bench(kernel)
    sizes = Kernel("mlx-checkpoint", "a:b", chunks={"every": (1, 3, 16, 64)})
    found = BY_NAME["chunks"].find(bench_of(kernel, sizes, here.op, here.case, here.problem, here.tolerances))
    assert (found.broken, found.compared) == ((), 4 * size_of(here.call()))


def test_a_kernel_without_sizes_of_chunks_is_not_passed_by_that_check(bench):
    found = BY_NAME["chunks"].find(bench(right("mlx")))
    assert (found.broken, found.compared, found.remark) == ((), 0, "no sizes of chunks declared")


@pytest.mark.parametrize("chunks", [{"chunk": (0,)}, {"chunk": ()}, {"chunk": 16}, {"chunk": (True,)}])
def test_sizes_of_chunks_that_are_none_are_refused(bench, chunks):
    kernel = stranger("numpy_object")
    kernel.chunks = chunks
    with pytest.raises(UsageError, match=r"need a keyword and its sizes"):
        declared(bench, kernel)


def test_attributes_of_those_names_that_mean_something_else_are_left_alone(bench):
    kernel = stranger("numpy_object")
    kernel.chunks, kernel.deterministic = (lambda: 3), (lambda: False)
    here = declared(bench, kernel)
    assert (here.chunks, here.deterministic) == ({}, True)


def test_where_only_noise_is_promised_noise_is_allowed_and_said(bench):
    found = BY_NAME["permutation"].find(bench(right("mlx")))
    assert found.remark == "d A within noise, not bit by bit"


def test_the_production_probe_blames_the_gradient_that_is_wrong_there(bench):
    (sentence,) = BY_NAME["production"].find(bench(stranger("wrong_at_production_shape"), WIDE)).broken
    assert sentence.startswith("d C at [")
    narrow = bench(stranger("wrong_at_production_shape"), WIDE.replace("N128", "N64"))
    assert BY_NAME["production"].find(narrow).broken == ()


@pytest.mark.parametrize("quantity", ["x", "dt", "A", "B", "C", "s"])
def test_the_production_probe_sees_two_parts_in_a_thousand_of_any_gradient(bench, quantity):
    class Scaled(type(stranger("numpy_object"))):
        def finish(self, gradients, _inputs):
            return {**gradients, quantity: gradients[quantity] * np.float32(1.002)}

    (sentence,) = BY_NAME["production"].find(bench(Scaled(), WIDE)).broken
    assert sentence.startswith(f"d {quantity} at [")


@pytest.mark.parametrize("quantity", ["x", "B", "s"])
def test_the_production_probe_sees_one_wrong_element(bench, quantity):
    class OneElement(type(stranger("numpy_object"))):
        def finish(self, gradients, _inputs):
            gradients[quantity].flat[-2] *= np.float32(1.01)
            return gradients

    (sentence,) = BY_NAME["production"].find(bench(OneElement(), WIDE)).broken
    assert sentence.startswith(f"d {quantity} at [")


def test_the_production_probe_sees_a_wrong_output(bench):
    class Short(type(stranger("numpy_object"))):
        def forward(self, *inputs):
            y, s_T = super().forward(*inputs)
            s_T[..., 100:] = 0
            return y, s_T

    assert BY_NAME["production"].find(bench(Short(), WIDE)).broken[0].startswith("s_T at [")


def test_the_truth_at_production_sizes_is_computed_once(bench, monkeypatch):
    here = bench(right("mlx"), WIDE)
    assert BY_NAME["production"].find(here).broken == ()
    monkeypatch.setattr(sys.modules["gradcheck.engine.checks.production"], "answer", None)  # it cannot be asked again
    assert BY_NAME["production"].find(here).broken == ()


@pytest.mark.parametrize("check", [name for name in SMALL if not BY_NAME[name].backward])
def test_without_a_backward_the_forward_is_checked(bench, check):
    here = bench(right("mlx"), forward_only=True)
    found = BY_NAME[check].find(here)
    assert (found.broken, found.compared > 0) == ((), True)


def test_a_single_step_has_nothing_to_split(bench):
    found = BY_NAME["split"].find(bench(right("mlx"), CASES["mamba1"].replace("T19", "T1")))
    assert (found.broken, found.compared) == ((), 0)


def test_what_is_wrong_anyway_is_not_blamed_on_a_split(bench):
    here = bench(stranger("scale_error"))
    assert BY_NAME["split"].find(here).broken
    assert BY_NAME["split"].find(replace(here, sound=False)).broken == ()


@pytest.mark.parametrize("check", SMALL)
def test_an_input_without_axes_breaks_no_check(check):
    """A lower bound is one number: it has no rows, no steps and nothing to permute."""
    op, case = load([]).ops["gated_delta_update"], Case.parse("gated_delta_update/B2,T5,Hk1,Hv2,Dk5,Dv1,lower-bound/f32/typical/0")
    known, problem = know(op, case)
    kernel = load_target("gradcheck.kernels.gated_delta.update:autodiff")
    found = BY_NAME[check].find(Bench(kernel, op, case, problem, tolerances(noise_table([known.noise["f32"]]))))
    assert (found.broken, found.compared > 0) == ((), True)


def test_layouts_are_what_they_say(op):
    kernel = type("Seen", (), {"arrays": "numpy"})()
    seen = []
    kernel.forward = lambda *inputs: seen.append(inputs[1]) or inputs
    value = {"a": np.zeros((2, 3)), "b": np.arange(6.0).reshape(2, 3), "c": np.ones((2, 3))}
    for layout in ("", "transposed", "reversed", "sliced", "broadcast"):
        call(kernel, value, [], dtype="f32", output_shapes=[], differentiable=("a", "b"), forward_only=True, layout=layout)
    plain, transposed, mirrored, sliced, broadcast = seen
    assert all(np.array_equal(array, value["b"]) for array in seen)
    assert plain.flags.c_contiguous
    assert broadcast.flags.c_contiguous  # its rows differ, so that it cannot be broadcast
    assert (transposed.strides, mirrored.strides, sliced.strides) == ((4, 8), (-12, -4), (24, 8))


def test_equal_means_bit_by_bit_and_nan_equals_nan():
    a = np.array([1.0, np.nan, 0.0])
    assert unequal(("T",), a, np.array([1.0, np.nan, -0.0])) == ""
    assert unequal(("T",), a, np.array([1.0, 2.0, 0.0])).startswith("at [t=1] is 2 instead of nan (1 of 3")
    assert unequal(("T",), a, np.array([np.nextafter(1, 2), np.nan, 0.0]), np.array([False, True, True])) == ""
    assert unequal(("T",), a, a[:2]) == "has shape (2,) instead of (3,)"


def test_a_gradient_that_is_missing_is_never_equal(bench):
    here = bench(stranger("one_too_few"))
    result = here.call()
    assert isinstance(result, Result)
    assert result.value("d C").shape == ()
    assert size_of(result) > 0


def test_checks_are_planned_at_cases_that_have_something_to_tell(op):
    planned = items(op, "mlx", cases_of(op, ("f32",), 0), CHECKS)
    assert {item.check for item in planned} == set(BY_NAME)
    cases = {Case.parse(item.case) for item in planned}
    assert {case.variant for case in cases} == {"mamba1", "mamba2"}
    assert {case.objective for case in cases} == {"all"}
    small = {Case.parse(item.case) for item in planned if not BY_NAME[item.check].large}
    assert len(small) == 4
    assert all(sum(size == 1 for size in case.sizes.values()) <= 1 for case in small)
    assert any(case.sizes["T"] > 64 for case in small)


def test_checks_keep_to_the_sizes_and_cases_that_the_user_chose(op):
    cases = cases_of(op, ("f32",), 0)
    (large,) = {
        i.case for i in items(op, "mlx", [c for c in cases if c.variant == "mamba2"], CHECKS, dims="N=16") if i.check == "production"
    }
    assert Case.parse(large).sizes["N"] == 16
    named = items(op, "mlx", cases[:1], CHECKS, named=True)
    assert {item.case for item in named} == {str(replace(cases[0], objective="all"))}
    assert "production" not in {item.check for item in named}
    assert [i.check for i in items(op, "mlx", [Case.parse(large)], CHECKS, dims="N=16", named=True)] == ["production"]
    assert items(op, "mlx", cases_of(op, ("f16",), 0), CHECKS) == []


def test_checks_are_chosen_by_name():
    assert chosen("all") == CHECKS
    assert chosen("none") == ()
    assert [check.name for check in chosen("taint, split")] == ["taint", "split"]
    with pytest.raises(UsageError, match="did you mean 'taint'"):
        chosen("tain")


def test_the_production_sizes_fit_the_op(op):
    for variant, text in op.production.items():
        case = Case.parse(f"ssm_scan/{text},{variant}/f32/typical/0")
        assert set(case.sizes) == set(op.dims)
        assert forward(sequence(op.recurrence(variant), {n: np.zeros(s) for n, s in op.shapes({**case.sizes, "T": 1}, variant).items()}))
