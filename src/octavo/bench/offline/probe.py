"""Stop-watches around the pieces of a step, put there for a measurement and taken away after it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

MISSING = object()


class Watch:
    """Seconds spent in each named piece since the last reset."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, timed under `name`."""
        self.seconds.setdefault(name, 0.0)
        clock, seconds = time.perf_counter, self.seconds

        def run(*args: Any, **kwargs: Any) -> Any:
            begin = clock()
            try:
                return function(*args, **kwargs)
            finally:
                seconds[name] += clock() - begin

        return run

    def reset(self) -> None:
        """Back to 0."""
        for name in self.seconds:
            self.seconds[name] = 0.0


class Stand:
    """Stands in for an object: some methods are replaced, all else is the object's."""

    def __init__(self, target: Any, methods: dict[str, Callable[..., Any]]) -> None:
        self.__dict__.update(methods)
        self._target = target

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


@contextmanager
def swapped(owner: Any, name: str, value: Any) -> Iterator[None]:
    """`owner.name` is `value` for a while (also where the owner is frozen)."""
    before = getattr(owner, name)
    own = MISSING if not hasattr(owner, "__dict__") else vars(owner).get(name, MISSING)
    object.__setattr__(owner, name, value)
    try:
        yield
    finally:
        if own is MISSING and hasattr(owner, "__dict__"):
            object.__delattr__(owner, name)  # it was the class's
        else:
            object.__setattr__(owner, name, before)


def ops_of_a_pass(ops: Any) -> list[str]:
    """Names of the op set's methods that a forward pass calls."""
    names = [n for n in dir(ops) if not n.startswith(("_", "prepare_", "plan_"))]
    return [
        n
        for n in names
        if callable(getattr(ops, n)) and n not in ("argmax", "copy_tiles", "compile")
    ]


@contextmanager
def watching(core: Any, watch: Watch, by_op: bool) -> Iterator[None]:
    """Times `schedule`, `update`, `execute`, `inputs`, `hidden`, `logits`, `step` and, if `by_op`,
    each op.

    `core` is an EngineCore with a ModelRunner; nothing of this is there when nothing is measured.
    """
    runner, scheduler = core.runner, core.scheduler
    model, builder = runner._model, runner._inputs
    timed = watch.timed
    with ExitStack() as stack:
        swap = stack.enter_context
        swap(swapped(core, "step", timed("step", core.step)))
        swap(swapped(scheduler, "schedule", timed("schedule", scheduler.schedule)))
        swap(swapped(scheduler, "update", timed("update", scheduler.update)))
        swap(swapped(runner, "execute", timed("execute", runner.execute)))
        build = {"build": timed("inputs", builder.build)}
        swap(swapped(runner, "_inputs", Stand(builder, build)))
        hidden = model.hidden
        if by_op:  # op by op instead of compiled
            ops = model.ops
            calls = {name: timed(f"op {name}", getattr(ops, name)) for name in ops_of_a_pass(ops)}
            swap(swapped(model, "ops", Stand(ops, calls)))
            hidden = partial(model.decode, model.ops)
        passes = {"hidden": timed("hidden", hidden), "logits": timed("logits", model.logits)}
        swap(swapped(runner, "_model", Stand(model, passes)))
        yield
