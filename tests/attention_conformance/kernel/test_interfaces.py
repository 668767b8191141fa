"""Signatures of libraries: each is recognised, right kernels are called rightly, and a fault is caught under each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attention_conformance import attention_kernel
from attention_conformance.calls.attention_call import State
from attention_conformance.calls.call_builder import build_call
from attention_conformance.calls.call_space import FACTORS, NEUTRAL_PLAN, plans, size_of_array
from attention_conformance.calls.sizes_and_numbers import Numbers, Sizes, tensors
from attention_conformance.claims.call_claims import examine
from attention_conformance.interfaces import INTERFACES, recognise
from attention_conformance.kernel.check import verify_kernel
from attention_conformance.kernel.contract import SKIPS
from attention_conformance.kernel.kernel import Kernel
from attention_conformance.kernel.kernel_loader import kernel_named, kernel_of
from attention_conformance.kernel.report import headline
from attention_conformance.kernel.sizes import WIDTHS, Taken, describe_widths
from reference_attention.errors import InvalidInput
from tests.attention_conformance.kernel.signatures import (
    SIGNATURES,
    Signature,
    attend,
    flash_2,
    sdpa,
    tinygrad,
    triton,
)
from theorems.core.claim import Verdict

CALLS = 26
"""Number of calls for each kernel. Every :data:`STEP`-th of the calls in which all pairs of options occur is made,
shortened if it is long.
"""
STEP = 6


def falsified(kernel: Kernel, calls: int = CALLS, *, step: int = STEP, optional: bool = False) -> Iterator[str]:
    """Yield the names of the claims that a kernel's calls falsify, call by call.

    Args:
        kernel: the kernel.
        calls: the number of calls.
        step: every ``step``-th of the planned calls is made.
        optional: whether planned calls without any option are skipped, for a kernel that has options.

    Raises:
        Refused: the kernel refuses a call.
    """
    under_test = kernel.as_implementation()
    numbered = enumerate(plans(kernel.declares, 0, 2))
    names = [factor.name for factor in FACTORS if factor.is_option]
    if optional and kernel.declares & {
        level for factor in FACTORS if factor.is_option for level in factor.levels.values()
    }:
        numbered = (pair for pair in numbered if any(pair[1][name] != NEUTRAL_PLAN[name] for name in names))
    for number, plan in islice(numbered, 0, step * calls, step):
        lengths = plan["lengths"] if plan["lengths"] not in ("long", "decode") else "keys"
        call = kernel.suit(build_call({**plan, "lengths": lengths}, kernel.declares, number))
        yield from (claim.name for _, claim in examine(call, under_test) if claim.verdict is Verdict.FALSIFIED)


@pytest.mark.parametrize("signature", SIGNATURES.values(), ids=list(SIGNATURES))
def test_a_right_kernel_is_neither_refused_nor_misread_nor_falsified(signature: Signature) -> None:
    kernel = kernel_of(signature.make(attend))
    assert kernel.interface.name == signature.interface
    assert {*signature.claims} <= kernel.declares
    assert not list(falsified(kernel))


@pytest.mark.nightly
@pytest.mark.parametrize("signature", SIGNATURES.values(), ids=list(SIGNATURES))
def test_a_right_kernel_is_upheld_on_calls_with_every_pair_of_options(signature: Signature) -> None:
    kernel = kernel_of(signature.make(attend))
    assert not list(falsified(kernel, size_of_array(kernel.declares, 0, 2), step=1))


@pytest.mark.parametrize("signature", SIGNATURES.values(), ids=list(SIGNATURES))
def test_a_fault_is_caught_under_every_signature(signature: Signature) -> None:
    assert any(falsified(kernel_of(signature.make(signature.fault)), 2 * CALLS, optional=True))


def test_each_interface_has_a_signature_that_is_recognised() -> None:
    assert {signature.interface for signature in SIGNATURES.values()} | {"plain"} == {*INTERFACES}
    assert recognise(("x", "y", "z")).name == "plain"


# ---- parameters --------------------------------------------------------------------------------------------------


def test_three_tensors_and_an_optional_scale_are_taken_for_pytorch_s_signature() -> None:
    """With PyTorch's signature the default scale is tested, too."""

    def right(query: Tensor, key: Tensor, value: Tensor, scale: float | None = None) -> Tensor:
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, scale=scale)

    def wrong(query: Tensor, key: Tensor, value: Tensor, scale: float | None = None) -> Tensor:
        return right(query, key, value, 0.3 if scale is None else scale)

    assert kernel_of(right, "float64").interface.name == "sdpa"
    ids = ["kernel-default-scale", "kernel-scale"]
    for kernel, verdict in ((right, "upheld"), (wrong, "falsified")):
        results = verify_kernel(kernel, statements=ids, examples=3, dtype="float64")
        assert [str(result.verdict) for result in results] == [verdict, "upheld"], kernel.__name__


