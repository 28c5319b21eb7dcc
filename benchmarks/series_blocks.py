"""The tables about forecasting."""

from __future__ import annotations

from typing import Any

from tables import Result, Say, at_most, join, table

SINE_NOTE = (
    "RMSE against the sine without noise, trained on the first {trained} of {length} values, means of {seeds} seeds; "
    "linear models by least squares, the others by {steps} updates on one-step predictions. Predictions are fed back. "
    "An error below the noise itself is that of a model that filters it; the best constant is the mean."
)
ETT_NOTE = (
    "MSE / MAE over all test windows, in deviations of the training part, 12, 4 and 4 months, one seed. Closed: fitted "
    "in closed form, a ridge of 0.001. Trained: linear maps as published (Adam at 0.005, halved every epoch), others "
    "with instance normalisation, each channel alone, up to {budget} epochs with early stopping and the settings that "
    "were best on the validation part of ETTh1-96 (`series_ett.py choose`; one set for recurrent, one for attention "
    "models): {chosen}. Coverage of the 80 % interval: lowest and highest of the four horizons. Parameters at horizon "
    "96; minutes of all four, beside {jobs} other processes, some on the GPU. Published for horizon 96, look-back 336: "
    "DLinear 0.375, NLinear 0.374."
)
WINNERS_NOTE = (
    "The best of each kind by its MSE, mean of the four horizons, and how it was fitted; the lowest of a row in bold. "
    "At a single horizon, in the columns below, another may be ahead."
)
CLASSICS_NOTE = (
    "Test part with a rolling origin, the settings being the best of nine on the validation part; the interval of the "
    "coverage is binomial, of the windows that do not overlap."
)
UNITS_NOTE = (
    "A closed NLinear on ETTh1, look-back {lookback}. CRPS on the validation part alone: each half with the offsets of "
    "the other, mean of both; the lowest is chosen. Then, with the chosen unit: coverage of the test part; error "
    "(root mean square, in the unit) in the quarters of the validation part and on the test part; coverage of the test "
    "part's second half with offsets from its first; windows of the validation part that do not overlap."
)
BYPASS_NOTE = (
    "With a linear map of the window beside the model of steps (`bypass=linear`), one seed: DLinear, trained as "
    "published, has 0.376 and NLinear 0.374. A Transformer without the map that was tried earlier had a lower "
    "validation error and 0.381 here."
)
PARITY_NOTE = "The authors' modules with the same weights, {dtype}, windows {windows}."
STREAMING_NOTE = (
    "Width {width}, {horizon} steps ahead, {threads} threads; medians of interleaved rounds on a shared machine."
)
LEADS = {
    "series_bypass": "The same with a linear map beside the Transformer:",
    "series_sine": "A noisy sine, k steps ahead and running freely, for window models, recurrent models and attention:",
    "series_ett": "Transformer temperatures (ETT), every baseline of the table and the models that were trained:",
    "series_units": "In what to count the errors of an 80 % interval, and why coverage differs from 80 %:",
    "series_classics": "Classic series, one command each:",
    "series_parity": "Largest difference from the authors' code (LTSF-Linear, RevIN):",
    "series_streaming": "Microseconds from one new value to the next forecast, after so many values were read:",
}
CHINESE = {
    LEADS["series_bypass"]: "Transformer 旁边并联一个线性映射时：",
    BYPASS_NOTE: "在逐步模型旁边并联窗口的线性映射（`bypass=linear`），单个随机种子：按原论文训练的 DLinear 为 0.376，"
    "NLinear 为 0.374。更早试过的一个不带该映射的 Transformer 验证误差更低，此处为 0.381。",
    "bypass": "并联",
    "validation error": "验证误差",
    LEADS["series_sine"]: "带噪声的正弦：窗口模型、循环模型与注意力模型的 k 步预测与自由运行：",
    LEADS["series_ett"]: "变压器油温数据（ETT），表中所有基线以及实际训练过的模型：",
    LEADS["series_units"]: "80 % 区间的误差以什么为单位，以及覆盖率为何偏离 80 %：",
    LEADS["series_classics"]: "经典序列，各一条命令：",
    LEADS["series_parity"]: "与作者代码（LTSF-Linear、RevIN）的最大差异：",
    LEADS["series_streaming"]: "读入若干个值之后，从新观测到下一次预测所需的微秒数：",
    SINE_NOTE: "与无噪声正弦比较的 RMSE；用 {length} 个值中的前 {trained} 个训练，取 {seeds} 个随机种子的平均；"
    "线性模型用最小二乘，其余模型做 {steps} 次单步预测更新，预测值回送作为输入。"
    "误差低于噪声本身，说明模型滤去了噪声；最好的常数即预测均值。",
    "best constant": "最好的常数",
    "the noise itself": "噪声本身",
    ETT_NOTE: "全部测试窗口上的 MSE / MAE，以训练段标准差为单位，按 12、4、4 个月划分，单个随机种子。"
    "闭式解：岭回归，系数 0.001。训练：线性映射按原论文设置（Adam，0.005，每轮减半），"
    "其余模型使用实例归一化、通道独立，最多 {budget} 轮并早停，其设置在 ETTh1-96 的验证段上选出"
    "（`series_ett.py choose`；循环模型与注意力模型各一组）：{chosen}。"
    "覆盖率为 80 % 区间在四个预测步数上的最低与最高值。参数量对应预测 96 步；分钟数为四个预测步数之和，"
    "同时有另外 {jobs} 个进程，部分在 GPU 上。预测 96 步、回看 336 步的已发表结果：DLinear 0.375，NLinear 0.374。",
    WINNERS_NOTE: "每类中最好的模型：四个预测步数的平均 MSE 及拟合方式；每行最低者加粗。"
    "在单个预测步数上（见下表各列），领先者可能不同。",
    "linear map": "线性映射",
    "recurrent": "循环",
    "attention": "注意力",
    "test-time training": "测试时训练",
    UNITS_NOTE: "ETTh1 上闭式求解的 NLinear，回看 {lookback} 步。CRPS 只用验证段：用一半的偏移量评估另一半，"
    "取两次的平均，选最低者。随后以选定的单位给出：测试段覆盖率；验证段四个四分之一与测试段的误差（均方根，以该单位计）；"
    "用测试段前一半求得的偏移量评估其后一半的覆盖率；验证段中互不重叠的窗口数。",
    "unit": "单位",
    "chosen": "选定",
    "error, validation": "误差，验证段",
    "error, test": "误差，测试段",
    "after its own half": "用自身前一半",
    "windows apart": "独立窗口",
    "fixed": "固定",
    "deviation": "标准差",
    "deviation, 4 days": "标准差，4 天",
    "deviation, 1 day": "标准差，1 天",
    "steps": "逐步差分",
    "seasonal differences": "季节差分",
    "range": "极差",
    CLASSICS_NOTE: "测试段滚动预测，设置为验证段上九种候选中最好的一种；覆盖率区间为二项区间，只计互不重叠的窗口。",
    PARITY_NOTE: "使用相同权重运行作者的模块，{dtype}，窗口 {windows}。",
    STREAMING_NOTE: "宽度 {width}，预测 {horizon} 步，{threads} 线程；在共享机器上交错多轮取中位数。",
    "noise": "噪声",
    "free run": "自由运行",
    "data": "数据",
    "horizon": "预测步数",
    "look-back": "回看步数",
    "fit": "拟合方式",
    "closed": "闭式解",
    "trained": "训练",
    "minutes": "分钟",
    "seasonal naive, MASE": "季节朴素法 MASE",
    "coverage": "覆盖率",
    "95 % interval": "95 % 区间",
    "command": "命令",
    "difference": "差异",
    "{} read": "已读 {}",
}


