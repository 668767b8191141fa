"""Sizes of multi-head latent attention, where a kernel takes those of one model alone, as FlashMLA does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from attention_conformance.kernel.sizes import Taken
from generators.attention_call import AttentionCall
from generators.call_space import Plan

SHARED = ("of keys", "same")
"""Levels of the width of values in whose place they are columns of the keys."""


@dataclass(frozen=True)
class Latent(Taken):
    """What a kernel takes whose cache has one width, the first columns of which are the values.

    Other keys and values are columns of such a cache, too: those of keys behind those of values.

    Attributes:
        cached, valued: the width of the cache, and of the values in it.
        page: keys to a page; 0 for any number.
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
        """That of the values."""
        return self.valued

    def plan(self, plan: Plan) -> Plan:
        """A plan of calls of these widths: of those that are affordable, none is too short."""
        shared = plan["values"] in SHARED
        sized = {"width": str(self.cached if shared else self.widths[0])}
        sized |= {"values": "of keys" if shared else str(self.valued)}
        return {**plan, **sized} | ({"group": "one of keys"} if self.one_head else {})

    def fit(self, call: AttentionCall, *, quartic: bool = False) -> AttentionCall:
        """The call with the keys of its first head alone, in these widths and pages."""
        if self.one_head:
            call = call.replace(key=call.key[:, :1], value=call.value[:, :1])
        if self.page and call.page:
            call = call.replace(page=self.page)
        if not call.shared:
            return super().fit(call, quartic=quartic)
        call = Taken.fit(replace(self, widths=(self.cached,)), call, quartic=quartic)
        return call.replace(value=call.key[..., : self.valued])


FLASH_MLA = Latent()
"""DeepSeek's models: 512 columns of latent keys and values, and 64 that are rotated."""
