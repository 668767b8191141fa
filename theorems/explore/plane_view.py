"""The plane that is shown: all of token space if it has two coordinates, else the span of p̄_mm and the flow's end.

Tokens and prompts share the plane: a logit k·p is a product of both. Where W is trained, a query z_i attends along
W z_i, which takes the place of p. Prompts are drawn in a unit of their own, in which the largest norm shown is at the
edge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from theorems.explore.state import State

ROOM = 1.3
"""The reach of the picture, in units of that of the outermost token."""
INDEPENDENT = 1e-6
"""Smallest share of a second direction across the first one for which the plane shows anything of it."""


@dataclass(frozen=True, eq=False)
class View:
    """The plane.

    Attributes:
        axes: two orthonormal directions of token space, shape (2, m); one is zero where m = 1.
        names: the name of each.
        query: z of the input that is looked at, where W is trained.
        extent: how far the picture reaches from 0, in the unit of tokens.
        norm: ‖p‖, or ‖W‖_F, that is drawn at that distance.
    """

    axes: Float64[np.ndarray, "2 m"]
    names: tuple[str, str]
    query: Float64[np.ndarray, "e"] | None
    extent: float
    norm: float

    @property
    def unit(self) -> float:
        """Return the drawn length of a prompt of norm 1; for W the drawn length of a W z_i of norm 1 with ‖z_i‖ = 1."""
        return self.extent / self.norm

    def attention_vector(self, p: Float64[np.ndarray, "*b p"]) -> Float64[np.ndarray, "*b m"]:
        """Return the vector that multiplies tokens: p itself; for vec(W) the vector W z/‖z‖."""
        if self.query is None:
            return p
        W = p.reshape(*p.shape[:-1], self.axes.shape[1], len(self.query))
        return np.asarray(W @ self.query / (np.linalg.norm(self.query) or 1.0))

    def place_tokens(self, tokens: Float64[np.ndarray, "*b m"]) -> Float64[np.ndarray, "*b 2"]:
        """Return where tokens are drawn."""
        return np.asarray(tokens @ self.axes.T)

    def place_prompts(self, p: Float64[np.ndarray, "*b p"]) -> Float64[np.ndarray, "*b 2"]:
        """Return where prompts are drawn."""
        return self.unit * self.place_tokens(self.attention_vector(p))

    def move_token(self, token: Float64[np.ndarray, "m"], place: Float64[np.ndarray, "2"]) -> Float64[np.ndarray, "m"]:
        """Return the token moved to where it is drawn at a place; its part across the plane stays."""
        return token + self.axes.T @ (place - self.place_tokens(token))

    def move_prompt(self, p: Float64[np.ndarray, "p"], place: Float64[np.ndarray, "2"]) -> Float64[np.ndarray, "p"]:
        """Return the prompt moved to where it is drawn at a place; its part across the plane stays.

        W changes by a matrix of rank one.
        """
        moved = self.axes.T @ (place - self.place_prompts(p)) / self.unit
        if self.query is None:
            return p + moved
        return p + np.outer(moved, self.query / np.linalg.norm(self.query)).ravel()

    def prompts_at(self, places: Float64[np.ndarray, "g 2"]) -> Float64[np.ndarray, "g p"]:
        """Return the prompts of the plane itself that are drawn at places; for W the matrices of rank one."""
        prompts = places @ self.axes / self.unit
        if self.query is None:
            return np.asarray(prompts)
        unit = self.query / np.linalg.norm(self.query)
        return np.asarray((prompts[:, :, None] * unit).reshape(len(places), -1))


def view_of(state: State, norm: float, toward: dict[str, Float64[np.ndarray, "p"]]) -> View:
    """Return the plane of a state.

    Args:
        state: the state.
        norm: ‖p‖ at the edge.
        toward: prompts whose directions span it where tokens have more than two coordinates, by what the axis is
            called: p_mm, the flow's end.
    """
    tokens = state.tokens
    i, m = state.token[0], tokens.shape[2]
    query = None if state.case.queried is None else state.case.queried.queries[i]
    if query is not None and not query.any():
        query = np.ones_like(query)
    if m <= 2:
        axes, names = np.eye(2, m), ("1", "2")
        view = View(axes, names, query, 1.0, norm)
    else:
        bare = View(np.eye(2, m), ("", ""), query, 1.0, norm)
        flat = tokens.reshape(-1, m)
        spread = np.linalg.svd(flat - flat.mean(axis=0), full_matrices=False)[2]
        ways, labels = [bare.attention_vector(p) for p in toward.values()], list(toward)
        axes, names = _orthonormal(
            [*ways, *spread, *np.eye(m)], [*labels, *["most spread of the tokens"] * (len(spread) + m)]
        )
        view = View(axes, names, query, 1.0, norm)
    extent = ROOM * float(np.abs(view.place_tokens(tokens)).max())
    return View(axes, names, query, extent or 1.0, norm)


def _orthonormal(
    ways: list[Float64[np.ndarray, "m"]], names: list[str]
) -> tuple[Float64[np.ndarray, "2 m"], tuple[str, str]]:
    """Return the first two directions that are independent, orthonormalised."""
    axes: list[Float64[np.ndarray, "m"]] = []
    labels = []
    for way, name in zip(ways, names, strict=True):
        length = float(np.linalg.norm(way))
        rest = way - sum((axis * (axis @ way) for axis in axes), np.zeros_like(way))
        across = float(np.linalg.norm(rest))
        if length > 0 and across > INDEPENDENT * length and len(axes) < 2:
            axes.append(rest / across)
            labels.append(name)
    return np.array(axes), (labels[0], labels[1])
