"""Detection, by a few small calls, of the capabilities that a kernel has and the conventions that it follows.

Libraries differ in conventions, none of which is a fault: the position of the causal diagonal for unequal numbers L of
queries and T of keys, the results of rows that see no key, the lengths of log-sum-exps, the sizes that a kernel takes
(:mod:`.limits`). Each convention is detected once and reported, and the kernel must follow it in every call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from attention_conformance.calls.answer import BackwardRefused
from attention_conformance.calls.attention_call import Alignment, AttentionCall
from attention_conformance.calls.attention_rows import AttentionRows
from attention_conformance.calls.further_tensors import with_descales
from attention_conformance.calls.rare_calls import NO_KEYS
from attention_conformance.calls.sizes_and_numbers import Numbers, Sizes, tensors
from attention_conformance.interfaces import ALWAYS
from attention_conformance.interfaces.interface import Mark
from attention_conformance.kernel.answers import BOOLEAN
from attention_conformance.kernel.kernel import Kernel
from attention_conformance.kernel.kernel_call import call_kernel
from reference_attention.errors import InvalidInput
from theorems.core.under_test import Refused

HIDE = ("boolean-mask", "additive-mask", "causal", "window")
"""Capabilities by which keys are hidden."""


def with_capabilities(kernel: Kernel) -> Kernel:
    """Return the kernel with the capabilities that its parameters declare or that small calls show."""
    has = set(ALWAYS) | kernel.interface.declared_capabilities(kernel.parameters)
    if kernel.interface.name == "hf" and kernel.parameters.get("scaling", Mark.REQUIRED) is None:
        has.add("default-scale")
    kernel = _with_fixed_scale(kernel, has)
    kernel = kernel.replace(differentiable=_differentiable(kernel), many_queries=returns(kernel, small_call(L=3)))
    if not kernel.many_queries and kernel.interface.name != "plain":
        kernel = kernel.replace(taken=replace(kernel.taken, single=True), many_queries=True)
    for name in kernel.interface.found_out:
        (has.add if returns(kernel, FOUND_OUT[name]()) else has.discard)(name)
    has |= {name for name in kernel.interface.of_effect if _matters(kernel, name)}
    if "fp8-descale" in has and not returns(kernel, FOUND_OUT["fp8-descale"]()):
        has.discard("fp8-descale")
    if getattr(kernel.call, INVARIANT, False):
        has.add("batch-invariance")
    if "causal" not in has:
        has.discard("causal-rectangle")
    if "additive-mask" not in has:
        has.discard("longer-masks")
    if kernel.layout.rank == 3:
        has.discard("grouped-heads")
    if kernel.taken.contiguous:
        has.discard("memory")
    if "dropout" in has and not (_takes_all(kernel) and returns(kernel, small_call().replace(dropout=0.5))):
        has.discard("dropout")
    if kernel.interface.name == "hf" and "causal" not in has:
        has.discard("window")  # transformers does not document which later keys a query sees in a window
    if kernel.interface.name == "hf" and "boolean-mask" in has and _takes_boolean_masks(kernel):
        has.add(BOOLEAN)
    if has & {*HIDE}:
        has.add("hidden-keys")
    if _takes_no_keys(kernel):
        has.add(NO_KEYS)
    if "boolean-mask" in has and kernel.interface.name != "hf":
        has.add("empty-rows")  # transformers hides keys by finite biases, under which each row has weights
    if "log-sum-exp" in has:
        kernel = kernel.replace(lse_multiple=_lse_multiple(kernel))
    has |= _further_gradients(kernel, has)
    kernel = kernel.replace(declares=frozenset(has), skips_below=float(getattr(kernel.call, SKIPS, 0.0)))
    by = {"causal": True} if "causal-rectangle" in has else {"window": (1, 0)} if "window" in has else None
    told = kernel.reading.alignment if kernel.reading is not None and not kernel.taken.equal else ""
    alignment = Alignment(told) if told and by else _alignment(kernel, by) if by else None
    if alignment is None:
        return kernel.replace(declares=frozenset(has - {"causal-rectangle"}))
    return kernel.replace(alignment=alignment)


INVARIANT = "batch_invariant"
"""The attribute by which a callable declares that a batch entry's results have the same bits alone as in any batch."""
STOPS = "zero_gradients_are_stopped"
"""The attribute of a callable whose results all look differentiable to autograd.

A result that cannot be differentiated then has gradients of zero.
"""
SKIPS = "skips_weights_below"
"""The attribute by which a callable declares the share of the largest weight below which it skips weights."""


