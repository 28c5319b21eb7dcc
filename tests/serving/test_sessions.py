"""Sessions are memories: continued, forked, saved, loaded, counted in bytes."""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import socket
from pathlib import Path

import pytest
import torch

from recollect.core.machine import release_memory, resident_memory
from recollect.core.memory import Memory
from recollect.core.reservation import with_leaves
from recollect.core.serialize import FileError, load_memory, save_memory
from recollect.runs.run import Run
from recollect.serving.served import open_served
from recollect.serving.session_files import Kept
from recollect.serving.sessions import NoRoom
from recollect.serving.state import Limits, State
from serving.served import Serving, in_a_loop, serving, wait_for
from tiers import slow_after

FAMILIES = ("lstm", "transformer", "ttt-linear", "rnn", "markov")
GREEDY = {"temperature": 0, "max_tokens": 20}
OVERHEAD = 6 * 1024  # bytes of a session beside its tensors
TEXT = "the cat sat on the mat"


@pytest.fixture(scope="module")
def server(runs: Path, tmp_path_factory):
    with serving([runs], sessions=tmp_path_factory.mktemp("sessions")) as found:
        yield found


def begun(server: Serving, family: str, text: str = TEXT) -> str:
    return server.post("/v1/sessions", {"model": family, "text": text}, 201)["id"]


def continued(server: Serving, family: str, name: str, prompt: str = "", **settings) -> str:
    body = {"model": family, "session": name, "prompt": prompt, **GREEDY, **settings}
    return server.post("/v1/completions", body)["choices"][0]["text"]


def alone(runs: Path, family: str, prompt: str, tokens: int = 20, **settings) -> str:
    how = {"greedy": True} | settings
    return Run(runs / family, "cpu").generate(prompt, tokens=tokens, **how).removeprefix(prompt)


# ---- continued -------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_a_session_goes_on_as_if_all_had_been_read_again(server: Serving, runs, family):
    name = begun(server, family)
    first = continued(server, family, name)
    second = continued(server, family, name, " and ")
    assert first == alone(runs, family, TEXT)
    assert second == alone(runs, family, TEXT + first + " and ")
    shown = server.get(f"/v1/sessions/{name}")
    assert shown["symbols"] == len(TEXT) + 20 + len(" and ") + 20


