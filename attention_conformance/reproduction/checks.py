"""The comparisons of a test: with what is due, entry by entry; of two results, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np
from jaxtyping import Float64

from attention_conformance.kernel.trace import Entry, Trace
from attention_conformance.reproduction.text import number, tensor
from theorems.bounded.formats import HALF

RESULTS: Mapping[str, str] = MappingProxyType(
    {
        "output": "output",
        "log_sum_exp": "lse",
        "returned_weights": "weights",
        "query_gradient": "dq",
        "key_gradient": "dk",
        "value_gradient": "dv",
        "sink_gradient": "dsinks",
        "bias_gradient": "dbias",
    }
)
"""What a test and its textbook call them."""
CHECK = '''def check(name, found, due, allowed):
    """Each entry is what is due, up to what is allowed; anything is, NaN too, where that is infinite."""
    if found is None:
        raise AssertionError(f"{name}: autograd does not know of it")
    found = found.detach().cpu().double()
    wrong = (~((found - due).abs() <= allowed) & (torch.as_tensor(allowed) < inf)).nonzero().tolist()
    if wrong:
        at = tuple(wrong[0])
        here = f"{name} at {at} is {found[at]:.6g} where {due[at]:.6g} is due"
        raise AssertionError(f"{here}; {len(wrong)} of {due.numel()} entries are wrong")
'''
CHECK_SAME = '''def check_same(name, found, due):
    """The same numbers, bit for bit."""
    found, due = (x.detach().cpu().double() for x in (found, due))
    if not torch.allclose(found, due, rtol=0, atol=0, equal_nan=True):
        raise AssertionError(f"{name}: up to {(found - due).abs().max():.3g} apart")
'''


def check_lines(found: Trace, entry: Entry) -> Iterator[str]:
    """Numbers of which one at least is wrong, against those that are due."""
    name, allowed, is_one = RESULTS[entry.what.name], *_allowance(entry)
    if entry is found.entries[0]:
        stored = f" and its result in {found.kernel.dtype}" if entry.call.exact and found.kernel.dtype in HALF else ""
        numbers = "float32" if stored else found.kernel.computes_in
        how = "at most" if is_one else "entry by entry"
        yield f"# Twice what rounding the textbook formula in {numbers}{stored} may lose, {how}."
    if (allowed == allowed.ravel()[0]).all():
        yield f"allowed = {number(float(allowed.ravel()[0]))}"
    else:
        yield tensor("allowed", allowed)
    yield f'check("{entry.what.symbol}", {name}, due["{name}"], allowed)'


def _allowance(entry: Entry) -> tuple[Float64[np.ndarray, "..."], bool]:
    """How far each entry may be off: the most of all, or a few digits of each, if one is still too far; and whether it
    is the most of all. What is infinite is not looked at.
    """
    allowed = np.where(np.isfinite(entry.allowed), entry.allowed, np.inf)
    finite = np.isfinite(allowed)
    most = float(np.max(allowed[finite], initial=0.0))
    with np.errstate(invalid="ignore"):
        off = np.where(np.isnan(entry.theirs), np.inf, np.abs(entry.theirs - entry.due))
    for shorter, is_one in ((np.full(allowed.shape, most), True), (allowed, False)):
        rounded = np.array([float(f"{x * 1.006:.3g}") for x in shorter.ravel()]).reshape(allowed.shape)
        rounded = np.where(finite, rounded, np.inf)
        if (finite & (off > rounded)).any():
            return rounded, is_one
    return allowed, False
