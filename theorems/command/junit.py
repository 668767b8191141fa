"""Results of ``theorems verify`` as JUnit XML, which CI services show: one test case per statement."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from xml.etree import ElementTree

from theorems.core.claim import Verdict
from theorems.core.version import version
from theorems.run.result import Result

SHOWN_AS = {
    Verdict.FALSIFIED: ("failure", "failures"),
    Verdict.INCONCLUSIVE: ("error", "errors"),
    Verdict.NOT_APPLICABLE: ("skipped", "skipped"),
}
"""For each verdict other than upheld, the XML element that shows it, and the attribute that counts these elements."""

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 does not allow."""


def junit_xml(results: Sequence[Result], seed: int, expected: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the results as a JUnit XML document.

    A falsified statement is a failure, an inconclusive one an error. A statement is skipped if it is not applicable, or
    if it is falsified and ``expected`` (id: reason) lists it. The text of the element is the falsified claim with its
    numbers, or the reason why the statement was not upheld.
    """
    counts = {name: 0 for _, name in SHOWN_AS.values()}
    suite = ElementTree.Element("testsuite", name="theorems", tests=str(len(results)))
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in (("version", version()), ("seed", str(seed))):
        ElementTree.SubElement(properties, "property", name=name, value=value)
    for result in results:
        seconds = f"{result.seconds:.3f}"
        case = ElementTree.SubElement(suite, "testcase", classname="theorems", name=_text(result.id), time=seconds)
        if result.id in expected:
            counts["skipped"] += 1
            text = _text(f"falsified, as known: {expected[result.id]}")
            ElementTree.SubElement(case, "skipped", message=text)
        elif result.verdict in SHOWN_AS:
            element, counted = SHOWN_AS[result.verdict]
            counts[counted] += 1
            text = _text(result.complaint)
            ElementTree.SubElement(case, element, message=text).text = _text(result.reason) or text
    for name, count in counts.items():
        suite.set(name, str(count))
    suite.set("time", f"{sum(result.seconds for result in results):.3f}")
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def _text(text: str) -> str:
    return _FORBIDDEN.sub("�", text)
