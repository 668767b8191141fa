"""NTP-compatibility, decided over integers: whether some θ reproduces the relative frequencies after each context.

In the notation of :mod:`.master_problem`, the equations (a_jz − a_jz')·θ + log m_jz/m_jz' = log p_jz/p_jz' for z, z' ∈
S_j have a solution θ if and only if Π (c_jz m_jz'/(c_jz' m_jz))^y = 1 for all rational exponents y, one for each pair
of z and z', with Σ y (a_jz − a_jz') = 0. Here c_jz is the count and m_jz the multiplicity of z after context j. The
condition is an equality of integers, decided by comparing the exponents of primes.

Reference: arXiv 2402.18551, Definition 1 and (4).
"""

from __future__ import annotations

from flint import fmpq, fmpq_mat, fmpz

from reference_attention.next_token.master_problem import MasterProblem


def compatible(problem: MasterProblem) -> bool:
    """Return whether the problem is NTP-compatible, that is, whether the equations of the module have a solution θ.

    >>> compatible(MasterProblem.of_tokens([[1.0], [2.0]], [[2, 1, 0], [4, 1, 0]]))
    True
    >>> compatible(MasterProblem.of_tokens([[1.0], [2.0]], [[2, 1, 0], [2, 1, 0]]))
    False
    """
    pairs = [pair for pair in problem.pairs if problem.supports[pair]]
    if not pairs:
        return True
    exponents = [_exponents(problem, *pair) for pair in pairs]
    primes = sorted(set().union(*exponents))
    rows = [problem.differences[pair] for pair in pairs]
    # The right-hand sides of the equations are integer combinations of logarithms of primes, which are independent over
    # the rationals.
    table = [
        [*row, *(fmpq(powers.get(prime, 0)) for prime in primes)] for row, powers in zip(rows, exponents, strict=True)
    ]
    return bool(fmpq_mat(table).rank() == fmpq_mat(rows).rank())


def _exponents(problem: MasterProblem, j: int, v: int) -> dict[int, int]:
    """Return the prime factorisation of c_jz m_jv/(c_jv m_jz), z the first token of S_j, as exponents by prime."""
    z, exponents = int(problem.first[j]), dict[int, int]()
    for number, sign in (
        (problem.counts[j, z], 1),
        (problem.multiplicities[j, v], 1),
        (problem.counts[j, v], -1),
        (problem.multiplicities[j, z], -1),
    ):
        for prime, power in fmpz(int(number)).factor():
            exponents[int(prime)] = exponents.get(int(prime), 0) + sign * int(power)
    return exponents
