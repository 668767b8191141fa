"""Softmax attention in float64, written out: of a file's textbook there is as much as its tests ask for."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from attention_conformance.reproduction.text import tensor, wrap
from generators.attention_call import AttentionCall

BLOCKS: Sequence[tuple[str, str]] = (
    (
        "",
        """query, key, value = (x.detach().cpu().double().requires_grad_() for x in (query, key, value))
keys, values = (x.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for x in (key, value))""",
    ),
    ("shared", "values = keys[..., : value.shape[-1]]  # of the first columns of the keys"),
    ("", "logits = query @ keys.mT * scale"),
    (
        "score_mod mask_mod causal window slopes lengths",
        "i, j = torch.arange(query.shape[2])[:, None], torch.arange(key.shape[2])",
    ),
    (
        "score_mod",
        """factor, slope, shift = score_mod.T[..., None, None]  # of each head
logits = factor * logits + slope * (j - i) + shift""",
    ),
    ("softcap", "logits = softcap * torch.tanh(logits / softcap)"),
    ("through", "scores = logits  # before anything hides"),
    (
        "bias",
        """bias = bias.detach().cpu().double().requires_grad_()
logits = logits + bias""",
    ),
    ("causal window slopes", "ahead = j - i - diagonal  # row i stands at key i + diagonal"),
    ("slopes", "logits = logits - slopes[..., None, None] * ahead.abs()"),
    ("", "seen = logits > -inf"),
    ("causal", "seen = seen & (ahead <= 0)"),
    (
        "window",
        """before, after = window
seen = seen & ((ahead >= -before) | (before < 0)) & ((ahead <= after) | (after < 0))""",
    ),
    ("visible", "seen = seen & visible"),
    (
        "mask_mod",
        """a, b, c = (x[..., None, None] for x in mask_mod.unbind(-1))  # of each entry and head
seen = seen & (a * j + b * i <= c)""",
    ),
    (
        "lengths",
        """queries_of, keys_of = (x[:, None, None, None] for x in lengths.unbind(-1))  # of each entry
seen = seen & (i < queries_of) & (j < keys_of)""",
    ),
    (
        "",
        """empty = ~seen.any(dim=-1, keepdim=True)
logits = torch.where(seen, logits, torch.where(empty, 0.0, -inf))
weights = torch.where(seen, torch.softmax(logits, dim=-1), 0.0)""",
    ),
    (
        "sinks",
        """sinks = sinks.detach().cpu().double().requires_grad_()
column = sinks[:, None, None].expand(*logits.shape[:-1], 1)  # one more key, of value 0
keys_alone = torch.where(empty, -inf, logits)
weights = torch.where(seen, torch.softmax(torch.cat([keys_alone, column], dim=-1), dim=-1)[..., :-1], 0.0)""",
    ),
    ("mean", "weights = torch.where(empty, 1 / key.shape[2], weights)"),
    (
        "through",
        """equal = torch.softmax(scores - scores.detach(), dim=-1)  # the mean, with its gradient
weights = torch.where(empty, equal, weights)""",
    ),
    ("kept", "weights = kept * weights"),
    (
        "",
        """output = weights @ values
lse = torch.logsumexp(logits, dim=-1)
loss = (output * upstream.detach().cpu().double()).sum()""",
    ),
    ("lse_upstream", "loss = loss + (lse * lse_upstream.detach().cpu().double()).sum()"),
    ("", 'leaves = {"dq": query, "dk": key, "dv": value}'),
    ("sinks", 'leaves["dsinks"] = sinks'),
    ("bias", 'leaves["dbias"] = bias'),
    (
        "",
        """gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
