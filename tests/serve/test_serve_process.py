"""The command: it starts, drains, loads a new model, and refuses in one sentence."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading

import pyarrow as pa
import pytest
from click.testing import CliRunner

from bayesmf import load_model
from bayesmf.cli.main import main


def refused(*words, **more) -> str:
    """What a command says that ends with code 2."""
    done = CliRunner().invoke(main, ["serve", *map(str, words)], **more)
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_a_port_that_is_taken_is_told(tiny_fit):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"the port {port} of 127.0.0.1 is in use" in refused(tiny_fit, "--port", port)


def test_a_model_that_is_missing_or_none_is_told(tmp_path):
    assert "no such file or folder" in refused(tmp_path / "none", "--port", 0)
    (tmp_path / "model.zip").write_bytes(b"no zip")
    assert "not a model" in refused(tmp_path / "model.zip", "--port", 0)


def test_other_machines_are_let_in_with_a_good_token_only(tiny_fit, monkeypatch):
    monkeypatch.delenv("BAYESMF_TOKEN", raising=False)
    assert "--token TOKEN" in refused(tiny_fit, "--host", "0.0.0.0")
    assert "16 or more" in refused(tiny_fit, "--host", "0.0.0.0", "--token", "short")
    assert "16 or more" in refused(tiny_fit, env={"BAYESMF_TOKEN": "with blanks in between"})
    assert "no address" in refused(
        tiny_fit, "--host", "no.such.host.invalid", "--token", "0123456789abcdef"
    )


def test_small_answers_are_sent_at_once():
    from bayesmf.serve.run import bind

    async def without_delay(taken):
        found = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(
            lambda reader, writer: found.set_result(writer), sock=taken
        )
        async with server:
            _, client = await asyncio.open_connection(*taken.getsockname())
            accepted = await found
            sent = accepted.get_extra_info("socket")
            told = sent.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            for writer in (client, accepted):
                writer.close()
                await writer.wait_closed()
            return told

    with bind("127.0.0.1", 0) as taken:
        assert asyncio.run(without_delay(taken))


def test_saving_needs_updates(tiny_fit, tmp_path):
    assert "--allow-updates" in refused(tiny_fit, "--save", tmp_path / "out")


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn"])
def test_a_missing_extra_is_named(tiny_fit, missing):
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from bayesmf.cli.main import main; main(['serve', sys.argv[1]])"
    )
    done = subprocess.run([sys.executable, "-c", code, tiny_fit], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        "Error: bayesmf serve needs FastAPI and uvicorn, which are not installed; run pip install "
        "'bayesmf[serve]'\n"
    )


def test_it_loads_a_new_model_without_dropping_a_request_and_then_drains(start, tiny_fit, tmp_path):
    model = tmp_path / "model.zip"
    fit = load_model(tiny_fit)
    fit.save(model)
    server = start("-m", "bayesmf", "serve", model, "--port", 0, "--reload-on-change", "--rate", 0)
    pair = json.dumps({"pairs": [{"user": "u1", "item": "i3"}]})
    before = server.ask("/api/predict", pair)
    answers, ended = [], threading.Event()

    def keep_asking():
        while not ended.is_set():
            answers.append(server.ask("/api/predict", pair))  # each has to be a good one

    asking = threading.Thread(target=keep_asking)
    asking.start()
    low = pa.table({"user": ["u1"], "item": ["i3"], "rating": [1.0]})
    fit.update(low).save(model, overwrite=True)
    server.wait_for("was loaded again")
    after = server.ask("/api/predict", pair)
    ended.set()
    asking.join()
    assert after != before
    assert set(answers) <= {before, after}
    assert json.loads(server.ask("/api/model"))["number"] == 1

    model.write_bytes(b"damaged")
    assert "was not loaded again" in server.wait_for("was not loaded again")
    assert server.ask("/api/predict", pair) == after
    drain(server, pair, after)


def drain(server, pair, expected):
    """A request that has begun when SIGTERM comes is answered; no other is taken."""
    with server.connect() as connection:
        head = "POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: {len(pair)}\r\n\r\n{pair[:5]}".encode())
        server.ask("/api/health")  # by now the first request has been read as far as it goes
        server.process.send_signal(signal.SIGTERM)
        while True:
            try:
                server.connect().close()
            except OSError:
                break  # nobody else is let in
        connection.sendall(pair[5:].encode())
        answer = b""
        while part := connection.recv(1 << 16):
            answer += part
    assert answer.endswith(expected)
    assert server.process.wait(60) == 0
    assert "Traceback" not in "".join(server.lines)


def test_ctrl_c_ends_it_and_the_token_is_asked_for(start, tiny_fit, listening, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(tiny_fit, folder)
    token = "0123456789abcdef"
    server = start("-m", "bayesmf", "serve", folder, "--port", 0, "--token", token)
    head = "GET /api/model HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    assert server.send(f"{head}\r\n".encode()).startswith(b"HTTP/1.1 401 ")
    allowed = server.send(f"{head}Authorization: Bearer {token}\r\n\r\n".encode())
    assert allowed.startswith(b"HTTP/1.1 200 ")
    assert token not in "".join(server.lines)
    assert server.end(signal.SIGINT) == 130
