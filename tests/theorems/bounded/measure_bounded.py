"""Measure how slow bounded arrays are and how tight their bounds: ``python -m tests.theorems.bounded.measure_bounded``.

Times are ratios to plain NumPy on the same arrays, measured in turn; widths are measured against ball arithmetic. The
last table is of kernels: the share that each uses of the error that a user's kernel is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from reference_attention.floats import EPS
from reference_attention.problem import Problem
from tests.theorems import oracle
from tests.theorems.bounded.balls import used
from tests.theorems.bounded.primitives import PRIMITIVES
from theorems.bounded import Bounded, exact, in_floats, spacing, with_rounding
from theorems.rounding.attention_at import EXPONENTIAL, AttentionAt, textbook_gradient, textbook_weights

Call = Callable[[Tensor, Tensor, Tensor], Tensor]

FORMULAS: dict[str, Callable[..., Any]] = {
    "x + y": lambda x, y: x + y,
    "x * y": lambda x, y: x * y,
    "x / y": lambda x, y: x / y,
    "exp(x)": lambda x, y: np.exp(x),
    "log(|y|)": lambda x, y: np.log(abs(y)),
    "sum(x)": lambda x, y: np.sum(x, axis=-1),
    "vecdot(x, y)": np.vecdot,
    "norm(x)": lambda x, y: np.linalg.norm(x, axis=-1),
    "maximum(x, y)": np.maximum,
    "x >= y": lambda x, y: x >= y,
    "log-sum-exp": lambda x, y: np.logaddexp.reduce(x, axis=-1),
}


def seconds(run: Callable[[], Any], other: Callable[[], Any], repeat: int = 200) -> tuple[float, float]:
    """Return the shortest time of each function over many runs, taken in turn."""
    best = [np.inf, np.inf]
    for _ in range(repeat):
        for k, f in enumerate((run, other)):
            start = perf_counter()
            f()
            best[k] = min(best[k], perf_counter() - start)
    return best[0], best[1]


def cost() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 64, 5, 5)) + 3
    a, b = Bounded(x, 1e-12), Bounded(y, 1e-12)
    print("arrays of 64 × 5 × 5: µs bounded, µs NumPy, ratio")
    for name, formula in FORMULAS.items():
        slow, fast = seconds(lambda f=formula: f(a, b), lambda f=formula: f(x, y))  # type: ignore[misc]
        print(f"  {name:14} {slow * 1e6:8.1f} {fast * 1e6:8.1f} {slow / fast:6.1f}")
    problem = Problem(rng.normal(size=(5, 5, 4)), rng.normal(size=(5, 5)))
    points = rng.normal(size=(64, 4)) * 5

    def in_plain_floats() -> Any:
        with in_floats():
            return AttentionAt(problem, points).gradient

    slow, fast = seconds(lambda: AttentionAt(problem, points).gradient, in_plain_floats, repeat=30)
    print(f"  gradient at 64 points, n = T = 5: {slow * 1e3:.2f} ms, in floats {fast * 1e3:.2f} ms")


def widths() -> None:
    print("part of the error that the worst of 2,000 exact operands, and the median one, use up")
    rng = np.random.default_rng(3)
    for primitive in PRIMITIVES:
        if primitive.size is None:
            continue
        ratios = []
        with oracle.precision(300):
            while sum(map(len, ratios)) < 2000:
                shapes = primitive.shapes[0] if len(primitive.shapes) == 1 else primitive.shapes[1]
                operands = [tame(rng, shape) for tame, shape in zip(primitive.tame, shapes, strict=True)]
                result = primitive.run(*map(exact, operands))
                truth = primitive.truth(*(np.frompyfunc(oracle.arb, 1, 1)(z) for z in operands))
                ratios.append(np.atleast_1d(used(truth, result)).ravel()[np.atleast_1d(result.error).ravel() >= 0])
        ratio = np.concatenate(ratios)
        print(f"  {primitive.name:20} {ratio.max():.3f} {np.median(ratio):.3f}")


# ---- the share of a kernel's allowed error that kernels use ----------------------------------------------------

SHAPES = [(1, 2, 1), (2, 4, 2), (3, 8, 8), (4, 16, 16), (4, 64, 32)]
"""Values of (n, T, d)."""
SPACINGS = {torch.float64: EPS, torch.float32: 2.0**-23, torch.bfloat16: 2.0**-7}


def eager(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return softmax(q kᵀ) v, with every operation in the type of its arguments."""
    return torch.softmax(query @ keys.transpose(-2, -1), dim=-1) @ values


