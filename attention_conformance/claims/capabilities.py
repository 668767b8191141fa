"""The table of the capabilities of attention kernels: for each, the calls that use it and the claims about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from attention_conformance.calls.answer import OnKernel
from attention_conformance.calls.attention_call import COMPILED, AttentionCall, Memory, State
from attention_conformance.claims.agreement import GRADIENTS, OUTPUT
from attention_conformance.claims.call_claims import (
    BIAS_GRADIENT,
    DROPPED,
    GRADIENT_CLAIMS,
    IGNORED,
    NO_GRADIENT,
    NOT_POSITIVE,
    SHARE,
    SINK_GRADIENT,
    WEIGHTS,
    WITHOUT_KEYS,
    examine,
)
from attention_conformance.claims.empty_rows import EMPTY
from attention_conformance.claims.long_states import EACH_TIME, RETURNS, SETTINGS_UNCHANGED, UNCHANGED
from attention_conformance.claims.second_calls import ALONE, REDRAWN, RESCALED, UNLIKE
from theorems.bounded.formats import FORMATS
from theorems.core.claim import Claim
from theorems.core.under_test import Refused

SCALED_DOWN = 1.5
"""Queries that become smaller by more than this factor were scaled down (by 2 or more), and not only rounded."""
COARSER = tuple(FORMATS)[1:]
"""The number formats in which a kernel is checked besides its finest format."""
TRIED = "tried"
"""The value in ``--json`` of a number format in which the kernel is tried; other formats have a reason why not."""
BACKWARD = "where the kernel has a backward pass"
AGREEMENT: Mapping[str, str] = MappingProxyType(
    {OUTPUT: "on every call in which a row sees a key", WEIGHTS: "where the kernel returns weights"}
    | dict.fromkeys(GRADIENTS, f"{BACKWARD} and the call asks for the gradient")
    | {NO_GRADIENT: "on large calls, where only some rows have an upstream gradient"}
)
"""The claims that results agree with the formula of attention, each with the calls on which it is made."""


def _always(call: AttentionCall) -> bool:
    return True


@dataclass(frozen=True)
class Capability:
    """A property or option that attention kernels may have, checked as a statement about calls of a kernel.

    Attributes:
        name: the name that a kernel declares; the statement is ``kernel-NAME``.
        title: a few words on the content.
        says: the property that is checked, as the report prints it.
        text: the statement in full.
        is_on: a function that returns whether a call uses the capability.
        own: the names of the claims about only this capability, each with a description of the calls on which the
            claim is made.
        agrees: the same for the claims of agreement with the formula, which are made on calls that use the capability.
        is_base: whether every call uses the capability, which is therefore checked on all calls.
        everywhere: whether the claims in ``own`` are also made on calls without the option.
        differentiates: whether only a kernel with a backward pass can be checked.
        format: the number format, for a capability that is about one format and makes all claims about all calls;
            otherwise empty.
    """

    name: str
    title: str
    says: str
    text: str
    is_on: Callable[[AttentionCall], bool] = _always
    own: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    agrees: Mapping[str, str] = field(default_factory=lambda: AGREEMENT)
    is_base: bool = False
    everywhere: bool = False
    differentiates: bool = False
    format: str = ""

    @property
    def claims(self) -> dict[str, str]:
        """The claims of the capability by name, each with the calls on which it is made."""
        return {**self.own, **self.agrees}

    def is_about(self, call: AttentionCall, few: bool = False) -> bool:
        """Return whether the capability is checked on a call; if ``few``, only on calls that use the capability."""
        return self.is_base or bool(self.format) or self.is_on(call) or (self.everywhere and not (few and self.agrees))

    def has(self, call: AttentionCall, about: str, claim: str) -> bool:
        """Return whether a claim on a call, made about the capability named ``about``, belongs to this capability."""
        if self.format:
            return True
        if about:
            return about == self.name or (claim in self.own and self.is_on(call))
        return claim in self.agrees and (self.is_base or self.is_on(call))

    def claims_on(self, call: AttentionCall, under_test: OnKernel) -> Iterator[Claim]:
        """Yield the capability's claims about a call of a kernel, in the capability's number format if it has one.

        Raises:
            Refused: the call was captured from a model, and the kernel does not take it unchanged.
        """
        if call.dtype:
            _check_captured(call, under_test.kernel)
        claims = examine(call, under_test.in_format(self.format))
        return (claim for about, claim in claims if self.has(call, about, claim.name))


def _check_captured(call: AttentionCall, kernel: Any) -> None:
    """Refuse a captured call that would have to be adapted to the kernel, as generated calls are.

    Raises:
        Refused: the kernel lacks an option of the call, or does not take the call's sizes or numbers.
    """
    lacking = next((name for name in options_on(call) if name not in kernel.complete.declares), None)
    if lacking == "default-scale":
        raise Refused("the kernel has no default scale; save scale, which is 1 if the logits are not scaled")
    if lacking is not None:
        raise Refused(f"the call needs {lacking}, for which the kernel has no parameter")
    given = kernel.in_own_numbers(call)
    if given.sizes != call.sizes:
        sizes = ", ".join(f"{axis} = {size}" for axis, size in given.sizes.items() if size != call.sizes[axis])
        raise Refused(f"the kernel does not take calls of these sizes; save a call with {sizes}")
    if np.max(np.abs(given.query)) < np.max(np.abs(call.query)) / SCALED_DOWN:
        raise Refused(f"products of queries and keys may overflow in {kernel.dtype}; give --dtype float32")


def _lie_otherwise(call: AttentionCall) -> bool:
    return {call.memory, call.upstream_memory, call.mask_memory} != {Memory.CONTIGUOUS}


def _sees_nothing(call: AttentionCall) -> bool:
    return call.visible is not None and bool((~np.asarray(call.visible).any(axis=-1)).any())


def _is_square(call: AttentionCall) -> bool:
    return call.query.shape[2] == call.key.shape[2]


_IN_EVERY_FORMAT: tuple[Capability, ...] = (
    Capability(
        "output",
        "Softmax attention of every row",
        "the output of calls with several queries, heads and batch entries, and lengths around block sizes",
        """Each row of the output is Σ_t s_t v_t with s = softmax(q·k_1, …, q·k_T), up to the rounding of that formula
        in the kernel's numbers: whatever the number of queries, keys, heads and batch entries, however large the
        logits. Weights that the kernel also returns are s; under dropout they may be the weights after dropout. A
        kernel refuses a call without keys, or returns zeros or NaN.""",
        own=MappingProxyType({WITHOUT_KEYS: "on a call without keys, if the kernel takes such calls"}),
        agrees=MappingProxyType({name: AGREEMENT[name] for name in (OUTPUT, WEIGHTS)}),
        is_base=True,
    ),
    Capability(
        "gradients",
        "dQ, dK and dV of every row",
        "dQ, dK and dV, or only the gradients that the call asks for",
        """Let u be the upstream gradient of a row, o its output, and dz_t = s_t (u·v_t − u·o): Lemma 3's covariance,
        under s, of the indicator of key t and the scores u·v. Then dQ = Σ_t dz_t k_t, and dK_t = Σ dz_t q and dV_t =
        Σ s_t u are sums over the rows. Each gradient is the same whichever other gradients the call asks for.""",
        agrees=MappingProxyType({name: AGREEMENT[name] for name in GRADIENT_CLAIMS}),
        is_base=True,
        differentiates=True,
    ),
    Capability(
        "scale",
        "Factor of the logits",
        "output and gradients under scales other than 1",
        """With scale c the logits are c · q·k_t, as for the query c q. dQ and dK have the factor c; dV does not.""",
        lambda call: call.scale not in (None, 1.0),
    ),
    Capability(
        "default-scale",
        "The default scale",
        "if the call gives no scale, the kernel's scale is 1/√E or 1",
        """If the call gives no scale, the logits are q·k_t/√E, as in all libraries, or q·k_t, as in the paper; the
        report says which.""",
        lambda call: call.scale is None,
    ),
    Capability(
        "softcap",
        "Capped logits (softcap)",
        "the weights are the softmax of the capped logits",
        """With softcap c > 0 the logits are z_t = c tanh(scale · q·k_t / c), and dz is multiplied by 1 − tanh² on its
        way to dQ and dK. A mask is added after the cap.""",
        lambda call: call.softcap > 0,
    ),
    Capability(
        "log-sum-exp",
        "log Σ e^logit",
        "the returned log-sum-exp, with natural logarithms",
        """Beside the output the kernel returns log Σ_t e^{z_t}, the natural logarithm, over the scaled logits of the
        keys that a row sees. Results on two parts of the keys are merged by means of this number.""",
        lambda call: call.log_sum_exp,
        own=MappingProxyType({"log-sum-exp": "on every call that asks for it"}),
    ),
    Capability(
        "causal",
        "Causal masking, L = T",
        "each query sees its own key and the keys before it, forward and backward",
        """Query i of L = T sees the keys t ≤ i: its row is softmax attention on these keys, and dK_t and dV_t are
        sums over only the queries i ≥ t.""",
        lambda call: call.causal and _is_square(call),
        own=MappingProxyType({NOT_POSITIVE: "with a scale of zero or below; the report says where such rows are NaN"}),
    ),
    Capability(
        "causal-rectangle",
        "Causal masking, L ≠ T",
        "causality with fewer or more queries than keys, aligned at the top left or the bottom right",
        """With L ≠ T query i sees the keys t ≤ i (top-left, as PyTorch's ``is_causal``), or t ≤ i + T − L
        (bottom-right, as flash attention: the last query is the last token). The first call of a
        kernel shows which alignment it uses, and all later calls have to use the same. With L > T, aligned at the
        bottom right, the first L − T queries see no key, and follow one convention of ``kernel-empty-rows``.""",
        lambda call: call.causal and not _is_square(call),
        own=MappingProxyType(
            {EMPTY: "with L > T, aligned at the bottom right", NOT_POSITIVE: "with a scale of zero or below"}
        ),
    ),
    Capability(
        "boolean-mask",
        "Boolean mask",
        "each query sees the keys that the mask shows it",
        """A boolean mask, (B, H, L, T) or of a shape that broadcasts to it, hides keys where it is false: a row is
        softmax attention on the keys that the mask, causality and a window all show.""",
        lambda call: call.visible is not None,
    ),
    Capability(
        "additive-mask",
        "Additive mask",
        "the bias is added to the logits; −∞ hides a key",
        "A bias b_t is added to the scaled logits: z_t = scale · q·k_t + b_t; where it is −∞ the key is not seen.",
        lambda call: call.bias is not None,
    ),
    Capability(
        "longer-masks",
        "Masks that are longer than the keys",
        "of a mask with more columns than keys, only the first T columns count",
        """A kernel for caches of a fixed length takes masks of the length of the cache: column t of a mask is for key
        t, and the columns after the last key change nothing, however large their entries. Kernels that refuse such
        masks do not declare the capability.""",
        lambda call: call.beyond > 0 and (call.visible is not None or call.bias is not None),
    ),
    Capability(
        "window",
        "Sliding window",
        "each query sees only the given numbers of keys to the left and to the right",
        """With window (l, r) query i of L = T sees the keys i − l ≤ t ≤ i + r; −1 is no limit, and causal masking hides
        t > i as well. With L ≠ T the diagonal is that of causal masks.""",
        lambda call: call.window is not None,
        own=MappingProxyType({EMPTY: "where the window of a row has no keys"}),
    ),
    Capability(
        "hidden-keys",
        "Hidden keys do not matter",
        "±1e30 in hidden keys and values changes no bit of other rows' results; the effect of NaN is only reported",
        """Some keys that masks, causality or a window hide are poisoned: their keys and values become ±1e30. Weights of
        hidden keys are exactly 0, so rows that do not see a poisoned key keep their outputs and dQ, bit for bit. If no
        row sees a poisoned key, as under a mask, all other keys keep their dK and dV, and the poisoned ones have
        dK = dV = 0.

        No kernel promises to ignore NaN in hidden keys (0 · NaN is NaN): whether a kernel ignores it is
        reported, not claimed.""",
        lambda call: call.poison,
        own=MappingProxyType(
            {"hidden-keys-change-no-output": "where a key is hidden", GRADIENTS[0]: BACKWARD}
            | dict.fromkeys((*GRADIENTS[1:], "hidden-keys-have-no-gradient"), "where a key is hidden from all rows")
        ),
        agrees=MappingProxyType({}),
    ),
    Capability(
        "empty-rows",
        "Rows that see no key",
        "these rows are all zeros, all means or all NaN; other rows are right",
        """Softmax over no keys is not defined. A kernel follows one convention in all such rows of a call: zeros, where
        dQ is 0 and the rows add nothing to dK and dV; the mean of all values, with or without a gradient to the equal
        logits; NaN, forward and backward; or NaN without a gradient, as from ``masked_fill`` and softmax, where dQ is 0
        and dK finite. NaN may be in dK and dV of the groups of such rows. Other rows and other groups are correct under
        every convention.""",
        _sees_nothing,
        own=MappingProxyType({EMPTY: "on every call"}),
    ),
    Capability(
        "grouped-heads",
        "Grouped heads (GQA)",
        "each head attends to the keys of its group; dK and dV are sums over the group's heads",
        """Head h of H attends to group h // (H/G) of G groups of keys and values. dK and dV of a group are the sums
        over its heads.""",
        lambda call: call.query.shape[1] != call.key.shape[1],
    ),
    Capability(
        "bias-gradient",
        "Gradient of an additive mask",
        "the gradient db, summed over the axes along which the bias is broadcast",
        """Where the kernel differentiates the bias b that it adds to its logits, db = Σ dz over the axes along which
        it is broadcast: heads, batch entries, rows. Where b is −∞ nothing is claimed.""",
        lambda call: call.bias is not None and bool(call.wants),
        own=MappingProxyType({BIAS_GRADIENT: "on calls whose rows are all checked"}),
        agrees=MappingProxyType({}),
        differentiates=True,
    ),
    Capability(
        "alibi",
        "Linear biases (ALiBi)",
        "slope · distance from the diagonal is subtracted from each logit",
        """With the slope a of a head, or of a head and batch entry, the logits are z_t = scale · q·k_t − a |t − i|,
        where i is the key on the diagonal of the row; with L ≠ T this diagonal is that of causal masks. Some libraries
        add a constant to all logits of a row, so nothing is claimed of the log-sum-exp.""",
        lambda call: call.slopes is not None,
    ),
    Capability(
        "sinks",
        "Attention sinks",
        "one more key with a given logit and the value 0, and its gradient",
        """A sink of logit σ takes the weight s_σ = e^σ / (e^σ + Σ_t e^{z_t}) from the keys of a row: this is
        attention with one more key, whose value is 0. σ lies among the logits or above them, since a sink far below
        the logits has no effect. dσ = −Σ s_σ (u·o) over the rows of a head, where the kernel
        differentiates it.""",
        lambda call: call.sinks is not None,
        own=MappingProxyType({SINK_GRADIENT: "where the kernel differentiates its sinks"}),
    ),
    Capability(
        "log-sum-exp-gradient",
        "Gradient through the log-sum-exp",
        "dQ and dK of a loss that also depends on the log-sum-exp",
        """If the log-sum-exp l that a kernel returns can be differentiated, and a loss has the derivative u_l by it,
        then dz_t = s_t (u·v_t − u·o + u_l), since ∂l/∂z_t = s_t; dV does not change.""",
        lambda call: call.lse_upstream is not None,
        agrees=MappingProxyType({name: AGREEMENT[name] for name in GRADIENTS}),
        differentiates=True,
    ),
    Capability(
        "ragged-batch",
        "Sequences of different lengths",
        "each batch entry has its own numbers of queries and keys, which may be 0",
        """Batch entry b has L_b queries and T_b keys, packed one sequence after another or in a longer cache: rows are
        attention on the keys of their own entry, and the diagonal is where it would be if the entry were alone. Rows of
        entries without keys see no key; padding is neither read nor written.""",
        lambda call: call.lengths is not None,
        own=MappingProxyType({EMPTY: "where an entry has queries that see no key"}),
    ),
    Capability(
        "fp8-descale",
        "Factors of tensors of 8 bits",
        "a factor for each group of heads of a batch entry; halved data and doubled factors give the same bits",
        """Query, key and value are of 8 bits (e4m3), and each group of heads of an entry has a factor by which they are
        multiplied. Rows are attention on the products, except that weights are rounded to 8 bits before they are
        multiplied with values, and results have 16 bits. Halved data with doubled factors are the same numbers, so that
        no bit of the results changes. The query's factor is that of the group of its head.""",
        lambda call: call.descales is not None,
        own=MappingProxyType({RESCALED: "on every call with factors"}),
        agrees=MappingProxyType({OUTPUT: AGREEMENT[OUTPUT]}),
    ),
    Capability(
        "batch-invariance",
        "An entry alone, and in a batch",
        "a batch entry has the same bits in a batch and alone, if the kernel declares this",
        """A kernel that declares ``batch_invariant``, by a parameter or an attribute, returns the same bits for an
        entry of a batch, forward and backward, whichever other entries are in the batch (here the drawn entries, or
        none).""",
        lambda call: call.alone,
        own=MappingProxyType({ALONE: "on every call of more than one entry"}),
    ),
    Capability(
        "splits",
        "Keys cut into splits",
        "the same result for every number of splits",
        """The number of splits into which a kernel cuts the keys changes nothing except rounding. It is 1, 2, 3, or
        more than the number of blocks of keys.""",
        lambda call: call.splits > 0,
    ),
    Capability(
        "paged-keys",
        "Keys in pages",
        "a cache in pages that lie in any order, with unused pages between them",
        """A table names the pages in which keys and values lie. Rows are the same as with a cache in one piece,
        whatever the order of the pages and the contents of other pages and of the places after the last key.""",
        lambda call: call.page > 0,
    ),
    Capability(
        "dropout",
        "Dropout of weights",
        "each weight is dropped or divided by 1 − p; output and gradients follow from the resulting weights",
        """With dropout p each weight is 0 with probability p, and s_t/(1 − p) otherwise. Values are the identity, so
        the output shows which weights are dropped: their share is p within what chance allows (Hoeffding's inequality,
        10⁻¹²), and the gradients are those with exactly these weights dropped. Under another seed, in another head and
        in another entry, other weights are dropped.""",
        lambda call: call.dropout > 0,
        own=MappingProxyType(
            {
                DROPPED: "on every call",
                SHARE: "on every call",
                REDRAWN: "where two draws cannot agree by chance",
            }
            | dict.fromkeys(UNLIKE, "where two draws cannot agree by chance, and no parameter broadcasts")
        ),
    ),
    Capability(
        "memory",
        "Memory layout of the tensors",
        "tensors that are not contiguous give the same numbers; no tensor, and no memory beside it, is changed",
        """Results do not depend on the layout of tensors, masks and upstream gradients: allocated as (B, L, H, E) and
        viewed as (B, H, L, E), every other row or column of a larger tensor, stride 0 along the batch or the heads, or
        a start in the middle of their storage. All tensors, and the NaN around and between their numbers, are
        unchanged after the call, bit for bit. Grad mode, default dtype, seed, threads, the working folder,
        environment variables and the functions of torch and NumPy are as before, too.""",
        _lie_otherwise,
        own=MappingProxyType({UNCHANGED: "on every call", SETTINGS_UNCHANGED: "on every call"}),
        everywhere=True,
    ),
    Capability(
        "repeated-calls",
        "Calls one after another",
        "calls before or in between change nothing; a kernel with a parameter `deterministic` repeats its bits",
        """A call does not depend on other calls: the same call before it, a call with other numbers in the same memory
        before it, another call between its forward and its backward pass (which leaves its output unchanged), two
        backward passes through one graph. Sums may have another order each time; only a kernel that declares to be
        deterministic has to return the same bits, forward and backward. With
        ``--profile deep`` a small call is made 3000 times, with other tensors in memory in between and on 1, 2 and 4
        threads of PyTorch: each time its numbers are within the bounds.""",
        lambda call: call.state not in (State.ONCE, *COMPILED),
        own=MappingProxyType(
            {
                "same-bits": "on a call that is made twice, if the kernel declares it",
                EACH_TIME: "on a call that is made 3000 times, in the deep profile",
            }
        ),
    ),
    Capability(
        "compiled",
        "Through torch.compile",
        "the compiled kernel gives the same numbers, with sizes that change from call to call",
        """A call has the same results through ``torch.compile``, forward and backward, after calls of other sizes with
        the same options: the first is compiled for its sizes, the second for any sizes, and the call itself runs the
        latter graph. By default graphs are traced, freed of mutation and differentiated ahead of time, and torch runs
        them (``aot_eager``); with ``--profile deep`` they are also compiled to machine code (``inductor``), if there is
        a C++ compiler. Kernels that PyTorch cannot compile are reported as refused.""",
        lambda call: call.state in COMPILED,
        own=MappingProxyType(
            {RETURNS: "on every call", UNCHANGED: "on every call"}
            | {name: when for name, when in AGREEMENT.items() if name != NO_GRADIENT}
            | dict.fromkeys(("log-sum-exp", EMPTY, SINK_GRADIENT, BIAS_GRADIENT, DROPPED, SHARE), "likewise")
        ),
        agrees=MappingProxyType({}),
    ),
    Capability(
        "parameters",
        "No parameter is ignored",
        "a parameter that no other capability tests changes the output",
        """Some parameters have a name that says what they do to the numbers (a mask, a bias, slopes, a window, a cap)
        but are tested by no other capability. At least one of several values of such a parameter changes the output, or
        the kernel refuses the values. Whether that output is right is not checked: the report lists the parameter as
        not tested.""",
        lambda call: False,
        own=MappingProxyType({IGNORED: "on every call of a kernel with such parameters"}),
        agrees=MappingProxyType({}),
        everywhere=True,
    ),
    Capability(
        "exact-weights",
        "Weights of exactly 1, 1/n and 0",
        "calls on which no number format rounds anything: results within float32's rounding",
        """In each row one key has the largest logit, or two share it, and the others are at least 4096 lower: weights
        are exactly 1, or 1/2 twice, and 0. Or all T = 2^k keys share one logit, and values have a mean of few bits. All
        numbers of the call are small integers, so every product and partial sum of output, dQ, dK and dV is a number of
        few bits, 24 at most: float16 and bfloat16 have to return what float32 returns, rounded once.""",
        lambda call: call.exact,
    ),
)


