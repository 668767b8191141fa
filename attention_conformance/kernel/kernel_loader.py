"""Construction of a :class:`attention_conformance.kernel.kernel.Kernel` from a name or an object, and its probe.

The probe makes a few tiny calls in which all axes have different lengths. It checks that the kernel returns one finite
tensor of the right shape and dtype, leaves its arguments as they are, and returns the same numbers twice. The kernel
need not support options for which it has no parameter. Calls show where the kernel has its causal diagonal if there are
more or fewer queries than keys, and in which format it computes. The statements that are verified later, not the probe,
decide whether the kernel's numbers are correct.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from attention_conformance.calls.attention_rows import AttentionRows
from attention_conformance.calls.sizes_and_numbers import Numbers, Sizes, tensors
from attention_conformance.interfaces import INTERFACES, is_told, recognise
from attention_conformance.interfaces.declaration import ATTRIBUTE, check_names, decorator_to_paste
from attention_conformance.interfaces.interface import Interface, Parameters, parameters_of
from attention_conformance.interfaces.libraries import names_in
from attention_conformance.interfaces.reading import Reading, interface_of, reading_of
from attention_conformance.kernel.callable_import import MODEL, SIGNATURE, check_callable, import_callable
from attention_conformance.kernel.compiled_answer import with_compiler
from attention_conformance.kernel.contract import small_call, with_capabilities
from attention_conformance.kernel.gradient_sums import queries_to_a_sum
from attention_conformance.kernel.kernel import DTYPES, Kernel
from attention_conformance.kernel.limits import with_taken_sizes, with_wide_sizes
from attention_conformance.kernel.operators import attention_operators
from attention_conformance.kernel.parameters import SAID_BY_NAME, Account, accounts, call_to_exercise
from attention_conformance.kernel.simple_calls import convention_of
from attention_conformance.kernel.sizes import LAYOUTS, Layout
from attention_conformance.kernel.torch_import import torch
from attention_conformance.kernel_process.remote_kernel import RemoteKernel, remote_kernel
from reference_attention.errors import InvalidInput
from theorems.bounded.formats import FORMATS

SHAPE = (2, 3, 5, 4, 6)
"""The probe's numbers of batch entries, heads, keys, columns of keys, and columns of values; all are different."""
RESUMMED = 1024.0
"""Allowed difference of the outputs of two equal calls, in roundings of the largest value: threads may reorder sums."""
AUTO = "auto"


def kernel_named(source: str, dtype: str | None = None, **options: Any) -> Kernel:
    """Return the kernel that ``source``, MODULE:CALLABLE, names; see :func:`probe`.

    The module is looked for in the working directory first.

    Raises:
        InvalidInput: the source cannot be imported, or is no kernel.
    """
    return probe(import_callable(source), source, source, dtype, **options)


def remote_kernel_named(source: str, dtype: str | None = None, *, device: str | None = None, **options: Any) -> Kernel:
    """Return the kernel that ``source`` names, as :func:`kernel_named` does, but run on the CPU in a separate process.

    On another device the kernel runs in this process, since otherwise every tensor would have to be copied.

    Raises:
        InvalidInput: the source cannot be imported, or is no kernel.
    """
    call = remote_kernel(source) if device in (None, "cpu") else import_callable(source)
    return probe(call, source, source, dtype, device=device, **options)


def kernel_of(call: Callable[..., Any], dtype: str | None = None, **options: Any) -> Kernel:
    """Return the kernel for a callable; see :func:`probe`.

    Raises:
        InvalidInput: the callable is no kernel.
    """
    name = getattr(call, "__qualname__", None) or type(call).__name__
    check_callable(call, name)
    return probe(call, name, "", dtype, **options)


