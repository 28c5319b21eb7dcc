"""The claims, one file each: `story/claim.py` says how a file declares one."""
