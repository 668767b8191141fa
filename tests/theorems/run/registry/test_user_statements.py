"""Statements in a user's own file: found by ``path.py:name``, run in other processes too, refused in one sentence."""

from __future__ import annotations

import json
import pickle
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from reference_attention.errors import InvalidInput
from tests.places import ROOT
from theorems.command.app import main as whole_command
from theorems.core.claim import Claim, Form, Verdict
from theorems.core.tolerances import TOLERANCES, Reason, reason
from theorems.run.registry.lookup import statement_named
from theorems.run.registry.suite import statements
from theorems.run.reproduce import file_stem
from theorems.run.verify import verify_generated


def main(arguments: list[str]) -> int:
    """Run the command in this process, which is quicker than in the sandbox, where other tests run it."""
    return whole_command([*arguments, "--jobs", "0"] if arguments[0] == "verify" else arguments)


TRUE = '''
from theorems.api import EPS, Form, at_least, max_margin, reason, softmax_weights, statement

TWICE = reason("twice-rounding", "2 eps T", "two sums of T weights are compared")


@statement("weights-sum-to-one", assumptions=("separable", "single-input"))
def sums(case, under_test):
    """Softmax weights sum to one.

    At p_mm, say.
    """
    svm = under_test[max_margin](case.problem.keys, case.chosen_tokens)
    total = under_test[softmax_weights](case.problem.keys, svm.p).sum(axis=-1)
    yield at_least("sum", Form.EXACT, total, 1.0, rounding=2 * EPS * case.problem.T, why=TWICE)
'''

FALSE = '''
from theorems.api import Form, at_least, max_margin, statement


@statement("long", "p_mm is long", assumptions=("separable",))
def norm_at_least_one(case, under_test):
    """‖p_mm‖ ≥ 4."""
    svm = under_test[max_margin](case.problem.keys, case.chosen_tokens)
    yield at_least("norm", Form.EFFECTIVE, svm.norm, 4.0, rounding=0.0, why="exact")
'''

OWN = '''
import numpy as np
from hypothesis import strategies as st

from theorems.api import Assumption, Case, Claim, Finding, Form, Problem, statement


def even(case):
    """Every score is an even number."""
    odd = case.problem.scores % 2 != 0
    return Finding(not odd.any(), f"{int(odd.sum())} odd scores")


EVEN = Assumption("even-scores", "all scores are even", "here", even)


@st.composite
def even_cases(draw):
    scores = draw(st.lists(st.integers(-3, 3), min_size=2, max_size=2))
    return Case(Problem(np.array([[[1.0], [0.0]]]), 2.0 * np.array([scores])))


def conclusion(case, under_test):
    """No score is odd."""
    yield Claim("no-odd-score", Form.EXACT, 0.0 if even(case).holds else -1.0, 0.0, "exact")


constructed = statement("constructed", assumptions=(EVEN, "single-input"), cases=even_cases)(conclusion)
of_the_library = statement("of-the-library", assumptions=("single-input", EVEN))(conclusion)
'''


pytestmark = pytest.mark.usefixtures("own_directory")


