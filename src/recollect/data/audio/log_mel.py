"""Log-mel frames: from samples of sound to one vector for each moment."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

WINDOW, HOP = 0.032, 0.016  # seconds
FLOOR = 1e-6  # added to the power, so that silence has a logarithm


def mel(frequency: float) -> float:
    """Return a frequency in mel, 2595 log10(1 + f / 700) (O'Shaughnessy 1987, as in HTK)."""
    return 2595 * math.log10(1 + frequency / 700)


def mel_filters(bands: int, size: int, rate: int) -> Tensor:
    """Return triangular filters (bands, size // 2 + 1) over the frequencies of a Fourier transform of `size` samples.

    Their corners are evenly spaced in mel from 0 to half the rate; each rises to 1 at the next corner and falls to 0 at
    the one after it. Their areas differ, as in HTK; librosa divides by them unless norm=None.
    """
    corners = np.linspace(0, mel(rate / 2), bands + 2)
    corners = 700 * (10 ** (corners / 2595) - 1)  # in Hz
    frequencies = np.arange(size // 2 + 1) * rate / size
    rise = (frequencies - corners[:-2, None]) / np.diff(corners)[:-1, None]
    fall = (corners[2:, None] - frequencies) / np.diff(corners)[1:, None]
    return torch.from_numpy(np.maximum(0, np.minimum(rise, fall)))


def log_mel(samples: NDArray[np.float32], rate: int, bands: int = 40) -> NDArray[np.float32]:
    """Return log-mel frames (T, bands) of samples (N,).

    x_tb = log(ε + Σ_k F_bk |X_tk|²),   X_tk = Σ_n h_n s_{tH+n} e^{−2πi kn / W}

    h is a periodic Hann window of W samples (32 ms), H is half of it, F are `mel_filters`, ε = 10⁻⁶ (Davis &
    Mermelstein 1980, without their cosine transform). A recording shorter than one window is filled up with silence;
    what is left behind the last whole window is dropped.

    >>> import numpy as np
    >>> seconds = np.arange(8000) / 8000
    >>> frames = rc.log_mel(np.sin(2 * np.pi * 440 * seconds).astype(np.float32), 8000)
    >>> frames.shape
    (61, 40)
    """
    window, hop = round(WINDOW * rate), round(HOP * rate)
    signal = torch.from_numpy(np.pad(samples, (0, max(window - len(samples), 0)))).double()
    spectrum = torch.stft(
        signal, window, hop, window=torch.hann_window(window, dtype=torch.float64), center=False, return_complex=True
    )  # (W // 2 + 1, T)
    power = mel_filters(bands, window, rate) @ spectrum.abs().square()  # (bands, T)
    found: NDArray[np.float32] = (power + FLOOR).log().T.float().contiguous().numpy()
    return found
