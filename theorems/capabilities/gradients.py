"""The backward pass of a kernel."""

from __future__ import annotations

from collections.abc import Iterator

from generators.attention_call import AttentionCall
from generators.attention_calls import plain_calls
from theorems.capabilities.agreement import GRADIENTS, rows_of, same_gradients
from theorems.core.capability import capability
from theorems.core.claim import Claim
from theorems.core.on_kernel import OnKernel
from theorems.core.statement import always

UPSTREAMS = 2


@capability(
    "gradients",
    "dQ, dK and dV of every row",
    calls=plain_calls,
    claims=always(*GRADIENTS),
    says="dQ, dK and dV for two upstream gradients",
    differentiates=True,
)
def kernel_gradients(call: AttentionCall, under_test: OnKernel) -> Iterator[Claim]:
    """With u the upstream gradient of a row, o its output and dz_t = s_t (u·v_t − u·o), Lemma 3's covariance of an
    indicator and the scores u·v_t under s: dQ = Σ_t dz_t k_t, dK_t = Σ dz_t q and dV_t = Σ s_t u over the rows.
    """
    rng = call.rng()
    for _ in range(UPSTREAMS):
        rows = rows_of(call.replace(upstream=rng.permuted(call.upstream, axis=-1)), under_test)
        yield from same_gradients(rows, under_test.attend(rows.call))
