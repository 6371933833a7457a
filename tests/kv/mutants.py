"""Bugs put into the KV manager on purpose: the tests of kv/ and sched/ must find every one.

    python tests/kv/mutants.py [WORDS]      all, or those whose description contains WORDS

Each is applied to a copy of the package. A text that is not there exactly once is an error: the
code has changed, so must the mutant.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = "not trace_reuse and not mutants and not TestKV and not it_happened"
SECONDS = 900  # a mutant that makes a test run for ever is found as well


@dataclass(frozen=True)
class Mutant:
    why: str
    file: str
    edits: tuple[tuple[str, str], ...]


def mutant(why: str, file: str, *edits: tuple[str, str]) -> Mutant:
    return Mutant(why, file, edits)


MUTANTS = (
    # -- references and pins
    mutant(
        "the source of a copy is not pinned", "memory.py",
        ("        self._moves.append(Copy(src, dst))\n        self._pins[src] += 1\n",
         "        self._moves.append(Copy(src, dst))\n        self.pool.release(src)\n"),
        ("            if isinstance(move, Copy):\n                self._unpin(move.src)\n",
         "            pass\n"),
    ),
    mutant(
        "a block on its way from the disk is not pinned", "memory.py",
        ("        self.pool.acquire(block_id)\n        self._pins[block_id] += 1\n", ""),
        ("        del self._in_flight[move.dst]\n        self._unpin(move.dst)\n",
         "        del self._in_flight[move.dst]\n"),
        ("            assert self._pins[block_id], f\"block {block_id} is in flight without a pin\"\n",
         ""),
    ),
    mutant("a fork takes no references", "manager.py",
           ("            self.pool.acquire(block_id)\n", "            pass\n")),
    mutant("an equal block is used without a reference", "lookup.py",
           ("        self._pool.acquire(block_id)\n        table.replace", "        table.replace")),
    mutant("one's own block is kept beside its equal", "lookup.py",
           ("        self._pool.release(own)\n", "")),
    mutant("a cached block is taken though all are in use", "memory.py",
           ("if block_id is None or (self.pool.ref_count(block_id) == 0 and not self.pool.num_free):",
            "if block_id is None:")),
    mutant("a pin counts as an owner", "cow.py", (" - self._memory.pins[block_id]", "")),
    mutant("a forked tail is written in place", "cow.py",
           ("self._memory.pins[block_id] > 1", "self._memory.pins[block_id] > 2")),
    mutant("room for wrong guesses is kept", "manager.py",
           ("        while len(table.block_ids) > num_blocks:\n"
            "            self._let_go(table, keep_tail=False)\n", "")),
    # -- the order of letting go
    mutant("the head of a prefix goes first", "manager.py",
           ("        while table.block_ids:\n"
            "            self._let_go(table, keep_tail and self.match_tokens)\n",
            "        for block_id in table.block_ids[table.num_dropped :]:\n"
            "            self.pool.release(block_id)\n")),
    mutant("the warmest block is evicted", "pool.py",
           ("self._cached.popitem(last=False)", "self._cached.popitem()")),
    mutant("a table with holes gives up only its tail", "manager.py",
           ("(num_freed < num_blocks or table.num_dropped)", "num_freed < num_blocks")),
    mutant("a block too many falls out of the window", "manager.py",
           ("min(num_tokens, table.num_committed) // self.block_size",
            "-(-min(num_tokens, table.num_committed) // self.block_size)")),
    # -- the index
    mutant("a hash is found after its block was given away", "pool.py",
           ("        assert key is not None\n        del self._index[key.hash]\n",
            "        assert key is not None\n")),
    mutant("an evicted block stays a child", "memory.py",
           ("        self.demote(block_id, key)\n        self._gone(key)\n\n    def _forget",
            "        self.demote(block_id, key)\n\n    def _forget")),
    mutant("a borrowed block stays findable when it is written to", "cow.py",
           ("            self._memory.discard(block_id)\n", "            pass\n")),
    mutant("a block that more is of use of is thrown away", "cow.py",
           ("            self._memory.swap_out(block_id)\n",
            "            self._memory.discard(block_id)\n")),
    mutant("a block that more is of use of is always spared", "cow.py",
           (" and self._pool.num_free > num_new", "")),
    mutant("an unfinished tail is entered with a token that is not computed", "table.py",
           (": self.num_committed]\n        return make_key",
            ": self.num_committed + 1]\n        return make_key")),
    mutant("a tail hangs on the root", "table.py",
           ("return make_key(self.parent(position), tokens)", "return make_key(self.root, tokens)")),
    mutant("a tail of a failed step is kept", "manager.py",
           ("self._let_go(table, keep_tail and self.match_tokens)",
            "self._let_go(table, self.match_tokens)")),
    mutant("a chain does not chain", "prefix.py",
           ("        parent = chain[-1].hash\n", "")),
    mutant("salts are ignored", "manager.py",
           ("Table(root_hash(extra_keys))", "Table(root_hash())")),
    mutant("a hit may cover the whole prompt", "manager.py",
           ("longest = len(token_ids) - 1", "longest = len(token_ids)")),
    mutant("only what stands before a text in the order is compared", "prefix.py",
           ("siblings[max(0, i - 1) : i + 1]", "siblings[max(0, i - 1) : max(1, i)]")),
    mutant("more blocks are indexed than promised", "pool.py",
           ("        if len(self._index) > self.num_blocks:\n"
            "            self._empty.append(self._evict())\n", "")),
    mutant("a preempted sequence forgets that its tail lies somewhere", "manager.py",
           ("        table, num_freed = self.tables[seq_id], 0\n        table.has_given_up = True\n"
            "        # Without", "        table, num_freed = self.tables[seq_id], 0\n        # Without")),
    mutant("a cut table still counts as findable", "table.py",
           ("        self.num_indexed = min(self.num_indexed, num_blocks)\n", "")),
    mutant("blocks after an unindexed one count as indexed", "lookup.py",
           ("                has_gap = True", "                has_gap = False")),
    # -- tiers
    mutant("the disk displaces what goes to the host just now", "memory.py",
           ("        place = self.host.put(key)  # first: the disk may be displacing this very key\n",
            ""),
           ("        self._moves.append(Demote(Place(Tier.DEVICE, block_id), place, key))\n",
            "        place = self.host.put(key)\n"
            "        self._moves.append(Demote(Place(Tier.DEVICE, block_id), place, key))\n")),
    mutant("what the host displaces stays a child", "memory.py",
           ("            self._gone(displaced[1])\n        self._moves", "        self._moves")),
    mutant("what the disk displaces stays a child", "memory.py",
           ("        if displaced is not None:\n            self._gone(displaced[1])\n\n    def save",
            "\n    def save")),
    mutant("a recalled block displaces itself", "memory.py",
           ("        self.touch(key)  # taking a block may displace the coldest of every tier\n", "")),
    mutant("recalling evicts what it will want next", "lookup.py",
           ("        here = self._hold(wanted)\n", "        here = dict[bytes, int]()\n")),
    mutant("a private block is findable", "memory.py",
           ("        if not private:\n            self.pool.index", "        if True:\n            self.pool.index")),
    mutant("what leaves the device stays cold below", "memory.py",
           ("        self.touch(key)  # it leaves the device just now: what is below has been cold for"
            " longer\n", "")),
    mutant("a displaced block is not written to the disk", "memory.py",
           ("if self.disk.num_slots and self.disk.find(displaced[1].hash) is None:", "if False:")),
    mutant("a slot is emptied though it holds something else by now", "tiers.py",
           ("        if self._held.get(key.hash) != (place.slot, key):\n            return False\n",
            "        if key.hash not in self._held:\n            return False\n")),
    mutant("restored slots are given away as empty", "tiers.py", (" if s not in taken]", "]")),
    # -- what did not come
    mutant("a lost disk write is not noticed", "memory.py",
           ("            self._forget(demotion.dst, demotion.key)\n", "")),
    mutant("a block whose contents did not come stays findable", "memory.py",
           ("            self.discard(move.dst)\n", "            pass\n")),
    mutant("only a block under its own key is forgotten", "memory.py",
           ("if self.pool.key_of(move.dst) is not None:", "if self.pool.key_of(move.dst) == move.key:")),
    mutant("a slot that lacks its block is asked again and again", "memory.py",
           ("        self._forget(move.src, move.key)\n", "")),
    mutant("tables keep blocks whose contents did not come", "manager.py",
           ("                    self._let_go(table, keep_tail=False)\n        return bool(hollow)",
            "                    break\n        return bool(hollow)")),
    mutant("nobody is told that tables are shorter", "manager.py",
           ("        return bool(hollow)", "        return False")),
    mutant("a sequence runs while its blocks are on their way", "manager.py",
           ("        return any(map(self.memory.is_in_flight, table.block_ids[table.num_dropped :]))",
            "        return False")),
    mutant("a block that is on its way is taken in place of one's own", "lookup.py",
           ("        if self._memory.is_in_flight(block_id):  # perhaps it never comes\n"
            "            return False\n", "")),
    # -- promises
    mutant("a kept promise goes on", "lookup.py",
           ("            self._promises.keep(key.hash)\n            if known", "            if known")),
    mutant("promises of those that end are not taken back", "manager.py",
           ("        self.withdraw(seq_id)\n        table = self.tables[seq_id]\n",
            "        table = self.tables[seq_id]\n")),
    mutant("nobody waits for what another computes", "promises.py",
           ("return self._makers.get(block_hash, seq_id) != seq_id", "return False")),
    # -- the scheduler's side of it
    mutant("whoever wants log-probabilities of its prompt runs on blocks on their way",
           "../sched/scheduler.py",
           ("        if self.kv.is_in_flight(seq.seq_id):\n            return True\n        wants",
            "        wants")),
    mutant("a recalled sequence runs at once", "../sched/scheduler.py",
           ("            seq.num_cached = seq.num_computed\n        return self._awaits(seq)",
            "            seq.num_cached = seq.num_computed\n        return False")),
    mutant("tables that became shorter are not looked at", "../sched/update.py",
           ("            scheduler.resync()", "            pass")),
    mutant("who stops running keeps its promises", "../sched/scheduler.py",
           ("        self.kv.withdraw(seq.seq_id)\n        seq.is_running = False",
            "        seq.is_running = False")),
    mutant("prompts whose log-probabilities are wanted are found in the cache",
           "../sched/sequence.py",
           ("return max(0, len(self.prompt_logprobs) - 1) if self.wants_prompt_logprobs else None",
            "return None")),
    mutant("the window is a token short", "../sched/update.py",
           ("num_computed - window + 1)", "num_computed - window + 2)")),
)  # fmt: skip


def apply(mutant: Mutant, package: Path) -> None:
    """Change the copy of the package at `package`."""
    path = package / "kv" / mutant.file
    text = path.read_text()
    for old, new in mutant.edits:
        if text.count(old) != 1:
            raise ValueError(f"{mutant.why}: {mutant.file} has {text.count(old)} times:\n{old}")
        text = text.replace(old, new)
    path.write_text(text)


def killer(mutant: Mutant) -> str | None:
    """Which test finds it; None if none does."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "octavo"
        skip = shutil.ignore_patterns("*.so", "__pycache__")
        shutil.copytree(ROOT / "src" / "octavo", package, ignore=skip)
        apply(mutant, package)
        command = [
            sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=line",
            "--hypothesis-seed=0", "-k", LEFT_OUT,
            "tests/kv/test_manager.py", "tests/kv/test_tiers.py", "tests/kv", "tests/sched/test_engine_machine.py", "tests/sched",
        ]  # fmt: skip
        env = {
            **os.environ,
            "PYTHONPATH": folder,
            "OCTAVO_NO_SHRINK": "1",
            "HYPOTHESIS_STORAGE_DIRECTORY": folder,
        }
        try:
            run = subprocess.run(
                command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            return "does not end"
    if run.returncode == 0:
        return None
    failed = [
        line for line in run.stdout.splitlines() if line.startswith(("FAILED tests", "ERROR tests"))
    ]
    if run.returncode != 1 or not failed:
        raise RuntimeError(f"{mutant.why}: pytest failed to run\n{run.stdout}\n{run.stderr}")
    return failed[0].split(" - ")[0].split(" ", 1)[1]


def survivors(words: str = "") -> list[str]:
    """Try all mutants whose description contains `words`; those that no test finds."""
    found = killer(Mutant("no change at all", "__init__.py", ()))
    if found is not None:
        raise RuntimeError(f"{found} fails on the code as it is")
    chosen = [mutant for mutant in MUTANTS if words in mutant.why]
    alive = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        tries = {pool.submit(killer, mutant): mutant for mutant in chosen}
        for done in as_completed(tries):
            why, test = tries[done].why, done.result()
            print(f"{'killed  ' if test else 'SURVIVES'} {why}: {test}", flush=True)
            if test is None:
                alive.append(why)
    print(f"{len(chosen) - len(alive)} of {len(chosen)} mutants killed")
    return alive


if __name__ == "__main__":
    sys.exit(bool(survivors(*sys.argv[1:])))
