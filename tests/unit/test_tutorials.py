"""The tutorials, followed literally in an empty folder, do what they say; the figures of the explanations are printed by the code beside them."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import gradcheck
from gradcheck.cli import main

pytestmark = pytest.mark.checkout

DOCS = Path(gradcheck.__file__).parents[1] / "docs"
TUTORIALS = ["your-first-op", "a-wrong-gradient", "your-first-survivor"]  # each goes on in the folder of the one before
MEASURED = ["maa-alone", "ones-are-blind"]

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of each fenced block, in order."""
    return _FENCE.findall(page.read_text(encoding="utf-8"))


def plain(text: str) -> str:
    """One line as it is compared: blanks are alike, and so are numbers with a fraction, which may differ in their last digit elsewhere."""
    return re.sub(r"\d+\.\d+(e[+-]?\d+)?|\d+e[+-]?\d+", "#", " ".join(text.split()))


def unsaid(promised: str, output: str) -> list[str]:
    """Lines of a page that the output has nowhere; a line of the output may go on."""
    said = [plain(line) for line in output.splitlines()]
    return [line for line in promised.splitlines() if not any(out.startswith(plain(line)) for out in said)]


def promised_exit(code: list[tuple[str, str]]) -> int | None:
    """The exit code that the first of these blocks shows, if it is an output that shows one."""
    shown = re.search(r"^exit (\d+):", code[0][1], re.MULTILINE) if code and code[0][0] == "text" else None
    return int(shown[1]) if shown else None


def forget_suite() -> None:
    """The pages edit files that an earlier command loaded, and a new command starts without them."""
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "/").is_relative_to(Path.cwd()):
            del sys.modules[name]


def follow(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Do what a page says, in the working directory."""
    code, output = blocks(page), ""
    for number, (language, text) in enumerate(code):
        if language == "python":
            file = Path(text.partition("\n")[0].removeprefix("# "))
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        elif language == "sh":
            output, promised = "", promised_exit(code[number + 1 :])
            for line in text.splitlines():
                words = shlex.split(line)
                if words[0] == "gradcheck":
                    forget_suite()
                    ended, printed = main(words[1:]), capsys.readouterr()
                    assert promised in (None, ended), printed.out + printed.err
                    output += printed.out
                else:
                    subprocess.run(["sh", "-ec", line], check=True)
        else:
            assert language == "text", f"{page.name}: a block of {language!r} is neither written, run nor compared"
            assert unsaid(text, output) == [], output


def test_the_tutorials_followed_literally_do_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    monkeypatch.setenv("GRADCHECK_CACHE_DIR", str(tmp_path / "truths"))
    monkeypatch.setenv("GRADCHECK_NO_PLUGINS", "1")
    monkeypatch.setenv("COLUMNS", "110")
    for name in TUTORIALS:
        follow(DOCS / f"tutorials/{name}.md", capsys)


def test_the_tutorials_are_all_followed():
    assert sorted(TUTORIALS) == sorted(page.stem for page in (DOCS / "tutorials").glob("*.md"))


def test_a_line_that_is_not_printed_is_seen():
    output = "PASS  op: 1 of 2 mutants killed\n✓ d h  l2  3.36  13.4\n"
    assert unsaid("✓ d h l2 3.37\n", output) == []
    assert unsaid("✗ d h\nPASS op: 2 of 2 mutants killed\n", output) == ["✗ d h", "PASS op: 2 of 2 mutants killed"]


def test_an_exit_code_is_read_from_the_output_that_follows():
    assert promised_exit([("text", "FAIL\nexit 3: mutants survived\n"), ("text", "exit 0: fine\n")]) == 3
    assert promised_exit([("sh", "exit 3: no\n")]) is None


@pytest.mark.parametrize("name", MEASURED)
def test_an_explanations_figures_are_what_its_code_prints(name: str, capsys: pytest.CaptureFixture[str]):
    (_, code), (_, shown) = blocks(DOCS / f"explanation/{name}.md")
    exec(code, {})
    assert capsys.readouterr().out == shown
