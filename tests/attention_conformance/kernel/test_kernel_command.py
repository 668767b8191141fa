"""``theorems verify --attention``: its input, refusals, output and files."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from attention_conformance import check_call
from tests.attention_conformance.kernel import wrong_kernels
from tests.verify_schema import read_results
from theorems.command.app import main as whole_command
from theorems.run.registry.suite import on_a_kernel, statements

TOUCHING = on_a_kernel()
NOT_TOUCHING = {id: one.kernel.says for id, one in statements().items() if one.kernel and not one.kernel.called}

SDPA = "torch.nn.functional:scaled_dot_product_attention"


def main(arguments: list[str]) -> int:
    """Run the command without processes of its own, which is quicker; tests/theorems/run/test_sandbox.py tests
    those.
    """
    inside = [] if "--jobs" in arguments else ["--jobs", "0"]
    return whole_command([*arguments, *inside] if arguments[0] == "verify" else arguments)


pytestmark = pytest.mark.usefixtures("own_directory")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--attention", "kernel"], "is not MODULE:CALLABLE"),
        (["--attention", "no_such_module_anywhere:kernel"], "does not import, ModuleNotFoundError"),
        (["--attention", "broken_module:kernel"], "does not import, ZeroDivisionError"),
        (["--attention", "here.py:kernel"], "here.py: there is no such file; give a Python file"),
        (["--attention", "math:no_such_thing"], "'math' has no 'no_such_thing'"),
        (["--attention", "math:pi"], "is of type float and cannot be called"),
        (["--attention", "torch.nn:MultiheadAttention"], "is a class; give a function"),
        (["--attention", SDPA, "--dtype", "float8"], "is not one of auto, float64, float32, bfloat16, float16"),
        (
            ["--attention", f"{wrong_kernels.__name__}:other_dtype", "--dtype", "float64"],
            "returned float16 for float64",
        ),
        (["--dtype", "float32"], "give the kernel with --attention"),
        *(
            (["--attention", f"{wrong_kernels.__name__}:{k.__name__}"], word)
            for k, word in wrong_kernels.REFUSED.items()
        ),
    ],
)
def test_bad_kernels_are_refused_in_one_sentence(
    given: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("broken_module.py").write_text("1 / 0\n")
    assert main(["verify", "lemma-3", *given]) == 2
    printed = capsys.readouterr()
    assert not printed.out
    assert says in printed.err
    assert printed.err.count("\n") == 1


def test_a_right_kernel_is_upheld_in_two_processes(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--attention", SDPA, "--dtype", "float32", "--examples", "2", "--json", "report.json"]
    assert whole_command(["verify", "lemma-3", "lemma-4", "lemma-10", "theorem-1", *given]) == 0
    printed = capsys.readouterr().out
    assert f"attention kernel {SDPA}: interface sdpa, float32" in printed
    assert "in the judging process" not in printed
    report = read_results(Path("report.json").read_text())
    assert report["implementation"] == SDPA
    assert report["kernel"]["isolated"]
    assert report["kernel"]["dtype"] == "float32"
    assert report["kernel"]["interface"] == "sdpa"
    verdicts = {
        statement["id"]: (statement["verdict"], bool(statement["touched"])) for statement in report["statements"]
    }
    untouched = ("not-applicable", False)
    upheld = ("upheld", True)
    assert verdicts == {"lemma-3": upheld, "lemma-4": upheld, "lemma-10": untouched, "theorem-1": untouched}
    for id in ("lemma-10", "theorem-1"):
        assert NOT_TOUCHING[id][:20] in " ".join(printed.split())


SCORED = ("kernel-output", "kernel-memory", "kernel-causal")


@pytest.mark.parametrize(
    ("kernel", "code", "value"), [(SDPA, 0, 1.0), (f"{wrong_kernels.__name__}:last_token_masked", 1, 0.0)]
)
def test_json_has_a_score_with_its_parts(
    kernel: str, code: int, value: float, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--attention", kernel, "--dtype", "float64", "--examples", "2", "--json", "report.json"]
    assert main(["verify", *SCORED, *given]) == code
    assert "called in the judging process" in capsys.readouterr().out
    described = read_results(Path("report.json").read_text())["kernel"]
    tried = {
        capability["name"]: capability["verdict"]
        for capability in described["capabilities"]
        if capability["verdict"] != "not-applicable"
    }
    assert described["score"]["value"] == value
    assert {*tried} <= {*described["score"]["parts"]}
    assert all(described["score"]["parts"][name] == (verdict == "upheld") for name, verdict in tried.items())
    assert not described["isolated"]


def test_a_fresh_seed_is_printed_and_differs_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    seeds = []
    for _ in range(2):
        given = ["--attention", SDPA, "--dtype", "float64", "--examples", "2", "--json", "report.json"]
        assert main(["verify", "kernel-output", "--seed", "fresh", *given]) == 0
        seeds.append(read_results(Path("report.json").read_text())["seed"])
        assert f"seed {seeds[-1]}; to draw the same cases again, give --seed {seeds[-1]}" in capsys.readouterr().out
    assert len({0, *seeds}) == 3


def test_a_run_without_a_statement_about_kernels_is_no_pass() -> None:
    assert main(["verify", "lemma-10", "--attention", SDPA]) == 3


def test_a_kernel_is_verified_on_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "lemma-3", "lemma-4", "--data", "figure-1c", "--attention", SDPA]) == 0
    assert "separable" in capsys.readouterr().out


def test_a_wrong_kernel_is_falsified_reproduced_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    source = f"{wrong_kernels.__name__}:scaled_by_root_d"
    assert whole_command(["verify", "lemma-3", "--attention", source, "--examples", "10", "--out", "failing"]) == 1
    printed = capsys.readouterr().out
    assert "1, 0.5, 0.25 in 1, 4, 16 dimensions = 1/√d" in printed
    line = re.search(r"Reproduce with: theorems (.*)", printed)
    assert line
    assert line[1].endswith(f"--attention {source} --dtype auto")
    assert main(line[1].split()) == 1


MODEL = """
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal

    def forward(self, Q, K, V):
        out = torch.nn.functional.scaled_dot_product_attention(Q, K, V, is_causal=self.causal)
        return out{wrong}


