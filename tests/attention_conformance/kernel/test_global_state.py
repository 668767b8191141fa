"""A kernel must leave the settings of PyTorch and of the process unchanged; gradients are probed at several lengths."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from attention_conformance.kernel.check import verify_kernel
from attention_conformance.kernel.global_state import SETTINGS, restore_settings
from attention_conformance.kernel.kernel_loader import kernel_of
from examples.kernels import handwritten
from theorems.core.claim import Verdict

CHANGES: dict[str, Callable[[], Any]] = {
    "grad mode": lambda: torch.set_grad_enabled(False),
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
    "seed": lambda: torch.manual_seed(torch.initial_seed() + 1),
    "number of threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "deterministic algorithms": lambda: torch.use_deterministic_algorithms(True),
    "precision of float32 products": lambda: torch.set_float32_matmul_precision("medium"),
    "working folder": lambda: os.chdir(tempfile.gettempdir()),
    "os.environ.HOME": lambda: os.environ.update(HOME="/nowhere"),
    "torch.allclose": lambda: setattr(torch, "allclose", lambda *args, **kwargs: True),
    "numpy.abs": lambda: setattr(np, "abs", lambda x: 0 * x),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_kernel_that_changes_a_setting_is_falsified(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    monkeypatch.setenv("HOME", "/home")

    def kernel(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        output = handwritten(query, keys, values)
        CHANGES[name]()
        return output

    with restore_settings([]):  # undo the changes when the test ends
        results = verify_kernel(kernel, statements=["kernel-memory"], examples=2, dtype="float64")
    assert results[0].verdict is Verdict.FALSIFIED
    assert f"changed: {name}" in results[0].reason


def test_settings_are_restored_and_each_is_tested() -> None:
    assert {*SETTINGS} - {"inference mode"} <= {*CHANGES}
    changes: list[str] = []
    before = torch.is_grad_enabled(), torch.allclose
    with restore_settings(changes):
        CHANGES["grad mode"]()
        CHANGES["torch.allclose"]()
    assert changes == ["grad mode", "torch.allclose"]
    assert (torch.is_grad_enabled(), torch.allclose) == before
    with restore_settings(changes):
        pass
    assert len(changes) == 2


def no_graph_for_one_query(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    output = handwritten(query, keys, values)
    return output.detach() if query.shape[2] == 1 else output


class Raising(torch.autograd.Function):
    """Attention whose backward pass raises an exception."""

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return handwritten(query, keys, values)

    @staticmethod
    def backward(ctx: Any, upstream: torch.Tensor) -> Any:
        raise RuntimeError("no workspace")


class NoBackward(torch.autograd.Function):
    """Attention without a backward pass."""

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return handwritten(query, keys, values)


def raises_backward(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> Any:
    return Raising.apply(query, keys, values)


def without_backward(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> Any:
    return NoBackward.apply(query, keys, values)


@pytest.mark.parametrize("kernel", [no_graph_for_one_query, raises_backward])
def test_a_backward_pass_that_raises_or_exists_only_at_some_lengths_is_not_upheld(kernel: Any) -> None:
    assert kernel_of(kernel, "float64").differentiable
    results = verify_kernel(kernel, statements=["kernel-gradients"], examples=20, dtype="float64")
    assert results[0].verdict is not Verdict.UPHELD


def test_a_kernel_that_declares_no_backward_pass_is_not_tested_for_one() -> None:
    assert not kernel_of(without_backward, "float64").differentiable
