"""Adapter from an object with methods ``plan`` and ``run`` to a function of a single sequence.

Such objects are flashinfer's batch wrappers: ``plan`` takes the lengths and options of a batch, ``run`` the tensors. A
call of the function plans a batch of three sequences with the function's own sequence in the middle. The other two
sequences have other lengths and numbers, so that a wrong start of a sequence leads to a wrong result.
The pages of a paged cache lie in reverse order. The function has the signature of flashinfer's
``single_prefill_with_kv_cache`` (of ``single_decode_with_kv_cache`` if ``plan`` has no ``qo_indptr``), restricted to
options that ``plan`` has, too. Axes: L queries, T keys, H heads, G heads of keys and values, E columns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from attention_conformance.interfaces.packed_sequences import BEYOND
from attention_conformance.kernel.torch_import import torch
from reference_attention.errors import InvalidInput

WORKSPACE = 1 << 27
"""The size in bytes of the scratch memory that ``plan`` needs, as flashinfer's documentation recommends."""
PAGE = 16
"""The number of keys in a page of a paged cache."""
OPTIONS = {"custom_mask": None, "causal": False, "sm_scale": None, "window_left": -1, "logits_soft_cap": None}
"""The options of ``plan`` that become options of the adapted function, with their defaults in the function."""
KNOWN = (
    *("qo_indptr", "kv_indptr", "paged_kv_indptr", "paged_kv_indices", "paged_kv_last_page_len"),
    *("indptr", "indices", "last_page_len", "num_qo_heads", "num_kv_heads", "head_dim", "head_dim_qk", "head_dim_vo"),
    *("page_size", "q_data_type", "kv_data_type", *OPTIONS),
)
"""The parameters of ``plan`` for which this module has values to pass."""


def on_one_request(value: Any, name: str) -> Callable[..., Any]:
    """Return a function of queries (L, H, E), keys and values (T, G, E) that calls the object's ``plan`` and ``run``.

    Args:
        value: the object, or its class, which is instantiated with scratch memory at the first call.
        name: the name of the object in messages.

    Raises:
        InvalidInput: ``plan`` has a required parameter that this module does not know.
    """
    plan, run = (list(inspect.signature(getattr(value, method)).parameters.values()) for method in ("plan", "run"))
    unknown = [p.name for p in plan if p.default is p.empty and p.name not in (*KNOWN, "self")]
    if unknown:
        raise InvalidInput(
            f"--attention: plan() of {name} requires {unknown[0]!r}, which this suite does not know; give a function."
        )
    takes = {parameter.name for parameter in plan}
    is_paged = bool(takes & {"page_size"})
    made: list[Any] = []

    def attention(q: Any, k: Any, v: Any, *, return_lse: bool = False, kv_layout: str = "NHD", **options: Any) -> Any:
        if not made:
            made.append(_made(value, q.device) if inspect.isclass(value) else value)
        is_decoding = "qo_indptr" not in takes
        if is_decoding and q.dim() != 2:
            raise ValueError("the kernel takes one query per call")
        q = q[None] if is_decoding else q
        queries, keys, values = [q[:1].flip(0) * 2, q, -q[:1]], _with_others(k), _with_others(v)
        sizes = {"num_qo_heads": q.shape[1], "num_kv_heads": k.shape[1], "page_size": PAGE}
        widths = {"head_dim": q.shape[2], "head_dim_qk": q.shape[2], "head_dim_vo": v.shape[2]}
        given = {**sizes, **widths, "qo_indptr": _starts(queries), "kv_indptr": _starts(keys), **options}
        given |= {"q_data_type": q.dtype, "kv_data_type": k.dtype}
        if options.get("custom_mask") is not None:
            whole = [
                torch.ones(len(a), len(b), dtype=torch.bool, device=q.device)
                for a, b in zip(queries, keys, strict=True)
            ]
            whole[1] = options["custom_mask"]
            given["custom_mask"] = torch.cat([mask.flatten() for mask in whole])
        tensors: Any = (torch.cat(keys), torch.cat(values))
        if is_paged:
            starts, order, last, pages = _in_pages(keys, values)
            given |= {"paged_kv_indptr": starts, "paged_kv_indices": order, "paged_kv_last_page_len": last}
            given |= {"indptr": starts, "indices": order, "last_page_len": last}
            tensors = (pages,)
        made[0].plan(**{name: x for name, x in given.items() if name in takes})
        returned = made[0].run(torch.cat(queries), *tensors, **({"return_lse": True} if return_lse else {}))
        results = [x[1 : 1 + len(q)] for x in (returned if return_lse else (returned,))]
        results = [x[0] for x in results] if is_decoding else results
        return tuple(results) if return_lse else results[0]

    kinds = inspect.Parameter
    further = [(name, default) for name, default in OPTIONS.items() if name in takes]
    if any(parameter.name == "return_lse" for parameter in run):
        further.append(("return_lse", False))
    attention.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [kinds(name, kinds.POSITIONAL_OR_KEYWORD) for name in "qkv"]
        + [kinds(name, kinds.KEYWORD_ONLY, default=default) for name, default in (("kv_layout", "NHD"), *further)]
    )
    attention.__name__ = attention.__qualname__ = name
    return attention


def _made(kind: Callable[..., Any], device: torch.device) -> Any:
    """Return an object of the class ``kind``, created with scratch memory if the class takes a workspace."""
    takes = [*inspect.signature(kind).parameters]
    workspace = (
        [torch.empty(WORKSPACE, dtype=torch.uint8, device=device)] if takes[:1] == ["float_workspace_buffer"] else []
    )
    return kind(*workspace)


def _with_others(x: torch.Tensor) -> list[torch.Tensor]:
    """Return the keys (or the values) of three sequences, with ``x``, those of the tested sequence, in the middle."""
    return [torch.cat([x.flip(0), x[:1], -x[:1]]), x, -x[:1]]


def _starts(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return the index at which each sequence starts in the joined tensor, and the end of the last, as int32."""
    lengths = torch.tensor([0, *map(len, tensors)], device=tensors[0].device)
    return torch.cumsum(lengths, 0).to(torch.int32)


def _in_pages(keys: list[torch.Tensor], values: list[torch.Tensor]) -> tuple[Any, Any, Any, Any]:
    """Return the keys and values of three sequences cut into pages, and where each sequence's pages are.

    Returns:
        The start of each sequence in the table of pages; the table, whose entries are indices of pages; for each
        sequence the number of keys in its last page; and the pair (keys, values), each of shape (pages, PAGE, G, E).
        Pages lie in reverse order. The rest of each last page is filled with BEYOND, which would change the output.
    """
    counts = [-(-len(x) // PAGE) for x in keys]
    device = keys[0].device

    def whole(tensors: list[torch.Tensor]) -> torch.Tensor:
        pages = [
            torch.nn.functional.pad(x, (0, 0, 0, 0, 0, n * PAGE - len(x)), value=BEYOND).reshape(n, PAGE, *x.shape[1:])
            for x, n in zip(tensors, counts, strict=True)
            if n
        ]
        return torch.cat(pages).flip(0)

    starts = torch.cumsum(torch.tensor([0, *counts], device=device), 0).to(torch.int32)
    order = torch.arange(sum(counts) - 1, -1, -1, device=device, dtype=torch.int32)
    last = torch.tensor([(len(x) - 1) % PAGE + 1 if len(x) else 0 for x in keys], device=device, dtype=torch.int32)
    return starts, order, last, (whole(keys), whole(values))
