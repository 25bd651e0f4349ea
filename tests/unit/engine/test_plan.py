"""What a request comes to: which kernels are run, which are left out and why, and at which cases a mutant is."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from gradcheck import Case, Kernel
from gradcheck.engine.assemble import planned_items
from gradcheck.engine.plan import Request, make_plan
from gradcheck.suite import load
from gradcheck.suite._roots import builtin_root

ROOT = builtin_root().path  # the checkout, or what the wheel carries
FORWARD = Kernel("forward", "gradcheck.kernels.ssm_scan.ggml:ssm_scan", forward_only=True)
BOTH = Kernel("both", "gradcheck.kernels.ssm_scan.mlx:ssm_scan", sources=("mlx.py",))


@pytest.fixture(scope="module")
def built_in():
    return load([ROOT])


@pytest.fixture
def suite(built_in):
    """The built-in suite with a kernel that has a backward and one that has none."""
    op = built_in.ops["ssm_scan"]
    mutant = built_in.mutants["ssm_scan/drop_dA_path"]
    edits = {"both": mutant.edits["mlx"]}
    return replace(
        built_in,
        ops={"ssm_scan": replace(op, kernels=(BOTH, FORWARD))},
        mutants={mutant.id: replace(mutant, edits=edits, variants=("mamba2",))},
    )


def names(plan):
    return [subject.kernel.name for subject in plan.subjects]


def test_a_forward_only_kernel_is_left_out_of_a_run_of_gradients_and_the_plan_says_so(suite):
    plan = make_plan(Request("ssm_scan", cases=("1",)), suite)
    assert names(plan) == ["both"]
    assert "--forward-only" in plan.not_run["forward"]
    assert plan.absent == {}


def test_a_forward_only_kernel_is_run_where_only_outputs_are_compared(suite):
    plan = make_plan(Request("ssm_scan", cases=("1",), forward_only=True), suite)
    assert (names(plan), plan.not_run) == (["both", "forward"], {})


def test_a_forward_only_kernel_that_is_asked_for_by_name_is_run_so_that_it_must_own_up(suite):
    assert names(make_plan(Request("ssm_scan", kernels=("forward",), cases=("1",)), suite)) == ["forward"]


def test_where_only_outputs_are_compared_nothing_is_planned_beside_the_kernels_themselves(suite):
    plan = make_plan(Request("ssm_scan", mutants="all", cases=("1",), forward_only=True), suite)
    assert {item.mutant for item in planned_items(plan)} == {""}
    assert "canary" in {item.mutant for item in planned_items(make_plan(Request("ssm_scan", cases=("1",)), suite))}


def test_a_mutant_is_run_in_the_branches_in_which_it_is_a_defect(suite):
    plan = make_plan(Request("ssm_scan", kernels=("both",), mutants="all", cases=("3",)), suite)
    cases = [Case.parse(item.case) for item in planned_items(plan) if item.mutant == "drop_dA_path"]
    assert [case.variant for case in cases] == ["mamba2"] * 3


def test_a_mutant_is_run_on_the_dtypes_on_which_it_is_a_defect(suite):
    ((id_, mutant),) = suite.mutants.items()
    op = replace(suite.ops["ssm_scan"], kernels=(replace(BOTH, dtypes=("f32", "f16")),))
    half = replace(suite, ops={"ssm_scan": op}, mutants={id_: replace(mutant, dtypes=("f16",))})
    items = planned_items(make_plan(Request("ssm_scan", mutants="all"), half))
    assert {Case.parse(item.case).dtype for item in items} == {"f32", "f16"}
    assert {Case.parse(item.case).dtype for item in items if item.mutant == mutant.name} == {"f16"}


def test_a_missing_package_is_named_as_pip_is_told(suite):
    op = suite.ops["ssm_scan"]
    kernels = (replace(FORWARD, requires="no_such_module", install="gradcheck[ggml]"), replace(BOTH, requires="no_such_module"))
    plan = make_plan(Request("ssm_scan"), replace(suite, ops={"ssm_scan": replace(op, kernels=kernels)}))
    assert plan.not_run["forward"].endswith("needs the package no_such_module, which is not installed: pip install 'gradcheck[ggml]'")
    assert plan.not_run["both"].endswith("pip install 'no_such_module'")


def test_a_number_of_cases_is_of_each_dtype_that_is_named_and_a_dtype_left_out_is_told(built_in):
    suite = built_in
    asked = Request("ssm_scan", kernels=("mlx",), cases=("2",), checks="none")
    named = make_plan(replace(asked, dtypes=("f16", "bf16")), suite)
    assert Counter(case.dtype for case in named.subjects[0].cases) == {"f16": 4, "bf16": 4}  # two branches
    assert not any("was not run in" in note for note in named.notes)
    cut = make_plan(asked, suite)
    assert {case.dtype for case in cut.subjects[0].cases} == {"f32"}
    assert "mlx was not run in f16 bf16: --cases 2 takes the first of the grid; name them by --dtype" in cut.notes
    stated = Kernel("only", "gradcheck.kernels.ssm_scan.mlx:ssm_scan", sources=("mlx.py",))
    op = replace(suite.ops["ssm_scan"], kernels=(stated,))
    unclaimed = make_plan(
        Request("ssm_scan", kernels=("only",), cases=("1",), checks="none", dtypes=("f32", "f16")), replace(suite, ops={"ssm_scan": op})
    )
    assert "only was not run in f16: it claims f32" in unclaimed.notes