def small_call(*, H: int = 2, L: int = 1, T: int = 5, E: int = 8) -> AttentionCall:
    """Return a call of standard normal numbers, for two batch entries and two heads of keys and values.

    Args:
        H: the number of heads.
        L: the number of queries.
        T: the number of keys.
        E: the number of columns of queries, keys and values.
    """
    return tensors(Sizes(B=2, H=H, G=2, L=L, T=T, E=E, M=E), Numbers.NORMAL, seed=0)


FOUND_OUT: dict[str, Callable[[], AttentionCall]] = {
    "grouped-heads": lambda: small_call(H=4),
    "causal": lambda: small_call(L=5).replace(causal=True),
    "ragged-batch": lambda: small_call(L=3).replace(lengths=np.array([[3, 5], [1, 2]])),
    "log-sum-exp": lambda: small_call().replace(log_sum_exp=True),
    "longer-masks": lambda: small_call(L=3).replace(bias=np.zeros((1, 1, 3, 5)), beyond=3),
    "sinks": lambda: small_call().replace(sinks=np.zeros(2)),
    "fp8-descale": lambda: with_descales(small_call(), np.random.default_rng(0)),
}
"""For each capability that a kernel may have without a keyword, a function that makes the call by which it shows."""


def returns(kernel: Kernel, call: AttentionCall) -> bool:
    """Return whether the kernel returns an output for the call, after the call is adapted to the kernel's sizes."""
    return kernel.output(kernel.in_own_numbers(call)) is not None


def _takes_no_keys(kernel: Kernel) -> bool:
    """Return whether the kernel returns an output for a call without keys; any exception counts as a refusal.

    On a GPU no call without keys is made: it may end the GPU's context, after which every later call fails.
    """
    try:
        return kernel.device == "cpu" and returns(kernel, small_call(T=0))
    except Exception:
        return False


def _takes_boolean_masks(kernel: Kernel) -> bool:
    """Return whether the kernel hides keys by a boolean mask, correctly or not, and does not add it as 0 and 1.

    transformers never passes a boolean mask to a function that adds masks to logits, so adding is no fault.
    """
    seen = np.array(
        [[True, False, True, True, False], [False, True, False, True, True], [True, True, True, False, False]]
    )
    call = small_call(L=3).replace(visible=seen)
    output = kernel.replace(declares=kernel.declares | {BOOLEAN}).output(kernel.in_own_numbers(call))
    if output is None:
        return False
    hiding = (call, call.replace(visible=~seen), call.replace(visible=None))
    added = call.replace(visible=None, bias=seen.astype(np.float64))
    *others, sum_of_both = (float(np.max(np.abs(_rows(kernel, x).output.value - output))) for x in (*hiding, added))
    return min(others) < sum_of_both


def _matters(kernel: Kernel, name: str) -> bool:
    """Return whether the kernel's output changes when a call uses the capability ``name``."""
    with_option, without = (kernel.output(kernel.in_own_numbers(call)) for call in (FOUND_OUT[name](), small_call()))
    return with_option is not None and without is not None and not np.array_equal(with_option, without)


def _takes_all(kernel: Kernel) -> bool:
    """Return whether the kernel takes the identity matrix as values for every number of keys."""
    return not kernel.layout.square and not kernel.taken.widths and kernel.taken.keys == 1


def _rows(kernel: Kernel, call: AttentionCall, alignment: Alignment = Alignment.TOP_LEFT) -> AttentionRows:
    return AttentionRows(kernel.in_own_numbers(call), kernel.numbers, alignment)


def _differentiable(kernel: Kernel) -> bool:
    """Return whether the kernel has a backward pass, right or wrong.

    It has one if autograd connects the output with query, key or value for some number of queries. It also counts as
    having one if the backward pass raises an error (unless the error says that there is none), or if the kernel
    switches autograd off: then the claims about gradients and settings are checked and can fail.
    """
    for call in (small_call(), small_call(L=5), small_call(L=3)):
        try:
            answer = kernel.answer(kernel.in_own_numbers(call))
        except BackwardRefused:
            return True
        except (Refused, InvalidInput):
            continue
        gradients = (answer.query_gradient, answer.key_gradient, answer.value_gradient)
        if "grad mode" in answer.changed_settings or any(
            gradient is not None and not np.isnan(gradient).all() for gradient in gradients
        ):
            return True
    return False


