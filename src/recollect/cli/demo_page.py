"""The demo's page: its figures and its table."""

from __future__ import annotations

import math
import shlex

from markupsafe import Markup

from recollect.cli.demo import EXAM, DemoOutcome, Finding
from recollect.story.notes import CHANCE, DISTANCES, HELD_OUT, PARAMETERS, TRAINED, Inside, asked_weight
from recollect.story.outlook import FARTHEST, Outlook
from recollect.views.bilingual import Bilingual
from recollect.views.heat_map import heat_map
from recollect.views.line_chart import Axis, Line, line_chart, series
from recollect.views.page import render
from recollect.views.table import table

UNIGRAM = Bilingual("unigram", "一元模型")
LOSS = Bilingual("nats per character", "每字符奈特数")
SOLVED = 0.95  # right answers, from which a distance counts as remembered
LEARNED = 0.2  # right answers, up to which they may be guesses
GATE_NAMES = {"input_gate": Bilingual("write", "写入"), "forget_gate": Bilingual("keep", "保留")}


def page(outcome: DemoOutcome) -> str:
    """Return the HTML page."""
    findings = outcome.findings
    return render(
        "demo.html.j2",
        outcome.machine,
        outcome=outcome,
        why=Bilingual(*outcome.outlook.sentences()),
        results=results(outcome),
        losses=loss_curves(outcome),
        ahead=longer_trainings(outcome.outlook),
        notes=accuracies(findings),
        verdict=verdict(findings),
        exam_seconds=EXAM * outcome.demo.seconds,
        trained=max(TRAINED),
        held_out=HELD_OUT,
        note_parameters=PARAMETERS,
        chance=f"{100 * CHANCE:.0f}",
        attention=outcome.attention and attention_map(outcome.attention),
        gates=gates_over_time(outcome.gates) if outcome.gates else None,
        asked_weight=asked_weight(outcome.attention) if outcome.attention else None,
        gate_facts=gate_facts(outcome.gates) if outcome.gates else None,
        memories=memory_growth(findings),
        folder=shlex.quote(str(outcome.demo.out / outcome.best.family)),
    )


def results(outcome: DemoOutcome) -> Markup:
    """Return the table of the text."""
    columns = (
        Bilingual("family", "家族"),
        Bilingual("test loss, nats", "测试损失（奈特）"),
        Bilingual("bits per character", "每字符比特"),
        Bilingual("parameters", "参数"),
        Bilingual("characters/s", "字符/秒"),
        Bilingual("bytes after 1k", "读 1k 后字节"),
        Bilingual("bytes after 16k", "读 16k 后字节"),
    )
    rows: list[tuple[str, list[Bilingual | str]]] = []
    for f in outcome.findings:
        counts = (f.parameters, f.speed, f.bytes[1024], f.bytes[16384])
        cells = [f.family, f"{f.loss:.3f}", f"{f.bits:.3f}", *(f"{n:,.0f}" for n in counts)]
        rows.append(("best" if f is outcome.best else "", [*cells]))
    figures = [f"{outcome.unigram:.3f}", f"{outcome.unigram_bits:.3f}", "", "", "", ""]
    rows.append(("baseline", [UNIGRAM, *figures]))
    return table(columns, rows)


def loss_curves(outcome: DemoOutcome) -> Markup:
    """Return held-out loss against training seconds; a family that is finished early keeps its last loss."""
    findings = outcome.findings
    ends = [f.curve[-1][1] for f in findings]
    last = max(outcome.demo.seconds, *(f.curve[-1][0] for f in findings))
    lines = [Line(f.family, [*f.curve, (last, f.curve[-1][1])], series(i)) for i, f in enumerate(findings)]
    lines.append(Line(UNIGRAM, [(0, outcome.unigram), (last, outcome.unigram)], 0, is_dashed=True, has_marks=False))
    low, high = min(ends) - 0.1, max(outcome.unigram, *ends) + 0.25
    x = Axis(Bilingual("training seconds", "训练秒数"), 0, last, [(t, f"{t:g}") for t in steps(0, last, 5)])
    y = Axis(LOSS, low, high, [(t, f"{t:g}") for t in steps(low, high, 5)])
    return line_chart(Bilingual("Loss during training", "训练中的损失"), lines, x, y)


def longer_trainings(outlook: Outlook) -> Markup:
    """Return the losses at the end of trainings of growing length, and two extrapolations."""
    longest = outlook.ends[-1][0]
    far = longest * FARTHEST
    times = [longest * 2 ** (n / 4) for n in range(round(4 * math.log2(FARTHEST)) + 1)]
    lines = [
        Line(
            outlook.counter,
            [(outlook.ends[0][0], outlook.counter_loss), (far, outlook.counter_loss)],
            1,
            has_marks=False,
        ),
        Line(
            Bilingual("if as before", "若收益不变"),
            [(t, outlook.loss_after(t, is_shrinking=False)) for t in times],
            3,
            is_dashed=True,
            has_marks=False,
        ),
        Line(
            Bilingual("if shrinking", "若收益递减"),
            [(t, outlook.loss_after(t, is_shrinking=True)) for t in times],
            2,
            is_dashed=True,
            has_marks=False,
        ),
        Line(outlook.rival, outlook.ends, 2),
    ]
    values = [loss for line in lines for _, loss in line.points]
    low, high = min(values) - 0.1, max(values) + 0.1
    x_ticks = [(t, f"{t:.2g}" if t < 100 else f"{t:.0f}") for t in (longest * 4.0**n for n in (-2, -1, 0, 1))]
    title = Bilingual("length of the training, seconds", "训练时长（秒）")
    x = Axis(title, outlook.ends[0][0], far, x_ticks, is_log=True)
    y = Axis(LOSS, low, high, [(t, f"{t:g}") for t in steps(low, high, 5)])
    return line_chart(Bilingual("Longer trainings", "更长的训练"), lines, x, y)


