"""`python -m recollect` is `recollect`."""

from recollect.cli import main

main()