def _in_format(name: str) -> Capability:
    """Return the capability that results are right in the number format ``name``, coarser than the kernel's finest."""
    claims = {claim: "as in the finest format" for capability in _IN_EVERY_FORMAT for claim in capability.claims}
    return Capability(
        name,
        f"All of it on {name} tensors",
        f"the same on {name} tensors, within the rounding of {name}",
        f"""A kernel that takes {name} tensors as well satisfies all capabilities on them: on calls in which every pair
        of options occurs, within the rounding of the textbook formula in {name}, and exactly where nothing is
        rounded. Kernels have code of their own for a format, and can be right in one and wrong in another.""",
        lambda call: False,
        own=MappingProxyType(claims),
        agrees=MappingProxyType({}),
        everywhere=True,
        format=name,
    )


CAPABILITIES: tuple[Capability, ...] = (*_IN_EVERY_FORMAT, *map(_in_format, COARSER))
"""All capabilities, in the order of the report."""


def capability_of(id: str) -> Capability:
    """Return the capability that the statement ``id`` is about."""
    return next(capability for capability in CAPABILITIES if f"kernel-{capability.name}" == id)


def options_on(call: AttentionCall) -> Iterator[str]:
    """Return the names of the capabilities whose options a call uses.

    Capabilities that every call uses are left out, and so are capabilities that are not options but only add claims.
    """
    return (
        capability.name
        for capability in CAPABILITIES
        if not capability.is_base and capability.agrees and capability.is_on(call)
    )
