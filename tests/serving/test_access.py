"""Who gets in, and how much they may ask for: keys, hosts, origins, bodies, time, places in the queue."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import socket
import threading
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace

import httpx
import pytest

import recollect as rc
from recollect.serving import access, server as server_module
from recollect.serving.guard import own_hosts
from recollect.serving.served import open_served
from recollect.serving.server import Access, create_server
from recollect.serving.state import Limits, State
from serving.served import KEY, Serving, serving, wait_for

ASK = {"model": "rnn", "prompt": "the cat", "max_tokens": 5, "seed": 0}
LONG = {**ASK, "max_tokens": 900_000}
ENDLESS = {**LONG, "stream": True}
ROUTES = [("GET", "/v1/models"), ("POST", "/v1/completions"), ("GET", "/metrics"), ("GET", "/health"), ("GET", "/")]


@pytest.fixture(scope="module")
def server(runs):
    with serving([runs / "rnn"], most=2, queue=2) as found:
        yield found


@pytest.fixture(scope="module")
def locked(runs):
    with serving([runs / "rnn"], keys=[KEY, "another key, as long as the first"]) as found:
        yield found


def posting(server: Serving, body: bytes, size: int | None = None) -> bytes:
    """Return the bytes of a request for a completion, whose body is announced to have `size` bytes."""
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body) if size is None else size}\r\n\r\n".encode() + body


def raw(server: Serving, request: bytes, *, half_closed: bool = False, seconds: float = 30) -> bytes:
    """Send bytes and return all that comes back until the server ends the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=seconds) as sock:
        sock.sendall(request)
        if half_closed:
            sock.shutdown(socket.SHUT_WR)
        parts = []
        while part := sock.recv(65536):
            parts.append(part)
        return b"".join(parts)


# ---- keys ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    "given",
    [
        None,
        "",
        "Bearer",
        "Bearer no",
        f"Basic {KEY}",
        f"Bearer {KEY}x",
        f"Bearer {KEY[:-1]}",
    ],
)
def test_a_missing_or_wrong_key_is_refused_at_every_route(locked: Serving, method, path, given):
    headers = {} if given is None else {"Authorization": given}
    answer = httpx.request(method, locked.url + path, headers=headers, json=ASK)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "the key is missing or wrong" in answer.json()["error"]["message"]


def test_each_key_is_let_in_and_two_at_once_are_not(locked: Serving):
    for key in (KEY, "another key, as long as the first"):
        assert httpx.get(f"{locked.url}/v1/models", headers={"Authorization": f"Bearer {key}"}).status_code == 200
    both = [("Authorization", f"Bearer {KEY}"), ("Authorization", "Bearer no")]
    assert httpx.get(f"{locked.url}/v1/models", headers=both).status_code == 401


def test_every_key_is_compared_whole_whatever_is_given(monkeypatch):
    """The time of an answer tells nothing: each comparison is of digests of one length, and none is left out."""
    seen: list[tuple[bytes, bytes]] = []
    original = access.hmac.compare_digest
    monkeypatch.setattr(access.hmac, "compare_digest", lambda a, b: seen.append((a, b)) or original(a, b))
    keyed = access.Keyed(None, ["first key", "a second, longer key", "third"])
    for given in (b"Bearer first key", b"Bearer third", b"Bearer x"):
        seen.clear()
        keyed._is_known({"headers": [(b"authorization", given)]})
        assert len(seen) == 3
        assert {len(one) for pair in seen for one in pair} == {32}


# ---- hosts and origins -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["example.org", "127.0.0.1", "127.0.0.1:1", "localhost.example.org", "", "127.0.0.1:{port}.example.org"]
)
def test_a_foreign_host_is_refused(server: Serving, host):
    with server.http() as client:
        answer = client.get("/v1/models", headers={"Host": host.format(port=server.port)})
    assert answer.status_code == 403
    assert "Host: got" in answer.json()["error"]["message"]


def test_at_the_port_of_http_the_host_has_no_port():
    assert {"127.0.0.1", "localhost", "[::1]", "localhost:80"} <= set(own_hosts(80))
    assert "localhost" not in own_hosts(8000)


def test_runs_whose_names_differ_in_letters_that_an_id_has_not_are_columns_of_their_own(runs, tmp_path):
    folders = [tmp_path / name for name in ("小猫", "小狗")]
    shutil.copytree(runs / "rnn", folders[0])
    shutil.copytree(runs / "lstm", folders[1])
    with serving(folders) as found:
        columns = found.post("/api/exhibit", {"text": "the cat"})["columns"]
        assert [one["name"] for one in columns] == ["小猫", "小狗"]
        assert [one["family"] for one in columns] == ["rnn", "lstm"]
        assert len({one["id"] for one in columns}) == 2


