"""The documents agree with the code: commands run and print what is shown; names, links and paths exist."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from pkgutil import resolve_name
from textwrap import indent
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import typer.main
import yaml

from attention_conformance.kernel.check import assert_kernel
from examples.kernels import handwritten
from generators.datasets import DATASETS
from generators.user_data import load, subject_of
from reference_attention.files import from_json
from tests import documents as documents_
from tests.documents import (
    Block,
    Shown,
    agree,
    blocks,
    commands,
    doctest_failures,
    documents,
    inline,
    lines,
    python_of,
    read,
    rows,
)
from tests.places import ROOT
from tests.test_layers import ROOMS
from theorems.benchmark.rules import expand_rules, rule_named
from theorems.command.app import app, main
from theorems.core.exit_code import Exit
from theorems.counterexamples.weakened_statements import weakened_named
from theorems.figures.registry import figures_named
from theorems.run.registry.lookup import statement_named
from theorems.run.registry.suite import statements

DOCUMENTS = documents()
EVERY = sorted({*DOCUMENTS, *documents_.ELSEWHERE})
BLOCKS = [block for document in DOCUMENTS for block in blocks(document, read(document))]
SHOWN = [shown for block in BLOCKS if block.language in ("console", "indented") for shown in commands(block)]
PYTHON = [
    block for block in BLOCKS if block.language == "python"
]  # ```py marks code that needs something that no test machine has
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]

LONG: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "theorems verify": ("a minute or two", "theorems verify lemma-3 lemma-10 lemma-11"),
        "theorems verify --profile minute --attention torch.nn.functional:scaled_dot_product_attention": (
            "half a minute",
            "theorems verify kernel-output kernel-gradients --examples 25"
            " --attention torch.nn.functional:scaled_dot_product_attention",
        ),
        "theorems verify kernel-gradients kernel-grouped-heads"
        " --attention transformers.models.llama.modeling_llama:eager_attention_forward": (
            "needs transformers; tests/attention_conformance/kernel/test_adapters.py calls it where it is installed",
            "",
        ),
        "theorems verify kernel-empty-rows --examples 5 --attention jax:jax.nn:dot_product_attention": (
            "needs JAX; tests/attention_conformance/kernel/test_adapters.py calls it where it is installed",
            "",
        ),
        "theorems verify kernel-causal-rectangle --attention examples.real_faults.backward:backward_other_corner": (
            "which call is the smallest depends on the checks of shapes;"
            " tests/attention_conformance/kernel/test_kernel_command.py",
            "",
        ),
        "theorems verify --data mine.npz": ("all statements", "theorems verify theorem-2 --data mine.npz"),
        "theorems verify --examples 31250 --engine dask://127.0.0.1:8786 --resume night.jsonl": (
            "needs a cluster and days; tests/theorems/run/engines/test_dask_cluster.py has it small",
            "",
        ),
        "theorems bench": ("a minute", "theorems bench --data figure-1b --rule normalized-1 --examples 0"),
        "theorems bench --data figure-1a --rule normalized-1 --steps 200 --examples 0 --compare then.json": (
            "needs the file that the command above it writes; tests/theorems/benchmark/test_earlier_run.py",
            "",
        ),
        "theorems figures": ("minutes, with random trials", "theorems figures 1a --out docs/images"),
        "theorems figures 1 4 --format png": ("half a minute", "theorems figures 1a --format png"),
        "theorems hunt theorem-2 --without single-input --out counterexamples --record": (
            "the same hunt is run with its output",
            "",
        ),
        "theorems hunt mine.py:long_p": ("searches to the end of its time", "theorems hunt mine.py:long_p --cases 5"),
        "theorems hunt mine.py:long_p --without single-input": (
            "searches to the end of its time",
            "theorems hunt mine.py:long_p --without single-input --cases 5",
        ),
        "theorems hunt examples/not_separable.py:largest_subset": ("makes it small for a minute or more", ""),
        "theorems verify examples/joint_descent.py:logarithmic_prompt": (
            "many flows; tests/theorems/test_examples.py runs it",
            "",
        ),
    }
)
"""Commands that are too long to run, each with the reason and a shorter command, whose table rows must be among those
shown; without a shorter command nothing is run.
"""
APART = ("theorems verify lemma-3 --attention examples.kernels:handwritten", "theorems verify mine.py:long_p")
"""Commands on a user's kernel or file for which this test, too, starts a separate process.

