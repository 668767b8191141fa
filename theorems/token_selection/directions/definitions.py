"""Definitions 1 to 3 of the paper, each with the function or class that computes it.

References: *Max-Margin Token Selection in Attention Mechanism*, Definitions 1–3.
"""

from __future__ import annotations

from collections.abc import Mapping

from theorems.core.definition import Definition

DEFINITIONS: Mapping[str, Definition] = {
    definition.id: definition
    for definition in (
        Definition(
            "definition-1",
            "Token score, optimal tokens and globally-optimal max-margin (GMM) direction",
            "Definition 1",
            "The score of token x_it is γ_it = Y_i vᵀx_it; the optimal tokens are opt_i ∈ argmax_t γ_it. The GMM"
            " direction is p_mm(opt) = argmin ‖p‖ subject to (k_i,opt − k_it)ᵀp ≥ 1 for all i and t ≠ opt_i.",
            (
                "reference_attention.problem:Dataset.problem",
                "reference_attention.problem:Problem.optimal",
                "reference_attention.svm.max_margin:max_margin",
            ),
        ),
        Definition(
            "definition-2",
            "SVM-neighbours and locally-optimal max-margin (LMM) directions",
            "Definition 2",
            "Token t is an SVM-neighbour of α_i when (k_iα_i − k_it)ᵀp_mm(α) = 1. The tokens α are locally optimal, and"
            " p_mm(α) is an LMM direction, when every SVM-neighbour scores strictly below its α_i.",
            (
                "reference_attention.svm.max_margin:MaxMargin",
                "reference_attention.svm.max_margin:locally_optimal",
                "reference_attention.svm.max_margin:offending_neighbours",
            ),
        ),
        Definition(
            "definition-3",
            "Selected tokens, directional margin, directional neighbours, neighbour-optimality",
            "Definition 3, Appendix B.5.1",
            "For a unit vector q, S_i(q) = argmax_t k_itᵀq are the selected tokens. θ(q), the minimum over i,"
            " α ∈ S_i(q) and t ∉ S_i(q) of (k_iα − k_it)ᵀq, is the directional margin, and the (i, t) that attain it"
            " are the directional neighbours. q is neighbour-optimal when every directional neighbour scores strictly"
            " below its selected token.",
            (
                "reference_attention.directions:Direction",
                "reference_attention.directions:direction",
                "reference_attention.directions:neighbour_optimal",
            ),
        ),
    )
}
"""The definitions by id, such as ``definition-2``."""
