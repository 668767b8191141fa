"""How a kernel is called: names or a decorator tell it, simple calls confirm it, or the suite asks for a decorator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from attention_conformance import attention_kernel
from attention_conformance.kernel.check import verify_kernel
from attention_conformance.kernel.kernel_loader import kernel_named, kernel_of
from attention_conformance.kernel.report import headline
from reference_attention.errors import InvalidInput
from tests.attention_conformance.kernel.signatures import attend
from theorems.command.app import main
from theorems.core.claim import Verdict

ROOT = "1/sqrt(E)"
IN_BHLD = {"layout": "bhld", "causal": "never", "scale": ROOT}


def core(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    return attend(q, k, v, **{"scale": None, **options})[0]


def swapped(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    return core(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), **options).transpose(1, 2)


def square(q: Tensor, k: Tensor) -> None:
    if q.shape[-2] != k.shape[-2]:
        raise ValueError("self-attention only")


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return core(q, k, v, scale=1.0)


def scaled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return core(q, k, v)


def causal_of_equal_lengths(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    square(q, k)
    return core(q, k, v, causal=True)


class Module(torch.nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return core(q, k, v, causal=True, diagonal="bottom")


def with_sm_scale(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool = False, sm_scale: Any = None) -> Tensor:
    return core(q, k, v, causal=is_causal, scale=sm_scale)


def with_softmax_scale(q: Tensor, k: Tensor, v: Tensor, softmax_scale: Any = None, causal: bool = False) -> Tensor:
    return swapped(q, k, v, causal=causal, scale=softmax_scale, diagonal="bottom")


def of_three_axes(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    assert q.dim() == 3
    return torch.softmax(q @ k.mT, dim=-1) @ v


@pytest.mark.parametrize(
    ("kernel", "interface", "fixed_scale", "causal", "says"),
    [
        (plain, "plain", False, False, "interface plain"),
        (scaled, "plain", True, False, "its scale is 1/√E"),
        (of_three_axes, "plain", False, False, "(B·n, T, d)"),
        (causal_of_equal_lengths, "declared", True, True, "told by simple calls: tensors are (B, H, L, E); every call"),
        (Module(), "declared", True, True, "every call is causal"),
        (with_sm_scale, "sdpa", False, True, "interface sdpa"),
        (with_softmax_scale, "flash", False, True, "aligned at the bottom-right"),
    ],
)
def test_what_names_leave_open_is_told_by_simple_calls(
    kernel: Any, interface: str, fixed_scale: bool, causal: bool, says: str
) -> None:
    probed = kernel_of(kernel, "float64")
    assert (probed.interface.name, probed.fixed_scale, "causal" in probed.declares) == (interface, fixed_scale, causal)
    assert says in headline(probed)


class Callable3:
    def __call__(self, a: Tensor, b: Tensor, c: Tensor, hidden: Any = None, cap: float = 0.0) -> Tensor:
        mask = None if hidden is None else ~hidden[:, None, None]
        return swapped(a, b, c, mask=mask, softcap=cap)


def causal_by(a: Tensor, b: Tensor, c: Tensor, masked: bool = False, factor: Any = None, seen: Any = None) -> Tensor:
    return core(a, b, c, causal=masked, scale=factor, mask=seen)


def tripled(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return core(a, b, c, scale=3.0)


DECORATED: list[tuple[Callable[[], Any], dict[str, Any], set[str]]] = [
    (lambda: Callable3(), {"layout": "blhd", "key_padding_mask": "hidden", "softcap": "cap"}, {"softcap"}),
    (lambda: causal_by, {"causal": "masked", "scale": "factor", "mask": "seen"}, {"causal-rectangle", "scale"}),
    (lambda: tripled, {"scale": 3.0}, set()),
    (lambda: causal_of_equal_lengths, {"causal": "always", "lengths": "equal"}, {"causal"}),
    (lambda: Module(), {"causal": "always", "alignment": "bottom-right"}, {"causal-rectangle"}),
]


@pytest.mark.parametrize(("make", "fields", "declares"), DECORATED)
def test_a_decorator_tells_how_a_kernel_is_called(make: Any, fields: dict[str, Any], declares: set[str]) -> None:
    kernel = make()
    told = kernel.__dict__.copy()
    try:
        probed = kernel_of(attention_kernel(**{**IN_BHLD, **fields})(kernel), "float64")
        assert declares <= probed.declares
        assert "told by its decorator" in headline(probed)
        ids = ["kernel-output", "kernel-gradients", *(f"kernel-{name}" for name in declares)]
        results = verify_kernel(probed, statements=ids, examples=6)
        assert {result.verdict for result in results} == {Verdict.UPHELD}, [result.reason for result in results]
    finally:
        vars(kernel).clear()
        vars(kernel).update(told)


def test_a_decorated_kernel_that_is_wrong_in_simple_calls_is_falsified() -> None:
    @attention_kernel(layout="bhld", causal="never", scale=1.0)
    def wrong(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return 0.9 * plain(q, k, v)

    (result,) = verify_kernel(wrong, statements=["kernel-output"], examples=3, dtype="float64")
    assert result.verdict is Verdict.FALSIFIED


def in_other_layout(q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Any = None, causal: bool = False) -> Tensor:
    return core(q, k, v, causal=causal)


def halved(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    square(q, k)
    return core(q, k, v, scale=0.5)


@pytest.mark.parametrize(
    ("kernel", "decorator"),
    [
        (in_other_layout, 'layout=..., causal="causal", scale=..., lengths="any", key_padding_mask="key_padding_mask"'),
        (halved, 'layout=..., causal=..., scale=..., lengths="equal"'),
    ],
)
def test_what_nothing_tells_is_asked_for(kernel: Any, decorator: str) -> None:
    with pytest.raises(InvalidInput) as error:
        kernel_of(kernel, "float64")
    assert f"from attention_conformance import attention_kernel\n\n\n@attention_kernel({decorator})" in str(error.value)


SOURCE = """from attention_conformance import attention_kernel


