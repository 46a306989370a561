"""Lets `python -m offline_summ` do what `offline-summ` does."""

from offline_summ.cli import main

main()
