"""Badge of an attention kernel for the service shields.io: the number of upheld capabilities, as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from reference_attention.files import to_json
from theorems.core.claim import Verdict
from theorems.run.registry.suite import capabilities
from theorems.run.result import Result


def badge_text(results: Sequence[Result]) -> str:
    """Return the badge as JSON; its text is "N of M capabilities" (N upheld, M checked), or "not tested".

    The schema of the JSON is at https://shields.io/badges/endpoint-badge.
    """
    verdicts = [result.verdict for result in results if result.id in capabilities() and result.was_tried]
    upheld = verdicts.count(Verdict.UPHELD)
    message = f"{upheld} of {len(verdicts)} capabilities" if verdicts else "not tested"
    colour = "lightgrey" if not verdicts else "red" if Verdict.FALSIFIED in verdicts else "yellow"
    colour = "brightgreen" if verdicts and upheld == len(verdicts) else colour
    return to_json({"schemaVersion": 1, "label": "attention", "message": message, "color": colour}, indent=2) + "\n"
