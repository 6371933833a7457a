"""A server with the fake engine, as a process of its own: python -m tests.server.run_fake DELAY"""

from __future__ import annotations

import sys

from octavo.config import ServerConfig
from octavo.server.context import ServingContext
from octavo.server.serve import serve
from tests.server.fake_engine import ByteTokenizer, FakeEngine, PlainTemplate, Script

if __name__ == "__main__":
    context = ServingContext(
        engine=FakeEngine(Script(text="x" * 100, delay=float(sys.argv[1]))),
        tokenizer=ByteTokenizer(),
        chat_template=PlainTemplate(),
        model_names=("tiny",),
        version="0",
    )
    serve(context, ServerConfig(port=0))
