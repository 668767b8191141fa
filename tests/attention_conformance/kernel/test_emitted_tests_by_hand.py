"""Lines of the tests that ``--emit-test`` writes for a user's kernel, on small calls written by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attention_conformance.calls.attention_call import AttentionCall, Memory, State
from attention_conformance.calls.sizes_and_numbers import Numbers, Sizes, tensors
from attention_conformance.claims.agreement import GRADIENTS, OUTPUT
from attention_conformance.kernel.kernel import Kernel
from attention_conformance.kernel.kernel_loader import kernel_named
from attention_conformance.kernel.reproducer import LARGEST, functions_of, reproducer
from attention_conformance.kernel.reproducer_file import describe_tests, file_of
from attention_conformance.kernel.trace import QUANTITIES, Entry, Trace
from attention_conformance.reproduction import printed_functions
from attention_conformance.reproduction.call_source import Calling
from attention_conformance.reproduction.checks import check_lines
from attention_conformance.reproduction.python_text import NotWritten, indent
from attention_conformance.reproduction.recorder import Recorder
from attention_conformance.reproduction.tensors import with_drawn_numbers
from theorems.core.claim import Verdict
from theorems.run.registry.lookup import statement_named
from theorems.run.result import Failure, Result


def plain(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return torch.softmax(query @ keys.mT, dim=-1) @ values


def flash(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float = 1.0, return_softmax_lse: bool = False
) -> Any:
    """Return attention on tensors (B, L, H, E) and, on request, the log-sum-exp."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    logits = softmax_scale * q @ k.mT
    output = (torch.softmax(logits, dim=-1) @ v).transpose(1, 2)
    return (output, torch.logsumexp(logits, dim=-1)) if return_softmax_lse else output


def call(T: int = 3, **further: Any) -> AttentionCall:
    return tensors(Sizes(B=1, H=2, G=2, L=2, T=T, E=2, M=2), Numbers.NORMAL, seed=0).replace(**further)


def kernel_of(function: str) -> Kernel:
    return kernel_named(f"{__name__}:{function}", "float64")


def trace_of(function: str, given: AttentionCall, *entries: Entry, falsified: tuple[str, ...] = ()) -> Trace:
    kernel = kernel_of(function)
    claims = falsified or tuple(x.claim for x in entries)
    return Trace("output", kernel, (given,), (kernel.answer(given),), claims, entries)


def forward(function: str, given: AttentionCall) -> Sequence[str]:
    return Calling(kernel_of(function), given).forward


def entry(claim: str, apart: float, allowed: list[float]) -> Entry:
    due = np.full(len(allowed), 0.25)
    return Entry(claim, call(), QUANTITIES[claim], due + apart, due, np.array(allowed))