def sine_block(result: Result, say: Say) -> str:
    head = [say("model"), say("noise"), "k = 1", "4", "16", "64", say("free run")]
    columns = ("k1", "k4", "k16", "k64", "free")
    rows = [[row["model"], f"{row['noise']:g}", *(_error(row[name]) for name in columns)] for row in result["rows"]]
    for name, what in (("spread", "best constant"), ("noise", "the noise itself")):
        rows.append([say(what), "–", *[_error(result["floor"][name])] * len(columns)])
    seeds = max(row["seeds"] for row in result["rows"])
    note = say(SINE_NOTE).format(
        seeds=seeds, **result["floor"], **{k: result[k] for k in ("trained", "length", "steps")}
    )
    return join(table(head, rows, texts=2), note, result, say)


def _error(value: float) -> str:
    return f"{value:.3f}" if value >= 0.0005 else f"{value:.0e}"


def ett_block(result: Result, say: Say) -> str:
    horizons = sorted({row["horizon"] for row in result["rows"]})
    head = [*(say(word) for word in ("data", "look-back", "model", "fit")), *(str(horizon) for horizon in horizons)]
    head += [say("coverage"), say("parameters"), say("minutes")]
    lines: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = {}
    for row in result["rows"]:
        name = (row["data"], -row["lookback"], row["model"], row["fit"])
        lines.setdefault(name, {})[row["horizon"]] = row
    ordered = sorted(lines.items(), key=lambda line: (line[0][:2], _mean(line[1])))
    rows = [_ett_row(name, cells, horizons, say) for name, cells in ordered]
    settings = {row["model"]: row["settings"] for row in result["rows"] if row["fit"] == "trained"}
    chosen = "; ".join(
        f"{name} " + ", ".join(f"{k} {v}" for k, v in settings[name].items() if k in CHOSEN)
        for name in ("gru", "transformer")
    )
    jobs = sum(result["jobs"].values()) - 1
    budget = result["shared"]["budget"].removesuffix("epochs")
    note = say(ETT_NOTE).format(budget=budget, chosen=chosen, jobs=jobs)
    first = f"{_winners(lines, len(horizons), say)}\n\n<sub>{say(WINNERS_NOTE)}</sub>"
    return f"{first}\n\n{join(table(head, rows, texts=4), note, result, say)}"


