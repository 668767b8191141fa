"""A failing call as a test that needs torch and the kernel alone: ``theorems verify --attention … --emit-test FILE``.

The kernel is called by its own keywords: its interface calls a recorder in its place, and what that was given is
written down.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from generators.attention_call import AXES, AttentionCall, Memory, State
from theorems.bounded.formats import HALF
from theorems.kernel.trace import Entry, Trace
from theorems.kernel.with_torch import torch

LARGEST = 50_000
"""Numbers in a test at most: more are a file that nobody opens."""
WIDTH = 116

MODULE = """class Module(torch.nn.Module):
    num_key_value_groups, is_causal, layer_idx = {groups}, {causal}, 0
    head_dim, scaling, sliding_window, attention_dropout = {width}, {scaling!r}, None, 0.1


module = Module().eval()
module.sinks = query.new_full(({heads},), -inf)
module.config = type("Config", (), {{"_attn_implementation": "eager"}})"""
"""What transformers hands to an attention function."""

RESULTS: Mapping[str, str] = MappingProxyType(
    {"output": "output", "log_sum_exp": "lse", "query_gradient": "dq", "key_gradient": "dk", "value_gradient": "dv"}
)
"""What a test and ``textbook`` call them."""


def reproducer(found: Trace, line: str) -> str:
    """The source of a test function; empty for a call that is too large to read, or a kernel that is not imported as
    MODULE:CALLABLE.
    """
    kernel, call = found.kernel, found.call
    size = sum(x.size for x in (call.query, call.key, call.value, call.upstream))
    said = kernel.source.count(":") == 1 and kernel.interface.is_one_expression and _can_be_written(call)
    if size > LARGEST or not said:
        return ""
    # Of these the textbook of the file has no word.
    if call.alone or any(getattr(call, name) is not None for name in AXES):
        return ""
    form = _second_call if call.state is State.TWICE else FORMS.get(found.capability, _numbers_are_due)
    body = [*_tensors(found), *form(found)]
    lines = textwrap.fill(line, WIDTH - 4).splitlines()
    doc = '"""' + lines[0] + ("" if len(lines) == 1 else "\n" + "\n".join(lines[1:]) + "\n") + '"""'
    name = found.capability.replace("-", "_")
    return f"def test_{name}():\n" + textwrap.indent("\n".join([doc, *body]), "    ", lambda text: bool(text.strip()))


def _can_be_written(call: AttentionCall) -> bool:
    """Whether a test of a few lines says what happens: nothing but calls one after another, on tensors as they are."""
    usual = call.upstream_memory is Memory.CONTIGUOUS is call.mask_memory and call.wants == "qkv"
    return usual and call.state in (State.ONCE, State.TWICE) and not call.dropout and not call.beyond


def _tensors(found: Trace) -> Iterator[str]:
    """Its tensors in float64: rounded to the kernel's numbers already."""
    call = found.calls[-3] if found.capability == "hidden-keys" else found.call
    for name in ("query", "key", "value", "upstream"):
        yield _tensor(name, getattr(call, name))
    for name in ("visible", "bias"):
        mask = getattr(call, name)
        if mask is not None:
            yield _tensor(name, mask)


def _tensor(name: str, x: Any) -> str:
    array = np.asarray(x)
    if array.dtype == bool:
        return _wrap(f"{name} = torch.tensor({array.tolist()})")
    return _wrap(f"{name} = numbers({_literal(array.ravel())}, {', '.join(map(str, array.shape))})")


def _literal(values: Any) -> str:
    return "[" + ", ".join(repr(x).removesuffix(".0") for x in (values + 0.0).tolist()) + "]"  # −0 is 0


