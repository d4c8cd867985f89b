"""Tokens: what has been spent, and what may still be."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


class BudgetReached(Exception):
    """The next request could exceed the limit."""


@dataclass
class Tokens:
    """Requests that were answered, and the tokens of their prompts and answers."""

    requests: int = 0
    read: int = 0
    written: int = 0

    @property
    def total(self) -> int:
        """Tokens of prompts and answers."""
        return self.read + self.written

    def add(self, read: int, written: int) -> None:
        """Count one answer."""
        self.requests += 1
        self.read += read
        self.written += written


class Budget:
    """A limit on the tokens of all requests, those in flight included.

    spent: what has been answered, that of earlier runs included. limit: None for none.
    """

    def __init__(self, limit: int | None, spent: Tokens) -> None:
        self.limit = limit
        self.spent = spent
        self._reserved = 0
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def reserve(self, tokens: int) -> AsyncIterator[None]:
        """Hold back the most that a request may cost while it runs.

        Waits while requests in flight hold what it needs; BudgetReached if none is in flight
        and the rest does not suffice.
        """
        async with self._changed:
            await self._changed.wait_for(lambda: self._fits(tokens) or not self._reserved)
            if not self._fits(tokens):
                raise BudgetReached
            self._reserved += tokens
        try:
            yield
        finally:
            async with self._changed:
                self._reserved -= tokens
                self._changed.notify_all()

    def _fits(self, tokens: int) -> bool:
        return self.limit is None or self.spent.total + self._reserved + tokens <= self.limit
