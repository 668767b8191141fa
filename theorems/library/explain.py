"""The function :func:`explain`: which tokens attention selects on data, why, and which theorems apply."""

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

    The gradient flow is followed from the start p(0) (0 unless the data have a ``start``) until ‖p‖ is 1e6 times the
    larger of ‖p(0)‖ and about 1/(largest |entry| of the keys). Neighbours, ties and local optimality are decided over
    the rationals; a question that is not decided is reported as undecided. If the data include trained weights (``p``;
    for data with queries ``W_trained``, or ``K_trained`` and ``Q_trained``), these weights are explained first, and the
    flow starts from them.

    Args:
        data: as for :func:`theorems.verify`.
        module: trained weights in place of arrays in the data: a ``torch.nn.MultiheadAttention``, linear layers
            ``(query, key)`` or ``(query, key, heads)``, a mapping from the names of those arrays to their values, a
            list of such objects, or a function that returns such an object; or ``"path.py:name"``, whose file runs in a
            separate process.
        rules: optimisers as ``theorems bench`` names them, such as ``"adam-0.1"``, to run from the same start.
        train: ``"v"`` to train the head v together with the prompt, by normalized steps that start from the data's v.
        starts: the number of further flows, from random starts.
        seed: the seed of the random starts.

    Returns:
        An :class:`Explanation`, to ``print`` or to show in a notebook, with the methods ``to_json()`` and
        ``plot("svg")`` and the attributes ``selection`` and ``optimal`` (tokens ``alpha`` with their ``svm``),
        ``tokens`` (a row for each token) and ``speaks`` (the statements that apply). For a kind of data that a paper
        defines, the explanation has this paper's description of the data, the assumptions and ``speaks``. For a module
        of several heads the result is a table whose attribute ``heads`` has an explanation of each head.

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
        raise InvalidInput(f"starts, seed: give numbers of at least 0, not {starts} and {seed}.")
    check_rules(rules)
    case, name = as_given(data, seed).case, name_of(data) or "data"
    if module is not None and train:
        raise InvalidInput("--train trains a prompt, but data for a module have queries, which train W; leave one out.")
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
