"""Kernels that are wrong only through ``torch.compile``, or in one of thousands of equal calls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import attention_conformance.claims.call_shrinker
from attention_conformance import check_call
from attention_conformance.calls.attention_call import REPEATS, AttentionCall, State
from attention_conformance.calls.call_text import npz_of
from attention_conformance.claims.call_claims import examine
from attention_conformance.claims.long_states import EACH_TIME, RETURNS
from attention_conformance.kernel.check import verify_kernel
from attention_conformance.kernel.kernel_loader import kernel_of
from examples import kernels
from tests.attention_conformance.claims import compiled_kernels, forgetful_kernels
from theorems.core.claim import Verdict

pytestmark = pytest.mark.compiler

SDPA = torch.nn.functional.scaled_dot_product_attention


@pytest.fixture(autouse=True)
def _little_shrinking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_conformance.claims.call_shrinker, "TRIALS", 4)


def small_call(state: State, **options: object) -> AttentionCall:
    rng = np.random.default_rng(0)
    query, key, value = (rng.standard_normal((2, 2, length, 4)) for length in (4, 5, 5))
    return AttentionCall(query, key, value, rng.standard_normal((2, 2, 4, 4)), state=state, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "claim"),
    [
        ("mask_dropped", "output-is-attention"),
        ("first_length", "output-is-attention"),
        ("written_unsaid", "output-is-attention"),
        ("strides_of_another", RETURNS),
        ("scale_of_backward", "query-gradient"),
    ],
)
def test_faults_of_compiled_kernels_are_caught_and_attributed_to_the_compiler(name: str, claim: str) -> None:
    under_test = kernel_of(getattr(compiled_kernels, name)).as_implementation()
    mask = {"visible": np.tri(4, 5, dtype=bool)} if name == "mask_dropped" else {}
    claims = list(examine(small_call(State.COMPILED, scale=0.5, **mask), under_test))
    falsified = [(about, item.name) for about, item in claims if item.verdict is Verdict.FALSIFIED]
    assert ("compiled", claim) in falsified
    assert {about for about, _ in falsified} == {"compiled"}


def test_a_compiled_call_can_be_drawn_and_shrunk() -> None:
    (result,) = verify_kernel(compiled_kernels.written_unsaid, statements=["kernel-compiled"], examples=5)
    assert result.verdict is Verdict.FALSIFIED
    assert result.failure is not None
    assert '"state": "compiled"' in result.failure.case


def test_a_kernel_that_cannot_be_compiled_is_reported_and_not_falsified() -> None:
    kernel = kernel_of(compiled_kernels.not_traced)
    assert "torch.compile cannot compile the kernel: " in kernel.as_implementation().describe().headline
    (result,) = verify_kernel(kernel, statements=["kernel-compiled"])
    assert result.verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
@pytest.mark.parametrize("kernel", [SDPA, kernels.handwritten, kernels.pytorch_sdpa])
def test_right_kernels_are_upheld_through_the_compiler(kernel: object, dtype: str) -> None:
    under_test = kernel_of(kernel, dtype).as_implementation()  # type: ignore[arg-type]
    claims = list(examine(small_call(State.COMPILED), under_test))
    assert {claim.verdict for _, claim in claims} == {Verdict.UPHELD}
    assert any(about == "compiled" and claim.branch == "backend aot_eager" for about, claim in claims)


@pytest.mark.parametrize("name", ["thousandth", "one_in_a_thousand", "not_cleared"])
def test_a_fault_in_one_of_a_thousand_calls_is_caught(name: str) -> None:
    under_test = kernel_of(getattr(forgetful_kernels, name), deep=True).as_implementation()
    # The first call is right, so only the claim about thousands of equal calls fails.
    (claim,) = (item for _, item in examine(small_call(State.MANY), under_test) if item.name == EACH_TIME)
    assert claim.verdict is Verdict.FALSIFIED
    assert f"of {REPEATS} equal calls are wrong, the worst by" in claim.detail


@pytest.mark.parametrize("options", [{}, {"visible": np.zeros((4, 5), dtype=bool)}])
def test_a_kernel_that_adds_keys_in_another_order_in_each_call_is_upheld(options: dict[str, object]) -> None:
    kernel = kernel_of(forgetful_kernels.other_order if not options else SDPA, deep=True)
    claims = list(examine(small_call(State.MANY, **options), kernel.as_implementation()))
    assert {claim.verdict for _, claim in claims} == {Verdict.UPHELD}


def test_thousands_of_equal_calls_are_planned_only_in_the_deep_profile() -> None:
    quick, deep = (kernel_of(kernels.handwritten, deep=deep).declares for deep in (False, True))
    assert "compiled" in quick
    assert "thousands" in deep - quick


@pytest.mark.parametrize(
    ("kernel", "capability", "state"),
    [
        ("compiled_kernels:first_length", "compiled", State.COMPILED),
        ("forgetful_kernels:not_cleared", "repeated-calls", State.MANY),
    ],
)
def test_a_saved_call_that_is_compiled_or_repeated_fails_again(
    kernel: str, capability: str, state: State, tmp_path: Path
) -> None:
    file = tmp_path / "call.npz"
    file.write_bytes(npz_of(small_call(state), case_of=f"kernel-{capability}"))
    with pytest.raises(AssertionError, match=f"kernel-{capability}: output at .* is due"):
        check_call(f"tests.attention_conformance.claims.{kernel}", file)