@pytest.mark.parametrize("origin", ["http://example.org", "null", "https://127.0.0.1:{port}", "http://127.0.0.1:1"])
def test_a_foreign_origin_is_refused_and_no_page_may_read(server: Serving, origin):
    headers = {"Origin": origin.format(port=server.port)}
    with server.http() as client:
        answer = client.post("/v1/completions", headers=headers, json=ASK)
        before = client.options("/v1/completions", headers={**headers, "Access-Control-Request-Method": "POST"})
        own = client.get("/v1/models")
    assert [answer.status_code, before.status_code] == [403, 403]
    assert not [name for one in (answer, before, own) for name in one.headers if name.startswith("access-control")]


def test_an_origin_that_was_asked_for_may_read_and_no_other(runs):
    with serving([runs / "rnn"], origins=["https://app.example.org"], keys=[KEY]) as found, found.http() as client:
        asked = {"Origin": "https://app.example.org"}
        before = client.options("/v1/models", headers={**asked, "Access-Control-Request-Method": "GET"})
        assert before.headers["access-control-allow-origin"] == asked["Origin"]
        assert client.get("/v1/models", headers=asked).headers["access-control-allow-origin"] == asked["Origin"]
        assert client.get("/v1/models", headers={"Origin": "https://example.org"}).status_code == 403
        without = {**asked, "Authorization": "Bearer no"}
        assert client.get("/v1/models", headers=without).status_code == 401


# ---- bodies and connections ------------------------------------------------------------------------


def test_a_body_that_is_too_large_is_refused_told_or_not(runs):
    with serving([runs / "rnn"], limits=Limits(body_bytes=2000)) as found, found.http() as client:
        large = b"x" * 2001
        assert client.post("/v1/completions", content=large).status_code == 413
        assert client.post("/v1/completions", content=iter([large[:1000], large[1000:]])).status_code == 413
        assert raw(found, posting(found, b"", 10**16)).startswith(b"HTTP/1.1 413")
        assert client.post("/v1/completions", json=ASK).status_code == 200


def test_a_client_that_is_slow_to_ask_is_left(runs, monkeypatch):
    monkeypatch.setattr(server_module, "HEAD_SECONDS", 0.3)
    with serving([runs / "rnn"], limits=Limits(body_seconds=0.3)) as found:
        assert raw(found, b"") == b""  # says nothing
        assert raw(found, b"POST /v1/completions HTTP/1.1\r\nHo") == b""  # stops in the head
        assert raw(found, posting(found, b"{", 100)).startswith(b"HTTP/1.1 408")
        assert found.post("/v1/completions", ASK)["choices"]


def test_a_client_that_does_not_read_its_stream_is_left(runs, monkeypatch):
    monkeypatch.setattr(server_module, "STALLED_SECONDS", 0.3)
    with serving([runs / "rnn"]) as found:
        body = json.dumps({**ENDLESS, "logprobs": 20}).encode()
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", found.port))
            sock.sendall(posting(found, body))
            found.wait_until_idle(began=True)


@pytest.mark.parametrize("stream", [False, True])
def test_a_half_closed_connection_hangs_nothing(server: Serving, stream):
    body = json.dumps({**LONG, "stream": stream}).encode()
    raw(server, posting(server, body), half_closed=True)
    raw(server, posting(server, body[:9], len(body)), half_closed=True)
    server.wait_until_idle()
    assert server.post("/v1/completions", ASK)["choices"]


def test_a_client_that_leaves_is_no_fault_of_the_server_in_the_log(runs):
    with serving([runs / "rnn"]) as found:
        body = json.dumps(LONG).encode()
        raw(found, posting(found, body[:9], len(body)), half_closed=True)  # while it asks
        with socket.create_connection(("127.0.0.1", found.port)) as sock:  # while it waits
            sock.sendall(posting(found, body))
            wait_for(lambda: found.state.engine.is_busy)
        found.wait_until_idle()
        assert [line["status"] for line in found.logged(2)] == [499, 499]


# ---- time and places -------------------------------------------------------------------------------


def test_a_request_that_takes_too_long_is_ended(runs):
    with serving([runs / "rnn"], limits=Limits(seconds=0.3)) as found:
        answer = found.post("/v1/completions", LONG, 504)
        assert "longer than the server's time limit" in answer["error"]["message"]
        assert "--set timeout=" in answer["error"]["message"]
        with found.http() as client, client.stream("POST", "/v1/completions", json=ENDLESS) as stream:
            last = [line for line in stream.iter_lines() if line][-1]
        assert "longer than the server's time limit" in json.loads(last.removeprefix("data: "))["error"]["message"]
        found.wait_until_idle()


