"""The line: every way of remembering in the package, in the order of history.

Plain data, which the command line reads without importing torch. `Station.build` returns a small layer of a station.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from recollect.core.types import AnyLayer

Language = Literal["en", "zh"]


@dataclass(frozen=True)
class Station:
    """One way of remembering."""

    name: str
    year: int
    layer: str  # the public class
    paper: str
    memory: str  # the kind of its memory
    growth: Literal["none", "constant", "saturates", "linear"]  # of the memory's bytes as steps are read
    step: str  # the cost of one step: d width, n steps so far, k order or window, V vocabulary
    idea: dict[str, str]  # by language
    tasks: tuple[str, ...] = ()  # that accept its name as a model; none: it is a layer, or part of a model
    options: dict[str, object] = field(default_factory=dict)  # of a small layer

    def build(self) -> AnyLayer:
        """Return a small layer of this station; one that counts is empty."""
        return getattr(import_module("recollect"), self.layer)(**self.options)


LINE = (
    Station(
        name="markov",
        year=1913,
        layer="Markov",
        paper="Markov 1913; Shannon 1948; Chen & Goodman 1998",
        memory="Recent",
        growth="constant",
        step="O(k V)",
        idea={
            "en": "remembers the last few symbols and counts what followed",
            "zh": "记住最后几个符号，统计其后出现的符号",
        },
        tasks=("language",),
        options={"vocab_size": 64, "order": 4},
    ),
    Station(
        name="linear",
        year=1927,
        layer="Forecaster",
        paper="Yule 1927",
        memory="Recent",
        growth="constant",
        step="O(k)",
        idea={
            "en": "remembers the last few values and adds them up with weights",
            "zh": "记住最后若干个值，加权求和",
        },
        tasks=("forecast",),
        options={"config": "linear", "channels": 2, "lookback": 16, "horizon": 4},
    ),
    Station(
        name="naive",
        year=1966,
        layer="Forecaster",
        paper="Theil 1966",
        memory="Recent",
        growth="constant",
        step="O(1)",
        idea={"en": "remembers the last value and repeats it", "zh": "记住最后一个值，并一直重复它"},
        tasks=("forecast",),
        options={"config": "naive", "channels": 2, "lookback": 16, "horizon": 4},
    ),
    Station(
        name="rnn",
        year=1990,
        layer="RNN",
        paper="Elman 1990",
        memory="Hidden",
        growth="constant",
        step="O(d²)",
        idea={"en": "remembers a vector, rewritten at every step", "zh": "记住一个向量，每一步都重写它"},
        tasks=("language", "forecast"),
        options={"width": 64, "hidden": 64},
    ),
    Station(
        name="lstm",
        year=1997,
        layer="LSTM",
        paper="Hochreiter & Schmidhuber 1997; Gers et al. 2000",
        memory="HiddenCell",
        growth="constant",
        step="O(d²)",
        idea={"en": "remembers a vector that gates can protect", "zh": "记住一个由门控保护的向量"},
        tasks=("language", "forecast"),
        options={"width": 64, "hidden": 64},
    ),
    Station(
        name="seasonal-naive",
        year=1998,
        layer="Forecaster",
        paper="Makridakis, Wheelwright & Hyndman 1998",
        memory="Recent",
        growth="constant",
        step="O(1)",
        idea={"en": "remembers the last season and repeats it", "zh": "记住上一个周期，并重复它"},
        tasks=("forecast",),
        options={"config": "seasonal-naive", "channels": 2, "lookback": 16, "horizon": 4, "season": 4},
    ),
    Station(
        name="drift",
        year=1998,
        layer="Forecaster",
        paper="Makridakis, Wheelwright & Hyndman 1998",
        memory="Recent",
        growth="constant",
        step="O(1)",
        idea={
            "en": "remembers the first and the last value and extends their line",
            "zh": "记住首尾两个值，延长它们的连线",
        },
        tasks=("forecast",),
        options={"config": "drift", "channels": 2, "lookback": 16, "horizon": 4},
    ),
    Station(
        name="window",
        year=2003,
        layer="Window",
        paper="Bengio et al. 2003",
        memory="Recent",
        growth="constant",
        step="O(k d²)",
        idea={
            "en": "remembers the last few inputs and reads them with a network",
            "zh": "记住最后几个输入，用神经网络读取",
        },
        tasks=("language", "forecast"),
        options={"width": 64, "order": 4},
    ),
    Station(
        name="biases",
        year=2009,
        layer="Recommender",
        paper="Koren, Bell & Volinsky 2009",
        memory="Nothing",
        growth="none",
        step="O(1)",
        idea={
            "en": "knows how well an item is liked and how kindly a user rates, not who likes what",
            "zh": "只知道物品受欢迎的程度和用户打分的宽严，不知道谁喜欢什么",
        },
        tasks=("recommend",),
        options={"config": "biases", "users": 8, "items": 8},
    ),
    Station(
        name="factors",
        year=2009,
        layer="Recommender",
        paper="Koren, Bell & Volinsky 2009",
        memory="Nothing",
        growth="none",
        step="O(d)",
        idea={
            "en": "multiplies the tastes of a user with the features of an item, both learned",
            "zh": "把用户的口味与物品的特征做点积，两者都由学习得到",
        },
        tasks=("recommend",),
        options={"config": "factors", "users": 8, "items": 8, "width": 4},
    ),
    Station(
        name="gru",
        year=2014,
        layer="GRU",
        paper="Cho et al. 2014",
        memory="Hidden",
        growth="constant",
        step="O(d²)",
        idea={"en": "remembers a vector and decides how much of it to update", "zh": "记住一个向量，并决定更新多少"},
        tasks=("language", "forecast"),
        options={"width": 64, "hidden": 64},
    ),
    Station(
        name="sutskever",
        year=2014,
        layer="Translator",
        paper="Sutskever et al. 2014",
        memory="Layers",
        growth="constant",
        step="O(d²)",
        idea={
            "en": "remembers a whole source as one state, from which the target is generated",
            "zh": "把整个源句压缩成一个状态，再由它逐词生成目标句",
        },
        tasks=("translate", "summarise"),
        options={"config": "sutskever", "source_vocab": 64, "target_vocab": 64, "width": 16},
    ),
    Station(
        name="cho",
        year=2014,
        layer="Translator",
        paper="Cho et al. 2014",
        memory="Summarised",
        growth="constant",
        step="O(d²)",
        idea={
            "en": "remembers a source as one vector, which every step reads",
            "zh": "把源句压缩成一个向量，每一步都读取它",
        },
        tasks=("translate", "summarise"),
        options={"config": "cho", "source_vocab": 64, "target_vocab": 64, "width": 16},
    ),
    Station(
        name="static",
        year=2014,
        layer="Translator",
        paper="Cho et al. 2014; Lin et al. 2017",
        memory="Summarised",
        growth="constant",
        step="O(d²)",
        idea={
            "en": "remembers a source as one vector: its last state, a mean, a maximum or a weighted sum",
            "zh": "把源句压缩成一个向量：末状态、均值、最大值或加权和",
        },
        tasks=("translate", "summarise"),
        options={"config": "static", "source_vocab": 64, "target_vocab": 64, "width": 16},
    ),
    Station(
        name="bahdanau",
        year=2015,
        layer="Translator",
        paper="Bahdanau et al. 2015",
        memory="Attending",
        growth="constant",
        step="O(d² + n d)",
        idea={
            "en": "remembers every step of the source and attends to all of them before each step",
            "zh": "记住源句的每一步，每次解码前对全部做注意力",
        },
        tasks=("translate", "summarise"),
        options={"config": "bahdanau", "source_vocab": 64, "target_vocab": 64, "width": 16},
    ),
    Station(
        name="luong",
        year=2015,
        layer="Translator",
        paper="Luong et al. 2015",
        memory="Attending",
        growth="constant",
        step="O(d² + n d)",
        idea={
            "en": "remembers every step of the source and attends to them after each step",
            "zh": "记住源句的每一步，每次解码后再做注意力",
        },
        tasks=("translate", "summarise"),
        options={"config": "luong", "source_vocab": 64, "target_vocab": 64, "width": 16},
    ),
    Station(
        name="show-attend-tell",
        year=2015,
        layer="Captioner",
        paper="Xu et al. 2015",
        memory="Attending",
        growth="constant",
        step="O(d² + n d)",
        idea={
            "en": "remembers a picture as a grid and attends to its cells before each word",
            "zh": "把图片记成网格，生成每个词之前对各格做注意力",
        },
        tasks=("caption",),
        options={"config": "show-attend-tell", "target_vocab": 64, "size": (16, 16, 3), "width": 16},
    ),
    Station(
        name="basic-self-attention",
        year=2017,
        layer="BasicSelfAttention",
        paper="Bloem 2019, after Vaswani et al. 2017",
        memory="Inputs",
        growth="linear",
        step="O(n d)",
        idea={
            "en": "remembers every input and compares them, without parameters",
            "zh": "记住每个输入并两两比较，没有参数",
        },
        options={"width": 64},
    ),
    Station(
        name="self-attention",
        year=2017,
        layer="SelfAttention",
        paper="Vaswani et al. 2017",
        memory="KeysValues",
        growth="linear",
        step="O(d² + n d)",
        idea={
            "en": "remembers a list of all steps and attends to all of it",
            "zh": "记住所有步的列表，每一步都对整个列表做注意力",
        },
        options={"width": 64, "heads": 4},
    ),
    Station(
        name="transformer",
        year=2017,
        layer="LanguageModel",
        paper="Vaswani et al. 2017",
        memory="Layers",
        growth="linear",
        step="O(d² + n d)",
        idea={
            "en": "stacks blocks of self-attention and feed-forward networks, each with a list of all steps",
            "zh": "堆叠自注意力与前馈网络，每个块都记住所有步",
        },
        tasks=("language", "translate", "summarise", "caption", "forecast"),
        options={"config": "transformer", "vocab_size": 64, "width": 16},
    ),
    Station(
        name="gpt",
        year=2018,
        layer="LanguageModel",
        paper="Radford et al. 2018, 2019",
        memory="Layers",
        growth="linear",
        step="O(d² + n d)",
        idea={
            "en": "is a causal Transformer: the decoder only, with learned positions",
            "zh": "因果的 Transformer：只有解码器，位置编码可学习",
        },
        options={"config": "transformer", "vocab_size": 64, "width": 16, "max_length": 1024},
    ),
    Station(
        name="bert",
        year=2018,
        layer="SelfAttention",
        paper="Devlin et al. 2019",
        memory="Nothing",
        growth="none",
        step="O(n d² + n² d), once",
        idea={
            "en": "is a bidirectional Transformer: the encoder only, every step attends to all",
            "zh": "双向的 Transformer：只有编码器，每一步都对全部步做注意力",
        },
        options={"width": 64, "heads": 4, "causal": False},
    ),
    Station(
        name="windowed-attention",
        year=2019,
        layer="SelfAttention",
        paper="Child et al. 2019; Beltagy et al. 2020",
        memory="KeysValues",
        growth="saturates",
        step="O(d² + k d)",
        idea={"en": "remembers a list of the most recent steps", "zh": "只记住最近若干步的列表"},
        options={"width": 64, "heads": 4, "window": 256},
    ),
    Station(
        name="linear-attention",
        year=2020,
        layer="LinearAttention",
        paper="Katharopoulos et al. 2020",
        memory="Associations",
        growth="constant",
        step="O(d²)",
        idea={"en": "remembers the list summed up in a matrix of associations", "zh": "把列表累加成一个关联矩阵"},
        tasks=("language", "forecast"),
        options={"width": 64, "heads": 4},
    ),
    Station(
        name="nlinear",
        year=2023,
        layer="Forecaster",
        paper="Zeng et al. 2023",
        memory="Recent",
        growth="constant",
        step="O(k)",
        idea={
            "en": "remembers a window, and maps its distances from the last value",
            "zh": "记住一个窗口，对各值与最后一个值的差做线性映射",
        },
        tasks=("forecast",),
        options={"config": "nlinear", "channels": 2, "lookback": 16, "horizon": 4},
    ),
    Station(
        name="dlinear",
        year=2023,
        layer="Forecaster",
        paper="Zeng et al. 2023",
        memory="Recent",
        growth="constant",
        step="O(k)",
        idea={
            "en": "remembers a window, and maps its moving average and the rest of it",
            "zh": "记住一个窗口，对移动平均与余项分别做线性映射",
        },
        tasks=("forecast",),
        options={"config": "dlinear", "channels": 2, "lookback": 30, "horizon": 4},
    ),
    Station(
        name="ttt-linear",
        year=2024,
        layer="TTTLinear",
        paper="Sun et al. 2024",
        memory="FastWeights",
        growth="constant",
        step="O(d²)",
        idea={"en": "remembers weights that it trains while it reads", "zh": "记住一组权重，边读边训练"},
        tasks=("language", "forecast"),
        options={"width": 64, "heads": 4},
    ),
    Station(
        name="ttt-mlp",
        year=2024,
        layer="TTTMLP",
        paper="Sun et al. 2024",
        memory="FastWeights",
        growth="constant",
        step="O(d²)",
        idea={
            "en": "remembers the weights of a small network, trained while it reads",
            "zh": "记住一个小网络的权重，边读边训练",
        },
        tasks=("language", "forecast"),
        options={"width": 64, "heads": 4},
    ),
)


def station_of(family: str, *, is_windowed: bool = False) -> Station | None:
    """Return a family's station; None for a user-defined layer."""
    name = "windowed-attention" if is_windowed and family == "transformer" else family
    return next((s for s in LINE if s.name == name), None)
