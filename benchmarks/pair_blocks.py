"""The tables about one sequence into another."""

from __future__ import annotations

from tables import Result, Say, join, table

TRANSLATION_NOTE = (
    "Greedy, sources of 20 symbols and targets of 40, both models with random weights; tokens/s, medians of "
    "interleaved "
    "rounds, {threads} threads, beside transformers {transformers} (MarianMT with its cache)."
)
CAPTIONS_NOTE = (
    "Pictures of 32×32 with their names; {train:,} for training, {test} for testing, of base emoji that do not occur "
    "in "
    "training in any skin tone. {updates:,} updates, weights selected by chrF on {valid} others, beam 5. Majority: the "
    "most common caption; neighbour: the caption of the nearest picture in pixels."
)
LANGUAGES = {"en": "English", "zh": "Chinese"}
CHINESE = {
    "language": "语言",
    "English": "英文",
    "Chinese": "中文",
    "exact": "完全匹配",
    "majority": "最常见",
    "neighbour": "最近邻",
    "show-attend-tell": "show-attend-tell",
    "transformer": "transformer",
    CAPTIONS_NOTE: "32×32 的图片及其名称；训练 {train:,} 条，测试 {test} 条，"
    "测试用的基础表情（任何肤色）都不出现在训练集中。"
    "{updates:,} 次更新，权重按另外 {valid} 条上的 chrF 选取，束宽 5。"
    "最常见：训练集中出现最多的名称；最近邻：像素距离最近的图片的名称。",
    "batch": "批大小",
    "size": "规模",
    "faster": "加速比",
    TRANSLATION_NOTE: "贪心解码，源端 20 个符号，目标端 40 个，随机权重；单位 token/秒，交错多轮取中位数，"
    "{threads} 线程，"
    "与 transformers {transformers}（带缓存的 MarianMT）对比。",
}


def translation_block(result: Result, say: Say) -> str:
    head = [say("size"), say("batch"), say("ours"), "transformers", say("faster")]
    rows = []
    for row in result["rows"]:
        speeds = [f"{row[whose]['tokens_per_s']:,.0f}" for whose in ("ours", "theirs")]
        rows.append([row["size"], str(row["batch"]), *speeds, f"{row['times_faster']:.2f}"])
    note = say(TRANSLATION_NOTE).format(threads=result["threads"], **result["peers"])
    return join(table(head, rows, texts=1), note, result, say)


def captions_block(result: Result, say: Say) -> str:
    head = [say("language"), say("model"), say("parameters"), "BLEU", "chrF", "ROUGE-L", say("exact")]
    rows = []
    for row in result["rows"]:
        parameters = f"{row['parameters']:,}" if "parameters" in row else ""
        scores = [f"{row['bleu']:.1f}", f"{row['chrf']:.1f}", f"{row['rouge_l']:.3f}", f"{row['exact']:.3f}"]
        rows.append([say(LANGUAGES[row["language"]]), say(row["model"]), parameters, *scores])
    counts = dict(zip(("train", "valid", "test"), result["rows"][0]["captions"], strict=True))
    note = say(CAPTIONS_NOTE).format(updates=result["settings"]["updates"], **counts)
    return join(table(head, rows, texts=2), note, result, say)
