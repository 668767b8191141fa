"""The notebooks run, are short, draw a picture, and their text agrees with the results of their code."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from contextlib import chdir
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from tests.places import ROOT
from theorems import Verdict, gradient_flow
from theorems.figures.style import SETTINGS

PATHS = {path.stem: path for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))}
MOST_LINES = 40
"""Largest number of lines of code in a notebook, not counting empty lines."""
Check = Callable[[dict[str, Any]], object]


def applicable_theorems(names: Mapping[str, Any]) -> set[str]:
    """Return the ids of the theorems that apply to the data that the notebook explains."""
    return {it.id for it in names["explanation"].statements if it.applies and it.id.startswith("theorem")}


def iterations(names: Mapping[str, Any], rule: str) -> list[int | None]:
    """Return in how many iterations a rule brings 1 − cos below each level; None for a level that is not reached."""
    [data] = names["compared"]["data"]
    return next(list(run["iterations"].values()) for run in data["rules"] if run["rule"] == rule)


def missing(names: Mapping[str, Any], theorem: str) -> list[str]:
    """Return the ids of a theorem's assumptions that do not hold on the data that the notebook explains."""
    return [assumption.id for it in names["explanation"].statements if it.id == theorem for assumption in it.missing]


def norm_and_distance(names: Mapping[str, Any], run: str) -> tuple[float, float]:
    """Return ‖p‖ and 1 − cos(p, p_mm) at the end of one of the notebook's descents."""
    made = names["runs"][run]
    return float(made.norms[-1]), float(made.one_minus_cosine(names["p_mm"])[-1])


def the_bench_agrees(names: Mapping[str, Any]) -> bool:
    """Check that the notebook's descents end with the same ‖p‖ and 1 − cos as the benchmark's runs."""
    ends = [(run["norm"], run["one_minus_cosine"]) for run in names["compared"]["data"][0]["rules"]]
    return np.allclose(ends, [norm_and_distance(names, run) for run in names["runs"]], rtol=1e-6)


def curves_nearly_agree(names: Mapping[str, Any]) -> bool:
    """Check that at equal norms of 2 or more, 1 − cos of the two descents differs by a factor of less than 1.25."""
    plain, normalized = (
        (run.norms[seen], run.one_minus_cosine(names["p_mm"])[seen])
        for run in names["runs"].values()
        for seen in [run.norms >= 1.5]
    )
    norms = np.linspace(2, plain[0][-1], 50)
    apart = [np.interp(norms, *curve) for curve in (plain, normalized)]
    return float(np.abs(np.log(apart[0] / apart[1])).max()) < np.log(1.25)


def log_growth(names: Mapping[str, Any]) -> bool:
    """Check that in the second half of gradient descent ‖p‖ grows by ‖p_mm‖ log 2, up to a quarter of this."""
    norms = names["runs"]["gradient descent"].norms
    grown = (norms[10000] - norms[5000]) / (np.linalg.norm(names["p_mm"]) * np.log(2))
    return bool(abs(grown - 1) < 0.25)


def colours(names: Mapping[str, Any]) -> list[str]:
    """Return the colours of the drawn flows that start on the notebook's circle."""
    return [line.get_color() for line in names["axes"].lines if line.get_linewidth() == 1]


def colours_say_where_flows_end(names: Mapping[str, Any]) -> bool:
    """Check that every flow, followed to ‖p‖ = 10⁴, selects the tokens that its colour stands for."""
    problem, tokens = names["data"].problem, {"tab:blue": [1, 0], "tab:red": [2, 0]}
    ends = [problem.selection_at(gradient_flow(problem, start, norm=1e4).final) for start in names["circle"]]
    return len(ends) == 24 and [end.tolist() for end in ends] == [tokens[colour] for colour in colours(names)]


def is_right_angled(names: Mapping[str, Any]) -> bool:
    """Check that two tokens of the counterexample lie at distance 1 from the optimal one, at a right angle."""
    rows = names["others"] - names["keys"][names["best"]]
    return rows.shape == (2, 2) and np.array_equal(rows @ rows.T, np.eye(2))