def write_file(text: str, path: str = "mine.py") -> str:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")
    return path


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the only sentence of a command that ends with exit code 2."""
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert not captured.out
    assert len(captured.err.strip().splitlines()) == 1
    assert "Traceback" not in captured.err
    return captured.err


# ---- found, run, shown -----------------------------------------------------------------------------------


def test_a_statement_is_named_by_its_variable_or_its_id() -> None:
    path = write_file(TRUE)
    statement, other = statement_named(f"{path}:sums"), statement_named(f"./{path}:weights-sum-to-one")
    assert statement.id == other.id == "mine.py:weights-sum-to-one"
    assert statement_named(statement.id).id == statement.id
    assert statement.own_id == "weights-sum-to-one"
    assert statement.title == "Softmax weights sum to one"
    assert statement.assumptions == ("separable", "single-input")


def test_a_user_statement_is_verified_with_a_json_report(capsys: pytest.CaptureFixture[str]) -> None:
    path = write_file(TRUE)
    assert main(["verify", f"{path}:sums", "--examples", "10", "--json", "report.json"]) == 0
    assert "mine.py:weights-sum-to-one" in capsys.readouterr().out
    (statement,) = json.loads(Path("report.json").read_text(encoding="utf-8"))["statements"]
    assert (statement["id"], statement["verdict"], statement["examples"]) == (
        "mine.py:weights-sum-to-one",
        "upheld",
        10,
    )
    assert statement["claims"][0]["why"] == "twice-rounding"


def test_cases_do_not_depend_on_the_path_of_the_user_s_file() -> None:
    """The seed depends on the statement's id, so neither the folder nor the spelling of the path changes the cases."""
    results = [verify_generated(write_file(FALSE, path) + ":long", 20, 3) for path in ("a.py", "deep/er/a.py")]
    assert [r.counts for r in results] == [results[0].counts] * 2
    cases = {re.sub(r'"case_of": "[^"]*"', "", r.failure.case) for r in results if r.failure}
    assert len(cases) == 1


def test_user_statements_run_in_several_processes(capsys: pytest.CaptureFixture[str]) -> None:
    paths = [f"{write_file(TRUE)}:sums", f"{write_file(FALSE, 'dir with blanks/false.py')}:long"]
    assert whole_command(["verify", *paths, "theorem-1", "--examples", "3", "--jobs", "2", "--json", "two.json"]) == 1
    assert main(["verify", *paths, "theorem-1", "--examples", "3", "--jobs", "1", "--json", "one.json"]) == 1
    two, statement = (
        json.loads(Path(name).read_text(encoding="utf-8"))["statements"] for name in ("two.json", "one.json")
    )
    assert [s["verdict"] for s in two] == ["upheld", "falsified", "upheld"]
    for report in (*statement, *two):
        report["seconds"] = 0
    assert statement == two


def test_a_failing_user_statement_is_reproduced_from_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    path = write_file(FALSE, "dir with blanks/false.py")
    assert main(["verify", f"{path}:norm_at_least_one", "--examples", "40", "--out", "failed"]) == 1
    output = capsys.readouterr().out
    (written,) = Path("failed").iterdir()
    assert re.fullmatch(r"false-long-[0-9a-f]{10}\.json", written.name)
    line = next(line for line in output.splitlines() if "Reproduce with: " in line)
    command = shlex.split(line.partition("Reproduce with: ")[2])
    assert command[0] == "theorems"
    assert main(command[1:]) == 1
    assert main(["verify", "--data", str(written)]) == 1  # the file names its statement
    assert main(["verify", "theorem-1", "--data", str(written)]) in (0, 3)


