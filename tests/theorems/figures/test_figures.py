"""The figures: their numbers show what the paper's figures show, a wrong gradient is noticed, files are
reproducible.
"""

from __future__ import annotations

import json
import math
import re
import signal
import sys
import xml.etree.ElementTree
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from reference_attention.files import from_json, to_json
from reference_attention.risk import scaled_gradient
from tests.theorems.figures.drawings import EXPLAINED, apart, comparison, explanation, figure, keep, kept
from tests.theorems.figures.wrong_gradients import (
    in_single_precision,
    of_stretched_keys,
    turned,
    without_the_second_input,
)
from theorems.command.app import main
from theorems.core.implementation import REFERENCE
from theorems.faults import fault_named
from theorems.figures import directions, figure_files
from theorems.figures.figure import Numbers, Settings
from theorems.figures.figure_units import Computed, sheets
from theorems.figures.registry import FIGURES
from theorems.run.events import ignore
from theorems.run.schedule import run
from theorems.token_selection.figures import figure_3, figure_9, random_trials

TRIALS = 12
NEAR = (0.5 / 80) ** 2 / 2
"""1 − cos of a prompt half a unit beside its limiting ray, at norm 80, where 800 steps of length 0.1 end."""


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    shortened(monkeypatch.setattr)


def shortened(put: Callable[[ModuleType, str, object], None]) -> None:
    """Replace the settings of figures by ones with fewer scores and dimensions, to save time."""
    for module in (figure_9, random_trials):
        put(module, "DIMENSIONS", (2, 10, 60))
    put(random_trials, "ITERATIONS", 300)
    put(figure_3, "STEPS", 800)
    put(directions, "STEPS", 600)


def test_random_trials_computed_in_parts_equal_those_computed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_9, "DIMENSIONS", (2, 10))
    monkeypatch.setattr(random_trials, "DIMENSIONS", (2, 10))
    settings = Settings(5, 3)
    whole = figure_9.numbers(settings)
    monkeypatch.setattr(random_trials, "BLOCK", 2)
    [unit] = sheets([FIGURES["9a"], FIGURES["9b"]], settings)
    assert [item.piece for item in unit.parts()] == [(d, k, min(k + 2, 5)) for d in (2, 10) for k in (0, 2, 4)]
    [results] = run([unit], 1, ignore)
    assert results.numbers == whole
    assert unit.total == 6
    # A missing part is reported.
    part = unit.parts()[0]
    lost = unit.conclude(unit.join(part.run(lambda done: None), part.unfinished_result("it died")))
    assert (lost.numbers, lost.failed) == ({}, "it died")


WRONG = dict.fromkeys(FIGURES, REFERENCE.replace("turned", {scaled_gradient: turned}))
WRONG |= {"1c": REFERENCE.replace("stretched", {scaled_gradient: of_stretched_keys})}
WRONG |= dict.fromkeys(("3a", "3b"), REFERENCE.replace("short", {scaled_gradient: without_the_second_input}))
WRONG |= dict.fromkeys(("4a", "4b"), REFERENCE.replace("single", {scaled_gradient: in_single_precision}))
WRONG |= {"3c": fault_named("temperature").implementation}
"""A fault per figure that its numbers must show."""


@cache
def computed(name: str, wrong: bool = False) -> Numbers:
    """Return the numbers of a figure as they are read from its JSON file."""
    under_test = WRONG[name] if wrong else REFERENCE
    return from_json(to_json(FIGURES[name].numbers(Settings(TRIALS, 0, under_test))))


def ends(numbers: Numbers, optima: list[str], endings: list[int]) -> bool:
    """Return whether optima are of the given kinds, and path k ends within three units of the ray of ``endings[k]``."""
    results = [item["kind"] for item in numbers["optima"]] == optima
    paths = zip(numbers["paths"], endings, strict=True)
    return results and all(
        path["ends_at"] == k and path["one_minus_cosine"] < (3 / path["norm"]) ** 2 / 2 and path["norm"] > 50
        for path, k in paths
    )


def shows_1a(numbers: Numbers) -> bool:
    """Return whether all paths end at GMM, the (globally) max-margin direction of the optimal token."""
    return ends(numbers, ["GMM"], [0] * 6)


