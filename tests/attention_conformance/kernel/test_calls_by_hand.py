"""How tensors are prepared for a kernel and how the kernel's results are used, on small calls written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from attention_conformance.calls.attention_call import Memory
from attention_conformance.calls.sizes_and_numbers import Numbers, Sizes, tensors
from attention_conformance.interfaces import INTERFACES
from attention_conformance.interfaces.interface import Request, swap_axes
from attention_conformance.kernel import check
from attention_conformance.kernel.callable_import import import_callable
from attention_conformance.kernel.kernel import Kernel
from attention_conformance.kernel.kernel_loader import kernel_named, kernel_of
from attention_conformance.kernel.memory_layout import GUARD, place_mask, place_tensor
from attention_conformance.kernel.report import headline
from attention_conformance.kernel.single_query import _unit
from reference_attention.errors import InvalidInput
from theorems.core.claim import Verdict
from theorems.run.description import Description
from theorems.run.events import Finished
from theorems.run.result import Result
from theorems.run.session import Session


def attention(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return textbook attention without a scale."""
    return torch.softmax(query @ keys.mT, dim=-1) @ values


def one_query(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return attention; raise if an input has several queries."""
    if query.shape[-2] != 1:
        raise ValueError("one query to an input")
    return attention(query, keys, values)


def random(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    # Draw in float64: between 1 and 1 + 1e-6 float32 has only nine numbers, so that two draws would often be equal.
    return attention(query, keys, values) * (1 + 1e-6 * torch.rand((), dtype=torch.float64))


def infinite(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return attention(query, keys, values) / 0


def kernel_here(function: str) -> Kernel:
    return kernel_named(f"{__name__}:{function}", "float64")


def call(**further: Any) -> Any:
    return tensors(Sizes(B=2, H=4, G=2, L=3, T=5, E=8, M=8), Numbers.NORMAL, seed=0).replace(**further)


@pytest.mark.parametrize(
    ("values", "unit"), [([0.0], 1.0), ([3.0, -5.0], 4.0), ([0.75], 0.5), ([np.inf], 1.0), ([], 1.0)]
)
def test_the_unit_of_an_array_is_a_power_of_two(values: list[float], unit: float) -> None:
    assert _unit(np.array(values)) == unit


@pytest.mark.parametrize("memory", list(Memory))
def test_a_tensor_keeps_its_numbers_in_every_memory_layout(memory: Memory) -> None:
    """NaN lies around the tensor and in its gaps, and a number written there is noticed."""
    x = 1 + torch.arange(2.0 * 4 * 3 * 8).reshape(2, 4, 3, 8)
    x = {Memory.BROADCAST: x[:1], Memory.HEADS: x[:, :1], Memory.SINGLE: x[:1, :1, :1, :1]}.get(memory, x).expand_as(x)
    result = place_tensor(x, memory)
    assert torch.equal(result.tensor, x)
    assert result.tensor.is_contiguous() is (memory in (Memory.CONTIGUOUS, Memory.OFFSET))
    assert (result.tensor.stride(-1) == 1) is (memory not in (Memory.LAST_STRIDE, Memory.SINGLE))
    assert int(result.storage.isnan().sum()) == result.storage.numel() - result.own.numel() >= 2 * GUARD
    before = result.bits()
    result.fill(2 * x)
    assert torch.equal(result.tensor, 2 * x)
    assert not torch.equal(result.bits(), before)
    result.fill(x)
    assert torch.equal(result.bits(), before)
    result.storage[GUARD - 1] = 1.0
    assert not torch.equal(result.bits(), before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_tensor_on_a_gpu_begins_at_a_multiple_of_16_bytes(dtype: torch.dtype) -> None:
    """Fused GPU kernels need such addresses; on the CPU a tensor may begin at any number of its storage."""
    x = torch.zeros((2, 4, 3, 8), dtype=dtype)
    for memory in (Memory.CONTIGUOUS, Memory.OFFSET):
        begins = place_tensor(x.to("meta"), memory).tensor.storage_offset()
        assert begins * x.element_size() % 16 == 0
        assert (begins > GUARD) is (memory is Memory.OFFSET)
    assert place_tensor(x, Memory.OFFSET).tensor.storage_offset() == GUARD + 1


@pytest.mark.parametrize("memory", [Memory.CONTIGUOUS, Memory.BROADCAST, Memory.TRANSPOSED, Memory.SLICED])
@pytest.mark.parametrize("shape", [(3, 5), (1, 4, 3, 5), (2, 1, 1, 5)])
def test_a_mask_has_the_memory_layout_of_the_tensors(memory: Memory, shape: tuple[int, ...]) -> None:
    x = torch.rand(shape) < 0.5
    result = place_mask(x, memory, (2, 4, 3, 5)).tensor
    assert torch.equal(result, x.expand((2, 4, 3, 5)) if memory is Memory.BROADCAST else x)


def test_queries_are_scaled_down_until_no_logit_overflows() -> None:
    """Query heads 0 and 1 attend to the first head of keys, query heads 2 and 3 to the second."""
    given = call()
    kernel = kernel_named(f"{__name__}:attention", "float32")
    large = given.replace(query=given.query * 1e38)
    result = kernel.in_own_numbers(large)
    reach = np.max(np.abs(result.query) @ np.swapaxes(np.abs(np.repeat(result.key, 2, axis=1)), -1, -2))
    largest = float(np.finfo(np.float32).max)
    assert largest / 32 < reach <= largest / 8 * 1.001
    assert (kernel.in_own_numbers(given).query == given.query.astype(np.float32)).all()


def test_a_kernel_that_takes_one_query_is_called_for_each_query() -> None:
    """The outputs equal those of a kernel that takes all queries in one call."""
    one, all_ = kernel_here("one_query"), kernel_here("attention")
    assert not one.many_queries
    assert all_.many_queries
    given = tensors(Sizes(B=2, H=2, G=2, L=3, T=5, E=8, M=8), Numbers.NORMAL, seed=0)
    assert one.answer(given).output == pytest.approx(all_.answer(given).output, rel=1e-12)
    two = tensors(Sizes(B=2, H=2, G=2, L=2, T=5, E=8, M=8), Numbers.NORMAL, seed=0)
    assert one.answer(two).output == pytest.approx(all_.answer(two).output, rel=1e-12)
    single = tensors(Sizes(B=2, H=2, G=2, L=1, T=5, E=8, M=8), Numbers.NORMAL, seed=0)
    assert one.answer(single).output == pytest.approx(all_.answer(single).output, rel=1e-12)


@pytest.mark.parametrize(
    ("function", "message"), [("random", "returned different numbers"), ("infinite", "NaN or infinite")]
)
def test_kernels_with_random_or_infinite_output_are_refused(function: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        kernel_here(function)


@pytest.mark.parametrize("source", ["math", ":kernel", "math:", ":"])
def test_a_source_must_name_a_module_and_a_callable(source: str) -> None:
    with pytest.raises(InvalidInput, match="is not MODULE:CALLABLE"):
        import_callable(source)


def test_only_tensors_of_four_axes_are_transposed() -> None:
    assert swap_axes("text") == "text"
    flat = torch.zeros(2, 3)
    assert swap_axes(flat) is flat
    assert swap_axes(torch.zeros(2, 3, 4, 5)).shape == (2, 4, 3, 5)


def flash_without_log_sum_exp(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float = 1.0) -> Any:
    """Return attention on tensors (B, L, H, E); no parameter requests the log-sum-exp."""
    return (attention(q.transpose(1, 2) * softmax_scale, k.transpose(1, 2), v.transpose(1, 2))).transpose(1, 2)


def test_options_for_which_a_kernel_has_no_parameter_are_not_passed() -> None:
    x = torch.arange(2.0 * 3 * 4 * 5, dtype=torch.float64).reshape(2, 3, 4, 5) / 100
    request = Request(x, x, x, scale=1.0, log_sum_exp=True)
    output, lse, _ = INTERFACES["flash"].call(flash_without_log_sum_exp, request, {"softmax_scale": 1.0})
    assert lse is None
    assert output.numpy() == pytest.approx(attention(x, x, x).numpy())


def results(*arguments: tuple[str, Verdict]) -> list[Result]:
    return [Result(id, "", {verdict: 1}, generated=False) for id, verdict in arguments]


@pytest.mark.parametrize(
    ("verdict", "asked", "right"),
    [
        (Verdict.UPHELD, (), True),
        (Verdict.INCONCLUSIVE, (), False),
        (Verdict.NOT_APPLICABLE, (), True),
        (Verdict.NOT_APPLICABLE, ("lemma-3", "lemma-5"), False),
    ],
)
def test_assert_kernel_passes_if_tried_and_requested_statements_are_upheld(
    verdict: Verdict, asked: tuple[str, ...], right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = results(("lemma-3", Verdict.UPHELD), ("lemma-5", verdict))
    described = kernel_of(attention, "float64").as_implementation().describe()

    class Ended(Session):
        def finish(self) -> Finished:
            self.about = Description(kernel=described)
            return Finished(tuple(result))

    monkeypatch.setattr(check, "Session", Ended)
    if right:
        assert check.assert_kernel(attention, statements=asked) == result
    else:
        with pytest.raises(AssertionError, match="attention kernel attention"):
            check.assert_kernel(attention, statements=asked)


def test_only_the_plain_interface_reports_shapes() -> None:
    """The report's headline names the shapes of tensors only where the signature leaves several possible."""
    assert ", shapes " in headline(kernel_here("attention"))
    sdpa = kernel_named("torch.nn.functional:scaled_dot_product_attention", "float64")
    assert ", shapes " not in headline(sdpa)
