"""The reasons why certain statements do not catch certain faults."""

from __future__ import annotations

from theorems.faults import FAULTS, Kind
from theorems.faults.survival_reasons import survivors, why_survived
from theorems.run.registry.suite import statements


def test_every_reason_names_a_statement_and_a_fault() -> None:
    assert set(survivors()) <= set(statements())
    known = {*FAULTS, *map(str, Kind)}
    assert {name for reasons in survivors().values() for name in reasons} <= known


def test_a_reason_is_looked_up_by_the_fault_s_name_and_then_by_its_kind() -> None:
    fault = FAULTS["gradient-too-long"]
    assert why_survived(fault, "lemma-5", {}) == survivors()["lemma-5"]["gradient-too-long"]
    assert why_survived(fault, "lemma-99", {}) == ""
    own = {str(fault.kind): "no gradient enters"}
    assert why_survived(fault, "lemma-99", own) == "no gradient enters"
    assert why_survived(fault, "lemma-99", own, undecided=True) == ""
    assert why_survived(fault, "lemma-5", {fault.name: "said in the file"}) == "said in the file"
