"""Faults in what the statements on attention that mixes call: s⋆, Gen-SVM, W_fin, the path and its offset."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flint import arb, ctx, fmpq

from reference_attention.optimal_attention import OptimalAttention, optimal_attention
from reference_attention.outer_keys import OuterKeys
from reference_attention.paths.mixing_path import mixing_path
from reference_attention.svm.finite_part import BITS, finite_part, least_norm_point, log_ratios, mixing_offset
from reference_attention.svm.general_svm import GeneralSvm, general_svm
from reference_attention.svm.max_margin import MaxMargin, max_margin
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults.fault import Fault, Kind


@dataclass(frozen=True)
class Replaced:
    """Size → the reference with that function in the place of its own."""

    name: str
    function: Any

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", **{self.name: self.function})


def double_penalty(scores: Any, penalty: fmpq) -> OptimalAttention:
    """The projection of γ/λ: the derivative of λ‖s‖² without its 2."""
    return optimal_attention(scores, penalty / 2)


def clip(scores: Any, penalty: fmpq) -> OptimalAttention:
    """The weights of sum 1 that are best without a sign, the negative ones then cut off and the rest normalised."""
    right = optimal_attention(scores, penalty)
    weights = []
    for row in scores:
        level = (sum(row, fmpq(0)) - 2 * penalty) / len(row)
        positive = [max(score - level, fmpq(0)) for score in row]
        weights.append(tuple(x / sum(positive, fmpq(0)) for x in positive))
    return replace(right, weights=tuple(weights))


def forget_least_token(scores: Any, penalty: fmpq) -> OptimalAttention:
    """The set O_i stops a token short: of several selected ones the least gets nothing."""
    right = optimal_attention(scores, penalty)
    weights, multipliers, levels = list(right.weights), list(right.multipliers), list(right.levels)
    for i, (row, best) in enumerate(zip(scores, right.weights, strict=True)):
        last = min((t for t, w in enumerate(best) if w > 0), key=lambda t: best[t])
        if sum(w > 0 for w in best) > 1:
            short = optimal_attention([[score for t, score in enumerate(row) if t != last]], penalty)
            kept, levels[i] = list(short.weights[0]), short.levels[0]
            weights[i] = (*kept[:last], fmpq(0), *kept[last:])
            multipliers[i] = tuple(
                levels[i] - score + 2 * penalty * w for score, w in zip(row, weights[i], strict=True)
            )
    return OptimalAttention(tuple(weights), tuple(multipliers), tuple(levels))


def mask_one_more(keys: OuterKeys, sets: Any, alpha: Any) -> Any:
    """A second token of a set is separated from as if it had no weight."""
    smaller = sets.copy()
    for i, t in np.argwhere(sets).tolist():
        if t != alpha[i]:
            smaller[i, t] = False
            break
    found = general_svm(keys, smaller, alpha)
    return _as_asked(found, keys, sets, alpha) if isinstance(found, GeneralSvm) else found


def drop_equalities(keys: OuterKeys, sets: Any, alpha: Any) -> Any:
    """α_i is separated from the masked tokens, and nothing keeps the others of its set level."""
    right = general_svm(keys, sets, alpha)
    masked = np.argwhere(~sets).tolist()
    tokens = np.stack([keys.tokens[i, [int(alpha[i]), t]] for i, t in masked])
    two = OuterKeys(tokens, keys.queries[[i for i, _ in masked]])
    found = max_margin(two, np.zeros(len(masked), dtype=np.int64))
    if not isinstance(found, MaxMargin) or not isinstance(right, GeneralSvm):
        return right
    duals = {(masked[k][0], masked[k][1]): weight for (k, _), weight in found.exact.duals.items()}
    return replace(right, point=list(found.exact.p), duals=duals, multipliers={})


def _as_asked(found: GeneralSvm, keys: OuterKeys, sets: Any, alpha: Any) -> Any:
    """The solution with the multipliers of the constraints that were asked for."""
    right = general_svm(keys, sets, alpha)
    if not isinstance(right, GeneralSvm):
        return right
    inside = {pair: weight for pair, weight in found.duals.items() if sets[pair]}
    duals = {pair: weight for pair, weight in found.duals.items() if not sets[pair]}
    return replace(right, point=found.point, duals=duals, multipliers=found.multipliers | inside)


def reverse_ratios(svm: GeneralSvm, attention: OptimalAttention) -> Any:
    """log(s⋆_it/s⋆_iα) for log(s⋆_iα/s⋆_it)."""
    with ctx.workprec(BITS):
        return [-x for x in finite_part(svm, attention)]


def drop_logarithms(svm: GeneralSvm, attention: OptimalAttention) -> Any:
    """The ratios less 1 in the place of their logarithms."""
    with ctx.workprec(BITS):
        ratios = [x.expm1() for x in log_ratios(svm.rows, attention, svm.alpha.tolist())]
        return least_norm_point(list(svm.rows.level.values()), ratios, len(svm.point))


def add_max_margin(svm: GeneralSvm, attention: OptimalAttention) -> Any:
    """W_fin + W^mm/1000: the same ratios, and not the least W that has them."""
    with ctx.workprec(BITS):
        return [a + arb(w) / 1000 for a, w in zip(finite_part(svm, attention), svm.point, strict=True)]


def stay_on_the_ray(keys: Any, attention: Any, penalty: Any, svm: GeneralSvm, rhos: Any) -> Any:
    """W_fin + r W^mm of the right norm, which nothing has minimised."""
    points = []
    for right in mixing_path(keys, attention, penalty, svm, rhos):
        with ctx.workprec(right.bits):
            finite, mm = finite_part(svm, attention), [arb(x) for x in svm.point]
            left = sum((x * x for x in right.point), arb(0)) - sum((x * x for x in finite), arb(0))
            r = (left / arb(svm.norm_squared)).sqrt()
            points.append(replace(right, point=[(a + r * b).mid() for a, b in zip(finite, mm, strict=True)]))
    return points


def predict_path(keys: Any, attention: Any, penalty: Any, svm: GeneralSvm, rhos: Any) -> Any:
    """ρ W^mm + o: the limit of the offset in the place of the path."""
    offset = mixing_offset(svm, attention)
    return [
        replace(right, point=[(right.rho * arb(w) + o).mid() for w, o in zip(svm.point, offset, strict=True)])
        for right in mixing_path(keys, attention, penalty, svm, rhos)
    ]


def stay_at_one_radius(keys: Any, attention: Any, penalty: Any, svm: GeneralSvm, rhos: Any) -> Any:
    """The point at the first radius in the place of all."""
    (point,) = mixing_path(keys, attention, penalty, svm, rhos[:1])
    return [replace(point, rho=rho) for rho in rhos]


def double_radii(keys: Any, attention: Any, penalty: Any, svm: GeneralSvm, rhos: Any) -> Any:
    """The path at twice the radii."""
    points = mixing_path(keys, attention, penalty, svm, [2 * rho for rho in rhos])
    return [replace(point, rho=rho) for point, rho in zip(points, rhos, strict=True)]


def double_multipliers(keys: Any, attention: Any, penalty: Any, svm: GeneralSvm, rhos: Any) -> Any:
    """2η for η, as of ½‖W‖² ≤ R."""
    points = mixing_path(keys, attention, penalty, svm, rhos)
    return [replace(point, multiplier=2 * point.multiplier) for point in points]


def leave_out_radii(keys: Any, attention: Any, penalty: Any, svm: GeneralSvm, rhos: Any) -> Any:
    """The last point alone is said to be found."""
    *others, last = mixing_path(keys, attention, penalty, svm, rhos)
    return [*(replace(point, reason="it was given up") for point in others), last]


def forget_duals(svm: GeneralSvm, attention: OptimalAttention) -> Any:
    """log c_j for log(c_j/λ_j)."""
    return mixing_offset(_with_equal_duals(svm), attention)


def _with_equal_duals(svm: GeneralSvm) -> GeneralSvm:
    return replace(svm, duals=dict.fromkeys(svm.duals, fmpq(1)))


MIXING_FAULTS = (
    Fault(
        "mixing-penalty-doubled",
        Kind.MIXING,
        "λ in the place of 2λ: the projection of γ/λ on the simplex",
        "tsvm-exact-support",
        Replaced("optimal_attention", double_penalty),
    ),
    Fault(
        "mixing-attention-clipped",
        Kind.MIXING,
        "negative weights of the best ones of sum 1 are cut off, the rest is normalised",
        "tsvm-exact-support",
        Replaced("optimal_attention", clip),
    ),
    Fault(
        "mixing-set-off-by-a-token",
        Kind.MIXING,
        "of several selected tokens the one of least weight is left out",
        "tsvm-exact-support",
        Replaced("optimal_attention", forget_least_token),
    ),
    Fault(
        "gen-svm-masks-one-more",
        Kind.MIXING,
        "Gen-SVM separates from a token that has weight",
        "tsvm-mixing",
        Replaced("general_svm", mask_one_more),
    ),
    Fault(
        "gen-svm-without-equalities",
        Kind.MIXING,
        "nothing keeps the tokens of a set level",
        "tsvm-mixing",
        Replaced("general_svm", drop_equalities),
    ),
    Fault(
        "finite-part-reversed",
        Kind.MIXING,
        "W_fin of the inverse ratios",
        "tsvm-mixing",
        Replaced("finite_part", reverse_ratios),
    ),
    Fault(
        "finite-part-without-logarithm",
        Kind.MIXING,
        "W_fin of the ratios less 1, not of their logarithms",
        "tsvm-mixing",
        Replaced("finite_part", drop_logarithms),
    ),
    Fault(
        "finite-part-not-the-least",
        Kind.MIXING,
        "W_fin with a thousandth of W^mm, which has the same ratios",
        "tsvm-mixing",
        Replaced("finite_part", add_max_margin),
    ),
    Fault(
        "mixing-path-on-the-ray",
        Kind.MIXING,
        "W_fin + r W^mm in the place of the minimiser",
        "tsvm-mixing",
        Replaced("mixing_path", stay_on_the_ray),
    ),
    Fault(
        "mixing-path-predicted",
        Kind.MIXING,
        "ρ W^mm + o in the place of the minimiser",
        "tsvm-mixing",
        Replaced("mixing_path", predict_path),
    ),
    Fault(
        "mixing-path-at-one-radius",
        Kind.MIXING,
        "the point at the first radius is returned for all",
        "tsvm-mixing",
        Replaced("mixing_path", stay_at_one_radius),
    ),
    Fault(
        "mixing-path-at-twice-the-radius",
        Kind.MIXING,
        "the path at 2R",
        "tsvm-mixing",
        Replaced("mixing_path", double_radii),
    ),
    Fault(
        "mixing-path-multipliers-doubled",
        Kind.MIXING,
        "multipliers of the path are twice as large",
        "tsvm-mixing",
        Replaced("mixing_path", double_multipliers),
    ),
    Fault(
        "mixing-path-leaves-radii-out",
        Kind.MIXING,
        "a point at the largest radius alone",
        "tsvm-mixing",
        Replaced("mixing_path", leave_out_radii),
    ),
    Fault(
        "mixing-offset-is-finite-part",
        Kind.MIXING,
        "W_fin is taken for all that stays finite",
        "tsvm-mixing",
        Replaced("mixing_offset", finite_part),
    ),
    Fault(
        "mixing-offset-without-duals",
        Kind.MIXING,
        "the offset has log c_j in the place of log(c_j/λ_j)",
        "tsvm-mixing",
        Replaced("mixing_offset", forget_duals),
    ),
)
"""Faults in attention that mixes."""
