"""Sizes of multi-head latent attention, for kernels that take those of one model alone, such as FlashMLA."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.calls.call_space import Plan
from attention_conformance.kernel.sizes import Taken

SHARED = ("of keys", "same")
"""Levels of the width of values that become columns of the keys."""


@dataclass(frozen=True)
class Latent(Taken):
    """The sizes of a kernel whose cache has one width and holds the values in its first columns.

    Other keys and values are columns of such a cache, too: those of keys behind those of values.

    Attributes:
        cached, valued: the width of the cache, and of the values in it.
        page: the number of keys in a page; 0 for any number.
    """

    widths: tuple[int, ...] = (64,)
    cached: int = 576
    valued: int = 512
    one_head: bool = True
    page: int = 64
    may_be_huge: ClassVar[bool] = False

    def _limits(self) -> Iterator[str]:
        yield f"widths of {self.cached} and values of {self.valued}"
        if self.one_head:
            yield "one head of keys"
        if self.page:
            yield f"pages of {self.page}"

    def value_width(self, size: int) -> int:
        """Return the width of the values."""
        return self.valued

    def plan(self, plan: Plan) -> Plan:
        """Return the plan with these widths, so that the lengths of its calls are cut for their true cost only."""
        shared = plan["values"] in SHARED
        sized = {"width": str(self.cached if shared else self.widths[0])}
        sized |= {"values": "of keys" if shared else str(self.valued)}
        return {**plan, **sized} | ({"group": "one of keys"} if self.one_head else {})

    def fit(self, call: AttentionCall, *, quartic: bool = False) -> AttentionCall:
        """Return the call with the keys of its first head alone, in these widths and pages."""
        if self.one_head:
            call = call.replace(key=call.key[:, :1], value=call.value[:, :1])
        if self.page and call.page:
            call = call.replace(page=self.page)
        if not call.shared:
            return super().fit(call, quartic=quartic)
        call = Taken.fit(replace(self, widths=(self.cached,)), call, quartic=quartic)
        return call.replace(value=call.key[..., : self.valued])


FLASH_MLA = Latent()
"""The sizes of DeepSeek's models: 512 columns of latent keys and values, and 64 that are rotated."""