def probe(
    call: Callable[..., Any],
    name: str,
    source: str,
    dtype: str | None = None,
    *,
    interface: str | None = None,
    device: str | None = None,
    deep: bool = False,
    compiles_later: bool = False,
) -> Kernel:
    """Return the kernel in the first dtype and layout of tensors that it takes, with its capabilities.

    Args:
        call: the callable.
        name: the callable's name in reports.
        source: ``MODULE:CALLABLE``; empty for an object that was passed in Python.
        dtype: a key of :data:`DTYPES`. By default ("auto") float64 if the kernel takes float64 and computes in it, and
            each coarser format that the kernel takes.
        interface: a key of :data:`.interfaces.INTERFACES`; recognised by the parameters if left out.
        device: the device of the tensors; the CPU by default.
        deep: whether to include slow checks: calls repeated many times, and compilation to machine code.
        compiles_later: whether to try ``torch.compile``, which takes seconds, only when the result is needed.

    Raises:
        InvalidInput: the kernel takes no dtype; the message is about the layout of tensors with which the kernel passes
            most steps of the probe.
    """
    if dtype not in (None, AUTO, *DTYPES):
        raise InvalidInput(f"--dtype: {dtype!r} is not one of {AUTO}, {', '.join(DTYPES)}.")
    if isinstance(call, RemoteKernel):
        parameters, told, type_name = call.parameters, call.told, call.type_name
    else:
        parameters, told, type_name = parameters_of(call), getattr(call, ATTRIBUTE, None), type(call).__name__
    # A module of KernelBench uses PyTorch's scale, 1/√E.
    is_model = interface is None and type_name == MODEL and len(parameters) == 3
    chosen = _interface("sdpa" if is_model else interface, parameters)
    bare = Kernel(call, name, source, "float64", LAYOUTS[0], chosen, parameters, device=_device(device))
    if interface is None and told is not None:
        try:
            check_names(told, parameters, name)
        except InvalidInput as error:
            raise InvalidInput(f"--attention: {error}") from None
        kernel = _as_it_is_known(_read_as(bare, reading_of(told, parameters)), dtype)
    elif interface is not None or is_told(chosen, parameters):
        kernel = _as_it_is_known(bare, dtype, LAYOUTS if chosen.name == "plain" else LAYOUTS[:2])
    else:
        kernel = _confirmed(bare, dtype)
    return _complete(kernel, dtype, deep=deep, compiles_later=compiles_later)


OWN_NAMES = (("query", "keys", "values"), ("query", "key", "value"))
"""Parameters that tell all: if no convention fits the results of such a kernel, it is wrong."""


def _read_as(bare: Kernel, reading: Reading) -> Kernel:
    """Return the kernel, called as ``reading`` says."""
    taken = replace(bare.taken, equal=reading.equal)
    return bare.replace(interface=interface_of(reading), reading=reading, fixed_scale=reading.fixed_scale, taken=taken)


def _confirmed(bare: Kernel, dtype: str | None) -> Kernel:
    """Return the kernel, called by the convention that simple calls confirm.

    Raises:
        InvalidInput: the kernel takes no call, or no convention fits; if the names leave open how the kernel is called,
            the message ends with the decorator to paste.
    """
    chosen, parameters = bare.interface, bare.parameters
    refusal = (
        f"--attention: the names of the parameters of {bare.name} do not tell how it is called, and its results in"
        " simple calls fit neither attention with the scale 1/√E nor with 1, causal or not."
    )
    last, convention = bare, None
    for layouts in (LAYOUTS[:2], LAYOUTS[2:]) if chosen.name == "plain" else (LAYOUTS[:2],):
        try:
            last = _as_it_is_known(bare, dtype, layouts)
        except InvalidInput as error:
            refusal = refusal if last is not bare else str(error)
            continue
        convention = convention_of(last)
        if convention is not None:
            break
    if convention is None and tuple(parameters) in OWN_NAMES:
        if last is bare:
            raise InvalidInput(refusal)
        return last
    if convention is None:
        raise InvalidInput(f"{refusal}\n{_asks_for_decorator(last)}")
    kernel = last
    if convention.causal:
        axes, names = "BLHE" if chosen.name == "flash" else "BHLE", names_in(chosen.options, parameters)
        fixed = convention.scale is None and "scale" not in names
        equal = kernel.taken.equal
        reading = Reading(tuple(parameters), axes, names, always_causal=True, fixed_scale=fixed, equal=equal)
        return _as_it_is_known(_read_as(bare, reading), dtype, (kernel.layout,))
    if chosen.name == "plain" and convention.scale is None:
        return _as_it_is_known(bare.replace(fixed_scale=True), dtype, (kernel.layout,))
    return kernel


def _asks_for_decorator(kernel: Kernel) -> str:
    lengths = "equal" if kernel.taken.equal else "any"
    return (
        "Put this above it, with a word in place of each '...', as docs/kernels.md explains:\n\n"
        + decorator_to_paste(kernel.parameters, lengths)
    )


