"""A mutant of the gate, of beta or of the call spoils the gradients that it is about, and no other; outputs only where it says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gradcheck
from gradcheck.engine.mutate import copy_with_edit
from gradcheck.engine.target import load_package
from gradcheck.kernels.gated_delta import update
from gradcheck.suite import load
from gradcheck.suite._roots import builtin_root

from .test_gated_delta_update import NAMES, draw, results

pytestmark = pytest.mark.checkout

SUITE = load([builtin_root().path])
PACKAGE = Path(str(gradcheck.__file__)).parent / "kernels" / "gated_delta"
PLAIN, BOUNDED, DOUBLED = {}, {"lower_bound": -5.0}, {"allow_neg_eigval": True}
GATE = {"a", "A_log", "dt_bias"}

SPOILT = {
    "drop_softplus_slope": (PLAIN, {"a", "dt_bias"}),
    "slope_without_bias": (PLAIN, {"a", "dt_bias"}),
    "plus_for_the_rate": (PLAIN, {"a", "dt_bias"}),
    "dA_log_without_log_g": (PLAIN, {"A_log"}),
    "gradient_of_A_for_A_log": (PLAIN, {"A_log"}),
    "linear_gate_for_log_gate": (PLAIN, GATE),
    "gate_without_cotangent": (PLAIN, GATE),
    "dt_bias_of_one_sequence": (PLAIN, {"dt_bias"}),
    "dt_bias_of_the_last_step": (PLAIN, {"dt_bias"}),
    "A_log_of_one_sequence": (PLAIN, {"A_log"}),
    "A_log_of_one_channel": ({"vector": True}, {"A_log"}),
    "dt_bias_over_channels": ({"vector": True}, {"dt_bias"}),
    "parameters_swapped": (PLAIN, {"A_log", "dt_bias"}),
    "bound_dropped_on_the_way_back": (BOUNDED, GATE),
    "bounded_da_without_rate": (BOUNDED, {"a", "dt_bias"}),
    "bounded_dA_log_without_argument": (BOUNDED, {"A_log"}),
    "db_without_slope": (PLAIN, {"b"}),
    "db_half_the_slope": (PLAIN, {"b"}),
    "doubled_once": (DOUBLED, {"b"}),
    "state_detached": (PLAIN, {"state"}),
    "gate_detached": (PLAIN, GATE),
    "A_log_captured": (PLAIN, {"A_log"}),
    "beta_detached": (PLAIN, {"b"}),
}
FORWARD = ("bias_forgotten", "A_for_A_log", "ramp_for_softplus", "gate_one_step_late", "heads_in_tiles", "queries_for_keys")


def mutated(name, tmp_path):
    edit = SUITE.mutants[f"gated_delta_update/{name}"].edits["chunkwise"]
    return load_package(copy_with_edit(PACKAGE, edit, name, tmp_path), "update", "gated_delta_update_vjp")


@pytest.mark.parametrize("name", SPOILT)
def test_a_mutant_spoils_the_gradients_it_is_about_and_no_other(name, tmp_path):
    changes, spoilt = SPOILT[name]
    inputs, options = draw(**changes)
    outputs, right = results(update.gated_delta_update_vjp, inputs, path="chunkwise", **options)
    mutated_outputs, wrong = results(mutated(name, tmp_path), inputs, path="chunkwise", **options)
    assert all(np.array_equal(a, b) for a, b in zip(outputs, mutated_outputs, strict=True))
    assert {key for key in NAMES if not np.array_equal(wrong[key], right[key])} == spoilt


@pytest.mark.parametrize("name", FORWARD)
def test_a_mutant_of_the_forward_spoils_y(name, tmp_path):
    inputs, _ = draw()
    outputs, _ = results(update.gated_delta_update_vjp, inputs, path="chunkwise")
    mutated_outputs, _ = results(mutated(name, tmp_path), inputs, path="chunkwise")
    assert not np.allclose(outputs[0], mutated_outputs[0])


def test_there_are_mutants_of_every_kernel_and_branch():
    op = SUITE.ops["gated_delta_update"]
    mutants = [mutant for mutant in SUITE.mutants.values() if mutant.op == op.name]
    assert len(mutants) >= 40
    for kernel in op.kernels:
        edited = [mutant for mutant in mutants if kernel.name in mutant.edits]
        assert len(edited) >= 40, kernel.name
        assert all(any(not m.variants or variant in m.variants for m in edited) for variant in op.variants)