def accuracies(findings: tuple[Finding, ...]) -> Markup:
    """Return the share of right answers, by family and distance."""
    return heat_map(
        Bilingual("Right answers by distance", "各距离上的正确率"),
        [list(f.notes.accuracy.values()) for f in findings],
        [f.family for f in findings],
        [str(distance) for distance in DISTANCES],
        column_title=Bilingual("right answers in %, by letters in between", "正确率（%），按其间的字母数"),
        numbers=True,
    )


def verdict(findings: tuple[Finding, ...]) -> Bilingual:
    """Return who remembered and who did not, at the longest distance that was trained."""
    far = max(TRAINED)
    shares = {f.family: f.notes.accuracy[far] for f in findings}
    kinds = (
        (SOLVED, math.inf, "was remembered by", "记住便条的有"),
        (LEARNED, SOLVED, "in part by", "记住一部分的有"),
        (-math.inf, LEARNED, "no better than guessed by", "与瞎猜无异的有"),
    )
    english, chinese = [], []
    for least, below, words, words_chinese in kinds:
        names = [f"{family} ({100 * share:.0f} %)" for family, share in shares.items() if least <= share < below]
        if names:
            english.append(f"{words} {', '.join(names)}")
            chinese.append(f"{words_chinese} {'、'.join(names)}")
    return Bilingual(f"Over {far} letters the note {'; '.join(english)}.", f"隔着 {far} 个字母，{'；'.join(chinese)}。")


def gate_facts(gates: tuple[Inside, ...]) -> Bilingual:
    """Return how far the input gate is open at the notes, at the letters and at the question."""
    values = gates[0].values[0]
    notes = sum(values[:2]) / 2
    letters = sum(values[2:-1]) / len(values[2:-1])
    shares = [f"{100 * share:.0f} %" for share in (notes, letters, values[-1])]
    return Bilingual(
        f"The input gate is open {shares[0]} at the notes, {shares[1]} at the letters, {shares[2]} at the question.",
        f"输入门在便条处开启 {shares[0]}，在字母处 {shares[1]}，在问题处 {shares[2]}。",
    )


def attention_map(inside: Inside) -> Markup:
    """Return the attention weights of one head while it reads a line."""
    return heat_map(
        Bilingual("Attention weights", "注意力权重"),
        inside.values,
        inside.symbols,
        inside.symbols,
        column_title=Bilingual("attended to →", "被注意的符号 →"),
    )


def gates_over_time(gates: tuple[Inside, ...]) -> Markup:
    """Return how far the gates are open at each symbol of a line."""
    lines = []
    for number, inside in enumerate(gates):
        name = next(words for gate, words in GATE_NAMES.items() if gate in inside.name)
        lines.append(Line(name, list(enumerate(inside.values[0])), (3, 2)[number % 2]))
    ticks = [(float(place), symbol) for place, symbol in enumerate(gates[0].symbols)]
    x = Axis(Bilingual("symbol read", "读入的符号"), -0.4, len(ticks) - 0.6, ticks)
    y = Axis(Bilingual("open", "开启程度"), 0, 1, [(n / 4, f"{25 * n} %") for n in range(5)])
    return line_chart(Bilingual("Gates over time", "门随时间的变化"), lines, x, y)


def memory_growth(findings: tuple[Finding, ...]) -> Markup:
    """Return bytes of memory against symbols read, both axes logarithmic."""
    sizes = [size for f in findings for size in f.bytes.values()]
    reads = list(findings[0].bytes)
    low, high = min(sizes) / 2, max(sizes) * 2
    powers = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    lines = [Line(f.family, list(f.bytes.items()), series(i)) for i, f in enumerate(findings)]
    ticks = [(n, f"{n // 1024}k" if n >= 1024 else f"{n}") for n in reads]
    x = Axis(Bilingual("characters read", "已读字符数"), reads[0], reads[-1], ticks, is_log=True)
    y = Axis(
        Bilingual("bytes remembered", "记忆字节数"), low, high, [(10.0**n, _bytes(10**n)) for n in powers], is_log=True
    )
    return line_chart(Bilingual("Bytes of memory", "记忆的字节数"), lines, x, y)


def steps(low: float, high: float, most: int) -> list[float]:
    """Return round numbers between two ends, at most about so many."""
    rough = (high - low) / most
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * n for n in (1, 2, 5, 10) if unit * n >= rough)
    return [round(step * n, 10) for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _bytes(count: int) -> str:
    scale, unit = next(pair for pair in ((1_000_000, "MB"), (1000, "kB"), (1, "B")) if count >= pair[0])
    return f"{count // scale:,} {unit}"
