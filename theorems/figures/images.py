"""Images with classes, cut into patches: scikit-learn's digits, or CIFAR-10 from its own files. Nothing is unpickled.

References: Krizhevsky, *Learning multiple layers of features from tiny images* (CIFAR-10, binary version).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64, UInt8

from reference_attention.errors import InvalidInput
from reference_attention.files import read_bytes

PATCH = 2
"""The side of a patch in pixels: a digit has 4×4 patches, an image of CIFAR-10 has 16×16, as in the paper."""
TRAINED = 1500
"""The number of digits in the training set; the other 297 are held out."""
SIDE, CHANNELS = 32, 3
RECORD = 1 + CHANNELS * SIDE * SIDE
"""The number of bytes of an image in CIFAR-10's binary files: its class, then red, green and blue, row by row."""
BATCHES = tuple(f"data_batch_{k}.bin" for k in range(1, 6))
TEST = "test_batch.bin"


@dataclass(frozen=True, eq=False)
class Images:
    """Images for training, and held-out images.

    Attributes:
        name: the name of the data.
        pixels, classes: the training images, (n, side, side, channels) and (n,).
        held_out, held_out_classes: the held-out images, (m, side, side, channels) and (m,).
    """

    name: str
    pixels: UInt8[np.ndarray, "n s s c"]
    classes: Int64[np.ndarray, "n"]
    held_out: UInt8[np.ndarray, "m s s c"]
    held_out_classes: Int64[np.ndarray, "m"]

    @cached_property
    def scale(self) -> tuple[float, float]:
        """The mean and the standard deviation of the training pixels."""
        return float(self.pixels.mean()), float(self.pixels.std())

    def patches(self, pixels: UInt8[np.ndarray, "b s s c"]) -> Float64[np.ndarray, "b t f"]:
        """Return the patches of images as tokens, row by row, with standardised pixels, (b, (side/2)², 4 channels)."""
        b, side, _, channels = pixels.shape
        grid = side // PATCH
        split = pixels.reshape(b, grid, PATCH, grid, PATCH, channels).transpose(0, 1, 3, 2, 4, 5)
        mean, deviation = self.scale
        return np.asarray((split.reshape(b, grid * grid, -1) - mean) / deviation)

    def random_shifts(self, indices: Int64[np.ndarray, "b"], rng: np.random.Generator) -> UInt8[np.ndarray, "b s s c"]:
        """Return training images, each shifted by up to an eighth of its side and padded with black."""
        side = self.pixels.shape[1]
        room = side // 8
        padded = np.pad(self.pixels[indices], ((0, 0), (room, room), (room, room), (0, 0)))
        down, right = rng.integers(0, 2 * room + 1, (2, len(indices)))
        along = np.arange(side)
        rows, columns = down[:, None] + along, right[:, None] + along
        return np.asarray(padded[np.arange(len(indices))[:, None, None], rows[:, :, None], columns[:, None, :]])


def digits() -> Images:
    """Return scikit-learn's handwritten digits, images of 8×8 pixels with grey levels 0 … 16."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    pixels, classes = bunch.images[..., None].astype(np.uint8), bunch.target.astype(np.int64)
    return Images("digits", pixels[:TRAINED], classes[:TRAINED], pixels[TRAINED:], classes[TRAINED:])


def cifar_10(folder: Path) -> Images:
    """Read CIFAR-10 (colour images of 32×32 pixels) from the files of its binary version.

    Some of the five files of training images may be missing.

    Raises:
        InvalidInput: there is no such folder, it contains the Python version, or a file is missing or damaged.
    """
    if not folder.is_dir():
        raise InvalidInput(f"--cifar10: {folder} is no folder; give the one that has {BATCHES[0]}.")
    batches = [folder / name for name in BATCHES if (folder / name).is_file()]
    if not batches and (folder / "data_batch_1").is_file():
        raise InvalidInput(
            f"--cifar10: {folder} has the Python version, which is pickled, and unpickling a file runs what is in it;"
            " give the folder of the binary version, cifar-10-batches-bin."
        )
    if not batches or not (folder / TEST).is_file():
        raise InvalidInput(f"--cifar10: {folder} has no {TEST if batches else BATCHES[0]}; give cifar-10-batches-bin.")
    pixels, classes = zip(*map(_batch, batches), strict=True)
    return Images("CIFAR-10", np.concatenate(pixels), np.concatenate(classes), *_batch(folder / TEST))


def _batch(path: Path) -> tuple[UInt8[np.ndarray, "n s s c"], Int64[np.ndarray, "n"]]:
    content = np.frombuffer(read_bytes(path, "a batch of CIFAR-10"), dtype=np.uint8)
    if content.size == 0 or content.size % RECORD or (content[::RECORD] > 9).any():
        raise InvalidInput(
            f"{path}: is no batch of CIFAR-10: its records have {RECORD} bytes, of which the first is a class, 0 to 9."
        )
    records = content.reshape(-1, RECORD)
    pixels = records[:, 1:].reshape(-1, CHANNELS, SIDE, SIDE).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(pixels), records[:, 0].astype(np.int64)
