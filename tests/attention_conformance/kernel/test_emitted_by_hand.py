"""Lines of a test that is written for somebody else's kernel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attention_conformance.claims.agreement import GRADIENTS, OUTPUT
from attention_conformance.kernel.kernel import Kernel
from attention_conformance.kernel.loading import kernel_named
from attention_conformance.kernel.reproducer import LARGEST, reproducer
from attention_conformance.kernel.reproducer_file import describe_tests, file_of
from attention_conformance.kernel.trace import QUANTITIES, Entry, Trace
from attention_conformance.reproduction.calling import Calling
from attention_conformance.reproduction.checks import check_lines
from attention_conformance.reproduction.drawn_numbers import DRAWN, with_drawn_numbers
from attention_conformance.reproduction.textbook import textbook_of
from generators.attention_call import AttentionCall, Memory, State
from generators.attention_calls import Numbers, Sizes, tensors
from theorems.core.claim import Verdict
from theorems.run.registry.lookup import statement_named
from theorems.run.result import Failure, Result


def plain(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return torch.softmax(query @ keys.mT, dim=-1) @ values


def flash(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float = 1.0, return_softmax_lse: bool = False
) -> Any:
    """In (B, L, H, E), with the log-sum-exp."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    logits = softmax_scale * q @ k.mT
    output = (torch.softmax(logits, dim=-1) @ v).transpose(1, 2)
    return (output, torch.logsumexp(logits, dim=-1)) if return_softmax_lse else output


def call(T: int = 3, **further: Any) -> AttentionCall:
    return tensors(Sizes(B=1, H=2, G=2, L=2, T=T, E=2, M=2), Numbers.NORMAL, seed=0).replace(**further)


def kernel_of(function: str) -> Kernel:
    return kernel_named(f"{__name__}:{function}", "float64")


def found(function: str, given: AttentionCall, *entries: Entry, falsified: tuple[str, ...] = ()) -> Trace:
    kernel = kernel_of(function)
    claims = falsified or tuple(x.claim for x in entries)
    return Trace("output", kernel, (given,), (kernel.answer(given),), claims, entries)


def forward(function: str, given: AttentionCall) -> Sequence[str]:
    return Calling(kernel_of(function), given).forward


def entry(claim: str, apart: float, allowed: list[float]) -> Entry:
    due = np.full(len(allowed), 0.25)
    return Entry(claim, call(), QUANTITIES[claim], due + apart, due, np.array(allowed))


