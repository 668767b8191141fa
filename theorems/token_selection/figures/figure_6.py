"""Figures 6 and 7: as a vision transformer is trained, its attention maps grow sparse and its key-query weights grow.

The paper trains a ViT-base on CIFAR-10 for 400 epochs; these figures show a small transformer on scikit-learn's digits,
or on CIFAR-10 where its files are given.

Source: *Max-Margin Token Selection in Attention Mechanism*, Section 5, Figures 6 and 7.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from theorems.figures import style
from theorems.figures.figure import Figure, Numbers, Settings
from theorems.figures.images import cifar_10, digits

STAGES = (0.0, 1 / 12, 1 / 6, 1 / 3, 2 / 3, 1.0)
"""The shares of all epochs after which attention maps are drawn."""
WORDING = (
    "“The theory suggests that the increase in sparsity is associated with the growth of attention weights – which"
    " converge directionally.”"
)
"""The paper's sentence on its Figure 7."""


def numbers(settings: Settings) -> Numbers:
    """Return sparsity, ‖W‖_F, loss and accuracy by epoch, and the attention maps of some images after some epochs."""
    from theorems.token_selection.figures.vision_transformer import BLOCKS, HEADS, WIDTH, images_to_show, train

    images = digits() if settings.cifar10 is None else cifar_10(settings.cifar10)
    record = train(images, settings.epochs, settings.seed, settings.checkpoints, settings.progress)
    stages = sorted({round(share * settings.epochs) for share in STAGES})
    indices = images_to_show(images)
    return {
        "data": images.name,
        "images": len(images.pixels),
        "tokens": len(record.maps[0][0]),
        "blocks": BLOCKS,
        "heads": HEADS,
        "width": WIDTH,
        "paper": WORDING,
        "sparsity": record.sparsity,
        "sparsity_of_heads": record.sparsity_of_heads,
        "norm": record.norm,
        "loss": record.loss,
        "accuracy": record.accuracy,
        "stages": stages,
        "classes": images.held_out_classes[indices].tolist(),
        "shown": images.held_out[indices].tolist(),
        "maps": [[record.maps[stage][k].tolist() for stage in stages] for k in range(len(indices))],
    }


def steps(settings: Settings) -> int:
    """Return the number of epochs, which is the number of steps of this computation."""
    return settings.epochs


def draw_maps(figure: Any, numbers: Numbers) -> None:
    """Draw an image per row, beside its attention maps at several epochs; darker patches have larger weights."""
    stages, pictures = numbers["stages"], numbers["shown"]
    panels = figure.subplots(len(pictures), 1 + len(stages), squeeze=False)
    for row, image, maps in zip(panels, pictures, numbers["maps"], strict=True):
        pixels = np.array(image, dtype=np.float64)
        row[0].imshow(pixels.squeeze() / pixels.max(), cmap=None if pixels.shape[-1] > 1 else "gray")
        highest = max(max(weights[1:]) for weights in maps)
        for axes, weights in zip(row[1:], maps, strict=True):
            side = math.isqrt(len(weights) - 1)
            axes.imshow(np.array(weights[1:]).reshape(side, side), cmap="Blues", vmin=0, vmax=highest)
    for axes in panels.flat:
        axes.set_xticks([])
        axes.set_yticks([])
    for axes, text in zip(panels[0], ["image", *(f"epoch {stage}" for stage in stages)], strict=True):
        axes.set_title(text)


def draw_growth(figure: Any, numbers: Numbers) -> None:
    """Draw the maps' sparsity in the upper panel, and ‖W‖_F of the key-query weights in the lower panel, by epoch."""
    above, below = figure.subplots(2, 1, sharex=True)
    epochs = float(len(numbers["norm"]) - 1)
    for key, color, text, vertical_offset in (
        ("sparsity", style.RED, "of the map averaged over heads", 0.12),
        ("sparsity_of_heads", style.ORANGE, "of each head's map, averaged", -0.2),
    ):
        values = numbers[key]
        above.plot(values, color=color)
        high = values[len(values) // 2] + vertical_offset * numbers["tokens"]
        style.name(above, epochs / 2, high, text, color)
    above.axhline(numbers["tokens"], color=style.LIGHT, linewidth=0.8, zorder=0)
    style.name(above, epochs, numbers["tokens"] * 1.01, f"{numbers['tokens']} tokens alike", style.GREY, ha="right")
    above.set_ylim(0, numbers["tokens"] * 1.12)
    above.set_ylabel(r"$\|s\|_1^2\,/\,\|s\|_2^2$")
    below.plot(numbers["norm"], color=style.BLUE)
    below.set_ylim(0, 1.1 * max(numbers["norm"]))
    below.set_xlim(0, epochs)
    below.set_ylabel(r"$\|W\|_F$")
    below.set_xlabel("epoch")
    note = f"{numbers['images']} images of {numbers['data']}; {numbers['accuracy'][-1]:.0%} of those held out are right"
    style.name(below, epochs, 0.04 * max(numbers["norm"]), note, style.GREY, ha="right", fontsize=7.5)


FIGURES = [
    Figure("6", "[CLS] attention maps grow sparse during training", (7.6, 3.9), numbers, draw_maps, steps, ("torch",)),
    Figure(
        "7",
        r"attention grows sparse while the norm $\|W\|_F$ of the key-query weights grows",
        (5.6, 4.6),
        numbers,
        draw_growth,
        steps,
        ("torch",),
    ),
]
