"""Explanation of which tokens attention selects on data, why, and which theorems apply: :func:`explain`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from generators.case import Case
from reference_attention.errors import InvalidInput
from theorems.explanations.custom_subject import CustomExplanation, custom_explanation_of
from theorems.explanations.explanation import Explanation, explanation_of
from theorems.explanations.head_explanations import HeadExplanations
from theorems.explanations.module_heads import Head, heads_of, load_heads
from theorems.explanations.rule_ends import check_rules
from theorems.library.arguments import Data, as_given, name_of
from theorems.run.sandbox import open_sandbox


def explain(
    data: Data, /, *, module: Any = None, rules: Sequence[str] = (), train: str = "", starts: int = 0, seed: int = 0
) -> Explanation | CustomExplanation | HeadExplanations:
    """Explain which tokens attention selects on data, why, and which theorems apply.

    The gradient flow is followed from p(0) (0 unless the data have a ``start``) to norms of 1e6 in units of the keys.
    Neighbours, ties and local optimality are decided over the rationals; undecided questions are reported as such.
    Trained weights among the data (``p``; with queries ``W_trained``, or ``K_trained`` and ``Q_trained``) are explained
    as they are, and the flow is followed from there.

    Args:
        data: as for :func:`theorems.verify`.
        module: trained weights in place of arrays in the data: a ``torch.nn.MultiheadAttention``, linear layers
            ``(query, key)`` or ``(query, key, heads)``, a mapping of those arrays, a list of these, or a function that
            returns one; or ``"path.py:name"``, which a process of its own runs.
        rules: rules of ``theorems bench``, such as ``"adam-0.1"``, that are run from the same start.
        train: ``"v"`` to train also the head together with the prompt, from the head of the data, by normalized steps.
        starts: number of further flows, from seeded starts.
        seed: the seed of those starts.

    Returns:
        An :class:`Explanation`: ``print`` it, show it in a notebook, ``to_json()``, ``plot("svg")``; ``selection`` and
        ``optimal`` (tokens ``alpha`` with their ``svm``), ``tokens`` (a row each), ``speaks`` (statements that apply).
        For data of a paper's own kind: that paper's words about them, the assumptions, and ``speaks``. For a module of
        several heads a table, whose ``heads`` are such explanations.

    Raises:
        InvalidInput: the data or the module cannot be used.

    >>> from theorems import explain
    >>> found = explain("figure-1b")
    >>> found
    Explanation(from p(0) = 0 the flow selects the optimal token, 0 (GMM))
    >>> found.selection.alpha, [one.alpha.tolist() for one in found.locally_optimal]
    (array([0]), [[0], [1]])
    >>> [one.id for one in found.statements if one.applies and "theorem" in one.id][:3]
    ['theorem-1', 'theorem-3', 'theorem-4']
    """
    if starts < 0 or seed < 0:
        raise InvalidInput(f"starts: at least 0 and seed at least 0, not {starts} and {seed}.")
    check_rules(rules)
    case, name = as_given(data, seed).case, name_of(data) or "data"
    if module is not None and train:
        raise InvalidInput("--train: a module is explained on data with queries, where W is trained; leave one out.")
    if module is not None:
        return _explain_heads(case, name, module, starts, seed, rules)
    if not isinstance(case, Case):
        if rules or train:
            option = f"--rule: {rules[0]}" if rules else f"--train: {train}"
            raise InvalidInput(f"{option} trains attention, not {case.noun}; leave it out.")
        return custom_explanation_of(case, name)
    return explanation_of(case, name, starts, seed, rules, train)


def _explain_heads(
    case: Any, name: str, module: Any, starts: int, seed: int, rules: Sequence[str]
) -> Explanation | HeadExplanations:
    if not isinstance(case, Case):
        raise InvalidInput(f"--module: weights of attention do nothing on {case.noun}; give tokens with queries.")
    source = module if isinstance(module, str) else type(module).__name__
    heads = _loaded(module) if isinstance(module, str) else heads_of(module, f"module: {source}")
    cases = [head.beside(case) for head in heads]
    if len(cases) == 1:
        return explanation_of(cases[0], name, starts, seed, rules)
    explanations = (
        explanation_of(with_head, f"{name}, {source}[{k}]", starts, seed, rules) for k, with_head in enumerate(cases)
    )
    return HeadExplanations(source, name, tuple(explanations))


def _loaded(source: str) -> list[Head]:
    with open_sandbox(1) as sandbox:
        return sandbox.call(f"--module: loading {source}", load_heads, source)
