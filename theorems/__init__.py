"""The theorems of softmax attention as executable specifications.

    from theorems import Problem, verify

    results = verify(Problem(keys, scores), "theorem-2")  # keys (n, T, d), scores (n, T)
    results.raise_if_falsified()

| to ask | |
|---|---|
| `verify`, `check_attention` → `Results` | statements on data or generated cases; on an attention kernel |
| `explain` → `Explanation` | which tokens attention selects on data, why, and which theorems imply it |
| `hunt` | a counterexample to a statement without one of its assumptions |
| `assumptions`, `statements`, `datasets` | assumptions that hold on data; all assumptions, statements and data sets |
| `draws` | sizes and properties of the generated cases |

| to compute | |
|---|---|
| `Problem`, `Dataset`, `Case`, `dataset_named`, `loss_named` | keys, scores; tokens, labels, head |
| `QueryDataset`, `SequenceDataset` | tokens with queries, to train W: one query per input, or several |
| `max_margin`, `label_svm`, `locally_optimal` → `MaxMargin`, `LabelSvm`, `Infeasible` | hard-margin SVMs, exact |
| `nuclear_max_margin` → `NuclearMaxMargin` | the SVM of least nuclear norm, for (K, Q), enclosed |
| `gradient_descent`, `normalized_gradient_descent`, `gradient_flow`, `regularization_path` | paths of p, to norms of
1e6 | | `factored_flow`, `factored_gradient_descent` → `FactoredFlow`, `FactoredTrajectory` | training of the factors
(K, Q) of W |
| `softmax_weights`, `risk`, `scaled_gradient`, `head_gradient` | attention at points |
| `AttentionAt`, `exact`, `with_rounding`, `Bounded`, `in_floats`, `spacing` | attention at points, with rounding bounds
|

| to state | |
|---|---|
| `statement`, `at_least`, `Claim`, `Form`, `Undecided`, `reason`, … | a statement of one's own: docs/conjectures.md |
| `Paper`, `weaken`, `Fault`, `Subject`, … | a package of one's own: docs/publish.md |
| `Optimiser`, `Theory` | a rule of one's own for `theorems bench`: docs/benchmarks.md |

Names are imported when they are first used: ``import theorems`` costs nothing. docs/library.md has an example of each.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from generators.assumptions import Assumption as Assumption
    from generators.assumptions import Finding as Finding
    from generators.case import Case as Case
    from generators.datasets import dataset_named as dataset_named
    from generators.direction_cases import direction_cases as direction_cases
    from generators.joint_cases import joint_cases as joint_cases
    from generators.problems import cases as cases
    from generators.subject import Subject as Subject
    from max_margin_theorems.papers import Paper as Paper
    from reference_attention.errors import InvalidInput as InvalidInput
    from reference_attention.floats import EPS as EPS
    from reference_attention.losses import loss_named as loss_named
    from reference_attention.paths.regularization_path import regularization_path as regularization_path
    from reference_attention.problem import Dataset as Dataset
    from reference_attention.problem import Problem as Problem
    from reference_attention.query_dataset import QueryDataset as QueryDataset
    from reference_attention.risk import risk as risk
    from reference_attention.risk import scaled_gradient as scaled_gradient
    from reference_attention.risk import softmax_weights as softmax_weights
    from reference_attention.sequence_dataset import SequenceDataset as SequenceDataset
    from reference_attention.svm.label_svm import LabelSvm as LabelSvm
    from reference_attention.svm.label_svm import label_svm as label_svm
    from reference_attention.svm.max_margin import Infeasible as Infeasible
    from reference_attention.svm.max_margin import MaxMargin as MaxMargin
    from reference_attention.svm.max_margin import locally_optimal as locally_optimal
    from reference_attention.svm.max_margin import max_margin as max_margin
    from reference_attention.svm.nuclear_max_margin import NuclearMaxMargin as NuclearMaxMargin
    from reference_attention.svm.nuclear_max_margin import nuclear_max_margin as nuclear_max_margin
    from reference_attention.training.descent import Stop as Stop
    from reference_attention.training.descent import gradient_descent as gradient_descent
    from reference_attention.training.descent import normalized_gradient_descent as normalized_gradient_descent
    from reference_attention.training.factored_descent import FactoredTrajectory as FactoredTrajectory
    from reference_attention.training.factored_descent import factored_gradient_descent as factored_gradient_descent
    from reference_attention.training.factored_flow import FactoredFlow as FactoredFlow
    from reference_attention.training.factored_flow import factored_flow as factored_flow
    from reference_attention.training.flow import Flow as Flow
    from reference_attention.training.flow import gradient_flow as gradient_flow
    from reference_attention.training.joint_descent import head_gradient as head_gradient
    from theorems.benchmark.optimisers.optimiser import Optimiser as Optimiser
    from theorems.benchmark.optimisers.optimiser import Theory as Theory
    from theorems.bounded import Bounded as Bounded
    from theorems.bounded import exact as exact
    from theorems.bounded import in_floats as in_floats
    from theorems.bounded import spacing as spacing
    from theorems.bounded import with_rounding as with_rounding
    from theorems.core.claim import Claim as Claim
    from theorems.core.claim import Form as Form
    from theorems.core.claim import Undecided as Undecided
    from theorems.core.claim import Verdict as Verdict
    from theorems.core.claim import at_least as at_least
    from theorems.core.claim_name import premise as premise
    from theorems.core.claim_name import sharper as sharper
    from theorems.core.claim_name import stated_claim as stated_claim
    from theorems.core.implementation import REFERENCE as REFERENCE
    from theorems.core.implementation import Implementation as Implementation
    from theorems.core.kernel_use import calls as calls
    from theorems.core.statement import Statement as Statement
    from theorems.core.statement import statement as statement
    from theorems.core.tolerances import reason as reason
    from theorems.faults.fault import Fault as Fault
    from theorems.faults.fault import FaultKind as FaultKind
    from theorems.faults.fault import Faults as Faults
    from theorems.library.catalogue import assumptions as assumptions
    from theorems.library.catalogue import datasets as datasets
    from theorems.library.catalogue import statements as statements
    from theorems.library.draws import draws as draws
    from theorems.library.explain import explain as explain
    from theorems.library.hunt import hunt as hunt
    from theorems.library.results import Results as Results
    from theorems.library.verify import check_attention as check_attention
    from theorems.library.verify import verify as verify
    from theorems.rounding.attention_at import AttentionAt as AttentionAt
    from theorems.without.weakening import weaken as weaken

_IMPORT = re.compile(r"^    from (\S+) import (\w+) as \2$", re.MULTILINE)
_MODULE_OF = {name: module for module, name in _IMPORT.findall(Path(__file__).read_text(encoding="utf-8"))}
"""The module of each public name, as the imports above state it."""

__all__ = sorted(_MODULE_OF)

if not TYPE_CHECKING:  # type checkers must report names other than those above

    def __getattr__(name: str) -> Any:
        """Import and return the object with a public name."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
