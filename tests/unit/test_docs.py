"""What README and docs say is so: links lead somewhere, command lines parse, examples run as pasted, lists are whole."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import click
import pytest

import gradcheck
from gradcheck import ExitCode, GradcheckError, Outcome
from gradcheck.calibrate.page import ops_table
from gradcheck.calibrate.published import Published
from gradcheck.cli import main
from gradcheck.cli._main import VERBS, verbs
from gradcheck.engine.published import parse_published
from gradcheck.suite import load

pytestmark = pytest.mark.checkout

ROOT = Path(gradcheck.__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
README, DOCS = PAGES[0], ROOT / "docs"

CHECK = "python -m venv .venv && .venv/bin/pip install -q . && .venv/bin/gradcheck run --op ssm_scan --mutants all"
TEST = "python -m venv .venv && .venv/bin/pip install -q nox && .venv/bin/nox"

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(rf"(?:^|[\s/`])(gradcheck (?:{'|'.join(VERBS)})\b[^`\n]*)", re.MULTILINE)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def links(text: str) -> Iterator[str]:
    """Targets of links outside of code."""
    prose = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", text))
    yield from re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", prose)


def leads(page: Path, link: str) -> bool:
    """Whether a link from a page leads to a file that is there and, after a `#`, to one of its headings, as a forge names them."""
    path, _, heading = link.partition("#")
    target = page.parent / path if path else page
    if not target.exists() or not heading:
        return target.exists()
    titles = re.findall(r"^#+ (.*)$", _FENCE.sub("", text_of(target)), re.MULTILINE)
    return heading in [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]


def commands(text: str) -> Iterator[str]:
    """Command lines in fenced blocks and code spans; the `Usage:` lines of a help text, and a verb alone in a span, are names."""
    fences = [code for _, code in _FENCE.findall(text)]
    spans = [code for code in re.findall(r"`([^`\n]+)`", _FENCE.sub("", text)) if len(code.split()) > 2]
    for code in (*fences, *spans):
        for line in re.sub(r"\\\n\s*", "", code).split("\n"):
            if not line.startswith("Usage:"):
                yield from (command.strip() for command in _COMMAND.findall(line))


def misparsed(command: str) -> str:
    """What the command line says against this command, or nothing."""
    _, verb, *rest = shlex.split(command, comments=True)
    try:
        with verbs.make_context("gradcheck", [verb, *rest]) as parent:
            found = verbs.get_command(parent, verb)
            assert found is not None
            found.make_context(verb, rest, parent=parent)
    except (click.UsageError, GradcheckError) as error:
        return str(error)
    return ""


def block(page: Path, first_line: str) -> str:
    """The fenced block that begins with this line."""
    (found,) = [code for _, code in _FENCE.findall(text_of(page)) if code.startswith(f"{first_line}\n")]
    return found


def named(page: Path) -> list[str]:
    """First cells of the table rows, without backticks."""
    return [cell.strip("` ") for cell in re.findall(r"^\| *([^|]+?) *\|", text_of(page), re.MULTILINE)]


@pytest.fixture
def at_home(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of its own: nothing is found there that the test did not write."""
    monkeypatch.chdir(tmp_path)
    session = tmp_path_factory.getbasetemp()  # truths are shared with the tests of tests/quality, in all their processes
    monkeypatch.setenv("GRADCHECK_CACHE_DIR", str((session.parent if "PYTEST_XDIST_WORKER" in os.environ else session) / "truths"))
    monkeypatch.setenv("GRADCHECK_NO_PLUGINS", "1")
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_to_a_file_and_to_a_heading_in_it(page: Path):
    assert [link for link in links(text_of(page)) if "://" not in link and not leads(page, link)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_line_parses(page: Path):
    assert {command: why for command in commands(text_of(page)) if (why := misparsed(command))} == {}


def test_command_lines_are_found_and_a_wrong_one_is_seen():
    text = "Say `gradcheck run`, `gradcheck lint --fast` or\n```sh\n.venv/bin/gradcheck run --op x --case 3\n  gradcheck list \\\n    ops\n```\n"
    found = list(commands(text))
    assert found == ["gradcheck run --op x --case 3", "gradcheck list ops", "gradcheck lint --fast"]
    assert [bool(misparsed(command)) for command in found] == [True, False, True]


def test_a_link_to_nothing_is_seen(tmp_path: Path):
    assert list(links("[a](b.md) and `[c](d.md)`\n```\n[e](f.md)\n```\n")) == ["b.md"]
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n## `x`: what it is, and isn't\n\n```sh\n# no heading\n```\n", encoding="utf-8")
    good = ["page.md", "#a-page", "page.md#x-what-it-is-and-isnt"]
    assert [link for link in (*good, "other.md", "page.md#no-heading", "#b") if leads(page, link)] == good


def test_every_page_of_the_docs_can_be_reached():
    reached = {README.resolve()}
    new = {README.resolve()}
    while new:
        new = {(page.parent / link.partition("#")[0]).resolve() for page in new for link in links(text_of(page)) if ".md" in link} - reached
        reached |= new
    assert {page.resolve() for page in PAGES} <= reached


def test_the_first_page_of_the_docs_lists_every_other():
    listed = {(DOCS / link.partition("#")[0]).resolve() for link in links(text_of(DOCS / "README.md"))}
    assert {page.resolve() for page in DOCS.rglob("*.md")} - listed - {(DOCS / "README.md").resolve()} == set()


@pytest.mark.parametrize("command", [CHECK, TEST])
def test_the_readme_has_the_command_on_a_line_of_its_own(command: str):
    assert command in text_of(README).split("\n")


def test_ci_runs_the_readmes_test_command_last():
    assert text_of(ROOT / ".ci/run").rstrip().split("\n")[-1] == TEST


OPS_BEGIN, OPS_END = "<!-- ops: begin -->\n", "<!-- ops: end -->\n"


def table_in(text: str) -> str:
    """The README's table of ops."""
    return text.partition(OPS_BEGIN)[2].partition(OPS_END)[0]


def published() -> list[Published]:
    files = [path for path in sorted((ROOT / "reports/published").glob("*.json")) if "." not in path.stem]
    return [parse_published(path.read_bytes(), path) for path in files]


def test_the_readmes_table_of_ops_is_that_of_the_suite_and_of_the_published_bands():
    suite, text = load([ROOT]), text_of(README)
    made = ops_table(list(suite.ops.values()), list(suite.mutants.values()), published())
    if os.environ.get("GRADCHECK_REWRITE"):
        README.write_text(text.replace(OPS_BEGIN + table_in(text), OPS_BEGIN + made), encoding="utf-8")
    assert table_in(text_of(README)) == made, "README.md is old: run this test with GRADCHECK_REWRITE=1, and read the diff"


def test_the_table_of_ops_moves_with_mutants_and_with_bands():
    suite, bands = load([ROOT]), published()
    ops, mutants = list(suite.ops.values()), list(suite.mutants.values())
    made = ops_table(ops, mutants, bands)
    assert ops_table(ops, mutants[1:], bands) != made
    assert ops_table(ops, mutants, bands[1:]).count("not published") == made.count("not published") + 1
    weaker = [replace(band, defect=band.defect and band.defect / 10) for band in bands[0].bands]
    assert ops_table(ops, mutants, [replace(bands[0], bands=tuple(weaker)), *bands[1:]]) != made


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_the_reference_has_the_help_as_it_is_printed(verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*([verb] if verb else []), "--help"]) == 0
    help_text = capsys.readouterr().out.rstrip()
    assert f"```\n{help_text}\n```\n" in text_of(DOCS / "reference/cli.md"), "copy the new help into docs/reference/cli.md"


