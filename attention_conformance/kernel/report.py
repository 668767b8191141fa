"""The report on a :class:`attention_conformance.kernel.kernel.Kernel` under test, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from attention_conformance.claims.capabilities import TRIED
from attention_conformance.kernel.answers import BOOLEAN
from attention_conformance.kernel.parameters import Account, of_kind
from attention_conformance.kernel_process.remote_kernel import RemoteKernel
from reference_attention.errors import InvalidInput
from reference_attention.risk import softmax_weights
from theorems.core.under_test import KernelDescription

HINT_WIDTHS = (1, 4, 16)
"""The numbers of columns of queries and keys at which the scale of a kernel is measured."""


def headline(kernel: Any) -> str:
    """Return a line with the kernel's name, interface and number format, and lines on what is and is not checked."""
    shapes = f", shapes {kernel.layout}" if kernel.interface.name == "plain" else ""
    computes = "" if kernel.computes_in == kernel.dtype else f", computes in {kernel.computes_in}"
    device = "" if kernel.device == "cpu" else f" on {kernel.device}"
    lines = [
        f"attention kernel {kernel.name}: interface {kernel.interface.name}, {kernel.dtype}{device}{computes}{shapes}"
    ]
    lines += [*format_lines(kernel), *contract_lines(kernel)]
    through = "through autograd" if kernel.differentiable else "without a backward pass: its gradients are not checked"
    lines.append(
        f"claims at finite points, {through}, within {kernel.computes_in}'s rounding; limits are the reference's"
    )
    if not isinstance(kernel.call, RemoteKernel):
        lines.append("it is called in the judging process, and is not isolated from it")
    if untested := not_tested(kernel.accounts):
        lines.append(f"parameters that are {untested}")
    return "\n".join(lines)


def format_lines(kernel: Any) -> Iterator[str]:
    """Yield a report's lines on the number formats tried, and on the operators of PyTorch that are called in each."""
    if kernel.coarser:
        yield f"all is tried in {kernel.dtype}, and every pair of options in {', '.join(kernel.coarser)}"
    called: dict[tuple[str, ...], list[str]] = {}
    for name, operators in kernel.operators.items():
        called.setdefault(operators, []).append(name)
    for operators, formats in called.items():
        if operators:
            yield f"in {', '.join(formats)} it calls PyTorch's {', '.join(operators)}: this tests PyTorch's code"


def contract_lines(kernel: Any) -> Iterator[str]:
    """Yield the lines of a report about the conventions and limits of a kernel."""
    if kernel.reading is not None:
        yield from kernel.reading.lines()
    if "causal-rectangle" in kernel.declares:
        yield f"causal masks of L ≠ T are aligned at the {kernel.alignment}"
    if "longer-masks" in kernel.declares:
        yield "masks may be longer than the keys: it uses their first columns"
    if BOOLEAN in kernel.declares:
        yield "it takes boolean masks, and masks of numbers: each is given in half of the calls"
    if str(kernel.taken):
        yield f"it takes {kernel.taken} only: calls have such sizes"
    if kernel.fixed_scale:
        yield "its scale is 1/√E, and no parameter changes it"
    if kernel.lse_multiple > 1:
        yield f"its log-sum-exps are padded to multiples of {kernel.lse_multiple} rows"
    if kernel.queries_to_a_sum:
        yield f"dK and dV are summed over queries in {kernel.dtype}, at most {kernel.queries_to_a_sum} at a time"
    if kernel.not_compiled:
        yield f"torch.compile cannot compile the kernel: {kernel.not_compiled}"
    if kernel.skips_below:
        yield f"weights below {kernel.skips_below:.2g} of the largest may be left out, as it declares"


def not_tested(accounts: Mapping[str, str]) -> str:
    """Return a text that lists the parameters that are not tested; empty if all are tested."""
    kinds = {"switched off": Account.NEUTRAL, "left at their defaults": Account.NOT_TESTED}
    parts = [f"{how}: {', '.join(names)}" for how, kind in kinds.items() if (names := of_kind(accounts, kind))]
    return f"not tested, {'; '.join(parts)}" if parts else ""


