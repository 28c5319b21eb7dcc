"""The tables of comparisons: what they take, whether verdicts and kills hold, and what contexts cost."""

from __future__ import annotations

from collections.abc import Callable

from tables import Result, Say, join, table

CONTEXTS_NOTE = (
    "One block of each family, width {width}, {heads} heads of {head}, vocabulary {vocab}; one symbol as `generate` "
    "produces it, the fastest of 20, {threads} thread(s), medians of {rounds} rounds; b of time or bytes ∝ "
    "context^b by least squares on the logarithms from {start} symbols on, ± half the interquartile range over the "
    "rounds. 0 is flat, 1 linear."
)
COMPARISONS_NOTE = (
    "Three models with three seeds each, two cores, from the command to its end with nothing prepared; the goal on "
    "idle cores (load 0) is at most {goal:.0f} s. A verdict holds for its budget, and few seconds of training are few."
)
KILLS_NOTE = (
    "SIGKILL at random moments under a budget of steps; the same command is given again. {differing} of the {results} "
    "results (cells, and what the rules give) differ from those of the undisturbed comparison."
)
FAIRNESS_NOTE = (
    "GRUs of width 32 (narrow) and 64 (wide), {seeds} trainings each on {data} ({budget}); of these, comparisons of "
    "{of_one} seeds against {of_one} others are drawn. Goals: no winner between equal models in at least 95 of 100, "
    "the wide one wins in at least 90."
)
LEADS = {  # printed before an optional table
    "contexts": "Time and bytes for one more symbol, after 128 to 16,384 symbols, on a CPU:",
    "contexts_cuda": "On a GPU, after 128 to 131,072 symbols:",
    "comparisons": "A built-in of each of five kinds, as one command:",
    "comparison_kills": "Kills during a comparison:",
    "fairness": "Verdicts on real trainings:",
}
CASES = {
    "narrow against narrow": "窄对窄",
    "wide against wide": "宽对宽",
    "narrow against wide": "窄对宽",
}
CHINESE = {
    CONTEXTS_NOTE: "每种模型一层，宽度 {width}，{heads} 个头（每头 {head}），词表 {vocab}；按 `generate` 的方式"
    "生成一个符号，取 20 个中最快的，{threads} 线程，{rounds} 轮取中位数；b 为时间或字节数 ∝ 上下文^b 的指数，"
    "取 {start} 个符号以上，对对数做最小二乘拟合，"
    "± 为各轮四分位距的一半。0 为不增长，1 为线性增长。",
    COMPARISONS_NOTE: "三个模型，各三个种子，使用两个核；从输入命令到结束，没有任何预先准备；"
    "目标是在空闲（负载为 0）的双核上不超过 {goal:.0f} 秒。"
    "结论只对所给预算成立，而几秒钟的训练很短。",
    KILLS_NOTE: "预算为步数时在随机时刻发 SIGKILL，然后重新输入同一条命令。"
    "{results} 项结果（各次训练与结论规则的输出）中有 {differing} 项与未受干扰的对比不同。",
    FAIRNESS_NOTE: "宽度 32（窄）与 64（宽）的 GRU，在 {data} 上各训练 {seeds} 次（{budget}）；"
    "从中抽取 {of_one} 个种子对另外 {of_one} 个种子的对比。"
    "目标：相同的模型在 100 次中至少 95 次没有赢家，宽的至少胜 90 次。",
    LEADS["contexts"]: "读过 128 到 16,384 个符号之后，再生成一个符号的时间与记忆字节数（CPU）：",
    LEADS["contexts_cuda"]: "GPU 上，读过 128 到 131,072 个符号之后：",
    LEADS["comparisons"]: "五类任务各一个内置数据集，每个一条命令：",
    LEADS["comparison_kills"]: "对比过程中被杀：",
    LEADS["fairness"]: "用真实训练检验结论：",
    "family": "模型",
    "µs at {:,}": "{:,} 时的微秒数",
    "bytes at {:,}": "{:,} 时的字节数",
    "power of time": "时间的指数",
    "power of bytes": "字节数的指数",
    "data": "数据",
    "models and budget": "模型与预算",
    "seconds": "秒",
    "load before": "开始前的负载",
    "processor, s": "处理器用时（秒）",
    "verdict": "结论",
    "victim": "被杀者",
    "kills": "次数",
    "updates logged by then": "此时已记录的更新次数",
    "parent": "父进程",
    "cell": "单次训练的进程",
    "case": "情形",
    "no winner": "没有赢家",
    "first": "前者胜",
    "second": "后者胜",
    **CASES,
}


