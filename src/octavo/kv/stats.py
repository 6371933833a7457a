"""Counters of the KV memory: plain numbers that only grow. Unit: blocks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class KVStats:
    """Since start.

    hits_device: full blocks of a prefix that lay on the device. promoted: blocks that were brought
    back from a slower tier (hits there). misses: full blocks that no tier had, or that were quicker
    to compute. dropped: blocks that left the last tier that held them. lost: copies that a slow or
    broken disk did not take. missing: promotions that found no intact copy.
    """

    num_cow_copies: int = 0
    num_hits_device: int = 0
    num_misses: int = 0
    num_demoted_host: int = 0
    num_demoted_disk: int = 0
    num_promoted_host: int = 0
    num_promoted_disk: int = 0
    num_dropped: int = 0
    num_lost: int = 0
    num_missing: int = 0
