"""`python -m tossup` is `tossup`: for torchrun, which starts modules."""

from tossup.cli import main

main()
