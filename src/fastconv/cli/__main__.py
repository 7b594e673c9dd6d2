"""`python -m fastconv.cli`, the console script without its installed wrapper."""

from fastconv.cli import main

main()
