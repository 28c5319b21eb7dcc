"""The bodies that the API reads, checked before anything is computed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

MOST_PROMPTS = 64  # in one request
MOST_SYMBOLS = 100_000  # of a prompt
LARGEST_SEED = 2**63 - 1

Id = Annotated[int, Field(ge=0, lt=2**31)]
Text = Annotated[str, StringConstraints(max_length=MOST_SYMBOLS)]
Ids = Annotated[list[Id], Field(max_length=MOST_SYMBOLS)]
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Stop = Annotated[str, StringConstraints(min_length=1, max_length=200)]
SessionId = Annotated[str, StringConstraints(pattern="^[0-9a-f]{32}$")]
Name = Annotated[str, StringConstraints(max_length=300)]


class Body(BaseModel):
    """A body: an unknown field is refused, since it would be without effect."""

    model_config = ConfigDict(extra="forbid")


class StreamOptions(Body):
    """What a stream reports beside its text."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None  # accepted, without effect


class CompletionAsked(Body):
    """Continue prompts. `session`, `top_k`, `min_p` and `repetition_penalty` are ours, the rest is OpenAI's."""

    model: Name
    prompt: (
        Text
        | Ids
        | Annotated[list[Text], Field(max_length=MOST_PROMPTS)]
        | Annotated[list[Ids], Field(max_length=MOST_PROMPTS)]
    ) = ""
    session: SessionId | None = None
    max_tokens: Annotated[int, Field(ge=0, le=1_000_000)] | None = 16
    temperature: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] | None = 1.0
    top_p: Share | None = 1.0
    top_k: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100, allow_inf_nan=False)] | None = 1.0
    n: Annotated[int, Field(ge=1, le=128)] | None = 1
    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED)] | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=16)] | None = None
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool | None = False
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    user: Name | None = None  # accepted, without effect
    best_of: Annotated[int, Field(ge=1)] | None = None
    suffix: str | None = None
    frequency_penalty: Annotated[float, Field(allow_inf_nan=False)] | None = 0.0
    presence_penalty: Annotated[float, Field(allow_inf_nan=False)] | None = 0.0
    logit_bias: dict[str, float] | None = None


class EmbeddingAsked(Body):
    """One vector for each text."""

    model: Name
    input: Text | Annotated[list[Text], Field(min_length=1, max_length=2048)]
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = None
    user: Name | None = None  # accepted, without effect


class FileGiven(Body):
    """A picture, a recording or a table: its name, whose ending names the format, and its bytes in base64."""

    name: Annotated[str, StringConstraints(pattern=r"^[\w\-]{1,100}\.[A-Za-z0-9]{1,8}$")]
    content: str


class PredictionAsked(Body):
    """Labels, tags, translations, captions or forecasts: of texts, or of files where the run reads those."""

    model: Name
    input: Text | Annotated[list[Text], Field(max_length=256)] | None = None
    files: Annotated[list[FileGiven], Field(max_length=64)] | None = None
    beam: Annotated[int, Field(ge=1, le=64)] | None = None
    nbest: Annotated[int, Field(ge=1, le=64)] | None = None


class SessionAsked(Body):
    """A session: a text that is read once and kept as a memory."""

    model: Name
    text: Annotated[Text, StringConstraints(min_length=1)]