def text_of_test(trace: Trace, line: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the test written for a recorded call, without first checking that the test fails on the kernel."""
    monkeypatch.setattr("attention_conformance.kernel.reproducer.why_not", lambda *arguments: "")
    return reproducer(trace, line)[0]


def test_a_call_with_too_many_numbers_has_no_test(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = entry(OUTPUT, 1.0, [1e-9])
    assert text_of_test(trace_of("plain", call(), wrong), "a line", monkeypatch).startswith("def test_output():\n")
    large = trace_of("plain", call(T=LARGEST // 4), wrong)
    assert reproducer(large, "a line") == ("", "the call has 100,016 numbers, more than 50,000")


def test_a_test_that_passes_is_not_written() -> None:
    given = call()
    right = Entry(
        OUTPUT, given, QUANTITIES[OUTPUT], *(np.zeros((1, 2, 2, 2)) for _ in range(2)), np.full((1, 2, 2, 2), 9.0)
    )
    assert reproducer(trace_of("plain", given, right), "a line") == (
        "",
        "saved as a test, the call passes: the kernel's results depend on earlier calls",
    )


def test_a_test_whose_formula_disagrees_with_the_suite_is_not_written() -> None:
    wrong = Entry(OUTPUT, call(), QUANTITIES[OUTPUT], *(np.full((1, 2, 2, 2), x) for x in (0.0, 7.0, 1e-9)))
    _, why = reproducer(trace_of("plain", call(), wrong), "a line")
    assert why == "the test's formula of output is not this suite's, which is a fault of this suite"


def test_a_kernel_that_cannot_be_imported_gets_a_reason_instead_of_a_test() -> None:
    handed_over = trace_of("plain", call(), entry(OUTPUT, 1.0, [1e-9]))
    for source, why in (("", "has to import it by MODULE:CALLABLE"), ("jax:a:b", "takes arrays of jax")):
        text, why_not = reproducer(handed_over.replace(kernel=handed_over.kernel.replace(source=source)), "a line")
        assert text == ""
        assert why in why_not


@pytest.mark.parametrize(("words", "lines"), [(3, 1), (40, 3)])
def test_the_diagnosis_becomes_the_docstring_of_the_written_test(
    words: int, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = " ".join(f"word{k}" for k in range(words))
    text = text_of_test(trace_of("plain", call(), entry(OUTPUT, 1.0, [1e-9])), line, monkeypatch)
    _, doc, *_ = text.split('"""')
    assert text.split("\n")[1].startswith('    """word0 word1')
    assert doc.split() == [f"word{k}" for k in range(words)]
    assert len(doc.rstrip().splitlines()) == lines


@pytest.mark.parametrize("asked", [True, False])
def test_an_output_with_other_axes_is_transposed(asked: bool) -> None:
    lines = forward("flash", call(scale=1.0, log_sum_exp=asked))
    written = "kernel(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), softmax_scale=1.0"
    assert written in " ".join(" ".join(lines).split())
    if asked:
        assert lines[0].startswith("found = kernel(")
        assert lines[-1] == "return dict(output=found[0].transpose(1, 2), lse=found[1])"
    else:
        assert lines[0].startswith("return dict(output=kernel(")
        assert lines[0].endswith(".transpose(1, 2))")
    assert forward("plain", call()) == ["return dict(output=kernel(query, key, value))"]


def numbered(*shape: int) -> torch.Tensor:
    return torch.arange(float(np.prod(shape)), dtype=torch.float64).reshape(shape)


def recorded_lines(make: Callable[..., Any], **named: torch.Tensor) -> list[str]:
    """Return the lines recorded while ``make`` converts tensors and calls a kernel that adds its arguments."""
    recorder = Recorder(lambda *arguments, **options: sum(arguments))
    for name, x in named.items():
        recorder.name(name, x)
    with recorder:
        made = make(recorder.call, *named.values())
    lines = recorder.lines({"output": made})
    text = f"def attend({', '.join(named)}):\n{indent(lines)}"
    space: dict[str, Any] = {**vars(printed_functions), "kernel": recorder.kernel}
    exec(text, space)
    assert torch.equal(space["attend"](*named.values())["output"], made)
    return lines


X, Y, SEEN = numbered(2, 3, 4, 5), numbered(2, 3, 4), torch.tensor([[True, False], [True, True]])
PLACES = torch.tensor([1, 0])


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda kernel, x: kernel(x), "kernel(x)"),
        (lambda kernel, x: kernel(x.transpose(1, 2)).mT, "kernel(x.transpose(1, 2)).mT"),
        (lambda kernel, x: kernel(x.contiguous().to(x.dtype).reshape(x.shape)), "kernel(x)"),
        (lambda kernel, x: kernel(x[..., 1:3], x[:, :, :, :2]), "kernel(x[..., 1:3], x[:, :, :, :2])"),
        (lambda kernel, x: kernel(x, PLACES[:, None, None, None]), "kernel(x, torch.tensor([[[[1]]], [[[0]]]]))"),
        (lambda kernel, x: kernel((x + 1) * 2 / 3 @ x.mT), "kernel(((((x + 1) * 2) / 3) @ x.mT))"),
        (lambda kernel, x: kernel(*x[:1], x.split(1)[1]), "kernel(x[:1].unbind(0)[0], x.split(1, dim=0)[1])"),
        (lambda kernel, x: kernel(x.clamp(max=2.0)).masked_fill(x > 1, -torch.inf), "masked_fill((x > 1), -inf)"),
        (lambda kernel, x: kernel(torch.nn.functional.pad(x, (0, 1))), "functional.pad(x, (0, 1), mode='constant'))"),
        (lambda kernel, x: kernel(x.new_zeros(3, 4).index_put((PLACES,), x[0, 0, 0, :4])), ", x[0, 0, 0, :4]))"),
    ],
)  # fmt: skip
def test_a_recorded_call_becomes_one_expression(make: Callable[..., Any], line: str) -> None:
    (last,) = recorded_lines(make, x=X)
    assert last.startswith("return dict(output=kernel(")
    assert last.endswith(f"{line})")


