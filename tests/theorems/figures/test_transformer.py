"""Figures 6 and 7: attention grows sparse while its weights grow; a resumed training equals an uninterrupted one."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.places import ROOT
from theorems.command import figures as command
from theorems.command.app import main
from theorems.figures import figure_files, images, registry
from theorems.figures.figure import Numbers, Settings
from theorems.figures.images import Images
from theorems.figures.registry import FIGURES
from theorems.token_selection.figures import figure_6
from theorems.token_selection.figures import vision_transformer as transformer

PIN = re.search(r"^matplotlib==(.+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)


def some_digits(trained: int, seen: int) -> Images:
    """Return the first ``trained`` images of digits for training, and the first ``seen`` for testing."""
    every = images.digits()
    parts = every.pixels[:trained], every.classes[:trained], every.held_out[:seen], every.held_out_classes[:seen]
    return Images("digits", *parts)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Use a transformer of one block, larger initial weights and steps than usual, and few images."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(transformer, "BLOCKS", 1)
    monkeypatch.setattr(transformer, "SMALL", 0.2)
    monkeypatch.setattr(transformer, "STEP", 0.2)
    monkeypatch.setattr(figure_6, "digits", lambda: some_digits(100, 30))


def shows_7(numbers: Numbers) -> bool:
    """Return whether the measure of sparsity falls by at least a fifth (attention grows sparse) and ‖W‖_F grows."""
    sparsity, norm = numbers["sparsity"], numbers["norm"]
    return bool(max(sparsity[-3:]) < 0.8 * sparsity[0] and min(norm[-3:]) > 1.01 * norm[0])


def without_key_query_steps(epoch: Callable[..., transformer.Weights]) -> Callable[..., transformer.Weights]:
    """Return a training without steps of the key-query weights, so that the figure shows no effect."""

    def frozen(weights: transformer.Weights, *rest: object) -> transformer.Weights:
        after = epoch(weights, *rest)
        return after | {name: value for name, value in weights.items() if name.startswith(("query", "key"))}

    return frozen


def test_attention_grows_sparse_while_its_weights_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_6, "digits", lambda: some_digits(500, 50))
    assert shows_7(figure_6.numbers(Settings(1, 0, epochs=10)))
    monkeypatch.setattr(transformer, "epoch", without_key_query_steps(transformer.epoch))
    assert not shows_7(figure_6.numbers(Settings(1, 0, epochs=10)))


def test_the_documented_figure_is_drawn_from_its_stored_numbers() -> None:
    numbers = json.loads((ROOT / "docs" / "images" / "figure-7.json").read_text(encoding="utf-8"))
    assert shows_7(numbers)
    assert len(numbers["norm"]) == 121
    assert numbers["tokens"] == 17
    assert numbers["accuracy"][-1] > 0.8
    text = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
    for key in ("sparsity", "norm"):
        assert f"from {numbers[key][0]:.2f} to {numbers[key][-1]:.2f}" in text
    if PIN and version("matplotlib") == PIN[1]:
        for name in ("6", "7"):
            held = (ROOT / "docs" / "images" / f"figure-{name}.svg").read_bytes()
            assert figure_files.render_figure(FIGURES[name], numbers, "svg") == held


def test_sparsity_and_norm_agree_with_their_definitions() -> None:
    maps = torch.tensor([[0.25] * 4, [1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]])
    assert transformer.soft_sparsity(maps).tolist() == [4.0, 1.0, 2.0]
    weights = transformer.initial_weights(some_digits(10, 10), np.random.default_rng(0))
    query, key = (weights[f"{name}_0"].numpy() for name in ("query", "key"))
    heads = [query[:, k : k + 8] @ key[:, k : k + 8].T / np.sqrt(8) for k in range(0, 32, 8)]
    assert np.isclose(transformer.key_query_norm(weights), np.linalg.norm(heads), rtol=1e-12)
    _, s = transformer.outputs(weights, torch.tensor(some_digits(10, 10).patches(some_digits(10, 10).held_out)))
    assert s.shape == (10, 4, 17)
    assert torch.allclose(s.sum(dim=-1), torch.ones(10, 4, dtype=torch.float64))


def test_a_resumed_training_equals_an_uninterrupted_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["figures", "6", "7", "--epochs", "3", "--jobs", "1"]
    assert main([*command, "--out", "whole"]) == 0
    write = transformer._write

    def stopped(path: Path, record: transformer.Record, weights: transformer.Weights) -> None:
        write(path, record, weights)
        if record.epochs == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(transformer, "_write", stopped)
        assert main([*command, "--out", "parts"]) == 130
    assert not Path("parts/figure-7.json").exists()
    trained = []
    epoch = transformer.epoch
    monkeypatch.setattr(transformer, "epoch", lambda *arguments: trained.append(1) or epoch(*arguments))
    assert main([*command, "--out", "parts"]) == 0
    assert len(trained) == 1
    names = sorted(path.name for path in Path("whole").iterdir())
    assert names[:4] == ["figure-6.json", "figure-6.svg", "figure-7.json", "figure-7.svg"]
    assert len(names) == 5
    for name in names:
        assert (Path("whole") / name).read_bytes() == (Path("parts") / name).read_bytes()
    for name in names[1:4:2]:
        xml.etree.ElementTree.fromstring((Path("whole") / name).read_bytes())
    # A longer training, cut to its first epochs, equals a shorter one.
    for folder in ("whole", "short"):
        assert main(["figures", "7", "--epochs", "1", "--jobs", "1", "--out", folder]) == 0
    assert Path("whole/figure-7.json").read_bytes() == Path("short/figure-7.json").read_bytes()
    capsys.readouterr()
    # Another seed uses another checkpoint file; a file with other contents is refused.
    here = some_digits(100, 30)
    assert transformer.checkpoint(here, 1, Path()) != transformer.checkpoint(here, 0, Path())
    (checkpoint,) = Path("parts").glob("*.npz")
    whole = dict(np.load(checkpoint))
    numbers = {name: np.zeros(()) for name in whole if name.startswith("record_")}
    for held in ({"keys": np.zeros(3)}, whole | {"weights_head": np.zeros(3)}, whole | numbers):
        np.savez(checkpoint, **held)
        assert main([*command, "--out", "parts"]) == 2
        errors = capsys.readouterr().err
        assert "is no checkpoint of this transformer; delete it" in errors
        assert "Traceback" not in errors


def batch(path: Path, classes: list[int]) -> np.ndarray:
    """Write random pixels as a file in the format of CIFAR-10, and return them."""
    records = np.random.default_rng(0).integers(0, 256, (len(classes), 3073), dtype=np.uint8)
    records[:, 0] = classes
    records.tofile(path)
    return records


def test_cifar_10_is_read_from_its_own_files(tmp_path: Path) -> None:
    records = batch(tmp_path / "data_batch_1.bin", [3, 9])
    batch(tmp_path / "data_batch_3.bin", [0])
    batch(tmp_path / "test_batch.bin", [1, 2, 3])
    result = images.cifar_10(tmp_path)
    assert result.classes.tolist() == [3, 9, 0]
    assert result.held_out_classes.tolist() == [1, 2, 3]
    red = records[1, 1:1025].reshape(32, 32)
    assert np.array_equal(result.pixels[1, :, :, 0], red)
    patches = result.patches(result.pixels)
    assert patches.shape == (3, 256, 12)
    mean, deviation = result.scale
    assert np.allclose(patches[1, 17, ::3] * deviation + mean, red[2:4, 2:4].ravel())
    assert main(["figures", "7", "--cifar10", str(tmp_path), "--epochs", "1", "--out", "out", "--jobs", "1"]) == 0
    record = json.loads(Path("out/figure-7.json").read_text(encoding="utf-8"))
    assert (record["data"], record["tokens"], record["images"]) == ("CIFAR-10", 257, 3)


def test_shifts_move_only_training_images() -> None:
    few = some_digits(20, 5)
    moved = few.random_shifts(np.arange(20), np.random.default_rng(0))
    assert moved.shape == few.pixels.shape
    for before, after in zip(few.pixels, moved, strict=True):
        padded = np.pad(before, ((1, 1), (1, 1), (0, 0)))
        assert any(np.array_equal(after, padded[a : a + 8, b : b + 8]) for a in range(3) for b in range(3))
    assert not np.array_equal(moved, few.pixels)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (None, "is no folder; give the one that has data_batch_1.bin"),
        ({}, "has no data_batch_1.bin"),
        ({"data_batch_1": 3073}, "unpickling a file runs what is in it; give the folder of the binary version"),
        ({"data_batch_1.bin": 3073}, "has no test_batch.bin"),
        ({"data_batch_1.bin": 3072, "test_batch.bin": 3073}, "data_batch_1.bin: is no batch of CIFAR-10"),
        ({"data_batch_1.bin": 0, "test_batch.bin": 3073}, "data_batch_1.bin: is no batch of CIFAR-10"),
    ],
)
def test_folders_without_the_files_of_cifar_10_are_refused(
    files: dict[str, int] | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if files is not None:
        Path("cifar").mkdir()
        for name, size in files.items():
            (Path("cifar") / name).write_bytes(bytes(size))
    assert main(["figures", "7", "--cifar10", "cifar"]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert len(printed.err.strip().splitlines()) == 1
    assert not printed.out


def test_a_file_with_a_class_beyond_nine_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    batch(Path("data_batch_1.bin"), [10])
    batch(Path("test_batch.bin"), [1])
    assert main(["figures", "7", "--cifar10", "."]) == 2
    assert "is no batch of CIFAR-10" in capsys.readouterr().err


def test_without_torch_figures_6_and_7_are_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    assert main(["figures", "6"]) == 2
    assert "figure 6 trains a transformer with torch, which is not installed" in capsys.readouterr().err
    few = {name: FIGURES[name] for name in ("6", "7", "8")}
    monkeypatch.setattr(registry, "FIGURES", few)
    monkeypatch.setattr(command, "FIGURES", few)
    assert main(["figures", "--jobs", "1"]) == 0
    assert "Left out: figures 6 and 7 train a transformer with torch" in capsys.readouterr().out
    assert sorted(path.name for path in Path("figures").iterdir()) == ["figure-8.json", "figure-8.svg"]


def test_shifts_reach_both_borders() -> None:
    """Along each axis an image shifts by one pixel to either side, or not at all."""
    dot = np.zeros((60, 8, 8, 1), dtype=np.uint8)
    dot[:, 4, 4] = 255
    one = some_digits(60, 5)
    moved = replace(one, pixels=dot).random_shifts(np.arange(60), np.random.default_rng(0))
    places = {tuple(np.argwhere(picture[..., 0])[0].tolist()) for picture in moved}
    assert places == {(a, b) for a in (3, 4, 5) for b in (3, 4, 5)}


def test_accuracy_counts_correct_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    few = some_digits(20, 20)
    weights, record = transformer.initial_weights(few, np.random.default_rng(0)), transformer.Record()
    held = transformer.outputs

    def told(own: Any, patches: Any) -> Any:
        logits, s = held(own, patches)
        right = torch.nn.functional.one_hot(torch.tensor(few.held_out_classes[: len(logits)]).long(), logits.shape[1])
        right[:5] = torch.roll(right[:5], 1, dims=1)
        return right.to(logits.dtype), s

    monkeypatch.setattr(transformer, "outputs", told)
    transformer.record_epoch(record, weights, few)
    assert record.accuracy == [0.75]
