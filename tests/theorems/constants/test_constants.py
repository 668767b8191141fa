"""Each constant of the table is weakened by its stored share on its stored case, on which a claim must then fail.

A new constant is measured by ``python -m tests.theorems.constants ID --write``.
"""

from __future__ import annotations

import pytest

from tests.theorems.constants.measuring import Witness, case_from, constants_of, failing, ids, stored_witnesses
from tests.theorems.constants.table import CONSTANTS, WITNESSES
from tests.theorems.constants.weakening import Constant
from theorems.run.registry.lookup import statement_named

KEPT = [
    pytest.param(constant, witness, id=f"{id} {constant.key}")
    for id in ids()
    for constant in constants_of(id)
    if (witness := stored_witnesses(id).get(constant.key)) is not None
]


@pytest.mark.parametrize(("constant", "witness"), KEPT)
def test_a_weakened_constant_falsifies_a_claim(constant: Constant, witness: Witness) -> None:
    case = case_from(witness.case)
    assert failing(witness.id, case, constant, witness.share) == witness.claim
    assert failing(witness.id, case, constant, 0.0) == ""


def test_a_constant_whose_weakening_no_case_refutes_has_a_reason() -> None:
    missing = [f"{id}: {item.key}" for id in ids() for item in constants_of(id) if item.key not in stored_witnesses(id)]
    assert missing == []
    silent = [
        f"{id}: {item.key}" for id in ids() for item in constants_of(id) if stored_witnesses(id)[item.key] is None
    ]
    unsaid = [
        f"{id}: {item.key}"
        for id in ids()
        for item in constants_of(id)
        if stored_witnesses(id)[item.key] or item.unseen
    ]
    assert {*silent} <= {*unsaid}


def test_results_are_stored_for_exactly_the_constants_of_the_table() -> None:
    for id in ids():
        assert set(stored_witnesses(id)) == {item.key for item in constants_of(id)}


def test_names_in_the_table_exist_and_are_unique() -> None:
    assert len({(item.key, item.ids) for item in CONSTANTS}) == len(CONSTANTS)
    for id in {*ids(), *WITNESSES}:
        assert statement_named(id).id == id
    for item in CONSTANTS:
        assert item.attribute in vars(item.owner)