{decorator}
def kernel(q, k, v{options}):
    return 0.5 * (q @ k.mT).softmax(-1) @ v
"""


@pytest.mark.parametrize(
    ("decorator", "options", "message"),
    [
        ("", "", "@attention_kernel(layout=..., causal=..., scale=..., lengths="),
        ("", ", workspace", "has to be given its parameter 'workspace'"),
        ('@attention_kernel(layout="bdhl", causal="never", scale=1)', "", "layout='bdhl' is not one of bhld, blhd."),
        ('@attention_kernel(layout="bhld", causal=..., scale=1)', "", "causal is still '...'; say the name of a param"),
        (
            '@attention_kernel(layout="bhld", causal="never", scale=-1)',
            "",
            "scale=-1 is not the name of a parameter",
        ),
        ('@attention_kernel(layout="bhld", causal="is_causal", scale=1)', "", "causal='is_causal' is no parameter of"),
        ('@attention_kernel(layout="bhld", causal="never", scale=1, bias="b")', "", "'bias' is no option; the options"),
    ],
)
def test_the_command_ends_with_exit_code_two_and_says_what_to_write(
    decorator: str, options: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "mine.py").write_text(SOURCE.format(decorator=decorator, options=options))
    code = main(["verify", "kernel-output", "--attention", f"{file}:kernel", "--jobs", "1"])
    assert (code, message in capsys.readouterr().err) == (2, True)


def test_what_a_decorator_tells_reaches_the_kernel_s_process(tmp_path: Path) -> None:
    decorator = '@attention_kernel(layout="bhld", causal="never", scale=1.0)'
    (file := tmp_path / "mine.py").write_text(SOURCE.format(decorator=decorator, options=""))
    assert kernel_named(f"{file}:kernel", "float64").interface.name == "declared"
