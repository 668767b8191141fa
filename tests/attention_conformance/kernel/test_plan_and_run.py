"""Kernels that are classes with the methods ``plan`` and ``run``, such as flashinfer's wrappers of batches."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from attention_conformance.claims.trials import Trials
from attention_conformance.kernel.callable_import import import_callable
from attention_conformance.kernel.kernel_loader import kernel_of
from reference_attention.errors import InvalidInput
from tests.attention_conformance.claims.combined_faults import near, textbook
from tests.attention_conformance.claims.failing_calls import falsified_by


class Ragged:
    """A stand-in for flashinfer's BatchPrefillWithRaggedKVCacheWrapper: packed sequences of different lengths."""

    starts_of_keys: ClassVar[str] = "kv_indptr"

    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str = "NHD") -> None:
        assert float_workspace_buffer.dtype == torch.uint8
        assert kv_layout == "NHD"

    def plan(
        self,
        qo_indptr: Tensor,
        kv_indptr: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        head_dim_vo: int | None = None,
        custom_mask: Tensor | None = None,
        causal: bool = False,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
        q_data_type: Any = "float16",
    ) -> None:
        self.planned = dict(locals())

    def sequences(self, k: Tensor, v: Tensor) -> list[tuple[Tensor, Tensor]]:
        starts = self.planned[self.starts_of_keys].tolist()
        return [(k[a:b], v[a:b]) for a, b in pairwise(starts)]

    def run(self, q: Tensor, k: Tensor, v: Tensor, *, return_lse: bool = False) -> Any:
        return self.attend(q, self.sequences(k, v), self.planned["qo_indptr"].tolist(), return_lse)

    def attend(self, q: Tensor, keys: list[tuple[Tensor, Tensor]], starts: list[int], return_lse: bool) -> Any:
        planned, results, at = self.planned, [], 0
        for (key, value), a, b in zip(keys, starts, starts[1:], strict=False):
            L, T = b - a, len(key)
            visible = near(
                L, T, causal=planned.get("causal", False), window=(planned.get("window_left", -1), -1), corner=True
            )
            if planned.get("custom_mask") is not None:
                visible = visible & planned["custom_mask"][at : at + L * T].view(L, T)
            at += L * T
            scale = planned["sm_scale"] or 1 / math.sqrt(q.shape[-1])
            tensors = (x.transpose(0, 1)[None] for x in (q[a:b], key, value))
            cap = planned.get("logits_soft_cap") or 0.0
            results.append(textbook(*tensors, visible=visible, scale=scale, softcap=cap))
        out = torch.cat([out[0].transpose(0, 1) for out, _ in results])
        lse = torch.cat([lse[0].mT / math.log(2) for _, lse in results])
        return (out, lse) if return_lse else out


class WrongStarts(Ragged):
    """A wrapper that reads the keys of each sequence from where the queries of the sequence begin."""

    def sequences(self, k: Tensor, v: Tensor) -> list[tuple[Tensor, Tensor]]:
        lengths = self.planned["kv_indptr"].diff().tolist()
        starts = self.planned["qo_indptr"].tolist()
        return [(k[a : a + n], v[a : a + n]) for a, n in zip(starts, lengths, strict=False)]


class Decode(Ragged):
    """A stand-in for flashinfer's BatchDecodeWithPagedKVCacheWrapper: one query per sequence, keys in pages."""

    def plan(  # type: ignore[override]
        self,
        indptr: Tensor,
        indices: Tensor,
        last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
    ) -> None:
        self.planned = dict(locals())

    def pages(self, cache: Tensor, a: int, b: int, last: int) -> Tensor:
        size = self.planned["page_size"]
        return cache[self.planned["indices"][a:b].long()].flatten(0, 1)[: (b - a - 1) * size + last]

    def run(self, q: Tensor, paged_kv_cache: tuple[Tensor, Tensor], *, return_lse: bool = False) -> Any:  # type: ignore[override]
        starts, last = (self.planned[name].tolist() for name in ("indptr", "last_page_len"))
        places = list(zip(starts, starts[1:], last, strict=False))
        keys = [tuple(self.pages(cache, *place) for cache in paged_kv_cache) for place in places]
        return self.attend(q, keys, list(range(len(q) + 1)), return_lse)  # type: ignore[arg-type]


class WholePages(Decode):
    """A wrapper that reads the last page of each sequence as if it were full."""

    def pages(self, cache: Tensor, a: int, b: int, last: int) -> Tensor:
        return super().pages(cache, a, b, self.planned["page_size"])


@pytest.mark.parametrize("wrapper", [Ragged, Decode, WrongStarts, WholePages])
def test_a_right_wrapper_is_upheld_and_a_wrong_one_caught(wrapper: Any) -> None:
    kernel = kernel_of(wrapper, "float64")
    assert kernel.interface.name == "flashinfer"
    options = {"window", "softcap", "log-sum-exp", "default-scale", "grouped-heads"}
    options |= {"boolean-mask", "causal"} if issubclass(wrapper, Ragged) and not issubclass(wrapper, Decode) else set()
    assert options <= kernel.declares
    trials = Trials(kernel.as_implementation(), seed=0, strength=2)
    calls = [trials.at(number) for number in (*range(4), *range(60, 68))]
    assert not [trial.broke for trial in calls if trial.broke]
    assert any(trial.claims for trial in calls)
    assert any(map(falsified_by, calls)) is (wrapper in (WrongStarts, WholePages))


def test_a_class_with_plan_and_run_becomes_a_kernel() -> None:
    planned = import_callable(f"{__name__}:Ragged")
    x = torch.ones(3, 2, 8)
    assert planned(x, x, x, causal=True).shape == (3, 2, 8)


class Unknown(Ragged):
    def plan(self, qo_indptr: Tensor, moon: int) -> None:  # type: ignore[override]
        pass


def test_a_plan_with_an_unknown_parameter_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"plan\(\) of Unknown requires 'moon', which this suite does not know"):
        kernel_of(Unknown)
