"""The gallery of real faults (``examples/real_faults``): each fault falsifies the capability that is named for it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import attention_conformance.claims.call_shrinker
from attention_conformance.claims.agreement import GRADIENTS, OUTPUT
from attention_conformance.claims.empty_rows import EMPTY
from attention_conformance.claims.trials import PAIRS
from attention_conformance.kernel.check import verify_kernel
from attention_conformance.kernel.sizes import Taken
from examples.real_faults.gallery import TILED_FAULTS, TiledFault
from theorems.core.claim import Verdict

CLAIMS: Mapping[str, str] = dict(zip(("out", "dq", "dk", "dv"), (OUTPUT, *GRADIENTS), strict=True)) | {
    "lse": "log-sum-exp"
}
"""The names of the claims about output, dQ, dK, dV and log-sum-exp, by the gallery's names of these results."""
EXAMPLES = [20, pytest.param(25, marks=pytest.mark.nightly)]
"""Numbers of calls for each fault. In the nightly run every pair of options occurs, as with ``--profile minute``."""


@pytest.fixture(autouse=True)
def _little_shrinking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_conformance.claims.call_shrinker, "TRIALS", 60)


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize("fault", TILED_FAULTS, ids=lambda fault: fault.name)
def test_each_fault_falsifies_the_capability_that_the_gallery_names(
    fault: TiledFault, examples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if examples < PAIRS:  # no calls with 65,537 keys, which take twenty seconds
        monkeypatch.setattr(Taken, "may_be_huge", False)
    id = f"kernel-{fault.capability}"
    (result,) = verify_kernel(fault.kernel, statements=[id], examples=examples, dtype="float64")
    assert result.verdict is Verdict.FALSIFIED, result.reason
    falsified = {claim.name for claim in result.claims if claim.verdict is Verdict.FALSIFIED}
    assert falsified & {CLAIMS[what] for what in fault.wrong} or falsified == {EMPTY}
    assert result.failure is not None
    assert result.failure.verdict is Verdict.FALSIFIED
