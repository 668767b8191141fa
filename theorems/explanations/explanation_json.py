"""JSON of an explanation: floats with all their digits, exact numbers also as rationals; nothing is written twice."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reference_attention.files import to_json
from reference_attention.next_token.unwinnable_scores import SplitFlow
from reference_attention.svm.max_margin import Infeasible
from theorems.benchmark.measurements import Limit
from theorems.core.version import version
from theorems.explanations.content import decades
from theorems.explanations.facts import Facts
from theorems.explanations.ragged_problem import RaggedProblem
from theorems.explanations.selection import Chosen, FollowedFlow
from theorems.explanations.sentences import paragraphs
from theorems.run.findings import NamedFinding
from theorems.run.findings import as_json as findings_json


def as_json(facts: Facts) -> str:
    """Return the explanation as strict JSON, which ends with a newline."""
    problem, flow = facts.case.problem, facts.path.flow
    record = {
        "version": version(),
        "data": facts.name,
        "n": problem.n,
        "T": problem.T,
        "counted": problem.counted.sum(axis=1) if isinstance(problem, RaggedProblem) else None,
        "d": problem.d,
        "loss": problem.loss.name,
        "positions": facts.case.positions,
        "seed": facts.seed,
        "trained": None if facts.layer is None else facts.layer.as_json(),
        "run": None if facts.run is None else facts.run.as_json(),
        "flow_from_start": None if facts.before is None else _end_of_path(facts.before),
        "flow": _end_of_path(facts.path)
        | {
            "reason": flow.reason,
            "records": [_record(facts, k) for k in decades(facts)],
            "cone": None
            if facts.entry is None
            else {"entered_at": facts.entry.norm, "mu": facts.entry.mu, "radius": facts.entry.radius},
        },
        "weights_at": facts.norms,
        "about": None if facts.about is None else facts.about.name,
        "tokens": [vars(token) for token in facts.tokens],
        "directions": [_direction(choice) for choice in facts.choices],
        "weights": [weights.as_json() for weights in facts.weights],
        "tied": _tied(facts),
        "locally_optimal": None
        if facts.locally_optimal is None
        else [choice.alpha for choice in facts.locally_optimal],
        "ends": [end.as_json() for end in facts.ends],
        "rules": [vars(rule) | {"settled": rule.settled} for rule in facts.rules],
        "joint": None if facts.joint is None else facts.joint.as_json(),
        "other_starts": [_end_of_path(path) for path in facts.others],
        "assumptions": {
            checked.of: findings_json(map(_without_svm, checked.findings)) for checked in facts.assumptions
        },
        "statements": [
            {
                "id": theorem.id,
                "of": theorem.of,
                "applies": theorem.applies,
                "missing": [finding.id for finding in theorem.missing],
            }
            for theorem in facts.statements
        ],
        "words": paragraphs(facts),
    }
    return to_json(record, indent=2) + "\n"


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


def _tied(facts: Facts) -> dict[str, Any] | None:
    """Return which tokens tie with optimal ones, and the proof; None where one prompt can select all optimal tokens."""
    split = facts.split
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


def _record(facts: Facts, k: int) -> dict[str, Any]:
    flow = facts.path.flow
    apart = {}
    for choice in facts.choices:
        if choice.solution is not None:
            value = float(flow.one_minus_cosine(choice.solution.direction)[k])
            apart[choice.name] = None if math.isnan(value) else value
    return {"norm": flow.norms[k], "log_time": flow.log_time[k], "p": flow.points[k], "one_minus_cosine": apart}


def _direction(choice: Chosen) -> dict[str, Any]:
    """Return p_mm and its duals λ, rounded and as rationals; or Farkas multipliers, which prove that no p_mm exists."""
    record: dict[str, Any] = {"of": choice.name, "alpha": choice.alpha, "locally_optimal": choice.locally_optimal}
    if isinstance(choice.svm, Infeasible):
        return record | {"feasible": False, "farkas": _by_pair(choice.svm.exact)}
    return record | {
        "feasible": True,
        "norm": choice.svm.norm,
        "margin": choice.svm.margin,
        "p": choice.svm.p,
        "neighbours": np.argwhere(choice.svm.neighbours),
        "exact": {"p": [str(x) for x in choice.svm.exact.p], "duals": _by_pair(choice.svm.exact.duals)},
    }


def _without_svm(finding: NamedFinding) -> NamedFinding:
    """Return a finding without exact solutions that the JSON already has under ``directions``."""
    return finding._replace(exact={}) if finding.id in ("separable", "locally-optimal") else finding


def _by_pair(values: dict[tuple[int, int], Any]) -> dict[str, str]:
    return {f"{i},{t}": str(x) for (i, t), x in values.items()}