For all others the code runs in this process: a start costs seconds and changes nothing that is printed. The isolation
itself is tested in tests/theorems/run/test_sandbox.py.
"""

PLACES: Mapping[str, Any] = MappingProxyType(
    {
        "X": np.array([[[0.0, 1.0], [1.0, 0.0]]]),
        "Y": np.array([1.0]),
        "v": np.array([1.0, 0.5]),
        "W": np.eye(2),
        "K": np.array([[[0.0, 1.0], [1.0, 0.0]]]),
        "gamma": np.array([[1.0, 0.5]]),
        "my_kernel": handwritten,
    }
)
"""Variables that a Python block of a document uses without defining them."""
FRESH = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
QUICK = partial(assert_kernel, statements=["lemma-3"], examples=2)
"""A quick replacement for the fixture ``max_margin_theorems``, which tests shown in documents use."""


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a file ``results.json``, written as in `docs/verify.md`."""
    path = tmp_path_factory.mktemp("results") / "results.json"
    assert main(["verify", "lemma-3", "--examples", "2", "--json", str(path)]) == Exit.UPHELD
    return path


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, results: Path) -> Path:
    """Change to a directory with the files that commands in the documents read, and return its path."""
    monkeypatch.chdir(tmp_path)
    for folder in ("examples", "counterexamples"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(results, tmp_path)
    example = next(block for block in PYTHON if block.document == "docs/conjectures.md")
    (tmp_path / "mine.py").write_text(example.text, encoding="utf-8")
    execute(next(block for block in PYTHON if block.document == "README.md"))
    arrays, layer = (block for block in PYTHON if block.document == "docs/explain.md")
    execute(arrays)
    execute(next(block for block in PYTHON if "captured.npz" in block.text))
    (tmp_path / "my_file.py").write_text(layer.text, encoding="utf-8")
    (tmp_path / "abab.txt").write_text("abab abba\nbaab aab\n", encoding="utf-8")
    english = "a quick brown fox that jumps over the lazy dog"
    (tmp_path / "english.txt").write_text(english, encoding="utf-8")
    return tmp_path


def execute(block: Block) -> dict[str, Any]:
    """Run a Python block, and return the names that it defines."""
    made = dict(PLACES) | {"__name__": "block"}
    exec(compile(block.text, block.name, "exec"), made)
    return made


def parsed(command: str) -> tuple[str, dict[str, Any]]:
    """Return the subcommand of a command line, and its options; assert that a file to which the output is redirected
    exists.

    Raises:
        Exception: there is no such subcommand, option or value.
    """
    program, sub, *rest = shlex.split(command)
    assert program == "theorems"
    if ">" in rest:
        rest, (target,) = rest[: rest.index(">")], rest[rest.index(">") + 1 :]
        assert (ROOT / target).exists(), target
    return sub, COMMANDS[sub].make_context(sub, list(rest)).params


def check_names(sub: str, given: Mapping[str, Any]) -> None:
    """Assert that the ids, data, rules and figures in a command exist; words in capitals are placeholders."""
    ids = [id for id in given.get("ids") or () if not id.isupper()]
    datasets = given.get("data")
    for name in datasets if isinstance(datasets, list) else [datasets] if isinstance(datasets, str) else []:
        assert name.isupper() or name in DATASETS or load(name, 0, calls=sub == "verify"), name
    for id in ids:
        statement_named(id)
    if sub == "hunt" and not given["id"].isupper():
        weakened_named(given["id"], "" if given["without"].isupper() else given["without"])
    for rule in expand_rules(given.get("rule") or ()):
        rule_named(rule)
    if sub == "figures":
        figures_named(given["names"] or ())


def printed(command: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the lines that a command prints to standard output; assert that it does not refuse its input."""
    given = shlex.split(command)[1:]
    capsys.readouterr()
    if given[0] == "hunt" and os.environ.get("THEOREMS_TYPECHECK"):
        # Functions that check shapes would change the labels of strategies, and with them the cases that a hunt draws.
        process = subprocess.run(
            [sys.executable, "-m", "theorems", *given], capture_output=True, env=FRESH, check=False
        )
        code, out, err = process.returncode, process.stdout.decode(), process.stderr.decode()
    else:
        foreign = "--attention" in given or any(".py:" in item for item in given)
        if foreign and given[0] == "verify" and command not in APART:
            given += ["--jobs", "0"]
        code = main(given)
        out, err = capsys.readouterr()
    assert code in (Exit.UPHELD, Exit.FALSIFIED, Exit.INCONCLUSIVE), err
    return lines(out)


PRINTED: dict[str, list[str]] = {}
"""Output of each shorter command of :data:`LONG`, kept because several documents may show the same long command."""


def check_theorems(shown: Shown, capsys: pytest.CaptureFixture[str]) -> None:
    """Assert that a ``theorems`` command is valid, and that it, or a shorter one in its place, prints what is shown."""
    check_names(*parsed(shown.command))
    _, instead = LONG.get(shown.command, ("", shown.command))
    if not instead:
        return
    if instead != shown.command and instead not in PRINTED:
        PRINTED[instead] = printed(instead, capsys)
    out = PRINTED[instead] if instead != shown.command else printed(instead, capsys)
    if instead == shown.command:
        assert not shown.output or agree(shown.output, out), "\n".join(out)
    elif shown.output:
        # The last digits of a kernel's results, and so the worst slack, depend on the processor.
        compared = documents_.without_slack if "--attention" in instead else list[str]
        assert rows(out)
        assert set(compared(rows(out))) <= set(compared(shown.output)), "\n".join(out)


def check_make(shown: Shown, capsys: pytest.CaptureFixture[str]) -> None:
    """Assert that the target of a ``make`` command exists; running it would run all tests, or install everything."""
    process = subprocess.run(
        ["make", "-n", *shlex.split(shown.command)[1:]], cwd=ROOT, capture_output=True, check=False
    )
    assert process.returncode == 0, process.stderr


def check_python(shown: Shown, capsys: pytest.CaptureFixture[str]) -> None:
    """Assert that the script or module of a ``python`` command exists and mentions the command's options."""
    _, script, *rest = shlex.split(shown.command)
    if script == "-m":
        module = ROOT / rest[0].replace(".", "/")
        script = str(module / "__main__.py" if module.is_dir() else module.with_suffix(".py"))
    source = (ROOT / script).read_text(encoding="utf-8")
    assert [item for item in rest if item.startswith("--") and f'"{item}"' not in source] == []


def check_pip(shown: Shown, capsys: pytest.CaptureFixture[str]) -> None:
    """Assert that a ``pip`` command installs this project."""
    assert shown.command == "pip install ."


CHECKS: Mapping[str, Callable[[Shown, pytest.CaptureFixture[str]], None]] = MappingProxyType(
    {"theorems": check_theorems, "make": check_make, "python": check_python, "pip": check_pip}
)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_every_block_is_of_a_kind_that_is_checked(block: Block) -> None:
    assert block.language in ("console", "python", "py", "indented", "yaml", "toml", "json")
    if block.language == "json":
        assert all(subject_of(from_json(line)).kind for line in block.text.splitlines())
    elif block.language == "yaml":
        inputs = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["inputs"]
        assert {name for step in yaml.safe_load(block.text)["steps"] for name in step.get("with", ())} <= {*inputs}
    elif block.language == "toml":
        assert block.text in (ROOT / "examples" / "a_paper" / "pyproject.toml").read_text(encoding="utf-8")
    elif block.language not in ("python", "py"):
        unchecked = [shown for shown in commands(block) if shown.command.split()[0] not in CHECKS]
        assert [shown.name for shown in unchecked] == []
        assert list(commands(block))


def test_excerpts_of_a_paper_agree_with_the_template() -> None:
    template = (ROOT / "examples" / "a_paper" / "a_paper" / "__init__.py").read_text(encoding="utf-8")
    base = (ROOT / "generators" / "subject.py").read_text(encoding="utf-8")
    paper, kind = (block.text for block in BLOCKS if block.document == "docs/publish.md" and block.language == "py")
    assert paper in template
    assert indent(kind, " " * 4) in base


@pytest.mark.compiler
@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: shown.name)
@pytest.mark.usefixtures("desk")
def test_commands_print_what_is_shown(shown: Shown, capsys: pytest.CaptureFixture[str]) -> None:
    CHECKS[shown.command.split()[0]](shown, capsys)


def test_every_long_command_is_in_a_document() -> None:
    assert {*LONG} - {shown.command for shown in SHOWN} == set()


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.name)
@pytest.mark.usefixtures("desk")
def test_python_blocks_of_documents_run(block: Block) -> None:
    before = load("mine.npz", 0).case.problem.keys
    made = execute(block)
    for name, test in made.items():
        if name.startswith("test_"):
            marked = getattr(test, "pytestmark", [])  # the decorator's marker holds the kernel
            test(partial(QUICK, *marked[0].args) if marked else QUICK)
    if "savez" in block.text:
        assert load("mine.npz", 0).case.problem.keys.shape[-1] == before.shape[-1]


