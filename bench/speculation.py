"""One stream with and without --speculative ngram, in turns on the same prompts: the ratio of times.

    python bench/speculation.py --text ../shared/text

Two workloads: summaries and corrections of passages (the answer quotes the prompt), and open questions
(mt_bench), where guesses seldom help and must not hurt. Tokens are compared: they must be equal.
Exits 1 if they are not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

from octavo import LLM, SamplingParams

TEXT = Path(__file__).resolve().parents[2] / "shared" / "text"

TASKS = (
    "Summarise the following text in a few sentences, quoting its main statements:\n\n{}",
    "Correct the spelling and punctuation of this text and give the corrected text only:\n\n{}",
    "Repeat this text, with all numbers written as they are:\n\n{}",
    "Rewrite this text so that each sentence stands on a line of its own:\n\n{}",
)


def passages(path: Path, num: int) -> list[str]:
    """Paragraphs of 400 to 900 characters, spread over the file."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    fitting = [line for line in lines if 400 <= len(line) <= 900 and not line.startswith("=")]
    return fitting[:: max(1, len(fitting) // num)][:num]


def workloads(text: Path, num: int) -> dict[str, list[str]]:
    """Name -> user messages."""
    edits = [
        TASKS[i % len(TASKS)].format(p)
        for i, p in enumerate(passages(text / "wikitext2_test.txt", num))
    ]
    lines = (text / "mt_bench_question.jsonl").read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line)["turns"][0] for line in lines]
    return {
        "summarise and edit": edits,
        "mt_bench": questions[:: max(1, len(questions) // num)][:num],
    }


def answer(llm: LLM, message: str, max_tokens: int) -> tuple[tuple[int, ...], float]:
    """(tokens, seconds) of one greedy answer."""
    start = time.perf_counter()
    params = SamplingParams(max_tokens=max_tokens, temperature=0)
    output = llm.chat([{"role": "user", "content": message}], params, use_tqdm=False)[0].outputs[0]
    return tuple(output.token_ids), time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--text", type=Path, default=TEXT, help="folder with the texts")
    parser.add_argument("--num-prompts", type=int, default=20)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args()
    settings = {"model": args.model, "num_kv_blocks": 512, "threads": args.threads}
    settings["enable_prefix_caching"] = False  # rounds repeat the prompts
    plain, guessing = LLM(**settings), LLM(**settings, speculative="ngram")
    all_equal = True
    for name, messages in workloads(args.text, args.num_prompts).items():
        ratios, tokens = [], 0
        before = guessing.stats()
        for _ in range(args.rounds):
            for message in messages:
                expected, slow = answer(plain, message, args.max_tokens)
                got, fast = answer(guessing, message, args.max_tokens)
                all_equal &= got == expected
                ratios.append(slow / fast)
                tokens += len(got)
        after = guessing.stats()
        guessed = after.num_guessed_tokens - before.num_guessed_tokens
        accepted = after.num_accepted_guesses - before.num_accepted_guesses
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(
            f"{name}: {len(messages)} prompts, {tokens} tokens; speed-up median {middle:.2f} "
            f"(quartiles {low:.2f} to {high:.2f}), least prompt "
            f"{min(_by_prompt(ratios, len(messages))):.2f}; "
            f"{accepted} of {guessed} guesses right"
        )
    print("tokens are equal" if all_equal else "TOKENS DIFFER")
    return 0 if all_equal else 1


def _by_prompt(ratios: list[float], num: int) -> list[float]:
    """The median over the rounds, prompt by prompt."""
    return [statistics.median(ratios[i::num]) for i in range(num)]


if __name__ == "__main__":
    sys.exit(main())
