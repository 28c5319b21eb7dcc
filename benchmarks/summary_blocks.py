"""The few figures of the READMEs: of each table of docs/figures and docs/speed what most people come for."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter

from gpu_blocks import name_of
from language_blocks import characters_name, products_of
from line_blocks import by_name, middle
from tables import Result, Say, join, table

PASS = "forward + backward"
LINE_NOTE = "BLEU of beam 5 by sacrebleu, {signature}; medians over the seeds."
SPEED_NOTE = "µs a step, batch {batch}, {steps} steps, medians of {rounds} turns in one run. In graphs: both captured."
CHARACTERS_NOTE = (
    "Nats per character of the last tenth. The lstm is the best of {tried} settings, the others have one each; the "
    "transformer's is nanoGPT's, the middle one of {seeds} seeds."
)
LEADS = {
    "best_line": "Multi30k, from one sequence into another:",
    "best_speed": "Recurrent layers by our own kernels beside `torch.nn`, forward + backward:",
}
CHINESE = {
    LEADS["best_line"]: "Multi30k，从一个序列到另一个序列：",
    LEADS["best_speed"]: "我们自己的内核计算的循环层，对照 `torch.nn`，前向 + 反向：",
    LINE_NOTE: "束宽 5 的 BLEU，由 sacrebleu 计算，{signature}；各种子取中位数。",
    SPEED_NOTE: "每步微秒数，批量 {batch}，{steps} 步，同一次运行中轮流 {rounds} 次取中位数。"
    "录成图：双方皆录成 CUDA 图。",
    CHARACTERS_NOTE: "最后十分之一的每字符 nats。lstm 为 {tried} 种设置中最好的，其余各家族一种设置；"
    "transformer 为 nanoGPT 的设置，取 {seeds} 个种子的中位数。",
    "German to English, {}": "德译英，{}",
    "English to German, {}": "英译德，{}",
    "torch.nn / ours": "torch.nn / 我们",
    "in graphs": "录成图",
}


def best_characters_block(result: Result, say: Say) -> str:
    """Give a row for each family."""
    lines = [(result["six_gram"], [say("6-gram"), "", ""])]
    for row in best_of_families(result):
        name = characters_name(row["setting"], say)
        lines.append((row["whole_set_loss"], [name, products_of(row["setting"]), f"{row['parameters']:,}"]))
    head = [say(word) for word in ("model", "products", "parameters", "nats")]
    cells = [[*words, f"{loss:.3f}"] for loss, words in sorted(lines)]
    families = Counter(row["setting"]["family"] for row in result["rows"])
    note = say(CHARACTERS_NOTE).format(tried=families["lstm"], seeds=families["transformer"])
    return join(table(head, cells, texts=2), note, result, say)


def best_of_families(result: Result) -> list[Result]:
    """Give the row of the lowest loss of each; of seeds of one setting, the middle one."""
    best: dict[str, Result] = {}
    for row in sorted(result["rows"], key=itemgetter("whole_set_loss"), reverse=True):
        family = row["setting"]["family"]
        if family != "transformer" or row["whole_set_loss"] == result["median"]:
            best[family] = row
    return list(best.values())


def best_line_block(result: Result, say: Say) -> str:
    """Give a row for each model of the line, with both directions."""
    found, columns = by_name(result), ("German to English, {}", "German to English, {}", "English to German, {}")
    head = [say("model"), say("parameters")]
    head += [say(words).format(year) for words, year in zip(columns, ("2016", "2017", "2016"), strict=True)]
    names = [name for name in result["least"] if f"{name}, to German" in found]
    rows = [[name, *line_cells(found[name], found[f"{name}, to German"])] for name in names]
    signature = found[names[0]][0]["test_2016_flickr"]["beam 5"]["signature"]
    return join(table(head, rows, texts=1), say(LINE_NOTE).format(signature=f"`{signature}`"), result, say)


def line_cells(to_english: list[Result], to_german: list[Result]) -> list[str]:
    wanted = ((to_english, "2016"), (to_english, "2017"), (to_german, "2016"))
    scores = [
        middle(rows, lambda row, year=year: row[f"test_{year}_flickr"]["beam 5"]["bleu_lowercase"], 1)
        for rows, year in wanted
    ]
    return [f"{to_english[0]['parameters']:,}", *scores]


def best_speed_block(result: Result, say: Say) -> str:
    """Give the goals' sizes that many train: bf16 and float32, forward + backward."""
    rows = [row for row in result["rows"] if row["goal"] and row["pass"] == PASS and row["dtype"] != "float16"]
    head = [say("layer"), say("dtype"), "H", say("ours, µs"), say("torch.nn / ours"), say("in graphs")]
    cells = [speed_row(row, say) for row in rows]
    facts = {"batch": rows[0]["batch"], "steps": rows[0]["steps"], "rounds": min(row["rounds"] for row in rows)}
    return join(table(head, cells, texts=2), say(SPEED_NOTE).format(**facts), result, say)


def speed_row(row: Result, say: Say) -> list[str]:
    figures = [row["us_per_step"]["ours"], row["ratio"], row["ratio_in_graphs"]]
    return [name_of(row, say), row["dtype"], str(row["hidden"]), *(f"{figure:.2f}" for figure in figures)]
