"""An op is a declaration: what it says is kept, and a name that it does not declare is refused."""

from __future__ import annotations

from typing import Any

import pytest

from gradcheck import Kernel, Op, SuiteError, UsageError, op
from gradcheck.numerics.recurrence import Recurrence


def plain(rng, shapes):
    """Every input random."""
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def declare(**changes: Any) -> Op:
    facts: dict[str, Any] = {
        "source": "a book",
        "inputs": {"x": "B T H", "k": "B T G K", "a": "H", "S": "B H K", "ids": "B"},
        "outputs": {"y": "B T H", "S_T": "B H K"},
        "state": "S",
        "terms": "B H K",
        "linear": "x S",
        "dims": {"B": [1, 2], "T": [1, 5], "H": [2, 4], "G": [1, 2], "K": [3]},
        "regimes": {"plain": plain},
        "variants": {"wide": {"a": "H K"}, "narrow": {}},
        "constants": "ids",
        "groups": {"G": "H"},
        "coupled": "K",
        "separate": {"x": "K"},
        "kernels": [Kernel("ops", "m:f")],
    }

    @op(**(facts | changes))
    def decay(S, x, k, a, ids):
        """S' = a S + x k."""

    return decay


SIZES = {"B": 2, "T": 5, "H": 4, "G": 2, "K": 3}


def test_a_declaration_takes_its_name_and_maths_from_the_step_and_its_reasons_from_the_regimes():
    declared = declare()
    assert (declared.name, declared.maths, declared.source) == ("decay", "S' = a S + x k.", "a book")
    assert {regime.name: regime.why for regime in declared.regimes.values()} == {"plain": "Every input random."}
    assert (declared.linear, declared.constants, declared.coupled) == ({"x", "S"}, {"ids"}, {"K"})
    assert declared.dims["T"] == (1, 5)


def test_shapes_follow_the_sizes_and_the_branch():
    declared = declare()
    assert declared.shapes(SIZES, "narrow") == {"x": (2, 5, 4), "k": (2, 5, 2, 3), "a": (4,), "S": (2, 4, 3), "ids": (2,)}
    assert declared.shapes(SIZES, "wide")["a"] == (4, 3)
    assert declared.output_shapes(SIZES) == {"y": (2, 5, 4), "S_T": (2, 4, 3)}


def test_the_recurrence_is_what_was_declared():
    recurrence = declare().recurrence("wide")
    assert isinstance(recurrence, Recurrence)
    assert recurrence.inputs["a"] == ("H", "K")
    assert recurrence.output == ("B", "T", "H")
    assert recurrence.terms == (("B", "H", "K"),)
    assert recurrence.differentiable == ("x", "k", "a", "S")
    assert recurrence.steps == ("x", "k")
    assert recurrence.static == ("a", "ids")
    assert recurrence.separate == {"x": {"K"}}


def test_several_terms_are_a_sequence():
    assert declare(terms=["B H K", "B H"]).recurrence("wide").terms == (("B", "H", "K"), ("B", "H"))


@pytest.mark.parametrize("variant", ["", "wid"])
def test_a_branch_that_does_not_exist_is_refused_with_the_near_ones(variant):
    for ask in (declare().recurrence, lambda branch: declare().shapes(SIZES, branch)):
        with pytest.raises(UsageError, match=f"no variant of decay '{variant}'.*wide"):
            ask(variant)


def test_a_branch_may_leave_an_input_out():
    declared = declare(variants={"with": {}, "without": {"ids": None}})
    sizes = {"B": 1, "T": 2, "H": 2, "G": 1, "K": 3}
    assert list(declared.inputs_of("with")) == ["x", "k", "a", "S", "ids"]
    assert list(declared.inputs_of("without")) == list(declared.shapes(sizes, "without")) == ["x", "k", "a", "S"]
    assert list(declared.recurrence("without").inputs) == ["x", "k", "a", "S"]


def test_a_branch_without_the_state_is_refused():
    with pytest.raises(SuiteError, match=r"variants\[bare\] drops the state S"):
        declare(variants={"bare": {"S": None}})


def test_an_op_without_branches_has_the_nameless_one():
    assert declare(variants=None).recurrence().inputs["a"] == ("H",)
    with pytest.raises(UsageError, match="There are no"):
        declare(variants=None).recurrence("wide")


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"state": "s"}, "state names s, which is not an input (x, k, a, S, ids)"),
        ({"linear": "x SS"}, "linear names SS, which is not an input"),
        ({"constants": "id"}, "constants names id, which is not an input"),
        ({"separate": {"q": "K"}}, "separate names q, which is not an input"),
        ({"variants": {"wide": {"A": "H K"}}}, "variants[wide] names A, which is not an input"),
        ({"groups": {"G": "Hv"}}, "groups names the axis Hv, which no input, output or term has"),
        ({"groups": {"Q": "H"}}, "groups names the axis Q, which no input"),
        ({"coupled": "V"}, "coupled names the axis V, which no input"),
        ({"dims": {"B": [1], "T": [1], "H": [2], "G": [1], "K": [3], "V": [1]}}, "dims names the axis V, which no input"),
        ({"dims": {"B": [1], "T": [1], "H": [2], "G": [1]}}, "dims gives no sizes for K"),
        ({"outputs": {"y": "B T H"}}, "outputs must be the per-step output (with T) and then the final state"),
        ({"outputs": {"S_T": "B H K", "y": "B T H"}}, "outputs must be the per-step output (with T) and then the final state"),
        ({"outputs": {"y": "T B H", "S_T": "B H K"}}, "every output begins with the batch axis B"),
        ({"regimes": {}}, "needs at least one regime"),
    ],
)
def test_a_name_that_is_not_declared_is_refused_where_it_is_written(changes, says):
    with pytest.raises(SuiteError) as caught:
        declare(**changes)
    assert str(caught.value).startswith("op decay: ")
    assert says in str(caught.value)
