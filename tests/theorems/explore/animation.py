"""``python -m tests.theorems.explore.animation FILE.svg``: a token on its way, as an animated picture for a document.

It shows the data of Figure 8. While a token of the second input moves, p_mm turns, and at some point one of two flows
no longer goes to it: its limit is the direction of a locally optimal choice. Everything is drawn from the exact
solutions and followed flows of each frame; a browser moves from one to the next.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float64

from reference_attention.errors import InvalidInput
from reference_attention.files import write_text
from theorems.explanations.selection import follow_flow
from theorems.explore.data_sources import state_named
from theorems.explore.exact_solutions import solve
from theorems.figures.style import BLUE, GREEN, ORANGE, RED

SECONDS = 9.0
FRAMES = 28
POINTS = 40
"""Number of points of a flow."""
WAY = np.array([[0.4, 1.2], [-2.0, 1.0]])
"""The two places between which token 0 of input 1 is dragged to and fro."""
NORM, EXTENT, SIZE, HEIGHT = 12.0, 2.5, 520, 350
"""‖p‖ at the edge of the picture, token coordinates there, width in pixels, and height in pixels above the words."""
STYLE = f"""
svg {{ background: #ffffff; color: #1c1c1e; }} .foot {{ fill: #ffffff; }}
text {{ fill: currentColor; font: 15px system-ui, sans-serif; }}
.flow {{ fill: none; stroke: {GREEN}; stroke-width: 3; }} .axis {{ stroke: #808080; stroke-width: 1; opacity: 0.5; }}
.ray {{ stroke: {BLUE}; stroke-width: 3; stroke-dasharray: 8 6; }} .edge {{ stroke: #808080; stroke-dasharray: 2 4; }}
.token {{ fill: {ORANGE}; stroke: #808080; }} .other {{ fill: #56B4E9; stroke: #808080; }}
.near {{ fill: none; stroke: {RED}; stroke-width: 2.5; }} .ring {{ fill: none; stroke: {ORANGE}; stroke-width: 3; }}
@media (prefers-color-scheme: dark) {{
  svg {{ background: #17181b; color: #e8e8ea; }} .foot {{ fill: #17181b; }}
}}
"""


@dataclass(frozen=True, eq=False)
class Frame:
    """One frame of the animation.

    Attributes:
        keys: the keys of the tokens, (n, T, d).
        ray: p̄_mm of the optimal tokens, (d,).
        edges: two points of each line of the margin band of input 1, (2, 2, d).
        neighbours: which tokens are SVM-neighbours of the optimal ones, exact, (n, T).
        flows: r points of each of s flows up to the edge, (s, r, d), in the unit of prompts.
        words: where the flows go.
    """

    keys: Float64[np.ndarray, "n T d"]
    ray: Float64[np.ndarray, "d"]
    edges: Float64[np.ndarray, "2 2 d"]
    neighbours: Bool[np.ndarray, "n T"]
    flows: Float64[np.ndarray, "s r d"]
    words: str


def frames() -> Iterator[Frame]:
    """Yield the frames of the token's way there and back."""
    state = state_named("figure-8")
    for share in np.sin(np.linspace(0, np.pi, FRAMES)) ** 2:
        moved = state.with_token(1, 0, WAY[0] + share * (WAY[1] - WAY[0]))
        problem, svm = moved.case.problem, solve(moved).about.solution
        if svm is None:
            raise InvalidInput("animation: the optimal tokens of its way are not separable.")
        record = np.linspace(0, NORM, POINTS + 1)[1:]
        paths = [follow_flow(problem, start, record) for start in moved.starts]
        flows = [path.flow.points[path.flow.norms <= NORM * (1 + 1e-9)] for path in paths]
        level, side = float(problem.keys[1, 0] @ svm.p), np.array([-svm.p[1], svm.p[0]]) / svm.norm
        feet = np.array([level, level - 1])[:, None] * svm.p / svm.norm**2
        edges = np.stack([feet - 9 * side, feet + 9 * side], axis=1)
        same = all(path.selects is not None and np.array_equal(path.selects, problem.optimal) for path in paths)
        words = (
            "Both flows turn to p_mm of the optimal tokens"
            if same
            else "One flow selects other tokens, locally optimal ones"
        )
        yield Frame(problem.keys, svm.direction, edges, svm.neighbours, _even(flows), words)


def _even(flows: Sequence[Float64[np.ndarray, "_ d"]]) -> Float64[np.ndarray, "s r d"]:
    """Return equally many points of each flow, so that a browser can move from one frame to the next."""
    resampled = [flow[np.round(np.linspace(0, len(flow) - 1, POINTS)).astype(int)] for flow in flows]
    return np.stack(resampled)


def animation_svg(given_frames: Iterable[Frame]) -> str:
    """Return the frames as one SVG, without a script."""
    frames = list(given_frames)
    shapes = [_line("axis", [[(-EXTENT, 0.0), (EXTENT, 0.0)]]), _line("axis", [[(0.0, -EXTENT), (0.0, EXTENT)]])]
    shapes += [_line("edge", [frame.edges[k] for frame in frames]) for k in (0, 1)]
    shapes.append(_line("ray", [[(0.0, 0.0), 3 * EXTENT * frame.ray] for frame in frames]))
    unit = EXTENT / NORM
    shapes += [_line("flow", [unit * frame.flows[k] for frame in frames]) for k in range(len(frames[0].flows))]
    for i, t in np.ndindex(frames[0].neighbours.shape):
        places = [frame.keys[i, t] for frame in frames]
        shapes.append(_circle("near", 13, places, [bool(frame.neighbours[i, t]) for frame in frames]))
        shapes.append(_circle("token" if t == 0 else "other", 8, places))
    shapes.append(_circle("ring", 17, [frame.keys[1, 0] for frame in frames]))
    shapes.append(f'<rect class="foot" y="{HEIGHT}" width="{SIZE}" height="{SIZE}"/>')
    for words in dict.fromkeys(frame.words for frame in frames):
        animation = _animate("opacity", ["1" if frame.words == words else "0" for frame in frames], "discrete")
        shapes.append(f'<text x="12" y="{HEIGHT + 22}" opacity="0">{animation}{escape(words)}</text>')
    legend = "dashed: p_mm (exact); dotted: its margin band; green: gradient flows"
    shapes.append(f'<text x="12" y="{HEIGHT + 42}" style="font-size: 12px">{legend}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE} {HEIGHT + 54}" width="{SIZE}" role="img">'
    title = "<title>A token is dragged; the max-margin direction and the gradient flows follow</title>"
    return "".join((head, title, f"<style>{STYLE}</style>", *shapes, "</svg>\n"))


def _pixels(place: Iterable[float]) -> tuple[float, float]:
    x, y = place
    scale = SIZE / 2 / EXTENT
    return round(SIZE / 2 + scale * x, 1), round(SIZE / 2 - scale * y, 1)


def _line(kind: str, frames: Sequence[Iterable[Iterable[float]]]) -> str:
    points = [" ".join(f"{x:g},{y:g}" for x, y in map(_pixels, frame)) for frame in frames]
    return f'<polyline class="{kind}" points="{points[0]}">{_animate("points", points)}</polyline>'


def _circle(kind: str, radius: int, places: Sequence[Iterable[float]], visible: Sequence[bool] = ()) -> str:
    pixels = [_pixels(place) for place in places]
    moves = "".join(_animate(f"c{axis}", [f"{place[k]:g}" for place in pixels]) for k, axis in enumerate("xy"))
    visibility = _animate("opacity", ["1" if is_shown else "0" for is_shown in visible], "discrete") if visible else ""
    x, y = pixels[0]
    return f'<circle class="{kind}" r="{radius}" cx="{x:g}" cy="{y:g}">{moves}{visibility}</circle>'


def _animate(name: str, values: Sequence[str], mode: str = "linear") -> str:
    if len(set(values)) == 1:
        return "" if name != "opacity" else f'<set attributeName="opacity" to="{values[0]}"/>'
    timing = f'dur="{SECONDS:g}s" repeatCount="indefinite" calcMode="{mode}"'
    return f'<animate attributeName="{name}" {timing} values="{";".join(values)}"/>'


if __name__ == "__main__":
    write_text(Path(sys.argv[1]), animation_svg(frames()))
