"""The golden record: what the suite said on commit 1a11835c, so that a rewrite can show that it says the same.

``python -m tests.golden check [PART ...]`` runs the commands again and prints every loss. ``record PART KEY ...``
stores observations that are not stored yet. A file ``PART.jsonl`` has a line per observation, ``[key, observation]``;
what is dropped on purpose is struck by deleting its line, in the commit that drops it. ``open.json`` has the right
verdicts, or in words the right answer, of cases that are wrong today: with a right verdict they are no loss.
``matrix.json`` has, for each planted fault, the statements that caught it on five cases, and the first claim that did.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.golden.seam import falsified_claim, run

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CASES, DATA = HERE / "cases", HERE / "data"
EXIT = {0: "upheld", 1: "falsified", 2: "refused", 3: "inconclusive"}


def stored(name: str) -> Any:
    """Return the contents of a JSON file of the record."""
    return json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))


def lines(path: Path) -> list[str]:
    """Return the lines of a file, none if it does not exist."""
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def answer(command: str, *words: str) -> tuple[int, dict[str, Any]]:
    """Run a command with ``--json``, and return its exit code and the JSON, empty if it wrote none."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "answer.json")
        failing_cases = ("--out", folder) if command == "verify" else ()
        code = run(command, *words, *failing_cases, "--json", str(path))
        return code, json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def verified(source: str, *ids: str) -> dict[str, list[Any]]:
    """Return, per statement that applies to the data, its verdict and the stated claims that it made."""
    stated = stored("stated")
    code, contents = answer("verify", *ids, "--data", source, "--jobs", "1")
    results = {}
    for result in contents.get("statements", ()):
        claims = [claim["name"] for claim in result["claims"]]
        results[result["id"]] = [result["verdict"], [name for name in claims if name in stated.get(result["id"], ())]]
    applying = {id: result for id, result in results.items() if result[0] != "not-applicable"}
    return applying or {"": ["not-applicable" if results else EXIT[code], []]}


def of_statements(key: str) -> Any:
    id, line = key.split()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "case.json")
        path.write_text(lines(CASES / f"{id}.jsonl")[int(line)], encoding="utf-8")
        return verified(str(path), id).get(id, ["not-applicable", []])


def of_data(key: str) -> Any:
    source, *ids = key.split()
    return verified(str(DATA / source) if (DATA / source).exists() else source, *ids)


def of_explain(key: str) -> Any:
    code, said = answer("explain", "--data", str(DATA / key) if (DATA / key).exists() else key)
    flow = said.get("flow") or {}
    flags = ("input", "token", "selected", "globally_optimal", "locally_optimal")
    numbers = ("of", "alpha", "locally_optimal", "norm", "margin")
    return {
        "exit": code,
        "flow": {key: flow.get(key) for key in ("stop", "selects", "kind")},
        "tokens": [[token.get(key) for key in flags] for token in said.get("tokens", ())],
        "directions": [[direction.get(key) for key in numbers] for direction in said.get("directions", ())],
    }


def of_faults(key: str) -> Any:
    """Return the first claim that is falsified under the fault on the stored cases of its ``caught_by``."""
    fault = stored("caught_by")[key]
    cases = lines(CASES / f"{fault['id']}.jsonl")
    claims = (falsified_claim(fault["id"], cases[line], fault=key) for line in fault["cases"])
    return next((claim for claim in claims if claim), "")


def of_constants(key: str) -> Any:
    """Return the claims that are falsified with the weakened and with the right constant on the stored case."""
    id, constant = key.split(": ", 1)
    witness = stored("witnesses")[key]
    case, share = witness["case"], witness["share"]
    return [falsified_claim(id, case, constant=constant, share=s) for s in (share, 0.0)]


def of_counterexamples(key: str) -> Any:
    return EXIT[run("replay", str(ROOT / "counterexamples" / key))]


