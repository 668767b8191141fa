"""Docstrings of statements, converted to HTML."""

from __future__ import annotations

import re

import pytest

from theorems.run.registry.suite import statements
from theorems.site.derivations import REFERENCE, derivations, resolve, texts_of
from theorems.site.docstring import formula, html
from theorems.site.links import link_from


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("p_mm", "p<sub>mm</sub>"),
        ("x_itᵀ", "x<sub>it</sub>ᵀ"),
        ("s_iα_i)", "s<sub>iα<sub>i</sub></sub>)"),
        ("k_i,opt − k_it, and", "k<sub>i,opt</sub> − k<sub>it</sub>, and"),
        ("v̄_mm", "v̄<sub>mm</sub>"),
        ("k_1_i", "k<sub>1</sub>_i"),
        ("Y_iψ(X)", "Y<sub>i</sub>ψ(X)"),
        ("ν'_0ρ'_0²", "ν&#x27;<sub>0</sub>ρ&#x27;<sub>0</sub>²"),
        ("e^{−R(θ+Bδ)}", "e<sup>−R(θ+Bδ)</sup>"),
        ("2^−1074 (Θ)^+/x^p", "2<sup>−1074</sup> (Θ)<sup>+</sup>/x<sup>p</sup>"),
        ("e^{1_{N⁺}}", "e<sup>1<sub>N⁺</sub></sup>"),
        ("max_{i∈S} q_i < 1", "max<sub>i∈S</sub> q<sub>i</sub> &lt; 1"),
        ("log_scale of follow_path", "log_scale of follow_path"),
    ],
)
def test_indices_and_exponents_become_sub_and_sup(text: str, made: str) -> None:
    assert formula(text) == made


def test_paragraphs_displays_and_lists_are_marked_up() -> None:
    text = """Let *every* q.

    **Effective.** By (*), R* of ``a_b``:

        x_1 ≥ 0
          y

    1. *One*, which
       goes on.
    2. Two.

    (a) One.
    (b) Two,
    and more.
    """
    assert html(text).splitlines() == [
        "<p>Let <em>every</em> q.</p>",
        "<p><strong>Effective.</strong> By (*), R* of <code>a_b</code>:</p>",
        '<div class="display">x<sub>1</sub> ≥ 0<br>  y</div>',
        '<ol start="1"><li><em>One</em>, which goes on.</li><li>Two.</li></ol>',
        "<p>(a) One.</p>",
        "<p>(b) Two, and more.</p>",
    ]


def test_no_unconverted_markup_is_left_in_the_pages_of_statements() -> None:
    for id in statements():
        for text in texts_of(id):
            shown = re.sub(r"<code>.*?</code>", "", html(text))
            assert not re.search(r"`|\*\*|:\w+:|\^\{|(?<!log)_(?!scale)", shown.replace("(**)", "")), id


def test_every_reference_of_a_statement_leads_to_a_page() -> None:
    for id, statement in statements().items():
        place = statement.conclusion.__module__
        references = [name for text in texts_of(id) for name in REFERENCE.findall(text)]
        assert [name for name in references if not link_from(place, name)] == [], id
    assert len({item.name for item in derivations().values()}) == len(derivations())


def test_a_reference_is_resolved_within_its_package_or_not_at_all() -> None:
    place = "theorems.token_selection.joint_paths.theorem_5_joint_regularization_path"
    assert resolve(".joint_constants", place) == ("theorems.token_selection.joint_paths.joint_constants", "")
    assert resolve(".joint_sets.nothing", place) == ("theorems.token_selection.joint_paths.joint_sets", "nothing")
    assert resolve(".no_such_module", place) is None
