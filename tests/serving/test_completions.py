"""Completions through OpenAI's own client: what is served is what `recollect generate` gives."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx
import openai
import pytest

from recollect.runs.run import Run
from serving.served import Serving, serving

FAMILIES = ("rnn", "transformer", "ttt-linear")
HOW = {"prompt": "the cat", "max_tokens": 40, "temperature": 0.8, "seed": 3}


@pytest.fixture(scope="module")
def server(runs: Path):
    with serving([runs], most=8) as found:
        yield found


def generated(runs: Path, family: str, prompt: str = "the cat", **settings) -> str:
    how = {"tokens": 40, "temperature": 0.8, "seed": 3} | settings
    return Run(runs / family, "cpu").generate(prompt, **how).removeprefix(prompt)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_whole_and_streamed_is_that_of_generate(server: Serving, runs, family):
    with server.openai() as client:
        whole = client.completions.create(model=family, **HOW)
        parts = list(client.completions.create(model=family, stream=True, **HOW))
    assert whole.choices[0].text == generated(runs, family)
    assert "".join(part.choices[0].text for part in parts) == whole.choices[0].text
    assert len(parts) > 30
    assert [part.choices[0].finish_reason for part in parts][-1] == whole.choices[0].finish_reason == "length"
    assert whole.usage.model_dump(include={"prompt_tokens", "completion_tokens"}) == {
        "prompt_tokens": 7,
        "completion_tokens": 40,
    }


def test_streams_of_all_ages_do_not_disturb_each_other(server: Serving, runs):
    found: dict[tuple[str, int], str] = {}

    def ask(family: str, seed: int) -> None:
        with server.openai() as client:
            how = {**HOW, "seed": seed, "max_tokens": 10 + 5 * seed, "stream": True}
            found[family, seed] = "".join(p.choices[0].text for p in client.completions.create(model=family, **how))

    threads = [threading.Thread(target=ask, args=(family, seed)) for family in FAMILIES for seed in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = {key: generated(runs, key[0], seed=key[1], tokens=10 + 5 * key[1]) for key in found}
    assert len(found) == 36
    assert found == expected


def test_settings_n_stop_echo_and_greedy(server: Serving, runs):
    with server.openai() as client:
        greedy = client.completions.create(model="rnn", **{**HOW, "temperature": 0})
        coldest = client.completions.create(model="rnn", **{**HOW, "temperature": 1e-300})
        stopped = client.completions.create(model="rnn", **HOW, stop=greedy.choices[0].text[:1])
        several = client.completions.create(model="rnn", **HOW, n=3)
        echoed = client.completions.create(model="rnn", **{**HOW, "prompt": ["the", "a dog"]}, echo=True)
        more = {"top_k": 3, "repetition_penalty": 1.2}
        filtered = client.completions.create(model="rnn", **HOW, top_p=0.9, extra_body=more)
    assert coldest.choices[0].text == greedy.choices[0].text
    assert greedy.choices[0].text == generated(runs, "rnn", greedy=True, temperature=1.0)
    assert stopped.choices[0].text == generated(runs, "rnn", stop=[greedy.choices[0].text[:1]])
    assert stopped.choices[0].finish_reason == "stop"
    texts = [choice.text for choice in several.choices]
    assert texts[0] == generated(runs, "rnn")
    assert len(set(texts)) == 3
    assert [c.text for c in echoed.choices] == [p + generated(runs, "rnn", p) for p in ("the", "a dog")]
    assert filtered.choices[0].text == generated(runs, "rnn", top_p=0.9, **more)


def test_log_probabilities_are_those_of_the_model(server: Serving, runs):
    with server.openai() as client:
        found = client.completions.create(model="rnn", **HOW, logprobs=2).choices[0].logprobs
    import recollect as rc

    run = Run(runs / "rnn", "cpu")
    ids = run.tokenizer.encode("the cat")
    settings = rc.Settings(tokens=40, temperature=0.8, seed=3, prohibited=run.tokenizer.unseen)
    (alone,) = rc.generate(run.model, [ids], settings)
    assert found.tokens == [run.tokenizer.decode([i]) for i in alone.ids]
    assert found.token_logprobs == pytest.approx(alone.logprobs, abs=1e-5)
    assert found.text_offset == list(range(40))
    assert all(len(best) <= 2 and max(best.values()) >= p - 1e-6 for best, p in zip(
        found.top_logprobs, found.token_logprobs, strict=True
    ))  # fmt: skip


def test_ids_as_prompts_and_usage_at_the_end_of_a_stream(server: Serving, runs):
    ids = Run(runs / "rnn", "cpu").tokenizer.encode("the cat").tolist()
    options = {"stream": True, "stream_options": {"include_usage": True}}
    with server.openai() as client:
        *parts, last = client.completions.create(model="rnn", **{**HOW, "prompt": ids}, **options)
    assert "".join(part.choices[0].text for part in parts) == generated(runs, "rnn")
    assert last.choices == []
    assert last.usage.total_tokens == 47
    assert all("usage" in part.model_fields_set and part.usage is None for part in parts)


def test_without_a_seed_texts_differ_and_the_seed_is_told(server: Serving, runs):
    how = {name: value for name, value in HOW.items() if name != "seed"}
    first, second = (server.post("/v1/completions", {"model": "rnn", **how}) for _ in range(2))
    assert first["choices"][0]["text"] != second["choices"][0]["text"]
    assert first["choices"][0]["text"] == generated(runs, "rnn", seed=first["seed"])


def test_a_long_prompt_is_not_decoded_again_for_every_row(server: Serving, monkeypatch):
    """The engine's thread would do it, and every other stream would wait."""
    (served,) = (one for one in server.state.models if one.name == "rnn")
    original = served.tokenizer.stream
    seen: list[str] = []
    monkeypatch.setattr(served.tokenizer, "stream", lambda after="": seen.append(after) or original(after))
    server.post("/v1/completions", {"model": "rnn", **HOW, "prompt": "the cat sat " * 100, "n": 2})
    assert [("the cat sat " * 100).endswith(after) and 0 < len(after) <= 64 for after in seen] == [True, True]


