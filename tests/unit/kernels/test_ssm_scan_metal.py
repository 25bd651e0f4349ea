from __future__ import annotations

import re
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

import gradcheck
from gradcheck.engine.mutate import copy_with_edit
from gradcheck.engine.target import load_package
from gradcheck.kernels.ssm_scan import metal, mlx
from gradcheck.metal import KernelFault, NoCompilerError, configured, place
from gradcheck.metal.toolchain import find

from .scan import BRANCHES, EPS, NAMES, ROUNDINGS, central_differences, distance, draw, reference, rounded, run

PACKAGE = Path(str(gradcheck.__file__)).parent / "kernels" / "ssm_scan"
WIDE = {"batch": 2, "T": 7, "H": 4, "P": 9, "N": 37, "G": 2}  # 18 rows a group, more than a threadgroup; 37 states, more than a simdgroup
BARRIERS = [
    (file.name, number)
    for file in sorted(PACKAGE.glob("*.metal"))
    for number, _ in enumerate(re.finditer("threadgroup_barrier", file.read_text()))
]


def _nothing_runs_metal():
    if place() == "metal":
        return ""
    try:
        find()
    except NoCompilerError as error:
        return str(error)
    return ""


pytestmark = pytest.mark.skipif(bool(_nothing_runs_metal()), reason=_nothing_runs_metal() or "metal runs here")


@pytest.fixture
def plain():
    """Fast: for what is about numbers alone."""
    with configured(mode="plain"):
        yield


def bits(kernel, inputs, cotangents, dtype=mx.float32, **options):
    """Outputs and gradients as they are in memory, by name."""
    primals = [mx.array(value.astype(np.float32)).astype(dtype) for value in inputs.values()]
    weights = [mx.array(value.astype(np.float32)).astype(dtype) for value in cotangents]
    outputs, gradients = mx.vjp(lambda *arrays: list(kernel(*arrays, **options)), primals, weights)
    return {
        name: np.array(array.astype(mx.float32)).view(np.uint32)
        for name, array in zip(("y", "s_T", *NAMES), (*outputs, *gradients), strict=True)
    }


def differing(got, want):
    return [name for name in want if not np.array_equal(got[name], want[name])]


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("T", [1, 5])
def test_all_six_gradients_are_the_central_differences_of_the_equations_and_the_checker_finds_nothing(branch, T):
    inputs, cotangents = draw(branch, T=T)
    outputs, gradients = run(metal.ssm_scan, inputs, cotangents)
    for got, want in zip(outputs, reference(**inputs), strict=True):
        assert distance(got, want) <= ROUNDINGS * EPS["f32"]
    for name, want in central_differences(inputs, cotangents).items():
        assert distance(gradients[name], want) <= ROUNDINGS * EPS["f32"], name


@pytest.mark.parametrize("branch", BRANCHES)
def test_rows_beyond_a_threadgroup_and_states_beyond_a_simdgroup_are_summed_too_and_the_checker_finds_nothing(branch):
    inputs, cotangents = draw(branch, **WIDE)
    outputs, gradients = run(metal.ssm_scan, inputs, cotangents)
    exact_outputs, exact_gradients = run(mlx.ssm_scan, inputs, cotangents)
    for got, want in zip([*outputs, *gradients.values()], [*exact_outputs, *exact_gradients.values()], strict=True):
        assert distance(got, want) <= ROUNDINGS * EPS["f32"]


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("sizes", [{"P": 1, "N": 1, "T": 1, "H": 1, "G": 1, "batch": 1}, {"P": 70, "N": 300, "T": 3, "H": 2, "G": 1}])
def test_one_of_everything_and_more_than_any_tile_holds(sizes):
    inputs, cotangents = draw("mamba1", **sizes) if sizes["H"] > 1 else _ones()
    _, gradients = run(metal.ssm_scan, inputs, cotangents)
    _, exact = run(mlx.ssm_scan, inputs, cotangents)
    for name in NAMES:
        assert distance(gradients[name], exact[name]) <= ROUNDINGS * EPS["f32"], name


def _ones():
    shapes = {"s": (1, 1, 1, 1), "x": (1, 1, 1, 1), "dt": (1, 1, 1), "A": (1, 1), "B": (1, 1, 1, 1), "C": (1, 1, 1, 1)}
    return {name: np.full(shape, 0.5) for name, shape in shapes.items()}, [np.ones((1, 1, 1, 1)), np.ones((1, 1, 1, 1))]


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_half_precision_inputs_cost_one_rounding_since_the_sums_are_in_float32(branch, dtype):
    inputs, cotangents = draw(branch, **WIDE)
    inputs = {name: rounded(value, dtype) for name, value in inputs.items()}
    cotangents = [rounded(value, dtype) for value in cotangents]
    outputs, gradients = run(metal.ssm_scan, inputs, cotangents, dtype)
    exact_outputs, exact_gradients = run(metal.ssm_scan, inputs, cotangents)
    for got, want in zip([*outputs, *gradients.values()], [*exact_outputs, *exact_gradients.values()], strict=True):
        assert (np.abs(got - want) <= EPS[dtype] * np.abs(want) + np.finfo(np.float16).smallest_subnormal).all()


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("every", [3, 16, 37, 42, None])
def test_checkpoints_change_no_bit_of_outputs_and_gradients(branch, every):
    inputs, cotangents = draw(branch, batch=3, T=37, H=6, P=5, N=17, G=3)
    want = bits(metal.ssm_scan, inputs, cotangents)
    assert differing(bits(metal.ssm_scan_checkpoint, inputs, cotangents, every=every), want) == []


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_checkpoints_change_no_bit_in_half_precision_either(dtype):
    inputs, cotangents = draw("mamba1", T=12, P=3, N=37)
    want = bits(metal.ssm_scan, inputs, cotangents, dtype)
    assert differing(bits(metal.ssm_scan_checkpoint, inputs, cotangents, dtype, every=5), want) == []


