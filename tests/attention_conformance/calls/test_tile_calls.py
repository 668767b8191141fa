"""Calls of several tiles falsify kernels that go wrong from one tile to the next, in every format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import pytest
import torch
from torch import Tensor

from attention_conformance.calls.call_builder import build_call
from attention_conformance.calls.call_space import FACTORS, NEUTRAL_PLAN, fixed_plans
from attention_conformance.calls.tile_calls import WIDTHS, tile_plans
from attention_conformance.claims.call_claims import examine
from attention_conformance.kernel.kernel_loader import kernel_of
from theorems.core.claim import Verdict

SDPA = torch.nn.functional.scaled_dot_product_attention
FORMATS = ("float64", "float32", "bfloat16", "float16")
DECLARES = frozenset({"causal", "causal-rectangle", "grouped-heads", "scale", "default-scale", "window"})


def right(query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False, scale: float | None = None) -> Tensor:
    return SDPA(query, key, value, is_causal=is_causal, scale=scale)


def statistics_begin_anew(
    query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False, scale: float | None = None
) -> Tensor:
    if not is_causal or query.shape[3] != 128:
        return right(query, key, value, is_causal, scale)
    i, j = torch.arange(query.shape[2])[:, None], torch.arange(key.shape[2])
    see = (j <= i) & (j // 128 == i.clamp(max=key.shape[2] - 1) // 128)
    return SDPA(query, key, value, see, scale=scale)


def third_tile_is_lost(
    query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False, scale: float | None = None
) -> Tensor:
    if is_causal or query.shape[3] < 128:
        return right(query, key, value, is_causal, scale)
    return right(query, key[:, :, :256], value[:, :, :256], is_causal, scale)


def gradient_of_the_second_tile_is_lost(
    query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False, scale: float | None = None
) -> Tensor:
    tiles = value.split(64, dim=2)
    value = torch.cat([tile.detach() if k == 1 else tile for k, tile in enumerate(tiles)], dim=2)
    return right(query, key, value, is_causal, scale)


def falsified(kernel: Callable[..., Tensor], dtype: str, seed: int) -> Iterator[str]:
    """Yield the names of the claims that are falsified on calls of several tiles."""
    under_test = kernel_of(kernel, dtype).as_implementation()
    declares = under_test.kernel.declares
    levels = {factor.name: factor.of(declares) for factor in FACTORS}
    for k, plan in enumerate(tile_plans(NEUTRAL_PLAN, levels, declares, seed)):
        call = under_test.kernel.suit(build_call(plan, declares, k))
        yield from (claim.name for _, claim in examine(call, under_test) if claim.verdict is Verdict.FALSIFIED)


@pytest.mark.parametrize(("dtype", "seed"), list(product(FORMATS, (0, 1, 3))))
@pytest.mark.parametrize(
    ("kernel", "claim"),
    [
        (statistics_begin_anew, "output-is-attention"),
        (third_tile_is_lost, "output-is-attention"),
        (gradient_of_the_second_tile_is_lost, "value-gradient"),
    ],
)
def test_a_kernel_that_goes_wrong_between_tiles_is_falsified(
    kernel: Callable[..., Tensor], claim: str, dtype: str, seed: int
) -> None:
    assert next((name for name in falsified(kernel, dtype, seed) if name == claim), "") == claim


@pytest.mark.parametrize("dtype", FORMATS)
def test_no_claim_is_falsified_on_a_right_kernel(dtype: str) -> None:
    assert list(falsified(right, dtype, 2)) == []


def test_every_width_occurs_with_every_option_whole_and_ragged_before_the_covering_array() -> None:
    for seed in range(10):
        plans = [plan for plan in fixed_plans(DECLARES, seed) if plan["numbers"] in ("tiles", "blocks")]
        kinds = set()
        for plan in plans:
            L, T = map(int, plan["lengths"].split("x"))
            option = next((name for name in ("causal", "window") if plan[name] != "none"), plan["group"])
            kinds.add((plan["width"], option, L % 64 == 0 == T % 64))
            assert min(L, T) > 128 or max(L, T) >= 4500
        assert kinds >= set(product(WIDTHS, ("single", "causal", "window", "grouped"), (True, False)))
