"""The offline guarantee: what must be switched off before an engine is imported.

So far this covers what dependencies do on their own: telemetry, model-hub look-ups and the discovery of the
host's address. Closing the network itself is not done here yet. Knows nothing of the rest of the package.
"""

from collections.abc import MutableMapping

OFFLINE_ENVIRONMENT: dict[str, str] = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}

# vLLM finds its own address by opening a socket towards a public one; an address given here is taken instead.
LOOPBACK_ENVIRONMENT: dict[str, str] = {"VLLM_HOST_IP": "127.0.0.1"}


def go_offline(environ: MutableMapping[str, str]) -> None:
    """Switch off telemetry, hub look-ups and address discovery for this process and its children.

    Call it before the first import of an engine: the libraries read these variables once.

    Args:
        environ: the environment to change, normally `os.environ`. A host address that is set already is
            kept, because a judge that spans several machines needs it.
    """
    environ.update(OFFLINE_ENVIRONMENT)
    for name, value in LOOPBACK_ENVIRONMENT.items():
        environ.setdefault(name, value)
