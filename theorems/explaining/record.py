"""The explanation as JSON: every number in full, what was decided exactly also as rationals, once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reference_attention.files import to_json
from reference_attention.next_token.unwinnable_scores import SplitFlow
from reference_attention.svm.max_margin import Infeasible
from theorems.benchmark.measure import Limit
from theorems.core.version import version
from theorems.explaining.content import decades
from theorems.explaining.facts import Facts
from theorems.explaining.selection import Chosen, FollowedFlow
from theorems.explaining.words import paragraphs
from theorems.run.findings import NamedFinding
from theorems.run.findings import as_json as findings_json


def as_json(it: Facts) -> str:
    """Strict JSON; ends with a newline."""
    problem, flow = it.case.problem, it.path.flow
    held = {
        "version": version(),
        "data": it.name,
        "n": problem.n,
        "T": problem.T,
        "d": problem.d,
        "loss": problem.loss.name,
        "seed": it.seed,
        "flow": _end_of_path(it.path)
        | {
            "reason": flow.reason,
            "records": [_record(it, k) for k in decades(it)],
            "cone": None
            if it.entry is None
            else {"entered_at": it.entry.norm, "mu": it.entry.mu, "radius": it.entry.radius},
        },
        "weights_at": it.norms,
        "about": None if it.about is None else it.about.name,
        "tokens": [vars(one) for one in it.tokens],
        "directions": [_direction(one) for one in it.choices],
        "weights": [one.as_json() for one in it.weights],
        "tied": _tied(it),
        "locally_optimal": None if it.locally_optimal is None else [one.alpha for one in it.locally_optimal],
        "ends": [vars(one) for one in it.ends],
        "other_starts": [_end_of_path(one) for one in it.others],
        "assumptions": {one.of: findings_json(map(_without_svm, one.findings)) for one in it.looked},
        "statements": [
            {"id": one.id, "of": one.of, "applies": one.applies, "missing": [found.id for found in one.missing]}
            for one in it.speaks
        ],
        "words": paragraphs(it),
    }
    return to_json(held, indent=2) + "\n"


def _end_of_path(path: FollowedFlow) -> dict[str, Any]:
    limit = path.limit if isinstance(path.limit, Limit) else None
    return {
        "start": path.start,
        "stop": str(path.flow.stop),
        "norm": path.flow.norms[-1],
        "selects": path.selects,
        "kind": None if limit is None else str(limit.kind),
        "one_minus_cosine": None if limit is None else path.flow.one_minus_cosine(limit.svm.direction)[-1],
        "undecided": None if path.is_decided else path.limit,
        "parts": None if path.parts is None else _parts(path.parts),
    }


def _parts(parts: SplitFlow) -> dict[str, Any]:
    return {
        "finite_part": parts.finite_part,
        "direction": parts.split.direction,
        "weights": parts.weights,
        "risk": parts.risk,
        "apart_from": parts.apart_from,
        "one_minus_cosine": parts.one_minus_cosine,
    }


def _tied(it: Facts) -> dict[str, Any] | None:
    """Return which tokens are tied with the optimal ones, with the proof; None where all can be selected."""
    split = it.split
    if split is None:
        return None
    return {
        "tokens": np.argwhere(split.sets),
        "dimension": len(split.level),
        "tying": _by_pair(split.supports.tying),
        "separator": [str(x) for x in split.svm.point],
        "bounds_risk": split.bounds_risk,
        "convex": split.convex,
    }


def _record(it: Facts, k: int) -> dict[str, Any]:
    flow = it.path.flow
    apart = {}
    for one in it.choices:
        if one.solution is not None:
            value = float(flow.one_minus_cosine(one.solution.direction)[k])
            apart[one.name] = None if math.isnan(value) else value
    return {"norm": flow.norms[k], "log_time": flow.log_time[k], "p": flow.points[k], "one_minus_cosine": apart}


def _direction(one: Chosen) -> dict[str, Any]:
    """p_mm and its duals, rounded and as rationals; or the multipliers that prove that there is none."""
    held: dict[str, Any] = {"of": one.name, "alpha": one.alpha, "locally_optimal": one.locally_optimal}
    if isinstance(one.svm, Infeasible):
        return held | {"feasible": False, "farkas": _by_pair(one.svm.exact)}
    return held | {
        "feasible": True,
        "norm": one.svm.norm,
        "margin": one.svm.margin,
        "p": one.svm.p,
        "neighbours": np.argwhere(one.svm.neighbours),
        "exact": {"p": [str(x) for x in one.svm.exact.p], "duals": _by_pair(one.svm.exact.duals)},
    }


def _without_svm(found: NamedFinding) -> NamedFinding:
    """Without what stands among the directions."""
    return found._replace(exact={}) if found.id in ("separable", "locally-optimal") else found


def _by_pair(values: dict[tuple[int, int], Any]) -> dict[str, str]:
    return {f"{i},{t}": str(x) for (i, t), x in values.items()}
