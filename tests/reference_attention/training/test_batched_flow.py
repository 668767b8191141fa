"""Many flows at once end where each ends by itself."""

from __future__ import annotations

import numpy as np
import pytest

from reference_attention.errors import InvalidInput
from reference_attention.losses import LOSSES
from reference_attention.problem import Problem
from reference_attention.training import batched_flow
from reference_attention.training.batched import BatchedGradient
from reference_attention.training.batched_flow import gradient_flows
from reference_attention.training.derivatives import newton_field
from reference_attention.training.descent import Stop
from reference_attention.training.flow import RELATIVE, gradient_flow

NORM = 1e4
WITHIN = 10 * RELATIVE * NORM
"""Two solvers with this tolerance: each is off by about one of it at the end, for the flow contracts."""


def problems(b: int, n: int, tokens: int, d: int, loss: str = "logistic") -> tuple[list[Problem], np.ndarray]:
    rng = np.random.default_rng(n * tokens + d)
    made = [Problem(rng.normal(size=(n, tokens, d)), rng.normal(size=(n, tokens)), loss=LOSSES[loss]) for _ in range(b)]
    return made, 0.3 * rng.normal(size=(b, d))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("tokens", "d"), [(3, 4), (30, 30)])
def test_batched_hessians_are_those_of_each(loss: str, tokens: int, d: int) -> None:
    made, starts = problems(4, 3, tokens, d, loss)
    field = BatchedGradient(np.stack([p.keys for p in made]), np.stack([p.scores for p in made]), LOSSES[loss])
    for size in (0.0, 1.0, 30.0, 3000.0):
        log_scale, direction, curvature = field.newton(size * starts)
        for k, problem in enumerate(made):
            log, slope, bent = newton_field(problem.keys, problem.scores, problem.loss)(size * starts[k])
            factor, unit = np.exp(log_scale[k] - log), np.abs(bent).max()
            np.testing.assert_allclose(direction[k] * factor, slope, rtol=1e-9, atol=1e-9 * np.abs(slope).max())
            np.testing.assert_allclose(curvature[k] * factor, bent, rtol=1e-8, atol=1e-8 * unit)


@pytest.mark.parametrize(("b", "n", "tokens", "d"), [(6, 2, 3, 2), (3, 4, 6, 3), (2, 1, 2, 1)])
def test_flows_end_where_each_ends_by_itself(b: int, n: int, tokens: int, d: int) -> None:
    made, starts = problems(b, n, tokens, d)
    found = gradient_flows(made, starts, norms=np.full(b, NORM))
    for k, problem in enumerate(made):
        flow = gradient_flow(problem, starts[k], norm=NORM)
        assert found.stops[k] == flow.stop
        assert np.linalg.norm(found.points[k] - flow.final) <= WITHIN
        assert found.one_minus_cosine(np.array([flow.final] * b))[k] <= (WITHIN / np.linalg.norm(flow.final)) ** 2
    # What the batch follows it follows to the norm; what rests it hands over, and some of the first do.
    assert (found.alone == [stop is Stop.STATIONARY for stop in found.stops]).all()
    assert (Stop.STATIONARY in found.stops) == (n > 1)


def test_norms_and_units_are_each_problems_own() -> None:
    made, starts = problems(2, 2, 4, 3)
    scaled = [made[0], Problem(made[0].keys * 2.0**20, made[0].scores)]
    norms = np.array([1e4, 1e4 * 2.0**-20])
    found = gradient_flows(scaled, np.array([starts[0], starts[0] * 2.0**-20]), norms=norms)
    assert (found.points[1] * 2.0**20 == found.points[0]).all()
    assert np.linalg.norm(found.points, axis=1) == pytest.approx(norms, rel=1e-12)


@pytest.mark.parametrize("fault", ["curvature", "weights"])
def test_a_step_that_is_wrong_does_not_pass(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Without its curvature a stiff flow does not get on; with weights of another sequence it never is accurate."""
    made, starts = problems(3, 1, 2, 1) if fault == "weights" else problems(3, 2, 3, 3)
    monkeypatch.setattr(batched_flow, "MOST", 30)
    if fault == "curvature":
        newton = BatchedGradient.newton
        monkeypatch.setattr(BatchedGradient, "newton", lambda self, p: (*newton(self, p)[:2], 0 * newton(self, p)[2]))
    else:
        monkeypatch.setattr(batched_flow, "SUBSTEPS", (1, 1.5, 2))
        monkeypatch.setattr(batched_flow, "range", lambda parts: range(round(parts)), raising=False)
    assert gradient_flows(made, starts, norms=np.full(3, NORM)).alone.all()


def test_bad_input_is_named() -> None:
    made, starts = problems(2, 2, 3, 2)
    other, _ = problems(1, 2, 3, 4)
    with pytest.raises(InvalidInput, match="problems: they have several shapes"):
        gradient_flows([made[0], *other], starts, norms=np.full(2, 10.0))
    with pytest.raises(InvalidInput, match="starts: give"):
        gradient_flows(made, starts[:1], norms=np.full(2, 10.0))
    with pytest.raises(InvalidInput, match="norms: give finite norms"):
        gradient_flows(made, starts, norms=np.full(2, 1e-9))
