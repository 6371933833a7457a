"""Who runs first, and who gives way. A policy is an order: the first in it run, the last yield."""

from __future__ import annotations

from collections.abc import Callable

from octavo.request import Request

Policy = Callable[[Request], tuple[float, ...]]


def fcfs(request: Request) -> tuple[float, ...]:
    """First come, first served."""
    return (request.arrival_time,)


def priority(request: Request) -> tuple[float, ...]:
    """Lower `priority` first; first come, first served among equals."""
    return (request.priority, request.arrival_time)


POLICIES: dict[str, Policy] = {"fcfs": fcfs, "priority": priority}