def _as_it_is_known(bare: Kernel, dtype: str | None, layouts: Sequence[Layout] = LAYOUTS[:2]) -> Kernel:
    """Return the kernel called by its interface, in the first dtype and the first of ``layouts`` that it takes.

    Raises:
        InvalidInput: the kernel takes no dtype; the message is about the layout of tensors with which the kernel passes
            most steps of the probe.
    """
    chosen = bare.interface
    if bare.reading is None:
        _refuse_what_nobody_knows(chosen, bare.parameters, bare.name)
    variants = [
        bare.replace(dtype=format_name, layout=layout, computes_in=format_name)
        for format_name in (DTYPES if dtype in (None, AUTO) else [str(dtype)])
        for layout in layouts
    ]
    refusals: list[tuple[int, str]] = []
    last_dtype = variants[0].dtype
    for kernel in variants:
        if kernel.dtype != last_dtype and max(refusals)[0] > 0:
            break  # the kernel takes the last dtype and fails a later step, so a coarser dtype would not help
        last_dtype = kernel.dtype
        step, refusal = _refusal(kernel)
        if not refusal:
            return _with_accounts(_in_its_numbers(with_capabilities(with_wide_sizes(kernel)), insist=dtype in DTYPES))
        refusals.append((step, refusal))
    if max(refusals)[0] == 0:
        for kernel in variants:
            sized = with_taken_sizes(kernel)
            if sized is not None and not _refusal(sized)[1]:
                return _with_accounts(_in_its_numbers(with_capabilities(sized), insist=dtype in DTYPES))
    raise InvalidInput(max(refusals, key=lambda refusal: refusal[0])[1])


def _interface(name: str | None, parameters: Parameters) -> Interface:
    if name is None:
        return recognise(parameters)
    if name not in INTERFACES:
        raise InvalidInput(f"--interface: {name!r} is not one of {', '.join(INTERFACES)}.")
    return INTERFACES[name]


def _refuse_what_nobody_knows(interface: Interface, parameters: Parameters, name: str) -> None:
    """Refuse a kernel with a required parameter that its interface does not know.

    Raises:
        InvalidInput: the kernel has such a parameter.
    """
    unknown = interface.unknown_parameters(parameters)
    if unknown:
        parameter_names = f"parameter{'s' if len(unknown) > 1 else ''} {', '.join(map(repr, unknown))}"
        raise InvalidInput(
            f"--attention: {name} has to be given its {parameter_names}, which interface {interface.name} does not"
            " know; give a function of query, key and value that calls it."
        )


