"""User files with the names of our packages: a kernel in ``attention.py`` works, and ``generators.py`` is refused in
one sentence.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.installed.conftest import Installed

KERNEL = "import torch\n\n\ndef attend(q, k, v):\n    return torch.softmax(q @ k.mT, -1) @ v\n"
PYTEST = ("-m", "pytest", "-p", "no:cacheprovider", "-rA")
HIDING = ("generators.py", "reference_attention.py", "generators/__init__.py")


def sentence(path: Path, package: str) -> str:
    remedy = "rename that file, or run the command in another directory."
    return f"{path} hides the package {package!r} of max-margin-theorems; {remedy}"


def write(folder: Path, name: str, text: str = "made = 1\n") -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path.resolve()


@pytest.mark.parametrize("entry", [("theorems",), ("python", "-m", "theorems")])
def test_a_kernel_in_attention_py_is_verified(installed: Installed, tmp_path: Path, entry: tuple[str, ...]) -> None:
    for name in ("attention.py", "kernel.py", "theorem.py"):
        write(tmp_path, name, KERNEL)
    # Two statements run in two processes, and each process imports the kernel.
    statements = ["lemma-3", "lemma-4"] if len(entry) == 1 else ["lemma-3"]
    given = ["verify", *statements, "--attention", "attention:attend", "--examples", "2", "--jobs", "2"]
    done = installed.run(tmp_path, *entry, *given)
    assert done.returncode == 0, done.stderr
    assert "attention kernel attention:attend" in done.stdout


def test_a_kernel_in_attention_py_is_verified_by_pytest(installed: Installed, tmp_path: Path) -> None:
    write(tmp_path, "attention.py", KERNEL)
    write(
        tmp_path,
        "test_mine.py",
        "from attention import attend\n\n\ndef test_mine(max_margin_theorems):\n"
        "    max_margin_theorems(attend, statements=['lemma-3'], examples=2)\n",
    )
    done = installed.run(tmp_path, "python", *PYTEST)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


@pytest.mark.parametrize("name", HIDING)
def test_python_dash_m_works_in_a_folder_with_the_user_s_files(installed: Installed, tmp_path: Path, name: str) -> None:
    hiding = write(tmp_path, name)
    done = installed.run(tmp_path, "python", "-m", "theorems", "list")
    message = sentence(hiding, name.partition("/")[0].removesuffix(".py"))
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"theorems: {message}\n")


def test_python_dash_m_runs_the_users_theorems_py(installed: Installed, tmp_path: Path) -> None:
    """By Python's rule for ``-m``, our package ``theorems`` is not even imported."""
    write(tmp_path, "theorems.py", "print('mine')\n")
    assert installed.run(tmp_path, "python", "-m", "theorems", "list").stdout == "mine\n"


def test_the_command_does_not_look_in_the_working_directory(installed: Installed, tmp_path: Path) -> None:
    for name in (*HIDING[:2], "theorems.py"):
        write(tmp_path, name, "1 / 0\n")
    # The command uses two processes, which start with the path of the first.
    done = installed.run(tmp_path, "theorems", "verify", "lemma-3", "lemma-11", "--examples", "2", "--jobs", "2")
    assert done.returncode == 0, done.stderr


def test_the_command_finds_a_kernel_in_the_working_directory(installed: Installed, tmp_path: Path) -> None:
    """Names that are refused are tested in tests/attention_conformance/kernel/test_kernel_command.py."""
    write(tmp_path, "attention.py", KERNEL)
    hiding = write(tmp_path, "theorems.py")
    done = installed.run(tmp_path, "theorems", "verify", "lemma-3", "--attention", "attention:attend")
    message = sentence(hiding, "theorems")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"theorems: --attention: {message}\n")


def test_the_command_refuses_a_user_s_file_on_the_path(installed: Installed, tmp_path: Path) -> None:
    hiding = write(tmp_path, "theorems.py")
    done = installed.run(tmp_path, "theorems", "list", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"theorems: {sentence(hiding, 'theorems')}\n"


def test_a_folder_without_init_py_hides_no_package(installed: Installed, tmp_path: Path) -> None:
    write(tmp_path, "generators/notes.py")
    assert installed.run(tmp_path, "python", "-m", "theorems", "--help").returncode == 0


@pytest.mark.parametrize("name", ["theorems.py", "generators.py"])
def test_pytest_reports_a_hidden_package(installed: Installed, tmp_path: Path, name: str) -> None:
    """Only tests that use the fixtures get the sentence; the other tests of the project are not affected."""
    hiding, package = write(tmp_path, name), name.removesuffix(".py")
    write(
        tmp_path,
        "test_mine.py",
        f"import {package}\n\n\ndef test_own():\n    assert {package}.made == 1\n\n\n"
        "def test_all(max_margin_theorems):\n    max_margin_theorems(len)\n\n\n"
        "def test_each(max_margin_theorem):\n    max_margin_theorem(len)\n",
    )
    done = installed.run(tmp_path, "python", *PYTEST)
    assert done.returncode == 1
    assert "1 passed, 2 errors" in done.stdout
    assert done.stdout.count(f"\n{sentence(hiding, package)}\n") == 2
    assert "Traceback" not in done.stdout + done.stderr
