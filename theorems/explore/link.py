"""Links that contain the data: the text of the case, compressed, as an argument of the address."""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from generators.user_data import as_text, case_of
from reference_attention.errors import InvalidInput
from reference_attention.files import from_json, to_json
from theorems.explore.runs import RULES
from theorems.explore.state import MOST_STARTS, REACHES, State, state_of

NAME = "state"
"""Name of the query parameter of an address that contains the data."""
LONGEST = 16_000
"""Largest length of an address, in characters, that browsers and servers accept; larger data are saved as files."""
LARGEST = 2**22
"""Largest length of the decompressed text in a link, in characters."""


def is_link(text: str) -> bool:
    """Return whether a text is the address of a page, with the data in the address."""
    return text.startswith(("http://127.0.0.1", "http://localhost", f"?{NAME}="))


def pack(state: State) -> str:
    """Return the state as an argument of an address; return "" if it is too long."""
    content = {
        "case": from_json(as_text(state.case)),
        "starts": state.starts,
        "token": state.token,
        "alpha": state.alpha,
        "reach": state.reach,
        "rule": state.rule,
    }
    argument = base64.urlsafe_b64encode(zlib.compress(to_json(content).encode(), 9)).decode().rstrip("=")
    return argument if len(argument) <= LONGEST else ""


def unpack_link(address: str) -> State:
    """Read the state from an address, or from its argument alone.

    Raises:
        InvalidInput: the address contains no state, or a damaged one.
    """
    query = urlsplit(address).query if "?" in address else f"{NAME}={address}"
    packed_state = parse_qs(query).get(NAME, [""])[0]
    try:
        content = base64.urlsafe_b64decode(packed_state + "=" * (-len(packed_state) % 4))
        text = zlib.decompressobj().decompress(content, LARGEST).decode()
        packed = from_json(text)
        state = state_of(case_of(packed["case"], name="link"))
        return state.but(**_view_in(state, packed))
    except InvalidInput as error:
        raise InvalidInput(f"link: {error}") from None
    except (ValueError, TypeError, KeyError, IndexError, zlib.error, binascii.Error):
        raise InvalidInput("link: it holds no data, or was cut short; copy it whole.") from None


def _view_in(state: State, packed: dict[str, Any]) -> dict[str, Any]:
    """Return the state with the display settings of a link, such as the selected token.

    Raises:
        ValueError, TypeError, KeyError, IndexError: the settings do not fit the data.
    """
    problem = state.case.problem
    starts = np.array(packed["starts"], dtype=np.float64)
    i, t = (int(k) for k in packed["token"])
    alpha = None if packed["alpha"] is None else tuple(int(k) for k in packed["alpha"])
    fits = (
        starts.ndim == 2
        and 1 <= len(starts) <= MOST_STARTS
        and starts.shape[1] == problem.d
        and np.isfinite(starts).all()
        and 0 <= i < problem.n
        and 0 <= t < problem.T
        and (alpha is None or (len(alpha) == problem.n and all(0 <= k < problem.T for k in alpha)))
        and packed["reach"] in REACHES
        and packed["rule"] in RULES
    )
    if not fits:
        raise ValueError("the link selects a token or start that its data do not have")
    return {"starts": starts, "token": (i, t), "alpha": alpha, "reach": float(packed["reach"]), "rule": packed["rule"]}