def test_a_user_statement_is_shown_with_its_assumption_and_tolerance(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", write_file(TRUE) + ":sums"]) == 0
    output = capsys.readouterr().out
    assert all(text in output for text in ("At p_mm, say.", "twice-rounding", "2 eps T", "ATT-SVM of the chosen"))
    assert main(["show", write_file(OWN, "own.py") + ":constructed"]) == 0
    assert "all scores are even" in capsys.readouterr().out


def test_a_changed_user_file_is_read_again() -> None:
    path = write_file(FALSE)
    assert verify_generated(f"{path}:long", 30, 0).verdict is Verdict.FALSIFIED
    write_file(FALSE.replace("svm.norm, 4.0", "svm.norm, 0.0"))
    assert verify_generated(f"{path}:long", 30, 0).verdict is Verdict.UPHELD


def test_a_user_file_imports_modules_of_its_folder() -> None:
    write_file("LEAST = 0.0\n", "beside/neighbour_of_mine.py")
    text = FALSE.replace("svm.norm, 4.0", "svm.norm, LEAST").replace(
        "from theorems", "from neighbour_of_mine import LEAST\nfrom theorems"
    )
    assert verify_generated(write_file(text, "beside/mine.py") + ":long", 5, 0).verdict is Verdict.UPHELD


# ---- own assumptions -------------------------------------------------------------------------------------


def test_a_user_s_strategy_can_construct_cases_that_satisfy_a_user_s_assumption() -> None:
    result = verify_generated(write_file(OWN) + ":constructed", 30, 0)
    assert result.counts == {Verdict.UPHELD: result.examples}


def test_cases_that_violate_a_user_s_assumption_are_not_applicable() -> None:
    """Cases that violate the assumption are neither filtered out nor counted as upheld."""
    result = verify_generated(write_file(OWN) + ":of-the-library", 60, 0)
    assert result.counts[Verdict.NOT_APPLICABLE] > 0
    assert result.counts[Verdict.UPHELD] > 0
    assert "even-scores: " in result.reasons[Verdict.NOT_APPLICABLE]


def test_a_wrong_predicate_of_a_user_s_assumption_falsifies_the_statement() -> None:
    wrong = OWN.replace("return Finding(not odd.any()", "return Finding(True").replace(
        "if even(case).holds", "if not (case.problem.scores % 2).any()"
    )
    assert verify_generated(write_file(wrong) + ":of-the-library", 60, 0).verdict is Verdict.FALSIFIED


def test_a_user_s_assumption_is_decided_on_data(capsys: pytest.CaptureFixture[str]) -> None:
    path = write_file(OWN)
    np.savez("odd.npz", keys=np.array([[[1.0], [0.0]]]), scores=np.array([[1.0, 0.0]]))
    np.savez("even.npz", keys=np.array([[[1.0], [0.0]]]), scores=np.array([[2.0, 0.0]]))
    assert main(["verify", f"{path}:constructed", "--data", "odd.npz"]) == 3
    output = capsys.readouterr().out
    assert re.search(r"even-scores +all scores are even +does not hold +1 odd scores", output)
    assert main(["verify", f"{path}:constructed", "--data", "even.npz", "--jobs", "1"]) == 0


def test_a_predicate_that_raises_or_returns_nothing_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("data.npz", keys=np.array([[[1.0], [0.0]]]), scores=np.array([[2.0, 0.0]]))
    for text, message in (
        (
            OWN.replace("odd = case.problem.scores % 2 != 0", "odd = 1 / 0"),
            r"raised ZeroDivisionError in mine.py, line 10",
        ),
        (
            OWN.replace("return Finding(not odd.any(), ", "return (not odd.any(), "),
            r"returned a value of type tuple; return Finding",
        ),
    ):
        path = write_file(text)
        assert main(["verify", f"{path}:constructed", "--data", "data.npz"]) == 3
        printed = capsys.readouterr()
        assert re.search(message, printed.out)
        assert "Traceback" not in printed.out + printed.err
        assert verify_generated(f"{path}:constructed", 3, 0).verdict is Verdict.INCONCLUSIVE


# ---- own tolerances --------------------------------------------------------------------------------------


def test_a_user_s_tolerance_needs_only_a_key_a_formula_and_a_reason() -> None:
    mine = reason("my-rate", "1/t", "the next term")
    claim = Claim("x", Form.LIMIT, 1.0, 0.0, mine)
    assert claim.verdict is Verdict.UPHELD
    again = pickle.loads(pickle.dumps(mine))
    assert (again, again.tolerance) == (mine, mine.tolerance)
    assert isinstance(again, Reason)
    with pytest.raises(ValueError, match="no tolerance named 'my-rate'"):
        Claim("x", Form.LIMIT, 1.0, 0.0, "my-rate")
    assert "my-rate" not in TOLERANCES


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rounding", "f", "b"), "'rounding' is one of the suite's tolerances"),
        (("mine", "", "b"), "formula is empty"),
        (("mine", "f", " "), "because is empty"),
        (("", "f", "b"), "key is empty"),
    ],
)
def test_a_tolerance_without_a_formula_or_a_reason_is_refused(arguments: tuple[str, str, str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        reason(*arguments)


def test_a_text_that_names_no_tolerance_is_refused_as_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    path = write_file(FALSE.replace('why="exact"', 'why="about right"'))
    assert main(["verify", f"{path}:long", "--examples", "3"]) == 3
    output = capsys.readouterr().out
    assert "raised ValueError in mine.py, line 9: claim norm: no tolerance named 'about right'" in output


# ---- conclusions that raise or yield no claims are inconclusive; the line is named -----------------------


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("svm.norm, 4.0", "1 / 0, 4.0", "the conclusion raised ZeroDivisionError in mine.py, line 9: division by zero"),
        (
            "    yield at_least",
            "    return at_least",
            "the conclusion returned a value of type Claim; it must yield claims",
        ),
        ("    yield at_least", "    raise SystemExit(0)\n    yield at_least", "raised SystemExit in mine.py, line 9"),
        ("    yield at_least", "    yield 0.5 #", "the conclusion yielded a value of type float, not a Claim"),
        (
            "    yield at_least",
            "    from theorems.api import gradient_flow\n"
            "    gradient_flow(case.problem, svm.p, norm=-1.0)\n    yield at_least",
            "raised InvalidInput in mine.py, line 10: norm: -1 must be finite",
        ),
        (
            'assumptions=("separable",)',
            "cases=lambda: 1 / 0",
            "the strategy raised ZeroDivisionError in mine.py, line 5",
        ),
        (
            'assumptions=("separable",)',
            "cases=lambda: 3",
            "cases returned a value of type int, not a Hypothesis strategy",
        ),
        (
            'assumptions=("separable",)',
            "cases=__import__('hypothesis').strategies.integers()",
            "the strategy drew a value of type int, not a Case",
        ),
    ],
)
def test_a_user_statement_that_raises_is_inconclusive(
    old: str, new: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert old in FALSE
    path = write_file(FALSE.replace(old, new))
    code = main(["verify", f"{path}:long", "--examples", "3"])
    printed = capsys.readouterr()
    assert re.search(message, printed.out + printed.err), printed.out + printed.err
    assert code == 3
    assert "Traceback" not in printed.out + printed.err


# ---- refused in one sentence -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = (\n", r"mine.py: line 1: is no Python \('\(' was never closed\)"),
        ("x = 1\ndef f(:\n", r"mine.py: line 2: is no Python"),
        ("x = 1\0", r"mine.py: .*null bytes"),
        (
            "x = 1\nimport nowhere_to_be_found\n",
            "mine.py, line 2: ModuleNotFoundError: No module named 'nowhere_to_be_found'",
        ),
        ("from theorems.api import nonsense\n", "mine.py, line 1: ImportError: cannot import name 'nonsense'"),
        ("\n\n1 / 0\n", "mine.py, line 3: ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(0)\n", "mine.py, line 2: SystemExit: 0"),
        ("x = 1\n", "mine.py: has no statement 'it'; its statements are none; decorate a function with"),
        ("it = 1\n", "mine.py: 'it' is of type int, not a statement of this file"),
        ("def it(case, under_test): ...\n", "mine.py: 'it' is a function, not a statement of this file"),
        (
            "from theorems.token_selection.global_paths.theorem_2_global_convergence import theorem_2 as it\n",
            "'it' is the suite's theorem-2, not a st",
        ),
        (
            TRUE + '\n@statement("weights-sum-to-one")\ndef again(case, u):\n    "It."\n',
            "two statements have the id 'weights-sum-to-one'",
        ),
        (
            "from theorems.core.statement import statement\n"
            "from theorems.token_selection.global_paths.theorem_2_global_convergence import theorem_2 as t\n"
            'it = statement("theorem-2", "", source="", assumptions=(), cases=t.cases)(t.conclusion)\n',
            "mine.py, line \\d+: statement: the id 'theorem-2' is one of the suite's; choose another.",
        ),
    ],
)
def test_an_unusable_file_is_refused(text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_file(text)
    for command in ("verify", "show"):
        assert re.search(message, error_of(capsys, command, f"{path}:it"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ('"theorem-2"', "mine.py, line 3: .*'theorem-2' is one of the suite's"),
        ('"lemma-2"', "'lemma-2' is one of the suite's"),
        ('"It Is"', "'It Is' is not kebab-case"),
        ('"it", assumptions=("seperable",)', "mine.py, line 3: assumption: 'seperable' is not one of"),
        ('"it", assumptions="separable"', "give a tuple of ids"),
        ('"it", assumptions=("separable", "separable")', "'separable' is given twice"),
        ('"it", assumptions=("wider-direction",)', "builds none for 'wider-direction'; give cases=generators"),
        ('"it", assumptions=("head-in-key-range", "distinct-scores")', "cannot be combined"),
        ('"it", assumptions=(A,)', "'separable' is one of the suite's; choose another id"),
    ],
)
def test_an_ill_formed_user_statement_is_refused(given: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = 'from theorems.api import Assumption, Finding, statement\nA = Assumption("separable", "", "", Finding)\n'
    path = write_file(f"{text}@statement({given})\ndef it(case, under_test):\n    'It.'\n")
    assert re.search(message, error_of(capsys, "verify", f"{path}:it"))


def test_a_statement_without_a_docstring_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    path = write_file("from theorems.api import statement\n@statement('it')\ndef it(case, under_test):\n    yield\n")
    assert "mine.py, line 2: statement it: the conclusion has no docstring" in error_of(capsys, "verify", f"{path}:it")


@pytest.mark.parametrize(
    ("id", "message"),
    [
        ("nowhere.py:it", "nowhere.py: there is no such file"),
        ("folder.py:it", "folder.py: is a directory"),
        ("good.py", "good.py: name the statement as good.py:NAME; its statements are sums"),
        ("good.py:", "good.py: name the statement as good.py:NAME; its statements are sums"),
        ("good.py:sum", "good.py: has no statement 'sum'; its statements are sums"),
        ("good.txt:sums", "'good.txt:sums' is not a statement..* PATH.py:NAME"),
    ],
)
def test_an_unknown_id_is_refused(id: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_file(TRUE, "good.py")
    Path("folder.py").mkdir()
    assert re.search(message, error_of(capsys, "verify", id))


def test_a_user_file_does_not_change_the_suite() -> None:
    statements.cache_clear()  # a test of papers may have left a paper's statement
    before = dict(statements())
    text = "from theorems.core.statement import statement\n"
    text += "import theorems.token_selection.global_paths.theorem_2_global_convergence as t\n"
    text += 'made = statement("theorem-99", "t", assumptions=(), cases=t.theorem_2.cases)\n'
    text += "mine = made(t.theorem_2.conclusion)\n"
    statement = statement_named(write_file(text) + ":mine")
    assert statement.id == "mine.py:theorem-99"
    statements.cache_clear()
    assert before == statements()
    assert "theorem-99" not in statements()


def test_names_of_files_for_failing_cases() -> None:
    assert file_stem("theorem-2") == "theorem-2"
    assert file_stem("/a b/c d.py:my-id") == "c-d-my-id"
    assert file_stem("../x.py:y") == "x-y"


def test_the_first_example_of_the_manual_runs_and_can_fail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manual = ROOT / "docs" / "conjectures.md"
    example = manual.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(example, encoding="utf-8")
    assert main(["verify", "mine.py:long_p", "--examples", "5"]) == 0
    assert main(["hunt", "mine.py:long_p", "--without", "single-input", "--cases", "10"]) == 0
    assert "1 / np.min(lengths)" in example
    Path("wrong.py").write_text(example.replace("1 / np.min(lengths)", "4 / np.min(lengths)"), encoding="utf-8")
    assert main(["verify", "wrong.py:long_p", "--examples", "5"]) == 1
    assert "falsified" in capsys.readouterr().out