@pytest.mark.parametrize("family", FAMILIES)
def test_embeddings_are_those_of_embed(server: Serving, runs, family):
    with server.openai() as client:
        packed = client.embeddings.create(model=family, input=["the cat", "a dog"])
        plain = client.embeddings.create(model=family, input="the cat", encoding_format="float")
    expected = Run(runs / family, "cpu").embed(["the cat", "a dog"]).tolist()
    for one, vector in zip(packed.data, expected, strict=True):
        assert one.embedding == pytest.approx(vector, abs=1e-6)
    assert plain.data[0].embedding == pytest.approx(expected[0], abs=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_client_that_leaves_ends_its_stream(server: Serving, family):
    with server.openai() as client:
        stream = client.completions.create(model=family, **{**HOW, "max_tokens": 200_000, "stream": True})
        assert next(stream).choices[0].finish_reason is None
        stream.close()
    server.wait_until_idle()
    assert all(scheduler.batch.nbytes == 0 for scheduler in server.state.engine.schedulers)


def test_a_client_that_leaves_ends_its_request_without_a_stream(server: Serving):
    body = {"model": "rnn", **HOW, "max_tokens": 900_000}
    with server.http() as client, pytest.raises(httpx.ReadTimeout):
        client.post("/v1/completions", json=body, timeout=0.5)
    server.wait_until_idle()


def test_models_are_listed_with_what_they_can_do(server: Serving):
    with server.openai() as client:
        assert [model.id for model in client.models.list()] == ["markov", "rnn", "lstm", "transformer", "ttt-linear"]
        assert client.models.retrieve("lstm").able == ["completions", "embeddings"]
        with pytest.raises(openai.NotFoundError, match="expected one of markov, rnn"):
            client.models.retrieve("gone")


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"model": "gone"}, 404, "model: got 'gone', expected one of"),
        ({"prompt": ""}, 400, "no symbols"),
        ({"prompt": "the £"}, 400, "symbol '£' at place 4 is not in the text that was trained on"),
        ({"prompt": [99]}, 400, "prompt: got the id 99"),
        ({"prompt": ["a"] * 9}, 400, "n: got 9 rows, expected at most 8"),
        ({"temperature": -1}, 400, "temperature"),
        ({"top_p": 0}, 400, "top_p"),
        ({"repetition_penalty": 1e-300}, 400, "repetition_penalty"),
        ({"stop": ""}, 400, "stop: String should have at least 1 character"),
        ({"stop": ["a"] * 17}, 400, "stop: List should have at most 16 items"),
        ({"prompt": "a" * 100_001}, 400, "prompt: String should have at most 100000 characters"),
        ({"prompt": ["a"] * 65}, 400, "prompt: List should have at most 64 items"),
        ({"seed": -1}, 400, "seed"),
        ({"nonsense": 1}, 400, "nonsense"),
        ({"suffix": "x"}, 400, "suffix: not supported"),
        ({"frequency_penalty": 1}, 400, "frequency_penalty: not supported"),
        ({"echo": True, "logprobs": 1}, 400, "leave echo out"),
        ({"session": "0" * 32}, 404, "which there is not"),
        ({"session": "../../etc/passwd"}, 400, "session"),
        ({"prompt": "\ud800"}, 400, None),
    ],
)
def test_what_cannot_be_continued_is_refused_with_the_reason(server: Serving, changes, status, words):
    import json

    body = json.dumps({"model": "rnn", **HOW, **changes})
    with server.http() as client:
        answer = client.post("/v1/completions", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    message = answer.json()["error"]["message"]
    assert words is None or words in message


def test_the_log_has_no_prompts(server: Serving):
    secret = "the bird sang"
    before = len(server.lines)
    server.post("/v1/completions", {"model": "rnn", **HOW, "prompt": secret})
    line = server.logged(before + 1)[before]
    assert line["route"] == "/v1/completions"
    assert line["total_tokens"] == len(secret) + 40
    assert secret not in "".join(server.lines)