@pytest.mark.usefixtures("plain")
def test_bitwise_equality_can_fail():
    inputs, cotangents = draw("mamba1", **WIDE)
    assert differing(bits(mlx.ssm_scan, inputs, cotangents), bits(metal.ssm_scan, inputs, cotangents))


@pytest.mark.usefixtures("plain")
def test_only_the_first_state_of_each_chunk_is_kept():
    inputs, _ = draw("mamba2", T=7)
    arrays = [mx.array(value.astype(np.float32)) for value in inputs.values()]
    for every, chunks in ((1, 7), (3, 3), (7, 1)):
        assert metal._scan(every)(*arrays)[2].shape == (chunks, *inputs["s"].shape)


@pytest.mark.usefixtures("plain")
def test_each_gradient_has_the_dtype_of_its_own_input():
    inputs, cotangents = draw("mamba1")
    dtypes = {"s": mx.float32, "x": mx.bfloat16, "dt": mx.float32, "A": mx.float32, "B": mx.bfloat16, "C": mx.float16}
    primals = [mx.array(value.astype(np.float32)).astype(dtypes[name]) for name, value in inputs.items()]
    weights = [mx.array(cotangents[0].astype(np.float32)).astype(mx.bfloat16), mx.array(cotangents[1].astype(np.float32))]
    outputs, gradients = mx.vjp(lambda *arrays: list(metal.ssm_scan(*arrays)), primals, weights)
    assert [array.dtype for array in outputs] == [mx.bfloat16, mx.float32]
    assert dict(zip(NAMES, [array.dtype for array in gradients], strict=True)) == dtypes


@pytest.mark.usefixtures("plain")
def test_a_loss_on_one_output_alone_is_enough():
    inputs, _ = draw("mamba1")
    arrays = [mx.array(value.astype(np.float32)) for value in inputs.values()]
    for which in (0, 1):
        gradient = mx.grad(lambda x, which=which: metal.ssm_scan(arrays[0], x, *arrays[2:])[which].sum())(arrays[1])
        weights = [np.zeros_like(out) if i != which else np.ones_like(out) for i, out in enumerate(reference(**inputs))]
        assert distance(np.array(gradient), central_differences(inputs, weights)["x"]) <= ROUNDINGS * EPS["f32"]


@pytest.mark.skipif(place() == "metal", reason="nobody watches a GPU")
@pytest.mark.parametrize("file, number", BARRIERS)
def test_deleting_any_barrier_is_found(file, number, tmp_path):
    copy = copy_with_edit(PACKAGE, None, "barrier", tmp_path)
    text = (copy / file).read_text()
    at = [match.start() for match in re.finditer("threadgroup_barrier", text)][number]
    (copy / file).write_text(text[:at] + text[text.index(";", at) :])
    inputs, cotangents = draw("mamba2", **WIDE)
    with pytest.raises(KernelFault) as raised:
        bits(load_package(copy, "metal", "ssm_scan"), inputs, cotangents)
    assert "race" in {finding.kind for finding in raised.value.findings}


def test_there_are_barriers_to_delete():
    assert BARRIERS


def test_threadgroups_keep_to_the_limits_of_an_apple_gpu():
    assert metal.ROWS * metal.LANES <= 1024
    terms = re.search(r"threadgroup float terms\[2\]\[2\]\[ROWS\]\[LANES\];", (PACKAGE / "backward.metal").read_text())
    assert terms
    assert 2 * 2 * metal.ROWS * metal.LANES * 4 <= 32 * 1024
    assert f"LANES = {metal.LANES};" in (PACKAGE / "common.metal").read_text()


def test_a_chunk_has_at_least_one_step_and_a_shape_that_does_not_fit_is_named():
    inputs = {name: mx.array(value.astype(np.float32)) for name, value in draw("mamba2")[0].items()}
    with pytest.raises(ValueError, match="every is 0, need at least 1 step per chunk"):
        metal.ssm_scan(**inputs, every=0)
    with pytest.raises(ValueError, match=r"A has shape \(1,\)"):
        metal.ssm_scan_checkpoint(**{**inputs, "A": mx.zeros(1)})
