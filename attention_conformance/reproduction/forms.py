"""The lines of a test that compares a call with the textbook formula, or two calls with each other.

In a test, ``found`` are the results of a call, ``due`` the correct results, ``once`` and ``again`` those of two calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attention_conformance.calls.attention_call import BEFORE, COMPILED, CONTEXTS, REPEATS, AttentionCall, State
from attention_conformance.claims.call_claims import IGNORED, NEUTRAL, SHARE, WEIGHTS, WITHOUT_KEYS
from attention_conformance.claims.empty_rows import EMPTY
from attention_conformance.claims.long_states import EACH_TIME, UNCHANGED
from attention_conformance.claims.second_calls import ALONE, CHANCE, LEAST_WEIGHT, REDRAWN, RESCALED, UNLIKE
from attention_conformance.kernel.compiled_answer import calls_of_other_sizes
from attention_conformance.kernel.compiler import BACKENDS
from attention_conformance.kernel.memory_layout import with_a_mask, with_other_options
from attention_conformance.kernel.parameters import Account, call_to_exercise, of_kind, values_of
from attention_conformance.kernel.trace import Trace
from attention_conformance.reproduction.call_source import Calling
from attention_conformance.reproduction.checks import check_lines, due_line
from attention_conformance.reproduction.python_text import NotWritten, array_text, constant, indent, wrap
from attention_conformance.reproduction.tensors import OPTIONS, TENSORS, tensor_lines

FLIPPED = "*(-x.flip(2) for x in (query, key, value))"
"""An expression for query, key and value with the same shapes and other numbers."""


@dataclass(frozen=True)
class Form:
    """The form of a test of a failing call, which yields the test's lines.

    Attributes:
        trace: the failing call and the claims that it falsifies.
        guards: whether the test surrounds each tensor in memory by NaN.
        backward: whether the test makes a backward pass even if no check uses gradients.
    """

    trace: Trace
    guards: bool = False
    backward: bool = True

    def lines(self) -> Iterator[str]:
        """Return the lines of the test.

        Raises:
            NotWritten: the failure cannot be written as a test.
        """
        claims, calls = {*self.trace.falsified}, self.trace.calls
        if IGNORED in claims:
            return self.parameters()
        if self.trace.call.state in COMPILED:
            return self.compiled()
        if "same-bits" in claims:
            return self.same_bits()
        if claims & {ALONE, RESCALED, REDRAWN}:
            return self.two_calls(*calls[-2:])
        if self.trace.capability == "hidden-keys":
            with_nan = next(k for k, call in enumerate(calls) if np.isnan(call.key).any())
            return self.two_calls(*calls[with_nan - 2 : with_nan])  # the two calls just before the call with NaN
        return self.comparison()

    def calling(self, call: AttentionCall | None = None, **further: Any) -> Calling:
        """Return the test's function that makes ``call``, by default the call that falsifies the claims."""
        looked_at = tuple(entry.claim for entry in self.trace.entries)
        return Calling(self.trace.kernel, call or self.trace.call, looked_at=looked_at, **further)

    def tensors(self, call: AttentionCall, **renamed: str) -> Iterator[str]:
        """Return the lines that create the tensors of a call; for ``renamed`` see :func:`.tensors.tensor_lines`."""
        return tensor_lines(self.trace, call, self.guards, renamed)

    def due(self, **further: str) -> str:
        """Return the line that computes ``due``, the correct results; ``further`` is the source of options."""
        return due_line(self.trace.call, self.trace.kernel.alignment, **further)

    def checks(self) -> list[str]:
        """Return the lines that compare the results of the call with the correct results."""
        return [line for entry in self.trace.entries for line in check_lines(self.trace, entry)]

    def comparison(self) -> Iterator[str]:
        """Yield the lines that make the failing call, in the call's state, and compare the results with the formula."""
        trace, kernel, call, claims = self.trace, self.trace.kernel, self.trace.call, {*self.trace.falsified}
        gradients = [entry.what.name for entry in trace.entries if entry.what.name.endswith("gradient")]
        is_convention = bool(claims & {EMPTY, WITHOUT_KEYS})
        is_forward = not (self.backward or gradients or is_convention)
        calling = self.calling(weights=WEIGHTS in claims, is_forward=is_forward)
        empty = ~call.visibility(kernel.alignment).any(axis=-1) & ~call.absent
        # Some rows see no key: dK and dV depend on the kernel's convention for the results of these rows.
        follows = empty.any() and {"key_gradient", "value_gradient"} & {*gradients}
        yield from self.tensors(call)
        if trace.entries and not follows and not call.dropout:
            yield self.due()
        changed = trace.answer.changed if UNCHANGED in claims else ()
        if changed:
            yield f"before = {{name: memory_of(x) for name, x in {_by_name(changed)}.items()}}"
        if call.dropout:
            yield f"torch.manual_seed({call.seed})"
        yield from self.in_its_state(calling)
        if changed:
            yield f"for name, x in {_by_name(changed)}.items():\n    check_same(name, memory_of(x), before[name])"
        if follows or is_convention or NEUTRAL in claims:
            yield f"empty = {array_text(empty)}  # rows that see no key"
            yield 'output = found["output"][empty]'
        back = "d" in "".join(gradients) and calling.wants.startswith("q") and not is_forward
        if is_convention:
            yield "zeros, nans = (output == 0).all(), output.isnan().all()"
            if calling.wants.startswith("q"):
                yield 'dq = found["dq"][empty]'
                yield "zeros, nans = zeros & (dq == 0).all(), nans & ((dq == 0).all() | dq.isnan().all())"
            yield 'assert zeros or nans, "rows that see no key: neither all 0 nor all NaN"'
        if NEUTRAL in claims:
            yield 'assert (output == 0).all() and (found["lse"][empty] == -inf).all(), "no key is seen: not (0, -inf)"'
        if follows:
            if not np.isnan(trace.answer.output).any():
                yield "if output.isnan().all():\n    return  # gradients are NaN as well"
            through = ' + bool(found["dq"][empty].any())' if back else ""
            yield f"convention = bool(output.any()) and 1{through}  # 0 zeros, 1 the mean, 2 the mean with its gradient"
            yield self.due(empty_rows="convention")
        if EACH_TIME in claims:
            yield f"for number in range({REPEATS}):"
            yield "    between = torch.full((query.numel() + number % 64,), nan)  # so that memory holds something else"
            yield indent([f"found = {calling.made()}", *self.checks()])
        else:
            yield from self.dropout() if call.dropout else self.checks()

    def in_its_state(self, calling: Calling) -> Iterator[str]:
        """Yield the lines that compute ``found`` by a call, with the other calls that the call's state requires."""
        call, kernel = calling.call, calling.kernel
        state, options = call.state, {}
        if state in CONTEXTS and state is not State.REPLAYED:
            raise NotWritten(f"the call is made in the state {str(state)!r}")
        yield calling.function()
        if state is State.INTERLEAVED:
            other = self.calling(kernel.interface.expressible(with_other_options(call)), is_forward=True)
            yield f"{other.function('other')}\ndef between(found, leaves):"
            yield f"    {other.made('other').replace('query, key, value', FLIPPED)}"
            options = {"before_backward": "between"}
        elif state is State.SECOND_BACKWARD and not calling.is_forward and calling.wants:
            yield "\ndef between(found, leaves):"
            yield "    x, leaves = found['output'], list(leaves.values())"
            yield "    torch.autograd.grad(x, leaves, -upstream.flip(2), retain_graph=True, allow_unused=True)\n"
            options = {"before_backward": "between"}
        elif state is State.TWICE:
            yield calling.made()
        elif state in (State.OVERWRITTEN, State.REPLAYED):
            is_once = state is State.OVERWRITTEN
            masks = [name for name in ("visible", "bias") if is_once and getattr(call, name) is not None]
            numbers = "-x.flip(2) if k < 3 else x.flip(-1)" if is_once else "torch.randn(x.shape).to(x)"
            yield f"there = [own_of(x.detach()) for x in ({', '.join([*TENSORS[:3], *masks])})]"
            yield "numbers_of = [x.clone() for x in there]"
            yield f"torch.manual_seed({call.seed})"
            yield f"for _ in range({1 if is_once else BEFORE}):  # calls on other numbers in the same memory"
            yield indent(["for k, x in enumerate(there):", f"    x.copy_({numbers})", calling.made()])
            yield "for x, own in zip(there, numbers_of, strict=True):\n    x.copy_(own)"
        elif state is State.AFTER_ANOTHER:
            other_call = kernel.interface.expressible(with_a_mask(call, kernel.declares))
            if other_call.visible is not call.visible:
                yield f"visible = torch.ones{other_call.visible.shape[-2:]}.bool().tril()"
            other = self.calling(other_call.replace(wants="", lse_upstream=None))
            yield other.function("before")
            yield other.made("before").replace("query, key, value", FLIPPED)
        yield wrap(f"found = {calling.made(**options)}")

    def dropout(self) -> Iterator[str]:
        """Yield the lines that check dropped weights: the values are the identity, so the output is the weights."""
        trace, p, checks = self.trace, self.trace.call.dropout, self.checks()
        yield 'kept = found["output"].detach().cpu() != 0  # the values are the identity: the output is the weights'
        yield self.due().replace("due =", "whole =")
        if SHARE in trace.falsified:
            far = math.sqrt(math.log(2 / CHANCE) / (2 * int((trace.rows.weights.value > LEAST_WEIGHT).sum())))
            yield f'share = float(kept[whole["weights"] > {LEAST_WEIGHT!r}].double().mean())'
            yield f"# Hoeffding's inequality: a correct share is further off with probability {CHANCE:.0e}."
            yield f'assert abs(share - {1 - p!r}) <= {far:.4g}, f"{{share:.3g}} of the weights are kept"'
        for claim, axis in UNLIKE.items():
            if claim in trace.falsified:
                yield f"first, *others = kept.movedim({axis}, 0)"
                yield f'assert all((first != x).any() for x in others), "{claim} does not hold"'
        if checks:
            yield self.due(kept=f"kept.double() / {1 - p!r}")
        for line in checks:
            if line.startswith('check("weights"'):  # a correct kernel may return the weights before dropout instead
                yield 'if not ((found["weights"].detach().cpu().double() - whole["weights"]).abs() <= allowed).all():'
                line = f"    {line}"
            yield line

    def same_bits(self) -> Iterator[str]:
        """Yield the lines that repeat the failing call, once or thousands of times, and compare the results' bits."""
        calling = self.calling()
        yield from self.tensors(self.trace.call)
        yield calling.function()
        yield f"once = {calling.made()}"
        yield f"for _ in range({REPEATS if self.trace.call.state is State.MANY else 1}):"
        yield f"    again = {calling.made()}"
        yield "    for name in once:\n        check_same(name, again[name], once[name])"

    def two_calls(self, first: AttentionCall, second: AttentionCall) -> Iterator[str]:
        """Yield the lines that make two calls and compare those results that have to agree bit for bit."""
        first, second = (call.replace(state=State.ONCE) for call in (first, second))
        claims, renamed = {*self.trace.falsified}, _names_of_others(first, second)
        is_forward = bool(claims & {RESCALED, REDRAWN})
        once = self.calling(first, is_forward=is_forward)
        again = self.calling(second, renamed=renamed, is_forward=is_forward)
        name = "attend" if once.forward == again.forward else "other"
        yield from self.tensors(first)
        yield from self.tensors(second, **renamed)
        yield once.function()
        yield from [again.function(name)] if name == "other" else []
        seeds = [f"torch.manual_seed({call.seed})" for call in (first, second)] if REDRAWN in claims else ["", ""]
        yield from filter(None, [seeds[0], f"once = {once.made()}", seeds[1], wrap(f"again = {again.made(name)}")])
        if REDRAWN in claims:
            yield 'once, again = once["output"], again["output"]'
            yield "kept = torch.maximum(once, again) > 1e-4  # the values are the identity: the output is the weights"
            yield 'assert ((once == 0) != (again == 0))[kept].any(), "another seed drops the same weights"'
        elif claims & {ALONE, RESCALED}:
            at = int(first.rng().integers(first.sizes["B"]))
            cut = f"[{at}:{at + 1}]" if ALONE in claims else ""
            yield f"for name in once:\n    check_same(name, again[name], once[name]{cut})"
        else:
            yield from self.hidden_keys(first, second)

    def hidden_keys(self, clean: AttentionCall, poisoned: AttentionCall) -> Iterator[str]:
        """Yield the lines that compare the results of two calls that differ only in hidden keys and values.

        Compared are the results on which the hidden keys must have no influence.
        """
        visible = clean.visibility(self.trace.kernel.alignment)
        changed = (poisoned.key != clean.key).any(axis=(0, 1, 3)) | (poisoned.value != clean.value).any(axis=(0, 1, 3))
        clear = ~(visible & changed).any(axis=-1) & visible.any(axis=-1)
        parts = {"hidden-keys-change-no-output": ("output", "clear"), "query-gradient": ("dq", "clear")}
        parts |= {"key-gradient": ("dk", ":, :, ~hidden"), "value-gradient": ("dv", ":, :, ~hidden")}
        yield f"hidden = {array_text(changed)}  # keys with other numbers in the second call"
        yield wrap(f"clear = {array_text(clear)}") + "  # rows that see none of these keys"
        for claim in self.trace.falsified:
            if claim in parts:
                name, part = parts[claim]
                yield f'check_same("{name}", again["{name}"][{part}], once["{name}"][{part}])'
            else:
                yield 'for name in {"dk", "dv"} & {*again}:'
                yield '    assert (again[name][:, :, hidden] == 0).all(), f"{name} of hidden keys is not 0"'

    def compiled(self) -> Iterator[str]:
        """Yield the lines that compile the kernel, call it on other sizes, and then make and check the failing call."""
        trace, call = self.trace, self.trace.call.replace(state=State.ONCE)
        calling = self.calling(call, callee="compiled")
        yield from self.tensors(call)
        yield from [self.due()] if trace.entries else []
        yield "torch._dynamo.reset()"
        yield f'compiled = torch.compile(kernel, backend="{BACKENDS[trace.call.state]}")'
        yield calling.function()
        for number, call_before in enumerate(calls_of_other_sizes(call)):
            other = self.calling(call_before, callee="compiled", renamed=_names_of_others(call, call_before))
            name = "attend" if other.forward == calling.forward else f"attend_{number}"
            yield from [other.function(name)] if name != "attend" else []
            yield wrap(other.made(name))
        yield f"try:\n    found = {calling.made()}\nexcept Exception as error:"
        yield '    raise AssertionError(f"the compiled kernel raises {type(error).__name__}: {error}") from None'
        yield from self.checks()

    def parameters(self) -> Iterator[str]:
        """Yield the lines that try values of an ignored parameter, and fail if no accepted value changes the output."""
        kernel = self.trace.kernel
        call = kernel.in_own_numbers(call_to_exercise()).replace(wants="")
        name = of_kind(kernel.accounts, Account.IGNORED)[0]
        values = values_of(name, kernel.parameters[name], call, kernel)
        calling = self.calling(call, further="**given")
        yield from self.tensors(call)
        yield calling.function()
        yield f'given = {{}}\nbefore, after = {calling.made()}["output"], []'
        for value in values:
            yield wrap(f"given = {{{name!r}: {constant(value) if hasattr(value, 'dtype') else repr(value)}}}")
            yield f'with contextlib.suppress(Exception):  # if refused\n    after.append({calling.made()}["output"])'
        yield "is_used = any(not torch.equal(x, before) for x in after)"
        yield f'assert not after or is_used, "the kernel takes {name}, but no value changes the output"'


def _by_name(names: Sequence[str]) -> str:
    return f"dict({', '.join(f'{name}={name}' for name in names)})"


def _names_of_others(first: AttentionCall, second: AttentionCall) -> Mapping[str, str]:
    """Return an expression for each array of a second call: an array of the first call, part of one, or a new name."""
    names = {}
    for name in (*TENSORS, *OPTIONS):
        x, y = getattr(first, name), getattr(second, name)
        if y is None:
            continue
        if x is None or x.ndim != y.ndim:
            raise NotWritten(f"a second call with another {name}")
        names[name] = f"other_{name}"
        for start in (0, int(first.rng().integers(len(x)))):
            cut = [slice(start * (axis == 0), start * (axis == 0) + n) for axis, n in enumerate(y.shape)]
            if np.array_equal(x[tuple(cut)], y):
                part = ", ".join(f"{bounds.start or ''}:{bounds.stop}" for bounds in cut)
                names[name] = name if x.shape == y.shape else f"{name}[{part}]"
                break
    return names
