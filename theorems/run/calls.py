"""Verify a capability of an attention kernel on calls that it shares with all others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from attention_conformance.claims.smaller import work_of
from attention_conformance.claims.statements import capability_of
from attention_conformance.claims.table import CAPABILITIES, Capability
from attention_conformance.claims.trials import Trial, Trials, owns, reduce_to, trials_of
from generators.attention_call import AttentionCall
from theorems.core.check import Outcome, check, error_outcome, sentence
from theorems.core.claim import Claim, Verdict
from theorems.core.on_kernel import OnKernel
from theorems.core.statement import Statement

TOUCHED = ("attend",)
ENOUGH = 5
"""Failures for which others answer, after which those that follow are taken for such, too."""
CHEAP = 1 << 20
"""Work of a call that is tried again without the options that are not to blame."""


@dataclass
class View:
    """The calls of a kernel as one capability sees them.

    Attributes:
        statement: the capability as a statement.
        trials: the calls.
        elsewhere: failures for which another capability answers: what the claim is about, its name, the smallest call.
    """

    statement: Statement
    trials: Trials
    elsewhere: list[tuple[str, str, AttentionCall]] = field(default_factory=list)

    @property
    def capability(self) -> Capability:
        """What it is about."""
        return capability_of(self.statement)

    def outcomes(self, examples: int) -> Iterator[tuple[Outcome, AttentionCall]]:
        """Of call after call; of one that is falsified, with the smallest such call.

        A call that fails without the capability, too, says nothing of it, and is left out.
        """
        held = False
        for number, trial in self.trials.about(self.capability, examples):
            found = self._outcome(number, trial)
            if found is not None:
                held = True
                yield found
        if not held and self.elsewhere:
            _, claim, smallest = self.elsewhere[0]
            reason = f"every call fails without it, too: see {', '.join(_names_to_blame(self.elsewhere[0]))}"
            yield Outcome(Verdict.NOT_APPLICABLE, reason=f"{claim}: {reason}", touched=TOUCHED), smallest

    def _outcome(self, number: int, trial: Trial) -> tuple[Outcome, AttentionCall] | None:
        call = trial.call
        refused = trial.refused and f"the kernel refuses it: {trial.refused}"
        if trial.not_compiled and self.capability.name == "compiled":
            refused = f"torch.compile does not take it: {trial.not_compiled}"
        if refused:
            return Outcome(Verdict.NOT_APPLICABLE, reason=refused), call
        if trial.broke is not None:
            outcome = error_outcome(self.statement, trial.broke)
            return Outcome(outcome.verdict, (), outcome.reason, outcome.error, TOUCHED), call
        own = [(about, one) for about, one in trial.claims if self.capability.has(call, about, one.name)]
        if not own or self._follows_from_another(number, trial):
            return None
        # Which scale is its own is said once.
        scale = self.capability.name == "default-scale"
        own = [(about, one if about or scale else replace(one, branch="")) for about, one in own]
        claims = tuple(one for _, one in own)
        for about, claim in own:
            if claim.verdict is Verdict.FALSIFIED:
                smallest = self._smallest(number, call, about, claim)
                if smallest is not None:
                    return self._falsified_outcome(claims, claim, smallest), smallest
        undecided = next((one for one in claims if one.verdict is Verdict.INCONCLUSIVE), None)
        if any(one.verdict is Verdict.FALSIFIED for one in claims):
            return None
        if undecided is not None:
            said = f"{undecided.name}: {undecided.undecided}" if undecided.undecided else sentence(undecided)
            return Outcome(Verdict.INCONCLUSIVE, claims, said, touched=TOUCHED), call
        return Outcome(Verdict.UPHELD, claims, touched=TOUCHED), call

    def _follows_from_another(self, number: int, trial: Trial) -> bool:
        """Whether the call disagrees with the formula, and the capability claims nothing of that: others answer for
        it, and what it says of masks or gradients is wrong already.
        """
        if self.capability.agrees or self.capability.everywhere:
            return False
        wrong = next((one for about, one in trial.claims if not about and one.verdict is Verdict.FALSIFIED), None)
        if wrong is not None and not self.elsewhere:
            self.elsewhere.append(("", wrong.name, self.trials.smallest(number, "", wrong.name)))
        return wrong is not None

    def _falsified_outcome(self, claims: tuple[Claim, ...], claim: Claim, smallest: AttentionCall) -> Outcome:
        """In the words of the smallest call, if it still fails: a kernel may remember what it was asked before."""
        again = check(self.statement, smallest, self.trials.under_test)
        said = next((one for one in again.claims if one.name == claim.name), claim)
        said = said if said.verdict is Verdict.FALSIFIED else claim
        return Outcome(Verdict.FALSIFIED, claims, sentence(said), touched=TOUCHED)

    def _smallest(self, number: int, call: AttentionCall, about: str, claim: Claim) -> AttentionCall | None:
        """The smallest call, if it says that this capability is wrong."""
        for known, name, other in self.elsewhere:
            reduced = reduce_to(call, other)
            without = self.capability.is_base or not self.capability.has(reduced, about, claim.name)
            cheap = work_of(call) <= CHEAP
            if (
                (known, name) == (about, claim.name)
                and without
                and cheap
                and self.trials.falsifies(reduced, about, name)
            ):
                return None
        if len(self.elsewhere) >= ENOUGH:
            return None
        smallest = self.trials.smallest(number, about, claim.name)
        if owns(self.capability, smallest, about, claim.name):
            return smallest
        self.elsewhere.append((about, claim.name, smallest))
        return None


def view_of(statement: Statement, examples: int, seed: int, under_test: OnKernel) -> View:
    """The view of a capability on the calls of a kernel."""
    return View(statement, trials_of(under_test, examples, seed))


def _names_to_blame(failure: tuple[str, str, AttentionCall]) -> list[str]:
    """The capabilities that answer for it."""
    about, claim, smallest = failure
    return [f"kernel-{one.name}" for one in CAPABILITIES if owns(one, smallest, about, claim)]
