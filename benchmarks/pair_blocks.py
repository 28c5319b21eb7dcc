"""The tables about one sequence into another."""

from __future__ import annotations

from tables import Result, Say, join, table

TRANSLATION_NOTE = (
    "Greedy, sources of 20 symbols and targets of 40, both models with random weights; tokens/s, medians of turns in "
    "one run, {threads} threads, beside transformers {transformers} (MarianMT with its cache)."
)
CHINESE = {
    "batch": "批量",
    "size": "规模",
    "faster": "倍数",
    TRANSLATION_NOTE: "贪心解码，源 20 个符号，目标 40 个，权重随机；词元/秒，同一次运行中轮流计时取中位数，"
    "{threads} 线程，"
    "对照 transformers {transformers}（带缓存的 MarianMT）。",
}


def translation_block(result: Result, say: Say) -> str:
    head = [say("size"), say("batch"), say("ours"), "transformers", say("faster")]
    rows = []
    for row in result["rows"]:
        speeds = [f"{row[who]['tokens_per_s']:,.0f}" for who in ("ours", "theirs")]
        rows.append([row["size"], str(row["batch"]), *speeds, f"{row['times_faster']:.2f}"])
    note = say(TRANSLATION_NOTE).format(threads=result["threads"], **result["peers"])
    return join(table(head, rows, texts=1), note, result, say)
