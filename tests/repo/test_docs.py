"""The documents: every command is run, every link and file name leads somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repo.doc_blocks import ROOT, Block, blocks, commands, documents, kind
from tests.repo.doc_session import Session

RUN = ("bash", "python")
BY_NAME = {str(p.relative_to(ROOT)): p for p in documents()}
RUNNABLE = {name: p for name, p in BY_NAME.items() if any(b.lang in RUN for b in blocks(p))}


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    s = Session(tmp_path)
    yield s
    s.stop()


@pytest.mark.e2e
@pytest.mark.parametrize("name", RUNNABLE)
def test_commands_of(name: str, default_model_path: Path, session: Session) -> None:
    found = blocks(RUNNABLE[name])
    todo = [b for b in found if b.mark == "output" or (b.lang in RUN and b.mark != "none")]
    for block in todo:
        session.run_block(block)


@pytest.mark.parametrize("name", BY_NAME)
def test_blocks_of(name: str) -> None:
    """Each fence has a language, each mark is known, and what is not run says why."""
    text = BY_NAME[name].read_text(encoding="utf-8")
    fences = re.findall(r"^```.*$", text, re.MULTILINE)
    assert len(fences) == 2 * len(blocks(BY_NAME[name])), "a fence without a language or an end"
    for block in blocks(BY_NAME[name]):
        assert block.mark in ("", "help", "none", "output"), block.where
        assert block.mark != "none" or block.why, f"{block.where}: say why it is not run"


@pytest.mark.parametrize("name", BY_NAME)
def test_links_of(name: str) -> None:
    path = BY_NAME[name]
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if not re.match(r"[a-z]+:", target):
            assert (path.parent / target).exists(), f"{name} links to {target}"
    for file in re.findall(r"`((?:[\w.-]+/)+(?:[\w-]+\.(?:py|cpp|h|md|txt))?)`", text):
        places = (ROOT, ROOT / "src" / "octavo", ROOT / "csrc")
        assert any((place / file).exists() for place in places), f"{name} names {file}"


def test_the_generated_documents_are_up_to_date() -> None:
    run = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_first_screen_of_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 45


def test_blocks_and_commands_are_found() -> None:
    text = """
<!-- test: help -->
```bash
python bench/x.py --a 1 \\
    --b 2
```

```bash
pip install . && octavo serve   # two commands
# a comment
curl -s http://127.0.0.1:8000/v1/models && echo ok
python - <<'END'
print(1)

END
echo '{
"a": 1}'
```

```text
not run
```
"""
    long, short, other = blocks(ROOT / "README.md", text)
    assert (long.mark, long.line, commands(long.text)) == (
        "help",
        4,
        ["python bench/x.py --a 1 --b 2"],
    )
    assert commands(short.text) == [
        "pip install .",
        "octavo serve",
        "curl -s http://127.0.0.1:8000/v1/models && echo ok",
        "python - <<'END'\nprint(1)\n\nEND",
        "echo '{\n\"a\": 1}'",
    ]
    assert [kind(c) for c in commands(short.text)] == ["ci", "serve", "run", "run", "run"]
    assert other.lang == "text"
    assert short.wants_server
    assert not long.wants_server


@pytest.mark.parametrize(
    ("lang", "mark", "text"),
    [
        ("bash", "", "ls no-such-file"),
        ("bash", "", "echo '{\"error\": 1}'"),
        ("bash", "", "pip install something"),
        ("bash", "", "pytest tests/no_such_folder"),
        ("bash", "help", "python docs/generate.py --no-such-option"),
        ("python", "", "raise SystemExit(3)"),
        ("text", "output", "printed by nobody"),
    ],
)
def test_a_wrong_document_is_noticed(lang: str, mark: str, text: str, session: Session) -> None:
    with pytest.raises(AssertionError):
        session.run_block(Block(ROOT / "README.md", 1, lang, text + "\n", mark))


def test_outputs_may_differ_in_numbers_only(session: Session) -> None:
    readme = ROOT / "README.md"
    session.run_block(
        Block(readme, 1, "bash", "echo 'KV memory 11.3 GiB: 32,969 blocks, avx512'\n")
    )
    session.run_block(
        Block(readme, 2, "text", "KV memory 2 GiB: 1,024 blocks, avx2\n", mark="output")
    )
    with pytest.raises(AssertionError):
        session.run_block(Block(readme, 3, "text", "KV memory 11.3 GB\n", mark="output"))
