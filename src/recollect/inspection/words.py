"""The language of a picture."""

from __future__ import annotations

from dataclasses import dataclass

LANGUAGES = ("en", "zh")


@dataclass(frozen=True)
class Say:
    """Selects one of two texts, English or Chinese."""

    language: str = "en"

    def __post_init__(self) -> None:
        if self.language not in LANGUAGES:
            raise ValueError(f"lang: got {self.language!r}, expected one of {', '.join(LANGUAGES)}")

    def __call__(self, english: str, chinese: str) -> str:
        """Return the text in the language asked for."""
        return chinese if self.language == "zh" else english


def heaviest(shown: int, total: int, say: Say) -> str:
    """Return which tokens a diagram shows where it leaves some out, else nothing."""
    if shown == total:
        return ""
    return say(f"{shown} of {total} tokens: those with the largest weights", f"{total} 个词元中权重最大的 {shown} 个")