def test_a_kernel_may_be_named_by_its_file(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("def kernel(q, k, v):\n    return (q @ k.mT).softmax(-1) @ v\n")
    assert kernel_named(f"{file}:kernel").interface.name == "plain"
    with pytest.raises(InvalidInput, match="there is no such file"):
        kernel_named(f"{tmp_path / 'other.py'}:kernel")


# ---- sizes -------------------------------------------------------------------------------------------------------


def of_sizes(test: Any) -> Any:
    """Return a right kernel with PyTorch's signature that raises if ``test(query, key, value)`` is false."""
    right = sdpa(attend)

    def kernel(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        scale: float | None = None,
    ) -> Any:
        if not test(query, key, value):
            raise ValueError("not of these sizes")
        return right(query, key, value, attn_mask=attn_mask, is_causal=is_causal, scale=scale)

    return kernel


@pytest.mark.parametrize(
    ("test", "taken"),
    [
        (lambda q, k, v: q.shape[-1] % 8 == 0 == v.shape[-1] % 8, "widths in multiples of 8"),
        (lambda q, k, v: q.shape[-1] >= 32 and v.shape[-1] >= 32, "widths from 32"),
        (lambda q, k, v: q.shape[-1] <= 128 >= v.shape[-1], "widths up to 128"),
        (lambda q, k, v: q.shape[-1] in (64, 256) and v.shape == k.shape, "widths of 64, 256"),
        (lambda q, k, v: k.shape[2] % 16 == 0, "T in multiples of 16"),
        (lambda q, k, v: q.shape[2] == k.shape[2], "L = T"),
        (
            lambda q, k, v: q.shape[2] == k.shape[2] and k.shape[2] % 64 == 0 == q.shape[-1] % 16,
            "widths in multiples of 16, L in multiples of 64, T in multiples of 64, L = T",
        ),
        (lambda q, k, v: all(x.is_contiguous() for x in (q, k, v)), "contiguous tensors"),
    ],
)
def test_a_kernel_is_tested_at_sizes_that_it_accepts(test: Any, taken: str) -> None:
    kernel = kernel_of(of_sizes(test), "float64")
    assert str(kernel.taken) == taken
    assert f"it takes {taken} only: calls have such sizes" in headline(kernel)
    assert not list(falsified(kernel))


def test_a_call_padded_to_accepted_sizes_keeps_its_logits() -> None:
    call = tensors(Sizes(B=2, H=4, G=2, L=3, T=5, E=6, M=7), Numbers.NORMAL, seed=0)
    call = call.replace(visible=np.eye(3, 5, dtype=bool)[None, None])
    taken = Taken(widths=(8, 16, 64), queries=4, keys=16)
    made = taken.fit(call)
    assert [made.sizes[axis] for axis in "LTEM"] == [4, 16, 8, 8]
    logits = made.query @ np.swapaxes(np.repeat(made.key, 2, axis=1), -1, -2)
    own = call.query @ np.swapaxes(np.repeat(call.key, 2, axis=1), -1, -2)
    assert logits[:, :, :3, :5] == pytest.approx(own)
    assert not made.upstream[:, :, 3:].any()
    assert taken.fit(made) is made
    assert made.visible is not None
    assert made.visible.any(axis=-1).all()


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        (tuple(w for w in WIDTHS if w % 8 == 0 and w <= 128), "in multiples of 8 up to 128"),
        (tuple(w for w in WIDTHS if 16 <= w <= 128), "from 16 up to 128"),
        ((64, 256), "of 64, 256"),
    ],
)
def test_accepted_widths_are_described_in_words(widths: tuple[int, ...], message: str) -> None:
    assert describe_widths(widths) == message


# ---- contracts ---------------------------------------------------------------------------------------------------


def test_a_fixed_scale_is_recognised() -> None:
    kernel = kernel_of(tinygrad(attend))
    assert kernel.fixed_scale
    assert "its scale is 1/√E, and no parameter changes it" in headline(kernel)
    weights = kernel.weights(np.array([[[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]]]), np.array([[[1.0, 2.0, 0.5]]]))
    due = np.exp([2.0, 2.5])
    assert weights[0, 0] == pytest.approx(due / due.sum())


def test_padded_log_sum_exps_are_recognised() -> None:
    kernel = kernel_of(flash_2(attend))
    assert kernel.lse_multiple == 128
    assert "its log-sum-exps are padded to multiples of 128 rows" in headline(kernel)


