"""Detection, by small calls, of the meaning of a callable's parameters and results.

The meaning is kept as a reading, :class:`attention_conformance.interfaces.signature_reading.Reading`. Axes: B batch
entries, H heads, L queries, T keys.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.interfaces.inferred_interface import interface_of
from attention_conformance.interfaces.parameter_names import ROLES, is_pytorchs, roles_of
from attention_conformance.interfaces.signature_reading import (
    ADDED,
    FOLDED,
    HIDES,
    MASK_SHAPES,
    ONES_HIDE,
    SHOWS,
    Mask,
    Reading,
    flatten,
    look_up,
)
from attention_conformance.kernel.memory_layout import float64_of
from attention_conformance.kernel.small_calls import (
    NEAR,
    Found,
    distance,
    due_rows,
    random_bias,
    random_mask,
    square_call,
    try_reading,
)
from attention_conformance.kernel.torch_import import torch

ONE_FOR_ALL_HEADS = "attention_mask"
"""A parameter name that means masks (B, 1, L, T) in Transformers and Megatron-LM: all heads share such a mask."""


def with_options(kernel: Any, candidate: Found) -> Reading:
    """Return the candidate's reading, with the meaning of masks added, and without options that the callable lacks."""
    reading = candidate.reading
    names = dict(reading.names)
    square = square_call(causal=reading.always_causal)
    if "window" in names and try_reading(kernel, reading, square, window=(2, 0))[0] is None:
        names.pop("window")  # the callable refuses a pair (left, right): its window is of another kind
    reading = replace(reading, names=names, fixed_scale="scale" not in names and candidate.scale is None)
    masks = roles_of(kernel.parameters)["mask"]
    for name in masks:
        mask, bias = _senses(kernel, replace(candidate, reading=reading), name)
        of_keys = mask is not None and mask.shape in ("B, 1, 1, T", "B, T")
        if mask is not None and not of_keys and reading.mask is None:
            reading = replace(reading, mask=mask)
        elif mask is not None and of_keys and reading.key_mask is None:
            reading = replace(reading, key_mask=mask)
        if bias is not None and reading.bias is None:
            reading = replace(reading, bias=bias)
    return _through_keywords(kernel, candidate, reading) if "**" in kernel.parameters else reading


def _through_keywords(kernel: Any, candidate: Found, reading: Reading) -> Reading:
    """Return the reading, with options added that the callable takes as ``**`` keywords by names that libraries use."""
    options_by_role: dict[str, dict[str, Any]] = {"scale": {"scale": 0.5}, "causal": {"causal": True}}
    for role, options in options_by_role.items():
        for name in ROLES[role] if role not in reading.names and not reading.always_causal else ():
            extended = replace(reading, names={**reading.names, role: name})
            if _has_an_effect(kernel, extended, **options):
                reading = extended if role == "causal" else replace(extended, fixed_scale=False)
                break
    small_call = square_call(causal=False)
    for name in ROLES["mask"][:3] if reading.mask is None is reading.bias else ():
        mask, bias = _senses(kernel, replace(candidate, reading=reading), name)
        masks_by_name = {"visible": random_mask(small_call)} if mask is not None else {}
        masks_by_name |= {"bias": random_bias(small_call)} if bias is not None else {}
        extended = replace(reading, mask=mask, bias=bias)
        if masks_by_name and all(
            _has_an_effect(kernel, extended, **{key: _mask_tensor(kernel, x)}) for key, x in masks_by_name.items()
        ):
            return extended
    return reading


def _mask_tensor(kernel: Any, mask: Any) -> torch.Tensor:
    return torch.tensor(mask, device=kernel.device) if mask.dtype == bool else kernel.tensor(mask)


def _has_an_effect(kernel: Any, reading: Reading, **options: Any) -> bool:
    """Return whether the options change the output of a callable that is called by ``reading``."""
    call = square_call(causal=reading.always_causal)
    without, _ = try_reading(kernel, reading, call)
    output, _ = try_reading(kernel, reading, call, **options)
    return output is not None and not np.array_equal(output, without)


def _senses(kernel: Any, candidate: Found, name: str) -> tuple[Mask | None, Mask | None]:
    """Return the meaning of a boolean mask and of an additive mask in the parameter ``name``; None if refused."""
    mask = random_mask(candidate.made)
    senses = (
        (SHOWS, HIDES, ADDED, ONES_HIDE) if _adds_booleans(kernel, candidate, name, mask) else (SHOWS, HIDES, ONES_HIDE)
    )
    return _nearest(kernel, candidate, name, mask, senses), _nearest(
        kernel, candidate, name, random_bias(candidate.made), (ADDED,)
    )


def _shapes(candidate: Found) -> tuple[str, ...]:
    return FOLDED if candidate.reading.axes == "NLE" else MASK_SHAPES


def _adds_booleans(kernel: Any, candidate: Found, name: str, mask: Any) -> bool:
    """Return whether a parameter for masks may be meant only for numbers, which are added to logits.

    Return True if the callable refuses booleans in all shapes, or adds booleans as ones and zeros. A callable with
    PyTorch's parameters is at fault if it adds booleans, and gets False.
    """
    added = candidate.made.replace(bias=mask.astype(np.float64))
    off = [_off(kernel, candidate, Mask(name, SHOWS, shape), mask, due=added) for shape in _shapes(candidate)]
    return min(off) == math.inf or (min(off) < NEAR and not is_pytorchs(kernel.parameters))


