"""What attention selects on data, why, and which theorems speak of it: :func:`explain`."""

from __future__ import annotations

from generators.case import Case
from reference_attention.errors import InvalidInput
from theorems.explaining.explanation import Explanation, explanation_of
from theorems.explaining.own_kind import OwnExplanation, own_explanation_of
from theorems.library.arguments import Data, as_given, name_of


def explain(data: Data, /, *, starts: int = 0, seed: int = 0) -> Explanation | OwnExplanation:
    """What attention selects on data, why, and which theorems speak of it.

    The gradient flow is followed from p(0) (0 unless the data have a ``start``) to norms of 1e6 in units of the keys.
    Neighbours, ties and local optimality are decided over the rationals; what cannot be decided is said.

    Args:
        data: as for :func:`theorems.verify`.
        starts: also flows from so many seeded starts.
        seed: same seed, same starts.

    Returns:
        An :class:`Explanation`: ``print`` it, show it in a notebook, ``to_json()``, ``plot("svg")``; ``selection`` and
        ``optimal`` (tokens ``alpha`` with their ``svm``), ``tokens`` (a row each), ``speaks`` (statements that apply).
        Of data of a paper's own kind what that paper says of them, the assumptions, and ``speaks``.

    Raises:
        InvalidInput: data that cannot be used, in one sentence.

    >>> from theorems import explain
    >>> found = explain("figure-1b")
    >>> found
    Explanation(from p(0) = 0 the flow selects the optimal token, 0 (GMM))
    >>> found.selection.alpha, [one.alpha.tolist() for one in found.locally_optimal]
    (array([0]), [[0], [1]])
    >>> [one.id for one in found.speaks if one.applies and "theorem" in one.id][:3]
    ['theorem-1', 'theorem-3', 'theorem-4']
    """
    if starts < 0 or seed < 0:
        raise InvalidInput(f"starts: at least 0 and seed at least 0, not {starts} and {seed}.")
    case, name = as_given(data, seed).case, name_of(data) or "data"
    return explanation_of(case, name, starts, seed) if isinstance(case, Case) else own_explanation_of(case, name)
