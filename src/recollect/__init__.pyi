# The public names, and where each lives; __init__.py reads this list.
from recollect.check import LawBroken as LawBroken, check_layer as check_layer
from recollect.entry import ContractError as ContractError, check_ids as check_ids, check_prefix as check_prefix
from recollect.growing import Growing as Growing
from recollect.layer import (
    Bidirectional as Bidirectional,
    Residual as Residual,
    SequenceLayer as SequenceLayer,
    Stack as Stack,
    scan as scan,
)
from recollect.layers.alignments import make_alignment as make_alignment
from recollect.layers.attend import Attend as Attend
from recollect.layers.attention import (
    BasicSelfAttention as BasicSelfAttention,
    KeysValues as KeysValues,
    SelfAttention as SelfAttention,
)
from recollect.layers.attention_forms import MultiHead as MultiHead, MultiHop as MultiHop
from recollect.layers.block import Block as Block
from recollect.layers.convolution import Convolution as Convolution
from recollect.layers.cross_attention import CrossAttention as CrossAttention, Source as Source
from recollect.layers.decoder_block import DecoderBlock as DecoderBlock, Decoding as Decoding
from recollect.layers.gru import GRU as GRU
from recollect.layers.linear_attention import Associations as Associations, LinearAttention as LinearAttention
from recollect.layers.lstm import LSTM as LSTM
from recollect.layers.markov import Markov as Markov
from recollect.layers.numpy_rnn import NumpyRNN as NumpyRNN
from recollect.layers.pointwise import (
    Dropout as Dropout,
    Embedding as Embedding,
    FeedForward as FeedForward,
    LayerNorm as LayerNorm,
    Linear as Linear,
    RMSNorm as RMSNorm,
)
from recollect.layers.pooling import Hierarchical as Hierarchical, SelfAttentive as SelfAttentive
from recollect.layers.positions import Position as Position, Positions as Positions
from recollect.layers.recent import Recent as Recent
from recollect.layers.recurrence import Hidden as Hidden, HiddenCell as HiddenCell
from recollect.layers.rnn import RNN as RNN
from recollect.layers.scores import make_score as make_score
from recollect.layers.torch_bridge import RecurrentStack as RecurrentStack
from recollect.layers.ttt import TTTMLP as TTTMLP, FastWeights as FastWeights, TTTLinear as TTTLinear
from recollect.layers.window import Window as Window
from recollect.memory import Both as Both, Fixed as Fixed, Layers as Layers, Memory as Memory, Nothing as Nothing
from recollect.observe import record as record
from recollect.saving import (
    FileError as FileError,
    load_memory as load_memory,
    load_weights as load_weights,
    save_memory as save_memory,
    save_weights as save_weights,
)
from recollect.version import __version__ as __version__
