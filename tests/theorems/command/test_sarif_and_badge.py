"""``verify --report FILE.sarif`` and ``--badge``: the files for code scanning and for shields.io."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from theorems.command.app import main
from theorems.command.badge import badge_text
from theorems.command.sarif import sarif_text
from theorems.core.claim import Verdict
from theorems.run.registry.suite import capabilities
from theorems.run.result import Result

HERE = "examples.real_faults.log_sum_exp:lse_in_base_two"


def result(id: str, verdict: Verdict, **more: Any) -> Result:
    return Result(id, f"title of {id}", {verdict: 1}, touched=("attend",), **more)


ALL = [
    result("kernel-output", Verdict.UPHELD),
    result("kernel-scale", Verdict.FALSIFIED),
    result("kernel-causal", Verdict.INCONCLUSIVE),
    Result("kernel-window", "", {Verdict.NOT_APPLICABLE: 1}, generated=False),
    result("lemma-3", Verdict.FALSIFIED),
]


def check_structure(values: dict[str, Any]) -> None:
    """Assert what SARIF 2.1.0 requires of the properties that we write, and which levels it allows for each kind."""
    assert values["version"] == "2.1.0"
    assert values["$schema"].endswith("sarif-schema-2.1.0.json")
    (run,) = values["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert isinstance(run["tool"]["driver"]["name"], str)
    assert len({rule["id"] for rule in rules}) == len(rules)
    assert all(rule["shortDescription"]["text"] for rule in rules)
    assert all(isinstance(item["executionSuccessful"], bool) for item in run["invocations"])
    for item in run["results"]:
        assert rules[item["ruleIndex"]]["id"] == item["ruleId"]
        assert item["message"]["text"]
        assert item["kind"] in ("pass", "open", "fail", "notApplicable", "review", "informational")
        assert item["level"] in (("note", "warning", "error") if item["kind"] == "fail" else ("none",))
        for place in item["locations"]:
            physical = place.get("physicalLocation")
            assert physical is None or physical["artifactLocation"]["uri"][0] != "/"
            assert physical is None or physical["region"]["startLine"] >= 1
            assert all({"name", "fullyQualifiedName"} & {*logical} for logical in place["logicalLocations"])
        for suppressed in item.get("suppressions", ()):
            assert suppressed["kind"] in ("inSource", "external")
            assert isinstance(suppressed["justification"], str)


@pytest.mark.parametrize("kernel", [None, HERE, "jax:jax.nn:dot_product_attention"])
def test_each_verdict_except_upheld_gives_a_result(kernel: str | None) -> None:
    record = json.loads(sarif_text(ALL, kernel, {"lemma-3": "an approximation"}))
    check_structure(record)
    result = {item["ruleId"]: item for item in record["runs"][0]["results"]}
    assert {id: (item["kind"], item["level"]) for id, item in result.items()} == {
        "kernel-scale": ("fail", "error"),
        "kernel-causal": ("open", "none"),
        "lemma-3": ("fail", "error"),
    }
    assert result["lemma-3"]["suppressions"] == [{"kind": "external", "justification": "an approximation"}]
    assert "suppressions" not in result["kernel-scale"]


def test_a_level_that_sarif_forbids_for_a_kind_is_caught() -> None:
    record = json.loads(sarif_text(ALL, None, {}))
    record["runs"][0]["results"][1]["level"] = "warning"
    with pytest.raises(AssertionError):
        check_structure(record)


def test_the_location_is_the_definition_of_the_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("src/mine").mkdir(parents=True)
    Path("src/mine/attention.py").write_text("import torch\n\n\ndef kernel(q, k, v):\n    return v\n\nother = kernel\n")

    def place(kernel: str) -> Any:
        record = json.loads(sarif_text(ALL, kernel, {}))
        check_structure(record)
        return record["runs"][0]["results"][0]["locations"][0].get("physicalLocation")

    uri = {"artifactLocation": {"uri": "src/mine/attention.py"}}
    assert place("mine.attention:kernel") == uri | {"region": {"startLine": 4}}
    assert place("numpy:mine.attention:other") == uri | {"region": {"startLine": 7}}
    assert place("mine.attention:missing") == uri | {"region": {"startLine": 1}}
    assert place("elsewhere.attention:kernel") is None


def test_the_badge_counts_the_checked_cases() -> None:
    def badge(results: list[Result]) -> tuple[str, str]:
        record = json.loads(badge_text(results))
        assert (record["schemaVersion"], record["label"]) == (1, "attention")
        return record["message"], record["color"]

    assert {"kernel-output", "kernel-scale", "kernel-causal", "kernel-window"} <= {*capabilities()}
    assert badge(ALL) == ("1 of 3 capabilities", "red")
    assert badge([ALL[0], ALL[2]]) == ("1 of 2 capabilities", "yellow")
    assert badge([ALL[0], ALL[3]]) == ("1 of 1 capabilities", "brightgreen")
    assert badge([ALL[3], ALL[4]]) == ("not tested", "lightgrey")


def test_a_run_writes_sarif_and_badge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--report", str(tmp_path / "a.sarif"), "--badge", str(tmp_path / "badge.json"), "--out", str(tmp_path)]
    ids = ["kernel-log-sum-exp", "kernel-output", "--examples", "2", "--jobs", "0"]
    assert main(["verify", *ids, "--attention", HERE, *files]) == 1
    record = json.loads((tmp_path / "a.sarif").read_text(encoding="utf-8"))
    check_structure(record)
    (one,) = record["runs"][0]["results"]
    assert one["ruleId"] == "kernel-log-sum-exp"
    assert "is due" in one["message"]["text"]
    assert json.loads((tmp_path / "badge.json").read_text(encoding="utf-8"))["message"] == "1 of 2 capabilities"
    assert main(["verify", "lemma-3", "--badge", str(tmp_path / "badge.json")]) == 2
    assert "--badge counts the capabilities of a kernel" in capsys.readouterr().err