def _device(name: str | None) -> str:
    """Return the name of a device, the CPU by default, after checking that a tensor can be created there.

    Raises:
        InvalidInput: there is no such device.
    """
    device_name = name or "cpu"
    try:
        torch.zeros(1, device=device_name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        message = " ".join(str(error).split()).partition(". ")[0].rstrip(".")
        raise InvalidInput(
            f"--device: PyTorch finds no {device_name!r} here ({message}); leave it out for the CPU."
        ) from None
    return device_name


def _refusal(kernel: Kernel) -> tuple[int, str]:
    """Return how many of the probe's steps the kernel passes, and why it fails the next; empty if it passes all."""
    batch, n, tokens, d, m = SHAPE
    _, tokens = kernel.taken.lengths(1, tokens)
    generator = torch.Generator().manual_seed(0)
    query, keys, values = (
        torch.randn(batch, n, length, width, generator=generator, dtype=torch.float64).to(DTYPES[kernel.dtype])
        for length, width in ((1, d), (tokens, d), (tokens, m))
    )
    tensors = {name: x.to(kernel.device) for name, x in (("query", query), ("keys", keys), ("values", values))}
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    query, keys, values = tensors.values()
    try:
        with torch.no_grad():
            output = kernel.attend(query, keys, values)
    except InvalidInput as error:
        return 0, str(error)
    if not bool(torch.isfinite(output).all()):
        return 1, f"--attention: {kernel.name} returned NaN or infinite entries for finite tensors; {SIGNATURE}."
    changed = next((name for name, tensor in tensors.items() if not torch.equal(tensor, before[name])), "")
    if changed:
        return 1, f"--attention: {kernel.name} changes its {changed} in place; let it work on a copy."
    with torch.no_grad():
        apart = float((kernel.attend(query, keys, values) - output).abs().max())
    if not apart <= RESUMMED * kernel.eps * float(values.abs().max()):
        return 1, (
            f"--attention: {kernel.name} returned different numbers for the same tensors, up to {apart:.2g} apart;"
            " switch off dropout and whatever else is random."
        )
    return 2, ""


def _complete(kernel: Kernel, dtype: str | None, *, deep: bool, compiles_later: bool) -> Kernel:
    """Return the kernel with what only calls can show: rounding of sums, coarser formats, ``torch.compile``."""
    kernel = _with_coarser(kernel.replace(queries_to_a_sum=queries_to_a_sum(kernel), make_variant=_variant), dtype)
    kernel = kernel.replace(declares=kernel.declares | {"thousands"}) if deep else kernel
    compiled = cache(partial(with_compiler, kernel, small_call(), machine_code=deep))
    return kernel.replace(make_complete=compiled) if compiles_later else compiled()


def _with_coarser(kernel: Kernel, dtype: str | None) -> Kernel:
    """Return the kernel with the coarser formats that it takes, in which it will be tested, too.

    If ``dtype`` names a format, there are no coarser formats.
    """
    formats = [*FORMATS]
    coarser = formats[formats.index(kernel.dtype) + 1 :]
    if dtype in (None, AUTO):
        refusals = {name: _refusal(_called_in(kernel, name))[1] for name in coarser}
    else:
        refusals = dict.fromkeys(coarser, f"--dtype {dtype} was given; --dtype auto tries other formats, too")
    accepted = tuple(name for name, refusal in refusals.items() if not refusal)
    return kernel.replace(
        coarser=accepted,
        not_tried={name: reason.removeprefix("--attention: ") for name, reason in refusals.items() if reason},
        operators={name: attention_operators(_called_in(kernel, name)) for name in (kernel.dtype, *accepted)},
        declares=kernel.declares | {*accepted},
    )


def _called_in(kernel: Kernel, name: str) -> Kernel:
    return kernel if name == kernel.dtype else kernel.replace(dtype=name, computes_in=name)


def _variant(kernel: Kernel, name: str) -> Kernel:
    """Return the kernel in the coarser format ``name``, with its capabilities there except ``torch.compile``."""
    variant = with_capabilities(_called_in(kernel, name))
    return variant.replace(queries_to_a_sum=queries_to_a_sum(variant), make_complete=None)


def _with_accounts(kernel: Kernel) -> Kernel:
    """Return the kernel with an account of how the tests treat each of its parameters."""
    treatments = accounts(kernel, kernel.in_own_numbers(call_to_exercise()))
    ignored = any(
        SAID_BY_NAME.search(name) for name in treatments if treatments[name] in (Account.IGNORED, Account.NOT_TESTED)
    )
    return kernel.replace(accounts=treatments, declares=kernel.declares | ({"parameters"} if ignored else frozenset()))


def _in_its_numbers(kernel: Kernel, *, insist: bool) -> Kernel:
    """Return the kernel, changed to float32 if it is only as accurate as float32.

    The changed kernel gets float32 tensors or, if it refuses them, float64 tensors and the error bounds of float32.

    Args:
        kernel: the kernel.
        insist: whether the kernel has to be as accurate as the format of its tensors, and so stays unchanged.
    """
    if insist or kernel.dtype != "float64" or _is_within(kernel, "float64") or not _is_within(kernel, "float32"):
        return kernel
    coarser = kernel.replace(dtype="float32", computes_in="float32")
    return coarser if not _refusal(coarser)[1] else kernel.replace(computes_in="float32")


def _is_within(kernel: Kernel, numbers: str) -> bool:
    """Return whether the kernel's output for moderate logits is correct up to rounding in the format ``numbers``."""
    for seed in range(4):
        call = kernel.in_own_numbers(tensors(Sizes(B=2, H=2, G=2, L=1, T=5, E=8, M=8), Numbers.NORMAL, seed))
        due, output = AttentionRows(call, FORMATS[numbers]).output, kernel.output(call)
        if output is None or not (np.abs(output - due.value) <= 2 * due.error).all():
            return False
    return True
