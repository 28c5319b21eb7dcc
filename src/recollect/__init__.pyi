# The public names, and where each lives; __init__.py reads this list.
from recollect.comparison.compare import compare as compare
from recollect.core.compose import (
    Bidirectional as Bidirectional,
    Repeated as Repeated,
    Residual as Residual,
    Stack as Stack,
)
from recollect.core.errors import ContractError as ContractError
from recollect.core.growing import Growing as Growing
from recollect.core.layer import SequenceLayer as SequenceLayer, scan as scan
from recollect.core.memory import (
    Both as Both,
    Fixed as Fixed,
    Layers as Layers,
    Memory as Memory,
    Nothing as Nothing,
    grows as grows,
)
from recollect.core.padding import pad as pad
from recollect.core.record import note as note, record as record
from recollect.core.serialize import (
    FileError as FileError,
    load_memory as load_memory,
    load_weights as load_weights,
    save_memory as save_memory,
    save_weights as save_weights,
)
from recollect.core.settings import CheckedSettings as CheckedSettings, SettingError as SettingError, setting as setting
from recollect.core.task import (
    About as About,
    Answer as Answer,
    Baseline as Baseline,
    ItemScores as ItemScores,
    Loss as Loss,
    Measure as Measure,
    Prediction as Prediction,
    Scores as Scores,
    Task as Task,
    TaskDefaults as TaskDefaults,
)
from recollect.core.validate import check_ids as check_ids, check_prefix as check_prefix
from recollect.data.audio.frame_coder import FrameCoder as FrameCoder
from recollect.data.audio.log_mel import log_mel as log_mel
from recollect.data.audio.wav_files import read_wav as read_wav
from recollect.data.text.framed import FramedTokenizer as FramedTokenizer
from recollect.data.text.line_tokenizer import LineTokenizer as LineTokenizer
from recollect.data.text.pretrained_tokenizer import PretrainedTokenizer as PretrainedTokenizer
from recollect.data.text.tokenizer import Tokenizer as Tokenizer
from recollect.generation.beam import beam as beam
from recollect.generation.continuation import generate_text as generate_text, stream_text as stream_text
from recollect.generation.fills import Filled as Filled
from recollect.generation.forecast_stream import ForecastStream as ForecastStream
from recollect.generation.forecasts import Forecast as Forecast
from recollect.generation.sampling import generate as generate, stream as stream
from recollect.generation.settings import Search as Search, Settings as Settings
from recollect.generation.translation import TokenizerPair as TokenizerPair, translate as translate
from recollect.inspection.inspector import inspect as inspect
from recollect.inspection.pictures import picture as picture
from recollect.inspection.search_tree import hypotheses as hypotheses
from recollect.inspection.trace import Trace as Trace
from recollect.laws.check import LawBroken as LawBroken, check_layer as check_layer
from recollect.layers.attention.alignment import (
    Alignment as Alignment,
    Hard as Hard,
    LocalMonotonic as LocalMonotonic,
    LocalPredictive as LocalPredictive,
    Reinforced as Reinforced,
    Soft as Soft,
    make_alignment as make_alignment,
    score_function_loss as score_function_loss,
)
from recollect.layers.attention.attend import Attend as Attend
from recollect.layers.attention.coattention import (
    AlternatingCoAttention as AlternatingCoAttention,
    InteractiveCoAttention as InteractiveCoAttention,
    MultiGrainedCoAttention as MultiGrainedCoAttention,
    ParallelCoAttention as ParallelCoAttention,
    RotatoryAttention as RotatoryAttention,
)
from recollect.layers.attention.cross_attention import CrossAttention as CrossAttention, Source as Source
from recollect.layers.attention.levels import (
    AttentionViaAttention as AttentionViaAttention,
    MultiRepresentational as MultiRepresentational,
)
from recollect.layers.attention.linear_attention import Associations as Associations, LinearAttention as LinearAttention
from recollect.layers.attention.multi_head import MultiHead as MultiHead, MultiHop as MultiHop
from recollect.layers.attention.pooling import (
    Capsules as Capsules,
    Hierarchical as Hierarchical,
    SelfAttentive as SelfAttentive,
    TanhDot as TanhDot,
)
from recollect.layers.attention.score import (
    ActivatedGeneral as ActivatedGeneral,
    Additive as Additive,
    BiasedGeneral as BiasedGeneral,
    Cosine as Cosine,
    Distance as Distance,
    Dot as Dot,
    General as General,
    ScaledDot as ScaledDot,
    Score as Score,
    make_score as make_score,
)
from recollect.layers.attention.self_attention import (
    BasicSelfAttention as BasicSelfAttention,
    KeysValues as KeysValues,
    SelfAttention as SelfAttention,
)
from recollect.layers.block import Block as Block
from recollect.layers.convolution import Convolution as Convolution
from recollect.layers.crf import CRF as CRF
from recollect.layers.decoder_block import DecoderBlock as DecoderBlock, Decoding as Decoding
from recollect.layers.filters import Filters as Filters
from recollect.layers.ngram.markov import Markov as Markov
from recollect.layers.ngram.recent import Recent as Recent
from recollect.layers.ngram.window import Window as Window
from recollect.layers.pointwise import (
    Dropout as Dropout,
    Embedding as Embedding,
    FeedForward as FeedForward,
    LayerNorm as LayerNorm,
    Linear as Linear,
    RMSNorm as RMSNorm,
)
from recollect.layers.pools import AttentionPool as AttentionPool, MaxPool as MaxPool, MeanPool as MeanPool
from recollect.layers.positions import Position as Position, Positions as Positions
from recollect.layers.recurrent.gru import GRU as GRU
from recollect.layers.recurrent.lstm import LSTM as LSTM
from recollect.layers.recurrent.numpy_rnn import NumpyRNN as NumpyRNN
from recollect.layers.recurrent.recurrence import Hidden as Hidden, HiddenCell as HiddenCell
from recollect.layers.recurrent.rnn import RNN as RNN
from recollect.layers.recurrent.torch_bridge import RecurrentStack as RecurrentStack
from recollect.layers.spelling import SpelledEmbedding as SpelledEmbedding
from recollect.layers.ttt.fast_weights import FastWeights as FastWeights
from recollect.layers.ttt.layer import TTTMLP as TTTMLP, TTTLinear as TTTLinear
from recollect.models.captioning import CaptionConfig as CaptionConfig, Captioner as Captioner
from recollect.models.classification import Classifier as Classifier, ClassifierConfig as ClassifierConfig
from recollect.models.context_free import BagOfWords as BagOfWords, Majority as Majority
from recollect.models.forecast_config import ForecastConfig as ForecastConfig
from recollect.models.forecasting import Forecaster as Forecaster
from recollect.models.gap_filling import FillConfig as FillConfig, GapFiller as GapFiller
from recollect.models.language import LanguageConfig as LanguageConfig, LanguageModel as LanguageModel
from recollect.models.masked import MaskedConfig as MaskedConfig, MaskedModel as MaskedModel
from recollect.models.matching import Matcher as Matcher, MatcherConfig as MatcherConfig
from recollect.models.ngram_bag import BagOfNGrams as BagOfNGrams
from recollect.models.recommendation import Recommender as Recommender, RecommenderConfig as RecommenderConfig
from recollect.models.reversible_norm import ReversibleNorm as ReversibleNorm
from recollect.models.tagging import Tagger as Tagger, TaggerConfig as TaggerConfig
from recollect.models.task_model import (
    ContextQuery as ContextQuery,
    LastStep as LastStep,
    LearnedQuery as LearnedQuery,
    MeanQuery as MeanQuery,
    TaskModel as TaskModel,
)
from recollect.models.translation import TranslationConfig as TranslationConfig, Translator as Translator
from recollect.pretrained.load import (
    Pretrained as Pretrained,
    from_pretrained as from_pretrained,
    save_pretrained as save_pretrained,
)
from recollect.runs.embed import embed as embed
from recollect.runs.finetune import finetune as finetune
from recollect.runs.run import Run as Run, load as load
from recollect.runs.train import train as train
from recollect.version import __version__ as __version__
from recollect.views.picture import Picture as Picture
