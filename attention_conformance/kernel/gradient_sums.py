"""Detection of kernels that round partial sums of dK and dV, which are sums over queries, to half precision.

With q = e₁, keys 0 and values ±e₁ the logits are 0, each of two keys has the weight ½, and the output is 0. With
upstream gradients u_i e₁

    dV_t = Σ_i ½ u_i e₁,   dK_t = ± scale Σ_i ½ u_i e₁,

which are zero if every u_i occurs once with each sign, in any order. Products and partial sums are exact in float32,
but hardly ever in half precision, since the u_i are odd integers that need all bits of half precision. PyTorch's flash
path for CPUs rounds after every block of queries.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.calls.sizes_and_numbers import Numbers, Sizes, tensors
from attention_conformance.kernel.kernel import Kernel
from reference_attention.errors import InvalidInput
from theorems.bounded.formats import FORMATS, HALF, Format
from theorems.core.under_test import Refused

LENGTHS = (2, 8, 16, 32, 64, 128, 256, 512)
"""Numbers of queries to try. With two queries no sum is rounded, since u − u = 0."""
ORDERS = 8
"""The number of random orders at each length, since in a single order a rounded sum may be zero by chance."""
WIDTHS = (16, 64)
"""Widths of heads whose square root is a power of two."""


def queries_to_a_sum(kernel: Kernel) -> int:
    """Return the largest number of queries over which dK and dV are summed before a rounding to the dtype.

    Returns:
        A power of two, at least 4; 0 if the longest sum shows no rounding, or if sums over two queries are wrong for
        another reason.
    """
    if kernel.dtype not in HALF or not kernel.differentiable or not kernel.many_queries:
        return 0
    width = next((E for E in WIDTHS if kernel.taken.width(E) == E), WIDTHS[0])
    for L, order in product(LENGTHS, range(ORDERS)):
        call = zero_sums(L, L if kernel.taken.equal else 2, width, FORMATS[kernel.dtype], order)
        try:
            answer = kernel.answer(call.replace(scale=None) if kernel.fixed_scale else call)
        except (Refused, InvalidInput):
            return 0
        gradients = (answer.key_gradient, answer.value_gradient)
        if any(gradient is not None and np.any(gradient != 0) for gradient in gradients):  # NaN, too
            return 0 if LENGTHS[0] == L else L // 2
    return 0


def zero_sums(L: int, T: int, E: int, numbers: Format, seed: int) -> AttentionCall:
    """Build a call whose dK and dV are zero.

    Args:
        L: number of queries, an even number up to 512.
        T: number of keys, a power of two.
        E: number of columns of keys and of values.
        numbers: the format, of half precision.
        seed: the seed of the order.
    """
    call = tensors(Sizes(B=1, H=1, G=1, L=L, T=T, E=E, M=E), Numbers.NORMAL, seed=0)
    first = np.eye(E)[0]
    rng = np.random.default_rng(seed)
    sizes = 1 / numbers.eps + 1 + 2 * rng.integers(int(0.5 / numbers.eps), size=L // 2)
    u = np.roll(np.concatenate([sizes, -rng.permutation(sizes)]), rng.integers(L))
    return call.replace(
        query=np.broadcast_to(first, call.query.shape),
        key=np.zeros(call.key.shape),
        value=np.where(np.arange(T) % 2, -1.0, 1.0)[:, None] * np.broadcast_to(first, call.value.shape),
        upstream=u[:, None] * np.broadcast_to(first, call.upstream.shape),
    )
