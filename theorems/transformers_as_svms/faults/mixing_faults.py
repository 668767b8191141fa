"""Planted faults in the computations on attention that mixes tokens: s⋆, Gen-SVM, W_fin, the path and its offset."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from flint import arb, ctx, fmpq

from reference_attention.optimal_attention import OptimalAttention, optimal_attention
from reference_attention.outer_keys import OuterKeys
from reference_attention.paths.mixing_path import MixingPoint, mixing_path
from reference_attention.svm.finite_part import BITS, finite_part, least_norm_point, log_ratios, mixing_offset
from reference_attention.svm.general_svm import GeneralSvm, general_svm
from reference_attention.svm.max_margin import MaxMargin, max_margin
from theorems.faults.fault import Faults, Kind

FAULTS = Faults(Kind.MIXING)
EXACT, MIXING = "tsvm-exact-support", "tsvm-mixing"
Path = list[MixingPoint]


@FAULTS.plant(
    "mixing-penalty-doubled", "λ in place of 2λ: the projection of γ/λ on the simplex", EXACT, optimal_attention
)
def _double_penalty(right: Callable[..., OptimalAttention], scores: Any, penalty: fmpq) -> OptimalAttention:
    """Return the projection of γ/λ on the simplex, as if the derivative of λ‖s‖² were λs."""
    return right(scores, penalty / 2)


@FAULTS.change(
    "mixing-attention-clipped",
    "the best weights of sum 1 and any sign; negative ones are set to 0 and the others normalised",
    EXACT,
    optimal_attention,
)
def _clip(attention: OptimalAttention, scores: Any, penalty: fmpq) -> OptimalAttention:
    weights = []
    for row in scores:
        level = (sum(row, fmpq(0)) - 2 * penalty) / len(row)
        positive = [max(score - level, fmpq(0)) for score in row]
        weights.append(tuple(x / sum(positive, fmpq(0)) for x in positive))
    return replace(attention, weights=tuple(weights))


@FAULTS.change(
    "mixing-set-off-by-a-token",
    "if several tokens are selected, the one with the least weight is left out",
    EXACT,
    optimal_attention,
)
def _forget_least_token(attention: OptimalAttention, scores: Any, penalty: fmpq) -> OptimalAttention:
    weights, multipliers, levels = list(attention.weights), list(attention.multipliers), list(attention.levels)
    for i, (row, best) in enumerate(zip(scores, attention.weights, strict=True)):
        last = min((t for t, w in enumerate(best) if w > 0), key=lambda t: best[t])
        if sum(w > 0 for w in best) > 1:
            short = optimal_attention([[score for t, score in enumerate(row) if t != last]], penalty)
            others, levels[i] = list(short.weights[0]), short.levels[0]
            weights[i] = (*others[:last], fmpq(0), *others[last:])
            multipliers[i] = tuple(
                levels[i] - score + 2 * penalty * w for score, w in zip(row, weights[i], strict=True)
            )
    return OptimalAttention(tuple(weights), tuple(multipliers), tuple(levels))


@FAULTS.plant("gen-svm-masks-one-more", "Gen-SVM treats a token that has weight as masked", MIXING, general_svm)
def _mask_one_more(right: Callable[..., Any], keys: OuterKeys, sets: Any, alpha: Any) -> Any:
    """Solve Gen-SVM as if one more token had no weight; return multipliers for the constraints of the right sets."""
    smaller = sets.copy()
    for i, t in np.argwhere(sets).tolist():
        if t != alpha[i]:
            smaller[i, t] = False
            break
    masked = right(keys, smaller, alpha)
    svm = right(keys, sets, alpha) if isinstance(masked, GeneralSvm) else masked
    if not isinstance(svm, GeneralSvm):
        return svm
    inside = {pair: weight for pair, weight in masked.duals.items() if sets[pair]}
    duals = {pair: weight for pair, weight in masked.duals.items() if not sets[pair]}
    return replace(svm, point=masked.point, duals=duals, multipliers=masked.multipliers | inside)


@FAULTS.change(
    "gen-svm-without-equalities",
    "Gen-SVM without the constraints that tokens of a set have equal logits",
    MIXING,
    general_svm,
    only=GeneralSvm,
)
def _drop_equalities(svm: GeneralSvm, keys: OuterKeys, sets: Any, alpha: Any) -> GeneralSvm:
    """Solve without the equality constraints: separate α_i from the masked tokens only."""
    masked = np.argwhere(~sets).tolist()
    tokens = np.stack([keys.tokens[i, [int(alpha[i]), t]] for i, t in masked])
    pairs = OuterKeys(tokens, keys.queries[[i for i, _ in masked]])
    loose = max_margin(pairs, np.zeros(len(masked), dtype=np.int64))
    if not isinstance(loose, MaxMargin):
        return svm
    duals = {(masked[k][0], masked[k][1]): weight for (k, _), weight in loose.exact.duals.items()}
    return replace(svm, point=list(loose.exact.p), duals=duals, multipliers={})


@FAULTS.change("finite-part-reversed", "W_fin for the inverse ratios of weights", MIXING, finite_part)
def _reverse_ratios(finite: list[arb], *arguments: Any) -> list[arb]:
    """Return W_fin for log(s⋆_it/s⋆_iα) instead of log(s⋆_iα/s⋆_it)."""
    with ctx.workprec(BITS):
        return [-x for x in finite]


@FAULTS.plant("finite-part-without-logarithm", "W_fin for ratios − 1 instead of log ratios", MIXING, finite_part)
def _drop_logarithms(right: Callable[..., Any], svm: GeneralSvm, attention: OptimalAttention) -> list[arb]:
    with ctx.workprec(BITS):
        ratios = [x.expm1() for x in log_ratios(svm.rows, attention, svm.alpha.tolist())]
        return least_norm_point(list(svm.rows.level.values()), ratios, len(svm.point))


@FAULTS.change("finite-part-not-the-least", "W_fin + W^mm/1000, which gives the same ratios", MIXING, finite_part)
def _add_max_margin(finite: list[arb], svm: GeneralSvm, attention: OptimalAttention) -> list[arb]:
    with ctx.workprec(BITS):
        return [a + arb(w) / 1000 for a, w in zip(finite, svm.point, strict=True)]


@FAULTS.change("mixing-path-on-the-ray", "W_fin + r W^mm instead of the minimiser", MIXING, mixing_path)
def _stay_on_the_ray(
    path: Path, keys: Any, attention: OptimalAttention, penalty: Any, svm: GeneralSvm, *_: Any
) -> Path:
    """Return W_fin + r W^mm with the r for which its norm is the radius."""
    points = []
    for point in path:
        with ctx.workprec(point.bits):
            finite, mm = finite_part(svm, attention), [arb(x) for x in svm.point]
            remainder = sum((x * x for x in point.point), arb(0)) - sum((x * x for x in finite), arb(0))
            r = (remainder / arb(svm.norm_squared)).sqrt()
            points.append(replace(point, point=[(a + r * b).mid() for a, b in zip(finite, mm, strict=True)]))
    return points


@FAULTS.change("mixing-path-predicted", "ρ W^mm + o instead of the minimiser", MIXING, mixing_path)
def _predict_path(path: Path, keys: Any, attention: OptimalAttention, penalty: Any, svm: GeneralSvm, *_: Any) -> Path:
    """Return ρ W^mm + o, with o the limit of the path's offset from the ray of W^mm."""
    offset = mixing_offset(svm, attention)
    return [
        replace(point, point=[(point.rho * arb(w) + o).mid() for w, o in zip(svm.point, offset, strict=True)])
        for point in path
    ]


