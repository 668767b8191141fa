"""A kernel under test, wherever it is called: one given by its name in other processes only, an object in this one."""

from __future__ import annotations

from collections.abc import Iterable

from reference_attention.errors import InvalidInput
from theorems.core.claim import Verdict
from theorems.core.implementation import Implementation
from theorems.core.on_kernel import Described, OnKernel, elsewhere
from theorems.run.apart import Apart, Died
from theorems.run.result import Result


def kernel_under_test(
    source: str, dtype: str | None, here: Apart | None, interface: str | None = None, device: str | None = None
) -> OnKernel:
    """The kernel of that name; with ``here`` loaded, probed and called elsewhere: this process does not import torch.

    Raises:
        InvalidInput: it cannot be imported, or is no kernel.
        Died: importing it or trying it once ended the process.
    """
    if here is None:
        from theorems.kernel.loading import kernel_named

        return kernel_named(source, dtype, interface=interface, device=device).as_implementation()

    def where(done: int) -> str:
        return f"--attention: {'the probe of' if done else 'loading'} {source}"

    return elsewhere(here.ask("theorems.kernel.probing:described", source, dtype, interface, device, where=where))


def headline_of(under_test: OnKernel) -> str:
    """What is called, how, in which numbers, and what that decides."""
    if isinstance(under_test.kernel, Described):
        return under_test.kernel.headline
    from theorems.kernel.report import headline

    return headline(under_test.kernel)


def json_of(under_test: OnKernel) -> dict[str, object]:
    """The same for ``--json``."""
    if isinstance(under_test.kernel, Described):
        return dict(under_test.kernel.json)
    from theorems.kernel.report import kernel_json

    return kernel_json(under_test.kernel)


def hints_of(under_test: Implementation, results: Iterable[Result], here: Apart | None) -> tuple[str, ...]:
    """What may be wrong with a kernel that was falsified; nothing where asking ends the process."""
    falsified = any(result.verdict is Verdict.FALSIFIED for result in results)
    if not (falsified and isinstance(under_test, OnKernel)):
        return ()
    if not isinstance(under_test.kernel, Described):
        from theorems.kernel.report import hints

        return tuple(hints(under_test.kernel))
    try:
        return (
            ()
            if here is None
            else here.ask(
                "theorems.kernel.probing:hints_of_sent", under_test.kernel.sent, where=lambda _: "what may be wrong"
            )
        )
    except (Died, InvalidInput):
        return ()
