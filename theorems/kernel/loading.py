"""From ``MODULE:CALLABLE`` (or an object) to a :class:`theorems.kernel.kernel.Kernel`: import it, and try it once.

The probe is a few tiny calls with all lengths different: does it return one finite tensor of the right shape and dtype,
leave its arguments as they are, return the same numbers again, and can autograd differentiate it with respect to the
query? It does not judge values; that is what the theorems do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from reference_attention.errors import InvalidInput
from theorems.kernel.importing import SIGNATURE, check_callable, imported
from theorems.kernel.kernel import DTYPES, LAYOUTS, Kernel
from theorems.kernel.with_torch import torch

SHAPE = (2, 3, 5, 4, 6)
"""B, n, T, d, m of the probe, all different."""
RESUMMED = 1024.0
"""Roundings, in units of the largest value, by which two calls may differ: threads may add in another order."""


def kernel_named(source: str, dtype: str | None = None) -> Kernel:
    """The kernel of that import name, probed.

    Args:
        source: ``MODULE:CALLABLE``; the module is looked for in the working directory first, like ``python -m``.
        dtype: "float64" or "float32"; by default float64 if the kernel takes it.

    Raises:
        InvalidInput: it cannot be imported, or is no kernel.
    """
    return probed(imported(source), source, source, dtype)


def kernel_of(call: Callable[..., Any], dtype: str | None = None) -> Kernel:
    """The same for an object at hand."""
    name = getattr(call, "__qualname__", None) or type(call).__name__
    check_callable(call, name)
    return probed(call, name, "", dtype)


def scale_of(call: Callable[..., Any]) -> Mapping[str, float]:
    """``scale=1.0`` for a callable that has such a parameter: PyTorch's own default is 1/√d."""
    if call is torch.nn.functional.scaled_dot_product_attention:
        return {"scale": 1.0}  # a builtin without a signature
    try:
        parameter = inspect.signature(call).parameters.get("scale")
    except (ValueError, TypeError):
        return {}
    named = parameter is not None and parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    return {"scale": 1.0} if named else {}


def probed(call: Callable[..., Any], name: str, source: str, dtype: str | None) -> Kernel:
    """The kernel in the first dtype and layout that it takes.

    Raises:
        InvalidInput: it takes none; the sentence is about the first dtype in the layout that it came furthest in.
    """
    if dtype is not None and dtype not in DTYPES:
        raise InvalidInput(
            f"--dtype: {dtype!r} is not one of {', '.join(DTYPES)}; half precision has no rounding bound here, so wrap"
            " such a kernel to take and return float32 only if it computes in it."
        )
    keywords = scale_of(call)
    refusals: list[tuple[int, str]] = []
    for wanted in [dtype] if dtype else DTYPES:
        for layout in LAYOUTS:
            kernel = Kernel(call, name, source, wanted, layout, keywords)
            step, refusal = _refusal(kernel)
            if not refusal:
                return kernel
            refusals.append((step, refusal))
        if max(refusals)[0] > 0:
            break  # it takes this dtype: what is wrong in it does not become right in a coarser one
    raise InvalidInput(max(refusals, key=lambda found: found[0])[1])


def _refusal(kernel: Kernel) -> tuple[int, str]:
    """How far the kernel came and why no further; empty if it passes."""
    batch, n, tokens, d, m = SHAPE
    made = torch.Generator().manual_seed(0)
    query, keys, values = (
        torch.randn(batch, n, length, width, generator=made, dtype=torch.float64).to(DTYPES[kernel.dtype])
        for length, width in ((1, d), (tokens, d), (tokens, m))
    )
    given = {"query": query, "keys": keys, "values": values}
    before = {name: tensor.clone() for name, tensor in given.items()}
    query.requires_grad_()
    try:
        with torch.enable_grad():
            found = kernel.attend(query, keys, values)
    except InvalidInput as error:
        return 0, str(error)
    if not bool(torch.isfinite(found).all()):
        return 1, f"--attention: {kernel.name} returned NaN or infinite entries for finite tensors; {SIGNATURE}."
    changed = next((name for name, tensor in given.items() if not torch.equal(tensor.detach(), before[name])), "")
    if changed:
        return 1, f"--attention: {kernel.name} changes its {changed} in place; let it work on a copy."
    with torch.no_grad():
        apart = float((kernel.attend(query, keys, values) - found).abs().max())
    if not apart <= RESUMMED * kernel.eps * float(values.detach().abs().max()):
        return 1, (
            f"--attention: {kernel.name} returned different numbers for the same tensors, up to {apart:.2g} apart;"
            " switch off dropout and whatever else is random."
        )
    unusable = f"--attention: {kernel.name} cannot be differentiated by autograd with respect to the query"
    if not found.requires_grad:
        return 2, f"{unusable}: its result is detached; build it of differentiable operations."
    try:
        (gradient,) = torch.autograd.grad(found.sum(), query, allow_unused=True)
    except (Exception, SystemExit) as error:
        return 3, f"{unusable}, {type(error).__name__}: {' '.join(str(error).split())[:200].rstrip('.')}."
    if gradient is None:
        return 4, f"{unusable}: its result does not depend on the query."
    if not bool(torch.isfinite(gradient).all()):
        return 5, f"--attention: {kernel.name} has a gradient with NaN or infinite entries; {SIGNATURE}."
    return 6, ""
