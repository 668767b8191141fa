"""The file that ``--emit-test`` writes: a textbook formula in float64, and a test for each falsified capability."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from theorems.core.claim import Verdict
from theorems.run.result import Result

HEAD = '''"""Calls on which {source} is wrong, as theorems verify --attention found them.

Needs torch and the kernel alone: pytest {file}, or python {file}.
"""

import math
import os
import sys

import torch

sys.path.insert(0, os.getcwd())  # where the kernel was found
{kernel}

inf, nan = math.inf, math.nan


def numbers(entries, *shape):
    """A float64 tensor."""
    return torch.tensor(entries, dtype=torch.float64).reshape(shape)


def first(found):
    """The output of a kernel that may return more."""
    return found[0] if isinstance(found, (tuple, list)) else found


def textbook(query, key, value, upstream, *, scale, softcap=0.0, bias=None, visible=None, causal=False, window=None,
             diagonal=0):
    """softmax(cap(scale · q kᵀ) + bias) v in float64, its log-sum-exp and gradients; a row that sees no key is 0."""
    query, key, value = (x.detach().cpu().double().requires_grad_() for x in (query, key, value))
    keys, values = (x.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for x in (key, value))
    logits = query @ keys.mT * scale
    if softcap:
        logits = softcap * torch.tanh(logits / softcap)
    if bias is not None:
        logits = logits + bias
    # Row i stands at key i + diagonal.
    ahead = torch.arange(key.shape[2]) - torch.arange(query.shape[2])[:, None] - diagonal
    seen = (logits > -inf) & (ahead <= 0 if causal else ahead == ahead)
    if visible is not None:
        seen = seen & visible
    if window is not None:
        before, after = window
        seen = seen & ((ahead >= -before) | (before < 0)) & ((ahead <= after) | (after < 0))
    logits = torch.where(seen | ~seen.any(dim=-1, keepdim=True), logits, -inf)
    output = torch.where(seen, torch.softmax(logits, dim=-1), 0.0) @ values
    dq, dk, dv = torch.autograd.grad(output, (query, key, value), upstream)
    return {{"output": output.detach(), "lse": torch.logsumexp(logits, dim=-1).detach(), "dq": dq, "dk": dk, "dv": dv}}


def check(name, found, due, allowed):
    """Each entry is what is due, up to what is allowed; anything is, NaN too, where that is infinite."""
    found = found.detach().cpu().double()
    wrong = (~((found - due).abs() <= allowed) & (allowed < inf)).nonzero().tolist()
    if wrong:
        at = tuple(wrong[0])
        here = f"{{name}} at {{at}} is {{found[at]:.6g}} where {{due[at]:.6g}} is due"
        raise AssertionError(f"{{here}}; {{len(wrong)}} of {{due.numel()}} entries are wrong")


def check_same(name, found, due):
    """The same numbers, bit for bit."""
    if not torch.allclose(found, due, rtol=0, atol=0, equal_nan=True):
        raise AssertionError(f"{{name}}: up to {{(found - due).abs().max():.3g}} apart")
'''

TAIL = """

if __name__ == "__main__":
    failed = 0
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            try:
                test()
            except Exception as error:
                failed = 1
                print(f"{name}: {type(error).__name__}: {error}")
    sys.exit(failed)
"""


def reproducer_file(source: str | None, results: Sequence[Result], file: Path | None) -> str:
    """The text of the file; empty where there is nothing to write."""
    tests = [result.failure.test for result in results if result.failure is not None and result.failure.test]
    return file_of(source, tests, file.name) if source and tests and file is not None else ""


def describe_tests(results: Sequence[Result], file: Path) -> str:
    """What was written, and what was not."""
    falsified = [result for result in results if result.verdict is Verdict.FALSIFIED and result.failure is not None]
    written = [one.id for one in falsified if one.failure is not None and one.failure.test]
    without = [one.id for one in falsified if one.id not in written]
    said = f"{file}: fails for {', '.join(written)}; run it with pytest {file}" if written else f"{file}: not written"
    if without:
        said += f"; no test of {', '.join(without)}: a statement of the paper, or a call of too many numbers"
    return f"{said}." if written or without else f"{said}, as nothing is falsified."


def file_of(source: str, tests: Sequence[str], file: str) -> str:
    """The text of a file with these tests.

    Args:
        source: MODULE:CALLABLE, or path.py:CALLABLE.
        file: what it is called, for its docstring.
    """
    module, _, path = source.partition(":")
    named = f"from {module} import {path} as kernel  # noqa: E402"
    within = f"import {module} as where  # noqa: E402\n\nkernel = where.{path}"
    if module.endswith(".py"):
        within = f"import runpy  # noqa: E402\n\nkernel = runpy.run_path({module!r})[{path!r}]"
    head = HEAD.format(source=source, file=file, kernel=within if "." in path or module.endswith(".py") else named)
    return head + "".join(f"\n\n{test}\n" for test in tests) + TAIL
