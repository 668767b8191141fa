"""Inputs of which a mask keeps different numbers of tokens, compared with other code and with repeated tokens.

If each token of input i is repeated lcm(T_1, …, T_n)/T_i times, with T_i the number of tokens of input i, all inputs
have one length, and the risk is the same.
"""

from __future__ import annotations

import json
import math
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from generators.user_data import case_of
from reference_attention.angles import one_minus_cosine
from reference_attention.errors import InvalidInput
from reference_attention.problem import Problem
from reference_attention.risk import scaled_gradient, softmax_weights
from reference_attention.svm.max_margin import MaxMargin
from reference_attention.svm.sequence_max_margin import SequenceMaxMargin, sequence_max_margin
from reference_attention.training.flow import gradient_flow
from theorems import explain, verify
from theorems.core.claim import Verdict
from theorems.explanations.ragged_problem import RaggedProblem, weights_at, with_all_queries
from theorems.explanations.selection import chosen_tokens, follow_flow, locally_optimal_choices
from theorems.explanations.sentences import paragraphs

COUNTS = (4, 2, 3)
SEEDS = range(6)
SOLVER = 1e-6
"""Largest distance between two flows: a hundred times the solver's tolerance, as errors of many steps add up."""


def ragged(seed: int, **further: Any) -> dict[str, Any]:
    """Return keys and scores of inputs with different numbers of tokens; entries of missing tokens are NaN."""
    rng = np.random.default_rng(seed)
    mask = np.array([np.isin(range(5), rng.permutation(5)[:count]) for count in COUNTS])
    keys, scores = rng.integers(-6, 7, (3, 5, 3)) / 2.0, rng.integers(-4, 5, (3, 5)) / 4.0
    kept_keys, kept_scores = np.where(mask[..., None], keys, np.nan), np.where(mask, scores, np.nan)
    return {"keys": kept_keys, "scores": kept_scores, "mask": mask} | further


def problem_of(data: dict[str, Any]) -> RaggedProblem:
    """Return the padded problem of all inputs."""
    problem = with_all_queries(case_of(data)).problem
    assert isinstance(problem, RaggedProblem)
    return problem