def scale_hint(kernel: Any) -> str:
    """Return a sentence if the kernel multiplies logits k·p by a factor other than 1, the most frequent fault; else "".

    Let one key be e₁ = (1, 0, …, 0), the other 0, and the prompt p = a e₁. If the kernel multiplies logits by c, the
    ratio of the two weights is e^{ca}. The kernel has such a factor c if two values of a give the same c.
    """
    scales = []
    for d in HINT_WIDTHS:
        keys = np.zeros((1, 2, d))
        keys[0, 0, 0] = 1.0
        try:
            weights = np.asarray(kernel.weights(keys, np.outer((1.0, 2.0), keys[0, 0])[:, None]))[:, 0]
        except InvalidInput:
            return ""
        if not (np.isfinite(weights).all() and (weights > 0).all()):
            return ""
        once, twice = np.log(weights[:, 0] / weights[:, 1])
        if not np.isclose(twice, 2 * once, rtol=0, atol=64 * kernel.eps):
            return ""
        scales.append(float(once))
    if np.allclose(scales, 1.0, rtol=0, atol=64 * kernel.eps):
        return ""
    like = " = 1/√d" if np.allclose(scales, 1 / np.sqrt(HINT_WIDTHS), rtol=0, atol=64 * kernel.eps) else ""
    factors = ", ".join(f"{scale:.6g}" for scale in scales)
    widths = ", ".join(map(str, HINT_WIDTHS))
    return (
        f"The kernel multiplies k·p by {factors} in {widths} dimensions{like}; the theorems are about softmax(q kᵀ) v."
        " Give it the scale 1, or multiply the query by the inverse."
    )


def precision_hint(kernel: Any) -> str:
    """Return a sentence if a float64 kernel seems to compute in float32: errors of its weights are 1e-9 to 1e-5."""
    rng = np.random.default_rng(0)
    keys, p = rng.standard_normal((4, 5, 3)), rng.standard_normal((16, 3))
    try:
        off = float(np.max(np.abs(kernel.weights(keys, p[..., None, :]) - softmax_weights(keys, p))))
    except InvalidInput:
        return ""
    if kernel.dtype != "float64" or not 1e-9 < off < 1e-5:
        return ""
    return (
        f"Its weights are off by {off:.1g} at moderate logits, as if it computed in float32 inside;"
        " --dtype float32 tests it within float32's rounding."
    )


def hints(kernel: Any) -> list[str]:
    """Return sentences on possible faults of a kernel for which a statement was falsified."""
    return [hint for hint in (scale_hint(kernel), precision_hint(kernel)) if hint]


def kernel_json(kernel: Any) -> dict[str, object]:
    """Return the description of the kernel for ``--json``."""
    return {
        "name": kernel.name,
        "dtype": kernel.dtype,
        "rank": kernel.layout.rank,
        "values_padded_to_d": kernel.layout.square,
        "interface": kernel.interface.name,
        "computes_in": kernel.computes_in,
        "differentiable": kernel.differentiable,
        "device": kernel.device,
        "isolated": isinstance(kernel.call, RemoteKernel),
        "formats": formats_json(kernel),
        "operators": {name: list(operators) for name, operators in kernel.operators.items()},
        "parameters": {name: str(treatment) for name, treatment in kernel.accounts.items()},
    }


def formats_json(kernel: Any) -> dict[str, str]:
    """Return, by number format, "tried", or why the kernel is not tried in the format."""
    return dict.fromkeys((kernel.dtype, *kernel.coarser), TRIED) | dict(kernel.not_tried)


def describe_kernel(kernel: Any) -> KernelDescription:
    """Return the description of the kernel for a run: name, source, format, headline and JSON."""
    dtype = "auto" if kernel.coarser else kernel.dtype
    return KernelDescription(kernel.name, kernel.source, dtype, headline(kernel), kernel_json(kernel))