def test_the_reference_lists_exactly_the_public_names():
    assert sorted(set(named(DOCS / "reference/python-api.md")) - {"name", "---"}) == gradcheck.__all__


def test_the_reference_lists_exactly_the_functions_of_references():
    last = text_of(DOCS / "reference/python-api.md").rpartition("## `gradcheck.math`")[2]
    listed = set(re.findall(r"`(\w+)`", last.partition(":")[0]))
    from gradcheck import math

    assert listed == {
        name for name, value in vars(math).items() if not name.startswith("_") and getattr(value, "__module__", "") == math.__name__
    }


def test_the_reference_has_every_outcome_with_its_sentence():
    rows = dict(re.findall(r"^\| ([A-Z_]+) \| ([^|]+?) \|", text_of(DOCS / "reference/outcomes.md"), re.MULTILINE))
    assert rows == {outcome.name: outcome.value for outcome in Outcome}


def test_the_reference_has_every_exit_code_and_their_precedence():
    text = text_of(DOCS / "reference/exit-codes.md")
    assert {int(code): name for code, name in re.findall(r"^\| (\d+) \| ([A-Z]+) \|", text, re.MULTILINE)} == {
        int(c): c.name for c in ExitCode
    }
    (order,) = re.findall(r"\*\*([\d >]+)\*\*", text)
    codes = [ExitCode(int(code)) for code in order.split(" > ")]
    assert set(codes) == set(ExitCode)
    assert all(ExitCode.worst(lesser, greater) is greater for greater, lesser in pairwise(codes))


def test_the_readmes_kernel_passes_as_pasted_and_fails_as_the_readme_says(at_home: Path, capsys: pytest.CaptureFixture[str]):
    code = block(README, "# my_scan.py")
    assert "mx.stop_gradient(decay[:, t])" in text_of(README)
    (at_home / "my_scan.py").write_text(code)
    (at_home / "wrong.py").write_text(code.replace("decay[:, t] * s", "mx.stop_gradient(decay[:, t]) * s"))
    run = ["run", "--op", "ssm_scan", "--cases", "2", "--checks"]
    checks = "taint,scaling,split"  # without `production`, whose truth takes long
    assert main([*run, checks, "--kernel", "my_scan.py:scan"]) == ExitCode.OK, capsys.readouterr().out
    assert main([*run, "none", "--kernel", "wrong.py:scan"]) == ExitCode.WRONG
    assert "is wrong in d dt and d A" in capsys.readouterr().out