def get_inputs():
    return [torch.rand(2, 3, 8, 16) for _ in range(3)]


def get_init_inputs():
    return [False]
"""


def test_a_module_of_kernelbench_is_verified(capsys: pytest.CaptureFixture[str]) -> None:
    Path("right.py").write_text(MODEL.format(wrong=""))
    Path("wrong.py").write_text(MODEL.format(wrong=" * (1.01 if K.shape[-2] > 4 else 1.0)"))
    ids = ["kernel-output", "kernel-gradients", "kernel-default-scale", "lemma-3"]
    options = ["--examples", "3", "--dtype", "float64"]
    assert main(["verify", *ids, "--attention", "right.py:ModelNew", *options]) == 0
    assert "right.py:ModelNew: interface sdpa, float64" in capsys.readouterr().out
    assert main(["verify", *ids[:1], "--attention", "wrong.py:ModelNew", *options]) == 1
    (test,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("def test_kernel_output():"))
    namespace: dict[str, Any] = {"check_call": check_call}
    exec(test, namespace)
    with pytest.raises(AssertionError, match=r"^kernel-output: output at"):
        namespace["test_kernel_output"]()
    exec(test.replace("wrong.py", "right.py"), namespace)
    namespace["test_kernel_output"]()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("get_init_inputs", "other"), "model.py:ModelNew needs a function get_init_inputs() in its file"),
        (("[False]", "[]"), "model.py:ModelNew cannot be created with get_init_inputs(), TypeError: "),
        (
            ("Q, K, V):", "x):"),
            "the forward pass of model.py:ModelNew takes (x), but must take query, key and value",
        ),
    ],
)
def test_a_malformed_module_of_kernelbench_is_refused(
    change: tuple[str, str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("model.py").write_text(MODEL.format(wrong="").replace(*change))
    assert main(["verify", "kernel-output", "--attention", "model.py:ModelNew"]) == 2
    printed = capsys.readouterr().err
    assert says in printed
    assert printed.count("\n") == 1


def test_fail_fast_prints_at_most_twenty_lines(capsys: pytest.CaptureFixture[str]) -> None:
    source = "examples.real_faults.log_sum_exp:lse_in_base_two"
    given = ["kernel-log-sum-exp", "kernel-scale", "--attention", source, "--examples", "3", "--dtype", "float64"]
    assert main(["verify", *given, "--fail-fast"]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) <= 20
    assert printed[0].startswith(f"attention kernel {source}: interface")
    assert "perhaps the logarithm is to the base 2" in printed[2]
    assert any(line.startswith("  Reproduce with: theorems verify kernel-log-sum-exp") for line in printed)
    assert printed[-4:-2] == [
        "from attention_conformance import check_call",
        "from examples.real_faults.log_sum_exp import lse_in_base_two",
    ]
    assert printed[-2].startswith('def test_kernel_log_sum_exp(): check_call(lse_in_base_two, "falsified/kernel-log-')
    assert main(["verify", "kernel-scale", *given[2:], "--fail-fast"]) == 0
    assert "kernel-scale" in capsys.readouterr().out


SHIFTED = """
import torch
from torch.nn.functional import scaled_dot_product_attention as right