CONCLUSIONS: Mapping[str, Mapping[str, Check]] = MappingProxyType(
    {
        "my_data": {
            "two inputs of three tokens in the plane": lambda names: names["X"].shape == (2, 3, 2),
            "In input 0 token 1 scores highest, with 3.": lambda names: names["data"].problem.scores[0].argmax() == 1,
            "In input 1 token 0 does, with 0.5.": lambda names: names["data"].problem.scores[1].max() == 0.5,
            "In input 0 attention selects token 2, which scores 2.5": lambda names: (
                names["explanation"].selection.alpha.tolist() == [2, 0] and names["data"].problem.scores[0, 2] == 2.5
            ),
            "The optimal tokens have the margin 0.447": lambda names: (
                round(names["explanation"].optimal.svm.margin, 3) == 0.447
            ),
            "the selected tokens 1.414": lambda names: round(names["explanation"].selection.svm.margin, 3) == 1.414,
            "Both choices are locally optimal": lambda names: (
                [chosen.alpha.tolist() for chosen in names["explanation"].locally_optimal] == [[1, 0], [2, 0]]
            ),
            "It does not apply, because it assumes that the non-optimal tokens of an input have equal scores.": (
                lambda names: missing(names, "theorem-2") == ["equal-non-optimal-scores"]
            ),
            "Theorem 3 applies.": lambda names: applicable_theorems(names) == {"theorem-1", "theorem-3", "theorem-8"},
            "Theorem 3 is upheld.": lambda names: names["results"]["theorem-3"].verdict is Verdict.UPHELD,
            "Theorem 2 is *not applicable*": lambda names: (
                names["results"]["theorem-2"].verdict is Verdict.NOT_APPLICABLE
            ),
            "The start decides": lambda names: {*colours(names)} == {"tab:blue", "tab:red"},
            "Blue paths select the optimal tokens, red paths select token 2": colours_say_where_flows_end,
        },
        "descents": {
            "one input of three tokens": lambda names: names["problem"].keys.shape == (1, 3, 2),
            "gradient descent reaches only the first level, after 1397": lambda names: (
                iterations(names, "gd-1/L") == [1397, *[None] * 5]
            ),
            "Normalized gradient descent reaches it after 4, and the last level, a millionth, after 1724.": (
                lambda names: [iterations(names, "normalized-1")[place] for place in (0, -1)] == [4, 1724]
            ),
            "a millionth": lambda names: names["compared"]["levels"][-1] == 1e-6,
            "From each level to the next it needs about √10 times as many": lambda names: np.allclose(
                np.divide(iterations(names, "normalized-1")[1:], iterations(names, "normalized-1")[:-1]),
                np.sqrt(10),
                rtol=0.35,
            ),
            "they begin where the benchmark began": the_bench_agrees,
            "the norm grows only like log t": log_growth,
            "After 10000 iterations it is 5.1.": lambda names: (
                round(norm_and_distance(names, "gradient descent")[0], 1) == 5.1
            ),
            "It is 9999.": lambda names: round(norm_and_distance(names, "normalized gradient descent")[0]) == 9999,
            "nearly agree once the norm is 2 or more": curves_nearly_agree,
        },
        "my_theorem": {
            "The statement is upheld": lambda names: names["tried"].verdict is Verdict.UPHELD,
            "here the margin and the distance are both 2": lambda names: (
                names["max_margin"]([[[2, 0], [0, 0], [-1, 1]]], [0]).margin == 2.0
                and np.hypot(2, 0) == 2.0 < np.hypot(3, 1)
            ),
            "The conjecture is false.": lambda names: names["hunted"].claim.name == "no-less",
            "Three tokens in the plane refute it.": lambda names: names["keys"].shape == (3, 2),
            "right angle at the optimal token and two sides of length 1": is_right_angled,
            "the margin is 0.707": lambda names: round(names["svm"].margin, 3) == 0.707,
            "None of 50 generated cases falsifies it.": lambda names: (
                names["kept"].verdict is Verdict.UPHELD and names["kept"]["mine.py:at-most"].examples == 50
            ),
            "The margin is the distance to the segment between them": lambda names: np.isclose(
                names["svm"].margin, np.linalg.norm(names["others"].mean(axis=0) - names["keys"][names["best"]])
            ),
        },
    }
)
"""Sentences of each notebook, or parts of sentences, each with a check that it is true."""


@dataclass(frozen=True)
class Cell:
    """A cell of a notebook.

    Attributes:
        source: the content of the cell: Markdown or Python.
        is_code: whether the content is Python.
        pictures: the figures that running the cell drew, each as an SVG file.
    """

    source: str
    is_code: bool
    pictures: tuple[bytes, ...] = ()


def read_notebook(path: Path) -> list[Cell]:
    """Return the cells of a notebook (nbformat 4) without running them."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [Cell("".join(cell["source"]), cell["cell_type"] == "code") for cell in cells]


def run_notebook(path: Path) -> tuple[list[Cell], dict[str, Any]]:
    """Run the code cells of a notebook in order, and return all cells and the names that the code defined.

    The code runs in its own namespace and in a temporary working directory. Exceptions that the code raises are not
    caught.
    """
    import matplotlib
    from matplotlib import pyplot

    matplotlib.use("Agg")
    settings: Any = SETTINGS
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = read_notebook(path)
    with TemporaryDirectory() as folder, chdir(folder), matplotlib.rc_context(settings):
        for place, cell in enumerate(cells):
            if cell.is_code:
                exec(compile(cell.source, f"{path}, cell {place}", "exec"), names)
                pictures = tuple(_picture(pyplot.figure(number)) for number in pyplot.get_fignums())
                pyplot.close("all")
                cells[place] = replace(cell, pictures=pictures)
    return cells, names


def _picture(figure: Any) -> bytes:
    """Return a matplotlib figure as the bytes of an SVG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg")
    return buffer.getvalue()


def code_of(path: Path) -> list[str]:
    """Return the lines of code of a notebook that are not empty."""
    return [line for cell in read_notebook(path) if cell.is_code for line in cell.source.splitlines() if line.strip()]


def test_every_notebook_has_a_conclusion_that_is_checked() -> None:
    assert set(PATHS) == set(CONCLUSIONS)


@pytest.mark.parametrize("name", PATHS)
def test_a_notebook_is_stored_without_outputs_in_a_canonical_form(name: str) -> None:
    text = PATHS[name].read_text(encoding="utf-8")
    notebook = json.loads(text)
    assert text == json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    assert notebook["nbformat"] == 4
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len({*ids}) == len(ids)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["id"] for cell in code if cell["outputs"] or cell["execution_count"] is not None] == []


@pytest.mark.parametrize("name", PATHS)
def test_a_notebook_is_short(name: str) -> None:
    assert len(code_of(PATHS[name])) <= MOST_LINES


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="needs the extra figures")
@pytest.mark.parametrize("name", PATHS)
def test_conclusions_of_a_notebook_are_true(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    cells, names = run_notebook(PATHS[name])
    assert cells[-1].pictures
    text = " ".join(" ".join(cell.source.split()) for cell in cells if not cell.is_code)
    assert [conclusion for conclusion in CONCLUSIONS[name] if conclusion not in text] == []
    assert [conclusion for conclusion, is_so in CONCLUSIONS[name].items() if not is_so(names)] == []
