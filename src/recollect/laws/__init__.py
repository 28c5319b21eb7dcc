"""The nine laws that make a layer a layer, and `check_layer`."""
