"""The assumptions of the papers by id, each with a title, a source and a predicate on data.

The strategies that build data satisfying the assumptions are in :mod:`generators.problems`. The predicates do not use
the strategies, and decide equalities exactly.

References: *Max-Margin Token Selection in Attention Mechanism*, Assumptions A–D, Definition 2, Theorems 1–8;
*Transformers as Support Vector Machines* (T-SVM), Theorems 1, 3 and 4.
"""

from __future__ import annotations

from generators.dataset_assumptions import (
    head_in_key_range,
    optimal_support_tokens,
    optimal_tokens,
    positive_labels,
)
from generators.direction_assumptions import (
    decided_neighbours,
    direction_given,
    higher_neighbours,
    not_locally_optimal_direction,
    wider_direction,
)
from generators.finding import Assumption, Finding
from generators.general_position import general_position
from generators.joint_run import descent_selects
from generators.margin_assumptions import (
    in_cone,
    locally_optimal,
    optimal_tokens_tied,
    separable,
    separable_optimal_sets,
)
from generators.mixing_assumptions import (
    attainable_attention,
    decided_attention,
    orthonormal_tokens,
    quadratic_head,
)
from generators.nuclear_assumptions import rank_gap, unique_nuclear_solution
from generators.optimal_sets import mixing_hurts
from generators.path_selection import prompt_selects
from generators.query_assumptions import (
    first_step_separates,
    independent_rows,
    independent_tokens_and_queries,
    label_separating_queries,
    orthogonal_queries,
    queries_given,
)
from generators.radius_schedule import radius_schedule
from generators.relu_heads import masked_tokens_cost, relu_head
from generators.score_assumptions import (
    distinct_scores,
    equal_non_optimal_scores,
    single_input,
    strict_optimum,
    well_behaved_loss,
)
from generators.sequence_assumptions import sequence_given, sequence_separable, sequence_strict_optimum
from generators.step_size import step_size, vanishing_steps
from reference_attention.errors import InvalidInput

__all__ = ["ASSUMPTIONS", "Assumption", "Finding", "assumption_named"]