NAMED = sorted({(d, code) for d in DOCUMENTS for code in inline(read(d)) if code.startswith(("theorems ", "make "))})


@pytest.mark.parametrize(("document", "code"), NAMED, ids=lambda one: one)
@pytest.mark.usefixtures("desk")
def test_commands_within_a_sentence_exist(document: str, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    if code.startswith("make "):
        check_make(Shown(Block(document, 0, "", ""), code, ()), capsys)
    elif code.startswith("theorems show "):
        assert main(shlex.split(code)[1:]) == Exit.UPHELD
    elif len(code.split()) == 2:
        assert code.split()[1] in COMMANDS
    else:
        check_names(*parsed(code))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_options_within_a_sentence_exist(document: str) -> None:
    known = {
        name for command in COMMANDS.values() for item in command.params for name in (*item.opts, *item.secondary_opts)
    }
    known |= {name for item in typer.main.get_command(app).params for name in item.opts}
    known |= {option for shown in SHOWN if shown.command.startswith("python") for option in shown.command.split()}
    named = {code.split()[0] for code in inline(read(document)) if code.startswith("--")}
    assert named - known == set()


@pytest.mark.parametrize("document", EVERY)
def test_links_lead_to_existing_files_and_headings(document: str) -> None:
    assert [link for link in documents_.links(read(document)) if not documents_.resolves(link, document)] == []


@pytest.mark.parametrize("document", EVERY)
def test_files_named_in_documents_exist(document: str) -> None:
    named = documents_.paths(read(document))
    written = ("hunted/", "build/")
    assert [path for path in sorted(named) if not path.startswith(written) and not documents_.exists(path)] == []


@pytest.mark.parametrize("document", EVERY)
def test_modules_and_objects_named_in_documents_exist(document: str) -> None:
    pattern = r"(?:reference_attention|generators|theorems)(?:\.\w+)+"
    for name in {match[0] for code in inline(read(document)) if (match := re.match(pattern, code))}:
        if not name.endswith(".py"):  # such as theorems.py, a file of a user that hides a package
            resolve_name(name)


def test_every_document_is_reached_from_the_readme() -> None:
    reached, waiting = set(), ["README.md"]
    while waiting:
        document = waiting.pop()
        reached.add(document)
        targets = (item.partition("#")[0] for item in documents_.links(read(document)) if item.partition("#")[0])
        result = {
            ((ROOT / document).parent / item).resolve().relative_to(ROOT.resolve()).as_posix() for item in targets
        }
        waiting += [item for item in result - reached if item in DOCUMENTS]
    assert set(DOCUMENTS) - reached == {"CHANGELOG.md"}


def test_the_readme_is_short_and_has_two_commands_for_a_fresh_clone() -> None:
    assert len(read("README.md").splitlines()) <= 125
    own = [shown.command for shown in SHOWN if shown.block.document == "README.md"]
    assert [command for command in own if command.startswith("make")] == ["make verify", "make test"]


def test_the_table_of_statements_agrees_with_the_registry() -> None:
    table = read("docs/verify.md").partition("## What is verified")[2]
    result = re.findall(r"^\| `([a-z0-9-]+)`[^|]*\| ([^|]+) \| ([^|]+) \|$", table, re.MULTILINE)
    assert result == [(statement.id, statement.title, statement.source) for statement in statements().values()]


def test_the_table_of_rooms_lists_the_rooms_in_their_order() -> None:
    table = read("ARCHITECTURE.md").partition("## The rooms")[2].partition("\n## ")[0]
    assert tuple(re.findall(r"^\| `([a-z_.]+)` \|", table, re.MULTILINE)) == ROOMS


def test_extras_named_in_documents_are_declared_in_pyproject() -> None:
    named = {extra for d in DOCUMENTS for extra in re.findall(r"pip install \"[^\"]*\[(\w+)\]\"", read(d))}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert named <= set(project["optional-dependencies"])
    assert named


def pinned(name: str) -> str:
    result = re.search(rf"^{name}==(.+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert result
    return result[1]


@pytest.mark.skipif(version("matplotlib") != pinned("matplotlib"), reason="another drawing library, other bytes")
def test_the_picture_of_figure_1a_is_what_the_command_draws(desk: Path) -> None:
    assert main(["figures", "1a", "--out", "docs/images"]) == Exit.UPHELD
    drawn = (desk / "docs" / "images" / "figure-1a.svg").read_bytes()
    assert drawn == (ROOT / "docs" / "images" / "figure-1a.svg").read_bytes()


def shown_in(text: str) -> Shown:
    (block,) = blocks("README.md", f"```console\n{text}\n```\n")
    (shown,) = commands(block)
    return shown


TRUE = """$ theorems verify lemma-10 --examples 2
 statement   says                             verdict   examples   worst slack          seconds
 ──────────────────────────────────────────────────────────────────────────────────────────────
 lemma-10    At most d directional neighbours upheld           2   1 ≥ 0 (neighbours)  7.7
lemma-10: claims checked on only some of 2 examples: neighbour-rank on 1"""


def test_a_right_command_and_output_pass(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_theorems(shown_in(TRUE), capsys)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("upheld ", "falsified "),
        ("  2   1", "  3   1"),
        ("1 ≥ 0", "1e-16 ≥ 0"),
        ("examples 2", "sample 2"),
        ("lemma-10 --", "lemma-99 --"),
        ("verify lemma-10", "verfy lemma-10"),
        (" seconds\n", " s\n"),
        ("(neighbours)  7.7", "(neighbours)  7.7\n more"),
    ],
)
def test_a_wrong_command_or_output_is_noticed(
    desk: Path, capsys: pytest.CaptureFixture[str], right: str, wrong: str
) -> None:
    assert right in TRUE
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever it is, it fails the test of a document
        check_theorems(shown_in(TRUE.replace(right, wrong)), capsys)


def test_wrong_rows_of_a_long_command_are_noticed(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (bench,) = (shown for shown in SHOWN if shown.command == "theorems bench")
    moved = tuple(line.replace(" 174 ", " 175 ").replace(" 201 ", " 202 ") for line in bench.output)
    with pytest.raises(AssertionError):
        check_theorems(Shown(bench.block, bench.command, moved), capsys)


def test_elided_lines_and_rests_of_lines_agree_but_other_changes_do_not() -> None:
    out = lines("one\n two   2\n\nthree\nfour")
    assert agree(("one", "…", "four"), out)
    assert agree(("one", "two …", "three", "four"), out)
    assert not agree(("one", "four"), out)
    assert not agree(("one", "…", "five"), out)
    assert not agree(("one", "tw 2", "…"), out)


@pytest.mark.parametrize(
    ("shown", "printed", "agrees"),
    [
        ("offset 1.62695691958380", "offset 1.62695691958379", True),
        ("offset 1.62695691958380", "offset 1.62696691958380", False),
        ("3.7e-16 ≥ -1e-13 (rate)", "1.6e-16 ≥ -7.5e-14 (rate)", True),
        ("3.7e-16 ≥ -1e-13 (rate)", "1.6e-16 ≥ -7.5e-14 (turn)", False),
        ("3.7e-16 ≥ -1e-13 (rate)", "3.7e-10 ≥ -1e-13 (rate)", False),
        ("2.5e6 s", "2.6e6 s", True),
        ("2.5e6 s", "2.7e6 s", False),
        ("1e6 s", "2e6 s", False),
        ("12 of 40", "13 of 40", False),
        ("found/a-12345abcde.json", "found/a-12345abcdf.json", True),
        ("found/a-12345abcde.json", "found/b-12345abcde.json", False),
    ],
)
def test_numbers_agree_up_to_their_last_digits(shown: str, printed: str, agrees: bool) -> None:
    assert agree((shown,), [printed]) is agrees


@pytest.mark.parametrize("target", ["docs/nothing.md", "docs/verify.md#nothing", "#nothing"])
def test_a_link_to_nowhere_is_noticed(target: str) -> None:
    assert not documents_.resolves(target, "README.md")
    assert documents_.resolves("docs/verify.md#the-verdicts", "README.md")


def test_a_path_or_a_target_or_an_option_that_does_not_exist_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    assert documents_.paths("in `theorems/core/nothing.py`.") == {"theorems/core/nothing.py"}
    assert not documents_.exists("theorems/core/nothing.py")
    assert not documents_.exists("tests/test_layers.py::test_nothing")
    assert documents_.exists("tests/test_layers.py::test_a_circle_is_caught")
    for check, command in (
        (check_make, "make nothing"),
        (check_python, "python tests/test_layers.py --nothing"),
        (check_pip, "pip install something"),
    ):
        with pytest.raises(AssertionError):
            check(shown_in(f"$ {command}"), capsys)


def test_the_examples_in_docs_library_print_what_is_shown() -> None:
    assert doctest_failures(python_of("docs/library.md"), "library.md", {}) == []
