"""``theorems explain --module``: the weights of a torch layer give its own attention, and its file runs in another
process.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from generators.finding import format_tokens
from reference_attention.errors import InvalidInput
from theorems.command.app import main
from theorems.explanations.explanation import Explanation
from theorems.explanations.head_explanations import HeadExplanations, tokens_of_factors
from theorems.explanations.module_heads import heads_of, load_heads
from theorems.library.explain import explain

RNG = np.random.default_rng(0)
DATA = {"X": RNG.normal(size=(2, 3, 4)), "queries": RNG.normal(size=(2, 4)), "Y": [1, -1], "v": RNG.normal(size=4)}
FILE = """
import os
from torch import nn
import torch
torch.manual_seed(1)
layer = nn.MultiheadAttention(4, 2, bias=False)
class Model:
    attention = layer
def matrix():
    print("a word of its own")
    return {"W_trained": torch.ones(4, 4, requires_grad=True)}
def ends():
    os._exit(0)
def raises():
    raise ValueError("no weights here")
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(FILE)
    np.savez("inputs.npz", **DATA)
    return tmp_path


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"kdim": 4, "vdim": 3, "batch_first": True}])
def test_each_head_has_the_weights_that_the_layer_computes(options: dict[str, Any]) -> None:
    """Biases are random; those of the keys do not change the attention weights, only those of the queries do."""
    torch.manual_seed(2)
    layer = nn.MultiheadAttention(4, 2, **options).double().eval()
    if layer.in_proj_bias is not None:
        nn.init.normal_(layer.in_proj_bias)
    X, z = torch.tensor(DATA["X"]), torch.tensor(DATA["queries"])[:, None]
    values = X[..., : layer.vdim]
    given = (z, X, values) if layer.batch_first else tuple(x.transpose(0, 1) for x in (z, X, values))
    with torch.no_grad():
        expected = layer(*given, need_weights=True, average_attn_weights=False)[1][:, :, 0]
    it = explain(DATA, module=layer)
    assert isinstance(it, HeadExplanations)
    for number, head in enumerate(it.heads):
        assert head.layer is not None
        assert head.layer.softmax == pytest.approx(expected[:, number].numpy(), rel=1e-12)
        assert it.rows[number][1] == str(head.layer.tokens.tolist())


def test_linear_layers_are_scaled_as_in_scaled_dot_product_attention() -> None:
    torch.manual_seed(3)
    query, key = nn.Linear(4, 6).double(), nn.Linear(4, 6, bias=False).double()
    X, z = torch.tensor(DATA["X"]), torch.tensor(DATA["queries"])
    for module, heads in (((query, key), 1), ((query, key, 3), 3)):
        split = [linear(x).unflatten(-1, (heads, -1)).detach() for linear, x in ((query, z), (key, X))]
        logits = torch.einsum("nhm,nthm->hnt", *split) / (6 / heads) ** 0.5
        it = explain(DATA, module=module)
        explained = [it] if isinstance(it, Explanation) else it.heads  # type: ignore[union-attr]
        assert len(explained) == heads
        for head, expected in zip(explained, torch.softmax(logits, -1), strict=True):
            assert head.layer.softmax == pytest.approx(expected.numpy(), rel=1e-12)  # type: ignore[union-attr]


def test_a_file_runs_in_a_process_of_its_own_and_one_head_can_be_named(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "--module", "mine.py:layer", "--inputs", "inputs.npz", "--json", "said.json"]) == 0
    shown = capsys.readouterr().out
    assert "mine.py:layer, 2 heads, on inputs.npz" in shown
    assert "theorems explain --data inputs.npz --module 'mine.py:layer[0]'" in shown
    heads = json.loads(Path("said.json").read_text())["heads"]
    assert (
        main(["explain", "--module", "mine.py:Model.attention[1]", "--data", "inputs.npz", "--json", "one.json"]) == 0
    )
    head = json.loads(Path("one.json").read_text())
    assert head["trained"] == heads[1]["trained"]
    assert head["trained"]["softmax"] != heads[0]["trained"]["softmax"]
    assert explain("inputs.npz", module="mine.py:matrix").layer.weights.matrix.tolist() == [[1.0] * 4] * 4  # type: ignore[union-attr]
    assert "a word of its own" not in capsys.readouterr().out


def test_a_file_that_ends_its_process_does_not_decide_the_exit_code(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "--data", "inputs.npz", "--module", "mine.py:ends"]) == 3
    shown = capsys.readouterr()
    assert "loading mine.py:ends: the process that worked on it ended with code 0; nothing is concluded." in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("mine.py:raises", "mine.py, line 15: ValueError: no weights here; correct the file."),
        ("mine.py:nothing", "mine.py: has no 'nothing'; it has "),
        ("mine.py:Model.nothing", "has no attribute 'nothing'"),
        ("mine.py:layer[2]", "mine.py:layer[2]: there are 2 heads; give a number from 0 to 1."),
        ("mine.py", "--module: 'mine.py' is not PATH.py:NAME; give e.g. my_file.py:layer."),
        ("mine.py:Model", "mine.py:Model: is a class; give a trained instance of it"),
        ("mine.py:os", "mine.py:os: module is not supported; give nn.MultiheadAttention"),
    ],
)
def test_unreadable_names_are_refused_in_one_sentence(here: Path, name: str, sentence: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        load_heads(name)
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (nn.MultiheadAttention(4, 2, add_zero_attn=True), "add_zero_attn adds a token that is not among the inputs"),
        (nn.MultiheadAttention(4, 2, add_bias_kv=True), "add_bias_kv adds a token"),
        ((nn.Linear(4, 6), nn.Linear(4, 2)), "the query layer has 6 outputs, the key layer 2"),
        ((nn.Linear(4, 6), nn.Linear(4, 6), 4), "6 outputs do not split into 4 heads"),
        ({"weights": [1]}, "'weights' is not a known name of trained weights; give p, or with queries W_trained"),
        (nn.Linear(4, 6), "Linear is not supported"),
        (nn.MultiheadAttention(6, 2), "K_trained: shape (6, 3) has length 6 along axis 0, but the other arrays need 4"),
    ],
)
def test_objects_that_do_not_fit_are_refused_in_one_sentence(module: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        explain(DATA, module=module)
    assert sentence in str(raised.value)


def test_weights_are_given_only_once_and_w0_gets_a_column_for_a_query_bias() -> None:
    with pytest.raises(InvalidInput, match="p: the data have trained weights, and --module gives others"):
        explain({"keys": DATA["X"], "scores": [[0, 1, 2]] * 2, "p": [1, 0, 0, 0]}, module={"p": [1, 0, 0, 0]})
    it = explain(DATA | {"W0": np.eye(4)}, module=(nn.Linear(4, 2), nn.Linear(4, 2)))
    assert isinstance(it, Explanation)
    assert it.before is not None
    assert it.before.start.reshape(4, 5).tolist() == np.eye(4, 5).tolist()
    with pytest.raises(InvalidInput, match=r"only one head can be drawn; choose it, as in list\[0\]"):
        explain(DATA, module=[{"W_trained": np.eye(4)}] * 2).plot("svg")
    assert len(heads_of([{"p": [1]}, lambda: {"p": [2]}], "several")) == 2


def test_tokens_of_the_flow_on_factors_are_shown_only_where_it_selects_some() -> None:
    [_, end] = explain(DATA, module=(nn.Linear(4, 2), nn.Linear(4, 2))).ends  # type: ignore[union-attr]
    shown = [tokens_of_factors(replace(end, ended=how)) for how in ("norm reached", "stationary", "failed")]
    assert shown == [format_tokens(end.selects), "none", "?"]
