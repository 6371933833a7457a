"""Nothing crosses a cache salt: no hit, no waiting for another's prefix, no part of a block, no trace
in time.

A tenant's steps (which runs, of which lengths) are the same whether another tenant asked the very
same things before and beside, or something else of the same size.
"""

from __future__ import annotations

import pytest

from octavo.engine.core import EngineCore
from tests.sched.drive import make_core, make_request, run
from tests.toy import ToyRunner

PROMPTS = [list(range(30)), [*range(22), 90, 91, 92], list(range(9)), [*range(3), 80, 81]]
OTHERS = [[token + 100 for token in prompt] for prompt in PROMPTS]


def tenant(core: EngineCore, name: str, prompts: list[list[int]], salt: str | None) -> None:
    for i, prompt in enumerate(prompts):
        core.add_request(make_request(f"{name}{i}", prompt, 4, cache_salt=salt))


def steps_of(core: EngineCore, name: str) -> list[list[tuple[str, int, int]]]:
    assert isinstance(core.runner, ToyRunner)
    return [
        [(r.seq_id, r.start, len(r.token_ids)) for r in plan.seqs if r.seq_id.startswith(name)]
        for plan in core.runner.plans
    ]


def world(
    first: list[list[int]], salts: tuple[str | None, str | None], when: str, **more: int
) -> object:
    """What tenant b sees (steps, cached tokens, tokens) after or beside tenant a."""
    core = make_core(100, match_tokens=True, max_num_batched_tokens=40, **more)
    tenant(core, "a", first, salts[0])
    if when == "after":
        run(core)
    tenant(core, "b", PROMPTS, salts[1])
    results = run(core)
    cached = [
        (o.request_id, o.num_cached_tokens) for o in results.outputs if o.request_id[0] == "b"
    ]
    tokens = {key: value for key, value in results.tokens.items() if key[0].startswith("b")}
    return steps_of(core, "b"), cached, tokens


@pytest.mark.parametrize("when", ["after", "beside"])
@pytest.mark.parametrize("tiers", [(0, 0), (20, 50)])
@pytest.mark.parametrize("salts", [("a", "b"), (None, "b"), ("a", None), ("", None)])
def test_a_tenant_cannot_tell_what_another_asks(
    salts: tuple[str | None, str | None], tiers: tuple[int, int], when: str
) -> None:
    more = {"num_host_blocks": tiers[0], "num_disk_blocks": tiers[1]}
    same, other = world(PROMPTS, salts, when, **more), world(OTHERS, salts, when, **more)
    assert same == other


@pytest.mark.parametrize("when", ["after", "beside"])
def test_with_the_same_salt_it_could(when: str) -> None:
    assert world(PROMPTS, ("a", "a"), when) != world(OTHERS, ("a", "a"), when)


def test_blocks_on_slower_tiers_stay_with_their_tenant() -> None:
    core = make_core(8, match_tokens=True, num_host_blocks=30, num_disk_blocks=30)
    for salt, cached in (("a", 0), ("b", 0), ("a", 28), ("b", 28)):
        for prompt in (PROMPTS[0], OTHERS[0]):  # the second drives the first off the device
            results = run(core, [make_request("r", prompt, 1, cache_salt=salt)])
            assert results.outputs[-1].num_cached_tokens // 4 * 4 == cached
