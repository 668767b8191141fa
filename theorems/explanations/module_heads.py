"""Trained weights of the heads of a torch module, or of any object that gives arrays, named ``path.py:name``.

Accepted are ``nn.MultiheadAttention`` (each head), linear layers ``(query, key)`` or ``(query, key, heads)``, a mapping
or an object with the arrays ``p``, ``W_trained``, or ``K_trained`` and ``Q_trained``, a list of these, and a function
without arguments that returns one of them. :func:`load_heads` runs the file, and is called in a process of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from generators.case import Case
from generators.layer_weights import FORMS, STEPS, TRAINED, checkpoints_of
from reference_attention.errors import InvalidInput
from reference_attention.problem import as_array
from reference_attention.query_dataset import QueryDataset
from theorems.run.registry.user_file import names_in_file, parts_of, sentence_of

KINDS = f"nn.MultiheadAttention, linear layers (query, key) or (query, key, heads), or arrays {FORMS}"
"""The accepted objects, as messages list them."""
INDEXED = re.compile(r"(?P<name>.*)\[(?P<head>\d+)\]")
"""Pattern of a name with the number of a head, such as ``layer[2]``."""


@dataclass(frozen=True)
class Head:
    """Trained weights of a head.

    Attributes:
        arrays: trained weights as nested lists, by their names in a data file, such as ``Q_trained``.
        appended: whether a query bias is the last row of ``Q_trained``, so that each query needs a 1 appended.
    """

    arrays: dict[str, object]
    appended: bool

    def beside(self, case: Case) -> Case:
        """Return the data with these trained weights added.

        Raises:
            InvalidInput: the data already have trained weights, or the shapes of the new weights do not fit.
        """
        if stored := [name for name in TRAINED if name in case.arrays]:
            raise InvalidInput(
                f"{stored[0]}: the data have trained weights, and --module gives others; leave one of them out."
            )
        case = _with_ones(case) if self.appended else case
        weights = checkpoints_of(case, self.arrays)
        assert weights is not None
        return case.replace(arrays={**case.arrays, **weights.arrays})


def _with_ones(case: Case) -> Case:
    """Return the data with a 1 appended to each query; W(0) gets a column of zeros for it, and Q0 a row of zeros."""
    data = case.queried or case.sequence
    if data is None:
        return case  # the data have no queries; checkpoints_of then rejects the weights
    unpadded = [(0, 0)] * (data.queries.ndim - 1)
    extended = replace(data, queries=np.pad(data.queries, [*unpadded, (0, 1)], constant_values=1.0))
    start = None if case.start is None else np.pad(case.start.reshape(data.shape), ((0, 0), (0, 1))).ravel()
    arrays = {name: np.pad(x, ((0, 1), (0, 0))) if name == "Q0" else x for name, x in case.arrays.items()}
    name = "queried" if isinstance(extended, QueryDataset) else "sequence"
    return case.replace(**{name: extended}, problem=extended.problem, start=start, arrays=arrays)


def load_heads(source: str) -> list[Head]:
    """Run the file in ``path.py:name`` or ``path.py:name[HEAD]``, and return the heads of the named object.

    Raises:
        InvalidInput: there is no such file or name, its code raises, or the object is not supported.
    """
    numbered = INDEXED.fullmatch(source)
    path, name = parts_of(numbered["name"] if numbered else source)
    if not name or not path.endswith(".py"):
        raise InvalidInput(f"--module: {source!r} is not PATH.py:NAME; give e.g. my_file.py:layer.")
    first, *attributes = name.split(".")
    names = names_in_file(path, "a trained layer")
    if first not in names:
        defined = ", ".join(key for key in names if not key.startswith("_"))
        raise InvalidInput(f"{path}: has no {first!r}; it has {defined or 'no names'}.")
    try:
        layer = names[first]
        for attribute in attributes:
            layer = getattr(layer, attribute)
        heads = heads_of(layer, f"{path}:{name}")
    except InvalidInput:
        raise
    except (Exception, SystemExit) as error:
        raise InvalidInput(sentence_of(path, error)) from None
    if not numbered:
        return heads
    number = int(numbered["head"])
    if number >= len(heads):
        raise InvalidInput(f"{source}: there are {len(heads)} heads; give a number from 0 to {len(heads) - 1}.")
    return [heads[number]]


def heads_of(layer: Any, name: str) -> list[Head]:
    """Return the heads of an object, which messages call ``name``.

    Raises:
        InvalidInput: the object is not supported.
    """
    from torch import nn

    if isinstance(layer, nn.MultiheadAttention):
        return _of_multihead(layer, name)
    if isinstance(layer, list | tuple) and len(layer) in (2, 3) and all(isinstance(x, nn.Linear) for x in layer[:2]):
        query, key, *heads = layer
        return _of_linear(query, key, heads[0] if heads else 1, name)
    arrays = layer if isinstance(layer, Mapping) else {x: getattr(layer, x) for x in TRAINED if hasattr(layer, x)}
    if unknown := [key for key in arrays if key not in (*TRAINED, STEPS)]:
        raise InvalidInput(f"{name}: {unknown[0]!r} is not a known name of trained weights; give {FORMS}.")
    if arrays:
        return [Head({key: as_array(key, value, "(d, …)").tolist() for key, value in arrays.items()}, False)]
    if isinstance(layer, list | tuple) and layer:
        return [head for part in layer for head in heads_of(part, name)]
    if isinstance(layer, type):
        raise InvalidInput(f"{name}: is a class; give a trained instance of it, or a function that returns one.")
    if callable(layer) and not isinstance(layer, nn.Module):
        return heads_of(layer(), f"{name}()")
    raise InvalidInput(
        f"{name}: {type(layer).__name__} is not supported; give {KINDS}, or a function that returns these."
    )


def _of_multihead(layer: Any, name: str) -> list[Head]:
    if layer.bias_k is not None or layer.add_zero_attn:
        option = "add_bias_kv" if layer.bias_k is not None else "add_zero_attn"
        raise InvalidInput(
            f"{name}: {option} adds a token that is not among the inputs, which is not supported; train without it."
        )
    width = layer.embed_dim
    if layer.in_proj_weight is None:
        query, key = layer.q_proj_weight, layer.k_proj_weight
    else:
        query, key = layer.in_proj_weight[:width], layer.in_proj_weight[width : 2 * width]
    return _split(query, key, None if layer.in_proj_bias is None else layer.in_proj_bias[:width], layer.num_heads)


def _of_linear(query: Any, key: Any, heads: Any, name: str) -> list[Head]:
    rows = query.out_features
    if key.out_features != rows:
        raise InvalidInput(
            f"{name}: the query layer has {rows} outputs, the key layer {key.out_features}; give equal numbers."
        )
    if not isinstance(heads, int) or heads < 1 or rows % heads:
        raise InvalidInput(
            f"{name}: {rows} outputs do not split into {heads!r} heads; give a number that divides them."
        )
    return _split(query.weight, key.weight, query.bias, heads)


def _split(query: Any, key: Any, bias: Any, heads: int) -> list[Head]:
    """Split query and key weights into heads of width m.

    For each head, Kᵀ is m rows of the key weights, and Qᵀ is m rows of the query weights, divided by √m. A bias of the
    keys is left out, since it adds the same number to all logits of a query.
    """
    split = []
    Q, K = (np.asarray(weight.detach().cpu().double()) for weight in (query, key))
    if bias is not None:
        Q = np.column_stack([Q, np.asarray(bias.detach().cpu().double())])
    size = len(Q) // heads
    for rows in (slice(h * size, (h + 1) * size) for h in range(heads)):
        arrays: dict[str, object] = {
            "K_trained": K[rows].T.tolist(),
            "Q_trained": (Q[rows].T / math.sqrt(size)).tolist(),
        }
        split.append(Head(arrays, bias is not None))
    return split