def visible_tokens(data: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Return keys and scores of the tokens that each input keeps."""
    rows = zip(data["keys"], data["scores"], data["mask"], strict=True)
    return [(keys[mask], scores[mask]) for keys, scores, mask in rows]


def repeated(data: dict[str, Any]) -> Problem:
    """Return the problem in which each token is repeated, so that all inputs have one length."""
    times = [math.lcm(*COUNTS) // count for count in COUNTS]
    keys = [np.repeat(k, m, axis=0) for (k, _), m in zip(visible_tokens(data), times, strict=True)]
    return Problem(keys, [np.repeat(s, m) for (_, s), m in zip(visible_tokens(data), times, strict=True)])


@pytest.mark.parametrize("seed", SEEDS)
def test_gradient_and_weights_agree_with_those_of_repeated_tokens(seed: int) -> None:
    data = ragged(seed)
    problem, same = problem_of(data), repeated(data)
    for p in np.random.default_rng(seed).normal(size=(5, 3)) * [[0.0], [0.1], [1], [5], [30]]:
        ours = problem.gradient(problem.keys, problem.scores, problem.loss, p)
        theirs = scaled_gradient(same.keys, same.scores, same.loss, p)
        assert ours.log_norm == pytest.approx(theirs.log_norm, abs=1e-11)
        assert one_minus_cosine(ours.direction, theirs.direction / np.linalg.norm(theirs.direction)) < 1e-20
        for own, copies, count in zip(weights_at(problem, p), softmax_weights(same.keys, p), COUNTS, strict=True):
            assert own[:count] == pytest.approx(copies.reshape(count, -1).sum(axis=1), rel=1e-12)
            assert not own[count:].any()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_choice_of_tokens_agrees_with_the_solver_for_sequences(seed: int) -> None:
    data = ragged(seed)
    problem = problem_of(data)
    optima = []
    for alpha in product(*map(range, COUNTS)):
        tokens = np.array(alpha)
        choice = chosen_tokens(problem, "", tokens)
        other = sequence_max_margin([k[None] for k, _ in visible_tokens(data)], [tokens[i : i + 1] for i in range(3)])
        assert isinstance(choice.svm, MaxMargin) == isinstance(other, SequenceMaxMargin)
        if not isinstance(choice.svm, MaxMargin) or not isinstance(other, SequenceMaxMargin):
            continue
        assert list(choice.svm.exact.p) == other.exact_p
        rows = np.zeros(3)
        best = True
        for i, (keys, scores) in enumerate(visible_tokens(data)):
            assert choice.svm.neighbours[i, : COUNTS[i]].tolist() == other.neighbours[i][0].tolist()
            assert not choice.svm.neighbours[i, COUNTS[i] :].any()
            rows += choice.svm.duals[i, : COUNTS[i]] @ (keys[alpha[i]] - keys)
            best &= bool((scores[other.neighbours[i][0]] < scores[alpha[i]]).all())
        assert rows == pytest.approx(choice.svm.p, abs=1e-12)
        assert choice.locally_optimal == best
        optima += [list(alpha)] * best
    optimal_choices = locally_optimal_choices(problem)
    assert optimal_choices is not None
    assert [choice.alpha.tolist() for choice in optimal_choices] == optima


def test_a_padding_copy_of_a_token_is_never_selected() -> None:
    """Rounding may give a copy a larger logit than its original, which adding 1 to the keys of copies imitates."""
    problem = problem_of(ragged(0))
    assert not problem.counted.all()
    object.__setattr__(problem, "keys", problem.keys + np.where(problem.counted, 0.0, 1.0)[..., None])
    assert (problem.selection_at(np.ones(3)) < problem.counted.sum(axis=1)).all()
    assert (Problem.selection_at(problem, 1e3 * np.ones(3)) >= problem.counted.sum(axis=1)).any()


@pytest.mark.parametrize("seed", [1, 3])
def test_the_flow_agrees_with_that_of_repeated_tokens(seed: int) -> None:
    data = ragged(seed)
    path = follow_flow(problem_of(data), np.zeros(3))
    norms = path.flow.norms[1::8]
    norms = norms[norms < 0.9 * path.flow.norms[-1]]
    assert len(norms) > 3
    flow = gradient_flow(repeated(data), path.start, norm=float(norms[-1]), record=norms)
    points = path.flow.points[np.isin(path.flow.norms, norms)]
    assert (np.linalg.norm(flow.points[-len(points) :] - points, axis=1) <= SOLVER * (1 + norms)).all()


@pytest.mark.parametrize("seed", [1, 3])
def test_masked_tokens_are_left_out_and_their_values_have_no_effect(seed: int) -> None:
    data = ragged(seed, p=[1.0, -0.5, 2.0])
    it = explain(data)
    assert [(token.input, token.token) for token in it.tokens] == [(i, t) for i in range(3) for t in range(COUNTS[i])]
    for token in it.tokens:
        assert token.globally_optimal == (token.score == visible_tokens(data)[token.input][1].max())
    padding = {name: np.nan_to_num(data[name], nan=9.0) for name in ("keys", "scores")}
    assert explain(data | padding).to_json() == it.to_json()
    assert it.layer is not None
    for i, (keys, _) in enumerate(visible_tokens(data)):
        logits = keys @ data["p"]
        weights = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        assert it.layer.softmax[i, : COUNTS[i]] == pytest.approx(weights, rel=1e-12)
        assert it.layer.tokens[i] == np.argmax(logits)
        assert it.layer.off[i] == pytest.approx(1 - weights.max(), abs=1e-12)
    assert paragraphs(it)[0].startswith("The mask keeps 2 to 4 tokens of each input")
    assert json.loads(it.to_json())["counted"] == list(COUNTS)


def test_inputs_of_different_lengths_can_have_queries_and_key_query_weights() -> None:
    rng = np.random.default_rng(1)
    X, z = rng.integers(-4, 5, (3, 4, 2)) / 2.0, rng.integers(-3, 4, (3, 2)) / 1.0
    mask = [[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    tokens = {"X": X, "Y": [1, -1, 1], "v": [1, 0.25], "mask": mask}
    W = np.array([[1.0, 2.0], [0.0, 1.0]])
    scores = np.array([1, -1, 1])[:, None] * (X @ [1, 0.25])
    made = explain({"keys": X @ W.T, "scores": scores, "mask": mask})
    assert np.array_equal(explain(tokens | {"W": W}).path.flow.points, made.path.flow.points)
    weights = rng.normal(size=(2, 2))
    it = explain(tokens | {"queries": z, "W_trained": weights})
    assert it.layer is not None
    for i, count in enumerate((2, 3, 4)):
        assert it.layer.tokens[i] == np.argmax(X[i, :count] @ weights @ z[i])
    assert {margin.of for margin in it.layer.in_norms} <= {"‖W‖_F", "‖W‖_⋆"}


def test_weights_of_a_module_with_biases_are_softmax_over_the_kept_tokens() -> None:
    rng, keep = np.random.default_rng(2), np.array([[1, 1, 0, 0], [1, 1, 1, 1]], dtype=bool)
    X, z = rng.normal(size=(2, 4, 3)), rng.normal(size=(2, 3))
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(3, 1, batch_first=True, dtype=torch.float64)
    torch.nn.init.normal_(layer.in_proj_bias)
    it = explain({"X": X, "queries": z, "Y": [1, -1], "v": [1, 0, 0], "mask": keep}, module=layer)
    keys = torch.tensor(X)
    weights = layer(torch.tensor(z)[:, None], keys, keys, key_padding_mask=torch.tensor(~keep))[1]
    assert it.layer.softmax == pytest.approx(weights[:, 0].detach().numpy(), rel=1e-9)  # type: ignore[union-attr]


def test_statements_about_one_length_do_not_apply() -> None:
    results = verify("theorem-1", "lemma-3", data=scored(ragged(3)))
    for id in ("theorem-1", "lemma-3"):
        assert results[id].verdict is Verdict.NOT_APPLICABLE
        assert "inputs keep different numbers of tokens, 2, 3 and 4" in str(results[id].reason)


def scored(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data with the scores of a linear head, rounded to 3 digits."""
    return data | {"scores": np.where(data["mask"], np.round(data["keys"] @ [1, 0.5, 0.25], 3), 0)}


def test_options_that_need_one_length_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"--rule: adam-0\.1 needs inputs that keep the same number"):
        explain(ragged(0), rules=["adam-0.1"])
    with pytest.raises(InvalidInput, match="--train: v needs inputs that keep the same number"):
        explain(ragged(0), train="v")