def contexts_block(result: Result, say: Say) -> str:
    rows, setting = result["rows"], result["setting"]
    shown = [n for n in (128, 1024, 16_384, 131_072) if any(n in row["contexts"] for row in rows)]
    head = [say("family"), *(say("µs at {:,}").format(n) for n in shown), say("power of time")]
    head += [*(say("bytes at {:,}").format(n) for n in (shown[0], shown[-1])), say("power of bytes")]
    facts = {**setting, "head": setting["width"] // setting["heads"], "start": f"{rows[0]['from']:,}"}
    body = [_context_cells(row, shown) for row in rows]
    return join(table(head, body, texts=1), say(CONTEXTS_NOTE).format(**facts), result, say)


def _context_cells(row: Result, shown: list[int]) -> list[str]:
    """Return the cells of a family; blank beyond the longest context that it was measured at."""
    times = dict(zip(row["contexts"], row["microseconds"], strict=True))
    sizes = dict(zip(row["contexts"], row["bytes"], strict=True))
    power = f"{round(row['exponent'], 2) + 0.0:.2f} ± {(row['high'] - row['low']) / 2:.2f}"
    cells = [row["family"], *(f"{times[n]:,.0f}" if n in times else "" for n in shown), power]
    cells += [f"{sizes[n]:,}" if n in sizes else "" for n in (shown[0], shown[-1])]
    return [*cells, f"{round(row['bytes_exponent'], 2) + 0.0:.2f}"]


def comparisons_block(result: Result, say: Say) -> str:
    language = "en" if say("data") == "data" else "zh"
    head = [
        say("data"),
        say("models and budget"),
        say("verdict"),
        say("load before"),
        say("processor, s"),
        say("seconds"),
    ]
    rows = []
    for row in result["rows"]:
        used = f"{row['processor_seconds']:.0f}" if "processor_seconds" in row else ""
        figures = [f"{row['load_before']:.1f}", used, f"{row['seconds']:.0f}"]
        rows.append([row["data"], f"`{row['words']}`", row["verdict"][language], *figures])
    return join(table(head, rows, texts=3), say(COMPARISONS_NOTE).format(**result), result, say)


def kills_block(result: Result, say: Say) -> str:
    counts: dict[str, list[str]] = {"parent": [], "cell": []}
    for row in result["rows"]:
        counts["parent" if row["victim"] == "parent" else "cell"].append(f"{row['updates']:,}")
    head = [say("victim"), say("updates logged by then"), say("kills")]
    rows = [[say(victim), "; ".join(updates), str(len(updates))] for victim, updates in counts.items()]
    note = say(KILLS_NOTE).format(results=result["results"], differing=len(result["differing"]))
    return join(table(head, rows, texts=2), note, result, say)


def fairness_block(result: Result, say: Say) -> str:
    sides = ("no winner", "first", "second")
    head = [say("case"), *(say(side) for side in sides)]
    rows = [[say(row["case"]), *(str(row[side]) for side in sides)] for row in result["rows"]]
    return join(table(head, rows, texts=1), say(FAIRNESS_NOTE).format(**result), result, say)


BLOCKS: dict[str, tuple[str, Callable[[Result, Say], str]]] = {
    "contexts": ("contexts", contexts_block),
    "contexts_cuda": ("contexts-cuda", contexts_block),
    "comparisons": ("comparisons", comparisons_block),
    "comparison_kills": ("comparison-kills", kills_block),
    "fairness": ("fairness", fairness_block),
}
