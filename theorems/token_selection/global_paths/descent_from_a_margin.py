"""Where every optimal token leads by a margin that the data give, gradient descent keeps it and turns to p_mm.

Main results: for any number of inputs and any scores, gradient correlation with an explicit π(p) wherever the margin is
large enough; gradient descent from there never leaves; a rate for normalized gradient descent with every constant.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorems 1 and 2, Lemmas 4 and 5; *Transformers as
Support Vector Machines*, Theorem 3.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from jaxtyping import Float64
from numpy.linalg import norm

from generators.case import Case
from generators.numbers import SOLVABLE_BLOCKS
from generators.problems import cases
from theorems.core.att_svm import certify
from theorems.core.claim import Claim
from theorems.core.implementation import Implementation
from theorems.core.on_kernel import SATURATED
from theorems.core.statement import always, statement
from theorems.rounding.bounded import exact, value_of
from theorems.token_selection.global_paths.margin_constants import MarginConstants
from theorems.token_selection.global_paths.margin_flow import FLOW_CLAIMS, flow_claims
from theorems.token_selection.global_paths.margin_points import (
    POINT_CLAIMS,
    beside_the_ray,
    point_claims,
    with_least_margin,
)
from theorems.token_selection.global_paths.margin_runs import (
    DESCENT_CLAIMS,
    LENGTHS,
    NORMALIZED_CLAIMS,
    descent_run,
    normalized_run,
)

ASSUMPTIONS = ("well-behaved-loss", "strict-optimum", "separable")
MARGIN_CLAIMS = always("svm-is-optimal", *POINT_CLAIMS, *DESCENT_CLAIMS, *NORMALIZED_CLAIMS) | dict.fromkeys(
    FLOW_CLAIMS, "where float64 resolves the flow to 100 times the norm of its start"
)
"""What is claimed from a start of enough margin."""
MARGIN_PREMISES = (
    "svm-is-optimal",
    "run-is-the-one-asked-for",
    "iterate-is-a-step",
    "normalized-run-is-the-one-asked-for",
    "normalized-iterate-is-a-step",
    "flow-is-the-one-asked-for",
    "flow-is-of-this-gradient",
    "flow-chords",
)
"""Those which say that the solution and the runs are what the others speak of."""
RESOLVED = 1e6
"""Where ‖p(0)‖ max‖g‖ is larger, the solver's tolerance at 100 times that norm is more than the margin of the start."""
FARTHEST = 1e9
"""‖p(0)‖ max‖g‖ of starts beside the ray, at most: 200 steps then move a margin by 1e-4 in their rounding."""
ASKEW = (0.0, 1.0, 30.0)
"""How far starts lie beside the ray of p_mm, in units of ‖p_mm‖."""


def _cases() -> SearchStrategy[Case]:
    """Two dimensions and more in half of the cases: in one there is nothing to turn to."""
    return st.one_of(
        cases(assumptions=ASSUMPTIONS, d=(2, 5)),
        cases(assumptions=ASSUMPTIONS, large=SOLVABLE_BLOCKS),
    )


