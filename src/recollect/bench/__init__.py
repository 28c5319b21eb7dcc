"""`recollect bench`: our layers and torch.nn's timed on this machine, interleaved."""
