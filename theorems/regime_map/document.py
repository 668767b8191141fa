"""The document of the regime map, docs/regime_map.md: what it says of Theorem 6, and how its rows are read."""

from __future__ import annotations

from theorems.token_selection.joint_paths.regime_map import Regime

COLUMNS = ("data", "schedule", "r/R →", "ends at", "from p_mm", "from p_relax", "from p(r/R)", "1 − cos(v, v_mm)")

BEFORE = """\
# Which schedule of radii ends where

Theorem 6 of the paper says that the joint regularization path (v_r, p_R) = argmin of the risk over ‖v‖ ≤ r, ‖p‖ ≤ R has
p_R/R → p_relax/‖p_relax‖ if some inputs are no supports of v_mm. It does not say how r and R grow. With r = o(R), or r
fixed and large enough for all α, the path ends at p_mm; along r = cR it ends at

    p(c) = argmax over ‖p‖ ≤ 1 of τ   subject to   (k_iα − k_it)·p ≥ τ (i ∈ S),   ≥ max(0, τ − c·slack_i) (i ∉ S)

where slack_i = v̄_mm·Y_i x_iα − Γ is the spare label margin of non-support i: p_mm at c = 0, p_relax from

    c* = max over i ∉ S of (Θ_relax − ρ_i)⁺ / slack_i,    ρ_i = min_t (k_iα − k_it)·p̄_relax

on (`theorems show theorem-6`). p(c) is computed without the path, and the path followed from RΘ < 1 to RΘ = 2²⁰ without
p(c). The columns are distances ‖p/R − …‖.

    theorems regime-map --markdown
"""

AFTER = """\
Along r = √R the ratio is still 2⁻¹⁰ at the end, which explains its distance to p_mm. Where "from p_relax" is at
rounding level, the non-supports do not compete and the supports are symmetric; elsewhere it is o(1)/R. "generated 0"
and "generated 2" have ρ = 0: the minimiser keeps 1 − s_iα near slack_i/d_i instead of 0, so that p_R does not select α.

Normalized gradient descent on (v, p) shows the same map with c = lim ‖v‖/‖p‖ (`conjecture-joint-descent`).
"""


def cells(row: Regime) -> tuple[str, ...]:
    """One row, as texts."""
    distances = (row.from_mm, row.from_relax, row.from_predicted, row.from_head)
    return (row.data, row.schedule, f"{row.ratio:.4g}", row.ends_at, *(f"{x:.1e}" for x in distances))
