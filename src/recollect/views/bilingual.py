"""Text in English and Chinese: a page carries both and shows the one of its `lang` attribute."""

from __future__ import annotations

from typing import NamedTuple

from markupsafe import Markup


class Bilingual(NamedTuple):
    """The same text in both languages; in a template it becomes two spans, of which the page shows one."""

    en: str
    zh: str

    def __html__(self) -> str:
        return Markup('<span lang="en">{}</span><span lang="zh">{}</span>').format(self.en, self.zh)
