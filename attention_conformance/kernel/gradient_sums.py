"""Detection of kernels that round partial sums of dK and dV, which are sums over queries, to half precision.

Let every query be e₁ = (1, 0, …, 0), every key 0, and the values of two keys e₁ and −e₁. Then the logits are 0, each
key has the weight ½, and the output is 0. Let u_i e₁ be the upstream gradient of query i's output, for numbers u_i.
Then the gradients by value t and by key t are

    dV_t = Σ_i ½ u_i e₁,   dK_t = ± scale Σ_i ½ u_i e₁,

which are zero if each u_i occurs among the numbers as often as −u_i. Products and partial sums are exact in float32,
but hardly ever in half precision, since the u_i are odd integers that need all bits of a half-precision number.
PyTorch's flash attention for CPUs rounds after every block of queries.
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
"""Numbers of queries to try. A kernel that rounds sums passes with two queries, as their sum u − u = 0 is exact."""
ORDERS = 8
"""The number of random orders of the u_i at each number of queries: in one order a rounded sum may be 0 by chance."""
WIDTHS = (16, 64)
"""Numbers of columns to try; their square roots are powers of two, so that scaling by 1/√E rounds nothing."""


def queries_to_a_sum(kernel: Kernel) -> int:
    """Return the largest number of queries whose terms of dK and dV are added before the sum is rounded to the dtype.

    Returns:
        A power of two, at least 4; 0 if the sum over the most queries tried shows no rounding, or if sums over two
        queries are already wrong, for another reason.
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
    """Build a call whose dK and dV are zero sums over queries, as the module describes.

    Args:
        L: number of queries, an even number up to 512.
        T: number of keys, a power of two.
        E: number of columns of queries, keys and values.
        numbers: the half-precision format whose bits the upstream gradients fill.
        seed: the seed of the upstream gradients and of their order.
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
