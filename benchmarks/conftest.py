"""Pytest hook that prints time ratios and each update rule's iterations; pytest-benchmark itself prints neither."""

from __future__ import annotations

import pytest
from _pytest.terminal import TerminalReporter

from benchmarks.bench_descent import CAP


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    """Print the time ratios of programs that ran alternately, and each rule's iterations and seconds.

    Iterations and seconds are counted to each level of 1 − cos (of the angle between p and its limit). The tables of
    iterations and of seconds have a row for each figure and update rule.
    """
    session = getattr(config, "_benchmarksession", None)
    ratios = [bench.extra_info["ratio"] for bench in getattr(session, "benchmarks", ()) if "ratio" in bench.extra_info]
    if ratios:
        terminalreporter.section("ratios")
    for line in ratios:
        terminalreporter.line(line)
    rows = sorted(
        (bench.params["name"], bench.params["rule"], bench.stats.mean / CAP, bench.extra_info["iterations to 1 - cos"])
        for bench in getattr(session, "benchmarks", ())
        if "iterations to 1 - cos" in bench.extra_info
    )
    for unit in ("iterations", "seconds") if rows else ():
        terminalreporter.section(f"{unit} to 1 - cos")
        terminalreporter.line(f"{'data':12}{'rule':16}" + "".join(f"{level:>9}" for level in rows[0][3]))
        for name, rule, seconds, reached in rows:
            cells = (
                "-" if count is None else str(count) if unit == "iterations" else f"{count * seconds:.2g}"
                for count in reached.values()
            )
            terminalreporter.line(f"{name:12}{rule:16}" + "".join(f"{cell:>9}" for cell in cells))
        terminalreporter.line("-: not within the cap of the benchmark")
