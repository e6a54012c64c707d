"""Attempts at the password: who was wrong waits before the next one counts, longer each time, and delays no one else.

Nothing sleeps: an attempt that comes too early is refused at once, right or wrong, and does not count. Wrong ones are counted

- by address and name, so that another person at the same address does not wait;
- by address alone, with more patience, so that many names are no way around that;
- by browser instead, for one that has signed in before: whatever others do at its address or with its name, it does not wait.
"""

from __future__ import annotations

import ipaddress
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

FREE, FREE_OF_ADDRESS = 5, 50
"""How many attempts in a row may be wrong before the next one has to wait."""
MAX_SECONDS, MAX_SECONDS_OF_ADDRESS = 300.0, 8.0
_FORGET_SECONDS = 3600.0
_MOST = 10_000
"""Names at addresses, addresses, and browsers that are remembered, each; the oldest is forgotten."""


@dataclass
class _Wrong:
    """The wrong attempts of one person."""

    count: int = 0
    last_at: float = 0.0
    until: float = 0.0


class _Counter:
    """Counts wrong attempts by who has made them."""

    def __init__(self, free: int, seconds_of: Callable[[int], float]) -> None:
        self._free, self._seconds_of = free, seconds_of
        self._found: OrderedDict[str, _Wrong] = OrderedDict()

    def until(self, who: str) -> float:
        found = self._found.get(who)
        return found.until if found is not None else 0.0

    def add(self, who: str, now: float) -> None:
        found = self._found.setdefault(who, _Wrong())
        self._found.move_to_end(who)
        if now - found.last_at > _FORGET_SECONDS:
            found.count = 0
        found.count, found.last_at = found.count + 1, now
        if found.count >= self._free:
            found.until = now + self._seconds_of(found.count - self._free)
        while len(self._found) > _MOST:
            self._found.popitem(last=False)

    def forget(self, who: str) -> None:
        self._found.pop(who, None)

    def __len__(self) -> int:
        return len(self._found)


class Attempts:
    """The wrong attempts of the last hour, and the browsers that have been in."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._of_name = _Counter(FREE, lambda more: min(MAX_SECONDS, 2.0 ** min(more, 20)))
        self._of_address = _Counter(
            FREE_OF_ADDRESS, lambda more: min(MAX_SECONDS_OF_ADDRESS, 2.0 ** min(more // FREE_OF_ADDRESS, 20))
        )
        self._browsers: OrderedDict[str, None] = OrderedDict()

    @property
    def size(self) -> int:
        """How much is remembered."""
        return len(self._of_name) + len(self._of_address) + len(self._browsers)

    def seconds(self, address: str, name: str, browser: str) -> int:
        """Return for how many seconds attempts are refused; 0 if the next one counts."""
        if browser in self._browsers:
            until = self._of_name.until(browser)
        else:
            address = _network(address)
            until = max(self._of_name.until(_who(address, name)), self._of_address.until(address))
        return max(0, math.ceil(until - self._clock()))

    def wrong(self, address: str, name: str, browser: str) -> None:
        """Count a wrong attempt."""
        now, address = self._clock(), _network(address)
        if browser in self._browsers:
            self._of_name.add(browser, now)
            return
        self._of_name.add(_who(address, name), now)
        self._of_address.add(address, now)

    def right(self, address: str, name: str, browser: str) -> str:
        """Forget the wrong attempts of who has signed in; return what the browser is known by from now on."""
        if browser in self._browsers:
            self._of_name.forget(browser)
            self._browsers.move_to_end(browser)
            return browser
        self._of_name.forget(_who(_network(address), name))
        known = secrets.token_urlsafe(32)
        self._browsers[known] = None
        while len(self._browsers) > _MOST:
            self._browsers.popitem(last=False)
        return known


def _who(address: str, name: str) -> str:
    return f"{address} {name.strip().casefold()[:100]}"


def _network(address: str) -> str:
    """Return an address; of IPv6 the network, in which anybody has as many addresses as they like."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        return str(found.ipv4_mapped or ipaddress.ip_network((found.packed[:8] + bytes(8), 64)).network_address)
    return address
