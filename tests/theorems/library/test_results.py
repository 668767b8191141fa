"""Results of the library: verdict, errors raised, display, and equality with the results of the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import ValidationError
from threadpoolctl import threadpool_info, threadpool_limits

from reference_attention.risk import risk
from tests.verify_schema import read_results
from theorems.command.app import main
from theorems.core.claim import Form, Verdict
from theorems.core.exit_code import Exit
from theorems.core.implementation import REFERENCE
from theorems.library.results import Results
from theorems.library.verify import check_attention, verify
from theorems.run.result import ClaimSummary, Result

UPHELD, FALSIFIED = Verdict.UPHELD, Verdict.FALSIFIED
NOT_APPLICABLE, INCONCLUSIVE = Verdict.NOT_APPLICABLE, Verdict.INCONCLUSIVE


def of(*verdicts: Verdict, bad_input: str = "") -> Results:
    """Return results with a statement of each verdict."""
    return Results(
        tuple(
            Result(f"s-{k}", "1 < 2 & <b>", {verdict: 1}, generated=False, bad_input=bad_input)
            for k, verdict in enumerate(verdicts)
        )
    )


@pytest.mark.parametrize(
    ("verdicts", "verdict", "code"),
    [
        ((UPHELD, UPHELD), UPHELD, Exit.UPHELD),
        ((NOT_APPLICABLE, UPHELD), UPHELD, Exit.UPHELD),
        ((UPHELD, INCONCLUSIVE, NOT_APPLICABLE), INCONCLUSIVE, Exit.INCONCLUSIVE),
        ((UPHELD, INCONCLUSIVE, FALSIFIED), FALSIFIED, Exit.FALSIFIED),
        ((NOT_APPLICABLE,), NOT_APPLICABLE, Exit.INCONCLUSIVE),
        ((), NOT_APPLICABLE, Exit.INCONCLUSIVE),
    ],
)
def test_the_gravest_verdict_decides_and_no_applicable_statement_is_no_pass(
    verdicts: tuple[Verdict, ...], verdict: Verdict, code: Exit
) -> None:
    results = of(*verdicts)
    assert (results.verdict, results.exit_code) == (verdict, code)
    if verdict is UPHELD:
        assert results.raise_unless_upheld() is results
    else:
        with pytest.raises(AssertionError):
            results.raise_unless_upheld()
    if verdict is FALSIFIED:
        with pytest.raises(AssertionError, match=r"s-2 .*falsified"):
            results.raise_if_falsified()
    else:
        assert results.raise_if_falsified() is results


def test_data_that_a_statement_refuses_are_bad_input_unless_another_is_falsified() -> None:
    assert of(INCONCLUSIVE, UPHELD, bad_input="scores: too large.").exit_code is Exit.BAD_INPUT
    assert of(INCONCLUSIVE, FALSIFIED, bad_input="scores: too large.").exit_code is Exit.FALSIFIED


def test_a_result_is_found_by_id_or_by_number() -> None:
    results = of(UPHELD, FALSIFIED)
    assert results["s-1"] is results[1] is [*results][1]
    assert results.falsified_results == (results[1],)
    assert len(results) == 2
    with pytest.raises(KeyError):
        results["s-2"]


def test_the_repr_names_few_statements_and_counts_many() -> None:
    assert repr(of(UPHELD, FALSIFIED, UPHELD)) == "Results(falsified: s-1; upheld: s-0, s-2)"
    assert repr(of(*[UPHELD] * 5, INCONCLUSIVE)) == "Results(inconclusive: s-5; upheld: 5 statements)"


def test_a_notebook_shows_a_table_with_escaped_text() -> None:
    claim = ClaimSummary("rate", Form.LIMIT, 0.5, 0.25, "exact", UPHELD)
    shown = Results((Result("s", "1 < 2 & <b>", {UPHELD: 1}, (claim,)),))._repr_html_()
    assert "<td>1 &lt; 2 &amp; &lt;b&gt;</td>" in shown
    assert "<td>0.5 ≥ -0.25 (rate)</td>" in shown
    assert shown.count("<tr>") == 2
    assert "color" not in shown


def test_results_equal_those_of_the_command(tmp_path: Path) -> None:
    ids = ("lemma-3", "lemma-11")
    written = tmp_path / "results.json"
    assert main(["verify", *ids, "--examples", "7", "--seed", "3", "--json", str(written)]) == 0
    assert without_seconds(written.read_text()) == without_seconds(verify(*ids, examples=7, seed=3).to_json())
    assert without_seconds(written.read_text()) != without_seconds(verify(*ids, examples=7, seed=4).to_json())


def test_results_on_data_equal_those_of_the_command(tmp_path: Path) -> None:
    written = tmp_path / "results.json"
    assert main(["verify", "lemma-4", "lemma-5", "--data", "figure-1a", "--json", str(written)]) == 0
    assert without_seconds(written.read_text()) == without_seconds(verify("figure-1a", "lemma-4", "lemma-5").to_json())


def without_seconds(text: str) -> dict[str, object]:
    """Return the report without the entries that depend on the clock."""
    results = read_results(text)
    for statement in results["statements"]:
        del statement["seconds"]
    return results


def _with_further_field(results: dict[str, Any]) -> None:
    results["statements"][0]["further"] = 1


def _without_number_of_schema(results: dict[str, Any]) -> None:
    del results["schema"]


def _with_another_verdict(results: dict[str, Any]) -> None:
    results["statements"][0]["claims"][0]["verdict"] = "true"


@pytest.mark.parametrize("change", [_with_further_field, _without_number_of_schema, _with_another_verdict])
def test_the_json_schema_refuses_unknown_fields(change: Callable[[dict[str, Any]], None]) -> None:
    results = read_results(verify("lemma-11", examples=1).to_json())
    change(results)
    with pytest.raises(ValidationError):
        read_results(json.dumps(results))


def test_a_wrong_kernel_raises_the_report_with_the_smallest_case() -> None:
    def too_warm(query, keys, values):  # type: ignore[no-untyped-def]
        return (query @ keys.mT / 2).softmax(dim=-1) @ values

    results = check_attention(too_warm, "lemma-3", examples=5)
    with pytest.raises(AssertionError) as raised:
        results.raise_if_falsified()
    for message in (
        "attention kernel ",
        "lemma-3 (Softmax covariance (key lemma)): falsified, the smallest failing case found",
        "Reproduce with: verify('lemma-3', examples=5, seed=0, attention=…, dtype='auto')",
        "The kernel multiplies k·p by 0.5, 0.5, 0.5",
    ):
        assert message in str(raised.value)
    case = results.case("lemma-3")
    assert case is not None
    assert case.problem.keys.shape == (1, 2, 1)
    assert verify(case, "lemma-3", attention=too_warm).verdict is FALSIFIED
    assert verify(case, "lemma-3").verdict is UPHELD
    written = read_results(results.to_json())
    assert written["kernel"]["dtype"] == "float64"
    assert written["statements"][0]["touched"] == ["risk", "scaled_gradient", "weights"]
    assert "falsified" in results._repr_html_()


def test_blas_has_one_thread_in_the_library_as_in_the_command() -> None:
    threads = set()

    def watched(*arguments: Any) -> Any:
        threads.update(item["num_threads"] for item in threadpool_info() if item["user_api"] == "blas")
        return risk(*arguments)

    with threadpool_limits(2, "blas"):
        verify("lemma-6", examples=1, attention=REFERENCE.replace("watched", {risk: watched}))
        assert threads == {1}
        assert {item["num_threads"] for item in threadpool_info() if item["user_api"] == "blas"} != {1}
