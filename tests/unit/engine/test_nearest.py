"""The mutant that a wrong kernel looks like: the right one, or none."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from gradcheck import Case, Kernel, WorkItem
from gradcheck.engine.execute import Job, job_of, source_of
from gradcheck.engine.nearest import ALIKE, OF_THREADS, Keep, Trial, alike, best, compare, cosine, errors_of, keep, nearest
from gradcheck.engine.plan import Request, make_plan
from gradcheck.process import GIB, Done, Limits, Standing
from gradcheck.suite import load

STRANGERS = Path(__file__).parents[2] / "testdata" / "strangers"
CASE = "ssm_scan/B2,T9,H4,G2,P5,N7,{}/f32/typical/0"
OTHER = "ssm_scan/B3,T12,H4,G2,P5,N7,{}/f32/long-memory/1"
PLANTED = ("drop_softplus_slope", "seed_ds_with_zeros", "drop_dA_path", "drop_y_in_dS", "previous_state_in_dC")
SAME_DEFECT = {("drop_dA_path", "subtract_dA_path"), ("last_sequence_wins", "mean_over_sequences")}
"""One dropped term and the same with the other sign, and what a batch of two hardly tells: the errors point the same way."""


@pytest.fixture(scope="module", autouse=True)
def scratch(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADCHECK_CACHE_DIR", str(tmp_path_factory.mktemp("truths")))
        yield tmp_path_factory.mktemp("mutants")


@pytest.fixture(scope="module")
def reference():
    (subject,) = make_plan(Request("ssm_scan", kernels=("mlx",), mutants="all", checks="none", cases=("1",)), load([])).subjects
    return subject


def suspect(target, case):
    name = f"{STRANGERS / target.partition(':')[0]}.py:{target.partition(':')[2] or 'scan'}"
    return Job(WorkItem("ssm_scan", name, case), source_of((), Path.cwd()), Kernel(name, name))


def mutants(reference, branch):
    return {n: m for n, m in reference.mutants.items() if m.expect == "killed" and branch in (m.variants or (branch,)) and not m.dtypes}


def like(target, branch, reference, scratch):
    """The nearest mutant, worked out in this process."""
    cases = (CASE.format(branch), OTHER.format(branch))
    file = scratch / f"{target}-{branch}.pickle"
    keep(Keep(suspect(target, cases[0]), cases, str(file)))
    known = mutants(reference, branch)
    source = source_of((), Path.cwd())
    jobs = {n: job_of(reference, WorkItem("ssm_scan", "mlx", cases[0], n), source, scratch) for n in ("", *known)}
    found = {name: compare(Trial(jobs[name], jobs[""], cases, str(file))) for name in known}
    return best(found, {name: mutant.why for name, mutant in known.items()})


@pytest.mark.parametrize("branch", ["mamba1", "mamba2"])
@pytest.mark.parametrize("name", PLANTED)
def test_a_known_mistake_in_other_code_is_named(name, branch, reference, scratch):
    found = like(f"planted:{name}", branch, reference, scratch)
    assert found is not None
    assert found.mutants == (name,)
    assert found.cosine > 0.999
    assert str(found).startswith(f"looks most like mutant `{name}` (cosine 1.000): {reference.mutants[name].why}")


@pytest.mark.parametrize("target", ["planted:even_steps", "planted:one_state", "later_batch_rows_wrong", "last_token_wrong"])
def test_of_a_mistake_that_no_mutant_makes_it_is_said_how_far_the_nearest_is(target, reference, scratch):
    found = like(target, "mamba2", reference, scratch)
    assert not found.close
    assert re.fullmatch(r"looks like no known mutant: the nearest is `\w+` \(cosine 0\.\d\d\)", str(found))


@pytest.mark.parametrize(
    "target, zeros", [("zeros_for_one", ("d dt",)), ("zeros_for_one:everything", ("y", "s_T", "d s", "d x", "d dt", "d A", "d B", "d C"))]
)
def test_what_returns_zeros_is_said_to_and_likened_to_no_mutant(target, zeros, scratch):
    cases, file = (CASE.format("mamba2"), OTHER.format("mamba2")), scratch / f"{target}.pickle"
    assert keep(Keep(suspect(target, cases[0]), cases, str(file))) == zeros
    assert not file.exists()


def test_zeros_where_a_cotangent_is_dropped_are_a_matter_of_the_case(scratch):
    case, file = CASE.format("mamba2").replace("typical", "typical@state"), scratch / "dropped.pickle"
    assert keep(Keep(suspect("state_cotangent_ignored", case), (case,), str(file))) == ()
    assert file.exists()


@pytest.mark.parametrize("target", ["autodiff", "other_order"])
def test_the_rounding_of_a_right_kernel_is_like_no_mutant(target, reference, scratch):
    found = like(target, "mamba2", reference, scratch)
    assert found is None or not found.close


def test_two_different_mutants_do_not_look_alike(reference, scratch):
    case, source = CASE.format("mamba2"), source_of((), Path.cwd())

    def errors_with(name):
        return errors_of(job_of(reference, WorkItem("ssm_scan", "mlx", case, name), source, scratch), [case])[0]

    clean, changes = errors_with(""), {}
    for name in mutants(reference, "mamba2"):
        errors = errors_with(name)
        changed = {key: errors[key] - clean[key] for key in clean} if errors.keys() == clean.keys() else {}
        if any(part.any() for part in changed.values()):  # some mistakes show at other sizes only
            changes[name] = changed
    assert len(changes) > 30
    names = list(changes)
    pairs = {(a, b) for i, a in enumerate(names) for b in names[i + 1 :] if cosine(changes[a], changes[b]) >= ALIKE}
    assert pairs == SAME_DEFECT


def test_what_is_named_is_bounded_in_time_and_says_what_was_tried(reference, scratch):
    case = CASE.format("mamba2")
    file = scratch / "bounded.pickle"
    keep(Keep(suspect("planted:drop_dA_path", case), (case,), str(file)))
    with closing(Standing(Limits(60.0, 8 * GIB), scratch)) as worker:
        whole = nearest(file, (case,), (reference,), source_of((), Path.cwd()), worker=worker, scratch=scratch)
        cut = nearest(file, (case,), (reference,), source_of((), Path.cwd()), worker=worker, scratch=scratch, seconds=0.0)
    assert whole is not None
    assert whole.mutants == ("drop_dA_path",)
    assert whole.tried == whole.known > 40
    assert cut is None or f"; 1 of {whole.known} mutants were tried" in str(cut)


class Canned:
    """A worker whose answers are known: the cosine of every mutant, by kernel."""

    def __init__(self, **angles):
        self.angles, self.asked = angles, []

    def call(self, _, trial):
        self.asked.append((trial.job.item.kernel, trial.job.item.mutant))
        return Done((self.angles[trial.job.item.kernel], 1.0), 0.0)


@pytest.mark.parametrize("angle", [0.3, 0.97])
def test_mutants_of_metal_kernels_alone_are_tried_only_where_no_other_looks_alike(reference, scratch, angle):
    request = Request("ssm_scan", kernels=("metal",), mutants="all", checks="none", cases=("1",))
    (metal,) = make_plan(request, load([])).subjects
    worker = Canned(mlx=angle, metal=0.99)
    found = nearest(
        scratch / "none", (CASE.format("mamba2"),), (reference, metal), source_of((), Path.cwd()), worker=worker, scratch=scratch
    )
    assert found.close
    in_metal = [mutant for kernel, mutant in worker.asked if kernel == "metal"]
    assert bool(in_metal) == (angle < ALIKE)
    assert not {mutant for kernel, mutant in worker.asked if kernel == "mlx"} & set(in_metal)
    assert not {metal.mutants[name].defect for name in in_metal} & OF_THREADS
    assert found.tried == found.known == len(worker.asked)


def test_mutants_that_cannot_be_told_apart_are_named_together_unless_one_has_the_size():
    why = {"drop": "a term is dropped", "subtract": "it is subtracted", "far": "something else"}
    assert best({"drop": (0.9999, 1.0), "subtract": (0.99991, 0.5), "far": (0.9, 1.0)}, why).mutants == ("drop",)
    found = best({"drop": (0.9999, 3.0), "subtract": (0.99991, 1.5), "far": (0.9, 1.0)}, why)
    assert str(found) == "looks most like mutant `subtract` or `drop` (cosine 1.000, 1.5 times its size): it is subtracted"
    far = best({"far": (0.412, 1.0), "drop": (-0.9, 1.0)}, why)
    assert str(far) == "looks like no known mutant: the nearest is `far` (cosine 0.41; 2 of 3 mutants were tried)"
    assert not best({"far": (ALIKE - 1e-6, 1.0)}, why).close
    assert best({"far": (np.nan, 1.0)}, why) is None
    assert best({"far": (-1.0, 1.0)}, why) is None
    assert best({}, why) is None


def test_cases_of_one_branch_are_compared_together():
    texts = [CASE.format("mamba2"), CASE.format("mamba1"), *(OTHER.format("mamba2").replace("/1", f"/{seed}") for seed in range(4))]
    assert alike(map(Case.parse, texts)) == (texts[0], texts[2], texts[3])