def _off(kernel: Any, candidate: Found, way: Mask, mask: Any, due: AttentionCall | None = None) -> float:
    """Return the distance between the output with a mask and the correct output; infinite if the mask is refused.

    Args:
        kernel: the callable.
        candidate: the reading by which the callable is called.
        way: the parameter, meaning and shape in which the mask is passed.
        mask: the mask.
        due: the call whose output counts as correct; by default the call with the mask.
    """
    kind, key = ("mask", "visible") if mask.dtype == bool else ("bias", "bias")
    reading = replace(candidate.reading, **{kind: way})  # type: ignore[arg-type]
    small_call = candidate.made.replace(causal=candidate.reading.always_causal, **{key: mask})
    small_call = interface_of(reading).expressible(small_call)
    output, _ = try_reading(kernel, reading, small_call, **{key: _mask_tensor(kernel, getattr(small_call, key))})
    return distance(
        output,
        small_call if due is None else due.replace(causal=small_call.causal),
        candidate.scale,
        candidate.alignment,
    )


def _nearest(kernel: Any, candidate: Found, name: str, mask: Any, senses: tuple[str, ...]) -> Mask | None:
    """Return the meaning and shape with which a mask acts correctly in the parameter ``name``.

    If no meaning acts correctly, the nearest harmless one is returned, or None. A meaning is harmless if a mask that
    hides nothing, or almost nothing, changes nothing. Shapes with fewer axes are tried only if shapes with more axes
    are refused: a kernel that accepts a mask for all heads but reads only the first head's is wrong.
    """
    # A kernel that does not add an additive mask may treat every number except 0 as True, or only large numbers.
    nothing = (np.ones_like(mask),) if mask.dtype == bool else (0 * mask, 1e-6 * mask)
    for shape in _shapes(candidate):
        off = {way: _off(kernel, candidate, way, mask) for way in (Mask(name, sense, shape) for sense in senses)}
        accepted = [way for way in off if off[way] < math.inf]
        if not accepted:
            continue
        best = min(accepted, key=off.__getitem__)
        if off[best] < NEAR:
            free = replace(best, shape="")
            small = (mask[0, 0], mask[:1], mask[:, :1], mask[:, :1, :1])
            takes_all = shape == MASK_SHAPES[0] and all(_off(kernel, candidate, free, x) < NEAR for x in small)
            return free if takes_all else best
        if name == ONE_FOR_ALL_HEADS and shape == MASK_SHAPES[0]:
            continue
        harmless = [way for way in accepted if all(_off(kernel, candidate, way, x) < NEAR for x in nothing)]
        return min(harmless, key=off.__getitem__, default=None)
    return None


def with_returned(kernel: Any, candidate: Found, reading: Reading) -> Reading:
    """Return the reading with the paths to log-sum-exp and attention weights in the returned value."""
    small_call = candidate.made.replace(causal=reading.always_causal)
    rows = due_rows(small_call, candidate.scale, candidate.alignment)
    B, H, L, T = (small_call.sizes[axis] for axis in "BHLT")
    _, returned = try_reading(kernel, reading, small_call, log_sum_exp=True)
    lse = _place_of(returned, np.asarray(rows.log_sum_exp.value), ((B, H, L), (B, L, H), (B * H, L)))
    if lse is None and "lse" in reading.names:  # the kernel returns a log-sum-exp, but a wrong one
        lse = _place_of(returned, None, ((B, H, L), (B, L, H), (B * H, L)))
    swapped = lse is not None and look_up(returned, lse).shape == (B, L, H)
    expected = np.asarray(rows.weights.value)
    shapes = ((B, H, L, T), (B * H, L, T))
    weights = _place_of(try_reading(kernel, reading, small_call)[1], expected, shapes)
    for flag in roles_of(kernel.parameters)["weights"] if weights is None else ():
        with_flag = replace(reading, constants={**reading.constants, flag: True})
        weights = _place_of(try_reading(kernel, with_flag, small_call)[1], expected, shapes)
        if weights is not None:
            reading = with_flag
            break
    return replace(reading, log_sum_exp=lse, weights=weights, lse_axes="BLH" if swapped else "BHL")


def _place_of(returned: Any, expected: Any, shapes: tuple[tuple[int, ...], ...]) -> tuple[Any, ...] | None:
    """Return the path to a result that has one of ``shapes`` and, unless ``expected`` is None, equals ``expected``."""
    for path, x in flatten(returned):
        if path and isinstance(x, torch.Tensor) and tuple(x.shape) in shapes and x.is_floating_point():
            if expected is None:
                return path
            theirs = float64_of(x)
            swapped = theirs.shape == shapes[1] != shapes[0] and theirs.ndim == expected.ndim
            theirs = np.swapaxes(theirs, 1, 2) if swapped else theirs.reshape(expected.shape)
            if np.max(np.abs(theirs - expected)) < NEAR * np.max(np.abs(expected)):
                return path
    return None