def bypass_block(result: Result, say: Say) -> str:
    """Write the table of models of steps beside a linear map."""
    head = [say(word) for word in ("data", "look-back", "model", "fit")]
    head += ["MSE", "MAE", say("validation error"), say("coverage"), say("parameters"), say("minutes")]
    rows = []
    for row in result["rows"]:
        figures = [f"{row[name]:.3f}" for name in ("mse", "mae", "valid_mse", "coverage")]
        facts = [f"{row['parameters']:,}", f"{row['minutes']:.1f}"]
        data = f"{row['data']}, {row['horizon']}"
        rows.append([data, str(row["lookback"]), row["model"], say(row["fit"]), *figures, *facts])
    return join(table(head, rows, texts=4), say(BYPASS_NOTE), result, say)


def _winners(lines: dict[tuple[Any, ...], dict[int, dict[str, Any]]], horizons: int, say: Say) -> str:
    """Return the table of the best model of each kind: the lowest mean over all horizons."""
    rows = []
    for data, lookback in sorted({name[:2] for name in lines}):
        cells = []
        for families in KINDS.values():
            found = [
                (_mean(line), name[2], name[3])
                for name, line in lines.items()
                if name[:2] == (data, lookback) and name[2] in families and len(line) == horizons
            ]
            error, family, fit = min(found, default=(0.0, "", ""))
            cells.append(f"{error:.3f} {family}, {say(fit)}" if family else "–")
        best = min(range(len(cells)), key=lambda i: cells[i] if cells[i] != "–" else "~")
        cells[best] = f"**{cells[best]}**"
        rows.append([data, str(-lookback), *cells])
    return table([say("data"), say("look-back"), *(say(kind) for kind in KINDS)], rows, texts=2)


