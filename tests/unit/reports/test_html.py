from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

from gradcheck import Outcome

VOID = {"meta"}


class Page(HTMLParser):
    """What a browser would see: tags with attributes, text, and whether every tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_every_tag_is_closed_in_order(render, every_run):
    assert Page(render("html", every_run)).open == []


def test_it_has_no_script_and_needs_no_network(render, every_run):
    text = render("html", every_run)
    page = Page(text)
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    for _, attributes in page.tags:
        assert not {key for key in attributes if key.startswith("on") or key in {"src", "href", "srcset", "xlink:href"}}
    assert "url(" not in text
    assert "@import" not in text
    (policy,) = [a["content"] for tag, a in page.tags if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")


def test_a_hostile_name_is_text(render, hostile):
    text = render("html", hostile)
    assert "<script" not in text.lower()
    assert "<script>alert(1)</script>" in Page(text).text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_a_defect_is_a_point_at_every_gradient_that_shows_it_and_at_no_other(render, passing):
    margins = {"d dt": 612.0, "d A": 31.0, "d x": None, "d B": 0.9, "d C": 1.0}
    rows = tuple(
        replace(row, margins=margins) if (row.mutant, row.variant, row.form) == ("drop_dA_path", "mamba1", "last step") else row
        for row in passing.kills
    )
    text = render("html", replace(passing, kills=rows))
    strips = dict(re.findall(r'aria-label="(d \w+|\w+): noise.*?>(.*?)</svg>\n</div>', text, re.DOTALL))
    shown = {name: re.findall(r"drop_dA_path \(mamba1, last step\): ([^<]*), KILLED", body) for name, body in strips.items()}
    want = {"d dt": ["×612 by l2"], "d A": ["×31"], "d x": ["not finite or not comparable"]}
    assert shown == {**{name: [] for name in ("d s", "d B", "d C", "y", "s_T")}, **want}
    labels = re.findall(r'<div class="label">\n.*?<code>(.*?)</code>(.*?)</div>', text, re.DOTALL)
    said = {name: found[0] for name, label in labels if (found := re.findall(r">shows (\d of \d)<", label))}
    assert (said["d dt"], said["d A"], said["d B"]) == ("1 of 5", "1 of 5", "0 of 5")  # the other rows of these runs have no margins


def test_a_defect_that_nothing_shows_stands_at_the_gradient_nearest_to_showing_it(render, survivor):
    rows = tuple(replace(row, margins={"d dt": 0.4, "d A": 0.1}) if row.margin == 0.4 else row for row in survivor.kills)
    text = render("html", replace(survivor, kills=rows))
    assert text.count("drop_dA_path (mamba1, full): ×0.4 by l2, SURVIVED") == 1


def test_the_numbers_have_the_worst_element_and_step(render, stranger):
    text = render("html", stranger)
    assert "<td>b=0, t=64, h=3</td><td>64</td>" in text


def test_each_defect_is_a_point_with_its_name(render, passing):
    page = Page(render("html", passing))
    points = [attributes for tag, attributes in page.tags if tag == "circle"]
    assert len(points) == 30
    assert "drop_dA_path (mamba1, last step): ×612 by l2, KILLED" in page.text


def test_the_picture_comes_first_with_one_tolerance_for_all_strips(render, passing):
    text = render("html", passing)
    assert re.findall(r'<section id="(\w+)"', text)[0] == "picture"
    places = set(re.findall(r'<line class="tolerance" x1="([\d.]+)%"', text))
    assert len(places) == 1
    tolerance = float(places.pop())
    killed = [float(x) for x in re.findall(r'<circle class="killed(?: diluted)?" cx="([\d.]+)%"', text)]
    assert min(killed) > tolerance
    clean = [float(x) / 10 for path in re.findall(r'class="ticks" d="([^"]*)"', text) for x in re.findall(r"M(\d+) ", path)]
    assert clean
    assert max(clean) < tolerance


def test_a_survivor_stands_left_of_the_tolerance_and_its_diff_is_open(render, survivor):
    text = render("html", survivor)
    tolerance = float(re.findall(r'<line class="tolerance" x1="([\d.]+)%"', text)[0])
    (x,) = re.findall(r'<circle class="survived" cx="([\d.]+)%"', text)
    assert float(x) < tolerance
    opened = re.findall(r'<details class="mutant" open>\n<summary><code>(\w+)</code> <span class="bad">(\w+)', text)
    assert opened == [("drop_dA_path", "SURVIVED")]
    assert '<span class="removed">-    ddt = du_x + dA_path</span>' in text


def test_a_failing_case_is_a_cross_right_of_the_tolerance_and_a_red_curve(render, stranger):
    text = render("html", stranger)
    tolerance = float(re.findall(r'<line class="tolerance" x1="([\d.]+)%"', text)[0])
    crosses = re.findall(r'<svg class="mark" x="([\d.]+)%" y="32"><path class="cross"', text)
    assert len(crosses) == 2
    assert all(float(x) > tolerance for x in crosses)
    assert "98.5" in crosses  # what is not finite stands at the edge
    assert "wrong in 7 of 48 cases" in text
    assert "leaves the noise at t = 60, 5 of 65 steps" in text
    assert text.count('class="failing"') == 1


def test_the_matrix_has_a_row_for_each_mutant_and_says_what_a_glyph_stands_for(render, survivor):
    text = render("html", survivor)
    matrix = text[text.index('<table class="matrix">') :]
    rows = dict(re.findall(r'<tr[^>]*><th scope="row"><code>(\w+)</code></th>(.*?)</tr>', matrix))
    assert len(rows) == 7
    assert 'title="full: SURVIVED 0/48, d dt ×0.4">✗' in rows["drop_dA_path"]
    assert rows["drop_dA_path"].count("✗") == 2
    assert 'class="lost" title="full: SURVIVED 0/48' in rows["canary"]  # a canary that lives


def test_a_declared_survivor_is_neither_green_nor_red(render, passing):
    rows = tuple(
        replace(row, outcome=Outcome.EQUIVALENT, kills=0, margin=0.2, why="adds zero") if row.mutant == "drop_dA_path" else row
        for row in passing.kills
    )
    text = render("html", replace(passing, kills=rows))
    assert text.count('<i class="accepted') == 6
    assert "EQUIVALENT on mlx" in text
    assert "adds zero" in text


def test_a_large_run_stays_under_two_megabytes(render, passing):
    """Three kernels, three dtypes and 70 mutants of three forms in two branches, as the main job has."""
    verdicts = tuple(
        replace(v, item=replace(v.item, kernel=f"k{k}", case=v.item.case.replace("f32", dtype)))
        for k in range(3)
        for dtype in ("f32", "f16", "bf16")
        for v in passing.verdicts
    )
    kills = tuple(
        replace(row, kernel=f"k{k}", mutant=f"{row.mutant}_{n}")
        for k in range(3)
        for n in range(14)
        for row in passing.kills
        if row.cases and row.diff
    )
    bands = tuple(replace(b, kernel=f"k{k}", dtype=dtype) for k in range(3) for dtype in ("f32", "f16", "bf16") for b in passing.bands)
    text = render("html", replace(passing, verdicts=verdicts, kills=kills, bands=bands))
    assert text.count("<circle") == 3 * 14 * 30
    assert len(text.encode()) < 2_000_000


def test_a_null_mutant_that_does_not_run_is_no_control_that_holds(render, passing):
    def null(run) -> str:
        return re.findall(r"<code>null</code></th>(.*?)</tr>", render("html", run))[0]

    assert "k3" in null(passing)
    rows = tuple(replace(row, outcome=Outcome.UNVIABLE) if row.mutant == "null" else row for row in passing.kills)
    assert "k3" not in null(replace(passing, kills=rows))
    assert "lost" in null(replace(passing, kills=rows))