def sdpa(backend: SDPBackend) -> Call:
    """Return PyTorch's own attention on the given backend."""

    def call(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        with sdpa_kernel(backend):
            wide = torch.nn.functional.pad(values, (0, keys.shape[-1] - values.shape[-1]))
            output = torch.nn.functional.scaled_dot_product_attention(query, keys, wide, scale=1.0)
        return output[..., : values.shape[-1]]

    return call


def tiled(block: int) -> Call:
    """Return flash attention by hand: block by block with a running maximum, differentiated from a stored log Σ e^l."""
    return lambda query, keys, values: _Tiled.apply(query, keys, values, block)  # type: ignore[no-untyped-call, no-any-return]


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, values: Tensor, block: int) -> Tensor:
        top = query.new_full((*query.shape[:-1], 1), -np.inf)
        total, mean = torch.zeros_like(top), query.new_zeros((*query.shape[:-1], values.shape[-1]))
        for start in range(0, keys.shape[-2], block):
            logits = query @ keys[..., start : start + block, :].transpose(-2, -1)
            new = torch.maximum(top, logits.amax(dim=-1, keepdim=True))
            kept, weights = torch.exp(top - new), torch.exp(logits - new)
            total = total * kept + weights.sum(dim=-1, keepdim=True)
            mean = mean * kept + weights @ values[..., start : start + block, :]
            top = new
        output = mean / total
        ctx.save_for_backward(query, keys, values, top + torch.log(total), output)
        return output

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        query, keys, values, stored, output = ctx.saved_tensors
        weights = torch.exp(query @ keys.transpose(-2, -1) - stored)
        mean = (upstream[0] * output).sum(dim=-1, keepdim=True)
        return (weights * (upstream[0] @ values.transpose(-2, -1) - mean)) @ keys, None, None, None


KERNELS: dict[str, Call] = {
    "eager": eager,
    "SDPA math": sdpa(SDPBackend.MATH),
    "SDPA flash": sdpa(SDPBackend.FLASH_ATTENTION),
    "tiles of 16": tiled(16),
    "one by one": tiled(1),
}


def problems(rng: np.random.Generator) -> Iterator[tuple[Problem, np.ndarray]]:
    """Yield problems with keys and scores of any sign and with offsets, and prompts with logits from 1e-2 to 1e4."""
    for n, tokens, d in SHAPES:
        for k in range(6):
            keys, scores = rng.normal(size=(n, tokens, d)), rng.normal(size=(n, tokens))
            if k % 3 == 1:
                keys += 4.0
            if k % 3 == 2:  # logits grow with t, so the running maximum rises again and again
                keys = np.sort(keys, axis=1)
            problem = Problem(keys, scores)
            points = rng.normal(size=(16, d)) / np.sqrt(d) * 10.0 ** rng.uniform(-2, 4 if k % 2 else 1, (16, 1))
            yield problem.with_keys_scaled(1 / problem.key_scale), points


def shares(call: Call, dtype: torch.dtype, seed: int = 0) -> dict[str, float]:
    """Return, for each result, the largest error of a kernel divided by twice the bound for the textbook formula."""
    used = dict.fromkeys(("weights", "above 1e-30", "output", "gradient"), 0.0)
    eps = SPACINGS[dtype]
    for problem, points in problems(np.random.default_rng(seed)):
        at = AttentionAt(problem, points)
        unit = np.exp(at.log_scale)[:, None]
        keys, scores, p = (torch.tensor(x).to(dtype) for x in (problem.keys, problem.scores, points))
        query = p[:, None, None].repeat(1, problem.n, 1, 1)
        keys, values = (x.expand(len(points), *x.shape) for x in (keys, scores[..., None]))
        identity = torch.eye(problem.T, dtype=dtype).expand(len(points), problem.n, -1, -1)
        wide = [call(query, keys, part) for part in torch.split(identity, max(1, problem.d), dim=-1)]
        weights = torch.cat(wide, dim=-1)[..., 0, :]
        query.requires_grad_()
        output = call(query, keys, values)[..., 0, 0]
        upstream = -np.exp(problem.loss.log_slope(output.detach().double().numpy())) / problem.n
        (gradient,) = torch.autograd.grad(output, query, torch.tensor(upstream).to(dtype))
        s = textbook_weights(problem, points, eps)
        with spacing(eps, EXPONENTIAL):
            f = np.sum(s * with_rounding(problem.scores), axis=-1)
        compared = {
            "weights": (weights, at.weights, s.error),
            "above 1e-30": (weights, at.weights, np.where(at.weights.value > 1e-30, s.error, np.inf)),
            "output": (output.detach(), at.outputs, f.error),
            "gradient": (
                gradient.double().sum(dim=1)[:, 0],
                at.gradient * unit,
                textbook_gradient(problem, s, eps).error,
            ),
        }
        for name, (theirs, truth, error) in compared.items():
            with np.errstate(invalid="ignore"):
                share = (np.abs(theirs.double().numpy() - truth.value) - truth.error) / (2 * error)
            used[name] = max(used[name], float(np.nanmax(share)))
    return used


def kernels() -> None:
    print(
        "largest share of twice the textbook formula's error that a kernel uses: weights, those above 1e-30, output,"
        " gradient"
    )
    for dtype in SPACINGS:
        for name, call in KERNELS.items():
            try:
                used = shares(call, dtype)
            except RuntimeError as error:
                print(f"  {str(dtype).removeprefix('torch.'):9} {name:12} {str(error).splitlines()[0]}")
                continue
            print(f"  {str(dtype).removeprefix('torch.'):9} {name:12}", *(f"{share:6.3f}" for share in used.values()))


if __name__ == "__main__":
    cost()
    widths()
    kernels()
