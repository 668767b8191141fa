"""An attention kernel in place of the reference: its numbers, their rounding, the statements that call
it, its faults.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

import attention_conformance.kernel.single_query
import theorems.run.verify
from attention_conformance.calls.answer import attend
from attention_conformance.interfaces import ALWAYS
from attention_conformance.kernel.check import assert_kernel, verify_kernel
from attention_conformance.kernel.kernel_implementation import KERNEL_FUNCTIONS, KernelImplementation
from attention_conformance.kernel.kernel_loader import kernel_named, kernel_of
from attention_conformance.kernel.report import headline, hints, precision_hint, scale_hint
from attention_conformance.kernel.sizes import LAYOUTS, Layout
from examples import kernels
from examples.real_faults.attention import tiled, tiled_sdpa
from generators.case import Case
from generators.subject import Subject
from reference_attention import risk as reference
from reference_attention.errors import InvalidInput
from reference_attention.losses import LOSSES
from reference_attention.problem import Problem
from reference_attention.risk import risk, scaled_gradient, softmax_weights
from tests.attention_conformance.kernel import wrong_kernels
from tests.theorems.rounding.hard_problems import PROBLEMS, points_of, ratio
from tests.theorems.rounding.test_attention_at import truths
from tests.theorems.token_selection.path_cases import random_cases
from theorems.bounded import Bounded
from theorems.core.check import check, record_calls
from theorems.core.claim import Claim, Form, Verdict, at_least
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.kernel_use import KERNEL_UNTOUCHED, SVM_ONLY
from theorems.core.statement import Statement
from theorems.rounding.attention_at import AttentionAt
from theorems.rounding.weights_under_test import weights_of
from theorems.run.registry.lookup import statement_named
from theorems.run.registry.suite import on_a_kernel, statements
from theorems.run.statement_unit import Unit
from theorems.run.verify import draw_cases, verify_generated

TOUCHING = on_a_kernel()
NOT_TOUCHING = {id: one.kernel.says for id, one in statements().items() if one.kernel and not one.kernel.called}

DTYPES = ("float64", "float32")
RIGHT = (kernels.handwritten, kernels.pytorch_sdpa, kernels.pytorch_multihead, kernels.online)
FAST = {"lemma-1": 2, "lemma-3": 8, "lemma-4": 6, "lemma-5": 6, "lemma-6": 2, "lemma-14": 6, "theorem-2": 1}
"""Number of generated cases of each statement; ``theorems verify --attention … --examples 1000`` verifies more."""


@pytest.fixture
def _no_shrinking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theorems.run.verify, "SHRINKING_CALLS", 0)


# ---- numbers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", RIGHT, ids=lambda kernel: kernel.__name__)
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_weights_risk_and_gradient_agree_with_the_reference(kernel: Any, batch: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    keys, scores, p = rng.normal(size=(2, 4, 3)), rng.normal(size=(2, 4)), rng.normal(size=(*batch, 3))
    under_test = kernel_of(kernel).as_implementation()
    for loss in LOSSES.values():
        ours, theirs = (f(keys, scores, loss, p) for f in (under_test[scaled_gradient], reference.scaled_gradient))
        for found in (ours, theirs):
            assert np.shape(found.log_scale) == batch
            assert found.direction.shape == p.shape
        absolute = [np.exp(found.log_scale)[..., None] * found.direction for found in (ours, theirs)]
        np.testing.assert_allclose(*absolute, rtol=1e-12, atol=1e-14)
        values = [f(keys, scores, loss, p) for f in (under_test[risk], reference.risk)]
        assert np.shape(values[0]) == batch
        np.testing.assert_allclose(*values, rtol=1e-13)
    np.testing.assert_allclose(under_test[softmax_weights](keys, p), reference.softmax_weights(keys, p), rtol=1e-12)


def test_stacked_problems_computed_whole_or_in_blocks_have_the_gradients_of_single_problems(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(2)
    keys, scores, p = rng.normal(size=(5, 2, 4, 3)), rng.normal(size=(5, 2, 4)), rng.normal(size=(5, 3))
    under_test, loss = kernel_of(kernels.handwritten).as_implementation(), LOSSES["logistic"]
    whole = under_test[scaled_gradient](keys, scores, loss, p)
    single = [under_test[scaled_gradient](keys[b], scores[b], loss, p[b]) for b in range(5)]
    monkeypatch.setattr(attention_conformance.kernel.single_query, "ENTRIES", 1)
    pieces = under_test[scaled_gradient](keys, scores, loss, p)
    for b in range(5):
        for found in (whole, pieces):
            expected = np.exp(single[b].log_scale) * single[b].direction
            np.testing.assert_allclose(np.exp(found.log_scale[b]) * found.direction[b], expected, rtol=1e-12)
    np.testing.assert_array_equal(under_test[softmax_weights](keys, p)[3], under_test[softmax_weights](keys[3], p[3]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_powers_of_two_in_keys_and_scores_do_not_change_results(dtype: str) -> None:
    """Powers of two are divided out before the kernel is called, so that float32 neither overflows nor underflows."""
    rng = np.random.default_rng(3)
    keys, scores, p = rng.normal(size=(2, 4, 3)), rng.normal(size=(2, 4)), rng.normal(size=3)
    under_test, loss = kernel_of(kernels.handwritten, dtype).as_implementation(), LOSSES["correlation"]
    right = under_test[scaled_gradient](keys, scores, loss, p)
    other = under_test[scaled_gradient](keys * 2.0**200, scores * 2.0**-300, loss, p * 2.0**-200)
    np.testing.assert_array_equal(other.direction, right.direction)
    assert other.log_scale == pytest.approx(right.log_scale - 100 * np.log(2), abs=1e-12)


def test_gradients_are_right_if_the_slope_of_the_loss_is_beyond_float32() -> None:
    keys, p, loss = np.array([[[1.0], [0.0]]]), np.array([0.5]), LOSSES["exponential"]
    for shift in (400.0, -400.0):
        scores = np.array([[1.0, 0.0]]) + shift
        result = kernel_of(kernels.handwritten, "float32").as_implementation()[scaled_gradient](keys, scores, loss, p)
        expected = reference.scaled_gradient(keys, scores, loss, p)
        assert np.isfinite(result.direction).all()
        assert result.log_norm == pytest.approx(expected.log_norm, abs=1e-3)


# ---- rounding --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "kernel", [kernels.handwritten, kernels.pytorch_sdpa, kernels.online], ids=lambda k: k.__name__
)
def test_rounding_bounds_against_ball_arithmetic(kernel: Any, dtype: str) -> None:
    seen = kernel_of(kernel, dtype)
    under_test = seen.as_implementation()
    of_weights, of_gradient, without = [], [], []
    for problem in PROBLEMS[:6]:
        at = AttentionAt(problem, points_of(problem, m=8), seen.eps)
        truth = truths(problem, at)
        weights, gradient = weights_of(at, under_test, "x"), at.gradient_of(under_test, "x")
        of_weights.append(used_of(weights, truth["weights"]))
        of_gradient.append(used_of(gradient, truth["gradient"]))
        without.append(used_of(Bounded(gradient.value, 2 * at.gradient.error), truth["gradient"]))
    assert 1e-3 < max(of_weights) <= 1
    assert 1e-4 < max(of_gradient) <= 1
    assert max(without) > 1  # the bound for careful arithmetic is too small for a kernel


def used_of(found: Bounded, truth: Any) -> float:
    """Return the largest ratio of an error to its bound, given the exact numbers."""
    off = np.array([abs(float(x.mid())) for x in (np.array(truth, dtype=object) - found.value).ravel()])
    return ratio(off.reshape(found.shape), found.error)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rounding_far_above_a_tiny_gradient_is_no_violation(dtype: str) -> None:
    """Two keys are equal, and the third has a weight of e^−hundreds, so ∇L is as small; but the rounding error of a
    kernel is 1e-17.
    """
    problems = [
        Problem(np.array([[[-1.0], [-1.0], [0.0]]]), np.array([[-2.0, -3.0, 0.0]])),
        Problem(np.array([[[0.0, 0.0], [-1.0, 0.0]], [[0.0, 0.0], [3.0, -2.0]]]), np.array([[2.0, 2.0], [1.0, 0.0]])),
    ]
    under_test = kernel_of(kernels.pytorch_sdpa, dtype).as_implementation()
    for problem in problems:
        for id in ("lemma-1", "lemma-3", "lemma-6"):
            outcome = check(statement_named(id), Case(problem), under_test)
            assert outcome.verdict is Verdict.UPHELD, outcome.reason


@pytest.mark.parametrize("score", [-100.0, 400.0])
def test_rounding_bounds_hold_if_the_slope_of_the_loss_is_beyond_float32(score: float) -> None:
    """The loss has the slope ℓ′ = −e^100 or −e^−400. The power of two that is divided out of the kernel's slopes is
    divided out of the error bound, too.
    """
    problem = Problem(
        np.array([[[1.0, 0.5], [0.0, 1.0], [-1.0, 0.25]]]), score + np.array([[0.0, 1.0, 0.5]]), LOSSES["exponential"]
    )
    under_test = kernel_of(kernels.handwritten, "float32").as_implementation()
    for id in ("lemma-1", "lemma-3"):
        outcome = check(statement_named(id), Case(problem), under_test)
        assert outcome.verdict is Verdict.UPHELD, outcome.reason
    wrong = kernel_of(wrong_kernels.detached_normaliser, "float32").as_implementation()
    assert check(statement_named("lemma-1"), Case(problem), wrong).verdict is Verdict.FALSIFIED


def test_an_infinite_tolerance_at_one_point_does_not_hide_a_violation_at_another() -> None:
    left, right, rounding = [-np.inf, 0.0], [0.0, 1.0], [np.inf, 0.0]
    claim = at_least("hidden", Form.EFFECTIVE, left, right, rounding=rounding, why="rounding")
    assert claim.verdict is Verdict.FALSIFIED
    assert claim.slack == -1.0


# ---- layouts ---------------------------------------------------------------------------------------------


def rank_three_only(query: Any, keys: Any, values: Any) -> Any:
    return torch.bmm(torch.softmax(torch.bmm(query, keys.transpose(1, 2)), dim=-1), values)


def square_only(query: Any, keys: Any, values: Any) -> Any:
    assert values.shape == keys.shape, "values must be as wide as keys"
    return kernels.handwritten(query, keys, values)


def rank_three_or_square(query: Any, keys: Any, values: Any) -> Any:
    return rank_three_only(query, keys, values) if values.shape == keys.shape else None


def single_only(query: Any, keys: Any, values: Any) -> Any:
    if query.dtype != torch.float32:
        raise TypeError("float32 only")
    return kernels.handwritten(query, keys, values)


@pytest.mark.parametrize(
    ("kernel", "layout"),
    [
        (kernels.handwritten, Layout(4, False)),
        (square_only, Layout(4, True)),
        (rank_three_only, Layout(3, False)),
        (rank_three_or_square, Layout(3, True)),
    ],
)
def test_the_shapes_that_a_kernel_takes_are_recognised(kernel: Any, layout: Layout) -> None:
    seen = kernel_of(kernel)
    assert seen.layout == layout
    assert layout in LAYOUTS
    assert {r.verdict for r in verify_kernel(kernel, statements=["lemma-3", "lemma-4"], examples=3)} == {Verdict.UPHELD}


def test_float64_is_used_if_the_kernel_accepts_it() -> None:
    assert kernel_of(kernels.handwritten).dtype == "float64"
    assert kernel_of(kernels.handwritten, "float32").dtype == "float32"
    assert kernel_of(single_only).dtype == "float32"
    assert kernel_of(single_only).eps == 2.0**-23


def test_an_interface_is_recognised_by_its_parameters() -> None:
    sdpa = torch.nn.functional.scaled_dot_product_attention
    seen = {kernel: kernel_of(kernel) for kernel in (sdpa, tiled, tiled_sdpa, kernels.handwritten)}
    assert [result.interface.name for result in seen.values()] == ["sdpa", "flash", "sdpa", "plain"]
    assert seen[sdpa].parameters == seen[tiled_sdpa].parameters
    assert {"causal", "boolean-mask", "grouped-heads", "hidden-keys", "empty-rows"} <= seen[sdpa].declares
    assert {"window", "softcap", "log-sum-exp", "grouped-heads"} <= seen[tiled].declares
    assert seen[kernels.handwritten].declares == {*ALWAYS, "float32", "bfloat16", "float16"}
    assert [str(seen[kernel].alignment) for kernel in (sdpa, tiled)] == ["top-left", "bottom-right"]
    with pytest.raises(InvalidInput, match=r"--interface: 'torch' is not one of jax, .*, flash, plain\."):
        kernel_of(sdpa, interface="torch")


def test_in_statements_of_the_papers_a_kernel_gets_the_scale_one() -> None:
    sdpa = torch.nn.functional.scaled_dot_product_attention
    for kernel in (sdpa, tiled, lambda query, keys, values, *, scale=None: sdpa(query, keys, values, scale=scale)):
        assert "scale" in kernel_of(kernel).declares
        assert not scale_hint(kernel_of(kernel))


def test_a_kernel_can_be_pickled_for_another_process() -> None:
    under_test = kernel_named("torch.nn.functional:scaled_dot_product_attention", "float32").as_implementation()
    unit = pickle.loads(pickle.dumps(Unit("lemma-3", 2, 0, under_test=under_test)))
    there, here = unit.under_test.kernel, under_test.kernel
    for name in ("name", "interface", "parameters", "declares", "dtype", "computes_in", "alignment", "layout"):
        assert getattr(there, name) == getattr(here, name)
    assert unit.under_test[softmax_weights].__self__.kernel is there
    first, second = unit.run(lambda done: None), Unit("lemma-3", 2, 0, under_test=under_test).run(lambda done: None)
    assert first.claims == second.claims


def test_a_kernel_that_computes_in_float32_inside_is_tested_in_float32_by_default() -> None:
    seen = kernel_of(wrong_kernels.float32_inside)
    assert (seen.dtype, seen.computes_in) == ("float32", "float32")
    assert kernel_of(wrong_kernels.float32_inside, "auto").computes_in == "float32"
    insisted = kernel_of(wrong_kernels.float32_inside, "float64")
    assert (insisted.dtype, insisted.computes_in) == ("float64", "float64")


@pytest.mark.parametrize("kernel", [wrong_kernels.detached, wrong_kernels.blind], ids=lambda kernel: kernel.__name__)
def test_a_kernel_without_a_backward_pass_is_checked_without_gradients(kernel: Any) -> None:
    """The output is checked; gradients are not, and statements about gradients do not apply."""
    seen = kernel_of(kernel)
    assert seen.differentiable == (kernel is wrong_kernels.blind)
    verdicts = [r.verdict for r in verify_kernel(kernel, statements=["kernel-output", "kernel-gradients"], examples=8)]
    if kernel is wrong_kernels.detached:
        assert verdicts == [Verdict.UPHELD, Verdict.NOT_APPLICABLE]
        assert "without a backward pass: its gradients are not checked" in headline(seen)
    else:
        assert verdicts == [Verdict.FALSIFIED, Verdict.FALSIFIED]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_in_half_precision_statements_of_papers_do_not_apply_but_capabilities_do(dtype: str) -> None:
    results = verify_kernel(tiled_sdpa, statements=["lemma-3", "kernel-exact-weights"], examples=3, dtype=dtype)
    assert [result.verdict for result in results] == [Verdict.NOT_APPLICABLE, Verdict.UPHELD]
    assert f"the bounds of {dtype} cannot decide the statement" in results[0].reason


# ---- right and wrong kernels -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", RIGHT, ids=lambda kernel: kernel.__name__)
def test_right_kernels_are_upheld(kernel: Any, dtype: str) -> None:
    for id, examples in FAST.items():
        (result,) = verify_kernel(kernel, statements=[id], examples=examples, dtype=dtype)
        assert result.verdict is Verdict.UPHELD, result.reason
        assert result.touched


@pytest.mark.usefixtures("_no_shrinking")
@pytest.mark.parametrize("dtype", [pytest.param("float64", marks=pytest.mark.nightly), "float32"])
@pytest.mark.parametrize("kernel", wrong_kernels.CAUGHT, ids=lambda kernel: kernel.__name__)
def test_wrong_kernels_are_caught(kernel: Any, dtype: str) -> None:
    """Test in float32, whose bounds are wider, and in the nightly run in float64, too.

    The error that ``assert_kernel`` raises contains the table of ``verify_kernel``, so one run tests both functions.
    """
    # About one case in twenty has keys of more than 64 dimensions, which this kernel ignores.
    examples = 40 if kernel is wrong_kernels.first_64_dimensions else 20
    with pytest.raises(AssertionError, match=r"(?m)^ *lemma-3 .* falsified "):
        assert_kernel(kernel, statements=["lemma-3"], examples=examples, dtype=dtype)


@pytest.mark.usefixtures("_no_shrinking")
def test_a_kernel_that_computes_in_float32_inside_is_falsified_in_float64_only() -> None:
    verdicts = [
        verify_kernel(wrong_kernels.float32_inside, statements=["lemma-3"], examples=8, dtype=dtype)[0].verdict
        for dtype in DTYPES
    ]
    assert verdicts == [Verdict.FALSIFIED, Verdict.UPHELD]


def test_the_scale_of_a_wrong_kernel_is_named() -> None:
    assert "1, 0.5, 0.25 in 1, 4, 16 dimensions = 1/√d" in scale_hint(kernel_of(wrong_kernels.scaled_by_root_d))
    assert "1.01, 1.01, 1.01" in scale_hint(kernel_of(wrong_kernels.warm))
    for other in (wrong_kernels.sigmoid_normalised, wrong_kernels.last_token_masked, kernels.online):
        assert not scale_hint(kernel_of(other))


def test_a_hint_names_float32_if_a_kernel_has_only_its_digits() -> None:
    assert "--dtype float32" in precision_hint(kernel_of(wrong_kernels.float32_inside, "float64"))
    assert not precision_hint(kernel_of(wrong_kernels.float32_inside, "float32"))
    for right in RIGHT:
        assert not hints(kernel_of(right))


def test_a_kernel_that_raises_only_in_some_calls_is_inconclusive() -> None:
    def small_only(query: Any, keys: Any, values: Any) -> Any:
        if len(query) > 2:
            raise RuntimeError("no batches beyond two")
        return kernels.handwritten(query, keys, values)

    (result,) = verify_kernel(small_only, statements=["lemma-3"], examples=2)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "no batches beyond two" in result.reason


# ---- which statements are about a kernel -----------------------------------------------------------------


def test_every_statement_says_whether_and_why_it_calls_a_kernel() -> None:
    uses = [statement.kernel for statement in statements().values()]
    assert all(use is not None and use.says for use in uses)
    assert len({use.turn for use in uses if use and use.called}) == len(TOUCHING)


class Watched(KernelImplementation):
    """An implementation that keeps its functions for cases in which W is trained, too."""

    def bind_to_case(self, case: Subject) -> Implementation:
        return self


class Watch:
    """The reference in place of a kernel, with the names of the called functions recorded in ``calls``."""

    def __init__(self) -> None:
        self.calls: list[str] = []

        def seen(name: str, function: Any) -> Any:
            def call(*arguments: Any) -> Any:
                self.calls.append(name)
                return function(*arguments)

            return call

        replaced = {f: seen(name, f) for name, f in KERNEL_FUNCTIONS.items() if f is not attend}
        self.implementation = Watched("watched", replaced, kernel=kernel_of(kernels.handwritten))


@pytest.mark.parametrize("id", TOUCHING)
def test_statements_about_a_kernel_call_the_functions_that_they_report(id: str) -> None:
    watch = Watch()
    result = verify_generated(id, 2, 0, watch.implementation)
    assert set(watch.calls) == set(result.touched)
    assert result.touched


@pytest.mark.parametrize("id", [id for id, why in NOT_TOUCHING.items() if why == SVM_ONLY.says])
def test_statements_about_the_svm_alone_do_not_call_the_kernel(id: str) -> None:
    watch = Watch()
    case = draw_cases(statement_named(id), 2, 0)[0]
    outcome = check(statement_named(id), case, watch.implementation)
    assert not watch.calls
    assert outcome.verdict is Verdict.NOT_APPLICABLE
    assert outcome.reason == KERNEL_UNTOUCHED


@pytest.mark.parametrize("id", NOT_TOUCHING)
def test_statements_that_do_not_call_the_kernel_are_not_applicable(id: str) -> None:
    watch = Watch()
    result = verify_generated(id, 50, 0, watch.implementation)
    assert not watch.calls
    assert result.verdict is Verdict.NOT_APPLICABLE
    assert NOT_TOUCHING[id] in result.reason


def test_a_claim_made_before_the_kernel_is_called_is_not_counted() -> None:
    """Theorem 2 first claims that its SVM is solved; the report on a kernel does not count this claim."""
    (case,) = random_cases(1, equal=True)
    on_kernel = check(statement_named("theorem-2"), case, Watch().implementation.replace("k", textbook_eps=2.0**-52))
    assert "svm-is-optimal" not in {claim.name for claim in on_kernel.claims}
    assert "svm-is-optimal" in {claim.name for claim in check(statement_named("theorem-2"), case, REFERENCE).claims}


def test_a_statement_without_a_kernel_call_is_never_upheld_but_may_be_falsified() -> None:
    case, watch = random_cases(1, equal=True)[0], Watch()
    for slack, verdict in ((1.0, Verdict.NOT_APPLICABLE), (-1.0, Verdict.FALSIFIED)):

        def conclusion(_case: Case, _under_test: Any, slack: float = slack) -> Iterator[Claim]:
            yield Claim("silent", Form.EXACT, slack, 0.0, "exact")

        silent = Statement("silent", "", "", (), st.nothing, conclusion, "", iter)  # type: ignore[arg-type]
        assert check(silent, case, watch.implementation).verdict is verdict


def test_calls_of_the_reference_are_not_recorded() -> None:
    same, calls = record_calls(REFERENCE)
    assert same is REFERENCE
    assert not calls


def test_a_kernel_does_not_cache_an_array_that_may_change() -> None:
    under_test = kernel_of(kernels.handwritten).as_implementation()
    keys, p = np.array([[[1.0], [0.0]]]), np.array([1.0])
    before = under_test[softmax_weights](keys, p)
    keys[0, 0, 0] = 1.5
    assert under_test[softmax_weights](keys, p)[0, 0] > before[0, 0]
