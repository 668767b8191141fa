"""ONNX's operator Attention, without a backward pass: each set of options needs a model, of a single node."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper
from torch import Tensor

OPSET = 23
"""The first version of ONNX's operator set that has the operator Attention."""
TYPES = {np.dtype("float32"): TensorProto.FLOAT, np.dtype("float16"): TensorProto.FLOAT16}
TYPES |= {np.dtype("float64"): TensorProto.DOUBLE, np.dtype("bool"): TensorProto.BOOL}


def on_runtime(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    softcap: float = 0.0,
    enable_gqa: bool = False,
) -> Tensor:
    """Compute ONNX's operator Attention by onnxruntime on a CPU."""
    return _run(_session, query, key, value, attn_mask, is_causal, scale, softcap)


def by_reference(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    softcap: float = 0.0,
    enable_gqa: bool = False,
) -> Tensor:
    """Compute ONNX's operator Attention by the reference implementation in the package onnx."""
    return _run(_reference, query, key, value, attn_mask, is_causal, scale, softcap)


def _run(
    runner: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float | None,
    softcap: float,
) -> Tensor:
    if mask is not None:
        # The operator broadcasts only the first two axes of a mask, those of batch entries and heads.
        mask = mask.expand(*mask.shape[:-2], query.shape[2], key.shape[2])
    tensors = {"Q": query, "K": key, "V": value} | ({} if mask is None else {"attn_mask": mask})
    arrays = {name: np.ascontiguousarray(x.detach().numpy()) for name, x in tensors.items()}
    types = tuple(sorted((name, TYPES[x.dtype], x.ndim) for name, x in arrays.items()))
    (output,) = runner(types, causal, scale, softcap).run(None, arrays)
    return torch.tensor(output)


def _model(types: tuple[tuple[str, int, int], ...], causal: bool, scale: float | None, softcap: float) -> Any:
    """Return an ONNX model of a single node Attention, with named inputs of any sizes.

    ``types`` has the name, the element type and the number of axes of each input.
    """
    options: dict[str, Any] = {"is_causal": int(causal), "softcap": float(softcap)}
    if scale is not None:
        options["scale"] = float(scale)
    type_of = {name: (kind, rank) for name, kind, rank in types}
    names = [name for name in ("Q", "K", "V", "attn_mask") if name in type_of]
    inputs = [helper.make_tensor_value_info(name, type_of[name][0], [None] * type_of[name][1]) for name in names]
    output = helper.make_tensor_value_info("Y", type_of["Q"][0], [None] * 4)
    graph = helper.make_graph([helper.make_node("Attention", names, ["Y"], **options)], "attention", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


@lru_cache(maxsize=256)
def _session(*arguments: Any) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(_model(*arguments).SerializeToString(), options, ["CPUExecutionProvider"])


@lru_cache(maxsize=256)
def _reference(*arguments: Any) -> Any:
    from onnx.reference import ReferenceEvaluator

    onnx.checker.check_model(_model(*arguments))
    return ReferenceEvaluator(_model(*arguments))