@pytest.mark.parametrize("page", [README, DOCS / "how-to/add-a-mutant.md"], ids=lambda page: page.name)
def test_each_mutant_that_is_shown_fits_the_kernel(page: Path):
    kernel = text_of(ROOT / "gradcheck/kernels/ssm_scan/mlx.py")
    shown = [code for language, code in _FENCE.findall(text_of(page)) if language == "python" and "Mutant(" in code]
    assert shown
    for code in shown:
        scope: dict[str, object] = {}
        exec("from gradcheck import Edit, Mutant\n" + code, scope)
        (mutant,) = [value for value in scope.values() if isinstance(value, gradcheck.Mutant)]
        assert mutant.edits["mlx"].apply(kernel, mutant.id) != kernel


def test_the_how_to_makes_an_op_that_lints_and_runs_as_pasted(at_home: Path, capsys: pytest.CaptureFixture[str]):
    page = DOCS / "how-to/add-an-op.md"
    for name in ("oracles/linear_scan.py", "kernels/linear_scan.py", "mutants/linear_scan.py"):
        (at_home / name).parent.mkdir()
        (at_home / name).write_text(block(page, f"# {name}"))
    main(["lint"])
    assert "linear_scan" not in capsys.readouterr().out  # it tells of every suite; what is rotten in ours is for other tests
    assert main(["run", "--op", "linear_scan", "--mutants", "all", "--cases", "4"]) == ExitCode.OK, capsys.readouterr().out
    assert "1 of 1 mutant killed" in capsys.readouterr().out


def test_the_how_to_draws_a_case(at_home: Path, capsys: pytest.CaptureFixture[str]):
    (code,) = [code for language, code in _FENCE.findall(text_of(DOCS / "how-to/check-a-kernel.md")) if language == "python"]
    exec(code, {})
    assert "'x': (3, 65, 6, 1)" in capsys.readouterr().out


TRAINING, GGML = DOCS / "how-to/train-a-gated-delta-layer.md", DOCS / "how-to/compare-with-ggml.md"


def test_the_wrapper_of_the_how_to_takes_every_branch_and_what_it_wraps_does_not(at_home: Path, capsys: pytest.CaptureFixture[str]):
    (at_home / "my_kernels.py").write_text(block(TRAINING, "# my_kernels.py"))
    sizes = "B1,T5,Hk1,Hv2,Dk5,Dv3"
    run = ["run", "--op", "gated_delta_update", "--regime", "typical", "--cases", "2", "--checks", "none", "--dims"]
    assert main([*run, sizes, "--kernel", "my_kernels.py:update"]) == ExitCode.OK, capsys.readouterr().out
    told = " ".join(capsys.readouterr().out.split())
    branches = load([ROOT]).ops["gated_delta_update"].variants
    assert f"12 cases ({', '.join(f'2 {branch}' for branch in branches)})" in told
    assert set(branches) <= set(named(TRAINING))
    assert main([*run, f"{sizes},neg-eigval", "--kernel", "my_kernels.py:mine"]) == ExitCode.WRONG
    assert "it raised TypeError" in capsys.readouterr().out


@pytest.mark.parametrize("channels", [1, 5])
def test_the_how_to_calls_ggmls_rule_with_arrays_of_ggmls_shapes(channels: int):
    import mlx.core as mx

    B, T, Hk, Hv, D = 2, 3, 1, 2, 5
    shapes = {
        "q": (B, T, Hk, D),
        "k": (B, T, Hk, D),
        "v": (B, T, Hv, D),
        "g": (B, T, Hv, channels),
        "beta": (B, T, Hv, 1),
        "state": (B, Hv, D, D),
    }
    scope = {name: mx.zeros(shape) for name, shape in shapes.items()}
    exec(block(GGML, "from gradcheck.kernels.gated_delta.tiled import gated_delta_ggml"), scope)
    assert scope["y"].shape == (B, T, Hv, D)


@pytest.mark.parametrize(
    "page, said",
    [
        (DOCS / "explanation/checks.md", r"in float32 1 - sigmoid\(g\) is exactly 0 from g = (\d+) on"),
        (TRAINING, r"In float32 1 - beta is 0 from b = (\d+) on"),
    ],
    ids=["checks", "training"],
)
def test_one_minus_a_sigmoid_is_lost_from_where_the_page_says(page: Path, said: str):
    import mlx.core as mx

    (place,) = map(float, re.findall(said, text_of(page)))
    left = 1 - mx.sigmoid(mx.array([place - 1, place]))
    assert [bool(rest) for rest in left.tolist()] == [True, False]