ASSUMPTIONS: dict[str, Assumption] = {
    a.id: a
    for a in (
        Assumption(
            "well-behaved-loss",
            "the loss is strictly decreasing with a bounded, Lipschitz derivative on the score range",
            "Assumption A",
            well_behaved_loss,
        ),
        Assumption("strict-optimum", "one token of each input scores strictly highest", "Theorem 1", strict_optimum),
        Assumption(
            "equal-non-optimal-scores",
            "within each input all non-optimal scores are equal and below the optimal one",
            "Assumption B",
            equal_non_optimal_scores,
        ),
        Assumption("separable", "ATT-SVM of the chosen tokens is feasible", "(ATT-SVM)", separable),
        Assumption(
            "optimal-tokens-tied",
            "one token of each input scores strictly highest, and no prompt selects all of these",
            "added here",
            optimal_tokens_tied,
        ),
        Assumption(
            "separable-optimal-sets",
            "ATT-SVM' is feasible: optimal sets are separable from the non-optimal tokens",
            "(ATT-SVM'), Theorem 8",
            separable_optimal_sets,
        ),
        Assumption("single-input", "there is one input, n = 1", "Theorem 2, Lemma 5", single_input),
        Assumption("distinct-scores", "no two tokens of an input have the same score", "Theorem 4", distinct_scores),
        Assumption("general-position", "differences of keys are in general position", "Theorem 7", general_position),
        Assumption(
            "locally-optimal",
            "every SVM-neighbour scores strictly below its chosen token",
            "Definition 2",
            locally_optimal,
        ),
        Assumption("in-cone", "the start lies in the cone around p_mm(α)", "Theorem 3", in_cone),
        Assumption("step-size", "the step size is at most 1/L_p", "Lemma 6, Theorems 2 and 3", step_size),
        Assumption("vanishing-steps", "normalized steps tend to zero", "added here", vanishing_steps),
        Assumption(
            "optimal-tokens",
            "not selecting α costs label margin, uniformly in p",
            "Assumption C",
            optimal_tokens,
        ),
        Assumption(
            "optimal-support-tokens",
            "Assumption C over the support inputs of v_mm",
            "Theorem 6",
            optimal_support_tokens,
        ),
        Assumption("mixing-hurts", "weight on non-optimal tokens raises the risk", "Assumption D", mixing_hurts),
        Assumption(
            "radius-schedule",
            "the head's radius is at least c* times the prompt's",
            "Theorem 6 (added here)",
            radius_schedule,
        ),
        Assumption(
            "prompt-selects",
            "p_R selects α asymptotically (found by following the joint path)",
            "Theorem 6, Lemma 12",
            prompt_selects,
        ),
        Assumption(
            "descent-selects",
            "normalized joint descent selects α (found by running it)",
            "Figure 3 (conjecture)",
            descent_selects,
        ),
        Assumption("positive-labels", "all labels are +1", "Lemma 2", positive_labels),
        Assumption("head-in-key-range", "v lies in the range of Wᵀ", "Lemma 2", head_in_key_range),
        Assumption("direction-given", "a direction q ≠ 0 is given", "Definition 3", direction_given),
        Assumption(
            "wider-direction",
            "q1 and q2 select the same single tokens, q2 by a larger directional margin",
            "Lemma 8",
            wider_direction,
        ),
        Assumption(
            "decided-neighbours",
            "q1 and q2 are neighbour-optimal, or the only directional neighbour of q1 scores higher",
            "Lemma 8",
            decided_neighbours,
        ),
        Assumption(
            "higher-neighbours",
            "q selects single tokens and all its directional neighbours score above them",
            "Lemma 9",
            higher_neighbours,
        ),
        Assumption(
            "not-locally-optimal-direction",
            "q is not the max-margin direction of locally optimal tokens",
            "Theorems 4 and 7",
            not_locally_optimal_direction,
        ),
        Assumption("queries-given", "each input has a query, and W is trained", "T-SVM, (W-ERM)", queries_given),
        Assumption(
            "independent-rows",
            "the rows (x_iα − x_it) z_iᵀ are linearly independent",
            "T-SVM, Theorem 4 (made sharper here)",
            independent_rows,
        ),
        Assumption(
            "independent-tokens-and-queries",
            "queries are linearly independent, and so are the differences of an input's tokens",
            "T-SVM, Theorem 1",
            independent_tokens_and_queries,
        ),
        Assumption(
            "label-separating-queries",
            "the queries separate the labels",
            "T-SVM (added here)",
            label_separating_queries,
        ),
        Assumption(
            "first-step-separates",
            "the first step of gradient descent from W = 0 separates the optimal tokens",
            "T-SVM, Assumption B (Theorem 3)",
            first_step_separates,
        ),
        Assumption(
            "unique-nuclear-solution",
            "a single W of least nuclear norm separates the chosen tokens",
            "T-SVM, (Att-SVM⋆) (added here)",
            unique_nuclear_solution,
        ),
        Assumption(
            "rank-gap",
            "the singular values of the dual matrix of ATT-SVM⋆ beyond the rank of its solution are below 1",
            "T-SVM, Theorem 2 (added here)",
            rank_gap,
        ),
        Assumption("orthogonal-queries", "queries are orthogonal", "T-SVM (added here)", orthogonal_queries),
        Assumption(
            "quadratic-head",
            "the head is vᵀx − λ‖x‖², the loss −u, labels are +1",
            "T-SVM, Section 6",
            quadratic_head,
        ),
        Assumption(
            "orthonormal-tokens", "the tokens of an input are orthonormal", "T-SVM, Section 6", orthonormal_tokens
        ),
        Assumption(
            "decided-attention",
            "weight on a token that the best attention does not select raises the risk",
            "T-SVM, Section 6 (added here)",
            decided_attention,
        ),
        Assumption(
            "attainable-attention",
            "some W attains the ratios of the best attention and separates its tokens (Gen-SVM)",
            "T-SVM, Section 6",
            attainable_attention,
        ),
        Assumption("relu-head", "the head is a sum of ReLU units on tokens", "T-SVM, Section 6", relu_head),
        Assumption(
            "masked-tokens-cost",
            "at the end of descent, tokens without weight score below the others (found by a run)",
            "T-SVM, Section 6 (added here)",
            masked_tokens_cost,
        ),
        Assumption("sequence-given", "each input has several queries", "T-SVM, appendix", sequence_given),
        Assumption(
            "sequence-strict-optimum",
            "for every query, one of the tokens that it sees scores strictly highest",
            "T-SVM, appendix",
            sequence_strict_optimum,
        ),
        Assumption(
            "sequence-separable",
            "ATT-SVM over all queries is feasible for the optimal tokens",
            "T-SVM, (SAtt-SVM)",
            sequence_separable,
        ),
    )
}
"""Every assumption by id."""


def assumption_named(id: str) -> Assumption:
    """Return the assumption with an id.

    Raises:
        InvalidInput: for an unknown id.
    """
    try:
        return ASSUMPTIONS[id]
    except (KeyError, TypeError):
        raise InvalidInput(f"assumption: {id!r} is not one of {', '.join(ASSUMPTIONS)}.") from None
