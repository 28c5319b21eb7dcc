"""The tables about the line from one sequence into another on Multi30k, and the story they tell."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from tables import Result, Say, join, table

YEARS = {"2016": "test_2016_flickr", "2017": "test_2017_flickr"}
USUAL = 2  # the column of usual lengths, beside which the longest sources stand
PLACES = 5  # target positions that are put together

LINE_NOTE = (
    "Medians over {seeds} seeds (into German: one). BLEU by sacrebleu: {signature}, `cased` without case:lc; nats per "
    "target symbol on test 2016, teacher-forced. Joint BPE. Models write lower case, except those called cased, so "
    "cased figures are low, especially into German. Goal: for beam 5, 2016. Several runs shared the GPU."
)
STORY_NOTE = (
    "German to English, test 2016, medians over seeds where there are several. Kept: BLEU on the longest sources over "
    "that on sources of usual length. Last table: accuracy of a linear classifier that reads a source symbol back "
    "from the fixed vector c, with the share of the most common symbol at that position."
)
LEADS = {  # printed before an optional table
    "line": "Multi30k, all models:",
    "story": "The same runs by source length, by target position, and what a fixed vector retains:",
}
CHINESE = {
    LEADS["line"]: "Multi30k，全部模型：",
    LEADS["story"]: "同一批训练结果：按源句长度、按目标位置，以及固定向量保留的信息：",
    "direction": "方向",
    "German to English": "德译英",
    "English to German": "英译德",
    "greedy, {}": "贪心，{}",
    "beam 5, {}": "束宽 5，{}",
    "beam 5, {}, cased": "束宽 5，{}，区分大小写",
    "nats per symbol": "nats/符号",
    "minutes": "分钟",
    "goal": "目标值",
    LINE_NOTE: "取 {seeds} 个随机种子的中位数（英译德为一个）。BLEU 由 sacrebleu 计算：{signature}，"
    "“区分大小写”列不含 case:lc；"
    "nats 为 2016 测试集上目标端每个符号的交叉熵（teacher forcing）。联合 BPE。除标注 cased 的模型外，输出均为小写，"
    "因此区分大小写的分数偏低，英译德尤其明显。目标值针对 2016 测试集、束宽 5。多个训练共用一块 GPU。",
    "words of the source: BLEU": "源句词数：BLEU",
    "kept of {}": "相对 {} 的保留率",
    "position in the target: nats": "目标位置：nats",
    "place in the source: read back from c": "源端位置：由 c 还原的准确率",
    "c of the source": "源的 c",
    "most common symbol": "最常见符号",
    STORY_NOTE: "德译英，2016 测试集，有多个随机种子的取中位数。保留率：最长一档源句的 BLEU 除以常见长度的 BLEU。"
    "末表：用线性分类器从固定向量 c 还原源端符号的准确率，末行为该位置最常见符号的占比。",
}


def line_block(result: Result, say: Say) -> str:
    """Return a row for each model and direction."""
    head = [say("model"), say("direction"), say("parameters"), say("nats per symbol")]
    head += [say(how).format(year) for year in YEARS for how in ("greedy, {}", "beam 5, {}", "beam 5, {}, cased")]
    head += [say("minutes"), say("goal")]
    rows = [line_row(name, found, result["least"], say) for name, found in by_name(result).items()]
    first = result["rows"][0]["test_2016_flickr"]["beam 5"]["signature"]
    seeds = max(len(found) for found in by_name(result).values())
    note = say(LINE_NOTE).format(signature=f"`{first}`", seeds=seeds)
    return join(table(head, rows, texts=2), note, result, say)


def line_row(name: str, found: list[Result], least: dict[str, float], say: Say) -> list[str]:
    is_german = found[0]["setting"]["to_german"]
    direction = say("English to German" if is_german else "German to English")
    cells = [f"{found[0]['parameters']:,}", middle(found, lambda row: row["test_2016_flickr"]["nats"], 3)]
    for part in YEARS.values():
        for beam, kind in (("beam 1", "bleu_lowercase"), ("beam 5", "bleu_lowercase"), ("beam 5", "bleu")):
            cells.append(middle(found, lambda row, p=part, b=beam, k=kind: row[p][b][k], 1))
    wanted = str(least.get(name, ""))
    return [name.removesuffix(", to German"), direction, *cells, middle(found, lambda row: row["minutes"], 1), wanted]


def middle(rows: list[Result], value: Callable[..., Any], digits: int) -> str:
    return f"{statistics.median(value(row) for row in rows):.{digits}f}"


def by_name(result: Result) -> dict[str, list[Result]]:
    """Put the seeds of a model together."""
    found: dict[str, list[Result]] = {}
    for row in result["rows"]:
        found.setdefault(row["name"].partition(", seed")[0], []).append(row)
    return found


def story_block(result: Result, say: Say) -> str:
    """Return what the articles tell of these models as tables: by length, by position, and what c holds."""
    german = {name: rows for name, rows in by_name(result).items() if not rows[0]["setting"]["to_german"]}
    parts = [length_table(german, say), position_table(german, say), memory_table(german, say)]
    return join("\n\n".join(parts), say(STORY_NOTE), result, say)


def length_table(found: dict[str, list[Result]], say: Say) -> str:
    borders = next(iter(found.values()))[0]["test_2016_flickr"]["by_length"]
    head = [
        say("words of the source: BLEU"),
        *(f"{low}–{high - 1}" for low, high in (b["words"] for b in borders[:-1])),
    ]
    head += [f"{borders[-1]['words'][0]}–", say("kept of {}").format(head[USUAL])]

    def score(row: Result, i: int) -> float:
        return row["test_2016_flickr"]["by_length"][i]["bleu_lowercase"]

    places = range(len(borders))
    rows = [
        [
            name,
            *(middle(rows, lambda row, i=i: score(row, i), 1) for i in places),
            middle(rows, lambda row: score(row, -1) / score(row, USUAL - 1), 2),
        ]
        for name, rows in found.items()
    ]
    return table(head, rows, texts=1)


def position_table(found: dict[str, list[Result]], say: Say) -> str:
    count = len(next(iter(found.values()))[0]["test_2016_flickr"]["by_position"])
    firsts = range(0, count, PLACES)
    head = [say("position in the target: nats"), *(f"{first + 1}–{first + PLACES}" for first in firsts)]

    def mean(row: Result, first: int) -> float:
        return statistics.mean(row["test_2016_flickr"]["by_position"][first : first + PLACES])

    rows = [[name, *(middle(rows, lambda row, f=f: mean(row, f), 2) for f in firsts)] for name, rows in found.items()]
    return table(head, rows, texts=1)


def memory_table(found: dict[str, list[Result]], say: Say) -> str:
    having = {name: rows for name, rows in found.items() if "remembered" in rows[0]}
    places = next(iter(having.values()))[0]["remembered"]
    head = [say("place in the source: read back from c"), *(f"{p['place'] + (p['place'] >= 0)}" for p in places)]
    rows = [
        [name, *(middle(rows, lambda row, i=i: row["remembered"][i]["right"], 2) for i in range(len(places)))]
        for name, rows in having.items()
    ]
    rows.append([say("most common symbol"), *(f"{place['usual']:.2f}" for place in places)])
    return table(head, rows, texts=1)
