"""The files that describe the project to others agree with pyproject.toml."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pytest
import yaml

from tests.places import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CITATION: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
CODEMETA: dict[str, Any] = json.loads((ROOT / "codemeta.json").read_text(encoding="utf-8"))
PAPER, BIBLIOGRAPHY = ((ROOT / "paper" / name).read_text(encoding="utf-8") for name in ("paper.md", "paper.bib"))


def test_versions_and_authors_in_metadata_files_agree() -> None:
    [newest, *_] = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert {CITATION["version"], CODEMETA["version"], newest} == {PROJECT["version"]}
    authors = [entry["name"] for entry in PROJECT["authors"]]
    assert [entry["name"] for entry in CITATION["authors"]] == authors
    assert [entry["name"] for entry in CODEMETA["author"]] == authors


def test_codemeta_has_the_required_entries() -> None:
    assert CODEMETA["softwareRequirements"] == [re.split("[>=<]", entry)[0] for entry in PROJECT["dependencies"]]
    assert CODEMETA["programmingLanguage"]["version"] == PROJECT["requires-python"]


def test_the_paper_has_its_sections_and_cites_its_whole_bibliography() -> None:
    assert re.findall(r"^# (.+)$", PAPER, re.MULTILINE) == [
        "Summary",
        "Statement of need",
        "State of the field",
        "Software design",
        "Acknowledgements",
        "References",
    ]
    assert set(re.findall(r"@([a-z]+\d+[a-z]+)", PAPER)) == set(
        re.findall(r"^@\w+\{(\w+),$", BIBLIOGRAPHY, re.MULTILINE)
    )


@pytest.mark.parametrize("name", ["SECURITY.md", "CODE_OF_CONDUCT.md", "CITATION.cff", "codemeta.json"])
def test_the_readme_or_the_manifest_names_every_metadata_file(name: str) -> None:
    named = "".join((ROOT / entry).read_text(encoding="utf-8") for entry in ("README.md", "MANIFEST.in"))
    assert name in named
