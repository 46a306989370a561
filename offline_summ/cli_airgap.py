"""How the commands that score close the network before they read a document. Knows nothing of scoring."""

from typing import Annotated, Literal

import typer

from offline_summ.terminal import note

AirgapOption = Annotated[
    Literal["auto", "required", "off"],
    typer.Option(
        "--airgap",
        help="Close the network by the kernel, or else by a guard (auto), by the kernel or not run at all "
        "(required), or leave it open (off).",
    ),
]


def close_network(wanted: Literal["auto", "required", "off"]) -> None:
    """Close the network of this command for good, and say so where the kernel does not do it."""
    from offline_summ.airgap import close_process

    fallback = close_process(wanted)
    if fallback is not None:
        note(fallback)
