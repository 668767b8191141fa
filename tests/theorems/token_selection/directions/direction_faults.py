"""The planted faults in Definition 3."""

from __future__ import annotations

from tests.theorems.token_selection.faults import PLANTED, planted
from theorems.faults import Kind

DIRECTION_FAULTS = planted(*(fault.name for fault in PLANTED.values() if fault.kind is Kind.DIRECTION))
"""Faults in selected tokens, directional margin or directional neighbours."""