def shows_1b(numbers: Numbers) -> bool:
    """Return whether paths from (0, 1), …, (0, −0.5) end at GMM, and those from (0, −1) and (0, −1.5) at LMM, a locally
    max-margin direction.
    """
    return ends(numbers, ["GMM", "LMM"], [0, 0, 0, 0, 1, 1])


def shows_1c(numbers: Numbers) -> bool:
    """Return whether all paths end at GMM."""
    return ends(numbers, ["GMM"], [0] * 8)


def shows_2(numbers: Numbers) -> bool:
    """Return whether flows from starts in the cone of Theorem 3, with 1 − cos ≤ μ/4, stay in 1 − cos ≤ μ and end at the
    axis.
    """
    start_cone = [1 - np.dot(item["start"], numbers["direction"]) / numbers["radius"] for item in numbers["paths"]]
    return all(apart <= numbers["start_mu"] for apart in start_cone) and all(
        item["stop"] == "norm reached"
        and item["largest_one_minus_cosine"] <= numbers["mu"]
        # The flow of Theorem 3 keeps a bounded distance from the axis, here below R·sin of the angle of the starts'
        # cone.
        and item["one_minus_cosine"] < 2 * numbers["start_mu"] * (numbers["radius"] / item["norm"]) ** 2
        for item in numbers["paths"]
    )


def shows_3a(numbers: Numbers) -> bool:
    """Return whether the head v goes to v_mm and p to p_mm, which equals p_relax on these data."""
    apart = numbers["one_minus_cosine"]
    same = numbers["directions"]["p_mm"] == numbers["directions"]["p_relax"]
    return all(numbers["supports"]) and same and apart["v_mm"] < NEAR and apart["p_mm"] < NEAR


def shows_3b(numbers: Numbers) -> bool:
    """Return whether the head v goes to v_mm, and p to p_relax rather than p_mm."""
    apart = numbers["one_minus_cosine"]
    away = 1 - np.dot(numbers["directions"]["p_mm"], numbers["directions"]["p_relax"])
    right = numbers["supports"] == [True, True, False] and apart["v_mm"] < NEAR and apart["p_relax"] < NEAR
    return right and away > 0.01 and math.isclose(apart["p_mm"], away, rel_tol=0.05)


def shows_3c(numbers: Numbers) -> bool:
    """Return whether the softmax weight of optimal tokens and the logistic probability of labels tend to 1, the latter
    earlier, while the former decreases at first.
    """
    softmax, logistic = np.array(numbers["softmax"]), np.array(numbers["logistic"])
    dips = softmax[:15].min() < softmax[0] - 0.01
    # At p(0) = (0, −1) the logits of the optimal tokens are −1, 1 and −1, those of the other tokens 0.
    begins = (2 / (1 + math.e) + 1 / (1 + 1 / math.e)) / 3
    return (
        bool(dips and (logistic > softmax).all() and min(softmax[-1], logistic[-1]) > 0.999)
        and abs(softmax[0] - begins) < 1e-12
    )


def shows_4(numbers: Numbers) -> bool:
    """Return whether normalized GD reaches softmax weight 0.99 first, and from step 500 to 1000 its norm grows by 50,
    that of GD by less than ‖p_mm‖ log 2.

    The norm of GD grows like ‖p_mm‖ log t in the limit, and more slowly until its direction has turned.
    """
    softmax, norm = numbers["softmax"], numbers["norm"]
    first = {key: next((t for t, s in enumerate(values) if s > 0.99), 10**6) for key, values in softmax.items()}
    grown = {key: values[1000] - values[500] for key, values in norm.items()}
    limit = 0.891661 * math.log(2)
    growth = limit / 2 < grown["gd"] < limit and abs(grown["normalized"] / 50 - 1) < 0.01
    return first["normalized"] * 4 < first["gd"] < 1000 and growth


def shows_8(numbers: Numbers) -> bool:
    """Return whether the path from one start ends at GMM, and that from the other at LMM."""
    return ends(numbers, ["GMM", "LMM"], [0, 1])