def test_a_value_used_twice_gets_its_own_line() -> None:
    def twice(kernel: Any, x: torch.Tensor) -> torch.Tensor:
        cut = x.exp()
        return torch.cat([kernel(cut), kernel(cut, x)])

    assert recorded_lines(twice, x=Y) == ["x0 = x.exp()", "return dict(output=torch.cat([kernel(x0), kernel(x0, x)]))"]

    def written_to(kernel: Any, x: torch.Tensor) -> torch.Tensor:
        place = torch.zeros_like(x)
        kernel(x, place)
        return place[0]

    assert recorded_lines(written_to, x=Y) == ["x0 = torch.zeros_like(x)", "kernel(x, x0)", "return dict(output=x0[0])"]


def test_score_mod_and_mask_mod_are_written_out_as_functions() -> None:
    def make(kernel: Any, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        whole = seen.expand(3, 2, 2)

        def score_mod(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            return 2.0 * torch.tanh(score / 2.0) + x[b, h] * (j - i).abs()

        def mask_mod(b: Any, h: Any, i: Any, j: Any) -> Any:
            return (i >= j) & whole[b, i, j]

        return kernel(x, score_mod=score_mod, mask_mod=mask_mod)

    lines = recorded_lines(make, x=Y, seen=SEEN)
    assert lines[0].strip().splitlines() == [
        "def score_mod_at(score, b, h, i, j):",
        "    return ((torch.tanh((score / 2.0)) * 2.0) + (x[b, h] * (j - i).abs()))",
    ]
    assert "    return ((i >= j) & seen.expand(3, 2, 2)[b, i, j])" in lines[1]
    assert lines[2] == "return dict(output=kernel(x, score_mod=score_mod_at, mask_mod=mask_mod_at))"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda kernel, x: kernel(x, object()), "an argument of type object"),
        (lambda kernel, x: kernel(x) and PLACES, "what the interface makes of what the kernel returned"),
        (lambda kernel, x: kernel(x.exp().add_(1)), "a tensor that the interface changes"),
    ],
)
def test_calls_that_cannot_be_recorded_give_their_reason(make: Callable[..., Any], why: str) -> None:
    recorder = Recorder(lambda *arguments: torch.tensor(True))
    recorder.name("x", X)
    with recorder:
        made = make(recorder.call, X)
    with pytest.raises(NotWritten, match=why):
        recorder.lines({"output": made})


def test_a_tensor_with_strides_has_nan_around_its_numbers() -> None:
    x = torch.arange(6.0).reshape(1, 2, 3)
    for strides, offset in (((12, 6, 2), 0), ((12, 1, 2), 1), ((6, 3, 1), 0)):
        result = printed_functions.strided(x, *strides, offset=offset)
        assert torch.equal(result, x)
        assert (result.stride(), result.storage_offset()) == (strides, 64 + offset)
        memory = printed_functions.memory_of(result)
        assert memory.isnan().sum() == len(memory) - 6
    expanded = printed_functions.strided(x.expand(4, 2, 3), 0, 3, 1)
    assert printed_functions.own_of(expanded).shape == (1, 2, 3)


def test_the_allowed_error_is_printed_as_short_as_possible() -> None:
    """The allowed error is one number, the largest of all entries, if the difference exceeds this number; otherwise one
    number for each entry. Only the first check in a test has a comment that explains the allowed error.
    """
    first, other = entry(OUTPUT, 1e-3, [1.23456e-9] * 2), entry(GRADIENTS[0], 1e-3, [1.23456e-9, 2.5e-9])
    both = trace_of("plain", call(), first, other)
    messages = list(check_lines(both, first))
    assert messages[0].startswith("# Twice the rounding error")
    assert messages[0].endswith(".")
    assert messages[1] == "allowed = 1.24e-09"
    assert messages[2] == 'check("output", found["output"], due["output"], allowed)'
    again = list(check_lines(both, other))
    assert again[0] == "allowed = 2.52e-09"
    # The difference, 2e-9, does not exceed the largest allowed error, so each entry has its own.
    some = entry(OUTPUT, 2e-9, [1.23456e-9, 2.5e-9])
    messages = list(check_lines(trace_of("plain", call(), some), some))
    assert messages[1].startswith("allowed = numbers([1.24e-09, 2.52e-09], 2)")
    # The difference exceeds the allowed error, but not 1.24e-9, the allowed error rounded to three digits.
    near = entry(OUTPUT, 1.236e-9, [1.23456e-9])
    assert list(check_lines(trace_of("plain", call(), near), near))[1] == "allowed = 1.23456e-09"


