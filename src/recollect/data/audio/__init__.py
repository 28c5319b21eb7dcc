"""Recordings: .wav files, and the vectors that models read in place of symbols."""