def shows_9(numbers: Numbers) -> bool:
    """Return whether attention saturates seldom at small d and mostly at GMM at large d, saturated trials have
    converged, and score gaps are positive.
    """
    small, middle, large = (item["fractions"] for item in numbers["dimensions"])
    sums = all(abs(sum(item["fractions"].values()) - 1) < 1e-9 for item in numbers["dimensions"])
    order = small["not saturated"] > 0.3 > middle["not saturated"] and large["GMM"] > middle["GMM"] > small["GMM"]
    near = all(item["median_one_minus_cosine"] < 1e-3 for item in numbers["dimensions"][1:])
    positive = all(gap > 0 for item in numbers["dimensions"][1:] for gap in item["score_gaps"])
    return sums and order and near and positive and numbers["trials"] == TRIALS


CHECKS: dict[str, Callable[[Numbers], bool]] = {
    "1a": shows_1a,
    "1b": shows_1b,
    "1c": shows_1c,
    "2": shows_2,
    "3a": shows_3a,
    "3b": shows_3b,
    "3c": shows_3c,
    "4a": shows_4,
    "4b": shows_4,
    "8": shows_8,
    "9a": shows_9,
    "9b": shows_9,
}


def test_every_figure_is_checked() -> None:
    assert [*CHECKS] == [*FIGURES]


DISTINCT = [name for name in CHECKS if name not in ("4b", "9b")]
"""Figures whose numbers differ from those of all other figures."""


@pytest.mark.parametrize("name", DISTINCT)
def test_the_numbers_of_a_figure_show_its_effect(name: str) -> None:
    assert CHECKS[name](computed(name))


@pytest.mark.parametrize("name", DISTINCT)
def test_a_wrong_gradient_changes_the_figure(name: str) -> None:
    assert not CHECKS[name](computed(name, wrong=True))


@pytest.mark.parametrize("name", CHECKS)
def test_every_figure_is_drawn(name: str) -> None:
    shared = {"4b": "4a", "9b": "9a"}.get(name, name)
    image = figure_files.render_figure(FIGURES[name], computed(shared), "svg")
    xml.etree.ElementTree.fromstring(image)
    assert b"dc:date" not in image


COMPARISON = "theorems bench"
DRAWN = [*FIGURES, *EXPLAINED, COMPARISON]


def contents_of(name: str) -> list[Any]:
    """Return the summary of a figure, or of the explanation of data: numbers and drawing."""
    if name in EXPLAINED:
        return explanation(EXPLAINED[name])
    if name == COMPARISON:
        return comparison()
    return figure(name, computed.__wrapped__(name))


@pytest.mark.parametrize("name", DRAWN)
def test_drawings_agree_with_the_stored_ones(name: str) -> None:
    """After an intended change, look at the drawing, then run this file with ``--write`` to store the new summary."""
    assert apart(kept(name), json.loads(to_json(contents_of(name)))) == []


def test_the_figure_names_the_number_of_trials() -> None:
    assert f"{TRIALS} trials" in figure_9._caption(computed("9a"))


@pytest.mark.parametrize("kind", ["svg", "png", "pdf"])
def test_equal_numbers_give_equal_bytes_under_any_configuration(kind: str) -> None:
    import matplotlib

    first = figure_files.render_figure(FIGURES["8"], computed("8"), kind)
    with matplotlib.rc_context({"font.size": 20, "svg.hashsalt": None, "axes.facecolor": "red"}):
        assert figure_files.render_figure(FIGURES["8"], computed("8"), kind) == first
        assert matplotlib.rcParams["font.size"] == 20
    assert figure_files.render_figure(FIGURES["8"], {**computed("8"), "optima": []} | {"paths": []}, kind) != first


def test_the_command_writes_drawing_and_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("a/b", "c"):
        assert main(["figures", "figure-4b", "--out", folder, "--jobs", "1"]) == 0
    captured = capsys.readouterr()
    assert "figure-4b.svg, .json" in captured.out
    names = sorted(path.name for path in Path("c").iterdir())
    assert names == ["figure-4b.json", "figure-4b.svg"]
    assert all((Path("a/b") / name).read_bytes() == (Path("c") / name).read_bytes() for name in names)
    record = json.loads(Path("c/figure-4b.json").read_text(encoding="utf-8"))
    assert record["figure"] == "4b"
    assert record["norm"] == computed("4a")["norm"]
    Path("c/figure-4b.svg").write_text("")
    assert main(["figures", "4b", "--out", "c", "--jobs", "1"]) == 0  # existing files are overwritten
    assert (Path("a/b") / names[1]).read_bytes() == (Path("c") / names[1]).read_bytes()