@statement(
    "descent-from-a-margin",
    "Gradient descent from a start of sufficient margin",
    source="own; sharper than Theorem 2",
    claims=MARGIN_CLAIMS,
    states=(),
    premises=MARGIN_PREMISES,
    assumptions=ASSUMPTIONS,
    cases=_cases,
    kernel=SATURATED,
    needs={
        "separable": "p_mm exists only if ATT-SVM is feasible",
        "well-behaved-loss": "the margin that it asks of a start is made of bounds of |ℓ'| > 0",
        "strict-optimum": "the margin that it asks of a start is made of the gaps to a single best token",
    },
)
def descent_from_a_margin(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let Assumption A hold, opt be unique and ATT-SVM(opt) feasible; any n, any scores. With g_it = k_i,opt − k_it,
    m(p) = min g_it·p, A = max g_it·p_mm ≥ 1, N = n(T−1), κ that of Theorem 1, K = κ − log 2: from any p(0) with

        m(p(0)) ≥ κ + log(2(T−1)A),

    gradient descent with η ≤ 1/L_p has ‖p(t)‖ → ∞ and p(t)/‖p(t)‖ → p_mm/‖p_mm‖. Theorem 2 asks for equal non-optimal
    scores and n = 1 instead.

    **At points** where m(p) > log((T−1)A) and m(p) > 0. q = (T−1)e^{−m(p)}, Ω = (1/n)Σ|ℓ'_i|Σ_t s_it(γ_i,opt − γ_it).
    With δγ_t, h_t = g_t·p and a_t = g_t·p_mm, 0 at opt, −⟨∇L, w⟩ = (1/n)Σ|ℓ'_i| Σ_t s_t δγ_t (g_t·w − E g·w).
    - −⟨∇L, p_mm⟩ ≥ (1 − Aq)Ω > 0, as a_t ≥ 1 and E a ≤ A Σ_{t≠opt} s_t ≤ Aq: no stationary point.
    - ‖∇L‖ ≤ (1 + q) max‖g‖ Ω, as ‖E g‖ ≤ q max‖g‖.
    - −⟨∇L, p⟩ ≤ (m(p) + K + log(1+q)) Ω. E h ≥ 0, so the left side is at most Ω times the average of h under
      ω ∝ c e^{−h}, c_it = |ℓ'_i|s_i,opt δγ_it. By Gibbs' identity that is Σ ω log(c/ω) − log Σ c e^{−h} ≤ log Σc +
      m − log min c, and s_i,opt ≥ 1/(1+q).
    - −⟨∇L, p̄⟩ ≤ (1 + π)(−⟨∇L, p̄_mm⟩), 1 + π = (1 + (K + log(1+q))/ρ)/(1 − Aq), ρ = ‖p‖/‖p_mm‖: m(p) ≤ ρ because
      p/m(p) is feasible.

    **Gradient descent** keeps m(p(t)) ≥ log(e^{m(p(0))−κ} + βt), β = (η/2)(c_minΓ_min/2n)(c_min/(2c_max‖p_mm‖))². For
    e_t = L(p(t)) − L_opt falls, e_0 ≤ (N/n) c_max Γ_max e^{−m(p(0))}, e_t ≥ c_minΓ_min e^{−max(m, 0)}/(2n), which gives
    m ≥ m(p(0)) − κ ≥ log(2(T−1)A) for every t; so Aq ≤ ½ and ‖∇L‖ ≥ Ω/(2‖p_mm‖) ≥ c_min e_t/(2c_max‖p_mm‖), and e_{t+1}
    ≤ e_t − (η/2)‖∇L‖² makes 1/e_t grow by (η/2)(c_min/(2c_max‖p_mm‖))² a step. Computed steps are rounded: log e
    changes by at most (c_max/c_min of where outputs are)(1+q) max‖g‖ times a step's rounding; what that comes to must
    be below log(4/3), by which 1/(1+e^{−m}) exceeds the ½ used, or nothing is decided.

    **Any rule** along −∇L, Δ_s its steps, as long as m ≥ log(2(T−1)A) (proven above for gradient descent, read off a
    run of normalized gradient descent; if it leaves, undecided):
    - ⟨p(t) − p(0), p̄_mm⟩ ≥ Σ_s ‖Δ_s‖ (1−A q_s)/(‖p_mm‖ max‖g‖ (1+q_s)), so ‖p(t)‖ ≥ ⟨p(0), p̄_mm⟩ + cηt (normalized).
    - ⟨p(t) − p(0), p̄_mm⟩ ≥ Σ_s (‖p(s+1)‖ − ‖p(s)‖ − ‖Δ_s‖²/(2‖p(s)‖))/(1 + π_s), from ⟨Δ, p⟩ = (‖p⁺‖² − ‖p‖² −
      ‖Δ‖²)/2 and (‖p⁺‖² − ‖p‖²)/(2‖p‖) ≥ ‖p⁺‖ − ‖p‖. So 1 − cos = O(log t/t) for normalized gradient descent.

    **Limit**, along the flow to ‖p‖ = 1e6‖p_mm‖. It keeps m ≥ m(p(0)) − κ, also from every later point on. Since
    d⟨p, p̄_mm⟩ ≥ d‖p‖/(1 + π), u = ⟨p, p̄_mm⟩ has u(k) − u(0) ≥ Σ_j (1−A q_j)(F_j(ρ_{j+1}) − F_j(ρ_j)) between recorded
    norms, F_j(ρ) = ρ − K_j log(ρ + K_j), K_j = K + log(1+q_j): 1 − cos = O(log ρ/ρ) from the data alone.

    **Sharp.** −∇L = Σ_j c_j e^{ε_j} e^{−g_j·p} g_j with c_j = |ℓ'(γ_i,opt)|δγ_j/n and |ε_j| ≤ E = max_i [q − log(1 −
    qΓ_i,max/Γ_i,min) + the change of log|ℓ'| over qΓ_i,max]. In the terms of :mod:`.flow_offset`, with e^{−ĝ_j·q} =
    w_j/c_j, d|r|²/d log t ≤ 2E(e^E − 1) + e^E · (what the rows off the support add), for (e^{ε−x} − 1)x ≤ E(e^E − 1).
    From where E ≤ 1e-2 the offset is read off, and bounded at every later norm: 1 − cos = O(1/ρ²), 1e-9 and less at
    ρ = 1e6 unless a neighbour has no positive dual, or nearly none.
    """
    problem = case.problem
    svm = yield from certify(problem, problem.optimal, under_test)
    constants = MarginConstants(problem, svm)
    rng = case.rng()
    yield from margin_claims(constants, under_test, _starts(case, constants, rng), rng)


def margin_claims(
    constants: MarginConstants,
    under_test: Implementation,
    starts: Float64[np.ndarray, "b d"],
    rng: np.random.Generator,
) -> Iterator[Claim]:
    """All claims: at points, and of descent, normalized descent and flow from starts of margin κ + log(2(T−1)A)."""
    yield from point_claims(constants, under_test, rng)
    fractions = np.array([0.0, *np.log(rng.uniform(0.01, 1.0, len(starts) - 1))])
    yield from descent_run(constants, under_test, starts, fractions)
    yield from normalized_run(constants, under_test, starts, float(rng.choice(LENGTHS)))
    resolved = starts[norm(starts, axis=1) * float(value_of(constants.reach)) <= RESOLVED]
    if len(resolved):
        yield from flow_claims(constants, under_test, resolved[int(rng.integers(len(resolved)))], rng)


def _starts(case: Case, constants: MarginConstants, rng: np.random.Generator) -> Float64[np.ndarray, "b d"]:
    """On the ray and beside it, with just the margin that is needed; the case's own if it has it."""
    needed = constants.needed
    least = np.full(len(ASKEW), float(value_of(needed) + needed.error))
    starts = with_least_margin(constants, beside_the_ray(rng, constants, np.array(ASKEW)), least)
    # Far out beside the ray a long row's margin is lost to the rounding of p; the first start is on the ray.
    near = norm(starts, axis=1) * float(value_of(constants.reach)) <= FARTHEST
    starts = starts[near | (np.arange(len(starts)) == 0)]
    if case.start is not None and bool(constants.margins(exact(case.start)) >= needed):
        starts = np.concatenate([case.start[None], starts])
    return starts