def skipping(share: float, declared: float) -> Any:
    """Return a kernel that skips weights below ``share`` of the largest, and declares that it skips those below
    ``declared`` of the largest.
    """

    def kernel(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        logits = query @ keys.mT
        below = logits - logits.amax(dim=-1, keepdim=True) < math.log(share)
        return logits.masked_fill(below, -torch.inf).softmax(dim=-1) @ values

    setattr(kernel, SKIPS, declared)
    return attention_kernel(layout="bhld", causal="never", scale=1.0)(kernel)


def test_weights_may_be_left_out_only_up_to_the_declared_share() -> None:
    kernel = kernel_of(skipping(2.0**-12, 2.0**-12), "float64")
    assert "weights below 0.00024 of the largest may be left out, as it declares" in headline(kernel)
    assert not list(falsified(kernel))
    for skips, declared in ((2.0**-6, 2.0**-12), (2.0**-12, 0.0)):
        assert "output-is-attention" in falsified(kernel_of(skipping(skips, declared), "float64"))


def under_sdpa(change: Any = lambda output, options: output, **fixed: Any) -> Kernel:
    """Return a kernel with PyTorch's signature that computes attention with the options ``fixed``, and then changes the
    output by ``change(output, options)``.
    """

    def core(*arguments: Any, **options: Any) -> Any:
        output, lse = attend(*arguments, **options | fixed)
        return change(output, options), lse

    return kernel_of(sdpa(core))


@pytest.mark.parametrize("empty", ["zeros", "mean"])
def test_rows_without_visible_keys_may_be_zeros_or_the_mean_of_the_values(empty: str) -> None:
    kernel = under_sdpa(empty=empty)
    call = tensors(Sizes(B=2, H=2, G=2, L=4, T=4, E=8, M=8), Numbers.NORMAL, seed=0)
    call = call.replace(visible=np.tri(4, k=-1, dtype=bool))
    claims = {claim.name: claim for _, claim in examine(call, kernel.as_implementation())}
    assert {claim.verdict for claim in claims.values()} == {Verdict.UPHELD}
    assert claims["rows-that-see-nothing"].branch == empty


def test_rows_without_visible_keys_that_follow_no_convention_are_falsified() -> None:
    kernel = under_sdpa(lambda output, options: output if options["mask"] is None else output * 0.9, empty="mean")
    assert "rows-that-see-nothing" in falsified(kernel, 2 * CALLS, optional=True)


def of_noise(at_all_times: bool) -> Any:
    """Return a kernel with flash-attn's signature whose last bits vary from call to call; with ``deterministic=True``
    they do so only if ``at_all_times``.
    """

    def kernel(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, deterministic: bool = False) -> Tensor:
        output = attend(*(x.transpose(1, 2) for x in (q, k, v)), scale=1.0, causal=causal)[0].transpose(1, 2)
        if deterministic and not at_all_times:
            return output
        return output * (1 + 2.0**-52 * torch.randint(2, output.shape, dtype=output.dtype))

    return kernel


@pytest.mark.parametrize("at_all_times", [False, True])
def test_last_bits_may_vary_unless_a_kernel_is_called_as_deterministic(at_all_times: bool) -> None:
    kernel = kernel_of(of_noise(at_all_times), "float64")
    call = tensors(Sizes(B=2, H=2, G=2, L=4, T=4, E=8, M=8), Numbers.NORMAL, seed=0).replace(state=State.TWICE)
    claims = [claim for _, claim in examine(call, kernel.as_implementation())]
    assert "same-bits" in {claim.name for claim in claims}
    wrong = {claim.name for claim in claims if claim.verdict is Verdict.FALSIFIED}
    assert wrong == ({"same-bits"} if at_all_times else set())


def test_the_sizes_that_a_triton_kernel_accepts_are_found() -> None:
    kernel = kernel_of(triton(attend))
    assert (kernel.taken.widths, kernel.taken.keys, kernel.taken.equal) == ((16, 32, 64, 128, 256), 64, True)


@pytest.mark.parametrize(("power", "verdict"), [(-0.5, Verdict.UPHELD), (-0.25, Verdict.FALSIFIED)])
def test_a_transformers_function_with_optional_scaling_has_a_default_scale(power: float, verdict: Verdict) -> None:
    def attention(
        module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, scaling: Any = None, **options: Any
    ) -> tuple[Tensor, None]:
        scale = query.shape[-1] ** power if scaling is None else scaling
        attend = torch.nn.functional.scaled_dot_product_attention
        given = {"attn_mask": attention_mask, "scale": scale, "enable_gqa": True}
        return attend(query, key, value, **given).transpose(1, 2), None

    (result,) = verify_kernel(attention, statements=["kernel-default-scale"], examples=5, dtype="float64")
    assert result.verdict is verdict, result.reason