@pytest.mark.parametrize("name", FIGURES)
def test_titles_are_typeset_in_drawings_and_plain_elsewhere(name: str) -> None:
    one = FIGURES[name]
    assert not re.search(r"[$\\{}]", one.plain_title)
    # Outside $…$, a title has no underscore, macron or norm bar, which only formulas may have.
    assert not re.search("[_\u0304\u2016]", re.sub(r"\$[^$]*\$", "", one.title))
    assert all(" " not in formula for formula in re.findall(r"\$([^$]*)\$", one.title))
    lines = figure_files.caption(one).splitlines()
    assert all(line.count("$") % 2 == 0 for line in lines)
    assert lines[0].startswith(rf"$\bf{{Figure\ {one.label}.}}$ ")


def test_titles_of_figures_in_plain_text_have_no_markup() -> None:
    assert FIGURES["3b"].plain_title.endswith("v goes to v\u0304_mm, p to p\u0304_relax instead of p\u0304_mm")
    assert FIGURES["3b"].label == "3(b)"


def test_ctrl_c_keeps_finished_figures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    # The last figure of the command is computed first.
    stopped = replace(FIGURES["3c"], numbers=lambda settings: signal.raise_signal(signal.SIGINT))
    monkeypatch.setitem(FIGURES, "3c", stopped)
    assert main(["figures", "3c", "4b", "--jobs", "1"]) == 130
    captured = capsys.readouterr()
    assert "interrupted; the files listed were written" in captured.err
    assert "figure-4b.svg" in captured.out
    assert "figure-3c.svg" not in captured.out
    assert sorted(path.name for path in Path("figures").iterdir()) == ["figure-4b.json", "figure-4b.svg"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["11"], "'11' is not one of 1a, 1b, 1c, 2, 3a"),
        (["1d"], "'1d' is not one of"),
        (["8", "--format", "gif"], "'gif' is not one of svg, png, pdf"),
        (["8", "--out", "file"], "file: is not a directory"),
        (["8", "--out", "file/below"], "file/below: cannot be made"),
        (["8", "--out", "taken"], "figure-8.svg: is a directory"),
        (["9a", "--trials", "0"], "'--trials'"),
    ],
)
def test_bad_input_is_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").write_text("")
    Path("taken/figure-8.svg").mkdir(parents=True)
    assert main(["figures", *arguments]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert len(printed.err.strip().splitlines()) == 1
    assert not printed.out


def test_without_matplotlib_one_sentence_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(figure_files, "find_spec", lambda name: None)
    assert main(["figures", "8"]) == 2
    printed = capsys.readouterr().err
    assert "matplotlib is not installed" in printed
    assert len(printed.strip().splitlines()) == 1
    assert not Path("figures").exists()


def test_blocks_of_equal_dimension_are_combined() -> None:
    """Score gaps of 0 are not counted as negative; two blocks of trials of one dimension become one."""
    kinds = dict.fromkeys(random_trials.KINDS, 0)
    first = kinds | {random_trials.KINDS[0]: 5}
    result = [
        {"d": d, "counts": first, "score_gaps": gaps, "one_minus_cosine": [1e-3]}
        for d, gaps in ((2, [-1.0, 0.0]), (10, [2.0]), (60, [3.0, 4.0]), (10, [0.5, 0.25, 0.125]))
    ]
    numbers = figure_9.combine_blocks(Settings(5, 0), result)
    assert numbers["negative_gaps"] == 0.25
    assert [(item["d"], item["score_gaps"]) for item in numbers["dimensions"]] == [
        (2, [-1.0, 0.0]),
        (10, [0.125, 0.25, 0.5, 2.0]),
        (60, [3.0, 4.0]),
    ]


def test_a_figure_with_a_failed_part_is_not_drawn() -> None:
    [unit] = sheets([FIGURES["9a"]], Settings(5, 3))
    assert unit.conclude(Computed(unit.id, failed="it died")).numbers == {}
    [plain] = sheets([FIGURES["1a"]], Settings(5, 3))
    assert plain.conclude(Computed(plain.id, {"a": 1})).numbers == {}


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    shortened(setattr)
    keep({name: contents_of(name) for name in DRAWN})
