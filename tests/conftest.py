"""Real judges for the tests that decode: prepared once by scripts/test.sh, loaded once a session."""

import pytest

from offline_summ.judges import load_registry
from offline_summ.weights import default_home, is_ready


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("judge"):
            # vLLM and what it imports warn of things that are theirs to mend.
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture(scope="session")
def home():
    """The folder in which scripts/test.sh prepared the judges."""
    folder = default_home()
    registry = load_registry()
    for name in ("smollm2-135m", "qwen2.5-coder-1.5b"):
        if not is_ready(registry.get(name), folder):
            pytest.fail(f"judge {name!r} is not in {str(folder)!r}; run `offline-summ judges fetch {name}`")
    return folder
