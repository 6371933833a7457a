"""Start, drain, stop."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from octavo.config import ServerConfig
from octavo.errors import ConfigError
from octavo.server.serve import bind, url_of
from tests.server.fake_engine import FakeEngine, Script
from tests.server.test_streams import events, wait_for

ROOT = Path(__file__).resolve().parents[2]


def test_draining_refuses_new_requests_and_ends_running_ones(launch):
    engine = FakeEngine(Script(text="x" * 50, paused=True))
    live = launch(engine)
    answers = []
    body = {"prompt": "a", "stream": True, "max_tokens": 50}
    running = threading.Thread(
        target=lambda: answers.append(httpx.post(live.url + "/v1/completions", json=body))
    )
    running.start()
    wait_for(lambda: engine.open)
    live.begin_stop()
    wait_for(lambda: live.http.get("/health").status_code == 503)
    refused = live.http.post("/v1/completions", json={"prompt": "a"})
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) > 0
    assert "shutting down" in refused.json()["error"]["message"]
    engine.script.paused = False
    running.join(10)
    *chunks, done = events(answers[0])
    assert (len(chunks), done) == (50, b"[DONE]")
    live.close()


def test_health_tells_of_a_dead_engine(launch):
    engine = FakeEngine()
    live = launch(engine)
    engine.is_running = False
    answer = live.http.get("/health")
    assert answer.status_code == 503
    assert "restart" in answer.json()["error"]["message"]
    assert live.http.post("/v1/completions", json={"prompt": "a"}).status_code == 503


def start(delay: float) -> tuple[subprocess.Popen[bytes], str]:
    """The fake server as a process; its URL is in the line it prints."""
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "tests.server.run_fake", str(delay)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=ROOT
    )
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    return process, line.split(" at ")[1].split("/v1")[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_signal_drains_and_exits_with_zero(number):
    process, url = start(0.02)
    with (
        process,
        httpx.stream(
            "POST", url + "/v1/completions", json={"prompt": "a", "stream": True}
        ) as answer,
    ):
        lines = answer.iter_lines()
        next(lines)
        process.send_signal(number)
        rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert len(rest) == 16
        assert process.wait(10) == 0


def test_a_second_signal_does_not_wait_and_streams_end_in_an_error():
    process, url = start(30.0)
    with (
        process,
        httpx.stream(
            "POST", url + "/v1/completions", json={"prompt": "a", "stream": True}
        ) as answer,
    ):
        process.send_signal(signal.SIGTERM)
        wait_for(lambda: httpx.get(url + "/health").status_code == 503)
        process.send_signal(signal.SIGTERM)
        answer.read()
        (event,) = events(answer)
        assert event["error"]["code"] == "engine_stopped"
        assert process.wait(20) == 1  # one signal would wait for the token, 30 s
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_a_second_signal_does_not_wait_for_a_client_that_reads_nothing():
    process, url = start(0.0)
    port = int(url.rsplit(":", 1)[1])
    body = b'{"prompt": "a", "stream": true, "max_tokens": 4000, "n": 32, "ignore_eos": true}'
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with process, socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(head.encode() + body)
        client.recv(100)
        process.send_signal(signal.SIGINT)
        wait_for(lambda: httpx.get(url + "/health").status_code == 503)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 1
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()


def test_a_port_in_use_is_a_clear_error():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}.*another with --port") as caught:
            bind(ServerConfig(port=port))
    assert caught.value.field == "port"


def test_an_address_of_another_machine_is_a_clear_error():
    with pytest.raises(ConfigError, match=r"--host.*192\.0\.2\.1"):
        bind(ServerConfig(host="192.0.2.1", port=0))
    with pytest.raises(ConfigError, match=r"no\.such\.host\.invalid") as caught:
        bind(ServerConfig(host="no.such.host.invalid", port=0))
    assert caught.value.field == "host"


def test_ipv6_urls_have_brackets():
    try:
        sock = bind(ServerConfig(host="::1", port=0))
    except ConfigError:
        pytest.skip("this machine has no IPv6 loopback")
    with sock:
        assert url_of(sock) == f"http://[::1]:{sock.getsockname()[1]}"