def test_texts_that_are_too_long_together_are_refused(runs):
    with serving([runs / "rnn"]) as found:
        body = {"model": "rnn", "input": ["the cat sat " * 8000] * 4}
        refused = found.post("/v1/embeddings", body, 400)
    assert "input: got 384000 characters, expected at most 300000" in refused["error"]["message"]


def test_a_full_queue_is_429_with_retry_after_and_ends(server: Serving):
    (scheduler,) = server.state.engine.schedulers
    with ExitStack() as stack:
        for _ in range(4):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            sock.sendall(posting(server, json.dumps(ENDLESS).encode()))
        wait_for(lambda: scheduler.active == 2 and len(scheduler.waiting) == 2)
        with server.http() as client:
            refused = client.post("/v1/completions", json=ASK)
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) >= 1
            assert "overloaded: 2 requests wait" in refused.json()["error"]["message"]
            assert client.post("/v1/sessions", json={"model": "rnn", "text": "the cat"}).status_code == 429
    server.wait_until_idle()
    assert server.post("/v1/completions", ASK)["choices"]


def test_a_batch_that_would_take_too_many_bytes_is_refused(runs):
    with serving([runs / "transformer"], most_bytes=2**20) as found:
        answer = found.post("/v1/completions", {**LONG, "model": "transformer"}, 400)
        assert "symbols in all, which take" in answer["error"]["message"]
        assert found.post("/v1/completions", {**ASK, "model": "transformer"})["choices"]


# ---- the log and the metrics -----------------------------------------------------------------------


def test_every_answer_is_counted_and_logged_refusals_too(runs):
    with serving([runs / "rnn"], keys=[KEY]) as found:
        found.post("/v1/completions", ASK)
        found.post("/v1/completions", {**ASK, "prompt": "the £"}, 400)
        httpx.get(f"{found.url}/v1/models")
        with found.http() as client:
            client.get("/v1/models", headers={"Host": "example.org"})
            text = client.get("/metrics").text
        lines = found.logged(5)
    assert [line["status"] for line in lines] == [200, 400, 401, 403, 200]
    assert 'recollect_requests_total{route="/v1/completions",status="200"} 1' in text
    assert 'recollect_requests_total{route="none",status="403"} 1' in text
    assert 'recollect_tokens_total{model="rnn",kind="generated"} 5' in text
    kinds = dict(line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE"))
    assert kinds["recollect_token_gap_seconds"] == "histogram"
    assert kinds["recollect_rows"] == "gauge"
    for line in text.splitlines():
        if not line.startswith("#"):
            float(line.rpartition(" ")[2])


def test_a_fault_of_the_server_is_500_and_its_message_is_not_logged(runs, monkeypatch):
    secret = "the bird sang"

    def fail(*_: object) -> None:
        raise AssertionError(f"while reading {secret}")

    with serving([runs / "rnn"]) as found:
        monkeypatch.setattr("recollect.serving.completions.settings_of", fail)
        answer = found.post("/v1/completions", {**ASK, "prompt": secret}, 500)
        assert answer["error"]["type"] == "server_error"
        monkeypatch.undo()
        assert found.post("/v1/completions", ASK)["choices"]
        fault = next(line for line in found.logged(3) if line["event"] == "fault")
        assert fault["kind"] == "AssertionError"
        assert any(place.startswith("completions.py:") for place in fault["where"])
        assert secret not in "".join(found.lines)


def test_a_fault_of_a_scheduler_ends_its_requests_alone(runs, monkeypatch):
    with serving([runs / "rnn"]) as found:
        (scheduler,) = found.state.engine.schedulers
        with monkeypatch.context() as patch:
            patch.setattr(scheduler, "_admit", lambda: (_ for _ in ()).throw(RuntimeError("a fault")))
            assert "a fault" in found.post("/v1/completions", ASK, 500)["error"]["message"]
        assert found.post("/v1/completions", ASK)["choices"]


# ---- the end ---------------------------------------------------------------------------------------


def test_a_server_that_stops_lets_what_runs_end(runs):
    found_text: list[str] = []
    with serving([runs / "rnn"], grace=60) as found:
        ask = {**ASK, "max_tokens": 300}
        expected = found.post("/v1/completions", ask)["choices"][0]["text"]
        thread = threading.Thread(
            target=lambda: found_text.append(found.post("/v1/completions", ask)["choices"][0]["text"])
        )
        thread.start()
        wait_for(lambda: found.state.engine.is_busy or bool(found_text))
    thread.join()
    assert found_text == [expected]


def test_after_its_grace_the_clients_of_the_rest_are_told(runs):
    lines: list[str] = []

    def read(found: Serving) -> None:
        with found.http() as client, client.stream("POST", "/v1/completions", json=ENDLESS) as stream:
            lines.extend(line for line in stream.iter_lines() if line)

    with serving([runs / "rnn"], grace=0.2) as found:
        thread = threading.Thread(target=read, args=(found,))
        thread.start()
        wait_for(lambda: bool(lines))
    thread.join()
    assert "the server is stopping" in json.loads(lines[-1].removeprefix("data: "))["error"]["message"]


# ---- many bad requests -----------------------------------------------------------------------------


WRONG = [None, True, -1, 0, 2**70, "", "\ud800", "x" * 300, [], [[]], [None], {}, {"a": []}, "the", [[1, 2], []], 1e400]


SHARES = {"/v1/completions": 4, "/v1/embeddings": 2, "/v1/sessions": 2, "/v1/predict": 2}


def bodies(session: str) -> dict[str, list[dict]]:
    """Return valid bodies of each route."""
    few = {**ASK, "max_tokens": 3, "n": 1, "stop": "x", "top_p": 0.9, "stream": False}
    return {
        "/v1/completions": [{**few, "logprobs": 1}, {**few, "session": session}],
        "/v1/embeddings": [{"model": "rnn", "input": ["the cat", "a dog"], "encoding_format": "float"}],
        "/v1/sessions": [{"model": "rnn", "text": "the cat"}],
        "/v1/predict": [{"model": "labels", "input": ["good", "not good"], "nbest": 1}],
    }


def mutated(draw: random.Random, valid: dict) -> bytes:
    """Return a body that is wrong in some way, most often."""
    field = draw.choice([*valid, None])
    changes = {} if field is None else {field: draw.choice(WRONG)}
    body = json.dumps({**valid, **changes}).encode()
    for _ in range(draw.randrange(3)):
        place = draw.randrange(len(body))
        change = draw.choice([b"", b"\x00", b"\xff", b'"', b"{", b"}", b"[", b"9", b"-", b",", b"\\u"])
        body = body[:place] + change + body[place + draw.randrange(3) :]
    return body


@pytest.fixture(scope="module")
def labels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labels") / "labels"
    return rc.train("kindness:count=60", model="gru", out=folder, budget="2steps", width=8, device="cpu").folder


async def sent(folders, count: int) -> dict[str, Counter[int]]:
    """Send mutated bodies to an application in this process, and return each route's statuses; then all is well."""
    state = State.of(open_served([str(folder) for folder in folders], "cpu"), replace(Limits(), seconds=20.0))
    app = create_server(state, Access(["server"]), lambda line: None)
    draw = random.Random(0)
    statuses: dict[str, Counter[int]] = {path: Counter() for path in SHARES}
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://server") as one,
    ):
        session = (await one.post("/v1/sessions", json={"model": "rnn", "text": "the cat"})).json()["id"]
        valid = bodies(session)
        for _ in range(count):
            (path,) = draw.choices(list(SHARES), list(SHARES.values()))
            body = {"content": mutated(draw, draw.choice(valid[path])), "headers": {"Content-Type": "application/json"}}
            statuses[path][(await one.post(path, **body)).status_code] += 1
        assert (await one.post("/v1/completions", json={**ASK, "session": session})).json()["choices"]
        assert not state.engine.is_busy
    return statuses


