"""Copy or compute: by what was measured, and measured again from time to time."""

from __future__ import annotations

from octavo.kv.moves import Place, Tier
from octavo.sched.promotion import LEAST_TOKENS, RETRY_AFTER, Promotion

HOST, DISK = (Place(tier, 0) for tier in (Tier.HOST, Tier.DISK))


def measured(host: float, disk: float) -> Promotion:
    """Computing a block of 16 takes one second."""
    promotion = Promotion(16)
    promotion.observe_step(LEAST_TOKENS, LEAST_TOKENS / 16)
    promotion.observe_copies({Tier.HOST: host, Tier.DISK: disk})
    return promotion


def test_what_was_not_measured_is_copied() -> None:
    assert Promotion(16).num_worthwhile([HOST, HOST, DISK]) == 3


def test_run_by_run_until_one_is_slower() -> None:
    assert measured(0.5, 2.0).num_worthwhile([HOST, HOST, DISK, HOST]) == 2
    assert measured(2.0, 0.5).num_worthwhile([HOST, HOST, DISK]) == 0
    assert measured(0.5, 0.9).num_worthwhile([HOST, DISK]) == 2


def test_steps_of_few_tokens_say_nothing() -> None:
    promotion = measured(0.5, 0.9)
    promotion.observe_step(LEAST_TOKENS - 1, 1e-9)
    assert promotion.num_worthwhile([DISK]) == 1


def test_a_tier_that_was_slow_once_gets_another_chance() -> None:
    promotion = measured(0.5, 2.0)
    tries = [promotion.num_worthwhile([DISK]) for _ in range(2 * RETRY_AFTER + 2)]
    assert tries == ([0] * RETRY_AFTER + [1]) * 2
    promotion.observe_copies({Tier.DISK: 0.5})
    assert promotion.num_worthwhile([DISK]) == 1
