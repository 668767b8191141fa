"""Calls of attention kernels as JSON and .npz: the same floats are read back, and what is not a call is refused in one
sentence.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.nn.functional import scaled_dot_product_attention

from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.calls.call_text import call_of, npz_of, text_of
from reference_attention.errors import InvalidInput
from reference_attention.files import from_json, read_named_values
from theorems import check_attention, verify
from theorems.command.app import main
from theorems.core.claim import Verdict
from theorems.run.registry.suite import capabilities
from theorems.run.verify import draw_cases

CALL: dict[str, Any] = {
    "query": [[[[1.0]]]],
    "key": [[[[1.0], [2.0]]]],
    "value": [[[[1.0], [2.0]]]],
    "upstream": [[[[1.0]]]],
}


@pytest.mark.parametrize("id", capabilities())
def test_a_call_survives_a_round_trip_as_text_and_as_npz(id: str, tmp_path: Path) -> None:
    file = tmp_path / "call.npz"
    for call in draw_cases(capabilities()[id], 6, 0):
        file.write_bytes(npz_of(call, case_of=id, claim="a claim", kernel_dtype="float32"))
        with np.load(file, allow_pickle=False) as arrays:
            assert [str(arrays[name]) for name in ("case_of", "claim", "kernel_dtype")] == [id, "a claim", "float32"]
            assert arrays["seed"] == call.seed
        for again in (call_of(from_json(text_of(call, case_of=id))), call_of(read_named_values(file))):
            for field in fields(AttentionCall):
                held, result = getattr(call, field.name), getattr(again, field.name)
                if isinstance(held, np.ndarray):
                    assert np.array_equal(np.broadcast_to(held, result.shape), result), field.name
                else:
                    assert held == result, field.name


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"memory": "foo"}, "memory: must be one of contiguous"),
        ({"scale": "x"}, "scale: must be a finite number"),
        ({"scale": True}, "scale: must be a finite number"),
        ({"window": [1]}, "window: must be two whole numbers"),
        ({"softcap": -1.0}, "softcap: must be a finite number that is not negative"),
        ({"causal": 1}, "causal: must be true or false"),
        ({"seed": 0.5}, "seed: must be a whole number"),
        ({"name": 3}, "name: must be text"),
        ({"visible": [[1.0, 0.0, 1.0]]}, "visible: does not broadcast"),
        ({"queries": 1}, "unknown name 'queries'. Did you mean 'query'?"),
        ({"key": [[[[1.0, 2.0]]]]}, "key: "),
    ],
)
def test_text_that_is_not_a_call_is_refused_in_one_sentence(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        call_of(CALL | changed)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("given", [["explain"], ["bench"]])
def test_commands_without_a_kernel_refuse_a_call(
    given: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "call.json"
    path.write_text(json.dumps(CALL))
    assert main([*given, "--data", str(path)]) == 2
    assert "holds a call of an attention kernel" in capsys.readouterr().err


def test_a_statement_on_data_of_another_kind_does_not_apply() -> None:
    """Lemmas are about keys and scores; statements such as ``kernel-output`` are about calls of a kernel."""
    results = verify("lemma-3", "lemma-4", "kernel-output", data=CALL, attention=scaled_dot_product_attention)
    assert [result.verdict for result in results] == [Verdict.NOT_APPLICABLE] * 2 + [Verdict.UPHELD]
    assert "the data are a call of an attention kernel" in results["lemma-3"].reason
    with pytest.raises(InvalidInput, match="figure-1a holds a problem, and kernel-output is about a call"):
        verify("kernel-output", data="figure-1a", attention=scaled_dot_product_attention)


def test_a_failing_call_is_stored_in_the_result() -> None:
    def halved(query: Any, keys: Any, values: Any) -> Any:
        return (query @ keys.mT).softmax(dim=-1) @ values / 2

    result = check_attention(halved, "kernel-output", examples=5)
    call = result.case("kernel-output")
    assert isinstance(call, AttentionCall)
    assert verify("kernel-output", data=call, attention=halved).verdict is Verdict.FALSIFIED
