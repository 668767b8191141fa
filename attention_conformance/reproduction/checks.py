"""The source of a test's comparisons of results with the textbook formula, within rounding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Float64

from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.kernel.trace import Entry, Trace
from attention_conformance.reproduction.python_text import array_text, number, wrap
from theorems.bounded.formats import HALF

RESULTS: Mapping[str, str] = MappingProxyType(
    {"output": "output", "log_sum_exp": "lse", "returned_weights": "weights"}
    | {"query_gradient": "dq", "key_gradient": "dk", "value_gradient": "dv"}
    | {"sink_gradient": "dsinks", "bias_gradient": "dbias"}
)
"""The name of each result in a printed test, by the result's attribute in an answer of a kernel."""


def check_lines(trace: Trace, entry: Entry) -> Iterator[str]:
    """Yield the lines of a test that compare the kernel's numbers with the correct ones, for the quantity ``entry``."""
    allowed, name = _allowance(entry), RESULTS[entry.what.name]
    if entry is trace.entries[0]:
        stored = f" and its result in {trace.kernel.dtype}" if entry.call.exact and trace.kernel.dtype in HALF else ""
        numbers = "float32" if stored else trace.kernel.computes_in
        yield f"# Twice the rounding error of the textbook formula in {numbers}{stored}."
    for axis in range(allowed.ndim):
        if (allowed == allowed.take([0], axis)).all():
            allowed = allowed.take([0], axis)
    yield wrap(f"allowed = {array_text(allowed) if allowed.size > 1 else number(float(allowed.flat[0]))}")
    yield f'check("{entry.what.symbol}", found["{name}"], due["{name}"], allowed)'


def _allowance(entry: Entry) -> Float64[np.ndarray, "..."]:
    """Return each number's allowed error: one bound for all, or three digits of each, if a wrong number still fails."""
    finite = np.isfinite(entry.allowed)
    with np.errstate(invalid="ignore"):
        off = np.where(np.isnan(entry.theirs), np.inf, np.abs(entry.theirs - entry.due))
    most = np.full(finite.shape, np.max(entry.allowed[finite], initial=0.0))
    for allowed in (most, np.where(finite, entry.allowed, 0.0)):
        short = np.vectorize(lambda x: float(f"{x * 1.006:.3g}"))(allowed)
        if (finite & (off > short)).any():
            return np.where(finite, short, np.inf)
    return np.where(finite, entry.allowed, np.inf)


def due_line(call: AttentionCall, alignment: Any, **further: str) -> str:
    """Return the line of a test that computes ``due``, the correct results; ``further`` is the source of options."""
    sizes, cut = call.sizes, f"[..., :{call.sizes['T']}]" if call.beyond else ""
    options = {"scale": f"1 / math.sqrt({sizes['E']})" if call.scale is None else repr(call.scale)}
    for name in ("score_mod", "bias", "slopes", "visible", "mask_mod", "lengths", "sinks", "lse_upstream", "descales"):
        if getattr(call, name) is not None:
            options[name] = name + (cut if name in ("bias", "visible") else "")
    options |= {name: repr(x) for name in ("softcap", "causal", "window", "shared") if (x := getattr(call, name))}
    lengths = [(sizes["L"], sizes["T"])] if call.lengths is None else call.lengths
    diagonals = [alignment.diagonal(int(queries), int(keys)) for queries, keys in lengths]
    if any(diagonals) and (call.causal or call.window is not None or call.slopes is not None):
        options["diagonal"] = (
            str(diagonals[0]) if len({*diagonals}) == 1 else f"torch.tensor({diagonals})[:, None, None, None]"
        )
    arguments = (f"{name}={text}" for name, text in (options | further).items())
    line = wrap(f"due = textbook(query, key, value, upstream, {', '.join(arguments)})")
    return line if call.scale is not None else f"# The scale of most libraries; the scale 1 is right as well.\n{line}"
