from __future__ import annotations

import re
from dataclasses import replace

import pytest

from gradcheck import Band, Evidence, ExitCode, Outcome, Run, Verdict
from gradcheck._verdict import WorkItem


def flat(text: str) -> str:
    """The report without its line breaks."""
    return " ".join(text.split())


def row(text: str, gradient: str) -> str:
    """The calibration row of one gradient."""
    return next(line for line in text.splitlines() if re.match(rf"[✓✗?] {re.escape(gradient)}\s", line))


@pytest.fixture(params=["passing", "stranger", "crash", "survivor", "incomplete"])
def any_run(request) -> Run:
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("width", [80, 100, 110, 120])
def test_no_line_is_wider_than_asked_for(render, any_run, width):
    assert max(map(len, render("terminal", any_run, width=width).splitlines())) <= width


def test_colour_only_where_asked_for(render, any_run):
    coloured = render("terminal", any_run, colour=True)
    assert "\x1b[" in coloured
    assert "\x1b" not in render("terminal", any_run)
    stripped = "\n".join(line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", coloured).split("\n"))
    assert stripped == render("terminal", any_run)


def test_the_environment_changes_nothing(render, any_run, monkeypatch):
    before = render("terminal", any_run, colour=True)
    for name, value in {"NO_COLOR": "1", "COLUMNS": "40", "TERM": "dumb", "FORCE_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    assert render("terminal", any_run, colour=True) == before


def test_the_headline_says_what_a_pass_rests_on(render, passing):
    text = flat(render("terminal", passing))
    assert text.startswith("PASS ssm_scan: mlx agrees with the truth; 5 of 5 mutants killed")
    assert "96 cases (48 mamba1, 48 mamba2)" in text
    assert "6 gradients checked (s x dt A B C)" in text
    assert f"{96 * 8 * 4160:,} elements compared" in text
    assert "not run metal: needs an Apple GPU" in text
    assert "device cpu" in text
    assert "exit 0" in text


def test_each_gradient_has_noise_tolerance_weakest_defect_separation_and_worst_place(render, passing):
    text = render("terminal", passing, width=120)
    for gradient in ("d s", "d x", "d dt", "d A", "d B", "d C"):
        band = max((b for b in passing.bands if b.quantity == gradient), key=lambda b: (b.defect or 0) / b.noise)
        shown = row(text, gradient)
        assert shown.startswith("✓")
        for fact in (band.metric, f"{band.noise:.3g}", f"{band.tolerance:.3g}", band.weakest):
            assert fact in shown
    assert "[1, 64, 1, 2]" in row(text, "d C")
    assert row(text, "d C").endswith(" 64")


def test_a_mutant_shows_how_often_where_and_by_how_much_it_was_seen(render, passing):
    line = next(line for line in render("terminal", passing).splitlines() if line.startswith("drop_dA_path"))
    assert "mamba1 mamba2" in line
    assert line.count("90/96") == 3
    assert "d dt ×4.1e4" in line
    assert "×87.3" in line


def test_canary_and_null_mutant_are_outside_the_count(render, passing):
    text = render("terminal", passing)
    assert "5 of 5 mutants killed" in text
    assert "✓ canary" in text
    assert "✓ null mutant" in text


def test_a_canary_that_lives_is_told_as_what_it_is(render, survivor):
    text = flat(render("terminal", survivor))
    assert text.startswith("ROTTEN")
    assert "✗ canary (gradients of zeros) of mlx SURVIVED: these results cannot be trusted" in text


def test_a_null_mutant_that_dies_is_told_as_what_it_is(render, passing):
    dead = tuple(replace(k, outcome=Outcome.KILLED) if k.mutant == "null" else k for k in passing.kills)
    assert "✗ null mutant" in render("terminal", replace(passing, kills=dead))


def test_a_wrong_gradient_is_named_with_step_values_and_replay_line(render, stranger):
    text = flat(render("terminal", stranger))
    assert text.startswith("FAIL ssm_scan: path/to/my_kernels.py:scan is wrong in d dt and d A")
    assert "FAILED d dt of path/to/my_kernels.py:scan in 7 of 48 cases" in text
    assert "d dt[b=0, t=64, h=3] got 1.5 want -2.5" in text
    assert "first out of the noise at t = 60, worst at t = 64, 5 of 65 steps" in text
    assert "z 1.7e4 > 24.8" in text
    case = "ssm_scan/B2,T65,H4,P8,N16,G2,mamba2/f32/long-memory/40"
    replay = f"gradcheck replay {case} --kernel path/to/my_kernels.py:scan --suite ../theirs"
    assert replay in text.replace("\\ ", "")


@pytest.mark.parametrize("factor, shown", [(10, "5 of 65 steps"), (1e6, "1 of 1 step")])
def test_of_the_cases_that_are_far_off_the_one_that_shows_where_is_shown(render, stranger, factor, shown):
    def everywhere(verdict: Verdict) -> Verdict:
        """Wrong by `factor` times as much, in a case of one step, where the place says nothing."""
        assert verdict.evidence
        once = [
            replace(m, ratios={name: (ratio or 0) * factor for name, ratio in m.ratios.items()}, profile=(1e9,))
            if m.quantity == "d dt"
            else m
            for m in verdict.evidence.measurements
        ]
        return replace(verdict, evidence=replace(verdict.evidence, measurements=tuple(once)))

    first = next(k for k, verdict in enumerate(stranger.verdicts) if verdict.outcome is Outcome.FAILED)
    verdicts = tuple(everywhere(verdict) if k == first else verdict for k, verdict in enumerate(stranger.verdicts))
    assert shown in flat(render("terminal", replace(stranger, verdicts=verdicts)))


def test_a_gradient_that_is_not_finite_is_named_with_what_is_the_matter(render, stranger):
    text = render("terminal", stranger)
    assert "3 of 4 elements are not finite" in text
    assert row(text, "d A").startswith("✗")
    assert row(text, "d B").startswith("✓")


def test_a_strangers_kernel_says_whose_band_judges_it(render, stranger):
    assert "band: op-level" in render("terminal", stranger)


def test_a_crash_shows_its_signal_its_log_and_its_replay_line(render, crash):
    text = render("terminal", crash)
    assert "CRASHED" in text
    assert "killed by SIGSEGV" in text
    assert "Python error: Segmentation fault" in text
    assert "TIMEOUT" in text
    assert "--kernel 'theirs:scan[red]'" in text


def test_a_kernel_that_raises_and_a_check_and_a_mutant_of_which_it_does_show_words_and_place_and_no_traceback(render, passing):
    detail = "RuntimeError: T is odd\n" + '  File "/x/scan.py", line 7, in back\n    raise RuntimeError("T is odd")\n    ^^^^^^^^^^^^^^^^'
    first = passing.verdicts[0].item
    run = replace(
        passing,
        verdicts=(Verdict(first, Outcome.FAILED, detail, Evidence(first, "raised", detail=detail)),),
        checks=(Verdict(replace(first, check="taint"), Outcome.FAILED, detail, Evidence(first, "raised", detail=detail)),),
        kills=(replace(passing.kills[0], outcome=Outcome.UNVIABLE, why=detail),),
        exit_code=ExitCode.WRONG,
    )
    text = render("terminal", run)
    assert text.count("RuntimeError: T is odd (/x/scan.py:7)") == 3
    assert "^^" not in text
    assert detail in render("junit", run).replace("&quot;", '"')  # where a reader has no folder of the run, it stands whole


def test_what_strangers_write_stays_text(render, crash, survivor):
    text = render("terminal", crash)
    assert "theirs:scan[red]" in text
    assert "[bold]Fatal[/bold]" in text
    assert "owned" not in text
    assert "[red]not markup[/red]" in render("terminal", survivor)


def test_a_survivor_is_shown_with_reason_diff_and_replay_line(render, survivor):
    text = flat(render("terminal", survivor))
    assert "4 of 5 mutants killed" in text
    assert "SURVIVED drop_dA_path on mlx, mamba1 in full and mamba1 last step" in text
    assert "d(dt) loses what flows through exp(dt*A)" in text
    assert "- ddt = du_x + dA_path + ddt = du_x" in text
    assert "--mutant drop_dA_path" in text


def test_what_survives_diluted_alone_is_counted_in_the_headline_of_every_report(render, passing):
    weak = {("drop_dA_path", "last step"), ("drop_dA_path", "one head"), ("previous_state_in_dC", "last step")}
    rows = tuple(replace(k, outcome=Outcome.SURVIVED, kills=0) if (k.mutant, k.form) in weak else k for k in passing.kills)
    run = replace(passing, kills=rows, exit_code=ExitCode.SURVIVORS)
    said = "5 of 5 mutants killed in full, 2 survive diluted"
    assert flat(render("terminal", run)).startswith(f"FAIL ssm_scan: mlx agrees with the truth; {said}")
    assert all(said in render(kind, run) for kind in ("markdown", "html"))
    one = tuple(replace(k, outcome=Outcome.KILLED) if k.mutant == "drop_dA_path" else k for k in rows)
    assert "5 of 5 mutants killed in full, 1 survives diluted" in flat(render("terminal", replace(run, kills=one)))


def test_a_bug_of_ours_in_a_check_is_not_laid_at_the_kernels_door(render, passing):
    item = replace(passing.verdicts[0].item, check="taint")
    bug = Verdict(item, Outcome.BUG, "IndexError: no such row", Evidence(item, "bug", detail="IndexError: no such row"))
    run = replace(passing, checks=(bug,), exit_code=ExitCode.BUG, reasons=("the check taint of kernel mlx failed",))
    text = flat(render("terminal", run))
    assert text.startswith("BUG ssm_scan: mlx agrees with the truth; 5 of 5 mutants killed")
    assert "BUG check taint of mlx in 1 of 1 cases" in text
    assert "IndexError" not in render("sarif", run)
    assert "<error" in render("junit", run)


def test_a_stale_mutant_is_not_silent(render, passing):
    stale = tuple(
        replace(k, outcome=Outcome.STALE, why="`find` matches 0 places") if k.mutant == "drop_dA_path" else k for k in passing.kills
    )
    text = flat(render("terminal", replace(passing, kills=stale, exit_code=ExitCode.ROTTEN)))
    assert "STALE drop_dA_path on mlx" in text
    assert "`find` matches 0 places" in text
    assert "4 of 5 mutants killed" in text


def test_a_declared_survivor_is_neither_killed_nor_lost(render, passing):
    rows = tuple(replace(k, outcome=Outcome.HARMLESS, kills=0) if k.mutant == "drop_dA_path" else k for k in passing.kills)
    text = render("terminal", replace(passing, kills=rows))
    assert "4 of 4 mutants killed" in text
    assert "HARMLESS" in text
    assert "SURVIVED" not in text


def test_an_unfinished_run_does_not_claim_agreement(render, incomplete):
    text = flat(render("terminal", incomplete))
    assert text.startswith("INCONCLUSIVE")
    assert "so far" in text
    assert "gradcheck run --resume 20261130-000512-3f9a" in text


@pytest.mark.parametrize("outcome", [Outcome.TIMEOUT, Outcome.INCONCLUSIVE, Outcome.NO_DEVICE])
def test_what_is_not_a_pass_never_reads_as_one(render, passing, outcome):
    first = replace(passing.verdicts[0], outcome=outcome)
    text = flat(render("terminal", replace(passing, verdicts=(first, *passing.verdicts[1:]), exit_code=ExitCode.INCONCLUSIVE)))
    assert "agrees with the truth;" not in text
    assert "mlx is undecided in 1 of 96 cases" in text
    assert f"1 case {outcome.name}: {first.ending}" in text


def test_cases_that_can_tell_nothing_are_not_counted_as_agreement(render, passing):
    first = replace(passing.verdicts[0], outcome=Outcome.UNINFORMATIVE)
    text = flat(render("terminal", replace(passing, verdicts=(first, *passing.verdicts[1:]))))
    assert "mlx agrees with the truth in the 95 of 96 cases that can tell;" in text
    assert "1 case UNINFORMATIVE" in text
    mute = tuple(replace(verdict, outcome=Outcome.UNINFORMATIVE) for verdict in passing.verdicts)
    assert "mlx is undecided in 96 of 96 cases" in flat(render("terminal", replace(passing, verdicts=mute)))


def test_a_kernel_without_backward_says_so(render, passing):
    def forward(verdict: Verdict) -> Verdict:
        assert verdict.evidence
        evidence = replace(verdict.evidence, status="no-backward", measurements=verdict.evidence.measurements[:2])
        return replace(verdict, outcome=Outcome.UNINFORMATIVE, evidence=evidence)

    run = replace(passing, verdicts=tuple(map(forward, passing.verdicts)), kills=(), exit_code=ExitCode.NOTHING)
    text = flat(render("terminal", run))
    assert "mlx has no backward, 0 gradients checked" in text
    assert Outcome.UNINFORMATIVE.value not in text


def test_a_gradient_whose_defects_are_within_tolerance_is_not_ticked(render, passing):
    near = tuple(replace(b, defect=2 * b.tolerance) if b.quantity == "d x" else b for b in passing.bands)
    text = render("terminal", replace(passing, bands=near, exit_code=ExitCode.INCONCLUSIVE))
    assert row(text, "d x").startswith("?")
    assert row(text, "d B").startswith("✓")


def test_a_mutant_that_is_declared_harmless_and_killed_is_told(render, passing):
    why = "declared harmless (no reader), and yet killed"
    rows = tuple(replace(k, why=why) if k.mutant == "drop_dA_path" else k for k in passing.kills)
    assert why in flat(render("terminal", replace(passing, kills=rows, exit_code=ExitCode.ROTTEN)))


def test_a_defect_beyond_all_bounds_has_no_number(render, passing):
    rows = tuple(replace(k, margin=None) for k in passing.kills)
    line = next(line for line in render("terminal", replace(passing, kills=rows)).splitlines() if line.startswith("drop_dA_path"))
    assert "×∞" in line


def test_without_gradients_the_headline_says_so(render, passing):
    def forward(verdict: Verdict) -> Verdict:
        assert verdict.evidence
        return replace(verdict, evidence=replace(verdict.evidence, measurements=verdict.evidence.measurements[:2]))

    text = flat(render("terminal", replace(passing, verdicts=tuple(map(forward, passing.verdicts)), kills=())))
    assert "mlx agrees with the truth in its outputs, 0 gradients checked" in text


def test_a_gradient_in_which_no_case_can_tell_anything_is_not_ticked(render, passing):
    def blind(verdict: Verdict) -> Verdict:
        assert verdict.evidence
        kept = [replace(m, informative=False) if m.quantity == "d A" else m for m in verdict.evidence.measurements]
        return replace(verdict, evidence=replace(verdict.evidence, measurements=tuple(kept)))

    text = render("terminal", replace(passing, verdicts=tuple(map(blind, passing.verdicts))))
    assert row(text, "d A").startswith("?")
    assert "5 gradients checked (s x dt B C)" in flat(text)


def test_a_failure_by_itself_needs_no_number(render, passing):
    first = passing.verdicts[0]
    noted = replace(first, outcome=Outcome.FAILED, evidence=Evidence(first.item, "measured", notes=("overwrites its input x",)))
    text = render("terminal", replace(passing, verdicts=(noted, *passing.verdicts[1:]), exit_code=ExitCode.WRONG))
    assert "mlx is wrong" in text
    assert "overwrites its input x" in text


def test_many_wrong_gradients_are_cut_short_and_counted(render, passing):
    def spoil(verdict: Verdict) -> Verdict:
        assert verdict.evidence
        spoilt = tuple(replace(m, problem="missing") for m in verdict.evidence.measurements)
        return replace(verdict, outcome=Outcome.FAILED, evidence=replace(verdict.evidence, measurements=spoilt))

    text = flat(render("terminal", replace(passing, verdicts=tuple(map(spoil, passing.verdicts)), exit_code=ExitCode.WRONG)))
    assert text.count("gradcheck replay") == 6
    assert "and 2 more" in text


def test_a_zero_that_is_not_kept_is_a_failure_even_within_tolerance(render, passing):
    first = passing.verdicts[0]
    assert first.evidence
    broken = tuple(replace(m, zero="zero-broken") if m.quantity == "d x" else m for m in first.evidence.measurements)
    wrong = replace(first, outcome=Outcome.FAILED, evidence=replace(first.evidence, measurements=broken))
    text = render("terminal", replace(passing, verdicts=(wrong, *passing.verdicts[1:]), exit_code=ExitCode.WRONG))
    assert "mlx is wrong in d x" in text
    assert "exactly zero" in text


def test_nothing_checked_is_the_headline(render, passing):
    empty = replace(passing, verdicts=(), kills=(), bands=(), done=0, planned=0, exit_code=ExitCode.NOTHING)
    assert render("terminal", empty).startswith("NOTHING CHECKED  ssm_scan: no kernel was compared with the truth")


def test_a_tolerance_of_zero_fails_whatever_is_not_zero(render, passing):
    exact = tuple(replace(b, noise=0.0, tolerance=0.0) if b.quantity == "y" else b for b in passing.bands)
    wrong = replace(passing.verdicts[0], outcome=Outcome.FAILED)
    text = render("terminal", replace(passing, bands=exact, verdicts=(wrong, *passing.verdicts[1:]), exit_code=ExitCode.WRONG))
    assert row(text, "y").startswith("✗")


def test_a_kernel_without_bands_still_has_its_worst_places(render, passing):
    bands: tuple[Band, ...] = ()
    assert "[1, 40, 2, 3]" in row(render("terminal", replace(passing, bands=bands)), "d x")


def checked(run, kernel, **outcomes):
    """Verdicts of checks: by name, one letter per case."""
    letters = {"p": Outcome.PASSED, "f": Outcome.FAILED, "u": Outcome.UNINFORMATIVE}
    made = []
    for check, text in outcomes.items():
        for seed, letter in enumerate(text):
            item = WorkItem(run.op, kernel, f"ssm_scan/B2,T65,H4,P8,N16,G2,mamba2/f32/typical/{seed}", check=check)
            notes = ("y does not depend on x at t=9, and yet it \x1b[31mchanges",) if letter == "f" else ()
            status = "idle" if letter == "u" else "measured"
            made.append(Verdict(item, letters[letter], "; ".join(notes), Evidence(item, status, notes=notes)))
    return replace(run, checks=tuple(made))


def test_checks_that_hold_are_counted_on_one_line(passing, render):
    text = render("terminal", checked(passing, "mlx", taint="pppp", split="ppu", scaling="uu"), width=110)
    assert "checks   mlx: taint 4/4 · split 2/2 · scaling nothing to compare" in text
    assert "FAILED" not in text
    assert "agrees with the truth" in text.splitlines()[0]


def test_a_check_that_fails_is_named_with_its_case_its_sentence_and_the_line_that_makes_it_again(passing, render):
    run = replace(checked(passing, "mlx", taint="pfpf", split="p"), exit_code=ExitCode.WRONG)
    text = render("terminal", run, width=150)
    assert text.splitlines()[0] == "FAIL  ssm_scan: mlx fails the check taint; " + text.splitlines()[0].rpartition("; ")[2]
    assert "taint 2/4 · split 1/1" in text
    assert "FAILED check taint of mlx in 2 of 4 cases; the first:" in text
    assert "y does not depend on x at t=9, and yet it changes" in text
    assert "--checks taint --cases ssm_scan/B2,T65,H4,P8,N16,G2,mamba2/f32/typical/1" in " ".join(text.replace("\\\n", " ").split())


def test_a_run_without_checks_has_no_line_about_them(passing, render):
    assert "checks" not in render("terminal", passing, width=110)


def test_what_says_nothing_of_one_gradient_is_not_said_to_agree_without_a_but(render, passing):
    def mute(verdict):
        found = tuple(replace(m, zero="zero-kept", ratios={}) if m.quantity == "d A" else m for m in verdict.evidence.measurements)
        return replace(verdict, evidence=replace(verdict.evidence, measurements=found))

    run = replace(passing, verdicts=tuple(map(mute, passing.verdicts)), exit_code=ExitCode.NOTHING)
    text = render("terminal", run)
    assert text.startswith("NOT ALL CHECKED  ssm_scan: mlx agrees with the truth, but no case says anything of d A; 5 of 5 mutants killed")
    assert "5 gradients checked (s x dt B C)" in text
    assert "nothing was checked" not in text
    assert re.match(r"\? d A +l2 +\S+ +– ", row(text, "d A")), "zeros where the truth is zero are no pass"


def test_the_most_telling_case_is_not_one_of_a_single_step_or_of_a_truth_of_zero(render, stranger):
    """Both would be further off than the others."""
    wrong = stranger.verdicts[40].evidence.measurements[4]
    assert wrong.quantity == "d dt"

    def also(steps: int, seed: int, **changes) -> Verdict:
        item = replace(stranger.verdicts[40].item, case=f"ssm_scan/B2,T{steps},H4,P8,N16,G2,mamba2/f32/long-memory/{seed}")
        return Verdict(item, Outcome.FAILED, "", Evidence(item, "measured", (replace(wrong, **changes),)))

    single = also(1, 90, profile=(9e9,), worst=(0, 0, 3), worst_step=0)
    zero = also(65, 91, zero="zero-broken", want=0.0, ratios={})
    text = render("terminal", replace(stranger, verdicts=(*stranger.verdicts, single, zero)))
    told = text[text.index("FAILED d dt") :]
    assert "in 9 of 50 cases" in told
    assert "element  d dt[b=0, t=64, h=3]  got 1.5  want -2.5" in told
    alone = render("terminal", replace(stranger, verdicts=(single, zero)))  # where there is no other, one of them is told
    assert "FAILED d dt" in alone


@pytest.mark.parametrize(
    "into, said",
    [
        (set(), None),
        ({"d x"}, " · defects of d x spliced into its gradients"),
        ({"d s", "d x", "d dt", "d A", "d B", "d C"}, " · defects spliced into its gradients"),
    ],
)
def test_a_table_says_which_of_its_defects_are_no_mutants(render, passing, into, said):
    bands = tuple(
        replace(band, weakest="scale (spliced in)" if band.quantity in into else "m" if band.quantity.startswith("d ") else "")
        for band in passing.bands
    )
    (heading,) = (
        line for line in render("terminal", replace(passing, bands=bands), width=120).splitlines() if line.startswith("mlx · f32")
    )
    assert heading == "mlx · f32" + (said or "")
