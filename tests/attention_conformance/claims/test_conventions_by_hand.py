"""Choices that a right kernel has: its default scale, results of rows without visible keys, effects of NaN in hidden
keys.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attention_conformance.calls.answer import Answer, attend
from attention_conformance.calls.call_builder import build_call, ranks
from attention_conformance.calls.call_space import fixed_plans
from attention_conformance.calls.further_rows import FurtherRows
from attention_conformance.calls.sizes_and_numbers import Numbers, Sizes, tensors
from attention_conformance.claims.agreement import rows_of
from attention_conformance.claims.call_claims import NAN_OF_SCALE, NOT_POSITIVE, _comparisons, examine
from attention_conformance.claims.empty_rows import EMPTY, MEAN, MEAN_THROUGH, NAN, NAN_ALONE
from attention_conformance.claims.hidden_keys import keys_to_poison
from attention_conformance.kernel.check import verify_kernel
from attention_conformance.kernel.kernel_loader import kernel_of
from tests.attention_conformance.claims.planted_kernels import formula
from theorems.bounded.formats import FORMATS
from theorems.core.claim import Verdict

X = torch.Tensor


def scaled(query: X, key: X, value: X, attn_mask: X | None = None, scale: float | None = None) -> X:
    """Return attention whose default scale is 1/√E."""
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    logits = factor * query @ key.mT
    if attn_mask is not None:
        logits = logits.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else logits + attn_mask
    return torch.softmax(logits, dim=-1) @ value


def papers(query: X, key: X, value: X, attn_mask: X | None = None, scale: float = 1.0) -> X:
    return scaled(query, key, value, attn_mask, scale)


def neither(query: X, key: X, value: X, attn_mask: X | None = None, scale: float = 0.75) -> X:
    return scaled(query, key, value, attn_mask, scale)


@pytest.mark.parametrize(
    ("kernel", "verdict", "branch"),
    [(scaled, Verdict.UPHELD, "1/√E"), (papers, Verdict.UPHELD, "1"), (neither, Verdict.FALSIFIED, "1/√E")],
)
def test_a_kernel_s_default_scale_is_one_or_one_over_root_e(kernel: object, verdict: Verdict, branch: str) -> None:
    (result,) = verify_kernel(kernel, statements=["kernel-default-scale"], examples=3)
    assert result.verdict is verdict
    assert {name for claim in result.claims for name, _ in claim.branches} >= {branch}


@pytest.mark.parametrize(("held", "named"), [(np.nan, "NaN"), (0.0, "zeros"), (7.0, "zeros")])
def test_rows_without_visible_keys_may_be_zeros_or_nan(held: float, named: str) -> None:
    """All rows with visible keys must have the right numbers."""
    visible = np.ones((1, 2, 3, 5), dtype=np.bool_)
    visible[0, 1, 2] = False
    call = tensors(Sizes(B=1, H=2, G=2, L=3, T=5, E=4, M=4), Numbers.NORMAL, seed=0).replace(visible=visible)
    rows = FurtherRows(call, FORMATS["float64"])
    output = np.where(rows.empty[..., None], held, rows.output.value)
    claims = [claim for _, claim in _comparisons(rows, Answer(output))]
    assert [claim.verdict is Verdict.UPHELD for claim in claims] == [held != 7.0, True]
    assert claims[0].branch == named
    wrong = output.copy()
    wrong[0, 0, 0, 0] += 1.0
    assert next(x for _, x in _comparisons(rows, Answer(wrong)) if x.name != EMPTY).verdict is Verdict.FALSIFIED


def with_means(query: X, key: X, value: X, attn_mask: X | None = None, scale: float | None = None) -> X:
    """Return attention with the most negative finite number as hidden logits: rows without visible keys are means of
    the values.
    """
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    logits = factor * query @ key.mT
    if attn_mask is not None:
        logits = logits.masked_fill(~attn_mask, torch.finfo(logits.dtype).min)
    return torch.softmax(logits, dim=-1) @ value


def with_means_of_added(query: X, key: X, value: X, attn_mask: X | None = None, scale: float | None = None) -> X:
    """Return attention that adds half the most negative finite number to hidden logits: rows without visible keys are
    means of the values, with a gradient.
    """
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    logits = factor * query @ key.mT
    if attn_mask is not None:
        logits = logits + (~attn_mask).to(logits.dtype) * (torch.finfo(logits.dtype).min / 2)
    return torch.softmax(logits, dim=-1) @ value


def with_half_of_the_gradient(query: X, key: X, value: X, attn_mask: X | None = None, scale: float | None = None) -> X:
    """Return attention in which rows without visible keys are means of the values and pass on half of the gradient."""
    if attn_mask is None:
        return with_means(query, key, value, None, scale)
    empty = ~attn_mask.expand(*query.shape[:3], key.shape[2]).any(dim=-1, keepdim=True)
    stopped = 0.5 * query + 0.5 * query.detach()
    return with_means_of_added(torch.where(empty, stopped, query), key, value, attn_mask, scale)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("kernel", "named"), [(with_means, MEAN), (with_means_of_added, MEAN_THROUGH)])
def test_rows_without_visible_keys_may_be_means_with_or_without_a_gradient(
    kernel: object, named: str, dtype: str
) -> None:
    ids = ["kernel-empty-rows", "kernel-boolean-mask"]
    rows, mask = verify_kernel(kernel, statements=ids, examples=25, dtype=dtype)
    assert (rows.verdict, mask.verdict) == (Verdict.UPHELD, Verdict.UPHELD)
    assert {name for claim in rows.claims if claim.name == EMPTY for name, _ in claim.branches} >= {named}


def test_half_a_gradient_of_rows_without_visible_keys_is_falsified() -> None:
    (result,) = verify_kernel(with_half_of_the_gradient, statements=["kernel-empty-rows"], examples=25)
    assert result.verdict is Verdict.FALSIFIED


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("added", "named"), [(False, NAN_ALONE), (True, NAN)])
def test_the_plain_formula_is_upheld_with_nan_in_rows_without_visible_keys(added: bool, named: str, dtype: str) -> None:
    """In large calls only some rows are compared. The report says whether gradients of such rows are NaN, too."""

    def attention(query: X, key: X, value: X, attn_mask: X | None = None, scale: float = 1.0) -> X:
        return formula(query, key, value, attn_mask, scale, added=added)

    ids = ["kernel-empty-rows", "kernel-boolean-mask", "kernel-hidden-keys", "kernel-gradients"]
    results = verify_kernel(attention, statements=ids, examples=20, dtype=dtype)
    assert {result.id: result.verdict for result in results} == dict.fromkeys(ids, Verdict.UPHELD)
    branches = {name for claim in results[0].claims if claim.name == EMPTY for name, _ in claim.branches}
    assert named in branches
    assert branches <= {NAN, NAN_ALONE}  # without gradients, dQ counts as NaN


@pytest.mark.parametrize(("share", "verdict"), [(0.0, Verdict.UPHELD), (1e-9, Verdict.FALSIFIED)])
def test_a_kernel_may_vary_the_order_of_sums_but_not_leak_hidden_values(share: float, verdict: Verdict) -> None:
    """Every second call adds the keys in reverse order, as atomic additions on a GPU may; the falsified kernel also
    adds a ``share`` of the mean of all values, hidden ones included.
    """
    calls = iter(range(1_000_000))

    def attention(query: X, key: X, value: X, attn_mask: X | None = None, scale: float = 1.0) -> X:
        leak = share * value.mean(dim=-2, keepdim=True)
        if next(calls) % 2:
            key, value = key.flip(-2), value.flip(-2)
            attn_mask = None if attn_mask is None else attn_mask.expand(*attn_mask.shape[:-1], key.shape[-2]).flip(-1)
        return formula(query, key, value, attn_mask, scale, added=False) + leak

    (result,) = verify_kernel(attention, statements=["kernel-hidden-keys"], examples=30, dtype="float32")
    assert result.verdict is verdict


@pytest.mark.parametrize(("wrong", "falsified"), [(False, set()), (True, {"key-gradient"})])
def test_nan_from_the_derivative_of_log_zero_may_reach_only_its_own_head(wrong: bool, falsified: set[str]) -> None:
    """NaN from the derivative of log 0, in a row without visible keys, may reach dK of the row's head,
    but of no other.
    """
    call = tensors(Sizes(B=1, H=2, G=2, L=3, T=5, E=4, M=4), Numbers.NORMAL, seed=0)
    bias = np.zeros((1, 2, 3, 5))
    bias[0, 1, 2] = -np.inf
    upstream = np.random.default_rng(0).standard_normal((1, 2, 3))
    call = call.replace(bias=bias, scale=1.0, log_sum_exp=True, lse_upstream=upstream)
    rows = FurtherRows(call, FORMATS["float64"])
    dq, dk = rows.query_gradient.value.copy(), rows.key_gradient.value.copy()
    dq[0, 1, 2], dk[0, 1] = np.nan, np.nan
    if wrong:
        dk[0, 0, 0, 0] = np.nan
    result = Answer(rows.output.value, dq, dk, rows.value_gradient.value, rows.log_sum_exp.value)
    claims = [claim for _, claim in _comparisons(rows, result)]
    assert {claim.name for claim in claims if claim.verdict is not Verdict.UPHELD} == falsified


@pytest.mark.parametrize("added", [True, False])
def test_nan_of_a_row_without_upstream_gradient_may_reach_only_gradients_of_its_head(added: bool) -> None:
    """In this large call only some rows have an upstream gradient, and the row without visible keys has none."""
    rng = np.random.default_rng(0)
    call = tensors(Sizes(B=2, H=2, G=2, L=200, T=200, E=4, M=4), Numbers.NORMAL, seed=0)
    visible = np.ones((2, 2, 200, 1), dtype=np.bool_)
    visible[1, 0, 7] = False
    upstream = np.zeros_like(call.upstream)
    upstream[:, :, [3, 199]] = rng.standard_normal((2, 2, 2, 4))
    call = call.replace(visible=visible, upstream=upstream)

    def attention(query: X, key: X, value: X, attn_mask: X | None = None, scale: float = 1.0) -> X:
        return formula(query, key, value, attn_mask, scale, added=added)

    under_test = kernel_of(attention, "float64").as_implementation()
    answer = under_test[attend](call)
    assert answer.value_gradient is not None
    assert np.isnan(answer.value_gradient[1, 0]).all()
    claims = [claim for _, claim in examine(call, under_test)]
    assert {"value-gradient", "key-gradient", "query-gradient"} <= {claim.name for claim in claims}
    assert {claim.verdict for claim in claims} == {Verdict.UPHELD}


@pytest.mark.parametrize("keys", [1, 5])
def test_a_missing_gradient_is_accepted_only_where_zero_is_right(keys: int) -> None:
    """With a single key the weight is 1 whatever the key is, so dK is 0, and a kernel need not read the key."""

    def attention(query: X, key: X, value: X, scale: float | None = None) -> X:
        return scaled(query, key.detach() if key.shape[2] == keys else key, value, None, scale)

    call = tensors(Sizes(B=1, H=1, G=1, L=3, T=keys, E=4, M=4), Numbers.NORMAL, seed=0)
    claims = [claim for _, claim in examine(call, kernel_of(attention, "float64").as_implementation())]
    falsified = {claim.name for claim in claims if claim.verdict is Verdict.FALSIFIED}
    assert falsified == (set() if keys == 1 else {"key-gradient"})


@pytest.mark.parametrize(("scale", "less", "stored"), [(1.0, 1, True), (0.25, 1, True), (1.0, 256, False)])
def test_a_call_counts_as_exact_unless_float16_rounds_a_weight(scale: float, less: int, stored: bool) -> None:
    """Queries divided by 256 bring logits so close together that float16 rounds a weight; a scale of 1/4 does not."""
    call = ranks(Sizes(B=1, H=1, G=1, L=5, T=129, E=63, M=63), seed=0)
    call = call.replace(scale=scale, query=call.query / less)
    rows = rows_of(call, kernel_of(scaled, "float16").as_implementation())
    assert (rows.stored is not None) is stored


def test_only_keys_that_some_row_does_not_see_are_overwritten() -> None:
    """No row of the first mask sees keys 1 or 3. Each key of the second mask is seen by a row, so keys that one of the
    rows does not see are chosen.
    """
    seen = np.array([[[[True, False, True, False, True], [True, False, False, False, True]]]])
    for seed in range(20):
        chosen = keys_to_poison(seen, np.random.default_rng(seed))
        assert chosen.shape == (5,)
        assert chosen.any()
        assert not chosen[[0, 2, 4]].any()
    both = np.array([[[[True, False, True], [False, True, True]]]])
    assert {tuple(keys_to_poison(both, np.random.default_rng(seed)).tolist()) for seed in range(20)} == {
        (True, False, False),
        (False, True, False),
    }


@pytest.mark.parametrize("scale", [0.0, -0.5])
@pytest.mark.parametrize("rows_of_nan", [0, 1, 2])
@pytest.mark.parametrize("wrong", [False, True])
def test_rows_with_hidden_keys_may_be_nan_if_a_causal_call_has_a_scale_of_at_most_zero(
    scale: float, rows_of_nan: int, wrong: bool
) -> None:
    """PyTorch's attention on a CPU returns NaN in rows with hidden keys, which is reported; no other number may be
    wrong.
    """
    call = tensors(Sizes(B=1, H=2, G=2, L=3, T=3, E=4, M=4), Numbers.NORMAL, seed=0).replace(causal=True, scale=scale)
    rows = FurtherRows(call, FORMATS["float64"])
    output = rows.output.value.copy()
    output[:, :, :rows_of_nan] = np.nan
    output[0, 1, 2, 3] += 1.0 if wrong else 0.0
    claims = [claim for _, claim in _comparisons(rows, Answer(output))]
    assert any(claim.verdict is Verdict.FALSIFIED for claim in claims) is wrong
    (named,) = [claim for claim in claims if claim.name == NOT_POSITIVE]
    assert (named.branch == NAN_OF_SCALE) is (rows_of_nan > 0)
    output[:, :, 2] = np.nan  # the last row sees all keys
    assert any(claim.verdict is Verdict.FALSIFIED for _, claim in _comparisons(rows, Answer(output)))
    output[:, :, 2], output[0, 0, 0] = rows.output.value[:, :, 2], (np.nan, 0.0, 0.0, 0.0)  # only one entry is NaN
    assert any(claim.verdict is Verdict.FALSIFIED for _, claim in _comparisons(rows, Answer(output)))


def test_causal_calls_with_a_scale_of_at_most_zero_are_planned() -> None:
    """These calls precede the planned calls with sizes of models, so that the numbers of the latter stay the same."""
    of_all = fixed_plans(frozenset({"scale", "causal"}), 0)
    plans = [plan for plan in of_all if plan["scale"] in ("zero", "negative") and plan["causal"] == "causal"]
    assert [plan["scale"] for plan in plans] == ["zero"] * 2 + ["negative"] * 2
    first_of_models = next(k for k, plan in enumerate(of_all) if "model" in plan)
    assert all(of_all.index(plan) < first_of_models for plan in plans)
    assert all(plan["scale"] not in ("zero", "negative") for plan in fixed_plans(frozenset({"causal"}), 0))
    kernel = kernel_of(torch.nn.functional.scaled_dot_product_attention, "float64")
    under_test = kernel.as_implementation()
    branches = set()
    for number, plan in enumerate(plans):
        for _, claim in examine(build_call(plan, kernel.declares, number), under_test):
            assert claim.verdict is Verdict.UPHELD
            branches |= {claim.branch} if claim.name == NOT_POSITIVE else set()
    assert branches == {NAN_OF_SCALE}
