"""The nine laws of the contract, and `check_layer`."""