def mean_of_all(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: Any = None, is_causal: bool = False
) -> torch.Tensor:
    """Return attention, if causal with the last row aligned with the last key; rows without visible keys are means."""
    logits = query @ key.mT
    L, T = logits.shape[-2:]
    hidden = torch.ones(L, T, dtype=torch.bool).triu(T - L + 1)
    return torch.softmax(logits.masked_fill(hidden, -1e300) if is_causal else logits, dim=-1) @ value


def test_rows_that_see_no_key_are_named_where_no_mask_is_given() -> None:
    given = tensors(Sizes(B=1, H=1, G=1, L=3, T=2, E=2, M=2), Numbers.NORMAL, seed=0).replace(causal=True)
    wrong = trace_of("mean_of_all", given, falsified=("rows-that-see-nothing",))
    text, _ = reproducer(wrong.replace(capability="causal-rectangle"), "a line")
    assert "empty = torch.tensor([[[True, False, False]]])" in text
    made: dict[str, Any] = {}
    exec(file_of(wrong.kernel.source, [text], "test.py"), made)
    with pytest.raises(AssertionError, match="neither all 0 nor all NaN"):
        made["test_causal_rectangle"]()


def test_report_and_json_give_the_reason_for_a_missing_test() -> None:
    failure = Failure(Verdict.FALSIFIED, "a claim fails", "{}", no_test="the call has 60,000 numbers, more than 50,000")
    results = [
        Result("kernel-output", "a", {Verdict.FALSIFIED: 1}, failure=failure),
        Result("lemma-3", "b", {Verdict.FALSIFIED: 1}, failure=Failure(Verdict.FALSIFIED, "a claim fails", "{}")),
    ]
    assert describe_tests(results, Path("test_mine.py")).splitlines() == [
        "test_mine.py: not written.",
        "no test of kernel-output: the call has 60,000 numbers, more than 50,000.",
        "no test of lemma-3: a statement of the paper, whose test would need this package.",
    ]
    assert results[0].as_json()["no_test"] == failure.no_test
    assert "no_test" not in results[1].as_json()


@pytest.mark.parametrize("memory", [Memory.CONTIGUOUS, Memory.BROADCAST, Memory.HEADS])
def test_the_printed_lines_draw_the_same_numbers_as_the_suite(memory: Memory) -> None:
    given = call(T=5).replace(memory=memory)
    other, lines = with_drawn_numbers(given)
    assert list(lines) == ["query", "key", "value", "upstream"]
    made: dict[str, Any] = dict(vars(printed_functions))
    exec("\n".join(lines.values()), made)
    for name in lines:
        assert np.array_equal(np.asarray(made[name]), getattr(other, name))
        assert getattr(other, name).shape == getattr(given, name).shape


def test_tensors_of_calls_with_exact_numbers_or_dropout_are_not_drawn_at_random() -> None:
    assert with_drawn_numbers(call().replace(exact=True))[1] == {}
    assert with_drawn_numbers(call().replace(dropout=0.5))[1] == {}


def test_a_file_has_the_functions_that_its_tests_call() -> None:
    few, many = functions_of(["check_same(name, x, y)"]), functions_of(["due = textbook(query, key, value, upstream)"])
    assert "def check_same(" in few
    assert "def textbook(" not in few
    assert "def textbook(" in many
    assert "def attention(" in many  # called by the function textbook
    assert "type: ignore" not in many


def test_the_test_of_a_rare_failure_makes_thousands_of_calls() -> None:
    under_test = kernel_named(
        "tests.attention_conformance.claims.forgetful_kernels:one_in_a_thousand"
    ).as_implementation()
    explanation = under_test.explain(statement_named("kernel-repeated-calls"), call().replace(state=State.MANY))
    assert "for number in range(3000):" in explanation.test, explanation.no_test


@pytest.mark.parametrize("fault", ["mask_of_the_call_before", "sizes_of_inference"])
def test_the_test_of_a_failure_that_needs_an_earlier_call_makes_that_call(fault: str) -> None:
    under_test = kernel_named(
        f"tests.attention_conformance.claims.held_out_faults:{fault}", "float64"
    ).as_implementation()
    given = call().replace(state=State.AFTER_ANOTHER)
    explanation = under_test.explain(statement_named("kernel-repeated-calls"), given)
    assert 'run(before, *(-x.flip(2) for x in (query, key, value)), wants="")' in explanation.test, explanation.no_test
    assert "visible = torch.ones(2, 3).bool().tril()" in explanation.test
    assert explanation.test.count("def attend(") == 1