@FAULTS.plant(
    "mixing-path-at-one-radius", "the point at the first radius is returned for all radii", MIXING, mixing_path
)
def _stay_at_one_radius(right: Callable[..., Path], *arguments: Any) -> Path:
    *others, rhos = arguments
    (point,) = right(*others, rhos[:1])
    return [replace(point, rho=rho) for rho in rhos]


@FAULTS.plant("mixing-path-at-twice-the-radius", "the path at radius 2R", MIXING, mixing_path)
def _double_radii(right: Callable[..., Path], *arguments: Any) -> Path:
    *others, rhos = arguments
    points = right(*others, [2 * rho for rho in rhos])
    return [replace(point, rho=rho) for point, rho in zip(points, rhos, strict=True)]


@FAULTS.change("mixing-path-multipliers-doubled", "multipliers of the path are twice as large", MIXING, mixing_path)
def _double_multipliers(path: Path, *arguments: Any) -> Path:
    """Return the path with multipliers 2η instead of η, as for another scaling of the constraint."""
    return [replace(point, multiplier=2 * point.multiplier) for point in path]


@FAULTS.change("mixing-path-leaves-radii-out", "only the point at the largest radius", MIXING, mixing_path)
def _leave_out_radii(path: Path, *arguments: Any) -> Path:
    """Report all points of the path except the last as not found."""
    return [*(replace(point, reason="it was given up") for point in path[:-1]), path[-1]]


@FAULTS.plant("mixing-offset-is-finite-part", "W_fin in place of the whole offset", MIXING, mixing_offset)
def _only_finite_part(right: Callable[..., Any], *arguments: Any) -> list[arb]:
    return finite_part(*arguments)


@FAULTS.plant("mixing-offset-without-duals", "the offset has log c_j in place of log(c_j/λ_j)", MIXING, mixing_offset)
def _forget_duals(right: Callable[..., Any], svm: GeneralSvm, attention: OptimalAttention) -> list[arb]:
    return right(replace(svm, duals=dict.fromkeys(svm.duals, fmpq(1))), attention)
