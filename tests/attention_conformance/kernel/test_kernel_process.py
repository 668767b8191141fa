"""A kernel in its own process: it cannot reach the process that judges it, and all that it sends is read as data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from attention_conformance.calls.attention_call import AttentionCall, Memory, State
from attention_conformance.calls.sizes_and_numbers import Numbers, Sizes, tensors
from attention_conformance.claims.call_claims import examine
from attention_conformance.claims.trials import Trials
from attention_conformance.kernel.kernel import Kernel
from attention_conformance.kernel.kernel_loader import kernel_named, kernel_of
from attention_conformance.kernel_process.messages import Answer, Bytes, NotAnAnswer
from attention_conformance.kernel_process.process import KernelProcess
from attention_conformance.kernel_process.remote_kernel import RemoteKernel
from examples.real_faults import reward_hacks
from tests.attention_conformance.claims.failing_calls import falsified_by
from theorems.core.claim import Verdict

FILE = "examples.real_faults.reward_hacks"
SDPA = "torch.nn.functional:scaled_dot_product_attention"


class Ended(BaseException):
    """The exception of these tests for the end of a kernel's process."""


def exit_with(code: int) -> Any:
    raise Ended(code)


@contextmanager
def elsewhere(source: str) -> Iterator[Kernel]:
    """Yield the kernel MODULE:CALLABLE in its own process, with the parameters that this process reports."""
    process = KernelProcess(exit_with)
    try:
        call = RemoteKernel(source, process=process)
        yield Kernel(call, source, source, parameters=call.parameters)
    finally:
        process.close()


def plain_call(state: State = State.ONCE, T: int = 40) -> AttentionCall:
    return tensors(Sizes(B=2, H=2, G=2, L=3, T=T, E=8, M=8), Numbers.NORMAL, 0).replace(state=state)


def verdicts(kernel: Kernel, call: AttentionCall) -> set[Verdict]:
    return {claim.verdict for _, claim in examine(call, kernel.as_implementation())}


@pytest.mark.parametrize(
    "state", [State.ONCE, State.REPLAYED, State.INTERLEAVED, pytest.param(State.COMPILED, marks=pytest.mark.compiler)]
)
def test_a_right_kernel_in_its_own_process_is_upheld_with_its_gradients(state: State) -> None:
    with elsewhere(f"{FILE}:right") as kernel:
        claims = list(examine(plain_call(state, T=8), kernel.as_implementation()))
    assert {claim.verdict for _, claim in claims} == {Verdict.UPHELD}
    assert {"query-gradient", "key-gradient", "value-gradient"} <= {claim.name for _, claim in claims}


FALSIFIED = {
    "comparison_patched": State.ONCE,
    "expected_found": State.ONCE,
    "remembered": State.REPLAYED,
    "small_alone": State.ONCE,
    "lazy": State.ONCE,
    "softmax_patched": State.ONCE,
    "earlier_written": State.INTERLEAVED,
    "inputs_emptied": State.ONCE,
    "later": State.ONCE,
}


@pytest.mark.parametrize("name", FALSIFIED)
def test_a_kernel_written_to_cheat_is_falsified(name: str) -> None:
    with elsewhere(f"{FILE}:{name}") as kernel:
        assert Verdict.FALSIFIED in verdicts(kernel, plain_call(FALSIFIED[name]))


def test_a_kernel_that_knows_the_calls_of_a_seed_is_falsified_at_another(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernel_of(reward_hacks.right, "float64").replace(call=reward_hacks.known_calls_alone)
    known, fresh = (Trials(kernel.as_implementation(), seed, strength=2) for seed in (0, 20261128))
    numbers = [*known.cover()][-20:]
    queries = [kernel.in_own_numbers(known._build(known._plan(number), number)).query for number in numbers]
    plain = [number for number in numbers if known._plan(number)["state"] == State.ONCE]
    monkeypatch.setattr(reward_hacks, "KNOWN", {float(np.max(query)) for query in queries})
    assert not any(falsified_by(known.at(number)) for number in plain)
    assert any(falsified_by(fresh.at(number)) for number in plain)


def test_a_kernel_that_ends_its_process_gives_no_answer() -> None:
    with elsewhere(f"{FILE}:ends_early") as kernel, pytest.raises(Ended, match="0"):
        verdicts(kernel, plain_call())


def test_a_forged_message_is_not_accepted_as_an_answer() -> None:
    with elsewhere(f"{FILE}:forged_message") as kernel, pytest.raises((NotAnAnswer, Ended)):
        verdicts(kernel, plain_call())


def test_answers_equal_those_of_the_kernel_in_this_process_bit_for_bit() -> None:
    call = plain_call().replace(memory=Memory.SLICED, placed="qkv")
    here = kernel_named(SDPA, "float64").replace(alignment=Kernel(len, "").alignment)
    process = KernelProcess(exit_with)
    try:
        there = here.replace(call=RemoteKernel(SDPA, process=process))
        for state in (State.ONCE, State.OVERWRITTEN, State.SECOND_BACKWARD, State.CREATE_GRAPH, State.INFERENCE):
            own, theirs = (kernel.answer(call.replace(state=state)) for kernel in (here, there))
            for name in ("output", "query_gradient", "key_gradient", "value_gradient"):
                np.testing.assert_array_equal(getattr(own, name), getattr(theirs, name))
            assert own.changed == theirs.changed == ()
    finally:
        process.close()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"x": NaN}',
        b'{"x": ["float64", [3], true, 0]}',
        b'{"x": ["object", [1], true, 0]}',
        b'{"x": ["float64", [-1], true, 0]}',
        b'{"x": ["float64", [1], 1, 0]}',
        b'{"x": ["float64", [1], true, 1]}',
        b'{"x": ["float64", [1], true, -1]}',
        b'{"x": "float64"}',
    ],
)
def test_a_malformed_answer_is_refused(content: bytes) -> None:
    with pytest.raises(NotAnAnswer):
        _read_tensor(content)


def _read_tensor(content: bytes) -> None:
    answer = Answer(content, [Bytes(8)])
    answer.tensor(answer.field("x"))
