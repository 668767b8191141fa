"""Functions for your own tests: compare tensors with the formula of attention, within a bound derived for the call.

>>> import torch
>>> from attention_conformance import assert_attention_close
>>> query, key, value = torch.randn(3, 1, 2, 8, 16).unbind()
>>> out = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
>>> assert_attention_close(out, query, key, value, causal=True)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from attention_conformance.calls.answer import Answer
from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.calls.further_rows import FurtherRows
from attention_conformance.claims.agreement import GRADIENTS, OUTPUT
from attention_conformance.kernel.memory_layout import float64_of
from attention_conformance.kernel.torch_import import torch
from attention_conformance.kernel.trace import QUANTITIES, entry_of
from reference_attention.errors import InvalidInput
from reference_attention.problem import as_array
from theorems.bounded.formats import FORMATS


class AttentionTolerance(NamedTuple):
    """Tolerances for ``torch.testing.assert_close``, and the reason for them.

    Attributes:
        atol: the absolute tolerance.
        rtol: the relative tolerance, which is 0.
        reason: the derivation of ``atol`` in words.
    """

    atol: float
    rtol: float
    reason: str


def assert_attention_close(
    out: Any,
    query: Any,
    key: Any,
    value: Any,
    *,
    mask: Any = None,
    causal: bool = False,
    scale: float | None = None,
    grads: Sequence[Any] | None = None,
    dtype: str | None = None,
) -> None:
    """Check that an output and gradients agree with softmax attention on the given tensors, within rounding.

    The bound is computed for the given tensors, entry by entry: twice the rounding error of the textbook formula in the
    number format ``dtype``. Rows that see no key are not compared.

    Shapes have B batch entries, H heads, L queries, T keys, G heads of keys and values (H is a multiple of G), E
    columns of queries and keys, and M columns of values. Leading axes may be missing in all tensors.

    Args:
        out: the output, (B, H, L, M).
        query: the queries, (B, H, L, E), a tensor or an array.
        key: the keys, (B, G, T, E).
        value: the values, (B, G, T, M).
        mask: a Boolean mask (True: the key is seen), or numbers added to the logits, broadcastable to (B, H, L, T).
        causal: whether the query with index l sees only keys up to index l, as with PyTorch's ``is_causal``; give a
            mask for another diagonal.
        scale: the factor of the logits, 1/√E by default.
        grads: the upstream gradient dLoss/d(out), (B, H, L, M), and the gradients dQ, dK and dV to be compared; a
            gradient that is None is not compared.
        dtype: the number format in which the kernel computes, float64, float32, bfloat16 or float16; by default that of
            ``out``. Give float32 for a kernel that returns bfloat16 but computes in float32: the bound is then that of
            float32 plus one rounding of the result. With bfloat16 the bound would be wide, as it would allow rounding
            at every step.

    Raises:
        AssertionError: an error exceeds the bound; the message names the worst entry.
        InvalidInput: shapes do not fit, or the format is unknown.
    """
    if grads is not None and len(grads) != 4:
        raise InvalidInput(f"grads: {len(grads)} tensors; give (upstream, dQ, dK, dV), None for one not compared.")
    upstream, *gradients = (None,) * 4 if grads is None else grads
    rows = _rows(query, key, value, mask, causal, scale, upstream, dtype or _format_of(out))
    stored = FORMATS[_format_of(out)]
    rows = replace(rows, stored=stored if stored.eps > rows.numbers.eps else None)
    by_claim = {claim: x for claim, x in zip((OUTPUT, *GRADIENTS), (out, *gradients), strict=True) if x is not None}
    results: dict[str, Any] = {QUANTITIES[claim].name: _result(claim, x, rows) for claim, x in by_claim.items()}
    entries = [entry_of(claim, rows, Answer(**results)) for claim in by_claim]
    wrong = [entry for entry in entries if entry.is_off]
    if wrong:
        cause = f"rounding in {rows.numbers.name}"
        counts = [f"{entry.off.sum()} of {entry.off.size} entries are off" for entry in wrong]
        raise AssertionError(
            "; ".join(f"{entry.describe(cause)}; {count}" for entry, count in zip(wrong, counts, strict=True))
        )


def attention_tolerance(
    query: Any,
    key: Any,
    value: Any,
    *,
    mask: Any = None,
    causal: bool = False,
    scale: float | None = None,
    dtype: str | None = None,
) -> AttentionTolerance:
    """Return the tolerances with which the output of a correct kernel passes ``torch.testing.assert_close``.

    Args:
        query: the queries, a tensor or an array; here and below the shapes are those of :func:`assert_attention_close`.
        key: the keys.
        value: the values.
        mask: as in :func:`assert_attention_close`.
        causal: as in :func:`assert_attention_close`.
        scale: as in :func:`assert_attention_close`.
        dtype: the number format in which the kernel computes; that of ``query`` by default.
    """
    name = dtype or _format_of(query)
    rows = _rows(query, key, value, mask, causal, scale, None, name)
    allowed = 2 * np.max(np.nan_to_num(rows.output.error[~rows.empty], nan=np.inf), initial=0.0)
    sizes = ", ".join(f"{axis} = {size}" for axis, size in rows.call.sizes.items())
    reason = (
        f"twice the rounding error of the textbook formula in {name}, the largest of all entries of this call ({sizes})"
    )
    return AttentionTolerance(float(allowed), 0.0, reason)


def _rows(
    query: Any, key: Any, value: Any, mask: Any, causal: bool, scale: float | None, upstream: Any, dtype: str
) -> FurtherRows:
    """Return the correct results for the given tensors and options, with bounds of their rounding errors.

    Raises:
        InvalidInput: shapes do not fit, or the format is unknown.
    """
    if dtype not in FORMATS:
        raise InvalidInput(f"dtype: {dtype!r} is not one of {', '.join(FORMATS)}.")
    q, k, v = (_array(name, x) for name, x in (("query", query), ("key", key), ("value", value)))
    B, H, L, E = q.shape
    G, T, M = k.shape[1], k.shape[2], v.shape[3]
    if k.shape != (B, G, T, E) or v.shape != (B, G, T, M) or H % G:
        raise InvalidInput(
            f"query, key, value: shapes {q.shape}, {k.shape}, {v.shape} do not fit; give (B, H, L, E), (B, G, T, E) and"
            " (B, G, T, M) with H a multiple of G."
        )
    u = np.zeros((B, H, L, M)) if upstream is None else _array("grads[0]", upstream)
    options: dict[str, Any] = {}
    if mask is not None:
        options = _mask_options(mask, (B, H, L, T))
    call = AttentionCall(q, k, v, u, scale=scale, causal=causal, **options)
    return FurtherRows(call, FORMATS[dtype])


def _mask_options(mask: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return a mask as the option of a call: ``visible`` for a Boolean mask, ``bias`` for numbers added to the logits.

    Raises:
        InvalidInput: the mask cannot be broadcast to ``shape``.
    """
    boolean = str(getattr(mask, "dtype", "")).endswith("bool")
    values = as_array("mask", mask, "(B, H, L, T)") if boolean else _numbers("mask", mask)
    try:
        np.broadcast_to(values, shape)
    except ValueError:
        raise InvalidInput(f"mask: shape {values.shape} does not broadcast to (B, H, L, T) = {shape}.") from None
    return {"visible" if boolean else "bias": values}


