"""Decide whether a kernel is called as the interface of a library says, or as its names and small calls say."""

from __future__ import annotations

from attention_conformance.interfaces.reading import HIDES, Reading, is_pytorchs, roles_of
from attention_conformance.kernel.kernel import Kernel
from attention_conformance.kernel.parameters import Account, of_kind
from attention_conformance.kernel.small_calls import returns_more, rightness
from reference_attention.errors import InvalidInput

LIKE_OTHERS = ("plain", "sdpa", "flash", "triton", "mlx", "hf", "xformers")
"""Interfaces that a signature may resemble without being one of them."""


def may_be_read_otherwise(kernel: Kernel | InvalidInput) -> bool:
    """Return whether a kernel may need another reading than its interface.

    It may if it is refused, or wrong under its interface, or has further parameters whose names say what they are for.
    """
    if isinstance(kernel, InvalidInput):
        return True
    if kernel.interface.name not in LIKE_OTHERS:
        return False
    if rightness(kernel) < 1:
        return True
    roles = roles_of({*of_kind(kernel.accounts, Account.NOT_TESTED), *of_kind(kernel.accounts, Account.IGNORED)})
    known = ("scale", "mask", "causal", "softcap", "dropout", "lse", "weights", "dtype")
    return any(roles[role] for role in known) or (kernel.interface.name != "hf" and returns_more(kernel))


def is_better(read: Kernel, kernel: Kernel | InvalidInput) -> bool:
    """Return whether a kernel is to be called as it was read, and not as the interface of a library says."""
    if isinstance(kernel, InvalidInput):
        return True
    assert read.reading is not None
    if is_pytorchs(kernel.parameters):
        lost = kernel.declares & {"boolean-mask", "additive-mask", "causal"} - read.declares
        if lost or not _takes_masks_as_pytorch(read.reading):
            return False
    theirs, own = rightness(read), rightness(kernel)
    more = bool(read.declares - kernel.declares - {"default-scale", "parameters", "grouped-heads"})
    more |= read.reading.weights is not None and kernel.interface.name in LIKE_OTHERS
    more |= "dtype" in read.reading.names
    if kernel.interface.name == "plain" and len(kernel.parameters) == 3:
        # Three tensors alone are the paper's: the scale is 1, and all keys are seen.
        reading = read.reading
        other = reading.axes not in ("BHLE", "NLE") or bool(reading.output)
        return own < theirs and (other or (reading.always_causal and reading.fixed_scale))
    return own < theirs or (own == theirs and more and kernel.declares - {"parameters"} <= read.declares)


def _takes_masks_as_pytorch(reading: Reading) -> bool:
    """Return whether True in ``attn_mask`` shows a key, and masks may have any shape that can be broadcast."""
    masks = [mask for mask in (reading.mask, reading.bias) if mask is not None]
    return all(mask.sense != HIDES and not mask.shape for mask in masks if mask.name == "attn_mask")
