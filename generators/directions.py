"""Strategies for prompts and directions: anywhere, on the sphere, and inside a cone by construction.

References: *Max-Margin Token Selection in Attention Mechanism*, Definition 3, Theorem 3.
"""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from jaxtyping import Float64

from generators.numbers import STYLES, Style, entries
from reference_attention.errors import InvalidInput

LENGTHS = (1.0, 0.5, 2.0, 2.0**-20, 10.0, 1e3)
"""Factors that multiply prompts: about 1, tiny, and so large that the softmax is saturated."""


@st.composite
def prompts(draw: DrawFn, d: int, *, along: Float64[np.ndarray, "d"] | None = None) -> Float64[np.ndarray, "d"]:
    """Draw a prompt p: zero, small or huge, in any direction, or along ± the vector ``along`` if it is given."""
    p = draw(entries((d,), draw(STYLES))) * draw(st.sampled_from(LENGTHS))
    if along is not None:
        if np.shape(along) != (d,):
            raise InvalidInput(f"along: shape {np.shape(along)} is no direction; give shape ({d},).")
        kind = draw(st.sampled_from(("anywhere", "along", "opposite")))
        if kind != "anywhere":
            size = draw(st.sampled_from(LENGTHS)) * (1 if kind == "along" else -1)
            return np.asarray(size * along)
    return np.asarray(p)


@st.composite
def points_in_cone(draw: DrawFn, p_mm: Float64[np.ndarray, "d"], mu: float, radius: float) -> Float64[np.ndarray, "d"]:
    """Draw p in the cone cos(p, p_mm) ≥ 1 − μ, ‖p‖ ≥ R = ``radius``, from the axis to nearly the boundary.

    The angle is at most 0.999 times the cone's, and the norm at least (1 + 2^−40) R, because p is rounded. If the cone
    is so narrow that rounding could move p out of the cone, only points on the axis are drawn.

    Raises:
        InvalidInput: p_mm = 0, μ not in [0, 1] or R negative.
    """
    norm = math.hypot(*p_mm.tolist())
    if norm == 0 or not 0 <= mu <= 1 or radius < 0:
        raise InvalidInput(
            f"p_mm, mu, radius: norm {norm:g}, {mu:g}, {radius:g} make no cone; give p_mm ≠ 0, 0 ≤ μ ≤ 1, R ≥ 0."
        )
    axis = p_mm / norm
    size = max(radius, 2.0**-20) * draw(st.sampled_from((1.0, 1.5, 10.0, 1e3))) * (1 + 2.0**-40)
    share = draw(st.sampled_from((0.0, 0.5, 0.9, 0.999)))
    sideways = draw(entries(axis.shape, Style.INTEGERS))
    sideways -= (sideways @ axis) * axis
    sideways -= (sideways @ axis) * axis
    across = float(np.linalg.norm(sideways))
    if mu < 2.0**-40 or share == 0 or across < 2.0**-20:
        return np.asarray(size * axis)
    angle = share * 2 * math.asin(math.sqrt(mu / 2))
    return np.asarray(size * (math.cos(angle) * axis + math.sin(angle) * sideways / across))
