"""The calls of one kernel and the claims about them, which all capabilities share.

A process makes the claims about each call only once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, islice

import numpy as np

from attention_conformance.calls.answer import NotCompiled, OnKernel, attend
from attention_conformance.calls.attention_call import LONG_STATES, AttentionCall, State
from attention_conformance.calls.call_builder import build_call
from attention_conformance.calls.call_space import FACTORS, NEUTRAL_PLAN, SIZED, Plan, fixed_plans, plans, size_of_array
from attention_conformance.claims.call_claims import About, examine
from attention_conformance.claims.call_shrinker import NEUTRAL, smallest_failing, work_of
from attention_conformance.claims.capabilities import CAPABILITIES, Capability
from generators.hypothesis_driver import seed_from
from theorems.core.claim import Verdict
from theorems.core.under_test import Refused

PAIRS, TRIPLES = 25, 50
"""The least numbers of examples with which every pair, or every triple, of options occurs."""


SMALL_CALLS = 4
OTHERS = 8
"""The number of other calls of a failing call's plan that are tried, each without and then in the plan's state."""
MANY = 400
"""The number of calls in which calls that use a capability are looked for, if only a few are needed."""


@dataclass(frozen=True)
class Trial:
    """A call and the claims about it.

    Attributes:
        call: the call, adapted to the kernel.
        plan: the call's plan, without the options that the kernel refuses.
        claims: the claims, each with the capability that it concerns.
        refused: the reason why the kernel refuses the call; empty if the kernel takes the call.
        not_compiled: the reason why PyTorch cannot compile the kernel; empty if PyTorch can.
        broke: any other exception that the call raised.
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
        seed: the seed of the plans.
        strength: the strength of the cover, 2 or 3.
        blamed: for a run with ``--fail-fast``, the ids of the capabilities that a failing call falsifies; the other
            capabilities are not tried further.
    """

    under_test: OnKernel
    seed: int
    strength: int
    blamed: list[str] = field(default_factory=list)
    _plans: list[Plan] = field(default_factory=list)
    _made: dict[int, Trial] = field(default_factory=dict)
    _not_about: dict[tuple[int, bool], set[str]] = field(default_factory=dict)
    _smallest: dict[tuple[int, str, str], AttentionCall] = field(default_factory=dict)

    def about(self, capability: Capability, examples: int) -> Iterator[tuple[int, Trial]]:
        """Yield calls that concern a capability, each with its index: ``examples`` calls, or a whole cover.

        With :data:`PAIRS` or more examples, the calls are the whole cover. Calls are built and examined one by one.
        """
        if examples < PAIRS:
            # The search for calls of a rare capability is limited.
            trials = ((number, self._trial(number, capability, few=True)) for number in range(MANY))
            yield from islice(((number, trial) for number, trial in trials if trial is not None), examples)
            return
        for number in count(-len(self._fixed)):
            # The covering array, and the kernel's compilation that it depends on, take seconds: begin with fixed calls.
            if number >= 0 and number not in self.cover():
                return
            trial = self._trial(number, capability, few=False)
            if trial is not None:
                yield number, trial

    def cover(self) -> range:
        """Return the indices of the calls of a whole cover.

        The calls at the beginning of every cover have negative indices, so that the other indices do not depend on
        them.
        """
        declares = self.under_test.kernel.complete.declares
        return range(-len(self._fixed), size_of_array(declares, self.seed, self.strength))

    @property
    def latest(self) -> Trial:
        """The trial that was made last."""
        return next(reversed(self._made.values()))

    def at(self, number: int) -> Trial:
        """Return the trial with this index, whatever capabilities its call concerns."""
        if number not in self._made:
            self._made[number] = self._examine(number, self._build(self._plan(number), number))
        return self._made[number]

    def smallest(self, number: int, about: str, claim: str) -> AttentionCall:
        """Return the smallest call that falsifies the claim, shrunk from the call with this index; it is cached."""
        at = (number, about, claim)
        if at not in self._smallest:
            trial = self._made[number]
            original = trial.call
            small = [call for call in self._small_calls(self._small(trial.plan)) if work_of(call) < work_of(original)]
            if original.state in LONG_STATES:
                small = [call.replace(state=original.state) for call in small]
            needs_state = original.state is not State.ONCE and self._fails_in_its_state_alone(
                number, small, about, claim
            )

            def fails(call: AttentionCall) -> bool:
                if needs_state and call.state is State.ONCE:
                    return False
                return self.falsifies(call, about, claim)

            first = next((reduced for call in small if fails(reduced := reduce_to(call, original))), original)
            # Options that the kernel's signature fixes for every call stay in the smallest call.
            self._smallest[at] = self.under_test.kernel.suit(smallest_failing(first, fails))
        return self._smallest[at]

    def _fails_in_its_state_alone(self, number: int, small: list[AttentionCall], about: str, claim: str) -> bool:
        """Return whether a failure is due to the call's state alone; true also if no other call that is tried fails.

        Once a kernel that remembers calls has been called on these numbers, it may fail without the state, too. So
        calls on other numbers are tried, each first without the state, until one fails.
        """
        trial = self._made[number]
        original = trial.call
        others = (self._build_another(trial.plan, f"{number} {k}") for k in range(OTHERS))
        # Negating query and key gives other numbers with the same logits.
        mirrored = [original.replace(query=-original.query, key=-original.key)]
        for other in (*mirrored, *small, *others):
            reduced = reduce_to(other, original)
            if self.falsifies(reduced.replace(state=State.ONCE), about, claim):
                return False
            if self.falsifies(reduced, about, claim):
                return True
        return True

    def falsifies(self, call: AttentionCall, about: str, claim: str) -> bool:
        """Return whether the named claim is falsified on a call."""
        try:
            examined = list(examine(call, self.under_test))
        except Exception:
            return False
        return any(a == about and c.name == claim and c.verdict is Verdict.FALSIFIED for a, c in examined)

    def _trial(self, number: int, capability: Capability, few: bool) -> Trial | None:
        """Return the trial with this index; None if it does not concern the capability."""
        if number in self._made:
            trial = self._made[number]
            return trial if capability.is_about(trial.call, few) else None
        if capability.name in self._not_about.get((number, few), ()):  # building the call again would take long
            return None
        call = self._build(self._plan(number), number)
        self._not_about[number, few] = {other.name for other in CAPABILITIES if not other.is_about(call, few)}
        if not capability.is_about(call, few):
            return None
        trial = self._made[number] = self._examine(number, call)
        return trial if capability.is_about(trial.call, few) else None

    @property
    def _fixed(self) -> tuple[Plan, ...]:
        """The plans at the beginning of every cover."""
        return fixed_plans(frozenset(self.under_test.kernel.declares), self.seed)

    def _plan(self, number: int) -> Plan:
        if number < 0:
            plan: Plan = self._fixed[number]
            return plan
        if number >= len(self._plans):
            kernel = self.under_test.kernel
            of_arrays = plans(kernel.complete.declares, self.seed, self.strength)
            first_plans = islice(of_arrays, self._enough_plans(number))
            self._plans = [*first_plans]
        return self._plans[number]

    def _enough_plans(self, number: int) -> int:
        """Return how many plans to build for the plan ``number``: the first array or, beyond it, 128 more than that."""
        size = self.cover().stop
        return size if number < size else number + 128

    def _build(self, plan: Plan, number: int) -> AttentionCall:
        seed = seed_from(f"call {self.seed} {number}") % 2**32
        kernel = self.under_test.kernel
        built = build_call(plan, kernel.declares, seed, number if kernel.taken.may_be_huge else 0)
        call: AttentionCall = kernel.suit(built)
        return call

    def _build_another(self, plan: Plan, name: str) -> AttentionCall:
        """Return a call of the same plan with other numbers."""
        return build_call(plan, self.under_test.kernel.declares, seed_from(f"another {name}") % 2**32)

    def _examine(self, number: int, call: AttentionCall) -> Trial:
        plan = self._plan(number)
        for _ in FACTORS:
            claims: list[About] = []
            try:
                for claim in examine(call, self.under_test):
                    claims.append(claim)
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
        return Trial(call, plan, refused="whichever options are left out")

    def _without_what_is_refused(self, plan: Plan, number: int) -> Plan | None:
        """Return the plan without a random option of a combination that the kernel refuses; None if there is none."""
        small = self._small(plan)
        if not self._is_refused(small):
            return None
        for name, level in NEUTRAL_PLAN.items():
            if small[name] != level and self._is_refused(small | {name: level}):
                small[name] = level
        options = [name for name in NEUTRAL_PLAN if small[name] != NEUTRAL_PLAN[name]]
        if not options:
            return None
        name = options[int(np.random.default_rng((self.seed, abs(number))).integers(len(options)))]
        return {**plan, name: NEUTRAL_PLAN[name]}

    def _small(self, plan: Plan) -> dict[str, str]:
        """Return the plan with neutral levels for all factors that make a call large or its numbers unusual."""
        sized = {name for name in SIZED if name not in ("values", "relation")}
        return {
            name: NEUTRAL_PLAN[name] if name in sized or level in LONG_STATES else level for name, level in plan.items()
        }

    def _small_calls(self, plan: Plan) -> Iterator[AttentionCall]:
        """Return several small calls of the plan: a kernel may accept a call with a single key or query by chance."""
        return (build_call(plan, self.under_test.kernel.declares, seed) for seed in range(SMALL_CALLS))

    def _is_refused(self, plan: Plan) -> bool:
        """Return whether the kernel refuses any of several small calls of the plan."""
        for call in self._small_calls(plan):
            try:
                self.under_test[attend](self.under_test.kernel.in_own_numbers(call))
            except Refused:
                return True
            except Exception:
                return False
        return False


_LATEST: dict[tuple[int, int], Trials] = {}
"""Cache of the trials of one kernel only: calls are large, and those of many kernels would fill the memory."""


def trials_of(under_test: OnKernel, examples: int, seed: int) -> Trials:
    """Return the trials of a kernel, which all its capabilities share; drop the trials of an earlier kernel."""
    if any(trials.under_test.kernel is not under_test.kernel for trials in _LATEST.values()):
        _LATEST.clear()
    strength = 3 if examples >= TRIPLES else 2
    return _LATEST.setdefault((seed, strength), Trials(under_test, seed, strength))


def owns(capability: Capability, smallest: AttentionCall, about: str, claim: str, fixed_scale: bool) -> bool:
    """Return whether the smallest failing call falsifies a capability.

    The call falsifies each capability that it uses, but a base capability (output, gradients) only if it uses no other;
    a fixed scale of the kernel does not count as another capability.
    """
    if not capability.has(smallest, about, claim):
        return False
    if about or not capability.is_base:
        return True
    others = [other for other in CAPABILITIES if not other.is_base and claim in other.agrees and other.is_on(smallest)]
    return all(fixed_scale and other.name == "default-scale" for other in others)


def reduce_to(call: AttentionCall, smallest: AttentionCall) -> AttentionCall:
    """Return the call, in its own sizes, with only those options that the smallest call has as well."""
    options = {
        name for name, value in NEUTRAL.items() if np.ndim(getattr(smallest, name)) or getattr(smallest, name) != value
    }
    return call.replace(**{name: value for name, value in NEUTRAL.items() if name not in options})
