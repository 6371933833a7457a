"""Conversations on a tiny KV memory with a disk tier, until somebody ends this process.

    python tests/e2e/talk.py MODEL STORE SEED [ROUNDS]

One line of JSON for each round: the prompts' numbers and the tokens that came. `prompts` gives the
same prompts to whoever checks them.
"""

from __future__ import annotations

import json
import random
import sys
from typing import Any

NUM_PROMPTS = 24
NEW_TOKENS = 12
FEW: dict[str, Any] = {"num_kv_blocks": 24, "block_size": 16, "max_model_len": 256}


def prompts(vocab: int = 200) -> list[list[int]]:
    """Prompts that share beginnings of every length, more than the memory holds."""
    rng = random.Random(1)
    stems = [[rng.randrange(20, vocab) for _ in range(180)] for _ in range(6)]
    own = [
        [rng.randrange(20, vocab) for _ in range(rng.randint(1, 40))] for _ in range(NUM_PROMPTS)
    ]
    return [stems[i % 6][: rng.randint(0, 180)] + own[i] for i in range(NUM_PROMPTS)]


def main() -> None:
    from octavo import LLM, SamplingParams

    model, store, seed = sys.argv[1:4]
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 10**9
    rng, every = random.Random(int(seed)), prompts()
    params = SamplingParams(max_tokens=NEW_TOKENS, temperature=0.0, ignore_eos=True)
    with LLM(model=model, disk_kv_path=store, disk_kv_bytes="4M", threads=1, **FEW) as llm:
        print(json.dumps("ready"), flush=True)
        for _ in range(rounds):
            numbers = rng.sample(range(NUM_PROMPTS), 5)
            outputs = llm.generate([every[i] for i in numbers], params, use_tqdm=False)
            tokens = [o.outputs[0].token_ids for o in outputs]
            print(json.dumps({"numbers": numbers, "tokens": tokens}), flush=True)
            while llm.built.core.save():
                llm.built.core.step()
        stats = llm.stats()
        llm.built.core.check()
    print(
        json.dumps({"promoted": stats.num_promoted_disk, "missing": stats.num_missing}), flush=True
    )


if __name__ == "__main__":
    main()
