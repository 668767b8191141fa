"""Verification of one capability of an attention kernel, on calls that all capabilities share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from attention_conformance.calls.answer import OnKernel
from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.claims.call_claims import About
from attention_conformance.claims.call_shrinker import work_of
from attention_conformance.claims.capabilities import CAPABILITIES, Capability, capability_of
from attention_conformance.claims.trials import PAIRS, Trial, Trials, owns, reduce_to, trials_of
from theorems.core.check import Outcome, check, error_outcome, sentence
from theorems.core.claim import Claim, Verdict
from theorems.core.statement import Statement

TOUCHED = ("attend",)
ENOUGH = 5
"""The number of failures of other capabilities after which all further failures are taken to be theirs."""
CHEAP = 1 << 20
"""The largest work of a call that is repeated with only those options with which an earlier call failed."""


@dataclass
class View:
    """The outcomes of one capability on the calls of a kernel.

    Attributes:
        statement: the capability as a statement.
        trials: the calls.
        elsewhere: failures that belong to another capability: for each, the claim's capability and name, and the
            smallest call.
    """

    statement: Statement
    trials: Trials
    elsewhere: list[tuple[str, str, AttentionCall]] = field(default_factory=list)

    @property
    def capability(self) -> Capability:
        """The capability of the statement."""
        return capability_of(self.statement.id)

    def outcomes(self, examples: int) -> Iterator[tuple[Outcome, AttentionCall]]:
        """Yield each outcome with its call; a falsified outcome comes with the smallest failing call.

        A call is left out if it also fails without the option of this capability. If most calls are left out, the last
        outcome is inconclusive.
        """
        decided = left_out = 0
        numbered = self.trials.about(self.capability, examples)
        while not self._is_stopped and (pair := next(numbered, None)) is not None:
            number, trial = pair
            outcome = self._outcome(number, trial)
            if outcome is not None:
                decided += 1
                yield outcome
            elif self._claims(trial):
                left_out += 1
            falsified = outcome is not None and outcome[0].verdict is Verdict.FALSIFIED
            if self.trials.under_test.fail_fast and not self.trials.blamed and not falsified:
                self.trials.blamed = self._blame_for(number, trial)
        if self._is_stopped:
            reason = f"stopped by --fail-fast: a call fails, see {', '.join(self.trials.blamed)}"
            yield Outcome(Verdict.INCONCLUSIVE, reason=reason, touched=TOUCHED), self.trials.latest.call
        elif left_out > decided and self.elsewhere:
            _, claim, smallest = self.elsewhere[0]
            blamed = ", ".join(self._names_to_blame(self.elsewhere[0]))
            count = f"{left_out} of {left_out + decided} calls"
            reason = f"{claim}: {count} also fail without this option: see {blamed}"
            yield Outcome(Verdict.INCONCLUSIVE, reason=reason, touched=TOUCHED), smallest

    @property
    def _is_stopped(self) -> bool:
        """Return whether --fail-fast stops this capability, because a call falsifies other capabilities."""
        return bool(self.trials.blamed) and self.statement.id not in self.trials.blamed

    def _outcome(self, number: int, trial: Trial) -> tuple[Outcome, AttentionCall] | None:
        call = trial.call
        refused = trial.refused and f"the kernel refuses it: {trial.refused}"
        if trial.not_compiled and self.capability.name == "compiled":
            refused = f"torch.compile cannot compile the kernel: {trial.not_compiled}"
        if refused:
            return Outcome(Verdict.NOT_APPLICABLE, reason=refused), call
        if trial.broke is not None:
            outcome = error_outcome(self.statement, trial.broke)
            return Outcome(outcome.verdict, (), outcome.reason, outcome.error, TOUCHED), call
        claims_of_capability = self._claims(trial)
        if not claims_of_capability or self._follows_from_another(number, trial):
            return None
        # Report the kernel's own scale only once.
        scale = self.capability.name == "default-scale"
        claims_of_capability = [
            (about, claim if about or scale else replace(claim, branch="")) for about, claim in claims_of_capability
        ]
        claims = tuple(claim for _, claim in claims_of_capability)
        for about, claim in claims_of_capability:
            if claim.verdict is Verdict.FALSIFIED:
                smallest = self._smallest(number, call, about, claim)
                if smallest is not None:
                    return self._falsified_outcome(claims, claim, smallest), smallest
        undecided = next((claim for claim in claims if claim.verdict is Verdict.INCONCLUSIVE), None)
        if any(claim.verdict is Verdict.FALSIFIED for claim in claims):
            return None
        if undecided is not None:
            reason = f"{undecided.name}: {undecided.undecided}" if undecided.undecided else sentence(undecided)
            return Outcome(Verdict.INCONCLUSIVE, claims, reason, touched=TOUCHED), call
        return Outcome(Verdict.UPHELD, claims, touched=TOUCHED), call

    def _claims(self, trial: Trial) -> list[About]:
        """Return the claims about the trial's call that belong to this capability."""
        return [(about, claim) for about, claim in trial.claims if self.capability.has(trial.call, about, claim.name)]

    def _follows_from_another(self, number: int, trial: Trial) -> bool:
        """Return whether the call disagrees with the formula although this capability claims no agreement.

        Such a failure belongs to other capabilities, whose claims it falsifies.
        """
        if self.capability.agrees or self.capability.everywhere:
            return False
        wrong = next((claim for about, claim in trial.claims if not about and claim.verdict is Verdict.FALSIFIED), None)
        if wrong is not None and not self.elsewhere:
            self.elsewhere.append(("", wrong.name, self.trials.smallest(number, "", wrong.name)))
        return wrong is not None

    def _falsified_outcome(self, claims: tuple[Claim, ...], claim: Claim, smallest: AttentionCall) -> Outcome:
        """Return the falsified outcome with a sentence on the smallest call.

        If this call passes now, because the kernel remembers calls, the sentence is on the first failing call.
        """
        again = check(self.statement, smallest, self.trials.under_test)
        reported = next((repeated for repeated in again.claims if repeated.name == claim.name), claim)
        reported = reported if reported.verdict is Verdict.FALSIFIED else claim
        return Outcome(Verdict.FALSIFIED, claims, sentence(reported), touched=TOUCHED)

    def _smallest(self, number: int, call: AttentionCall, about: str, claim: Claim) -> AttentionCall | None:
        """Return the smallest call that fails as ``call`` does; None if its failure belongs to another capability."""
        for subject, name, other in self.elsewhere:
            reduced = reduce_to(call, other)
            without = self.capability.is_base or not self.capability.has(reduced, about, claim.name)
            cheap = work_of(call) <= CHEAP
            if (
                (subject, name) == (about, claim.name)
                and without
                and cheap
                and self.trials.falsifies(reduced, about, name)
            ):
                return None
        if len(self.elsewhere) >= ENOUGH:
            return None
        smallest = self.trials.smallest(number, about, claim.name)
        if owns(self.capability, smallest, about, claim.name, self.trials.under_test.kernel.fixed_scale):
            return smallest
        self.elsewhere.append((about, claim.name, smallest))
        return None

    def _blame_for(self, number: int, trial: Trial) -> list[str]:
        """Return the ids of the capabilities that a call falsifies; none if it falsifies no claim.

        Disagreement with the formula comes first: claims about a single capability may fail because of it.
        """
        failures = [(about, claim.name) for about, claim in trial.claims if claim.verdict is Verdict.FALSIFIED]
        if not failures:
            return []
        about, claim = min(failures, key=lambda failure: bool(failure[0]))
        return self._names_to_blame((about, claim, self.trials.smallest(number, about, claim)))

    def _names_to_blame(self, failure: tuple[str, str, AttentionCall]) -> list[str]:
        """Return the ids of the capabilities that a failure belongs to."""
        about, claim, smallest = failure
        fixed_scale = self.trials.under_test.kernel.fixed_scale
        blamed = [x for x in CAPABILITIES if not x.format and owns(x, smallest, about, claim, fixed_scale)]
        return [f"kernel-{capability.name}" for capability in blamed]


def view_of(statement: Statement, examples: int, seed: int, under_test: OnKernel) -> View:
    """Return the view of a capability on a kernel's calls; in a coarser format they cover only pairs of options."""
    capability = capability_of(statement.id)
    examples = min(examples, PAIRS) if capability.format else examples
    return View(statement, trials_of(under_test.in_format(capability.format), examples, seed))
