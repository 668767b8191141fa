"""The forms of a test: a call against the formula, and laws of two calls."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attention_conformance.claims.empty_rows import EMPTY
from attention_conformance.claims.examination import IGNORED, NEUTRAL, WEIGHTS
from attention_conformance.claims.long_states import EACH_TIME, UNCHANGED
from attention_conformance.claims.same_again import ALONE, REDRAWN, RESCALED
from attention_conformance.kernel.parameters import Account, call_to_exercise, of_kind, values_of
from attention_conformance.kernel.trace import Trace
from attention_conformance.reproduction.calling import OWN, Calling, calling_of
from attention_conformance.reproduction.checks import check_lines
from attention_conformance.reproduction.dropout_forms import dropout, redrawn
from attention_conformance.reproduction.long_forms import each_time, through_compiler
from attention_conformance.reproduction.placement import MASKS, placed_lines, tensor_lines
from attention_conformance.reproduction.steps import constant
from attention_conformance.reproduction.text import names, quote_all, tensor, wrap
from attention_conformance.reproduction.textbook import due_lines
from generators.attention_call import COMPILED, REPEATS, Memory, State


def form_of(found: Trace, guards: bool = False, backward: bool = True) -> Iterator[str]:
    """The lines of a test.

    Args:
        guards: whether NaN lie around each tensor in memory.
        backward: whether there is a backward pass that no check looks at.

    Raises:
        NotWritten: no test can say it.
    """
    claims = found.falsified
    if IGNORED in claims:
        return _parameters(found, guards)
    if found.call.state in COMPILED:
        return through_compiler(found, guards)
    if EACH_TIME in claims:
        return each_time(found, guards)
    if "same-bits" in claims:
        return _same_bits(found, guards)
    if ALONE in claims:
        return _alone(found, guards)
    if RESCALED in claims:
        return _of_rescaled_data(found, guards)
    if REDRAWN in claims:
        return redrawn(found, guards)
    if found.capability == "hidden-keys":
        return _hidden_keys(found, guards)
    return dropout(found, guards) if found.call.dropout else _comparison(found, guards, backward)


def _comparison(found: Trace, guards: bool, backward: bool) -> Iterator[str]:
    """One call, with what happens around it, compared with the formula."""
    kernel, call, claims = found.kernel, found.call, found.falsified
    looks_back = backward or any(entry.what.name.endswith("gradient") for entry in found.entries) or EMPTY in claims
    calling = calling_of(found, weights=WEIGHTS in claims, is_forward=not looks_back)
    yield from tensor_lines(call, found.drawn)
    empty = ~call.visibility(kernel.alignment).any(axis=-1) & ~call.absent
    # Gradients of rows that see nothing are those of the convention that the kernel follows.
    follows = empty.any() and any(entry.what.name in ("key_gradient", "value_gradient") for entry in found.entries)
    if found.entries and not follows:
        yield from due_lines(call, kernel.alignment)
    yield from placed_lines(call, kernel, guards)
    changed = found.answer.changed if UNCHANGED in claims else ()
    if changed:
        yield f"before = [memory_of(x) for x in ({names(changed)})]"
    yield from calling.in_its_state()
    if changed:
        yield f"for name, x, was in zip({quote_all(changed)}, ({names(changed)}), before):"
        yield "    check_same(name, memory_of(x), was)"
    if follows or {EMPTY, NEUTRAL} & {*claims}:
        yield tensor("empty", empty) + "  # rows that see no key"
    yield from _rows_that_see_nothing(found, calling)
    if follows:
        if not np.isnan(found.answer.output).any():
            yield "if output[empty].isnan().all():"
            yield "    return  # then gradients are, too"
        yield "is_mean = bool(output[empty].any())  # the mean of all values, or zeros"
        through = "dq" in calling.leaves
        if through:
            yield "is_through = is_mean and bool(dq[empty].any())  # with its gradient"
        yield from due_lines(call, kernel.alignment, mean="is_mean", through="is_through" if through else "")
    for entry in found.entries:
        yield from check_lines(found, entry)


def _rows_that_see_nothing(found: Trace, calling: Calling) -> Iterator[str]:
    """Zeros, or NaN, forward and backward alike; merged ones are neutral."""
    if EMPTY in found.falsified:
        yield "zeros, nans = (output[empty] == 0).all(), output[empty].isnan().all()"
        if "dq" in calling.leaves:
            yield "none = (dq[empty] == 0).all()"
            yield "zeros, nans = zeros & none, nans & (none | dq[empty].isnan().all())"
        yield 'assert zeros or nans, "rows that see no key: neither all 0 nor all NaN"'
    if NEUTRAL in found.falsified:
        yield 'assert (output[empty] == 0).all() and (lse[empty] == -inf).all(), "no key seen: not (0, -inf)"'


def _same_bits(found: Trace, guards: bool) -> Iterator[str]:
    """The same call twice."""
    calling = calling_of(found)
    yield from tensor_lines(found.call, found.drawn)
    yield from placed_lines(found.call, found.kernel, guards)
    yield from calling.run()
    yield "once = run(query, key, value)"
    yield f"for number in range({REPEATS if found.call.state is State.MANY else 1}):"
    yield "    again = run(query, key, value)"
    yield f"    for name, x, was in zip({quote_all(calling.results)}, again, once):"
    yield "        check_same(name, x, was)"


def _alone(found: Trace, guards: bool) -> Iterator[str]:
    """An entry of the batch in it, and alone."""
    whole, alone = found.calls[-2:]
    at = int(whole.rng().integers(whole.sizes["B"]))
    cut = f"[{at}:{at + 1}]"
    renamed = tuple(
        (name, f"{name}[:, {at}:{at + 1}]" if name == "descales" else f"{name}{cut}")
        for name in (*MASKS, "descales")
        if np.shape(getattr(whole, name)) != np.shape(getattr(alone, name))
    )
    in_batch, by_itself = calling_of(found, whole), calling_of(found, alone, renamed=renamed)
    yield from tensor_lines(whole, found.drawn)
    yield from placed_lines(whole, found.kernel, guards)
    arguments = "query, key, value, upstream" + (", lse_upstream" if whole.lse_upstream is not None else "")
    by_itself_as = "run" if in_batch.forward == by_itself.forward else "run_alone"
    yield from in_batch.run("run", arguments)
    if by_itself_as != "run":
        yield from by_itself.run(by_itself_as, arguments)
    names_of = quote_all(in_batch.results)
    yield f"whole = dict(zip({names_of}, run({arguments})))"
    given = ", ".join(f"{name}{cut}" for name in arguments.split(", "))
    yield wrap(f"alone = dict(zip({names_of}, {by_itself_as}({given})))")
    yield f"for name in {names_of}:"
    yield f"    check_same(name, alone[name], whole[name]{cut})"


def _of_rescaled_data(found: Trace, guards: bool) -> Iterator[str]:
    """Half the data and double the factor, of some groups."""
    own, other = (call.replace(memory=Memory.CONTIGUOUS) for call in found.calls[-2:])
    calling = calling_of(found, own)
    yield from tensor_lines(own, found.drawn)
    for name in (*OWN, "descales"):
        yield tensor(f"other_{name}", getattr(other, name))
    yield from placed_lines(own, found.kernel, guards)
    if found.kernel.dtype != "float64":
        for name in OWN:
            yield f"other_{name} = other_{name}.to({name})"
    yield "other_descales = other_descales.float()"
    yield from calling.function("forward", "query, key, value, descales")
    yield "once = forward(query, key, value, descales)"
    yield "again = forward(other_query, other_key, other_value, other_descales)"
    if len(calling.returns) == 1:
        yield "once, again = (once,), (again,)"
    yield f"for name, x, was in zip({quote_all(calling.returns)}, again, once):"
    yield "    check_same(name, x, was)"


def _hidden_keys(found: Trace, guards: bool) -> Iterator[str]:
    """The same call with other numbers in keys that are hidden: the rows that do not see them are what they were."""
    clean, poisoned = (call.replace(memory=Memory.CONTIGUOUS) for call in found.calls[-3:-1])
    calling = calling_of(found, clean)
    seen = clean.visibility(found.kernel.alignment)
    changed = (poisoned.key != clean.key).any(axis=(0, 1, 3)) | (poisoned.value != clean.value).any(axis=(0, 1, 3))
    at = np.flatnonzero(changed)
    clear = ~seen[..., at].any(axis=-1) & seen.any(axis=-1)
    yield from tensor_lines(clean, found.drawn)
    yield f"hidden = {at.tolist()}  # keys that hold other numbers in the second call"
    yield "other_key, other_value = key.clone(), value.clone()"
    yield tensor("other_key[:, :, hidden]", poisoned.key[:, :, at])
    yield tensor("other_value[:, :, hidden]", poisoned.value[:, :, at])
    yield tensor("clear", clear) + "  # rows that see none of them"
    yield from placed_lines(clean, found.kernel, guards)
    if (found.kernel.dtype, found.kernel.device) != ("float64", "cpu"):
        yield "other_key, other_value = other_key.to(key), other_value.to(value)"
    yield from calling.run(arguments="key, value, query=query")
    yield f"once = dict(zip({quote_all(calling.results)}, run(key, value)))"
    yield f"again = dict(zip({quote_all(calling.results)}, run(other_key, other_value)))"
    rows = {"hidden-keys-change-no-output": "output", "query-gradient": "dq"}
    keys = {"key-gradient": "dk", "value-gradient": "dv"}
    if {*keys} & {*found.falsified}:
        yield f"others = [t for t in range({clean.sizes['T']}) if t not in hidden]"
    for claim in found.falsified:
        if claim in rows:
            name = rows[claim]
            yield f'check_same("{name}", again["{name}"][clear], once["{name}"][clear])'
        elif claim in keys:
            name = keys[claim]
            yield f'check_same("{name}", again["{name}"][:, :, others], once["{name}"][:, :, others])'
        else:
            yield f"for name in {quote_all(one for one in ('dk', 'dv') if one in calling.leaves)}:"
            yield '    assert (again[name][:, :, hidden] == 0).all(), f"{name} of hidden keys is not 0"'


def _parameters(found: Trace, guards: bool) -> Iterator[str]:
    """A parameter that is taken changes the output, or refuses all of some values."""
    kernel = found.kernel
    call = kernel.in_own_numbers(call_to_exercise()).replace(wants="")
    name = of_kind(kernel.accounts, Account.IGNORED)[0]
    calling = calling_of(found, call, further="**given")
    yield from tensor_lines(call, {})
    yield from placed_lines(call, kernel, guards)
    yield "settings = ["
    for value in values_of(name, kernel.parameters[name], call, kernel):
        text = constant(value).parts[0] if hasattr(value, "dtype") else repr(value)
        yield wrap(f"    {text},")
    yield "]"
    yield from calling.function("output_with", "**given")
    yield "before, after = output_with(), []"
    yield "for setting in settings:"
    yield "    try:"
    yield f"        after.append(output_with({name}=setting))"
    yield "    except Exception:  # refused"
    yield "        pass"
    yield f'assert not after or any(not torch.equal(x, before) for x in after), "{name} is taken, and changes nothing"'
