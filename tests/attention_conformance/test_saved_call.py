"""Failing calls as .npz files, ``check_call``, and the script that needs only torch and NumPy."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attention_conformance import check_call
from attention_conformance.call_with_torch_alone import check
from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.calls.call_text import npz_of
from attention_conformance.calls.sizes_and_numbers import Numbers, Sizes, tensors
from examples.real_faults.attention import tiled
from examples.real_faults.backward import backward_other_corner
from reference_attention.errors import InvalidInput
from tests.places import ROOT

SDPA = torch.nn.functional.scaled_dot_product_attention
CALL = tensors(Sizes(B=1, H=2, G=2, L=3, T=5, E=4, M=4), Numbers.NORMAL, seed=0)
GROUPED = tensors(Sizes(B=2, H=4, G=2, L=3, T=5, E=4, M=4), Numbers.NORMAL, seed=1)
SEEN = np.array([[1, 0, 0, 1, 0], [1, 1, 0, 0, 0], [0, 1, 1, 1, 1]], dtype=bool)


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Path]:
    def save(call: AttentionCall, capability: str = "output", dtype: str = "float64") -> Path:
        file = tmp_path / f"{capability}.npz"
        file.write_bytes(npz_of(call, case_of=f"kernel-{capability}", claim="a claim", kernel_dtype=dtype))
        return file

    return save


def fails(kernel: Any, file: Path, start: str, end: str = "") -> None:
    with pytest.raises(AssertionError, match=f"^{re.escape(start)}.*{re.escape(end)}$"):
        check_call(kernel, file)


def test_a_wrong_kernel_fails_with_the_sentence_of_verify_and_a_right_one_passes(saved: Callable[..., Path]) -> None:
    cause = "dK, dV likewise; perhaps the diagonal for L ≠ T is where it would be for L = T."
    file = saved(CALL.replace(causal=True), "causal-rectangle")
    fails(backward_other_corner, file, "kernel-causal-rectangle: dQ at (b, h, l, e) = (", cause)
    check_call(tiled, file)
    captured = file.with_name("captured.npz")
    np.savez(captured, query=CALL.query, key=CALL.key, value=CALL.value, is_causal=True)
    check_call(SDPA, captured)
    fails(lambda query, key, value, is_causal=False: SDPA(query, key, value), captured, "kernel-output: output at")


def test_a_kernel_is_called_in_the_format_that_failed_and_has_to_take_the_call(saved: Callable[..., Path]) -> None:
    def kernel(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        if query.shape[1] == 4:
            raise ValueError("four heads")
        return SDPA(query, key, value, scale=1.0) * (1.5 if query.dtype == torch.bfloat16 else 1)

    check_call(kernel, saved(CALL))
    fails(kernel, saved(CALL, "bfloat16", "bfloat16"), "kernel-bfloat16: output at")
    fails(kernel, saved(CALL, dtype="bfloat16"), "kernel-output: output at")
    fails(kernel, saved(CALL.replace(causal=True), "causal"), "kernel-causal: the kernel has no parameter")
    fails(kernel, saved(GROUPED), "kernel-output: the kernel refuses the call: ", "four heads.")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda content: content[:900], "call.npz: is damaged or no .npz file"),
        (lambda content: content.replace(CALL.key.tobytes()[:8], bytes(8)), "call.npz: key is damaged"),
        (lambda _: npz_of(CALL.replace(key=CALL.key[..., :3]), case_of="kernel-output"), "call.npz: key: shape"),
        (lambda _: npz_of(CALL, case_of="lemma-3"), "call.npz: case_of: 'lemma-3' is no capability of kernels"),
    ],
)
def test_a_damaged_file_is_refused_in_one_sentence(damage: Any, says: str, tmp_path: Path) -> None:
    (file := tmp_path / "call.npz").write_bytes(damage(npz_of(CALL, case_of="kernel-output")))
    with pytest.raises(InvalidInput) as refused:
        check_call(SDPA, file)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_check_call_imports_no_hypothesis_and_the_script_not_this_package(saved: Callable[..., Path]) -> None:
    code = "import sys, torch; from attention_conformance import check_call\n"
    code += f"check_call(torch.nn.functional.scaled_dot_product_attention, {str(saved(CALL))!r})\n"
    code += "assert not {'hypothesis', 'scipy', 'theorems.core.statement', 'theorems.token_selection'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    script = [check.__code__.co_filename, "torch.nn.functional:scaled_dot_product_attention", str(saved(CALL))]
    code = f"import runpy, sys; sys.argv = {script}; runpy.run_path(sys.argv[0], run_name='__main__')\n"
    code += "assert not {'attention_conformance', 'theorems', 'reference_attention'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code], check=True)


CALLS = [CALL, GROUPED, CALL.replace(scale=None, causal=True), CALL.replace(visible=SEEN)]
CALLS += [CALL.replace(bias=np.where(SEEN, 0.5, -np.inf), wants="qv"), CALL.replace(window=(1, 1), wants="")]


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize("call", CALLS)
def test_the_script_tells_right_from_wrong(call: AttentionCall, dtype: str, saved: Callable[..., Path]) -> None:
    def right(*x: torch.Tensor, window: Any = None, **options: Any) -> torch.Tensor:
        ahead = torch.arange(5) - torch.arange(3)[:, None]
        return SDPA(*x, **options if window is None else options | {"attn_mask": ahead.abs() <= 1})

    file = str(saved(call, dtype=dtype))
    check(right, file)
    with pytest.raises(AssertionError, match="output: wrong by"):
        check(lambda *x, **options: 1.1 * right(*x, **options), file)
    for at, letter in enumerate("qkv"):
        wrong = pytest.raises(AssertionError, match=f"d{letter.upper()}: wrong by")
        with wrong if letter in call.wants else nullcontext():
            check(lambda *x, at=at, **o: right(*x[:at], x[at] + (x[at] - x[at].detach()) / 2, *x[at + 1 :], **o), file)
    with pytest.raises(SystemExit, match=r"does not know softcap; use check_call"):
        check(SDPA, str(saved(CALL.replace(softcap=2.0))))
