"""--dataset-name -> samples."""

from __future__ import annotations

from pathlib import Path

from octavo.bench.options import DatasetOptions
from octavo.bench.workload import files, synthetic
from octavo.bench.workload.sample import Draw, Sample, Tokenizer, salted
from octavo.errors import ConfigError


def load_samples(
    options: DatasetOptions, seed: int, tokenizer: Tokenizer | None = None
) -> list[Sample]:
    """The requests of a run. Raises ConfigError for a file that is missing or not what it should
    be."""
    draw = Draw(options, seed, tokenizer)
    name = options.dataset_name
    if name == "random":
        found = list(synthetic.random_prompts(options, draw))
    elif name == "prefix_repetition":
        found = list(synthetic.prefix_repetition(options, draw))
    elif name == "sharegpt-like":
        found = list(synthetic.sharegpt_like(options, draw))
    else:
        found = _from_file(name, options, draw, tokenizer)
    if not found:
        raise ConfigError(
            f"--dataset-path: no request in {options.dataset_path} can be used", "dataset_path"
        )
    return salted(found, options.salt, draw)


def _from_file(
    name: str, options: DatasetOptions, draw: Draw, tokenizer: Tokenizer | None
) -> list[Sample]:
    if options.dataset_path is None:
        raise ConfigError(f"--dataset-path: {name} needs a file", "dataset_path")
    path = Path(options.dataset_path)
    if name == "sharegpt":
        return list(files.sharegpt(path, options, draw, tokenizer))
    if name == "custom":
        return list(files.custom(path, options))
    return list(files.trace(path, options, draw))


def as_text(samples: list[Sample], tokenizer: Tokenizer) -> list[Sample]:
    """Token ids decoded. The server may cut the text into other tokens, so lengths are about the
    same."""
    return [
        s
        if isinstance(s.prompt, str)
        else Sample(tokenizer.decode(s.prompt), s.output_len, s.arrival)
        for s in samples
    ]
