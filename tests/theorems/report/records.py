"""Invented results of every statement, in the format of ``theorems verify --json``."""

from __future__ import annotations

from typing import Any

from theorems.run.registry.suite import statements


def many_statements() -> dict[str, Any]:
    """Return a record in which all statements are upheld except the last, whose second claim is falsified."""
    records = [_statement(id, statement.title) for id, statement in statements().items()]
    last = records[-1]
    last["verdict"], last["counts"] = "falsified", {"upheld": 3, "falsified": 1}
    last["claims"][1] |= {"verdict": "falsified", "worst_slack": -3e-15}
    return {
        "version": "0.1.0",
        "seed": 0,
        "examples": 4,
        "data": None,
        "implementation": "reference",
        "statements": records,
    }


def _statement(id: str, title: str) -> dict[str, Any]:
    forms = {"decided": (0.0, 0.0, "exact"), "near": (-5e-16, 1e-15, "rounding"), "far": (0.25, 1e-15, "rounding")}
    claims = [
        {"name": name, "form": "exact", "verdict": "upheld", "worst_slack": slack, "tolerance": tolerance, "why": why}
        for name, (slack, tolerance, why) in forms.items()
    ]
    return {
        "id": id,
        "title": title,
        "verdict": "upheld",
        "examples": 4,
        "counts": {"upheld": 3, "inconclusive": 1},
        "claims": claims,
        "reason": "",
        "not_found": 1,
        "never_made": ["seldom", "never"],
    }