found = {"output": output.detach(), "lse": lse.detach(), "weights": weights.detach()}
return found | dict(zip(leaves, gradients))""",
    ),
)
"""Lines, each with the options that ask for it, none for all."""
DEFAULTS = {
    "causal": "False",
    "diagonal": "0",
    "softcap": "0.0",
    "shared": "False",
    "mean": "False",
    "through": "False",
}
"""Of options that not every test of a file has; None for others."""
ORDER = (
    *("score_mod", "softcap", "bias", "slopes", "visible", "mask_mod", "causal", "window", "diagonal", "lengths"),
    *("sinks", "lse_upstream", "kept", "shared", "mean", "through"),
)
DIAGONAL = " - diagonal  # row i stands at key i + diagonal"


def textbook_of(tests: Sequence[str]) -> str:
    """The source of ``textbook`` with the options that it is called with."""
    calls = list(_calls(tests))
    asked = [name for name in ORDER if any(name in one for one in calls)]
    options = [f"{name}={DEFAULTS.get(name, 'None')}" for name in asked]
    head = wrap(f"def textbook({', '.join(['query, key, value, upstream, *, scale', *options])}):").replace(
        "\n    ", "\n             "
    )
    body = ['"""softmax(scale · q kᵀ) v in float64, its log-sum-exp and gradients; a row that sees no key is 0."""']
    for names, block in BLOCKS:
        wanted = [name for name in names.split() if name in asked]
        if names and not wanted:
            continue
        lines = (block if "diagonal" in asked else block.replace(DIAGONAL, "")).splitlines()
        # Whether a row that sees nothing is a mean is known when the kernel was called.
        sometimes = len(names.split()) == 1 and (
            names in ("mean", "through") or not all(wanted[0] in one for one in calls)
        )
        if sometimes:
            name = wanted[0]
            lines = [f"if {name}:" if name in DEFAULTS else f"if {name} is not None:", *(f"    {x}" for x in lines)]
        body += lines
    return "\n".join([head, *(f"    {line}" for line in body)])


def _calls(tests: Sequence[str]) -> Iterator[set[str]]:
    """The options of each call of the textbook."""
    for test in tests:
        for node in ast.walk(ast.parse(test)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "textbook":
                yield {one.arg for one in node.keywords if one.arg}


def due_lines(call: AttentionCall, alignment: Any, kept: str = "", mean: str = "", through: str = "") -> Iterator[str]:
    """``due``: what the formula returns of a call.

    Args:
        alignment: of the diagonal.
        kept: text of the factors of weights, where some are dropped.
        mean: text of whether rows that see no key are the mean of all values.
        through: text of whether a gradient goes through the weights of that.
    """
    sizes = call.sizes
    scale = f"1 / math.sqrt({sizes['E']})" if call.scale is None else repr(call.scale)
    if call.scale is None:
        yield "# The scale that libraries take by themselves; 1 in its place is right, too."
    options = [f"scale={scale}"]
    arrays = ("score_mod", "bias", "slopes", "visible", "mask_mod", "sinks", "lse_upstream")
    # What lies behind the keys in a mask says nothing.
    cut = dict.fromkeys(("visible", "bias"), f"[..., :{sizes['T']}]" if call.beyond else "")
    options += [f"{name}={name}{cut.get(name, '')}" for name in arrays if getattr(call, name) is not None]
    options += [f"softcap={call.softcap!r}"] if call.softcap else []
    options += ["causal=True"] if call.causal else []
    options += [f"window={call.window}"] if call.window is not None else []
    places = call.causal or call.window is not None or call.slopes is not None
    if call.lengths is not None:
        options.append("lengths=lengths")
        own = [alignment.diagonal(int(queries), int(keys)) for queries, keys in call.lengths]
        if any(own) and places:
            yield tensor("diagonal", np.array(own)[:, None, None, None]) + "  # of each entry"
            options.append("diagonal=diagonal")
    else:
        offset = alignment.diagonal(sizes["L"], sizes["T"])
        options += [f"diagonal={offset}"] if offset and places else []
    options += ["shared=True"] if call.shared else []
    options += [f"kept={kept}"] if kept else []
    options += [f"mean={mean}"] if mean else []
    options += [f"through={through}"] if through else []
    tensors = ["query", "key", "value"]
    if call.descales is not None:
        yield "# Each group of heads has its factors."
        group = sizes["H"] // sizes["G"]
        wide = f".repeat_interleave({group}, dim=1)" if group > 1 else ""
        own_factor = [f"descales[0]{wide}", "descales[1]", "descales[2]"]
        tensors = [f"{name} * {of}[..., None, None]" for name, of in zip(tensors, own_factor, strict=True)]
    yield wrap(f"due = textbook({', '.join([*tensors, 'upstream', *options])})")
