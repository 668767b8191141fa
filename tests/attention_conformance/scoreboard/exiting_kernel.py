"""A kernel that ends the process in which it is called."""

from __future__ import annotations

import os
from typing import Any


def attention(query: Any, keys: Any, values: Any) -> Any:
    """End the process."""
    os._exit(3)
