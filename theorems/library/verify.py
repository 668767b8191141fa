"""The functions ``verify`` and ``check_attention``: statements on generated cases, data or an attention kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reference_attention.errors import InvalidInput
from theorems.core.implementation import Implementation
from theorems.library.arguments import Attention, Data, as_given, data_and_ids, implementation_of, name_of
from theorems.library.results import Results
from theorems.run.registry.suite import kernel_statement_ids
from theorems.run.session import Request, Session


def verify(
    what: Data | None = None,
    /,
    *ids: str,
    data: Data | None = None,
    attention: Attention | None = None,
    examples: int = 50,
    seed: int = 0,
    realistic: bool = False,
    dtype: str | None = None,
    interface: str | None = None,
    device: str | None = None,
) -> Results:
    """Verify statements on generated cases or on data, as ``theorems verify`` does. Equal seeds give equal results.

    Args:
        what: the data, or the first of the ids. A string is data if it names a dataset or ends in .npz or .json,
            otherwise an id.
        ids: ids of statements, or path.py:name for a statement in your file; all statements by default.
        data: the data, if they are not the first argument: a :class:`Problem`, :class:`Dataset`, :class:`QueryDataset`
            or :class:`Case`; named arrays (``keys`` and ``scores``, or ``X``, ``Y``, ``v`` and ``W`` or ``queries``;
            ``alpha``, ``p0``, ``loss``); a file or dataset by name. Without data, cases that satisfy the assumptions
            are generated.
        attention: the implementation to check in place of the reference: an attention kernel on torch tensors or its
            name MODULE:CALLABLE, as for :func:`check_attention`, or an :class:`Implementation`. A kernel or a file
            given by name runs in another process; an object runs in this one.
        examples: the number of generated cases per statement.
        seed: the seed of the generated cases; with data, the seed of the random points p at which a conclusion "for
            every p" is checked, unless the data are a Case, which has its own seed.
        realistic: whether to generate only cases that resemble users' data, with sparse, rounded or repeated numbers.
        dtype: the number format of the kernel, as for :func:`check_attention`.
        interface: the signature of the kernel, as for :func:`check_attention`.
        device: the device of the kernel's tensors, as for :func:`check_attention`.

    Raises:
        InvalidInput: an id is unknown, or the data or the kernel cannot be used; raised before anything runs.

    >>> from theorems import Problem, verify
    >>> verify("lemma-3", "lemma-11", examples=5)
    Results(upheld: lemma-3, lemma-11)
    >>> problem = Problem(keys=[[[1, 0], [0, 1], [0, 0]]], scores=[[1, 0.5, 0.5]])
    >>> verify(problem, "lemma-5", "theorem-5")
    Results(upheld: lemma-5; not-applicable: theorem-5)
    >>> verify("lemma-5", data="figure-1a").verdict
    <Verdict.UPHELD: 'upheld'>
    """
    if examples < 1 or seed < 0:
        raise InvalidInput(f"examples must be at least 1 and seed at least 0, not {examples} and {seed}.")
    source, all_ids = data_and_ids(what, ids, data)
    given = None if source is None else as_given(source, seed, calls=attention is not None)
    if given is not None and not isinstance(attention, Implementation):
        dtype = dtype or given.case.number_format or None
    request = Request(
        all_ids,
        examples,
        seed,
        given,
        implementation_of(attention, dtype, interface, device),
        isolate=attention is None or isinstance(attention, str),
        realistic=realistic,
    )
    session = Session(request)
    last = session.finish()
    return Results(last.results, examples, seed, name_of(source), session.about, last.hints)


def check_attention(
    kernel: Callable[..., Any] | str,
    /,
    *ids: str,
    examples: int = 50,
    seed: int = 0,
    dtype: str | None = None,
    interface: str | None = None,
    device: str | None = None,
) -> Results:
    """Check theorems, and capabilities (what a kernel must compute), on an attention kernel, with autograd's gradients.

    As a test, use ``check_attention(mine).raise_unless_upheld()``.

    Args:
        kernel: a callable on torch tensors, or MODULE:CALLABLE: (query (…, L, d), keys (…, T, d), values (…, T, m)) →
            (…, L, m), or with the signature of PyTorch's, flash-attn's, transformers' or JAX's attention.
        ids: ids of statements and capabilities; by default all that call a kernel.
        examples: the number of generated cases per statement.
        seed: the seed of the cases; equal seeds give equal cases.
        dtype: "float64", "float32", "bfloat16" or "float16"; by default float64 if the kernel accepts float64 tensors
            and computes in float64.
        interface: the kernel's signature: a key of :data:`attention_conformance.interfaces.INTERFACES`, such as "sdpa"
            or "flash"; by default recognised from the names of the kernel's parameters.
        device: the device of the kernel's tensors; the CPU by default.

    Raises:
        InvalidInput: the object is not a kernel, an id is unknown, or there is no such device.

    >>> from theorems import check_attention
    >>> def kernel(query, keys, values):
    ...     return (query @ keys.mT).softmax(dim=-1) @ values
    >>> check_attention(kernel, "lemma-3", "lemma-14", examples=5).raise_unless_upheld()
    Results(upheld: lemma-3, lemma-14)
    >>> def too_warm(query, keys, values):
    ...     return (query @ keys.mT / 2).softmax(dim=-1) @ values
    >>> check_attention(too_warm, "lemma-3", "lemma-14", examples=5)
    Results(falsified: lemma-3, lemma-14)
    """
    return verify(
        *(ids or kernel_statement_ids()),
        attention=kernel,
        examples=examples,
        seed=seed,
        dtype=dtype,
        interface=interface,
        device=device,
    )
