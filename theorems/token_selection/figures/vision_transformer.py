"""A small vision transformer, trained one epoch at a time; its attention maps and key-query weights are recorded.

The transformer has a [CLS] token and two blocks, each of softmax attention and a perceptron, and is trained on batches
by gradient descent with a fixed step size. An epoch depends only on the weights after the previous epoch, the epoch's
number and the seed, so that a run that continues from a checkpoint equals the uninterrupted run, byte for byte.

References: Dosovitskiy et al., *An image is worth 16×16 words*; *Max-Margin Token Selection in Attention Mechanism*,
Section 5.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from torch.nn.functional import cross_entropy, gelu, layer_norm

from reference_attention.errors import InvalidInput
from reference_attention.files import read_named_values, write_bytes
from theorems.figures.images import Images

WIDTH, HEADS, BLOCKS, CLASSES = 32, 4, 2, 10
STEP, BATCH = 0.1, 50
SMALL = 0.02
"""The standard deviation of the initial position embeddings, [CLS] token, query and key weights; it is usual in
transformers.

It is so small that attention starts nearly uniform.
"""
LOOKED_AT = 297
"""The number of images over which attention is averaged: with the digits, all images that are not used in training."""
SHOWN = 3
"""The number of images whose attention maps are recorded: the first held-out images, no two of the same class."""

Weights = dict[str, torch.Tensor]
Array = Float64[np.ndarray, "..."]


@dataclass
class Record:
    """The quantities recorded before training and after every epoch.

    The [CLS] map s of an image is the vector of the softmax weights of the [CLS] token in the last block.

    Attributes:
        sparsity: the mean over images of ‖s‖₁²/‖s‖₂² for the map s averaged over heads, by epoch.
        sparsity_of_heads: the mean over heads and images of ‖s‖₁²/‖s‖₂² for the map s of a single head, by epoch.
        norm: ‖W‖_F of the last block, where W consists of the matrices W_Q W_Kᵀ/√d_h of all its heads, by epoch.
        loss, accuracy: loss and accuracy on the first :data:`LOOKED_AT` images not used in training, by epoch.
        maps: the maps, averaged over heads, of the images shown, (SHOWN, 1 + patches), by epoch.
    """

    sparsity: list[float] = field(default_factory=list)
    sparsity_of_heads: list[float] = field(default_factory=list)
    norm: list[float] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    maps: list[Array] = field(default_factory=list)

    @property
    def epochs(self) -> int:
        """The number of epochs that have been trained."""
        return len(self.norm) - 1


def initial_weights(images: Images, rng: np.random.Generator) -> Weights:
    """Return the random weights of a transformer before training."""
    patches = images.patches(images.held_out[:1])

    def normal(rows: int, columns: int, deviation: float = 0.0) -> torch.Tensor:
        return torch.tensor(rng.normal(size=(rows, columns)) * (deviation or rows**-0.5))

    weights = {
        "embed": normal(patches.shape[2], WIDTH),
        "cls": normal(1, WIDTH, SMALL),
        "position": normal(1 + patches.shape[1], WIDTH, SMALL),
    }
    for block in range(BLOCKS):
        shapes = {"value": (WIDTH, WIDTH), "out": (WIDTH, WIDTH), "up": (WIDTH, 2 * WIDTH), "down": (2 * WIDTH, WIDTH)}
        weights |= {f"{name}_{block}": normal(WIDTH, WIDTH, SMALL) for name in ("query", "key")}
        weights |= {f"{name}_{block}": normal(*shape) for name, shape in shapes.items()}
    return weights | {"head": normal(WIDTH, CLASSES)}


def outputs(weights: Weights, patches: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the classes' logits, (b, 10), and [CLS]'s attention weights in the last block, (b, heads, 1 + patches)."""
    cls = weights["cls"].expand(len(patches), 1, WIDTH)
    x = torch.cat([cls, patches @ weights["embed"]], dim=1) + weights["position"]
    for block in range(BLOCKS):
        h = layer_norm(x, (WIDTH,))
        query, key, value = (_by_head(h @ weights[f"{name}_{block}"]) for name in ("query", "key", "value"))
        s = (query @ key.mT / (WIDTH // HEADS) ** 0.5).softmax(dim=-1)
        x = x + (s @ value).transpose(1, 2).flatten(2) @ weights[f"out_{block}"]
        x = x + gelu(layer_norm(x, (WIDTH,)) @ weights[f"up_{block}"]) @ weights[f"down_{block}"]
    return layer_norm(x[:, 0], (WIDTH,)) @ weights["head"], s[:, :, 0]


def _by_head(x: torch.Tensor) -> torch.Tensor:
    """Return features (b, T, WIDTH) split by head, (b, HEADS, T, WIDTH/HEADS)."""
    return x.reshape(*x.shape[:-1], HEADS, WIDTH // HEADS).transpose(1, 2)


def soft_sparsity(s: torch.Tensor) -> torch.Tensor:
    """Return ‖s‖₁²/‖s‖₂² over the last axis of s: 1 where a single token has weight, T where all weights are equal."""
    return s.abs().sum(dim=-1) ** 2 / (s**2).sum(dim=-1)


def key_query_norm(weights: Weights) -> float:
    """Return ‖W‖_F of the last block: the root of the sum of ‖W_Q W_Kᵀ‖²_F/d_h over its heads of width d_h."""
    query, key = (weights[f"{name}_{BLOCKS - 1}"].reshape(WIDTH, HEADS, -1) for name in ("query", "key"))
    combined = torch.einsum("ihc,jhc->hij", query, key) / (WIDTH // HEADS) ** 0.5
    return float(combined.norm())


def epoch(weights: Weights, images: Images, rng: np.random.Generator) -> Weights:
    """Return the weights after one pass over the training images, in random order and each shifted at random."""
    order = rng.permutation(len(images.pixels))
    for at in range(0, len(order), BATCH):
        batch = order[at : at + BATCH]
        variables = {name: value.detach().requires_grad_() for name, value in weights.items()}
        logits, _ = outputs(variables, torch.tensor(images.patches(images.random_shifts(batch, rng))))
        loss = cross_entropy(logits, torch.tensor(images.classes[batch]))
        slopes = torch.autograd.grad(loss, list(variables.values()))
        weights = {name: value - STEP * slope for (name, value), slope in zip(weights.items(), slopes, strict=True)}
    return weights


def record_epoch(record: Record, weights: Weights, images: Images) -> None:
    """Compute the quantities of :class:`Record` for the weights, and append them to the record."""
    pictures, classes = images.held_out[:LOOKED_AT], images.held_out_classes[:LOOKED_AT]
    with torch.no_grad():
        logits, s = outputs(weights, torch.tensor(images.patches(pictures)))
    average = s.mean(dim=1)
    record.sparsity.append(float(soft_sparsity(average).mean()))
    record.sparsity_of_heads.append(float(soft_sparsity(s).mean()))
    record.norm.append(key_query_norm(weights))
    record.loss.append(float(cross_entropy(logits, torch.tensor(classes))))
    record.accuracy.append(float(np.mean(logits.argmax(dim=1).numpy() == classes)))
    record.maps.append(average[images_to_show(images)].numpy())


def images_to_show(images: Images) -> list[int]:
    """Return the indices of the held-out images whose attention maps are recorded."""
    _, first = np.unique(images.held_out_classes[:LOOKED_AT], return_index=True)
    return sorted(first.tolist())[:SHOWN]


def train(images: Images, epochs: int, seed: int, folder: Path | None, progress: Callable[[int], None]) -> Record:
    """Train a transformer, or continue from the checkpoint in ``folder``; a checkpoint is written after every epoch.

    Raises:
        InvalidInput: the checkpoint is damaged, or cannot be written.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # with one thread, sums do not depend on the number of cores
    try:
        return _train_epochs(
            images, epochs, seed, None if folder is None else checkpoint(images, seed, folder), progress
        )
    finally:
        torch.set_num_threads(threads)


def _train_epochs(images: Images, epochs: int, seed: int, path: Path | None, progress: Callable[[int], None]) -> Record:
    """Train up to ``epochs`` epochs, from the checkpoint at ``path`` if there is one, and write it after each epoch."""
    record, weights = Record(), initial_weights(images, np.random.default_rng((seed, 0)))
    if path is not None and path.exists():
        record, weights = _read(path, weights)
    else:
        record_epoch(record, weights, images)
    while record.epochs < epochs:
        weights = epoch(weights, images, np.random.default_rng((seed, 1 + record.epochs)))
        record_epoch(record, weights, images)
        if path is not None:
            _write(path, record, weights)
        progress(record.epochs)
    return Record(**{name: values[: epochs + 1] for name, values in vars(record).items()})


def checkpoint(images: Images, seed: int, folder: Path) -> Path:
    """Return the checkpoint's path in the folder; it depends on the images, the seed and the source of this module."""
    made_of = hashlib.sha256(Path(__file__).read_bytes())
    for part in (images.pixels, images.classes, images.held_out, images.held_out_classes, np.array(seed)):
        made_of.update(part.tobytes())
    return folder / f"transformer-{made_of.hexdigest()[:12]}.npz"


def _write(path: Path, record: Record, weights: Weights) -> None:
    arrays: dict[str, Any] = {f"record_{name}": np.array(values) for name, values in vars(record).items()}
    arrays |= {f"weights_{name}": value.numpy() for name, value in weights.items()}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    write_bytes(path, buffer.getvalue())


def _read(path: Path, like: Weights) -> tuple[Record, Weights]:
    arrays: dict[str, Any] = read_named_values(path)
    record = {name: arrays.get(f"record_{name}") for name in vars(Record())}
    weights = {name: arrays.get(f"weights_{name}") for name in like}
    long = {len(values) if isinstance(values, np.ndarray) and values.ndim else 0 for values in record.values()}
    right = all(isinstance(a, np.ndarray) and a.shape == tuple(like[name].shape) for name, a in weights.items())
    if len(long) > 1 or 0 in long or not right:
        raise InvalidInput(f"{path}: is no checkpoint of this transformer; delete it to train from the beginning.")
    maps = list(record.pop("maps"))  # type: ignore[arg-type]
    lists = {name: values.tolist() for name, values in record.items() if values is not None}
    return Record(maps=maps, **lists), {name: torch.tensor(value) for name, value in weights.items()}