def shifted(query, key, value, is_causal=False, scale=None):
    '''Let causal queries see the next key.'''
    mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril(1) if is_causal else None
    return right(query, key, value, mask, scale=scale)
"""


def test_fail_fast_tries_no_other_capability_once_a_call_falsifies_one(capsys: pytest.CaptureFixture[str]) -> None:
    Path("shifted.py").write_text(SHIFTED)
    given = ["--attention", "shifted.py:shifted", "--dtype", "float64", "--examples", "25", "--json", "out.json"]
    assert main(["verify", *given, "--fail-fast"]) == 1
    assert "kernel-causal" in capsys.readouterr().out.splitlines()[-1]
    results = {result["id"]: result for result in read_results(Path("out.json").read_text())["statements"]}
    assert results["kernel-causal"]["verdict"] == "falsified"
    output = results["kernel-output"]
    assert output["verdict"] == "inconclusive"
    assert output["examples"] < 40
    assert "stopped by --fail-fast: a call fails, see kernel-causal" in str(output)


WRONG_BACKWARD = """
from torch.nn.functional import scaled_dot_product_attention as right

def attention(query, key, value, is_causal=False, scale=None):
    '''Return the right output, with the same number added to each entry of dK.'''
    return right(query, key, value, is_causal=is_causal, scale=scale) + (key - key.detach()).mean()
"""


def test_fail_fast_tries_the_output_no_further_once_a_gradient_is_wrong() -> None:
    Path("backward.py").write_text(WRONG_BACKWARD)
    given = ["--attention", "backward.py:attention", "--dtype", "float64", "--examples", "25", "--json", "out.json"]
    assert main(["verify", *given, "--fail-fast"]) == 1
    results = {result["id"]: result for result in read_results(Path("out.json").read_text())["statements"]}
    assert results["kernel-gradients"]["verdict"] == "falsified"
    assert results["kernel-output"]["verdict"] == "inconclusive"
    assert results["kernel-output"]["examples"] < 40
    assert "stopped by --fail-fast: a call fails, see kernel-gradients" in str(results["kernel-output"])


def test_a_profile_can_be_limited_to_some_statements(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "lemma-3", "--attention", SDPA, "--dtype", "float64", "--profile", "minute"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "8 cases of each statement; left out: triples of options, and more cases" in printed
    assert "1 statements tried" in printed
    assert main(["verify", "lemma-3", "--profile", "minute"]) == 2
    assert (
        "--profile selects checks of a kernel; give the kernel with --attention, and leave out --data."
        in capsys.readouterr().err
    )


def test_a_kernel_in_a_module_of_the_working_directory_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend("")  # restores sys.path afterwards
    (tmp_path / "kernel_of_mine.py").write_text(
        "import torch\n\n\nclass Softmax(torch.nn.Module):\n"
        "    def forward(self, q, k, v):\n        return torch.softmax(q @ k.mT, -1) @ v\n\n\n"
        "class Models:\n    first = Softmax()\n"
    )
    assert main(["verify", "lemma-3", "--attention", "kernel_of_mine:Models.first", "--examples", "2"]) == 0


@pytest.mark.parametrize("name", ["theorems.py", "generators.py", "reference_attention/__init__.py"])
def test_a_file_that_hides_a_package_is_refused_in_one_sentence(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", sys.path.copy())
    (tmp_path / "attention.py").write_text("def attend(q, k, v):\n    return v\n")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")
    assert main(["verify", "lemma-3", "--attention", "attention:attend"]) == 2
    printed = capsys.readouterr().err
    assert f"{tmp_path / name} hides the package {name.partition('/')[0].removesuffix('.py')!r}" in printed
    assert printed.count("\n") == 1
    assert str(tmp_path) not in sys.path


def test_the_help_names_the_options_for_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    main(["verify", "--help"])
    assert "--attention" in capsys.readouterr().out
    assert len(TOUCHING) >= 7
