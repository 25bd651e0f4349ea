"""A repository with the same three folders is checked exactly as ours is: `tests/testdata/hello`."""

from __future__ import annotations

from gradcheck import ExitCode

from .conftest import edit


def test_a_foreign_suite_is_found_by_its_folders_and_its_mutants_are_killed(cli, hello):
    ran = cli("run", "--op", "leaky_scan", "--mutants", "all", "--json")
    assert ran.code == ExitCode.OK, ran.err
    assert set(ran.outcomes()) == {"PASSED"}
    full = {key[:2]: row[0] for key, row in ran.kills.items() if key[3] == "full"}
    assert full == {
        ("plain", "drop_decay"): "KILLED",
        ("plain", "state_after_in_da"): "KILLED",
        ("ops", "drop_decay"): "KILLED",
        ("plain", "canary"): "KILLED",
        ("ops", "canary"): "KILLED",
        ("plain", "null"): "SURVIVED",
        ("ops", "null"): "SURVIVED",
    }
    assert "2 of 2 mutants killed" in ran.report


def test_it_needs_no_configuration(cli, hello):
    (hello / "pyproject.toml").unlink()
    assert cli("run", "--op", "leaky_scan", "--kernel", "plain", "--cases", "6").code == ExitCode.OK


def test_it_can_be_named_from_elsewhere(cli, hello, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert cli("run", "--op", "leaky_scan", "--kernel", "plain", "--cases", "6").code == ExitCode.USAGE
    assert cli("run", "--op", "leaky_scan", "--kernel", "plain", "--cases", "6", "--suite", str(hello)).code == ExitCode.OK


def test_our_own_op_is_still_there(cli, hello):
    assert "leaky_scan" in (listed := cli("list", "ops").out)
    assert "ssm_scan" in listed


def test_its_suite_is_in_order(cli, hello):
    assert cli("lint").code == ExitCode.OK


def test_its_own_kernel_in_half_precision_is_judged_by_the_noise_of_half_precision(cli, hello):
    ran = cli("run", "--op", "leaky_scan", "--kernel", "plain", "--dtype", "f16", "--mutants", "all", "--json")
    assert ran.code == ExitCode.OK, ran.err


def test_a_coupled_op_passes_and_all_its_gradients_are_checked(cli, hello):
    ran = cli("run", "--op", "delta_rule", "--json")
    assert ran.code == ExitCode.OK, ran.err
    assert "5 gradients checked (S q k v beta)" in ran.report


def test_a_coupled_op_with_a_wrong_kernel_fails_in_what_is_wrong(cli, hello):
    """dk without what flows through the error: what a diagonal view of the state would give."""
    edit(hello / "hello" / "delta.py", {' - np.einsum("bkv,bv->bk", states[t], du)': ""})
    ran = cli("run", "--op", "delta_rule", "--json")
    assert (ran.code, set(ran.blamed)) == (ExitCode.WRONG, {"d k"})


def test_a_coupled_op_sees_an_adjoint_that_forgets_the_coupling(cli, hello):
    edit(hello / "hello" / "delta.py", {"G = G - k[:, t, :, None] * du[:, None, :]": "G = G + 0"})
    ran = cli("run", "--op", "delta_rule", "--json")
    assert ran.code == ExitCode.WRONG
    assert {"d S", "d k", "d v", "d beta"} <= set(ran.blamed)
    assert "d q" not in ran.blamed


def test_a_stranger_is_judged_by_the_op_of_a_foreign_suite(cli, hello):
    (hello / "mine.py").write_text((hello / "hello" / "leaky.py").read_text().replace("carried = a * G", "carried = a * a * G"))
    ran = cli("run", "--op", "leaky_scan", "--kernel", "mine.py:leaky_scan", "--json")
    assert (ran.code, set(ran.blamed)) == (ExitCode.WRONG, {"d h", "d x", "d a"})
    assert "band: op-level" in ran.report