def written(trace: Trace, line: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The test, on a kernel that is right: it is not asked whether it fails."""
    monkeypatch.setattr("attention_conformance.kernel.reproducer.why_not", lambda *given: "")
    return reproducer(trace, line)[0]


def test_a_call_that_nobody_can_read_is_not_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = entry(OUTPUT, 1.0, [1e-9])
    assert written(found("plain", call(), wrong), "a line", monkeypatch).startswith("def test_output():\n")
    large = found("plain", call(T=LARGEST // 4), wrong)
    assert reproducer(large, "a line") == ("", "the call has 100,016 numbers, more than 50,000")


def test_a_test_that_passes_is_none() -> None:
    given = call()
    right = Entry(
        OUTPUT, given, QUANTITIES[OUTPUT], *(np.zeros((1, 2, 2, 2)) for _ in range(2)), np.full((1, 2, 2, 2), 9.0)
    )
    assert reproducer(found("plain", given, right), "a line") == (
        "",
        "written as a test the call passes: what the kernel returns depends on what was called before",
    )


def test_nor_is_one_whose_formula_is_another() -> None:
    wrong = Entry(OUTPUT, call(), QUANTITIES[OUTPUT], *(np.full((1, 2, 2, 2), x) for x in (0.0, 7.0, 1e-9)))
    _, why = reproducer(found("plain", call(), wrong), "a line")
    assert why == "its formula of output is not this suite's, which is a fault of ours"


def test_what_cannot_be_imported_is_said() -> None:
    handed_over = found("plain", call(), entry(OUTPUT, 1.0, [1e-9]))
    for source, why in (("", "has to import it by MODULE:CALLABLE"), ("jax:a:b", "takes arrays of jax")):
        text, said = reproducer(handed_over.replace(kernel=handed_over.kernel.replace(source=source)), "a line")
        assert text == ""
        assert why in said


@pytest.mark.parametrize(("words", "lines"), [(3, 1), (40, 3)])
def test_the_line_is_the_docstring(words: int, lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    line = " ".join(f"word{k}" for k in range(words))
    text = written(found("plain", call(), entry(OUTPUT, 1.0, [1e-9])), line, monkeypatch)
    _, doc, *_ = text.split('"""')
    assert text.split("\n")[1].startswith('    """word0 word1')
    assert doc.split() == [f"word{k}" for k in range(words)]
    assert len(doc.rstrip().splitlines()) == lines


@pytest.mark.parametrize("asked", [True, False])
def test_an_output_in_other_axes_is_brought_into_ours(asked: bool) -> None:
    lines = forward("flash", call(scale=1.0, log_sum_exp=asked))
    written = "kernel(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), softmax_scale=1.0"
    assert written in " ".join(" ".join(lines).split())
    if asked:
        assert lines[0].startswith("found = kernel(")
        assert lines[1:] == ["lse = found[1]", "output = found[0].transpose(1, 2)"]
    else:
        assert lines[-1].endswith(".transpose(1, 2)")
    assert forward("plain", call()) == ["output = kernel(query, key, value)"]


def test_what_is_allowed_is_short_where_that_tells_as_well() -> None:
    """The most of all entries, where that tells; else a few digits of each; said once what it is."""
    first, other = entry(OUTPUT, 1e-3, [1.23456e-9] * 2), entry(GRADIENTS[0], 1e-3, [1.23456e-9, 2.5e-9])
    both = found("plain", call(), first, other)
    said = list(check_lines(both, first))
    assert said[0].startswith("# Twice what rounding")
    assert said[0].endswith("may lose, at most.")
    assert said[1] == "allowed = 1.24e-09"
    assert said[2].startswith('check("output", output, due["output"], allowed)')
    again = list(check_lines(both, other))
    assert again[0] == "allowed = 2.52e-09"
    # The most is more than the difference.
    some = entry(OUTPUT, 2e-9, [1.23456e-9, 2.5e-9])
    said = list(check_lines(found("plain", call(), some), some))
    assert said[0].endswith("entry by entry.")
    assert said[1].startswith("allowed = numbers([1.24e-09, 2.52e-09], 2)")
    # 1.23456e-9 is less than the difference, and its short form is not.
    near = entry(OUTPUT, 1.236e-9, [1.23456e-9])
    assert list(check_lines(found("plain", call(), near), near))[1] == "allowed = 1.23456e-09"


def mean_of_all(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: Any = None, is_causal: bool = False
) -> torch.Tensor:
    """Causal at the bottom right; a row that sees no key is the mean of all values."""
    logits = query @ key.mT
    L, T = logits.shape[-2:]
    hidden = torch.ones(L, T, dtype=torch.bool).triu(T - L + 1)
    return torch.softmax(logits.masked_fill(hidden, -1e300) if is_causal else logits, dim=-1) @ value


def test_rows_that_see_no_key_are_named_where_no_mask_is_given() -> None:
    given = tensors(Sizes(B=1, H=1, G=1, L=3, T=2, E=2, M=2), Numbers.NORMAL, seed=0).replace(causal=True)
    wrong = found("mean_of_all", given, falsified=("rows-that-see-nothing",))
    text, _ = reproducer(wrong.replace(capability="causal-rectangle"), "a line")
    assert "empty = torch.tensor([[[True, False, False]]])" in text
    made: dict[str, Any] = {}
    exec(file_of(wrong.kernel.source, [text], "test.py"), made)
    with pytest.raises(AssertionError, match="neither all 0 nor all NaN"):
        made["test_causal_rectangle"]()


def test_what_has_no_test_is_said_in_the_report_and_in_json() -> None:
    failure = Failure(Verdict.FALSIFIED, "a claim fails", "{}", no_test="the call has 60,000 numbers, more than 50,000")
    results = [
        Result("kernel-output", "a", {Verdict.FALSIFIED: 1}, failure=failure),
        Result("lemma-3", "b", {Verdict.FALSIFIED: 1}, failure=Failure(Verdict.FALSIFIED, "a claim fails", "{}")),
    ]
    assert describe_tests(results, Path("test_mine.py")).splitlines() == [
        "test_mine.py: not written.",
        "no test of kernel-output: the call has 60,000 numbers, more than 50,000.",
        "no test of lemma-3: a statement of the paper, of which a test would need this package.",
    ]
    assert results[0].as_json()["no_test"] == failure.no_test
    assert "no_test" not in results[1].as_json()


@pytest.mark.parametrize("memory", [Memory.CONTIGUOUS, Memory.BROADCAST, Memory.HEADS])
def test_drawn_numbers_are_those_that_their_lines_make(memory: Memory) -> None:
    given = call(T=5).replace(memory=memory)
    other, lines = with_drawn_numbers(given)
    assert list(lines) == ["query", "key", "value", "upstream"]
    made: dict[str, Any] = {"torch": torch}
    exec(DRAWN + "\n".join(lines.values()), made)
    for name in lines:
        assert np.array_equal(np.asarray(made[name]), getattr(other, name))
        assert getattr(other, name).shape == getattr(given, name).shape


def test_nothing_is_drawn_where_numbers_have_to_be_what_they_are() -> None:
    assert with_drawn_numbers(call().replace(exact=True))[1] == {}
    assert with_drawn_numbers(call().replace(dropout=0.5))[1] == {}


@pytest.mark.parametrize("options", [(), ("scale",), ("bias", "visible", "causal", "window", "softcap", "sinks")])
def test_the_textbook_holds_what_is_asked_for_alone(options: tuple[str, ...]) -> None:
    asked = ", ".join(f"{name}=1" for name in options)
    text = textbook_of([f"textbook(query, key, value, upstream, {asked})"])
    for name in ("bias", "visible", "window", "softcap", "sinks", "mask_mod", "kept"):
        assert (name in text) is (name in options)
    compile(text, "textbook.py", "exec")


def test_a_call_that_is_wrong_once_in_a_thousand_times_is_made_as_often() -> None:
    under_test = kernel_named(
        "tests.attention_conformance.claims.forgetful_kernels:one_in_a_thousand"
    ).as_implementation()
    said = under_test.explained(statement_named("kernel-repeated-calls"), call().replace(state=State.MANY), under_test)
    assert "for number in range(3000):" in said.test, said.no_test


@pytest.mark.parametrize("fault", ["mask_of_the_call_before", "sizes_of_inference"])
def test_a_call_of_the_same_sizes_is_made_before(fault: str) -> None:
    under_test = kernel_named(
        f"tests.attention_conformance.claims.held_out_faults:{fault}", "float64"
    ).as_implementation()
    given = call().replace(state=State.AFTER_ANOTHER)
    said = under_test.explained(statement_named("kernel-repeated-calls"), given, under_test)
    assert "before(*(-x.detach().flip(2) for x in (query, key, value)))" in said.test, said.no_test
    assert "visible = torch.ones(2, 3, dtype=torch.bool).tril()" in said.test
    assert said.test.count("def run(") == 1
