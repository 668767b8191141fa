"""What came of the calls of one kernel, each examined once in a process: capabilities are views of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from attention_conformance.claims.examination import About, examine
from attention_conformance.claims.smaller import NEUTRAL, smallest_failing, work_of
from attention_conformance.claims.table import CAPABILITIES, Capability
from generators.attention_call import LONG_STATES, AttentionCall, State
from generators.call_building import build_call
from generators.call_space import FACTORS, NEUTRAL_PLAN, SIZED, Plan, plans, size_of_array
from generators.drawing import seed_from
from theorems.core.claim import Verdict
from theorems.core.on_kernel import NotCompiled, OnKernel, Refused

PAIRS, TRIPLES = 25, 50
"""Examples from which on every pair of options, and every triple, is met."""


SMALL_CALLS = 4
OTHERS = 8
"""Calls of the same plan that are asked whether they fail without its state."""
MANY = 400
"""Calls among which a few are looked for."""


@dataclass(frozen=True)
class Trial:
    """A call and what is claimed of it.

    Attributes:
        call: as the kernel takes it.
        plan: of it, without the options that the kernel refuses.
        claims: each with what it is about.
        refused: why the kernel refuses it.
        not_compiled: why PyTorch cannot compile it.
        broke: what was raised instead.
    """

    call: AttentionCall
    plan: Plan
    claims: tuple[About, ...] = ()
    refused: str = ""
    not_compiled: str = ""
    broke: BaseException | None = None


@dataclass
class Trials:
    """The calls that a kernel is tried on.

    Attributes:
        under_test: the kernel.
        seed: of the plans.
        strength: of the cover, 2 or 3.
    """

    under_test: OnKernel
    seed: int
    strength: int
    _plans: list[Plan] = field(default_factory=list)
    _made: dict[int, Trial] = field(default_factory=dict)
    _smallest: dict[tuple[int, str, str], AttentionCall] = field(default_factory=dict)

    def about(self, capability: Capability, examples: int) -> Iterator[tuple[int, Trial]]:
        """The calls that are about a capability, by number: so many, and from :data:`PAIRS` on a whole cover.

        Each is built and examined when it is its turn.
        """
        declares = self.under_test.kernel.declares
        whole = size_of_array(declares, self.seed, self.strength) if examples >= PAIRS else 0
        found = number = 0
        # Of few examples, a capability that hardly any call is about is not looked for without end.
        while number < whole if whole else found < examples and number < MANY:
            trial = self._trial(number, capability, few=not whole)
            if trial is not None:
                found += 1
                yield number, trial
            number += 1

    def smallest(self, number: int, about: str, claim: str) -> AttentionCall:
        """The smallest call like that of this number on which the claim is falsified; found once."""
        at = (number, about, claim)
        if at not in self._smallest:
            trial = self._made[number]
            own = trial.call
            small = [one for one in self._small_calls(self._small(trial.plan)) if work_of(one) < work_of(own)]
            if own.state in LONG_STATES:
                small = [one.replace(state=own.state) for one in small]
            needs_state = own.state is not State.ONCE and self._fails_in_its_state_alone(number, small, about, claim)

            def fails(call: AttentionCall) -> bool:
                if needs_state and call.state is State.ONCE:
                    return False
                return self.falsifies(call, about, claim)

            begun = next((reduced for one in small if fails(reduced := reduce_to(one, own))), own)
            # What the signature says of every call is no option that may be left out.
            self._smallest[at] = self.under_test.kernel.suit(smallest_failing(begun, fails))
        return self._smallest[at]

    def _fails_in_its_state_alone(self, number: int, small: list[AttentionCall], about: str, claim: str) -> bool:
        """Whether a call fails because of its state; also where none of the calls that are asked fails.

        A kernel that remembers fails without the state, too, once the numbers of the call were there before. So calls
        of other numbers are asked, each first without the state, until one fails.
        """
        trial = self._made[number]
        own = trial.call
        others = (self._build_another(trial.plan, f"{number} {one}") for one in range(OTHERS))
        # The same logits of other numbers.
        mirrored = [] if own.shared else [own.replace(query=-own.query, key=-own.key)]
        for one in (*mirrored, *small, *others):
            there = reduce_to(one, own)
            if self.falsifies(there.replace(state=State.ONCE), about, claim):
                return False
            if self.falsifies(there, about, claim):
                return True
        return True

    def falsifies(self, call: AttentionCall, about: str, claim: str) -> bool:
        """Whether that claim is falsified on a call."""
        try:
            made = list(examine(call, self.under_test))
        except Exception:
            return False
        return any(a == about and c.name == claim and c.verdict is Verdict.FALSIFIED for a, c in made)

    def _trial(self, number: int, capability: Capability, few: bool) -> Trial | None:
        """That of a number; None if it is not about the capability."""
        if number in self._made:
            trial = self._made[number]
            return trial if capability.is_about(trial.call, few) else None
        call = self._build(self._plan(number), number)
        if not capability.is_about(call, few):
            return None
        trial = self._made[number] = self._examine(number, call)
        return trial if capability.is_about(trial.call, few) else None

    def _plan(self, number: int) -> Plan:
        if number >= len(self._plans):
            declares = self.under_test.kernel.declares
            taken = self.under_test.kernel.taken
            self._plans = [taken.plan(one) for one in islice(plans(declares, self.seed, self.strength), number + 128)]
        return self._plans[number]

    def _build(self, plan: Plan, number: int) -> AttentionCall:
        seed = seed_from(f"call {self.seed} {number}") % 2**32
        kernel = self.under_test.kernel
        built = build_call(plan, kernel.declares, seed, number if kernel.taken.may_be_huge else 0)
        call: AttentionCall = kernel.suit(built)
        return call

    def _build_another(self, plan: Plan, name: str) -> AttentionCall:
        """A call of the same plan with other numbers."""
        return build_call(plan, self.under_test.kernel.declares, seed_from(f"another {name}") % 2**32)

    def _examine(self, number: int, call: AttentionCall) -> Trial:
        plan = self._plan(number)
        for _ in FACTORS:
            claims: list[About] = []
            try:
                for one in examine(call, self.under_test):
                    claims.append(one)
                return Trial(call, plan, tuple(claims))
            except NotCompiled as refusal:
                return Trial(call, plan, tuple(claims), not_compiled=str(refusal))
            except Refused as refusal:
                without = self._without_what_is_refused(plan, number)
                if without is None:
                    return Trial(call, plan, refused=str(refusal))
                plan = without
                call = self._build(plan, number)
            except (Exception, SystemExit) as error:
                return Trial(call, plan, broke=error)
        return Trial(call, plan, refused="one option after the other")

    def _without_what_is_refused(self, plan: Plan, number: int) -> Plan | None:
        """The plan with one option less of those that the kernel refuses together; None if that cannot be said."""
        small = self._small(plan)
        if not self._is_refused(small):
            return None
        for name, level in NEUTRAL_PLAN.items():
            if small[name] != level and self._is_refused(small | {name: level}):
                small[name] = level
        left = [name for name in NEUTRAL_PLAN if small[name] != NEUTRAL_PLAN[name]]
        if not left:
            return None
        name = left[int(np.random.default_rng((self.seed, number)).integers(len(left)))]
        return {**plan, name: NEUTRAL_PLAN[name]}

    def _small(self, plan: Plan) -> dict[str, str]:
        """The plan with what makes a call large, or its numbers unusual, at its first level."""
        sized = {name for name in SIZED if name not in ("values", "relation")}
        return {
            name: NEUTRAL_PLAN[name] if name in sized or level in LONG_STATES else level for name, level in plan.items()
        }

    def _small_calls(self, plan: Plan) -> Iterator[AttentionCall]:
        """Some calls of it: of a single key or query anything may be taken."""
        return (build_call(plan, self.under_test.kernel.declares, seed) for seed in range(SMALL_CALLS))

    def _is_refused(self, plan: Plan) -> bool:
        """Whether one of some small calls is."""
        for call in self._small_calls(plan):
            try:
                self.under_test.attend(self.under_test.kernel.in_own_numbers(call))
            except Refused:
                return True
            except Exception:
                return False
        return False


_LATEST: dict[tuple[int, int], Trials] = {}
"""Of one kernel: calls are large, and those of many would fill the memory."""


def trials_of(under_test: OnKernel, examples: int, seed: int) -> Trials:
    """Those of a kernel, the same for all capabilities, until another kernel is asked."""
    if any(one.under_test.kernel is not under_test.kernel for one in _LATEST.values()):
        _LATEST.clear()
    strength = 3 if examples >= TRIPLES else 2
    return _LATEST.setdefault((seed, strength), Trials(under_test, seed, strength))


def owns(capability: Capability, smallest: AttentionCall, about: str, claim: str) -> bool:
    """Whether the smallest failing call says that a capability is wrong: it makes use of it, or of none and the claim
    is one of the basic ones.
    """
    if not capability.has(smallest, about, claim):
        return False
    if about or not capability.is_base:
        return True
    return not any(one.is_on(smallest) for one in CAPABILITIES if not one.is_base and claim in one.agrees)


def reduce_to(call: AttentionCall, smallest: AttentionCall) -> AttentionCall:
    """The call with the options of the smallest one alone: the sizes are its own."""
    kept = {
        name for name, value in NEUTRAL.items() if np.ndim(getattr(smallest, name)) or getattr(smallest, name) != value
    }
    return call.replace(**{name: value for name, value in NEUTRAL.items() if name not in kept})