KINDS = {
    "linear map": ("linear", "nlinear", "dlinear"),
    "recurrent": ("rnn", "gru", "lstm"),
    "attention": ("transformer", "linear-attention"),
    "test-time training": ("ttt-linear",),
}
CHOSEN = ("bypass", "segment", "head", "width", "rate")


def _mean(cells: dict[int, dict[str, Any]]) -> float:
    return sum(row["mse"] for row in cells.values()) / len(cells)


def _ett_row(name: tuple[Any, ...], cells: dict[int, dict[str, Any]], horizons: list[int], say: Say) -> list[str]:
    data, lookback, model, fit = name
    found = [cells.get(horizon) for horizon in horizons]
    errors = ["–" if row is None else f"{row['mse']:.3f} / {row['mae']:.3f}" for row in found]
    covered = [row["coverage"] for row in cells.values()]
    first = cells[min(cells)]
    words = say(fit) if first["parameters"] else "–"
    minutes = sum(row["minutes"] for row in cells.values())
    facts = [f"{min(covered):.2f}–{max(covered):.2f}", f"{first['parameters']:,}", f"{minutes:.1f}"]
    return [data, str(-lookback), model, words, *errors, *facts]


def units_block(result: Result, say: Say) -> str:
    rows = result["rows"]
    units = list(rows[0]["valid_crps"])
    head = [say("horizon"), *(f"{say(unit)}, CRPS" for unit in units), say("chosen"), say("coverage")]
    head += [say("error, validation"), say("error, test"), say("after its own half"), say("windows apart")]
    lines = []
    for row in rows:
        quarters = ", ".join(f"{value:.2f}" for value in row["valid_error"])
        line = [str(row["horizon"]), *(f"{row['valid_crps'][unit]:.4f}" for unit in units), say(row["chosen"])]
        line += [
            f"{row['coverage']:.3f}",
            quarters,
            f"{row['test_error']:.2f}",
            f"{row['coverage_after_own_half']:.3f}",
        ]
        lines.append([*line, str(row["separate_windows"])])
    return join(table(head, lines, texts=0), say(UNITS_NOTE).format(lookback=result["lookback"]), result, say)


def classics_block(result: Result, say: Say) -> str:
    head = [
        say("data"),
        say("command"),
        "MASE",
        say("seasonal naive, MASE"),
        "sMAPE",
        say("coverage"),
        say("95 % interval"),
    ]
    rows = []
    for row in result["rows"]:
        low, high = row["interval"]
        figures = [f"{row[name]:.3f}" for name in ("mase", "naive_mase")]
        rows.append([row["data"], f"`{row['typed']}`", *figures, f"{row['smape']:.1f}", f"{row['coverage']:.3f}"])
        rows[-1].append(f"{low:.2f}–{high:.2f}")
    return join(table(head, rows, texts=2), say(CLASSICS_NOTE), result, say)


def parity_block(result: Result, say: Say) -> str:
    rows = [[row["model"], at_most(row["difference"])] for row in result["rows"]]
    note = say(PARITY_NOTE).format(dtype=result["dtype"], windows=" × ".join(map(str, result["windows"])))
    return join(table([say("model"), say("difference")], rows, texts=1), note, result, say)


def streaming_block(result: Result, say: Say) -> str:
    counts = sorted({row["read"] for row in result["rows"]})
    found = {(row["model"], row["read"]): row["seconds"] for row in result["rows"]}
    names = list(dict.fromkeys(row["model"] for row in result["rows"]))
    head = [say("model"), *(say("{} read").format(f"{count:,}") for count in counts)]
    rows = [[name, *(f"{1e6 * found[name, count]:,.0f}" for count in counts)] for name in names]
    note = say(STREAMING_NOTE).format(**{k: result[k] for k in ("width", "horizon", "threads")})
    return join(table(head, rows, texts=1), note, result, say)
