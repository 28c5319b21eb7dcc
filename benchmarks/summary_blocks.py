"""The few figures of the READMEs: the most important ones of each table of docs/figures and docs/speed."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter

from gpu_blocks import name_of
from language_blocks import characters_name, precision_of
from line_blocks import by_name, middle
from tables import Result, Say, join, table

PASS = "forward + backward"
LINE_NOTE = "BLEU with beam 5, computed by sacrebleu, {signature}; medians over seeds."
SPEED_NOTE = (
    "µs per time step, batch {batch}, {steps} steps, medians of {rounds} interleaved rounds. Captured: both in a CUDA "
    "graph."
)
CHARACTERS_NOTE = (
    "Nats per character on the last tenth. The lstm is the best of {tried} settings, the others have one each; the "
    "transformer uses nanoGPT's setting, median of {seeds} seeds."
)
LEADS = {
    "best_line": "Multi30k, translation, BLEU:",
    "best_speed": "Recurrent layers on a GPU: our kernels beside `torch.nn`, forward + backward:",
}
CHINESE = {
    LEADS["best_line"]: "Multi30k 翻译，BLEU：",
    LEADS["best_speed"]: "GPU 上的循环层：自研 kernel 与 `torch.nn` 对比，前向 + 反向：",
    LINE_NOTE: "束宽 5，BLEU 由 sacrebleu 计算，{signature}；取各随机种子的中位数。",
    SPEED_NOTE: "单位：微秒/时间步；批大小 {batch}，{steps} 步，交错 {rounds} 轮取中位数。"
    "CUDA Graph 一列：双方都以 CUDA Graph 重放。",
    CHARACTERS_NOTE: "在末尾十分之一文本上的每字符 nats。lstm 取 {tried} 组超参中最好的一组，其余模型各只跑一组；"
    "transformer 用 nanoGPT 的设置，取 {seeds} 个随机种子的中位数。",
    "German to English, {}": "德译英，{}",
    "English to German, {}": "英译德，{}",
    "torch.nn / ours": "torch.nn / 本项目",
    "captured": "CUDA Graph",
}


def best_characters_block(result: Result, say: Say) -> str:
    """Return a row for each family."""
    lines = [(result["six_gram"], [say("6-gram"), "", ""])]
    for row in best_of_families(result):
        name = characters_name(row["setting"], say)
        lines.append((row["whole_set_loss"], [name, precision_of(row["setting"]), f"{row['parameters']:,}"]))
    head = [say(word) for word in ("model", "matmul precision", "parameters", "nats")]
    cells = [[*words, f"{loss:.3f}"] for loss, words in sorted(lines)]
    families = Counter(row["setting"]["family"] for row in result["rows"])
    note = say(CHARACTERS_NOTE).format(tried=families["lstm"], seeds=families["transformer"])
    return join(table(head, cells, texts=2), note, result, say)


def best_of_families(result: Result) -> list[Result]:
    """Return the row of the lowest loss of each; of seeds of one setting, the middle one."""
    best: dict[str, Result] = {}
    for row in sorted(result["rows"], key=itemgetter("whole_set_loss"), reverse=True):
        family = row["setting"]["family"]
        if family != "transformer" or row["whole_set_loss"] == result["median"]:
            best[family] = row
    return list(best.values())


def best_line_block(result: Result, say: Say) -> str:
    """Return a row for each model of the line, with both directions."""
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
    """Return the most common of the goals' sizes: bf16 and float32, forward + backward."""
    rows = [row for row in result["rows"] if row["goal"] and row["pass"] == PASS and row["dtype"] != "float16"]
    head = [say("layer"), say("dtype"), "H", say("ours, µs"), say("torch.nn / ours"), say("captured")]
    cells = [speed_row(row, say) for row in rows]
    facts = {"batch": rows[0]["batch"], "steps": rows[0]["steps"], "rounds": min(row["rounds"] for row in rows)}
    return join(table(head, cells, texts=2), say(SPEED_NOTE).format(**facts), result, say)


def speed_row(row: Result, say: Say) -> list[str]:
    figures = [row["us_per_step"]["ours"], row["ratio"], row["ratio_in_graphs"]]
    return [name_of(row, say), row["dtype"], str(row["hidden"]), *(f"{figure:.2f}" for figure in figures)]