def _array(name: str, x: Any) -> np.ndarray:
    """Return a tensor of two to four axes as a float64 array of four axes, with leading axes of length 1 added.

    Raises:
        InvalidInput: the tensor does not have two to four axes.
    """
    values = _numbers(name, x)
    if not 2 <= values.ndim <= 4:
        raise InvalidInput(f"{name}: {values.ndim} axes; give two to four, (B, H, L, E) if all.")
    return values.reshape((1,) * (4 - values.ndim) + values.shape)


def _numbers(name: str, x: Any) -> np.ndarray:
    return float64_of(x) if isinstance(x, torch.Tensor) else np.asarray(as_array(name, x, "(B, H, L, E)"), np.float64)


def _result(claim: str, x: Any, rows: FurtherRows) -> np.ndarray:
    """Return the result ``x`` of a kernel, which the claim compares, as a float64 array.

    Raises:
        InvalidInput: the result does not have the shape of the correct result.
    """
    quantity = QUANTITIES[claim]
    values, expected = _array(quantity.symbol, x), getattr(rows, quantity.name).value
    if values.shape != expected.shape:
        raise InvalidInput(f"{quantity.symbol}: shape {values.shape}, expected {expected.shape}.")
    return values


def _format_of(x: Any) -> str:
    name = str(getattr(x, "dtype", "float64")).removeprefix("torch.")
    return name if name in FORMATS else "float64"
