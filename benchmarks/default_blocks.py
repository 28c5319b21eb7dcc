"""The table of every task's default run, in two languages."""

from __future__ import annotations

from tables import Result, Say, join, table

NOTE = (
    "`recollect train DATA --budget {budget}` with no model named and no setting but what says where the data are; one "
    "file each, tested on its held-out part. Vocabulary: of the targets, where there are two. BLEU and ROUGE-L of "
    "greedy outputs. Tiny counts the body alone. The last columns: the measure that selects weights, on the test part, "
    "and the best of the task's baselines in it."
)
PINNED = "Each run had so many cores, which no other run used: {cores}."
NAMES = {
    "characters": "characters (Shakespeare)",
    "words": "words (Penn Treebank)",
    "chinese": "Chinese (Song lyrics)",
    "masked": "masked (words, Penn Treebank)",
    "translate": "translate (English–Chinese)",
    "summarise": "summarise (e-mail subjects)",
    "caption": "caption (emoji)",
    "classify": "classify (film reviews)",
    "tag": "tag (English words)",
    "match": "match (requests to intents)",
    "recommend": "recommend (MovieLens-100k)",
    "forecast": "forecast (ETTh1)",
    "fill": "fill (ETTh1)",
}
SHOWN = {  # by task: the row of the evaluation, its measure and its title
    "language": ("carried", "perplexity", "perplexity {:.1f}"),
    "translate": ("greedy", "bleu", "BLEU {:.1f}"),
    "summarise": ("greedy", "rouge_l", "ROUGE-L {:.3f}"),
    "caption": ("greedy", "bleu", "BLEU {:.1f}"),
}
CHINESE = {
    NOTE: "`recollect train DATA --budget {budget}`，不指定模型，除说明数据位置外不改任何设置；"
    "每项一个文件，在其留出部分上测试。"
    "词表：有源和目标两端时指目标端。BLEU 与 ROUGE-L 按贪心输出计算。tiny 只计主体参数。"
    "末两列：选取权重所用的指标在测试部分上的值，以及该任务各基线中最好的一个。",
    PINNED: "每次训练独占的核数：{cores}。",
    "decides": "决定指标",
    "best baseline": "最好的基线",
    "default run": "默认任务",
    "width × layers": "宽度 × 层数",
    "vocabulary": "词表",
    "parameters: body": "参数：主体",
    "embeddings, output": "词嵌入与输出层",
    "updates": "更新次数",
    "test": "测试",
    "characters (Shakespeare)": "字符（莎士比亚）",
    "words (Penn Treebank)": "单词（Penn Treebank）",
    "Chinese (Song lyrics)": "中文（宋词）",
    "translate (English–Chinese)": "翻译（英译中）",
    "summarise (e-mail subjects)": "摘要（邮件主题）",
    "caption (emoji)": "图像描述（表情符号）",
    "classify (film reviews)": "分类（影评）",
    "tag (English words)": "标注（英语词性）",
    "masked (words, Penn Treebank)": "掩码预测（单词，Penn Treebank）",
    "match (requests to intents)": "匹配（请求与意图）",
    "recommend (MovieLens-100k)": "推荐（MovieLens-100k）",
    "forecast (ETTh1)": "预测（ETTh1）",
    "fill (ETTh1)": "补缺（ETTh1）",
    "perplexity {:.1f}": "困惑度 {:.1f}",
    "BLEU {:.1f}": "BLEU {:.1f}",
    "ROUGE-L {:.3f}": "ROUGE-L {:.3f}",
    "{} {:.3f}": "{} {:.3f}",
}


def defaults_block(result: Result, say: Say) -> str:
    titles = ("width × layers", "vocabulary", "parameters: body", "embeddings, output", "updates", "test", "decides")
    head = [say("default run"), say("model"), *(say(title) for title in (*titles, "best baseline"))]
    rows = []
    for row in result["rows"]:
        counts = (row.get("vocabulary"), row["body"], row["embeddings"], row["updates"])
        figures = ["" if n is None else f"{n:,}" for n in counts]
        shape = f"{row['width']}" if row["layers"] is None else f"{row['width']} × {row['layers']}"
        rows.append([say(NAMES[row["name"]]), row["family"], shape, *figures, score_of(row, say), *beside(row)])
    note = say(NOTE).format(budget=result["budget"])
    if "cores_of_a_run" in result:
        note += " " + say(PINNED).format(cores=result["cores_of_a_run"])
    return join(table(head, rows, texts=2), note, result, say)


def score_of(row: Result, say: Say) -> str:
    """Return a run's score: the one of its task, or the first of its evaluation."""
    if row["task"] in SHOWN:
        read, measure, title = SHOWN[row["task"]]
        return say(title).format(row["scores"][read][measure])
    return say("{} {:.3f}").format(*first_of(row))


def beside(row: Result) -> list[str]:
    """Return the measure that decides, and the best baseline in it."""
    measure, value = first_of(row)
    best = min if row.get("lower_is_better", measure == "loss") else max
    name = best(row["baselines"], key=row["baselines"].__getitem__)
    return [f"{measure} {value:.3f}", f"{name} {row['baselines'][name]:.3f}"]


def first_of(row: Result) -> tuple[str, float]:
    """Return the measure that decides: the first of the evaluation's first row."""
    return next(iter(next(iter(row["scores"].values())).items()))