def test_sampling_and_streaming_go_through_a_session_too(server: Serving, runs):
    name = begun(server, "lstm")
    how = {"temperature": 0.8, "seed": 4}
    assert continued(server, "lstm", name, **how) == alone(runs, "lstm", TEXT, greedy=False, **how)
    body = {"model": "lstm", "session": name, "prompt": "", **GREEDY, "stream": True}
    before = server.get(f"/v1/sessions/{name}")["symbols"]
    with server.http() as client, client.stream("POST", "/v1/completions", json=body) as stream:
        lines = [line for line in stream.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    assert server.get(f"/v1/sessions/{name}")["symbols"] == before + 20


def test_a_client_that_leaves_leaves_the_session_as_it_was(server: Serving, runs):
    name = begun(server, "lstm")
    body = json.dumps({"model": "lstm", "session": name, "prompt": "", "max_tokens": 900_000, "stream": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        sock.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert sock.recv(100)
        busy = server.post("/v1/completions", {"model": "lstm", "session": name, "prompt": "a"}, 409)
        assert "is being continued; wait, or fork it before" in busy["error"]["message"]
        with server.http() as client:
            assert client.delete(f"/v1/sessions/{name}").status_code == 409
        fork = server.post(f"/v1/sessions/{name}/fork", status=201)["id"]  # of what it was before
    wait_for(lambda: not server.state.sessions.get(name).is_busy)
    assert continued(server, "lstm", name) == continued(server, "lstm", fork) == alone(runs, "lstm", TEXT)


def test_forks_diverge_without_touching_each_other(server: Serving, runs):
    for family in FAMILIES:
        name = begun(server, family)
        one, other = (server.post(f"/v1/sessions/{name}/fork", status=201)["id"] for _ in range(2))
        prompts = {one: " and the dog", other: "。\n猫"}
        texts = {fork: continued(server, family, fork, prompt) for fork, prompt in prompts.items()}
        again = {fork: continued(server, family, fork) for fork in prompts}
        for fork, prompt in prompts.items():
            assert texts[fork] == alone(runs, family, TEXT + prompt)
            assert again[fork] == alone(runs, family, TEXT + prompt + texts[fork])
        assert continued(server, family, name) == alone(runs, family, TEXT)


# ---- saved -----------------------------------------------------------------------------------------


def test_after_a_restart_a_saved_session_goes_on_with_the_same_symbols(runs, tmp_path):
    names, texts = {}, {}
    with serving([runs], sessions=tmp_path) as found:
        for family in FAMILIES:
            names[family] = begun(found, family)
            continued(found, family, names[family], max_tokens=7)
            assert found.post(f"/v1/sessions/{names[family]}/save")["saved"]
            texts[family] = continued(found, family, names[family], temperature=0.9, seed=5)
            found.state.sessions.by_id[names[family]].is_saved = True  # or it would be saved again, further on
    with serving([runs], sessions=tmp_path) as found:
        assert sorted(found.get("/v1/sessions")["saved"]) == sorted(names.values())
        for family, name in names.items():
            missing = found.post("/v1/completions", {"model": family, "session": name, "prompt": "a"}, 404)
            assert "it is saved, load it first" in missing["error"]["message"]
            assert found.post(f"/v1/sessions/{name}/load")["symbols"] == len(TEXT) + 7
            assert continued(found, family, name, temperature=0.9, seed=5) == texts[family]


def test_a_server_that_stops_saves_what_has_changed(runs, tmp_path):
    with serving([runs / "lstm"], sessions=tmp_path) as found:
        name = begun(found, "lstm")
        first = continued(found, "lstm", name)
    with serving([runs / "lstm"], sessions=tmp_path) as found:
        found.post(f"/v1/sessions/{name}/load")
        assert continued(found, "lstm", name) == alone(runs, "lstm", TEXT + first)


def test_without_a_folder_sessions_live_as_long_as_the_server(runs):
    with serving([runs / "lstm"]) as found:
        name = begun(found, "lstm")
        refused = found.post(f"/v1/sessions/{name}/save", status=409)
        assert "start it with --sessions FOLDER" in refused["error"]["message"]


def test_deleted_is_deleted_in_memory_and_on_disk(server: Serving):
    name = begun(server, "lstm")
    server.post(f"/v1/sessions/{name}/save")
    file = server.state.sessions.files.folder / f"{name}.safetensors"
    assert file.exists()
    with server.http() as client:
        assert client.delete(f"/v1/sessions/{name}").json() == {"id": name, "object": "session", "deleted": True}
        assert not file.exists()
        assert client.delete(f"/v1/sessions/{name}").status_code == 404
        assert client.get(f"/v1/sessions/{name}").status_code == 404
        assert client.post("/v1/sessions/../../etc/save").status_code == 404
        assert client.post(f"/v1/sessions/{'g' * 32}/load").status_code == 400


def test_a_second_server_cannot_take_the_folder(runs, tmp_path):
    with (
        serving([runs / "lstm"], sessions=tmp_path),
        pytest.raises(FileError, match="another server has"),
        serving([runs / "lstm"], sessions=tmp_path),
    ):
        pass
    with serving([runs / "lstm"], sessions=tmp_path) as found:  # it is free again
        assert found.get("/v1/sessions")["data"] == []


def test_a_file_of_other_weights_or_damaged_is_refused_and_kept(runs, tmp_path):
    with serving([runs / "lstm"], sessions=tmp_path / "kept") as found:
        name = begun(found, "lstm")
        found.post(f"/v1/sessions/{name}/save")
    other = tmp_path / "other" / "lstm"
    shutil.copytree(runs / "rnn", other)
    file = tmp_path / "kept" / f"{name}.safetensors"
    good = file.read_bytes()
    with serving([other], sessions=tmp_path / "kept") as found:
        refused = found.post(f"/v1/sessions/{name}/load", status=409)
        assert "a session of other weights" in refused["error"]["message"]
    with serving([runs / "lstm"], sessions=tmp_path / "kept") as found:
        for damaged in (good[:-9], good[: len(good) // 2], b"", good[:-1] + bytes([good[-1] ^ 1])):
            file.write_bytes(damaged)
            found.post(f"/v1/sessions/{name}/load", status=409)
        file.write_bytes(good)
        assert found.post(f"/v1/sessions/{name}/load")["id"] == name


def test_a_memory_that_counts_more_steps_than_it_holds_is_refused(runs, tmp_path):
    with serving([runs / "transformer"], sessions=tmp_path) as found:
        name = begun(found, "transformer")
        found.post(f"/v1/sessions/{name}/save")
        file = tmp_path / f"{name}.safetensors"
        kept = load_memory(file)
        assert isinstance(kept, Kept)
        for change in (1000, -1000):
            save_memory(_with_length(kept, change), file)
            refused = found.post(f"/v1/sessions/{name}/load", status=409)
            assert "its memory is not one that transformer writes" in refused["error"]["message"]


def _with_length(kept: Kept, change: int) -> Memory:
    """Return a session whose counted steps are changed, and nothing else."""
    return with_leaves(kept, iter([t + change if t.dtype == torch.long else t for t in kept.leaves()]))


# ---- counted ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", slow_after(2, ("lstm", "transformer", "ttt-linear", "rnn")))
def test_bytes_are_those_of_the_tensors_and_grow_as_the_family_says(server: Serving, family):
    sizes = []
    for text in (TEXT, TEXT * 10, TEXT * 100):
        name = begun(server, family, text)
        kept = server.state.sessions.get(name).kept
        sizes.append(server.get(f"/v1/sessions/{name}")["bytes"])
        assert sizes[-1] == sum(t.untyped_storage().nbytes() for t in kept.leaves())  # and no view of a batch
    assert (sizes[0] == sizes[1] == sizes[2]) == (family != "transformer")
    if family == "transformer":
        assert sizes[2] > 50 * (sizes[1] - sizes[0]) / 10


@pytest.mark.parametrize("count", [50, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_sessions_of_an_lstm_take_their_bytes_and_no_more(runs, count):
    with serving([runs / "lstm"]) as found, found.http() as client:
        for i in range(count):
            body = {"model": "lstm", "text": TEXT[: 1 + i % len(TEXT)]}
            assert client.post("/v1/sessions", json=body).status_code == 201
        listed = found.get("/v1/sessions")
        (each,) = {one["bytes"] for one in listed["data"]}
        assert listed["bytes"] == count * each == found.state.sessions.nbytes
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in _tensors(found)}
        assert sum(storages.values()) == count * each
        forks = [client.post(f"/v1/sessions/{one['id']}/fork").json()["id"] for one in listed["data"][:20]]
        assert found.get("/v1/sessions")["bytes"] == count * each  # what forks share is counted once
        for name in (*forks, *(one["id"] for one in listed["data"][:30])):
            assert client.delete(f"/v1/sessions/{name}").status_code == 200
        assert found.state.sessions.nbytes == (count - 30) * each


@pytest.mark.slow
def test_a_session_is_resident_with_its_bytes_and_a_bounded_overhead(runs):
    """Beside its tensors a session has objects, a line of the log and an entry of the list; whatever its text."""
    with serving([runs / "lstm"]) as found, found.http() as client:
        before, count = 0, 0
        for i in range(1000):
            if i == 300:  # what is allocated once is allocated
                before, count = _resident(found), found.state.sessions.nbytes
            assert client.post("/v1/sessions", json={"model": "lstm", "text": TEXT * 20}).status_code == 201
        after = _resident(found)
        tensors = found.state.sessions.nbytes - count
    assert after - before <= tensors + 700 * OVERHEAD


def _resident(server: Serving) -> int:
    server.wait_until_idle()
    gc.collect()
    release_memory()
    return resident_memory()


def _tensors(server: Serving) -> list[torch.Tensor]:
    return [t for one in server.state.sessions.by_id.values() for t in one.kept.leaves()]


def test_sessions_beyond_the_limits_are_429(runs):
    with serving([runs / "lstm"], limits=Limits(sessions=2)) as found, found.http() as client:
        names = [begun(found, "lstm") for _ in range(2)]
        refused = client.post("/v1/sessions", json={"model": "lstm", "text": "a"})
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "60")
        assert "at most 2 may be; delete some" in refused.json()["error"]["message"]
        assert client.post(f"/v1/sessions/{names[0]}/fork").status_code == 429
        client.delete(f"/v1/sessions/{names[0]}")
        assert client.post("/v1/sessions", json={"model": "lstm", "text": "a"}).status_code == 201
    with serving([runs / "transformer"], limits=Limits(session_bytes=2000)) as found:
        name = begun(found, "transformer")
        body = {"model": "transformer", "session": name, "prompt": "a"}
        assert "bytes, at most 2000" in found.post("/v1/completions", body, 429)["error"]["message"]


def test_sessions_that_are_loaded_at_once_are_not_more_than_may_be(runs, tmp_path):
    with serving([runs / "lstm"], sessions=tmp_path) as found:
        names = [begun(found, "lstm") for _ in range(3)]
    state = State.of(open_served([str(runs / "lstm")], "cpu"), Limits(sessions=2), tmp_path)

    async def load() -> list[object]:
        return await asyncio.gather(*(state.sessions.load(name) for name in names), return_exceptions=True)

    try:
        loaded = in_a_loop(load)
    finally:
        state.sessions.close()
    assert sum(isinstance(one, NoRoom) for one in loaded) == 1
    assert len(state.sessions.by_id) == 2


def test_what_is_no_session_is_refused(server: Serving):
    name = begun(server, "lstm")
    for changes, words in (
        ({"model": "rnn"}, "is one of the model lstm"),
        ({"n": 2}, "fork it for more"),
        ({"prompt": ["a", "b"]}, "fork it for more"),
    ):
        body = {"model": "lstm", "session": name, "prompt": "a", **changes}
        assert words in server.post("/v1/completions", body, 400)["error"]["message"]
    for body, status in (({"model": "gone", "text": "a"}, 404), ({"model": "lstm", "text": ""}, 400)):
        server.post("/v1/sessions", body, status)
    assert "£" in server.post("/v1/sessions", {"model": "lstm", "text": "£"}, 400)["error"]["message"]
    assert server.get(f"/v1/sessions/{name}")["symbols"] == len(TEXT)
