"""Whether sums over queries, of which dK and dV are, are rounded to half precision before they are complete.

With q = e₁, keys 0 and values ±e₁ the logits are 0, each of two keys has the weight ½, and the output is 0; of upstream
gradients u_i e₁

    dV_t = Σ_i ½ u_i e₁,   dK_t = ± scale Σ_i ½ u_i e₁,

which is zero where every u_i comes once with each sign, in any order. Products and partial sums are numbers of float32,
but hardly ever of half precision: u_i are odd integers of all its bits. PyTorch's flash path for CPUs rounds after
every block of queries.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from attention_conformance.kernel.kernel import Kernel
from generators.attention_call import AttentionCall
from generators.attention_calls import Numbers, Sizes, tensors
from reference_attention.errors import InvalidInput
from theorems.bounded.formats import FORMATS, HALF, Format
from theorems.core.on_kernel import Refused

LENGTHS = (2, 8, 16, 32, 64, 128, 256, 512)
"""Numbers of queries. Of two, u and −u, there is nothing to round."""
ORDERS = 8
"""Of upstream gradients at each length: rounded sums of one order may be zero by chance."""
WIDTHS = (16, 64)
"""Of which the root is a power of two."""


def queries_to_a_sum(kernel: Kernel) -> int:
    """The number of queries, at most, over which dK and dV are summed before they are rounded to the kernel's dtype.

    Returns:
        a power of two, 4 at least; 0 where no rounding is seen of the longest, or where sums of two are wrong: that has
        other reasons.
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
        if any(one is not None and np.any(one != 0) for one in gradients):  # NaN, too
            return 0 if LENGTHS[0] == L else L // 2
    return 0


def zero_sums(L: int, T: int, E: int, numbers: Format, seed: int) -> AttentionCall:
    """A call of which dK and dV are zero.

    Args:
        L: queries, an even number up to 512.
        T: keys, a power of two.
        E: columns of keys and of values.
        numbers: those of half precision.
        seed: of the order.
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
