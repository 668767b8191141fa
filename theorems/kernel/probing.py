"""What is asked of a process that may run somebody's kernel: what it is, and what may be wrong with it."""

from __future__ import annotations

import pickle

from theorems.core.on_kernel import Described
from theorems.kernel.importing import imported
from theorems.kernel.loading import kernel_named
from theorems.kernel.report import headline, hints, kernel_json
from theorems.run.identity import of_implementation
from theorems.run.verify import Progress


def described(
    progress: Progress, source: str, dtype: str | None, interface: str | None, device: str | None
) -> Described:
    """The kernel of that name, imported and then probed.

    Raises:
        InvalidInput: it cannot be imported, or is no kernel.
    """
    imported(source)
    progress(1)
    kernel = kernel_named(source, dtype, interface=interface, device=device)
    under_test = kernel.as_implementation()
    told = headline(kernel), kernel_json(kernel), of_implementation(under_test)
    return Described(kernel.name, kernel.source, kernel.dtype, *told, pickle.dumps(under_test))


def hints_of_sent(progress: Progress, sent: bytes) -> tuple[str, ...]:
    """What may be wrong with a kernel that was falsified."""
    return tuple(hints(pickle.loads(sent).kernel))