def _wrap(text: str) -> str:
    return "\n".join(
        textwrap.wrap(text, WIDTH - 4, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    )


# ---- calling the kernel -----------------------------------------------------------------------------------


def _tensor_lines(found: Trace) -> Iterator[str]:
    """The tensors as the kernel gets them."""
    kernel, memory = found.kernel, found.call.memory
    there = f"torch.{kernel.dtype}" if kernel.device == "cpu" else f'"{kernel.device}", torch.{kernel.dtype}'
    yield f"query, key, value, upstream = (x.to({there}) for x in (query, key, value, upstream))"
    laid = {
        Memory.TRANSPOSED: "torch.stack(x.unbind(1), dim=2).transpose(1, 2)",  # anew, even if one axis is of size 1
        Memory.SLICED: "torch.stack((x, torch.full_like(x, nan)), dim=3).flatten(2, 3)[:, :, ::2]",
        Memory.BROADCAST: "x[:1].expand_as(x)",
        Memory.HEADS: "x[:, :1].expand_as(x)",
        Memory.LAST_STRIDE: "torch.stack((x, torch.full_like(x, nan)), dim=4).flatten(3, 4)[..., ::2]",
        Memory.FUSED: "torch.cat((x, x, x), dim=1).transpose(1, 2).contiguous().transpose(1, 2).chunk(3, dim=1)[1]",
        Memory.OFFSET: "torch.cat((x.new_full((1,), nan), x.flatten()))[1:].view(x.shape)",
    }
    if memory in laid:
        placed = [name for name in ("query", "key", "value") if name[0] in found.call.placed]
        names = ", ".join(placed)
        made = f"({laid[memory]} for x in ({names}))" if len(placed) > 1 else laid[memory].replace("x", names)
        yield f"{names} = {made}  # {memory}"
    masks = [name for name in ("visible", "bias") if getattr(found.call, name) is not None]
    if "bias" in masks:
        yield f"own_bias = bias.to({there})"
    if "visible" in masks:
        yield "own_visible = visible" + ("" if kernel.device == "cpu" else f'.to("{kernel.device}")')


def _forward(found: Trace) -> list[str]:
    """Lines that call the kernel on ``query``, ``key`` and ``value``: they make ``output``, and ``lse``."""
    kernel, call = found.kernel, found.call
    sizes = call.sizes
    B, H, L, E, M = (sizes[axis] for axis in "BHLEM")
    lines, names = [], ["query", "key", "value"]
    if kernel.interface.name == "hf":
        scaling = 1 / math.sqrt(E) if call.scale is None else call.scale
        values = {"groups": H // sizes["G"], "causal": call.causal, "heads": H, "width": E, "scaling": scaling}
        lines += MODULE.format(**values).splitlines()
    single = not kernel.many_queries and L > 1
    if single:
        lines.append("# One query to an input: each has a copy of the keys.")
        names = [f"query.reshape({B}, {H * L}, 1, {E})", *(f"{x}.repeat_interleave({L}, dim=1)" for x in names[1:])]
    if kernel.layout.rank == 3:
        names = [f"{name}.flatten(0, 1)" for name in names]
    shape = f".reshape({B}, {H}, {L}, {M})" if single or kernel.layout.rank == 3 else ""
    if kernel.layout.square and M != E:
        lines.append("# Values as wide as keys: padded with zeros, and cut into pieces.")
        lines.append(f"pieces = torch.nn.functional.pad({names[2]}, (0, {-M % E})).split({E}, dim=-1)")
        written, _ = _expression(found, [*names[:2], "piece"])
        return [*lines, f"output = torch.cat([{written} for piece in pieces], dim=-1)[..., :{M}]{shape}"]
    written, transposed = _expression(found, names)
    if call.log_sum_exp:
        lines.append(f"output, lse = {written.removeprefix('first(').removesuffix(')')}[:2]")
        if kernel.lse_multiple > 1:
            lines.append(f"lse = lse[..., :{L}]")
        if kernel.interface.name == "jax":
            lines.append("lse = lse.transpose(1, 2)")
        return [*lines, "output = output.transpose(1, 2)"] if transposed else lines
    return [*lines, _wrap(f"output = {written}{'.transpose(1, 2)' if transposed else ''}{shape}")]


def _expression(found: Trace, names: Sequence[str]) -> tuple[str, bool]:
    """The call of the kernel as its interface makes it, and whether what it returns is in (B, L, H, M)."""
    kernel, call = found.kernel, found.call
    tensors = {name: torch.zeros(getattr(call, name).shape) for name in ("query", "key", "value")}
    given = {name: getattr(call, name) for name in ("visible", "bias")}
    masks = {name: torch.zeros(x.shape, dtype=torch.bool) for name, x in given.items() if x is not None}
    request = kernel.request(call, tensors, masks)
    if not kernel.many_queries and call.query.shape[2] > 1:
        request = replace(request, scale=1.0)
    known = dict(zip(("query", "key", "value"), names, strict=True))
    marker = torch.zeros(1, 2, 3, 4)
    said: list[str] = []

    def name_of(x: Any) -> str:
        if isinstance(x, torch.nn.Module):
            return "module"
        if not isinstance(x, torch.Tensor):
            return repr(x)
        shape = tuple(x.shape)
        for name, mask in masks.items():
            if x.data_ptr() == mask.data_ptr():
                to = "reshape" if x.numel() == mask.numel() else "expand"
                return f"own_{name}" if shape == mask.shape else f"own_{name}.{to}{shape}"
        contiguous = ".contiguous()" if kernel.taken.contiguous else ""
        for name, tensor in tensors.items():
            if x.data_ptr() == tensor.data_ptr():
                return known[name] + (contiguous if x is tensor else f".transpose(1, 2){contiguous}")
        return f"torch.where(own_visible, 0.0, torch.finfo({x.dtype}).min).to({x.dtype}).reshape{shape}"

    def recorder(*given: Any, **options: Any) -> Any:
        said.extend(name_of(x) for x in given)
        said.extend(f"{name}={name_of(x)}" for name, x in options.items())
        return marker

    output = kernel.interface.call(recorder, request, kernel.parameters).output
    return f"first(kernel({', '.join(said)}))", bool(output.shape != marker.shape)


def _backward(found: Trace) -> list[str]:
    if not found.kernel.differentiable:
        return []
    return ["dq, dk, dv = torch.autograd.grad(output, (query, key, value), upstream)"]


def _leaves(found: Trace) -> list[str]:
    return ["query, key, value = (x.requires_grad_() for x in (query, key, value))"] if _backward(found) else []


def _run(found: Trace, arguments: str) -> str:
    """The forward and the backward pass as an inner function."""
    names = "output, dq, dk, dv" if _backward(found) else "output,"
    leaves = ["query, key, value = (x.detach().requires_grad_() for x in (query, key, value))"]
    body = [*(leaves if _backward(found) else []), *_forward(found), *_backward(found)]
    names = names.replace("output", "output, lse", 1) if found.call.log_sum_exp else names
    inner = textwrap.indent("\n".join([*body, f"return {names}"]), "    ")
    return f"\ndef run({arguments}):\n{inner}\n"


# ---- the forms of a test ----------------------------------------------------------------------------------


def _due(found: Trace, call: AttentionCall) -> Iterator[str]:
    """``due``: what the formula returns."""
    kernel, sizes = found.kernel, call.sizes
    scale = f"1 / math.sqrt({sizes['E']})" if call.scale is None else repr(call.scale)
    if call.scale is None:
        yield "# The scale that libraries take by themselves; 1 in its place is right, too."
    options = [f"scale={scale}"]
    options += [f"{name}={name}" for name in ("bias", "visible") if getattr(call, name) is not None]
    options += [f"softcap={call.softcap!r}"] if call.softcap else []
    options += ["causal=True"] if call.causal else []
    options += [f"window={call.window}"] if call.window is not None else []
    offset = kernel.alignment.diagonal(sizes["L"], sizes["T"])
    options += [f"diagonal={offset}"] if offset and (call.causal or call.window is not None) else []
    yield _wrap(f"due = textbook(query, key, value, upstream, {', '.join(options)})")


def _check_line(found: Trace, entry: Entry) -> Iterator[str]:
    if entry is found.entries[0]:
        stored = f" and its result in {found.kernel.dtype}" if entry.call.exact and found.kernel.dtype in HALF else ""
        numbers = "float32" if stored else found.kernel.computes_in
        yield f"# Twice what rounding the textbook formula in {numbers}{stored} may lose, entry by entry."
    allowed = np.where(np.isfinite(entry.allowed), entry.allowed, np.inf)
    short = np.array([float(f"{x * 1.006:.3g}") for x in allowed.ravel()]).reshape(allowed.shape)
    with np.errstate(invalid="ignore"):
        off = np.abs(entry.theirs - entry.due)
        if not (np.isnan(off) | (off > short)).any():
            short = allowed
    if (short == short.ravel()[0]).all():
        yield f"allowed = {float(short.ravel()[0])!r}"
    else:
        yield _tensor("allowed", short)
    name = RESULTS[entry.what.name]
    yield f'check("{entry.what.symbol}", {name}, due["{name}"], allowed)'


def _numbers_are_due(found: Trace) -> Iterator[str]:
    """One call, or the second of two, compared with the formula."""
    call = found.entries[0].call if found.entries else found.call
    yield from _due(found, call)
    yield from _tensor_lines(found)
    unchanged = "inputs-are-unchanged" in found.falsified
    if unchanged:
        yield "before = [x.clone() for x in (query, key, value)]"
    yield from _leaves(found)
    yield from _forward(found)
    yield from _backward(found)
    if unchanged:
        yield "for name, x, was in zip(('query', 'key', 'value'), (query, key, value), before):"
        yield "    check_same(name, x.detach(), was)"
    for entry in found.entries:
        yield from _check_line(found, entry)


def _second_call(found: Trace) -> Iterator[str]:
    """The second call compared with the formula, or with the first."""
    yield from _due(found, found.call)
    yield from _tensor_lines(found)
    yield from _run(found, "query, key, value").splitlines()
    names = ["output", *(["lse"] if found.call.log_sum_exp else []), *(["dq", "dk", "dv"] if _backward(found) else [])]
    yield "once, again = run(query, key, value), run(query, key, value)"
    if "same-bits" in found.falsified:
        yield f"for name, x, was in zip({names}, again, once):"
        yield "    check_same(name, x, was)"
    if found.entries:
        yield f"{', '.join(names)}, = again"
    for entry in found.entries:
        yield from _check_line(found, entry)


def _rows_that_see_nothing(found: Trace) -> Iterator[str]:
    """Zeros, or NaN, forward and backward alike; of NaN dQ may be 0."""
    yield from _due(found, found.call)
    yield from _tensor_lines(found)
    yield from [*_leaves(found), *_forward(found), *_backward(found)]
    if "rows-that-see-nothing" in found.falsified:
        empty = ~found.call.visibility(found.kernel.alignment).any(axis=-1)
        yield _tensor("empty", empty) + "  # rows that see no key"
        yield "zeros, nans = (output[empty] == 0).all(), output[empty].isnan().all()"
        if _backward(found):
            yield "none = (dq[empty] == 0).all()"
            yield "zeros, nans = zeros & none, nans & (none | dq[empty].isnan().all())"
        yield 'assert zeros or nans, "rows that see no key: neither all 0 nor all NaN"'
    for entry in found.entries:
        yield from _check_line(found, entry)


def _hidden_keys(found: Trace) -> Iterator[str]:
    """The same call with other numbers in keys that are hidden: the rows that do not see them are what they were."""
    clean, poisoned = found.calls[-3], found.calls[-2]
    seen = clean.visibility(found.kernel.alignment)
    changed = (poisoned.key != clean.key).any(axis=(0, 1, 3)) | (poisoned.value != clean.value).any(axis=(0, 1, 3))
    at = np.flatnonzero(changed)
    clear = ~seen[..., at].any(axis=-1)
    yield f"hidden = {at.tolist()}  # keys that hold other numbers in the second call"
    yield "other_key, other_value = key.clone(), value.clone()"
    yield _tensor("other_key[:, :, hidden]", poisoned.key[:, :, at])
    yield _tensor("other_value[:, :, hidden]", poisoned.value[:, :, at])
    yield _tensor("clear", clear) + "  # rows that see none of them"
    yield from _tensor_lines(found)
    yield "other_key, other_value = other_key.to(key), other_value.to(value)"
    yield from _run(found, "key, value, query=query").splitlines()
    names = ["output", "dq", "dk", "dv"] if _backward(found) else ["output"]
    yield f"once = dict(zip({names}, run(key, value)))"
    yield f"again = dict(zip({names}, run(other_key, other_value)))"
    yield f"others = [t for t in range({clean.sizes['T']}) if t not in hidden]"
    rows = {"hidden-keys-change-no-output": "output", "query-gradient": "dq"}
    keys = {"key-gradient": "dk", "value-gradient": "dv"}
    for claim in found.falsified:
        if claim in rows:
            name = rows[claim]
            yield f'check_same("{name}", again["{name}"][clear], once["{name}"][clear])'
        elif claim in keys:
            name = keys[claim]
            yield f'check_same("{name}", again["{name}"][:, :, others], once["{name}"][:, :, others])'
        else:
            yield 'for name in ("dk", "dv"):'
            yield '    assert (again[name][:, :, hidden] == 0).all(), f"{name} of hidden keys is not 0"'


FORMS = {
    "causal-rectangle": _rows_that_see_nothing,
    "empty-rows": _rows_that_see_nothing,
    "hidden-keys": _hidden_keys,
}
"""By capability, where it is not the comparison of one call with the formula."""
