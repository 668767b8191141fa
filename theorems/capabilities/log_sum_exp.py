"""The log-sum-exp that a kernel returns beside its output."""

from __future__ import annotations

from collections.abc import Iterator

from generators.attention_call import AttentionCall
from generators.attention_calls import with_option
from theorems.capabilities.agreement import AGREEMENT, agreement, rows_of, same
from theorems.core.capability import capability
from theorems.core.claim import Claim
from theorems.core.on_kernel import OnKernel
from theorems.core.statement import always


@capability(
    "log-sum-exp",
    "log Σ e^logit",
    calls=lambda: with_option(lambda call, rng: call.replace(log_sum_exp=True, scale=float(rng.choice((1.0, 0.5))))),
    claims=always("log-sum-exp") | AGREEMENT,
    says="the log-sum-exp that it returns, to the base e",
)
def kernel_log_sum_exp(call: AttentionCall, under_test: OnKernel) -> Iterator[Claim]:
    """What is returned beside the output is log Σ_t e^{z_t} of the scaled logits, the natural logarithm; two parts
    of the keys are merged by it.
    """
    rows = rows_of(call, under_test)
    answer = under_test.attend(rows.call)
    assert answer.log_sum_exp is not None
    yield same("log-sum-exp", answer.log_sum_exp, rows.log_sum_exp)
    yield from agreement(rows, answer)
