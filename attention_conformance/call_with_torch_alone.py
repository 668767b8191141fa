"""Run a kernel on a call that ``theorems verify`` saved, with torch and NumPy alone; copy this file to your project.

python call_with_torch_alone.py MODULE:CALLABLE CALL.npz
"""

import importlib
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

KNOWN = "query key value upstream wants scale causal window visible bias seed name exact case_of claim"
KNOWN += " kernel_dtype kernel_interface kernel_device"


def check(kernel: Callable[..., Any], file: str) -> None:
    """Raise AssertionError if output, dQ, dK or dV differ from float64 attention by more than rounding explains."""
    call: dict[str, Any] = {
        name: torch.tensor(x) if x.dtype.kind in "bf" else x.tolist() for name, x in np.load(file).items()
    }
    if unknown := {*call} - {*KNOWN.split()}:
        raise SystemExit(f"{file}: this script does not know {', '.join(sorted(unknown))}; use check_call.")
    dtype, wants = getattr(torch, call["kernel_dtype"].replace("auto", "float64")), call.get("wants", "qkv")
    query, key, value, upstream = (call[name].to(dtype) for name in ("query", "key", "value", "upstream"))
    heads, (left, right) = query.shape[1] // key.shape[1], call.get("window", (-1, -1))
    # The causal diagonal begins at the top left; for one that ends at the bottom right, subtract T - L.
    ahead = torch.arange(key.shape[2]) - torch.arange(query.shape[2])[:, None]
    visible = call.get("visible", torch.tensor(True))
    seen = visible & ((ahead >= -left) | (left < 0)) & ((ahead <= right) | (right < 0))
    seen = seen & (ahead <= 0) if call.get("causal", False) else seen
    bias = call.get("bias", torch.tensor(0.0)).to(dtype)

    # The options by the names of PyTorch's function: write the names of your kernel.
    options: dict[str, Any] = {"scale": float(call["scale"])} if "scale" in call else {}
    options |= {"is_causal": True} if call.get("causal", False) else {}
    options |= {"window": (left, right)} if "window" in call else {}
    options |= {"attn_mask": visible} if "visible" in call else {}
    options |= {"attn_mask": bias.masked_fill(~visible, -math.inf)} if "bias" in call else {}
    options |= {"enable_gqa": True} if heads > 1 else {}

    def attention(q: Any, k: Any, v: Any) -> Any:
        k, v = k.repeat_interleave(heads, 1), v.repeat_interleave(heads, 1)
        logits = q @ k.mT * float(call.get("scale", 1 / math.sqrt(q.shape[3])))
        return torch.softmax((logits + bias.to(q)).masked_fill(~seen, -math.inf), -1) @ v

    def results(attend: Callable[..., Any], dtype: torch.dtype) -> list[Any]:
        given = {"q": query.detach().to(dtype), "k": key.detach().to(dtype), "v": value.detach().to(dtype)}
        leaves = [x.requires_grad_() for name, x in given.items() if name in wants]
        output = attend(*given.values())
        return [output, *(torch.autograd.grad(output, leaves, upstream.to(dtype)) if leaves else [])]

    found, due = results(lambda *x: kernel(*x, **options), dtype), results(attention, torch.float64)
    names = ["output", *(f"d{letter.upper()}" for letter in wants)]
    for name, theirs, right, rounded in zip(names, found, due, results(attention, dtype), strict=True):
        # Four times the error of the formula in the kernel's format, and roundings of the largest number.
        rounding = (4 * torch.finfo(dtype).eps + 1e-13) * right.abs().max().clamp(min=1)
        allowed = 4 * (rounded - right).abs().max() + rounding
        error = (theirs.double() - right).abs()
        assert (error <= allowed).all(), f"{name}: wrong by {error.max():.3g}, more than {allowed:.3g}"


if __name__ == "__main__":
    module, _, path = sys.argv[1].partition(":")
    check(getattr(importlib.import_module(module), path), sys.argv[2])