def _further_gradients(kernel: Kernel, has: set[str]) -> set[str]:
    """Return the names of those gradients that the kernel has: by the sinks, by a bias, and through the log-sum-exp."""
    capabilities: set[str] = set()
    if not kernel.differentiable:
        return capabilities
    asked: dict[str, tuple[str, dict[str, Any]]] = {
        "sinks": ("sink-gradient", {"sinks": np.zeros(2)}),
        "additive-mask": ("bias-gradient", {"bias": np.zeros((1, 2, 1, 5))}),
    }
    for capability, (gradient, options) in asked.items():
        if capability in has:
            differentiated = kernel.replace(declares=kernel.declares | {gradient})
            try:
                answer = differentiated.answer(differentiated.in_own_numbers(small_call().replace(**options)))
            except (Refused, InvalidInput):
                continue
            gradients = [x for x in (answer.sink_gradient, answer.bias_gradient) if x is not None]
            if gradients and not np.isnan(gradients[0]).any():
                capabilities.add(gradient)
    if "log-sum-exp" in has and _has_gradient_of_lse(kernel):
        capabilities.add("log-sum-exp-gradient")
    return capabilities


def _has_gradient_of_lse(kernel: Kernel) -> bool:
    call = kernel.in_own_numbers(small_call().replace(log_sum_exp=True))
    leaves = {name: kernel.tensor(getattr(call, name)).requires_grad_() for name in ("query", "key", "value")}
    try:
        lse = kernel.run(kernel.request(call, leaves, {})).log_sum_exp
    except InvalidInput:
        return False
    if lse.requires_grad and getattr(kernel.call, STOPS, False):
        lse.sum().backward()
        gradient = leaves["query"].grad
        return gradient is not None and bool(gradient.any())
    return bool(lse.requires_grad)


def _with_fixed_scale(kernel: Kernel, has: set[str]) -> Kernel:
    """Return the kernel, marked as one of fixed scale if it has no parameter for the scale and always uses 1/√E.

    A kernel with a fixed scale gets only calls that do not state a scale.
    """
    if kernel.fixed_scale:  # a decorator or simple calls told it
        has.add("default-scale")
        return kernel
    if "scale" in has or kernel.interface.name == "plain" or (kernel.reading is not None and kernel.reading.told):
        return kernel
    call = small_call()
    output, own = (kernel.output(kernel.in_own_numbers(x)) for x in (call, call.replace(scale=None)))
    if output is None or own is None or not np.array_equal(output, own):
        return kernel
    with_one, root = (
        float(np.max(np.abs(_rows(kernel, call.replace(scale=scale)).output.value - output))) for scale in (1.0, None)
    )
    if not root < with_one:
        return kernel
    has.add("default-scale")
    return kernel.replace(fixed_scale=True)


def _alignment(kernel: Kernel, by: dict[str, Any]) -> Alignment | None:
    """Return the position of the causal diagonal that fits the kernel's outputs best.

    The outputs are those of calls with fewer queries than keys, L < T, and with L > T. None is returned if the kernel
    refuses L < T.

    Args:
        kernel: the kernel.
        by: the option of the calls, causality or a window, whose effect depends on the diagonal.
    """
    calls = [small_call(L=L, T=T).replace(**by) for L, T in ((3, 5), (5, 3))]
    outputs = [kernel.output(kernel.in_own_numbers(call)) for call in calls]
    if kernel.taken.equal or outputs[0] is None:
        return None

    def distance(alignment: Alignment) -> float:
        apart = [0.0]
        for call, output in zip(calls, outputs, strict=True):
            if output is not None:
                rows = _rows(kernel, call, alignment)
                apart.append(np.max(np.abs(rows.output.value - output)[~rows.empty], initial=0.0))
        return float(np.nan_to_num(np.max(apart), nan=np.inf))

    return min(Alignment, key=distance)


def _lse_multiple(kernel: Kernel) -> int:
    """Return the number whose multiples are the padded lengths of the kernel's log-sum-exps; 1 without padding."""
    call = kernel.in_own_numbers(small_call(L=3).replace(log_sum_exp=True))
    given = {name: kernel.tensor(getattr(call, name)) for name in ("query", "key", "value")}
    try:
        returned = call_kernel(kernel, kernel.request(call, given, {}))
        length = int(returned.log_sum_exp.shape[-1])
    except Exception:
        return 1
    return length if length > call.sizes["L"] else 1
