"""Kernels named with a library's prefix, kernels without a backward pass, and signatures of other libraries.

Tests of the libraries themselves are marked ``adapters``, and skipped where a library is not installed.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any

import pytest
import torch

from attention_conformance.interfaces.interface import Request
from attention_conformance.kernel.callable_import import import_callable
from attention_conformance.kernel.kernel import Kernel
from attention_conformance.kernel.kernel_loader import kernel_named, kernel_of
from attention_conformance.kernel.report import headline
from examples import kernels
from reference_attention.errors import InvalidInput
from tests.attention_conformance.kernel import library_kernels
from theorems.core.claim import Verdict
from theorems.run.registry.lookup import statement_named
from theorems.run.registry.suite import kernel_statement_ids
from theorems.run.verify import verify_generated

HERE = "tests.attention_conformance.kernel.library_kernels"


def verdict(kernel: Kernel, id: str, examples: int) -> Verdict:
    return verify_generated(id, examples, 0, kernel.as_implementation()).verdict


def lacking(kernel: Kernel) -> set[str]:
    """Return the ids of the statements that do not apply because the kernel has no backward pass."""
    uses = {id: statement_named(id).kernel for id in kernel_statement_ids()}
    return {id for id, use in uses.items() if use is not None and "backward pass" in kernel.lacks(use)}


# ---- NumPy, and kernels without a backward pass ------------------------------------------------------------


def test_a_numpy_kernel_is_checked_without_gradients() -> None:
    kernel = kernel_named("numpy:examples.other_libraries:in_numpy")
    assert (kernel.dtype, kernel.interface.name, kernel.differentiable) == ("float64", "plain", False)
    assert "its gradients are not checked" in headline(kernel)
    assert lacking(kernel) == {
        "kernel-gradients",
        "lemma-1",
        "lemma-3",
        "lemma-4",
        "lemma-5",
        "lemma-6",
        "theorem-2",
        "tsvm-no-stationary-point",
    }
    for id in ("kernel-output", "kernel-memory", "kernel-exact-weights", "lemma-14"):
        assert verdict(kernel, id, 5) is Verdict.UPHELD, id


def test_the_options_of_a_numpy_kernel_are_recognised_by_its_parameters() -> None:
    kernel = kernel_named(f"numpy:{HERE}:numpy_sdpa")
    assert kernel.interface.name == "sdpa"
    assert {"boolean-mask", "additive-mask", "causal", "scale", "empty-rows"} <= kernel.declares
    for id in ("kernel-causal", "kernel-boolean-mask", "kernel-additive-mask", "kernel-empty-rows"):
        assert verdict(kernel, id, 5) is Verdict.UPHELD, id


def test_a_wrong_numpy_kernel_is_caught() -> None:
    assert verdict(kernel_named(f"numpy:{HERE}:numpy_forgetful"), "kernel-output", 20) is Verdict.FALSIFIED


def test_a_numpy_kernel_that_writes_to_its_arguments_is_refused() -> None:
    with pytest.raises(InvalidInput, match="changes its keys in place"):
        kernel_named(f"numpy:{HERE}:numpy_scribbling")


def test_a_numpy_kernel_is_refused_in_bfloat16() -> None:
    with pytest.raises(InvalidInput, match="bfloat16"):
        kernel_named("numpy:examples.other_libraries:in_numpy", "bfloat16")


def test_a_numpy_kernel_is_pickled_by_its_name() -> None:
    kernel = kernel_named("numpy:examples.other_libraries:in_numpy")
    query = torch.ones(1, 1, 1, 2)
    again = pickle.loads(pickle.dumps(kernel))
    assert again.source == kernel.source
    assert torch.equal(again.call(query, query, query), query)


def test_a_detached_kernel_is_checked_without_gradients() -> None:
    kernel = kernel_of(library_kernels.detached)
    assert not kernel.differentiable
    assert "kernel-gradients" in lacking(kernel)
    assert "lemma-14" not in lacking(kernel)
    assert not lacking(kernel_of(kernels.handwritten))


# ---- names -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("numpy:examples.other_libraries", "'examples.other_libraries'"),
        ("numpy:examples.other_libraries:nothing", "has no 'nothing'"),
        ("cupy:examples.other_libraries:in_numpy", "module 'cupy' does not import"),
    ],
)
def test_a_wrong_name_is_refused_in_one_sentence(source: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        import_callable(source)


def test_without_jax_the_message_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.delitem(sys.modules, "attention_conformance.kernel.jax_adapter", raising=False)
    with pytest.raises(InvalidInput, match=r"not installed; pip install .*\[adapters\]"):
        import_callable("jax:jax.nn:dot_product_attention")


# ---- signatures of libraries, on stand-ins -----------------------------------------------------------------


def test_a_window_without_limit_is_passed_as_jax_expects() -> None:
    kernel = kernel_of(library_kernels.jax_signature)
    assert kernel.interface.name == "jax"
    for id in ("kernel-window", "kernel-log-sum-exp", "kernel-causal-rectangle"):
        assert verdict(kernel, id, 10) is Verdict.UPHELD, id


def test_causality_of_a_transformers_function_is_tested_only_for_as_many_queries_as_keys() -> None:
    kernel = kernel_of(library_kernels.hf_signature)
    assert kernel.interface.name == "hf"
    assert "causal" in kernel.declares
    assert "causal-rectangle" not in kernel.declares
    for id in ("kernel-causal", "kernel-grouped-heads"):
        assert verdict(kernel, id, 5) is Verdict.UPHELD, id


# ---- the libraries -----------------------------------------------------------------------------------------


@pytest.mark.adapters
class TestJax:
    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("jax", reason="needs the extra adapters: JAX")

    @pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
    # In float16, jax.nn's attention does not compile on CPUs, and is called uncompiled.
    @pytest.mark.parametrize("name", ["examples.other_libraries:in_jax", "jax.nn:dot_product_attention"])
    def test_gradients_agree_with_autograd(self, name: str, dtype: str) -> None:
        numbers: torch.dtype = getattr(torch, dtype)
        generator = torch.Generator().manual_seed(0)
        given = [torch.randn(1, 2, 3, 4, generator=generator).to(numbers).requires_grad_() for _ in range(3)]
        kernel = kernel_named(f"jax:{name}", dtype)
        result, _ = kernel.run(Request(*given))
        due = kernels.handwritten(*given)
        assert result.dtype == numbers
        rtol = 64 * kernel.eps if name.startswith("examples") else 64 * max(kernel.eps, 2.0**-23)
        torch.testing.assert_close(result, due, rtol=rtol, atol=rtol)
        upstream = torch.arange(24.0).reshape(1, 2, 3, 4).to(numbers) / 8
        theirs, ours = (torch.autograd.grad(out, given, upstream) for out in (result, due))
        for mine, its in zip(ours, theirs, strict=True):
            torch.testing.assert_close(its, mine, rtol=rtol, atol=8 * rtol)

    def test_float64_is_enabled_only_for_calls_of_jax_kernels(self) -> None:
        import jax

        kernel_named("jax:examples.other_libraries:in_jax")
        assert jax.numpy.ones(1).dtype == "float32"

    def test_a_wrong_vjp_is_caught(self) -> None:
        kernel = kernel_named(f"jax:{HERE}:jax_wrong_vjp")
        assert (kernel.dtype, kernel.differentiable) == ("float64", True)
        assert verdict(kernel, "kernel-output", 1) is Verdict.UPHELD
        assert verdict(kernel, "kernel-gradients", 2) is Verdict.FALSIFIED

    def test_attention_of_jax_computes_in_float32(self) -> None:
        kernel = kernel_named("jax:jax.nn:dot_product_attention")
        assert (kernel.interface.name, kernel.computes_in) == ("jax", "float32")
        assert verdict(kernel, "kernel-window", 2) is Verdict.UPHELD


@pytest.mark.adapters
class TestTransformers:
    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("transformers", reason="needs the extra adapters: transformers")

    @pytest.mark.parametrize("dtype", [None, "float16"])
    @pytest.mark.parametrize(
        ("name", "computes_in"),
        [
            ("transformers.integrations.sdpa_attention:sdpa_attention_forward", "float64"),
            ("transformers.models.llama.modeling_llama:eager_attention_forward", "float32"),
        ],
    )
    def test_attention_of_transformers_is_upheld(self, name: str, computes_in: str, dtype: Any) -> None:
        kernel = kernel_named(name, dtype)
        assert (kernel.interface.name, kernel.computes_in) == ("hf", dtype or computes_in)
        for id in ("kernel-output", "kernel-gradients", "kernel-boolean-mask", "kernel-grouped-heads"):
            assert verdict(kernel, id, 5) is Verdict.UPHELD, id
        assert verdict(kernel, "kernel-hidden-keys", 20) is Verdict.UPHELD


@pytest.mark.adapters
def test_x_transformers_is_upheld() -> None:
    pytest.importorskip("x_transformers", reason="needs the extra adapters: x-transformers")
    kernel = kernel_named("examples.other_libraries:attend")
    assert (kernel.interface.name, kernel.computes_in, kernel.alignment.value) == ("sdpa", "float32", "bottom-right")
    for id in ("kernel-gradients", "kernel-causal-rectangle", "kernel-boolean-mask", "kernel-softcap"):
        assert verdict(kernel, id, 5) is Verdict.UPHELD, id
