"""What `recollect bench` does: ours and torch.nn in turn, on this machine."""
