"""Run a kernel on a call in a file, such as a failing call that ``theorems verify --attention`` saved.

from attention_conformance import check_call
from my_module import kernel
def test_kernel_causal(): check_call(kernel, "falsified/kernel-causal-0123456789.npz")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attention_conformance.calls.attention_call import LONG_STATES, AttentionCall
from attention_conformance.calls.call_text import OF_KERNEL, call_of
from attention_conformance.claims.capabilities import CAPABILITIES, Capability
from attention_conformance.kernel.diagnosis import diagnose
from attention_conformance.kernel.kernel_loader import kernel_named, kernel_of
from attention_conformance.kernel.torch_import import torch
from reference_attention.errors import InvalidInput
from reference_attention.files import read_named_values
from theorems.core.claim import Verdict
from theorems.core.under_test import Refused


def check_call(kernel: Callable[..., Any] | str, file: str | Path) -> None:
    """Compare a kernel with the formula of attention on the call in a file; the kernel runs in this process.

    The bounds are those of ``theorems verify``. A failing call that ``verify`` saved is checked for what failed: the
    options, the number format and the device are those of that run. On a call captured from a model the output, and
    with an upstream gradient the gradients, are compared.

    Args:
        kernel: a callable on torch tensors, or MODULE:CALLABLE.
        file: a .npz file that ``verify --attention`` saved, or of the tensors of a call of your model.

    Raises:
        AssertionError: the kernel is wrong, with the sentence that ``verify`` prints, or it does not take the call.
        InvalidInput: the file holds no call, or the object is no kernel.
    """
    call, capabilities, options = _read(Path(file))
    load: Callable[..., Any] = kernel_named if isinstance(kernel, str) else kernel_of
    deep = call.state in LONG_STATES
    with _one_thread():
        loaded = load(kernel, options.pop("dtype"), **options, deep=deep, compiles_later=not deep)
        verdicts = [_verdict(capability, call, loaded) for capability in capabilities]
    if Verdict.UPHELD not in verdicts:
        raise AssertionError(f"{file}: no claim about the call could be decided.")


def _read(path: Path) -> tuple[AttentionCall, list[Capability], dict[str, str | None]]:
    """Return the call in a file, the capabilities to check, and the options of the run: dtype, interface and device.

    Raises:
        InvalidInput: the file holds no call; the message names the file and the array.
    """
    values = read_named_values(path)
    texts = {name: str(values[name]) for name in ("case_of", *OF_KERNEL) if name in values}
    try:
        call = call_of(values, path.name)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {str(error).removeprefix(f'{path.name}: ')}") from None
    options = {name.removeprefix("kernel_"): texts.get(name) for name in OF_KERNEL}
    options["dtype"] = options["dtype"] or call.number_format or None
    ids = [texts["case_of"]] if "case_of" in texts else ["kernel-output", *["kernel-gradients"] * bool(call.wants)]
    capabilities = [capability for capability in CAPABILITIES if f"kernel-{capability.name}" in ids]
    if not capabilities:
        raise InvalidInput(f"{path}: case_of: {ids[0]!r} is no capability of kernels; theorems list names them.")
    return call, capabilities, options


def _verdict(capability: Capability, call: AttentionCall, kernel: Any) -> Verdict:
    """Return whether the kernel satisfies a capability on a call: upheld, inconclusive or not applicable.

    Raises:
        AssertionError: a claim is falsified, or the kernel does not take the call.
    """
    id = f"kernel-{capability.name}"
    if not capability.format and capability.name not in kernel.declares:
        raise AssertionError(f"{id}: the kernel has no parameter for this capability.")
    under_test = kernel.as_implementation().in_format(capability.format)
    try:
        verdicts = {claim.verdict: claim for claim in capability.claims_on(call, under_test)}
    except Refused as error:
        raise AssertionError(f"{id}: the kernel refuses the call: {str(error).rstrip('.')}.") from None
    if wrong := verdicts.get(Verdict.FALSIFIED):
        again = f"{id}: {wrong.name} does not hold; called again, the kernel is right, as it remembers earlier calls."
        raise AssertionError(diagnose(capability, call, under_test) or again)
    return next(
        (verdict for verdict in (Verdict.INCONCLUSIVE, Verdict.UPHELD) if verdict in verdicts), Verdict.NOT_APPLICABLE
    )


@contextmanager
def _one_thread() -> Iterator[None]:
    """Run torch in one thread, as ``theorems verify`` does: on small tensors more threads are slower."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