def of_bench(key: str) -> Any:
    code, said = answer("bench", "--data", "figure-1a", "--rule", key, "--steps", "2000", "--examples", "0")
    rules = said["data"][0]["rules"] if said.get("data") else []
    numbers = ("iterations", "norm", "one_minus_cosine", "one_minus_cosine_at_most", "margins")
    return [code, [{name: rule.get(name) for name in numbers} for rule in rules]]


def of_kernels(key: str) -> Any:
    kernel, dtype, *interface = key.split()
    module = kernel.partition(":")[0]
    os.chdir(HERE / "kernels5" if module in ("faulty", "right") else ROOT)
    words = [word for name in interface for word in ("--interface", name)]
    return EXIT[answer("verify", "--attention", kernel, "--dtype", dtype, "--fail-fast", "--seed", "0", *words)[0]]


PARTS: dict[str, Callable[[str], Any]] = {
    "statements": of_statements,
    "data": of_data,
    "explain": of_explain,
    "faults": of_faults,
    "constants": of_constants,
    "counterexamples": of_counterexamples,
    "bench": of_bench,
    **dict.fromkeys(("kernels-float64", "kernels-bfloat16", "kernels5-float64", "kernels5-bfloat16"), of_kernels),
}


def differences(before: Any, now: Any, digits: int, at: str = "") -> Iterator[str]:
    """Yield where an observation lost something: another verdict or number, or a claim that is not made any more."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in before:
            yield from differences(before[key], now.get(key), digits, f"{at} {key}")
    elif isinstance(before, list) and isinstance(now, list):
        if all(isinstance(item, str) for item in before + now):
            yield from (f"{at}: {item!r} is missing" for item in before if item not in now)
        elif len(before) != len(now):
            yield f"{at}: {len(before)} entries, now {len(now)}"
        else:
            for k, pair in enumerate(zip(before, now, strict=True)):
                yield from differences(*pair, digits, f"{at}[{k}]")
    elif isinstance(before, float) and isinstance(now, float | int):
        if not math.isclose(before, now, rel_tol=10.0**-digits, abs_tol=1e-12):
            yield f"{at}: {before}, now {now}"
    elif before != now and (before, now) != ("inconclusive", "upheld"):
        yield f"{at}: {before}, now {now}"


def check(part: str) -> int:
    """Print the losses of a part, and the open cases that are right now; return the number of losses."""
    right, losses = stored("open"), 0
    for key, before in observations(part).items():
        now = PARTS[part](key)
        lost = list(differences(before, now, 3 if part == "bench" else 6, key))
        verdicts = {now} if isinstance(now, str) else {verdict for verdict, _ in now.values()} if part == "data" else {}
        if lost and verdicts and {*verdicts} <= {*right.get(f"{part} {key}", ())}:
            print(f"{part} {key}: right now; store it and strike it from open.json", flush=True)
            continue
        losses += len(lost)
        for loss in lost:
            print(f"{part} {loss}", flush=True)
    print(f"{part}: {losses} losses in {len(observations(part))} observations", flush=True)
    return losses


def observations(part: str) -> dict[str, Any]:
    """Return the stored observations of a part by key."""
    return dict(json.loads(line) for line in lines(HERE / f"{part}.jsonl"))


def record(part: str, keys: list[str]) -> int:
    """Append the observations of a part for the given keys, except for those that are stored already; return 0."""
    for key in keys:
        if key not in observations(part):
            line = json.dumps([key, PARTS[part](key)], ensure_ascii=False)
            with (HERE / f"{part}.jsonl").open("a", encoding="utf-8") as file:
                file.write(line + "\n")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    checking, recording = commands.add_parser("check"), commands.add_parser("record")
    checking.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    recording.add_argument("part", choices=PARTS)
    recording.add_argument("keys", nargs="+", metavar="KEY", help="such as 'theorem-2 13': line 13 of its cases")
    given = parser.parse_args()
    if given.command == "record":
        return record(given.part, given.keys)
    return int(sum([check(part) for part in given.parts or PARTS]) > 0)


if __name__ == "__main__":
    sys.exit(main())