@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_mutated_bodies_get_in_nowhere_and_hang_nothing(runs, labels, count):
    statuses = asyncio.run(sent([runs / "rnn", labels], count))
    for found in statuses.values():
        assert set(found) <= {200, 201, 400, 404}
        assert found[400] > found.total() // 4
        assert found[200] + found[201] > found.total() // 50  # also what is computed was reached


@pytest.mark.parametrize("count", [100, pytest.param(2_000, marks=pytest.mark.slow)])
def test_bytes_that_are_no_http_hang_nothing(server: Serving, count):
    draw = random.Random(1)
    good = posting(server, b"{}")
    for _ in range(count):
        place = draw.randrange(len(good))
        bad = good[:place] + bytes(draw.randrange(256) for _ in range(draw.randrange(6))) + good[place + 1 :]
        answer = raw(server, bad, half_closed=True)
        assert not answer.startswith(b"HTTP/1.1 5")
        assert not answer.startswith(b"HTTP/1.1 200")
    assert server.post("/v1/completions", ASK)["choices"]


# ---- memory ----------------------------------------------------------------------------------------


def test_an_idle_server_gives_freed_memory_back_once(runs, monkeypatch):
    given: list[bool] = []
    monkeypatch.setattr("recollect.serving.engine.IDLE_SECONDS", 0.01)
    monkeypatch.setattr("recollect.serving.engine.release_memory", lambda: given.append(True))
    with serving([runs / "rnn"]) as found:
        wait_for(lambda: len(given) == 1)
        found.post("/v1/completions", ASK)
        wait_for(lambda: len(given) == 2)
