"""The plane of the picture: the space of tokens if that is a plane, else the span of p̄_mm and the flow's end.

Tokens and prompts are drawn in the same plane, as logits k·p are inner products of both. If W is trained, W z_i takes
the place of p for query z_i. Prompts are scaled so that the largest norm shown is at the edge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from theorems.explore.state import State

ROOM = 1.3
"""Extent of the picture, in units of the distance of the outermost token from 0."""
INDEPENDENT = 1e-6
"""A direction can become the second axis if its part orthogonal to the first axis is longer than this share of it."""


@dataclass(frozen=True, eq=False)
class View:
    """The plane of the picture, with the scales at which tokens and prompts are drawn in it.

    Attributes:
        axes: two orthonormal directions of token space, shape (2, m); the second is zero if tokens have one coordinate.
        names: the names of the axes.
        query: the query z of the selected input, if W is trained.
        extent: the distance from 0 to the edge, in the unit of tokens.
        norm: the ‖p‖, or ‖W‖_F, that is drawn at the edge.
    """

    axes: Float64[np.ndarray, "2 m"]
    names: tuple[str, str]
    query: Float64[np.ndarray, "e"] | None
    extent: float
    norm: float

    @property
    def unit(self) -> float:
        """Return the drawn length of a prompt of norm 1; if W is trained, of a vector W z_i/‖z_i‖ of norm 1."""
        return self.extent / self.norm

    def attention_vector(self, p: Float64[np.ndarray, "*b p"]) -> Float64[np.ndarray, "*b m"]:
        """Return the vector whose inner products with tokens are drawn: p, or for vec(W) the vector W z/‖z‖."""
        if self.query is None:
            return p
        W = p.reshape(*p.shape[:-1], self.axes.shape[1], len(self.query))
        return np.asarray(W @ self.query / (np.linalg.norm(self.query) or 1.0))

    def place_tokens(self, tokens: Float64[np.ndarray, "*b m"]) -> Float64[np.ndarray, "*b 2"]:
        """Return the places of tokens in the plane."""
        return np.asarray(tokens @ self.axes.T)

    def place_prompts(self, p: Float64[np.ndarray, "*b p"]) -> Float64[np.ndarray, "*b 2"]:
        """Return the places of prompts in the plane."""
        return self.unit * self.place_tokens(self.attention_vector(p))

    def move_token(self, token: Float64[np.ndarray, "m"], place: Float64[np.ndarray, "2"]) -> Float64[np.ndarray, "m"]:
        """Return the token moved so that it is drawn at a place; its part orthogonal to the plane is kept."""
        return token + self.axes.T @ (place - self.place_tokens(token))

    def move_prompt(self, p: Float64[np.ndarray, "p"], place: Float64[np.ndarray, "2"]) -> Float64[np.ndarray, "p"]:
        """Return the prompt moved so that it is drawn at a place; its part orthogonal to the plane is kept.

        If W is trained, W changes by a matrix of rank one.
        """
        moved = self.axes.T @ (place - self.place_prompts(p)) / self.unit
        if self.query is None:
            return p + moved
        return p + np.outer(moved, self.query / np.linalg.norm(self.query)).ravel()

    def prompts_at(self, places: Float64[np.ndarray, "g 2"]) -> Float64[np.ndarray, "g p"]:
        """Return the prompts in the plane that are drawn at places; if W is trained, matrices of rank one."""
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
        toward: prompts by the names of axes: p_mm and the flow's end. Their directions span the plane if tokens have
            more than two coordinates.
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
    """Orthonormalise the first two directions that are linearly independent, and return them with their names."""
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
