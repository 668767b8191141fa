"""The names for statements in users' files: ``from theorems.api import statement, at_least, Form, …``.

    @statement("my-conjecture", assumptions=("separable", "single-input"))
    def my_conjecture(case: Case, under_test: Implementation) -> Iterator[Claim]:
        '''State the conjecture here.'''
        svm = under_test[max_margin](case.problem.keys, case.chosen_tokens)
        p_mm, keys = with_rounding(svm.p), exact(case.problem.keys)  # arrays with rounding bounds
        yield at_least("name-of-the-claim", Form.EFFECTIVE, left, right)  # left and right have bounds, too

``theorems verify my_file.py:my_conjecture`` checks it. docs/conjectures.md is the manual; examples/ has three examples.

| to state it | |
|---|---|
| `statement` | the decorator: id, assumptions, optionally cases |
| `Claim`, `at_least`, `Form` | what a conclusion yields |
| `reason` | a tolerance of one's own: key, formula, why no larger |
| `Assumption`, `Finding` | an assumption of one's own: a predicate on cases |
| `Case`, `Problem`, `Dataset`, `loss_named` | the data: keys, scores, loss; tokens, labels, head |
| `cases`, `joint_cases`, `direction_cases` | strategies that build data satisfying assumptions |

| to compute with | |
|---|---|
| `Implementation`, `REFERENCE` | the implementation under test: `under_test[f]` is f, or its replacement |
| `softmax_weights`, `risk`, `scaled_gradient` | softmax attention: weights, L(p), ∇L(p) |
| `MaxMargin`, `Infeasible`, `max_margin`, `locally_optimal` | ATT-SVM, exact |
| `gradient_flow`, `gradient_descent`, `normalized_gradient_descent`, `Stop` | paths of p to norms of 1e6, without
cancellation |
| `head_gradient`, `label_svm`, `LabelSvm` | joint training: the gradient in the head, (SVM) |
| `exact`, `with_rounding`, `Bounded`, `in_floats` | arrays with rounding bounds; the same formulas in floats |
| `AttentionAt` | softmax attention at points on such arrays |
| `EPS` | 2⁻⁵², for tolerances |

| to publish it | |
|---|---|
| `Paper` | what the entry point of a package refers to: docs/publish.md |
| `stated_claim`, `premise`, `sharper` | the claims of a statement, declared once |
| `calls` | how a statement calls a kernel under test |
| `weaken` | a statement without one of its assumptions, to be hunted |
| `Faults`, `Fault`, `FaultKind` | planted faults that statements must catch |
| `Subject` | data other than keys and scores |

| to train | |
|---|---|
| `Optimiser`, `Theory` | a rule of one's own for ``theorems bench --rule my_file.py:Name``: docs/benchmarks.md |
"""

from __future__ import annotations

from generators.assumptions import Assumption, Finding
from generators.case import Case
from generators.direction_cases import direction_cases
from generators.joint_cases import joint_cases
from generators.problems import cases
from generators.subject import Subject
from max_margin_theorems.papers import Paper
from reference_attention.errors import InvalidInput
from reference_attention.floats import EPS
from reference_attention.losses import loss_named
from reference_attention.problem import Dataset, Problem
from reference_attention.risk import risk, scaled_gradient, softmax_weights
from reference_attention.svm.label_svm import LabelSvm, label_svm
from reference_attention.svm.max_margin import Infeasible, MaxMargin, locally_optimal, max_margin
from reference_attention.training.descent import Stop, gradient_descent, normalized_gradient_descent
from reference_attention.training.flow import Flow, gradient_flow
from reference_attention.training.joint_descent import head_gradient
from theorems.benchmark.optimisers.optimiser import Optimiser, Theory
from theorems.bounded import Bounded, exact, in_floats, with_rounding
from theorems.core.claim import Claim, Form, Verdict, at_least
from theorems.core.claim_name import premise, sharper, stated_claim
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.kernel_use import calls
from theorems.core.statement import Statement, statement
from theorems.core.tolerances import reason
from theorems.faults.fault import Fault, FaultKind, Faults
from theorems.rounding.attention_at import AttentionAt
from theorems.without.weakening import weaken

__all__ = [
    "EPS",
    "REFERENCE",
    "Assumption",
    "AttentionAt",
    "Bounded",
    "Case",
    "Claim",
    "Dataset",
    "Fault",
    "FaultKind",
    "Faults",
    "Finding",
    "Flow",
    "Form",
    "Implementation",
    "Infeasible",
    "InvalidInput",
    "LabelSvm",
    "MaxMargin",
    "Optimiser",
    "Paper",
    "Problem",
    "Statement",
    "Stop",
    "Subject",
    "Theory",
    "Verdict",
    "at_least",
    "calls",
    "cases",
    "direction_cases",
    "exact",
    "gradient_descent",
    "gradient_flow",
    "head_gradient",
    "in_floats",
    "joint_cases",
    "label_svm",
    "locally_optimal",
    "loss_named",
    "max_margin",
    "normalized_gradient_descent",
    "premise",
    "reason",
    "risk",
    "scaled_gradient",
    "sharper",
    "softmax_weights",
    "stated_claim",
    "statement",
    "weaken",
    "with_rounding",
]
