"""What is wrong, in both languages of the page."""

from __future__ import annotations

import re

from recollect.data.error import DataError
from recollect.inspection.trace import Text

KNOWN = {  # errors of the library that a page can meet: their English, and what the page says in Chinese
    r"text: none of its symbols is known to this model, such as (.+)": "没有一个符号是这个模型认识的，例如 {0}",
    r"text: got (\d+) tokens, expected at most (\d+), the model's table of positions; shorten it": (
        "文字有 {0} 个词元，而模型的位置表最多 {1} 个；请缩短文字"
    ),
    r"(\w+): no knob of this model, expected one of (.+)": "这个模型没有旋钮 {0}，只有 {1}",
    r"(\w+): got ('.*'), expected one of (.+)": "{0} 得到 {1}，应为 {2} 之一",
    r"(.+): damaged, its checksum does not match; use another copy or save it again": (
        "{0} 已损坏：校验和不符；请换一份副本，或重新保存"
    ),
    r"(.+), line (\d+): damaged, it is no row of this run; delete that line": (
        "{0} 第 {1} 行已损坏，不是这次运行的记录；请删除该行"
    ),
}


class PageError(DataError):
    """Something that the page cannot show; `zh` says in Chinese what the message says."""

    def __init__(self, en: str, zh: str) -> None:
        super().__init__(en)
        self.zh = zh


def both(error: Exception) -> Text:
    """Return what an error says in both languages; what nobody has translated is English after a Chinese word."""
    en = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return {"en": en, "zh": error.zh if isinstance(error, PageError) else chinese(en)}


def chinese(en: str) -> str:
    """Return the Chinese of an error's message."""
    for pattern, words in KNOWN.items():
        found = re.fullmatch(pattern, en, re.DOTALL)
        if found:
            return words.format(*found.groups())
    return f"出错：{en}"


def not_shown(error: Exception) -> Text:
    """Return that a model is not on the page, and why."""
    words = both(error)
    return {"en": f"not on the page: {words['en']}", "zh": f"未显示在页面上：{words['zh']}"}


def gone(folder: object) -> PageError:
    """Return the error of a run whose folder vanished while its model is shown."""
    return PageError(
        f"{folder}: the run's folder is gone; the model that was loaded from it still runs",
        f"{folder}：运行目录已不存在；已载入的模型仍可使用",
    )
